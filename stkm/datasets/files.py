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
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

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

_WAITS = (1.0, 4.0)
"""Seconds before the second and the third try of a download that broke off."""

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of a server that may answer the same request later."""

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
        raise _other_file(path, expected, found, advice)
    return found


def _other_file(path: Path, expected: str, found: str, advice: str) -> ChecksumError:
    """Return the error that `check` raises."""
    return ChecksumError(
        f"{path} is not the expected file\n"
        f"  SHA-256 expected {expected}\n"
        f"  SHA-256 found    {found}\n"
        f"The file was kept. {advice}"
    )


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


def _is_transient(error: OSError) -> bool:
    """Return whether the same request may succeed later."""
    import requests

    if isinstance(error, requests.HTTPError):
        return error.response is not None and error.response.status_code in _BUSY
    broken = requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError
    return isinstance(error, broken) and not isinstance(error, requests.exceptions.SSLError)


def _append(url: str, stream: BinaryIO) -> None:
    """Fetch what `stream` lacks of the file at `url`, or all if the server sends no ranges.

    Raises
    ------
    OSError
        As requests raises it; what has arrived is in `stream`.
    """
    import pooch
    import requests

    done = stream.seek(0, os.SEEK_END)
    # the bytes of the file itself: of a compressed transfer no range could be asked for
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})

    def begin(answer: requests.Response, **_: object) -> None:
        if answer.status_code == 200:  # the whole file; a part of it is 206
            stream.truncate(0)

    fetch = pooch.HTTPDownloader(
        sys.stderr.isatty(), timeout=30, headers=headers, hooks={"response": begin}
    )
    try:
        fetch(url, stream, None)
    except requests.HTTPError as error:
        # 416: nothing comes after what is there
        if not done or error.response is None or error.response.status_code != 416:
            raise


def _wait_for_others(stream: BinaryIO) -> None:
    """Wait until no other process appends to this file."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    fcntl.flock(stream, fcntl.LOCK_EX)


def _fetch(raw: RawFile, target: Path) -> Path:
    """Return the path of one downloaded file; see `download`."""
    path, part, other = (target / f"{raw.name}{end}" for end in ("", ".part", ".unexpected"))
    target.mkdir(parents=True, exist_ok=True)
    try:
        with open(part, "ab") as stream:
            _wait_for_others(stream)
            if path.is_file():  # one of them has fetched it
                return path
            for wait in (*_WAITS, None):
                try:
                    _append(str(raw.url), stream)
                    break
                except OSError as error:
                    if wait is None or not _is_transient(error):
                        raise
                    time.sleep(wait)
            stream.flush()
            if file_sha256(part) == raw.sha256:
                return part.replace(path)
            part.replace(other)
    finally:
        if part.is_file() and not part.stat().st_size:
            part.unlink()
    raise _other_file(other, raw.sha256, file_sha256(other), f"It came from {raw.url}.")


def download(
    dataset: str, files: Iterable[RawFile], alternative: str = "", *, folder: str | None = None
) -> dict[str, Path]:
    """Download raw files into the data set's folder.

    A connection that breaks, or a server that is busy, is tried three times, after waits that
    grow. What has arrived is kept as ``NAME.part``, and the next try, or the next call, fetches
    the rest.

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
        connection breaks at every try.
    ChecksumError
        If what arrived is another file, naming both sums; it is kept as
        ``NAME.unexpected``.
    """
    files = list(files)
    try:
        import pooch  # noqa: F401
    except ImportError as error:
        reason = "downloading needs pooch (pip install 'stkm[data]')"
        raise unavailable(dataset, files, reason, alternative, folder=folder) from error
    if failure := _no_answer(str(files[0].url)):
        reason = f"no file was found, and downloading failed ({failure})"
        raise unavailable(dataset, files, reason, alternative, folder=folder)
    target = raw_folder(folder or dataset)
    found = {}
    for raw in files:
        try:
            found[raw.name] = _fetch(raw, target)
        except OSError as error:
            reason = f"the download of {raw.url} failed ({error})"
            still = [raw for raw in files if raw.name not in found]
            raise unavailable(dataset, still, reason, alternative, folder=folder) from error
    return found
