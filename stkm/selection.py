"""Choice of flexibility and of the number of clusters without labels.

Every criterion looks at images and fits alone; none of them can be given a label.

``held-out``
    Minus the log-likelihood of images that the fit has not seen, each under the mixture of all
    clusters, −log Σ_k p(x, k) (`stkm.prior`). Lower is better. It compares bending, displacement,
    landmarks and n_clusters. Other low-passes and numbers of appearance modes are other densities,
    and a fixed penalty has none: they are refused.
``stability``
    Agreement (ARI) of two fits on disjoint samples about the images in neither. Higher is better.
    It compares everything. Samples are drawn without replacement, since an image that is given
    twice is fitted exactly. Few clusters are easily stable, as one cluster always is: of equal
    means the one with more clusters wins. (Lange, Roth, Braun, Buhmann 2004; von Luxburg 2010.)
``gap``
    For the number of clusters: the utility of a centroid is what its images would lose without it,
    their second-best distance minus their best. One cluster too many splits a kind of image in two,
    and either half is of little use beside the other. The criterion is by how much the least
    utility, in units of the mean one, falls with the next number of clusters: a gap in its curve,
    on the scale of natural logarithms. Higher is better; the last number has no value.
``objective``
    The fit's own: minus the log-likelihood of the images fitted, each under its own cluster. Lower
    is better. All images take part, and the penalty counts, so that a warp that is free pays for
    it; it compares what ``held-out`` compares, but for n_clusters, with which it falls.
``distortion``
    The paper's: the mean squared error between images, as they are, and their centroids after the
    warp (Eq. 2), on the images fitted. Lower is better. It falls with every freedom of the warp,
    down to the degenerate minimum of Eq. 2, and with every cluster: n_clusters is refused.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from stkm import metrics, plots
from stkm.ablation import difference
from stkm.cluster import STKMeans
from stkm.parallel import run_each
from stkm.prior import IMAGES_PER_MODE
from stkm.validation import check_int, check_option

__all__ = ["CRITERIA", "Selection", "select", "utilities"]

CRITERIA = {
    "held-out": ("−log p of a held-out image", False),
    "objective": ("−log p of an image", False),
    "stability": ("ARI of two fits", True),
    "gap": ("fall of the least utility", True),
    "distortion": ("squared error of an image", False),
}
"""What each criterion measures, and whether more of it is better."""

LIKELIHOODS = ("held-out", "objective")  # criteria that need a learned prior
HELD_OUT = 0.25  # share of the images that no fit of `held-out` and `stability` sees
LEAST = 1e-3  # utility, in units of the mean, below which a centroid is of no use at all


@dataclass(frozen=True)
class Selection:
    """What `select` found.

    Attributes
    ----------
    criterion : its name
    rows : one dict a setting, in the order of the grid: ``parameters`` (dict), ``values`` (one a
        repeat), their ``mean`` and ``sd`` (None for one repeat), ``behind``: mean difference to the
        winner in pairs, positive where the winner is better, with its 95 % interval (Student's t);
        ``tied``: whether this interval holds 0; ``largest``: the largest cluster of any fit in
        units of the mean size (above 3 it has swallowed others). None where there is no value
    winner : parameters of the best mean, for ``set_params``

    Raises
    ------
    ValueError : by `select`, which makes it

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import STKMeans, selection
    >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
    >>> X[:10, 2:6, 3] = 1  # upright bars
    >>> X[10:, 3, 2:6] = 1  # lying bars
    >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2)
    >>> grid = {"displacement": [10.0, 1e3]}
    >>> found = selection.select(X, grid, "distortion", estimator=km, n_repeats=1)
    >>> found.winner
    {'displacement': 10.0}
    """

    criterion: str
    rows: list[dict[str, Any]]
    winner: dict[str, Any]

    def table(self) -> list[list[str]]:
        """The table as text: a header, then a row for each setting.

        Returns
        -------
        lists of str of one length: the parameters, mean ± sd of the criterion in its own unit,
        what the setting is behind the winner, the largest cluster in units of the mean size, a
        remark

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans, selection
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2)
        >>> grid = {"displacement": [10.0, 1e3]}
        >>> found = selection.select(X, grid, "distortion", estimator=km, n_repeats=1)
        >>> found.table()[0]
        ['displacement', 'squared error of an image', 'behind the winner', 'largest', '']
        """
        names = list(dict.fromkeys(name for row in self.rows for name in row["parameters"]))
        lines = [[*names, CRITERIA[self.criterion][0], "behind the winner", "largest", ""]]
        for row in self.rows:
            given = [_text(row["parameters"].get(name, "")) for name in names]
            lines.append([*given, *_numbers(row), f"{row['largest']:.2f}", self._mark(row)])
        return lines

    def _mark(self, row: dict[str, Any]) -> str:
        if row["parameters"] == self.winner:
            return "winner"
        return "not distinguishable" if row["tied"] else ""

    def __str__(self) -> str:
        lines = self.table()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = (
            "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )
        return "\n".join(padded)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = self.table()

        def cells(line, tag):
            return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line)

        rows = "".join(f"<tr>{cells(line, 'td')}</tr>" for line in body)
        return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{rows}</tbody></table>"

    def plot(self, ax: Any = None) -> Any:
        """Draw the criterion of every setting: mean, sd and single repeats.

        Parameters
        ----------
        ax : Axes; None: the current ones

        Returns
        -------
        the axes

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans, selection
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2)
        >>> grid = {"displacement": [10.0, 1e3]}
        >>> found = selection.select(X, grid, "distortion", estimator=km, n_repeats=1)
        >>> found.plot().get_ylabel()
        'squared error of an image'
        """
        shown = [row for row in self.rows if row["mean"] is not None]
        return plots.criterion(
            [row["parameters"] for row in shown],
            [row["values"] for row in shown],
            winner=next(i for i, r in enumerate(shown) if r["parameters"] == self.winner),
            label=CRITERIA[self.criterion][0],
            ax=ax,
        )


def _text(value):
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numbers(row):
    if row["mean"] is None:
        return ["—", "—"]
    spread = "" if row["sd"] is None else f" ± {row['sd']:.4g}"
    if row["behind"] is None:
        return [f"{row['mean']:.5g}{spread}", "—"]
    return [f"{row['mean']:.5g}{spread}", "{:.3g} [{:.3g}, {:.3g}]".format(*row["behind"])]


def select(
    X: np.ndarray,
    grid: Mapping[str, Sequence] | Sequence[Mapping[str, Any]],
    criterion: str = "held-out",
    *,
    estimator: Any = None,
    n_repeats: int = 3,
    random_state: int = 0,
    at_most: int | None = 1,
    verbose: bool = False,
) -> Selection:
    """Fit every setting of a grid and rank them by a criterion that needs no labels.

    Parameters
    ----------
    X : images as the estimator's ``fit`` takes them
    grid : parameter name to the values to try, every combination of them,
        or a list of settings {name: value}
    criterion : a key of `CRITERIA`; the module says what each measures and when it compares
    estimator : unfitted; `STKMeans()` by default. Its other parameters hold for all settings
    n_repeats : fits of every setting, with other seeds and other parts of the images, the same
        for all settings ('stability': pairs of fits)
    random_state : an integer; decides all of it
    at_most : processes, as for `stkm.parallel.run_each`; None: one for each core
    verbose : whether to show a progress bar of the repeats of all settings

    Returns
    -------
    Selection

    Raises
    ------
    ValueError
        Before any fit: unknown criterion or parameter, an empty grid, the same setting twice, a
        setting that the criterion can't compare, too few images, and what ``fit`` raises.

    References
    ----------
    'distortion' is Eq. 2 of the paper (arXiv 2202.07829), which chooses by it; the others are not
    in it: Lange, Roth, Braun, Buhmann 2004 and von Luxburg 2010 (stability).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import STKMeans, selection
    >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
    >>> X[:10, 2:6, 3] = 1  # upright bars
    >>> X[10:, 3, 2:6] = 1  # lying bars
    >>> km = STKMeans(landmarks=3, prior="fixed", n_init=1, n_swaps=0, max_iter=2)
    >>> grid = {"n_clusters": [2, 3, 4]}
    >>> found = selection.select(X, grid, "gap", estimator=km, n_repeats=1)
    >>> found.winner
    {'n_clusters': 2}
    >>> km.set_params(**found.winner, random_state=0).fit(X).cluster_centers_.shape
    (2, 8, 8)
    """
    check_option("criterion", criterion, tuple(CRITERIA))
    check_int("n_repeats", n_repeats, 1)
    check_int("random_state", random_state, 0)
    X = np.asarray(X)
    settings = _settings(grid)
    models = [_model(estimator, setting) for setting in settings]
    _check_comparable(criterion, settings, models)
    if criterion in LIKELIHOODS:
        _same_modes(criterion, models, X)
    _check_fits(criterion, models, X)
    tasks = [
        (criterion, model, X, (random_state, repeat))
        for model in models
        for repeat in range(n_repeats)
    ]
    with tqdm(desc=f"select by {criterion}", total=len(tasks), disable=not verbose) as bar:
        found = np.array(run_each(_score, tasks, at_most, bar.update), float)
    found = found.reshape(len(models), n_repeats, 2)
    values, largest = found[..., 0], found[..., 1].max(1)
    if criterion == "gap":
        values = _gaps(settings, values)
    return _ranked(criterion, settings, values, largest)


def utilities(distances: np.ndarray) -> np.ndarray:
    """Utility of every centroid: what its images lose without it, a mean over all images.

    Parameters
    ----------
    distances : (N, K) to K ≥ 2 centroids, as ``transform`` gives them

    Returns
    -------
    (K,) float64, not negative, in the unit of the distances

    Raises
    ------
    ValueError : another shape

    References
    ----------
    The loss of Eq. 2 of the paper (arXiv 2202.07829) without one centroid.

    Examples
    --------
    >>> from stkm import selection
    >>> selection.utilities([[1.0, 4.0, 9.0], [2.0, 1.0, 9.0]]).tolist()
    [1.5, 0.5, 0.0]
    """
    distances = np.asarray(distances, np.float64)
    if distances.ndim != 2 or distances.shape[1] < 2 or not len(distances):
        raise ValueError(f"distances must be (N, K) with K of at least 2, got {distances.shape}")
    best, second = np.partition(distances, 1, axis=1)[:, :2].T
    k = distances.shape[1]
    return np.bincount(distances.argmin(1), second - best, minlength=k) / len(distances)


# ------------------------------------------------------------------ the settings


def _settings(grid):
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)):
                raise ValueError(f"grid[{name!r}] must be a list of values, not {values!r}")
            if not len(values):
                raise ValueError(f"grid[{name!r}] is empty")
        settings = [dict(zip(grid, v, strict=True)) for v in itertools.product(*grid.values())]
    else:
        settings = [dict(setting) for setting in grid]
    if not settings or not all(settings):
        raise ValueError("the grid is empty: give at least one parameter and value")
    for i, setting in enumerate(settings):
        if setting in settings[:i]:
            raise ValueError(f"the grid has {setting} twice")
    return settings


def _model(estimator, setting):
    """The estimator of a setting; scikit-learn's error for an unknown parameter."""
    if "random_state" in setting:
        raise ValueError("random_state is no setting: every setting gets the same seeds")
    return clone(STKMeans() if estimator is None else estimator).set_params(**setting)


