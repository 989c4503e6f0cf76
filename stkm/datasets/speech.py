"""Spoken digits: `audio_mnist`, a part of it, and a stand-in, as spectrograms.

`audio_mnist`
    The paper's set, from its own 30 000 wav files (60 speakers) in
    ``STKM_DATA_DIR/audio_mnist``, as the publisher lays them out:
    ``01/0_01_0.wav`` … ``60/9_60_49.wav`` (digit, speaker, take), there or in
    a folder ``data``.  It is missing where they are not: a part of it is never
    taken for the whole.
`audio_mnist_4`
    2 000 recordings of 4 of the speakers.
`fsdd`
    Another set, the Free Spoken Digit Dataset: 3 000 recordings of 6 speakers.

All are at 8 kHz; `stkm.datasets.audio` says how a recording becomes an image.
Where a set has a test part of its own, that is the one used (`fsdd`: takes
0–4); elsewhere a third is held out, as in the paper.
"""

from __future__ import annotations

import hashlib
import wave
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from stkm.datasets import files
from stkm.datasets.audio import PARAMETERS, RATE, SHAPE, spectrograms
from stkm.datasets.errors import ChecksumError
from stkm.datasets.raw import hold_out, obtain_npz
from stkm.datasets.spec import Arrays, RawFile, Spec

__all__ = ["SPECS", "read_wav"]

_SEED = 0
_SPEAKERS, _DIGITS, _TAKES = 60, 10, 50
_TEST = 10_000
_PUBLISHED_RATE = 48_000
_HOME = "https://github.com/soerenab/AudioMNIST"

_PART = RawFile(
    "audio_mnist.npz",
    "012c49e0ba2c5057805d083cce7c0ad478930ae00cbdd1415ea4ef700d297f0a",
    "no public address: arrays samples, offsets, rate, y, speaker, speakers, index made from the "
    f"wav files of speakers 02, 06, 16, 56 of {_HOME}, resampled to 8 kHz",
    size=11472998,
)
_FSDD = RawFile(
    "fsdd.npz",
    "0a7f9b29bc7e44bebcfcd479aa64ff5fdfeb9e1d20613dd7cd432b1c631be415",
    "no public address: arrays samples, offsets, rate, y, speaker, speakers, index, is_test made "
    "from recordings/*.wav of https://github.com/Jakobovski/free-spoken-digit-dataset "
    "(commit 26eb9aaf)",
    size=15447939,
)

_Source = tuple[Arrays, list[dict[str, str]]]


# --------------------------------------------------------------------------- the whole set


