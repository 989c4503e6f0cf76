"""Starts: scikit-learn's k-means++ on pixels, and the greedy one on any distance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import kmeans_plusplus

from stkm.init import greedy_kmeans_plusplus, pixel_kmeans_plusplus

seeds = st.integers(0, 2**32 - 1)


def euclidean(points, asked=None):
    """Squared distances to point i, and i as what goes with them; the questions are kept."""

    def distances(i):
        if asked is not None:
            asked.append(i)
        return ((points - points[i]) ** 2).sum(1), i

    return distances


def cost(points, index, weights):
    return weights @ ((points[:, None] - points[index]) ** 2).sum(-1).min(1)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_the_papers_start_is_scikit_learns(shape):
    X = np.random.default_rng(0).random((40, *shape))
    weights = np.random.default_rng(1).random(40)
    expected = kmeans_plusplus(X.reshape(40, -1), 6, sample_weight=weights, random_state=3)[1]
    assert pixel_kmeans_plusplus(X, 6, 3, weights).tolist() == expected.tolist()


@given(seeds, st.integers(1, 6))
def test_greedy_indices_are_distinct_and_come_with_their_distances(seed, k):
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(0, 1, (20, 2)), rng.uniform(0.1, 1, 20)
    index, found = greedy_kmeans_plusplus(euclidean(points), weights, k, rng)
    assert len(index) == len(found) == len(set(index.tolist())) == k
    for i, (f, extra) in zip(index, found, strict=True):
        assert extra == i and np.array_equal(f, ((points - points[i]) ** 2).sum(1))


@given(seeds)
def test_far_groups_get_one_centroid_each(seed):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(5), 8)
    points = np.stack([1000.0 * group, rng.normal(0, 1, 40)], 1)
    index, _ = greedy_kmeans_plusplus(euclidean(points), np.ones(40), 5, rng)
    assert sorted(group[index]) == [0, 1, 2, 3, 4]


@given(seeds)
def test_images_without_weight_are_never_chosen(seed):
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(0, 1, (20, 2)), np.repeat([0.0, 1.0], 10)
    points[:10] *= 100
    index, _ = greedy_kmeans_plusplus(euclidean(points), weights, 4, rng)
    assert (index >= 10).all()


def test_fewer_distinct_points_than_centroids():
    rng, asked = np.random.default_rng(0), []
    points = np.repeat(np.eye(2), 4, axis=0)
    index, _ = greedy_kmeans_plusplus(euclidean(points, asked), np.ones(8), 4, rng)
    assert len(set(index.tolist())) == 4
    assert {tuple(p) for p in points[index]} == {(1, 0), (0, 1)}


def test_the_same_generator_gives_the_same_start_and_trials_help():
    points, weights = np.random.default_rng(1).normal(0, 1, (60, 2)), np.ones(60)

    def start(seed, n_trials):
        rng = np.random.default_rng(seed)
        return greedy_kmeans_plusplus(euclidean(points), weights, 6, rng, n_trials)[0]

    assert start(7, 4).tolist() == start(7, 4).tolist()
    one, many = (np.mean([cost(points, start(s, n), weights) for s in range(60)]) for n in (1, 8))
    assert many < 0.9 * one


def test_the_first_centroid_follows_the_weights():
    weights = np.array([0.0, 1.0, 3.0])
    points = np.arange(6.0).reshape(3, 2)
    rng = np.random.default_rng(2)
    first = [greedy_kmeans_plusplus(euclidean(points), weights, 1, rng)[0][0] for _ in range(400)]
    assert np.bincount(first, minlength=3) / 400 == pytest.approx([0, 0.25, 0.75], abs=0.07)
