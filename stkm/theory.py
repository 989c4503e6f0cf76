"""The paper's propositions, and the places where its text needs care, measured on images.

`metric` and `triangle` ask what kind of distance Eq. 3 is (the paper: a quasi-pseudo-semi-metric),
`invariance` what of Prop. 1 holds without a group, `plane` and `regions` draw the partition
(Prop. 4, weighted Voronoi), `drift` and `out_of_frame` lead to the degenerate minimum of Eq. 2,
`rises` asks what a step of the inner problem does that is not undone (Prop. 3). The rest is about
single formulas. Labels have no place here.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from scipy.ndimage import map_coordinates

from stkm import align as _align
from stkm import solvers
from stkm.cluster import STKMeans
from stkm.warp import Warp, batches

__all__ = [
    "Drift",
    "best_of",
    "bilinear_error",
    "centroid_gradient",
    "distances",
    "drift",
    "invariance",
    "kernel_signs",
    "kernel_turns",
    "metric",
    "moves",
    "out_of_frame",
    "plane",
    "regions",
    "rises",
    "triangle",
]

FREE = {"solver": "adam", "bending": 0.0, "displacement": 0.0, "coarse": ()}
STEPS = 100  # of Adam, where warps are free
LOUD = 4.0  # a landmark's move of so many sides takes every image out of the frame


def distances(images, targets, warp, penalties=None, *, scale=None, max_iter=None):
    """d(x, μ) of every image to every target (Eq. 3), ``(N, M)``.

    Parameters
    ----------
    images, targets : (N, H, W) and (M, H, W)
    warp : `stkm.Warp` of the frame
    penalties : (bending, displacement), solved by Gauss–Newton from coarse to fine; None: free
        warps, solved by Adam from the identity, as published
    scale : squared error that the penalties count in; by default the mean squared distance of an
        image from their mean. (One for all pairs: a distance must not depend on the others.)
    max_iter : iterations of the solver; by default 40, of Adam `STEPS`
    """
    n, m = len(images), len(targets)
    pairs = np.repeat(images, m, 0), np.tile(targets, (n, 1, 1))
    if penalties is None:
        options = {**FREE, "max_iter": max_iter or STEPS}
    else:
        options = dict(zip(("bending", "displacement"), penalties, strict=True))
        options |= {"max_iter": max_iter or 40}
    scale = spread(images) if scale is None else scale
    return _align(*pairs, warp, scale=scale, **options).distances.reshape(n, m)


def spread(images):
    """Mean squared distance of an image from the mean of all: the unit of the penalties."""
    return float(((images - images.mean(0)) ** 2).sum((1, 2)).mean())


# ------------------------------------------------- (a) what kind of distance


def metric(d):
    """Facts about distances ``(N, N)`` of images to each other: a dict of numbers.

    ``least``: the smallest distance; ``to_itself``: the largest d(x, x); ``between``: the median of
    the others; ``asymmetry``: median of |d(x, y) − d(y, x)| over their mean, x ≠ y.

    Raises
    ------
    ValueError : not square, or fewer than two images
    """
    d = _square(d, 2)
    upper = np.triu_indices(len(d), 1)
    there, back = d[upper], d.T[upper]
    mean = np.maximum((there + back) / 2, np.finfo(float).tiny)
    return {
        "least": float(d.min()),
        "to_itself": float(np.diag(d).max()),
        "between": float(np.median(np.concatenate([there, back]))),
        "asymmetry": float(np.median(abs(there - back) / mean)),
    }


def triangle(d):
    """How often and by how much the triangle inequality fails for distances ``(N, N)``.

    Returns
    -------
    (share, median, largest) : share of ordered triples of distinct images with
    d(x, z) > d(x, y) + d(y, z); median and largest d(x, z) / (d(x, y) + d(y, z)) among those, 1
    where there are none. A squared error fails often even without warps; its root is a metric then.

    Raises
    ------
    ValueError : not square, or fewer than three images
    """
    d = _square(d, 3)
    n = len(d)
    detour = d[:, :, None] + d[None]  # over y: d(x, y) + d(y, z), [x, y, z]
    direct = np.broadcast_to(d[:, None], detour.shape)
    x, y, z = np.ogrid[:n, :n, :n]
    distinct = (x != y) & (y != z) & (x != z)
    failed = distinct & (direct > detour * (1 + 1e-6))
    share = failed.sum() / distinct.sum()
    if not failed.any():
        return 0.0, 1.0, 1.0
    ratio = direct[failed] / np.maximum(detour[failed], np.finfo(float).tiny)
    return float(share), float(np.median(ratio)), float(ratio.max())


def _square(d, least):
    d = np.asarray(d, np.float64)
    if d.ndim != 2 or d.shape[0] != d.shape[1] or len(d) < least:
        raise ValueError(f"distances must be (N, N) of at least {least} images, got {d.shape}")
    return d


# ------------------------------------------------------------ (b) invariance


def moves(warp, n, size, kind, rng):
    """n random displacements ``(n, L, 2)`` of a root mean square of ``size`` sides per pixel.

    kind : 'affine': a random linear map about the middle and a shift; 'spline': every landmark by
    itself. All are scaled to the same size, so that kinds and sizes compare.
    """
    if kind not in ("affine", "spline"):
        raise ValueError(f"kind={kind!r}: expected 'affine' or 'spline'")
    h, w = warp.shape
    p = (warp.landmarks - (np.array([h, w]) - 1) / 2) / np.sqrt(h * w)
    if kind == "affine":
        d = p @ rng.normal(size=(n, 2, 2)) + 0.3 * rng.normal(size=(n, 1, 2))
    else:
        d = rng.normal(size=(n, len(p), 2))
    shift = warp.basis @ d  # of every pixel
    rms = np.sqrt((shift**2).sum(-1).mean(1))
    return d * (size * np.sqrt(h * w) / rms)[:, None, None]


def invariance(images, targets, warp, sizes, kind, penalties=None, random_state=0):
    """d(g·x, μ) against d(x, μ) for random moves g of x: one dict for each size.

    ``change``: mean |d(g·x, μ) − d(x, μ)| over the mean of d(x, μ); ``shown``: the same over the
    mean squared error ‖x − μ‖², in which distances of all kinds compare; ``pixels``: that of the
    squared error itself; ``kept``: share of an image's intensity that g leaves in the frame.
    Prop. 1 says that the first two are 0 where warps are a group and the minimum is found.

    Parameters
    ----------
    images, targets : (N, H, W), pairs
    sizes : root mean square shift of a pixel, in units of the frame's side
    kind : as for `moves`; penalties : as for `distances`
    """
    rng = np.random.default_rng(random_state)
    options = {**FREE, "max_iter": STEPS}
    if penalties is not None:
        options = dict(zip(("bending", "displacement"), penalties, strict=True))
    scale = spread(images)

    def error(x):
        return ((x - targets) ** 2).sum((1, 2))

    def distance(x):
        return _align(x, targets, warp, scale=scale, **options).distances

    rest, plain, found = distance(images), error(images), []
    for size in sizes:
        moved = warp(images, moves(warp, len(images), size, kind, rng))
        found.append(
            {
                "size": float(size),
                "change": float((change := abs(distance(moved) - rest).mean()) / rest.mean()),
                "shown": float(change / plain.mean()),
                "pixels": float(abs(error(moved) - plain).mean() / plain.mean()),
                "kept": float((moved.sum((1, 2)) / images.sum((1, 2))).mean()),
            }
        )
    return found


# ---------------------------------------------------------- (d) the partition


def plane(corners, side, margin=0.25):
    """Images on a plane through image space, ``(side, side, H, W)``, and their coordinates.

    Parameters
    ----------
    corners : (3, H, W): the images at (0, 0), (1, 0) and (0, 1)
    side : points along each axis; margin : how far the square goes beyond 0 and 1
    """
    corners = np.asarray(corners, np.float32)
    if corners.ndim != 3 or len(corners) != 3:
        raise ValueError(f"corners must be three images (3, H, W), got {corners.shape}")
    axis = np.linspace(-margin, 1 + margin, side).astype(np.float32)
    a, b = np.meshgrid(axis, axis)  # rows of the picture are the second coordinate
    first, second = corners[1] - corners[0], corners[2] - corners[0]
    images = corners[0] + a[..., None, None] * first + b[..., None, None] * second
    return images, axis


def regions(points, centroids, warp, penalties, scale):
    """Nearest centroid of every image by squared error and by warp distance, ``(N,)`` each.

    points : (N, H, W); centroids : (K, H, W); penalties and scale as for `distances`
    """
    flat, own = points.reshape(len(points), 1, -1), centroids.reshape(1, len(centroids), -1)
    plain = ((flat - own) ** 2).sum(-1)
    return plain.argmin(1), distances(points, centroids, warp, penalties, scale=scale).argmin(1)


# ------------------------------------------------- (e) the degenerate minimum


class Drift(NamedTuple):
    """One fit of `drift`, with labels (N,) and centroids (K, H, W)."""

    epochs: int
    objective: float
    intensity: float
    kept: float
    labels: np.ndarray
    centroids: np.ndarray


def drift(X, n_clusters, epochs, *, random_state=0, **params):
    """The published loop (`STKMeans.paper`), run for longer and longer: a `Drift` for each.

    ``objective``: mean squared error of an image after its warp; ``intensity``: of the centroids,
    over that of the images, means over images; ``kept``: share of its intensity that an image
    has after the warp.

    Parameters
    ----------
    X : (N, H, W); epochs : Adam steps of every pair, increasing
    params : of `STKMeans.paper`; with ``bending`` and ``displacement`` the same loop is penalised
    """
    found = []
    for n in epochs:
        km = STKMeans.paper(n_clusters, epochs=n, random_state=random_state, **params).fit(X)
        a = km.align(X)
        error = ((a.warped - km.cluster_centers_[a.labels]) ** 2).sum((1, 2)).mean()
        bright = km.cluster_centers_.sum((1, 2))[a.labels].mean() / X.sum((1, 2)).mean()
        kept = a.warped.sum() / X.sum()
        numbers = (float(v) for v in (error, bright, kept))
        found.append(Drift(int(n), *numbers, a.labels, km.cluster_centers_))
    return found


def out_of_frame(X, warp):
    """Warped images ``(N, H, W)`` whose landmarks were all moved far out of the frame: black."""
    shift = np.full((len(X), len(warp.landmarks), 2), LOUD * max(warp.shape))
    return warp(X, shift)


# ------------------------------------------------------------ (f) other points


def rises(images, targets, warp, learning_rate, n_steps):
    """Squared errors of free warps at every step of Adam, ``(n_steps + 1, N)``, nothing undone.

    images, targets : (N, H, W), pairs; learning_rate : in pixels. Prop. 3 needs that no step
    raises the objective; Adam's do.
    """
    grid = solvers.make_grid(warp, solvers.penalty(warp, 0.0, 0.0, 1.0))
    x, t = (np.asarray(a, np.float32)[..., None] for a in (images, targets))
    d = np.zeros((len(x), 2 * len(warp.landmarks)), np.float32)
    out = np.zeros((n_steps + 1, len(x)), np.float32)
    for part, padded in batches(np.arange(len(x)), 64):
        source = solvers.source_of(x[padded])
        errors = _adam_errors(source, t[padded], d[padded], grid, n_steps, learning_rate)
        out[:, part] = np.asarray(errors)[:, : len(part)]
    return out


def _adam_errors(source, targets, d, grid, n_steps, learning_rate):
    rule = optax.adam(learning_rate)

    @jax.jit
    def run(d):
        def body(carry, _):
            d, state = carry
            f, g = solvers.evaluate(source, targets, d, grid)[:2]
            change, state = rule.update(g, state)
            return (optax.apply_updates(d, change), state), f

        return lax.scan(body, (d, rule.init(d)), None, length=n_steps + 1)[1]

    return run(jnp.asarray(d))


def best_of(values, n):
    """Expected best of n of the given values, drawn without replacement.

    What choosing by test labels adds to the mean. Σ_i P(the i-th smallest is the largest drawn).

    Raises
    ------
    ValueError : n below 1 or above the number of values
    """
    values = np.sort(np.asarray(values, np.float64))
    if not 1 <= n <= len(values):
        raise ValueError(f"n={n}: expected 1 to {len(values)}, the number of values")
    # P(maximum = i-th smallest, i from 0) = C(i, n−1) / C(N, n), as a running product
    weights = np.zeros(len(values))
    weights[-1] = n / len(values)
    for i in range(len(values) - 2, n - 2, -1):
        weights[i] = weights[i + 1] * (i + 2 - n) / (i + 1)
    return float(weights @ values)


def centroid_gradient(warped, center, step=1e-3):
    """Derivative of Σ ‖T(x) − μ‖² by one pixel of μ, in three ways.

    warped : (N, H, W) images T(x); center : (H, W), its brightest pixel is the one. The answers
    are: by differences; 2 (N μ − Σ T); 2 (N μ + Σ T), which is the sign in the proof of Prop. 2.
    Only where the second is right is the mean the minimum.
    """
    warped, center = np.asarray(warped, np.float64), np.asarray(center, np.float64)
    at = np.unravel_index(center.argmax(), center.shape)
    own = warped[(slice(None), *at)]

    def value(mu):
        return ((own - mu) ** 2).sum()

    mu = center[at]
    measured = (value(mu + step) - value(mu - step)) / (2 * step)
    n, total = len(own), own.sum()
    return float(measured), float(2 * (n * mu - total)), float(2 * (n * mu + total))


def bilinear_error(image, points):
    """How wrong bilinear sampling is when the exponents of its two weights change places.

    A pixel's weight is (1 − f)^(1 − i) f^i for its row times (1 − g)^(1 − j) g^j for its column, f
    and g being the parts behind the comma and i, j in {0, 1} saying which of the four neighbours
    it is. In the paper's formula i stands with the column and j with the row.

    Parameters
    ----------
    image : (H, W); points : (m, 2) inside the frame, (row, column) in pixels

    Returns
    -------
    (as it should be, as printed): mean absolute differences from `scipy.ndimage.map_coordinates`,
    in the image's intensity
    """
    cell = np.minimum(np.floor(points).astype(int), np.array(image.shape) - 2)
    (f, g), expected = (points - cell).T, map_coordinates(image, points.T, order=1)
    found = np.zeros((2, len(points)))
    for i, j in np.ndindex(2, 2):
        pixel = image[cell[:, 0] + i, cell[:, 1] + j]
        for k, (a, b) in enumerate(((i, j), (j, i))):
            found[k] += pixel * (1 - f) ** (1 - a) * f**a * (1 - g) ** (1 - b) * g**b
    return tuple(float(d) for d in abs(found - expected).mean(1))


def kernel_turns(landmarks, moves, degrees, norm):
    """How far a spline with U(r) = r² log r² and r of a norm is from turning with its landmarks.

    The spline is interpolated at the middles between landmarks, once as it is and once with
    landmarks and moves turned; the answer is the largest difference, in units of the largest move.
    0 for the Euclidean norm (``norm=2``), which Duchon's and Bookstein's splines have; not for the
    sum of absolute values (``norm=1``) that the paper writes.

    Parameters
    ----------
    landmarks, moves : (L, 2); degrees : of the turn
    """
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    points = (landmarks[:-1] + landmarks[1:]) / 2
    still = _spline(landmarks, moves, points, norm) @ turn.T
    turned = _spline(landmarks @ turn.T, moves @ turn.T, points @ turn.T, norm)
    return float(abs(still - turned).max() / abs(moves).max())


def _spline(landmarks, moves, points, norm):
    """Displacements ``(m, 2)`` at points of the spline through moves ``(L, 2)``."""

    def kernel(a, b):
        r = np.linalg.norm(a[:, None] - b[None], norm, axis=-1)
        return r**2 * np.log(np.where(r > 0, r**2, 1.0))

    n = len(landmarks)
    p = np.hstack([np.ones((n, 1)), landmarks])
    system = np.block([[kernel(landmarks, landmarks), p], [p.T, np.zeros((3, 3))]])
    weights = np.linalg.solve(system, np.vstack([moves, np.zeros((3, 2))]))
    q = np.hstack([np.ones((len(points), 1)), points])
    return np.hstack([kernel(points, landmarks), q]) @ weights


def kernel_signs(shape, landmarks):
    """Share of negative entries of U between a grid's landmarks, in pixels and in [−1, 1]."""
    points = Warp.tps(shape, landmarks).landmarks
    out = []
    for scale in (1.0, 2 / (np.array(shape) - 1)):
        r2 = (((points[:, None] - points[None]) * scale) ** 2).sum(-1)
        off = r2[~np.eye(len(points), dtype=bool)]
        out.append(float((off * np.log(off) < 0).mean()))
    return tuple(out)
