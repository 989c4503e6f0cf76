"""Gradient descent on batches: one jitted step, a loop in Python.

(A convolution's gradient inside `lax.scan` or `fori_loop` takes 20 to 50 times longer on a CPU.)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.exceptions import ConvergenceWarning

from ..validation import warn

__all__ = ["Logged", "Trainer", "adam", "epoch_batches", "hold_out", "sgd"]


def epoch_batches(n, batch_size, rng):
    """Indices ``(batches, batch_size)`` of n rows in random order.

    Every batch is full, so that one program serves all: the last one begins the order again.
    """
    batch_size = min(batch_size, n)
    count = -(-n // batch_size)
    return np.resize(rng.permutation(n), (count, batch_size))


def hold_out(rows, share, rng):
    """Rows to learn from, and a tuple of the rows held out ``(n · share)`` or None if that is 0."""
    n = int(share * len(rows))
    if not n:
        return rows, None
    order = rng.permutation(len(rows))
    return rows[np.sort(order[n:])], (rows[np.sort(order[:n])],)


class Logged:
    """An estimator whose ``history_`` is its log; ``verbose`` prints it."""

    def _report(self, entry):
        self.history_.append(entry)
        if self.verbose:
            print(f"{entry['stage']}, epoch {entry['epoch']}: loss {entry['loss']}")


class Trainer:
    """A network in training.

    Parameters
    ----------
    model, state : equinox module, every float array of which is trained, and its state
    loss : (model, state, rows, key) -> (loss, state); ``rows`` is a tuple of arrays of one batch.
        A function of a module or another object that compares: equal ones are compiled once
    optimiser : `adam`, `sgd` or another optax transformation
    rng : numpy Generator: order of the rows and randomness of the loss
    stage : name in the log
    report : called with one dict an epoch: stage, epoch (from 1), loss (mean over the batches; None
        where it is not finite) and, where images are held out, their loss

    Attributes
    ----------
    model, state : as they are now, finite always
    diverged : whether a loss, a weight or a running moment was not finite, or the loss after an
        epoch's last step; the model is then that of the epoch before
    """

    def __init__(self, model, state, loss, optimiser, rng, stage, report):
        self.model, self.state = model, state
        self.stage, self.report, self.diverged = stage, report, False
        self._rng, self._steps, self._epochs = rng, 0, 0
        self._key = jax.random.key(int(rng.integers(2**31 - 1)))
        self._opt = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
        self._loss, self._optimiser = loss, optimiser

    def epochs(self, arrays, count, batch_size, held=None, patience=0):
        """Train for ``count`` passes over the rows of ``arrays``, in batches of random order.

        With ``held`` rows, which take no part, the network of the epoch that has the lowest loss on
        them is kept, and ``patience`` epochs without a lower one end the training.
        """
        best, kept, since = np.inf, None, 0
        for _ in range(count):
            finite = self.run(arrays, epoch_batches(len(arrays[0]), batch_size, self._rng), held)
            if held is not None:
                if finite and self.held_out < best:
                    best, kept, since = self.held_out, (self.model, self.state), 0
                else:
                    since += 1
            if not finite or (held is not None and since > patience):
                break
        if kept is not None:
            self.model, self.state = kept
        return self

    def loss(self, arrays, batch_size=256):
        """Mean loss of rows, always with the same randomness."""
        total, n = 0.0, len(arrays[0])
        for first in range(0, n, batch_size):
            rows = tuple(jnp.asarray(a[first : first + batch_size]) for a in arrays)
            value = _evaluate(self._loss, self.model, self.state, rows, jax.random.key(first))[0]
            total += float(value) * len(rows[0])
        return total / n

    def run(self, arrays, index: Iterable, held=None, **logged):
        """Train on batches given by the indices of their rows; whether loss and network are finite.

        ``held`` rows are only looked at: ``held_out`` is their loss.

        Warns
        -----
        ConvergenceWarning : they are not; the network from before is kept
        """
        kept, losses = (self.model, self.state, self._opt), []
        for rows in index:
            batch = tuple(jnp.asarray(a[rows]) for a in arrays)
            key = jax.random.fold_in(self._key, self._steps)
            self.model, self.state, self._opt, loss = _step(
                self._loss, self._optimiser, self.model, self.state, self._opt, batch, key
            )
            losses.append(loss)
            self._steps += 1
        self._epochs += 1
        mean = float(np.mean([float(loss) for loss in losses]))
        if held is not None:
            self.held_out = self.loss(held)
            logged["held_out"] = self.held_out if np.isfinite(self.held_out) else None
        # a finite loss may have a gradient that is not, or a step that is too long, and no loss
        # comes after an epoch's last step
        after = (self._loss, self.model, self.state, batch, key)
        finite = bool(np.isfinite(mean)) and bool(_is_finite(*after))
        self.report(
            {"stage": self.stage, "epoch": self._epochs, "loss": mean if finite else None, **logged}
        )
        if not finite:
            self.model, self.state, self._opt = kept
            self.diverged = True
            warn(
                f"training stage {self.stage!r} is not finite in epoch {self._epochs}: stopped "
                f"with the network of epoch {self._epochs - 1}; try a smaller learning_rate",
                ConvergenceWarning,
            )
        return finite


# compiled once for equal losses and optimisers, whatever the number of fits
@eqx.filter_jit
def _step(loss, optimiser, model, state, opt, rows, key):
    found, gradient = eqx.filter_value_and_grad(loss, has_aux=True)(model, state, rows, key)
    change, opt = optimiser.update(gradient, opt, model)
    return eqx.apply_updates(model, change), found[1], opt, found[0]


@eqx.filter_jit
def _evaluate(loss, model, state, rows, key):
    return loss(model, state, rows, key)


@eqx.filter_jit
def _is_finite(loss, model, state, rows, key):
    """Whether every weight, moment, and the loss of these rows are."""
    numbers = (model, state, loss(model, state, rows, key)[0])
    arrays = jax.tree.leaves(eqx.filter(numbers, eqx.is_inexact_array))
    return jnp.all(jnp.array([jnp.isfinite(a).all() for a in arrays]))


@cache
def adam(learning_rate, decay=1.0, steps=1):
    """Adam, its step times ``decay`` after every ``steps`` steps; equal numbers, equal object."""
    if decay == 1.0:
        return optax.adam(learning_rate)
    return optax.adam(optax.exponential_decay(learning_rate, steps, decay, staircase=True))


@cache
def sgd(learning_rate, momentum):
    """Stochastic gradient descent; equal numbers, equal object."""
    return optax.sgd(learning_rate, momentum)
