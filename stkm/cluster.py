"""K-means in which the distance is the smallest error over all warps of the image (Eq. 2–4).

One loop (`stkm.lloyd`) serves every warp: `STKMeans` with thin-plate splines, `AffineKMeans` with
affine maps. With the identity as the only warp it is scikit-learn's `KMeans`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import checkpoint as _checkpoint
from . import fitting, passes
from . import init as _init
from .align import Alignment, unflatten
from .blocks import Images, as_array, block_length, fits, is_sequence, row_bytes
from .devices import choose
from .learning import LARGEST, ROUNDS
from .prior import Prior
from .progress import Progress, pack_prior, unpack_prior
from .resolution import factor
from .validation import (
    check_ground,
    check_images,
    check_int,
    check_option,
    check_real,
    check_weights,
    count_distinct,
    warn,
)
from .warp import Warp

if TYPE_CHECKING:
    from jax.sharding import Mesh
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["AffineKMeans", "STKMeans"]


class ImageSequence(Protocol):
    """Images, or records with one, that are read item by item (`stkm.blocks`)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


ImagesLike = ArrayLike | ImageSequence
Init = str | ArrayLike | Callable[[Any, int, int], ArrayLike]
Verbose = int | Callable[[dict[str, Any]], Any]


COMPARED = 64  # images by which a checkpoint of images in blocks knows its data


class NotLearnedError(ValueError, AttributeError):
    """What is asked for needs the learned prior; to `hasattr` it is not there."""


