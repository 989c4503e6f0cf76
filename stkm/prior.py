"""What the data teach about warps and errors: a Gaussian model of both in each cluster.

Every image is a deformed template plus an error (Grenander; Allassonnière, Amit, Trouvé 2007). In
cluster k, with displacements d of the landmarks and r = T(x, d) − μ_k,

    d ~ N(0, Γ_k),     r ~ N(0, Ψ_k),  Ψ_k = W_kᵀ W_k + σ² I,     P(k) = π_k.

Γ_k says how the images of a cluster bend; the q rows of W_k, its appearance modes, what else
varies, such as the width of a stroke (probabilistic PCA, Tipping and Bishop 1999; with the warp an
active appearance model, Cootes, Edwards, Taylor 1998). The distance is minus the log-likelihood,
d integrated out by Laplace's method:

    −log p(x, k) = κ/2 (rᵀ Ψ_k⁻¹ r + log|2πΨ_k|) + ½ dᵀ Γ_k⁻¹ d + c − log π_k    at the best d,
    c = Σ_k π_k ½ log|I + Γ_k J_kᵀ κΨ_k⁻¹ J_k|,

with J_k from the gradient of the centroid. κ is the number of independent errors for each pixel,
since neighbouring pixels err together: (Σ λ)² / Σ λ² of what the first q principal components of
*all* images leave over. So it is the same whatever the clusters are, and objectives compare between
runs. c is what flexibility costs; it is tied, one number for all
clusters, since its differences say how much edge a centroid has rather than how likely an image is
(untied, centroids with little edge, such as a bare stroke, take images from the others).

Small clusters borrow from all: Γ_k is shrunk towards the pooled covariance as by `PSEUDO` images
more (an inverse Wishart prior, in which the pooled one is shrunk to that of the fixed penalty); σ²
is one for all clusters; the variances along the modes are between the cluster's own and the mean
over clusters (halfway: ``tying``), the directions its own. The mean of d is zero: a centroid cannot
drift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky, eigh

__all__ = ["Members", "Moments", "Prior", "independent_errors", "learn", "learn_from"]

PSEUDO = 200.0  # images that the pooled covariance of displacements counts for in each cluster
TEACHERS = 3000  # images of a cluster, at most, that teach its appearance modes
IMAGES_PER_MODE = 10  # a cluster needs so many, on average, for each appearance mode
TINY = 1e-12  # least of what is divided by, for images whose variance is of the order of 1
ROUNDING = 1e-8  # and for darker ones so much of the variance: no unit of intensity decides


def _least(unit):
    """The least positive value of what is in units of ``unit``: `TINY`, or less for a small one."""
    return min(TINY, ROUNDING * unit) or TINY


@dataclass(frozen=True)
class Members:
    """Images of one cluster, warped onto its centroid.

    residuals : (n, H·W·C); displacements : (n, 2L); weights : (n,); normal : JᵀAJ (2L, 2L) of the
    centroid and penalty : Q (2L, 2L), with which they were warped
    """

    residuals: np.ndarray
    displacements: np.ndarray
    weights: np.ndarray
    normal: np.ndarray
    penalty: np.ndarray


@dataclass
class Moments:
    """Sums over the images of one cluster, which `learn_from` needs; for data that come in parts.

    count, weight : images and their weights; second : Σ w d dᵀ (2L, 2L); trace : Σ w rᵀr
    rows : (s, H·W·C) with rowsᵀ rows ≈ Σ w r rᵀ: the leading components only, as in incremental
        PCA (Levy, Lindenbaum 2000), so that memory does not grow with the images
    """

    count: int
    weight: float
    second: np.ndarray
    trace: float
    rows: np.ndarray

    @classmethod
    def empty(cls, ndim, n_values):
        """Of no image: ``ndim`` = 2L displacements, ``n_values`` = H·W·C."""
        return cls(0, 0.0, np.zeros((ndim, ndim)), 0.0, np.zeros((0, n_values)))

    def add(self, residuals, displacements, weights, n_rows):
        """Take in images as `Members` has them; at most ``n_rows`` components are kept."""
        root = np.sqrt(weights)[:, None]
        new, d = root * residuals.astype(np.float64), root * displacements.astype(np.float64)
        self.count += len(weights)
        self.weight += float(weights.sum())
        self.second = self.second + d.T @ d
        self.trace += float((new**2).sum())
        self.rows = np.concatenate([self.rows, new])
        if len(self.rows) > n_rows:
            _, values, vectors = np.linalg.svd(self.rows, full_matrices=False)
            self.rows = values[:n_rows, None] * vectors[:n_rows]

    def about_mean(self, mean):
        """The same sums for r − mean, of the weighted mean of all r ``(H·W·C,)``."""
        # rowsᵀ rows − W m mᵀ: eigenvectors lie in the span of rows and m
        tall = np.concatenate([self.rows, np.sqrt(self.weight) * mean[None]])
        q, r = np.linalg.qr(tall.T)
        sign = np.ones(len(tall))
        sign[-1] = -1.0
        values, vectors = np.linalg.eigh((r * sign) @ r.T)
        order = np.argsort(-values)[: len(self.rows)]
        rows = np.sqrt(np.maximum(values[order], 0))[:, None] * (q @ vectors[:, order]).T
        trace = max(self.trace - self.weight * float(mean @ mean), 0.0)
        return replace(self, trace=trace, rows=rows)

    def modes(self, q):
        """The q leading principal components of the residuals, about zero."""
        found = _appearance(self.rows, np.full(len(self.rows), 1.0), q, len(self.rows))
        scale = len(self.rows) / self.weight
        return _Modes(found.directions, found.variances * scale, self.trace / self.weight, 0.0)


@dataclass(frozen=True)
class Prior:
    """The models of K clusters, ``prior_`` of a fit; displacements ``(2L,)`` in pixels, rows first.

    All of the frame and of the low-passed images that are matched; intensities in their scale.

    Attributes
    ----------
    covariance : (K, 2L, 2L) = Γ_k, squared pixels
    loadings : (K, q, H·W·C) = W_k, intensities
    noise : σ², squared intensity, above 0
    weights : (K,) = π_k, in [0, 1], their sum is 1
    kappa : κ, independent errors for each pixel, in (0, 1]
    flexibility : c, not negative, without unit

    Raises
    ------
    ValueError : by :func:`learn`, which makes it

    References
    ----------
    Allassonnière, Amit, Trouvé 2007; Tipping, Bishop 1999; the module's docstring has the
    equations. Not in the paper (arXiv 2202.07829).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import STKMeans
    >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
    >>> X[:30, 2:6, 3] = 1  # upright bars
    >>> X[30:, 3, 2:6] = 1  # lying bars
    >>> prior = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X).prior_
    >>> prior.covariance.shape, prior.loadings.shape, prior.weights.shape
    ((2, 18, 18), (2, 2, 64), (2,))
    """

    covariance: np.ndarray
    loadings: np.ndarray
    noise: float
    weights: np.ndarray
    kappa: float
    flexibility: float

    @property
    def scale(self):
        """s = σ²/κ: what the solver minimises is 2s times the terms that depend on d.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> prior = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X).prior_
        >>> prior.scale == prior.noise / prior.kappa
        True
        """
        return self.noise / self.kappa

    def penalty(self, k):
        """Q ``(2L, 2L)`` of cluster k for the solver, squared intensity by squared pixel.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> prior = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X).prior_
        >>> prior.penalty(0).shape
        (18, 18)
        """
        return self.scale * np.linalg.inv(self.covariance[k])

    def modes(self, k, index, channels):
        """V ``(m, C, q)`` of cluster k at the pixels ``index``: there I − V Vᵀ = σ² Ψ⁻¹.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> prior = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X).prior_
        >>> prior.modes(0, np.arange(64), channels=1).shape
        (64, 1, 2)
        """
        q = self.loadings.shape[1]
        if not q:
            return np.zeros((len(index), channels, 0))
        w = self.loadings[k].reshape(q, -1, channels)[:, index].reshape(q, -1)
        root = cholesky(np.linalg.inv(self.noise * np.eye(q) + w @ w.T), lower=True)
        return (w.T @ root).reshape(len(index), channels, q)

    def offset(self, k):
        """The part of the distance to cluster k that no image changes, without unit.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((60, 8, 8))
        >>> X[:30, 2:6, 3] = 1  # upright bars
        >>> X[30:, 3, 2:6] = 1  # lying bars
        >>> prior = STKMeans(2, landmarks=3, init=X[[0, 30]], max_iter=2, n_swaps=0).fit(X).prior_
        >>> bool(np.isfinite(prior.offset(0)))
        True
        """
        q, n = self.loadings.shape[1:]
        signal = np.eye(q) + self.loadings[k] @ self.loadings[k].T / self.noise
        log_psi = n * np.log(2 * np.pi * self.noise) + np.linalg.slogdet(signal)[1]
        return self.kappa / 2 * log_psi + self.flexibility - np.log(self.weights[k])


def independent_errors(images, weights, n_modes, n_clusters):
    """κ of images ``(N, H, W, C)``: between 1 / (H·W·C) and 1."""
    index = np.flatnonzero(weights > 0)
    n = int(np.prod(images.shape[1:]))
    q = _n_appearance(n_modes, len(index), n_clusters, n)
    index = index[:: -(-len(index) // TEACHERS)]
    x, w = images[index].reshape(len(index), -1), weights[index]
    left = _appearance(x - np.average(x, axis=0, weights=w), w, q)
    rest, squares = left.trace - left.variances.sum(), left.squared_norm
    squares = squares - (left.variances**2).sum()
    squares = max(squares, _least(left.squared_norm))
    return float(np.clip(rest**2 / squares, 1.0, n)) / n


def learn(members, base, n_modes, kappa, tying=0.5):
    """Prior from the members of each cluster, None for one that has none.

    Parameters
    ----------
    members : list of K `Members` or None
    base : (2L, 2L), covariance of d under the fixed penalty where the scale s is 1
    n_modes : appearance modes q, fewer where there are too few images
    kappa : independent errors for each pixel
    tying : of the variances along the appearance modes: 0 each cluster's own, 1 one for all
    """
    own = [m for m in members if m is not None]
    total, n = sum(len(m.weights) for m in own), own[0].residuals.shape[1]
    q = _n_appearance(n_modes, total, len(members), n)
    summed = [
        None
        if m is None
        else _Sums(
            m.weights.sum(),
            _appearance(m.residuals, m.weights, q),
            _weighted_square(m.displacements, m.weights),
            m.normal,
            m.penalty,
        )
        for m in members
    ]
    return _combine(summed, base, kappa, tying)


def learn_from(moments, hessians, base, n_modes, kappa, tying=0.5):
    """As `learn`, from the `Moments` of each cluster, None for one that has none.

    ``hessians`` are K pairs (normal, penalty), as `Members` has them.
    """
    own = [m for m in moments if m is not None]
    total, n = sum(m.count for m in own), own[0].rows.shape[1]
    q = _n_appearance(n_modes, total, len(moments), n)
    summed = [
        None if m is None else _Sums(m.weight, m.modes(q), m.second, *pair)
        for m, pair in zip(moments, hessians, strict=True)
    ]
    return _combine(summed, base, kappa, tying)


@dataclass(frozen=True)
class _Sums:
    """A cluster's weight, appearance, Σ w d dᵀ, JᵀAJ and Q."""

    weight: float
    modes: _Modes
    second: np.ndarray
    normal: np.ndarray
    penalty: np.ndarray

    def spread(self, scale):
        """Σ w (d dᵀ + posterior covariance of d), the latter by Laplace's method."""
        posterior = scale * np.linalg.inv(self.normal + self.penalty)
        return self.second + self.weight * posterior


