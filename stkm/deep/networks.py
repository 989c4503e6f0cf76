"""Autoencoders as equinox modules: the two architectures of the published table.

* ``mlp``: dense layers of 500, 500, 2000 units with ReLU and a linear code (Xie et al. 2016;
  Jiang et al. 2017), the decoder mirrored.
* ``conv``: three 5×5 convolutions of 32 filters with stride 2, dense 400, a linear code, batch
  normalisation after every layer but the code and the last; the decoder mirrored.

Networks take one image ``(H, W, C)`` with values in [0, 1] and are mapped over a batch. The decoder
answers with logits: its image is their sigmoid. ``state`` holds the running moments of the batch
normalisation; with the MLP it is empty.
"""

from __future__ import annotations

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["ARCHITECTURES", "CODE", "Network", "decode", "encode", "make_network"]

ARCHITECTURES = ("mlp", "conv")
HIDDEN = (500, 500, 2000)  # units of the MLP's encoder
FILTERS, SIDE, DEPTH = 32, 5, 3  # of the convolutions
DENSE = 400  # units between the convolutions and the code
CODE = 10  # length of the code
BATCH = "batch"  # axis over which moments are taken
MOMENTUM = 0.9  # of their running means


def _norm(n):
    return eqx.nn.BatchNorm(n, BATCH, mode="batch", momentum=MOMENTUM)


class Dense(eqx.Module):
    """Linear map, then batch normalisation and ReLU where asked for."""

    linear: eqx.nn.Linear
    norm: eqx.nn.BatchNorm | None
    relu: bool = eqx.field(static=True)

    def __init__(self, n_in, n_out, *, relu=True, norm=False, key):
        self.linear = eqx.nn.Linear(n_in, n_out, key=key)
        self.norm = _norm(n_out) if norm else None
        self.relu = relu

    def __call__(self, x, state):
        """x ``(n_in,)`` -> ``(n_out,)``."""
        return _finish(self, self.linear(x), state)


