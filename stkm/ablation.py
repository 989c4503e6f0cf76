"""Fits that differ from the defaults in one thing, from the same seeds, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import bootstrap, spearmanr, ttest_rel

from stkm.parallel import run_each

__all__ = ["Fit", "difference", "fits", "rank_correlation"]


@dataclass(frozen=True)
class Fit:
    """One fit: its seed, objective, labels of the images fitted and of others."""

    seed: int
    objective: float
    labels: np.ndarray
    new_labels: np.ndarray

    @property
    def largest(self) -> int:
        """Images in the largest cluster."""
        return int(np.bincount(self.labels).max())


def fits(
    changes: Mapping[str, Mapping[str, Any]],
    X: np.ndarray,
    new: np.ndarray,
    n_clusters: int,
    seeds: Sequence[int],
    at_most: int | None = None,
) -> dict[str, list[Fit]]:
    """Fit `stkm.STKMeans` once for each change and seed, side by side.

    Parameters
    ----------
    changes : name of each change to the parameters that it sets; {} is the default
    X, new : images (N, H, W[, C]) to fit and (M, H, W[, C]) to label
    seeds : ``random_state`` of each fit
    at_most : processes; None: one for each core

    Raises
    ------
    ValueError
        For a parameter that the estimator does not have.
    """
    from stkm.cluster import STKMeans

    for parameters in changes.values():
        STKMeans(n_clusters).set_params(**parameters)
    tasks = [(dict(c), X, new, n_clusters, seed) for c in changes.values() for seed in seeds]
    found = iter(run_each(_fit, tasks, at_most))
    return {name: [next(found) for _ in seeds] for name in changes}


def _fit(parameters, X, new, n_clusters, seed) -> Fit:
    from stkm.cluster import STKMeans

    km = STKMeans(n_clusters, random_state=seed, **parameters).fit(X)
    return Fit(seed, float(km.inertia_), km.labels_, km.predict(new))


def difference(values: Sequence[float], reference: Sequence[float]) -> tuple[float, float, float]:
    """Mean of the paired differences and its 95 % interval (Student's t over the pairs)."""
    gap = np.subtract(values, reference)
    rounding = 1e-12 * np.abs([values, reference]).max()
    if len(gap) < 2 or np.ptp(gap) <= rounding:
        return (float(gap.mean()),) * 3
    interval = ttest_rel(values, reference).confidence_interval(0.95)
    return float(gap.mean()), float(interval.low), float(interval.high)


def rank_correlation(
    x: Sequence[float], y: Sequence[float], seed: int = 0
) -> tuple[float, float, float]:
    """Spearman's rank correlation and its 95 % interval (bootstrap over the pairs).

    NaN where x or y is constant or there are fewer than three pairs.
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    if len(a) < 3 or not np.ptp(a) or not np.ptp(b):
        return (np.nan,) * 3
    made = bootstrap(
        (a, b),
        lambda a, b: spearmanr(a, b).statistic if np.ptp(a) and np.ptp(b) else 0.0,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(spearmanr(a, b).statistic), float(made.low), float(made.high)
