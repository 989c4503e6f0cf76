"""Spatial Transformer K-means for more images than memory holds: centroids from small batches.

As scikit-learn's `MiniBatchKMeans` (Sculley 2010): each step takes a few images, assigns them, and
moves every centroid towards its own by a rate of its own, the share that they have in all the
images it has seen. The start is a whole `stkm.STKMeans` fit of a sample that does fit in memory;
so the search, which decides the accuracy, is as good as there. Nothing is kept for an image between
steps: its warps start from the identity each time.

The learned prior follows by running moments (`stkm.prior.Moments`): sums of the displacements'
squares and the leading components of the residuals in each cluster, from which it is learned anew
in every step. They need no image kept, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from . import prior as _prior
from .cluster import ImagesLike, Init, STKMeans, Verbose, _WarpKMeans
from .fitting import PASS
from .learning import learn_from_sums
from .lloyd import assign, candidates, cold_state
from .progress import Progress, pack_prior, unpack_prior
from .validation import check_int, check_real, check_weights, warn
from .warp import Warp

if TYPE_CHECKING:
    from jax.sharding import Mesh

__all__ = ["MiniBatchSTKMeans"]

STEP = PASS | {"n_warm": 8}  # iterations of a step: from the identity, then of the candidates
ROWS_PER_MODE = 4  # components of the residuals that are carried on for each appearance mode
REASSIGN_EVERY = 10  # times n_clusters images between two looks at the counts (scikit-learn's)
OWN = {"solver": "gauss-newton", "adam_steps": 1, "learning_rate": 0.01}


class MiniBatchSTKMeans(_WarpKMeans):
    """`STKMeans` fitted on a sample, then by small batches of any number of images.

    `predict`, `transform`, `align` and the modes are those of `STKMeans`; images are read in
    blocks (`stkm.blocks`), from arrays, memory-mapped files or any sequence.

    Parameters
    ----------
    n_clusters, landmarks, prior, n_modes, tying, init, n_init, n_swaps, bending, displacement,
    smoothing, coarse, n_candidates, search_size, image_shape, memory_limit, devices,
    random_state : as in `STKMeans`; they shape the fit of the sample and every step
    batch_size : images of a step (in `STKMeans`, those that are aligned at a time)
    init_size : images of the sample; None = twice search_size, at least 3 n_clusters
    max_iter : passes over the images, at most; each draws as many images as there are
    tol : stop where the centroids' squared shift in a step is below tol × mean variance of a
        pixel; 0 never does
    max_no_improvement : stop after so many steps without a lower smoothed objective; None never
    reassignment_ratio : a centroid with less than this share of the largest count becomes an image
        of the batch
    compute_labels : whether `fit` labels all the images at the end, which is a pass of its own

    Attributes
    ----------
    cluster_centers_, prior_, history_, n_features_in_ : as of `STKMeans`; a step's ``objective`` is
        the mean distance of its images
    counts_ : (K,) weight of the images that each centroid has seen
    labels_, inertia_ : as `predict` gives them for all the images of `fit` (with
        ``compute_labels``), or for those of the last `partial_fit`
    n_steps_, n_iter_ : steps, and passes that they make

    Raises
    ------
    ValueError : bad images or parameters, before anything is compiled; an image that is bad further
        on, when its block is read

    References
    ----------
    Sculley 2010, Web-scale k-means clustering; Levy, Lindenbaum 2000 (incremental PCA). Eq. 2 to 4
    of the paper (arXiv 2202.07829), which fits whole sets alone.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import MiniBatchSTKMeans
    >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
    >>> X[::2, 2:6, 3] = 1  # upright bars
    >>> X[1::2, 3, 2:6] = 1  # lying bars
    >>> km = MiniBatchSTKMeans(2, landmarks=3, prior="fixed", batch_size=8, random_state=0)
    >>> sorted(np.bincount(km.fit(X).labels_).tolist())
    [10, 10]
    """

    counts_: NDArray[np.float64]
    n_steps_: int
    solver = OWN["solver"]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        landmarks: int | ArrayLike = 6,
        init: Init = "k-means++",
        n_init: int | str = "auto",
        n_swaps: int | str = "auto",
        max_iter: int = 1,
        batch_size: int = 1024,
        init_size: int | None = None,
        tol: float = 0.0,
        max_no_improvement: int | None = 10,
        reassignment_ratio: float = 0.01,
        compute_labels: bool = True,
        bending: float = 2e-3,
        displacement: float = 17.0,
        smoothing: float = 0.025,
        coarse: float = 0.07,
        prior: str = "learned",
        n_modes: int = 8,
        tying: float = 0.5,
        n_candidates: int = 3,
        search_size: int = 1500,
        image_shape: tuple[int, ...] | None = None,
        memory_limit: float | None = None,
        devices: int | str | Sequence[Any] | Mesh | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.landmarks = landmarks
        self.init = init
        self.n_init = n_init
        self.n_swaps = n_swaps
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.init_size = init_size
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.reassignment_ratio = reassignment_ratio
        self.compute_labels = compute_labels
        self.bending = bending
        self.displacement = displacement
        self.smoothing = smoothing
        self.coarse = coarse
        self.prior = prior
        self.n_modes = n_modes
        self.tying = tying
        self.n_candidates = n_candidates
        self.search_size = search_size
        self.image_shape = image_shape
        self.memory_limit = memory_limit
        self.devices = devices
        self.random_state = random_state
        self.verbose = verbose

    # ---------------------------------------------------------------- public

    def fit(
        self,
        X: ImagesLike,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Centroids and prior from a sample and steps on batches, then labels of all images.

        Parameters
        ----------
        X : images as `stkm.blocks.Images` takes them
        y : ignored
        sample_weight : (N,) not negative
        checkpoint : path of an ``.npz``, as in `STKMeans.fit`; written first when the sample's fit
            is done. Of the images, their number and a few of them are compared

        Ctrl-C during the steps ends the fit with the centroids so far, without labels, and a
        warning; before them nothing is fitted, and the interruption goes on.

        Returns
        -------
        the estimator

        Raises
        ------
        ValueError : weights or parameters that are not so, before anything is compiled; images that
            are not, when their block is read; a checkpoint that is damaged or of another fit

        References
        ----------
        Sculley 2010, Algorithm 1, with the distance of Eq. 3 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import MiniBatchSTKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = MiniBatchSTKMeans(
        ...     2, landmarks=3, prior="fixed", init=X[[0, 10]], batch_size=8, random_state=0
        ... )
        >>> km.fit(X).labels_.tolist(), km.n_steps_
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], 2)
        """
        self._check_own()
        X = self._images(X, reset=True)
        weights = check_weights(sample_weight, len(X))
        n, size = len(X), min(self.batch_size, len(X))
        known = checkpoint and self._identity(X, weights)
        progress = Progress(self.max_iter * n, self.verbose, checkpoint, known)
        found = progress.found
        seed = found[0]["seed"] if found else self._seed()
        rng = self._random = self._rng(seed)
        progress.outer = ({"seed": seed}, {})
        index = self._sample(n, weights, rng)
        trend = _Trend(size, n, self.max_no_improvement)
        ended = False
        if found:
            progress.restore(rng)
            ended = self._go_on(X, index, weights[index], trend, *found)
        else:
            self._begin(X, index, weights[index])
            self._mark(progress, rng, trend, ended)
        kept = self._kept()
        try:
            while not ended and self.n_steps_ < max(1, self.max_iter * n // size):
                index = np.sort(rng.integers(n, size=size))
                images = self._model.shrink(X[index])
                mean, shift = self._step(images, weights[index], rng, progress)
                ended = trend.ends(mean) or shift < self.tol * self._unit()
                kept = self._kept()
                self._mark(progress, rng, trend, ended)
        except KeyboardInterrupt:
            vars(self).update(kept)  # type: ignore[attr-defined]
            text = f"interrupted after {self.n_steps_} steps: these are the centroids so far"
            warn(f"{text}, and no image is labelled", ConvergenceWarning)
            return self
        finally:
            progress.close()
            self.n_iter_ = -(-self.n_steps_ * size // n)
        if self.compute_labels:
            self._label(X, weights)
            self._warn_of_collapse(weights)
        return self

    def partial_fit(
        self, X: ImagesLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Take in more images: a start from them the first time, then steps of ``batch_size``.

        The first call fits its images as `STKMeans` would; so give it a few hundred for each
        cluster. Later calls take any number.

        Parameters
        ----------
        X : images as `stkm.blocks.Images` takes them; after the first call, of its size and scale
        y : ignored
        sample_weight : (N,) not negative

        Returns
        -------
        the estimator; ``labels_`` and ``inertia_`` are those of X

        Raises
        ------
        ValueError : images, weights or parameters that are not so; images of another shape than
            those before

        References
        ----------
        Sculley 2010, Algorithm 1, with the distance of Eq. 3 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import MiniBatchSTKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = MiniBatchSTKMeans(
        ...     2, landmarks=3, prior="fixed", init=X[[0, 10]], batch_size=8, random_state=0
        ... )
        >>> km.partial_fit(X).partial_fit(X[::2]).counts_.tolist()
        [15.0, 15.0]
        """
        self._check_own()
        X = self._images(X, reset=not hasattr(self, "cluster_centers_"))
        weights = check_weights(sample_weight, len(X))
        if not hasattr(self, "cluster_centers_"):
            self._random = self._rng(self._seed())
            self._begin(X, np.arange(len(X)), weights)
        else:
            if not hasattr(self, "counts_"):  # made from centroids
                self._random = self._rng(self._seed())
                self._empty()
            progress = Progress(verbose=self.verbose)
            for start in range(0, len(X), self.batch_size):
                part = slice(start, start + self.batch_size)
                images = self._read_rows(X, part)
                self._step(images, weights[part], self._random, progress)
        self._label(X, weights)
        return self

    # ---------------------------------------------------------------- checks

    def _check_own(self):
        check_int("batch_size", self.batch_size, 1)
        check_int("max_iter", self.max_iter, 1)
        check_int("search_size", self.search_size, 1)
        check_int("n_clusters", self.n_clusters, 1)
        if self.init_size is not None:
            check_int("init_size", self.init_size, self.n_clusters)
        if self.max_no_improvement is not None:
            check_int("max_no_improvement", self.max_no_improvement, 1)
        check_real("reassignment_ratio", self.reassignment_ratio)
        check_real("tol", self.tol)

    def _check_parameters(self, images, weights):
        super()._check_parameters(images, weights)
        self._check_learning()

    def _params(self):
        """Parameters of the sample's fit: its passes, tolerance and batches are `STKMeans`'s."""
        whole = STKMeans()
        same = {name: getattr(whole, name) for name in ("max_iter", "tol", "batch_size")}
        return {**super()._params(), **OWN, **same}

    def _make_warp(self, shape):
        return Warp.tps(shape, self.landmarks)

    # ---------------------------------------------------------------- steps

    def _rng(self, seed):
        return np.random.default_rng([seed, 2**31])  # another stream than those of the runs

    def _sample(self, n, weights, rng):
        """Numbers of the images that the fit starts with, ascending."""
        size = self.init_size or max(2 * self.search_size, 3 * self.n_clusters)
        if size >= n:
            return np.arange(n)
        if (weights == weights[0]).all():
            return np.sort(rng.choice(n, size, replace=False, shuffle=False))
        size = min(size, int((weights > 0).sum()))
        return np.sort(rng.choice(n, size, replace=False, p=weights / weights.sum()))

    def _begin(self, X, index, weights):
        """Fit of the images ``index``, and the sums over them."""
        images, weights = self._prepare_part(X, index, weights)
        self._store(self._fit_best(images, weights, part=True), weights)
        del self.labels_, self.inertia_, self.n_used_  # they are of the sample
        self._empty()
        self._add(images, weights)

    def _unit(self):
        """Mean variance of a pixel, the unit of ``tol``."""
        return self._model.spread / self._matched()[0].size

    def _kept(self):
        """Attributes that a step changes, as they are; steps replace arrays, but for the counts."""
        names = ("cluster_centers_", "_centers", "prior_", "n_steps_", "_unseen")
        kept = {name: getattr(self, name) for name in names}
        moments = [replace(m) for m in self._moments]
        return kept | {"counts_": self.counts_.copy(), "_moments": moments}

    def _mark(self, progress, rng, trend, ended):
        """A point from which the fit can go on."""
        arrays = {
            "centers": self._matched(),
            "counts": self.counts_,
            "prior": pack_prior(self.prior_),
            "moments": {str(k): vars(m) for k, m in enumerate(self._moments)},
        }
        meta = {"n_steps": self.n_steps_, "unseen": self._unseen, "history": self.history_}
        progress.mark("steps", rng, arrays, **meta, trend=vars(trend), ended=bool(ended))

    def _go_on(self, X, index, weights, trend, meta, arrays):
        """Take up a fit from a checkpoint; returns whether its steps had ended."""
        self._prepare_part(X, index, weights)
        self.prior_ = unpack_prior(arrays.get("prior"))
        self._set_centers(arrays["centers"])
        self._empty()
        self.counts_ = arrays["counts"]
        self.history_, self.n_steps_ = meta["history"], meta["n_steps"]
        self._unseen = meta["unseen"]
        for k, m in enumerate(self._moments):
            found = arrays["moments"][str(k)]
            vars(m).update({name: a if a.ndim else a.item() for name, a in found.items()})
        vars(trend).update(meta["trend"])
        return meta["ended"]

    def _empty(self):
        k = self.n_clusters
        size = 2 * len(self._model.warp.landmarks)
        self.counts_, self.n_steps_, self._unseen = np.zeros(k), 0, 0
        self._moments = [_prior.Moments.empty(size, self._matched()[0].size) for _ in range(k)]
        if self.prior_ is not None:
            self._kappa = self.prior_.kappa

    def _assigned(self, images):
        """Aligner of the images, and their warps onto the nearest centroids."""
        model = self._model
        matcher = model.matcher(model.smooth(images), stride=model.stride, **STEP)
        state = cold_state(matcher, self._matched())
        everyone = np.ones_like(state.mask)
        assign(matcher, state, everyone, np.ones(self.n_clusters, bool))
        matcher.set_stride(1)
        state.prior = self.prior_
        assign(matcher, state, candidates(state, self.n_candidates))
        return matcher, state

    def _add(self, images, weights, move=False):
        """Take images into the sums; with ``move``, the centroids go towards them.

        Returns their aligner, their mean distance, and the squared shift of the centroids.
        """
        matcher, state = self._assigned(images)
        n_rows = max(1, ROWS_PER_MODE * self.n_modes)
        centers = state.centers.reshape(self.n_clusters, -1).astype(np.float64)
        shift = 0.0
        for k in range(self.n_clusters):
            index = np.flatnonzero((state.labels == k) & (weights > 0))
            if not len(index):
                continue
            w, d = weights[index], state.d[index, k]
            residuals = matcher.warped(index, d).reshape(len(index), -1) - centers[k]
            self.counts_[k] += w.sum()
            if move:
                step = w @ residuals / self.counts_[k]
                centers[k] += step
                residuals = residuals - step
                shift += float(step @ step)
            if self.prior_ is not None:
                self._moments[k].add(residuals, d, w, n_rows)
        if move:
            self._set_centers(centers.reshape(state.centers.shape).astype(np.float32))
        return matcher, state.objective(weights) / weights.sum(), shift

    def _step(self, images, weights, rng, progress=None):
        """One batch: assign, move the centroids, learn the prior, reassign what is seldom chosen.

        Returns the mean distance of the images before, and the centroids' squared shift.
        """
        self.n_steps_ += 1
        if not weights.sum() > 0:
            return np.nan, np.inf
        matcher, mean, shift = self._add(images, weights, move=True)
        moved = self._reassign(images, weights, rng)
        self._learn(matcher)
        entry = {"stage": "mini-batch", "objective": mean, "shift": shift, "relocated": moved}
        self.history_.append(entry)
        if progress:
            progress.report(entry, len(images))
        return mean, shift

    def _learn(self, matcher):
        """The prior from the sums so far, with the Hessians of the present centroids."""
        if self.prior_ is None:
            return
        options = {"n_modes": self.n_modes, "kappa": self._kappa, "tying": self.tying}
        penalty = np.kron(np.eye(2), self._model.penalty)
        self.prior_ = learn_from_sums(
            matcher, self.prior_, self._matched(), self._moments, penalty, **options
        )

    def _reassign(self, images, weights, rng):
        """Centroids that few images chose become images of the batch: the clusters moved."""
        self._unseen += len(images)
        counts = self.counts_
        if not (counts == 0).any() and self._unseen < REASSIGN_EVERY * self.n_clusters:
            return []
        self._unseen = 0
        few = np.flatnonzero(counts < self.reassignment_ratio * counts.max())
        there = np.flatnonzero(weights > 0)
        few = few[np.argsort(counts[few], kind="stable")][: len(there) // 2]
        if not len(few):
            return []
        chosen = rng.choice(there, len(few), replace=False)
        centers = self._matched().copy()
        centers[few] = self._model.smooth(images[chosen])
        self._set_centers(centers)
        others = np.setdiff1d(np.arange(self.n_clusters), few)
        counts[few] = counts[others].min()  # not so few that it happens again at once
        for k in few:
            size = self._moments[k].second.shape[0]
            self._moments[k] = _prior.Moments.empty(size, centers[0].size)
        return [int(k) for k in few]


class _Trend:
    """Exponentially weighted mean of the objective, and whether it still falls (scikit-learn's)."""

    def __init__(self, batch_size, n, patience):
        self.alpha, self.patience = min(1.0, 2 * batch_size / (n + 1)), patience
        self.smoothed, self.lowest, self.failures = np.nan, np.inf, 0

    def ends(self, mean):
        """Take in the mean distance of a batch; True where there was no improvement for long."""
        if not np.isfinite(mean):
            return False
        old = mean if np.isnan(self.smoothed) else self.smoothed
        self.smoothed = old * (1 - self.alpha) + mean * self.alpha
        self.failures = 0 if self.smoothed < self.lowest else self.failures + 1
        self.lowest = min(self.lowest, self.smoothed)
        return self.patience is not None and self.failures >= self.patience
