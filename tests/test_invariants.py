"""What must not change, or change in a known way, when images, centroids or units are changed.

Two kinds of random images are drawn. Of ``noise`` only what is the same arithmetic is compared:
an alignment that goes over many small steps takes another way after a rounding error, to another
local minimum, and with it a pass of Lloyd's loop. Of ``shapes``, copies of a few pictures that are
moved a little, labels are compared whole and numbers to `NEAR`: there rounding errors stay what
they are. The start is always given, since k-means++ draws images by their places.
"""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from helpers import digits
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import ndimage

from stkm import AffineKMeans, STKMeans

SQUARE, WIDE = (10, 10), (9, 12)  # few: every shape compiles programs of its own
NEAR = {"rtol": 1e-3, "atol": 1e-3}  # of images from 0 to 1; measured: 1e-4
SUM = {"rel": 1e-2}  # of the objective, which has the image that is fitted worst in it

seeds = st.integers(0, 10_000)
clusters = st.integers(2, 4)
classes = st.sampled_from([STKMeans, AffineKMeans])
kinds = st.sampled_from([(STKMeans, SQUARE), (STKMeans, WIDE), (AffineKMeans, SQUARE)])
few = settings(max_examples=4)


def shapes_of(seed, shape, k, dtype=np.float32):
    """8 to 23 copies of k blots, moved and grey, 0 to 1 or in the range of a whole type."""
    rng = np.random.default_rng(seed)
    h, w = shape
    blots = np.zeros((k, h, w))
    blots[:, 2:-2, 2:-2] = rng.random((k, h - 4, w - 4)) > 0.5
    n = int(rng.integers(8, 24))
    moved = [ndimage.shift(blots[i % k], rng.uniform(-0.7, 0.7, 2), order=1) for i in range(n)]
    x = ndimage.gaussian_filter(np.array(moved), (0, 0.7, 0.7))
    x = np.clip(x / x.max() + 0.02 * rng.random(x.shape), 0, 1)
    if np.issubdtype(dtype, np.integer):
        return (x * np.iinfo(dtype).max).astype(dtype)
    return x.astype(dtype)


def noise_of(seed, shape, n=12):
    """n images of independent pixels, 0 to 1."""
    return np.random.default_rng(seed).random((n, *shape), dtype=np.float32)


def fit(cls, X, start, weights=None, **params):
    """A short fit with the fixed prior from given centroids."""
    small = {"landmarks": 3, "prior": "fixed"} if cls is STKMeans else {}
    km = cls(len(start), init=start, max_iter=4, **{**small, **params})
    return km.fit(X, sample_weight=weights)


# ---------------------------------------------------------------- order


@few
@given(seeds, kinds, clusters, st.sampled_from([np.float32, np.uint8, np.float64]))
def test_permuting_images_permutes_labels(seed, kind, k, dtype):
    """Of a fit for `shapes`: centroids are sums, whose rounding errors have an order. Distances to
    given centroids are the same to the last bit, whatever the images."""
    cls, shape = kind
    X = shapes_of(seed, shape, k, dtype)
    order = np.random.default_rng(seed).permutation(len(X))
    a, b = fit(cls, X, X[:k]), fit(cls, X[order], X[:k])
    assert np.array_equal(b.labels_, a.labels_[order])
    top = float(X.max())
    assert_allclose(b.cluster_centers_ / top, a.cluster_centers_ / top, **NEAR)
    other = noise_of(seed, shape) * top
    order = order[order < len(other)]
    assert np.array_equal(a.transform(other[order]), a.transform(other)[order])


def test_permuting_new_images_permutes_labels_of_a_learned_prior():
    """Of a fit this holds with the fixed prior only: the learned one holds images out by chance."""
    X = shapes_of(0, SQUARE, 3)
    km = STKMeans(3, landmarks=3, init=X[:3], n_swaps=0, max_iter=2, random_state=0).fit(X)
    order = np.random.default_rng(0).permutation(len(X))
    assert km.prior_ is not None
    assert np.array_equal(km.transform(X[order]), km.transform(X)[order])
    assert np.array_equal(km.predict_proba(X[order]), km.predict_proba(X)[order])


@few
@given(seeds, kinds, clusters)
def test_permuting_start_centroids_permutes_the_result(seed, kind, k):
    """To the last bit, of noise too: every centroid is updated by itself."""
    cls, shape = kind
    X = noise_of(seed, shape)
    order = np.random.default_rng(seed).permutation(k)
    a, b = fit(cls, X, X[:k]), fit(cls, X, X[:k][order])
    assert np.array_equal(b.cluster_centers_, a.cluster_centers_[order])
    assert np.array_equal(order[b.labels_], a.labels_)
    assert b.inertia_ == a.inertia_


