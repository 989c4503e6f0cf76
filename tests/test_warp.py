"""Warps against scipy's splines and sampling, finite differences and their own definitions."""

import jax
import numpy as np
import pytest
from helpers import affine_moves, smooth_images
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.interpolate import RBFInterpolator
from scipy.ndimage import map_coordinates

from stkm.solvers import make_grid
from stkm.warp import Warp, sample

SHAPES = [(28, 28), (27, 27), (20, 33), (33, 20)]
KINDS = ["tps", "affine", "translation", "identity"]
seeds = st.integers(0, 2**32 - 1)


def make(kind, shape):
    return getattr(Warp, kind)(shape)


def scattered(rng, shape, n):
    """n landmarks of a frame, at least a pixel apart."""
    h, w = shape
    cells = rng.choice((h // 2) * (w // 2), n, replace=False)
    return np.stack(np.divmod(cells, w // 2), -1) * 2.0 + rng.uniform(0, 1, (n, 2))


# ---------------------------------------------------------------- the spline


@given(seeds, st.integers(4, 40))
def test_spline_is_scipys_on_random_landmarks(seed, n):
    rng = np.random.default_rng(seed)
    w = Warp.tps((20, 33), scattered(rng, (20, 33), n))
    moves = rng.normal(0, 3, (n, 2))
    points = rng.uniform(-5, 38, (50, 2))
    expected = RBFInterpolator(w.landmarks, moves, kernel="thin_plate_spline")(points)
    assert_allclose(w.basis_at(points)[0] @ moves, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_field_is_scipys_on_the_grid_of_landmarks(shape):
    w, rng = Warp.tps(shape, landmarks=6), np.random.default_rng(0)
    moves = rng.normal(0, 3, (2, 36, 2))
    for field, d in zip(w.field(moves), moves, strict=True):
        spline = RBFInterpolator(w.landmarks, d, kernel="thin_plate_spline")
        expected = w.pixels + spline(w.pixels)
        assert_allclose(field.reshape(-1, 2), expected, rtol=0, atol=1e-5)
    # what the solvers compute with: the same in float32
    basis = np.asarray(make_grid(w, np.zeros((36, 36))).basis)
    assert basis.dtype == np.float32
    assert_allclose(basis @ moves[0].astype(np.float32), spline_at(w, moves[0]), rtol=0, atol=1e-5)


def spline_at(w, d):
    return RBFInterpolator(w.landmarks, d, kernel="thin_plate_spline")(w.pixels)


@given(seeds)
def test_spline_passes_through_its_landmarks(seed):
    rng = np.random.default_rng(seed)
    w = Warp.tps((28, 28), scattered(rng, (28, 28), 20))
    d = rng.normal(0, 5, (20, 2))
    assert_allclose(w.basis_at(w.landmarks)[0] @ d, d, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_rows_of_the_basis_sum_to_one(kind):
    assert_allclose(make(kind, (20, 33)).basis.sum(1), 1, atol=1e-9)


@pytest.mark.parametrize("kind", ["tps", "affine"])
def test_affine_maps_are_reproduced_everywhere(kind):
    w, rng = make(kind, (20, 33)), np.random.default_rng(1)
    a, b = rng.normal(0, 0.3, (2, 2)), rng.normal(0, 3, 2)
    points = rng.uniform(-20, 50, (100, 2))
    assert_allclose(
        w.basis_at(points)[0] @ (w.landmarks @ a + b), points @ a + b, rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("kind", KINDS[:3])
def test_derivatives_of_the_basis_are_finite_differences(kind):
    w, rng = make(kind, (20, 33)), np.random.default_rng(2)
    points, h = rng.uniform(-3, 36, (60, 2)), 1e-5
    _, *by = w.basis_at(points)
    for axis, step in enumerate(np.eye(2) * h):
        numeric = (w.basis_at(points + step)[0] - w.basis_at(points - step)[0]) / (2 * h)
        assert_allclose(by[axis], numeric, atol=1e-7)


# ---------------------------------------------------------------- bending energy


def energy_integral(w, d, size=300, reach=5.0):
    """∫∫ f_rr² + 2 f_rc² + f_cc² summed over both axes, by midpoints and finite differences.

    The energy is that of the whole plane; the grid is fine near the frame and reaches, with
    spacing that grows as cosh, 18 times as far as the frame is wide.
    """
    u = (np.arange(size) + 0.5) / size * 2 * reach - reach
    stretch = max(w.shape) / 4
    axis, cell = stretch * np.sinh(u), stretch * np.cosh(u) * (u[1] - u[0])
    rows, cols = (v.ravel() for v in np.meshgrid(axis, axis, indexing="ij"))
    p = np.stack([rows, cols], -1) + (np.array(w.shape) - 1) / 2
    hr, hc = (v.ravel() / 2 for v in np.meshgrid(cell, cell, indexing="ij"))
    total = 0.0
    for part in np.array_split(np.arange(len(p)), 8):
        total += _energy_of(w, d, p[part], hr[part], hc[part])
    return total


def _energy_of(w, d, p, hr, hc):
    def f(r, c):
        return w.basis_at(p + np.stack([r * hr, c * hc], -1))[0] @ d

    hr2, hc2 = hr[:, None], hc[:, None]
    centre = f(0, 0)
    rr = (f(1, 0) - 2 * centre + f(-1, 0)) / hr2**2
    cc = (f(0, 1) - 2 * centre + f(0, -1)) / hc2**2
    rc = (f(1, 1) - f(1, -1) - f(-1, 1) + f(-1, -1)) / (4 * hr2 * hc2)
    return float(((rr**2 + 2 * rc**2 + cc**2) * (4 * hr2 * hc2)).sum())


@pytest.mark.parametrize("shape, landmarks", [((12, 12), 3), ((9, 16), 4), ((14, 14), "scattered")])
def test_bending_energy_is_the_integral_over_the_plane(shape, landmarks):
    rng = np.random.default_rng(3)
    w = Warp.tps(shape, scattered(rng, shape, 7) if landmarks == "scattered" else landmarks)
    d = rng.normal(0, 1.5, w.landmarks.shape)
    assert w.bending_energy(d[None])[0] == pytest.approx(energy_integral(w, d), rel=0.01)


@given(seeds)
def test_affine_maps_have_no_bending_energy(seed):
    rng = np.random.default_rng(seed)
    w = Warp.tps((28, 28), landmarks=6)
    d = w.landmarks @ rng.normal(0, 0.5, (2, 2)) + rng.normal(0, 5, 2)
    assert abs(w.bending_energy(d[None])[0]) < 1e-8
    assert abs(Warp.affine((28, 28)).bending_energy(d[None, :3])[0]) < 1e-8


def test_bending_energy_is_not_changed_by_an_affine_map_nor_by_the_size_of_the_frame():
    rng = np.random.default_rng(4)
    w, twice = Warp.tps((15, 21), landmarks=5), Warp.tps((29, 41), landmarks=5)  # sides 14, 20
    d = rng.normal(0, 1, (3, 25, 2))
    bent = w.bending_energy(d)
    assert (bent > 0.1).all()
    affine = w.landmarks @ rng.normal(0, 0.3, (2, 2)) + 2
    assert_allclose(w.bending_energy(d + affine), bent, rtol=1e-8)
    assert_allclose(twice.bending_energy(2 * d), bent, rtol=1e-8)


# ---------------------------------------------------------------- sampling


@pytest.mark.parametrize("shape", [*SHAPES, (4, 5)])
@pytest.mark.parametrize("channels", [None, 3])
def test_sampling_is_scipys(shape, channels):
    rng = np.random.default_rng(5)
    images = rng.random((2, *shape, channels or 1), dtype=np.float32)
    coords = rng.uniform(-3, np.array(shape) + 2, (2, 40, 30, 2)).astype(np.float32)
    coords[:, 0] = np.round(coords[:, 0])  # pixel centres, in the frame and outside
    out = np.asarray(sample(images if channels else images[..., 0], coords))
    assert out.shape == (2, 40, 30, *([channels] if channels else []))
    assert_allclose(out.reshape(2, 40, 30, -1), scipys(images, coords), rtol=0, atol=1e-6)


def scipys(images, coords):
    return np.array(
        [
            np.stack(
                [
                    map_coordinates(x[..., c], p.transpose(2, 0, 1), order=1, mode="grid-constant")
                    for c in range(x.shape[-1])
                ],
                -1,
            )
            for x, p in zip(images.astype(float), coords.astype(float), strict=True)
        ]
    )


def test_sampling_in_float64_is_scipys_to_the_last_digits():
    rng = np.random.default_rng(6)
    images, coords = rng.random((1, 9, 11)), rng.uniform(-2, 12, (1, 200, 2))
    with jax.enable_x64(True):
        out = np.asarray(sample(images, coords))
    expected = scipys(images[..., None], coords[:, None])[:, 0, :, 0]
    assert_allclose(out, expected, rtol=0, atol=1e-13)


def test_derivatives_of_sampling_are_finite_differences():
    rng = np.random.default_rng(7)
    images = rng.random((2, 9, 11, 3))
    coords = rng.integers(-4, 14, (2, 400, 2)) + rng.uniform(0.01, 0.99, (2, 400, 2))
    h = 1e-6  # never across a pixel centre
    with jax.enable_x64(True):
        value, *by = (np.asarray(v) for v in sample(images, coords, derivatives=True))
        assert_allclose(value, sample(images, coords), atol=0)
        for axis, step in enumerate(np.eye(2) * h):
            up, down = sample(images, coords + step), sample(images, coords - step)
            assert_allclose(by[axis], (np.asarray(up) - np.asarray(down)) / (2 * h), atol=1e-8)


def test_one_set_of_coordinates_serves_all_images():
    images = smooth_images(3, (20, 33))
    coords = np.random.default_rng(8).uniform(0, 19, (1, 50, 2)).astype(np.float32)
    assert_allclose(sample(images, coords), sample(images, np.repeat(coords, 3, 0)), atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("channels", [None, 3])
def test_the_identity_returns_the_image_bit_for_bit(kind, shape, channels):
    rng = np.random.default_rng(9)
    images = rng.random((3, *shape, channels or 1), dtype=np.float32)
    images = images if channels else images[..., 0]
    w = make(kind, shape)
    out = np.asarray(w(images, np.zeros((3, len(w.landmarks), 2))))
    assert out.dtype == np.float32
    assert np.array_equal(out, images)


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("move", [(1, 0), (-1, 0), (0, 1), (0, -1), (2, -3)])
def test_whole_shifts_are_rolls_with_black_moving_in(kind, shape, move):
    image = np.random.default_rng(10).random(shape, dtype=np.float32) + 0.5
    w = make(kind, shape)
    d = np.broadcast_to(move, (1, len(w.landmarks), 2))
    out = np.asarray(w(image[None], d))[0]
    expected = map_coordinates(image, (w.pixels + move).T, order=1, mode="grid-constant")
    assert_allclose(out, expected.reshape(shape), atol=1e-4)
    assert (out == 0).sum() > 0


# ---------------------------------------------------------------- fields, folds, inverse


def test_fit_field_finds_the_moves_of_a_field_of_the_family():
    w = Warp.tps((20, 33), landmarks=5)
    d = np.random.default_rng(11).normal(0, 2, (2, 25, 2))
    assert_allclose(w.fit_field(w.field(d)), d, atol=1e-8)


@pytest.mark.parametrize("kind", ["tps", "affine"])
def test_fit_field_finds_a_rotation(kind):
    w = make(kind, (20, 33))
    d = affine_moves(w, 4, degrees=20, stretch=0, shift=0)
    centre, a = (np.array(w.shape) - 1) / 2, np.deg2rad(20)
    turn = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    field = ((w.pixels - centre) @ turn.T + centre).reshape(1, *w.shape, 2)
    found = w.fit_field(field)
    assert_allclose(w.field(found), field, atol=1e-8)
    assert min(np.abs(found - move).max() for move in d) < 1e-8  # one of ±20 degrees


def test_fit_field_is_the_least_squares_answer():
    w = Warp.tps((12, 12), landmarks=3)
    field = w.pixels.reshape(1, 12, 12, 2) + np.random.default_rng(12).normal(0, 1, (1, 12, 12, 2))
    best = w.fit_field(field)

    def error(d):
        return ((w.field(d) - field) ** 2).sum()

    gradient = w.basis.T @ (w.field(best) - field).reshape(-1, 2)
    assert np.abs(gradient).max() < 1e-8
    assert error(best) < min(error(best + 0.01), error(best - 0.01))


def test_the_inverse_undoes_a_warp_of_a_smooth_image():
    w = Warp.tps((28, 28), landmarks=5)
    images = smooth_images(4, (28, 28), sd=2.5)
    d = np.random.default_rng(13).normal(0, 0.8, (4, 25, 2))
    assert (w.folded(d) == 0).all()
    there = np.asarray(w(images, d))
    back = np.asarray(w.inverse(there, d))
    assert np.abs(there - images).max() > 0.1  # the warp did something
    inner = np.s_[:, 3:-3, 3:-3]
    assert np.abs(back - images)[inner].max() < 0.03  # twice bilinear


def test_the_inverse_field_is_the_inverse():
    w = Warp.tps((20, 33), landmarks=5)
    d = np.random.default_rng(14).normal(0, 0.8, (3, 25, 2))
    for q, move in zip(w.inverse_field(d), d, strict=True):
        q = q.reshape(-1, 2)
        assert_allclose(q + w.basis_at(q)[0] @ move, w.pixels, atol=1e-5)


# ---------------------------------------------------------------- beside scikit-image


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [None, 3])
def test_scikit_image_warps_the_same_by_the_field(kind, channels):
    from skimage.transform import warp as skimage_warp

    shape = (20, 33)
    w, x = make(kind, shape), smooth_images(3, shape, channels)
    x = x + np.float32(0.2)  # bright up to the rim, so that the fill counts
    d = np.random.default_rng(1).normal(0, 2, (3, *w.landmarks.shape))
    for image, field, ours in zip(x, w.field(d), w(x, d), strict=True):
        planes = image[..., None] if channels is None else image
        coords = np.moveaxis(field, -1, 0)
        theirs = [skimage_warp(p, coords, order=1) for p in np.moveaxis(planes, -1, 0)]
        expected = np.stack(theirs, -1).reshape(image.shape)
        assert_allclose(ours, expected, rtol=0, atol=2e-5)


def test_points_are_mapped_as_by_scikit_images_spline():
    from skimage.transform import ThinPlateSplineTransform

    rng = np.random.default_rng(0)
    w = Warp.tps((20, 33), landmarks=4)
    d, points = rng.normal(0, 2, (1, 16, 2)), rng.uniform(-4, 36, (40, 2))
    spline = ThinPlateSplineTransform.from_estimate(w.landmarks, w.landmarks + d[0])
    # theirs adds a small number to the distances, against log 0
    assert_allclose(w.map_points(points, d)[0], spline(points), rtol=0, atol=1e-4)
    assert_allclose(w.map_points(w.landmarks, d)[0], w.landmarks + d[0], rtol=0, atol=1e-9)


def test_a_keypoint_is_where_its_mark_is_seen():
    """A mark on the image is found again, in the warped image, at the warped keypoint."""
    from scipy.ndimage import center_of_mass

    w = Warp.tps((41, 41), landmarks=4)
    d = np.random.default_rng(3).normal(0, 1.5, (4, 16, 2))
    assert w.folded(d).max() == 0
    rows, columns = np.mgrid[:41, :41]
    for p in ([20.0, 20.0], [14.3, 25.6]):
        mark = np.exp(-((rows - p[0]) ** 2 + (columns - p[1]) ** 2) / 3).astype(np.float32)
        warped = w(np.repeat(mark[None], 4, 0), d)
        found = w.warp_keypoints([p], d)
        for image, q in zip(warped, found[:, 0], strict=True):
            assert_allclose(center_of_mass(image), q, atol=0.2)  # a mark has a size
        assert np.abs(found - p).max() > 1.5  # the farthest has moved


@given(seeds)
def test_keypoints_there_and_back(seed):
    rng = np.random.default_rng(seed)
    w = Warp.tps((28, 28), landmarks=4)
    d, points = rng.normal(0, 0.7, (2, 16, 2)), rng.uniform(0, 27, (9, 2))
    there = w.warp_keypoints(points, d)
    for k in range(2):
        assert_allclose(w.map_points(there[k], d[k : k + 1])[0], points, atol=1e-5)


def test_the_inverse_field_warps_back_in_scikit_image():
    from skimage.transform import warp as skimage_warp

    w, x = Warp.tps((40, 40), landmarks=4), smooth_images(2, (40, 40), sd=3.0)
    d = np.random.default_rng(5).normal(0, 1.0, (2, 16, 2))
    for image, there, back in zip(x, w.field(d), w.inverse_field(d), strict=True):
        bent = skimage_warp(image, np.moveaxis(there, -1, 0), order=1)
        straight = skimage_warp(bent, np.moveaxis(back, -1, 0), order=1)
        assert np.abs(straight - image)[6:-6, 6:-6].max() < 0.05
        assert np.abs(bent - image).max() > 0.15


POINTS = {
    "one": [1.0, 2.0],
    "three numbers": [[1.0, 2, 3]],
    "NaN": [[np.nan, 1]],
    "grid": [[[1, 2]]],
}


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("call", ["map_points", "warp_keypoints"])
def test_bad_points_are_named(call, name):
    w = Warp.tps((8, 8), landmarks=3)
    with pytest.raises(ValueError, match=r"points must be \(m, 2\)"):
        getattr(w, call)(POINTS[name], np.zeros((1, 9, 2)))
    with pytest.raises(ValueError, match="displacements must be"):
        getattr(w, call)([[1, 2]], np.zeros((9, 2)))


# ---------------------------------------------------------------- folds


def test_the_determinant_is_that_of_the_map():
    w = Warp.affine((20, 33))
    a = np.array([[0.8, 0.3], [-0.2, 1.1]])  # p -> p @ a
    d = (w.landmarks @ a - w.landmarks)[None]
    assert_allclose(w.jacobian(d), np.linalg.det(a), atol=1e-9)
    tps = Warp.tps((20, 33), landmarks=4)
    d = np.random.default_rng(15).normal(0, 2, (1, 16, 2))
    p, h = tps.pixels, 1e-5

    def f(p):
        return p + tps.basis_at(p)[0] @ d[0]

    columns = [(f(p + step) - f(p - step)) / (2 * h) for step in np.eye(2) * h]
    numeric = np.linalg.det(np.stack(columns, -1))
    assert_allclose(tps.jacobian(d).ravel(), numeric, atol=1e-6)


def test_the_share_of_folded_pixels():
    w = Warp.affine((20, 33))
    mirrored = w.landmarks * [1, -1] + [0, 32] - w.landmarks
    assert w.folded(np.stack([np.zeros((3, 2)), mirrored])).tolist() == [0, 1]
    # F(p) = p + d with d falling by 2 a pixel in the upper half alone: there det = -1
    tps = Warp.tps((28, 28), landmarks=14)
    d = np.zeros((1, 196, 2))
    d[0, :, 0] = -2 * np.minimum(tps.landmarks[:, 0] - 13.5, 0)
    assert tps.folded(d)[0] == pytest.approx(0.5, abs=0.05)


# ---------------------------------------------------------------- bad input

W = Warp.tps((8, 9), landmarks=3)
X = np.ones((2, 8, 9), np.float32)
BAD = [
    (lambda: Warp.tps((3, 9)), "at least 4 pixels, got shape (3, 9)"),
    (lambda: Warp.affine((9, 3)), "at least 4 pixels"),
    (lambda: Warp.tps((9, 9, 3)), "(9, 9, 3)"),
    (lambda: Warp.tps((8, 9), landmarks=8), "landmarks=8: a grid has 2 to 7"),
    (lambda: Warp.tps((8, 9), landmarks=1), "landmarks=1"),
    (lambda: Warp.tps((8, 9), landmarks=2.5), "landmarks=2.5"),
    (lambda: Warp.tps((8, 9), landmarks=True), "landmarks=True"),
    (lambda: Warp.tps((8, 9), landmarks=np.zeros((4, 3))), "(L, 2)"),
    (lambda: Warp.tps((8, 9), landmarks=[[0, 0], [5, 5]]), "L >= 3"),
    (lambda: Warp.tps((8, 9), landmarks=[[0, 0], [5, np.nan], [7, 1]]), "NaN"),
    (lambda: W(X, np.zeros((2, 3, 2))), "(N, 9, 2)"),
    (lambda: W(X, np.zeros((3, 9, 2))), "2 images but 3 displacements"),
    (lambda: W(X, np.full((2, 9, 2), np.inf)), "NaN or infinity"),
    (lambda: W(np.ones((2, 9, 8)), np.zeros((2, 9, 2))), "(N, 8, 9[, C])"),
    (lambda: W(X[0], np.zeros((2, 9, 2))), "(N, 8, 9[, C])"),
    (lambda: W.bending_energy(np.zeros((9, 2))), "(N, 9, 2)"),
    (lambda: W.field(np.zeros((1, 9, 3))), "(N, 9, 2)"),
    (lambda: W.fit_field(np.zeros((1, 9, 8, 2))), "(N, 8, 9, 2)"),
    (lambda: sample(X[0], np.zeros((1, 5, 2))), "(N, H, W)"),
    (lambda: sample(X, np.zeros((2, 5, 3))), "coords must be (2, ..., 2)"),
    (lambda: sample(X, np.zeros((3, 5, 2))), "coords must be (2, ..., 2)"),
]


@pytest.mark.parametrize("call, text", BAD, ids=[text for _, text in BAD])
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError) as e:
        call()
    assert text in str(e.value)
