"""Alignment of pairs: known warps are found again, to all sides alike."""

import jax
import numpy as np
import pytest
from helpers import (
    affine_moves,
    assert_rejected_before_compilation,
    digits,
    residuals,
    smooth_images,
)
from numpy.testing import assert_allclose

from stkm.align import Alignment, align, low_pass
from stkm.warp import Warp

SOLVERS = ["gauss-newton", "adam", "lm"]
WEAK = 1e-5  # a penalty that leaves moves of 1.5 px sd less than 1 % of the error
COARSE = (0.14, 0.07, 0.035)  # from coarser than the default: no pair of these ends elsewhere


def left(found, images, targets):
    """What an alignment leaves of the squared errors, ``(N,)``."""
    return residuals(found.warped, targets) / residuals(images, targets)


# ---------------------------------------------------------------- known warps


@pytest.mark.parametrize(
    "kind, shape", [("tps", (28, 28)), ("tps", (20, 33)), ("affine", (28, 28))]
)
def test_affine_moves_of_a_smooth_image_are_recovered(kind, shape):
    w = getattr(Warp, kind)(shape)
    images = smooth_images(30, shape)
    moves = affine_moves(w, 30, degrees=20, stretch=0.15, shift=3)
    targets = np.asarray(w(images, moves))
    assert left(align(images, targets, w), images, targets).max() <= 0.01


@pytest.fixture(scope="module")
def bent():
    """60 smooth images, and the same after spline moves of 1.5 px sd; the moves, the warp."""
    w, images = Warp.tps((28, 28), landmarks=5), np.tile(smooth_images(30, (28, 28)), (2, 1, 1))
    moves = np.random.default_rng(1).normal(0, 1.5, (60, 25, 2))
    return images, np.asarray(w(images, moves)), moves, w


@pytest.mark.parametrize("solver", SOLVERS)
def test_spline_moves_of_a_smooth_image_are_recovered(bent, solver):
    images, targets, _, w = bent
    found = align(images, targets, w, solver=solver, bending=WEAK, coarse=COARSE, max_iter=100)
    assert left(found, images, targets).max() <= 0.01


def test_spline_moves_are_recovered_by_the_defaults(bent):
    images, targets, _, w = bent
    assert left(align(images, targets, w), images, targets).max() <= 0.01


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_objective_found_is_near_or_below_that_of_the_true_warp(bent, solver):
    images, targets, moves, w = bent
    found = align(images, targets, w, solver=solver, coarse=COARSE, scale=10.0)
    true = 10.0 * 1e-4 * w.bending_energy(moves)  # bending=1e-4; no error is left there
    assert np.mean(found.distances) <= 1.02 * np.mean(true)


def test_colour_is_recovered_too():
    w = Warp.tps((28, 28), landmarks=5)
    images = smooth_images(8, (28, 28), channels=3)
    moves = affine_moves(w, 8, degrees=20, stretch=0.15, shift=3, seed=3)
    targets = np.asarray(w(images, moves))
    assert left(align(images, targets, w), images, targets).max() <= 0.01


# ---------------------------------------------------------------- sides


@pytest.fixture(scope="module")
def shifted():
    """Errors left of digits rolled by 1 and 3 pixels to the four sides, by (axis, step)."""
    inner = digits().copy()
    inner[:, 3:-3, 3:-3] = 0  # ink of the rim would come in again on the other side
    images = digits()[~inner.any((1, 2))][:60].astype(np.float32) / 255
    w = Warp.tps((28, 28), landmarks=6)
    out = {}
    for axis in (1, 2):
        for step in (-3, -1, 1, 3):
            targets = np.roll(images, step, axis)
            out[axis, step] = left(align(images, targets, w), images, targets)
    return out


@pytest.mark.parametrize("step", [1, 3])
def test_shifts_to_all_sides_are_found_equally_well(step, shifted):
    sides = np.array([shifted[axis, s] for axis in (1, 2) for s in (-step, step)])
    assert sides.shape == (4, 60)
    assert sides.max() <= 0.01


