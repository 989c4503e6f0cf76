"""Errors of the data sets, each saying what to do next."""

from __future__ import annotations

__all__ = ["ChecksumError", "DatasetUnavailable", "FolderNotFound"]


class DatasetUnavailable(FileNotFoundError):
    """Raw files are neither on this machine nor to be downloaded.

    The message names each file, the folder to put it in, its SHA-256 and the
    address where it is published.

    Examples
    --------
    >>> from stkm.datasets import DatasetUnavailable
    >>> issubclass(DatasetUnavailable, FileNotFoundError)
    True
    """


class ChecksumError(ValueError):
    """A file or an array is not the expected one; the message has both sums.

    The file is left as it is, for its owner to look at.

    Examples
    --------
    >>> from stkm.datasets import ChecksumError
    >>> issubclass(ChecksumError, ValueError)
    True
    """


class FolderNotFound(FileNotFoundError, ValueError):
    """A folder of images given by the user does not exist.

    Examples
    --------
    >>> from stkm import load_images
    >>> load_images("no such folder")
    Traceback (most recent call last):
        ...
    stkm.datasets.errors.FolderNotFound: no folder no such folder
    """
