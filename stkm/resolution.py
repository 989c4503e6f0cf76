"""Large frames are matched on a smaller one: a low-passed image has nothing between its pixels.

The distance (Eq. 3) is taken on images low-passed by ``smoothing`` × side. Where that is several
pixels, means of r × r of them hold as much, at 1 / r² of the time and memory.
"""

from __future__ import annotations

import jax
import numpy as np

from .warp import batches

__all__ = ["enlarge", "factor", "shrink"]

FINEST = 2.0  # pixels of low-pass that a smaller frame keeps, at least


def factor(shape, smoothing):
    """r for a frame ``(H, W)``, low-passed by ``smoothing`` units of its side sqrt(H·W)."""
    return max(1, int(smoothing * np.sqrt(np.prod(shape)) / FINEST))


def shrink(images, r):
    """Means ``(N, ⌈H/r⌉, ⌈W/r⌉, C)`` float32 of r × r pixels of ``(N, H, W, C)``, 0 outside."""
    if r == 1:
        return images
    n, h, w, c = images.shape
    rows, cols = -(-h // r), -(-w // r)
    out = np.empty((n, rows, cols, c), np.float32)
    for part, _ in batches(np.arange(n), 64):
        block = np.pad(images[part], ((0, 0), (0, rows * r - h), (0, cols * r - w), (0, 0)))
        out[part] = block.reshape(len(part), rows, r, cols, r, c).mean((2, 4), dtype=np.float32)
    return out


def enlarge(images, r, shape):
    """Images ``(N, H, W, C)`` of the frame ``shape`` (H, W) from `shrink`'s, by linear weights."""
    if r == 1:
        return images
    n, rows, cols, c = images.shape
    whole = jax.image.resize(images, (n, rows * r, cols * r, c), "linear")
    return np.asarray(whole)[:, : shape[0], : shape[1]].astype(images.dtype)
