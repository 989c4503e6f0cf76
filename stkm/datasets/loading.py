"""Loading a data set into memory, and its data card."""

from __future__ import annotations

from typing import Any

import numpy as np

from stkm.datasets import registry
from stkm.datasets.sampling import stratified_subset
from stkm.datasets.spec import Dataset, Spec, spaced
from stkm.datasets.store import is_prepared, verified_npz

__all__ = ["describe", "load_dataset"]

_LIMIT_SEED = 0


def describe(name: str) -> dict[str, Any]:
    """Return the data card of a data set, prepared or not.

    Parameters
    ----------
    name : str
        One of `available()`.

    Returns
    -------
    dict
        JSON-ready: name, title, version, description, origin, image_shape,
        splits, class_names, class_counts, citation, licence, homepage,
        raw_files, parameters, differs_from_paper, prepared (bool).

    Raises
    ------
    ValueError
        If there is no data set of this name.

    References
    ----------
    Appendix F of the paper (arXiv 2202.07829); ``differs_from_paper`` says what is not as there.

    Examples
    --------
    >>> from stkm import datasets
    >>> card = datasets.describe("mnist5k")
    >>> card["image_shape"], card["splits"]
    ([28, 28], {'train': 4000, 'test': 1000})
    """
    spec = registry.spec(name)
    return spec.card() | {"prepared": is_prepared(spec)}


def _source(spec: Spec, splits: list[str], taken: int) -> str:
    """Return which images, and how many, in words."""
    kind = {"train": "training images", "test": "test images"}
    total = sum(spec.splits[split] for split in splits)
    words = kind[splits[0]] if len(splits) == 1 else "images (training and test)"
    part = f"{spaced(taken)} of the " if taken < total else ""
    return f"{part}{spaced(total)} {words} of {spec.origin}"


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return the parts end to end; a single one as it is, since it may be large."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def load_dataset(
    name: str,
    split: str | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Return the images and labels of a data set, preparing it if need be.

    Parameters
    ----------
    name : str
        One of `available()`.
    split : {"train", "test"}, optional
        None: the training images followed by the test images.
    size : int or (int, int), optional
        Side, or (height, width), of the images.  The photographs are kept at
        two sizes, as `face10` and `face10_full` say; no set is scaled here.
        None: the size that belongs to the name.
    limit : int, optional
        Take only that many images: a stratified subset by a fixed seed, in the
        order of the whole; a smaller one is part of a larger one.  All images
        if there are fewer.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If the name, the split, the size or the limit is not one of the above.
    DatasetUnavailable
        If raw files are missing and can't be downloaded.
    ChecksumError
        If a raw or prepared file is not the expected one.

    References
    ----------
    Appendix F of the paper (arXiv 2202.07829); `describe` says what is not as there.

    Examples
    --------
    >>> from stkm import load_dataset
    >>> digits = load_dataset("mnist5k", "train", limit=200)
    >>> digits.images.shape, digits.images.dtype, digits.n_classes
    ((200, 28, 28), dtype('uint8'), 10)
    """
    spec = registry.spec(name if size is None else registry.at_size(name, size))
    if split is not None and split not in spec.class_counts:
        known = ", ".join(map(repr, spec.class_counts))
        raise ValueError(f"unknown split {split!r} of {name!r}: choose {known} or None")
    if limit is not None and (
        isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 1
    ):
        raise ValueError(f"limit is {limit!r}; it must be a whole number of at least 1, or None")
    splits = list(spec.class_counts) if split is None else [split]
    with np.load(verified_npz(spec), allow_pickle=False) as stored:  # reads what is asked for
        images, labels = (
            _joined([stored[f"{part}_{s}"] for s in splits]) for part in ("images", "labels")
        )
    if limit is not None and limit < len(labels):
        rows = stratified_subset(labels, int(limit), _LIMIT_SEED)
        images, labels = images[rows], labels[rows]
    return Dataset(
        name=spec.name,
        images=images,
        labels=labels,
        class_names=spec.class_names,
        split="+".join(splits),
        source=_source(spec, splits, len(labels)),
        version=spec.version,
        licence=spec.licence,
        citation=spec.citation,
    )