@few
@given(seeds, kinds, clusters)
def test_transposing_images_transposes_centroids(seed, kind, k):
    """To `NEAR`: sums over pixels run in another order."""
    cls, shape = kind
    X = shapes_of(seed, shape, k)
    turned = X.swapaxes(1, 2)
    a, b = fit(cls, X, X[:k]), fit(cls, turned, turned[:k])
    assert np.array_equal(b.labels_, a.labels_)
    assert_allclose(b.cluster_centers_.swapaxes(1, 2), a.cluster_centers_, **NEAR)
    assert b.inertia_ == pytest.approx(a.inertia_, **SUM)


# ---------------------------------------------------------------- units


@few
@given(seeds, kinds, clusters, st.sampled_from([2.0**-20, 0.25, 256.0, 2.0**20]))
def test_a_power_of_two_scales_distances_by_its_square(seed, kind, k, c):
    """To the last bit, of noise too, since a power of two changes no rounding. The penalty follows
    by itself: its unit is the mean squared distance of the images from their mean."""
    cls, shape = kind
    X = noise_of(seed, shape)
    a, b = fit(cls, X, X[:k]), fit(cls, c * X, c * X[:k])
    assert np.array_equal(b.labels_, a.labels_)
    assert np.array_equal(b.cluster_centers_, c * a.cluster_centers_)
    assert np.array_equal(b.transform(c * X), c**2 * a.transform(X))
    assert b.inertia_ == c**2 * a.inertia_
    assert np.array_equal(b.align(c * X).displacements, a.align(X).displacements)


@few
@given(seeds, clusters, classes, st.sampled_from([1e-6, 1 / 255, 3.0, 255.0, 1e6]))
def test_any_factor_scales_distances_by_its_square(seed, k, cls, c):
    """Other factors than powers of two change the rounding, so `shapes`, to `SUM` each image's
    distance to its own centroid: those to others may end in another local minimum."""
    X = shapes_of(seed, SQUARE, k, np.float64)
    a, b = fit(cls, X, X[:k]), fit(cls, c * X, c * X[:k])
    assert np.array_equal(b.labels_, a.labels_)
    assert_allclose(b.cluster_centers_ / c, a.cluster_centers_, **NEAR)
    own = a.transform(X).min(1)
    assert_allclose(b.transform(c * X).min(1) / c**2, own, rtol=1e-2, atol=1e-2 * own.mean())
    assert b.inertia_ / c**2 == pytest.approx(a.inertia_, **SUM)


# ---------------------------------------------------------------- weights and duplicates


@few
@given(seeds, clusters, classes)
def test_an_exact_duplicate_changes_no_label(seed, k, cls):
    """In `predict`, of any images. In a fit a duplicate pulls its centroid, so a label on the edge
    may change; with a duplicate of *every* image nothing is pulled, and of `shapes`, which are not
    on the edge, one changes none."""
    X = shapes_of(seed, SQUARE, k)
    i = seed % len(X)
    a = fit(cls, X, X[:k])
    one, all_ = fit(cls, np.concatenate([X, X[i : i + 1]]), X[:k]), fit(cls, np.tile(X, (2, 1, 1)),
                                                                       X[:k])  # fmt: skip
    assert np.array_equal(one.labels_, np.append(a.labels_, a.labels_[i]))
    assert np.array_equal(all_.labels_, np.tile(a.labels_, 2))
    assert all_.inertia_ == pytest.approx(2 * a.inertia_, **SUM)
    other = noise_of(seed, SQUARE)
    f = a.transform(np.concatenate([other, other[3:4]]))
    assert np.array_equal(f[:-1], a.transform(other)) and np.array_equal(f[-1], f[3])


