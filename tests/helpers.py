"""Images, moves and estimators that the tests of the core share."""

import doctest
import inspect
from contextlib import contextmanager
from functools import cache

import jax
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from stkm import STKMeans, load_dataset
from stkm.warp import Warp

_compiled = []


def _listen(event, duration, **details):
    if event.endswith("backend_compile_duration"):
        _compiled.append(str(details.get("fun_name", event)))


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextmanager
def compilations():
    """Names of what jax compiles (or takes from its cache on disk) inside the block."""
    names, first = [], len(_compiled)
    try:
        yield names
    finally:
        names.extend(_compiled[first:])


def run_examples(thing):
    """Run the examples in a docstring as a reader would: pasted into an empty session."""
    doc = inspect.getdoc(thing)
    test = doctest.DocTestParser().get_doctest(doc, {"__name__": "__main__"}, str(thing), None, 0)
    told = []
    doctest.DocTestRunner().run(test, out=told.append)
    assert not told, "".join(told)


def assert_rejected_before_compilation(call, text):
    """``call()`` raises a ``ValueError`` that says ``text``, and jax has compiled nothing."""
    with compilations() as compiled, pytest.raises(ValueError) as e:
        call()
    assert text in str(e.value)
    assert not compiled


def smooth_images(n, shape, channels=None, seed=0, sd=2.0):
    """Smooth random images in [0, 1] that fade to black at the rim, ``(n, *shape[, channels])``."""
    rng = np.random.default_rng(seed)
    h, w = shape
    x = np.zeros((n, h, w, channels or 1))
    x[:, 5:-5, 5:-5] = rng.random((n, h - 10, w - 10, channels or 1))
    x = gaussian_filter(x, (0, sd, sd, 0), mode="constant")
    x = (x / x.max((1, 2, 3), keepdims=True)).astype(np.float32)
    return x if channels else x[..., 0]


def affine_moves(warp, n, *, degrees, stretch, shift, seed=0):
    """Displacements ``(n, L, 2)``: turns, stretches of both axes and shifts up to the bounds.

    The first half of them is on the bounds, with random signs.
    """
    rng = np.random.default_rng(seed)
    p, c = warp.landmarks, (np.array(warp.shape) - 1) / 2
    part = rng.uniform(-1, 1, (n, 5))
    part[: n // 2] = np.sign(part[: n // 2])
    out = []
    for angle, *stretches, row, col in part:
        a = np.deg2rad(degrees * angle)
        turn = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        a = turn @ np.diag(1 + stretch * np.array(stretches))
        out.append((p - c) @ a.T + c + shift * np.array([row, col]) - p)
    return np.array(out)


def residuals(a, b):
    """Squared errors of pairs of images, ``(N,)`` float64."""
    a, b = (np.asarray(v, np.float64).reshape(len(v), -1) for v in (a, b))
    return ((a - b) ** 2).sum(1)


def bars(n=24, seed=0):
    """Easy 12 × 12 images of 3 kinds, moved about: upright bars, lying bars, blocks; and kinds."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 0.05, (n, 12, 12)).astype(np.float32)
    kinds = np.arange(n) % 3
    for image, kind in zip(x, kinds, strict=True):
        r, c = rng.integers(2, 5, 2)
        h, w = ((7, 2), (2, 7), (5, 5))[kind]
        image[r : r + h, c : c + w] += 0.9
    return x, kinds


@cache
def digits(n=300):
    """n MNIST digits of all classes, ``(n, 28, 28)`` uint8."""
    images = load_dataset("mnist5k", "train", limit=n).images
    images.flags.writeable = False
    return images


class IdentityKMeans(STKMeans):
    """The estimator with the identity as its only warp, on the images as they are: K-means."""

    def __init__(self, n_clusters=8, *, init="k-means++", max_iter=50, tol=1e-4, random_state=None):
        super().__init__(
            n_clusters,
            init=init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_candidates=n_clusters,
            smoothing=0.0,
            prior="fixed",
        )

    @classmethod
    def _get_param_names(cls):
        return STKMeans._get_param_names()

    def _make_warp(self, shape):
        return Warp.identity(shape)


class AffineAdam(STKMeans):
    """AI K-means as published: affine maps by Adam."""

    def _make_warp(self, shape):
        return Warp.affine(shape)
