"""One device, four, and two processes: one result."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from conftest import ROOT

from stkm import STKMeans, launch
from stkm.devices import choose, split_over
from stkm.warp import batches

SCRIPT = """
import json, sys, numpy as np, jax
sys.path.insert(0, {tests!r})
from helpers import bars
from stkm import MiniBatchSTKMeans, STKMeans
X, _ = bars(150)
devices = {devices}
kind, params = {kind}
km = kind(3, landmarks=3, n_init=1, random_state=0, devices=devices, **params).fit(X)
f = km.transform(X)
if jax.process_index() == 0:
    np.savez({out!r}, labels=km.labels_, centers=km.cluster_centers_, f=f)
    print(jax.device_count(), jax.process_count())
"""
KINDS = {
    "whole": "STKMeans, dict(n_swaps=1, max_iter=8)",
    "mini-batch": "MiniBatchSTKMeans, dict(n_swaps=0, batch_size=50, init_size=60, max_iter=1)",
    "quick": "STKMeans, dict(init=X[:3], prior='fixed', max_iter=2)",
}


def environment(n):
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    return os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={n}",
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def run(folder, forced, devices, kind, launcher=()):
    """What the script saves with so many forced host devices, and what it prints."""
    out, script = folder / "out.npz", folder / "fit.py"
    tests = str(ROOT / "tests")
    text = SCRIPT.format(tests=tests, devices=devices, kind=KINDS[kind], out=str(out))
    script.write_text(text, encoding="utf-8")
    command = [sys.executable, *launcher, str(script)]
    done = subprocess.run(
        command, env=environment(forced), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(out) as arrays:
        return dict(arrays), done.stdout.splitlines()[-1].split()  # the first lines are Gloo's


@pytest.mark.parametrize(
    "kind",
    ["quick", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("whole", "mini-batch"))],
)
def test_four_devices_find_what_one_finds(kind, tmp_path):
    one, printed = run(tmp_path, 1, "None", kind)
    assert printed == ["1", "1"]
    four, printed = run(tmp_path, 4, "'all'", kind)
    assert printed == ["4", "1"]
    for name in one:
        assert np.array_equal(one[name], four[name]), name


def test_two_processes_find_what_one_finds(tmp_path):
    one, _ = run(tmp_path, 1, "None", "quick")
    two, printed = run(tmp_path, 1, "None", "quick", ["-m", "stkm.launch", "-n", "2"])
    assert printed == ["2", "2"]
    for name in one:
        assert np.array_equal(one[name], two[name]), name


def test_pieces_of_one_length_go_together():
    split = split_over()
    assert split.alone and split.parts == 1
    rounds = list(split.rounds(batches(np.arange(150), 64)))
    assert [[len(p) for p in parts] for parts, _ in rounds] == [[64], [64], [22]]
    split.alone, split.parts = False, 2
    try:
        rounds = list(split.rounds(batches(np.arange(150), 64)))
        assert [[len(p) for p in parts] for parts, _ in rounds] == [[64, 64], [22]]
        assert [len(padded) for _, padded in rounds] == [128, 128]
        assert np.array_equal(rounds[1][1][:64], rounds[1][1][64:])
        rounds = list(split.rounds(batches(np.arange(230), 100)))
        assert [len(padded) for _, padded in rounds] == [200, 128]  # the short piece by itself
    finally:
        split.alone, split.parts = True, 1


@pytest.mark.parametrize("devices", ["some", 0, 99, 1.5, [], ["cpu"], True])
def test_devices_that_are_not_there_are_named(devices):
    with pytest.raises(ValueError, match="devices="):
        choose(devices)
    with pytest.raises(ValueError, match="devices="):
        STKMeans(3, devices=devices).fit(np.eye(16)[None].repeat(4, 0))


def test_a_mesh_is_its_devices():
    assert choose(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))) == jax.devices()[:1]


def test_the_published_optimiser_takes_one_device():
    with pytest.raises(ValueError, match="one device"):
        STKMeans.paper(3, devices="all").fit(np.eye(16)[None].repeat(4, 0))


def test_the_launcher_passes_on_arguments_output_and_failure(tmp_path, capfd):
    script = tmp_path / "tell.py"
    script.write_text(
        "import json, sys, jax\n"
        "print(json.dumps([sys.argv[1:], jax.process_index(), __name__]))\n"
        "sys.exit(3 * (jax.process_index() == 1))\n"
    )
    assert launch.launch(2, [str(script), "-n", "7"], env=environment(1)) == 3
    assert json.loads(capfd.readouterr().out.splitlines()[0]) == [["-n", "7"], 0, "__main__"]


@pytest.mark.parametrize(
    "arguments", [[], ["-n", "0", "x.py"], ["x.py"], ["-n", "2", "--number", "0", "x.py"],
                  ["--coordinator", "a:1", "--processes", "2", "--number", "2", "x.py"]]
)  # fmt: skip
def test_the_launcher_refuses_what_makes_no_sense(arguments, capsys):
    with pytest.raises(SystemExit) as e:
        launch.main(arguments)
    assert e.value.code == 2 and "usage" in capsys.readouterr().err
