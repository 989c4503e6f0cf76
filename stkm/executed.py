"""Executed notebooks that have the same bytes whenever they have the same results.

:func:`clean` takes out of a notebook that papermill wrote what differs between
two equal runs: times, process numbers, memory addresses, random cell ids, views
of widgets, paths of the machine, and the order in which stdout and stderr happened to arrive.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stkm import paths
from stkm.kernel import NAME

__all__ = ["KERNELSPEC", "clean", "hidden_modules", "plain"]

KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": NAME}

WIDGET = "application/vnd.jupyter.widget-view+json"
"""A view of a widget: a random number, and no page has the kernel that it needs."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_VOLATILE = [
    (re.compile(r"[^\s\"'<>]*ipykernel_\d+[/\\]\d+\.py"), "<cell>"),
    (re.compile(r"\bat 0x[0-9a-fA-F]{6,}"), "at 0x0"),
]


@contextmanager
def hidden_modules(*modules: str) -> Iterator[None]:
    """Make optional imports of a library fail at once inside the block.

    papermill and jsonschema try for storage back ends and format checkers that
    nothing here uses, and that take longer to import than all the rest.
    """
    added = [name for name in modules if name not in sys.modules]
    blocked: Any = dict.fromkeys(added)
    sys.modules.update(blocked)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


def plain(text: str) -> str:
    """Return `text` without terminal colours."""
    return _COLOUR.sub("", text)


def _neutral(text: str) -> str:
    """Return `text` without process numbers, addresses and paths of the machine."""
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    home = os.path.expanduser("~")
    for base, name in ((str(paths.ROOT), "."), (sys.prefix, "<env>"), (home, "~")):
        if base != "/":  # as home of a user without one; it would match every path
            text = re.sub(rf"(?<![\w.]){re.escape(base)}(?![\w.-])", name, text)
    return text


def _clean_outputs(outputs: list[dict]) -> list[dict]:
    """Return the outputs of a cell, streams between two displays merged by name.

    stdout and stderr come through separate buffers, so their order within such
    a stretch is a matter of chance; here stdout goes first.
    """
    cleaned: list[dict] = []
    streams: dict[str, str] = {}

    def flush() -> None:
        for name in sorted(streams, reverse=True):  # stdout before stderr
            # what a terminal shows of a line that was written over
            text = re.sub(r"[^\n]*\r(?=[^\n])", "", streams[name].replace("\r\n", "\n"))
            cleaned.append({"name": name, "output_type": "stream", "text": _neutral(text)})
        streams.clear()

    for output in outputs:
        if output["output_type"] == "stream":
            streams[output["name"]] = streams.get(output["name"], "") + output["text"]
            continue
        flush()
        if "traceback" in output:
            output = {**output, "traceback": [_neutral(line) for line in output["traceback"]]}
            output["evalue"] = _neutral(output["evalue"])
        output.get("data", {}).pop(WIDGET, None)
        for kind, data in output.get("data", {}).items():
            if isinstance(data, str) and not kind.startswith("image/"):
                output["data"][kind] = _neutral(data)
        cleaned.append(output)
    flush()
    return cleaned


def clean(executed: Path, own_ids: Collection[str]) -> None:
    """Rewrite the file `executed` without what differs between two equal runs.

    Parameters
    ----------
    executed : Path
        A notebook written by papermill.
    own_ids : collection of str
        The cell ids of the notebook it was made from; any other id is random
        and gives way to the cell's position.
    """
    with hidden_modules("rfc3987_syntax", "isoduration"):
        import nbformat
    nb = nbformat.read(executed, as_version=4)
    nb.metadata = nbformat.from_dict(
        {
            "kernelspec": dict(KERNELSPEC),
            "language_info": {"file_extension": ".py", "mimetype": "text/x-python"}
            | {"name": "python", "pygments_lexer": "ipython3"},
        }
    )
    nb.nbformat_minor = max(nb.nbformat_minor, 5)
    for index, cell in enumerate(nb.cells):
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
        if not cell.metadata.get("tags", True):  # papermill adds an empty list
            del cell.metadata["tags"]
        if cell.get("id") not in own_ids:  # papermill's own cells get a random one
            cell["id"] = f"cell-{index}"
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(o) for o in _clean_outputs(cell.outputs)]
    executed.write_text(nbformat.writes(nb).rstrip("\n") + "\n", encoding="utf-8", newline="\n")
