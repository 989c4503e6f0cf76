"""`affine_mnist` and `diffeo_mnist`: one digit a class under 100 random warps.

The paper ("Affine MNIST", "Diffeo MNIST") takes one image a class, applies 100
random warps to it, and keeps a third for testing; it gives no ranges.  Ours,
in pixels of the 28×28 frame, are drawn uniformly and independently:

============  =====================================================
rotation      ±20°
scale         exp(u), u in ±0.15, on each axis (0.86 to 1.16)
shear         ±0.2
translation   ±2 px on each axis
============  =====================================================

`diffeo_mnist` adds a thin-plate spline through the 5×5 landmarks of a uniform
grid over the frame, each moved by a normal displacement of 1.25 px standard
deviation on each axis.

They were chosen so that a digit stays readable and whole, and so that the
classes overlap for plain K-means about as they do in the paper (accuracy 68 %
and 61 % there).  A draw is repeated when any part of the stroke would leave
the frame, and when the map folds (Jacobian determinant <= 0 anywhere in the
frame); so wide digits move a little less than narrow ones.

An image is sampled by pulling back: pixel p of the warped image is the
original at f(p) = A (p - c - t) + c + B(p) d, with c the centre of the frame,
bilinear, zero outside.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from stkm.datasets.raw import hold_out
from stkm.datasets.spec import Arrays, Spec, array_sha256

__all__ = ["SPECS", "folds", "landmark_basis", "warp_digit"]

SIDE = 28
CENTRE = (SIDE - 1) / 2
MARGIN = 14
"""Pixels around the frame in which parts of a stroke that left it are looked for."""

STEP = 0.5
"""Spacing in pixels of the mesh on which folding is looked for."""

RANGES = {
    "rotation_degrees": 20.0,
    "log_scale": 0.15,
    "shear": 0.2,
    "translation_px": 2.0,
}
LANDMARKS = 5
LANDMARK_SD_PX = 1.25
WARPS = 100
TEST = 333
SEED = 0
MAX_DRAWS = 1000


def _mesh(axis: np.ndarray) -> np.ndarray:
    """Return the points (n, n, 2) of a square mesh, (row, column)."""
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)


FRAME = _mesh(np.arange(-MARGIN, SIDE + MARGIN, dtype=np.float64))
"""Pixel centres of the frame and its margin."""

FINE = _mesh(np.arange(0, SIDE - 1 + STEP / 2, STEP))
"""Mesh over the frame for the folding test."""


def landmark_basis(points: np.ndarray, landmarks: int) -> np.ndarray:
    """Return what a unit move of each landmark does at each point.

    The thin-plate spline is linear in the landmarks' displacements d
    (landmarks², 2): the displacement at the points is ``basis @ d``.

    Parameters
    ----------
    points : ndarray of float, (..., 2)
        Pixels, (row, column).
    landmarks : int
        Landmarks along each side of the frame, corner to corner.

    Returns
    -------
    ndarray of float64, (..., landmarks**2)
    """
    from scipy.interpolate import RBFInterpolator

    grid = _mesh(np.linspace(0, SIDE - 1, landmarks)).reshape(-1, 2)
    spline = RBFInterpolator(grid, np.eye(len(grid)), kernel="thin_plate_spline", degree=1)
    return spline(points.reshape(-1, 2)).reshape(*points.shape[:-1], len(grid))


@lru_cache(maxsize=1)
def _bases() -> tuple[np.ndarray, np.ndarray]:
    """Return the landmark bases on the frame with margin and on the fine mesh."""
    return landmark_basis(FRAME, LANDMARKS), landmark_basis(FINE, LANDMARKS)


def folds(field: np.ndarray) -> bool:
    """Return whether a map given on a square mesh folds anywhere.

    The signed area of both triangles at each corner of each mesh cell must be
    positive: then the map that is linear in between keeps its orientation.

    Parameters
    ----------
    field : ndarray of float, (n, n, 2)
        Images of the mesh points.
    """
    down, right = np.diff(field, axis=0), np.diff(field, axis=1)
    for u in (down[:, :-1], down[:, 1:]):
        for v in (right[:-1], right[1:]):
            if (u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0] <= 0).any():
                return True
    return False


def _affine(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the matrix A (2, 2) and the translation t (2,) of a warp."""
    angle = np.deg2rad(rng.uniform(-1, 1) * RANGES["rotation_degrees"])
    scale = np.exp(rng.uniform(-1, 1, 2) * RANGES["log_scale"])
    shear = rng.uniform(-1, 1) * RANGES["shear"]
    shift = rng.uniform(-1, 1, 2) * RANGES["translation_px"]
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return rotation @ np.array([[1.0, shear], [0.0, 1.0]]) @ np.diag(scale), shift


