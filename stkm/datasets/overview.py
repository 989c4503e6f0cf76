"""One row a data set: what the paper has, what is here, where it comes from.

>>> from stkm.datasets import overview
>>> print(overview.markdown(overview.rows()))   # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from stkm.datasets import registry
from stkm.datasets.spec import spaced

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


def rows(names: Iterable[str] | None = None, used: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return a row for each data set.

    Parameters
    ----------
    names : iterable of str, optional
        All sets without it.
    used : iterable of str
        Sets that the results at hand are about, so that their files were there.

    Returns
    -------
    list of dict
        JSON-ready: name, title, paper (None for a set that is not the
        paper's), ours (train, test, classes, size), source, licence,
        differs_from_paper, and here (bool: one of `used`, or in need of no file). It does not
        look at the disk, so the table is the same wherever the results are.
    """
    found, used = [], {*EMBEDDED, *used}
    for spec in map(registry.spec, registry.available() if names is None else names):
        found.append(
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
                "here": spec.name in used,
            }
        )
    return found


def _counts(part: dict[str, Any] | None) -> str:
    """Return images, size and classes in a cell, an em dash for none."""
    if part is None:
        return "—"
    size = "×".join(map(str, part["size"]))
    return f"{spaced(part['train'])} / {spaced(part['test'])}, {size}, {part['classes']} classes"


def markdown(table: list[dict[str, Any]]) -> str:
    """Return rows as a Markdown table; a set that is not here says what it needs."""
    head = ("data set", "paper (training / test)", "ours", "source", "licence", "here", "differs")
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in table:
        cells = (
            f"{row['title']} (`{row['name']}`)",
            _counts(row["paper"]),
            _counts(row["ours"]),
            f"[{urlsplit(row['source']).netloc.removeprefix('www.')}]({row['source']})",
            row["licence"],
            "yes" if row["here"] else "needs raw files",
            row["differs_from_paper"],
        )
        lines.append(" | ".join(cell.replace("|", "\\|") for cell in cells))
    return "".join(f"| {line} |\n" for line in lines)
