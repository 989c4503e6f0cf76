"""Passes over images that are not kept: one by hand, the same end from any source, memory."""

import numpy as np
import pytest
from helpers import assert_rejected_before_compilation, bars
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from test_blocks import Records, memory_of

from stkm import AffineKMeans, STKMeans, fitting, metrics, passes, progress
from stkm.lloyd import update
from stkm.prior import Moments

EASY = {"landmarks": 3, "n_swaps": 1, "n_init": 1, "random_state": 0}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(fitting, "PART", 60)
    monkeypatch.setattr(passes, "BLOCK", 64)


@pytest.fixture(scope="module")
def images():
    return bars(130)


@pytest.fixture(scope="module")
def fitted(images):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "PART", 60)
        patch.setattr(passes, "BLOCK", 64)
        return STKMeans(3, keep="nearest", **EASY).fit(images[0])


def same(a, b):
    fields = ("labels_", "cluster_centers_", "inertia_", "n_iter_")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in fields)


# ---------------------------------------------------------------- the fit


def test_the_kinds_are_found_and_the_labels_are_those_of_predict(fitted, images):
    X, kinds = images
    assert metrics.clustering_accuracy(kinds, fitted.labels_) == 1.0
    assert np.array_equal(fitted.labels_, fitted.predict(X)) and fitted.n_used_ == 3
    assert fitted.inertia_ == pytest.approx(float(fitted.transform(X).min(1).sum(dtype=float)))
    whole = [e for e in fitted.history_ if e["stage"] == "whole"]
    assert len(whole) == fitted.n_iter_ >= 2 and whole[0]["changed"] == len(X)
    assert all("share" not in e and e["held_out"] is not None for e in whole)
    shares = [e["share"] for e in fitted.history_ if e["stage"] == "learn"]
    assert set(shares) == {60 / 130}  # the part's steps
    assert fitted.prior_ is not None and fitted.history_[-1]["stage"] == "final"


def test_the_same_end_from_any_source_and_nothing_is_read_whole(fitted, images, tmp_path):
    X = images[0]
    assert same(clone(fitted).fit(memory_of(tmp_path, X)), fitted)
    longest = []

    class Watched(Records):
        def __getitems__(self, index):
            longest.append(len(index))
            return [self[i] for i in index]

    assert same(clone(fitted).fit(Watched(X)), fitted)
    assert max(longest) <= 64 or sorted(longest)[-2] <= 64  # labels: a block of `predict`
    flat = clone(fitted).set_params(image_shape=(12, 12)).fit(X.reshape(len(X), -1))
    assert same(flat, fitted) and flat.n_features_in_ == 144


def test_nothing_kept_comes_to_nearly_the_same(fitted, images):
    X, kinds = images
    km = STKMeans(3, keep="nothing", **EASY).fit(X)
    assert metrics.clustering_accuracy(kinds, km.labels_) == 1.0
    assert km.inertia_ == pytest.approx(fitted.inertia_, rel=0.15)  # other iterations


def test_few_images_are_fitted_whole(images):
    X = images[0][:60]
    assert same(STKMeans(3, keep="nearest", **EASY).fit(X), STKMeans(3, **EASY).fit(X))


@pytest.mark.parametrize("estimator", [STKMeans(3, prior="fixed", **EASY), AffineKMeans(3)])
def test_without_a_prior_passes_end_where_the_centroids_rest(estimator, images):
    X, kinds = images
    km = clone(estimator).set_params(keep="nearest", n_swaps=1, n_init=1, random_state=0).fit(X)
    shifts = [e["shift"] for e in km.history_ if e["stage"] == "whole"]
    assert shifts[-1] <= km._model.shift and all(s > km._model.shift for s in shifts[:-1])
    assert metrics.clustering_accuracy(kinds, km.labels_) == 1.0


def test_a_weight_of_zero_counts_for_nothing(images):
    X = images[0]
    weights = np.ones(len(X))
    weights[::3] = 0
    spoilt = X.copy()
    spoilt[::3] = spoilt[::3, ::-1]
    params = {"keep": "nearest", "prior": "fixed", **EASY}
    a, b = (STKMeans(3, **params).fit(x, sample_weight=weights) for x in (X, spoilt))
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)
    assert a.inertia_ == b.inertia_


# ---------------------------------------------------------------- a pass by hand


