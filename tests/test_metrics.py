"""ACC, NMI and ARI against scikit-learn, brute force and their own definitions."""

from itertools import permutations

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from stkm import metrics
from stkm.metrics import (
    ari,
    bootstrap_interval,
    chance,
    chance_accuracy,
    cluster_order,
    clustering_accuracy,
    confusion,
    match_clusters,
    nmi,
    paired_interval,
)

SCORES = [clustering_accuracy, nmi, ari]


def brute_force_accuracy(y_true, y_pred):
    """The best share over every one-to-one map between clusters and classes."""
    classes, clusters = sorted(set(y_true)), sorted(set(y_pred))
    # a map from the smaller set into the larger, padded with "no partner"
    partners = classes + [None] * max(0, len(clusters) - len(classes))
    best = 0
    for chosen in permutations(partners, len(clusters)):
        name = dict(zip(clusters, chosen, strict=True))
        best = max(best, sum(t == name[p] for t, p in zip(y_true, y_pred, strict=True)))
    return best / len(y_true)


labels = st.integers(0, 4)
pairs = st.lists(st.tuples(labels, labels), min_size=1, max_size=40).map(
    lambda rows: tuple(map(list, zip(*rows, strict=True)))
)


@given(pairs)
def test_accuracy_is_the_best_of_all_maps(pair):
    assert clustering_accuracy(*pair) == pytest.approx(brute_force_accuracy(*pair), abs=1e-12)


@given(pairs)
def test_nmi_and_ari_are_scikit_learns(pair):
    assert nmi(*pair) == pytest.approx(
        sklearn.metrics.normalized_mutual_info_score(*pair, average_method="arithmetic"), abs=1e-12
    )
    assert ari(*pair) == pytest.approx(sklearn.metrics.adjusted_rand_score(*pair), abs=1e-12)


@given(pairs, st.permutations(range(5)), st.permutations(range(5)), st.randoms())
def test_names_of_groups_and_order_of_images_do_not_matter(pair, new_true, new_pred, random):
    true, pred = pair
    names = ["zero", "-1", "b", "", "ä"]
    order = list(range(len(true)))
    random.shuffle(order)
    renamed = [names[new_true[true[i]]] for i in order], [-new_pred[pred[i]] for i in order]
    for score in SCORES:
        assert score(*renamed) == pytest.approx(score(true, pred), abs=1e-12)


@given(pairs)
def test_scores_stay_in_their_range(pair):
    assert 0 < clustering_accuracy(*pair) <= 1
    assert 0 <= nmi(*pair) <= 1
    assert -0.5 <= ari(*pair) <= 1
    assert all(type(score(*pair)) is float for score in SCORES)


@given(pairs)
def test_equal_groupings_are_perfect(pair):
    true, _ = pair
    renamed = [f"cluster {9 - t}" for t in true]
    assert [score(true, renamed) for score in SCORES] == pytest.approx([1, 1, 1])


@given(pairs)
def test_the_diagonal_of_the_confusion_is_the_accuracy(pair):
    true, pred = pair
    counts, classes, clusters = confusion(true, pred)
    assert counts.shape == (len(classes), len(clusters)) and counts.sum() == len(true)
    for row, class_ in enumerate(classes):
        for column, cluster in enumerate(clusters):
            both = sum(t == class_ and p == cluster for t, p in zip(true, pred, strict=True))
            assert counts[row, column] == both
    if len(clusters) >= len(classes):
        assert np.trace(counts) / len(true) == pytest.approx(clustering_accuracy(true, pred))


@given(pairs)
def test_the_matching_explains_the_accuracy(pair):
    true, pred = pair
    match = match_clusters(true, pred)
    assert len(match) == min(len(set(true)), len(set(pred))) == len(set(match.values()))
    right = sum(match.get(p, "unmatched") == t for t, p in zip(true, pred, strict=True))
    assert right / len(true) == pytest.approx(clustering_accuracy(true, pred))


