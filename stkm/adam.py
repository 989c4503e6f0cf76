"""The paper's optimiser in the Lloyd loop: Adam that keeps its moments from pass to pass."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from . import solvers
from .align import Matcher
from .warp import batches

__all__ = ["AdamMatcher"]


class AdamMatcher(Matcher):
    """Aligns by Adam (Eq. 3 as published), ``n_steps`` steps a pass for every pair.

    The published loop updates warps and centroids in turn; so each pair's iterate and moments
    live here between passes. The best warp visited is what the loop sees: no step that makes the
    error larger is kept.

    Parameters
    ----------
    images : (N, H, W, C) float32; n_clusters : K
    learning_rate : Adam's step in pixels; n_steps : steps a pass
    stride : take the error on every ``stride``-th pixel in both directions
    """

    def __init__(
        self, images, warp, q, n_clusters, *, learning_rate, n_steps, stride=1, batch_size=64
    ):
        super().__init__(images, warp, q, q, stride=stride, batch_size=batch_size)
        self.learning_rate, self.n_steps = learning_rate, n_steps if self.size else 0
        n = len(images)
        self.iterate, self.mean, self.square = (
            np.zeros((n_clusters, n, self.size), np.float32) for _ in range(3)
        )
        self.count = np.zeros(n_clusters, np.int32)

    def memory(self):
        """What the matcher keeps between passes, for a checkpoint."""
        names = ("iterate", "mean", "square", "count")
        return {name: getattr(self, name) for name in names}

    def recall(self, arrays):
        """Take back what `memory` gave."""
        for name, array in arrays.items():
            setattr(self, name, np.array(array))

    def prepare(self, target, prior=None, k=0):
        """The target alone: Adam has no Hessian, and the published loop no prior."""
        del prior, k
        return jnp.asarray(np.asarray(target, np.float32)[None])

    def start_from(self, d):
        """Begin all pairs at displacements d ``(N, K, 2L)`` with fresh moments."""
        self.iterate[:] = d.transpose(1, 0, 2)
        self.mean[:] = self.square[:] = 0
        self.count[:] = 0

    def fit(self, k, index, prepared, d=None):
        """``(f, d)`` after ``n_steps`` more steps of the pairs of target k."""
        cold = d is None
        if cold:
            d = np.zeros((len(index), self.size), np.float32)
            for a in (self.iterate, self.mean, self.square):
                a[k, index] = 0
            self.count[k] = 0
        pending = []
        for part, padded in batches(np.arange(len(index)), self.batch_size):
            rows = index[padded]
            iterate, mean, square = (
                jnp.asarray(a[k, rows]) for a in (self.iterate, self.mean, self.square)
            )
            state = solvers.adam_state(iterate, mean, square, self.count[k])
            out = solvers.adam(
                self.source(rows),
                prepared,
                d[padded],
                state,
                self.grid,
                self.n_steps,
                self.learning_rate,
                cold,
            )
            pending.append((part, out))
        f, best = np.zeros(len(index), np.float32), np.zeros((len(index), self.size), np.float32)
        for part, (value, moves, (iterate, moments)) in pending:
            rows, m = index[part], len(part)
            f[part], best[part] = np.asarray(value)[:m], np.asarray(moves)[:m]
            self.iterate[k, rows] = np.asarray(iterate)[:m]
            self.mean[k, rows], self.square[k, rows] = (
                np.asarray(moments.mu)[:m],
                np.asarray(moments.nu)[:m],
            )
        self.count[k] += self.n_steps
        return f, best
