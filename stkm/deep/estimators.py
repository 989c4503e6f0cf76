"""Clustering in the code of an autoencoder: AE + K-means, DEC and VaDE.

All three start from an `Autoencoder`, fitted here or given, and keep the contract of the other
estimators of the package. They see no labels; the loss that each minimises is ``inertia_``, by
which runs are ranked.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import rel_entr, softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..validation import check_images, check_int, check_option, check_real, warn
from .autoencoder import PATIENCE, Autoencoder
from .networks import (
    ARCHITECTURES,
    BATCH,
    CODE,
    Dense,
    Network,
    codes_of,
    decode,
    encode,
    images_of,
    run,
)
from .training import Logged, Trainer, adam, epoch_batches, hold_out, sgd

__all__ = ["DEC", "AEKMeans", "VaDE", "elbo_terms", "soft_assignment", "target_distribution"]

N_INIT = 20  # starts of K-means in the code, as Xie et al. do
STARTS = 5  # of the Gaussian mixture, which takes longer
LEAST_VARIANCE = 1e-3  # of a component in VaDE's beginning; the codes have variance 1
NOISE = 0.1  # variance of a code in VaDE's beginning, as a share of its component's


class _DeepKMeans(Logged, ClusterMixin, BaseEstimator):
    """What the three methods share: checks, the autoencoder, the log, the guard."""

    def fit(self, X, y=None):
        """Train on images (N, H, W), (N, H, W, C) or, with ``image_shape``, (N, H*W*C)."""
        images, self._grey = check_images(X, self.image_shape)
        self._check_parameters(len(images))
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        self.history_ = []
        if self.autoencoder is None:
            start = Autoencoder(
                self.architecture,
                n_code=self.n_code,
                layer_epochs=self.layer_epochs,
                epochs=self.pretrain_epochs,
                learning_rate=self.pretrain_learning_rate,
                batch_size=self.batch_size,
                image_shape=self.image_shape,
                random_state=int(rng.integers(2**31 - 1)),
                verbose=self.verbose,
            ).fit(X)
        else:
            start = self.autoencoder
            check_is_fitted(start, "network_")
        self.autoencoder_ = start
        self.history_ += start.history_
        self.diverged_ = start.diverged_
        self._cluster(start.check(X), rng)
        self.n_features_in_ = int(np.prod(images.shape[1:]))
        self.n_used_ = len(np.unique(self.labels_))
        if self.n_used_ < self.n_clusters:
            warn(
                f"{self.n_clusters - self.n_used_} of {self.n_clusters} clusters have no image: "
                "the training has collapsed; try another random_state or a smaller learning_rate",
                ConvergenceWarning,
            )
        return self

    def predict(self, X):
        """Index of the cluster of each image, ``(N,)`` int32."""
        return self._scores(X).argmax(1).astype(np.int32)

    def encode(self, X):
        """Codes ``(N, n_code)`` float32 of images: their means, for VaDE."""
        check_is_fitted(self, "cluster_centers_")
        return codes_of(self.network_, self.state_, self.autoencoder_.check(X))

    def _scores(self, X):
        """``(N, K)``, highest for the own cluster."""
        raise NotImplementedError

    def _cluster(self, scaled, rng):
        """Set what a fit sets, from images in [0, 1]."""
        raise NotImplementedError

    def _check_parameters(self, n):
        check_int("n_clusters", self.n_clusters, 1)
        check_option("architecture", self.architecture, ARCHITECTURES)
        check_int("n_code", self.n_code, 1)
        check_int("layer_epochs", self.layer_epochs, 0)
        check_int("pretrain_epochs", self.pretrain_epochs, 0)
        check_int("batch_size", self.batch_size, 2)
        for name in ("pretrain_learning_rate", "learning_rate"):
            if not check_real(name, getattr(self, name, 1.0)) > 0:
                raise ValueError(f"{name}=0: expected more than 0")
        if n < self.n_clusters:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}")
        if self.autoencoder is not None and not isinstance(self.autoencoder, Autoencoder):
            raise ValueError(
                f"autoencoder={self.autoencoder!r}: expected a fitted stkm.deep.Autoencoder or None"
            )

    def _draw(self, codes):
        """Centroids as images in the scale of the fitted ones: the decoded ``codes``."""
        images = images_of(self.network_, self.state_, np.asarray(codes, np.float32))
        self.cluster_centers_ = self.autoencoder_.unscale(images)


def _k_means(codes, n_clusters, rng):
    return KMeans(n_clusters, n_init=N_INIT, random_state=int(rng.integers(2**31 - 1))).fit(codes)


class AEKMeans(_DeepKMeans):
    """K-means of an autoencoder's codes.

    Parameters
    ----------
    n_clusters : K
    architecture : 'mlp' or 'conv', see `Autoencoder`
    n_code : length of the code
    layer_epochs, pretrain_epochs, pretrain_learning_rate : of the `Autoencoder`
    batch_size : images a step
    autoencoder : a fitted `Autoencoder` to start from; None fits one
    image_shape : (H, W) or (H, W, C) when images come flat
    random_state : int, RandomState or None
    verbose : 1 prints a line an epoch

    Attributes
    ----------
    labels_ : (N,) int32
    inertia_ : K-means' objective as a share of the codes' variance around their mean: the scale of
        a code is arbitrary, so that only shares compare between runs
    cluster_centers_ : (K, H, W[, C]), the decoded centroids, in the images' own scale
    n_iter_ : passes of K-means; history_ : one dict an epoch; n_used_ : clusters with an image
    diverged_ : whether a loss was not finite

    Raises
    ------
    ValueError : bad images or parameters, before anything is compiled
    """

    def __init__(
        self,
        n_clusters=8,
        *,
        architecture="mlp",
        n_code=CODE,
        layer_epochs=15,
        pretrain_epochs=50,
        pretrain_learning_rate=1e-3,
        batch_size=64,
        autoencoder=None,
        image_shape=None,
        random_state=None,
        verbose=0,
    ):
        self.n_clusters = n_clusters
        self.architecture = architecture
        self.n_code = n_code
        self.layer_epochs = layer_epochs
        self.pretrain_epochs = pretrain_epochs
        self.pretrain_learning_rate = pretrain_learning_rate
        self.batch_size = batch_size
        self.autoencoder = autoencoder
        self.image_shape = image_shape
        self.random_state = random_state
        self.verbose = verbose

    def _cluster(self, scaled, rng):
        self.network_, self.state_ = self.autoencoder_.network_, self.autoencoder_.state_
        codes = codes_of(self.network_, self.state_, scaled)
        self.kmeans_ = _k_means(codes, self.n_clusters, rng)
        self.labels_, self.n_iter_ = self.kmeans_.labels_.astype(np.int32), self.kmeans_.n_iter_
        total = float(((codes - codes.mean(0)) ** 2).sum(dtype=np.float64))
        self.inertia_ = float(self.kmeans_.inertia_) / total if total > 0 else 0.0
        self._draw(self.kmeans_.cluster_centers_)

    def _scores(self, X):
        return -self.kmeans_.transform(self.encode(X))


# ------------------------------------------------------------------------ DEC


def soft_assignment(codes, centers):
    """q ``(N, K)``: Student's t with one degree of freedom around the centroids (DEC, Eq. 1)."""
    far = ((codes[:, None] - centers) ** 2).sum(-1)
    q = 1 / (1 + far)
    return q / q.sum(1, keepdims=True)


