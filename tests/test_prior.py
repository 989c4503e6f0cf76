"""The learned prior: likelihood by scipy, what it learns from a known model, the fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import bars, digits
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, ortho_group

from stkm import AffineKMeans, STKMeans, fitting, learning, prior, solvers
from stkm.ceiling import class_templates
from stkm.metrics import clustering_accuracy
from stkm.prior import Members, Prior, learn
from stkm.warp import Warp


def example(k=2, ndim=4, n=12, q=2, seed=0):
    """A prior of k clusters for n values and ndim displacements."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(k, ndim, 3 * ndim))
    return Prior(a @ a.swapaxes(1, 2) / ndim, rng.normal(size=(k, q, n)), 0.3,
                 np.array([0.25, 0.75]), 0.4, 1.7)  # fmt: skip


def sample(model, k, size, rng, normal):
    """Members of cluster k drawn from the model, whose displacements are all but known."""
    ndim, n = len(model.covariance[k]), model.loadings.shape[2]
    psi = model.loadings[k].T @ model.loadings[k] + model.noise * np.eye(n)
    return Members(
        rng.multivariate_normal(np.zeros(n), psi, size),
        rng.multivariate_normal(np.zeros(ndim), model.covariance[k], size),
        np.ones(size),
        normal * np.eye(ndim),
        np.eye(ndim),
    )


# ---------------------------------------------------------------- the likelihood


