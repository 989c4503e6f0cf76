"""The browser of warps: what its sliders and buttons do, and what it refuses."""

import io

import matplotlib.image
import numpy as np
import pytest

from stkm import STKMeans

browser = pytest.importorskip("stkm.browser")


@pytest.fixture(scope="module")
def fitted():
    """Bars upright and lying, shifted a little."""
    X = np.zeros((8, 12, 12), np.float32)
    for i in range(4):
        X[i, 3:9, 4 + i : 6 + i] = X[4 + i, 4 + i : 6 + i, 3:9] = 1
    return STKMeans(2, landmarks=4, prior="fixed", n_init=1, n_swaps=0, random_state=0).fit(X), X


def picture(b):
    return matplotlib.image.imread(io.BytesIO(b.view.value))


def test_sliders_bend_the_picture_and_the_errors_follow(fitted):
    km, X = fitted
    b = browser.Browser(km, X, start=1)
    rest, before = b.errors, picture(b)
    np.testing.assert_allclose(rest, ((X[1] - km.cluster_centers_) ** 2).sum((1, 2)), rtol=1e-5)
    b.landmark.value = 5
    b.down.value, b.right.value = 1.5, -2.0
    d = np.zeros((1, 16, 2))
    d[0, 5] = 1.5, -2.0
    np.testing.assert_array_equal(b.displacements, d[0])
    bent = km.warp_(X[[1]], d)[0]
    np.testing.assert_allclose(b.errors, ((bent - km.cluster_centers_) ** 2).sum((1, 2)), rtol=1e-5)
    assert np.abs(b.errors - rest).max() > 0.1
    assert picture(b).shape == before.shape and np.abs(picture(b) - before).max() > 0.5
    assert f"{km.warp_.bending_energy(d)[0]:.3f}" in b.text.value


def test_landmarks_stay_moved_until_they_are_put_back(fitted):
    b = browser.Browser(*fitted)
    b.landmark.value = 3
    b.down.value = 1.0
    b.landmark.value = 9
    assert (b.down.value, b.right.value) == (0, 0) and b.displacements[3, 0] == 1
    b.right.value = 0.5
    b.landmark.value = 3
    assert (b.down.value, b.right.value) == (1, 0) and b.displacements[9, 1] == 0.5
    b.back.click()
    assert not b.displacements.any() and b.down.value == 0
    b.down.value = 1.0
    b.picture.value = 2
    assert not b.displacements.any()


def test_as_fitted_shows_the_warp_of_the_fit(fitted):
    km, X = fitted
    b = browser.Browser(km, X, [f"<{i}>.png" for i in range(8)])
    rest = b.errors
    b.fitted.click()
    found = km.align(X[:1])
    np.testing.assert_allclose(b.displacements, found.displacements[0], atol=1e-6)
    k = found.labels[0]
    assert b.errors.argmin() == k and b.errors[k] <= rest[k]
    assert f"cluster {k}" in b.text.value and "&lt;0&gt;.png" in b.text.value
    b.landmark.value = int(np.abs(found.displacements[0]).max(1).argmax())
    np.testing.assert_allclose(
        (b.down.value, b.right.value), b.displacements[b.landmark.value], atol=1e-6
    )


def test_colour_and_flat_images():
    rng = np.random.default_rng(0)
    X = rng.random((6, 9, 11, 3), dtype=np.float32)
    options = {"landmarks": 3, "prior": "fixed", "n_init": 1, "n_swaps": 0, "max_iter": 1}
    b = browser.Browser(STKMeans(2, random_state=0, **options).fit(X), X)
    assert b.errors.shape == (2,) and picture(b).shape[2] == 4
    flat = X[..., 0].reshape(6, -1)
    km = STKMeans(2, random_state=0, image_shape=(9, 11), **options).fit(flat)
    assert browser.Browser(km, flat).errors.shape == (2,)


@pytest.mark.parametrize(
    "how, what",
    [
        ({"X": np.zeros((0, 12, 12))}, "0 image"),
        ({"X": np.zeros((3, 12, 13))}, "12x13|12, 13"),
        ({"names": ["one"]}, "8 images but 1 names"),
        ({"start": 8}, "start"),
        ({"start": -1}, "start"),
    ],
)
def test_bad_input_is_named(fitted, how, what):
    km, X = fitted
    with pytest.raises(ValueError, match=what):
        browser.Browser(km, how.pop("X", X), **how)
