"""Results on disk: JSON for numbers, npz for arrays, both written atomically.

A file is first written under a temporary name in the same folder and then
renamed, so a reader, and a pipeline that is killed, sees the old file or the
whole new one.  The same values give the same bytes: JSON has sorted keys, an
indent and floats rounded to :data:`DECIMALS` decimals; npz members are sorted
and carry no time stamp.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stkm import paths
from stkm.paths import atomic_path

__all__ = [
    "DECIMALS",
    "atomic_path",
    "read_json",
    "read_npz",
    "record",
    "summarise",
    "timed",
    "write_json",
    "write_npz",
    "write_text",
]

DECIMALS = 4
"""Decimals kept in JSON.  Smaller than any difference between runs that matters,
larger than the differences of rounding between two equal runs."""


def _plain(value: Any, where: str) -> Any:
    """Return `value` with plain Python types only, floats rounded."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}; write None for a value that does not exist")
        return round(value, DECIMALS) + 0.0  # + 0.0 turns -0.0 into 0.0
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{where} has the key {key!r}; keys must be strings")
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise ValueError(f"{where} is of type {type(value).__name__}, which JSON can't hold")


def write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Write `obj` as JSON: sorted keys, floats of :data:`DECIMALS` decimals.

    Parameters
    ----------
    path : path-like
    obj : dict, list, str, number, None or numpy array, nested at will
        numpy types become plain ones.

    Raises
    ------
    ValueError
        For NaN or infinity (a result that does not exist is ``None``), for keys
        that are no strings and for other types; the message names the place.
        Nothing is written then.
    """
    path = Path(path)
    text = json.dumps(
        _plain(obj, path.name), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
    )
    write_text(path, text + "\n")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8 with the same line ends on every system."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not JSON; the message names the file.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # also UnicodeDecodeError
        raise ValueError(f"{path} is not a JSON file ({error}); delete it and run again") from error


def write_npz(path: str | os.PathLike[str], **arrays: Any) -> None:
    """Write named arrays as an uncompressed npz file.

    The bytes depend on the names and arrays alone: members are sorted, and
    numpy gives each the fixed date 1980-01-01.

    Raises
    ------
    ValueError
        If there is no array, or one of Python objects (reading those back
        would run code).  Nothing is written then.
    """
    if not arrays:
        raise ValueError(f"no arrays to write to {path}")
    converted: Any = {name: np.asarray(arrays[name]) for name in sorted(arrays)}
    for name, array in converted.items():
        if array.dtype.hasobject:
            raise ValueError(f"array {name!r} for {path} holds Python objects, not numbers or text")
    # an open file, since numpy adds ".npz" to names that lack it
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **converted)


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays of an npz file, without pickled objects.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is damaged or no npz file; the message names the file.
    """
    import zipfile
    import zlib

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, KeyError, AttributeError, TypeError) as error:
        problem: Exception = error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        problem = error
    raise ValueError(
        f"{path} is damaged or not an npz file ({problem}); delete it and run again"
    ) from problem


def summarise(values: Sequence[float], objectives: Sequence[float]) -> dict[str, Any]:
    """Summarise one score over the runs of a method.

    The paper prints the best of ten runs as chosen by the test labels (its
    Table 1).  That is the last entry here; the entries before it need no labels.

    Parameters
    ----------
    values : sequence of float, length n
        The score of each run; higher is better.
    objectives : sequence of float, length n
        The objective (Eq. 2) that each run ended with; lower is better.

    Returns
    -------
    dict
        ``n_runs`` (n), ``mean``, ``sd`` (with n - 1; ``None`` for one run,
        whose spread is unknown), ``of_lowest_objective`` (the score of the run
        with the lowest objective, the first of equals) and ``best``, in this order.

    Raises
    ------
    ValueError
        If there are no runs, the lengths differ, or a number is not finite.
    """
    scores = np.asarray(values, dtype=np.float64)
    costs = np.asarray(objectives, dtype=np.float64)
    if scores.ndim != 1 or scores.size == 0 or scores.shape != costs.shape:
        raise ValueError(
            "needs one value and one objective for each of at least one run, "
            f"not shapes {scores.shape} and {costs.shape}"
        )
    if not (np.isfinite(scores).all() and np.isfinite(costs).all()):
        raise ValueError(f"values {scores} or objectives {costs} are not all finite")
    return {
        "n_runs": int(scores.size),
        "mean": float(scores.mean()),
        "sd": float(scores.std(ddof=1)) if scores.size > 1 else None,
        "of_lowest_objective": float(scores[costs.argmin()]),
        "best": float(scores.max()),
    }


def record(
    scores: Sequence[Mapping[str, Any]], names: Sequence[str], **about: Any
) -> dict[str, Any]:
    """Return what is kept of the runs of a method: the answer of :func:`summarise` for each score.

    Parameters
    ----------
    scores : sequence of dict
        One a run, with ``objective`` and the scores of `names`.
    names : sequence of str
    about
        What else there is to know: data set, method, images.
    """
    objectives = [run["objective"] for run in scores]
    found = {name: summarise([run[name] for run in scores], objectives) for name in names}
    n_runs = {summary.pop("n_runs") for summary in found.values()}.pop()
    return {**found, **about, "n_runs": n_runs, "runs": list(scores)}


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Write the wall time of the block to ``data/runs/timing/<name>.json``.

    Times differ from run to run, so they are kept apart from the results:
    neither git nor the pipeline looks at that folder.

    Parameters
    ----------
    name : str
        File name without its suffix.
    """
    began = time.perf_counter()
    yield
    seconds = time.perf_counter() - began
    about = {"seconds": seconds, "cores": os.cpu_count()}
    write_json(paths.RUNS / "timing" / f"{name}.json", about)
