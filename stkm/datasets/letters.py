"""Handwritten Latin letters: `emnist_letters`, a part of it, and a stand-in.

`emnist_letters`
    The paper's set, 26 classes: 124 800 training and 20 800 test images, from
    the publisher's ``gzip.zip`` in ``STKM_DATA_DIR/emnist_letters``, among the
    downloads of tensorflow-datasets, or from the publisher.  The set that
    tensorflow-datasets itself prepares is not used: its ``emnist/letters``
    stops after 88 800 and 14 800 images of the same files, and the test
    images are sorted by letter, so the last letters are missing there.
`emnist_letters_am`
    The first 10 000 of the 20 800 test images: 13 of the 26 classes.
`az_letters`
    Another set, capitals only, that has all 26 classes.

The publisher's files hold the images transposed; ours are upright.
"""

from __future__ import annotations

import string

import numpy as np

from stkm.datasets import files
from stkm.datasets.errors import ChecksumError
from stkm.datasets.mnist import read_idx
from stkm.datasets.raw import hold_out, members, obtain_npz, provenance
from stkm.datasets.spec import Arrays, RawFile, Spec

__all__ = ["SPECS"]

_SEED = 0
_SHAPE = (28, 28)
_ADDRESS = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"

# The sum is the one that tensorflow-datasets publishes for the same address.
_ZIP = RawFile(
    "gzip.zip",
    "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
    _ADDRESS,
    _ADDRESS,
    561753746,
)
_PART = RawFile(
    "emnist_letters.npz",
    "d1f5e79aa90a3f8d8b536a0b581dadd887ce59faa431a2d0087704a84a7e5a2f",
    "no public address: arrays x_test, y_test made from dataset/test.tar.gz of "
    "https://github.com/dxsim/emnist-letter-csv-png (commit 31d2e76a) and the labels of "
    "https://github.com/CiuffysHub/EMNIST-Letters-Lab (commit 56da8664)",
    size=2395170,
)
_CAPITALS = RawFile(
    "az_letters.npz",
    "dd8c36562ff2de44343773ec0c058f502ca441930b3ac16744a3cb4c852a44a4",
    "no public address: arrays x, y made from data/raw/sample-uniform-distribution.parquet of "
    "https://github.com/jExbrayat/recognize-handwritten-letters (commit 1c4ca5f8)",
    size=584604,
)

_IDX = r"(?:.*/)?emnist-letters-(train|test)-(images-idx3|labels-idx1)-ubyte\.gz"


def _read_letters() -> tuple[Arrays, list[dict[str, str]]]:
    """Read the letters split from the publisher's archive; nothing is unpacked to disk."""
    alternative = (
        "A part of 10 000 images has a name of its own, 'emnist_letters_am'; 'az_letters' is "
        "another set of 26 letters."
    )
    path = files.obtain("emnist_letters", [[_ZIP]], alternative=alternative)[_ZIP.name]
    part = {m.group(1, 2): read_idx(data, m[0]) for m, data in members(path, _IDX)}
    if len(part) != 4:
        raise ChecksumError(f"{path} has {len(part)} of the four files of the letters split")
    arrays = {
        split: (
            np.ascontiguousarray(part[split, "images-idx3"].transpose(0, 2, 1)),
            part[split, "labels-idx1"].astype(np.int64) - 1,
        )
        for split in ("train", "test")
    }
    return arrays, provenance(_ZIP)


_PART_TEST = 3325
"""A third of the 10 000 images, in equal shares of each class: 266 of 800, 133 of 400."""


def _read_part() -> tuple[Arrays, list[dict[str, str]]]:
    """Read the 10 000 test images and hold a third of them out for testing."""
    stored, source = obtain_npz("emnist_letters_am", _PART, folder="emnist_letters")
    return hold_out(stored["x_test"], stored["y_test"], _PART_TEST, _SEED), source


_CAPITALS_TEST = 988
"""A third of the 2 990 images, as many of each class: 38 of 115."""


def _read_capitals() -> tuple[Arrays, list[dict[str, str]]]:
    """Read the capitals and hold a third of them out for testing."""
    stored, source = obtain_npz("az_letters", _CAPITALS)
    return hold_out(stored["x"], stored["y"], _CAPITALS_TEST, _SEED), source


_CITATION = (
    "@inproceedings{cohen2017emnist,\n"
    "  author    = {Cohen, Gregory and Afshar, Saeed and Tapson, Jonathan and van Schaik, "
    "Andr{\\'e}},\n"
    "  title     = {{EMNIST}: Extending {MNIST} to handwritten letters},\n"
    "  booktitle = {International Joint Conference on Neural Networks},\n"
    "  pages     = {2921--2926},\n"
    "  year      = {2017}\n"
    "}"
)

