"""Photographs in colour: `rock_paper_scissors` and `face10`, small and at full size.

Each set is kept at two sizes.  The small one is the default of the project:

=========================  =========  ==========================================
`rock_paper_scissors`      64×64      means of areas of the 300×300 originals
`rock_paper_scissors_full` 300×300    the originals
`face10`                   72×96      means of 4×4 pixels of the originals
`face10_full`              288×384    the originals (height × width)
=========================  =========  ==========================================

The originals are read from a zip without unpacking it.  A picture of another
size than expected is refused before it is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from stkm.datasets import files
from stkm.datasets.errors import ChecksumError
from stkm.datasets.raw import decode, hold_out, load_npz, members, provenance, splits_of
from stkm.datasets.spec import Arrays, RawFile, Spec

__all__ = ["SPECS"]

_LIMIT = 4 * 2**20
"""Bytes that the file of one picture may have."""

_Source = tuple[Arrays, list[dict[str, str]]]


def _read_pictures(
    path: Path, pattern: str, full: tuple[int, int], size: tuple[int, int]
) -> tuple[list[re.Match], np.ndarray]:
    """Return the matches of the names and the pictures (N, H, W, 3), by name."""
    matches, pictures = [], []
    for match, data in members(path, pattern, _LIMIT):
        matches.append(match)
        pictures.append(decode(data, f"{match[0]} in {path}", full, size))
    if not pictures:
        raise ChecksumError(f"{path} holds none of the expected pictures")
    return matches, np.stack(pictures)


def _obtain(
    base: str, full: bool, small: RawFile, originals: Sequence[Sequence[RawFile]]
) -> tuple[dict[str, Path], list[dict[str, str]]]:
    """Return the files that make a set at one of its sizes, and their provenance.

    At the small size the npz `small` comes first.
    """
    choices = originals if full else [[small], *originals]
    found = files.obtain(f"{base}_full" if full else base, choices, folder=base)
    return found, provenance(*(raw for choice in choices for raw in choice if raw.name in found))


# --------------------------------------------------------------------- rock, paper, scissors

_HANDS = "rock_paper_scissors"
_HANDS_FULL = (300, 300)
_HANDS_SMALL = (64, 64)
_HANDS_CLASSES = ("paper", "rock", "scissors")
_BUCKET = "https://storage.googleapis.com/download.tensorflow.org/data/"

_HANDS_NPZ = RawFile(
    "rock_paper_scissors.npz",
    "f36b3bcaf425d6b2206827226bd793513d43716aa8393045609d6afdd3f58506",
    "no public address: arrays x_train, y_train, x_test, y_test made from the jpg files of "
    "rock_paper_scissors_original.zip",
    size=12117486,
)
_HANDS_JPG = RawFile(
    "rock_paper_scissors_original.zip",
    "e6204990ba76cae2f0d4570b610e378781d125466637a7cb63320482d7da0c75",
    "no public address: the jpg files of https://github.com/Reennee/rps-image-classification "
    "(commit 00524d68) under their original names",
    size=18411382,
)
# The sums are those that tensorflow-datasets publishes for the same addresses.
_HANDS_PNG = (
    RawFile(
        "rps.zip",
        "c2403444395842ad04c53612bad54b574443eae17a0723117a2ff87b9d72194f",
        _BUCKET + "rps.zip",
        _BUCKET + "rps.zip",
        200682221,
    ),
    RawFile(
        "rps-test-set.zip",
        "c27ab9fa43ce40b2e453de711365b477f4424586edf0388116674fd320f07503",
        _BUCKET + "rps-test-set.zip",
        _BUCKET + "rps-test-set.zip",
        29516758,
    ),
)


def _read_hands(size: tuple[int, int]) -> _Source:
    """Read the hands: the small npz, the jpg files, the publisher's png files, in this order."""
    originals = [[_HANDS_JPG], _HANDS_PNG]
    found, source = _obtain(_HANDS, size == _HANDS_FULL, _HANDS_NPZ, originals)
    if _HANDS_NPZ.name in found:
        return splits_of(load_npz(found[_HANDS_NPZ.name])), source
    arrays = {}
    for split, folder in (("train", "rps"), ("test", "rps-test-set")):
        path = found.get(f"{folder}.zip") or found[_HANDS_JPG.name]
        pattern = rf"{folder}/({'|'.join(_HANDS_CLASSES)})/[\w-]+\.(?:jpg|png)"
        matches, pictures = _read_pictures(path, pattern, _HANDS_FULL, size)
        arrays[split] = pictures, np.array([_HANDS_CLASSES.index(m[1]) for m in matches])
    return arrays, source


def _hands(
    name: str, title: str, size: tuple[int, int], raw: tuple[RawFile, ...], differs: str
) -> Spec:
    """Return the description of the hands at one size."""
    height, width = size
    return Spec(
        name=name,
        title=title,
        version="1.0.0",
        description=(
            f"Rendered hands on white, {height}×{width} RGB, frames of a few turning hands, so "
            "neighbours are much alike; the hands of the test part are others. Rows are sorted "
            "by class and file name."
        ),
        origin=f"Rock Paper Scissors at {height}×{width}",
        image_shape=(*size, 3),
        class_names=_HANDS_CLASSES,
        class_counts={"train": (840,) * 3, "test": (124,) * 3},
        citation=(
            "@misc{moroney2019rps,\n"
            "  author = {Moroney, Laurence},\n"
            "  title  = {Rock, Paper, Scissors Dataset},\n"
            "  year   = {2019},\n"
            "  url    = {https://laurencemoroney.com/datasets.html}\n"
            "}"
        ),
        licence="CC BY 2.0",
        homepage="https://laurencemoroney.com/datasets.html",
        read=partial(_read_hands, size),
        raw_files=raw,
        parameters={"size": list(size), "original_size": list(_HANDS_FULL)},
        differs=differs,
    )


