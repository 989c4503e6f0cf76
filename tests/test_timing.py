"""The stopwatch measures what it says; how fast anything is, no test asserts."""

import numpy as np
import pytest
from helpers import digits

from stkm import AffineKMeans, STKMeans, timing


@pytest.fixture(scope="module")
def raced():
    x = digits()[:18].astype(np.float32) / 255
    images, targets = x[:16].reshape(2, 8, 28, 28), x[16:]
    steps = {name: (0, 3, 12) for name in timing.SOLVERS}
    race = timing.race(images, targets, (2e-3, 17.0), steps, landmarks=4, rounds=1)
    return images, targets, race


def test_every_solver_lowers_the_same_objective(raced):
    images, targets, race = raced
    start = float(((images - targets[:, None]) ** 2).sum((2, 3)).mean())
    assert list(race) == list(timing.SOLVERS)
    for name, points in race.items():
        n, t, f = zip(*points, strict=True)
        assert n == (0, 3, 12) and min(t) > 0
        assert f[2] < 0.8 * start and f[2] <= f[1] * 1.0001
        if name != "coarse":  # its first stage is always whole
            assert f[0] == pytest.approx(start, rel=1e-4)


@pytest.mark.parametrize("shape", [(4, 28, 28), (3, 2, 28, 28), (2, 2, 28, 27), (0, 2, 28, 28)])
def test_a_race_needs_images_for_each_target(shape):
    targets = np.zeros((shape[0] and 2, 28, 28))
    with pytest.raises(ValueError, match=r"images must be \(T, n, H, W\)"):
        timing.race(np.zeros(shape), targets, (0, 0), {"adam": (1,)})


def test_the_fastest_round_counts_and_the_first_one_does_not():
    calls = []
    took, out = timing.seconds(lambda: calls.append(0) or len(calls), rounds=3)
    assert out == 4 and 0 < took < 1


@pytest.mark.parametrize("estimator", [STKMeans(3, landmarks=3), AffineKMeans(3)])
def test_a_pass_is_timed_and_nothing_fitted(estimator):
    x = digits()[:20].astype(np.float32) / 255
    assert timing.seconds_a_pass(estimator, x, rounds=1) > 0
    assert not hasattr(estimator, "cluster_centers_")


def test_a_package_that_is_not_there_gives_none(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(timing, "import_module", absent)
    x = digits()[:2].astype(np.float32) / 255
    assert all(timing.others(name, x, x) is None for name in timing.OTHERS)


@pytest.mark.parametrize("name", timing.OTHERS)
def test_other_packages_lower_the_squared_error(name):
    pytest.importorskip(name)
    x = digits()[:4].astype(np.float32) / 255
    took, error = timing.others(name, x[:2], np.roll(x[:2], 2, axis=2))
    before = float(((x[:2] - np.roll(x[:2], 2, axis=2)) ** 2).sum((1, 2)).mean())
    assert took > 0 and error < 0.5 * before


def test_memory_is_counted_in_gibibytes():
    assert 0.05 < timing.peak_memory() < 64