def target_distribution(q):
    """p ``(N, K)`` ∝ q² / Σ_n q: sharper, and no cluster outweighs the others (DEC, Eq. 3)."""
    p = q**2 / q.sum(0)
    return p / p.sum(1, keepdims=True)


class _Centred(eqx.Module):
    """DEC's network: the encoder and centroids of the codes ``(K, n_code)``."""

    encoder: Network
    centers: jax.Array


def _divergence(model, state, rows, key):
    """KL(P‖Q) of a batch, the mean over its images (DEC, Eq. 2)."""
    del key
    images, p = rows
    codes, _ = encode(eqx.nn.inference_mode(model.encoder), images, state)
    q = soft_assignment(codes, model.centers)
    tiny = jnp.finfo(q.dtype).tiny
    return (p * (jnp.log(p + tiny) - jnp.log(q + tiny))).sum(1).mean(), state


class DEC(_DeepKMeans):
    """Deep embedded clustering (Xie, Girshick, Farhadi 2016).

    Encoder and centroids minimise KL(P‖Q), Q the soft assignment by Student's t and P its target
    (`target_distribution`), by SGD with momentum. P is renewed every ``update_interval`` steps;
    training ends when fewer than ``tol`` of the labels change between two renewals. Batch
    normalisation uses the moments of the pre-training throughout: P comes from them.

    Parameters are those of `AEKMeans`, and:

    Parameters
    ----------
    learning_rate, momentum : of SGD
    update_interval : steps between two renewals of P
    max_updates : renewals at most
    tol : share of changed labels below which the training ends

    Attributes
    ----------
    labels_ : (N,) int32
    inertia_ : KL(P‖Q) of the fitted images, the mean over them
    cluster_centers_ : (K, H, W[, C]): the centroids' codes decoded by the autoencoder that the
        training began with, in the images' own scale; the encoder has moved on, so they are hints
    n_iter_ : renewals of P; history_ : one dict an epoch, and one a renewal with the share of
        labels that ``changed``; n_used_ : clusters with an image
    diverged_ : whether a loss was not finite

    Raises
    ------
    ValueError : bad images or parameters, before anything is compiled

    References
    ----------
    Xie, Girshick, Farhadi 2016: Unsupervised Deep Embedding for Clustering Analysis, ICML.
    """

    def __init__(
        self,
        n_clusters=8,
        *,
        architecture="mlp",
        n_code=CODE,
        layer_epochs=15,
        pretrain_epochs=50,
        pretrain_learning_rate=1e-3,
        learning_rate=1e-2,
        momentum=0.9,
        update_interval=140,
        max_updates=100,
        tol=1e-3,
        batch_size=64,
        autoencoder=None,
        image_shape=None,
        random_state=None,
        verbose=0,
    ):
        self.n_clusters = n_clusters
        self.architecture = architecture
        self.n_code = n_code
        self.layer_epochs = layer_epochs
        self.pretrain_epochs = pretrain_epochs
        self.pretrain_learning_rate = pretrain_learning_rate
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.update_interval = update_interval
        self.max_updates = max_updates
        self.tol = tol
        self.batch_size = batch_size
        self.autoencoder = autoencoder
        self.image_shape = image_shape
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self, n):
        super()._check_parameters(n)
        check_int("update_interval", self.update_interval, 1)
        check_int("max_updates", self.max_updates, 1)
        check_real("tol", self.tol)
        if not check_real("momentum", self.momentum) < 1:
            raise ValueError(f"momentum={self.momentum!r}: expected a number from 0 to below 1")

    def _cluster(self, scaled, rng):
        start = self.autoencoder_
        codes = codes_of(start.network_, start.state_, scaled)
        centers = _k_means(codes, self.n_clusters, rng).cluster_centers_
        model = _Centred(start.network_, jnp.asarray(centers, jnp.float32))
        optimiser = sgd(self.learning_rate, self.momentum)
        trainer = Trainer(model, start.state_, _divergence, optimiser, rng, "DEC", self._report)
        feed = _endless(len(scaled), self.batch_size, rng)
        labels = None
        for number in range(1, self.max_updates + 1):
            self.n_iter_ = number
            q = self._q(trainer.model, trainer.state, scaled)
            before, labels = labels, q.argmax(1)
            changed = 1.0 if before is None else float(np.mean(before != labels))
            if changed < self.tol:
                break
            p = np.asarray(target_distribution(q), np.float32)
            index = [next(feed) for _ in range(self.update_interval)]
            if not trainer.run((scaled, p), index, changed=changed):
                break
        self.model_, self.state_ = trainer.model, trainer.state
        self.network_ = trainer.model.encoder
        self.diverged_ |= trainer.diverged
        q = self._q(self.model_, self.state_, scaled)
        self.labels_ = q.argmax(1).astype(np.int32)
        self.inertia_ = float(rel_entr(target_distribution(q), q).sum(1).mean())
        self._draw(self.model_.centers)

    @staticmethod
    def _q(model, state, scaled):
        codes = codes_of(model.encoder, state, scaled).astype(np.float64)
        return soft_assignment(codes, np.asarray(model.centers, np.float64))

    def predict_proba(self, X):
        """Soft assignment q ``(N, K)`` (Eq. 1)."""
        check_is_fitted(self, "cluster_centers_")
        return self._q(self.model_, self.state_, self.autoencoder_.check(X))

    def _scores(self, X):
        return self.predict_proba(X)