def _varied(settings):
    """Names that do not have one value in all settings."""
    names = {name for setting in settings for name in setting}
    return {n for n in names if any(s.get(n, None) != settings[0].get(n, None) for s in settings)}


def _check_comparable(criterion, settings, models):
    varied, counts = _varied(settings), [model.n_clusters for model in models]
    if criterion in ("distortion", "objective") and "n_clusters" in varied:
        raise ValueError(
            f"criterion {criterion!r} can't choose n_clusters: it falls with every cluster; "
            "use 'gap', 'stability' or 'held-out'"
        )
    if criterion in ("gap", "stability") and min(counts) < 2:
        raise ValueError(f"criterion {criterion!r} needs n_clusters of at least 2")
    if criterion == "gap" and min(map(len, _curves(settings))) < 3:
        raise ValueError(
            "criterion 'gap' compares numbers of clusters: give three or more values of "
            "n_clusters for each combination of the other parameters, "
            "or use 'stability' or 'held-out'"
        )
    if criterion in LIKELIHOODS:
        if any(getattr(model, "prior", "fixed") != "learned" for model in models):
            raise ValueError(
                f"criterion {criterion!r} needs prior='learned': a fixed penalty is no likelihood, "
                "and its error falls with the penalty; use 'stability' or 'gap'"
            )
        for name in sorted(varied & {"smoothing", "n_modes"}):
            raise ValueError(
                f"criterion {criterion!r} can't choose {name}: other values of it are "
                "likelihoods of other data; use 'stability'"
            )


