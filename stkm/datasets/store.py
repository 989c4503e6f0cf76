"""Preparing data sets on disk, and checking what is there.

A prepared set is one folder, ``data/prepared/<name>/<version>``, that
tensorflow-datasets can read by itself: array_record files and its description
files.  Two files of ours lie beside them: ``arrays.npz``, all images and
labels, from which loading takes a fraction of a second and no
tensorflow-datasets; and ``manifest.json``, the SHA-256 of every other file.

The folder is built elsewhere and then renamed, manifest and all.  So it is
complete or absent; an interrupted preparation leaves nothing that counts, and
of two processes that prepare one set at once the later one throws its own copy
away.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from stkm import paths
from stkm.datasets import registry
from stkm.datasets.errors import ChecksumError
from stkm.datasets.files import check, file_sha256, write_atomically
from stkm.datasets.spec import Arrays, Spec, array_sha256

__all__ = ["folder_of", "is_prepared", "prepare", "verified_npz"]

ARRAYS = "arrays.npz"
MANIFEST = "manifest.json"
_ABANDONED_SECONDS = 24 * 3600


def folder_of(spec: Spec) -> Path:
    """Return the folder of the prepared set, there or not."""
    return paths.prepared_dir() / spec.name / spec.version


def _manifest(spec: Spec) -> dict[str, Any] | None:
    """Return the manifest of the prepared set, or None if there is no such set.

    A set prepared by another recipe (say, before the ranges of a warp changed)
    does not count.
    """
    try:
        manifest = json.loads((folder_of(spec) / MANIFEST).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    same = isinstance(manifest, dict) and manifest.get("recipe") == spec.recipe
    return manifest if same else None


def _advice(spec: Spec) -> str:
    return (
        f"Delete the folder {folder_of(spec)}, or call prepare({spec.name!r}, force=True), "
        "to make the set again."
    )


def _check_arrays(spec: Spec, arrays: Arrays) -> None:
    """Compare shape, type, counts and sums with what `spec` says.

    Raises
    ------
    ChecksumError
        Naming the split, what was expected and what was found.
    """
    for split, counts in spec.class_counts.items():
        images, labels = arrays[split]
        shape = (sum(counts), *spec.image_shape)
        if images.shape != shape or images.dtype != np.uint8 or labels.shape != shape[:1]:
            raise ChecksumError(
                f"{spec.name} {split}: expected images {shape} uint8, found {images.shape} "
                f"{images.dtype} with {len(labels)} labels"
            )
        found = tuple(np.bincount(labels, minlength=len(counts)).tolist())
        if found != tuple(counts):
            raise ChecksumError(f"{spec.name} {split}: expected {counts} a class, found {found}")
        sums = array_sha256(images), array_sha256(labels.astype(np.uint8))
        for what, expected, sum_ in zip(
            ("images", "labels"), spec.content.get(split, ()), sums, strict=False
        ):
            if sum_ != expected:
                raise ChecksumError(
                    f"{spec.name} {split}: other {what} than expected\n"
                    f"  SHA-256 expected {expected}\n  SHA-256 found    {sum_}"
                )


def _npz_bytes(arrays: Arrays) -> bytes:
    """Return the arrays as the bytes of an uncompressed npz, equal for equal arrays."""
    stream = io.BytesIO()
    parts: Any = {}
    for split, (images, labels) in arrays.items():
        parts |= {f"images_{split}": images, f"labels_{split}": labels}
    np.savez(stream, **parts)  # zip entries carry a fixed date
    return stream.getvalue()


def _build(spec: Spec, workdir: Path) -> Path:
    """Read the raw files and write the complete prepared folder below `workdir`."""
    arrays, provenance = spec.read()
    _check_arrays(spec, arrays)
    from stkm.datasets.records import read_records, write_records

    folder = write_records(spec, arrays, workdir)
    stored = read_records(folder)
    arrays = {split: stored[split] for split in spec.class_counts}
    _check_arrays(spec, arrays)
    (folder / ARRAYS).write_bytes(_npz_bytes(arrays))
    manifest = {
        "name": spec.name,
        "version": spec.version,
        "recipe": spec.recipe,
        "splits": spec.splits,
        "class_counts": spec.class_counts,
        "content": {
            split: {"images": array_sha256(x), "labels": array_sha256(y.astype(np.uint8))}
            for split, (x, y) in arrays.items()
        },
        "read_from": provenance,
        "files": {
            path.name: file_sha256(path) for path in sorted(folder.iterdir()) if path.is_file()
        },
    }
    text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, "utf-8")
    return folder


def _install(spec: Spec, built: Path, workdir: Path, *, force: bool) -> None:
    """Rename the built folder to its place, unless another process was first."""
    target = folder_of(spec)
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(5):
        if target.exists():
            if _manifest(spec) is not None and not force:
                return
            try:
                os.rename(target, workdir / f"replaced-{attempt}")
            except FileNotFoundError:  # another process has just done the same
                pass
        try:
            os.rename(built, target)
            return
        except OSError:
            if not target.exists():
                raise
    raise OSError(f"{target} keeps being replaced by other processes")


def _remove_abandoned(prepared: Path) -> None:
    """Remove what preparations killed more than a day ago have left."""
    for path in prepared.glob(".building-*"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:  # its owner has removed it meanwhile
            pass


def _ensure(spec: Spec, *, force: bool = False) -> dict[str, Any]:
    """Return the manifest of the prepared set, which is prepared if need be."""
    manifest = None if force else _manifest(spec)
    if manifest is not None:
        return manifest
    prepared = paths.prepared_dir()
    prepared.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(prepared)
    workdir = Path(tempfile.mkdtemp(prefix=f".building-{spec.name}-", dir=prepared))
    try:
        _install(spec, _build(spec, workdir), workdir, force=force)
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
    manifest = _manifest(spec)
    if manifest is None:
        raise OSError(f"{folder_of(spec)} disappeared while it was prepared")
    return manifest


def is_prepared(spec: Spec) -> bool:
    """Return whether the set is on disk (its files are not checked)."""
    return _manifest(spec) is not None


def _verified(spec: Spec, manifest: dict[str, Any]) -> Path:
    """Return the path of ``arrays.npz`` after a check of all files of the set.

    A missing ``arrays.npz`` is made again from the array_record files.
    """
    folder = folder_of(spec)
    for name, expected in manifest["files"].items():
        if name != ARRAYS:
            if not (folder / name).is_file():
                raise ChecksumError(f"{folder / name} is missing. {_advice(spec)}")
            check(folder / name, expected, _advice(spec))
    path = folder / ARRAYS
    if not path.is_file():
        from stkm.datasets.records import read_records

        stored = read_records(folder)
        write_atomically(path, _npz_bytes({split: stored[split] for split in spec.class_counts}))
    check(path, manifest["files"][ARRAYS], _advice(spec))
    return path


def verified_npz(spec: Spec) -> Path:
    """Return the path of the set's ``arrays.npz``, prepared if need be, files checked.

    Its arrays are ``images_<split>`` and ``labels_<split>``.
    """
    return _verified(spec, _ensure(spec))


def prepare(name: str, *, force: bool = False) -> dict[str, Any]:
    """Prepare a data set on disk if it is not there yet, and check its files.

    Parameters
    ----------
    name : str
        One of `available()`.
    force : bool
        Make the set again and replace a prepared one.

    Returns
    -------
    dict
        JSON-ready: name, version, folder, splits, class_counts, content (the
        SHA-256 of images and labels of each split), read_from, files (SHA-256
        of each file in the folder).

    Raises
    ------
    ValueError
        If there is no data set of this name.
    DatasetUnavailable
        If raw files are missing and can't be downloaded.
    ChecksumError
        If a raw or prepared file is not the expected one.

    Examples
    --------
    >>> from stkm import datasets
    >>> made = datasets.prepare("mnist5k")
    >>> made["splits"]
    {'test': 1000, 'train': 4000}
    """
    spec = registry.spec(name)
    manifest = _ensure(spec, force=force)
    _verified(spec, manifest)
    return {key: manifest[key] for key in manifest if key != "recipe"} | {
        "folder": str(folder_of(spec))
    }
