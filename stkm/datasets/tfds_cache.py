"""Reading a data set that tensorflow-datasets has prepared, without tensorflow.

Its prepared sets are shuffled: examples are sorted by a hash of their key
(salted with the split's name).  For a set whose keys are 0 … N - 1 and which
has one shard a split, the order of the original files can be restored.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stkm.datasets import files
from stkm.datasets.errors import ChecksumError
from stkm.datasets.spec import Arrays

__all__ = ["read_prepared"]


def _tfrecords(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file.

    Each record is its length (64 bits, little-endian), a checksum of the
    length (32), the bytes, and a checksum of the bytes (32).  The checksums
    are left alone: the images are compared with a SHA-256 later.
    """
    stream = io.BytesIO(path.read_bytes())
    while head := stream.read(12):
        if len(head) < 12:
            raise ValueError(f"{path} is cut short")
        (length,) = struct.unpack_from("<Q", head)
        record = stream.read(length)
        if len(record) < length or len(stream.read(4)) < 4:
            raise ValueError(f"{path} is cut short")
        yield record


def _array_records(path: Path) -> Iterator[bytes]:
    """Yield the records of an array_record file."""
    from array_record.python import array_record_module

    reader = array_record_module.ArrayRecordReader(str(path))
    try:
        yield from reader.read_all()
    finally:
        reader.close()


def _records(folder: Path, name: str, split: str) -> Iterator[bytes]:
    """Yield the records of a split that is stored in one file of either format."""
    for ending, read in (("tfrecord", _tfrecords), ("array_record", _array_records)):
        path = folder / f"{name}-{split}.{ending}-00000-of-00001"
        if path.is_file():
            return read(path)
    raise ValueError(f"{folder} holds no single file of the split {split!r} of {name!r}")


def _original_places(split: str, size: int) -> np.ndarray:
    """Return the key of each stored example, for keys 0 … size - 1."""
    import tensorflow_datasets as tfds

    hasher = tfds.core.hashing.Hasher(split)
    return np.array(sorted(range(size), key=hasher.hash_key))


def _decode(features: Any, record: bytes) -> tuple[np.ndarray, int]:
    """Return image (H, W) or (H, W, C) and label of a record with a PNG or JPEG image."""
    from PIL import Image

    example = features.deserialize_example_np(record)
    image = example["image"]
    if isinstance(image, bytes):
        with Image.open(io.BytesIO(image)) as picture:
            image = np.asarray(picture)
    image = np.asarray(image, np.uint8)
    if image.ndim == 3 and image.shape[-1] == 1:
        image = image[..., 0]
    return image, int(example["label"])


def read_prepared(
    name: str, version: str, splits: dict[str, int]
) -> tuple[Arrays, list[dict[str, str]]]:
    """Read a set with features ``image`` and ``label`` in its original order.

    Parameters
    ----------
    name, version : str
        Folder below tensorflow-datasets' cache.
    splits : dict of str to int
        Images that each split must have.

    Returns
    -------
    arrays, provenance
        As `Spec.read` returns them.  Whether the order is right is for the
        caller to check, by the SHA-256 of the arrays.

    Raises
    ------
    ChecksumError
        If a split has another number of images.
    ValueError
        If a file is missing or cut short.
    """
    import tensorflow_datasets as tfds

    folder = files.tfds_cache() / name / version
    features = tfds.builder_from_directory(str(folder)).info.features
    arrays = {}
    for split, size in splits.items():
        pairs = [_decode(features, record) for record in _records(folder, name, split)]
        if len(pairs) != size:
            raise ChecksumError(f"{folder} has {len(pairs)} images in {split!r}, not {size}")
        order = np.argsort(_original_places(split, size))
        arrays[split] = (
            np.stack([image for image, _ in pairs])[order],
            np.array([label for _, label in pairs], np.int64)[order],
        )
    return arrays, [{"file": f"tensorflow-datasets: {name} {version}", "sha256": ""}]
