"""What an experiment's runs have in common, whatever the method: images as rows, labels, scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stkm import metrics

__all__ = ["Run", "flatten", "scores"]


@dataclass(frozen=True)
class Run:
    """One run.

    Its seed, k-means++ centroids (K, D) if it starts from them, fitted estimator, labels of new
    images.
    """

    seed: int
    start: np.ndarray | None
    model: Any
    labels: np.ndarray


def flatten(images: np.ndarray) -> np.ndarray:
    """Return uint8 images (N, H, W[, C]) as float32 rows in [0, 1], (N, H*W[*C])."""
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def scores(found: list[Run], truth: np.ndarray) -> list[dict[str, Any]]:
    """Return seed, objective, ACC, NMI, ARI and ``n_used`` (clusters with an image) of each run.

    Parameters
    ----------
    found : list of Run
    truth : (M,)
        Classes of the images that the runs have labelled.
    """
    return [
        {
            "seed": r.seed,
            "objective": float(r.model.inertia_),
            "ACC": metrics.clustering_accuracy(truth, r.labels),
            "NMI": metrics.nmi(truth, r.labels),
            "ARI": metrics.ari(truth, r.labels),
            "n_used": len(np.unique(r.model.labels_)),
        }
        for r in found
    ]