class _WarpKMeans(TransformerMixin, ClusterMixin, BaseEstimator):
    """What `STKMeans` and `AffineKMeans` share; they differ in the warp and the defaults."""

    cluster_centers_: NDArray[np.float32]
    labels_: NDArray[np.int32]
    inertia_: float
    n_iter_: int
    history_: list[dict[str, Any]]
    prior_: Prior | None
    n_used_: int
    n_features_in_: int
    keep = "all"

    def _make_warp(self, shape):
        raise NotImplementedError

    # ---------------------------------------------------------------- public

    def fit(
        self,
        X: ImagesLike,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Find centroids, labels and warps of the images.

        Parameters
        ----------
        X : (N, H, W), (N, H, W, C) or, with ``image_shape``, (N, H*W*C); any real type and scale.
            Or a sequence of images (`stkm.blocks`), which is read whole with ``keep="all"``, and
            block by block otherwise
        y : ignored
        sample_weight : (N,) not negative; a weight of 2 counts as an image given twice
        checkpoint : path of an ``.npz`` that is written as the fit goes on (after the search, a
            pass, the rounds of learning, at most a tenth of the time). Where the file is there,
            the fit goes on from it and ends as it would have, bit for bit; a finished one is only
            labelled anew. A file that is damaged or of another fit raises ValueError. Of images
            read in blocks their number and a few are compared, and the file is written first when
            the fit of their part is done

        Ctrl-C ends a fit that has a state already with what it has so far, and a warning: then
        ``labels_`` and ``inertia_`` are those of the last pass, and not there before all images
        have been read in blocks once.

        Returns
        -------
        the estimator

        Raises
        ------
        ValueError : images, weights or parameters that are not so, before anything is compiled; a
            checkpoint that is damaged or of another fit

        Warns
        -----
        sklearn.exceptions.ConvergenceWarning : a cluster has swallowed others, there are fewer
            distinct images than clusters, or the user has ended the fit

        References
        ----------
        Eq. 2 to 4 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2)
        >>> km.fit(X).labels_.tolist()
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
        """
        check_option("keep", self.keep, passes.KEEP)
        if self.keep != "all":
            X = self._images(X, reset=True)
            weights = check_weights(sample_weight, len(X))
            part = self._part_size(X)
            if len(X) > part:
                return self._fit_in_blocks(X, weights, part, checkpoint)
            X, sample_weight = X.given(slice(0, len(X))), weights
        images, weights = self._prepare(X, sample_weight)
        self._store(self._fit_best(images, weights, checkpoint), weights)
        self._warn_of_collapse(weights)
        return self

    def _fit_in_blocks(self, X, weights, part, path):
        """A fit of a part of the images, then passes over all of them (`stkm.passes`)."""
        known = path and self._identity(X, weights)
        p = self._params()
        total = max(ROUNDS, p["max_iter"] if p["prior"] == "fixed" else 0) * len(X)
        progress = Progress(total, self.verbose, path, known)
        found = progress.found
        seed = found[0]["seed"] if found else self._seed()
        progress.outer = ({"seed": seed}, {})
        streams = np.random.default_rng([seed, 2**31]).spawn(2)
        index = fitting.draw(weights, part, streams[0])
        images, part_weights = self._prepare_part(X, index, weights[index])
        if found:
            fit = passes.Fit.unpack(*progress.restore(np.random.default_rng()))
        else:
            result = self._fit_best(images, part_weights, part=True)
            fitting.share(result.history, part_weights.sum() / weights.sum())
            n_near = min(self.n_candidates, self.n_clusters) if self.keep == "nearest" else 0
            size = 2 * len(self._model.warp.landmarks)
            fit = passes.Fit.of(result.centers, result.prior, len(X), n_near, size, result.history)
        self._set_centers(fit.centers)  # images are checked as those of a fit
        try:
            passes.fit_all(
                self._model, partial(self._read_rows, X), weights, fit, streams[1], progress
            )
        except KeyboardInterrupt:
            self._take(fit)
            text = f"interrupted after {fit.number} passes over all images"
            if fit.number:
                self.labels_, self.inertia_ = fit.labels, fit.objective
                self.n_used_ = len(np.unique(self.labels_[weights > 0]))
                text += ": this is the state so far, with the labels of its last pass"
            else:
                text += ": these are the centroids of a part, and no image is labelled"
            warn(text, ConvergenceWarning)
            return self
        finally:
            progress.close()
        self._take(fit)
        self._label(X, weights)
        self.history_.append({"stage": "final", "objective": self.inertia_})
        self._warn_of_collapse(weights)
        return self

    def _take(self, fit):
        """What passes over all images have come to, without labels."""
        for name in ("labels_", "inertia_", "n_used_"):
            vars(self).pop(name, None)
        self._set_centers(fit.centers)
        self.prior_, self.history_, self.n_iter_ = fit.prior, fit.history, fit.number

    def _seed(self):
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _fit_best(self, images, weights, path=None, part=False):
        """The run of lowest objective; of a ``part``, who interrupts it ends the whole fit."""
        seed = self._seed()
        identity = path and _checkpoint.identity(self, images, weights)
        total = (self._params()["max_iter"] + ROUNDS) * len(images)
        progress = Progress(total, self.verbose, path, identity)
        first, best = 0, None
        if progress.found:  # an earlier process drew its own seed, where random_state is None
            meta, arrays = progress.found
            seed, first = meta["seed"], meta["run"]
            best = _unpacked(meta, arrays)
        # where there is a search, n_init counts searches, and only the best one is fitted
        runs = 1 if self.n_init == "auto" or self._searches else self.n_init
        try:
            for run in range(first, runs):
                progress.outer = _packed(seed, run, best)
                # run i has its own stream, so it does not depend on how many runs there are
                rng = np.random.default_rng([seed, run])
                result = self._fit_once(images, weights, rng, progress)
                if best is None or result.objective < best.objective:
                    best = result
        except KeyboardInterrupt:
            if part:
                raise
            best = self._interrupted(images, weights, best, progress.latest)
        finally:
            progress.close()
        return best

    def _interrupted(self, images, weights, best, latest):
        """What there is when the user ends a fit; without a state yet, the interruption goes on."""
        if best is None and latest is None:
            raise
        if best is None or latest is not None and latest.objective < best.objective:
            best = latest
        warn(
            f"interrupted after {best.n_iter} passes: this is the state so far, with the labels of "
            "its last pass",
            ConvergenceWarning,
        )
        if best.labels is None:  # after the search, of which only a part of the images knows
            fitting.label(self._model, images, weights, best)
        return best

    @classmethod
    def from_centroids(
        cls, centroids: ArrayLike, X: ImagesLike, learned: Prior | None = None, **params: Any
    ) -> Self:
        """A fitted estimator with given centroids, labelled on reference images.

        Parameters
        ----------
        centroids : (K, H, W[, C]), as ``cluster_centers_`` of an earlier fit
        X : the images of that fit (or others of their kind): the penalties are in units of their
            spread; ``labels_`` and ``inertia_`` are theirs
        learned : ``prior_`` of that fit; None measures distances with the fixed penalty
        params : parameters of that fit; n_clusters is the number of centroids

        Returns
        -------
        the estimator, fitted

        Raises
        ------
        ValueError : images or parameters that `fit` does not take, centroids of another shape

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> again = STKMeans.from_centroids(km.cluster_centers_, X, landmarks=3, prior="fixed")
        >>> bool((again.predict(X) == km.labels_).all())
        True
        """
        km = cls(len(centroids), **params)
        images, weights = km._prepare(X, None)
        centers = km._model.shrink(km._check_centers(centroids, km._shape))
        result = fitting.Result(centers, None, 0.0, 0, False, [], learned)
        fitting.label(km._model, images, weights, result)
        return km._store(result, weights)

    @property
    def predict_proba(self) -> Callable[[ImagesLike], NDArray[np.float64]]:
        """Probability of each cluster by the learned prior: a method, ``predict_proba(X)``.

        There is no such method without a likelihood, with ``prior="fixed"``: `hasattr` says so.

        Parameters
        ----------
        X : images, as :meth:`predict` takes them

        Returns
        -------
        (N, K) float64 in [0, 1], rows sum to one

        Raises
        ------
        NotLearnedError : (an AttributeError and a ValueError) without a learned prior
        ValueError : images of another shape than the fit's, NaN or infinity, none
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        p(k | x) of the mixture that the class's docstring states; not in the paper
        (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X)
        >>> p = km.predict_proba(X[:2])
        >>> p.shape, bool((p[:, km.labels_[0]] > 0.5).all())
        ((2, 2), True)
        """
        fixed = getattr(self, "prior", "fixed") == "fixed"
        if fixed or getattr(self, "prior_", self) is None:
            raise NotLearnedError(
                "predict_proba needs prior='learned': a fixed penalty is no likelihood"
            )
        return self._predict_proba

    def _predict_proba(self, X):
        check_is_fitted(self, "cluster_centers_")
        return softmax(-self._values(X).astype(np.float64), axis=1)

    def predict(self, X: ImagesLike) -> NDArray[np.int32]:
        """Index of the nearest centroid: the argmin of :meth:`transform`.

        Parameters
        ----------
        X : (N, H, W[, C]) of the fit's size and scale, or flat with ``image_shape``, or a sequence

        Returns
        -------
        (N,) int32, 0 to K − 1

        Raises
        ------
        ValueError : images of another shape than the fit's, NaN or infinity, none
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        The assignment of Eq. 2 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> km.predict(X[8:12]).tolist()
        [0, 0, 1, 1]
        """
        return self._values(X).argmin(1).astype(np.int32)

    def transform(self, X: ImagesLike) -> NDArray[np.float32]:
        """Distances ``(N, K)`` of images to the centroids.

        Penalised squared errors, or with a learned prior minus the log-likelihoods, which may be
        negative. Images are read and fitted in blocks that fit in ``memory_limit``; the result
        does not depend on it.

        Parameters
        ----------
        X : (N, H, W[, C]) of the fit's size and scale, or flat with ``image_shape``, or a sequence

        Returns
        -------
        (N, K) float32, in squared units of the images' scale, or (learned) without unit

        Raises
        ------
        ValueError : images of another shape than the fit's, NaN or infinity, none
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        Eq. 3 of the paper (arXiv 2202.07829), with the penalty, or the likelihood, of the class's
        docstring.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> distances = km.transform(X[:3])
        >>> distances.shape, distances.argmin(1).tolist()
        ((3, 2), [0, 0, 0])
        """
        return self._values(X)

    def fit_transform(
        self, X: ImagesLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Fit, then :meth:`transform` the same images.

        Parameters
        ----------
        X, sample_weight : as :meth:`fit` takes them
        y : ignored

        Returns
        -------
        (N, K), as of :meth:`transform`

        Raises
        ------
        ValueError : as :meth:`fit`

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2)
        >>> km.fit_transform(X).shape
        (20, 2)
        """
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X: ImagesLike, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Minus the objective on X: higher is better, as scikit-learn expects.

        Parameters
        ----------
        X : images, as :meth:`predict` takes them
        y : ignored
        sample_weight : (N,) not negative; None counts every image once

        Returns
        -------
        float, in the units of :meth:`transform`, a sum over the images

        Raises
        ------
        ValueError : as :meth:`predict`; weights of another number, negative or not finite
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        Minus Eq. 2 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> bool(abs(km.score(X) + km.inertia_) < 1e-3 * km.inertia_)
        True
        """
        f = self._values(X).min(1)
        return -float(check_weights(sample_weight, len(f)) @ f.astype(np.float64))

    def align(self, X: ImagesLike) -> Alignment:
        """Warp images onto their nearest centroids: an `Alignment`.

        ``warped`` shows the images at full sharpness, in the scale of ``X``.

        Parameters
        ----------
        X : images, as :meth:`predict` takes them

        Returns
        -------
        Alignment

        Raises
        ------
        ValueError : images of another shape than the fit's, NaN or infinity, none
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        The minimiser of Eq. 3 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> a = km.align(X[:3])
        >>> a.warped.shape, a.displacements.shape, a.labels.tolist()
        ((3, 8, 8), (3, 9, 2), [0, 0, 0])
        """
        parts = [self._align(images) for images in self._read(X)]
        return Alignment(*(np.concatenate(a) for a in zip(*parts, strict=True)))

    def _align(self, images):
        """`align` of one block."""
        f, d = self._distances(images)
        labels = f.argmin(1).astype(np.int32)
        rows = np.arange(len(images))
        moves = unflatten(d[rows, labels])
        if self.prior_ is None:
            penalties = np.einsum("nla,lm,nma->n", moves, self._model.penalty, moves)
        else:
            own = d[rows, labels].astype(np.float64)
            precision = np.linalg.inv(self.prior_.covariance)
            penalties = np.array(
                [m @ precision[k] @ m / 2 for m, k in zip(own, labels, strict=True)]
            )
        moves = moves * self._model.factor
        warped = np.asarray(self.warp_(images, moves))
        return Alignment(
            warped[..., 0] if self._grey else warped,
            labels,
            moves,
            f[rows, labels],
            penalties,
            self.warp_.folded(moves),
        )

    @property
    def warp_(self) -> Warp:
        """The `Warp` of the fitted frame.

        Raises
        ------
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        T of Eq. 3 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> km.warp_.kind, km.warp_.landmarks.shape
        ('tps', (9, 2))
        """
        check_is_fitted(self, "cluster_centers_")
        return self._model.frame

    @property
    def deformation_modes_(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Modes of the learned Γ_k: how the images of each cluster bend.

        Field j of cluster k moves the landmarks by one standard deviation, in pixels; largest
        first. Warping images by +field bends them; bending the *centroid* the way the images of
        the cluster are bent is the inverse, ``warp_.inverse(centroid, field)``.

        Returns
        -------
        variances : (K, 2L) in squared pixels, not negative
        fields : (K, 2L, L, 2) in pixels, (row, column)

        Raises
        ------
        NotLearnedError : (an AttributeError and a ValueError) without a learned prior
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        Principal components of the Γ_k that the class's docstring states; not in the paper
        (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X)
        >>> variances, fields = km.deformation_modes_
        >>> variances.shape, fields.shape
        ((2, 18), (2, 18, 9, 2))
        """
        variances, vectors = np.linalg.eigh(self._learned().covariance * self._model.factor**2)
        variances, vectors = np.maximum(variances[:, ::-1], 0), vectors[:, :, ::-1]
        fields = (vectors * np.sqrt(variances)[:, None]).swapaxes(1, 2)
        k, m = variances.shape
        return variances, unflatten(fields.reshape(k * m, m)).reshape(k, m, m // 2, 2)

    @property
    def appearance_modes_(self) -> NDArray[np.floating]:
        """Rows of W_k: what varies in each cluster besides the warp.

        Returns
        -------
        (K, q, H, W[, C]) in the images' scale: one standard deviation each, largest first

        Raises
        ------
        NotLearnedError : (an AttributeError and a ValueError) without a learned prior
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        Tipping, Bishop 1999 (probabilistic PCA); not in the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X)
        >>> km.appearance_modes_.shape  # a mode for every ten images
        (2, 2, 8, 8)
        """
        loadings = self._learned().loadings
        k, q = loadings.shape[:2]
        small = loadings.reshape(k * q, *self._model.warp.shape, self._shape[2])
        modes = self._model.enlarge(small).reshape(k, q, *self._shape)
        return modes[..., 0] if self._grey else modes

    def mode_images(
        self, sds: ArrayLike = (-2, -1, 0, 1, 2), n_modes: int = 2
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Every centroid bent along its deformation modes and with appearance modes added.

        Parameters
        ----------
        sds : S numbers, how far along a mode, in standard deviations
        n_modes : first modes shown, of either kind; what is not there is left at the centroid

        Returns
        -------
        (bent, shaded), each (K, n_modes, S, H, W[, C]) float32 in the images' scale

        Raises
        ------
        ValueError : ``n_modes`` below 1; without a learned prior (then a NotLearnedError)
        sklearn.exceptions.NotFittedError : before `fit`

        References
        ----------
        Cootes, Edwards, Taylor 1998 (active appearance models); not in the paper
        (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X)
        >>> bent, shaded = km.mode_images(sds=(-1, 0, 1), n_modes=1)
        >>> bent.shape, shaded.shape
        ((2, 1, 3, 8, 8), (2, 1, 3, 8, 8))
        """
        check_int("n_modes", n_modes, 1)
        fields, loadings = self.deformation_modes_[1], self.appearance_modes_
        sds, centers = np.asarray(sds, np.float64), np.float32(self.cluster_centers_)
        shape = (len(centers), n_modes, len(sds), *centers.shape[1:])
        bent = np.broadcast_to(centers[:, None, None], shape).copy()
        shaded = bent.copy()
        for k in range(len(centers)):
            for j in range(min(n_modes, fields.shape[1])):
                moves = np.multiply.outer(sds, fields[k, j])
                bent[k, j] = self.warp_.inverse(bent[k, j], moves)
        used = min(n_modes, loadings.shape[1])
        shaded[:, :used] += np.moveaxis(np.multiply.outer(sds, loadings[:, :used]), 0, 2)
        return bent, shaded

    def plot(self, X: ImagesLike | None = None, *, fig: Figure | None = None) -> dict[str, Axes]:
        """Draw the fit on one page: `stkm.plots.overview`.

        Parameters
        ----------
        X : images, as `predict` takes them, of at least one of which is shown how it is bent; None
            shows what the fit itself keeps: centroids, sizes, history, modes
        fig : a matplotlib Figure (None: a new one)

        Returns
        -------
        dict of matplotlib Axes by name: 'centroids', 'history'; 'deformation_modes' with a learned
        prior; with images 'nearest', 'farthest', 'warps', 'distances'

        Raises
        ------
        ValueError : images of another shape than the fit's, NaN or infinity, none; no images, and
            the fit labelled none (``compute_labels=False``, or interrupted)
        sklearn.exceptions.NotFittedError : before `fit`

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> sorted(km.plot())
        ['centroids', 'history']
        """
        check_is_fitted(self, "cluster_centers_")
        # looked up when called: fitting depends on no picture (as `stkm` itself looks up its names)
        plots = import_module(f"{__package__}.plots")
        parts, labels = {}, getattr(self, "labels_", None)
        if X is None and labels is None:
            raise ValueError(
                "the fit labelled no image, so there are no sizes: plot(X) with images"
            )
        if self.prior_ is not None:
            parts["modes"] = self.mode_images(n_modes=1)[0]
        if X is not None:
            images = self._check_new(X)
            images = images[..., 0] if self._grey else images
            values = self._values(images)
            labels = values.argmin(1)
            shown = [np.flatnonzero(labels == k) for k in range(len(self.cluster_centers_))]
            shown = [
                own[values[own, k].argsort()[len(own) // 2]]
                for k, own in enumerate(shown)
                if len(own)
            ]
            a = self.align(images[shown])
            bent = {
                "images": images[shown],
                "warped": a.warped,
                "targets": self.cluster_centers_[a.labels],
                "fields": self.warp_.field(a.displacements),
                "landmarks": self.warp_.landmarks + a.displacements,
                "names": [str(k) for k in a.labels],
            }
            parts |= {"images": images, "values": values, "bent": bent}  # type: ignore[dict-item]
        sizes = np.bincount(labels, minlength=len(self.cluster_centers_))
        with plots.in_style():
            return plots.overview(self.cluster_centers_, sizes, self.history_, fig=fig, **parts)

    def _learned(self):
        check_is_fitted(self, "cluster_centers_")
        if self.prior_ is None:
            raise NotLearnedError(
                "modes are learned with prior='learned', which this fit did not have"
            )
        return self.prior_

    @property
    def _n_features_out(self):
        return len(self.cluster_centers_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns of :meth:`transform`.

        Parameters
        ----------
        input_features : ignored, as the columns are distances to the centroids

        Returns
        -------
        (K,) of str

        Raises
        ------
        sklearn.exceptions.NotFittedError : before `fit`

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> km.get_feature_names_out().tolist()
        ['stkmeans0', 'stkmeans1']
        """
        check_is_fitted(self, "cluster_centers_")
        name = type(self).__name__.lower()
        return np.array([f"{name}{k}" for k in range(self._n_features_out)], dtype=object)

    def __sklearn_tags__(self):
        """Images are no table, unless they come flat, with ``image_shape``."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    # ---------------------------------------------------------------- checks

    def _check_parameters(self, images, weights):
        n = len(images)
        check_int("n_clusters", self.n_clusters, 1)
        check_int("max_iter", self.max_iter, 1)
        check_int("batch_size", self.batch_size, 1)
        check_int("search_size", self.search_size, 1)
        if self.memory_limit is not None:
            block_length(1, self.memory_limit)
        choose(self.devices)
        check_int("n_candidates", self.n_candidates, 1)
        for name in ("tol", "bending", "displacement", "smoothing", "coarse"):
            check_real(name, getattr(self, name))
        if self.n_swaps != "auto":
            check_int("n_swaps", self.n_swaps, 0)
        if self.n_init != "auto":
            check_int("n_init", self.n_init, 1)
        if n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}")
        if isinstance(self.init, str):
            check_option("init", self.init, ("k-means++", "k-means++ pixels"))
        elif not callable(self.init):
            self._check_centers(self.init, images.shape[1:])
        distinct = count_distinct(images[weights > 0], self.n_clusters)
        if distinct < self.n_clusters:
            warn(
                f"{distinct} distinct images, {self.n_clusters} clusters asked: some stay empty",
                ConvergenceWarning,
            )

    def _check_learning(self):
        """Parameters of the learned prior, for estimators that have one."""
        check_option("prior", self.prior, ("learned", "fixed"))
        check_int("n_modes", self.n_modes, 0)
        if check_real("tying", self.tying) > 1:
            raise ValueError(f"tying={self.tying!r}: expected a number between 0 and 1")

    def _check_centers(self, centers, shape):
        """Centroids ``(K, H, W, C)`` of images of ``shape`` (H, W, C)."""
        centers, _ = check_images(centers, self.image_shape)
        expected = (self.n_clusters, *shape)
        if centers.shape != expected:
            shape = expected[:-1] if self._grey else expected
            raise ValueError(f"init has shape {np.shape(self.init)}, expected centroids {shape}")
        return centers

    def _check_input(self, X, reset):
        """Images ``(N, H, W, C)`` and whether they were grey; a table also by scikit-learn."""
        if self.image_shape is not None and np.asarray(X).ndim <= 2:  # a table of one row an image
            X = validate_data(self, X, reset=reset, dtype="numeric")
            return self._framed(X)
        images, grey = self._framed(X)
        if reset:
            self.n_features_in_ = int(np.prod(images.shape[1:]))
        return images, grey

    def _framed(self, X):
        return check_images(X, self.image_shape)

    def _check_new(self, X):
        check_is_fitted(self, "cluster_centers_")
        images, grey = self._check_input(X, reset=False)
        if images.shape[1:] != self._shape or grey != self._grey:
            shown = self._shape[:-1] if self._grey else self._shape
            raise ValueError(f"images of shape {np.shape(X)[1:]}, but the fit had {shown}")
        top = float(np.abs(images).max())
        if 0 < top <= 1.5 and self._top > 20 or self._top <= 1.5 and top > 20:
            warn(
                f"the fit had intensities up to {self._top:g}, these images reach {top:g}: "
                "use one scale for both",
                UserWarning,
            )
        return images

    # ---------------------------------------------------------------- fitting

    def _prepare(self, X, sample_weight):
        """Checked images ``(N, H, W, C)``, shrunk, and weights; sets the model."""
        images, self._grey = self._check_input(as_array(X), reset=True)
        weights = check_weights(sample_weight, len(images))
        self._check_parameters(images, weights)
        self._shape, self._top = images.shape[1:], float(np.abs(images).max())
        check_ground(images, self._top)
        warp = self._make_warp(images.shape[1:3])
        self._model, images = fitting.Model.of(warp, images, weights, self._params())
        return images, weights

    def _images(self, X, reset):
        """X as checked images; a table in memory by scikit-learn's checks, too."""
        if is_sequence(X) or isinstance(X, np.memmap) or np.asarray(X).ndim > 2:
            return Images(X, self.image_shape)
        images, grey = self._check_input(X, reset=reset)
        images = Images(images[..., 0] if grey else images)
        images.features = self.n_features_in_
        return images

    def _identity(self, X, weights):
        """What a checkpoint of images in blocks is known by; a few of them are compared."""
        few = X[np.unique(np.linspace(0, len(X) - 1, COMPARED).astype(int))]
        return _checkpoint.identity(self, few, weights, n_images=len(X))

    def _part_size(self, X):
        """Images that are fitted in memory before all of them are read in blocks."""
        check_int("n_clusters", self.n_clusters, 1)
        r = factor(X.shape[:2], check_real("smoothing", self.smoothing))
        size = 2 * len(self._make_warp(X.shape[:2]).landmarks)
        small = (*(-(-side // r) for side in X.shape[:2]), X.shape[2])
        each = 16 * int(np.prod(X.shape)) + row_bytes(small, self.n_clusters, size)
        least = max(64, 3 * self.n_clusters)
        return int(np.clip(block_length(each, self.memory_limit), least, fitting.PART))

    def _prepare_part(self, X, index, weights):
        """`_prepare` of the images ``index`` of X, of which the model then is."""
        images, weights = self._prepare(X.given(index), weights)
        self.n_features_in_ = X.features or self.n_features_in_
        return images, weights

    def _read_rows(self, X, rows):
        """Images of a slice, or of an index, on the frame that is matched."""
        return self._model.shrink(self._check_new(X.given(rows)))

    def _label(self, X, weights):
        """Labels and objective of all images, as `predict` gives them."""
        check_is_fitted(self, "cluster_centers_")
        labels, total, start = [], 0.0, 0
        for f in self._each_block(X):
            labels.append(f.argmin(1).astype(np.int32))
            total += float(weights[start : start + len(f)] @ f.min(1).astype(np.float64))
            start += len(f)
        self.labels_, self.inertia_ = np.concatenate(labels), total
        self.n_used_ = len(np.unique(self.labels_[weights > 0]))

    def _warn_of_collapse(self, weights):
        sizes = np.bincount(self.labels_, weights, minlength=self.n_clusters)
        times = sizes.max() * self.n_clusters / sizes.sum()
        if times > LARGEST:
            warn(
                f"cluster {sizes.argmax()} has {times:.1f} times the mean size: unless the kinds "
                "of images are that unequal, it has swallowed others; try another random_state, "
                "more n_init, or a larger displacement penalty",
                ConvergenceWarning,
            )

    def _store(self, result, weights):
        self._set_centers(result.centers)
        self.labels_, self.inertia_ = result.labels, result.objective
        self.n_iter_, self.history_ = result.n_iter, result.history
        self.prior_ = result.prior
        self.n_used_ = len(np.unique(self.labels_[weights > 0]))
        return self

    def _params(self):
        """All parameters, with those that only `STKMeans` has at their defaults."""
        other = {"adam_steps": 1, "learning_rate": 0.01, "prior": "fixed", "n_modes": 0}
        return {**other, **self.get_params(deep=False)}

    @property
    def _searches(self):
        """Whether the fit begins with a search for the start."""
        by_warp = isinstance(self.init, str) and self.init == "k-means++"
        return by_warp and self.solver == "gauss-newton"

    def _given_centers(self, images, weights, rng):
        """Start centroids ``(K, H, W, C)`` from an array, a callable or the pixels."""
        seed = int(rng.integers(2**31 - 1))
        if callable(self.init):
            shown = images[..., 0] if self._grey else images
            return self._check_centers(self.init(shown, self.n_clusters, seed), images.shape[1:])
        if isinstance(self.init, str):
            return images[_init.pixel_kmeans_plusplus(images, self.n_clusters, seed, weights)]
        return self._model.shrink(self._check_centers(self.init, self._shape))

    def _fit_once(self, images, weights, rng, progress):
        if self.solver == "adam":
            start = self._given_centers(images, weights, rng)
            return fitting.fit_adam(self._model, images, weights, start, rng, progress)
        start = None if self._searches else self._given_centers(images, weights, rng)
        return fitting.fit_gauss_newton(self._model, images, weights, rng, start, progress)

    def _values(self, X):
        """Distances as an array, also where ``set_output`` makes `transform` give a table."""
        return np.concatenate(list(self._each_block(X)))

    def _each_block(self, X):
        """Distances ``(n, K)`` of the images, block by block."""
        return (self._distances(images)[0] for images in self._read(X))

    def _read(self, X):
        """New images block by block, checked, ``(n, H, W, C)``."""
        check_is_fitted(self, "cluster_centers_")
        size = self._model.block(len(self.cluster_centers_))
        if fits(X, size):
            yield self._check_new(X)
            return
        X = X if isinstance(X, Images) else Images(X, self.image_shape)
        for start in range(0, len(X), size):
            yield self._check_new(X.given(slice(start, start + size)))

    def _distances(self, images):
        small = self._model.shrink(images)
        return fitting.distances(self._model, small, self._matched(), self.prior_)

    def _matched(self):
        """Centroids ``(K, h, w, C)`` on the frame that is matched."""
        if self._model.factor > 1:
            return self._centers
        # where it is the whole frame, the public ones count
        return self.cluster_centers_[..., None] if self._grey else self.cluster_centers_

    def _set_centers(self, centers):
        """Take centroids of the frame that is matched."""
        self._centers = centers
        whole = self._model.enlarge(centers)
        self.cluster_centers_ = whole[..., 0] if self._grey else whole


def _packed(seed, run, best):
    """Meta and arrays of a checkpoint: the run it is in, and the best of those before."""
    meta, arrays = {"seed": seed, "run": run}, {}
    if best is not None:
        meta["best"] = {
            n: getattr(best, n) for n in ("objective", "n_iter", "converged", "history")
        }
        prior = pack_prior(best.prior)
        arrays["best"] = {"centers": best.centers, "labels": best.labels, "prior": prior}
    return meta, arrays


def _unpacked(meta, arrays):
    """The best of earlier runs, or None."""
    if "best" not in arrays:
        return None
    kept = arrays["best"]
    prior = unpack_prior(kept.get("prior"))
    return fitting.Result(kept["centers"], kept["labels"], **meta["best"], prior=prior)


class STKMeans(_WarpKMeans):
    """Spatial Transformer K-means: clusters of images up to thin-plate-spline warps.

    Minimises Eq. 2, Σ_n min_k d(x_n, μ_k), with the penalised form of Eq. 3,

        d(x, μ) = min_d ‖T(x, d) − μ‖² + E · (bending · energy(d) + displacement · |d|² / side²),

    energy being the bending energy of the spline, |d|² the mean squared displacement of a pixel,
    side = sqrt(H·W) and E the images' mean squared distance from their mean. Both weights are free
    of units: one pair serves all sizes and scales. Eq. 4: the centroid is the mean of its members
    warped onto it.

    With ``prior="learned"`` Lloyd's loop is followed by rounds in which every cluster learns how
    its images bend (Γ_k) and what else varies (appearance modes W_k): a mixture of deformable
    templates (Grenander; Allassonnière, Amit, Trouvé 2007), whose likelihood takes the place of
    the penalised error,

        d ~ N(0, Γ_k),   r = T(x, d) − μ_k ~ N(0, W_kᵀ W_k + σ² I) = N(0, Ψ_k),   P(k) = π_k,
        d(x, k) = min_d κ/2 (rᵀ Ψ_k⁻¹ r + log|2πΨ_k|) + ½ dᵀ Γ_k⁻¹ d + c − log π_k.

    The error model is probabilistic PCA (Tipping, Bishop 1999), with the warp an active appearance
    model (Cootes, Edwards, Taylor 1998). The distance is −log p(x, k), d integrated out by
    Laplace's method: κ counts the independent errors of a pixel, and what flexibility costs is the
    same for all clusters,

        c = Σ_k π_k ½ log|I + Γ_k J_kᵀ κΨ_k⁻¹ J_k|,   J_k = ∂T/∂d from the gradient of μ_k.

    Γ_k, W_k, σ² and π_k come from the warped images of each cluster, shrunk towards those of all:
    `stkm.prior`. Swaps judged by the likelihood
    follow, and mend what the search got wrong. The rounds end early when held-out images lose by
    them, or when one cluster outgrows the others.

    The search (greedy k-means++ on the warp distance, Lloyd passes, swaps judged by the objective)
    runs on ``search_size`` images, the Lloyd loop on all. With a learned prior, of more than 8 000
    images so many find centroids and prior; then all are aligned and learn on from there. Labels
    and ``inertia_`` are those that `predict` gives; with ``solver="adam"`` they are those of the
    loop's last pass, where warps have had more steps.

    Parameters
    ----------
    n_clusters : K
    prior : 'learned' (default) or 'fixed': whether penalty and error model are learned, see below
    n_modes : appearance modes of a cluster, fewer for few images
    tying : of the variances along these modes: 0 lets each cluster have its own, 1 gives all the
        same. Without it a flexible cluster eats its neighbours
    landmarks : g for a uniform g × g grid, or points (L, 2) in pixels, (row, column)
    init : 'k-means++' (warp distance), 'k-means++ pixels' (scikit-learn's, as in the paper),
        array of centroids (K, H, W[, C]), or callable (X, n_clusters, seed) -> such an array of
        the size of X, which are the images that are matched (see ``smoothing``).
        Only 'k-means++' is followed by the search
    n_init : searches, or runs where ``init`` gives the start, of which that of lowest objective is
        kept; 'auto' = 2 searches, or one run
    n_swaps : swaps tried in each search, and with a learned prior once more; 'auto' = 2 K
    max_iter : Lloyd passes
    tol : the loop stops when the centroids' squared shift is below tol × mean variance of a pixel
        (of a pixel and channel for colour: scikit-learn's rule)
    solver : 'gauss-newton', or 'adam': the published optimiser (see :meth:`paper`)
    bending, displacement : weights of the penalty, free of units
    smoothing : low-pass of the images for matching, sd in units of the frame's side. Where it is
        four pixels and more, means of 2 × 2 pixels and more are matched: `stkm.resolution`. Warps,
        centroids and modes are those of the whole frame
    coarse : low-pass of the affine fit that starts every alignment, same units; 0 = none
    learning_rate, adam_steps : of 'adam': step in units of [-1, 1], steps a pass
    n_candidates : nearest centroids to which an image is fitted in most passes
    search_size : images that the search looks at
    image_shape : (H, W) or (H, W, C) when images come flat
    batch_size : images aligned at a time; one length, so one compiled program
    keep : what a fit keeps of every image between passes: 'all' = the image and its warps to all
        centroids; 'nearest' = the label, and the warps to the ``n_candidates`` nearest centroids in
        half precision, 4 L bytes each; 'nothing' = the label, and warps are computed anew in each
        pass. With the last two images are read in blocks: a part of them, up to 8 000, is fitted
        in memory, then passes go over all (`stkm.passes`)
    memory_limit : MiB for a block of images at work in `predict`, `transform` and the labelling
        of a fit; None = scikit-learn's ``working_memory`` (1024). Decides no result where ``keep``
        is 'all'; otherwise it bounds what is at work in a fit, too, and with it the part
    devices : over which every batch is split: None = the first (of several processes, all), 'all',
        how many, a `jax.sharding.Mesh` or jax devices; ``batch_size`` is that of one device.
        Decides no result on devices of one kind; 'adam' takes one
    random_state : int, RandomState or None
    verbose : 0; 1 prints a line a pass; a callable gets each entry of the history as it comes

    Attributes
    ----------
    cluster_centers_ : (K, H, W[, C]) low-passed as ``smoothing`` says, in the images' own scale
    labels_ : (N,) int32; inertia_ : objective (Eq. 2)
    n_iter_ : Lloyd passes; history_ : one dict a step, with stage and objective, and the share of
        the images where a step of many has seen a part of them
    prior_ : `stkm.prior.Prior`, or None with ``prior="fixed"``; deformation_modes_ and
        appearance_modes_ are its modes
    n_used_ : clusters with at least one image

    Raises
    ------
    ValueError : bad images or parameters, before anything is compiled

    Warns
    -----
    ConvergenceWarning : one cluster has more than three times the mean size, or there are fewer
        distinct images than clusters

    References
    ----------
    Cosentino et al. 2022, arXiv 2202.07829 (first 2012.09743): Eq. 2 to 4, and the appendix
    "Thin-Plate-Spline Interpolation"; penalty, Gauss–Newton, search and the learned prior are not
    in it. Arthur, Vassilvitskii 2007 (k-means++).
    Bookstein 1989 (thin-plate splines). Grenander 1993, General Pattern Theory; Allassonnière,
    Amit, Trouvé 2007 (deformable templates); Tipping, Bishop 1999 (probabilistic PCA); Cootes,
    Edwards, Taylor 1998 (active appearance models).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import STKMeans
    >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
    >>> X[:30, 2:6, 3] = 1  # upright bars
    >>> X[30:, 3, 2:6] = 1  # lying bars
    >>> km = STKMeans(n_clusters=2, landmarks=3, random_state=0).fit(X)
    >>> sorted(np.bincount(km.labels_).tolist()), km.cluster_centers_.shape
    ([30, 30], (2, 8, 8))
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        landmarks: int | ArrayLike = 6,
        init: Init = "k-means++",
        n_init: int | str = "auto",
        n_swaps: int | str = "auto",
        max_iter: int = 20,
        tol: float = 0.25,
        solver: str = "gauss-newton",
        bending: float = 2e-3,
        displacement: float = 17.0,
        smoothing: float = 0.025,
        coarse: float = 0.07,
        learning_rate: float = 1e-2,
        adam_steps: int = 5,
        prior: str = "learned",
        n_modes: int = 8,
        tying: float = 0.5,
        n_candidates: int = 3,
        search_size: int = 1500,
        image_shape: tuple[int, ...] | None = None,
        batch_size: int = 64,
        keep: str = "all",
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
        self.tol = tol
        self.solver = solver
        self.bending = bending
        self.displacement = displacement
        self.smoothing = smoothing
        self.coarse = coarse
        self.learning_rate = learning_rate
        self.adam_steps = adam_steps
        self.prior = prior
        self.n_modes = n_modes
        self.tying = tying
        self.n_candidates = n_candidates
        self.search_size = search_size
        self.image_shape = image_shape
        self.batch_size = batch_size
        self.keep = keep
        self.memory_limit = memory_limit
        self.devices = devices
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(
        cls,
        n_clusters: int = 8,
        *,
        landmarks: int | ArrayLike = 6,
        learning_rate: float = 1e-2,
        epochs: int = 150,
        **params: Any,
    ) -> Self:
        """Eq. 3 as published: no penalty, Adam, k-means++ on pixels, affine stage first.

        Parameters
        ----------
        n_clusters, landmarks : as of the class
        learning_rate : Adam's step in units of [-1, 1] (the paper searches 1e-4 … 5e-2)
        epochs : Adam steps of every pair; centroids are updated after every ``adam_steps`` (5)
        params : any other parameter of the class, by keyword

        Returns
        -------
        an estimator, not fitted

        Raises
        ------
        ValueError : ``epochs`` below 1; all others when it is fitted

        References
        ----------
        Eq. 2 to 4 of the paper (arXiv 2202.07829). It gives no number for the share of the affine
        stage nor for its low-pass; here a third of the epochs, at the low-pass ``coarse``.

        Examples
        --------
        >>> from stkm import STKMeans
        >>> km = STKMeans.paper(10, epochs=100)
        >>> km.solver, km.max_iter * km.adam_steps, km.bending, km.prior
        ('adam', 100, 0.0, 'fixed')
        """
        check_int("epochs", epochs, 1)
        steps = params.get("adam_steps", 5)
        published = {
            "solver": "adam",
            "init": "k-means++ pixels",
            "bending": 0.0,
            "displacement": 0.0,
            "smoothing": 0.0,
            "n_swaps": 0,
            "tol": 0.0,
            "adam_steps": steps,
            "prior": "fixed",
            "n_candidates": n_clusters,
            "max_iter": max(1, epochs // max(1, steps)),
        }
        return cls(
            n_clusters, landmarks=landmarks, learning_rate=learning_rate, **{**published, **params}
        )

    def _make_warp(self, shape):
        return Warp.tps(shape, self.landmarks)

    def _check_parameters(self, images, weights):
        super()._check_parameters(images, weights)
        check_option("solver", self.solver, ("gauss-newton", "adam"))
        check_int("adam_steps", self.adam_steps, 1)
        self._check_learning()
        if self.prior == "learned" and self.solver == "adam":
            raise ValueError(
                "prior='learned' needs solver='gauss-newton'; 'adam' has prior='fixed'"
            )
        if self.solver == "adam" and self.keep != "all":
            raise ValueError(f"keep={self.keep!r}: solver='adam' keeps all of every image")
        if self.solver == "adam" and self.devices not in (None, 1):
            raise ValueError(f"devices={self.devices!r}: solver='adam' runs on one device")
        if not check_real("learning_rate", self.learning_rate) > 0:
            raise ValueError("learning_rate=0: expected more than 0")


class AffineKMeans(_WarpKMeans):
    """AI K-means: K-means up to affine maps, the same loop as `STKMeans` with another basis.

    Minimises Eq. 2 over affine maps; the published method has no penalty, ``displacement`` is
    small here and keeps the maps in frame. Parameters, units and attributes are those of
    `STKMeans`, without landmarks, bending, solver and a learned prior: ``prior_`` is None, and
    `transform` gives penalised squared errors.

    Parameters
    ----------
    n_clusters : K
    displacement : weight of the penalty, free of units
    init, n_init, n_swaps, max_iter, tol, smoothing, coarse, n_candidates, search_size, image_shape,
    batch_size, keep, memory_limit, devices, random_state, verbose : as in `STKMeans`

    Attributes
    ----------
    cluster_centers_ : (K, H, W[, C]), in the images' own scale
    labels_ : (N,) int32; inertia_ : objective (Eq. 2)
    n_iter_, history_, n_used_ : as of `STKMeans`

    Raises
    ------
    ValueError : bad images or parameters, before anything is compiled

    References
    ----------
    AI K-means of Table 1 of the paper (arXiv 2202.07829): Eq. 2 to 4 with affine maps for T.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import AffineKMeans
    >>> X = np.zeros((6, 8, 8), np.float32)
    >>> X[:3, 1:7, 3] = 1  # bars
    >>> X[3:, 2:6, 2:6] = 1  # blocks
    >>> km = AffineKMeans(2, init=X[[0, 3]], max_iter=2).fit(X)
    >>> km.labels_.tolist(), km.transform(X).shape
    ([0, 0, 0, 1, 1, 1], (6, 2))
    """

    solver = "gauss-newton"
    bending = 0.0

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Init = "k-means++",
        n_init: int | str = "auto",
        n_swaps: int | str = "auto",
        max_iter: int = 20,
        tol: float = 0.25,
        displacement: float = 1.0,
        smoothing: float = 0.025,
        coarse: float = 0.07,
        n_candidates: int = 3,
        search_size: int = 1500,
        image_shape: tuple[int, ...] | None = None,
        batch_size: int = 64,
        keep: str = "all",
        memory_limit: float | None = None,
        devices: int | str | Sequence[Any] | Mesh | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.n_swaps = n_swaps
        self.max_iter = max_iter
        self.tol = tol
        self.displacement = displacement
        self.smoothing = smoothing
        self.coarse = coarse
        self.n_candidates = n_candidates
        self.search_size = search_size
        self.image_shape = image_shape
        self.batch_size = batch_size
        self.keep = keep
        self.memory_limit = memory_limit
        self.devices = devices
        self.random_state = random_state
        self.verbose = verbose

    def _params(self):
        return {**super()._params(), "bending": 0.0, "solver": "gauss-newton"}

    def _make_warp(self, shape):
        return Warp.affine(shape)
