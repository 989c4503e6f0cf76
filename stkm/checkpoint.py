"""Files from which a long fit goes on: one ``.npz``, put in place whole, read without pickle.

A file says which fit it is of: the estimator, its parameters, and a hash of images and weights. It
is refused where it is damaged, of another program or version, or of another fit.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib

import numpy as np

from .paths import atomic_path

__all__ = ["digest", "identity", "read", "write"]

FORMAT, VERSION = "stkm checkpoint", 1
NO_RESULT = ("verbose", "memory_limit", "devices")  # parameters that decide no result
BROKEN = (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, zlib.error)


def write(path, meta, arrays):
    """Keep ``meta`` (what JSON can hold) and named arrays; an old file stays until this is whole.

    ``arrays`` may hold mappings of arrays, and None for what is not there.
    """
    text = json.dumps({"format": FORMAT, "version": VERSION, **meta}, default=_plain)
    flat = dict(_flat(arrays))
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, meta=np.frombuffer(text.encode(), np.uint8), **flat)
        file.flush()
        os.fsync(file.fileno())


def read(path, expected):
    """(meta, arrays) of a file, or None where there is none.

    Parameters
    ----------
    expected : `identity` of the fit that wants to go on

    Raises
    ------
    ValueError : the file is damaged, no checkpoint, of another version, or of another fit
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays.pop("meta").tobytes().decode())
        form, version = meta["format"], meta["version"]
    except FileNotFoundError:
        return None
    except (*BROKEN, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged or no checkpoint ({error}): remove it to start over"
        ) from None
    if form != FORMAT:
        raise ValueError(f"{path} is no checkpoint of stkm: remove it to start over")
    if version != VERSION:
        raise ValueError(f"{path} has version {version} of the format, this stkm has {VERSION}")
    there = meta["identity"]
    for name in sorted({*there, *expected}, key=lambda name: (name != "estimator", name)):
        if there.get(name) != expected.get(name):
            raise ValueError(
                f"{path} is of another fit: {name} is {there.get(name)!r} there, "
                f"{expected.get(name)!r} here"
            )
    return meta, _nested(arrays)


def identity(estimator, images, weights, **more):
    """What has to be the same for a fit to go on: class, parameters that decide, data, ``more``."""
    params = estimator.get_params(deep=False)
    found = {name: _named(value) for name, value in params.items() if name not in NO_RESULT}
    found |= {"estimator": type(estimator).__name__, "images": digest(images)}
    return json.loads(json.dumps(found | more | {"weights": digest(weights)}, default=_plain))


def digest(array):
    """SHA-256 of an array's shape, type and values."""
    array = np.ascontiguousarray(array)
    sum_ = hashlib.sha256(f"{array.shape} {array.dtype}".encode())
    sum_.update(array.data)
    return sum_.hexdigest()


def _named(value):
    if isinstance(value, np.random.RandomState):
        return "RandomState"  # its seed is drawn once, and kept in the file
    if callable(value):
        return getattr(value, "__qualname__", repr(value))
    return digest(value) if isinstance(value, (np.ndarray, list)) else value


def _plain(value):
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{value!r} is nothing that a checkpoint can hold")


def _flat(arrays, prefix=""):
    for name, value in arrays.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, value


def _nested(flat):
    out = {}
    for name, value in flat.items():
        *groups, last = name.split(".")
        inner = out
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return out