@few
@given(seeds, clusters, classes)
def test_weight_two_equals_a_duplicate(seed, k, cls):
    """To `NEAR`: 2 x is one rounding, x + x in a batch another. A weight of 0 leaves out."""
    X = shapes_of(seed, SQUARE, k)
    i = seed % len(X)
    weights = np.ones(len(X))
    weights[i] = 2
    twice = fit(cls, np.concatenate([X, X[i : i + 1]]), X[:k])
    heavy = fit(cls, X, X[:k], weights)
    assert np.array_equal(twice.labels_, np.append(heavy.labels_, heavy.labels_[i]))
    assert_allclose(twice.cluster_centers_, heavy.cluster_centers_, **NEAR)
    assert twice.inertia_ == pytest.approx(heavy.inertia_, **SUM)
    # the penalties' unit counts no image of weight 0 either
    without = fit(cls, np.concatenate([X, noise_of(seed, SQUARE, 2)]), X[:k],
                  np.append(np.ones(len(X)), [0, 0]))  # fmt: skip
    plain = fit(cls, X, X[:k])
    assert np.array_equal(without.labels_[:-2], plain.labels_)
    assert without.inertia_ == pytest.approx(plain.inertia_, **SUM)


# ---------------------------------------------------------------- distances and labels


@few
@given(seeds, kinds, clusters, st.sampled_from([1.0, 0.0]))
def test_distances_are_at_least_zero_and_at_most_those_of_the_identity(seed, kind, k, part):
    """With the fixed prior only: a learned one gives minus log-likelihoods, which may be negative.
    Penalties as they are, and none."""
    cls, shape = kind
    X = noise_of(seed, shape)
    none = {} if part else {"displacement": 0.0, **({"bending": 0.0} if cls is STKMeans else {})}
    km = fit(cls, X, X[:k], **none)
    f, a = km.transform(X), km.align(X)
    smooth = km._model.smooth(X[..., None])[..., 0].astype(np.float64)
    identity = ((smooth[:, None] - km.cluster_centers_) ** 2).sum((2, 3))
    assert (f >= 0).all() and (f <= identity * (1 + 1e-5) + 1e-6).all()
    assert (a.penalties >= 0).all() and (a.penalties <= a.distances * (1 + 1e-4) + 1e-6).all()


@few
@given(seeds, clusters, st.sampled_from(["fixed", "learned", "affine"]))
def test_the_nearest_centroid_is_the_label(seed, k, kind):
    """``transform(X).argmin(1) == predict(X) == fit(X).labels_``, of noise too, converged or not,
    and in any memory: a fit ends by labelling as `predict` does. With solver='adam' this holds for
    the first only: its labels are those of the last pass, as published."""
    X = noise_of(seed, SQUARE, 20)
    if kind == "learned":
        km = STKMeans(k, landmarks=3, init=X[:k], n_swaps=0, max_iter=2, random_state=0).fit(X)
    else:
        km = fit(AffineKMeans if kind == "affine" else STKMeans, X, X[:k])
    f, labels = km.transform(X), km.predict(X)
    assert np.array_equal(f.argmin(1), labels) and np.array_equal(km.labels_, labels)
    assert km.inertia_ == pytest.approx(f.min(1).sum(dtype=np.float64), rel=1e-6)
    assert np.array_equal(km.set_params(memory_limit=0.2).predict(X), labels)


def test_a_converged_fit_by_adam_predicts_its_labels():
    X = shapes_of(1, SQUARE, 3)
    km = STKMeans.paper(3, landmarks=3, init=X[:3], epochs=30).fit(X)
    assert np.array_equal(km.labels_, km.predict(X))
    assert np.array_equal(km.transform(X).argmin(1), km.predict(X))


# ---------------------------------------------------------------- numerics

RANGES = {
    "uint16": lambda x: np.round(65535 * x).astype(np.uint16),
    "int16 below zero": lambda x: (np.round(30000 * x) - 32768).astype(np.int16),
    "negative": lambda x: -x,
    "huge": lambda x: 1e6 * x,
    "tiny": lambda x: 1e-6 * x,
    "half": lambda x: x.astype(np.float16),
}


@pytest.mark.parametrize("prior", ["fixed", "learned"])
@pytest.mark.parametrize("name", RANGES)
def test_units_of_intensity_decide_no_label(name, prior):
    """Labels as of the images from 0 to 1, or of those without an offset: beyond the frame is 0, so
    an offset is an edge there, and its labels need only be finite ones."""
    X = shapes_of(2, SQUARE, 3, np.float64)
    other = RANGES[name](X)
    params = {"prior": prior, "n_swaps": 1, "random_state": 0}
    a, b = fit(STKMeans, X, X[:3], **params), fit(STKMeans, other, other[:3], **params)
    assert (a.prior_ is None) == (b.prior_ is None) == (prior == "fixed")
    assert np.isfinite(b.inertia_) and np.isfinite(b.cluster_centers_).all()
    assert all(np.isfinite(v) for e in b.history_ for v in e.values() if isinstance(v, float))
    assert np.isfinite(b.transform(other)).all()
    if name != "int16 below zero":
        assert np.array_equal(a.labels_, b.labels_)
    if name == "negative" and prior == "fixed":  # signs change no rounding
        assert b.inertia_ == a.inertia_


