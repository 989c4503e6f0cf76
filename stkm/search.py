"""Search for a better optimum: a useless centroid moves to where one is missing.

Lloyd's loop ends in the nearest local optimum, and that is where most accuracy is lost. A swap
takes away the centroid of least utility, Σ_members (second distance − first), and splits another
cluster in two; it is kept only when the objective falls. No labels take part.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from .lloyd import assign, candidates, lloyd

__all__ = ["swaps", "utilities"]

PATIENCE = 6  # failures in a row: the best guesses come first, later ones seldom succeed


def utilities(state, weights):
    """Loss without each centroid, ``(K,)``: its members move to their second nearest."""
    f = np.where(state.mask, state.f, np.inf).astype(np.float64)
    f[np.arange(len(f)), state.labels] = np.inf
    loss = weights * (np.minimum(f.min(1), 1e30) - state.nearest())
    return np.bincount(state.labels, loss, minlength=len(state.centers))


def split(matcher, state, weights, k, seed):
    """Two centroids for cluster k, and what 2-means on its warped members gains.

    Returns (centers (2, H, W, C), gain); a cluster of fewer than four images gains nothing.
    """
    index = np.flatnonzero((state.labels == k) & (weights > 0))
    if len(index) < 4:
        return None, -np.inf
    warped = matcher.warped(index, state.d[index, k]).reshape(len(index), -1)
    if not np.ptp(warped, axis=0).any():  # copies of one image: nothing to split
        return None, -np.inf
    two = KMeans(2, n_init=1, random_state=seed).fit(warped, sample_weight=weights[index])
    centre = np.average(warped, axis=0, weights=weights[index])
    before = weights[index] @ ((warped - centre) ** 2).sum(1)
    shape = (2, *state.centers.shape[1:])
    return two.cluster_centers_.reshape(shape).astype(np.float32), float(before - two.inertia_)


def swaps(
    matcher, state, weights, *, n_swaps, n_passes, tol, rng, history, n_candidates, callback=None
):
    """Try up to ``n_swaps`` swaps, best guess first; returns the best state found.

    A trial fits all images to the two new centroids, runs ``n_passes`` passes of Lloyd's loop and
    is kept when the objective is lower than before. `PATIENCE` failures in a row end the search.
    Each pass gains less than the one before, as a rule; so a trial ends early where passes that
    all gain as much as the last one would not be enough.
    """
    k = len(state.centers)
    best, tried, plan, failures = state, set(), None, 0
    value = refined_objective(matcher, best, weights, n_candidates)
    for number in range(n_swaps if k > 1 else 0):
        if failures == PATIENCE:
            break
        if plan is None:
            plan = _plan(matcher, best, weights, rng)
        choice = next(((a, b) for _, a, b in plan[1] if (a, b) not in tried), None)
        if choice is None:
            break
        tried.add(choice)
        out, into = choice
        trial = best.copy()
        trial.centers[[into, out]] = plan[0][into]
        trial.d[:, [into, out]] = 0
        cold = np.zeros(k, bool)
        cold[[into, out]] = True
        lloyd(
            matcher,
            trial,
            weights,
            max_iter=n_passes,
            tol=tol,
            history=(log := []),
            stage="swap",
            cold=cold,
            n_candidates=n_candidates,
            stop=lambda log: _hopeless(log, n_passes, value),  # noqa: B023  used within this turn
        )
        if _hopeless(log, n_passes, value):
            new = log[-1]["objective"]
        else:
            new = refined_objective(matcher, trial, weights, n_candidates)
        history.append(
            {
                "stage": "swap",
                "number": number,
                "removed": out,
                "split": into,
                "objective": new,
                "before": value,
                "accepted": bool(new < value),
            }
        )
        if callback:
            callback(history[-1])
        failures += 1
        if new < value:
            best, value, plan, tried, failures = trial, new, None, set(), 0
    return best


def _hopeless(log, n_passes, value):
    """Whether no pace seen lately takes a trial below ``value``, with one assignment after it."""
    if len(log) < 2:
        return False
    before, now = (entry["objective"] for entry in log[-2:])
    return now - (n_passes + 1 - len(log)) * max(before - now, 0.0) > value


def refined_objective(matcher, state, weights, n_candidates):
    """Objective after one more assignment, so that states of different age compare."""
    assign(matcher, state, candidates(state, n_candidates))
    return state.objective(weights)


def _plan(matcher, state, weights, rng):
    """Splits of every cluster, and pairs (gain − loss, removed, split), best first."""
    k = len(state.centers)
    seed = int(rng.integers(2**31))
    halves, gains = zip(*(split(matcher, state, weights, j, seed) for j in range(k)), strict=True)
    losses = utilities(state, weights)
    pairs = [
        (gains[j] - losses[i], i, j)
        for i in range(k)
        for j in range(k)
        if i != j and halves[j] is not None
    ]
    return halves, sorted(pairs, key=lambda p: -p[0])