def _combine(summed, base, kappa, tying):
    """Prior of all clusters from the sums of each."""
    used = [k for k, m in enumerate(summed) if m is not None]
    own = [summed[k] for k in used]
    sizes = np.array([m.weight for m in own], np.float64)
    share = sizes / sizes.sum()
    found = [m.modes for m in own]
    q, n = found[0].directions.shape
    spectrum = np.stack([f.variances for f in found])
    left = share @ [f.trace for f in found] - share @ spectrum.sum(1)
    # the fixed penalty, whose inverse base is, is in units of the images' variance
    noise = max(float(left) / (n - q), _least(len(base) / np.trace(base)))
    values = (1 - tying) * spectrum + tying * (share @ spectrum)
    loadings = np.zeros((len(summed), q, n))
    for k, f, v in zip(used, found, values, strict=True):
        loadings[k] = np.sqrt(np.maximum(v - noise, 0))[:, None] * f.directions
    scale = noise / kappa
    spread = [m.spread(scale) for m in own]
    ndim = len(base)
    pooled = (sum(spread) + ndim * scale * base) / (sizes.sum() + ndim)
    covariance = np.repeat(pooled[None], len(summed), 0)
    for k, s, size in zip(used, spread, sizes, strict=True):
        covariance[k] = (s + PSEUDO * pooled) / (size + PSEUDO)
    weights = np.ones(len(summed))
    weights[used] += sizes
    flexibility = sum(
        p * np.linalg.slogdet(np.eye(ndim) + covariance[k] @ m.normal / scale)[1] / 2
        for k, m, p in zip(used, own, share, strict=True)
    )
    return Prior(covariance, loadings, noise, weights / weights.sum(), kappa, float(flexibility))


