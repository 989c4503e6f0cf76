"""Run a notebook with checked parameters, and the same bytes for the same results.

This is a thin layer over papermill; ``python -m stkm run`` is its command.  What
it adds:

* parameters are checked against the notebook, and ``params.yaml`` is read, first;
* a value is data: it arrives as the string it is, or as a number where the
  notebook's default is one, never as code;
* the kernel is the running interpreter's own, whatever other kernel of the name
  ``python3`` is installed, and imports this copy of the package;
* the executed copy gets its name only when every cell has run, and holds no
  times, process numbers, memory addresses or paths of the machine.
"""

from __future__ import annotations

import ast
import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stkm import config, paths
from stkm.executed import clean, hidden_modules, plain
from stkm.kernel import NAME, own_kernel
from stkm.paths import atomic_path

__all__ = ["ArgumentError", "NotebookError", "find", "output_path", "parameters", "run"]


class ArgumentError(ValueError):
    """The notebook, a parameter's name or its value is wrong; nothing has run."""


class NotebookError(RuntimeError):
    """A cell failed, or the kernel died; the message ends with the traceback's end."""


# ------------------------------------------------------------------ arguments


def find(notebook: str | os.PathLike[str]) -> Path:
    """Return the path of a notebook given by name (``cluster``) or path.

    Raises
    ------
    ArgumentError
        If there is none; the message names the nearest.
    """
    text = os.fspath(notebook)
    is_path = text.endswith(".ipynb") or os.sep in text
    path = Path(text).absolute() if is_path else paths.NOTEBOOKS / f"{text}.ipynb"
    if path.is_file():
        return path
    folder = path.parent
    known = sorted(p.stem for p in folder.glob("*.ipynb") if not p.stem.endswith(".failed"))
    raise ArgumentError(f"no notebook {path.stem!r} in {folder}{config.suggest(path.stem, known)}")


def _read(path: Path) -> dict[str, Any]:
    """Return the notebook file's JSON."""
    try:
        nb = json.loads(path.read_text(encoding="utf-8"))
        if nb["nbformat"] != 4 or not isinstance(nb["cells"], list):
            raise ValueError(f"its format is {nb['nbformat']}, not 4")
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{path} is not a notebook: {error!r}") from error
    return nb


def _ids(path: Path) -> set[str]:
    """Return the cell ids of the notebook file (a format before 4.5 has none)."""
    return {cell["id"] for cell in _read(path)["cells"] if "id" in cell}


def parameters(path: Path) -> dict[str, Any]:
    """Return names and defaults of the cell tagged ``parameters``, in its order.

    Parameters
    ----------
    path : Path
        A notebook file; a notebook without such a cell has no parameters.

    Returns
    -------
    dict of str to object
        The defaults as Python values.

    Raises
    ------
    ArgumentError
        If the cell holds anything but assignments of literals.
    """
    cells = [c for c in _read(path)["cells"] if "parameters" in c["metadata"].get("tags", [])]
    if not cells:
        return {}
    source = "".join(cells[0]["source"])
    found = {}
    try:
        for node in ast.parse(source).body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a string by itself, used as a remark
            line: Any = node
            target = line.targets[0] if isinstance(node, ast.Assign) else line.target
            found[target.id] = ast.literal_eval(line.value)
    except (SyntaxError, ValueError, AttributeError) as error:
        raise ArgumentError(
            f"the parameters cell of {path.name} may hold only lines like `name = literal`: {error}"
        ) from error
    return found


def _convert(name: str, text: str, default: Any) -> Any:
    """Return `text` as the type of the parameter's default."""
    if isinstance(default, str):
        return text
    if default is None:
        # no type to go by: a number if it reads as one, else the string
        # (not 007, which is more likely the name of something)
        number = re.fullmatch(r"None|-?(0|[1-9]\d*)(\.\d+)?", text)
        return ast.literal_eval(text) if number else text
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, (int, float)):
            value = type(default)(text)
            if value - value == 0:  # neither NaN nor infinite
                return value
    except (ValueError, KeyError):
        pass
    wanted = "true or false" if isinstance(default, bool) else f"of type {type(default).__name__}"
    if not isinstance(default, (int, float)):
        wanted = f"set in the notebook, since its default {default!r} is no single value"
    raise ArgumentError(f"parameter {name!r} must be {wanted}, not {text!r}")