def test_a_learned_prior_has_no_unit_of_its_own():
    """κ, a ratio, is the same, and covariances of displacements: lengths, not intensities."""
    X = shapes_of(2, SQUARE, 3, np.float64)
    params = {"prior": "learned", "n_swaps": 0, "random_state": 0}
    a, *others = [fit(STKMeans, c * X, c * X[:3], **params) for c in (1, 2.0**-20, 2.0**20)]
    for c, b in zip((2.0**-20, 2.0**20), others, strict=True):
        assert b.prior_.kappa == pytest.approx(a.prior_.kappa, rel=1e-6)
        assert b.prior_.noise == pytest.approx(c**2 * a.prior_.noise, rel=1e-2)
        assert_allclose(b.prior_.covariance, a.prior_.covariance, rtol=0.02, atol=1e-3)


def test_intensities_that_float32_cannot_square_are_named():
    X = shapes_of(3, SQUARE, 2, np.float64)
    km = fit(STKMeans, X, X[:2])
    for sign in (1, -1):
        for call in (lambda x: fit(STKMeans, x, X[:2]), km.predict, km.transform, km.align):
            with pytest.raises(ValueError, match="1e.08 overflow: divide them"):
                call(sign * 1e20 * X)
    with pytest.warns(UserWarning, match="1e-08 vanish: multiply them"):
        fit(STKMeans, 1e-20 * X, X[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(STKMeans, 0.9e8 * X / X.max(), 0.9e8 * X[:2])


@pytest.mark.parametrize("penalised", [True, False])
@pytest.mark.parametrize("cls", [STKMeans, AffineKMeans])
def test_centroids_and_images_without_contrast_divide_by_nothing(cls, penalised):
    """Without a penalty the Hessian of a constant centroid is zero."""
    X = shapes_of(4, SQUARE, 2)
    X[1], X[2] = 0, 0.5
    none = {"displacement": 0.0, **({"bending": 0.0} if cls is STKMeans else {})}
    start = X[:3].copy()
    km = fit(cls, X, start, **({} if penalised else none))
    params = {name: v for name, v in km.get_params().items() if name not in ("n_clusters", "init")}
    for fitted in (km, cls.from_centroids(start, X, **params)):
        f, a = fitted.transform(X), fitted.align(X)
        for found in (fitted.cluster_centers_, fitted.inertia_, f, *a):
            assert np.isfinite(found).all()
        assert (f >= 0).all() and ((a.folded >= 0) & (a.folded <= 1)).all()
        assert np.isfinite(fitted.transform(np.zeros_like(X))).all()
    assert f[1, 1] == 0 and fitted.labels_[1] == 1  # black on black


# ---------------------------------------------------------------- environment

PARAMS = {
    "landmarks": 3,
    "prior": "fixed",
    "n_init": 1,
    "n_swaps": 0,
    "max_iter": 2,
    "random_state": 0,
}
FIT = f"""
import sys
import jax
import numpy as np
from stkm import STKMeans
X = np.load(sys.argv[1])
assert jax.config.jax_enable_x64
km = STKMeans(4, **{PARAMS}).fit(X)
np.savez(sys.argv[2], labels=km.labels_, centers=km.cluster_centers_)
"""

OTHER = {
    "JAX_ENABLE_X64": "1",
    "PYTHONHASHSEED": "12345",
    "LC_ALL": "tr_TR.UTF-8",
    "TZ": "Asia/Tokyo",
}


@pytest.mark.slow
def test_the_same_labels_in_another_environment(tmp_path):
    """float64 in jax, another folder, seed of hashes, locale and time zone: of 300 images."""
    X = digits(300)[:, 4:24:2, 4:24:2].astype(np.float32)
    given, made = tmp_path / "ä x.npy", tmp_path / "made.npz"
    np.save(given, X)
    (tmp_path / "elsewhere").mkdir()
    search = os.pathsep.join(os.path.abspath(p) for p in sys.path if p)
    run = subprocess.Popen(
        [sys.executable, "-c", FIT, given, made],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": search, **OTHER},
    )
    km = STKMeans(4, **PARAMS).fit(X)
    assert run.wait() == 0
    with np.load(made) as other:
        assert np.array_equal(other["labels"], km.labels_)
        assert_allclose(other["centers"], km.cluster_centers_, atol=1e-2 * X.max())