def test_more_clusters_than_classes_cost_the_smaller_part():
    true, pred = ["a"] * 5 + ["b"] * 4, [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert clustering_accuracy(true, pred) == 7 / 9
    assert match_clusters(true, pred) == {0: "a", 2: "b"}
    counts, _, clusters = confusion(true, pred)
    assert clusters.tolist() == [0, 2, 1]  # the unmatched one last
    assert counts.tolist() == [[3, 0, 2], [0, 4, 0]]


def test_fewer_clusters_than_classes_cost_the_smaller_class():
    true, pred = [0, 0, 0, 1, 1, 2], ["x"] * 5 + ["y"]
    assert clustering_accuracy(true, pred) == 4 / 6
    assert match_clusters(true, pred) == {"x": 0, "y": 2}
    assert confusion(true, pred).counts.tolist() == [[3, 0], [2, 0], [0, 1]]


def test_any_label_values():
    assert clustering_accuracy([-5, -5, 3, 3], ["b", "b", "a", "a"]) == 1.0
    assert clustering_accuracy(np.array([1.0, 2.0]), (np.uint8(7), np.uint8(0))) == 1.0
    assert clustering_accuracy([True, False], [b"x", b"y"]) == 1.0


@pytest.mark.parametrize("function", [*SCORES, confusion, match_clusters])
@pytest.mark.parametrize(
    ("true", "pred", "message"),
    [
        ([], [], "y_true is empty"),
        ([1, 2], [1], "y_true has 2 labels and y_pred 1"),
        ([1, 2], [[1, 2]], r"y_pred .* not \(1, 2\)"),
        (3, [1], r"y_true .* not \(\)"),
        ([1, 2], [1, float("nan")], "y_pred contains NaN or None at index 1"),
        (["a", None], [1, 2], "y_true contains NaN or None at index 1"),
        (np.array([1, "a"], dtype=object), [1, 2], "y_true mixes labels"),
    ],
)
def test_bad_labels_are_named(function, true, pred, message):
    with pytest.raises(ValueError, match=message):
        function(true, pred)


def test_cluster_order_follows_the_classes():
    y = [0, 0, 1, 1, 2, 2]
    assert cluster_order(y, [2, 2, 0, 0, 1, 1], 3) == [2, 0, 1]
    # cluster 1 has no image and takes the place of the class without a cluster
    assert cluster_order(y, [2, 2, 2, 0, 0, 0], 3) == [2, 1, 0]
    # more clusters than classes: those without a class at the end, in order
    assert cluster_order([5, 5, 7, 7, 7], [3, 3, 1, 1, 0], 5) == [3, 1, 0, 2, 4]
    # fewer clusters than classes
    assert cluster_order(y, [1, 1, 0, 0, 0, 0], 2) == [1, 0]


def test_cluster_order_refuses_a_cluster_out_of_range():
    with pytest.raises(ValueError, match="values from 0 to 3, but 3 clusters are 0 to 2"):
        cluster_order([0, 1], [0, 3], 3)


# --------------------------------------------------------------------- chance


def test_chance_by_hand():
    """Two images of two classes: two random labels agree (½: 1 of 2 right) or not (½: 2 of 2)."""
    assert chance_accuracy([0, 1], 2, n_draws=4000) == pytest.approx(0.75, abs=0.01)
    assert chance_accuracy(["a", "a", "a"], 1) == 1
    assert chance_accuracy(np.arange(10), 1) == 0.1


def test_chance_of_few_images_and_many_classes_is_far_above_one_in_k():
    """117 images of 13 classes, 9 each: the paper's K-means figure of 20 % there is chance."""
    y = np.repeat(np.arange(13), 9)
    assert chance_accuracy(y, 13) == pytest.approx(0.237, abs=0.005)
    assert chance_accuracy(y, 13) == chance_accuracy(y, 13)


@pytest.mark.parametrize("wrong", [{"n_clusters": 0}, {"n_clusters": 2.0}, {"n_draws": 0}])
def test_chance_rejects_counts_below_one(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        chance_accuracy([0, 1], **{"n_clusters": 2, **wrong})


# ------------------------------------------------------------------ intervals


@given(pairs)
def test_scores_of_a_table_are_those_of_its_labels(pair):
    counts = confusion(*pair).counts
    for name, function in zip(("ACC", "NMI", "ARI"), SCORES, strict=True):
        assert metrics._OF_TABLE[name](counts[None])[0] == pytest.approx(function(*pair), abs=1e-12)


def test_the_interval_of_an_accuracy_is_that_of_a_share():
    """With two clusters that keep their match, ACC is a binomial share."""
    truth = np.repeat([0, 1], 500)
    found = np.where(np.arange(1000) % 5, truth, 1 - truth)  # 80 % right
    value, low, high = bootstrap_interval(truth, found, n_resamples=4000)
    half = 1.96 * np.sqrt(0.8 * 0.2 / 1000)
    assert value == 0.8
    assert (low, high) == pytest.approx((0.8 - half, 0.8 + half), abs=0.002)
    again = bootstrap_interval(truth, found, n_resamples=4000)
    assert again == (value, low, high)
    assert bootstrap_interval(truth, truth) == (1, 1, 1)
    narrow = bootstrap_interval(truth, found, level=0.5)
    assert low < narrow.low < narrow.high < high


def test_a_bootstrap_of_the_images_themselves_gives_the_same():
    """scipy's, of images one by one; ARI, whose samples have no bias to speak of."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=120)
    found = np.where(rng.random(120) < 0.7, truth, rng.integers(4, size=120))
    direct = scipy.stats.bootstrap(
        (truth, found), ari, paired=True, vectorized=False, n_resamples=500, method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    made = bootstrap_interval(truth, found, "ARI")
    assert (made.low, made.high) == pytest.approx((direct.low, direct.high), abs=0.03)
    for name, function in zip(("ACC", "NMI", "ARI"), SCORES, strict=True):
        assert bootstrap_interval(truth, found, name).value == pytest.approx(function(truth, found))


def test_the_interval_is_about_the_value_where_samples_are_biased():
    """Random labels: NMI of a sample is larger than that of all, which no image is to blame for."""
    rng = np.random.default_rng(1)
    truth, found = rng.integers(10, size=(2, 300))
    value, low, high = bootstrap_interval(truth, found, "NMI")
    assert low <= value <= high


def test_pairs_tell_apart_what_single_intervals_do_not():
    truth = np.arange(400) % 2
    wrong = np.arange(400) < 100
    first = np.where(wrong, 1 - truth, truth)
    second = np.where(wrong | (np.arange(400) >= 388), 1 - truth, truth)  # 12 more are wrong
    gap = paired_interval(truth, first, second)
    assert gap.value == pytest.approx(12 / 400) and 0 < gap.low < gap.value < gap.high
    one, other = (bootstrap_interval(truth, y) for y in (first, second))
    assert one.low < other.high
    assert paired_interval(truth, second, first).value == pytest.approx(-gap.value)
    assert paired_interval(truth, first, first, "NMI") == (0, 0, 0)
    # names of clusters make no difference
    assert paired_interval(truth, np.array(["a", "b"])[first], second + 7) == gap


def test_chance_of_clusters_of_the_same_sizes():
    # 2 images of either class in clusters of 2: the table is [[2, 0], [0, 2]] or its mirror image
    # with probability 2/6, else [[1, 1], [1, 1]]: ACC 1 or 1/2
    mean, best = chance([0, 0, 1, 1], [5, 5, 6, 6], n_draws=5000, n_best=3)
    assert mean == pytest.approx(1 / 3 + 2 / 3 / 2, abs=0.02)
    assert best == pytest.approx(1 - (2 / 3) ** 3 / 2, abs=0.02)
    assert chance([0, 0, 1], [1, 1, 1])[0] == pytest.approx(2 / 3)  # one cluster has no choice
    assert chance([0, 0, 1, 1], [0, 1, 0, 1], "ARI", n_draws=5000)[0] == pytest.approx(0, abs=0.03)
    y = np.arange(200) % 10
    assert chance(y, y, n_draws=200)[0] == pytest.approx(chance_accuracy(y, 10), abs=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "F1"}, "score='F1': expected one of ACC, NMI, ARI"),
        ({"n_resamples": 0}, "n_resamples=0"),
        ({"level": 1.0}, "level=1.0"),
    ],
)
def test_bad_options_of_an_interval(options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval([0, 1], [0, 1], **options)
    with pytest.raises(ValueError, match=message):
        paired_interval([0, 1], [0, 1], [1, 1], **options)


def test_labels_of_other_images_have_no_pairs():
    with pytest.raises(ValueError, match="same images"):
        paired_interval([0, 1], [0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="n_best=0"):
        chance([0, 1], [0, 1], n_best=0)
