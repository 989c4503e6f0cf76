"""Choice without labels: each criterion picks what is right where that is known."""

import numpy as np
import pytest
from helpers import assert_rejected_before_compilation, bars
from hypothesis import given
from hypothesis import strategies as st

from stkm import AffineKMeans, STKMeans, selection
from stkm.selection import Selection, select, utilities


def small(**params):
    """An estimator that fits `bars` in a second."""
    given = {"landmarks": 3, "n_init": 1, "n_swaps": 2, "max_iter": 6, "smoothing": 0.0}
    return STKMeans(3, **(given | params))


# -------------------------------------------------------------------- numbers


def test_utilities_by_hand():
    distances = [[1, 4, 9], [2, 2.5, 7], [8, 3, 5], [6, 5, 0]]
    # the first two belong to centroid 0 and lose 3 and 0.5; the others lose 2 and 5
    np.testing.assert_allclose(utilities(distances), [3.5 / 4, 2 / 4, 5 / 4])


@given(st.integers(2, 5), st.integers(1, 20), st.integers(0, 10**6))
def test_utilities_are_what_the_objective_loses(k, n, seed):
    distances = np.random.default_rng(seed).random((n, k))
    lost = [np.delete(distances, j, 1).min(1).mean() - distances.min(1).mean() for j in range(k)]
    np.testing.assert_allclose(utilities(distances), lost, atol=1e-12)


def test_gaps_by_hand():
    settings = [{"n_clusters": k, "tying": t} for t in (0.0, 1.0) for k in (2, 4, 3)]
    least = np.array([[0.5], [0.1], [0.4], [0.8], [0.0], [0.2]])  # in the order 2, 4, 3
    found = selection._gaps(settings, least)[:, 0]
    expected = [np.log(0.5 / 0.4), np.nan, np.log(0.4 / 0.1)]
    expected += [np.log(0.8 / 0.2), np.nan, np.log(0.2 / selection.LEAST)]
    np.testing.assert_allclose(found, expected)


def test_ranking_by_hand():
    settings = [{"bending": b} for b in (1.0, 2.0, 3.0)]
    values = np.array([[5.0, 7.0], [4.0, 5.9], [6.0, 3.0]])
    found = selection._ranked("held-out", settings, values, [1, 1, 4])
    assert found.winner == {"bending": 3.0}  # mean 4.5, 4.95 and 6
    first, second, third = found.rows
    assert first["mean"] == 6 and first["sd"] == pytest.approx(np.sqrt(2))
    assert first["behind"][0] == pytest.approx(1.5)  # (5 − 6, 7 − 3) / 2
    assert first["tied"] and second["tied"] and third["behind"] == (0.0, 0.0, 0.0)
    assert selection._ranked("stability", settings, values, [1] * 3).winner == {"bending": 1.0}
    one = selection._ranked("held-out", settings, values[:, :1], [1] * 3)
    assert one.winner == {"bending": 2.0} and one.rows[0]["sd"] is one.rows[0]["behind"] is None


def test_of_equally_stable_numbers_of_clusters_the_largest_wins():
    settings = [{"n_clusters": k} for k in (2, 3, 4)]
    found = selection._ranked("stability", settings, np.array([[1.0], [1.0], [0.7]]), [1] * 3)
    assert found.winner == {"n_clusters": 3}


# -------------------------------------------------------------------- choices


@pytest.fixture(scope="module")
def images():
    return bars(60)[0]


@pytest.mark.parametrize("criterion", ["gap", "stability", "held-out"])
def test_the_number_of_clusters(images, criterion):
    # the likelihood of a few images likes a fourth cluster for what its model does not know
    grid = {"n_clusters": [1, 2, 3] if criterion == "held-out" else [2, 3, 4]}
    repeats = 1 if criterion == "gap" else 2
    found = select(images, grid, criterion, estimator=small(), n_repeats=repeats)
    assert found.winner == {"n_clusters": 3}, str(found)
    means = [row["mean"] for row in found.rows]
    assert (means[-1] is None) == (criterion == "gap") and None not in means[:-1]


def test_held_out_images_tell_how_far_a_template_may_move(images):
    grid = {"displacement": [1e6, 10.0]}  # the former leaves the bars where they are
    found = select(images, grid, estimator=small(n_modes=0), n_repeats=2)
    assert found.criterion == "held-out" and found.winner == {"displacement": 10.0}, str(found)


def test_distortion_takes_the_freest_warp_and_stability_one_that_reaches(images):
    # a displacement penalty so large that nothing moves leaves the bars as they stand
    grid = {"displacement": [1e6, 10.0], "bending": [2e-3]}
    for criterion in ("distortion", "stability"):
        found = select(images, grid, criterion, estimator=small(prior="fixed"), n_repeats=2)
        assert found.winner == {"displacement": 10.0, "bending": 2e-3}, str(found)


def test_distortion_is_the_squared_error_of_eq_2(images):
    estimator = small(prior="fixed")
    found = select(images, [{"tol": 0.25}], "distortion", estimator=estimator, n_repeats=1)
    rng = np.random.default_rng((0, 0))
    order = np.sort(rng.permutation(60))
    seed = int(rng.integers(2**31 - 1, size=1)[0])
    km = estimator.set_params(random_state=seed).fit(images[order])
    a = km.align(images)
    error = a.distances.astype(float) - a.penalties  # smoothing is 0: the distance is of x itself
    assert found.rows[0]["mean"] == pytest.approx(error.mean(), rel=1e-3)


