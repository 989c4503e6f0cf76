"""What the theory notebook measures, against cases that are known."""

import numpy as np
import pytest
from helpers import bars, digits, smooth_images
from hypothesis import given
from hypothesis import strategies as st

from stkm import theory
from stkm.warp import Warp


def squared(points):
    return ((points[:, None] - points[None]) ** 2).sum(-1)


# ------------------------------------------------------------------- distance


def test_facts_of_a_distance_by_hand():
    d = [[0.0, 2.0, 5.0], [4.0, 0.5, 3.0], [5.0, 1.0, 0.0]]
    found = theory.metric(d)
    assert (found["least"], found["to_itself"]) == (0.0, 0.5)
    assert found["between"] == pytest.approx(3.5)  # of 2, 5, 3, 4, 5, 1
    assert found["asymmetry"] == pytest.approx(2 / 3)  # of 2/3, 0, 2/2


def test_triangles_by_hand():
    # squares of distances on a line: 0, 1 and 3
    d = squared(np.array([[0.0], [1.0], [3.0]]))
    share, median, largest = theory.triangle(d)  # 9 > 1 + 4, there and back, and nothing else
    assert share == pytest.approx(2 / 6) and median == largest == pytest.approx(9 / 5)
    assert theory.triangle(np.sqrt(d)) == (0.0, 1.0, 1.0)


@given(st.integers(3, 7), st.integers(1, 4), st.integers(0, 10**6))
def test_a_metric_has_no_broken_triangle_and_squares_are_within_a_factor_of_two(n, dims, seed):
    d = squared(np.random.default_rng(seed).normal(size=(n, dims)))
    assert theory.triangle(np.sqrt(d))[0] == 0
    assert theory.triangle(d)[2] <= 2 + 1e-9  # (a + b)² <= 2 (a² + b²)


def test_distances_of_all_pairs():
    x = smooth_images(3, (16, 16))
    d = theory.distances(x, x[:2], Warp.identity((16, 16)), (0.0, 0.0))
    np.testing.assert_allclose(d, squared(x.reshape(3, -1))[:, :2], atol=1e-4)
    spline = Warp.tps((16, 16), 3)
    free = theory.distances(x, x, spline, max_iter=30)
    assert (np.diag(free) == 0).all() and (free <= squared(x.reshape(3, -1)) + 1e-4).all()
    own = theory.distances(x, x, spline, (1e-3, 10.0), scale=5.0)
    alone = theory.distances(x[:1], x[1:2], spline, (1e-3, 10.0), scale=5.0)
    assert own[0, 1] == pytest.approx(alone[0, 0], rel=1e-4)  # who else is there does not matter


# ----------------------------------------------------------------- invariance


@given(st.sampled_from(["affine", "spline"]), st.floats(0.01, 0.3), st.integers(0, 10**6))
def test_moves_are_as_large_as_asked(kind, size, seed):
    warp = Warp.tps((20, 30), 3)
    d = theory.moves(warp, 3, size, kind, np.random.default_rng(seed))
    shift = np.sqrt(((warp.basis @ d) ** 2).sum(-1).mean(1))
    np.testing.assert_allclose(shift, size * np.sqrt(600), rtol=1e-6)
    if kind == "affine":
        np.testing.assert_allclose(warp.bending_energy(d), 0, atol=1e-6)


def test_a_free_distance_changes_less_than_the_pixels():
    x = smooth_images(8, (20, 20), sd=1.5)
    pairs = x, np.roll(x, 1, 0)
    warp = Warp.tps((20, 20), 4)
    small, large = theory.invariance(*pairs, warp, [0.01, 0.1], "affine", (1e-4, 0.0))
    assert small["change"] < large["change"] and large["change"] < large["pixels"]
    assert small["kept"] == pytest.approx(1, abs=0.05)


# ------------------------------------------------------------------ partition


def test_the_plane_goes_through_its_corners():
    corners = np.random.default_rng(0).random((3, 5, 5)).astype(np.float32)
    images, axis = theory.plane(corners, 5, margin=0.5)
    assert images.shape == (5, 5, 5, 5) and axis.tolist() == [-0.5, 0, 0.5, 1, 1.5]
    np.testing.assert_allclose(images[1, 1], corners[0])
    np.testing.assert_allclose(images[1, 3], corners[1], atol=1e-6)
    np.testing.assert_allclose(images[3, 1], corners[2], atol=1e-6)