def _curves(settings: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Indices of settings that differ in n_clusters alone, by n_clusters: one list for each."""
    groups: dict[str, list[int]] = {}
    for i, setting in enumerate(settings):
        others = repr(sorted((n, repr(v)) for n, v in setting.items() if n != "n_clusters"))
        groups.setdefault(others, []).append(i)
    known = all("n_clusters" in setting for setting in settings)
    return [
        sorted(group, key=lambda i: settings[i]["n_clusters"]) if known else group[:1]
        for group in groups.values()
    ]


def _sizes(criterion, n):
    """Images in each fit of a repeat."""
    if criterion == "held-out":
        return [n - round(HELD_OUT * n)]
    if criterion == "stability":
        return [(n - round(HELD_OUT * n)) // 2] * 2
    return [n]


def _same_modes(criterion, models, X):
    """As many appearance modes for all as the most clusters allow: the same density for all."""
    size = _sizes(criterion, len(X))[0]
    most = size // (IMAGES_PER_MODE * max(model.n_clusters for model in models))
    for model in models:
        if isinstance(model.n_modes, int) and model.n_modes > most:
            model.n_modes = most


def _check_fits(criterion, models, X):
    """Every estimator's own checks, for as many images as its fits get."""
    size = min(_sizes(criterion, len(X)))
    most = max(model.n_clusters for model in models)
    if X.ndim > 1 and size < most:
        raise ValueError(
            f"{len(X)} images are too few for criterion {criterion!r}: a fit has {size} of them, "
            f"and up to n_clusters={most}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for model in models:
            clone(model)._prepare(X[:size] if X.ndim > 1 else X, None)


# ------------------------------------------------------------------ the criteria


def _score(criterion, model, X, seeds):
    """Value of one repeat ('gap': the least utility) and the largest cluster of its fits."""
    rng = np.random.default_rng(seeds)
    order = rng.permutation(len(X))
    stops = np.cumsum(_sizes(criterion, len(X)))
    parts, rest = np.split(order, stops)[:-1], order[stops[-1] :]
    streams = rng.integers(2**31 - 1, size=len(parts))
    fits = [_fit(model, X[np.sort(p)], int(s)) for p, s in zip(parts, streams, strict=True)]
    km, rest = fits[0], X[np.sort(rest)]
    if criterion == "held-out":
        value = -logsumexp(-km.transform(rest).astype(np.float64), axis=1).mean()
    elif criterion == "stability":
        value = metrics.ari(*(fit.predict(rest) for fit in fits))
    elif criterion == "objective":
        value = km.inertia_ / len(X)
    elif criterion == "gap":
        found = utilities(km.transform(X))
        value = found.min() / max(found.mean(), np.finfo(float).tiny)
    else:
        aligned = km.align(X)
        errors = (aligned.warped - km.cluster_centers_[aligned.labels]).astype(np.float64) ** 2
        value = errors.sum() / len(X)
    return value, max(np.bincount(f.labels_).max() * f.n_clusters / len(f.labels_) for f in fits)


def _fit(model, X, seed):
    with warnings.catch_warnings():
        # a swallowed cluster is told by `largest`
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(model).set_params(random_state=seed).fit(X)


def _gaps(settings, least):
    """Fall of the log of the least utility to the next number of clusters; NaN for the last."""
    gaps, logs = np.full(least.shape, np.nan), np.log(np.maximum(least, LEAST))
    for curve in _curves(settings):
        for i, j in itertools.pairwise(curve):
            gaps[i] = logs[i] - logs[j]
    return gaps


def _ranked(criterion, settings, values, largest):
    sign = 1 if CRITERIA[criterion][1] else -1
    means, there = values.mean(1), np.isfinite(values).all(1)
    better = [
        (sign * mean, setting.get("n_clusters", 0), -i) if ok else (-np.inf, 0, -i)
        for i, (mean, setting, ok) in enumerate(zip(means, settings, there, strict=True))
    ]
    best = max(range(len(settings)), key=better.__getitem__)
    rows = []
    for setting, own, ok, large in zip(settings, values, there, largest, strict=True):
        pairs = ok and len(own) > 1
        behind = difference(sign * values[best], sign * own) if pairs else None
        rows.append(
            {
                "parameters": setting,
                "values": own.tolist() if ok else None,
                "mean": float(own.mean()) if ok else None,
                "sd": float(own.std(ddof=1)) if pairs else None,
                "behind": behind,
                "tied": behind is not None and behind[1] <= 0 <= behind[2],
                "largest": float(large),
            }
        )
    return Selection(criterion, rows, dict(settings[best]))
