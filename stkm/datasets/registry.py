"""The list of data sets: a name, and the module that describes it.

To add a data set, write a module beside this one with a tuple ``SPECS`` of
`stkm.datasets.spec.Spec`, and name it here.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

from stkm.datasets.spec import Spec

__all__ = ["at_size", "available", "spec"]

MODULES = {
    "mnist": "mnist",
    "mnist5k": "mnist5k",
    "affine_mnist": "warped",
    "diffeo_mnist": "warped",
    "audio_mnist": "speech",
    "audio_mnist_4": "speech",
    "fsdd": "speech",
    "emnist_letters": "letters",
    "emnist_letters_am": "letters",
    "az_letters": "letters",
    "rock_paper_scissors": "photographs",
    "rock_paper_scissors_full": "photographs",
    "face10": "photographs",
    "face10_full": "photographs",
    "arabic_char": "arabic",
    "usps": "usps",
}


def available() -> tuple[str, ...]:
    """Return the names of all data sets that `load_dataset` knows.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from stkm import datasets
    >>> "mnist5k" in datasets.available()
    True
    """
    return tuple(MODULES)


def spec(name: str) -> Spec:
    """Return the description of the data set called `name`.

    Raises
    ------
    ValueError
        If there is none; the message lists the names and the nearest one.
    """
    if not isinstance(name, str) or name not in MODULES:
        near = difflib.get_close_matches(str(name), MODULES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown data set {name!r}: known are {', '.join(MODULES)}{hint}")
    module = import_module(f"stkm.datasets.{MODULES[name]}")
    return next(spec for spec in module.SPECS if spec.name == name)


def at_size(name: str, size: int | tuple[int, int]) -> str:
    """Return the name under which the set `name` is kept at (height, width) `size`.

    Raises
    ------
    ValueError
        If there is no such set, or it is not kept at this size; the message
        lists the sizes.
    """
    spec(name)
    base = name.removesuffix("_full")
    kept = {
        spec(other).image_shape[:2]: other for other in (base, f"{base}_full") if other in MODULES
    }
    whole = isinstance(size, int) and not isinstance(size, bool)
    wanted: Any = (
        (size, size) if whole else tuple(size) if isinstance(size, (tuple, list)) else None
    )
    if wanted not in kept:
        sizes = " or ".join(map(str, kept))
        raise ValueError(f"size is {size!r}; {base!r} is kept at (height, width) {sizes}")
    return kept[wanted]
