"""How sure a score is: intervals over the test images, chance, and the verdict on published values.

Table 1 has one number for each method and set; this module says what stands behind it, from the
labels that every run has kept, and compares ours with the published one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stkm import metrics
from stkm.config import METHODS
from stkm.results import read_npz

__all__ = ["SCORES", "bracket", "line", "measure", "reproduction", "reproduction_markdown"]

SCORES = ("ACC", "NMI", "ARI")
ROUNDING = 0.5  # the published values are whole percents
MISMATCH = 2e-4  # results are kept to four decimals
WARPED = ("affine", "st_paper")  # methods that lack only what the default mode adds
DASH = "—"
OURS = "st"  # the default mode
VERDICTS = ("reproduced", "better", "lower")

Key = tuple[str, str]


def measure(
    folders: Sequence[str | os.PathLike[str]],
    records: Mapping[Key, Mapping[str, Any] | None],
    truths: Mapping[str, np.ndarray],
) -> dict[Key, dict[str, dict[str, Any]]]:
    """Return what stands behind each score, in percent.

    Parameters
    ----------
    folders : where ``<dataset>-<method>.npz`` lie, with ``test_labels`` (runs, N) and ``objective``
        (runs,); the first that has it counts
    records : answer of `stkm.tables.collect`
    truths : classes (N,) of the test images of each data set

    Returns
    -------
    dict
        For each pair with a result, for each score: ``interval`` (low, high) of the run of lowest
        objective and ``interval_of_best`` of the best run, 95 % over test images; ``chance`` and
        ``chance_best`` (of as many as there are runs), labels drawn at random for clusters of the
        same sizes; ``leader``: the method whose run of lowest objective is the set's highest,
        ``behind``: (value, low, high) of the paired difference to it, and ``tied``: whether that
        interval holds 0; ``st_minus``: the paired difference of the default mode to this method,
        None without a result of either.

    Raises
    ------
    ValueError
        If labels are of other images than the classes, or do not give the score that is kept.
    """
    found: dict[Key, dict[str, dict[str, Any]]] = {}
    chosen: dict[Key, np.ndarray] = {}
    for key, record in records.items():
        if record is None:
            continue
        kept = _kept(folders, key)
        truth, labels = np.asarray(truths[key[0]]), kept["test_labels"]
        if labels.shape[1] != len(truth):
            raise ValueError(
                f"{key[0]}-{key[1]}.npz has labels of {labels.shape[1]} test images, "
                f"but there are {len(truth)}; run the pipeline again"
            )
        chosen[key] = labels[int(kept["objective"].argmin())]
        found[key] = {s: _one(key, record, s, truth, labels, chosen[key]) for s in SCORES}
    for dataset in dict.fromkeys(name for name, _ in found):
        _compare({k: v for k, v in found.items() if k[0] == dataset}, chosen, truths[dataset])
    return found


def _kept(folders, key):
    places = [Path(folder) / f"{key[0]}-{key[1]}.npz" for folder in folders]
    return read_npz(next((place for place in places if place.is_file()), places[0]))


_SCORE_OF = {"ACC": metrics.clustering_accuracy, "NMI": metrics.nmi, "ARI": metrics.ari}


def _one(key, record, score, truth, labels, chosen):
    own = metrics.bootstrap_interval(truth, chosen, score)
    told = record[score]["of_lowest_objective"]
    if abs(own.value - told) > MISMATCH:
        raise ValueError(
            f"{key[0]}-{key[1]}.npz gives {score} {own.value:.4f}, its JSON says {told:.4f}: "
            "they are of different runs; run the pipeline again"
        )
    values = [_SCORE_OF[score](truth, run) for run in labels]
    best = metrics.bootstrap_interval(truth, labels[int(np.argmax(values))], score)
    mean, top = metrics.chance(truth, chosen, score, n_best=len(labels))
    return {
        "value": 100 * own.value,
        "interval": [100 * own.low, 100 * own.high],
        "interval_of_best": [100 * best.low, 100 * best.high],
        "chance": 100 * mean,
        "chance_best": 100 * top,
    }


def _compare(rows, chosen, truth):
    """Add the paired difference to the set's highest to each row."""
    for score in SCORES:
        leader = max(rows, key=lambda key: rows[key][score]["value"])
        for key, row in rows.items():
            pair = (chosen[leader], chosen[key])
            gap = metrics.paired_interval(truth, *pair, score) if key != leader else (0.0,) * 3
            row[score]["leader"] = leader[1]
            row[score]["behind"] = [100 * v for v in gap]
            row[score]["tied"] = gap[1] <= 0 <= gap[2]
            default = (key[0], OURS)
            row[score]["st_minus"] = None
            if default in rows and key != default:
                ahead = metrics.paired_interval(truth, chosen[default], chosen[key], score)
                row[score]["st_minus"] = [100 * v for v in ahead]


# -------------------------------------------------------------------- verdict


