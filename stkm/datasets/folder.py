"""A user's own images: the PNG, JPEG and TIFF files of one folder as one array."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stkm.datasets.errors import FolderNotFound

__all__ = [
    "MAX_PIXELS",
    "MAX_TOTAL",
    "Findings",
    "common_size",
    "image_sizes",
    "inspect_images",
    "load_images",
]

MAX_PIXELS = 50_000_000
"""Largest height × width of one file: a small file can unpack to gigabytes."""

MAX_TOTAL = 2_000_000_000
"""Most values, N × height × width × channels, of all the images of a folder: bytes in memory."""

_ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "TIFF")
_SIXTEEN_BITS = ("I", "I;16", "I;16B", "I;16L")


def _checked_size(size: object) -> tuple[int, int] | None:
    """Return `size` as (height, width), or None."""
    if size is None:
        return None
    pair: Any = (size, size) if isinstance(size, (int, np.integer)) else size
    try:
        height, width = pair
        whole = all(
            isinstance(n, (int, np.integer)) and not isinstance(n, bool) and 1 <= n
            for n in (height, width)
        )
    except (TypeError, ValueError):
        whole = False
    if not whole or height * width > MAX_PIXELS:
        raise ValueError(
            f"size is {size!r}; it must be a side in pixels, a pair (height, width) of such, "
            f"at most {MAX_PIXELS} pixels in all, or None to keep the size of the files"
        )
    return int(height), int(width)


def _image_files(folder: Path) -> list[Path]:
    """Return the image files of `folder`, then those of each folder in it, sorted by name."""
    if not folder.exists():
        raise FolderNotFound(f"no folder {folder}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; give the folder that holds the images")
    entries = _visible(folder)
    inner = [path for sub in entries if sub.is_dir() for path in _visible(sub)]
    found = [path for path in entries + inner if path.suffix.lower() in _ENDINGS and path.is_file()]
    if not found:
        raise ValueError(f"no image in {folder}: files ending in {', '.join(_ENDINGS)} are read")
    return found


def _visible(folder: Path) -> list[Path]:
    """Return what is in `folder` and not hidden, sorted by name."""
    entries = sorted(folder.iterdir(), key=lambda path: path.name)
    return [path for path in entries if not path.name.startswith(".")]


def _to_mode(picture: Any, grey: bool) -> np.ndarray:
    """Return the pixels of an opened picture, (H, W) or (H, W, 3) uint8."""
    from PIL import Image, ImageOps

    if picture.mode == "F":
        raise ValueError("its values are floating-point numbers, of no known range")
    picture = ImageOps.exif_transpose(picture)
    if picture.mode in _SIXTEEN_BITS:
        # Pillow's own conversion cuts values above 255 off instead of scaling
        values = np.asarray(picture, np.int64)
        picture = Image.fromarray(((values.clip(0, 65535) + 128) // 257).astype(np.uint8))
    if "A" in picture.getbands() or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "black"), picture)
        picture = picture.convert("RGB")
    return np.asarray(picture.convert("L" if grey else "RGB"))


def _read(path: Path, size: tuple[int, int] | None, grey: bool) -> np.ndarray:
    """Read one file; ValueError names it if it can't be read or is too large."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # our own limit, below, is stricter than the one that this warns of
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=_FORMATS) as picture:
                width, height = picture.size
                if height * width <= MAX_PIXELS:
                    pixels = _to_mode(picture, grey)
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path} has more than {MAX_PIXELS} pixels: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises all three
        reason = (
            f"not one of {', '.join(_FORMATS)}"
            if isinstance(error, Image.UnidentifiedImageError)
            else error
        )
        raise ValueError(f"{path} can't be read as an image: {reason}") from error
    if height * width > MAX_PIXELS:
        raise ValueError(f"{path} has {height}×{width} pixels; at most {MAX_PIXELS} are read")
    if size is not None and pixels.shape[:2] != size:
        # Pillow averages over the source pixels when it shrinks an image
        scaled = Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR)
        pixels = np.asarray(scaled)
    return pixels


