"""Raw files: where they are looked for, how they are checked and downloaded.

Order of places for one file: the folder ``STKM_DATA_DIR/<data set>``, the
downloads of tensorflow-datasets, the publisher.  A file is used only when its
SHA-256 is the expected one.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from stkm import paths
from stkm.datasets.errors import ChecksumError, DatasetUnavailable
from stkm.datasets.spec import RawFile

__all__ = [
    "ADVICE",
    "check",
    "download",
    "file_sha256",
    "find",
    "obtain",
    "raw_folder",
    "tfds_cache",
    "tfds_download",
    "unavailable",
    "write_atomically",
]

_PROBE_SECONDS = 6.0
"""Longest wait for the publisher's first answer: with no network the caller
is told what to do within seconds, whatever the resolver's own time limits."""

ADVICE = "Move it away, or replace it by the right one."
"""What to do about a raw file that is another one than expected."""


def raw_folder(dataset: str) -> Path:
    """Return the folder that the raw files of `dataset` belong in."""
    return paths.raw_dir() / dataset


def tfds_cache() -> Path:
    """Return tensorflow-datasets' folder: ``TFDS_DATA_DIR``, else its default."""
    chosen = os.environ.get("TFDS_DATA_DIR") or os.path.join("~", "tensorflow_datasets")
    return Path(os.path.abspath(os.path.expanduser(chosen)))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check(path: Path, expected: str, advice: str) -> str:
    """Return the file's SHA-256, which must be `expected`.

    Raises
    ------
    ChecksumError
        Naming the file and both sums, and ending in `advice`.  The file stays.
    """
    found = file_sha256(path)
    if found != expected:
        raise ChecksumError(
            f"{path} is not the expected file\n"
            f"  SHA-256 expected {expected}\n"
            f"  SHA-256 found    {found}\n"
            f"The file was kept. {advice}"
        )
    return found


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`, which is complete or absent at any time."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def tfds_download(raw: RawFile) -> Path | None:
    """Return the copy of a raw file among tensorflow-datasets' downloads, if any.

    Downloads are renamed there, so a copy is known by its size and SHA-256.
    """
    folder = tfds_cache() / "downloads"
    if raw.size is None or not folder.is_dir():
        return None
    for path in sorted(folder.rglob(f"*{Path(raw.name).suffix}")):
        if path.is_file() and path.stat().st_size == raw.size and file_sha256(path) == raw.sha256:
            return path
    return None


def find(folder: str, raw: RawFile) -> Path | None:
    """Return the checked copy of a raw file on this machine, or None.

    Parameters
    ----------
    folder : str
        Name of its folder below ``STKM_DATA_DIR``, looked in first; then come
        the downloads of tensorflow-datasets.
    raw : RawFile

    Raises
    ------
    ChecksumError
        If the folder has a file of this name that is another one.
    """
    path = raw_folder(folder) / raw.name
    if path.is_file():
        check(path, raw.sha256, ADVICE)
        return path
    return tfds_download(raw)


def obtain(
    dataset: str,
    choices: Sequence[Sequence[RawFile]],
    *,
    folder: str | None = None,
    alternative: str = "",
) -> dict[str, Path]:
    """Return the paths, by name, of the first choice of raw files that can be had.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    choices : sequence of sequences of RawFile
        Each is enough to make the set.  The first that is wholly on this
        machine counts; if there is none, the first that has addresses is
        downloaded.
    folder : str, optional
        Where the files belong below ``STKM_DATA_DIR``, if not in a folder of
        the set's name.
    alternative : str
        See `unavailable`.

    Raises
    ------
    DatasetUnavailable, ChecksumError
        As `download` and `find` raise them.
    """
    folder = folder or dataset
    partial: list[dict[str, Path]] = []

    def instead(choice: Sequence[RawFile]) -> str:
        others = [other for other in choices if other is not choice]
        lines = [line for other in others for line in ("Or, instead:", *_listed(other))]
        return "\n".join(lines + ([alternative] if alternative else []))

    for choice in choices:
        found = {raw.name: path for raw in choice if (path := find(folder, raw)) is not None}
        if len(found) == len(choice):
            return found
        partial.append(found)
    for choice, found in zip(choices, partial, strict=True):
        missing = [raw for raw in choice if raw.name not in found]
        if all(raw.url for raw in missing):
            return found | download(dataset, missing, instead(choice), folder=folder)
    reason = "no file was found, and none can be downloaded"
    raise unavailable(dataset, choices[0], reason, instead(choices[0]), folder=folder)


def _listed(files: Iterable[RawFile]) -> list[str]:
    """Return the lines of a message that name each file, its sum and its publisher."""
    return [
        line
        for raw in files
        for line in (
            f"  {raw.name}",
            f"    SHA-256      {raw.sha256}",
            f"    published at {raw.published}",
        )
    ]


def unavailable(
    dataset: str,
    files: Iterable[RawFile],
    reason: str,
    alternative: str = "",
    *,
    folder: str | None = None,
) -> DatasetUnavailable:
    """Return the error that says which file to put where.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    files : iterable of RawFile
        The files that are missing.
    reason : str
        Why they could not be had.
    alternative : str
        Another way to provide the same images, added at the end.
    folder : str, optional
        Name of the folder below ``STKM_DATA_DIR``; without it `dataset`.
    """
    folder = folder or dataset
    lines = [
        f"data set {dataset!r} is not on this machine: {reason}.",
        f"Put these files into {raw_folder(folder)} (STKM_DATA_DIR/{folder}):",
        *_listed(files),
    ]
    return DatasetUnavailable("\n".join(lines + ([alternative] if alternative else [])))


def _no_answer(url: str) -> str | None:
    """Return why `url` can't be fetched, or None if its server answers in time.

    The request is made in a thread of its own because looking up a host name
    has no time limit that Python could set.
    """
    import requests

    said = ["no answer"]

    def ask() -> None:
        try:
            answer = requests.head(url, timeout=_PROBE_SECONDS - 2, allow_redirects=True)
            said[0] = "" if answer.ok else f"HTTP status {answer.status_code}"
        except (OSError, ValueError) as error:  # requests' own errors are OSErrors
            said[0] = f"no connection, {type(error).__name__}"

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PROBE_SECONDS)
    return said[0] or None


def download(
    dataset: str, files: Iterable[RawFile], alternative: str = "", *, folder: str | None = None
) -> dict[str, Path]:
    """Download raw files into the data set's folder.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    files : iterable of RawFile
        Each with a `url`.
    alternative : str
        See `unavailable`.
    folder : str, optional
        See `unavailable`.

    Returns
    -------
    dict of str to Path
        Path of each file by name.

    Raises
    ------
    DatasetUnavailable
        If the publisher can't be reached (said within seconds), or the
        connection breaks.
    ChecksumError
        If what arrived is another file; it is not kept.
    """
    files = list(files)
    try:
        import pooch
    except ImportError as error:
        reason = "downloading needs pooch (pip install 'stkm[data]')"
        raise unavailable(dataset, files, reason, alternative, folder=folder) from error
    if failure := _no_answer(str(files[0].url)):
        reason = f"no file was found, and downloading failed ({failure})"
        raise unavailable(dataset, files, reason, alternative, folder=folder)
    pooch.get_logger().setLevel("WARNING")
    target = raw_folder(folder or dataset)
    found = {}
    for raw in files:
        fetch = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)
        try:
            found[raw.name] = Path(
                pooch.retrieve(raw.url, f"sha256:{raw.sha256}", raw.name, target, downloader=fetch)
            )
        except OSError as error:
            reason = f"the download of {raw.url} failed ({error})"
            still = [raw for raw in files if raw.name not in found]
            raise unavailable(dataset, still, reason, alternative, folder=folder) from error
        except ValueError as error:  # pooch's word for another checksum
            raise ChecksumError(f"{raw.url} gave another file: {error}") from error
    return found
