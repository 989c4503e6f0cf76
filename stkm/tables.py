"""Table 1: scores of every method on every data set, beside the published values.

The paper prints the best of ten runs as chosen by the test labels.  Each row here
has the mean and standard deviation over the runs first, then the run of lowest
objective, which needs no labels, then the best run.  A result that is not there
is an em dash with a note, never another number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stkm.config import METHODS
from stkm.evidence import DASH, OURS, SCORES, bracket, line
from stkm.results import read_json, write_text

__all__ = ["SCORES", "build", "collect", "latex", "markdown", "replace_between"]

TIED, BELOW, COLLAPSED = "≈", "†", "‡"
BEST = "Best (by test labels)"
HEADER = ("Data set", "Method", "Runs", "Mean ± sd", "Lowest objective", BEST, "Published")
BOUNDS = ("Chance", "Ceiling")
OF_THE_FIT = ("Used", "Pixels")
OPEN = HEADER + BOUNDS + OF_THE_FIT  # columns of the ACC, the others lack what is the same for all

Record = Mapping[str, Any]


def collect(
    folders: Sequence[str | os.PathLike[str]], datasets: Iterable[str], methods: Sequence[str]
) -> dict[tuple[str, str], Record | None]:
    """Read ``<folder>/<dataset>-<method>.json`` for every pair; ``None`` where there is none.

    The first of `folders` that has it counts.

    Raises
    ------
    ValueError
        If a file is damaged, or is the result of another pair than its name says.
    """
    records: dict[tuple[str, str], Record | None] = {}
    for dataset in datasets:
        for method in methods:
            places = [Path(folder) / f"{dataset}-{method}.json" for folder in folders]
            path = next((place for place in places if place.is_file()), None)
            record = read_json(path) if path else None
            if record and (record["dataset"], record["method"]) != (dataset, method):
                raise ValueError(
                    f"{path} holds the result of {record['method']} on {record['dataset']}; "
                    "delete it and run again"
                )
            records[dataset, method] = record
    return records


def _published(published: Mapping[str, Any], dataset: str, method: str, score: str) -> dict | None:
    """Return value, and whose it is: the row's own set (``of`` None) or one shown as context."""
    own = published["sets"].get(dataset, {}).get(method, {}).get(score)
    if own is not None:
        return {"value": own, "of": None}
    context = published["context"].get(dataset)
    value = context and published["sets"][context["set"]].get(method, {}).get(score)
    return None if value is None else {"value": value, "of": context["words"]}


def build(
    records: Mapping[tuple[str, str], Record | None],
    published: Mapping[str, Any],
    profile: str,
    evidence: Mapping[tuple[str, str], Mapping[str, Mapping[str, Any]]] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Any]:
    """Return the table as JSON-ready values, scores in percent.

    Parameters
    ----------
    records : dict
        Answer of :func:`collect`; its order is the table's.
    published : dict
        ``sets`` (data set, method, score to a value in percent), ``context`` (data
        set to ``set`` and ``words``: another set whose value may be shown for
        comparison, marked by the words), ``source`` and ``kind``.
    profile : str
        Name of the profile, for the note on a check run.
    evidence : dict, optional
        Answer of :func:`stkm.evidence.measure`: adds intervals, marks and chance.
    shapes : dict, optional
        (H, W[, C]) of the images of each data set, pixels.

    Returns
    -------
    dict
        ``rows`` (dataset, method, score, n_runs, mean, sd, of_lowest_objective,
        best, published, and for ACC chance and ceiling, those of the set, ``n_used``, the
        least number of clusters with an image over the runs, of ``n_clusters``, and
        ``shape``; with evidence what :func:`stkm.evidence.measure` has of it), ``sets``
        (what was fitted and scored), ``notes``, ``profile``.

    Raises
    ------
    ValueError
        If the methods of one set were not run on the same images.
    """
    rows = []
    for score in SCORES:
        for (dataset, method), record in records.items():
            row: dict[str, Any] = {
                "dataset": dataset,
                "method": method,
                "score": score,
                "n_runs": None,
            }
            row |= dict.fromkeys(("mean", "sd", "of_lowest_objective", "best"))
            if record is not None:
                summary = record[score]
                row["n_runs"] = record["n_runs"]
                for key in ("mean", "sd", "of_lowest_objective", "best"):
                    row[key] = None if summary[key] is None else 100 * summary[key]
            row["published"] = _published(published, dataset, method, score)
            if score == SCORES[0]:
                row |= _bounds(records, dataset) | _of_the_fit(record)
                row["shape"] = list((shapes or {}).get(dataset, ())) or None
            known = (evidence or {}).get((dataset, method), {}).get(score, {})
            row |= {key: value for key, value in known.items() if key != "value"}
            rows.append(row)
    sets = _sets(records)
    return {
        "profile": profile,
        "rows": rows,
        "sets": sets,
        "notes": _notes(records, sets, published, profile, bool(evidence)),
    }


