"""One row a data set: what the paper has, what ours has, what it needs, where it comes from.

>>> from stkm.datasets import overview
>>> print(overview.markdown(overview.rows()))   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from stkm.datasets import registry
from stkm.datasets.spec import RawFile, spaced

__all__ = ["PAPER", "markdown", "rows"]

PAPER: dict[str, dict[str, Any]] = {
    "affine_mnist": {"train": 667, "test": 333, "classes": 10, "size": [28, 28]},
    "diffeo_mnist": {"train": 667, "test": 333, "classes": 10, "size": [28, 28]},
    "mnist": {"train": 60000, "test": 10000, "classes": 10, "size": [28, 28]},
    "audio_mnist": {"train": 20000, "test": 10000, "classes": 10, "size": [64, 24]},
    "emnist_letters": {"train": 124800, "test": 20800, "classes": 26, "size": [28, 28]},
    "rock_paper_scissors": {"train": 2520, "test": 372, "classes": 3, "size": [300, 300]},
    "face10": {"train": 273, "test": 117, "classes": 13, "size": [288, 384]},
    "arabic_char": {"train": 13440, "test": 3360, "classes": 28, "size": [32, 32]},
}
"""The paper's eight sets: images, classes, and height and width."""

SAME = {"rock_paper_scissors_full": "rock_paper_scissors", "face10_full": "face10"}
"""Sets that are one of the paper's under another name (full size)."""

EMBEDDED = ("mnist5k", "affine_mnist", "diffeo_mnist")
"""Sets that need no file and no network."""


def rows(names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return a row for each data set.

    Parameters
    ----------
    names : iterable of str, optional
        All sets without it.

    Returns
    -------
    list of dict
        JSON-ready: name, title, paper (None for a set that is not the
        paper's), ours (train, test, classes, size), source, licence,
        differs_from_paper, embedded (bool: in need of no file), and needs: the choices of
        raw files, a list of dicts of files (names) and download (bool: whether all have an
        address), any one of which is enough; empty for an embedded set and for one whose files
        are too many to be listed. No row looks at the disk, so the table is the same on any
        machine.

    Raises
    ------
    ValueError
        If there is no set of one of the names.
    """
    return [
        {
            "name": spec.name,
            "title": spec.title,
            "paper": PAPER.get(SAME.get(spec.name, spec.name)),
            "ours": {
                **spec.splits,
                "classes": len(spec.class_names),
                "size": list(spec.image_shape[:2]),
            },
            "source": spec.homepage,
            "licence": spec.licence,
            "differs_from_paper": spec.differs,
            "embedded": spec.name in EMBEDDED,
            "needs": [] if spec.name in EMBEDDED else _choices(spec.raw_files),
        }
        for spec in map(registry.spec, registry.available() if names is None else names)
    ]


def _choices(files: Iterable[RawFile]) -> list[dict[str, Any]]:
    """Return the choices of raw files: each that was put together for the set, or all published."""
    files = list(files)
    single = [{"files": [raw.name], "download": False} for raw in files if not raw.url]
    published = [raw.name for raw in files if raw.url]
    return single + ([{"files": published, "download": True}] if published else [])


def _needs(row: dict[str, Any]) -> str:
    """Return what a set needs, in a cell."""
    if row["embedded"]:
        return "nothing, it is embedded"
    if not row["needs"]:
        return "the publisher's files"
    return ", or ".join(
        " and ".join(f"`{name}`" for name in choice["files"])
        + (" (can be downloaded)" if choice["download"] else "")
        for choice in row["needs"]
    )


def _counts(part: dict[str, Any] | None) -> str:
    """Return images, size and classes in a cell, an em dash for none."""
    if part is None:
        return "—"
    size = "×".join(map(str, part["size"]))
    return f"{spaced(part['train'])} / {spaced(part['test'])}, {size}, {part['classes']} classes"


def markdown(table: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table."""
    head = ("data set", "paper (training / test)", "ours", "source", "licence", "needs", "differs")
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in table:
        cells = (
            f"{row['title']} (`{row['name']}`)",
            _counts(row["paper"]),
            _counts(row["ours"]),
            f"[{urlsplit(row['source']).netloc.removeprefix('www.')}]({row['source']})",
            row["licence"],
            _needs(row),
            row["differs_from_paper"],
        )
        lines.append(" | ".join(cell.replace("|", "\\|") for cell in cells))
    return "".join(f"| {line} |\n" for line in lines)
