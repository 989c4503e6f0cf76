"""Rounds in which each cluster learns how its images bend and what else varies: see `stkm.prior`.

They follow Lloyd's loop with the fixed penalty, which found the clusters, and swaps that mend what
it got wrong: the likelihood sees more than the penalised error. Each round lowers minus the
log-likelihood; what decides how many there are is the likelihood of held-out images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from . import prior as _prior
from .lloyd import State, assign, candidates, update
from .search import split, utilities

__all__ = ["Lesson", "collapsed", "hold_out", "learn_from_sums", "learn_prior"]

ROUNDS = 6  # held-out images gain little from more
HELD_OUT, MOST_HELD_OUT = 0.1, 2000  # share of the images, and at most so many
SLACK = 0.2  # nats that a held-out image may lose by a round: what chance does
FULL_EVERY = 4  # rounds in which every image is fitted to every centroid
LARGEST = 3.0  # times the mean size: a cluster that grows beyond it is a collapse
RESTART_PASSES, PATIENCE = 2, 3  # passes of a new start; failures in a row that end the swaps
MARGIN = 3e-4  # of the objective, by which a swap has to lower it


def learn_prior(matcher, state, weights, penalty, **options):
    """`stkm.prior.learn` from the images of each cluster and their warps.

    ``penalty`` ``(2L, 2L)`` is the fixed one; ``options`` are n_modes, kappa and tying.
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
    return _prior.learn(members, np.linalg.inv(penalty), **options)


def hold_out(weights, rng=None):
    """Weights of the images that teach and of those that are held out, 0 for the others."""
    index = np.flatnonzero(weights > 0)
    held = np.zeros(len(weights), bool)
    if rng is not None:
        n = min(int(HELD_OUT * len(index)), MOST_HELD_OUT)
        held[rng.choice(index, n, replace=False)] = True
    return np.where(held, 0.0, weights), np.where(held, weights, 0.0)


def learn_from_sums(matcher, prior, centers, moments, penalty, **options):
    """`learn_prior` from the `stkm.prior.Moments` of each cluster, with these new centroids."""
    hessians = []
    for k, center in enumerate(centers):
        grid = matcher.learned(prior, k)
        hessians.append((matcher.normal(center, grid), np.asarray(grid.penalty, np.float64)))
    moments = [m if m.weight > 0 else None for m in moments]
    return _prior.learn_from(moments, hessians, np.linalg.inv(penalty), **options)


def collapsed(largest, before, total, n_clusters):
    """Whether a cluster has outgrown `LARGEST` times the mean size in this round."""
    return largest > LARGEST * total / n_clusters and largest > before