def load_images(
    folder: str | os.PathLike[str],
    size: int | tuple[int, int] | None = None,
    grey: bool = True,
    *,
    strict: bool = False,
    max_total: int = MAX_TOTAL,
) -> tuple[np.ndarray, list[str]]:
    """Read all PNG, JPEG and TIFF files of a folder, in the order of their names.

    Files of the folders in it follow (one level; not deeper), with the folder before
    the name, as in ``cats/1.png``: where each kind has its folder, these are labels,
    ``[name.split("/")[0] for name in names]``.  Hidden files and files with other
    endings are left out.  Pictures are turned upright by their EXIF entry;
    transparent pixels are laid on black; 16-bit grey values are scaled to 8 bits;
    the first frame counts.

    Parameters
    ----------
    folder : path
    size : int or (int, int), optional
        Side, or (height, width), in pixels, to which every image is scaled
        (stretched where the proportions differ).  None: as the files are.
    grey : bool
        True: luminance, (N, H, W).  False: RGB, (N, H, W, 3).
    strict : bool
        True: a file that can't be read is an error.  False: it is named in a
        warning and left out.
    max_total : int
        Most values, N × height × width (× 3 in RGB), that all images may have together; as
        many bytes of memory.

    Returns
    -------
    images : ndarray of uint8, (N, H, W) or (N, H, W, 3)
        Values 0 to 255.
    names : list of str
        Each image's name in the folder.

    Raises
    ------
    FolderNotFound
        (a FileNotFoundError and a ValueError) if there is no such folder.
    ValueError
        If the folder holds no image that can be read, with ``strict`` if a file
        can't be read or has more than `MAX_PIXELS` pixels, if sizes differ while
        `size` is None, if all together have more than `max_total` values (nothing is
        unpacked then), or `size`, `grey`, `strict` or `max_total` is not one of the above.

    Warns
    -----
    UserWarning
        For each file that is left out because it can't be read.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from stkm import load_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (9, 6), 200).save(f"{folder}/a.png")
    ...     images, names = load_images(folder)
    >>> images.shape, images.dtype, names
    ((1, 6, 9), dtype('uint8'), ['a.png'])
    """
    if not isinstance(grey, (bool, np.bool_)):
        raise ValueError(f"grey is {grey!r}; it must be True (luminance) or False (RGB)")
    if not isinstance(strict, (bool, np.bool_)):
        raise ValueError(f"strict is {strict!r}; it must be True (stop) or False (warn)")
    if not isinstance(max_total, (int, np.integer)) or max_total is True or max_total < 1:
        raise ValueError(f"max_total is {max_total!r}; it must be a whole number of at least 1")
    wanted = _checked_size(size)
    _check_total(folder, wanted, bool(grey), max_total)
    images: list[np.ndarray] = []
    names: list[str] = []
    problem = None
    for path in _image_files(Path(folder)):
        name = path.relative_to(folder).as_posix()
        try:
            image = _read(path, wanted, bool(grey))
        except ValueError as error:
            if strict:
                raise
            problem = error
            warnings.warn(f"{error}; left out", UserWarning, stacklevel=2)
            continue
        if images and image.shape != images[0].shape:
            (h0, w0), (h, w) = images[0].shape[:2], image.shape[:2]
            raise ValueError(
                f"images of different sizes: {names[0]} is {h0}×{w0}, {name} is {h}×{w} "
                f"(height×width); give size=(height, width), say size=({h0}, {w0})"
            )
        images.append(image)
        names.append(name)
    if not images:
        raise ValueError(f"no image in {folder} can be read; the last one: {problem}")
    return np.stack(images), names


def _check_total(
    folder: str | os.PathLike[str], size: tuple[int, int] | None, grey: bool, most: int
) -> None:
    """Raise ValueError where all images together have too many values, as their heads say."""
    sizes = [s for s in image_sizes(folder).values() if s[0] * s[1] <= MAX_PIXELS]
    pixels = len(sizes) * size[0] * size[1] if size else sum(h * w for h, w in sizes)
    total = pixels * (1 if grey else 3)
    if total > most:
        raise ValueError(
            f"the {len(sizes)} images in {folder} have {total} values in all, more than "
            f"max_total={most}; give a smaller size=(height, width), or a larger max_total"
        )


# ------------------------------------------------------------- a look before clustering