LETTERS = Spec(
    name="emnist_letters",
    title="E-MNIST Letters",
    version="1.0.0",
    description=(
        "The 26 letters, upper and lower case together, from NIST Special Database 19, made as "
        "MNIST was. 28×28, white strokes on black, upright. Rows are in the publisher's order."
    ),
    origin="E-MNIST letters",
    image_shape=_SHAPE,
    class_names=tuple(string.ascii_lowercase),
    class_counts={"train": (4800,) * 26, "test": (800,) * 26},
    citation=_CITATION,
    licence="none stated by the publisher",
    homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    read=_read_letters,
    raw_files=(_ZIP,),
)

LETTERS_AM = Spec(
    name="emnist_letters_am",
    title="E-MNIST Letters a–m (a part)",
    version="1.0.0",
    description=(
        "The first 10 000 of the 20 800 test images of E-MNIST letters, which are sorted by "
        "letter: 800 of each of a–l, 400 of m. A third is held out for testing, stratified, by "
        "a fixed seed. 28×28, white strokes on black, upright."
    ),
    origin="a part of E-MNIST letters (a–m only)",
    image_shape=_SHAPE,
    class_names=tuple(string.ascii_lowercase[:13]),
    class_counts={"train": (534,) * 12 + (267,), "test": (266,) * 12 + (133,)},
    citation=_CITATION,
    licence="none stated by the publisher; the copy that the images come from: GPL-3.0",
    homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    read=_read_part,
    raw_files=(_PART,),
    content={
        "train": (
            "3f9ef1d76d29582fce028dc4d2f08fd3c02407818c34b2edbc86228781d379cb",
            "e37b9697556058e5a626ffff8abc7ea8c2a83539275a2ddb432342ee5564bf17",
        ),
        "test": (
            "a726e6956ba2d145d2080ace143318b1904a047c270c795b7f206e58e025b4c0",
            "d25bbc04fe0f60612acf315aa2a2d25a37b9b2277578510d063a1d3f1a7aa721",
        ),
    },
    parameters={"seed": _SEED},
    differs=(
        "10 000 of 145 600 images, 13 of 26 classes, and a split of our own: a score on 13 "
        "classes does not stand beside the paper's on 26"
    ),
)

CAPITALS = Spec(
    name="az_letters",
    title="A–Z capitals (a stand-in)",
    version="1.0.0",
    description=(
        "Handwritten capitals, 115 a letter, a sample of the public table 'A-Z handwritten "
        "alphabets'. A third (38 a letter) is held out for testing, stratified, by a fixed "
        "seed. 28×28, white strokes on black, upright. 17 images repeat others exactly, and a "
        "few labels look wrong."
    ),
    origin="A–Z capitals, another set than E-MNIST",
    image_shape=_SHAPE,
    class_names=tuple(string.ascii_uppercase),
    class_counts={"train": (77,) * 26, "test": (38,) * 26},
    citation=(
        "@misc{azletters,\n"
        "  title        = {{A-Z} handwritten alphabets},\n"
        "  author       = {Patel, Sachin},\n"
        "  howpublished = {Kaggle},\n"
        "  note         = {a sample of 2 990, from github.com/jExbrayat/"
        "recognize-handwritten-letters}\n"
        "}"
    ),
    licence="none stated by the publisher of the sample",
    homepage="https://github.com/jExbrayat/recognize-handwritten-letters",
    read=_read_capitals,
    raw_files=(_CAPITALS,),
    content={
        "train": (
            "fbd68a1d5dcd5c3dedcba25da2940937be83112e8f6acc957bcb81476bc59e08",
            "1b89c1cb5e7b4c2077182f92a7b64e8b5013802d48f7700dc5bfaa700128e730",
        ),
        "test": (
            "f09d5629ba2c9d593c698724afbddae76b96a4bc25ec79f32f712cc8c5fb07b3",
            "f6bb24e100fd947e9e5f5453265b3c5ca032a7b6087fcd11068b279c1c7b81ae",
        ),
    },
    parameters={"seed": _SEED},
    differs=(
        "not E-MNIST: capitals only, other cropping and smoothing, 115 images a class, and a "
        "split of our own; it is here because it has all 26 letters"
    ),
)

SPECS = (LETTERS, LETTERS_AM, CAPITALS)
