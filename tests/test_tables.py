"""Table 1 says what the results say: nothing missing is replaced, nothing foreign slips in."""

import json
import re

import pytest

from stkm import config, paths, results, tables

PUBLISHED = {
    "source": "A Paper",
    "kind": "best of ten",
    "sets": {"own": {"kmeans": {"ACC": 53, "NMI": 0}}},
    "context": {"part": {"set": "own", "words": "full set"}},
}


def record(dataset, method, acc, n=40, sd=0.012):
    scores = {"mean": acc, "sd": sd, "of_lowest_objective": acc + 0.01, "best": acc + 0.02}
    return {
        **dict.fromkeys(tables.SCORES, scores),
        "dataset": dataset,
        "method": method,
        "n_clusters": 10,
        "n_runs": 3,
        "chance": 0.143,
        "ceiling": 0.978 if method == "st" else None,
        "runs": [{"n_used": used} for used in ((10, 9, 10) if method == "kmeans" else (10,) * 3)],
        "images": [
            {"split": "train", "n": n, "source": f"{n} training images"},
            {"split": "test", "n": 20, "source": "20 test images"},
        ],
    }


@pytest.fixture
def folder(tmp_path):
    for dataset, method, acc in [("own", "kmeans", 0.5), ("own", "st", 0.987),
                                 ("part", "kmeans", 0.4)]:  # fmt: skip
        results.write_json(tmp_path / f"{dataset}-{method}.json", record(dataset, method, acc))
    return tmp_path


@pytest.fixture
def table(folder):
    records = tables.collect([folder], ["own", "part"], ["kmeans", "st"])
    return tables.build(records, PUBLISHED, "default", shapes={"own": (28, 30), "part": (9, 8, 3)})


def row(table, dataset, method, score="ACC"):
    (found,) = [r for r in table["rows"]
                if (r["dataset"], r["method"], r["score"]) == (dataset, method, score)]  # fmt: skip
    return found


def lines(text, *parts):
    return [line for line in text.splitlines() if all(part in line for part in parts)]


def test_every_pair_and_score_has_one_row_in_the_order_given(table):
    assert [(r["score"], r["dataset"], r["method"]) for r in table["rows"]] == [
        (score, dataset, method)
        for score in ("ACC", "NMI", "ARI")
        for dataset in ("own", "part")
        for method in ("kmeans", "st")
    ]


def test_scores_are_percent_in_the_order_mean_lowest_objective_best(table):
    found = row(table, "own", "st")
    assert found["n_runs"] == 3 and found["mean"] == pytest.approx(98.7)
    cells = lines(tables.markdown(table), "own", "default mode")[0].split("|")
    assert [c.strip() for c in cells[3:8]] == ["3", "98.7 ± 1.2", "99.7", "100.7", "—"]
    header = tables.markdown(table).splitlines()[2]
    assert re.search(r"Mean ± sd.*Lowest objective.*Best.*Published", header)


def test_a_missing_result_is_a_dash_and_a_note(table):
    found = row(table, "part", "st")
    assert (found["mean"], found["sd"], found["best"], found["n_runs"]) == (None,) * 4
    text = tables.markdown(table)
    (line, *_) = lines(text, "| part |", "default mode")
    assert [c.strip() for c in line.split("|")[3:8]] == ["—"] * 5
    assert lines(text, "- part, ST K-means (default mode): —, there is no result.")


def test_a_published_value_stands_only_beside_its_own_set(table):
    assert row(table, "own", "kmeans")["published"] == {"value": 53, "of": None}
    assert row(table, "own", "kmeans", "NMI")["published"]["value"] == 0  # zero is a value
    assert row(table, "own", "st")["published"] is None
    assert row(table, "own", "kmeans", "ARI")["published"] is None
    assert row(table, "part", "kmeans")["published"] == {"value": 53, "of": "full set"}
    text = tables.markdown(table)
    assert lines(text, "| own |", "K-means", "| 53 |")
    assert lines(text, "| part |", "K-means", "(full set: 53)")
    assert not lines(text, "| part |", "| 53 |")
    assert lines(text, "No value is published for part")


def test_the_notes_say_which_images(table):
    text = tables.markdown(table)
    assert lines(text, "- own: fitted on 40 training images, scored on 20 test images; K = 10.")
    assert not lines(text, "Profile smoke") and lines(text, "best of ten. A Paper.")
    assert table["sets"]["own"]["train"] == {"n": 40, "source": "40 training images"}


def test_a_check_run_is_marked(folder):
    records = tables.collect([folder], ["own"], ["kmeans"])
    assert lines(tables.markdown(tables.build(records, PUBLISHED, "smoke")), "Profile smoke")


def test_one_run_has_no_spread(folder):
    results.write_json(folder / "own-st.json", record("own", "st", 0.9, sd=None))
    text = tables.markdown(tables.build(tables.collect([folder], ["own"], ["st"]), PUBLISHED, "x"))
    assert lines(text, "| 90.0 |") and not lines(text, "| 90.0 ±")


