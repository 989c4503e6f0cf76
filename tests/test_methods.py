"""The methods of Table 1: each is what its name says, set up from params.yaml."""

import dataclasses

import numpy as np
import pytest

from stkm import config, experiment, methods
from stkm.cluster import AffineKMeans, STKMeans


@pytest.fixture(scope="module")
def cfg():
    return config.load(profile="smoke")


@pytest.fixture(scope="module")
def rows():
    """Flat 10 x 10 images: an upright and a lying bar at several places, (24, 100)."""
    images = np.zeros((24, 10, 10), np.uint8)
    for i in range(12):
        images[i, 2 : 8 - i % 2, 3 + i % 4] = 255
        images[12 + i, 3 + i % 4, 2 : 8 - i % 2] = 255
    return experiment.flatten(images)


def make(name, cfg, rows, seed=0):
    start = methods.start_centroids(rows, 2, seed)
    return methods.make(name, cfg, 2, (10, 10), start, seed), start


def test_flat_images_are_between_0_and_1():
    images = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    rows = experiment.flatten(images)
    assert rows.shape == (2, 36) and rows.dtype == np.float32
    np.testing.assert_allclose(rows * 255, images.reshape(2, -1), rtol=1e-6)


@pytest.mark.parametrize("name", [m for m in config.METHODS if m not in config.DEEP_METHODS])
def test_every_method_has_one_interface(name, cfg, rows):
    model, _ = make(name, cfg, rows)
    model.fit(rows)
    assert model.cluster_centers_.size == 2 * 100 and np.isfinite(model.inertia_)
    assert sorted(np.unique(model.predict(rows))) == [0, 1]
    again, _ = make(name, cfg, rows)
    np.testing.assert_array_equal(again.fit(rows).cluster_centers_, model.cluster_centers_)


def test_the_three_methods_of_the_paper_share_the_start_of_a_run(cfg, rows):
    start = methods.start_centroids(rows, 2, 3)
    for name in ("kmeans", "affine", "st_paper"):
        model, given = make(name, cfg, rows, seed=3)
        np.testing.assert_array_equal(given, start)
        np.testing.assert_array_equal(np.asarray(model.init).reshape(2, -1), start)
    assert isinstance(make("st", cfg, rows)[0].init, str)  # a start of its own
    assert all((rows == centroid).all(1).any() for centroid in start)  # images of the set


def test_a_deep_method_is_set_up_elsewhere(cfg, rows):
    with pytest.raises(config.ConfigError, match="'dec' is a deep method: stkm.baselines"):
        make("dec", cfg, rows)


def test_numbers_come_from_the_settings(cfg, rows):
    block = dataclasses.replace(cfg.method("st"), landmarks=4, bending=0.5)
    changed = dataclasses.replace(cfg, method_blocks={**cfg.method_blocks, "st": block})
    model, _ = make("st", changed, rows)
    run, usual = cfg.run, STKMeans()
    assert (model.landmarks, model.bending) == (4, 0.5)
    assert model.displacement == usual.displacement  # null: the package's default
    assert (model.max_iter, model.n_swaps) == (run.max_iter, run.n_swaps)
    paper, _ = make("st_paper", cfg, rows)
    by_hand = STKMeans.paper(2, epochs=run.paper_epochs)
    assert (paper.solver, paper.max_iter) == ("adam", by_hand.max_iter)
    full = config.load(profile="default")
    assert make("st", full, rows)[0].n_swaps == "auto"
    assert make("affine", full, rows)[0].max_iter == AffineKMeans().max_iter
    kmeans, _ = make("kmeans", cfg, rows)
    assert kmeans.n_init == 1 and kmeans.max_iter == cfg.method("kmeans").max_iter


def test_an_unknown_method_is_named(cfg, rows):
    with pytest.raises(config.ConfigError, match="unknown method 'kmean'; did you mean 'kmeans'"):
        make("kmean", cfg, rows)


def test_objectives_of_the_warp_loop_are_its_log(cfg, rows):
    model = methods.make("affine", cfg, 2, (10, 10), rows[:2], 0).fit(rows)
    passes = methods.objectives(model, rows)
    assert len(passes) == model.n_iter_ and (np.diff(passes) <= 1e-4 * passes[0]).all()


def test_objectives_of_kmeans_fall_to_its_inertia(cfg):
    rows = np.random.default_rng(0).random((200, 100), dtype=np.float32)
    model = methods.make("kmeans", cfg, 5, (10, 10), rows[:5], 0).fit(rows)
    passes = methods.objectives(model, rows)
    assert len(passes) == model.n_iter_ > 2
    assert passes[-1] == pytest.approx(model.inertia_)
    assert (np.diff(passes) <= 0).all() and passes[0] > passes[-1]


def test_runs_do_not_depend_on_how_many_there_are(cfg, rows):
    """Side by side in processes they give what each gives alone."""
    few = dataclasses.replace(cfg.run, n_runs=2)
    settings = dataclasses.replace(cfg, profiles={**cfg.profiles, "smoke": few})
    runs = methods.runs("st", settings, rows, rows[:5], 2, (10, 10))
    assert [r.seed for r in runs] == [cfg.seeds.base, cfg.seeds.base + 1]
    for r in runs:
        model, start = make("st", cfg, rows, seed=r.seed)
        np.testing.assert_array_equal(r.start, start)
        model.fit(rows)
        np.testing.assert_allclose(r.model.cluster_centers_, model.cluster_centers_, atol=1e-5)
        np.testing.assert_array_equal(r.labels, model.predict(rows[:5]))


def test_an_error_in_one_run_reaches_the_caller(cfg, rows):
    with pytest.raises(ValueError, match="n_samples=24 should be >= n_clusters=30"):
        methods.runs("kmeans", cfg, rows, rows, 30, (10, 10))
