"""Speed of the solvers: `./run pytest tests/bench` prints it; nothing here passes judgement.

All of it at 28 × 28 pixels and 36 landmarks, with the estimator's penalties, against means of
eight digits. Times are of the fastest of a few rounds; the first, which compiles, is not counted.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import digits
from scipy.ndimage import gaussian_filter

from stkm import solvers
from stkm.align import Matcher
from stkm.timing import seconds
from stkm.warp import Warp

pytestmark = pytest.mark.bench
BATCH, STEPS = 128, 20


@pytest.fixture(scope="module")
def problem():
    """Low-passed images, their packed form, one target, warp, penalty and grid."""
    x = gaussian_filter(digits()[:BATCH].astype(np.float32) / 255, (0, 0.7, 0.7))[..., None]
    w = Warp.tps((28, 28), landmarks=6)
    spread = float(((x - x.mean(0)) ** 2).sum((1, 2, 3)).mean())
    q = solvers.penalty(w, 2e-3, 17.0, spread)
    source = jax.block_until_ready(solvers.source_of(jnp.asarray(x)))
    return x, source, jnp.asarray(x[:8].mean(0)[None]), w, q, solvers.make_grid(w, q)


def gauss_newton(problem, n):
    _, source, target, _, _, grid = problem
    inverse = solvers.inverse_hessian(target, grid)
    d = jnp.zeros((BATCH, 2 * grid.basis.shape[1]))
    return solvers.gauss_newton(source, target, inverse, d, grid, n)


def adam(problem, n, learning_rate=0.2):
    _, source, target, _, _, grid = problem
    d = jnp.zeros((BATCH, 2 * grid.basis.shape[1]))
    return solvers.adam(source, target, d, solvers.adam_state(d), grid, n, learning_rate)


@pytest.mark.parametrize("solver", [gauss_newton, adam], ids=["gauss-newton", "adam"])
def test_pair_iterations(benchmark, problem, solver, capsys):
    def call():
        return jax.block_until_ready(solver(problem, STEPS))

    benchmark.pedantic(call, rounds=20, warmup_rounds=2)
    per = benchmark.stats.stats.min / (BATCH * STEPS)
    benchmark.extra_info["us_per_pair_iteration"] = round(1e6 * per, 2)
    with capsys.disabled():
        print(
            f"\n{solver.__name__}: {1e6 * per:.1f} µs a pair and iteration, {1 / per:,.0f} pair "
            f"iterations a second, {1 / (per * STEPS):,.0f} pairs a second at {STEPS} iterations"
        )
    assert np.isfinite(np.asarray(solver(problem, STEPS)[0])).all()


def test_time_to_the_objective_of_adam(problem, capsys):
    slow, out = seconds(lambda: adam(problem, 100), rounds=3)
    goal = float(np.asarray(out[0]).mean())
    lines = [f"Adam, 100 steps: objective {goal:.3f}, {1e6 * slow / BATCH:.0f} µs a pair"]
    for n in (5, 10, 20, 40, 80, 160):
        fast, out = seconds(lambda n=n: gauss_newton(problem, n), rounds=3)
        value = float(np.asarray(out[0]).mean())
        lines.append(
            f"Gauss–Newton, {n} iterations: objective {value:.3f}, {1e6 * fast / BATCH:.0f} µs a "
            f"pair, {slow / fast:.1f} times as fast as Adam"
        )
        if value <= goal:
            break
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert value < 1.1 * goal


def test_growth_with_the_number_of_images(problem, capsys):
    x, _, target, w, q, _ = problem
    q_affine = solvers.penalty(Warp.affine((28, 28)), 0, 17.0, 35.0)
    lines = []
    for n in (128, 512, 2048):
        many = np.tile(x, (n // BATCH, 1, 1, 1))
        matcher = Matcher(many, w, q, q_affine, coarse=0.07 * 28)
        prepared = matcher.prepare(np.asarray(target[0]))
        took, (f, _) = seconds(
            lambda m=matcher, p=prepared, n=n: m.fit(0, np.arange(n), p), rounds=2
        )
        assert np.allclose(f.reshape(-1, BATCH), f[:BATCH], rtol=1e-3)
        lines.append(f"{n} images to one centroid, from the identity: {1e6 * took / n:.0f} µs each")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
