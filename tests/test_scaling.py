"""The measurements of the notebook `scaling` measure what they say; no test asserts a speed."""

import numpy as np
import pytest
from helpers import digits

from stkm import scaling


def test_copies_are_warps_of_their_images(tmp_path):
    images = digits()[:3]
    little = {"degrees": 4, "stretch": 0.04, "shift": 0.5, "sd": 0.2, "seed": 1}
    path = scaling.warped_copies(images, 7, tmp_path / "x.npy", **little)
    X = np.load(path, mmap_mode="r")
    assert X.shape == (7, 28, 28) and X.dtype == np.uint8
    a, b = (np.float64(x).reshape(len(x), -1) for x in (X, images))
    correlation = np.corrcoef(np.concatenate([a, b]))[:7, 7:]
    assert (correlation.argmax(1) == np.arange(7) % 3).all() and correlation.max() < 1
    again = np.load(scaling.warped_copies(images, 5, tmp_path / "y.npy", **little))
    assert np.array_equal(again, X[:5])
    still = {"degrees": 0, "stretch": 0, "shift": 0, "sd": 0}
    assert np.array_equal(np.load(scaling.warped_copies(images, 3, path, **still)), images)


@pytest.mark.parametrize("shape, side", [((28, 28), 6), ((40, 40), 5)])
def test_the_model_counts_what_xla_counts(shape, side):
    model, found = scaling.cost(shape[0] * shape[1], side**2), scaling.counted(shape, side)
    assert model.flop == pytest.approx(found.flop, rel=0.3)
    assert 0.2 < model.bytes / found.bytes < 2  # XLA counts what the cache keeps, too


def test_iterations_and_days_by_hand():
    n = scaling.pair_iterations(10, 3, cold=12, coarse=10, warm=4, settle=5, stride=2)
    assert n == pytest.approx(10 * (3 + 1) + 3 * 4 + 5)
    machine = scaling.Machine("m", flop=1e12, bytes=1e11, share=0.5)
    found, which = scaling.days(10**6, 2, 50, scaling.Cost(1e5, 5e3), machine)
    assert which == "arithmetic" and found == pytest.approx(1e6 * 2 * 50 * 1e5 / 5e11 / 86400)
    found, which = scaling.days(10**6, 2, 50, scaling.Cost(1e4, 5e3), machine)
    assert which == "memory" and found == pytest.approx(1e6 * 2 * 50 * 5e3 / 5e10 / 86400)


@pytest.mark.slow
def test_a_process_of_its_own_measures_time_and_memory(tmp_path):
    path = scaling.warped_copies(digits()[:30], 96, tmp_path / "x.npy")
    params = {"n_clusters": 2, "landmarks": 3, "n_swaps": 0, "n_init": 1, "batch_size": 32}
    params |= {"init_size": 32, "max_iter": 1, "random_state": 0}
    whole, row = scaling.growth(path, [64], **params), scaling.growth(path, [96], steps=1, **params)
    assert (whole[0]["steps"], row[0]["steps"]) == (2, 1)  # a pass; no more than asked
    (row,) = row
    assert row["n"] == 96 and row["batch"] == 32
    assert min(row["sample"], row["step"], row["labelling"]) > 0
    assert 0.05 < row["before"] <= row["peak"] < 8


@pytest.mark.slow
def test_devices_change_no_label():
    X = digits()[:40].astype(np.float32) / 255
    params = {"centers": X[:3], "rounds": 1, "landmarks": 3, "prior": "fixed"}
    one, two = (scaling.over_devices(X, n, **params) for n in (1, 2))
    assert (one["devices"], two["devices"]) == (1, 2) and one["seconds"] > 0
    assert np.array_equal(one["labels"], two["labels"])
    assert np.array_equal(one["distances"], two["distances"])


def test_what_fails_in_its_process_is_told():
    with pytest.raises(RuntimeError, match="(?s)growth: .*No such file"):
        scaling.growth("nowhere.npy", [4], n_clusters=2)
