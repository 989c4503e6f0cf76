"""One Lloyd loop for every kind of warp: assign (Eq. 3), update (Eq. 4), until nothing moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .prior import Prior

__all__ = ["State", "assign", "candidates", "cold_state", "lloyd", "update"]


@dataclass
class State:
    """What the loop carries; ``N`` images, ``K`` clusters, ``L`` landmarks.

    centers : (K, H, W, C); d : (N, K, 2L) displacements; f : (N, K) distances, of which those
    outside ``mask`` (N, K) belong to older centroids; labels : (N,); prior : learned, or None
    """

    centers: np.ndarray
    d: np.ndarray
    f: np.ndarray
    mask: np.ndarray
    labels: np.ndarray
    prior: Prior | None = None

    def copy(self):
        arrays = (self.centers, self.d, self.f, self.mask, self.labels)
        return State(*(a.copy() for a in arrays), self.prior)

    def become(self, other):
        """Take over what another state of the same images holds."""
        self.centers, self.d, self.f = other.centers, other.d, other.f
        self.mask, self.labels, self.prior = other.mask, other.labels, other.prior

    def nearest(self):
        """Distance of each image to its centroid, ``(N,)``."""
        return self.f[np.arange(len(self.f)), self.labels]

    def objective(self, weights):
        """Eq. 2: weighted sum of the distances, float64."""
        return float(weights @ self.nearest().astype(np.float64))


def cold_state(matcher, centers):
    """State before the first assignment: every warp is the identity and unknown."""
    n, k = len(matcher.images), len(centers)
    return State(
        np.array(centers, np.float32),
        np.zeros((n, k, matcher.size), np.float32),
        np.full((n, k), np.inf, np.float32),
        np.zeros((n, k), bool),
        np.zeros(n, np.int32),
    )


def candidates(state, n_candidates):
    """Mask (N, K) of the ``n_candidates`` nearest centroids of each image, by known distances."""
    k = state.f.shape[1]
    if n_candidates >= k:
        return np.ones_like(state.mask)
    order = np.argpartition(state.f, n_candidates - 1, axis=1)[:, :n_candidates]
    mask = np.zeros_like(state.mask)
    np.put_along_axis(mask, order, True, axis=1)
    mask[np.arange(len(mask)), state.labels] = True  # the own cluster always: f never rises
    return mask


def assign(matcher, state, mask, cold=None):
    """Fit the pairs of ``mask``, then label each image with its nearest centroid among them.

    ``cold`` (K,) bool says which centroids' pairs start from the identity; the others start from
    their last warps.
    """
    for k in range(len(state.centers)):
        index = np.flatnonzero(mask[:, k])
        if not len(index):
            continue
        prepared = matcher.prepare(state.centers[k], state.prior, k)
        start = None if cold is not None and cold[k] else state.d[index, k]
        state.f[index, k], state.d[index, k] = matcher.fit(k, index, prepared, start)
    state.mask = mask
    state.labels = np.where(mask, state.f, np.inf).argmin(1).astype(np.int32)


def update(matcher, state, weights):
    """Centroids ``(K, H, W, C)``: weighted means of the members warped onto them (Eq. 4).

    A cluster without weight keeps its centroid.
    """
    centers = state.centers.copy()
    for k in range(len(centers)):
        index = np.flatnonzero(state.labels == k)
        total = weights[index].sum()
        if total > 0:
            warped = matcher.warped_sum(index, state.d[index, k], weights[index])
            centers[k] = warped / total
    return centers


def relocate(matcher, state, weights):
    """Move centroids that nobody chose to the worst-fitted images; returns the clusters moved.

    Stops when every image is fitted exactly: then there are fewer distinct images than clusters.
    """
    sizes = np.bincount(state.labels, weights, minlength=len(state.centers))
    moved = []
    for k in np.flatnonzero(sizes == 0):
        nearest = np.where(weights > 0, state.nearest(), -np.inf)
        alone = sizes[state.labels] <= weights  # the only member of a cluster stays
        nearest[alone] = -np.inf
        worst = int(nearest.argmax())
        # `exact` is the rounding error of a squared distance, not zero, in float32
        exact = 1e-6 * float((np.asarray(matcher.images[worst]) ** 2).sum())
        if not nearest[worst] > exact:
            break
        sizes[state.labels[worst]] -= weights[worst]
        sizes[k] += weights[worst]
        state.labels[worst] = k
        state.d[worst, k] = 0
        state.f[worst, k] = 0
        state.mask[worst, k] = True
        moved.append(int(k))
    return moved


def lloyd(
    matcher,
    state,
    weights,
    *,
    max_iter,
    tol,
    history,
    stage,
    n_candidates=None,
    full_every=5,
    cold=None,
    callback=None,
    stop=None,
    first=0,
):
    """Passes of `assign` and `update` until the centroids rest; the state is changed in place.

    Parameters
    ----------
    tol : the loop stops when the centroids' squared shift, summed, is at most this
    n_candidates : centroids fitted for each image in most passes; every ``full_every``-th pass
        fits all of them
    cold : (K,) bool, clusters whose pairs start from the identity in the first pass; None = all.
        Where only some are cold, the first pass fits the others' nearest pairs alone
    history : list that gets one dict a pass: stage, objective, shift, changed, relocated
    callback : called with that dict after each pass
    stop : called with ``history`` after each pass; the loop ends where it answers True
    first : passes that are done already, when a fit goes on

    Returns
    -------
    (passes, converged)
    """
    k = len(state.centers)
    n_candidates = k if n_candidates is None else n_candidates
    cold = np.ones(k, bool) if cold is None else cold
    for t in range(first, max_iter):
        previous = state.labels
        if t % full_every == 0 and (t or cold.all() or not cold.any()):
            mask = np.ones_like(state.mask)
        else:
            mask = candidates(state, n_candidates)
            mask[:, cold] |= t == 0
        assign(matcher, state, mask, cold if t == 0 else None)
        objective = state.objective(weights)
        moved = relocate(matcher, state, weights)
        centers = update(matcher, state, weights)
        shift = float(((centers - state.centers).astype(np.float64) ** 2).sum())
        for j in moved:
            state.d[:, j] = 0  # warps onto the old centroid mean nothing for the new one
        state.centers = centers
        history.append(
            {
                "stage": stage,
                "objective": objective,
                "shift": shift,
                "changed": int((previous != state.labels).sum()) if t else len(state.labels),
                "relocated": moved,
            }
        )
        if callback:
            callback(history[-1])
        if shift <= tol and not moved:
            return t + 1, True
        if stop and stop(history):
            return t + 1, False
    return max_iter, False
