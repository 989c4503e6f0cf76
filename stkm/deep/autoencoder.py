"""The autoencoder that the deep methods start from, with its pre-training."""

from __future__ import annotations

import json
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..paths import atomic_path
from ..validation import check_images, check_int, check_option, check_real
from .networks import ARCHITECTURES, CODE, codes_of, decode, encode, images_of, make_network
from .training import Logged, Trainer, adam, epoch_batches, hold_out

__all__ = ["Autoencoder"]

PATIENCE = 10  # epochs without a lower loss on held-out images
SETTLING = 50  # batches after the training that the moments of the batch normalisation are taken of


class Autoencoder(Logged, TransformerMixin, BaseEstimator):
    """Codes of images, learned by reconstructing them.

    Minimises the mean over images of ‖x − x̂‖², x̂ = sigmoid(decoder(encoder(x))), by Adam. The
    images are brought to [0, 1] by the extremes of the fitted set.

    The dense network is first trained layer by layer, each layer to undo dropout of its input and
    of its output (stacked denoising autoencoder, Vincent et al. 2010; Xie et al. 2016, §3.2), then
    as a whole without dropout. The convolutional network is trained as a whole.

    Parameters
    ----------
    architecture : 'mlp' (500-500-2000-code) or 'conv' (three 5×5 convolutions of 32 filters with
        stride 2, dense 400, code; batch normalisation)
    n_code : length of the code
    layer_epochs : epochs of every layer in the layer-wise training of 'mlp'
    epochs : epochs of the whole network, at most
    validation : share of the images held out from the training of the whole network: that of the
        epoch with the lowest loss on them is kept, and ten epochs without a lower one end it
    dropout : share of a layer's input, and of its output, that the layer-wise training drops
    learning_rate : Adam's
    batch_size : images a step
    image_shape : (H, W) or (H, W, C) when images come flat
    random_state : int, RandomState or None
    verbose : 1 prints a line an epoch

    Attributes
    ----------
    history_ : one dict an epoch: stage ('layer 1' …, 'whole'), epoch, loss
    loss_ : mean ‖x − x̂‖² of the fitted images, in [0, 1] units
    diverged_ : whether a loss was not finite, which ends a stage at the epoch before

    Raises
    ------
    ValueError : bad images or parameters, before anything is compiled

    References
    ----------
    Vincent et al. 2010 (stacked denoising autoencoders). Xie, Girshick, Farhadi 2016, arXiv
    1511.06335 (architecture and training). Kingma, Ba 2015 (Adam).
    """

    def __init__(
        self,
        architecture="mlp",
        *,
        n_code=CODE,
        layer_epochs=15,
        epochs=50,
        validation=0.1,
        dropout=0.2,
        learning_rate=1e-3,
        batch_size=64,
        image_shape=None,
        random_state=None,
        verbose=0,
    ):
        self.architecture = architecture
        self.n_code = n_code
        self.layer_epochs = layer_epochs
        self.epochs = epochs
        self.validation = validation
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.image_shape = image_shape
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y=None):
        """Train on images (N, H, W), (N, H, W, C) or, with ``image_shape``, (N, H*W*C)."""
        check_option("architecture", self.architecture, ARCHITECTURES)
        check_int("n_code", self.n_code, 1)
        check_int("layer_epochs", self.layer_epochs, 0)
        check_int("epochs", self.epochs, 0)
        check_int("batch_size", self.batch_size, 2)
        for name in ("dropout", "validation"):
            if not check_real(name, getattr(self, name)) < 1:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: expected a number from 0 to below 1"
                )
        if not check_real("learning_rate", self.learning_rate) > 0:
            raise ValueError("learning_rate=0: expected more than 0")
        images, self._grey = check_images(X, self.image_shape)
        self._shape = images.shape[1:]
        low, high = float(images.min()), float(images.max())
        self._low, self._range = low, (high - low) or 1.0
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        key = jax.random.key(int(rng.integers(2**31 - 1)))
        network, state = make_network(self.architecture, self._shape, self.n_code, key)
        scaled = self.scale(images)
        self.history_, self.diverged_ = [], False
        if self.architecture == "mlp" and self.layer_epochs:
            network = self._train_layers(network, scaled, rng)
        taught, held = hold_out(scaled, self.validation, rng)
        whole = self._train(
            network, state, _reconstruction, taught, self.epochs, rng, "whole", held
        )
        self.network_, self.state_ = whole.model, whole.state
        if self.architecture == "conv":
            self._settle_moments(scaled, rng)
        self.n_features_in_ = int(np.prod(self._shape))
        shown = images_of(*self._parts, codes_of(*self._parts, scaled))
        self.loss_ = float(((shown - scaled) ** 2).sum((1, 2, 3), dtype=np.float64).mean())
        return self

    def transform(self, X):
        """Codes ``(N, n_code)`` float32 of images."""
        return codes_of(*self._parts, self.check(X))

    def inverse_transform(self, Z):
        """Images ``(N, H, W[, C])`` of codes ``(N, n_code)``, in the scale of the fitted ones."""
        return self.unscale(images_of(*self._parts, np.asarray(Z, np.float32)))

    @property
    def _parts(self):
        check_is_fitted(self, "network_")
        return self.network_, self.state_

    def check(self, X):
        """Checked images ``(N, H, W, C)`` of the fitted shape, in [0, 1]."""
        check_is_fitted(self, "network_")
        images, grey = check_images(X, self.image_shape)
        if images.shape[1:] != self._shape or grey != self._grey:
            shown = self._shape[:-1] if self._grey else self._shape
            raise ValueError(f"images of shape {np.shape(X)[1:]}, but the fit had {shown}")
        return self.scale(images)

    def scale(self, images):
        """Images in [0, 1]: by the extremes of the fitted set, beyond which they are cut."""
        return np.clip((images - self._low) / np.float32(self._range), 0, 1).astype(np.float32)

    def unscale(self, images):
        """The inverse of :meth:`scale`, without the channel where there was none."""
        images = images * np.float32(self._range) + np.float32(self._low)
        return images[..., 0] if self._grey else images

    def _train_layers(self, network, scaled, rng):
        """The dense layers one after the other, each with its mirror image in the decoder."""
        encoder, decoder = list(network.encoder), list(network.decoder)
        rows = scaled.reshape(len(scaled), -1)
        n = len(encoder) - 1  # before them stands the reshape
        for i in range(n):
            pair, first, last = (encoder[1 + i], decoder[n - 1 - i]), i == 0, i == n - 1
            loss = _Denoising(self.dropout, first, last)
            layer = self._train(pair, None, loss, rows, self.layer_epochs, rng, f"layer {i + 1}")
            encoder[1 + i], decoder[n - 1 - i] = layer.model
            rows = _forward(encoder[1 + i], rows)
        return eqx.tree_at(lambda net: (net.encoder, net.decoder), network, (encoder, decoder))

    def _train(self, model, state, loss, rows, epochs, rng, stage, held=None):
        trainer = Trainer(model, state, loss, adam(self.learning_rate), rng, stage, self._report)
        trainer.epochs((rows,), epochs, self.batch_size, held, PATIENCE)
        self.diverged_ |= trainer.diverged
        return trainer

    def _settle_moments(self, scaled, rng):
        """Running moments of the network as it is now: they lag behind while it learns."""
        for _ in range(-(-SETTLING * self.batch_size // len(scaled))):
            for rows in epoch_batches(len(scaled), self.batch_size, rng):
                self.state_ = _moments(self.network_, self.state_, jnp.asarray(scaled[rows]))

    # ------------------------------------------------------------------ files

    def save(self, path):
        """Write weights and moments of a fitted autoencoder to an ``npz`` file, atomically."""
        arrays = [np.asarray(a) for a in jax.tree.leaves(eqx.filter(self._parts, eqx.is_array))]
        about = np.array([self._low, self._range, float(self._grey), self.loss_])
        log = np.array(json.dumps({"history": self.history_, "diverged": self.diverged_}))
        named = {f"array{i:03d}": a for i, a in enumerate(arrays)}
        with atomic_path(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, shape=np.array(self._shape), about=about, log=log, **named)

    @classmethod
    def load(cls, path, **params):
        """An autoencoder that :meth:`save` wrote; ``params`` are those it was fitted with.

        Raises
        ------
        ValueError : the file has another architecture, shape or length of the code, or is no
            file of :meth:`save`
        """
        self = cls(**params)
        with np.load(path, allow_pickle=False) as file:
            kept = {name: file[name] for name in file.files}
        if not {"shape", "about", "log"} <= set(kept):
            raise ValueError(f"{path} was not written by Autoencoder.save of this version")
        self._shape = tuple(int(s) for s in kept["shape"])
        self._low, self._range, grey, self.loss_ = map(float, kept["about"])
        self._grey = bool(grey)
        key = jax.random.key(0)  # nothing is drawn: only the shapes are asked for
        form = eqx.filter_eval_shape(make_network, self.architecture, self._shape, self.n_code, key)
        arrays, rest = eqx.partition(form, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
        leaves, tree = jax.tree.flatten(arrays)
        found = [kept[name] for name in sorted(kept) if name.startswith("array")]
        if [a.shape for a in found] != [a.shape for a in leaves]:
            raise ValueError(
                f"{path} does not hold a network {self.architecture!r} with a code of {self.n_code}"
            )
        filled = jax.tree.unflatten(tree, [jnp.asarray(a) for a in found])
        self.network_, self.state_ = eqx.combine(filled, rest)
        log = json.loads(str(kept["log"]))
        self.history_, self.diverged_ = log["history"], log["diverged"]
        self.n_features_in_ = int(np.prod(self._shape))
        return self


def _reconstruction(network, state, rows, key):
    """Mean ‖x − x̂‖² of a batch of images."""
    del key
    (images,) = rows
    codes, state = encode(network, images, state)
    logits, state = decode(network, codes, state)
    return ((jax.nn.sigmoid(logits) - images) ** 2).sum((1, 2, 3)).mean(), state


@eqx.filter_jit
def _moments(network, state, images):
    return _reconstruction(network, state, (images,), None)[1]


@dataclass(frozen=True)
class _Denoising:
    """Mean squared error of one layer and its mirror image, both behind dropout.

    What the first layer reconstructs lies in [0, 1]; the code has no ReLU, the others have.
    """

    dropout: float
    first: bool
    last: bool

    def __call__(self, pair, state, batch, key):
        (rows,) = batch
        down, up = pair
        keys = jax.random.split(key)
        hidden = jax.vmap(down.linear)(_drop(rows, self.dropout, keys[0]))
        hidden = hidden if self.last else jax.nn.relu(hidden)
        back = jax.vmap(up.linear)(_drop(hidden, self.dropout, keys[1]))
        back = jax.nn.sigmoid(back) if self.first else jax.nn.relu(back)
        return ((back - rows) ** 2).sum(1).mean(), state


def _drop(x, rate, key):
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


@eqx.filter_jit
def _layer(layer, x):
    return jax.vmap(lambda row: layer(row, None)[0])(x)


def _forward(layer, rows, batch_size=1024):
    """Outputs of a dense layer for all rows."""
    parts = [
        _layer(layer, jnp.asarray(rows[i : i + batch_size]))
        for i in range(0, len(rows), batch_size)
    ]
    return np.concatenate([np.asarray(p) for p in parts])
