"""The smallest penalised squared error over all warps of an image onto a target (Eq. 3).

For an image x, a target μ and displacements d the objective is

    f(d) = rᵀ A r + dᵀ Q d,      r = T(x, d) − μ,

with A = I and Q = λ M + ρ BᵀB / n on each axis (bending energy and mean squared displacement, n
pixels); a learned prior (`stkm.prior`) brings its own Q and A = I − V Vᵀ, which forgives errors
along a few directions V. ``distance = min_d f(d)``; the image is warped, not the target. With
λ = ρ = 0 this is Eq. 3 as published.

Three solvers share one evaluation of f and its gradient (`_evaluate`):

* **Gauss–Newton with a fixed Hessian** (default). H = JᵀJ + Q from the *target's* gradient is
  inverted once and serves every image aligned with that target, in every iteration. The last few
  steps of each pair correct it (L-BFGS with H⁻¹ as its initial matrix; Liu and Nocedal 1989). A
  step is kept only where the objective falls; the step length adapts for each pair.
* **Adam** through optax, the paper's optimiser; the best warp visited is returned.
* **Levenberg–Marquardt** with the exact Jacobian of each pair: slow, the reference in the tests.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from .warp import Warp, pack_taps, sample_taps

# Added to the fixed Hessian: a share of its own diagonal, since an image that is not aligned yet
# has its edges elsewhere than the target; and of the mean diagonal, for flat parts of a target.
DAMPING, FLOOR = 0.4, 0.01
MEMORY, CONVEX = 4, 1e-3  # steps of L-BFGS; least cosine of a step and its change of gradient
GROW, SHRINK, LONGEST = 1.5, 0.4, 1.0  # step length after a success, after a failure, and its bound


class Grid(NamedTuple):
    """What the solvers need of a warp: pixels, basis and penalty, as device arrays.

    index : (m,) flat indices of the pixels where the error is taken (all, or every s-th)
    rows, cols : (m,) their coordinates; basis : (m, L); penalty : (2L, 2L) = Q
    weight : () pixels of the frame for each pixel in ``index``
    modes : (m, C, q) = V, or (m, 1, 0) where there is none
    """

    index: jax.Array  # type: ignore[assignment]  # tuple's own method is never called
    rows: jax.Array
    cols: jax.Array
    basis: jax.Array
    penalty: jax.Array
    weight: jax.Array
    modes: jax.Array


def penalty(warp: Warp, bending, displacement, scale):
    """Q of one axis, ``(L, L)``: ``scale · (bending · M + displacement · BᵀB / (n · HW))``.

    ``bending`` and ``displacement`` are free of units: M is, displacements count in units of the
    frame's side sqrt(H·W), and ``scale`` is a squared error typical of the data.
    """
    n = len(warp.basis)
    return scale * (bending * warp.bending + displacement * warp.basis.T @ warp.basis / n**2)


def make_grid(warp: Warp, q, *, stride=1, dtype=np.float32) -> Grid:
    """The grid of all pixels, or of every ``stride``-th in both directions (coarse error)."""
    h, w = warp.shape
    first = (stride - 1) // 2
    index = np.arange(h * w).reshape(h, w)[first::stride, first::stride].ravel()
    arrays = (
        warp.pixels[index, 0],
        warp.pixels[index, 1],
        warp.basis[index],
        np.kron(np.eye(2), q),
        h * w / len(index),
        np.zeros((len(index), 1, 0)),
    )
    return Grid(jnp.asarray(index, jnp.int32), *(jnp.asarray(a, dtype) for a in arrays))


# ---------------------------------------------------------------- objective


def central_differences(images):
    """Derivatives by row and column ``(N, H, W, C)``, 0 outside: symmetric at pixel centres."""
    q = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return (q[:, 2:, 1:-1] - q[:, :-2, 1:-1]) / 2, (q[:, 1:-1, 2:] - q[:, 1:-1, :-2]) / 2


def _at(images, grid):
    """Values at the pixels of the grid, ``(N, m, C)``."""
    n, h, w, c = images.shape
    return images.reshape(n, h * w, c)[:, grid.index]


def sum_of_squares(residual):
    """Σ r² of each row ``(N,)`` of residuals ``(N, m, C)``.

    As a product with ones: XLA fuses a plain sum with all that comes before, pixel by pixel, which
    takes six times longer.
    """
    squares = (residual**2).reshape(len(residual), -1)
    return squares @ jnp.ones(squares.shape[1], squares.dtype)


def _cost(value, d_row, d_col, target, d, grid):
    """f ``(N,)`` and half its gradient ``(N, 2L)`` from sampled values; d is ``(N, 2L)``."""
    residual = value - target
    pull = d @ grid.penalty
    f = grid.weight * sum_of_squares(residual) + (d * pull).sum(1)
    if grid.modes.shape[2]:
        along = jnp.einsum("nmc,mcq->nq", residual, grid.modes)
        f = f - grid.weight * (along**2).sum(1)
        residual = residual - jnp.einsum("nq,mcq->nmc", along, grid.modes)
    force = jnp.stack([(residual * d_row).sum(2), (residual * d_col).sum(2)], 1)  # (N, 2, m)
    return f, grid.weight * (force @ grid.basis).reshape(d.shape) + pull


def source_of(images):
    """What the solvers sample: packed images ``(N, H, W, C)`` and the index of each, ``(N,)``."""
    return pack_taps(images), jnp.arange(len(images), dtype=jnp.int32)


def _sample(source, shape, d, grid):
    """Values and derivatives ``(N, m, C)`` at displacements d ``(N, 2L)``, rows first."""
    taps, index = source
    move = d.reshape(len(d), 2, grid.basis.shape[1]) @ grid.basis.T  # (N, 2, m)
    return sample_taps(taps, shape, grid.rows + move[:, 0], grid.cols + move[:, 1], index)


def _evaluate(source, shape, target, d, grid):
    """f and half its gradient at displacements d ``(N, 2L)``."""
    return _cost(*_sample(source, shape, d, grid), target, d, grid)


def _sample_identity(source, shape, grid):
    """Values at the pixels of the grid and their central differences, ``(N, m, C)``.

    At d = 0 all samples lie on kinks of the bilinear surface; a one-sided derivative would make
    moves to one side easier than to the other.
    """
    taps, index = source
    w = shape[1]
    here = (index * ((shape[0] + 1) * (w + 1)))[:, None] + (grid.index // w + 1) * (w + 1)
    here = here + grid.index % w + 1
    after = taps.at[here].get(mode="promise_in_bounds", wrap_negative_indices=False)
    before = taps.at[here - w - 2].get(mode="promise_in_bounds", wrap_negative_indices=False)
    d_row, d_col = (after[:, :, 2] - before[:, :, 1]) / 2, (after[:, :, 1] - before[:, :, 2]) / 2
    return after[:, :, 0], d_row, d_col


def _evaluate_identity(source, shape, target, grid):
    """As `_evaluate` at d = 0, with the derivative that is symmetric at pixel centres."""
    taps, index = source
    d = jnp.zeros((len(index), 2 * grid.basis.shape[1]), taps.dtype)
    return _cost(*_sample_identity(source, shape, grid), target, d, grid)


def _normal_matrix(d_row, d_col, grid):
    """JᵀAJ ``(N, 2L, 2L)`` with J = [diag(d_row) B, diag(d_col) B], summed over channels."""
    jacobian = jnp.concatenate(
        [d_row[..., None] * grid.basis[:, None], d_col[..., None] * grid.basis[:, None]], -1
    )
    normal = jnp.einsum("nmci,nmcj->nij", jacobian, jacobian)
    if grid.modes.shape[2]:
        along = jnp.einsum("nmci,mcq->nqi", jacobian, grid.modes)
        normal = normal - jnp.einsum("nqi,nqj->nij", along, along)
    return grid.weight * normal


def _normal(targets, grid):
    """JᵀAJ ``(N, 2L, 2L)`` from the gradients of targets ``(N, H, W, C)``."""
    return _normal_matrix(*(_at(a, grid) for a in central_differences(targets)), grid)


def _inverse_hessian(targets, grid):
    """Damped inverse of the fixed Hessian of each target, ``(N, 2L, 2L)``."""
    size = 2 * grid.basis.shape[1]
    if size == 0:  # the identity is the only warp
        return jnp.zeros((len(targets), 0, 0), targets.dtype)
    normal = _normal(targets, grid)
    h = normal + grid.penalty
    damp = DAMPING * jnp.diagonal(normal, axis1=1, axis2=2)
    floor = FLOOR * jnp.trace(h, axis1=1, axis2=2) / size
    damp = damp + jnp.where(floor > 0, floor, 1.0)[:, None]  # no penalty, constant target: H = 0
    return jnp.linalg.inv(h + damp[:, :, None] * jnp.eye(size, dtype=h.dtype))


inverse_hessian = jax.jit(_inverse_hessian)
normal_matrix = jax.jit(_normal)


# ---------------------------------------------------------------- solvers: (N, 2L) displacements


def _quasi_newton(g, inverse, pairs):
    """L-BFGS's product of the inverse Hessian with half gradients g ``(N, 2L)``.

    ``inverse`` is the fixed one, of Gauss–Newton; ``pairs`` are the last steps, changes of the half
    gradient and 1 / their products, newest first: two loops over them (Liu and Nocedal 1989).
    """
    shares = []
    for step, change, scale in pairs:
        shares.append(scale * (step * g).sum(1))
        g = g - shares[-1][:, None] * change
    move = g @ inverse[0] if len(inverse) == 1 else jnp.einsum("ni,nij->nj", g, inverse)
    for (step, change, scale), share in zip(reversed(pairs), reversed(shares), strict=True):
        move = move + (share - scale * (change * move).sum(1))[:, None] * step
    return move


def _remember(pairs, move, change):
    """``pairs`` with a step of positive curvature as the newest, row by row."""
    product = (move * change).sum(1)
    convex = product > CONVEX * jnp.linalg.norm(move, axis=1) * jnp.linalg.norm(change, axis=1)
    new = (move, change, 1 / jnp.where(convex, product, 1.0))
    shifted = [new, *pairs[:-1]]
    return [
        tuple(
            jnp.where(convex if a.ndim == 1 else convex[:, None], a, b)
            for a, b in zip(moved, old, strict=True)
        )
        for moved, old in zip(shifted, pairs, strict=True)
    ]


def _descend(evaluate, inverse, d, f, g, n_iter):
    """Gauss–Newton steps from d with value f and half gradient g: ``(f, d)``, never worse."""

    def body(_, state):
        d, f, g, step, pairs = state
        move = -step[:, None] * _quasi_newton(g, inverse, pairs)
        f_new, g_new = evaluate(d + move)
        better = f_new < f
        keep = better[:, None]
        return (
            jnp.where(keep, d + move, d),
            jnp.where(better, f_new, f),
            jnp.where(keep, g_new, g),
            jnp.where(better, jnp.minimum(GROW * step, LONGEST), SHRINK * step),
            _remember(pairs, move, g_new - g),  # a failed step, too, tells the curvature
        )

    pairs = [(jnp.zeros_like(d), jnp.zeros_like(d), jnp.zeros_like(f))] * MEMORY
    d, f, *_ = lax.fori_loop(0, n_iter, body, (d, f, g, jnp.ones_like(f), pairs))
    return f, d


@jax.jit
def gauss_newton(source, targets, inverse, d, grid, n_iter):
    """Fixed-Hessian Gauss–Newton from displacements d ``(N, 2L)``: ``(f, d)``.

    ``targets`` and ``inverse`` have a leading axis of N, or of 1 (shared by all images).
    """
    evaluate = partial(_evaluate, source, targets.shape[1:3], _at(targets, grid), grid=grid)
    return _descend(evaluate, inverse, d, *evaluate(d), n_iter)


@jax.jit
def gauss_newton_cold(source, targets, inverse, coarse, lift, grid, n_iter):
    """As `gauss_newton`, from the identity or from a coarse affine fit, whichever is better.

    ``coarse = (source, targets, inverse, grid, n_iter)`` are low-passed copies and their affine
    grid; ``lift`` ``(L, 3)`` takes affine displacements to those of the landmarks. The paper, too,
    fits an affine map on low-passed images first.
    """
    shape, target = targets.shape[1:3], _at(targets, grid)
    evaluate = partial(_evaluate, source, shape, target, grid=grid)
    f, g = _evaluate_identity(source, shape, target, grid)
    d = jnp.zeros_like(g)
    rough = gauss_newton_from_identity(*coarse)[1]
    start = (rough.reshape(len(d), 2, -1) @ lift.T).reshape(d.shape)
    f_start, g_start = evaluate(start)
    better = f_start < f
    keep = better[:, None]
    d, f, g = jnp.where(keep, start, d), jnp.where(better, f_start, f), jnp.where(keep, g_start, g)
    return _descend(evaluate, inverse, d, f, g, n_iter)


@jax.jit
def gauss_newton_from_identity(source, targets, inverse, grid, n_iter):
    """As `gauss_newton` from d = 0, with the derivative that is symmetric there: ``(f, d)``."""
    shape, target = targets.shape[1:3], _at(targets, grid)
    f, g = _evaluate_identity(source, shape, target, grid)
    evaluate = partial(_evaluate, source, shape, target, grid=grid)
    return _descend(evaluate, inverse, jnp.zeros_like(g), f, g, n_iter)


def adam_state(iterate, mean=None, square=None, count=0):
    """State of the Adam solver for iterates ``(N, 2L)``: (iterate, optax's moments)."""
    zero = jnp.zeros_like(iterate)
    moments = optax.ScaleByAdamState(
        jnp.asarray(count, jnp.int32),
        zero if mean is None else mean,
        zero if square is None else square,
    )
    return iterate, moments


@partial(jax.jit, static_argnames="cold")
def adam(source, targets, d, state, grid, n_iter, learning_rate, cold=False):
    """Adam steps of ``learning_rate`` pixels: ``(f, d, state)``.

    ``d`` is the best warp so far, ``state`` the optimiser's own iterate and moments. The returned
    d is the best of the start and all iterates for these targets, so f never rises. ``cold`` says
    that both are zero.
    """
    shape, target = targets.shape[1:3], _at(targets, grid)
    evaluate = partial(_evaluate, source, shape, target, grid=grid)
    rule = optax.scale_by_adam()

    def body(_, carry):
        best, f_best, iterate, g, moments = carry
        update, moments = rule.update(2 * g, moments)
        iterate = iterate - learning_rate * update
        f, g = evaluate(iterate)
        better = f < f_best
        return (
            jnp.where(better[:, None], iterate, best),
            jnp.where(better, f, f_best),
            iterate,
            g,
            moments,
        )

    iterate, moments = state
    f, g = _evaluate_identity(source, shape, target, grid) if cold else evaluate(iterate)
    f_best = f if cold else evaluate(d)[0]
    best = jnp.where((f < f_best)[:, None], iterate, d)
    carry = (best, jnp.minimum(f, f_best), iterate, g, moments)
    best, f_best, iterate, _, moments = lax.fori_loop(0, n_iter, body, carry)
    return f_best, best, (iterate, moments)


@jax.jit
def levenberg_marquardt(source, targets, d, grid, n_iter):
    """Exact Levenberg–Marquardt with one Jacobian a pair and iteration: ``(f, d)``."""
    shape, target = targets.shape[1:3], _at(targets, grid)
    size = d.shape[1]
    eye = jnp.eye(size, dtype=d.dtype)

    def linearise(d):
        value, dr, dc = _sample(source, shape, d, grid)
        return *_cost(value, dr, dc, target, d, grid), _normal_matrix(dr, dc, grid)

    def body(_, state):
        d, f, g, normal, damp = state
        scale = jnp.trace(normal, axis1=1, axis2=2) / size + 1e-12
        h = normal + grid.penalty + (damp * scale)[:, None, None] * eye
        trial = d - jnp.linalg.solve(h, g[..., None])[..., 0]
        f_new, g_new, normal_new = linearise(trial)
        better = f_new < f
        keep, keep2 = better[:, None], better[:, None, None]
        damp = jnp.clip(jnp.where(better, damp / 3, damp * 4), 1e-6, 1e6)
        return (
            jnp.where(keep, trial, d),
            jnp.where(better, f_new, f),
            jnp.where(keep, g_new, g),
            jnp.where(keep2, normal_new, normal),
            damp,
        )

    start = (d, *linearise(d), jnp.full(len(d), 0.1, d.dtype))
    d, f, *_ = lax.fori_loop(0, n_iter, body, start)
    return f, d


@jax.jit
def evaluate(source, targets, d, grid):
    """f ``(N,)`` and half its gradient ``(N, 2L)`` at displacements d ``(N, 2L)``."""
    return _evaluate(source, targets.shape[1:3], _at(targets, grid), d, grid)