def test_the_objective_is_that_of_the_fit_for_one_image(images):
    grid = {"displacement": [1e6, 10.0]}
    found = select(images, grid, "objective", estimator=small(n_modes=0), n_repeats=1)
    assert found.winner == {"displacement": 10.0}, str(found)
    rng = np.random.default_rng((0, 0))
    rng.permutation(60)
    seed = int(rng.integers(2**31 - 1, size=1)[0])
    km = small(n_modes=0, displacement=10.0).set_params(random_state=seed).fit(images)
    assert found.rows[1]["mean"] == pytest.approx(km.inertia_ / 60, rel=1e-6)


def test_the_same_call_gives_the_same_and_another_seed_another(images):
    grid = {"displacement": [5.0, 20.0]}
    first, again, other = (
        select(images, grid, estimator=small(), n_repeats=1, random_state=s) for s in (0, 0, 1)
    )
    assert first == again and first.rows[0]["values"] != other.rows[0]["values"]


# ------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("grid", "criterion", "message"),
    [
        ({"n_clusters": [2, 3]}, "silhouette", "criterion='silhouette'"),
        ({}, "gap", "grid is empty"),
        ({"n_clusters": []}, "gap", "grid['n_clusters'] is empty"),
        ({"n_clusters": 3}, "gap", "must be a list of values, not 3"),
        ([{"n_clusters": 3}, {"n_clusters": 3}], "stability", "twice"),
        ({"bendnig": [1.0]}, "stability", "bendnig"),
        ({"random_state": [0, 1]}, "stability", "random_state is no setting"),
        ({"n_clusters": [2, 3]}, "distortion", "falls with every cluster"),
        ({"n_clusters": [2, 3]}, "objective", "'objective' can't choose n_clusters"),
        ({"prior": ["fixed", "learned"]}, "objective", "'objective' needs prior='learned'"),
        ({"n_modes": [0, 4]}, "objective", "'objective' can't choose n_modes"),
        ({"n_clusters": [1, 2, 3]}, "gap", "n_clusters of at least 2"),
        ({"n_clusters": [2, 3]}, "gap", "three or more values of n_clusters"),
        ({"bending": [0.1, 0.2, 0.3]}, "gap", "three or more values of n_clusters"),
        ({"prior": ["fixed", "learned"]}, "held-out", "needs prior='learned'"),
        ({"smoothing": [0.0, 0.1]}, "held-out", "can't choose smoothing"),
        ({"n_modes": [0, 4]}, "held-out", "can't choose n_modes"),
        ({"n_clusters": [3, 40]}, "stability", "60 images are too few"),
        ({"landmarks": [3, 99]}, "stability", "landmarks=99"),
        ({"bending": [-1.0]}, "stability", "bending=-1.0"),
    ],
)
def test_what_can_t_be_compared_is_refused(images, grid, criterion, message):
    assert_rejected_before_compilation(
        lambda: select(images, grid, criterion, estimator=small()), message
    )


def test_other_bad_input_is_refused(images):
    for bad in (np.full_like(images, np.nan), images[0]):
        assert_rejected_before_compilation(
            lambda bad=bad: select(bad, {"bending": [0.1]}, "stability", estimator=small()), ""
        )
    with pytest.raises(ValueError, match="n_repeats"):
        select(images, {"bending": [0.1]}, n_repeats=0)
    with pytest.raises(ValueError, match="prior='learned'"):
        select(images, {"displacement": [0.1]}, estimator=AffineKMeans(3))
    with pytest.raises(ValueError, match="K of at least 2"):
        utilities(np.ones((3, 1)))


def test_labels_can_t_come_in():
    import inspect

    assert not {"y", "labels", "y_true"} & set(inspect.signature(select).parameters)


def test_likelihoods_have_as_many_modes_whatever_the_number_of_clusters():
    models = [small(n_modes=8).set_params(n_clusters=k) for k in (2, 6)]
    selection._same_modes("held-out", models, np.zeros((400, 12, 12)))
    assert [m.n_modes for m in models] == [300 // 60] * 2


# ---------------------------------------------------------------- what one sees


@pytest.fixture
def chosen():
    settings = [{"n_clusters": k, "init": "<a>"} for k in (2, 3, 4)]
    values = np.array([[1.0, 1.2], [2.0, 2.2], [np.nan, np.nan]])
    return selection._ranked("gap", settings, values, [1.0, 1.5, 2.0])


def test_the_table_is_text_and_html(chosen):
    text = str(chosen).splitlines()
    assert len(text) == 4 and text[2].endswith("winner") and "2.1 ± 0.1414" in text[2]
    assert "—" in text[3] and "1 [1, 1]" in text[1]
    html = chosen._repr_html_()
    assert html.count("<tr>") == 4 and "&lt;a&gt;" in html and "<a>" not in html
    assert repr(chosen) == str(chosen)


def test_it_plots_itself(chosen):
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2)
    assert chosen.plot(left) is left
    assert left.get_xlabel() == "n_clusters" and left.get_ylabel() == "fall of the least utility"
    (winner,) = [line for line in left.lines if line.get_label() == "winner"]
    assert winner.get_xydata().tolist() == [[3, pytest.approx(2.1)]]
    rows = [{"bending": b, "landmarks": g} for b in (0.1, 0.2) for g in (3, 4)]
    other = selection._ranked("stability", rows, np.arange(8.0).reshape(4, 2), [1] * 4)
    words = [t.get_text() for t in other.plot(right).get_xticklabels()]
    assert words[1] == "bending 0.1, landmarks 4" and isinstance(other, Selection)
    plt.close(fig)
