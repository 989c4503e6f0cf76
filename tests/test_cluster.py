"""The loop: K-means where nothing warps, a falling objective, seeds, weights, empty clusters."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from helpers import AffineAdam, IdentityKMeans, bars, digits
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from stkm import AffineKMeans, STKMeans, fitting, search

SMALL = {"landmarks": 3, "n_swaps": 2, "n_init": 1, "prior": "fixed"}
seeds = st.integers(0, 2**32 - 1)


def make(kind, n_clusters=3, **params):
    """An estimator of each kind, quick on `bars`."""
    if kind == "affine":
        return AffineKMeans(n_clusters, n_swaps=2, **params)
    if kind == "spline":
        return STKMeans(n_clusters, **SMALL, **params)
    cls = AffineAdam if kind == "affine adam" else STKMeans
    return cls.paper(n_clusters, landmarks=3, **{"epochs": 60, **params})


KINDS = ["spline", "affine", "paper", "affine adam"]


# ---------------------------------------------------------------- the identity: K-means


@given(seeds, st.booleans())
@settings(max_examples=15)
def test_with_the_identity_alone_it_is_scikit_learns_kmeans(seed, weighted):
    rng = np.random.default_rng(seed)
    X = rng.random((48, 6, 7), dtype=np.float32)
    weights = rng.uniform(0.2, 3, 48) if weighted else None
    start = X[rng.choice(48, 4, replace=False)]
    ours = IdentityKMeans(4, init=start).fit(X, sample_weight=weights)
    flat = X.reshape(48, -1).astype(float)
    theirs = KMeans(4, init=start.reshape(4, -1), n_init=1, max_iter=50, tol=1e-4)
    theirs.fit(flat, sample_weight=weights)
    assert np.array_equal(ours.labels_, theirs.labels_)
    assert_allclose(ours.cluster_centers_.reshape(4, -1), theirs.cluster_centers_, atol=1e-4)
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-5)
    assert np.array_equal(ours.predict(X), theirs.predict(flat))
    assert_allclose(ours.transform(X), theirs.transform(flat) ** 2, rtol=1e-4, atol=1e-5)


def test_with_the_identity_alone_it_is_kmeans_on_digits_and_in_colour():
    grey = digits()[:100].astype(np.float32)
    colour = np.stack([grey, grey[:, ::-1], grey.swapaxes(1, 2)], -1)
    for X in (grey, colour):
        ours = IdentityKMeans(6, init=X[:6]).fit(X)
        flat = X.reshape(100, -1).astype(float)
        theirs = KMeans(6, init=flat[:6], n_init=1, max_iter=50, tol=1e-4).fit(flat)
        assert np.array_equal(ours.labels_, theirs.labels_)
        assert_allclose(
            ours.cluster_centers_.reshape(6, -1), theirs.cluster_centers_, atol=1e-4 * 255
        )
        assert ours.n_iter_ == theirs.n_iter_


# ---------------------------------------------------------------- the objective


def rises(history):
    """Steps where the objective is above the one before, of the same stage, without a reason."""
    out = []
    for before, after in zip(history[:-1], history[1:], strict=True):
        same = before["stage"] == after["stage"] != "swap"
        if same and not before["relocated"]:
            excess = after["objective"] - before["objective"]
            if excess > 1e-5 * abs(before["objective"]):
                out.append((before, after))
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0])
def test_the_objective_never_rises_from_pass_to_pass(kind, seed):
    X = bars(48, seed)[0]
    X += np.random.default_rng(seed).normal(0, 0.05, X.shape).astype(np.float32)
    km = make(kind, 5, tol=0.0, n_candidates=2, random_state=seed).fit(X)
    passes = [h for h in km.history_ if h["stage"] not in ("swap", "final")]
    assert len(passes) > 3
    assert not rises(km.history_)


def test_the_objective_never_rises_on_digits():
    X = digits()[:80]
    km = STKMeans(
        5, landmarks=4, n_swaps=3, n_init=1, prior="fixed", tol=0.0, max_iter=8, random_state=0
    ).fit(X)
    assert not rises(km.history_)
    accepted = [h for h in km.history_ if h["stage"] == "swap" and h["accepted"]]
    refused = [h for h in km.history_ if h["stage"] == "swap" and not h["accepted"]]
    assert all(h["objective"] < h["before"] for h in accepted)
    assert all(h["objective"] >= h["before"] for h in refused)
    assert len(accepted) + len(refused) == 3
    assert km.history_[-1]["objective"] == km.inertia_


def test_hopeless_swaps_end_early_and_change_nothing(monkeypatch):
    def fitted():
        km = STKMeans(5, landmarks=4, n_swaps=8, n_init=1, prior="fixed", random_state=0)
        return km.fit(digits()[:120])

    ended, hopeless = [], search._hopeless
    monkeypatch.setattr(search, "_hopeless", lambda *a: (ended.append(hopeless(*a)), ended[-1])[1])
    early = fitted()
    monkeypatch.setattr(search, "_hopeless", lambda *a: False)
    late = fitted()
    assert any(ended)
    assert np.array_equal(early.cluster_centers_, late.cluster_centers_)
    kept = [[h["accepted"] for h in km.history_ if h["stage"] == "swap"] for km in (early, late)]
    assert kept[0] == kept[1]


def test_a_cluster_that_swallows_the_others_is_told():
    X = np.concatenate([np.repeat(bars(3)[0][:1], 30, axis=0), bars(9)[0]])
    X += np.random.default_rng(0).normal(0, 0.01, X.shape).astype(np.float32)
    options = {"landmarks": 3, "n_swaps": 0, "prior": "fixed", "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=r"has [3-5]\.\d times the mean size"):
        STKMeans(5, init=X[[0, -1, -2, -3, -4]], **options).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        STKMeans(3, **options).fit(bars(9)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_easy_kinds_are_found(kind):
    X, kinds = bars(48)
    km = make(kind, random_state=0)
    if kind == "spline":
        km.set_params(n_init="auto")  # of two searches one may take bars for blocks
    km.fit(X)
    assert adjusted_rand_score(kinds, km.labels_) == 1
    assert km.n_used_ == 3


@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_inertia_are_those_of_predict(kind):
    X, _ = bars(48)
    km = make(kind, 4, random_state=1).fit(X)
    distances = km.transform(X)
    assert distances.shape == (48, 4) and np.isfinite(distances).all() and (distances >= 0).all()
    assert np.array_equal(km.predict(X), distances.argmin(1))
    if km.get_params().get("solver") == "adam":  # its loop keeps each pair's own run of Adam
        assert (km.labels_ == km.predict(X)).mean() >= 0.95
        return
    assert np.array_equal(km.labels_, km.predict(X))
    assert km.inertia_ == pytest.approx(distances.min(1).sum(dtype=float), rel=1e-5)
    assert km.score(X) == pytest.approx(-km.inertia_, rel=1e-5)


def test_the_centroids_are_the_means_of_the_warped_members():
    X, _ = bars(48)
    km = STKMeans(
        3, landmarks=3, smoothing=0.0, prior="fixed", tol=0.0, max_iter=60, random_state=0
    ).fit(X)
    found = km.align(X)
    assert np.array_equal(found.labels, km.labels_)
    for k in range(3):
        mean = found.warped[found.labels == k].mean(0)
        error = ((mean - km.cluster_centers_[k]) ** 2).sum()
        assert error < 0.02 * (km.cluster_centers_[k] ** 2).sum()


def test_predict_goes_on_with_the_pairs_that_could_change_a_label(monkeypatch):
    X = digits()[:200].astype(np.float32) / 255
    km = STKMeans.from_centroids(X[:10], X)
    distances = km.transform(X)
    monkeypatch.setattr(fitting, "SETTLING", 0)
    first = km.transform(X)
    monkeypatch.setattr(fitting, "FINAL", {"n_cold": 120, "n_warm": 0, "n_coarse": 16})
    settled = km.transform(X)
    assert (distances <= first).all()
    assert ((distances < first).sum(1) <= fitting.CONTENDERS).all()
    wrong = (distances.argmin(1) != settled.argmin(1)).sum()
    assert wrong < (first.argmin(1) != settled.argmin(1)).sum()
    assert wrong <= 12  # of 200, against single images, which are harder than means


# ---------------------------------------------------------------- empty clusters


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_centroid_that_nobody_chooses(kind):
    X, _ = bars(48)
    far = np.full((1, 12, 12), 50, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no division by zero on the way
        km = make(kind, init=np.concatenate([X[:2], far]), random_state=0).fit(X)
    assert np.isfinite(km.cluster_centers_).all() and np.isfinite(km.transform(X)).all()
    assert km.cluster_centers_.max() < 2  # it moved to the images
    assert [2] in [h.get("relocated") for h in km.history_]
    assert km.n_used_ == 3
    assert np.isfinite([h["objective"] for h in km.history_]).all()
    assert not rises(km.history_)


def test_the_empty_centroid_goes_to_the_worst_fitted_image():
    X = np.zeros((9, 6, 6), np.float32)
    X[:8] = np.random.default_rng(0).normal(0, 0.01, (8, 6, 6))
    X[8] = 1.0  # far from all others
    start = np.stack([X[0], np.full((6, 6), 90, np.float32)])
    km = IdentityKMeans(2, init=start).fit(X)
    assert km.history_[0]["relocated"] == [1]
    assert_allclose(km.cluster_centers_[1], X[8], atol=1e-6)
    assert np.flatnonzero(km.labels_ == 1).tolist() == [8]


# ---------------------------------------------------------------- seeds


@pytest.mark.parametrize("kind", KINDS)
def test_an_int_repeats_exactly(kind):
    X, _ = bars(48)
    a, b = (make(kind, 4, random_state=3).fit(X) for _ in range(2))
    assert np.array_equal(a.labels_, b.labels_)
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)
    assert a.history_ == b.history_


def test_none_and_an_instance_advance():
    X = digits()[:48, 8:20, 8:20]

    def centers(state):
        km = STKMeans(4, landmarks=3, n_swaps=0, max_iter=1, random_state=state)
        return km.fit(X).cluster_centers_

    one, again = np.random.RandomState(0), np.random.RandomState(0)
    first, second = centers(one), centers(one)
    assert not np.array_equal(first, second)
    assert np.array_equal(centers(again), first)
    assert np.array_equal(centers(again), second)
    np.random.seed(0)  # noqa: NPY002  None is numpy's global state, as in scikit-learn
    first, second = centers(None), centers(None)
    assert not np.array_equal(first, second)


def test_run_i_does_not_depend_on_the_number_of_runs():
    X = digits()[:48, 8:20, 8:20]

    def runs(n_init):
        asked = []

        def start(images, n_clusters, seed):
            assert images.shape == X.shape and n_clusters == 4
            asked.append(seed)
            return images[np.random.default_rng(seed).choice(len(images), 4, replace=False)]

        km = STKMeans(4, landmarks=3, init=start, n_init=n_init, max_iter=2, random_state=5).fit(X)
        return asked, km.inertia_

    (one, i1), (two, i2), (four, i4) = (runs(n) for n in (1, 2, 4))
    assert len(one) == 1 and len(set(four)) == 4
    assert four[:2] == two and two[:1] == one
    assert i4 <= i2 <= i1
    assert runs("auto") == (one, i1)


@pytest.mark.parametrize("kind", ["spline", "paper"])
def test_the_best_of_several_runs_is_one_of_them(kind):
    X = digits()[:48, 8:20, 8:20]

    class Runs(STKMeans):
        seen = []

        def _fit_once(self, *args):
            result = super()._fit_once(*args)
            self.seen.append(result.objective)
            return result

    Runs.seen.clear()
    params = {"epochs": 15} if kind == "paper" else {"init": "k-means++ pixels", "max_iter": 2}
    cls = Runs.paper if kind == "paper" else Runs
    made = [cls(4, landmarks=3, n_init=n, random_state=1, **params).fit(X) for n in (1, 3)]
    one, three = Runs.seen[:1], Runs.seen[1:]
    assert three[:1] == one and len(set(three)) > 1
    assert [km.inertia_ for km in made] == [one[0], min(three)]


# ---------------------------------------------------------------- weights, scale, types


@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_of_two_is_an_image_given_twice(kind):
    X, _ = bars(48)
    weights = np.ones(48)
    weights[::4] = 2
    twice = np.concatenate([X, X[::4]])
    start = X[:3]
    a = make(kind, init=start).fit(X, sample_weight=weights)
    b = make(kind, init=start).fit(twice)
    assert np.array_equal(a.labels_, b.labels_[:48])
    assert_allclose(a.cluster_centers_, b.cluster_centers_, atol=1e-3)
    assert a.inertia_ == pytest.approx(b.inertia_, rel=1e-3)
    # all weights alike: nothing but the objective changes
    c = make(kind, init=start).fit(X, sample_weight=np.full(48, 3.0))
    d = make(kind, init=start).fit(X)
    assert np.array_equal(c.labels_, d.labels_)
    assert_allclose(c.cluster_centers_, d.cluster_centers_, atol=1e-3)


@pytest.mark.parametrize("kind", ["spline", "affine"])
def test_images_without_weight_have_no_say(kind):
    X, _ = bars(48)
    odd = np.concatenate([X, 40 * X[:4, ::-1]])
    weights = np.repeat([1.0, 0.0], [48, 4])
    a = make(kind, init=X[:3]).fit(odd, sample_weight=weights)
    b = make(kind, init=X[:3]).fit(X)
    assert np.array_equal(a.labels_[:48], b.labels_)
    assert_allclose(a.cluster_centers_, b.cluster_centers_, atol=1e-3)
    assert a.inertia_ == pytest.approx(b.inertia_, rel=1e-3)
    searched = make(kind, random_state=0).fit(odd, sample_weight=weights)
    assert searched.cluster_centers_.max() < 2


@pytest.mark.parametrize("kind", ["spline", "affine", "paper"])
def test_the_scale_of_intensity_changes_no_label(kind):
    X, _ = bars(48)
    a = make(kind, 4, random_state=2).fit(X)
    b = make(kind, 4, random_state=2).fit(X * np.float32(256))
    assert np.array_equal(a.labels_, b.labels_)
    assert_allclose(b.cluster_centers_, 256 * a.cluster_centers_, atol=256 * 2e-3)
    assert b.inertia_ == pytest.approx(256**2 * a.inertia_, rel=1e-2)


def test_grey_images_as_colour_have_the_same_clusters():
    X, _ = bars(48)
    colour = np.repeat(X[..., None], 3, -1)
    params = {"landmarks": 3, "tol": 0.0, "max_iter": 6, "prior": "fixed"}
    a = STKMeans(3, init=X[:3], **params).fit(X)
    b = STKMeans(3, init=colour[:3], **params).fit(colour)
    assert b.cluster_centers_.shape == (3, 12, 12, 3)
    assert np.array_equal(a.labels_, b.labels_)
    for grey, all_three in zip(a.history_, b.history_, strict=True):
        assert all_three["objective"] == pytest.approx(3 * grey["objective"], rel=2e-3)
    assert_allclose(b.cluster_centers_, a.cluster_centers_[..., None] * np.ones(3), atol=0.01)
    assert b.align(colour[:2]).warped.shape == (2, 12, 12, 3)


def test_rectangular_images_turned_over_have_the_same_clusters():
    X, _ = bars(48)
    wide = np.pad(X, ((0, 0), (0, 0), (2, 3)))
    params = {"landmarks": 3, "tol": 0.0, "max_iter": 4, "prior": "fixed"}
    a = STKMeans(3, init=wide[:3], **params).fit(wide)
    tall = wide.swapaxes(1, 2)
    b = STKMeans(3, init=tall[:3], **params).fit(tall)
    assert a.cluster_centers_.shape == (3, 12, 17) and b.cluster_centers_.shape == (3, 17, 12)
    assert np.array_equal(a.labels_, b.labels_)
    for lying, upright in zip(a.history_, b.history_, strict=True):
        assert upright["objective"] == pytest.approx(lying["objective"], rel=2e-3)
    assert_allclose(b.cluster_centers_.swapaxes(1, 2), a.cluster_centers_, atol=0.01)


def test_all_images_are_used_when_the_search_sees_a_part():
    X, kinds = bars(48)
    km = STKMeans(3, **SMALL, search_size=24, random_state=0).fit(X)
    assert km.labels_.shape == (48,)
    assert adjusted_rand_score(kinds, km.labels_) == 1


# ---------------------------------------------------------------- threads

ONE_THREAD = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import numpy as np
from stkm import STKMeans
X = np.load(sys.argv[1])
km = STKMeans(4, landmarks=4, n_swaps=1, max_iter=3, random_state=0).fit(X)
np.savez(sys.argv[2], labels=km.labels_, centers=km.cluster_centers_)
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two processors and a way to use only one",
)
def test_S5_one_and_two_threads_agree(tmp_path):
    X = digits(300).astype(np.float32) / 255
    np.save(tmp_path / "x.npy", X)
    other = subprocess.Popen(
        [sys.executable, "-c", ONE_THREAD, tmp_path / "x.npy", tmp_path / "out.npz"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    here = STKMeans(4, landmarks=4, n_swaps=1, max_iter=3, random_state=0).fit(X)
    assert other.wait() == 0
    with np.load(tmp_path / "out.npz") as one:
        assert np.array_equal(one["labels"], here.labels_)
        assert_allclose(one["centers"], here.cluster_centers_, atol=1e-4)