def image_sizes(folder: str | os.PathLike[str]) -> dict[str, tuple[int, int]]:
    """Return (height, width) in pixels of each image file of a folder, without unpacking it.

    Names and order are those of :func:`load_images`; a size is that of the upright picture.
    Files that can't be read are left out.

    Parameters
    ----------
    folder : path

    Returns
    -------
    dict
        Name to (height, width).

    Raises
    ------
    FolderNotFound
        (a FileNotFoundError and a ValueError) if there is no such folder.
    ValueError
        If the folder holds no file with the ending of an image.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from stkm.datasets.folder import image_sizes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (9, 6), 200).save(f"{folder}/a.png")
    ...     image_sizes(folder)
    {'a.png': (6, 9)}
    """
    from PIL import Image

    sizes = {}
    for path in _image_files(Path(folder)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                with Image.open(path, formats=_FORMATS) as picture:
                    width, height = picture.size
                    lying = picture.getexif().get(0x0112, 1) >= 5  # EXIF orientation
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            continue
        name = path.relative_to(folder).as_posix()
        sizes[name] = (width, height) if lying else (height, width)
    return sizes


def common_size(sizes: Sequence[tuple[int, int]], longest: int = 48) -> tuple[int, int]:
    """Return one (height, width) for images of several sizes.

    The size of all where it is one and no side is longer than `longest` pixels; else the median
    proportions, with the longer side `longest` or, if that is less, the median.  A fit takes time
    in proportion to the pixels, and shapes of 20 to 50 pixels a side are told apart well.

    Parameters
    ----------
    sizes : sequence of (int, int)
        (height, width) in pixels.
    longest : int
        Pixels of the longer side, at most.

    Raises
    ------
    ValueError
        If there is no size.

    Examples
    --------
    >>> from stkm.datasets.folder import common_size
    >>> common_size([(28, 28), (28, 28)]), common_size([(300, 200), (310, 200), (290, 210)])
    ((28, 28), (48, 32))
    """
    if not len(sizes):
        raise ValueError("no image size is given")
    if len(set(sizes)) == 1 and max(sizes[0]) <= longest:
        return int(sizes[0][0]), int(sizes[0][1])
    height, width = np.median(np.asarray(sizes, float), axis=0)
    scale = min(1.0, longest / max(height, width))
    return max(4, round(height * scale)), max(4, round(width * scale))


class Findings(NamedTuple):
    """What :func:`inspect_images` finds.

    Attributes
    ----------
    constant : list of int
        Images of one value: no warp changes them, and they make a cluster of their own.
    repeated : list of int
        Images that are copies of an earlier one.
    light_ground : bool
        Whether the rim is, in most images, lighter than the middle of the scale. Beyond the frame
        the intensity is 0, so such images should be turned to negatives before a fit.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm.datasets.folder import inspect_images
    >>> found = inspect_images(np.full((2, 8, 8), 255, np.uint8))
    >>> found.constant, found.repeated, found.light_ground
    ([0, 1], [1], True)
    """

    constant: list[int]
    repeated: list[int]
    light_ground: bool


def inspect_images(images: np.ndarray) -> Findings:
    """Look for constant images, copies and a light ground.

    Parameters
    ----------
    images : ndarray of uint8, (N, H, W) or (N, H, W, 3)
        As :func:`load_images` returns them.

    Raises
    ------
    ValueError
        If they are of another type or shape.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm.datasets.folder import inspect_images
    >>> images = np.zeros((3, 8, 8), np.uint8)
    >>> images[2, 3:5] = 255
    >>> inspect_images(images)
    Findings(constant=[0, 1], repeated=[1], light_ground=False)
    """
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not len(images):
        raise ValueError(
            f"images must be uint8 (N, H, W[, 3]) with N > 0, got {images.dtype} {images.shape}"
        )
    flat = images.reshape(len(images), -1)
    seen: Counter[bytes] = Counter()
    repeated = []
    for i, image in enumerate(flat):
        if seen[key := image.tobytes()]:
            repeated.append(i)
        seen[key] += 1
    rim = [images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]]
    edges = np.concatenate([side.reshape(len(images), -1) for side in rim], axis=1)
    light = np.median(edges, axis=1) > 127.5
    constant = np.flatnonzero(flat.min(1) == flat.max(1)).tolist()
    return Findings(constant, repeated, bool(light.mean() > 0.5))