class Convolution(eqx.Module):
    """5×5 convolution of stride 2, batch normalisation, ReLU: half the side, rounded up."""

    filters: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    relu: bool = eqx.field(static=True, default=True)

    def __init__(self, n_in, n_out, *, key):
        self.filters = eqx.nn.Conv2d(n_in, n_out, SIDE, stride=2, padding=SIDE // 2, key=key)
        self.norm = _norm(n_out)

    def __call__(self, x, state):
        """x ``(n_in, h, w)`` -> ``(n_out, ⌈h/2⌉, ⌈w/2⌉)``."""
        return _finish(self, self.filters(x), state)


class Transposed(eqx.Module):
    """The transpose of such a convolution, to a given frame.

    It is computed as a 3×3 convolution with four times the channels, one for each of the 2×2
    pixels of the larger frame that a pixel becomes (Shi et al. 2016): the same numbers, but XLA on
    a CPU takes ten times longer for the gradient of a dilated convolution.
    """

    weight: jax.Array
    bias: jax.Array
    norm: eqx.nn.BatchNorm | None
    relu: bool = eqx.field(static=True)
    frame: tuple = eqx.field(static=True)

    def __init__(self, n_in, n_out, frame, *, last=False, key):
        limit = 1 / np.sqrt(n_in * SIDE**2)  # as equinox starts its convolutions
        keys = jax.random.split(key)
        shape = (SIDE, SIDE, n_out, n_in)
        self.weight = jax.random.uniform(keys[0], shape, minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(keys[1], (n_out, 1, 1), minval=-limit, maxval=limit)
        self.norm = None if last else _norm(n_out)
        self.relu, self.frame = not last, frame

    def __call__(self, x, state):
        """x ``(n_in, h, w)`` -> ``(n_out, *frame)``."""
        n_out, n_in = self.weight.shape[2:]
        h, w = x.shape[1:]
        # pixel 2m + r of the larger frame sees pixels m − δ through tap 2(δ + 1) + r; δ = −1, 0, 1
        taps = jnp.pad(self.weight, ((0, 1), (0, 1), (0, 0), (0, 0)))
        taps = taps.reshape(3, 2, 3, 2, n_out, n_in)[::-1, :, ::-1]
        taps = taps.transpose(1, 3, 4, 5, 0, 2).reshape(4 * n_out, n_in, 3, 3)
        y = jax.lax.conv_general_dilated(x[None], taps, (1, 1), [(1, 1), (1, 1)])[0]
        y = y.reshape(2, 2, n_out, h, w).transpose(2, 3, 0, 4, 1).reshape(n_out, 2 * h, 2 * w)
        y = y[:, : self.frame[0], : self.frame[1]] + self.bias
        return _finish(self, y, state)


def _finish(layer, x, state):
    if layer.norm is not None:
        x, state = layer.norm(x, state)
    return (jax.nn.relu(x) if layer.relu else x), state


class Reshape(eqx.Module):
    """Values in another shape."""

    shape: tuple = eqx.field(static=True)

    def __call__(self, x, state):
        return x.reshape(self.shape), state


class ToChannels(eqx.Module):
    """``(H, W, C)`` -> ``(C, H, W)``, or back."""

    order: tuple = eqx.field(static=True)

    def __call__(self, x, state):
        return x.transpose(self.order), state


class Network(eqx.Module):
    """Encoder and decoder: lists of layers, each ``(x, state) -> (x, state)``.

    The encoder ends with the code's linear layer; what stands before it are the features that
    other heads can use.
    """

    encoder: list
    decoder: list

    def features(self, image, state):
        """What the code's layer sees."""
        return run(self.encoder[:-1], image, state)


def run(layers, x, state):
    """Layers one after the other."""
    for layer in layers:
        x, state = layer(x, state)
    return x, state


def make_network(architecture, shape, n_code, key):
    """A new `Network` for images ``(H, W, C)`` and its state.

    Parameters
    ----------
    architecture : 'mlp' or 'conv'
    shape : (H, W, C)
    n_code : length of the code
    key : jax.random key
    """
    make = partial(_mlp if architecture == "mlp" else _conv, shape, n_code)
    return eqx.nn.make_with_state(make)(key)


def _mlp(shape, n_code, key):
    pairs = list(itertools.pairwise([int(np.prod(shape)), *HIDDEN, n_code]))
    keys = iter(jax.random.split(key, 2 * len(pairs)))
    ends = [False] * len(HIDDEN) + [True]  # the code and the image have no ReLU
    encoder = [
        Dense(a, b, relu=not end, key=next(keys)) for (a, b), end in zip(pairs, ends, strict=True)
    ]
    decoder = [
        Dense(b, a, relu=not end, key=next(keys))
        for (a, b), end in zip(reversed(pairs), ends, strict=True)
    ]
    return Network([Reshape((-1,)), *encoder], [*decoder, Reshape(shape)])


def _conv(shape, n_code, key):
    frames = [shape[:2]]
    for _ in range(DEPTH):
        frames.append(tuple(-(-side // 2) for side in frames[-1]))
    depths = [shape[2], *[FILTERS] * DEPTH]
    flat = FILTERS * int(np.prod(frames[-1]))
    keys = iter(jax.random.split(key, 2 * DEPTH + 4))
    encoder = [ToChannels((2, 0, 1))]
    encoder += [Convolution(a, b, key=next(keys)) for a, b in itertools.pairwise(depths)]
    encoder.append(Reshape((-1,)))
    encoder.append(Dense(flat, DENSE, norm=True, key=next(keys)))
    encoder.append(Dense(DENSE, n_code, relu=False, key=next(keys)))
    decoder = [Dense(n_code, DENSE, norm=True, key=next(keys))]
    decoder.append(Dense(DENSE, flat, norm=True, key=next(keys)))
    decoder.append(Reshape((FILTERS, *frames[-1])))
    for i in reversed(range(DEPTH)):
        last = i == 0
        decoder.append(Transposed(depths[i + 1], depths[i], frames[i], last=last, key=next(keys)))
    return Network(encoder, [*decoder, ToChannels((1, 2, 0))])


def _mapped(layers, batch, state):
    """Layers over a batch; moments are taken over it."""
    over = jax.vmap(partial(run, layers), axis_name=BATCH, in_axes=(0, None), out_axes=(0, None))
    return over(batch, state)


def encode(network, images, state):
    """Codes ``(N, n_code)`` of images ``(N, H, W, C)``, and the new state."""
    return _mapped(network.encoder, images, state)


def decode(network, codes, state):
    """Logits ``(N, H, W, C)`` of codes ``(N, n_code)``, and the new state."""
    return _mapped(network.decoder, codes, state)


@eqx.filter_jit
def _encode_batch(network, images, state):
    return encode(eqx.nn.inference_mode(network), images, state)[0]


@eqx.filter_jit
def _decode_batch(network, codes, state):
    return jax.nn.sigmoid(decode(eqx.nn.inference_mode(network), codes, state)[0])


def codes_of(network, state, images, batch_size=256):
    """Codes ``(N, n_code)`` float32 of any number of images."""
    return _by_batch(lambda x: _encode_batch(network, x, state), images, batch_size)


def images_of(network, state, codes, batch_size=256):
    """Images ``(N, H, W, C)`` in [0, 1] of any number of codes."""
    return _by_batch(lambda x: _decode_batch(network, x, state), codes, batch_size)


def _by_batch(function, rows, batch_size):
    """``function`` on batches of one size: one compiled program."""
    found = []
    for first in range(0, len(rows), batch_size):
        part = np.asarray(rows[first : first + batch_size], np.float32)
        filled = np.concatenate(
            [part, np.zeros((batch_size - len(part), *part.shape[1:]), np.float32)]
        )
        found.append(np.asarray(function(jnp.asarray(filled)))[: len(part)])
    return np.concatenate(found)