@pytest.mark.parametrize(
    "solver, coarse",
    [*((s, ()) for s in SOLVERS), ("gauss-newton", (0.07, 0.035))],
    ids=[*(f"{s} from the identity" for s in SOLVERS), "coarse to fine"],
)
@pytest.mark.parametrize("axis", [1, 2])
def test_mirrored_pairs_have_the_same_distance(axis, coarse, solver):
    images = smooth_images(60, (28, 28), sd=1.5)
    x, t = images[:30], images[30:]
    w = Warp.tps((28, 28), landmarks=6)
    plain = align(x, t, w, solver=solver, coarse=coarse, bending=2e-3)
    flipped = np.flip(x, axis), np.flip(t, axis)
    mirrored = align(*flipped, w, solver=solver, coarse=coarse, bending=2e-3)
    assert np.mean(plain.distances) < 0.8 * residuals(x, t).mean()
    ratio = mirrored.distances / plain.distances
    assert abs(np.log(ratio).mean()) < 0.02
    assert np.median(np.abs(np.log(ratio))) < 0.02


# ---------------------------------------------------------------- what is returned


@pytest.mark.parametrize("solver", SOLVERS)
def test_identical_images_need_no_warp(solver):
    images = digits()[:5].astype(np.float32) / 255
    found = align(images, images, Warp.tps((28, 28), landmarks=6), solver=solver)
    assert (found.distances <= 1e-6).all()
    assert np.abs(found.displacements).max() < 0.01


@pytest.mark.parametrize(
    "solver, channels", [("gauss-newton", None), ("gauss-newton", 3), ("adam", 3), ("lm", None)]
)
def test_the_parts_of_an_alignment_agree(solver, channels):
    images = smooth_images(10, (20, 33), channels=channels, sd=1.0)
    x, t, w = images[:5], images[5:], Warp.tps((20, 33), landmarks=4)
    found = align(x, t, w, solver=solver, bending=1e-4, displacement=1.0, scale=4.0)
    assert isinstance(found, Alignment)
    assert found.warped.shape == x.shape and found.displacements.shape == (5, 16, 2)
    assert found.labels.tolist() == list(range(5))
    d = found.displacements.astype(float)
    assert_allclose(found.warped, w(x, d), atol=1e-5)
    moved = ((w.field(d) - w.field(0 * d)) ** 2).sum(-1).mean((1, 2))
    penalty = 4.0 * (1e-4 * w.bending_energy(d) + 1.0 * moved / (20 * 33))
    assert_allclose(found.penalties, penalty, rtol=1e-4)
    assert_allclose(found.distances - found.penalties, residuals(found.warped, t), rtol=1e-3)
    assert_allclose(found.folded, w.folded(d), atol=1e-3)
    assert (found.distances <= residuals(x, t) * (1 + 1e-6)).all()


def test_channels_share_a_warp_and_their_errors_add():
    images = smooth_images(12, (28, 28), sd=1.5).astype(float)
    x, t, w = images[:6], images[6:], Warp.tps((28, 28), landmarks=4)
    with jax.enable_x64(True):
        grey = align(x, t, w, coarse=(), max_iter=20)
        tripled = (np.repeat(a[..., None], 3, -1) for a in (x, t))
        colour = align(*tripled, w, coarse=(), max_iter=20)
    assert_allclose(colour.distances, 3 * grey.distances, rtol=1e-6)
    assert_allclose(colour.displacements, grey.displacements, atol=1e-4)
    mixed = smooth_images(12, (28, 28), channels=3, sd=1.5)
    found = align(mixed[:6], mixed[6:], w)
    for c in range(3):
        assert_allclose(found.warped[..., c], w(mixed[:6][..., c], found.displacements), atol=1e-5)


@pytest.mark.parametrize("factor", [255])
def test_the_scale_of_the_images_changes_nothing_but_the_scale(factor):
    images = smooth_images(12, (28, 28), sd=1.5).astype(float)
    x, t, w = images[:6], images[6:], Warp.tps((28, 28), landmarks=4)
    with jax.enable_x64(True):
        plain = align(x, t, w, coarse=(), max_iter=20)
        scaled = align(x * factor, t * factor, w, coarse=(), max_iter=20)
    assert_allclose(scaled.distances, plain.distances * factor**2, rtol=1e-6)
    assert_allclose(scaled.displacements, plain.displacements, atol=1e-4)


