"""Results files: same values, same bytes; never half a file; clear errors."""

import json
import time
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stkm.results import (
    atomic_path,
    read_json,
    read_npz,
    summarise,
    write_json,
    write_npz,
)


def test_json_is_sorted_rounded_and_ends_with_a_newline(tmp_path):
    path = tmp_path / "new" / "r.json"
    write_json(
        path, {"b": np.float32(0.123456), "a": [np.int64(3), True, None, -0.00001], "c": "é"}
    )
    assert path.read_bytes().decode() == (
        '{\n  "a": [\n    3,\n    true,\n    null,\n    0.0\n  ],\n  "b": 0.1235,\n  "c": "é"\n}\n'
    )


def test_json_takes_arrays_and_gives_plain_values(tmp_path):
    write_json(tmp_path / "r.json", {"m": np.arange(4.0).reshape(2, 2), "t": (np.bool_(True),)})
    assert read_json(tmp_path / "r.json") == {"m": [[0.0, 1.0], [2.0, 3.0]], "t": [True]}


numbers = st.floats(-1e6, 1e6) | st.integers(-(10**9), 10**9) | st.booleans() | st.none()
trees = st.recursive(
    numbers | st.text(), lambda t: st.lists(t) | st.dictionaries(st.text(), t), max_leaves=20
)


@given(trees)
def test_json_written_again_is_the_same_file(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("json")
    write_json(folder / "1.json", tree)
    write_json(folder / "2.json", read_json(folder / "1.json"))
    assert (folder / "1.json").read_bytes() == (folder / "2.json").read_bytes()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": [1.0, float("nan")]}}, r"r\.json\.a\.b\[1\] is nan"),
        ({"a": np.float32("inf")}, r"r\.json\.a is inf"),
        ({1: 2}, r"key 1; keys must be strings"),
        ({"a": {3, 4}}, r"r\.json\.a is of type set"),
        ({"a": 1j}, r"of type complex"),
    ],
)
def test_json_refuses_what_it_cannot_hold_and_keeps_the_old_file(tmp_path, value, message):
    path = tmp_path / "r.json"
    write_json(path, {"old": 1})
    with pytest.raises(ValueError, match=message):
        write_json(path, value)
    assert read_json(path) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_json_errors_name_the_file(tmp_path):
    (tmp_path / "broken.json").write_text('{"a": 1')
    with pytest.raises(ValueError, match=r"broken\.json"):
        read_json(tmp_path / "broken.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bytes\.json"):
        read_json(tmp_path / "bytes.json")
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        read_json(tmp_path / "absent.json")


def test_npz_round_trip(tmp_path):
    arrays = {
        "images": np.random.default_rng(0).random((3, 4, 4), dtype=np.float32),
        "labels": np.array([1, -2, 3]),
        "names": np.array(["a", "ß"]),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 2)),
    }
    write_npz(tmp_path / "a.npz", **arrays)
    back = read_npz(tmp_path / "a.npz")
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_npz_bytes_depend_on_neither_time_nor_order(tmp_path, monkeypatch):
    a, b = np.arange(5), np.ones((2, 2))
    write_npz(tmp_path / "1.npz", a=a, b=b)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e6)  # what zipfile would stamp
    write_npz(tmp_path / "2.npz", b=b, a=a)
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "1.npz") as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_npz_keeps_any_suffix(tmp_path):
    write_npz(tmp_path / "arrays.dat", a=[1])
    assert [p.name for p in tmp_path.iterdir()] == ["arrays.dat"]


def test_npz_refuses_objects_and_nothing(tmp_path):
    with pytest.raises(ValueError, match="'a'.*Python objects"):
        write_npz(tmp_path / "a.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="no arrays"):
        write_npz(tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


def test_npz_does_not_unpickle(tmp_path):
    np.savez(tmp_path / "evil.npz", a=np.array([print], dtype=object))
    with pytest.raises(ValueError, match=r"evil\.npz"):
        read_npz(tmp_path / "evil.npz")


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "empty", "npy"])
def test_npz_damage_names_the_file(tmp_path, damage):
    path = tmp_path / "d.npz"
    write_npz(path, a=np.arange(1000))
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1  # inside the array: only the checksum tells
    path.write_bytes(
        {"cut": data[: len(data) // 2], "text": b"no archive", "empty": b""}.get(damage, data)
    )
    if damage == "npy":
        with open(path, "wb") as file:
            np.save(file, np.arange(3))
    with pytest.raises(ValueError, match=r"d\.npz is damaged"):
        read_npz(path)


def test_npz_absent_names_the_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.npz"):
        read_npz(tmp_path / "absent.npz")


def test_atomic_path_keeps_the_old_file_when_the_writer_fails(tmp_path):
    path = tmp_path / "f.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_path_keeps_the_suffix_and_the_usual_permissions(tmp_path):
    (tmp_path / "plain").touch()
    with atomic_path(tmp_path / "sub" / "f.png") as temporary:
        assert temporary.suffix == ".png" and temporary.parent == tmp_path / "sub"
        temporary.write_bytes(b"x")
    mode = (tmp_path / "sub" / "f.png").stat().st_mode
    assert mode == (tmp_path / "plain").stat().st_mode


def test_summary_by_hand():
    # mean (.5 + .7 + .9) / 3; squared deviations .04 + 0 + .04, over n - 1 = 2
    summary = summarise([0.5, 0.9, 0.7], [3.0, 2.0, 1.0])
    assert list(summary) == ["n_runs", "mean", "sd", "of_lowest_objective", "best"]
    assert summary == pytest.approx(
        {"n_runs": 3, "mean": 0.7, "sd": 0.2, "of_lowest_objective": 0.7, "best": 0.9}
    )
    json.dumps(summary)  # plain numbers


def test_summary_of_one_run_has_no_spread_and_ties_go_to_the_first():
    assert summarise([0.4], [1.0])["sd"] is None
    assert summarise([0.1, 0.8], [2.0, 2.0])["of_lowest_objective"] == 0.1


@pytest.mark.parametrize(
    ("values", "objectives"),
    [([], []), ([1.0], [1.0, 2.0]), ([[1.0]], [[1.0]]), ([float("nan")], [1.0])],
)
def test_summary_refuses_bad_runs(values, objectives):
    with pytest.raises(ValueError, match="run|finite"):
        summarise(values, objectives)
