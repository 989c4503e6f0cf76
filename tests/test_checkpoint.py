"""A fit that is stopped goes on to the same end; what is no checkpoint of it is refused."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
from conftest import ROOT
from helpers import bars
from sklearn.exceptions import ConvergenceWarning

from stkm import AffineKMeans, MiniBatchSTKMeans, STKMeans, checkpoint, fitting, progress
from stkm.cluster import _WarpKMeans

FITS = {
    "learned": (STKMeans, {"landmarks": 3, "n_swaps": 2, "n_init": 1}),
    "given": (STKMeans, {"landmarks": 3, "n_swaps": 0, "init": "k-means++ pixels", "n_init": 2}),
    "in part": (STKMeans, {"landmarks": 3, "n_swaps": 1, "n_init": 1, "max_iter": 4}),
    "in blocks": (
        STKMeans,
        {"landmarks": 3, "n_swaps": 1, "n_init": 1, "max_iter": 4, "keep": "nearest"},
    ),
    "affine": (AffineKMeans, {"n_swaps": 1, "n_init": 1}),
    "mini-batch": (
        MiniBatchSTKMeans,
        {"landmarks": 3, "n_swaps": 1, "n_init": 1, "batch_size": 20, "init_size": 30},
    ),
}
X, _ = bars(60)


def estimator(name):
    if name == "paper":
        return STKMeans.paper(3, landmarks=3, epochs=20, random_state=0)
    cls, params = FITS[name]
    return cls(3, random_state=0, **params)


def results(km):
    prior = progress.pack_prior(km.prior_) or {}
    return [km.labels_, km.cluster_centers_, km.inertia_, km.n_iter_, *prior.values()]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(results(a), results(b), strict=True))


class Stopped(Exception):
    """In place of a power cut."""


@pytest.fixture
def stop(monkeypatch):
    """Write at every mark, and stop behind the n-th one of `stop.at`; `stop.places` are theirs."""
    write = checkpoint.write

    class Stop:
        at, places = None, []

    def counted(path, meta, arrays):
        write(path, meta, arrays)
        Stop.places.append(meta["place"])
        if len(Stop.places) - 1 == Stop.at:
            raise Stopped

    Stop.places = []
    monkeypatch.setattr(checkpoint, "write", counted)
    monkeypatch.setattr(progress, "SHARE", 0)
    return Stop


# ---------------------------------------------------------------- going on


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("affine", "paper")]


@pytest.mark.parametrize(
    "name", ["learned", "in part", "in blocks", "given", "mini-batch", *OTHERS]
)
def test_a_fit_stopped_anywhere_ends_as_one_that_was_not(name, stop, tmp_path, monkeypatch):
    if name in ("in part", "in blocks"):
        monkeypatch.setattr(fitting, "PART", 40)  # a third of the images joins later
    plain = estimator(name).fit(X)
    whole = estimator(name).fit(X, checkpoint=tmp_path / "whole.npz")
    assert same(whole, plain)  # to write changes nothing
    places = list(stop.places)
    assert len(places) >= 2
    firsts = [places.index(place) for place in dict.fromkeys(places)]
    for number in sorted({*firsts, len(places) - 1}):
        path = tmp_path / f"{number}.npz"
        stop.places, stop.at = [], number
        with pytest.raises(Stopped):
            estimator(name).fit(X, checkpoint=path)
        stop.at = None
        assert same(estimator(name).fit(X, checkpoint=path), plain), places[number]
    again = estimator(name).fit(X, checkpoint=tmp_path / "whole.npz")  # finished: labelled anew
    assert same(again, plain) and list(tmp_path.glob(".*")) == []


def test_without_a_seed_the_first_process_draws_it(stop, tmp_path):
    path, params = tmp_path / "c.npz", FITS["given"][1]
    whole = STKMeans(3, **params).fit(X, checkpoint=path)
    assert same(STKMeans(3, **params).fit(X, checkpoint=path), whole)


def test_a_young_file_is_left_alone(monkeypatch, tmp_path):
    written = []
    monkeypatch.setattr(checkpoint, "write", lambda *a: written.append(a) or time.sleep(0.01))
    monkeypatch.setattr(progress, "SHARE", 1e6)
    estimator("given").fit(X, checkpoint=tmp_path / "c.npz")
    assert len(written) == 1


# ---------------------------------------------------------------- refused


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "c.npz"
    estimator("given").fit(X, checkpoint=path)
    return path


def refused(path, text, km=None, images=X):
    before = path.read_bytes()
    with pytest.raises(ValueError) as e:
        (km or estimator("given")).fit(images, checkpoint=path)
    assert text in str(e.value) and str(path) in str(e.value)
    assert path.read_bytes() == before  # a file that may be somebody's is never touched


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_named(made, tmp_path, share):
    path, data = tmp_path / "c.npz", made.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(path, "is damaged or no checkpoint")


def test_a_changed_byte_is_seen(made, tmp_path):
    path, data = tmp_path / "c.npz", bytearray(made.read_bytes())
    with zipfile.ZipFile(made) as archive:
        info = archive.getinfo("state.d.npy")
    data[info.header_offset + info.file_size // 2] ^= 1
    path.write_bytes(bytes(data))
    refused(path, "is damaged or no checkpoint")


def test_foreign_files_are_named(tmp_path):
    path = tmp_path / "c.npz"
    path.write_text("notes")
    refused(path, "is damaged or no checkpoint")
    np.savez(path, x=np.zeros(3))
    refused(path, "is damaged or no checkpoint")
    np.savez(path, meta=np.array([{"a": 1}], dtype=object))  # a pickle, which is not read
    refused(path, "is damaged or no checkpoint")
    text = json.dumps({"format": "other", "version": 1}).encode()
    np.savez(path, meta=np.frombuffer(text, np.uint8))
    refused(path, "is no checkpoint of stkm")


def test_another_version_and_another_fit_are_named(made, tmp_path):
    path = tmp_path / "c.npz"
    with np.load(made) as file:
        arrays = dict(file)
    meta = json.loads(arrays.pop("meta").tobytes()) | {"version": 99}
    np.savez(path, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8), **arrays)
    refused(path, "version 99")
    path.write_bytes(made.read_bytes())
    km = estimator("given").set_params(n_clusters=4)
    refused(path, "n_clusters is 3 there, 4 here", km)
    refused(path, "random_state is 0 there, 1 here", estimator("given").set_params(random_state=1))
    refused(path, "of another fit: images", images=X + 0.01)
    refused(path, "of another fit: estimator", estimator("mini-batch"))
    km = estimator("given").set_params(verbose=1, memory_limit=100)  # these decide nothing
    assert same(km.fit(X, checkpoint=path), estimator("given").fit(X))


# ---------------------------------------------------------------- killed

CHILD = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np
from test_checkpoint import X, estimator, progress
progress.SHARE = 0
print("go", flush=True)
km = estimator("learned").fit(X, checkpoint={path!r})
np.savez({out!r}, labels=km.labels_, centers=km.cluster_centers_)
"""