@dataclass
class Lesson:
    """What a fit's rounds share.

    matcher : aligner on all pixels; penalty : (2L, 2L), the fixed one; n_clusters, n_modes,
    tying, n_candidates : of the estimator; taught : (N,) weights, 0 for images held out;
    held : (N,) those images' weights, 0 for the others; size : images on which swaps are tried;
    history : list that gets one dict a step
    """

    matcher: object
    penalty: np.ndarray
    n_clusters: int
    n_modes: int
    tying: float
    n_candidates: int
    taught: np.ndarray
    held: np.ndarray
    size: int
    history: list
    callback: Callable | None = None
    kappa: float = field(init=False)

    def __post_init__(self):
        self.kappa = _prior.independent_errors(
            self.matcher.images, self.taught, self.n_modes, self.n_clusters
        )

    @classmethod
    def of(cls, matcher, weights, rng=None, **options):
        """A lesson from which a part of the images is held out by chance, or none without rng."""
        taught, held = hold_out(weights, rng)
        return cls(matcher, taught=taught, held=held, **options)

    def teach(self, state, weights=None):
        """Centroids and prior from the images and warps of each cluster."""
        weights = self.taught if weights is None else weights
        state.prior = learn_prior(
            self.matcher,
            state,
            weights,
            self.penalty,
            n_modes=self.n_modes,
            kappa=self.kappa,
            tying=self.tying,
        )

    def rounds(self, state):
        """Learn, unless held-out images lose by it; the state becomes the last that is sound.

        Every fit has as many rounds, so that objectives compare between runs: each lowers them a
        little. A round in which one cluster outgrows `LARGEST` times the mean size is undone, and
        ends the learning: a flexible cluster is eating its neighbours.
        """
        k, weights = self.n_clusters, self.taught + self.held
        self.teach(state)
        best, kept = np.inf, state.copy()
        for number in range(ROUNDS):
            before = np.bincount(state.labels, weights, minlength=k).max()
            previous = state.labels
            full = number % FULL_EVERY == 0
            mask = np.ones_like(state.mask) if full else candidates(state, self.n_candidates)
            assign(self.matcher, state, mask)
            f = state.nearest().astype(np.float64)
            tested = float(self.held @ f / self.held.sum()) if self.held.any() else -np.inf
            largest = np.bincount(state.labels, weights, minlength=k).max()
            entry = {
                "stage": "learn",
                "objective": float(self.taught @ f),
                "held_out": tested if self.held.any() else None,
                "changed": int((previous != state.labels).sum()),
                "largest": float(largest),
            }
            self._log(entry)
            if collapsed(largest, before, weights.sum(), k) or tested > best + SLACK:
                entry["undone"] = True
                state.become(kept)
                break
            if number < ROUNDS - 1:
                best, kept = min(best, tested), state.copy()
                state.centers = update(self.matcher, state, self.taught)
                self.teach(state)

    def restart(self, state, weights):
        """Start over from the labels: passes with the fixed penalty, every warp from the identity.

        Images without weight stay as they are.
        """
        here = weights[:, None] > 0
        state.centers = update(self.matcher, state, weights)
        state.prior = None
        for number in range(RESTART_PASSES):
            cold = np.full(len(state.centers), number == 0)
            assign(self.matcher, state, candidates(state, self.n_candidates) & here, cold)
            state.centers = update(self.matcher, state, weights)

    def swaps(self, state, n_swaps, rng):
        """Give the centroid of least use to a cluster that is two, where the likelihood gains.

        Each trial, on at most ``size`` images, divides one cluster, gives the images of another to
        their second nearest, and starts over from there: passes with the fixed penalty, then a
        prior learned once. So does the state as it is, for comparison; later rounds would not
        compare, since a cluster of two kinds learns to be both. `rounds` follow an accepted swap.
        At most ``n_swaps`` trials; `PATIENCE` failures in a row end them. Returns the swaps kept.
        """
        k, index = len(state.centers), np.flatnonzero(self.taught)
        part = np.zeros(len(self.taught))
        chosen = rng.choice(index, min(self.size, len(index)), replace=False)
        part[chosen] = self.taught[chosen]
        accepted, failures, plan = 0, 0, None
        for _ in range(n_swaps if k > 1 else 0):
            if failures == PATIENCE:
                break
            if plan is None:
                value = self._judge(state.copy(), part)[0]
                plan = self._plan(state, part, rng)
            if not plan:
                break
            out, into, halves = plan.pop(0)
            new, judged = self._judge(_swapped(self.matcher, state, out, into, halves), part)
            better = new < value - MARGIN * abs(value)
            entry = {"stage": "learned swap", "removed": out, "split": into, "objective": new}
            self._log(entry | {"before": value, "accepted": better})
            failures += 1
            if better:
                state.become(judged)
                assign(self.matcher, state, np.ones_like(state.mask))
                self.rounds(state)
                accepted, failures, plan = accepted + 1, 0, None
        return accepted

    def _judge(self, state, weights):
        """Objective of the state after a new start and one lesson, and that state."""
        self.restart(state, weights)
        self.teach(state, weights)
        assign(self.matcher, state, np.ones_like(state.mask) & (weights[:, None] > 0))
        return state.objective(weights), state

    def _plan(self, state, weights, rng):
        """(removed, split, halves), best guess first: of little use, and gaining by a division."""
        k, seed = len(state.centers), int(rng.integers(2**31))
        found = [split(self.matcher, state, weights, j, seed) for j in range(k)]
        losses = utilities(replace(state, mask=np.ones_like(state.mask)), weights)
        rank_out, rank_into = (np.argsort(np.argsort(a)) for a in (losses, [-g for _, g in found]))
        pairs = [(i, j) for i in range(k) for j in range(k) if i != j and found[j][0] is not None]
        pairs.sort(key=lambda p: (rank_out[p[0]] + rank_into[p[1]], rank_into[p[1]]))
        return [(i, j, found[j][0]) for i, j in pairs]

    def _log(self, entry):
        self.history.append(entry)
        if self.callback:
            self.callback(entry)


def _swapped(matcher, state, out, into, halves):
    """A state in which cluster ``into`` is divided and ``out`` is its other half."""
    f = state.f.copy()
    f[:, out] = np.inf
    labels = np.where(state.labels == out, f.argmin(1), state.labels)
    members = np.flatnonzero(state.labels == into)
    warped = matcher.warped(members, state.d[members, into])
    far = [((warped - half) ** 2).sum((1, 2, 3)) for half in halves]
    labels[members[far[1] < far[0]]] = out
    d = state.d.copy()
    d[:, out] = d[:, into]
    f[:, out] = f[:, into]
    return State(state.centers, d, f, state.mask, labels.astype(np.int32), state.prior)