def _endless(n, batch_size, rng):
    """Batches of indices, epoch after epoch."""
    while True:
        yield from epoch_batches(n, batch_size, rng)


# ----------------------------------------------------------------------- VaDE


class Mixture(eqx.Module):
    """A mixture of Gaussians with diagonal covariances over codes.

    log_weights : (K,) up to a constant; means : (K, J); log_variances : (K, J)
    """

    log_weights: jax.Array
    means: jax.Array
    log_variances: jax.Array

    def joint(self, z):
        """log π_c + log N(z; μ_c, σ_c²) ``(N, K)`` of codes ``(N, J)``."""
        far = (z[:, None] - self.means) ** 2 / jnp.exp(self.log_variances)
        density = -(jnp.log(2 * jnp.pi) + self.log_variances + far).sum(2) / 2
        return jax.nn.log_softmax(self.log_weights) + density


def elbo_terms(mixture, mean, log_variance, gamma):
    """The terms of VaDE's bound that are not the reconstruction (Jiang et al. 2017, Eq. 12).

    Parameters
    ----------
    mixture : Mixture of K components
    mean, log_variance : (N, J) of q(z|x)
    gamma : (N, K) q(c|x), rows that sum to one

    Returns
    -------
    code : (N,) E log p(z|c)
    cluster : (N,) E log p(c) − log q(c|x)
    entropy : (N,) −E log q(z|x)
    """
    variance = jnp.exp(log_variance)
    far = variance[:, None] + (mean[:, None] - mixture.means) ** 2
    each = jnp.log(2 * jnp.pi) + mixture.log_variances + far * jnp.exp(-mixture.log_variances)
    code = -(gamma * each.sum(2)).sum(1) / 2
    log_pi = jax.nn.log_softmax(mixture.log_weights)
    # x log x is 0 at 0, and so is its derivative here
    safe = jnp.where(gamma > 0, gamma, 1.0)
    cluster = (gamma * (log_pi - jnp.log(safe))).sum(1)
    entropy = (1 + jnp.log(2 * jnp.pi) + log_variance).sum(1) / 2
    return code, cluster, entropy


