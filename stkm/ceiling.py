"""How far one template a class can go: the ceiling that stands beside every accuracy.

For diagnosis only. This is the one place where labels teach a model: each cluster is a class and
keeps its images, so what is left to go wrong is that one template a class does not separate the
classes. No estimator, no choice and no other number uses it.
"""

from __future__ import annotations

import numpy as np

from . import fitting
from .lloyd import assign, cold_state, update

__all__ = ["class_templates"]

PASSES, ROUNDS = 6, 3  # of centroids with the fixed penalty, and of the learned prior


def class_templates(estimator, X, y):
    """An estimator fitted *with* labels: cluster k is class k, from the mean image of the class.

    Parameters
    ----------
    estimator : `stkm.STKMeans` or `stkm.AffineKMeans`, solver 'gauss-newton', not fitted;
        n_clusters is the number of classes
    X : images as its ``fit`` takes them; y : (N,) integers 0 … K−1, each of them present

    Returns
    -------
    the estimator, fitted; its ``predict`` names the nearest class template, its ``labels_`` are y

    Raises
    ------
    ValueError : as ``fit``; labels of another length or range
    """
    images, weights = estimator._prepare(X, None)
    y, k = np.asarray(y), estimator.n_clusters
    if y.shape != (len(images),) or not np.array_equal(np.unique(y), np.arange(k)):
        raise ValueError(f"y must hold {len(images)} labels, all of 0 … {k - 1} among them")
    if estimator.solver != "gauss-newton":
        raise ValueError(f"solver={estimator.solver!r}: class templates need 'gauss-newton'")
    model = estimator._model
    smooth = model.smooth(images)
    matcher = model.matcher(smooth, **fitting.PASS)
    own = np.eye(k, dtype=bool)[y]
    state = cold_state(matcher, np.stack([smooth[y == j].mean(0) for j in range(k)]))
    for number in range(PASSES):
        assign(matcher, state, own, np.full(k, number == 0))
        state.centers = update(matcher, state, weights)
    if model.params["prior"] == "learned":
        lesson = fitting.lesson_of(model, matcher, weights, [])
        for _ in range(ROUNDS):
            lesson.teach(state)
            assign(matcher, state, own)
            state.centers = update(matcher, state, weights)
    objective = state.objective(weights)
    labels = y.astype(np.int32)
    result = fitting.Result(state.centers, labels, objective, PASSES, True, [], state.prior)
    return estimator._store(result, weights)
