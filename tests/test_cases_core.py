"""Faults that users of warp and clustering software have met, as small inputs with the answer."""

import subprocess
import sys
import warnings

import joblib
import numpy as np
import pytest
from helpers import bars, compilations, digits
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from stkm import AffineKMeans, STKMeans
from stkm.align import align
from stkm.warp import Warp, sample


def small(n_clusters=3, **params):
    return STKMeans(n_clusters, **{"landmarks": 3, "n_swaps": 1, "random_state": 0, **params})


@pytest.fixture(scope="module")
def fitted():
    X, _ = bars(48)
    return small().fit(X), X


O1_IMAGES = {
    "4x4": np.arange(16, dtype=np.float32).reshape(4, 4),
    "28x28": digits()[0].astype(np.float32),
    "27x27": digits()[1, :27, :27].astype(np.float32),
}


@pytest.mark.parametrize("name", O1_IMAGES)
def test_O1_the_identity_and_a_shift_of_one_pixel(name):
    image = O1_IMAGES[name]
    for w in (Warp.tps(image.shape, landmarks=3), Warp.affine(image.shape)):
        d = np.zeros((1, len(w.landmarks), 2))
        assert np.abs(w(image[None], d)[0] - image).max() <= 1e-5
        for axis in (0, 1):
            moved = np.asarray(w(image[None], d + np.eye(2)[axis]))[0]
            rolled = np.roll(image, -1, axis)
            inner = np.s_[:-1] if axis == 0 else np.s_[:, :-1]
            assert_allclose(moved[inner], rolled[inner], atol=1e-4 * image.max())


@pytest.mark.parametrize(
    "landmarks, text",
    [
        ([(0, 0), (1, 1), (2, 2), (3, 3)], "collinear"),
        ([(0, 0), (0, 3), (3, 0), (3, 3), (0, 3)], "landmarks 1 and 4 are the same point"),
        ([(2, 2)] * 4, "landmarks"),
    ],
)
def test_O2_degenerate_landmarks(landmarks, text):
    with pytest.raises(ValueError, match=text):
        Warp.tps((8, 8), landmarks=landmarks)
    X, _ = bars(24)
    with pytest.raises(ValueError, match=text):
        small(landmarks=landmarks).fit(X)


def test_O3_fewer_distinct_images_than_clusters():
    distinct = np.random.default_rng(0).random((3, 8, 8), dtype=np.float32)
    X = np.tile(distinct, (4, 1, 1))
    with pytest.warns(ConvergenceWarning, match="3 distinct images, 5 clusters asked"):
        km = small(5).fit(X)
    assert np.isfinite(km.cluster_centers_).all()
    assert len(np.unique(km.labels_)) == 3
    assert np.array_equal(km.labels_, np.tile(km.labels_[:3], 4))
    assert km.inertia_ == pytest.approx(0, abs=1e-6 * float((X**2).sum()))


