"""The paper's other data sets: counts, orientation, splits, spectrograms, pictures, raw files."""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
import wave
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image

from stkm.datasets import (
    ChecksumError,
    DatasetUnavailable,
    arabic,
    audio,
    describe,
    files,
    letters,
    load_dataset,
    overview,
    photographs,
    prepare,
    raw,
    registry,
    speech,
    store,
)
from stkm.datasets.spec import RawFile, array_sha256

# From the publishers' descriptions: train, test, shape of an image, classes.
COUNTS = {
    "usps": (7291, 2007, (16, 16), 10),
    "arabic_char": (13440, 3360, (32, 32), 28),
    "audio_mnist": (20000, 10000, (64, 24), 10),
    "audio_mnist_4": (1320, 680, (64, 24), 10),
    "fsdd": (2700, 300, (64, 24), 10),
    "emnist_letters": (124800, 20800, (28, 28), 26),
    "emnist_letters_am": (6675, 3325, (28, 28), 13),
    "az_letters": (2002, 988, (28, 28), 26),
    "rock_paper_scissors": (2520, 372, (64, 64, 3), 3),
    "rock_paper_scissors_full": (2520, 372, (300, 300, 3), 3),
    "face10": (273, 117, (72, 96, 3), 13),
    "face10_full": (273, 117, (288, 384, 3), 13),
}
LARGE = ("rock_paper_scissors_full", "audio_mnist", "emnist_letters")
FOLDER = {
    "audio_mnist_4": "audio_mnist",
    "emnist_letters_am": "emnist_letters",
    "rock_paper_scissors_full": "rock_paper_scissors",
    "face10_full": "face10",
}
HERE = os.environ.get("STKM_DATA_DIR") or ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _empty_folders(monkeypatch, tmp_path_factory):
    """Find no raw file, no prepared set and no other cache unless a test says so."""
    for name in ("STKM_PREPARED_DIR", "STKM_DATA_DIR", "TFDS_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))


@cache
def read(name):
    """Read a set from the raw files of this machine, once; None if it has none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STKM_DATA_DIR", str(HERE))
        spec = registry.spec(name)
        if not any((files.raw_folder(FOLDER.get(name, name)) / r.name).is_file()
                   for r in spec.raw_files):  # fmt: skip
            return None
        arrays, provenance = spec.read()
        store._check_arrays(spec, arrays)
        assert provenance and all(len(item["sha256"]) == 64 for item in provenance)
    return arrays


def needs(name):
    arrays = read(name)
    if arrays is None:
        wanted = " or ".join(raw.name for raw in registry.spec(name).raw_files)
        pytest.skip(f"STKM_DATA_DIR/{FOLDER.get(name, name)} has no {wanted}")
    return arrays


# --- what the sets hold -----------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTS)
def test_the_card_states_the_counts(name):
    card = describe(name)
    train, test, shape, classes = COUNTS[name]
    assert card["splits"] == {"train": train, "test": test}
    assert card["image_shape"] == list(shape) and len(card["class_names"]) == classes
    assert len(set(card["class_names"])) == classes
    for split, counts in card["class_counts"].items():
        if name == "emnist_letters_am":
            counts = [*counts[:12], 2 * counts[12]]  # half of the letter m
        if name != "usps":
            assert len(set(counts)) == 1, (split, counts)


@pytest.mark.parametrize("name", sorted(set(COUNTS) - set(LARGE)))
def test_counts_and_balance(name):
    arrays = needs(name)
    train, test, shape, classes = COUNTS[name]
    for split, n in (("train", train), ("test", test)):
        images, labels = arrays[split]
        assert images.shape == (n, *shape) and images.dtype == np.uint8
        assert np.array_equal(np.unique(labels), np.arange(classes))
        assert images.min() < 20 and images.max() == 255


def test_a_part_or_a_stand_in_says_so_wherever_it_is_named():
    for name, word in {
        "audio_mnist_4": "a part of AudioMNIST",
        "fsdd": "another set than AudioMNIST",
        "emnist_letters_am": "a part of E-MNIST",
        "az_letters": "another set than E-MNIST",
    }.items():
        card = describe(name)
        assert word in card["origin"] and card["differs_from_paper"] != "no difference"
        assert "(" in card["title"]
    for name in ("rock_paper_scissors", "face10", "face10_full"):
        height, width = describe(name)["image_shape"][:2]
        assert f"{height}×{width}" in describe(name)["origin"]  # the size stands in the table


def test_the_overview_has_a_row_for_every_set():
    rows = {row["name"]: row for row in overview.rows()}
    assert json.loads(json.dumps(rows)) == rows
    assert set(rows) == set(registry.available())
    for name, paper in overview.PAPER.items():
        row = rows[name]
        same = {k: row["ours"][k] for k in ("train", "test", "classes")}
        assert same == {k: paper[k] for k in same}
        if row["ours"]["size"] != paper["size"]:
            assert rows[f"{name}_full"]["ours"]["size"] == paper["size"]
    assert rows["fsdd"]["paper"] is None and rows["audio_mnist_4"]["paper"] is None
    (row,) = overview.rows(["face10"])
    text = overview.markdown([row, rows["usps"]])
    assert "| — | 7 291 / 2 007, 16×16, 10 classes |" in text
    assert len({line.count("|") for line in text.splitlines()}) == 1
    assert "| [arxiv.org](https://arxiv.org/abs/2012.09743) |" in overview.markdown(
        overview.rows(["affine_mnist"])
    )
    assert all(re.match(r"https?://[\w.-]+/", row["source"]) for row in rows.values())


def test_the_overview_says_what_a_set_needs(monkeypatch):
    """And that alone: it is the same whatever this machine has."""
    rows = {row["name"]: row for row in overview.rows()}
    for name in ("STKM_PREPARED_DIR", "STKM_DATA_DIR"):
        monkeypatch.setenv(name, str(HERE))
    assert {row["name"]: row for row in overview.rows()} == rows
    assert {name for name, row in rows.items() if row["embedded"]} == set(overview.EMBEDDED)

    def cell(name):
        return overview.markdown([rows[name]]).splitlines()[2].split(" | ")[5]

    assert cell("mnist5k") == cell("affine_mnist") == "nothing, it is embedded"
    assert cell("usps") == "`usps.npz`" and cell("audio_mnist") == "the publisher's files"
    assert cell("face10") == "`face10.npz`, or `face10_original.zip`"
    assert cell("rock_paper_scissors") == (
        "`rock_paper_scissors.npz`, or `rps.zip` and `rps-test-set.zip` (can be downloaded)"
    )
    assert cell("mnist").count("`") == 8 and cell("mnist").endswith("(can be downloaded)")


@pytest.mark.parametrize("name", sorted(set(registry.available()) - set(overview.EMBEDDED)))
def test_a_set_names_what_the_overview_says_it_needs(name, no_network):
    (row,) = overview.rows([name])
    with pytest.raises(DatasetUnavailable) as error:
        registry.spec(name).read()
    for file in (file for choice in row["needs"] for file in choice["files"]):
        assert f"  {file}\n" in str(error.value)


def test_the_split_of_the_faces_is_the_published_one():
    """The other sets that are split here have these sums in their descriptions."""
    images, labels = needs("face10")["test"]
    assert array_sha256(labels.astype(np.uint8)).startswith("f48d0c56f9e8fdeb")
    assert array_sha256(images).startswith("783699aaa7738412")
    assert all(registry.spec(name).content for name in ("emnist_letters_am", "az_letters"))


def test_a_held_out_part_is_disjoint_stratified_and_repeats():
    images = np.arange(90, dtype=np.uint8).reshape(90, 1, 1)
    labels = np.repeat(np.arange(3), 30).astype(np.uint8)
    arrays = raw.hold_out(images, labels, 27, 0)
    assert np.bincount(arrays["test"][1]).tolist() == [9, 9, 9]
    together = np.concatenate([arrays["train"][0], arrays["test"][0]]).ravel()
    assert sorted(together) == list(range(90))
    for part, again in zip(arrays.values(), raw.hold_out(images, labels, 27, 0).values(),
                           strict=True):  # fmt: skip
        assert np.array_equal(part[0], again[0]) and part[1].dtype == np.int64
    assert not np.array_equal(arrays["test"][0], raw.hold_out(images, labels, 27, 1)["test"][0])


def test_speakers_and_takes_of_the_recordings():
    """Split by take: every speaker says every digit in both parts."""
    needs("audio_mnist_4"), needs("fsdd")
    for folder, last, n_test in (("audio_mnist", 16, 17), ("fsdd", 4, 5)):
        with np.load(Path(HERE) / folder / f"{folder}.npz", allow_pickle=False) as stored:
            test = stored["index"] <= last
            if "is_test" in stored.files:  # the set's own test part
                assert np.array_equal(test, stored["is_test"])
            pairs = stored["speaker"][test] * 10 + stored["y"][test]
            assert set(np.bincount(pairs)) == {n_test}


# --- orientation ------------------------------------------------------------------------


def test_arabic_letters_are_upright():
    images, labels = needs("arabic_char")["train"]
    names = registry.spec("arabic_char").class_names
    alef, beh, teh = (images[labels == names.index(n)].mean(0) for n in ("alef", "beh", "teh"))
    # an alef is a vertical stroke: spread over rows, narrow in columns
    assert (alef.sum(0) > alef.sum(0).max() / 4).sum() < (alef.sum(1) > 4).sum() / 2
    # a teh has two dots above, a beh none
    assert teh[:11].sum() > 2 * beh[:11].sum()
    # a reh goes from the upper right to the lower left (mirrored: the other way)
    reh = images[labels == names.index("reh")].mean(0)
    assert min(reh[:16, 16:].sum(), reh[16:, :16].sum()) > 2 * reh[:16, :16].sum()
    rows, columns = np.nonzero(images[0] > 128)
    assert labels[0] == 0 and rows.max() - rows.min() > 15 > columns.max() - columns.min()
    assert images[images > 0].size < images.size / 4  # bright on dark


def test_emnist_letters_are_upright():
    images, labels = needs("emnist_letters_am")["train"]
    c, j = (images[labels == "abcdefghijklm".index(letter)].mean(0) for letter in "cj")
    # a C is open to the right (transposed: downwards; mirrored: to the left)
    assert c[12:17, :10].sum() > 2 * c[12:17, 18:].sum()
    # the hook of a J is at the lower left
    assert j[18:24, 4:10].sum() > 1.5 * j[4:10, 4:10].sum()


def test_capitals_are_upright():
    images, labels = needs("az_letters")["train"]
    ell, seven = images[labels == 11].mean(0), images[labels == 15].mean(0)  # L, P
    assert ell[18:].sum() > 1.3 * ell[:10].sum()
    assert seven[4:14, 14:].sum() > 2 * seven[16:26, 14:].sum()


# --- spectrograms -----------------------------------------------------------------------


def tone(hertz, seconds=0.5, amplitude=1000.0):
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(int(seconds * 8000)) / 8000)


def test_a_tone_lights_its_band_and_its_time():
    (image,) = audio.spectrograms([tone(1000)])
    assert image.shape == (64, 24) and image.dtype == np.uint8
    # by hand: 1000 Hz is 1000 mel; bands are (2146.1 - 122.0) / 65 = 31.1 mel apart from
    # 122.0 mel (80 Hz) on, so it is 28.2 steps up: band 27, counted from 0 at the bottom
    assert image[:, 12].argmax() == 63 - 27 and image.max() == 255
    # 4000 samples in the middle of 7680 begin at 1840, in column 5 of 320 samples
    lit = np.flatnonzero(image[36] > 200)
    assert lit[0] in (5, 6) and lit[-1] in (17, 18)
    assert not image[:, :5].any() and not image[:, 19:].any()
    # away from the tone, more than 50 dB below
    assert not image[:20, 12].any() and not image[50:, 12].any()


def test_low_frequencies_are_at_the_bottom():
    rows = [image[:, 12].argmax() for image in audio.spectrograms(map(tone, (200, 600, 3000)))]
    assert rows[0] > rows[1] > rows[2]


def test_values_are_linear_in_decibels_and_free_of_loudness():
    loud, soft = tone(1000, 0.4), tone(1000, 0.4, amplitude=100.0)  # 20 dB apart
    (image,) = audio.spectrograms([np.concatenate([loud, soft])])
    assert image[36, 6] == 255 and abs(int(image[36, 16]) - 255 * (1 - 20 / 50)) <= 1
    (again,) = audio.spectrograms([7.5 * np.concatenate([loud, soft])])
    assert np.array_equal(image, again)


def test_recordings_of_any_length():
    assert audio.LENGTH == 7680
    short = audio.centred(np.ones(3, np.int16), 8)
    assert short.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    assert audio.centred(np.arange(9), 4).tolist() == [2, 3, 4, 5]
    assert audio.centred(np.arange(10), 4).tolist() == [3, 4, 5, 6]
    assert audio.centred(np.arange(4), 4).tolist() == [0, 1, 2, 3]
    lengths = (0, 1, 100, 7680, 7681, 20000)
    images = audio.spectrograms([np.ones(n, np.int16) * 50 for n in lengths])
    assert images.shape == (6, 64, 24)
    assert not images[0].any()  # silence is black
    assert audio.spectrograms([]).shape == (0, 64, 24)


def test_images_do_not_depend_on_their_neighbours():
    rng = np.random.default_rng(0)
    recordings = [rng.normal(0, 300, n) for n in rng.integers(2000, 9000, 70)]  # two blocks
    together = audio.spectrograms(recordings)
    assert np.array_equal(together[66:], audio.spectrograms(recordings[66:]))


def test_bands():
    weights = audio.mel_bands()
    assert weights.shape == (64, 257) and np.allclose(weights.sum(1), 1)
    assert ((weights > 0).sum(1) >= 2).all()
    assert (np.diff(weights @ np.arange(257)) < 0).all()  # the highest first


def write_wav(path, samples, rate=48000, channels=1, width=2):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(channels), out.setsampwidth(width), out.setframerate(rate)
        out.writeframes(np.asarray(samples, "<i2").tobytes())


def test_wav_files(tmp_path):
    t = np.arange(24000) / 48000
    write_wav(tmp_path / "a.wav", 1000 * np.sin(2 * np.pi * 1000 * t))
    samples = speech.read_wav(tmp_path / "a.wav")
    assert samples.shape == (4000,) and samples.dtype == np.int16
    assert np.abs(samples[100:-100] - tone(1000)[100:-100]).max() < 5
    for kind in ({"rate": 8000}, {"channels": 2}, {"width": 4}):
        write_wav(tmp_path / "b.wav", np.zeros(400), **kind)
        with pytest.raises(ChecksumError, match=r"b\.wav has .*expected one of 16 bits"):
            speech.read_wav(tmp_path / "b.wav")
    (tmp_path / "c.wav").write_bytes(b"not a recording")
    with pytest.raises(ValueError, match=r"c\.wav is not a readable wav"):
        speech.read_wav(tmp_path / "c.wav")


@pytest.mark.parametrize("inner", ["", "data"])
def test_audio_mnist_from_its_own_files(monkeypatch, inner):
    for name, value in {"_SPEAKERS": 2, "_DIGITS": 3, "_TAKES": 4, "_TEST": 6}.items():
        monkeypatch.setattr(speech, name, value)
    folder = files.raw_folder("audio_mnist") / inner
    for s in (1, 2):
        for d in range(3):
            for t in range(4):
                sound = np.sin(np.arange(12000) * (0.03 + 0.02 * d)) * 100 * (t + 1)
                write_wav(folder / f"{s:02d}" / f"{d}_{s:02d}_{t}.wav", sound)
    arrays, (item,) = speech._read_all()
    assert {s: np.bincount(y).tolist() for s, (_, y) in arrays.items()} == {
        "train": [6, 6, 6],
        "test": [2, 2, 2],
    }
    for images, labels in arrays.values():  # higher digits have higher tones here
        rows = images[:, :, 12].argmax(1)
        assert all(a > b for a, b in zip(rows[labels == 0], rows[labels == 2], strict=True))
    assert "24 wav files" in item["file"] and len(item["sha256"]) == 64
    (folder / "02" / "1_02_3.wav").unlink()
    with pytest.raises(DatasetUnavailable, match=r"1 of 24 .*first 02/1_02_3\.wav"):
        speech._read_all()


# --- pictures in archives ---------------------------------------------------------------


def picture(array, kind="PNG", **options):
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def make_zip(path, contents):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents:
            archive.writestr(name, data)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_only_expected_members_are_read_and_nothing_is_written(tmp_path):
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("in/c.txt")
    link.external_attr = 0o120777 << 16  # a symbolic link
    make_zip(path, [("in/b.txt", b"2"), ("../evil.txt", b"x"), ("/in/a.txt", b"x"),
                    ("in/a.txt", b"1"), (link, b"/etc/passwd")])  # fmt: skip
    found = [(match[1], data) for match, data in raw.members(path, r"in/(\w)\.txt")]
    assert found == [("a", b"1"), ("b", b"2"), ("c", b"/etc/passwd")]  # the link's own text
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_bad_archives_are_refused(tmp_path):
    path = tmp_path / "a.zip"
    make_zip(path, [("a.txt", b"0" * 1000)])
    with pytest.raises(ChecksumError, match=r"a\.txt in .*more than 999 bytes"):
        list(raw.members(path, ".*", 999))
    with pytest.warns(UserWarning, match="Duplicate"):
        make_zip(path, [("a.txt", b"0"), ("a.txt", b"1")])
    with pytest.raises(ChecksumError, match="twice"):
        list(raw.members(path, ".*"))
    path.write_bytes(b"PK not a zip")
    with pytest.raises(ValueError, match="can't be read as a zip"):
        list(raw.members(path, ".*"))


def test_a_picture_must_have_the_expected_size():
    array = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    assert np.array_equal(raw.decode(picture(array), "x", (8, 12)), array)
    small = raw.decode(picture(array), "x", (8, 12), (2, 3))
    means = array.reshape(2, 4, 3, 4, 3).mean(axis=(1, 3))
    assert np.abs(small - means).max() <= 1
    with pytest.raises(ValueError, match=r"x is not the expected picture: 8×12 pixels, not 9×12"):
        raw.decode(picture(array), "x", (9, 12))
    huge = picture(array).replace(struct.pack(">II", 12, 8), struct.pack(">II", 60_000, 60_000))
    for bad in (huge, b"", b"GIF89a", picture(array)[:60], picture(array, "BMP")):
        with pytest.raises(ValueError, match="x is not the expected picture"):
            raw.decode(bad, "x", (8, 12))


def test_hands_from_the_publishers_archives(monkeypatch, no_network):
    """The png files of the two archives; each pixel of the small set is a mean."""
    monkeypatch.setattr(photographs, "_HANDS_FULL", (30, 30))
    rng = np.random.default_rng(0)
    index, truth = [], {}
    for folder, n in (("rps", 3), ("rps-test-set", 2)):
        images = rng.integers(0, 256, (3, n, 30, 30, 3), dtype=np.uint8)
        truth["train" if folder == "rps" else "test"] = images.reshape(-1, 30, 30, 3)
        contents = [
            (f"{folder}/{name}/{name}-{i}.png", picture(images[k, i]))
            for k, name in enumerate(("paper", "rock", "scissors"))
            for i in range(n)
        ]
        path = files.raw_folder("rock_paper_scissors") / f"{folder}.zip"
        sum_ = make_zip(path, [*reversed(contents), (f"{folder}/README.txt", b"x")])
        index.append(RawFile(path.name, sum_, "the moon"))
    monkeypatch.setattr(photographs, "_HANDS_PNG", tuple(index))
    arrays, provenance = photographs._read_hands((30, 30))
    for split, images in truth.items():
        assert np.array_equal(arrays[split][0], images)
        assert np.array_equal(arrays[split][1], np.repeat([0, 1, 2], len(images) // 3))
    assert [item["file"] for item in provenance] == ["rps.zip", "rps-test-set.zip"]
    small = photographs._read_hands((10, 10))[0]["test"][0]
    assert np.abs(small - truth["test"].reshape(-1, 10, 3, 10, 3, 3).mean((2, 4))).max() <= 1


def test_the_two_sizes_of_the_faces_are_the_same_pictures():
    small, full = needs("face10"), needs("face10_full")
    for split in ("train", "test"):
        assert np.array_equal(small[split][1], full[split][1])
        pixels = full[split][0][::10].astype(np.float64)
        means = pixels.reshape(-1, 72, 4, 96, 4, 3).mean(axis=(2, 4))
        # a decoder of another make may round otherwise
        assert np.abs(means - small[split][0][::10]).max() <= 3


def test_a_set_at_another_size():
    assert registry.at_size("face10", (288, 384)) == "face10_full"
    assert registry.at_size("face10_full", [72, 96]) == "face10"
    assert registry.at_size("rock_paper_scissors", 300) == "rock_paper_scissors_full"
    assert registry.at_size("usps", 16) == "usps"
    for size in (300, (384, 288), True, "full", (72,), 72.0):
        with pytest.raises(ValueError, match=r"kept at .*\(72, 96\) or \(288, 384\)"):
            load_dataset("face10", "test", size=size)
    with pytest.raises(ValueError, match="unknown data set"):
        load_dataset("face11", size=300)


def test_colour_goes_through_the_records(monkeypatch):
    arrays = needs("face10")
    monkeypatch.setenv("STKM_DATA_DIR", str(HERE))
    assert prepare("face10")["splits"] == {"train": 273, "test": 117}
    data = load_dataset("face10", "test", size=(72, 96))
    assert np.array_equal(data.images, arrays["test"][0])
    assert data.class_names[0] == "-90" and data.class_names[6:8] == ("0", "+15")
    assert data.source == "117 test images of Face-10 (Pointing'04 heads) at 72×96"


# --- raw files --------------------------------------------------------------------------


@pytest.mark.parametrize("name", COUNTS)
def test_S10_no_file_and_no_network_for(name, no_network):
    start = time.perf_counter()
    with pytest.raises(DatasetUnavailable) as error:
        load_dataset(name)
    assert time.perf_counter() - start < 10
    text = str(error.value)
    folder = files.raw_folder(FOLDER.get(name, name))
    assert str(folder) in text and f"STKM_DATA_DIR/{FOLDER.get(name, name)}" in text
    named = [raw for raw in registry.spec(name).raw_files if raw.name in text]
    assert named or name == "audio_mnist"
    assert all(raw.sha256 in text and raw.published in text for raw in named)
    assert "SHA-256" in text and "published at" in text
    assert not folder.exists()


def test_S10_without_any_network_interface():
    """In a network namespace of its own: prepared and loaded, and a missing set is named."""
    apart = ["unshare", "--map-root-user", "--net"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*apart, "true"], capture_output=True).returncode
    ):
        pytest.skip("this machine lets no test have a network namespace of its own")
    needs("az_letters")
    code = (
        "import os, socket, sys\n"
        "assert [name for _, name in socket.if_nameindex()] in ([], ['lo'])\n"
        "def guard(event, args):\n"
        "    assert event not in ('socket.connect', 'socket.getaddrinfo'), event\n"
        "sys.addaudithook(guard)\n"
        "from stkm.datasets import load_dataset\n"
        "print(len(load_dataset('az_letters')))\n"
        "os.environ['STKM_DATA_DIR'] += '/nowhere'\n"
        "try: load_dataset('usps')\n"
        "except FileNotFoundError as error: print(error)\n"
    )
    env = {**os.environ, "STKM_DATA_DIR": str(HERE), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*apart, sys.executable, "-c", code], env=env, capture_output=True,
                          text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2990\n") and "usps.npz" in done.stdout


@pytest.mark.parametrize("name", sorted(set(COUNTS) - {"audio_mnist"}))
def test_wrong_checksum_is_named_and_the_file_kept(name, no_network):
    first = registry.spec(name).raw_files[0]
    folder = files.raw_folder(FOLDER.get(name, name))
    folder.mkdir(parents=True)
    (folder / first.name).write_bytes(b"another file")
    with pytest.raises(ChecksumError) as error:
        prepare(name)
    for part in (
        str(folder / first.name),
        first.sha256,
        hashlib.sha256(b"another file").hexdigest(),
    ):
        assert part in str(error.value)
    assert (folder / first.name).read_bytes() == b"another file"
    assert describe(name)["prepared"] is False


def test_of_several_choices_the_first_complete_one_counts(no_network):
    folder = files.raw_folder("x")
    folder.mkdir(parents=True)
    known = {n: RawFile(n, hashlib.sha256(n.encode()).hexdigest(), "the moon") for n in "abc"}
    for name in "ac":
        (folder / name).write_text(name)
    found = files.obtain("y", [[known["a"], known["b"]], [known["c"]]], folder="x")
    assert found == {"c": folder / "c"}
    (folder / "c").unlink()
    with pytest.raises(DatasetUnavailable, match="none can be downloaded") as error:
        files.obtain("y", [[known["a"], known["b"]], [known["c"]]], folder="x", alternative="Or z.")
    assert str(folder) in str(error.value) and str(error.value).endswith("Or z.")


def test_an_npz_of_objects_is_not_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "done"),))

    np.savez(tmp_path / "a.npz", x_train=np.array([Bomb()], dtype=object))
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 cut short")
    for name in ("a", "b"):
        with pytest.raises(ValueError, match=rf"{name}\.npz is not a readable npz"):
            raw.load_npz(tmp_path / f"{name}.npz")
    assert not (tmp_path / "done").exists()


def test_arabic_from_csv_files(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32))
    stored = images.transpose(0, 2, 1).reshape(6, -1)  # as published: transposed
    np.savetxt(tmp_path / "x.csv", stored, fmt="%d", delimiter=",")
    np.savetxt(tmp_path / "y.csv", [1, 2, 3, 28, 1, 5], fmt="%d")
    found, labels = arabic.read_csv(tmp_path / "x.csv", tmp_path / "y.csv")
    assert np.array_equal(found, images) and found.dtype == np.uint8
    assert labels.tolist() == [0, 1, 2, 27, 0, 4]
    np.savetxt(tmp_path / "y.csv", [1, 2], fmt="%d")
    with pytest.raises(ValueError, match="do not hold as many labels"):
        arabic.read_csv(tmp_path / "x.csv", tmp_path / "y.csv")


def test_emnist_letters_from_the_publishers_archive(monkeypatch, no_network):
    def idx(array):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        return gzip.compress(head + array.tobytes(), mtime=0)

    rng = np.random.default_rng(0)
    images = {s: rng.integers(0, 256, (26, 28, 28), dtype=np.uint8) for s in ("train", "test")}
    contents = [("gzip/emnist-digits-test-images-idx3-ubyte.gz", b"not read")]
    for split, x in images.items():
        stem = f"gzip/emnist-letters-{split}"
        contents.append((f"{stem}-images-idx3-ubyte.gz", idx(x.transpose(0, 2, 1).copy())))
        contents.append((f"{stem}-labels-idx1-ubyte.gz", idx(np.arange(1, 27, dtype=np.uint8))))
    path = files.raw_folder("emnist_letters") / "gzip.zip"
    monkeypatch.setattr(letters, "_ZIP", replace(letters._ZIP, sha256=make_zip(path, contents)))
    arrays, _ = letters._read_letters()
    for split, x in images.items():
        assert np.array_equal(arrays[split][0], x)
        assert np.array_equal(arrays[split][1], np.arange(26))
    new = make_zip(path, contents[:-1])
    monkeypatch.setattr(letters, "_ZIP", replace(letters._ZIP, sha256=new))
    with pytest.raises(ChecksumError, match="3 of the four files"):
        letters._read_letters()
