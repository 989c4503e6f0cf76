"""Passes over more images than memory holds: read block by block, little kept of each image.

A fit of a part of the images has found centroids and prior; every pass of all of them assigns block
by block and adds up what the next centroids (Eq. 4) and the next prior need. Between passes an
image keeps its label, and with ``keep="nearest"`` the warps to its nearest centroids, in half
precision: from there the next pass goes on. With ``keep="nothing"`` it starts from the identity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fitting import PASS, aligned
from .learning import FULL_EVERY, ROUNDS, SLACK, collapsed, hold_out, learn_from_sums
from .lloyd import assign, cold_state
from .prior import Moments, Prior
from .progress import pack_prior, unpack_prior

__all__ = ["KEEP", "Fit", "fit_all"]

KEEP = ("all", "nearest", "nothing")
BLOCK = 2048  # images at work, at most
ROWS_PER_MODE = 8  # components of the residuals that are carried on for each appearance mode
ARRAYS = ("centers", "labels", "near", "warps")
NUMBERS = ("objective", "number", "best", "ended")


@dataclass
class Fit:
    """What passes have come to, and what they go on with.

    centers (K, H, W, C); prior, or None; labels (N,) of the last pass; near (N, M) centroids of
    which warps (N, M, 2L) float16 are kept, M = 0 where none are; the log; sound, centers and
    prior to which a pass that fails goes back; objective, of the last pass; number of passes; best
    held-out value; whether there is no pass to come
    """

    centers: np.ndarray
    prior: Prior | None
    labels: np.ndarray
    near: np.ndarray
    warps: np.ndarray
    history: list
    sound: tuple
    objective: float = np.inf
    number: int = 0
    best: float = np.inf
    ended: bool = False

    @classmethod
    def of(cls, centers, prior, n, n_near, size, history):
        """Before the first pass over n images with displacements of ``size`` = 2L numbers."""
        near = np.zeros((n, n_near), np.int32)
        warps = np.zeros((n, n_near, size), np.float16)
        labels = np.full(n, -1, np.int32)
        return cls(centers, prior, labels, near, warps, history, (centers, prior))

    def pack(self):
        """(meta, arrays) for a checkpoint."""
        centers, prior = self.sound
        sound = {"centers": centers, "prior": pack_prior(prior)}
        arrays = {name: getattr(self, name) for name in ARRAYS}
        meta = {name: getattr(self, name) for name in NUMBERS}
        return {"fit": meta}, arrays | {"prior": pack_prior(self.prior), "sound": sound}

    @classmethod
    def unpack(cls, meta, arrays):
        """The inverse; ``meta`` has the log, too."""
        sound = arrays["sound"]
        return cls(
            **{name: arrays[name] for name in ARRAYS},
            **meta["fit"],
            prior=unpack_prior(arrays.get("prior")),
            sound=(sound["centers"], unpack_prior(sound.get("prior"))),
            history=meta["history"],
        )


def fit_all(model, read, weights, fit, rng, progress):
    """Passes until the centroids rest, or the rounds of learning are over; changes ``fit``.

    Parameters
    ----------
    read : function of a slice, to images (n, H, W, C) of the frame that is matched
    rng : chooses the images that are held out; the same one when a fit goes on
    """
    taught, held = hold_out(weights, rng if fit.prior is not None else None)
    most = ROUNDS if fit.prior is not None else model.params["max_iter"]
    while fit.number < most and not fit.ended:
        _one(model, read, taught, held, fit, most, progress)
        fit.number += 1
        meta, arrays = fit.pack()
        progress.mark("pass", rng, arrays, **meta, history=fit.history)
    return fit


def _one(model, read, taught, held, fit, most, progress):
    """One pass: labels of all images, and with them the next centroids and prior."""
    learned, k = fit.prior is not None, len(fit.centers)
    weight, first = np.zeros(k), np.zeros((k, fit.centers[0].size))
    sums = [Moments.empty(fit.warps.shape[2], first.shape[1]) for _ in range(k)]
    total, tested, previous = 0.0, 0.0, fit.labels.copy()
    before = _largest(previous, taught + held, k)
    for begin in range(0, len(taught), size := min(BLOCK, model.block(k))):
        rows = slice(begin, begin + size)
        matcher, state = _assigned(model, read(rows), fit, rows)
        f = state.nearest().astype(np.float64)
        total += float(taught[rows] @ f)
        tested += float(held[rows] @ f)
        _add(model, matcher, state, taught[rows], weight, first, sums if learned else None)
        fit.labels[rows] = state.labels
        _keep(fit, rows, state)
        progress.advance(len(f))
    fit.objective, everyone = total, taught + held
    largest = _largest(fit.labels, everyone, k)
    entry = {
        "stage": "whole",
        "objective": total,
        "changed": int((previous != fit.labels).sum()),
        "largest": largest,
        "relocated": [],
    }
    if learned:
        tested = tested / held.sum() if held.any() else -np.inf
        entry["held_out"] = tested if held.any() else None
        outgrown = (previous >= 0).all() and collapsed(largest, before, everyone.sum(), k)
        if outgrown or tested > fit.best + SLACK:
            fit.ended = entry["undone"] = True
            fit.centers, fit.prior = fit.sound
    means = first / np.maximum(weight, np.finfo(float).tiny)[:, None]
    means[weight == 0] = 0
    moves = means.astype(np.float32).reshape(fit.centers.shape)
    entry["shift"] = float((moves.astype(np.float64) ** 2).sum())
    fit.history.append(entry)
    progress.report(entry)
    if fit.ended or learned and fit.number == most - 1:
        return
    fit.sound = fit.centers, fit.prior
    fit.centers = fit.centers + moves
    if learned:
        fit.best = min(fit.best, tested)
        p = model.params
        fit.prior = learn_from_sums(
            matcher,
            fit.prior,
            fit.centers,
            [m.about_mean(mean) if m.weight else m for m, mean in zip(sums, means, strict=True)],
            np.kron(np.eye(2), model.penalty),
            n_modes=p["n_modes"],
            kappa=fit.prior.kappa,
            tying=p["tying"],
        )
    elif entry["shift"] <= model.shift:
        fit.ended = True


def _assigned(model, images, fit, rows):
    """Aligner of a block, and its state: of all centroids, or of those whose warps are kept."""
    matcher = model.matcher(model.smooth(images), **PASS)
    if fit.number % FULL_EVERY == 0 or not fit.near.shape[1]:
        return matcher, aligned(matcher, fit.centers, fit.prior)
    state = cold_state(matcher, fit.centers)
    state.prior, near = fit.prior, fit.near[rows]
    np.put_along_axis(state.d, near[..., None], fit.warps[rows].astype(np.float32), axis=1)
    mask = np.zeros_like(state.mask)
    np.put_along_axis(mask, near, True, axis=1)
    assign(matcher, state, mask)
    return matcher, state


def _add(model, matcher, state, weights, weight, first, sums):
    """Take a block into the clusters' weights, Σ w r and, where a prior is learned, `Moments`."""
    n_rows = max(1, ROWS_PER_MODE * model.params["n_modes"])
    for k, center in enumerate(state.centers):
        index = np.flatnonzero((state.labels == k) & (weights > 0))
        w, d = weights[index], state.d[index, k]
        weight[k] += w.sum()
        if sums is None:
            first[k] += (matcher.warped_sum(index, d, w) - w.sum() * center).ravel()
        elif len(index):
            residuals = (matcher.warped(index, d) - center).reshape(len(index), -1)
            sums[k].add(residuals, d, w, n_rows)
            first[k] += w @ residuals.astype(np.float64)


def _keep(fit, rows, state):
    """The nearest centroids of a block's images, and the warps to them."""
    m = fit.near.shape[1]
    if m:
        f = np.where(state.mask, state.f, np.inf)
        near = np.argpartition(f, m - 1, axis=1)[:, :m].astype(np.int32)
        fit.near[rows] = near
        fit.warps[rows] = np.take_along_axis(state.d, near[..., None], axis=1)


def _largest(labels, weights, k):
    """Weight of the largest cluster."""
    known = labels >= 0
    return float(np.bincount(labels[known], weights[known], minlength=k).max())