def _sample(image: np.ndarray, field: np.ndarray) -> np.ndarray:
    """Return `image` (H, W) at `field` (n, n, 2): bilinear, zero outside, 0 to 255.

    Coordinates are rounded to 1/1024 px: the interpolation is then exact in
    float64, and no machine's last bit decides how a grey value is rounded.
    """
    from scipy.ndimage import map_coordinates

    at = np.moveaxis(np.rint(field * 1024) / 1024, -1, 0)
    return np.rint(map_coordinates(image.astype(np.float64), at, order=1, mode="grid-constant"))


def warp_digit(image: np.ndarray, rng: np.random.Generator, *, smooth: bool) -> np.ndarray:
    """Return one random warp of a digit, whole and without folds.

    Parameters
    ----------
    image : ndarray of uint8, (28, 28)
    rng : numpy.random.Generator
    smooth : bool
        Whether the landmarks are moved too (`diffeo_mnist`).

    Returns
    -------
    ndarray of uint8, (28, 28)

    Raises
    ------
    RuntimeError
        If 1000 draws in a row fold, or push the digit out of the frame.
    """
    inner = slice(MARGIN, MARGIN + SIDE)
    for _ in range(MAX_DRAWS):
        matrix, shift = _affine(rng)
        field = (FRAME - CENTRE - shift) @ matrix.T + CENTRE
        if smooth:
            moves = rng.normal(0.0, LANDMARK_SD_PX, (LANDMARKS**2, 2))
            basis, fine_basis = _bases()
            if folds((FINE - CENTRE - shift) @ matrix.T + CENTRE + fine_basis @ moves):
                continue
            field = field + basis @ moves
        warped = _sample(image, field)
        inside = warped[inner, inner].copy()
        warped[inner, inner] = 0
        if not warped.any():
            return inside.astype(np.uint8)
    raise RuntimeError(f"{MAX_DRAWS} draws in a row left the frame or folded")


def _prototypes() -> tuple[np.ndarray, list[dict[str, str]]]:
    """Return one training image of `mnist5k` a class, (10, 28, 28), and where from."""
    from stkm.datasets.loading import load_dataset

    digits = load_dataset("mnist5k", "train")
    rng = np.random.default_rng(SEED)
    rows = [int(rng.choice(np.flatnonzero(digits.labels == label))) for label in range(10)]
    source = f"mnist5k {digits.version}, training images {', '.join(map(str, rows))}"
    images = digits.images[rows]
    return images, [{"file": source, "sha256": array_sha256(images)}]


def _read(smooth: bool) -> tuple[Arrays, list[dict[str, str]]]:
    """Make the 1 000 images; warp i of a class depends on the seed, class and i alone."""
    images, raw = _prototypes()
    warped = np.stack(
        [
            warp_digit(image, np.random.default_rng([SEED, smooth, label, i]), smooth=smooth)
            for label, image in enumerate(images)
            for i in range(WARPS)
        ]
    )
    labels = np.repeat(np.arange(10), WARPS)
    return hold_out(warped, labels, TEST, SEED), raw


_CITATION = (
    "@article{cosentino2020stkm,\n"
    "  author  = {Cosentino, Romain and Balestriero, Randall and Bahroun, Yanis and "
    "Sengupta, Anirvan and Baraniuk, Richard and Aazhang, Behnaam},\n"
    "  title   = {Spatial Transformer {K}-Means},\n"
    "  journal = {arXiv:2012.09743, 2202.07829},\n"
    "  year    = {2020}\n"
    "}"
)

_COUNTS = {"train": (66,) * 3 + (67,) * 7, "test": (34,) * 3 + (33,) * 7}


def _spec(name: str, title: str, kind: str, *, smooth: bool) -> Spec:
    """Return the description of one of the two sets."""
    parameters = {
        "seed": SEED,
        "warps_per_class": WARPS,
        "prototypes": "one training image of mnist5k 1.0.0 a class",
        **RANGES,
    }
    if smooth:
        parameters |= {"landmarks": LANDMARKS, "landmark_sd_px": LANDMARK_SD_PX}
    return Spec(
        name=name,
        title=title,
        version="1.0.0",
        description=(
            f"One image a digit under {WARPS} random {kind} warps, a third of them for testing. "
            "28×28, white strokes on black, bilinear, zero outside; strokes whole, no folds. "
            "Each part is in an order of which any beginning is stratified."
        ),
        origin=f"{WARPS} {kind} warps of one MNIST digit a class",
        image_shape=(SIDE, SIDE),
        class_names=tuple("0123456789"),
        class_counts=_COUNTS,
        citation=_CITATION,
        licence="made from mnist5k: none stated by the publisher of MNIST",
        homepage="https://arxiv.org/abs/2012.09743",
        read=partial(_read, smooth),
        parameters=parameters,
        differs="the paper names neither its ten images nor the ranges of its warps",
    )


SPECS = (
    _spec("affine_mnist", "Affine MNIST", "affine", smooth=False),
    _spec("diffeo_mnist", "Diffeo MNIST", "affine and thin-plate-spline", smooth=True),
)