def test_a_pass_moves_centroids_to_the_mean_of_all_warped_members(fitted, images):
    """Eq. 4 on all images at once, as `stkm.lloyd.update` has it."""
    X = images[0][..., None]
    model, weights = fitted._model, np.linspace(0, 2, len(X))
    centers = fitted._matched()
    fit = passes.Fit.of(centers, None, len(X), 2, 18, [])
    read, silent = X.__getitem__, progress.Progress()
    passes._one(model, read, weights, 0 * weights, fit, 9, silent)
    matcher = model.matcher(model.smooth(X), **passes.PASS)
    state = passes.cold_state(matcher, centers)
    passes.assign(matcher, state, np.ones_like(state.mask), np.ones(3, bool))
    assert np.array_equal(fit.labels, state.labels)
    assert_allclose(fit.centers, update(matcher, state, weights), atol=2e-6)
    assert fit.objective == pytest.approx(state.objective(weights), rel=1e-6)
    assert fit.near.shape == (130, 2) and fit.warps.dtype == np.float16
    rows = np.arange(130)
    assert np.array_equal(np.sort(state.f, 1)[:, :2], np.sort(state.f[rows[:, None], fit.near], 1))
    assert_allclose(fit.warps, state.d[rows[:, None], fit.near], atol=2e-3)


@given(st.integers(0, 2**31), st.integers(1, 12))
def test_sums_about_the_mean(seed, n):
    rng = np.random.default_rng(seed)
    r, w = rng.normal(3, 1, (n, 7)).astype(np.float32), rng.random(n) + 0.1
    sums = Moments.empty(4, 7)
    for part in (slice(0, n // 2), slice(n // 2, n)):
        sums.add(r[part], np.zeros((len(r[part]), 4)), w[part], 20)
    mean = np.average(r.astype(np.float64), axis=0, weights=w)
    sums, x = sums.about_mean(mean), (r - mean) * np.sqrt(w)[:, None]
    assert_allclose(sums.rows.T @ sums.rows, x.T @ x, atol=1e-4)
    assert sums.trace == pytest.approx(float((x**2).sum()), abs=1e-4)


def test_a_pass_that_held_out_images_lose_by_is_undone(images, monkeypatch):
    monkeypatch.setattr(passes, "SLACK", -1e9)
    km = STKMeans(3, keep="nearest", **EASY).fit(images[0])
    first, second = [e for e in km.history_ if e["stage"] == "whole"]
    assert second["undone"] and "undone" not in first and km.n_iter_ == 2
    monkeypatch.setattr(passes, "ROUNDS", 1)
    monkeypatch.setattr(passes, "SLACK", 0.2)
    assert same_but_passes(km, STKMeans(3, keep="nearest", **EASY).fit(images[0]))


def same_but_passes(a, b):
    return np.array_equal(a.cluster_centers_, b.cluster_centers_) and a.inertia_ == b.inertia_


# ---------------------------------------------------------------- stops and faults


def test_who_ends_a_fit_has_the_state_so_far(fitted, images):
    seen = []

    def end(entry):
        seen.append(entry["stage"])
        if seen.count("whole") == 2:
            raise KeyboardInterrupt

    km = clone(fitted).set_params(verbose=end)
    with pytest.warns(ConvergenceWarning, match="interrupted after 1 passes over all images"):
        km.fit(images[0])
    assert km.labels_.shape == (130,) and np.isfinite(km.inertia_) and km.n_used_ == 3
    assert km.predict(images[0][:5]).shape == (5,)

    def at_once(entry):
        if entry["stage"] == "learn":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # a part that is not fitted is no result
        clone(fitted).set_params(verbose=at_once).fit(images[0])


def test_bad_values_are_named(images):
    X = images[0]
    for wrong in ("few", None, 3):
        assert_rejected_before_compilation(lambda w=wrong: STKMeans(3, keep=w).fit(X), "keep=")
    assert_rejected_before_compilation(
        lambda: STKMeans.paper(3, keep="nearest").fit(X), "solver='adam' keeps all"
    )
    assert_rejected_before_compilation(
        lambda: STKMeans(3, keep="nearest", memory_limit=-1).fit(X), "memory_limit=-1"
    )


def test_the_bar_says_which_pass_it_is_in(capsys):
    bar = progress.Progress(100)
    told = []
    bar.bar.set_postfix_str = lambda text, _: told.append(text)
    for _ in range(2):
        bar.report({"stage": "lloyd", "objective": 2.5}, 10)
    bar.report({"stage": "learn", "objective": 1.0}, 10)
    bar.close()
    assert told == ["lloyd 1, objective 2.5", "lloyd 2, objective 2.5", "learn 1, objective 1"]