def kills(tmp_path, n, seed):
    """Kill a fit n times, each time at a random moment of its own start, and let it end."""
    path, out = tmp_path / "c.npz", tmp_path / "out.npz"
    code = CHILD.format(tests=str(ROOT / "tests"), path=str(path), out=str(out))
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    rng, took = np.random.default_rng(seed), None

    def start():
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
        assert child.stdout.readline() == b"go\n"
        return child

    begun = time.monotonic()
    assert start().wait() == 0  # once undisturbed, to know how long it takes
    took = time.monotonic() - begun
    with np.load(out) as whole:
        whole = dict(whole)
    path.unlink()
    found = 0
    for _ in range(n):
        child = start()
        time.sleep(rng.uniform(0, took))
        child.send_signal(signal.SIGKILL)
        child.wait()
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                assert all(file[name].size for name in file.files)
            found += 1
        out.unlink(missing_ok=True)
        assert start().wait() == 0  # after every kill
        with np.load(out) as end:
            assert all(np.array_equal(end[name], whole[name]) for name in whole)
        path.unlink()
    return found


def test_a_killed_fit_leaves_a_whole_file_and_ends_the_same(tmp_path):
    kills(tmp_path, 2, seed=0)


@pytest.mark.slow
@pytest.mark.skipif("STKM_KILLS" not in os.environ, reason="20 kills if STKM_KILLS is set: minutes")
def test_twenty_kills(tmp_path):
    """Twenty of twenty end the same; most of them from a checkpoint."""
    assert kills(tmp_path, 20, seed=1) > 5


# ---------------------------------------------------------------- interrupted


@pytest.mark.parametrize("after", [0, 2, -1])
def test_ctrl_c_gives_what_there_is(after, monkeypatch):
    """Behind the search, behind a pass, at the end: each a state that predicts."""
    marks, mark = [], progress.Progress.mark
    km = estimator("learned")
    monkeypatch.setattr(progress.Progress, "mark", lambda self, *a, **k: marks.append(a[0]))
    plain = km.fit(X)
    total = len(marks)
    assert marks[0] == "searched" and "lloyd" in marks and "taught" in marks

    def interrupt(self, *arguments, **options):
        mark(self, *arguments, **options)
        marks.append(0)
        if len(marks) - 1 == after % total:
            raise KeyboardInterrupt

    marks.clear()
    monkeypatch.setattr(progress.Progress, "mark", interrupt)
    km = estimator("learned")
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        km.fit(X)
    assert km.labels_.shape == (60,) and np.isfinite(km.inertia_)
    assert km.transform(X).shape == (60, 3)
    if after == -1:
        assert np.array_equal(km.cluster_centers_, plain.cluster_centers_)


def test_ctrl_c_before_there_is_anything_goes_on(monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(_WarpKMeans, "_fit_once", interrupt)
    for name in ("learned", "mini-batch"):
        with pytest.raises(KeyboardInterrupt):
            estimator(name).fit(X)


def test_ctrl_c_between_batches_keeps_whole_steps(monkeypatch):
    whole = estimator("mini-batch").set_params(max_iter=1, max_no_improvement=None)
    whole.fit(X)
    assert whole.n_steps_ == 3
    learn, calls = MiniBatchSTKMeans._learn, []

    def interrupt(self, matcher):
        learn(self, matcher)
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt

    two = estimator("mini-batch").set_params(max_no_improvement=None)
    monkeypatch.setattr(MiniBatchSTKMeans, "_learn", interrupt)
    with pytest.warns(ConvergenceWarning, match="interrupted after 2 steps"):
        two.fit(X)
    assert two.n_steps_ == 2 and two.counts_.sum() == pytest.approx(30 + 40)
    assert not hasattr(two, "labels_") and two.predict(X).shape == (60,)


def test_the_bar_is_silent_where_no_terminal_listens(capsys):
    estimator("given").fit(X)
    assert capsys.readouterr() == ("", "")


def test_the_bar_says_stage_objective_and_pace(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    estimator("given").fit(X)
    shown = capsys.readouterr()
    assert ", objective" in shown.err and "images/s" in shown.err and shown.out == ""
