"""Start of the clustering: greedy k-means++ on the warp distance, or on pixels as in the paper."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import kmeans_plusplus as _sklearn_plusplus

__all__ = ["greedy_kmeans_plusplus", "pixel_kmeans_plusplus"]


def pixel_kmeans_plusplus(X, n_clusters, random_state, sample_weight=None):
    """Indices ``(K,)`` by scikit-learn's k-means++ on the raw pixels: the paper's start.

    ``X`` is ``(N, H, W[, C])``; K-means, AI K-means and ST K-means of one run share it.
    """
    X = np.asarray(X)
    flat = X.reshape(len(X), -1)
    return _sklearn_plusplus(
        flat, n_clusters, random_state=random_state, sample_weight=sample_weight
    )[1]


def greedy_kmeans_plusplus(distances, weights, n_clusters, rng, n_trials=2):
    """k-means++ (Arthur, Vassilvitskii 2007) on any distance, best of a few candidates a step.

    Parameters
    ----------
    distances : callable, index of an image -> (f (N,), extra): distances >= 0 of all images to
        that image as a centroid, and whatever the caller wants to keep with it
    weights : (N,) sample weights
    rng : numpy Generator
    n_trials : candidates drawn for each centroid; the one that lowers Σ w min f most is taken

    Returns
    -------
    indices (K,), list of K pairs (f, extra) as ``distances`` returned them
    """
    n = len(weights)
    first = int(rng.choice(n, p=weights / weights.sum()))
    chosen, found = [first], [distances(first)]
    nearest = np.maximum(found[0][0], 0).astype(np.float64)
    for _ in range(1, n_clusters):
        mass = weights * nearest
        mass[chosen] = 0
        if mass.sum() <= 0:  # fewer distinct images than clusters
            mass = np.ones(n)
            mass[chosen] = 0
        trials = np.unique(
            rng.choice(n, size=min(n_trials, int((mass > 0).sum())), p=mass / mass.sum())
        )
        results = [(i, distances(int(i))) for i in trials]
        costs = [(weights * np.minimum(nearest, r[0])).sum() for _, r in results]
        i, result = results[int(np.argmin(costs))]
        chosen.append(int(i))
        found.append(result)
        nearest = np.minimum(nearest, np.maximum(result[0], 0))
    return np.array(chosen), found