def test_integers_are_taken_as_they_are():
    x, w = digits()[:4], Warp.affine((28, 28))
    t = np.roll(x, 1, 1)
    whole, real = align(x, t, w), align(x.astype(np.float32), t.astype(np.float32), w)
    assert_allclose(whole.distances, real.distances, rtol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_start_is_used_and_never_made_worse(solver):
    w = Warp.tps((28, 28), landmarks=5)
    images = smooth_images(10, (28, 28))
    moves = np.random.default_rng(4).normal(0, 1.5, (10, 25, 2))
    targets = np.asarray(w(images, moves))
    warm = align(images, targets, w, solver=solver, start=moves, scale=1.0, max_iter=3)
    at_start = residuals(w(images, moves), targets) + 1e-4 * w.bending_energy(moves)
    assert (warm.distances <= at_start * (1 + 1e-5) + 1e-6).all()
    stay = align(images, targets, w, solver=solver, start=moves, max_iter=0)
    assert_allclose(stay.displacements, moves, atol=1e-6)


def test_the_identity_warp_leaves_images_as_they_are():
    images = digits()[:6].astype(np.float32)
    found = align(images[:3], images[3:], Warp.identity((28, 28)))
    assert np.array_equal(found.warped, images[:3])
    assert found.displacements.shape == (3, 0, 2)
    assert_allclose(found.distances, residuals(images[:3], images[3:]), rtol=1e-6)


def test_batches_do_not_change_the_result():
    images, w = smooth_images(20, (28, 28), sd=1.5), Warp.affine((28, 28))
    x, t = images[:10], images[10:]
    whole = align(x, t, w)
    parts = align(x, t, w, batch_size=4)
    assert_allclose(parts.distances, whole.distances, rtol=1e-3)


def test_low_pass_keeps_the_total_and_zero_keeps_the_image():
    x = smooth_images(2, (28, 28), channels=3)
    assert np.array_equal(low_pass(x, 0), x)
    blurred = low_pass(x, 1.0)
    assert_allclose(blurred.sum((1, 2)), x.sum((1, 2)), rtol=1e-2)
    assert (blurred.max((1, 2)) < x.max((1, 2))).all()


# ---------------------------------------------------------------- bad input

W = Warp.affine((9, 13))
X = np.random.default_rng(5).random((3, 9, 13), dtype=np.float32)


def spoilt(value):
    x = X.copy()
    x[1, 2, 3] = value
    return x


BAD = {
    "solver": (lambda: align(X, X, W, solver="newton"), "'gauss-newton', 'adam', 'lm'"),
    "rank": (lambda: align(X[0], X[0], W), "(N, 9, 13[, C])"),
    "frame": (lambda: align(X.swapaxes(1, 2), X.swapaxes(1, 2), W), "(N, 9, 13[, C])"),
    "count": (lambda: align(X, X[:2], W), "one target of the same shape per image"),
    "none": (lambda: align(X[:0], X[:0], W), "0 images"),
    "NaN": (lambda: align(spoilt(np.nan), X, W), "images: Input contains NaN"),
    "inf": (lambda: align(X, spoilt(np.inf), W), "targets: Input contains NaN or infinity"),
    "start": (lambda: align(X, X, W, start=np.zeros((3, 4, 2))), "displacements must be (N, 3, 2)"),
    "start count": (lambda: align(X, X, W, start=np.zeros((2, 3, 2))), "3 images but 2"),
    "start NaN": (lambda: align(X, X, W, start=np.full((3, 3, 2), np.nan)), "NaN"),
    "bending": (lambda: align(X, X, W, bending=-1), "bending=-1"),
    "displacement": (lambda: align(X, X, W, displacement=np.nan), "displacement=nan"),
    "scale": (lambda: align(X, X, W, scale=-2.0), "scale=-2.0"),
    "max_iter": (lambda: align(X, X, W, max_iter=-1), "max_iter=-1"),
    "batch_size": (lambda: align(X, X, W, batch_size=0), "batch_size=0"),
    "learning_rate": (lambda: align(X, X, W, solver="adam", learning_rate=-1), "learning_rate=-1"),
    "coarse": (lambda: align(X, X, W, coarse=(np.nan,)), "coarse"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_before_anything_is_compiled(name):
    assert_rejected_before_compilation(*BAD[name])
