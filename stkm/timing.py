"""What a warp costs: solvers side by side, other packages, and growth with the size of a problem.

Every time is the fastest of a few rounds, after one that compiles and is not counted. For
diagnosis only: nothing that fits or chooses looks at a clock.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from . import fitting, solvers
from .align import low_pass
from .lloyd import assign, cold_state, update
from .warp import Warp

__all__ = ["OTHERS", "SOLVERS", "others", "peak_memory", "race", "seconds", "seconds_a_pass"]

SOLVERS = {
    "gauss-newton": "Gauss–Newton, fixed Hessian",
    "coarse": "the same, affine stage first",
    "adam": "Adam (the paper's)",
    "lm": "Levenberg–Marquardt",
    "l-bfgs": "L-BFGS (optax)",
}
COARSE_ITERATIONS = 10
OTHERS = {"pystackreg": "affine", "SimpleITK": "B-spline, 3 × 3 cells"}
"""Packages that `others` compares with, and their warp."""


def seconds(call: Callable[[], Any], rounds: int = 3) -> tuple[float, Any]:
    """Fastest of ``rounds`` calls in seconds, and what the last one returned."""
    out, best = jax.block_until_ready(call()), np.inf
    for _ in range(rounds):
        start = time.perf_counter()
        out = jax.block_until_ready(call())
        best = min(best, time.perf_counter() - start)
    return best, out


def peak_memory() -> float:
    """Largest memory that this process has had so far, GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


# ------------------------------------------------------------------ solvers


def race(
    images, targets, penalties, steps, *, landmarks=6, coarse=2.0, learning_rate=0.2, rounds=3
):
    """Objective against time, for all `SOLVERS` from the identity on the same pairs.

    As in a pass, the images of one target are a batch, and what depends on the target alone is
    computed once for them; the time of that counts.

    Parameters
    ----------
    images : (T, n, H, W) float, n images for each target; targets : (T, H, W)
    penalties : (bending, displacement), in units of the mean contrast of the targets
    steps : mapping of solver to numbers of iterations
    coarse : sd in pixels of the low-pass of the affine stage, which has `COARSE_ITERATIONS`
    learning_rate : of Adam, pixels

    Returns
    -------
    dict of solver to a list of (iterations, seconds a pair, mean objective)

    Raises
    ------
    ValueError : shapes that do not belong together
    """
    x, t = (np.asarray(a, np.float32)[..., None] for a in (images, targets))
    if x.ndim != 5 or x.shape[:1] + x.shape[2:] != t.shape or not x.size:
        raise ValueError(
            "images must be (T, n, H, W) and targets (T, H, W): "
            f"got {x.shape[:-1]} and {t.shape[:-1]}"
        )
    warp = Warp.tps(t.shape[1:3], landmarks=landmarks)
    contrast = ((t - t.mean((1, 2), keepdims=True)) ** 2).sum((1, 2, 3)).mean()
    grid = solvers.make_grid(warp, solvers.penalty(warp, *penalties, float(contrast)))
    zero = jnp.zeros((x.shape[1], 2 * len(warp.landmarks)), jnp.float32)
    plane = Warp.affine(warp.shape)
    lift = jnp.asarray(plane.basis_at(warp.landmarks)[0], jnp.float32)
    rough = solvers.make_grid(plane, solvers.penalty(plane, *penalties, float(contrast)), stride=2)
    batches = [
        (
            solvers.source_of(jnp.asarray(some)),
            jnp.asarray(one[None]),
            solvers.source_of(jnp.asarray(low_pass(some, coarse))),
            jnp.asarray(low_pass(one[None], coarse)),
        )
        for some, one in zip(x, t, strict=True)
    ]

    def solve(name, n, source, target, blurred, far):
        if name == "adam":
            state = solvers.adam_state(zero)
            return solvers.adam(source, target, zero, state, grid, n, learning_rate, True)[:2]
        if name == "lm":
            return solvers.levenberg_marquardt(source, target, zero, grid, n)
        if name == "l-bfgs":
            return _lbfgs(source, target, zero, grid, n)
        inverse = solvers.inverse_hessian(target, grid)
        if name == "coarse":
            stage = (blurred, far, solvers.inverse_hessian(far, rough), rough, COARSE_ITERATIONS)
            return solvers.gauss_newton_cold(source, target, inverse, stage, lift, grid, n)
        return solvers.gauss_newton_from_identity(source, target, inverse, grid, n)

    found = {name: [] for name in steps}
    for name, numbers in steps.items():
        for n in numbers:
            took, out = seconds(lambda: [solve(name, n, *batch) for batch in batches], rounds)  # noqa: B023  called within this turn
            f = np.concatenate([value for value, _ in out])
            found[name].append((n, took / len(f), float(f.mean())))
    return found