# -------------------------------------------------------------------------------------- faces

_FACES = "face10"
_FACES_FULL = (288, 384)
_FACES_SMALL = (72, 96)
_PAN = tuple(range(-90, 91, 15))
_FACES_SEED = 0
_FACES_TEST = 117
_FACES_HOME = "http://www-prima.inrialpes.fr/perso/Gourier/Faces/HPDatabase.html"

_FACES_NPZ = RawFile(
    "face10.npz",
    "f2ed90b8c7693fa1b57c1b2159adb47a804f016b63421277b5aa142ff691ebff",
    "no public address: arrays x, y made from the jpg files of face10_original.zip",
    size=4290172,
)
_FACES_JPG = RawFile(
    "face10_original.zip",
    "10ef280fc74ba3448d5a48e94ba5612ea27e3a783cada36aefd565fed846a12e",
    "no public address: the 390 files at tilt 0 of the Head Pose Image Database "
    f"({_FACES_HOME}), under their original names, from "
    "https://github.com/ECSE415-FaceRecognition/FaceRecognition (commit 4e3d2236)",
    size=4095137,
)
_FACES_NAME = r"Person(\d\d)/person\1([12])\d\d\+0([+-]\d+)\.jpg"


def _read_faces(size: tuple[int, int]) -> _Source:
    """Read the heads, sorted by person, series and pan, and hold 9 of 30 a class out."""
    found, source = _obtain(_FACES, size == _FACES_FULL, _FACES_NPZ, [[_FACES_JPG]])
    if _FACES_NPZ.name in found:
        stored = load_npz(found[_FACES_NPZ.name])
        images, labels = stored["x"], stored["y"]
    else:
        path = found[_FACES_JPG.name]
        matches, images = _read_pictures(path, _FACES_NAME, _FACES_FULL, size)
        pan = np.array([int(match[3]) for match in matches])
        order = np.lexsort((pan, [match[2] for match in matches], [match[1] for match in matches]))
        images, labels = images[order], np.searchsorted(_PAN, pan[order])
    return hold_out(images, labels, _FACES_TEST, _FACES_SEED), source


def _faces(
    name: str, title: str, size: tuple[int, int], raw: tuple[RawFile, ...], differs: str
) -> Spec:
    """Return the description of the heads at one size."""
    height, width = size
    return Spec(
        name=name,
        title=title,
        version="1.0.0",
        description=(
            f"Heads of 15 people at 13 pan angles, tilt 0, two series each, {height}×{width} "
            "RGB (height × width). The class is the angle. 9 of the 30 images a class are held "
            "out for testing, stratified, by a fixed seed; people are in both parts."
        ),
        origin=f"Face-10 (Pointing'04 heads) at {height}×{width}",
        image_shape=(*size, 3),
        class_names=tuple(f"{pan:+d}" if pan else "0" for pan in _PAN),
        class_counts={"train": (21,) * 13, "test": (9,) * 13},
        citation=(
            "@inproceedings{gourier2004estimating,\n"
            "  author    = {Gourier, Nicolas and Hall, Daniela and Crowley, James L.},\n"
            "  title     = {Estimating Face Orientation from Robust Detection of Salient Facial "
            "Features},\n"
            "  booktitle = {Proceedings of Pointing 2004, ICPR, International Workshop on Visual "
            "Observation of Deictic Gestures},\n"
            "  year      = {2004}\n"
            "}"
        ),
        licence=(
            "Copyright 2004 INRIA Rhône-Alpes; can be used for any purpose, provided that the "
            "article is cited"
        ),
        homepage=_FACES_HOME,
        read=partial(_read_faces, size),
        raw_files=raw,
        parameters={
            "seed": _FACES_SEED,
            "size": list(size),
            "original_size": list(_FACES_FULL),
        },
        differs=differs,
    )


_SPLIT = "the paper does not say which 117 of the 390 images it tests on; the split is ours"
_PNG = (
    "the copy read here may be jpg where the original is png (the manifest of the prepared set "
    "names the files)"
)

SPECS = (
    _hands(
        _HANDS,
        "Rock Paper Scissors",
        _HANDS_SMALL,
        (_HANDS_NPZ, *_HANDS_PNG),
        f"64×64 where the paper has 300×300; {_PNG}",
    ),
    _hands(
        f"{_HANDS}_full",
        "Rock Paper Scissors (full size)",
        _HANDS_FULL,
        (_HANDS_JPG, *_HANDS_PNG),
        _PNG,
    ),
    _faces(
        _FACES,
        "Face-10",
        _FACES_SMALL,
        (_FACES_NPZ, _FACES_JPG),
        f"72×96 where the paper has 288×384; {_SPLIT}",
    ),
    _faces(f"{_FACES}_full", "Face-10 (full size)", _FACES_FULL, (_FACES_JPG,), _SPLIT),
)
