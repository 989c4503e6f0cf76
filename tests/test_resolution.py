"""Large frames: matched on a smaller one, with warps and centroids of the whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from stkm import AffineKMeans, STKMeans, resolution
from stkm.warp import Warp


def large(n=12, side=64, channels=None, seed=0):
    """Upright and lying bars on a frame of 64 × 60 pixels; and kinds."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n, side, side - 4, channels or 1), np.float32)
    kinds = np.arange(n) % 2
    for image, kind in zip(x, kinds, strict=True):
        r, c = rng.integers(16, 23, 2)
        h, w = ((30, 8), (8, 30))[kind]
        image[r : r + h, c : c + w] = rng.uniform(0.8, 1, channels or 1)
    return (x if channels else x[..., 0]), kinds


def params(**more):
    # so much low-pass that the frame of 64 × 60 is matched at half its size
    return {
        "smoothing": 0.07,
        "landmarks": 4,
        "random_state": 0,
        "n_init": 1,
        "n_swaps": 1,
        "max_iter": 4,
    } | more


def test_the_factor_leaves_two_pixels_of_low_pass():
    assert resolution.factor((28, 28), 0.025) == 1
    assert resolution.factor((72, 96), 0.025) == resolution.factor((100, 100), 0.025) == 1
    assert resolution.factor((300, 300), 0.025) == 3 and resolution.factor((288, 384), 0.025) == 4
    assert resolution.factor((300, 300), 0.0) == 1


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(9, 17), st.integers(9, 17))
def test_means_of_pixels_and_back(r, h, w):
    image = np.random.default_rng(h * w).random((2, h, w, 3)).astype(np.float32)
    small = resolution.shrink(image, r)
    assert small.shape == (2, -(-h // r), -(-w // r), 3)
    np.testing.assert_allclose(small[:, 0, 0], image[:, :r, :r].mean((1, 2)), rtol=1e-5)
    # nothing is lost: what lies beyond the rim counts as 0
    np.testing.assert_allclose(small.sum((1, 2)) * r * r, image.sum((1, 2)), rtol=1e-4)
    assert resolution.enlarge(small, r, (h, w)).shape == image.shape
    flat = np.full((1, 12, 12, 1), 0.5, np.float32)
    np.testing.assert_allclose(resolution.enlarge(flat, r, (12 * r, 12 * r)), 0.5)


def test_a_low_passed_image_survives():
    sharp = np.random.default_rng(0).random((1, 120, 120, 1)).astype(np.float32)
    soft = gaussian_filter(sharp, (0, 8, 8, 0))
    back = resolution.enlarge(resolution.shrink(soft, 4), 4, (120, 120))
    inner = (slice(None), slice(4, -4), slice(4, -4))
    assert np.abs(back - soft)[inner].max() < 0.03 * np.ptp(soft[inner])


@pytest.mark.parametrize("make", [Warp.affine, Warp.translation, lambda s: Warp.tps(s, 4)])
def test_a_warp_of_the_smaller_frame_is_the_same_map(make):
    whole, r = make((24, 32)), 4
    small = whole.shrunk(r)
    assert small.shape == (6, 8)
    moves = np.random.default_rng(1).normal(0, 1, (1, len(whole.landmarks), 2))
    # pixel i of the smaller frame is the middle of pixels r i … r i + r − 1
    middle = whole.basis_at(r * small.pixels + (r - 1) / 2)[0] @ (r * moves[0])
    np.testing.assert_allclose(middle, r * (small.basis @ moves[0]), atol=1e-6)
    np.testing.assert_allclose(small.bending_energy(moves), whole.bending_energy(r * moves))


@pytest.mark.parametrize(("cls", "channels"), [(STKMeans, None), (AffineKMeans, 3)])
def test_a_large_frame_is_clustered_as_its_smaller_copy(cls, channels):
    X, kinds = large(channels=channels)
    p = params() if cls is STKMeans else {k: v for k, v in params().items() if k != "landmarks"}
    km = cls(2, **p).fit(X)
    assert km.cluster_centers_.shape == (2, *X.shape[1:])
    assert km._model.factor == 2 and km.warp_.shape == X.shape[1:3]
    assert len(set(zip(km.labels_.tolist(), kinds.tolist(), strict=True))) == 2
    small = resolution.shrink(X if channels else X[..., None], 2)
    other = cls(2, **p).fit(small if channels else small[..., 0])
    np.testing.assert_array_equal(km.labels_, other.labels_)
    np.testing.assert_array_equal(km.predict(X), km.labels_)
    assert km.transform(X).min(1).sum() == pytest.approx(km.inertia_, rel=1e-5)
    a, b = km.align(X), km.align(X[:1])
    assert a.warped.shape == X.shape and a.displacements.shape == (12, len(km.warp_.landmarks), 2)
    np.testing.assert_allclose(b.warped, a.warped[:1], atol=1e-4)
    # the warps bring the images of a cluster together, at full size
    for k in (0, 1):
        spread = [
            ((x - x.mean(0)) ** 2).sum() for x in (X[km.labels_ == k], a.warped[km.labels_ == k])
        ]
        assert spread[1] < 0.5 * spread[0]
    assert a.distances == pytest.approx(km.transform(X).min(1), rel=1e-5)


def test_modes_and_starts_are_those_of_the_whole_frame():
    X, _ = large(24)
    km = STKMeans(2, **params(n_modes=1)).fit(X)
    assert km.appearance_modes_.shape == (2, km.prior_.loadings.shape[1], *X.shape[1:])
    variances, fields = km.deformation_modes_
    moved = (km.warp_.field(fields[0, :1]) - km.warp_.field(0 * fields[0, :1])) ** 2
    assert fields.shape == (2, 32, 16, 2) and moved.mean() > 0
    np.testing.assert_allclose((fields[0] ** 2).sum((1, 2)), variances[0], rtol=1e-4, atol=1e-4)
    bent, shaded = km.mode_images(n_modes=1)
    assert bent.shape == shaded.shape == (2, 1, 5, *X.shape[1:])
    fixed = {"prior": "fixed", "landmarks": 4, "smoothing": 0.07}
    given = STKMeans(2, init=X[:2], max_iter=1, **fixed).fit(X)
    assert given.cluster_centers_.shape == (2, *X.shape[1:])
    with pytest.raises(ValueError, match=r"expected centroids \(2, 64, 60\)"):
        STKMeans(2, init=X[:2, :32, :30], **fixed).fit(X)
    again = STKMeans.from_centroids(given.cluster_centers_, X, **fixed)
    assert (again.labels_ == given.labels_).mean() > 0.95
    with pytest.raises(ValueError, match="but the fit had"):
        km.predict(X[:, :32, :30])
