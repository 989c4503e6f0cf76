"""Images that need not fit in memory: any sequence of them, read in blocks.

A sequence is an array, a memory-mapped ``.npy`` (``numpy.load(path, mmap_mode="r")``), a
tensorflow-datasets data source, or anything with ``__len__`` and ``__getitem__``. Each block is
checked and converted as `stkm.validation.check_images` does it: float32, in the images' own scale
(integers stay 0–255).
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse
from sklearn import get_config

from .validation import check_images, check_real

__all__ = ["Images", "as_array", "block_length", "fits", "is_sequence", "row_bytes"]


class Images:
    """A checked sequence of images of one shape; nothing is read but one image and what is asked.

    Parameters
    ----------
    X : (N, H, W[, C]) or flat (N, H*W*C) with ``image_shape``; or a sequence whose items are
        images, or records: mappings with an ``"image"``, tuples that begin with one

    Attributes
    ----------
    shape : (H, W, C); grey : whether the images came without channels; features : columns of the
        table that they came from, where the estimator has noted it

    Raises
    ------
    ValueError : as `check_images`, on the first image or on the block that is wrong

    Examples
    --------
    >>> import numpy as np
    >>> from stkm.blocks import Images
    >>> records = [{"image": np.full((8, 8), i, np.uint8)} for i in range(5)]
    >>> class Records:
    ...     def __len__(self):
    ...         return len(records)
    ...
    ...     def __getitem__(self, index):
    ...         return records[index]
    >>> images = Images(Records())
    >>> len(images), images.shape, images[1:3].dtype
    (5, (8, 8, 1), dtype('float32'))
    """

    def __init__(self, X, image_shape=None):
        self.image_shape, self.features = image_shape, None
        self.lazy = is_sequence(X)
        self.source = X if self.lazy else np.asarray(X)
        if self.lazy and not len(X):
            raise ValueError("Found array with 0 image(s), while a minimum of 1 is required")
        first = self._raw(slice(0, 1)) if self.lazy or self._is_set() else X
        images, self.grey = check_images(first, image_shape)
        self.shape = images.shape[1:]

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        """Images ``(n, H, W, C)`` float32 of a slice, or of an array of numbers."""
        raw = self._raw(index)
        try:
            images, grey = check_images(raw, self.image_shape)
        except ValueError as error:
            raise ValueError(f"{_named(index)}: {error}") from None
        if images.shape[1:] != self.shape or grey != self.grey:
            raise ValueError(f"{_named(index)}: shape {raw.shape[1:]}, the first has {self.shape}")
        return images

    def given(self, index):
        """The same without the axis of channels where the images came without: for checks.

        Raises
        ------
        ValueError : as the images of the index raise it

        Examples
        --------
        >>> import numpy as np
        >>> from stkm.blocks import Images
        >>> Images(np.zeros((5, 8, 8))).given(slice(2)).shape
        (2, 8, 8)
        """
        images = self[index]
        return images[..., 0] if self.grey else images

    def _is_set(self):
        """Whether the array is surely several images: what is not is for `check_images` to name."""
        shape = self.source.shape
        colour = len(shape) == 3 and shape[2] in (1, 3, 4) and min(shape[:2]) >= 8
        flat = len(shape) == 2 and self.image_shape is not None
        return (flat or len(shape) in (3, 4)) and shape[0] > 0 and not colour

    def _raw(self, index):
        """What the sequence holds there, as one array."""
        if not self.lazy:
            return np.asarray(self.source[index])
        if isinstance(index, slice):
            index = range(*index.indices(len(self.source)))
        index = [int(i) for i in index]
        many = getattr(self.source, "__getitems__", None)
        items = many(index) if many else [self.source[i] for i in index]
        return _stack([_image_of(item) for item in items], index)


def as_array(X):
    """A sequence read whole; what is an array, a list or a table stays as it is."""
    return Images(X)._raw(slice(None)) if is_sequence(X) and len(X) else X


def fits(X, size):
    """Whether X is in memory already, and at most ``size`` images."""
    if isinstance(X, Images) or is_sequence(X):
        return False
    shape = getattr(X, "shape", None)
    return (shape[0] if shape else len(X) if isinstance(X, (list, tuple)) else 0) <= size


def is_sequence(X):
    """Whether X is to be read item by item: no array, no list of numbers, no table."""
    known = (list, tuple, str, bytes, dict)
    if isinstance(X, known) or hasattr(X, "__array__") or hasattr(X, "dtypes") or issparse(X):
        return False
    return hasattr(X, "__len__") and hasattr(X, "__getitem__")


def _image_of(item):
    if isinstance(item, dict):
        if "image" not in item:
            raise ValueError(f"records need an 'image', these have {sorted(item)}")
        return np.asarray(item["image"])
    return np.asarray(item[0] if isinstance(item, tuple) else item)


def _stack(items, index):
    for i, item in zip(index, items, strict=True):
        if item.shape != items[0].shape:
            raise ValueError(f"image {i} has shape {item.shape}, image {index[0]} {items[0].shape}")
    return np.stack(items)


def _named(index):
    if isinstance(index, slice):
        return f"images {index.start} to {index.stop - 1}"
    return f"images between {min(index)} and {max(index)}"


def row_bytes(shape, n_clusters, size):
    """Bytes at work for an image whose distances to all centroids are computed, at most.

    Packed copies of the image and of its low-passed copy take 16 bytes a pixel each, what makes
    them as much again; displacements ``size`` = 2L for each centroid three times 4.
    """
    return 80 * int(np.prod(shape)) + n_clusters * (12 * size + 16)


def block_length(bytes_each, memory_limit=None):
    """Images in a block: a power of two, at least 64, whose work fits in ``memory_limit`` MiB.

    None is scikit-learn's ``working_memory``, 1024 MiB where nobody changed it.

    Raises
    ------
    ValueError : the limit is no positive number
    """
    limit = get_config()["working_memory"] if memory_limit is None else memory_limit
    if not check_real("memory_limit", limit) > 0:
        raise ValueError(f"memory_limit={limit!r}: expected a number of MiB above 0")
    return 1 << max(6, int(limit * 2**20 / bytes_each).bit_length() - 1)
