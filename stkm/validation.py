"""Checks of a user's input, before anything is compiled."""

from __future__ import annotations

import numbers
import sys
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.utils import check_array

MIN_SIDE = 4
MAX_INTENSITY, MIN_INTENSITY = 1e8, 1e-8
"""Between them gradients of squared errors, and the squares of these, are numbers in float32."""

_INSIDE = {Path(__file__).parent, Path(sklearn.__file__).parent}


def warn(text, category=UserWarning):
    """Warn at the caller's line, not at one of this package or of scikit-learn's wrappers."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _INSIDE.intersection(Path(frame.f_code.co_filename).parents):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def check_images(X, image_shape=None):
    """Images as float32 ``(N, H, W, C)`` in their own intensity scale, and whether they were grey.

    ``X`` is ``(N, H, W)``, ``(N, H, W, C)`` or, with ``image_shape``, flat ``(N, H*W*C)``. Integers
    are converted, not rescaled: 0–255 stays 0–255.

    Raises
    ------
    ValueError : another type or shape, NaN, infinity, or intensities beyond `MAX_INTENSITY`

    Warns
    -----
    UserWarning : images of which all intensities are below `MIN_INTENSITY`, but not zero
    """
    X = np.asarray(X)
    if X.dtype == object or X.dtype.kind not in "buif":
        raise ValueError(f"images must be numbers in one array of equal sizes, got dtype {X.dtype}")
    if image_shape is not None:
        image_shape = tuple(int(s) for s in image_shape)
        if len(image_shape) not in (2, 3):
            raise ValueError(f"image_shape must be (H, W) or (H, W, C), got {image_shape}")
        if X.ndim == 2:
            if X.shape[1] != np.prod(image_shape):
                raise ValueError(
                    f"X has {X.shape[1]} features, "
                    f"image_shape={image_shape} needs {np.prod(image_shape)}"
                )
            X = X.reshape(len(X), *image_shape)
    if X.ndim == 2:
        raise ValueError(
            f"Expected images (N, H, W) or (N, H, W, C), got one array of shape {X.shape}: "
            "pass X[None] for one image, or image_shape=(H, W) for flat images"
        )
    if X.ndim not in (3, 4):
        raise ValueError(f"Expected images (N, H, W) or (N, H, W, C), got shape {X.shape}")
    if image_shape is None and X.ndim == 3 and X.shape[2] in (1, 3, 4) and min(X.shape[:2]) >= 8:
        raise ValueError(f"shape {X.shape} looks like one colour image: pass X[None] for one image")
    if X.shape[0] == 0:
        raise ValueError("Found array with 0 image(s), while a minimum of 1 is required")
    if min(X.shape[1:3]) < MIN_SIDE:
        raise ValueError(
            f"images of {X.shape[1]}x{X.shape[2]} pixels: "
            f"height and width must be at least {MIN_SIDE}"
        )
    X = check_array(X, dtype=np.float32, ensure_2d=False, allow_nd=True, input_name="images")
    top = max(float(X.max()), -float(X.min()))
    if top > MAX_INTENSITY:
        raise ValueError(
            f"images reach {top:g}, and squared errors of more than {MAX_INTENSITY:g} overflow: "
            "divide them by a constant"
        )
    if 0 < top < MIN_INTENSITY:
        warn(
            f"images reach only {top:g}, and squared errors of less than {MIN_INTENSITY:g} vanish: "
            "multiply them by a constant"
        )
    return (X[..., None], True) if X.ndim == 3 else (X, False)


def check_ground(images, top):
    """Warn of images ``(N, H, W, C)`` that are dark on light: warps would move their ground about.

    Most have a rim that is lighter than half of their scale, ``top``, and than the image.
    """
    rim = np.concatenate([images[:, [0, -1]].reshape(len(images), -1),
                          images[:, :, [0, -1]].reshape(len(images), -1)], axis=1)  # fmt: skip
    mean = images.reshape(len(images), -1).mean(1)
    light = np.median(rim, axis=1) > np.maximum(top / 2, mean + top / 20)
    if light.mean() > 0.5:
        warn(
            "most images have a light rim, and beyond the frame the intensity is 0: where shapes "
            f"are dark on light, fit their negatives, {top:g} - X"
        )


def check_weights(sample_weight, n):
    """Weights ``(N,)`` float64, finite, not negative, not all zero; ones for None."""
    if sample_weight is None:
        return np.ones(n)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise ValueError(f"sample_weight has shape {weights.shape}, expected ({n},)")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight must be finite and not negative")
    if not weights.sum() > 0:
        raise ValueError("sample_weight is zero for every image")
    return weights


def count_distinct(images, enough):
    """Number of distinct images, counted up to ``enough``."""
    seen = set()
    for image in images:
        seen.add(image.tobytes())
        if len(seen) >= enough:
            break
    return len(seen)


def counted(n, noun):
    """'1 image', '2 images'."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def check_int(name, value, low, high=None):
    """A whole number in [low, high]."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if not whole or value < low or (high is not None and value > high):
        bound = f"from {low} to {high}" if high is not None else f"of at least {low}"
        raise ValueError(f"{name}={value!r}: expected a whole number {bound}")
    return int(value)


def check_real(name, value, low=0.0):
    """A finite number of at least ``low``."""
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not number or not np.isfinite(value) or value < low:
        raise ValueError(f"{name}={value!r}: expected a finite number of at least {low}")
    return float(value)


def check_option(name, value, options):
    """One of a few names."""
    if value not in options:
        raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, options))}")
    return value
