"""MiniBatchSTKMeans: steps, rates and reassignment by hand, and the contract of an estimator."""

import pickle

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from helpers import assert_rejected_before_compilation, bars, compilations
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from stkm import MiniBatchSTKMeans, STKMeans, metrics
from stkm import prior as _prior
from stkm.minibatch import _Trend

EASY = {"landmarks": 3, "n_swaps": 1, "n_init": 1, "batch_size": 64, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    X, kinds = bars(400)
    params = {"init_size": 100, "max_iter": 2, **EASY}
    return MiniBatchSTKMeans(3, **params).fit(X), X, kinds


# ---------------------------------------------------------------- the fit


def test_the_kinds_are_found_and_the_labels_are_those_of_predict(fitted):
    km, X, kinds = fitted
    assert metrics.clustering_accuracy(kinds, km.labels_) == 1.0
    assert np.array_equal(km.labels_, km.predict(X)) and km.labels_.dtype == np.int32
    assert km.inertia_ == pytest.approx(float(km.transform(X).min(1).sum(dtype=np.float64)))
    steps = [e for e in km.history_ if e["stage"] == "mini-batch"]
    assert len(steps) == km.n_steps_ >= 1 and 1 <= km.n_iter_ <= 2
    assert km.counts_.sum() == pytest.approx(100 + 64 * km.n_steps_)  # the sample, and every batch
    assert km.prior_ is not None and km.deformation_modes_[0].shape == (3, 18)


def test_the_same_seed_is_the_same_fit_from_any_source(fitted, tmp_path):
    km, X, _ = fitted
    np.save(tmp_path / "x.npy", X)
    again = clone(km).fit(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert np.array_equal(again.cluster_centers_, km.cluster_centers_)
    assert np.array_equal(again.labels_, km.labels_)
    flat = clone(km).set_params(image_shape=(12, 12), max_iter=1).fit(X.reshape(400, -1))
    assert flat.n_features_in_ == 144 and flat.predict(X.reshape(400, -1)[:5]).shape == (5,)


def test_a_fitted_estimator_survives_a_file(fitted):
    km, X, _ = fitted
    again = pickle.loads(pickle.dumps(km))
    assert np.array_equal(again.predict(X[:20]), km.labels_[:20])
    assert np.array_equal(
        again.partial_fit(X[:64]).cluster_centers_,
        pickle.loads(pickle.dumps(km)).partial_fit(X[:64]).cluster_centers_,
    )


def test_a_step_of_later_batches_compiles_nothing(fitted):
    km, X, _ = fitted
    km = pickle.loads(pickle.dumps(km))
    km.partial_fit(X[:64])
    with compilations() as compiled:
        km.partial_fit(X[64:128]).partial_fit(X[128:192])
    assert not compiled


# ---------------------------------------------------------------- a step by hand


def test_a_centroid_moves_by_its_own_rate(fitted):
    """Σ w T(x) over a centroid's images, old ones counted as ``counts_`` of the old centroid."""
    km, X, _ = fitted
    km = pickle.loads(pickle.dumps(km))
    counts, before = km.counts_.copy(), np.float64(km.cluster_centers_)
    rng, weights = np.random.default_rng(0), np.arange(64) / 10.0
    matcher, state = km._assigned(X[:64, ..., None])
    km._step(X[:64, ..., None], weights, rng)
    for k in range(3):
        index = np.flatnonzero((state.labels == k) & (weights > 0))
        warped = matcher.warped(index, state.d[index, k])[..., 0].astype(np.float64)
        w = weights[index]
        total = counts[k] + w.sum()
        expected = (counts[k] * before[k] + np.einsum("n,nhw->hw", w, warped)) / total
        assert_allclose(km.cluster_centers_[k], expected, atol=1e-5)
        assert km.counts_[k] == pytest.approx(total)


def test_a_weight_of_zero_counts_for_nothing(fitted):
    km, X, _ = fitted
    a, b = (pickle.loads(pickle.dumps(km)) for _ in range(2))
    spoilt = X[:64].copy()
    spoilt[32:] = 0.5
    weights = np.r_[np.ones(32), np.zeros(32)]
    a.partial_fit(X[:64], sample_weight=weights)
    b.partial_fit(spoilt, sample_weight=weights)
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)
    assert np.array_equal(a.counts_, b.counts_)


def test_a_centroid_that_few_choose_becomes_an_image(fitted):
    km, X, _ = fitted
    km = pickle.loads(pickle.dumps(km))
    km.counts_[:] = [1000.0, 5.0, 300.0]
    rng = np.random.default_rng(0)
    moved = km._reassign(X[:64, ..., None], np.ones(64), rng)
    assert moved == [1] and km.counts_.tolist() == [1000.0, 300.0, 300.0]
    smooth = km._model.smooth(X[:64, ..., None])[..., 0]
    assert (np.abs(smooth - km.cluster_centers_[1]).max((1, 2)) == 0).sum() == 1
    assert km._moments[1].weight == 0
    km._unseen = 0
    km.counts_[:] = [1000.0, 5.0, 300.0]
    assert km._reassign(X[:10, ..., None], np.ones(10), rng) == []  # fewer than 10 K since then
    km.reassignment_ratio = 0.0
    assert km._reassign(X[:64, ..., None], np.ones(64), rng) == []


def test_the_fit_ends_where_nothing_falls_any_more():
    trend = _Trend(batch_size=50, n=99, patience=2)  # alpha = 1: no smoothing
    assert [trend.ends(f) for f in (5.0, 4.0, 4.5, 3.0, 3.5, 3.2)] == [False] * 5 + [True]
    trend = _Trend(batch_size=10, n=99, patience=None)
    assert not any(trend.ends(1.0) for _ in range(50))
    trend = _Trend(batch_size=10, n=99, patience=1)
    assert [trend.ends(1.0), trend.ends(0.5)] == [False, False]
    assert trend.smoothed == pytest.approx(0.8 * 1.0 + 0.2 * 0.5)


# ---------------------------------------------------------------- moments


def test_the_prior_of_moments_is_that_of_all_images():
    rng = np.random.default_rng(0)
    members, moments, hessians = [], [], []
    for k in range(3):
        n = 60 + 10 * k
        r = (rng.normal(size=(n, 30)) * np.r_[5.0, 3.0, np.ones(28)]).astype(np.float32)
        d, w = rng.normal(size=(n, 8)).astype(np.float32), rng.uniform(0.5, 2, n)
        a = rng.normal(size=(8, 8))
        pair = (a @ a.T, np.eye(8))
        members.append(_prior.Members(r, d, w, *pair))
        hessians.append(pair)
        sums = _prior.Moments.empty(8, 30)
        for part in np.array_split(np.arange(n), 4):
            sums.add(r[part], d[part], w[part], 30)
        moments.append(sums)
    options = {"n_modes": 4, "kappa": 0.2, "tying": 0.5}
    whole = _prior.learn([*members, None], np.eye(8), **options)
    parts = _prior.learn_from([*moments, None], [*hessians, None], np.eye(8), **options)
    assert_allclose(parts.covariance, whole.covariance, rtol=1e-6)
    assert_allclose(parts.noise, whole.noise, rtol=1e-6)
    assert_allclose(parts.flexibility, whole.flexibility, rtol=1e-6)
    outer = [np.einsum("kqn,kqm->knm", p.loadings, p.loadings) for p in (parts, whole)]
    assert_allclose(*outer, atol=1e-5)


def test_few_components_keep_the_leading_ones_and_the_whole_trace():
    rng = np.random.default_rng(1)
    r = rng.normal(size=(400, 20)) * np.r_[9.0, 6.0, np.full(18, 0.5)]
    sums = _prior.Moments.empty(2, 20)
    for part in np.array_split(r, 20):
        sums.add(part, np.zeros((len(part), 2)), np.ones(len(part)), 6)
    assert sums.rows.shape == (6, 20) and sums.count == 400
    assert sums.trace == pytest.approx((r**2).sum())
    exact = np.linalg.eigvalsh(r.T @ r / 400)[::-1]
    assert_allclose(sums.modes(2).variances, exact[:2], rtol=1e-3)


# ---------------------------------------------------------------- partial_fit and the contract


def test_partial_fit_starts_from_its_first_images_and_goes_on():
    X, kinds = bars(300)
    km = MiniBatchSTKMeans(3, **EASY)
    with pytest.raises(NotFittedError):
        km.predict(X[:2])
    km.partial_fit(X[:100])
    whole = STKMeans(3, landmarks=3, n_swaps=1, n_init=1, random_state=0).fit(X[:100])
    assert np.array_equal(km.cluster_centers_, whole.cluster_centers_)
    assert np.array_equal(km.labels_, whole.labels_) and km.n_steps_ == 0
    km.partial_fit(X[100:300])  # four steps of 64 images at most
    assert km.n_steps_ == 4 and len(km.labels_) == 200
    assert km.counts_.sum() == pytest.approx(300)
    assert metrics.clustering_accuracy(kinds[100:], km.labels_) == 1.0
    with pytest.raises(ValueError, match="images of shape"):
        km.partial_fit(X[:70, :, :11])


def test_partial_fit_goes_on_after_fit():
    X, _ = bars(120)
    km = MiniBatchSTKMeans(3, **{**EASY, "batch_size": 40}, max_iter=1, compute_labels=False).fit(X)
    assert not hasattr(km, "labels_") and km.n_steps_ == 3
    km.partial_fit(X[:40], sample_weight=np.full(40, 2.0))
    assert km.n_steps_ == 4 and km.counts_.sum() == pytest.approx(120 + 120 + 80)


def test_a_fit_without_labels_is_drawn_with_images_and_says_so_without():
    X, _ = bars(120)
    km = MiniBatchSTKMeans(3, **{**EASY, "batch_size": 40}, max_iter=1, compute_labels=False).fit(X)
    with pytest.raises(ValueError, match=r"labelled no image.*plot\(X\)"):
        km.plot()
    axes = km.plot(X[:30])
    assert set(axes) >= {"centroids", "history", "nearest", "farthest", "warps", "distances"}
    sizes = [int(text.split()[-1].strip("()")) for text in named(axes["nearest"])]
    assert sizes == np.bincount(km.predict(X[:30]), minlength=3).tolist()
    plt.close("all")


def named(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_from_centroids_and_a_fixed_prior(fitted):
    km, X, _ = fitted
    params = {**EASY, "prior": "fixed"}
    again = MiniBatchSTKMeans.from_centroids(km.cluster_centers_, X[:64], **params)
    again.partial_fit(X[:64])
    assert again.prior_ is None and again.n_steps_ == 1 and again.counts_.sum() == 64


def fit(X, **params):
    return lambda: MiniBatchSTKMeans(**{"n_clusters": 3, **EASY, **params}).fit(X)


X = np.random.default_rng(0).random((20, 9, 13), dtype=np.float32)  # a frame of no other test
BAD = {
    "batch_size": (fit(X, batch_size=0), "batch_size=0"),
    "max_iter": (fit(X, max_iter=0), "max_iter=0"),
    "init_size": (fit(X, init_size=2), "init_size=2: expected a whole number of at least 3"),
    "max_no_improvement": (fit(X, max_no_improvement=0), "max_no_improvement=0"),
    "reassignment_ratio": (fit(X, reassignment_ratio=-1), "reassignment_ratio=-1"),
    "tol": (fit(X, tol=-1), "tol=-1"),
    "prior": (fit(X, prior="none"), "'learned', 'fixed'"),
    "tying": (fit(X, tying=2), "tying=2"),
    "few": (fit(X[:2]), "n_samples=2 should be >= n_clusters=3"),
    "NaN": (fit(np.full_like(X, np.nan)), "contains NaN"),
    "one": (fit(X[0]), "X[None]"),
    "memory_limit": (fit(X, memory_limit=0), "memory_limit=0"),
    "devices": (fit(X, devices=99), "devices=99"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_before_anything_is_compiled(name):
    assert_rejected_before_compilation(*BAD[name])
