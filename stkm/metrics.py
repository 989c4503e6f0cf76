"""How well clusters agree with classes: ACC, NMI and ARI.

All three compare two labellings of the same images and depend on the grouping
alone: which integers, strings or other values name the groups makes no
difference, and neither does the order of the images.  None of them sees an
image, and no fitting uses them.

References
----------
Kuhn (1955), "The Hungarian method for the assignment problem";
Hubert and Arabie (1985), "Comparing partitions";
Strehl and Ghosh (2002), "Cluster ensembles";
Efron and Tibshirani (1993), "An Introduction to the Bootstrap".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "Confusion",
    "Interval",
    "ari",
    "bootstrap_interval",
    "chance",
    "chance_accuracy",
    "clustering_accuracy",
    "cluster_order",
    "confusion",
    "match_clusters",
    "nmi",
    "paired_interval",
]


class Confusion(NamedTuple):
    """Counts of images by class and cluster, matched groups on the diagonal.

    Attributes
    ----------
    counts : ndarray of int64, (n_classes, n_clusters)
        Numbers of images.
    classes : ndarray, (n_classes,)
        The values of ``y_true``, sorted.
    clusters : ndarray, (n_clusters,)
        The values of ``y_pred``, in the order of their classes.

    Examples
    --------
    >>> from stkm import metrics
    >>> table = metrics.confusion(["a", "a", "b"], [7, 7, 3])
    >>> table.classes.tolist(), table.clusters.tolist()
    (['a', 'b'], [7, 3])
    """

    counts: np.ndarray  # (n_classes, n_clusters) int64
    classes: np.ndarray  # (n_classes,) the values of y_true, sorted
    clusters: np.ndarray  # (n_clusters,) the values of y_pred, in the order of their classes


def _encode(labels: ArrayLike, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of `labels` and each label's index into them."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one label per image, shape (N,), not {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty; at least one label is needed")
    if array.dtype.kind == "O":
        missing = [v is None or v != v for v in array.tolist()]
    else:
        missing = array != array  # only NaN and NaT differ from themselves
    if np.any(missing):
        raise ValueError(f"{name} contains NaN or None at index {int(np.argmax(missing))}")
    try:
        return np.unique(array, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"{name} mixes labels that can't be compared: {error}") from error


def _counts(y_true: ArrayLike, y_pred: ArrayLike) -> Confusion:
    """Return the table of both labellings, clusters in the order of their values."""
    classes, true = _encode(y_true, "y_true")
    clusters, pred = _encode(y_pred, "y_pred")
    if len(true) != len(pred):
        raise ValueError(
            f"y_true has {len(true)} labels and y_pred {len(pred)}; they must label the same images"
        )
    counts = np.zeros((len(classes), len(clusters)), np.int64)
    np.add.at(counts, (true, pred), 1)
    return Confusion(counts, classes, clusters)


def _assign(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the one-to-one assignment with the most images."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(counts, maximize=True)


def chance_accuracy(
    y_true: ArrayLike, n_clusters: int, *, n_draws: int = 200, random_state: int = 0
) -> float:
    """Return the mean ACC of random labels: matching clusters to classes afterwards lifts it.

    With few images and many classes it lies far above 1 / K, and an ACC says little without it.

    Parameters
    ----------
    y_true : (N,) classes
    n_clusters : number of clusters, of which each image gets one, all equally likely
    n_draws : labellings drawn, at least 1
    random_state : seed of the draws

    Raises
    ------
    ValueError
        As :func:`clustering_accuracy`, and for ``n_clusters`` or ``n_draws`` below 1.

    Returns
    -------
    float
        In (0, 1].

    References
    ----------
    Not in the paper (arXiv 2202.07829): what the ACC of its Table 1 is to be compared with.

    Examples
    --------
    >>> from stkm import metrics
    >>> round(metrics.chance_accuracy([0, 1, 2, 0, 1, 2], 3), 2)
    0.61
    """
    for name, value in (("n_clusters", n_clusters), ("n_draws", n_draws)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name}={value!r}: expected an integer of at least 1")
    true = _encode(y_true, "y_true")[1]
    rng = np.random.default_rng(random_state)
    draws = (rng.integers(n_clusters, size=len(true)) for _ in range(n_draws))
    return float(np.mean([clustering_accuracy(true, labels) for labels in draws]))


def match_clusters(y_true: ArrayLike, y_pred: ArrayLike) -> dict[Any, Any]:
    """Match clusters to classes one to one so that the most images agree.

    With fewer clusters than classes some classes, with more clusters some
    clusters, stay unmatched; unmatched clusters are absent from the answer.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (N,)
        Class and cluster of each image, any values that can be sorted.

    Returns
    -------
    dict
        Cluster value to class value, ``min(n_clusters, n_classes)`` entries.

    Raises
    ------
    ValueError
        As in :func:`clustering_accuracy`.

    References
    ----------
    Kuhn 1955, The Hungarian method for the assignment problem.

    Examples
    --------
    >>> from stkm import metrics
    >>> metrics.match_clusters(["cat", "cat", "dog"], [1, 1, 0])
    {1: 'cat', 0: 'dog'}
    """
    counts, classes, clusters = _counts(y_true, y_pred)
    rows, columns = _assign(counts)
    return {clusters[c].item(): classes[r].item() for r, c in zip(rows, columns, strict=True)}


def cluster_order(y_true: ArrayLike, y_pred: ArrayLike, n_clusters: int) -> list[int]:
    """Return the clusters in the order of the classes that they are matched to.

    Place c is the cluster of the c-th class (in sorted order).  A class without a
    cluster gets one of those left over, empty or unmatched; the rest of these
    stand at the end.

    Parameters
    ----------
    y_true : array-like, shape (N,)
        As in :func:`clustering_accuracy`.
    y_pred : array-like of int, shape (N,)
        Clusters from 0 to ``n_clusters - 1``; some may have no image.
    n_clusters : int

    Returns
    -------
    list of int
        A permutation of the clusters.

    Raises
    ------
    ValueError
        As in :func:`clustering_accuracy`, and if a cluster is out of range.

    References
    ----------
    Kuhn 1955, by :func:`match_clusters`.

    Examples
    --------
    >>> from stkm import metrics
    >>> metrics.cluster_order(["cat", "cat", "dog"], [1, 1, 0], n_clusters=3)
    [1, 0, 2]
    """
    labels = np.asarray(y_pred)
    if labels.size and not (0 <= labels.min() and labels.max() < n_clusters):
        raise ValueError(
            f"y_pred has values from {labels.min()} to {labels.max()}, "
            f"but {n_clusters} clusters are 0 to {n_clusters - 1}"
        )
    cluster_of = {c: k for k, c in match_clusters(y_true, y_pred).items()}
    rest = (k for k in range(n_clusters) if k not in cluster_of.values())
    places = [cluster_of.get(c, None) for c in np.unique(y_true).tolist()]
    filled = [next(rest, None) if k is None else k for k in places]
    return [k for k in filled if k is not None] + list(rest)


def clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return ACC: the share of images whose cluster is matched to their class.

    ACC = max_m (1/N) Σ_i [y_i = m(c_i)], over the one-to-one maps m from
    clusters to classes.  The numbers of clusters and of classes may differ: the
    matching then covers the smaller of both, and every image in an unmatched
    cluster counts as wrong.  Splitting a class into two clusters therefore
    costs the smaller part, and merging two classes the smaller class.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (N,)
        Class and cluster of each image, any values that can be sorted
        (integers of either sign, strings, ...).

    Returns
    -------
    float
        In (0, 1].  Random clusters are well above 0: compare with chance.

    Raises
    ------
    ValueError
        If the labels are empty, differ in number, are not one-dimensional, or
        contain NaN or None.

    References
    ----------
    ACC of Table 1 of the paper (arXiv 2202.07829). Kuhn 1955, The Hungarian method for the
    assignment problem.

    Examples
    --------
    >>> from stkm import metrics
    >>> metrics.clustering_accuracy([0, 0, 1, 1], [5, 5, 5, 3])
    0.75
    """
    counts = _counts(y_true, y_pred).counts
    rows, columns = _assign(counts)
    return float(counts[rows, columns].sum() / counts.sum())


