"""Where the project keeps its files, and how one is put there whole.

Every path is absolute, so a notebook, a test and a pipeline stage agree on it
whatever folder they start in.  Importing this module is cheap and has no side effect.

Three environment variables change the answer:

``STKM_ROOT``
    the checkout to work in, read once, at import;
``STKM_DATA_DIR``
    the folder of the raw downloads, read at each call of :func:`raw_dir`;
``STKM_PREPARED_DIR``
    the folder of the prepared data sets, read at each call of
    :func:`prepared_dir`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "EXECUTED",
    "FIGURES",
    "FURTHER",
    "NOTEBOOKS",
    "PARAMS",
    "PREPARED",
    "RAW",
    "ROOT",
    "DEEP",
    "RUNS",
    "SITE",
    "TABLES",
    "atomic_path",
    "find_root",
    "prepared_dir",
    "raw_dir",
]


def _absolute(text: str) -> Path:
    """Return `text` as an absolute path, with ``~`` expanded and links kept."""
    return Path(os.path.abspath(os.path.expanduser(text)))


def _user_cache() -> Path:
    """Return the per-user cache folder of an installed copy of the package.

    The folder is the one of the XDG base-directory rule.  Without a usable
    home folder it lies in the system's folder for temporary files.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "stkm"
    home = _absolute("~")
    # expanduser returns "~" itself when it finds no home; "/" is the home of
    # a user without one, as in many containers.
    if home.name == "~" or home == Path(home.anchor):
        import tempfile

        return Path(tempfile.gettempdir()).absolute() / "stkm"
    return home / ".cache" / "stkm"


def find_root() -> Path:
    """Return the folder that holds ``params.yaml``.

    In this order: ``STKM_ROOT`` if set (and not empty), the folder above the
    package if it has a ``params.yaml``, a per-user cache folder.

    Returns
    -------
    Path
        An absolute path.  The folder need not exist in the last case.

    Raises
    ------
    ValueError
        If ``STKM_ROOT`` names something that is not a folder.
    """
    chosen = os.environ.get("STKM_ROOT")
    if chosen:
        root = _absolute(chosen)
        if not root.is_dir():
            raise ValueError(
                f"STKM_ROOT is {chosen!r}, which is not a folder; "
                "set it to the checkout that holds params.yaml, or unset it"
            )
        return root
    above = Path(__file__).resolve().parent.parent
    return above if (above / "params.yaml").is_file() else _user_cache()


ROOT = find_root()
"""The checkout that holds ``params.yaml``."""


def raw_dir() -> Path:
    """Return the folder of the raw downloads: ``STKM_DATA_DIR`` or ``data/raw``.

    The environment is read at each call, so a test or a notebook can point the
    downloads elsewhere after the import.  A relative value is taken from the
    current folder.
    """
    chosen = os.environ.get("STKM_DATA_DIR")
    return _absolute(chosen) if chosen else ROOT / "data" / "raw"


RAW = raw_dir()
"""The answer of :func:`raw_dir` at import; prefer the function."""


def prepared_dir() -> Path:
    """Return the prepared data sets' folder: ``STKM_PREPARED_DIR`` or ``data/prepared``."""
    chosen = os.environ.get("STKM_PREPARED_DIR")
    return _absolute(chosen) if chosen else ROOT / "data" / "prepared"


PREPARED = prepared_dir()
"""The answer of :func:`prepared_dir` at import; prefer the function."""

RUNS = ROOT / "data" / "runs"
DEEP = ROOT / "data" / "deep"  # what the deep methods, in a pipeline of their own, end with
FURTHER = ROOT / "data" / "further"  # data sets whose files have to be fetched
NOTEBOOKS = ROOT / "notebooks"
EXECUTED = NOTEBOOKS / "executed"
FIGURES = ROOT / "figures"
TABLES = FIGURES / "tables"
SITE = ROOT / "site"
PARAMS = ROOT / "params.yaml"


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`, renamed to `path` if the block succeeds.

    The temporary name keeps the suffix, which writers of pictures go by.  When
    the block raises, the temporary file is removed and an existing `path` stays
    as it was.  The folder is made if it is absent.

    Parameters
    ----------
    path : path-like
        The final name.

    Yields
    ------
    Path
        Where to write.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
