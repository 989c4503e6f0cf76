"""Stratified choice of images with a fixed seed."""

from __future__ import annotations

import numpy as np

__all__ = ["stratified_order", "stratified_subset"]


def stratified_order(labels: np.ndarray, seed: int) -> np.ndarray:
    """Return an order of the images of which each beginning is stratified.

    The images of each class are shuffled; image r of the n of its class gets
    the place (r + 1/2) / n, and all images are sorted by place (ties: the
    lower label first).  Any first m of the order hold each class in proportion
    to its size within one image, and the first m are among the first m + 1.

    Parameters
    ----------
    labels : array of int, (N,)
    seed : int
        Same seed, same order.

    Returns
    -------
    ndarray of int64, (N,)
        A permutation of 0 … N - 1.
    """
    labels = np.asarray(labels)
    place = np.empty(len(labels))
    rng = np.random.default_rng(seed)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        place[members] = (np.arange(len(members)) + 0.5) / len(members)
    return np.lexsort((labels, place))


def stratified_subset(labels: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Return the sorted indices of a stratified subset of `size` images."""
    return np.sort(stratified_order(labels, seed)[:size])
