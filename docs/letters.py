"""Images to try things on: letters, each shifted, turned and stretched a little."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont


def letters(text="LST", n=60, side=16, degrees=25, stretch=0.25, shift=2, seed=0):
    """``n`` images (n, side, side) uint8 of the letters of ``text`` in turn, and which it is (n,).

    The turn is up to ``degrees``, the stretch of either side up to the share ``stretch``, the shift
    up to so many pixels.
    """
    rng = np.random.default_rng(seed)
    font = ImageFont.load_default(size=0.8 * side)
    kinds, images = np.arange(n) % len(text), []
    for kind in kinds:
        image = Image.new("L", (side, side))
        ImageDraw.Draw(image).text((side / 2, side / 2), text[kind], 255, font, anchor="mm")
        angle = np.radians(rng.uniform(-degrees, degrees))
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        a = turn * (1 + rng.uniform(-stretch, stretch, 2))
        centre = np.full(2, (side - 1) / 2)
        b = centre - a @ (centre + rng.uniform(-shift, shift, 2))
        how = Image.Transform.AFFINE, (*a[0], b[0], *a[1], b[1]), Image.Resampling.BILINEAR
        images.append(np.asarray(image.transform(image.size, *how)))
    return np.array(images), kinds