def log_bernoulli(images, logits):
    """log p(x|z) ``(N,)`` of images in [0, 1] ``(N, H, W, C)``, Bernoulli pixels."""
    return -optax.sigmoid_binary_cross_entropy(logits, images).sum((1, 2, 3))


class _Variational(eqx.Module):
    """VaDE's network: the autoencoder, a head for log σ̃² beside the code's layer, the mixture."""

    network: Network
    head: Dense
    mixture: Mixture

    def posterior(self, images, state):
        """Mean and log-variance ``(N, J)`` of q(z|x)."""

        def one(image):
            features, _ = self.network.features(image, state)
            mean, _ = run(self.network.encoder[-1:], features, state)
            return mean, self.head(features, state)[0]

        return jax.vmap(one, axis_name=BATCH)(images)


def _negative_elbo(model, state, rows, key):
    """Minus the bound, the mean over a batch; one sample of z for each image."""
    (images,) = rows
    model = eqx.nn.inference_mode(model)
    mean, log_variance = model.posterior(images, state)
    z = mean + jnp.exp(log_variance / 2) * jax.random.normal(key, mean.shape)
    logits, _ = decode(model.network, z, state)
    gamma = jax.nn.softmax(model.mixture.joint(z))
    terms = elbo_terms(model.mixture, mean, log_variance, gamma)
    return -(log_bernoulli(images, logits) + sum(terms)).mean(), state


def _standardised(network, codes):
    """The same autoencoder with codes of mean 0 and mean variance 1, and these codes.

    Pre-training leaves codes of any scale; a mixture that learns in steps of one size needs one.
    """
    middle, sd = codes.mean(0), float(np.sqrt(codes.var(0).mean())) or 1.0
    out, into = network.encoder[-1].linear, network.decoder[0].linear
    network = eqx.tree_at(
        lambda net: (
            net.encoder[-1].linear.weight,
            net.encoder[-1].linear.bias,
            net.decoder[0].linear.weight,
            net.decoder[0].linear.bias,
        ),
        network,
        (
            out.weight / sd,
            (out.bias - jnp.asarray(middle, jnp.float32)) / sd,
            into.weight * sd,
            into.bias + into.weight @ jnp.asarray(middle, jnp.float32),
        ),
    )
    return network, (codes - middle) / sd


