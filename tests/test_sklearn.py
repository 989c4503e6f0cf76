"""scikit-learn's contract: its own checks, and the tools that a user puts around an estimator."""

import os
import subprocess
import sys

import joblib
import numpy as np
import pytest
from conftest import ROOT
from helpers import bars
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import NotFittedError, check_is_fitted

from stkm import AffineKMeans, MiniBatchSTKMeans, STKMeans
from stkm.validation import check_images

# ---------------------------------------------------------------- scikit-learn's own checks


class Padded:
    """The estimator on tables of any width: the checks come with 1 to 10 columns, no images.

    Columns of zeros fill a row up to 4 × 4 pixels.  All else is the estimator's own.
    """

    def _framed(self, X):
        X = np.asarray(X)
        filled = np.pad(X, ((0, 0), (0, -X.shape[1] % 16))) if X.ndim == 2 else X
        return check_images(filled, (4, filled.shape[1] // 4) if X.ndim == 2 else None)


class PaddedSTKMeans(Padded, STKMeans):
    pass


class PaddedAffineKMeans(Padded, AffineKMeans):
    pass


class PaddedMiniBatchSTKMeans(Padded, MiniBatchSTKMeans):
    pass


# n_swaps and max_iter: the checks ask for the contract, not for the best clustering
QUICK = {"image_shape": (4, 4), "n_swaps": 0, "n_init": 1, "max_iter": 1, "n_clusters": 2}
CHECKED = [
    PaddedAffineKMeans(**QUICK),
    PaddedSTKMeans(landmarks=2, prior="fixed", **QUICK),
    PaddedSTKMeans(landmarks=2, **QUICK),
    PaddedMiniBatchSTKMeans(landmarks=2, **QUICK),
]


EXEMPT = {
    "check_sample_weight_equivalence_on_dense_data": "the start is drawn: of as many numbers as "
    "there are rows. With a given start a weight of 2 is a row given twice (test_cluster.py)"
}


# of the mini-batches alone: see test_minibatch.py for memory maps of whole images
BY_BLOCKS = "a memory map is read by blocks, where the columns that Padded adds are missing"
MAPPED = {
    "check_readonly_memmap_input": BY_BLOCKS,
    "check_transformer_general": BY_BLOCKS,
    "check_clustering": BY_BLOCKS,
}


def exempt(estimator):
    return EXEMPT | (MAPPED if isinstance(estimator, MiniBatchSTKMeans) else {})


@parametrize_with_checks(CHECKED, expected_failed_checks=exempt)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- what users put around it


@pytest.fixture(scope="module")
def images():
    return bars(24)[0]


@pytest.fixture(scope="module")
def flat(images):
    return images.reshape(24, -1)


def quick(n_clusters=3, **params):
    return AffineKMeans(n_clusters, n_swaps=0, max_iter=2, random_state=0, **params)


@pytest.fixture(scope="module")
def fitted(images):
    return quick().fit(images)


def test_images_in_a_pipeline(images, fitted):
    pipe = make_pipeline(FunctionTransformer(lambda x: x * 1.0), quick())
    assert_array_equal(pipe.fit_predict(images), fitted.labels_)
    assert_array_equal(pipe.transform(images), fitted.transform(images))
    assert pipe[-1].get_feature_names_out().tolist() == [f"affinekmeans{k}" for k in range(3)]


def test_flat_images_after_a_scaler(flat):
    pipe = make_pipeline(MinMaxScaler(), quick(image_shape=(12, 12)))
    labels = pipe.fit(flat).predict(flat)
    assert_array_equal(labels, pipe[-1].labels_)
    assert pipe[-1].n_features_in_ == 144
    with pytest.raises(ValueError, match="143 features"):
        pipe[-1].predict(flat[:, 1:])


def test_a_grid_search_over_images_takes_the_best_held_out_score(images):
    cv = ShuffleSplit(1, test_size=0.5, random_state=0)
    search = GridSearchCV(quick(), {"n_clusters": [1, 3]}, cv=cv).fit(images)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"n_clusters": 3} and scores[1] > scores[0]
    (train, test) = next(cv.split(images))
    assert scores[1] == pytest.approx(quick().fit(images[train]).score(images[test]), rel=1e-6)
    assert search.predict(images).shape == (24,)


def test_distances_as_a_data_frame(images, fitted):
    pandas = pytest.importorskip("pandas")
    km = clone(fitted).set_output(transform="pandas")
    frame = km.fit_transform(images)
    assert isinstance(frame, pandas.DataFrame)
    assert frame.columns.tolist() == km.get_feature_names_out().tolist()
    assert_array_equal(frame.to_numpy().argmin(1), km.labels_)
    assert_array_equal(km.predict(images), km.labels_)  # what reads the distances within
    assert km.score(images) == pytest.approx(fitted.score(images), rel=1e-6)


def test_columns_keep_their_names(flat):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(flat, columns=[f"p{i}" for i in range(144)])
    km = quick(image_shape=(12, 12)).fit(frame)
    assert km.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        km.predict(frame.rename(columns={"p0": "q0"}))


def test_a_fit_that_is_kept_predicts_the_same_in_another_process(images, fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "km.joblib")
    np.save(tmp_path / "x.npy", images)
    code = (
        "import joblib, numpy as np; km = joblib.load('km.joblib');"
        "print(km.predict(np.load('x.npy')).tolist())"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == str(fitted.labels_.tolist())


def test_the_page_of_a_notebook_shows_the_estimator(fitted):
    html = fitted._repr_html_()
    assert "AffineKMeans" in html and "fitted" in html and "n_clusters" in html
    assert repr(fitted) == "AffineKMeans(max_iter=2, n_clusters=3, n_swaps=0, random_state=0)"


def test_a_weight_of_zero_leaves_an_image_out(images):
    weights = np.ones(24)
    odd = np.concatenate([images, np.full((1, 12, 12), 9.0, np.float32)])
    start = images[:3]
    with_odd = quick(init=start, tol=0).fit(odd, sample_weight=[*weights, 0])
    without = quick(init=start, tol=0).fit(images)
    np.testing.assert_allclose(with_odd.cluster_centers_, without.cluster_centers_, atol=2e-3)


def test_one_run_and_auto_are_the_same_where_the_start_is_given(images):
    one, auto = (quick(init=images[:3], n_init=n).fit(images) for n in (1, "auto"))
    assert_array_equal(one.cluster_centers_, auto.cluster_centers_)


def test_probabilities_are_there_where_there_is_a_likelihood(fitted, images):
    assert not hasattr(fitted, "predict_proba") and not hasattr(fitted, "deformation_modes_")
    assert not hasattr(STKMeans(prior="fixed"), "predict_proba")
    with pytest.raises(ValueError, match="a fixed penalty is no likelihood"):
        fitted.predict_proba(images)
    with pytest.raises(NotFittedError):
        STKMeans().predict_proba(images)


def test_narrow_flat_images_are_not_taken_for_colour():
    """Images of 8 × 4 pixels, 9 of them: no image of 9 × 8 pixels and 4 channels."""
    X = np.random.default_rng(0).random((9, 32))
    assert check_images(X, (8, 4))[0].shape == (9, 8, 4, 1)


def test_fitted_is_what_was_fitted(fitted):
    check_is_fitted(fitted)
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(fitted))


def test_steps_are_told_as_they_come(images, fitted):
    told = []
    km = clone(fitted).set_params(verbose=told.append, n_swaps=2).fit(images)
    stages = [entry["stage"] for entry in told]
    assert stages == [e["stage"] for e in km.history_ if e["stage"] not in ("searched", "final")]
    assert "swap" in stages and len(told) <= km._model.most_steps
    silent = clone(km).set_params(verbose=0).fit(images)
    assert_array_equal(km.cluster_centers_, silent.cluster_centers_)
