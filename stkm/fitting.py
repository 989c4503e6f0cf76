"""From images to centroids: what a fit does, step by step, for both optimisers.

`Model` holds what depends on the data and the parameters (penalties, low-passes, tolerances); the
functions below take it, images ``(N, H, W, C)`` and weights. Nothing here sees a label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import init as _init
from . import solvers
from .adam import AdamMatcher
from .align import Matcher, low_pass
from .lloyd import cold_state, lloyd, update
from .search import swaps
from .warp import Warp

__all__ = ["Model", "Result", "distances", "fit_adam", "fit_gauss_newton"]

FINAL = {"n_cold": 24, "n_coarse": 10}  # iterations of `predict`
PASS = {"n_cold": 12, "n_warm": 5, "n_coarse": 8}  # of a pass: warps go on from pass to pass
SEARCH_PASSES, SWAP_PASSES = 8, 4  # Lloyd passes before the swaps, and after each one
SWAPS_PER_CLUSTER = 2  # n_swaps="auto"
AFFINE_SHARE = 3  # solver="adam": one pass in three fits affine maps on low-passed images


@dataclass(frozen=True)
class Model:
    """Warp, penalties and tolerances of one fit; lengths in pixels.

    spread : mean squared distance of an image from the mean image, the unit of the penalties
    shift : squared shift of the centroids below which the loop stops
    """

    warp: Warp
    side: float
    spread: float
    penalty: np.ndarray
    affine_penalty: np.ndarray
    shift: float
    smoothing: float
    coarse: float
    learning_rate: float
    params: dict

    @classmethod
    def of(cls, warp, images, params):
        """Model for images ``(N, H, W, C)`` and an estimator's parameters."""
        side = float(np.sqrt(np.prod(warp.shape)))
        smooth = low_pass(images, params["smoothing"] * side)
        spread = float(((smooth - smooth.mean(0)) ** 2).sum((1, 2, 3)).mean()) or 1.0
        weights = (params["bending"], params["displacement"], spread)
        return cls(
            warp,
            side,
            spread,
            solvers.penalty(warp, *weights),
            solvers.penalty(Warp.affine(warp.shape), *weights),
            # scikit-learn's rule: tol counts in units of the mean variance of a pixel
            params["tol"] * spread / np.prod(images.shape[1:]),
            params["smoothing"] * side,
            params["coarse"] * side,
            params["learning_rate"] * (side - 1) / 2,  # from the paper's units of [-1, 1]
            params,
        )

    def smooth(self, images):
        """Images as the distance sees them: low-passed."""
        return low_pass(images, self.smoothing)

    def matcher(self, smooth, **options):
        """Gauss–Newton aligner of low-passed images."""
        return Matcher(
            smooth,
            self.warp,
            self.penalty,
            self.affine_penalty,
            coarse=self.coarse,
            batch_size=self.params["batch_size"],
            **options,
        )

    def adam_matcher(self, images, warp, penalty, n_steps):
        """Adam aligner of images."""
        return AdamMatcher(
            images,
            warp,
            penalty,
            self.params["n_clusters"],
            n_steps=n_steps,
            learning_rate=self.learning_rate,
            batch_size=self.params["batch_size"],
        )

    def lloyd(self, matcher, state, weights, history, stage, max_iter, **options):
        """`stkm.lloyd.lloyd` with this model's tolerance and candidates."""
        return lloyd(
            matcher,
            state,
            weights,
            max_iter=max_iter,
            tol=self.shift,
            history=history,
            stage=stage,
            n_candidates=self.params["n_candidates"],
            callback=self.report,
            **options,
        )

    def report(self, entry):
        """One line a pass where ``verbose`` is set."""
        if self.params["verbose"]:
            print(
                f"{entry['stage']}: objective {entry['objective']:.6g}, "
                f"{entry['changed']} labels changed"
            )


@dataclass
class Result:
    """One fit: centers (K, H, W, C), labels (N,), objective, passes and the log of all steps."""

    centers: np.ndarray
    labels: np.ndarray
    objective: float
    n_iter: int
    converged: bool
    history: list


def distances(model, images, centers):
    """f ``(N, K)`` and d ``(N, K, 2L)`` of images from the identity, on all pixels (Eq. 3)."""
    smooth = model.smooth(images)
    if model.params["solver"] == "adam":
        steps = model.params["adam_steps"] * model.params["max_iter"]
        matcher = model.adam_matcher(smooth, model.warp, model.penalty, steps)
    else:
        matcher = model.matcher(smooth, **FINAL)
    state = cold_state(matcher, centers)
    index = np.arange(len(images))
    for k, center in enumerate(centers):
        state.f[:, k], state.d[:, k] = matcher.fit(k, index, matcher.prepare(center))
    return state.f, state.d