def reproduction(table: Mapping[str, Any], published: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare every published number with ours: one dict each.

    ``verdict``: 'reproduced' where the published value, a whole percent, is inside the interval of
    our best run over the test images (the published one is the best run, too), 'better' or 'lower'
    where ours is above or below that, None without a result. A result on other images is compared
    as well, and named (``on``): it is no reproduction and is counted by itself. ``reasons``: for
    'lower', what the other numbers of the table say about it.

    Parameters
    ----------
    table : answer of `stkm.tables.build` with evidence
    published : as for it
    """
    ours = {(r["dataset"], r["method"], r["score"]): r for r in table["rows"]}
    here = {name for name, _, _ in ours}
    rows = []
    for name, methods in published["sets"].items():
        stand_ins = [d for d, c in published["context"].items() if c["set"] == name and d in here]
        for method, scores in methods.items():
            for score, value in scores.items():
                places = [(d, method, score) for d in (name, *stand_ins)]
                found = next((ours[p] for p in places if p in ours and ours[p]["n_runs"]), None)
                rows.append(_verdict(name, method, score, value, found, ours))
    return rows


def _verdict(name, method, score, value, found, ours):
    row = {"set": name, "method": method, "score": score, "published": value}
    row |= dict.fromkeys(("on", "n_runs", "best", "interval_of_best", "mean", "sd"))
    row |= {"of_lowest_objective": None, "interval": None, "verdict": None, "reasons": []}
    if found is None:
        return row
    row["on"] = found["dataset"]
    for key in ("n_runs", "best", "mean", "sd", "of_lowest_objective"):
        row[key] = found[key]
    row["interval"], row["interval_of_best"] = (
        found.get(key) for key in ("interval", "interval_of_best")
    )
    low, high = row["interval_of_best"] or (found["best"],) * 2
    if value < low - ROUNDING:
        row["verdict"] = "better"
    elif value > high + ROUNDING:
        row["verdict"], row["reasons"] = "lower", _reasons(row, ours)
    else:
        row["verdict"] = "reproduced"
    return row


def _reasons(row, ours):
    """What the table's other numbers say about a value that is lower than the published one."""
    dataset, score, value = row["on"], row["score"], row["published"]
    reasons = []
    if dataset != row["set"]:
        reasons.append(f"other images, of {dataset}")
    accuracy = ours.get((dataset, row["method"], "ACC"), {})
    ceiling = accuracy.get("ceiling")
    if score == "ACC" and ceiling is not None and value > ceiling:
        reasons.append(f"one template a class, fitted with labels, reaches {ceiling:.1f} here")
    own = ours.get((dataset, "st", score))
    if row["method"] in WARPED and own and own["mean"] is not None and own["mean"] >= value:
        reasons.append(
            f"the default mode has a mean of {own['mean']:.1f} on the same images: centroids with "
            "warps can reach it, this solver and search do not"
        )
    if row["sd"] and value <= row["best"] + row["sd"]:
        reasons.append(f"within one sd ({row['sd']:.1f}) of our best run: other starts")
    chance = accuracy.get("chance_best")
    if score == "ACC" and chance is not None and value <= chance:
        reasons.append(f"published at chance: the best of as many random ones has {chance:.1f}")
    return reasons or ["not known: nothing that was measured here says why"]


def reproduction_markdown(rows: Sequence[Mapping[str, Any]], table: Mapping[str, Any]) -> str:
    """The verdicts as Markdown: how many of each, a table, and what there is no result for."""
    verdicts = [_told(row) for row in rows]
    counts = [f"{kind}: {verdicts.count(kind)}" for kind in VERDICTS]
    others = len([row for row in rows if _elsewhere(row)])
    counts += [f"on other images only: {others}"] if others else []
    counts.append(f"no result here: {verdicts.count('no result here')}")
    head = ("Data set", "Method", "Score", "Published", "Best", "Mean ± sd", "Lowest objective",
            "Verdict", "Reason")  # fmt: skip
    parts = [f"Of {len(rows)} published numbers: {', '.join(counts)}."]
    there = [row for row in rows if row["verdict"]]
    if there:
        parts.append(_rows(head, there))
    if len(there) < len(rows):
        missing = [row for row in rows if not row["verdict"]]
        folded = _rows(head[:4], missing)
        told = f"{len(missing)} published numbers without a result here"
        parts.append(f"<details>\n<summary>{told}</summary>\n\n{folded}\n\n</details>")
    notes = [
        "Percent. Published and *best*: the best run as chosen by the test labels. In brackets: "
        "95 % bootstrap interval over the test images.",
        "Reproduced: the published value, a whole percent, is inside the interval of our best run; "
        "better or lower: it is below or above it.",
        "A set in brackets is the one that ours was computed on where it is not the published one: "
        "then the verdict compares numbers of different images, and does not count.",
    ]
    if table["profile"] == "smoke":
        notes.insert(0, "Profile smoke: a check that everything runs, on a few images; no result.")
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)]) + "\n"


def _elsewhere(row):
    return row["on"] not in (None, row["set"])


def _told(row):
    """The verdict in words."""
    if row["verdict"] is None:
        return "no result here"
    return f"other images: {row['verdict']}" if _elsewhere(row) else row["verdict"]


def _rows(head, rows):
    """A table in Markdown, ACC first."""
    align = ["---"] * 3 + ["---:"] * 4 + ["---"] * 2
    lines = [line(head), line(align[: len(head)])]
    lines += [line(_cells(row)[: len(head)]) for s in SCORES for row in rows if row["score"] == s]
    return "\n".join(lines)


def line(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def _cells(row):
    name = f"{row['set']} ({row['on']})" if _elsewhere(row) else row["set"]
    start = [name, METHODS[row["method"]].title, row["score"], f"{row['published']:g}"]
    if row["verdict"] is None:
        return [*start, DASH, DASH, DASH, _told(row), ""]
    spread = "" if row["sd"] is None else f" ± {row['sd']:.1f}"
    return [
        *start,
        f"{row['best']:.1f}{bracket(row['interval_of_best'])}",
        f"{row['mean']:.1f}{spread}",
        f"{row['of_lowest_objective']:.1f}{bracket(row['interval'])}",
        _told(row),
        "; ".join(row["reasons"]),
    ]


def bracket(interval: Sequence[float] | None) -> str:
    """An interval behind its value, or nothing where there is none."""
    return "" if interval is None else " [{:.1f}, {:.1f}]".format(*interval)