def confusion(y_true: ArrayLike, y_pred: ArrayLike) -> Confusion:
    """Count images by class and cluster, with matched pairs on the diagonal.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (N,)
        As in :func:`clustering_accuracy`, which is the diagonal's share if
        there are as many clusters as classes or more.

    Returns
    -------
    Confusion
        Rows are classes in sorted order, columns clusters in the order of the
        class each is matched to, then unmatched ones in sorted order.  With
        fewer clusters than classes the columns of matched classes close up.

    Raises
    ------
    ValueError
        As in :func:`clustering_accuracy`.

    References
    ----------
    Kuhn 1955, by :func:`match_clusters`.

    Examples
    --------
    >>> from stkm import metrics
    >>> metrics.confusion([0, 0, 1, 1], [5, 5, 5, 3]).counts
    array([[2, 0],
           [1, 1]])
    """
    counts, classes, clusters = _counts(y_true, y_pred)
    _, columns = _assign(counts)  # the rows come sorted
    unmatched = np.setdiff1d(np.arange(len(clusters)), columns)
    order = np.concatenate([columns, unmatched])
    return Confusion(counts[:, order], classes, clusters[order])


def nmi(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the mutual information over the arithmetic mean of both entropies.

    Two labellings of one group each agree fully and give 1.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (N,)
        As in :func:`clustering_accuracy`.

    Returns
    -------
    float
        In [0, 1]; 1 for equal groupings.

    Raises
    ------
    ValueError
        As in :func:`clustering_accuracy`.

    References
    ----------
    As in the NMI counterpart of Table 1 of the paper (arXiv 2202.07829). Strehl and Ghosh 2002,
    Cluster ensembles.

    Examples
    --------
    >>> from stkm import metrics
    >>> round(metrics.nmi([0, 0, 1, 1], [5, 5, 5, 3]), 3)
    0.344
    """
    from sklearn.metrics import normalized_mutual_info_score

    _counts(y_true, y_pred)
    true, pred = _encode(y_true, "y_true")[1], _encode(y_pred, "y_pred")[1]
    score = normalized_mutual_info_score(true, pred, average_method="arithmetic")
    return float(np.clip(score, 0.0, 1.0))  # rounding may leave the interval by 1e-16


def ari(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the Rand index adjusted for chance.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (N,)
        As in :func:`clustering_accuracy`.

    Returns
    -------
    float
        In [-0.5, 1]: 1 for equal groupings, 0 on average for random ones, and
        below 0 for groupings that agree less than random ones.

    Raises
    ------
    ValueError
        As in :func:`clustering_accuracy`.

    References
    ----------
    As in the ARI counterpart of Table 1 of the paper (arXiv 2202.07829). Hubert and Arabie 1985,
    Comparing partitions.

    Examples
    --------
    >>> from stkm import metrics
    >>> metrics.ari([0, 0, 1, 1], [1, 1, 0, 0]), metrics.ari([0, 0, 1, 1], [0, 1, 0, 1])
    (1.0, -0.5)
    """
    from sklearn.metrics import adjusted_rand_score

    _counts(y_true, y_pred)
    true, pred = _encode(y_true, "y_true")[1], _encode(y_pred, "y_pred")[1]
    return float(adjusted_rand_score(true, pred))


# ------------------------------------------------------------------ intervals


class Interval(NamedTuple):
    """A score, or a difference of two, with its interval from bootstrap samples.

    Attributes
    ----------
    value : float
        Of the images as they are; in [0, 1], of ARI in [-0.5, 1], and a difference in [-1.5, 1.5].
    low, high : float
        Ends of the interval, in [-1, 1] like the percentiles of the samples.

    References
    ----------
    Efron and Tibshirani 1993, An Introduction to the Bootstrap.

    Examples
    --------
    >>> from stkm import metrics
    >>> value, low, high = metrics.bootstrap_interval([0, 0, 1, 1], [1, 1, 0, 1])
    >>> value, low <= value <= high
    (0.75, True)
    """

    value: float
    low: float
    high: float


def _acc_of(counts: np.ndarray) -> np.ndarray:
    """ACC of tables (R, classes, clusters), (R,)."""
    matched = [table[_assign(table)].sum() for table in counts]
    return matched / counts.sum((1, 2))


def _entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy of rows of counts (R, n), (R,)."""
    p = counts / counts.sum(1, keepdims=True)
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(1)


def _nmi_of(counts: np.ndarray) -> np.ndarray:
    """NMI of tables (R, classes, clusters), (R,)."""
    classes, clusters = _entropy(counts.sum(2)), _entropy(counts.sum(1))
    shared = classes + clusters - _entropy(counts.reshape(len(counts), -1))
    both = classes + clusters
    one_group = both < 1e-12
    return np.where(one_group, 1.0, np.clip(2 * shared / np.where(one_group, 1.0, both), 0.0, 1.0))


def _ari_of(counts: np.ndarray) -> np.ndarray:
    """ARI of tables (R, classes, clusters), (R,)."""
    parts = (
        counts.reshape(len(counts), -1),
        counts.sum(2),
        counts.sum(1),
        counts.sum((1, 2))[:, None],
    )
    together, by_class, by_cluster, pairs = ((n * (n - 1.0)).sum(1) / 2 for n in parts)
    expected = by_class * by_cluster / np.maximum(pairs, 1.0)
    most = (by_class + by_cluster) / 2
    alike = most == expected
    return np.where(alike, 1.0, (together - expected) / np.where(alike, 1.0, most - expected))


_OF_TABLE = {"ACC": _acc_of, "NMI": _nmi_of, "ARI": _ari_of}


def _check_bootstrap(score: str, n_resamples: int, level: float) -> None:
    if score not in _OF_TABLE:
        raise ValueError(f"score={score!r}: expected one of {', '.join(_OF_TABLE)}")
    if not isinstance(n_resamples, (int, np.integer)) or n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples!r}: expected an integer of at least 1")
    if not 0 < level < 1:
        raise ValueError(f"level={level!r}: expected a number between 0 and 1")


def _samples(score: str, counts: np.ndarray, drawn: np.ndarray) -> tuple[float, np.ndarray]:
    """A score of a table (classes, clusters) and of tables drawn from it, (R, ...), (R,).

    Clusters keep their classes: to match them anew in each sample would lift the ACC of all.
    """
    if score != "ACC":
        of_table = _OF_TABLE[score]
        return float(of_table(counts[None])[0]), of_table(drawn)
    rows, columns = _assign(counts)
    n = counts.sum()
    return float(counts[rows, columns].sum() / n), drawn[:, rows, columns].sum(1) / n


def _interval(value: float, values: np.ndarray, level: float, lowest: float = -1.0) -> Interval:
    """Percentiles of the samples, moved by what their mean is off.

    A sample leaves images out, which makes its NMI larger.
    """
    ends = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]) - (values.mean() - value)
    low, high = np.clip(ends, lowest, 1.0)
    return Interval(value, float(low), float(high))


def bootstrap_interval(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    score: str = "ACC",
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int = 0,
) -> Interval:
    """Return a score of one labelling with its bootstrap interval over the images.

    It tells what other test images of the same kind would have given, for clusters that stay as
    they are, and keep the class that each is matched with; what another fit would have given is the
    spread over runs.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (N,)
        As in :func:`clustering_accuracy`.
    score : 'ACC', 'NMI' or 'ARI'
    n_resamples : samples of N images, drawn with replacement
    level : share of the samples inside the interval
    random_state : seed of the samples

    Raises
    ------
    ValueError
        As in :func:`clustering_accuracy`, and for another score, number or level.

    Returns
    -------
    Interval
        Of a number from 0 (ARI: -0.5) to 1.

    References
    ----------
    Efron and Tibshirani 1993, An Introduction to the Bootstrap.

    Examples
    --------
    >>> from stkm import metrics
    >>> classes, clusters = [0, 1] * 20, [0, 1] * 18 + [1, 0] * 2
    >>> interval = metrics.bootstrap_interval(classes, clusters, "ACC", random_state=0)
    >>> interval.value, bool(0.7 < interval.low < 0.9 < interval.high <= 1)
    (0.9, True)
    """
    _check_bootstrap(score, n_resamples, level)
    counts = _counts(y_true, y_pred).counts
    rng = np.random.default_rng(random_state)
    n = int(counts.sum())
    # drawing images is drawing cells of the table
    drawn = rng.multinomial(n, counts.ravel() / n, size=n_resamples)
    drawn = drawn.reshape(n_resamples, *counts.shape)
    return _interval(*_samples(score, counts, drawn), level, lowest=-1.0 if score == "ARI" else 0.0)


def paired_interval(
    y_true: ArrayLike,
    y_first: ArrayLike,
    y_second: ArrayLike,
    score: str = "ACC",
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int = 0,
) -> Interval:
    """Return the score of a first labelling minus that of a second, and its bootstrap interval.

    Both are scored on the same images in each sample, so what makes images easy for both cancels:
    two methods whose own intervals overlap may differ clearly.  An interval that holds 0 does not
    tell them apart.

    Parameters
    ----------
    y_true, y_first, y_second : array-like, shape (N,)
        Class and both clusters of each image.
    score, n_resamples, level, random_state
        As in :func:`bootstrap_interval`.

    Raises
    ------
    ValueError
        As in :func:`bootstrap_interval`.

    Returns
    -------
    Interval
        Of a difference, positive where the first labelling has the higher score.

    References
    ----------
    Efron and Tibshirani 1993, An Introduction to the Bootstrap.

    Examples
    --------
    >>> from stkm import metrics
    >>> classes, good, bad = [0, 1] * 20, [0, 1] * 18 + [1, 0] * 2, [0, 1, 1, 0] * 10
    >>> interval = metrics.paired_interval(classes, good, bad, random_state=0)
    >>> interval.value, interval.low > 0  # the first is better, surely
    (0.4, True)
    """
    _check_bootstrap(score, n_resamples, level)
    for labels in (y_first, y_second):
        _counts(y_true, labels)
    codes = [_encode(y, name)[1] for y, name in ((y_true, "y_true"), (y_first, "y_first"),
                                                 (y_second, "y_second"))]  # fmt: skip
    shape = [int(code.max()) + 1 for code in codes]
    cells, counts = np.unique(np.ravel_multi_index(codes, shape), return_counts=True)
    true, first, second = np.unravel_index(cells, shape)

    rng = np.random.default_rng(random_state)
    n = int(counts.sum())
    drawn = rng.multinomial(n, counts / n, size=n_resamples)
    scored = []
    for clusters in (first, second):
        place = np.zeros((len(cells), shape[0], int(clusters.max()) + 1), np.int64)
        place[np.arange(len(cells)), true, clusters] = 1
        whole, samples = np.tensordot(counts, place, 1), np.tensordot(drawn, place, 1)
        scored.append(_samples(score, whole, samples))
    # equal scores differ by nothing, not by a rounding error
    value, values = (np.round(a - b, 12) for a, b in zip(*scored, strict=True))
    return _interval(float(value), values, level)


def chance(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    score: str = "ACC",
    *,
    n_best: int = 10,
    n_draws: int = 500,
    random_state: int = 0,
) -> tuple[float, float]:
    """Return what random labels score that have clusters of the same sizes: mean, best of n.

    The second is the expected best of ``n_best`` such labellings, for comparison with a best run.

    Parameters
    ----------
    y_true, y_pred : array-like, shape (N,)
        As in :func:`clustering_accuracy`; of ``y_pred`` the sizes of the clusters alone count.
    score : 'ACC', 'NMI' or 'ARI'
    n_best : at least 1
    n_draws : labellings drawn, at least ``n_best``
    random_state : seed of the draws

    Raises
    ------
    ValueError
        As in :func:`bootstrap_interval`, and for ``n_best`` out of range.

    Returns
    -------
    (float, float)
        Mean, and expected best; in the range of the score.

    References
    ----------
    Not in the paper (arXiv 2202.07829), whose Table 1 gives the best of ten runs.

    Examples
    --------
    >>> from stkm import metrics
    >>> mean, best = metrics.chance([0, 1] * 10, [0] * 5 + [1] * 15, n_best=10, random_state=0)
    >>> 0.5 < mean < best < 1
    True
    """
    _check_bootstrap(score, n_draws, 0.5)
    if not 1 <= n_best <= n_draws:
        raise ValueError(f"n_best={n_best!r}: expected 1 to n_draws={n_draws}")
    shape = _counts(y_true, y_pred).counts.shape
    true, pred = _encode(y_true, "y_true")[1], _encode(y_pred, "y_pred")[1]
    rng = np.random.default_rng(random_state)
    cells = np.array([true * shape[1] + rng.permutation(pred) for _ in range(n_draws)])
    tables = [np.bincount(c, minlength=shape[0] * shape[1]).reshape(shape) for c in cells]
    values = np.sort(_OF_TABLE[score](np.array(tables)))
    # the share of samples of n_best draws whose best is at most the i-th value is (i / n)^n_best
    below = (np.arange(n_draws + 1) / n_draws) ** n_best
    return float(values.mean()), float(values @ np.diff(below))
