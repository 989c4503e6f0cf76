"""MNIST: 60 000 training and 10 000 test images of handwritten digits.

Sources, in this order: ``STKM_DATA_DIR/mnist`` (one ``mnist.npz``, or the four
files of the publisher), tensorflow-datasets' cache (its downloads, or its own
prepared ``mnist``), the publisher.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path

import numpy as np

from stkm.datasets import files
from stkm.datasets.errors import ChecksumError
from stkm.datasets.raw import load_npz, provenance, splits_of
from stkm.datasets.spec import Arrays, RawFile, Spec

__all__ = ["MAX_IDX", "SPECS", "read_idx"]

MAX_IDX = 2**30
"""Largest unpacked IDX file, in bytes, ten times those of E-MNIST: gzip packs a thousandfold."""

_ADDRESS = "https://storage.googleapis.com/cvdf-datasets/mnist/"


def _raw(name: str, size: int, sha256: str) -> RawFile:
    return RawFile(name, sha256, _ADDRESS + name, _ADDRESS + name, size)


# The sums are those that tensorflow-datasets publishes for the same addresses.
_IDX = {
    ("train", "images"): _raw(
        "train-images-idx3-ubyte.gz",
        9912422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    ("train", "labels"): _raw(
        "train-labels-idx1-ubyte.gz",
        28881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    ("test", "images"): _raw(
        "t10k-images-idx3-ubyte.gz",
        1648877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    ("test", "labels"): _raw(
        "t10k-labels-idx1-ubyte.gz",
        4542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
}

_NPZ = RawFile(
    "mnist.npz",
    "06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
    "no public address: the same images as the four files, in one",
)


def read_idx(data: bytes, name: str, limit: int = MAX_IDX) -> np.ndarray:
    """Return the array in an IDX file of unsigned bytes, gzip-compressed or not.

    The format: two zero bytes, the type (8 = unsigned byte), the number of
    axes, the length of each axis as a big-endian 32-bit integer, the elements
    in C order.

    Parameters
    ----------
    data : bytes
    name : str
        For messages.
    limit : int
        Bytes that the file may have when it is unpacked.

    Raises
    ------
    ChecksumError
        (a ValueError) if there are more than `limit` bytes; no more are unpacked.
    ValueError
        If the contents are something else, or cut short.
    """
    try:
        if data[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(limit + 1)
            if len(data) > limit:
                raise ChecksumError(f"{name} unpacks to more than {limit} bytes")
        zero, kind, axes = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{axes}I", data, 4)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise ValueError(f"{name} is not a readable IDX file: {error}") from error
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * axes)
    if (zero, kind) != (0, 8) or body.size != np.prod(shape, dtype=np.int64):
        raise ValueError(
            f"{name} is not an IDX file of bytes: type {kind}, "
            f"{body.size} bytes for the shape {shape}"
        )
    return body.reshape(shape)


def _read_npz(path: Path) -> tuple[Arrays, list[dict[str, str]]]:
    """Read the four arrays from ``mnist.npz``, whose sum is checked first."""
    files.check(path, _NPZ.sha256, files.ADVICE)
    return splits_of(load_npz(path)), provenance(_NPZ)


def _read_idx_files(found: dict[str, Path]) -> tuple[Arrays, list[dict[str, str]]]:
    """Read the publisher's four files."""
    part = {
        key: read_idx(found[raw.name].read_bytes(), str(found[raw.name]))
        for key, raw in _IDX.items()
    }
    arrays = {
        split: (part[split, "images"], part[split, "labels"].astype(np.int64))
        for split in ("train", "test")
    }
    return arrays, provenance(*_IDX.values())


def _read() -> tuple[Arrays, list[dict[str, str]]]:
    """Read MNIST from the first source that has it (see the module's text)."""
    folder = files.raw_folder("mnist")
    if (folder / _NPZ.name).is_file():
        return _read_npz(folder / _NPZ.name)
    copies = {raw.name: files.find("mnist", raw) for raw in _IDX.values()}
    found = {name: path for name, path in copies.items() if path is not None}
    missing = [raw for raw in _IDX.values() if raw.name not in found]
    if missing:
        if (files.tfds_cache() / "mnist" / "3.0.1" / "dataset_info.json").is_file():
            from stkm.datasets.tfds_cache import read_prepared

            return read_prepared("mnist", "3.0.1", MNIST.splits)
        alternative = (
            f"Or one file {_NPZ.name} with arrays x_train, y_train, x_test, y_test "
            f"(SHA-256 {_NPZ.sha256})."
        )
        found |= files.download("mnist", missing, alternative)
    return _read_idx_files(found)


MNIST = Spec(
    name="mnist",
    title="MNIST",
    version="1.0.0",
    description=(
        "Handwritten digits by some 500 writers, scaled into 20×20 pixels and centred by mass "
        "in 28×28. White strokes on black. Rows are in the publisher's order."
    ),
    origin="MNIST",
    image_shape=(28, 28),
    class_names=tuple("0123456789"),
    class_counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    citation=(
        "@article{lecun1998gradient,\n"
        "  author  = {LeCun, Yann and Bottou, L{\\'e}on and Bengio, Yoshua and Haffner, Patrick},\n"
        "  title   = {Gradient-based learning applied to document recognition},\n"
        "  journal = {Proceedings of the IEEE},\n"
        "  volume  = {86},\n"
        "  number  = {11},\n"
        "  pages   = {2278--2324},\n"
        "  year    = {1998}\n"
        "}"
    ),
    licence="none stated by the publisher",
    homepage="http://yann.lecun.com/exdb/mnist/",
    read=_read,
    raw_files=tuple(_IDX.values()),
    content={
        "train": (
            "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        ),
        "test": (
            "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
        ),
    },
)

SPECS = (MNIST,)