def _bounds(records: Mapping[tuple[str, str], Record | None], dataset: str) -> dict[str, Any]:
    """Return chance and ceiling of a set in percent, from whichever method's result has them."""
    found: dict[str, Any] = dict.fromkeys(map(str.lower, BOUNDS))
    for (name, _), record in records.items():
        for key in found:
            if name == dataset and record is not None and record[key] is not None:
                found[key] = 100 * record[key]
    return found


def _of_the_fit(record: Record | None) -> dict[str, Any]:
    """Return the clusters asked for and, over the runs, the fewest that were in use."""
    runs = (record or {}).get("runs") or ()
    counts = [run["n_used"] for run in runs]
    asked = record["n_clusters"] if record else None
    return {"n_used": min(counts, default=None), "n_clusters": asked}


def _sets(records: Mapping[tuple[str, str], Record | None]) -> dict[str, dict[str, Any]]:
    """Return, for each data set with a result, the images that its rows are about."""
    sets: dict[str, dict[str, Any]] = {}
    for (dataset, method), record in records.items():
        if record is None:
            continue
        about = {"n_clusters": record["n_clusters"]}
        about |= {part["split"]: {k: part[k] for k in ("n", "source")} for part in record["images"]}
        if sets.setdefault(dataset, about) != about:
            raise ValueError(
                f"{dataset}-{method}.json is about other images than the other methods of "
                f"{dataset} ({about} against {sets[dataset]}); run the pipeline again"
            )
    return sets


def _notes(
    records: Mapping, sets: Mapping, published: Mapping, profile: str, evidence: bool
) -> list[str]:
    """Return the sentences below the table."""
    notes = []
    if profile == "smoke":
        notes.append("Profile smoke: a check that everything runs, on a few images; no result.")
    for name, about in sets.items():
        notes.append(
            f"{name}: fitted on {about['train']['source']}, scored on {about['test']['source']}; "
            f"K = {about['n_clusters']}."
        )
    for dataset, method in (pair for pair, record in records.items() if record is None):
        notes.append(f"{dataset}, {METHODS[method].title}: {DASH}, there is no result.")
    for name in dict.fromkeys(dataset for dataset, _ in records):
        context = published["context"].get(name)
        if context:
            notes.append(
                f"No value is published for {name}; in brackets the one for {context['words']}, "
                "which has other images, for orientation."
            )
    notes.append(
        "Percent. Mean and standard deviation over the runs; the run of lowest objective, chosen "
        "without labels; the best run, chosen by the test labels as in the published tables."
    )
    notes.append(
        "Used: clusters with a training image, in the run that has the fewest, of those asked for; "
        f"{COLLAPSED}: not all are in use. Pixels: size of the images, height by width."
    )
    chance = "Chance: ACC of random labels, clusters matched with classes as always"
    if evidence:
        notes.append(
            f"In brackets: 95 % bootstrap interval over the test images. {TIED}: not "
            "distinguishable from the set's highest run of lowest objective, by the paired "
            f"interval of their difference. {BELOW}: below chance."
        )
        chance += ", for clusters of the same sizes: mean; best of as many as there are runs"
    notes.append(
        f"{chance}. Ceiling: nearest of one template a class, fitted with the training labels by "
        "the default mode's model; for orientation, no method sees labels."
    )
    notes.append(f"Published: {published['kind']}. {published['source']}.")
    return notes


# ------------------------------------------------------------------ rendering


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.1f}"


def _cells(row: Mapping[str, Any]) -> list[str]:
    """Return one row as text."""
    spread = "" if row["sd"] is None else f" ± {row['sd']:.1f}"
    given = row["published"]
    value = DASH if given is None else f"{given['value']:g}"
    if given and given["of"]:
        value = f"({given['of']}: {value})"
    return [
        row["dataset"],
        METHODS[row["method"]].title,
        DASH if row["n_runs"] is None else str(row["n_runs"]),
        _number(row["mean"]) + spread + _below(row, "mean", "chance"),
        _number(row["of_lowest_objective"]) + _known(row),
        _number(row["best"])
        + bracket(row.get("interval_of_best"))
        + _below(row, "best", "chance_best"),
        value,
        *_bound_cells(row),
        *_fit_cells(row),
    ]


def _fit_cells(row: Mapping[str, Any]) -> list[str]:
    """Return clusters in use and image size, which stand beside the ACC."""
    if "n_used" not in row:
        return []
    used, asked = row["n_used"], row["n_clusters"]
    mark = f" {COLLAPSED}" if used is not None and used < asked else ""
    size = row["shape"]
    return [
        DASH if used is None else f"{used}/{asked}{mark}",
        DASH if size is None else "×".join(map(str, size[:2])) + (" colour" if size[2:] else ""),
    ]


