"""Rounds of learning: warp and label the images, then centroids and prior from the labels.

They follow Lloyd's loop with the fixed penalty, which found the clusters. Each round lowers minus
the log-likelihood; what decides how many there are is the likelihood of held-out images.
"""

from __future__ import annotations

import numpy as np

from . import prior as _prior
from .lloyd import assign, candidates, update

__all__ = ["learn_prior", "rounds"]

MAX_ROUNDS = 12
HELD_OUT, MOST_HELD_OUT = 0.1, 2000  # share of the images, and at most so many
SETTLED = 2e-3  # share of images that change cluster in the last round
FULL_EVERY = 4  # rounds in which every image is fitted to every centroid
LARGEST = 3.0  # times the mean size: a cluster that grows beyond it is a collapse


def learn_prior(matcher, state, weights, penalty, n_modes):
    """`stkm.prior.learn` from the images of each cluster and their warps.

    ``penalty`` ``(2L, 2L)`` is the fixed one.
    """
    members = []
    for k, center in enumerate(state.centers):
        index = np.flatnonzero((state.labels == k) & (weights > 0))
        if not len(index):
            members.append(None)
            continue
        grid = matcher.grid if state.prior is None else matcher.learned(state.prior, k)
        d = state.d[index, k]
        residuals = (matcher.warped(index, d) - center).reshape(len(index), -1)
        normal = matcher.normal(center, grid)
        q = np.asarray(grid.penalty, np.float64)
        members.append(_prior.Members(residuals, d, weights[index], normal, q))
    return _prior.learn(members, np.linalg.inv(penalty), n_modes, state.prior)


def rounds(matcher, state, weights, *, penalty, n_modes, n_candidates, rng, history, callback=None):
    """Learn until held-out images gain no more; state.centers and state.prior are the best found.

    Returns the number of rounds. A round in which one cluster outgrows `LARGEST` times the mean
    size is undone, and ends the learning: a flexible cluster is eating its neighbours.
    """
    n, k = len(weights), len(state.centers)
    held = _held_out(weights, rng)
    taught = np.where(held, 0.0, weights)
    state.prior = learn_prior(matcher, state, taught, penalty, n_modes)
    best, kept = np.inf, (state.centers, state.prior)
    for number in range(MAX_ROUNDS):
        before = np.bincount(state.labels, weights, minlength=k).max()
        previous = state.labels
        full = number % FULL_EVERY == 0
        assign(
            matcher, state, np.ones_like(state.mask) if full else candidates(state, n_candidates)
        )
        f = state.nearest().astype(np.float64)
        tested = float(np.average(f[held], weights=weights[held])) if held.any() else np.inf
        largest = np.bincount(state.labels, weights, minlength=k).max()
        changed = int((previous != state.labels).sum())
        entry = {
            "stage": "learn",
            "objective": float(taught @ f),
            "held_out": tested,
            "changed": changed,
            "largest": float(largest),
        }
        history.append(entry)
        if callback:
            callback(entry)
        collapsed = largest > LARGEST * weights.sum() / k and largest > before
        if collapsed or (held.any() and not tested < best):
            entry["undone"] = True
            break
        best, kept = tested, (state.centers, state.prior)
        if number and changed <= SETTLED * n:
            break
        state.centers = update(matcher, state, taught)
        state.prior = learn_prior(matcher, state, taught, penalty, n_modes)
    state.centers, state.prior = kept
    return number + 1


def _held_out(weights, rng):
    """Mask of the images that the rounds do not learn from, of those with weight."""
    index = np.flatnonzero(weights > 0)
    held = np.zeros(len(weights), bool)
    held[rng.choice(index, min(int(HELD_OUT * len(index)), MOST_HELD_OUT), replace=False)] = True
    return held
