"""Alignment of images with targets, from coarse to fine: the distance of Eq. 3 and its warp."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property, partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter

from . import solvers
from .devices import split_over
from .validation import check_int, check_option, check_real
from .warp import Warp, as_float, batches, pack_taps

__all__ = ["Alignment", "Matcher", "align", "low_pass"]


class Alignment(NamedTuple):
    """Images warped onto targets.

    Attributes
    ----------
    warped : (N, H, W[, C]) images T(x, d), in their own scale
    labels : (N,) index of the target of each image
    displacements : (N, L, 2) of the landmarks, pixels, (row, column)
    distances : (N,) penalised squared errors f(d), in squared units of the images' scale; of an
        estimator with a learned prior minus the log-likelihoods, without unit, of any sign
    penalties : (N,) the part of ``distances`` that is penalty, not negative
    folded : (N,) share of pixels where the map folds, in [0, 1]

    Raises
    ------
    ValueError : by :func:`align` and `STKMeans.align`, which make it, for what they can't take

    References
    ----------
    T(x, d) and the error of Eq. 3 of the paper (arXiv 2202.07829).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import Warp, align
    >>> x = np.ones((2, 8, 8), np.float32)
    >>> a = align(x, x, Warp.identity((8, 8)))
    >>> a.warped.shape, a.labels.tolist(), a.distances.tolist()
    ((2, 8, 8), [0, 1], [0.0, 0.0])
    """

    warped: np.ndarray
    labels: np.ndarray
    displacements: np.ndarray
    distances: np.ndarray
    penalties: np.ndarray
    folded: np.ndarray


def low_pass(images: ArrayLike, sd: float) -> np.ndarray:
    """Gaussian low-pass of images, 0 outside the frame.

    Parameters
    ----------
    images : (N, H, W, C), any scale
    sd : standard deviation in pixels; at 0 and below the images come back as they are

    Returns
    -------
    (N, H, W, C) in the images' scale

    Raises
    ------
    RuntimeError : images with another number of axes (scipy's)

    Examples
    --------
    >>> import numpy as np
    >>> from stkm.align import low_pass
    >>> image = np.zeros((1, 5, 5, 1), np.float32)
    >>> image[0, 2, 2] = 1
    >>> low_pass(image, 1.0)[0, 2, :, 0].round(2)
    array([0.02, 0.1 , 0.16, 0.1 , 0.02], dtype=float32)
    """
    if sd <= 0:
        return np.asarray(images)
    return gaussian_filter(np.asarray(images), (0, sd, sd, 0), mode="constant")


def flatten(d):
    """Displacements ``(N, L, 2)`` -> ``(N, 2L)``, the order of the solvers: rows first."""
    d = np.asarray(d)
    return np.swapaxes(d, 1, 2).reshape(len(d), 2 * d.shape[1])


def unflatten(d):
    """``(N, 2L)`` -> ``(N, L, 2)``."""
    d = np.asarray(d)
    return np.swapaxes(d.reshape(len(d), 2, d.shape[1] // 2), 1, 2)


@partial(jax.jit, static_argnames="shape")
def _warp(source, d, grid, shape):
    """T(x, d) ``(n, m, C)`` on the pixels of the grid."""
    return solvers._sample(source, shape, d, grid)[0]


@partial(jax.jit, static_argnames="shape")
def _warp_sum(source, d, weights, grid, shape):
    """Σ w T(x, d) ``(m, C)`` over a batch: the numerator of the centroid (Eq. 4)."""
    return jnp.einsum("n,nmc->mc", weights, _warp(source, d, grid, shape))


def _from_warps(source, d, target, inverse, grid, n_iter):
    """`solvers.gauss_newton` with what belongs to the images first, as `stkm.devices` cuts it."""
    return solvers.gauss_newton(source, target, inverse, d, grid, n_iter)


def _from_identity(source, blurred, target, inverse, coarse, lift, grid, n_iter):
    """`solvers.gauss_newton_cold` in this order; ``coarse`` without its source."""
    coarse = (blurred, *coarse)
    return solvers.gauss_newton_cold(source, target, inverse, coarse, lift, grid, n_iter)


PACKED_LIMIT = 2**30  # bytes of packed images kept; larger sets are packed batch by batch


class _Source:
    """Images ready for sampling: packed once, or by batches where that takes too much memory."""

    def __init__(self, images, keep=True):
        self.images, self.taps = images, None
        # filled up to a power of two: few programs are compiled for all numbers of images
        room = max(64, 1 << (len(images) - 1).bit_length())
        if keep and 4 * room * images[:1].nbytes < PACKED_LIMIT:
            empty = np.zeros((room - len(images), *images.shape[1:]), np.float32)
            filled = np.concatenate([np.asarray(images, np.float32), empty])
            self.taps = jnp.asarray(pack_taps(filled, np))

    def __call__(self, index):
        if self.taps is None:
            return solvers.source_of(self.images[index])
        return self.taps, jnp.asarray(index, jnp.int32)


def _split_rows(a, parts):
    """An array's rows in as many equal pieces."""
    return a.reshape(parts, len(a) // parts, *a.shape[1:])


def _pieces(parts, out, n):
    """Rows of results that belong to each of the pieces ``parts``, without those that fill up."""
    pieces = _split_rows(np.asarray(out), n)
    return [piece[: len(part)] for part, piece in zip(parts, pieces, strict=False)]


class Target(NamedTuple):
    """A centroid made ready: itself, its inverse Hessian and the grid.

    A distance is ``f / scale + offset``: with a learned prior minus a log-likelihood.
    """

    target: jax.Array
    inverse: jax.Array
    grid: solvers.Grid
    scale: float
    offset: float


class Matcher:
    """Aligns images of one set with targets by Gauss–Newton, in batches of one compiled shape.

    Parameters
    ----------
    images : (N, H, W, C) float32, already low-passed
    warp : Warp of the frame
    q, q_affine : penalties of the warp and of the coarse affine stage (`solvers.penalty`)
    coarse : sd in pixels of the low-pass of the coarse affine stage; 0 leaves the stage out
    stride : take the error on every ``stride``-th pixel in both directions
    n_cold, n_warm, n_coarse : iterations from the identity, from an earlier warp, of the stage
    devices : over which batches are split (`stkm.devices.choose`); each has ``batch_size`` images
    """

    def __init__(
        self,
        images,
        warp,
        q,
        q_affine,
        *,
        coarse=0.0,
        stride=1,
        n_cold=20,
        n_warm=6,
        n_coarse=10,
        batch_size=64,
        devices=None,
    ):
        self.warp, self.batch_size = warp, batch_size
        self.split = split_over(devices)
        self.size = 2 * len(warp.landmarks)
        rigid = self.size <= 6
        affine = warp if rigid else Warp.affine(warp.shape)
        self.coarse = coarse if self.size else 0.0
        self.set_iterations(n_cold, n_warm, n_coarse)
        self.images = images
        alone = self.split.alone  # else every batch goes to the devices by itself
        self.source = _Source(images, alone)
        self.q, self.full = q, solvers.make_grid(warp, q)
        self.set_stride(stride)
        self.affine_grid = solvers.make_grid(
            affine, q if rigid else q_affine, stride=max(2, stride)
        )
        lift = np.eye(len(warp.landmarks)) if rigid else affine.basis_at(warp.landmarks)[0]
        self.lift = jnp.asarray(lift, jnp.float32)
        self.shared = self.split.replicate((self.full, self.affine_grid, self.lift))

    @cached_property
    def blurred(self):
        """Low-passed images for the affine stage, packed when the first pair needs them."""
        if not self.coarse:
            return self.source
        return _Source(low_pass(self.images, self.coarse), self.split.alone)

    def set_iterations(self, n_cold=20, n_warm=6, n_coarse=10):
        """Iterations from the identity, from an earlier warp, and of the coarse affine stage."""
        self.n_cold, self.n_warm = (n_cold, n_warm) if self.size else (0, 0)
        self.n_coarse = n_coarse if self.coarse else 0

    def set_stride(self, stride):
        """Take the error on every ``stride``-th pixel in both directions."""
        fine = stride == 1
        self.grid = self.full if fine else solvers.make_grid(self.warp, self.q, stride=stride)

    def learned(self, prior, k):
        """The grid with the learned penalty and modes of cluster k."""
        modes = prior.modes(k, np.asarray(self.grid.index), self.images.shape[3])
        return self.grid._replace(
            penalty=jnp.asarray(prior.penalty(k), jnp.float32),
            modes=jnp.asarray(modes, jnp.float32),
        )

    def normal(self, target, grid=None):
        """JᵀAJ ``(2L, 2L)`` from the gradient of a target ``(H, W, C)``, float64."""
        t = jnp.asarray(np.asarray(target, np.float32)[None])
        out = solvers.normal_matrix(t, self.grid if grid is None else grid)
        return np.asarray(out[0], np.float64)

    def prepare(self, target, prior=None, k=0):
        """What is computed once for a target ``(H, W, C)``: a `Target`.

        With a prior, distances are those to cluster k.
        """
        t = jnp.asarray(np.asarray(target, np.float32)[None])
        grid, scale, offset = self.grid, 1.0, 0.0
        if prior is not None:
            grid = self.learned(prior, k)
            scale, offset = 2 * prior.scale, prior.offset(k)
        arrays = self.split.replicate((t, solvers.inverse_hessian(t, grid), grid))
        return Target(*arrays, scale, offset)

    def _rough(self, target):
        """The low-passed copy of a target for the affine stage, and its inverse Hessian."""
        rough = jnp.asarray(low_pass(np.asarray(target), self.coarse)) if self.coarse else target
        rough = rough if self.split.alone else jnp.asarray(np.asarray(rough))
        return self.split.replicate((rough, solvers.inverse_hessian(rough, self.affine_grid)))

    def _call(self, function, sources, index, batched, *rest, **static):
        """``function`` on the images ``index``, over the devices."""
        if self.split.alone:
            return function(*(s(index) for s in sources), *batched, *rest, **static)
        images = tuple(s.images[index] for s in sources)
        return self.split(function, images, batched, rest, **static)

    def _cold(self, index, p, rough):
        _, affine_grid, lift = self.shared
        coarse = (*rough, affine_grid, self.n_coarse)
        sources = (self.source, self.blurred)
        rest = (p.target, p.inverse, coarse, lift, p.grid, self.n_cold)
        return self._call(_from_identity, sources, index, (), *rest)

    def _warm(self, index, p, d):
        rest = (p.target, p.inverse, p.grid, self.n_warm)
        return self._call(_from_warps, (self.source,), index, (d,), *rest)

    def _rounds(self, n):
        """Numbers 0 … n−1 in batches, one for each device: (parts, padded)."""
        return self.split.rounds(batches(np.arange(n), self.batch_size))

    def fit(self, k, index, prepared, d=None):
        """``(f, d)`` of images ``index`` against target k, from warps d or from the identity."""
        del k  # only solvers with a memory of their own need to know which target it is
        pending = []
        rough = self._rough(prepared.target) if d is None else None
        for parts, padded in self._rounds(len(index)):
            rows = index[padded]
            if d is None:
                out = self._cold(rows, prepared, rough)
            else:
                out = self._warm(rows, prepared, d[padded])
            pending.append((parts, out))  # collected later: the device works meanwhile
        pieces = [np.concatenate(_pieces(parts, o[0], self.split.parts)) for parts, o in pending]
        f = np.concatenate(pieces or [np.zeros(0, np.float32)])
        moves = [np.concatenate(_pieces(parts, o[1], self.split.parts)) for parts, o in pending]
        f = f / prepared.scale + prepared.offset
        return f, np.concatenate(moves or [np.zeros((0, self.size), np.float32)])

    def warped_sum(self, index, d, weights):
        """Σ w T(x, d) over images ``index``, ``(H, W, C)`` float64, in a fixed order."""
        shape, frame = self.images.shape[1:], self.warp.shape
        total = np.zeros((shape[0] * shape[1], shape[2]))
        for parts, padded in self._rounds(len(index)):
            weight = np.zeros(len(padded), np.float32)
            for part, piece in zip(parts, _split_rows(weight, self.split.parts), strict=False):
                piece[: len(part)] = weights[part]
            batched = (d[padded], weight)
            sums = self._call(
                _warp_sum, (self.source,), index[padded], batched, self.shared[0], shape=frame
            )
            for piece in _split_rows(np.asarray(sums), self.split.parts)[: len(parts)]:
                total += np.asarray(piece, np.float64)
        return total.reshape(shape)

    def warped(self, index, d):
        """T(x, d) of images ``index``, ``(n, H, W, C)``."""
        shape = self.images.shape[1:]
        out = np.zeros((len(index), shape[0] * shape[1], shape[2]), np.float32)
        for parts, padded in self._rounds(len(index)):
            rest, frame = (index[padded], (d[padded],), self.shared[0]), self.warp.shape
            warped = self._call(_warp, (self.source,), *rest, shape=frame)
            out[np.concatenate(parts)] = np.concatenate(_pieces(parts, warped, self.split.parts))
        return out.reshape(len(index), *shape)


def _check_pair(images, targets, warp):
    if images.ndim not in (3, 4) or images.shape[1:3] != warp.shape:
        h, w = warp.shape
        raise ValueError(f"images must be (N, {h}, {w}[, C]), got {images.shape}")
    if targets.shape != images.shape:
        raise ValueError(
            f"one target of the same shape per image: got {targets.shape} for {images.shape}"
        )
    if not len(images):
        raise ValueError("0 images: expected at least one pair")
    for name, a in (("images", images), ("targets", targets)):
        if not np.isfinite(a).all():
            raise ValueError(f"{name}: Input contains NaN or infinity")


def _check_options(solver, scale, coarse, **numbers):
    check_option("solver", solver, ("gauss-newton", "adam", "lm"))
    check_int("max_iter", numbers.pop("max_iter"), 0)
    check_int("batch_size", numbers.pop("batch_size"), 1)
    for name, value in numbers.items():
        check_real(name, value)
    if scale is not None:
        check_real("scale", scale)
    for sd in coarse:
        check_real("coarse", sd)


def _fine(solver, source, t, d, grid, max_iter, learning_rate, cold):
    """The solver asked for, on the images as they are: ``(f, d)``."""
    if solver == "adam":
        state = solvers.adam_state(jnp.asarray(d))
        return solvers.adam(source, t, d, state, grid, max_iter, learning_rate, cold)[:2]
    if solver == "lm":
        return solvers.levenberg_marquardt(source, t, d, grid, max_iter)
    inverse = solvers.inverse_hessian(t, grid)
    if cold:
        return solvers.gauss_newton_from_identity(source, t, inverse, grid, max_iter)
    return solvers.gauss_newton(source, t, inverse, d, grid, max_iter)


def _coarse_start(pairs, grid, affine_grid, lift, n_iter):
    """Displacements after the low-passed stages; the identity where that is no worse.

    ``pairs`` are (images, targets) from most to least low-passed, the last as they are.
    """
    for stage, (x, t) in enumerate(pairs[:-1]):
        source = solvers.source_of(x)
        if stage == 0:
            inverse = solvers.inverse_hessian(t, affine_grid)
            out = solvers.gauss_newton_from_identity(source, t, inverse, affine_grid, n_iter)
            d = flatten(lift @ unflatten(out[1]))
        else:
            inverse = solvers.inverse_hessian(t, grid)
            d = solvers.gauss_newton(source, t, inverse, d, grid, n_iter)[1]
    x, t = pairs[-1]
    source, d = solvers.source_of(x), np.array(d, x.dtype)
    at_start, at_identity = (solvers.evaluate(source, t, m, grid)[0] for m in (d, 0 * d))
    d[np.asarray(at_start > at_identity)] = 0
    return d


def align(
    images: ArrayLike,
    targets: ArrayLike,
    warp: Warp,
    *,
    solver: str = "gauss-newton",
    bending: float = 1e-5,
    displacement: float = 0.0,
    scale: float | None = None,
    start: ArrayLike | None = None,
    coarse: Sequence[float] = (0.14, 0.07, 0.035),
    max_iter: int = 40,
    learning_rate: float = 0.2,
    batch_size: int = 64,
) -> Alignment:
    """Warp every image onto its own target (Eq. 3, penalised).

    Without ``start`` the fit goes from coarse to fine: an affine map on strongly low-passed
    copies, the warp on lightly low-passed ones, then the images as they are. So strokes that lie
    several widths apart find each other.

    Parameters
    ----------
    images, targets : arrays (N, H, W[, C]) of one shape, any intensity scale, N of at least 1
    warp : Warp of the same frame
    solver : 'gauss-newton' (default), 'adam' (the paper's) or 'lm' (exact, slow)
    bending, displacement : weights of the two penalties, free of units (`solvers.penalty`)
    scale : squared error that the weights refer to; default the targets' mean contrast
        Σ_pixels (μ − mean μ)²
    start : (N, L, 2) displacements in pixels to start from
    coarse : standard deviations of the low-passes, in units of the frame's side sqrt(H·W);
        () starts the solver at the identity on the images as they are
    max_iter : iterations of the last stage; the others take half
    learning_rate : Adam's step, pixels
    batch_size : pairs aligned at a time; decides no result

    Returns
    -------
    Alignment, with labels 0 … N−1. No distance is larger than at the start (or the identity).

    Raises
    ------
    ValueError : shapes that differ, NaN or infinity, unknown solver, a number out of its range

    References
    ----------
    Eq. 3 of the paper (arXiv 2202.07829), whose affine stage comes first as well; the penalties
    and the solvers but 'adam' are not in it (`stkm.solvers`).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import Warp, align
    >>> targets = np.zeros((1, 12, 12), np.float32)
    >>> targets[0, 3:9, 4:8] = 1
    >>> images = np.roll(targets, 1, axis=2)  # one pixel to the right
    >>> a = align(images, targets, Warp.translation((12, 12)))
    >>> bool((abs(a.displacements - [0, 1]) < 0.1).all())
    True
    """
    images, targets = as_float(images), as_float(targets)
    _check_options(
        solver,
        scale,
        coarse,
        max_iter=max_iter,
        batch_size=batch_size,
        bending=bending,
        displacement=displacement,
        learning_rate=learning_rate,
    )
    _check_pair(images, targets, warp)
    if start is not None and len(start := warp._check(start)) != len(images):
        raise ValueError(f"{len(images)} images but {len(start)} displacements in start")
    x, t = (a[..., None] if images.ndim == 3 else a for a in (images, targets))
    if scale is None:
        contrast = ((t - t.mean((1, 2), keepdims=True)) ** 2).sum((1, 2, 3))
        scale = float(contrast.mean())
    q = solvers.penalty(warp, bending, displacement, scale)
    affine = warp if len(warp.landmarks) <= 3 else Warp.affine(warp.shape)
    lift = np.eye(len(warp.landmarks)) if affine is warp else affine.basis_at(warp.landmarks)[0]
    grid = solvers.make_grid(warp, q, dtype=x.dtype)
    q_affine = solvers.penalty(affine, 0.0, displacement, scale)
    affine_grid = solvers.make_grid(affine, q_affine, dtype=x.dtype)
    d = np.zeros((len(x), 2 * len(warp.landmarks)), x.dtype)
    f = np.zeros(len(x), x.dtype)
    if start is not None:
        d[:] = flatten(start)
    side = np.sqrt(np.prod(warp.shape))
    stages = [sd * side for sd in coarse if start is None and d.size]
    pairs = [tuple(low_pass(a, sd) for a in (x, t)) for sd in (*stages, 0.0)]
    n_iter = max_iter if d.size else 0
    for part, padded in batches(np.arange(len(x)), batch_size):
        batch = [(a[padded], b[padded]) for a, b in pairs]
        moves = d[padded]
        if stages:
            moves = _coarse_start(batch, grid, affine_grid, lift, n_iter // 2)
        source, cold = solvers.source_of(batch[-1][0]), start is None and not stages
        out = _fine(solver, source, batch[-1][1], moves, grid, n_iter, learning_rate, cold)
        f[part], d[part] = (np.asarray(o)[: len(part)] for o in out[:2])
    moves = unflatten(d)
    penalties = np.einsum("nla,lm,nma->n", moves.astype(np.float64), q, moves)
    warped = np.asarray(warp(images, moves))
    return Alignment(warped, np.arange(len(x)), moves, f, penalties, warp.folded(moves))


class _CallableModule(ModuleType):
    """`stkm.align` is this module and, called, the function: the two share the public name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Alignment:
        return align(*args, **kwargs)


_CallableModule.__call__.__doc__ = align.__doc__
sys.modules[__name__].__class__ = _CallableModule