def check(path: Path, values: Mapping[str, str]) -> dict[str, Any]:
    """Return `values` converted, in the order of the parameters cell.

    Raises
    ------
    ArgumentError
        For an unknown name (the message has the nearest) or a wrong value.
    """
    known = parameters(path)
    for name in values:
        if name not in known:
            raise ArgumentError(
                f"{path.name} has no parameter {name!r}{config.suggest(name, known)}"
            )
    return {n: _convert(n, values[n], default) for n, default in known.items() if n in values}


def output_path(path: Path, values: Mapping[str, Any], folder: Path) -> Path:
    """Return ``folder/<notebook>[-value ...].ipynb``, with values fit for a file name.

    A value that had to be changed gets eight characters of its SHA-256, so that
    two different values never share a file.
    """
    name = path.stem
    for value in map(str, values.values()):
        safe = re.sub(r"[^\w.+]", "_", value, flags=re.ASCII)[:60]
        if safe != value or not safe:
            safe += "~" + hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name += f"-{safe}"
    return folder / f"{name}.ipynb"


# ------------------------------------------------------------------ execution


def run(
    notebook: str | os.PathLike[str],
    values: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Path:
    """Run a notebook in its own folder and keep the executed copy.

    Parameters
    ----------
    notebook : str or path-like
        Name (a file of ``notebooks/`` without ``.ipynb``) or path.
    values : dict of str to str, optional
        Parameters that differ from the notebook's defaults.
    folder : Path, optional
        Where the copy goes; ``paths.EXECUTED`` by default.

    Returns
    -------
    Path
        The executed copy (see :func:`output_path` for its name).

    Raises
    ------
    ArgumentError, stkm.config.ConfigError
        If an argument or ``params.yaml`` is wrong.  Nothing has run.
    NotebookError
        If a cell failed.  An earlier copy stays; the failed one lies beside it
        as ``*.failed.ipynb``.
    """
    path = find(notebook)
    checked = check(path, values or {})
    config.load()
    target = output_path(path, checked, Path(folder or paths.EXECUTED).absolute())
    failed = target.with_suffix(".failed.ipynb")
    with atomic_path(target) as temporary:
        try:
            _execute(path, temporary, checked)
        except NotebookError as error:
            if temporary.is_file():
                clean(temporary, _ids(path))
                os.replace(temporary, failed)
                error.add_note(f"the notebook as far as it got: {failed}")
            raise
        clean(temporary, _ids(path))
    failed.unlink(missing_ok=True)
    return target


def _execute(path: Path, out: Path, values: Mapping[str, Any]) -> None:
    """Execute notebook `path` into the file `out`."""
    try:
        with own_kernel(path.parent) as kernel:
            with hidden_modules("rfc3987_syntax", "isoduration", "pyarrow"):
                import papermill.execute
            _papermill(papermill.execute, path, out, values, kernel)
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"running a notebook needs the package {error.name}, which {sys.executable} lacks; "
            "start with ./run, or pip install 'stkm[notebooks]'"
        ) from error


def _papermill(execute: Any, path: Path, out: Path, values: Mapping[str, Any], kernel: Any) -> None:
    """Call papermill, and turn its errors into a :class:`NotebookError`."""
    # Its reader of parameters cells is simpler than the one above, and warns of
    # what it can't follow.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        execute.execute_notebook(
            # papermill fills in {…} in both paths; these are meant literally
            str(path).replace("{", "{{").replace("}", "}}"),
            str(out).replace("{", "{{").replace("}", "}}"),
            dict(values),
            kernel_name=NAME,
            language="python",
            cwd=path.parent,
            progress_bar=False,
            request_save_on_cell_execute=False,
            km=kernel,
            coalesce_streams=True,
            record_timing=False,
        )
    except execute.PapermillExecutionError as error:
        trace = plain("\n".join(error.traceback)).splitlines()[-15:]
        what = f"{path.name} failed in cell {error.exec_count}: {error.ename}: {error.evalue}"
        raise NotebookError("\n".join([what, *trace])) from error
    except RuntimeError as error:  # nbclient's DeadKernelError is one, and so is a failed start
        raise NotebookError(
            f"the kernel of {path.name} died: {error} (in the middle of a notebook "
            "the usual reason is that the memory ran out)"
        ) from error