def _n_appearance(n_modes, n_images, n_clusters, n_values):
    """Appearance modes that so many images can teach each cluster."""
    return min(n_modes, n_images // (IMAGES_PER_MODE * n_clusters), n_values - 1)


@dataclass(frozen=True)
class _Modes:
    """Leading directions (q, n), variances (q,), trace and squared norm of a covariance."""

    directions: np.ndarray
    variances: np.ndarray
    trace: float
    squared_norm: float


def _appearance(residuals, weights, q, at_most=TEACHERS):
    """Principal components of residuals ``(n, H·W·C)``, about zero, from ``at_most`` of them."""
    step = slice(None, None, -(-len(weights) // max(at_most, 1)))
    w = weights[step]
    x = residuals[step] * np.sqrt(w / w.sum())[:, None]
    wide = len(x) < x.shape[1]
    gram = (x @ x.T if wide else x.T @ x).astype(np.float64)
    found = min(q, len(gram))
    variances, directions = np.zeros(q), np.zeros((q, x.shape[1]))
    if found:
        values, vectors = eigh(gram, subset_by_index=(len(gram) - found, len(gram) - 1))
        values, vectors = np.maximum(values[::-1], 0), vectors.T[::-1]
        variances[:found] = values
        directions[:found] = (
            vectors @ x / np.sqrt(np.maximum(values, _least(np.trace(gram))))[:, None]
            if wide
            else vectors
        )
    return _Modes(directions, variances, float(np.trace(gram)), float((gram**2).sum()))


def _weighted_square(displacements, weights):
    """Σ w d dᵀ ``(2L, 2L)``, float64."""
    d = displacements.astype(np.float64)
    return (d * weights[:, None]).T @ d