class VaDE(_DeepKMeans):
    """Variational deep embedding (Jiang et al. 2017): a variational autoencoder whose prior over
    codes is a mixture of K Gaussians.

    Maximises the evidence bound (`elbo_terms` and `log_bernoulli`) by Adam, whose step falls by
    ``decay`` every ten epochs. The network begins as the pre-trained autoencoder, with codes of
    unit variance (which changes no reconstruction), the mixture as the one that fits them best.
    Batch normalisation uses the moments of the pre-training.

    Parameters are those of `AEKMeans`, and:

    Parameters
    ----------
    epochs : of the training on the bound, at most
    validation : share of the images held out, as for the `Autoencoder`
    learning_rate : Adam's, at the start
    decay : factor of the learning rate after every ten epochs

    Attributes
    ----------
    labels_ : (N,) int32, argmax of γ_c = p(c|z) at the mean code of each image
    inertia_ : minus the bound of the fitted images, the mean over them, in nats
    cluster_centers_ : (K, H, W[, C]) decoded means of the mixture, in the images' own scale
    mixture_ : `Mixture`
    n_iter_ : epochs; history_ : one dict an epoch; n_used_ : clusters with an image
    diverged_ : whether a loss was not finite

    Raises
    ------
    ValueError : bad images or parameters, before anything is compiled

    References
    ----------
    Jiang, Zheng, Tan, Tang, Zhou 2017: Variational Deep Embedding, IJCAI, arXiv 1611.05148.
    """

    def __init__(
        self,
        n_clusters=8,
        *,
        architecture="mlp",
        n_code=CODE,
        layer_epochs=15,
        pretrain_epochs=50,
        pretrain_learning_rate=1e-3,
        epochs=100,
        validation=0.1,
        learning_rate=1e-3,
        decay=0.9,
        batch_size=64,
        autoencoder=None,
        image_shape=None,
        random_state=None,
        verbose=0,
    ):
        self.n_clusters = n_clusters
        self.architecture = architecture
        self.n_code = n_code
        self.layer_epochs = layer_epochs
        self.pretrain_epochs = pretrain_epochs
        self.pretrain_learning_rate = pretrain_learning_rate
        self.epochs = epochs
        self.validation = validation
        self.learning_rate = learning_rate
        self.decay = decay
        self.batch_size = batch_size
        self.autoencoder = autoencoder
        self.image_shape = image_shape
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self, n):
        super()._check_parameters(n)
        check_int("epochs", self.epochs, 0)
        if not check_real("validation", self.validation) < 1:
            raise ValueError(f"validation={self.validation!r}: expected a number from 0 to below 1")
        if not 0 < check_real("decay", self.decay) <= 1:
            raise ValueError(f"decay={self.decay!r}: expected a number above 0, at most 1")

    def _cluster(self, scaled, rng):
        start = self.autoencoder_
        codes = codes_of(start.network_, start.state_, scaled).astype(np.float64)
        network, codes = _standardised(start.network_, codes)
        mixture = self._first_mixture(codes, rng)
        key = jax.random.key(int(rng.integers(2**31 - 1)))
        model = _Variational(network, self._first_head(network, mixture, key), mixture)
        steps = 10 * -(-len(scaled) // min(self.batch_size, len(scaled)))
        optimiser = adam(self.learning_rate, self.decay, steps)
        trainer = Trainer(model, start.state_, _negative_elbo, optimiser, rng, "VaDE", self._report)
        taught, held = hold_out(scaled, self.validation, rng)
        trainer.epochs((taught,), self.epochs, self.batch_size, held, PATIENCE)
        self.model_, self.state_ = trainer.model, trainer.state
        self.network_, self.mixture_ = trainer.model.network, trainer.model.mixture
        self.diverged_ |= trainer.diverged
        self.n_iter_ = sum(e["stage"] == "VaDE" for e in self.history_)
        self.labels_ = self._joint(scaled).argmax(1).astype(np.int32)
        self.inertia_ = trainer.loss((scaled,))
        self._draw(self.mixture_.means)

    def _first_mixture(self, codes, rng):
        found = GaussianMixture(
            self.n_clusters,
            covariance_type="diag",
            n_init=STARTS,
            reg_covar=LEAST_VARIANCE,
            random_state=int(rng.integers(2**31 - 1)),
        ).fit(codes)
        parts = np.log(found.weights_), found.means_, np.log(found.covariances_)
        return Mixture(*(jnp.asarray(p, jnp.float32) for p in parts))

    @staticmethod
    def _first_head(network, mixture, key):
        """A head that gives every code a small share of its component's variance."""
        code = network.encoder[-1].linear
        head = Dense(code.in_features, code.out_features, relu=False, key=key)
        bias = jnp.log(NOISE * jnp.exp(mixture.log_variances).mean(0))
        return eqx.tree_at(
            lambda h: (h.linear.weight, h.linear.bias),
            head,
            (jnp.zeros_like(head.linear.weight), bias),
        )

    def _joint(self, scaled):
        codes = codes_of(self.network_, self.state_, scaled)
        return np.asarray(self.mixture_.joint(jnp.asarray(codes)), np.float64)

    def predict_proba(self, X):
        """Responsibilities γ ``(N, K)`` at the mean codes (Jiang et al., Eq. 16)."""
        check_is_fitted(self, "cluster_centers_")
        return softmax(self._joint(self.autoencoder_.check(X)), axis=1)

    def _scores(self, X):
        check_is_fitted(self, "cluster_centers_")
        return self._joint(self.autoencoder_.check(X))