@jax.jit
def _lbfgs(source, targets, d, grid, n_iter):
    """optax's L-BFGS with its line search, each image by itself to one target: ``(f, d)``."""
    taps, index = source

    def one(i, target, d):
        def value(d):
            return solvers.evaluate((taps, i[None]), target[None], d[None], grid)[0][0]

        rule = optax.lbfgs()

        def body(_, carry):
            d, state = carry
            f, g = optax.value_and_grad_from_state(value)(d, state=state)
            change, state = rule.update(g, state, d, value=f, grad=g, value_fn=value)
            return optax.apply_updates(d, change), state

        d, _ = jax.lax.fori_loop(0, n_iter, body, (d, rule.init(d)))
        return value(d), d

    return jax.vmap(one, (0, None, 0))(index, targets[0], d)


# ----------------------------------------------------------- other packages


def others(name, images, targets):
    """Seconds a pair and mean squared error of a package's registration, or None without it.

    ``name`` is one of `OTHERS`; images and targets are (N, H, W). Both packages minimise the
    squared error with their own settings, on one core or as many as they take.
    """
    try:
        package = import_module(name)
    except ImportError:
        return None
    register = {"pystackreg": _pystackreg, "SimpleITK": _simpleitk}[name]
    pairs = list(zip(np.asarray(images, np.float32), np.asarray(targets, np.float32), strict=True))
    took, warped = seconds(lambda: [register(package, x, t) for x, t in pairs], rounds=1)
    errors = [((w - t) ** 2).sum() for w, (_, t) in zip(warped, pairs, strict=True)]
    return took / len(pairs), float(np.mean(errors))


def _pystackreg(package, image, target):
    return package.StackReg(package.StackReg.AFFINE).register_transform(target, image)


def _simpleitk(package, image, target):
    moving, fixed = (package.GetImageFromArray(a) for a in (image, target))
    method = package.ImageRegistrationMethod()
    method.SetMetricAsMeanSquares()
    method.SetInterpolator(package.sitkLinear)
    method.SetOptimizerAsLBFGSB(numberOfIterations=50)
    method.SetInitialTransform(package.BSplineTransformInitializer(fixed, [3, 3]))
    found = method.Execute(fixed, moving)
    return package.GetArrayFromImage(package.Resample(moving, fixed, found, package.sitkLinear))


# ------------------------------------------------------------------- growth


def seconds_a_pass(estimator, X, rounds=2):
    """One pass of Lloyd's loop, all images to all centroids and the update, from warps of before.

    Parameters
    ----------
    estimator : `stkm.STKMeans` or `stkm.AffineKMeans`, solver 'gauss-newton', not fitted
    X : images as its ``fit`` takes them; the first n_clusters of them are the centroids
    """
    images, weights = estimator._prepare(X, None)
    model = estimator._model
    smooth = model.smooth(images)
    matcher = model.matcher(smooth, **fitting.PASS)
    state = cold_state(matcher, smooth[: estimator.n_clusters])
    everyone = np.ones_like(state.mask)

    def one_pass():
        assign(matcher, state, everyone)
        state.centers = update(matcher, state, weights)

    assign(matcher, state, everyone, np.ones(estimator.n_clusters, bool))
    return seconds(one_pass, rounds)[0]