@pytest.mark.parametrize("cls", [STKMeans, AffineKMeans])
@pytest.mark.parametrize("levels", [(0.0,), (0.0, 1.0), (0.5,)])
def test_O3_constant_images(cls, levels):
    X = np.repeat(np.array(levels, np.float32), 12 // len(levels))[:, None, None] * np.ones((8, 8))
    params = {"landmarks": 3} if cls is STKMeans else {}
    with pytest.warns(ConvergenceWarning, match=f"{len(levels)} distinct image"):
        km = cls(3, n_swaps=1, random_state=0, **params).fit(X)
    assert np.isfinite(km.cluster_centers_).all() and np.isfinite(km.inertia_)
    assert km.inertia_ == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_O4_a_pixel_that_is_no_number(fitted, value):
    good = np.random.default_rng(1).random((10, 8, 8), dtype=np.float32)
    bad = good.copy()
    bad[3, 4, 4] = value
    km, X = fitted
    new = X[:10].copy()
    new[3, 4, 4] = value
    calls = [lambda: small().fit(bad), lambda: km.predict(new), lambda: km.transform(new)]
    text = r"Input.* contains (NaN|infinity)"
    for call in calls:
        with compilations() as compiled, pytest.raises(ValueError, match=text):
            call()
        assert not compiled


def test_O5_whole_numbers_are_the_same_as_their_floats(fitted):
    X = digits()[:80]
    a = STKMeans(4, landmarks=4, n_swaps=0, max_iter=2, random_state=0).fit(X)
    b = clone(a).fit(X.astype(np.float32))
    assert np.array_equal(a.labels_, b.labels_)
    assert_allclose(a.cluster_centers_, b.cluster_centers_, rtol=1e-5)
    assert 50 < a.cluster_centers_.max() <= 255  # the scale is kept
    assert np.array_equal(a.predict(X[:1].astype(np.float64)), a.predict(X[:1]))
    with pytest.raises(ValueError, match=r"X\[None\]"):
        a.predict(X[0])


def test_S1_one_rule_beyond_the_frame():
    ones = np.ones((1, 8, 8), np.float32)
    half = np.array([[[7.5, 7.5], [7.5, 3], [-0.25, 3], [8, 3], [-1, -1], [1e9, 0], [3, -1e9]]])
    assert np.asarray(sample(ones, half))[0].tolist() == [0.25, 0.5, 0.75, 0, 0, 0, 0]
    for w in (Warp.tps((8, 8), landmarks=3), Warp.affine((8, 8)), Warp.translation((8, 8))):
        for move in ([9, 0], [0, -9], [1e6, 1e6]):
            d = np.broadcast_to(np.array(move, float), (1, len(w.landmarks), 2))
            assert (np.asarray(w(ones, d)) == 0).all()


def test_S2_a_bright_pixel_in_the_last_corner():
    x = np.zeros((1, 9, 12), np.float32)
    x[0, -1, -1] = 7
    for w in (Warp.tps((9, 12), landmarks=4), Warp.affine((9, 12)), Warp.identity((9, 12))):
        assert np.array_equal(np.asarray(w(x, np.zeros((1, len(w.landmarks), 2)))), x)


def test_S3_landmarks_in_other_units():
    g = np.linspace(-1, 1, 4)
    for normalised in (g, (g + 1) / 2):
        grid = np.stack(np.meshgrid(normalised, normalised, indexing="ij"), -1).reshape(-1, 2)
        with pytest.raises(ValueError, match=r"in pixels.*normalised"):
            Warp.tps((28, 28), landmarks=grid)
        with pytest.raises(ValueError, match="in pixels"):
            small(landmarks=grid).fit(bars(24)[0])
    # (column, row) instead of (row, column) on a wide frame
    wide = np.array([[0, 0], [32, 0], [0, 19], [32, 19], [16, 10]])
    with pytest.raises(ValueError, match=r"\(row, column\) in pixels, rows 0 to 19"):
        Warp.tps((20, 33), landmarks=wide)
    # displacements in [-1, 1] are small moves: a bright image stays bright
    w = Warp.tps((28, 28), landmarks=4)
    bright = np.ones((1, 28, 28), np.float32)
    d = np.random.default_rng(2).uniform(-1, 1, (1, 16, 2))
    assert np.asarray(w(bright, d)).mean() > 0.9


def test_S4_clone_pipeline_and_a_new_process(tmp_path):
    X, _ = bars(48)
    start = X[:3].copy()
    km = small(init=start)
    twin = clone(km).fit(X)
    labels = km.fit(X).labels_
    assert np.array_equal(twin.labels_, labels)
    assert km.init is start and np.array_equal(start, X[:3])
    pipe = make_pipeline(FunctionTransformer(), clone(km)).fit(X)
    assert np.array_equal(pipe.predict(X), labels)
    assert np.array_equal(pipe[-1].labels_, labels)
    joblib.dump((km, X), tmp_path / "km.joblib")
    code = "import joblib, sys; km, X = joblib.load(sys.argv[1]); print(*km.predict(X))"
    out = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "km.joblib"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(v) for v in out.stdout.split()] == labels.tolist()


def test_S6_the_default_tolerance_stops_an_easy_fit_without_a_warning():
    X, _ = bars(20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        km = STKMeans(3, landmarks=3, random_state=0).fit(X.astype(np.float64))
    assert km.n_iter_ < km.max_iter


def test_S7_new_images_compile_once_for_all_numbers_of_them(fitted):
    X, _ = bars(64)
    for call in (fitted[0].predict, fitted[0].align):
        call(X)
        with compilations() as compiled:
            for n in (1, 7, 13, 29, 64):
                call(X[:n])
        assert not compiled


def test_S13_folds_are_reported_and_a_penalty_holds_them_back():
    w = Warp.tps((28, 28), landmarks=6)
    d = np.random.default_rng(3).normal(0, 8, (5, 36, 2))
    assert (w.folded(d) > 0.05).all() and (w.folded(d) <= 1).all()
    assert (w.folded(0 * d) == 0).all()
    x = digits()[:40].astype(np.float32) / 255
    loose, stiff = (align(x[:20], x[20:], w, bending=b) for b in (0.0, 1e-2))
    assert loose.folded.mean() > 0.01
    assert stiff.folded.mean() < 0.1 * loose.folded.mean()
    assert_allclose(loose.folded, w.folded(loose.displacements), atol=1e-3)


def test_S14_the_slope_of_r2_log_r2_is_finite_at_a_landmark():
    w = Warp.tps((28, 28), landmarks=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = w.basis_at(w.landmarks)
    assert all(np.isfinite(p).all() for p in parts)
    h = 1e-7  # the slope there is the one between both sides
    for axis, step in enumerate(np.eye(2) * h):
        up, down = w.basis_at(w.landmarks + step)[0], w.basis_at(w.landmarks - step)[0]
        assert_allclose(parts[1 + axis], (up - down) / (2 * h), atol=1e-4)
    d = np.random.default_rng(4).normal(0, 1, (1, 16, 2))
    assert np.isfinite(w.jacobian(d)).all()
    assert np.isfinite(align(*2 * [digits()[:1].astype(np.float32)], w, start=d).distances).all()