@pytest.mark.parametrize("channels", [1, 3])
def test_the_distance_is_minus_the_log_likelihood(channels):
    """2s times the terms of r and d is what the solver minimises; the rest is the offset."""
    p, rng = example(), np.random.default_rng(1)
    r, d, n = rng.normal(size=12), rng.normal(size=4), 12
    for k in range(2):
        psi = p.loadings[k].T @ p.loadings[k] + p.noise * np.eye(n)
        v = p.modes(k, np.arange(n // channels), channels).reshape(n, -1)
        assert_allclose(np.eye(n) - v @ v.T, p.noise * np.linalg.inv(psi), atol=1e-10)
        f = r @ r - ((r @ v) ** 2).sum() + d @ p.penalty(k) @ d
        expected = (
            -p.kappa * multivariate_normal(np.zeros(n), psi).logpdf(r)
            + d @ np.linalg.inv(p.covariance[k]) @ d / 2
            + p.flexibility
            - np.log(p.weights[k])
        )
        assert f / (2 * p.scale) + p.offset(k) == pytest.approx(expected, rel=1e-9)


def test_modes_at_some_pixels_are_those_of_the_marginal():
    p, index = example(), np.array([1, 4, 5, 11])
    w = p.loadings[0][:, index]
    v = p.modes(0, index, 1)[:, 0]
    expected = p.noise * np.linalg.inv(w.T @ w + p.noise * np.eye(4))
    assert_allclose(np.eye(4) - v @ v.T, expected, atol=1e-10)


@pytest.mark.parametrize("channels", [1, 2])
def test_the_solvers_gradient_knows_the_modes(channels):
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        w = Warp.tps((9, 8), landmarks=3)
        grid = solvers.make_grid(w, np.eye(9), dtype=np.float64)
        v = np.linalg.qr(rng.normal(size=(72 * channels, 3)))[0] * [0.9, 0.7, 0.2]
        q = rng.normal(size=(18, 18))
        grid = grid._replace(
            penalty=jnp.asarray(q @ q.T), modes=jnp.asarray(v.reshape(72, channels, 3))
        )
        x, t = rng.random((2, 4, 9, 8, channels))
        d = rng.normal(0, 0.6, (4, 18))
        source = solvers.source_of(x)
        f, g = solvers.evaluate(source, t, jnp.asarray(d), grid)
        r = np.asarray(w(x, np.swapaxes(d.reshape(4, 2, 9), 1, 2)) - t).reshape(4, -1)
        expected = (r**2).sum(1) - ((r @ v) ** 2).sum(1) + np.einsum("ni,ij,nj->n", d, q @ q.T, d)
        assert_allclose(f, expected, rtol=1e-9)
        for i in (0, 7, 17):
            e = 1e-6 * np.eye(18)[i]
            up, down = (solvers.evaluate(source, t, jnp.asarray(d + s), grid)[0] for s in (e, -e))
            assert_allclose(2 * np.asarray(g)[:, i], (up - down) / 2e-6, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- what is learned


def test_a_known_model_is_learned_back():
    rng, truth = np.random.default_rng(0), example(n=30, ndim=6)
    axes = ortho_group.rvs(30, random_state=0)[:2] * np.sqrt([[3.0], [1.5]])
    truth = Prior(truth.covariance, np.stack([axes, axes[:, ::-1]]), 0.3, truth.weights, 1.0, 0.0)
    members = [sample(truth, k, 12000, rng, normal=1e6) for k in range(2)]
    found = learn(members, np.eye(6), 2, 1.0)
    assert found.noise == pytest.approx(0.3, rel=0.03)
    for k in range(2):
        for ours, theirs in zip(found.loadings[k], truth.loadings[k], strict=True):
            assert abs(ours @ theirs) / (theirs @ theirs) == pytest.approx(1, abs=0.05)
        scale = np.abs(truth.covariance[k]).max()
        assert_allclose(found.covariance[k] / scale, truth.covariance[k] / scale, atol=0.06)
    assert_allclose(found.weights, 0.5)


def test_small_clusters_lean_on_the_pooled_model():
    rng, truth = np.random.default_rng(0), example(n=20, ndim=4)
    large, small = sample(truth, 0, 5000, rng, 1e6), sample(truth, 1, 5, rng, 1e6)
    found = learn([large, small, None], np.eye(4), 2, 1.0)
    pooled = found.covariance[2]  # a cluster without images has the pooled one
    scale = np.abs(pooled).max()
    assert_allclose(found.covariance[1] / scale, pooled / scale, atol=0.1)
    assert found.loadings.shape == (3, 2, 20) and not found.loadings[2].any()
    assert found.weights[2] == pytest.approx(1 / 5008) and found.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("tying", [0.0, 0.5, 1.0])
def test_the_spectrum_is_tied_as_asked(tying):
    rng, base = np.random.default_rng(0), ortho_group.rvs(20, random_state=0)[:1]
    loadings = np.stack([base * np.sqrt(8.0), base * np.sqrt(2.0)])
    truth = Prior(np.stack([np.eye(2)] * 2), loadings, 0.1, np.ones(2) / 2, 1.0, 0.0)
    members = [sample(truth, k, 8000, rng, 1e6) for k in range(2)]
    found = learn(members, np.eye(2), 1, 1.0, tying)
    variances = (found.loadings**2).sum((1, 2))
    assert_allclose(variances, [8 - 3 * tying, 2 + 3 * tying], rtol=0.06)


def test_kappa_counts_independent_errors():
    rng = np.random.default_rng(0)
    few = rng.normal(size=(4000, 10))
    weights = np.ones(4000)

    def kappa(values, n_modes):
        return prior.independent_errors(values.reshape(4000, 5, -1, 1), weights, n_modes, 1)

    assert kappa(rng.normal(size=(4000, 40)), 0) == pytest.approx(1, abs=0.02)  # white noise
    assert kappa(np.repeat(few, 4, axis=1), 0) == pytest.approx(0.25, abs=0.01)  # each four times
    strong = np.repeat(few, 4, axis=1)
    strong[:, :4] *= 9  # one direction that the modes take
    assert kappa(strong, 0) < 0.05 and kappa(strong, 1) == pytest.approx(9 / 40, abs=0.01)
    assert kappa(np.zeros((4000, 40)), 0) == 1 / 40


def test_weights_count_as_copies():
    rng = np.random.default_rng(0)
    r, d, w = rng.normal(size=(50, 9)), rng.normal(size=(50, 2)), rng.integers(1, 4, 50)
    weighted = learn([Members(r, d, w.astype(float), np.eye(2), np.eye(2))], np.eye(2), 1, 1.0)
    copies = [np.repeat(a, w, axis=0) for a in (r, d)]
    copied = learn([Members(*copies, np.ones(w.sum()), np.eye(2), np.eye(2))], np.eye(2), 1, 1.0)
    assert_allclose(weighted.covariance, copied.covariance, rtol=1e-9)
    assert weighted.noise == pytest.approx(copied.noise)
    assert_allclose(abs(weighted.loadings), abs(copied.loadings), rtol=1e-6, atol=1e-9)


def test_fewer_modes_for_few_images():
    rng = np.random.default_rng(0)

    def modes(n):
        m = Members(
            rng.normal(size=(n, 30)), rng.normal(size=(n, 2)), np.ones(n), np.eye(2), np.eye(2)
        )
        return learn([m], np.eye(2), 8, 1.0).loadings.shape[1]

    assert [modes(n) for n in (5, 25, 100)] == [0, 2, 8]


# ---------------------------------------------------------------- the fit


@pytest.fixture(scope="module")
def fitted():
    X = digits()[:240]
    return STKMeans(4, landmarks=4, n_swaps=1, n_init=1, max_iter=6, random_state=1).fit(X), X


def test_learning_lowers_the_objective_and_stops_where_held_out_images_lose(monkeypatch):
    X = digits(600)
    km = STKMeans(4, landmarks=4, n_swaps=0, n_init=1, max_iter=6, random_state=1).fit(X)
    log = [e for e in km.history_ if e["stage"] == "learn"]
    objective, tested = ([e[key] for e in log] for key in ("objective", "held_out"))
    assert len(log) == learning.ROUNDS and "undone" not in log[-1]
    assert (np.diff(objective) < 1e-3 * abs(objective[0])).all()
    assert tested[-1] < tested[0]
    monkeypatch.setattr(learning, "SLACK", -1e9)  # no second round is good enough
    km.fit(X)
    assert [e.get("undone") for e in km.history_ if e["stage"] == "learn"] == [None, True]


def test_a_part_of_many_images_finds_what_all_go_on_from(monkeypatch):
    X, kinds = bars(150)
    params = {"landmarks": 3, "n_swaps": 2, "n_init": 1, "random_state": 0}
    whole = STKMeans(3, **params).fit(X)
    monkeypatch.setattr(fitting, "PART", 60)
    km = STKMeans(3, **params).fit(X)
    assert clustering_accuracy(kinds, km.labels_) == 1 == clustering_accuracy(kinds, whole.labels_)
    assert np.array_equal(km.labels_, km.predict(X)) and len(km.labels_) == 150
    assert km.inertia_ < whole.inertia_ + 0.05 * abs(whole.inertia_)
    stages = [e["stage"] for e in km.history_]
    assert stages.index("spread") > stages.index("learn")
    assert stages[stages.index("spread") :].count("learn") >= 1
    early = [e for e in km.history_[: stages.index("spread")] if e["stage"] in ("lloyd", "learn")]
    assert early and all(e["share"] == pytest.approx(0.4) for e in early)
    assert not any("share" in e for e in km.history_[stages.index("spread") :])


def test_a_part_that_is_fitted_exactly_does_not_speak_for_the_rest(monkeypatch):
    bar, block = np.zeros((2, 12, 12), np.float32)
    bar[2:9, 3:5], block[3:8, 3:8] = 1, 1
    X = np.stack([bar, block] * 30 + [0.5 * bar, 0.5 * block])
    weights = np.r_[np.ones(60), np.full(2, 1e-9)]  # in no part
    monkeypatch.setattr(fitting, "PART", 40)
    km = STKMeans(2, landmarks=3, n_swaps=0, random_state=0).fit(X, sample_weight=weights)
    assert km.prior_ is None and len(km.labels_) == 62
    assert "whole" in [e["stage"] for e in km.history_]  # passes over all of them
    assert clustering_accuracy(np.arange(60) % 2, km.labels_[:60]) == 1


def test_a_swap_by_the_likelihood_mends_a_bad_start():
    """Bars of three directions; the start has one direction twice, and two in one cluster."""
    X, kinds = bars(120)
    one, two, three = (X[kinds == j] for j in np.unique(kinds))
    start = np.stack([one[0], one[-1], (two.mean(0) + three.mean(0)) / 2])
    options = {"init": start, "landmarks": 3, "random_state": 0}
    stuck = STKMeans(3, n_swaps=0, **options).fit(X)
    mended = STKMeans(3, **options).fit(X)
    assert clustering_accuracy(kinds, stuck.labels_) < 0.7
    assert clustering_accuracy(kinds, mended.labels_) == 1
    log = [e for e in mended.history_ if e["stage"] == "learned swap"]
    assert log[0]["accepted"] and log[0]["objective"] < log[0]["before"]
    assert [e["accepted"] for e in log[-learning.PATIENCE :]] == [False] * learning.PATIENCE


def test_labels_distances_and_probabilities_agree(fitted):
    km, X = fitted
    f = km.transform(X)
    assert np.array_equal(km.labels_, f.argmin(1)) and np.array_equal(km.predict(X), km.labels_)
    assert km.inertia_ == pytest.approx(f.min(1).sum(), rel=1e-5)
    p = km.predict_proba(X)
    assert_allclose(p.sum(1), 1, rtol=1e-6)
    assert np.array_equal(p.argmax(1), km.labels_)
    a = km.align(X)
    assert_allclose(a.distances, f.min(1), rtol=1e-4, atol=1e-2)
    assert (a.penalties >= 0).all()


def test_modes_have_shape_order_and_scale(fitted):
    km, _ = fitted
    variances, fields = km.deformation_modes_
    assert variances.shape == (4, 32) and fields.shape == (4, 32, 16, 2)
    assert (np.diff(variances, axis=1) <= 1e-9).all() and (variances >= 0).all()
    flat = np.swapaxes(fields, 2, 3).reshape(4, 32, 32)  # rows first, as in the covariance
    assert_allclose(flat.swapaxes(1, 2) @ flat, km.prior_.covariance, atol=1e-8)
    assert km.appearance_modes_.shape == (4, 5, 28, 28)  # taught by 216 images


def test_images_of_the_modes_go_through_the_centroid(fitted):
    km, _ = fitted
    bent, shaded = km.mode_images((-1, 0, 2), n_modes=3)
    assert bent.shape == shaded.shape == (4, 3, 3, 28, 28)
    still = np.repeat(km.cluster_centers_[:, None], 3, 1)
    assert_allclose(bent[:, :, 1], still, atol=1e-5)
    assert_allclose(shaded[:, :, 1], still, atol=1e-6)
    assert_allclose(shaded[:, :, 2], still + 2 * km.appearance_modes_[:, :3], rtol=1e-5, atol=1e-5)
    # an image bent by -1 sd is warped back by the field (at 2 sd those of this fit fold)
    fields = -km.deformation_modes_[1][:, 0]
    back = km.warp_(bent[:, 0, 0], fields)
    error = ((back - km.cluster_centers_) ** 2).sum((1, 2))
    assert (error < 0.1 * ((bent[:, 0, 0] - km.cluster_centers_) ** 2).sum((1, 2))).all()
    with pytest.raises(ValueError, match="n_modes=0"):
        km.mode_images(n_modes=0)


def test_the_fixed_penalty_has_no_modes_and_no_probabilities():
    X, _ = bars(24)
    km = STKMeans(3, landmarks=3, n_swaps=0, prior="fixed", random_state=0).fit(X)
    assert km.prior_ is None and (km.transform(X) >= 0).all()
    for call in (lambda: km.predict_proba(X), lambda: km.deformation_modes_,
                 lambda: km.appearance_modes_):  # fmt: skip
        with pytest.raises(ValueError, match="prior='learned'"):
            call()


def test_few_images_learn_too():
    X, kinds = bars(9)
    km = STKMeans(3, landmarks=3, n_swaps=1, random_state=0).fit(X)
    assert np.isfinite(km.transform(X)).all() and km.prior_.loadings.shape[1] == 0


def test_colour_learns():
    X, _ = bars(45)
    X = np.stack([X, 1 - X, 0 * X], -1)
    km = STKMeans(3, landmarks=3, n_swaps=1, random_state=0).fit(X)
    assert km.appearance_modes_.shape == (3, 1, 12, 12, 3)
    assert np.array_equal(km.predict(X), km.labels_)


def test_a_round_that_collapses_is_undone(monkeypatch):
    monkeypatch.setattr(learning, "LARGEST", 0.5)  # every cluster counts as too large

    X, _ = bars(30)
    monkeypatch.setattr(
        learning, "assign", lambda matcher, state, mask: state.labels.__setitem__(slice(None), 0)
    )
    rounds, before, after = learning.Lesson.rounds, [], []

    def watched(lesson, state):
        before.append(state.labels.copy())
        rounds(lesson, state)
        after.append(state.labels.copy())

    monkeypatch.setattr(learning.Lesson, "rounds", watched)
    km = STKMeans(3, landmarks=3, n_swaps=0, max_iter=2, random_state=0)
    km.fit(X)
    assert len(set(before[0])) == 3 and np.array_equal(before, after)
    log = [e for e in km.history_ if e["stage"] == "learn"]
    assert log[-1]["undone"] and log[-1]["largest"] == 30


def test_affine_maps_and_the_papers_mode_learn_nothing():
    assert "prior" not in AffineKMeans().get_params()
    assert STKMeans.paper(3).prior == "fixed" and STKMeans().prior == "learned"


# ---------------------------------------------------------------- class templates


def test_class_templates_are_the_classes_in_their_order():
    X, kinds = bars(90)
    for estimator in (STKMeans(3, landmarks=3), AffineKMeans(3)):
        km = class_templates(estimator, X[:60], kinds[:60])
        assert np.array_equal(km.labels_, kinds[:60])
        assert (km.predict(X[60:]) == kinds[60:]).mean() > 0.9
    assert class_templates(STKMeans(3, landmarks=3), X, kinds).prior_ is not None


def test_class_templates_reject_labels_that_are_not_0_to_k():
    X, kinds = bars(30)
    for y in (kinds[:-1], kinds + 1, np.zeros(30, int)):
        with pytest.raises(ValueError, match="y must hold 30 labels, all of 0 … 2"):
            class_templates(STKMeans(3, landmarks=3), X, y)
    with pytest.raises(ValueError, match="solver='adam'"):
        class_templates(STKMeans.paper(3, landmarks=3), X, kinds)