def read_wav(path: Path) -> np.ndarray:
    """Return a 16-bit mono recording at 48 kHz as samples at 8 kHz, int16.

    Raises
    ------
    ChecksumError
        If the file is a recording of another kind.
    ValueError
        If it is none.
    """
    from scipy.signal import resample_poly

    try:
        with wave.open(str(path), "rb") as recording:
            kind = recording.getnchannels(), recording.getsampwidth(), recording.getframerate()
            data = recording.readframes(recording.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is not a readable wav file: {error}") from error
    if kind != (1, 2, _PUBLISHED_RATE) or not data:
        raise ChecksumError(
            f"{path} has {kind[0]} channels of {8 * kind[1]} bits at {kind[2]} Hz and "
            f"{len(data)} bytes; expected one of 16 bits at {_PUBLISHED_RATE} Hz"
        )
    samples = np.frombuffer(data, "<i2").astype(np.float64)
    resampled = np.rint(resample_poly(samples, 1, _PUBLISHED_RATE // RATE))
    return np.clip(resampled, -(2**15), 2**15 - 1).astype(np.int16)


def _wav_files() -> list[tuple[Path, int]]:
    """Return the path and the digit of every recording, by speaker, digit and take."""
    above = files.raw_folder("audio_mnist")
    folder = above / "data" if (above / "data").is_dir() else above
    every = [
        (folder / f"{s:02d}" / f"{d}_{s:02d}_{t}.wav", d)
        for s in range(1, _SPEAKERS + 1)
        for d in range(_DIGITS)
        for t in range(_TAKES)
    ]
    missing = [path for path, _ in every if not path.is_file()]
    if missing:
        first, last = (path.relative_to(folder) for path in (every[0][0], every[-1][0]))
        what = RawFile(
            f"{first} … {last} ({len(every)} files)",
            "none is published; form, number and names of the recordings are checked",
            f"{_HOME} (folder data)",
        )
        reason = f"{len(missing)} of {len(every)} recordings were not found"
        if len(missing) < len(every):
            reason += f", the first {missing[0].relative_to(folder)}"
        alternative = (
            "A part of 2 000 recordings has a name of its own, 'audio_mnist_4'; 'fsdd' is another "
            "set of spoken digits."
        )
        raise files.unavailable("audio_mnist", [what], reason, alternative)
    return every


def _read_all() -> _Source:
    """Read the 30 000 recordings and hold a third out for testing."""
    every = _wav_files()
    sums = hashlib.sha256()

    def recordings() -> Iterator[np.ndarray]:
        for path, _ in every:
            samples = read_wav(path)
            sums.update(samples.tobytes())
            yield samples

    images = spectrograms(recordings())
    arrays = hold_out(images, np.array([digit for _, digit in every]), _TEST, _SEED)
    source = f"{len(every)} wav files (the sum is that of their samples at {RATE} Hz, in order)"
    return arrays, [{"file": source, "sha256": sums.hexdigest()}]


# ------------------------------------------------------------------------------ npz files


def _read_npz(name: str, folder: str, raw: RawFile, last_test_take: int) -> _Source:
    """Read recordings from an npz; takes up to `last_test_take` are for testing."""
    stored, source = obtain_npz(name, raw, folder=folder)
    if int(stored["rate"]) != RATE:
        raise ChecksumError(f"{raw.name} has recordings at {stored['rate']} Hz, not {RATE}")
    images = spectrograms(np.split(stored["samples"], stored["offsets"][1:-1]))
    labels = stored["y"].astype(np.int64)
    test = stored["index"] <= last_test_take
    return {"train": (images[~test], labels[~test]), "test": (images[test], labels[test])}, source


# -------------------------------------------------------------------------------- the specs

_CITATION = (
    "@article{becker2018audiomnist,\n"
    '  author  = {Becker, S{\\"o}ren and Ackermann, Marcel and Lapuschkin, Sebastian and '
    'M{\\"u}ller, Klaus-Robert and Samek, Wojciech},\n'
    "  title   = {Interpreting and Explaining Deep Neural Networks for Classification of Audio "
    "Signals},\n"
    "  journal = {arXiv:1807.03418},\n"
    "  year    = {2018}\n"
    "}"
)
_IMAGE = (
    "Log-magnitude spectrograms, 64 mel bands (low at the bottom) × 24 columns of 40 ms, 50 dB "
    "below the loudest cell to black."
)
_DIFFERS = "the paper states the size of its spectrograms, 64×24, and no more; all else is ours"


def _spec(name: str, **words) -> Spec:
    """Return the description of one of the three sets."""
    return Spec(
        name=name,
        version="1.0.0",
        image_shape=SHAPE,
        class_names=tuple("0123456789"),
        **words,
    )


SPECS = (
    _spec(
        "audio_mnist",
        title="AudioMNIST",
        description=(
            "30 000 recordings of spoken digits, 50 takes of each by 60 speakers. A third is "
            f"held out for testing, stratified by digit, by a fixed seed. {_IMAGE}"
        ),
        origin="AudioMNIST",
        class_counts={"train": (2000,) * 10, "test": (1000,) * 10},
        citation=_CITATION,
        licence="MIT",
        homepage=_HOME,
        read=_read_all,
        parameters={"seed": _SEED, **PARAMETERS},
        differs=f"{_DIFFERS}, the split of the paper's sizes too",
    ),
    _spec(
        "audio_mnist_4",
        title="AudioMNIST (4 of 60 speakers)",
        description=(
            "2 000 recordings of spoken digits, 50 takes of each by speakers 02, 06, 16 and 56 "
            f"of AudioMNIST. Takes 0–16 of each are for testing. {_IMAGE}"
        ),
        origin="a part of AudioMNIST (4 of 60 speakers)",
        class_counts={"train": (132,) * 10, "test": (68,) * 10},
        citation=_CITATION,
        licence="MIT",
        homepage=_HOME,
        read=partial(_read_npz, "audio_mnist_4", "audio_mnist", _PART, 16),
        raw_files=(_PART,),
        parameters={"last_test_take": 16, **PARAMETERS},
        differs=(
            "2 000 of 30 000 recordings, 4 of 60 speakers, who are in both parts, and a split of "
            f"our own; {_DIFFERS}"
        ),
    ),
    _spec(
        "fsdd",
        title="Free Spoken Digits (a stand-in)",
        description=(
            "3 000 recordings of spoken digits, 50 takes of each by 6 speakers. Takes 0–4 of "
            f"each are for testing, the set's own test part. {_IMAGE}"
        ),
        origin="Free Spoken Digits, another set than AudioMNIST",
        class_counts={"train": (270,) * 10, "test": (30,) * 10},
        citation=(
            "@misc{jackson2018fsdd,\n"
            "  author = {Jackson, Zohar and Souza, C{\\'e}sar and Flaks, Jason and Pan, Yuxin and "
            "Nicolas, Hereman and Thite, Adhish},\n"
            "  title  = {Free Spoken Digit Dataset},\n"
            "  year   = {2018},\n"
            "  doi    = {10.5281/zenodo.1342401}\n"
            "}"
        ),
        licence="CC BY-SA 4.0",
        homepage="https://github.com/Jakobovski/free-spoken-digit-dataset",
        read=partial(_read_npz, "fsdd", "fsdd", _FSDD, 4),
        raw_files=(_FSDD,),
        parameters={"last_test_take": 4, **PARAMETERS},
        differs=(
            "it is another set than AudioMNIST: other speakers, other recording conditions, 300 "
            f"images for testing; {_DIFFERS}"
        ),
    ),
)
