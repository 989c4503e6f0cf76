"""What a data set is: its description (`Spec`) and its images in memory (`Dataset`).

A data set of the project is one module with a `Spec`: plain values that say
what the set holds, and a function that reads its images from the raw files.
From the `Spec` come the tensorflow-datasets builder (`records`), the checks
(`store`) and the data card (`describe`).  Nothing here imports
tensorflow-datasets, so reading a card or a prepared set costs nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Arrays", "Dataset", "RawFile", "Spec", "array_sha256", "spaced"]

Arrays = dict[str, tuple[np.ndarray, np.ndarray]]
"""Images (N, H, W[, C]) uint8 and labels (N,) int64 of each split."""


def spaced(number: int) -> str:
    """Return `number` with a space between groups of three digits, as ``60 000``."""
    return f"{number:,}".replace(",", " ")


def array_sha256(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's elements in C order, as 64 hex digits.

    Type and shape are not part of the sum: they are compared on their own.
    """
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@dataclass(frozen=True)
class RawFile:
    """A file as its publisher offers it.

    Attributes
    ----------
    name : str
        File name, without a folder.
    sha256 : str
        64 hexadecimal digits.
    published : str
        Where it comes from: an address, or words where there is none.
    url : str, optional
        Address that the file itself can be downloaded from.
    size : int, optional
        Bytes.
    """

    name: str
    sha256: str
    published: str
    url: str | None = None
    size: int | None = None


@dataclass(frozen=True, eq=False)
class Spec:
    """Everything that is known of a data set before its images are read.

    Attributes
    ----------
    name, title, version, description, citation, licence, homepage : str
        `version` is ``major.minor.patch``; raise it whenever the images, their
        order or their labels change, since prepared copies are kept by it.
    origin : str
        The set in words, as it stands behind "images of" in a table.
    image_shape : tuple of int
        (H, W) or (H, W, C), pixels.
    class_names : tuple of str
        Label i is called ``class_names[i]``.
    class_counts : dict of str to tuple of int
        Images per class, for each split, in the order train, test.
    raw_files : tuple of RawFile
        The files that the set is made from; empty for a generated set.
    content : dict of str to (str, str)
        SHA-256 of the images and of the labels of each split as the bytes of
        uint8 arrays.  Empty where the images are computed, because the last
        bit of a computed pixel may depend on the machine.
    parameters : dict
        Numbers that the images depend on (seeds, ranges), for the data card.
    differs : str
        How the set differs from the one that the paper describes.
    read : callable
        Returns ``(arrays, provenance)``: `Arrays`, and a list of dicts with
        the file name and SHA-256 of what was read.
    """

    name: str
    title: str
    version: str
    description: str
    origin: str
    image_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    class_counts: Mapping[str, tuple[int, ...]]
    citation: str
    licence: str
    homepage: str
    read: Callable[[], tuple[Arrays, list[dict[str, str]]]]
    raw_files: tuple[RawFile, ...] = ()
    content: dict[str, tuple[str, str]] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    differs: str = "no difference"

    @property
    def splits(self) -> dict[str, int]:
        """Images of each split."""
        return {split: sum(counts) for split, counts in self.class_counts.items()}

    @property
    def recipe(self) -> str:
        """SHA-256 of what the prepared images depend on; other recipe, other images."""
        parts = {
            "name": self.name,
            "version": self.version,
            "image_shape": self.image_shape,
            "class_names": self.class_names,
            "class_counts": self.class_counts,
            "raw_files": [(raw.name, raw.sha256) for raw in self.raw_files],
            "content": self.content,
            "parameters": self.parameters,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def card(self) -> dict[str, Any]:
        """Return the data card: JSON-ready values only."""
        return {
            "name": self.name,
            "title": self.title,
            "version": self.version,
            "description": self.description,
            "origin": self.origin,
            "image_shape": list(self.image_shape),
            "splits": self.splits,
            "class_names": list(self.class_names),
            "class_counts": {split: list(c) for split, c in self.class_counts.items()},
            "citation": self.citation,
            "licence": self.licence,
            "homepage": self.homepage,
            "raw_files": [vars(raw) | {} for raw in self.raw_files],
            "parameters": json.loads(json.dumps(self.parameters)),
            "differs_from_paper": self.differs,
        }


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images and labels of one split, or of both.

    Attributes
    ----------
    name : str
        Name of the data set.
    images : ndarray of uint8, (N, H, W) or (N, H, W, C)
        Values 0 to 255, rows first, upright, strokes bright on dark.
    labels : ndarray of int64, (N,)
        Values 0 to ``n_classes - 1``.
    class_names : tuple of str
        Name of each label.
    split : str
        ``"train"``, ``"test"`` or ``"train+test"``.
    source : str
        Which images, and how many, in words for tables.
    version, licence, citation : str
        As in the data card.

    Raises
    ------
    ValueError
        By `load_dataset`, which makes it.

    Examples
    --------
    >>> from stkm import load_dataset
    >>> digits = load_dataset("mnist5k", "test", limit=30)
    >>> len(digits), digits.split, digits.labels.dtype
    (30, 'test', dtype('int64'))
    """

    name: str
    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    split: str
    source: str
    version: str
    licence: str
    citation: str

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        """Number of classes of the data set, present in this split or not.

        Examples
        --------
        >>> from stkm import load_dataset
        >>> load_dataset("mnist5k", "test", limit=30).n_classes
        10
        """
        return len(self.class_names)

    @property
    def counts(self) -> dict[str, int]:
        """Images of each class.

        Examples
        --------
        >>> from stkm import load_dataset
        >>> load_dataset("mnist5k", "test", limit=30).counts["7"]
        3
        """
        found = np.bincount(self.labels, minlength=self.n_classes)
        return dict(zip(self.class_names, found.tolist(), strict=True))

    def __repr__(self) -> str:
        """Say what is inside without printing arrays."""
        shape = "×".join(map(str, self.images.shape))
        return f"Dataset({self.name!r}, {self.split}, images {shape} uint8, {self.source})"