def test_methods_of_one_set_must_be_about_the_same_images(folder):
    results.write_json(folder / "own-st.json", record("own", "st", 0.9, n=41))
    records = tables.collect([folder], ["own"], ["kmeans", "st"])
    with pytest.raises(ValueError, match=r"own-st\.json is about other images"):
        tables.build(records, PUBLISHED, "default")


def test_a_result_under_another_name_is_refused(folder):
    (folder / "own-st.json").write_bytes((folder / "own-kmeans.json").read_bytes())
    with pytest.raises(ValueError, match=r"own-st\.json holds the result of kmeans on own"):
        tables.collect([folder], ["own"], ["st"])


def test_a_damaged_result_is_named(folder):
    (folder / "own-st.json").write_text("{")
    with pytest.raises(ValueError, match=r"own-st\.json is not a JSON file"):
        tables.collect([folder], ["own"], ["st"])


def test_chance_and_ceiling_of_the_set_stand_beside_every_accuracy(table):
    for method in ("kmeans", "st"):
        found = row(table, "own", method)
        assert (found["chance"], found["ceiling"]) == pytest.approx((14.3, 97.8))
    assert "ceiling" not in row(table, "own", "st", "NMI")
    part = row(table, "part", "kmeans")
    assert part["chance"] == pytest.approx(14.3) and part["ceiling"] is None
    text = tables.markdown(table)
    cells = [c.strip() for c in lines(text, "| part |", "K-means")[0].split("|")]
    assert cells[-5:-3] == ["14.3", "—"]
    assert lines(text, "| Chance | Ceiling |") and len(lines(text, "Chance |")) == 1


def test_clusters_in_use_and_image_size_stand_beside_every_accuracy(table):
    """Case O6: a run with an empty cluster is not shown as any other."""
    text = tables.markdown(table)
    assert (row(table, "own", "kmeans")["n_used"], row(table, "own", "st")["n_used"]) == (9, 10)
    assert lines(text, "| own |", "K-means", "| 9/10 ‡ | 28×30 |")
    assert lines(text, "| own |", "default mode", "| 10/10 | 28×30 |")
    assert lines(text, "| part |", "K-means", "| 9×8 colour |")
    assert lines(text, "| part |", "default mode", "| — | 9×8 colour |")
    assert lines(text, "- Used: ", "‡: not all are in use")
    assert "n_used" not in row(table, "own", "st", "NMI")


def test_latex_has_the_same_cells_escaped(table):
    text = tables.latex(table)
    numbers = r"98.7 $\pm$ 1.2 & 99.7 & 100.7 & --- & 14.3 & 97.8 & 10/10 & 28$\times$30 \\"
    assert rf"own & ST K-means (default mode) & 3 & {numbers}" in text
    assert text.count(r"\\") == 1 + 3 + 12  # header, three scores, rows
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "&" in line]
    assert all(line.replace(r"\&", "").count("&") == 10 for line in body)
    assert tables._tex("a_b & 5 % {x}\\") == r"a\_b \& 5 \% \{x\}\textbackslash{}"


def test_the_table_survives_json(table, tmp_path):
    results.write_json(tmp_path / "t.json", table)
    assert tables.markdown(results.read_json(tmp_path / "t.json")) == tables.markdown(table)


def test_text_goes_between_its_markers_and_nowhere_else(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- t -->\nold\n<!-- /t -->\nb <!-- u -->\n", encoding="utf-8")
    assert tables.replace_between(page, "t", "new ± \\1\n\nline\n")
    assert page.read_text(encoding="utf-8") == (
        "a\n<!-- t -->\nnew ± \\1\n\nline\n<!-- /t -->\nb <!-- u -->\n"
    )
    assert not tables.replace_between(page, "t", "new ± \\1\n\nline\n")  # nothing to do


@pytest.mark.parametrize(
    "text", ["none", "<!-- t -->", "<!-- /t --><!-- t -->", "<!-- t --><!-- t --><!-- /t -->"]
)
def test_missing_markers_are_an_error_and_change_nothing(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"page\.md needs the lines <!-- t --> and <!-- /t -->"):
        tables.replace_between(page, "t", "x")
    assert page.read_text() == text


def test_the_published_values_are_complete_and_plausible():
    published = json.loads((paths.NOTEBOOKS / "published.json").read_text(encoding="utf-8"))
    assert "2202.07829" in published["source"]
    values = [v for by_method in published["sets"].values()
              for by_score in by_method.values() for v in by_score.values()]  # fmt: skip
    assert values and all(0 <= v <= 100 for v in values)
    for methods in published["sets"].values():
        assert set(methods) == {*config.METHODS} - {"st"}  # the default mode is ours
        assert methods["kmeans"]["ACC"] < methods["affine"]["ACC"] <= methods["st_paper"]["ACC"]
    assert published["context"]["mnist5k"]["set"] in published["sets"]
