"""What the readers of raw files share: npz files, pictures in a zip, a held-out part.

Nothing is unpickled and no archive is unpacked: members of a zip are read one
by one into memory, under limits of their size, and only those whose name is
expected.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stkm.datasets import files
from stkm.datasets.errors import ChecksumError
from stkm.datasets.sampling import stratified_order
from stkm.datasets.spec import Arrays, RawFile

__all__ = ["decode", "hold_out", "load_npz", "members", "obtain_npz", "provenance", "splits_of"]

MAX_MEMBER = 700 * 2**20
"""Largest member of a zip, in bytes: a small archive can unpack to gigabytes."""


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file by name; an array of objects is refused.

    The caller has checked the file's SHA-256.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable npz file of plain arrays: {error}") from error


def provenance(*read: RawFile) -> list[dict[str, str]]:
    """Return what `Spec.read` says of raw files whose sums were checked."""
    return [{"file": raw.name, "sha256": raw.sha256} for raw in read]


def obtain_npz(
    dataset: str, raw: RawFile, *, folder: str | None = None, alternative: str = ""
) -> tuple[dict[str, np.ndarray], list[dict[str, str]]]:
    """Return the arrays of the one npz file that makes a set, and its provenance.

    Parameters and errors are those of `files.obtain`.
    """
    found = files.obtain(dataset, [[raw]], folder=folder, alternative=alternative)
    return load_npz(found[raw.name]), provenance(raw)


def splits_of(stored: dict[str, np.ndarray]) -> Arrays:
    """Return ``x_train``, ``y_train``, ``x_test`` and ``y_test`` as `Arrays`."""
    return {
        split: (stored[f"x_{split}"], stored[f"y_{split}"].astype(np.int64))
        for split in ("train", "test")
    }


def hold_out(images: np.ndarray, labels: np.ndarray, n_test: int, seed: int) -> Arrays:
    """Split a set that has no test part of its own, stratified, by a fixed seed.

    The first `n_test` of `stratified_order` are for testing.  Both parts keep
    that order, so any first m rows hold all classes in proportion.
    """
    order = stratified_order(labels, seed)
    parts = {"train": order[n_test:], "test": order[:n_test]}
    return {split: (images[rows], labels[rows].astype(np.int64)) for split, rows in parts.items()}


def members(path: Path, pattern: str, limit: int = MAX_MEMBER) -> Iterator[tuple[re.Match, bytes]]:
    """Yield the members of a zip whose whole name matches `pattern`, by name.

    Parameters
    ----------
    path : Path
    pattern : str
        Regular expression.  Members of other names are left out.
    limit : int
        Bytes that a member may have.

    Yields
    ------
    match, data
        The match of the name, and the member's bytes.

    Raises
    ------
    ChecksumError
        If a member is larger than `limit`, or damaged, or there twice.
    ValueError
        If the file is no zip.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            wanted = [(m, info) for info in archive.infolist()
                      if (m := re.fullmatch(pattern, info.filename))]  # fmt: skip
            wanted.sort(key=lambda item: item[1].filename)
            for i, (match, info) in enumerate(wanted):
                if i and info.filename == wanted[i - 1][1].filename:
                    raise ChecksumError(f"{path} holds {info.filename} twice")
                with archive.open(info) as stream:  # compares the CRC at the end
                    data = stream.read(limit + 1)
                if len(data) > limit:
                    raise ChecksumError(f"{info.filename} in {path} has more than {limit} bytes")
                yield match, data
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"{path} can't be read as a zip: {error}") from error


def decode(
    data: bytes, name: str, shape: tuple[int, int], size: tuple[int, int] | None = None
) -> np.ndarray:
    """Return the RGB pixels of a JPEG or PNG picture of known height and width.

    Parameters
    ----------
    data : bytes
    name : str
        For messages.
    shape : (int, int)
        Height and width that the picture must have; compared before anything
        is decoded.
    size : (int, int), optional
        Height and width to shrink it to.  Each pixel is the mean of the area
        that it covers.

    Returns
    -------
    ndarray of uint8, (H, W, 3)
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            if picture.size != shape[::-1]:
                width, height = picture.size
                raise ValueError(f"{height}×{width} pixels, not {shape[0]}×{shape[1]}")
            rgb: Image.Image = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name} is not the expected picture: {error}") from error
    if size is not None and size != shape:
        rgb = rgb.resize(size[::-1], Image.Resampling.BOX)
    return np.asarray(rgb)