def _below(row: Mapping[str, Any], key: str, chance: str) -> str:
    """Return the mark of a number below that of random labels, as far as decimals show it."""
    known = row.get("chance_best") is not None and row[key] is not None
    return f" {BELOW}" if known and row[key] < row[chance] - 0.05 else ""


def _known(row: Mapping[str, Any]) -> str:
    """Return the interval of the run of lowest objective and its marks."""
    if row.get("interval") is None:
        return ""
    own = row["method"] == row["leader"]
    tied = f" {TIED}" if row["tied"] and not own else ""
    below = _below(row, "of_lowest_objective", "chance")
    return f"{bracket(row['interval'])}{tied}{below}"


def _bound_cells(row: Mapping[str, Any]) -> list[str]:
    """Return chance and ceiling, which the ACC alone has."""
    if "ceiling" not in row:
        return []
    best = row.get("chance_best")
    top = "" if best is None else f"; {best:.1f}"
    return [_number(row["chance"]) + top, _number(row["ceiling"])]


def markdown(table: Mapping[str, Any]) -> str:
    """Return the table in Markdown: ACC open, NMI and ARI folded, then the notes."""
    parts = []
    for score in SCORES:
        rows = [_cells(row) for row in table["rows"] if row["score"] == score]
        head = OPEN if score == SCORES[0] else HEADER
        align = line(["---", "---", *["---:"] * (len(head) - 2)])
        body = "\n".join([line(head), align, *map(line, rows)])
        folded = f"<details>\n<summary>{score}</summary>\n\n{body}\n\n</details>"
        parts.append(f"**{score}**\n\n{body}" if score == SCORES[0] else folded)
    parts += _differences(table["rows"])
    parts.append("\n".join(f"- {note}" for note in table["notes"]))
    return "\n\n".join(parts) + "\n"


def _differences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the default mode is ahead of every other method, folded; nothing without it."""
    ahead: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row.get("st_minus"):
            value, low, high = row["st_minus"]
            told = f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"
            ahead.setdefault((row["dataset"], row["method"]), {})[row["score"]] = told
    if not ahead:
        return []
    head = ("Data set", "Method", *SCORES)
    body = [line(head), line(["---", "---", *["---:"] * len(SCORES)])]
    for (dataset, method), leads in ahead.items():
        body.append(line([dataset, METHODS[method].title, *(leads[score] for score in SCORES)]))
    summary = (
        f"{METHODS[OURS].title} minus the other methods: runs of lowest objective, with the paired "
        "95 % bootstrap interval over the test images"
    )
    table = "\n".join(body)
    return [f"<details>\n<summary>{summary}</summary>\n\n{table}\n\n</details>"]


_TEX = {"\\": r"\textbackslash{}", "_": r"\_", "&": r"\&", "%": r"\%", "#": r"\#", "$": r"\$",
        "{": r"\{", "}": r"\}", "±": r"$\pm$", DASH: "---",
        TIED: r"$\approx$", BELOW: r"\dag{}", COLLAPSED: r"\ddag{}", "×": r"$\times$"}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


def latex(table: Mapping[str, Any]) -> str:
    r"""Return the table as a LaTeX ``tabular`` (needs the package booktabs), notes as comments."""
    lines = [f"% {note}" for note in table["notes"]]
    head = OPEN
    lines += [rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}", r"\toprule"]
    lines.append(" & ".join(map(_tex, head)) + r" \\")
    for score in SCORES:
        lines += [r"\midrule", rf"\multicolumn{{{len(head)}}}{{l}}{{\textbf{{{score}}}}} \\"]
        rows = [_cells(row) for row in table["rows"] if row["score"] == score]
        for cells in rows:
            blank = [""] * (len(head) - len(cells))  # bounds are of the ACC alone
            lines.append(" & ".join(map(_tex, cells + blank)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def replace_between(path: str | os.PathLike[str], name: str, text: str) -> bool:
    """Put `text` between ``<!-- name -->`` and ``<!-- /name -->`` in a Markdown file.

    Returns
    -------
    bool
        Whether the file changed.

    Raises
    ------
    ValueError
        If the file does not have both markers once, in this order.
    """
    path = Path(path)
    old = path.read_text(encoding="utf-8")
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    if old.count(first) != 1 or old.count(last) != 1 or old.index(first) > old.index(last):
        raise ValueError(f"{path.name} needs the lines {first} and {last} once each, in this order")
    before, rest = old.split(first)
    new = f"{before}{first}\n{text.strip()}\n{last}{rest.split(last)[1]}"
    if new == old:
        return False
    write_text(path, new)
    return True