def test_a_moved_centroid_is_at_home_with_warps_only():
    x, _ = bars(3)
    warp = Warp.tps((12, 12), 3)
    slide = np.full((1, 9, 2), (0.0, -3.0))
    moved = warp(x[:1], slide)
    plain, warped = theory.regions(moved, x, warp, (1e-4, 0.1), 5.0)
    assert warped[0] == 0 and plain[0] == squared_nearest(moved[0], x)


def squared_nearest(image, centroids):
    return ((centroids - image) ** 2).sum((1, 2)).argmin()


# ----------------------------------------------------------------- degenerate


def test_out_of_frame_all_is_black():
    warp = Warp.tps((28, 28), 6)
    x = (digits(5) / 255).astype(np.float32)
    assert x.sum() > 0 and theory.out_of_frame(x, warp).sum() == 0


def test_without_a_penalty_images_are_lost_and_with_one_they_are_kept():
    x = (digits(60)[:40] / 255).astype(np.float32)
    options = {"learning_rate": 0.05, "landmarks": 4, "random_state": 0}
    early, late = theory.drift(x, 3, [15, 150], **options)
    (kept,) = theory.drift(x, 3, [150], bending=2e-3, displacement=17.0, **options)
    assert (early.epochs, late.epochs) == (15, 150) and late.labels.shape == (40,)
    assert late.objective < early.objective
    assert late.intensity < early.intensity and late.intensity < kept.intensity
    assert late.centroids.shape == (3, 28, 28)


# --------------------------------------------------------------- single points


def test_adam_left_alone_goes_up_at_times():
    x = smooth_images(6, (16, 16), sd=1.0)
    errors = theory.rises(x, np.roll(x, 1, 0), Warp.tps((16, 16), 3), 1.0, 40)
    assert errors.shape == (41, 6)
    np.testing.assert_allclose(
        errors[0], ((x - np.roll(x, 1, 0)) ** 2).sum((1, 2)), rtol=1e-4, atol=1e-5
    )
    assert (np.diff(errors, axis=0) > 0).any() and errors.min() < errors[0].min()


def test_the_expected_best_by_hand():
    assert theory.best_of([3, 1, 2], 1) == pytest.approx(2)
    assert theory.best_of([3, 1, 2], 2) == pytest.approx((2 + 3 + 3) / 3)
    assert theory.best_of([3, 1, 2], 3) == 3
    with pytest.raises(ValueError, match="n=4: expected 1 to 3"):
        theory.best_of([3, 1, 2], 4)


def test_the_gradient_is_the_one_with_minus():
    rng = np.random.default_rng(0)
    warped, center = rng.random((7, 4, 4)), rng.random((4, 4))
    measured, minus, plus = theory.centroid_gradient(warped, center)
    assert measured == pytest.approx(minus, rel=1e-4) and abs(measured - plus) > 1
    # zero at the mean
    assert theory.centroid_gradient(warped, warped.mean(0))[0] == pytest.approx(0, abs=1e-8)


def test_only_the_euclidean_spline_turns_with_its_landmarks():
    warp = Warp.tps((20, 20), 4)
    d = np.random.default_rng(0).normal(size=(16, 2))
    assert theory.kernel_turns(warp.landmarks, d, 30, 2) < 1e-8
    assert theory.kernel_turns(warp.landmarks, d, 30, 1) > 0.01


def test_bilinear_weights_by_hand():
    """At (0, ¼) the pixels weigh ¾ and ¼ along the row; exponents swapped, along the column."""
    image = np.zeros((4, 4))
    image[0, 1], image[1, 0] = 8, 80
    right, printed = theory.bilinear_error(image, np.array([[0, 0.25]]))
    assert right == 0 and printed == pytest.approx(20 - 2)
    assert theory.bilinear_error(image, np.array([[0.5, 0.5], [2.0, 1.0]])) == (0, 0)


def test_signs_of_the_kernel():
    pixels, halves = theory.kernel_signs((28, 28), 6)
    assert pixels == 0  # landmarks are more than a pixel apart
    steps = 0.4 * np.arange(6)  # six landmarks over two half frames
    r2 = squared(np.stack(np.meshgrid(steps, steps), -1).reshape(-1, 2))
    off = r2[~np.eye(36, dtype=bool)]
    assert halves == pytest.approx(np.mean((off > 0) & (off < 1)), abs=0.01)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.metric(np.ones((2, 3))), r"must be \(N, N\)"),
        (lambda: theory.triangle(np.ones((2, 2))), "at least 3"),
        (lambda: theory.plane(np.ones((2, 4, 4)), 3), "three images"),
        (
            lambda: theory.moves(Warp.tps((8, 8), 3), 1, 0.1, "turn", np.random.default_rng(0)),
            "kind='turn'",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
