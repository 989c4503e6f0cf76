"""The methods of Table 1 behind one interface, set up from ``params.yaml``.

K-means is scikit-learn's; the others are `stkm.cluster`'s.  All take flat images
``(N, H*W[*C])``, have ``fit``, ``predict``, ``cluster_centers_`` and ``inertia_``
(the objective, Eq. 2), and are fitted without any label.

As in the paper, every run gives K-means, AI K-means and ST K-means (paper mode)
the same k-means++ centroids to start from.  The default mode of ST K-means has a
start of its own.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from stkm.config import DEEP_METHODS, Config, ConfigError
from stkm.experiment import Run
from stkm.parallel import run_each

__all__ = ["make", "objectives", "runs", "start_centroids"]


def start_centroids(rows: np.ndarray, n_clusters: int, seed: int) -> np.ndarray:
    """Return k-means++ centroids of the pixels, (K, H*W[*C]), the same for every method."""
    from stkm.init import pixel_kmeans_plusplus

    return rows[pixel_kmeans_plusplus(rows, n_clusters, seed)]


def make(
    name: str,
    settings: Config,
    n_clusters: int,
    image_shape: tuple[int, ...],
    start: np.ndarray,
    seed: int,
) -> Any:
    """Return method `name` as an unfitted estimator of flat images.

    Parameters
    ----------
    name : str
        A key of `stkm.config.METHODS`.
    settings : Config
        The method's block and the active profile decide the rest.
    n_clusters : int
    image_shape : (H, W) or (H, W, C)
    start : ndarray, (K, H*W[*C])
        Centroids to start from; the default mode (``st``) does without.
    seed : int
        ``random_state``.

    Raises
    ------
    stkm.config.ConfigError
        If there is no such method, or it is a deep one (`stkm.baselines`).
    """
    if name in DEEP_METHODS:
        raise ConfigError(f"{name!r} is a deep method: stkm.baselines sets it up")
    block = settings.method(name)
    options = {**dataclasses.asdict(block), "random_state": seed}
    if name == "kmeans":
        from sklearn.cluster import KMeans

        return KMeans(n_clusters, init=start, n_init=1, **options)
    from stkm.cluster import AffineKMeans, STKMeans

    run = settings.run
    options |= {"image_shape": image_shape, "max_iter": run.max_iter}
    if name == "affine":
        return AffineKMeans(n_clusters, init=start, **_given(options))
    if name == "st_paper":
        options |= {"init": start, "epochs": run.paper_epochs, "max_iter": None}
        return STKMeans.paper(n_clusters, **_given(options))
    return STKMeans(n_clusters, n_swaps="auto" if run.n_swaps is None else run.n_swaps,
                    **_given(options))  # fmt: skip


def runs(
    name: str,
    settings: Config,
    rows: np.ndarray,
    new_rows: np.ndarray,
    n_clusters: int,
    image_shape: tuple[int, ...],
) -> list[Run]:
    """Fit method `name` once for each run of the active profile, side by side.

    Run *i* has the seed ``seeds.base + i``, whatever the number of runs.

    Parameters
    ----------
    name, settings, n_clusters, image_shape
        As for :func:`make`.
    rows : ndarray, (N, H*W[*C])
        Images to fit.
    new_rows : ndarray, (M, H*W[*C])
        Images to label.
    """
    seeds = range(settings.seeds.base, settings.seeds.base + settings.run.n_runs)
    args = (name, settings, rows, new_rows, n_clusters, image_shape)
    # K-means of pixels takes less time than the start of another process
    workers = 1 if name == "kmeans" else settings.run.workers
    return run_each(_run, [(*args, seed) for seed in seeds], workers)


def _run(name, settings, rows, new_rows, n_clusters, image_shape, seed) -> Run:
    start = start_centroids(rows, n_clusters, seed)
    model = make(name, settings, n_clusters, image_shape, start, seed).fit(rows)
    return Run(seed, start, model, model.predict(new_rows))


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have a value; the others keep the package's default."""
    return {name: value for name, value in options.items() if value is not None}


def objectives(model: Any, rows: np.ndarray) -> list[float]:
    """Return the objective after each pass of a fitted estimator's last loop.

    Values of other loops (the search, the affine stage) are left out: they are
    taken on other images and do not compare.  scikit-learn keeps no log, so its
    K-means is run again with growing ``max_iter``, which repeats the fit exactly.

    Parameters
    ----------
    model : estimator made by :func:`make`, fitted
    rows : ndarray, (N, H*W[*C])
        The images it was fitted to.
    """
    if hasattr(model, "history_"):
        return [e["objective"] for e in model.history_ if e["stage"] in ("lloyd", "adam")]
    from sklearn.base import clone
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        passes = range(1, model.n_iter_ + 1)
        return [clone(model).set_params(max_iter=n).fit(rows).inertia_ for n in passes]