def fit_gauss_newton(model, images, weights, rng, start):
    """Search on a part of the images, Lloyd on all of them, labels as `predict` gives them.

    ``start`` is None or given centroids ``(K, H, W, C)``, which skip the search.
    """
    history, smooth = [], model.smooth(images)
    if start is None:
        centers = search(model, smooth, weights, rng, history)
    else:
        centers = model.smooth(start)
    matcher = model.matcher(smooth, **PASS)
    state = cold_state(matcher, centers)
    n_iter, converged = model.lloyd(
        matcher, state, weights, history, "lloyd", model.params["max_iter"]
    )
    f, _ = distances(model, images, state.centers)
    labels = f.argmin(1).astype(np.int32)
    objective = float(weights @ f.min(1).astype(np.float64))
    history.append({"stage": "final", "objective": objective})
    return Result(state.centers, labels, objective, n_iter, converged, history)


def search(model, smooth, weights, rng, history):
    """Centroids by k-means++ on the warp distance, Lloyd and swaps, on a part of the images.

    The error is taken on every second pixel of larger frames: the images are low-passed.
    """
    p = model.params
    part = np.arange(len(smooth))
    if len(part) > p["search_size"]:
        size = max(p["search_size"], p["n_clusters"])
        size = min(size, int((weights > 0).sum()))
        part = np.sort(rng.choice(len(part), size, replace=False, p=weights / weights.sum()))
    w = weights[part]
    matcher = model.matcher(smooth[part], stride=2 if min(model.warp.shape) >= 20 else 1, **PASS)

    def to_image(i):
        return matcher.fit(0, np.arange(len(part)), matcher.prepare(smooth[part[i]]))

    index, found = _init.greedy_kmeans_plusplus(to_image, w, p["n_clusters"], rng)
    state = cold_state(matcher, smooth[part[index]])
    for k, (f, d) in enumerate(found):
        state.f[:, k], state.d[:, k] = f, d
    warm = np.zeros(p["n_clusters"], bool)
    model.lloyd(matcher, state, w, history, "search", SEARCH_PASSES, cold=warm)
    n_swaps = SWAPS_PER_CLUSTER * p["n_clusters"] if p["n_swaps"] == "auto" else p["n_swaps"]
    state = swaps(
        matcher,
        state,
        w,
        n_swaps=n_swaps,
        n_passes=SWAP_PASSES,
        tol=model.shift,
        rng=rng,
        history=history,
        n_candidates=p["n_candidates"],
    )
    return state.centers


def fit_adam(model, images, weights, start):
    """The published loop: affine maps on low-passed images first, then the warp itself (Eq. 3).

    ``start`` are centroids ``(K, H, W, C)``. The labels are those of the last pass.
    """
    p, history, first = model.params, [], 0
    smooth = model.smooth(images)
    matcher = model.adam_matcher(smooth, model.warp, model.penalty, p["adam_steps"])
    state = cold_state(matcher, model.smooth(start))
    cold = np.ones(p["n_clusters"], bool)
    if model.warp.kind == "tps" and model.coarse > 0:
        first = max(1, p["max_iter"] // AFFINE_SHARE)
        state.d, state.labels = _affine_stage(model, images, start, weights, history, first)
        matcher.start_from(state.d)
        state.centers = update(matcher, state, weights)
        cold[:] = False
    n_iter, converged = model.lloyd(
        matcher, state, weights, history, "adam", max(1, p["max_iter"] - first), cold=cold
    )
    objective = history[-1]["objective"]
    return Result(state.centers, state.labels, objective, first + n_iter, converged, history)


def _affine_stage(model, images, start, weights, history, n_passes):
    """Displacements ``(N, K, 2L)`` and labels after affine passes on low-passed images."""
    affine = Warp.affine(model.warp.shape)
    blurred = low_pass(images, model.coarse)
    matcher = model.adam_matcher(blurred, affine, model.affine_penalty, model.params["adam_steps"])
    state = cold_state(matcher, low_pass(start, model.coarse))
    model.lloyd(matcher, state, weights, history, "affine", n_passes)
    n, k = state.mask.shape
    lift = affine.basis_at(model.warp.landmarks)[0]
    return (state.d.reshape(n, k, 2, 3) @ lift.T).reshape(n, k, -1).astype(np.float32), state.labels
