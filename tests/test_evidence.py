"""What stands behind a score, and the verdict on published values."""

import numpy as np
import pytest
from test_tables import PUBLISHED, lines, record, row

from stkm import evidence, metrics, results, tables

TRUTH = np.arange(60) % 3


def labels(share, seed):
    """Labels of which ``share`` are right, the others drawn."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(60) < share, TRUTH, rng.integers(3, size=60)).astype(np.int32)


def keep(folder, dataset, method, runs, objective):
    scores = {
        name: results.summarise([function(TRUTH, run) for run in runs], objective)
        for name, function in evidence._SCORE_OF.items()
    }
    about = record(dataset, method, 0.5) | scores | {"n_runs": len(runs)}
    about["images"][1]["n"] = 60
    results.write_json(folder / f"{dataset}-{method}.json", about)
    results.write_npz(
        folder / f"{dataset}-{method}.npz",
        test_labels=np.stack(runs),
        objective=np.array(objective, float),
    )


@pytest.fixture
def measured(tmp_path):
    keep(tmp_path, "own", "kmeans", [np.zeros(60, np.int32), labels(0.3, 0)], [1, 2])
    keep(tmp_path, "own", "st", [labels(0.9, 1), labels(0.95, 2)], [2, 1])
    records = tables.collect([tmp_path], ["own", "part"], ["kmeans", "st"])
    found = evidence.measure([tmp_path], records, {"own": TRUTH})
    return tmp_path, records, found


def test_intervals_are_those_of_the_run_of_lowest_objective(measured):
    _, records, found = measured
    assert set(found) == {("own", "kmeans"), ("own", "st")}
    own = found["own", "st"]["ARI"]
    expected = metrics.bootstrap_interval(TRUTH, labels(0.95, 2), "ARI")
    assert own["interval"] == pytest.approx([100 * expected.low, 100 * expected.high])
    assert own["value"] == pytest.approx(100 * records["own", "st"]["ARI"]["of_lowest_objective"],
                                         abs=0.01)  # fmt: skip
    mean, best = metrics.chance(TRUTH, labels(0.95, 2), "ARI", n_best=2)
    assert (own["chance"], own["chance_best"]) == pytest.approx((100 * mean, 100 * best))


def test_methods_of_a_set_are_compared_in_pairs_with_its_highest(measured):
    found = measured[2]
    first, other = found["own", "st"]["ACC"], found["own", "kmeans"]["ACC"]
    assert first["leader"] == other["leader"] == "st"
    assert first["behind"] == [0, 0, 0] and first["tied"]
    assert other["behind"][1] > 0 and not other["tied"]


def test_the_default_mode_is_compared_with_every_other_method(measured):
    _, records, found = measured
    gap = metrics.paired_interval(TRUTH, labels(0.95, 2), np.zeros(60, np.int32), "ACC")
    own = found["own", "kmeans"]["ACC"]["st_minus"]
    assert own == pytest.approx([100 * v for v in gap]) and own[1] > 0
    assert found["own", "st"]["ACC"]["st_minus"] is None
    text = tables.markdown(tables.build(records, PUBLISHED, "default", found))
    value, low, high = own
    assert lines(text, "| own | K-means |", f"| {value:+.1f} [{low:+.1f}, {high:+.1f}] |")
    without = {key: value for key, value in records.items() if key[1] != "st"}
    assert (
        evidence.measure([measured[0]], without, {"own": TRUTH})["own", "kmeans"]["ACC"]["st_minus"]
        is None
    )


def test_labels_that_do_not_belong_to_the_result_are_refused(measured):
    folder, records, _ = measured
    with pytest.raises(ValueError, match="labels of 60 test images, but there are 59"):
        evidence.measure([folder], records, {"own": TRUTH[:-1]})
    with pytest.raises(ValueError, match="they are of different runs"):
        evidence.measure([folder], records, {"own": TRUTH[::-1] * np.arange(60) % 3})


def test_the_table_shows_intervals_ties_and_what_is_below_chance(measured):
    _, records, found = measured
    table = tables.build(records, PUBLISHED, "default", found)
    text = tables.markdown(table)
    cells = [c.strip() for c in lines(text, "| own |", "K-means")[0].split("|")]
    low, high = found["own", "kmeans"]["ACC"]["interval"]
    assert cells[5] == f"33.3 [{low:.1f}, {high:.1f}]"
    chance = found["own", "kmeans"]["ACC"]
    assert cells[8] == f"{chance['chance']:.1f}; {chance['chance_best']:.1f}"
    assert lines(text, "95 % bootstrap interval", tables.TIED, tables.BELOW)
    below = row(table, "own", "kmeans")
    below |= {"of_lowest_objective": below["chance"] - 1, "tied": True}
    cells = [c.strip() for c in lines(tables.markdown(table), "| own |", "K-means")[0].split("|")]
    assert cells[5].endswith("≈ †")
    assert r"$\approx$ \dag{}" in tables.latex(table)
    assert row(table, "part", "st").get("interval") is None


def test_verdicts(measured):
    _, records, found = measured
    table = tables.build(records, PUBLISHED, "default", found)
    ours = row(table, "own", "kmeans")
    low, high = ours["interval_of_best"]
    sets = {"own": {"kmeans": {"ACC": low - 1}, "st": {"ACC": 101}}, "gone": {"ae": {"NMI": 3}}}
    verdicts = evidence.reproduction(table, PUBLISHED | {"sets": sets})
    assert [v["verdict"] for v in verdicts] == ["better", "lower", None]
    assert (
        verdicts[1]["reasons"][0] == "one template a class, fitted with labels, reaches 97.8 here"
    )
    sets["own"]["kmeans"]["ACC"] = high + 0.4  # whole percents
    (same, *_) = evidence.reproduction(table, PUBLISHED | {"sets": sets})
    assert same["verdict"] == "reproduced" and same["reasons"] == []
    sets["own"]["kmeans"]["ACC"] = high + 20
    (lower, *_) = evidence.reproduction(table, PUBLISHED | {"sets": sets})
    assert lower["verdict"] == "lower" and lower["reasons"] == [
        "not known: nothing that was measured here says why"
    ]


def test_a_value_of_other_images_is_compared_under_both_names(measured):
    folder, *_ = measured
    keep(folder, "part", "kmeans", [labels(0.2, 5)], [1])
    records = tables.collect([folder], ["part"], ["kmeans"])
    found = evidence.measure([folder], records, {"part": TRUTH})
    table = tables.build(records, PUBLISHED, "smoke", found)
    full = {"full": {"kmeans": {"ACC": 99}}}
    published = PUBLISHED | {"sets": full, "context": {"part": {"set": "full", "words": "all"}}}
    verdicts = evidence.reproduction(table, published)
    assert (
        verdicts[0]["verdict"] == "lower" and verdicts[0]["reasons"][0] == "other images, of part"
    )
    text = evidence.reproduction_markdown(verdicts, table)
    assert lines(text, "| full (part) |", "| other images: lower |") and lines(
        text, "- Profile smoke"
    )
    assert "<details>" not in text
    gone = evidence.reproduction_markdown(
        evidence.reproduction(table, published | {"sets": full | {"gone": {"ae": {"NMI": 3}}}}),
        table,
    )
    assert (
        lines(gone, "| gone | AE + K-means | NMI | 3 |") and "1 published numbers without" in gone
    )
    assert text.startswith(
        "Of 1 published numbers: reproduced: 0, better: 0, lower: 0, on other images only: 1, "
        "no result here: 0."
    )
