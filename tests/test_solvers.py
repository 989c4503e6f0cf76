"""The solvers: objective and gradient by finite differences, and one against the other."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import digits, residuals, smooth_images
from numpy.testing import assert_allclose
from scipy.ndimage import gaussian_filter

from stkm import solvers
from stkm.align import flatten, unflatten
from stkm.warp import Warp

SHAPE = (11, 14)


def problem(channels, stride=1, kind="tps", weights=(2e-3, 17.0)):
    """Float64 images, targets, displacements ``(N, 2L)`` and grid; samples away from centres."""
    rng = np.random.default_rng(0)
    w = Warp.tps(SHAPE, landmarks=4) if kind == "tps" else Warp.affine(SHAPE)
    x = np.pad(rng.random((5, 7, 10, channels)), ((0, 0), (2, 2), (2, 2), (0, 0)))
    t = rng.random((5, *SHAPE, channels))
    q = solvers.penalty(w, *weights, scale=3.0)
    d = rng.normal(0, 1, (5, 2 * len(w.landmarks)))
    return w, q, x, t, d, solvers.make_grid(w, q, stride=stride, dtype=np.float64)


def objective(x, t, d, grid):
    return np.asarray(solvers.evaluate(solvers.source_of(x), t, jnp.asarray(d), grid)[0])


def slopes(x, t, d, grid, h=1e-6):
    """Gradient of the objective ``(N, 2L)`` by central differences."""
    columns = []
    for step in np.eye(d.shape[1]) * h:
        up, down = (objective(x, t, d + s, grid) for s in (step, -step))
        columns.append((up - down) / (2 * h))
    return np.stack(columns, -1)


# ---------------------------------------------------------------- objective


@pytest.mark.parametrize("kind", ["tps", "affine"])
def test_the_penalty_is_bending_energy_and_squared_displacement(kind):
    w = Warp.tps(SHAPE, landmarks=4) if kind == "tps" else Warp.affine(SHAPE)
    d = np.random.default_rng(1).normal(0, 1, (3, len(w.landmarks), 2))
    q = solvers.penalty(w, 0.3, 5.0, scale=2.0)
    moved = ((w.field(d) - w.field(0 * d)) ** 2).sum(-1).mean((1, 2))  # px² a pixel
    expected = 2.0 * (0.3 * w.bending_energy(d) + 5.0 * moved / np.prod(SHAPE))
    assert_allclose(np.einsum("nla,lm,nma->n", d, q, d), expected, rtol=1e-9)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_objective_is_squared_error_and_penalty(channels):
    with jax.enable_x64(True):
        w, q, x, t, d, grid = problem(channels)
        moves = unflatten(d)
        expected = residuals(w(x, moves), t) + np.einsum("nla,lm,nma->n", moves, q, moves)
        assert_allclose(objective(x, t, d, grid), expected, rtol=1e-10)
        # all images against one target
        one = np.array([objective(x[[i]], t[:1], d[[i]], grid)[0] for i in range(5)])
        assert_allclose(objective(x, t[:1], d, grid), one, rtol=1e-10)


def test_errors_on_every_second_pixel_stand_for_the_whole_frame():
    rng = np.random.default_rng(2)
    w = Warp.affine((28, 28))
    x, t = np.split(smooth_images(8, (28, 28), 1, sd=1.5), 2)
    d = rng.normal(0, 1, (4, 6)).astype(np.float32)
    q, args = np.zeros((3, 3)), (x, t, d)
    whole = objective(*args, solvers.make_grid(w, q))
    part = objective(*args, solvers.make_grid(w, q, stride=2))
    assert_allclose(part, whole, rtol=0.05)


@pytest.mark.parametrize("channels, stride, kind", [(1, 1, "tps"), (3, 1, "affine"), (3, 2, "tps")])
def test_the_gradient_is_that_of_finite_differences(channels, stride, kind):
    with jax.enable_x64(True):
        *_, x, t, d, grid = problem(channels, stride, kind)
        half = solvers.evaluate(solvers.source_of(x), t, d, grid)[1]
        expected = slopes(x, t, d, grid)
    assert_allclose(2 * np.asarray(half), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_adam_is_optax_on_the_gradient_of_the_objective():
    with jax.enable_x64(True):
        *_, x, t, d, grid = problem(1)
        state = solvers.adam_state(jnp.asarray(d))
        *_, (iterate, _) = solvers.adam(solvers.source_of(x), t, d, state, grid, 4, 0.02)
        rule, expected = optax.adam(0.02), jnp.asarray(d)
        state = rule.init(expected)
        for _ in range(4):
            update, state = rule.update(jnp.asarray(slopes(x, t, expected, grid)), state)
            expected = optax.apply_updates(expected, update)
        assert_allclose(iterate, expected, atol=1e-6)


@pytest.mark.parametrize("penalised", [True, False])
@pytest.mark.parametrize("target", ["random", "constant", "black"])
def test_the_fixed_hessian_has_a_positive_definite_inverse(target, penalised):
    w = Warp.tps(SHAPE, landmarks=4)
    t = {
        "random": np.random.default_rng(3).random((1, *SHAPE, 1)),
        "constant": np.ones((1, *SHAPE, 1)),
    }
    t = t.get(target, np.zeros((1, *SHAPE, 1))).astype(np.float32)
    q = solvers.penalty(w, 2e-3 * penalised, 17.0 * penalised, 1.0)
    inverse = np.asarray(solvers.inverse_hessian(t, solvers.make_grid(w, q)))[0].astype(float)
    assert np.isfinite(inverse).all()
    assert_allclose(inverse, inverse.T, atol=1e-3 * np.abs(inverse).max())
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2).min() > 0


# ---------------------------------------------------------------- descent


@pytest.fixture(scope="module")
def pairs():
    """40 pairs of low-passed digits as GN, LM and Adam see them: x, t, d = 0, grid."""
    x = gaussian_filter(digits()[:80].astype(np.float32) / 255, (0, 0.7, 0.7))[..., None]
    w = Warp.tps((28, 28), landmarks=6)
    q = solvers.penalty(w, 2e-3, 17.0, 35.0)  # the estimator's, for the spread of these images
    return x[:40], x[40:], jnp.zeros((40, 72)), solvers.make_grid(w, q)


def run(solver, pairs, n, d=None):
    x, t, start, grid = pairs
    x, d = solvers.source_of(x), start if d is None else d
    if solver == "lm":
        return tuple(map(np.asarray, solvers.levenberg_marquardt(x, t, d, grid, n)))
    if solver == "adam":
        out = solvers.adam(x, t, d, solvers.adam_state(d), grid, n, 0.2)
        return tuple(map(np.asarray, out[:2]))
    inverse = solvers.inverse_hessian(t, grid)
    return tuple(map(np.asarray, solvers.gauss_newton(x, t, inverse, d, grid, n)))


def test_gauss_newton_reaches_what_exact_levenberg_marquardt_does(pairs):
    x, _, d, grid = pairs
    # what the loop aligns with: means of several images
    t = np.repeat(x.reshape(5, 8, 28, 28, 1).mean(1), 8, axis=0)
    start, exact = objective(x, t, d, grid), run("lm", (x, t, d, grid), 40)[0]
    assert exact.mean() < 0.65 * start.mean()
    assert run("gauss-newton", (x, t, d, grid), 20)[0].mean() < 1.05 * exact.mean()
    assert run("gauss-newton", (x, t, d, grid), 40)[0].mean() < 1.02 * exact.mean()


@pytest.mark.parametrize("solver", ["gauss-newton", "adam", "lm"])
def test_no_solver_ends_above_its_start_and_more_steps_are_never_worse(solver, pairs):
    x, t, d, grid = pairs
    start = objective(x, t, d, grid)
    few, many = run(solver, pairs, 5)[0], run(solver, pairs, 15)[0]
    f, moves = run(solver, pairs, 15)
    assert (few <= start).all() and few.mean() < 0.9 * start.mean()
    assert (many <= few).all() and many.mean() < 0.98 * few.mean()
    # what is returned is the objective at the displacements returned
    assert_allclose(objective(x, t, moves, grid), f, rtol=1e-4)


@pytest.mark.parametrize("solver", ["gauss-newton", "adam", "lm"])
def test_a_warm_start_is_never_worse_than_the_warp_it_starts_from(solver, pairs):
    x, t, _, grid = pairs
    f, d = run(solver, pairs, 10)
    again, _ = run(solver, pairs, 3, jnp.asarray(d))
    assert (again <= f * (1 + 1e-6)).all()
    # also where the target has moved meanwhile, and from a bad warp
    other, bad = (x, np.roll(t, 1, 0), d, grid), 3 * d[::-1]
    for warm in (d, bad):
        before = objective(x, other[1], warm, grid)
        assert (run(solver, other, 3, jnp.asarray(warm))[0] <= before * (1 + 1e-6)).all()


@pytest.mark.parametrize("solver", ["gauss-newton", "adam", "lm"])
def test_a_fitted_pair_stays_where_it_is(solver, pairs):
    x, _, d, grid = pairs
    f, moves = run(solver, (x, x, d, grid), 5)
    assert (f == 0).all() and (moves == 0).all()


def test_adams_memory_makes_two_halves_one_run(pairs):
    x, t, d, grid = pairs
    x = solvers.source_of(x)
    f, best, (iterate, moments) = solvers.adam(x, t, d, solvers.adam_state(d), grid, 5, 0.2)
    state = solvers.adam_state(iterate, moments.mu, moments.nu, 5)
    halves = solvers.adam(x, t, best, state, grid, 5, 0.2)
    whole = solvers.adam(x, t, d, solvers.adam_state(d), grid, 10, 0.2)
    assert_allclose(halves[0], whole[0], rtol=1e-5)
    assert_allclose(halves[2][0], whole[2][0], atol=1e-4)


def test_a_pair_does_not_depend_on_the_others_of_its_batch(pairs):
    x, t, d, grid = pairs
    f, moves = run("gauss-newton", pairs, 10)
    order = np.random.default_rng(4).permutation(40)
    f2, moves2 = run("gauss-newton", (x[order], t[order], d, grid), 10)
    assert_allclose(f2, f[order], rtol=1e-5)
    assert_allclose(moves2, moves[order], atol=1e-3)


def test_flat_displacements_are_rows_first_and_come_back():
    d = np.random.default_rng(5).normal(0, 1, (3, 4, 2))
    assert np.array_equal(flatten(d)[:, :4], d[..., 0])
    assert np.array_equal(unflatten(flatten(d)), d)


# ---------------------------------------------------------------- no side is preferred


@pytest.mark.parametrize("axis", [1, 2])
def test_the_first_step_from_the_identity_does_not_depend_on_the_side(axis):
    """Mirrored pairs take mirrored steps: at d = 0 every sample lies on a kink."""
    x, t = (v[..., None] for v in np.split(smooth_images(16, (28, 28), sd=1.0), 2))
    w = Warp.tps((28, 28), landmarks=6)
    grid = solvers.make_grid(w, solvers.penalty(w, 1e-3, 1.0, 5.0))

    def step(x, t, n):
        inverse = solvers.inverse_hessian(t, grid)
        out = solvers.gauss_newton_from_identity(solvers.source_of(x), t, inverse, grid, n)
        return unflatten(out[1]).reshape(8, 6, 6, 2)

    plain, mirrored = step(x, t, 1), step(np.flip(x, axis), np.flip(t, axis), 1)
    mirrored = np.flip(mirrored, axis).copy()
    mirrored[..., axis - 1] *= -1
    assert np.abs(plain).max() > 0.1
    assert_allclose(mirrored, plain, atol=1e-4)
