"""The pipeline in a copy of the project: it makes everything, and repeats only what it must.

The tests share one copy (`smoke_project`), and each leaves it as it found it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from conftest import command, edit

pytestmark = pytest.mark.slow


def repro(project, *arguments, **env):
    """Run `dvc repro`; returns the result and the names of the stages that ran."""
    result = command(project, "dvc", "repro", *arguments, **env)
    lines = result.stdout.splitlines()
    ran = [line.split("'")[1] for line in lines if line.startswith("Running stage '")]
    return result, ran


@contextmanager
def changed(path: Path, old: str, new: str):
    """A change of a file that is taken back at the end, with its time."""
    before, stat = path.read_bytes(), path.stat()
    edit(path, old, new)
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def made(project):
    """Bytes of every file that the pipeline makes."""
    folders = ("figures", "data/runs", "notebooks/executed")
    found = [p for folder in folders for p in (project / folder).rglob("*") if p.is_file()]
    return {p.relative_to(project).as_posix(): p.read_bytes() for p in found
            if "timing" not in p.parts}  # fmt: skip


def test_everything_is_made(smoke_project):
    files = made(smoke_project)
    for dataset in ("affine_mnist", "mnist5k"):
        for method in ("kmeans", "affine", "st_paper", "st"):
            assert f"data/runs/{dataset}-{method}.json" in files
            assert f"data/runs/{dataset}-{method}.npz" in files
            assert f"notebooks/executed/cluster-{dataset}-{method}.ipynb" in files
        for kind in ("blur", "centroids", "tsne"):
            assert files[f"figures/{kind}-{dataset}.png"].startswith(b"\x89PNG")
            assert files[f"figures/{kind}-{dataset}.pdf"].startswith(b"%PDF")
    assert "figures/transformations.png" in files and "figures/tables/table1.tex" in files
    table = json.loads(files["figures/tables/table1.json"])
    assert table["profile"] == "smoke" and len(table["rows"]) == 3 * 2 * 4
    assert all(0 < row["mean"] <= 100 and row["n_runs"] == 2 for row in table["rows"])
    pictures = [name for name in files if name.startswith("figures/") and name.endswith(".png")]
    assert len(pictures) >= 1 + 2 * 5  # and what each of them shows, in numbers
    assert all(json.loads(files[name.replace(".png", ".json")]) for name in pictures)
    verdicts = json.loads(files["figures/tables/reproduction.json"])
    assert len(verdicts) > 100 and {v["verdict"] for v in verdicts} - {None}
    pages = {path.stem for path in (smoke_project / "site").glob("*.html")}
    books = {path.stem for path in (smoke_project / "notebooks" / "executed").glob("*.ipynb")}
    assert pages >= books | {"index", "table-table1", "table-reproduction", "table-datasets"}


def test_wall_times_are_kept_apart(smoke_project):
    timing = sorted((smoke_project / "data" / "runs" / "timing").glob("*.json"))
    pairs = {p.stem for p in (smoke_project / "data" / "runs").glob("*.json")}
    assert len(pairs) == 8 and pairs <= {p.stem for p in timing}
    assert all(json.loads(p.read_text())["seconds"] > 0 for p in timing)
    lock = (smoke_project / "dvc.lock").read_text(encoding="utf-8")
    assert "timing/" not in lock
    files = made(smoke_project)
    kept = [name for name in files if name.startswith("data/runs/") and name.endswith(".json")]
    assert len(kept) == 8 and not any(b"seconds" in files[name] for name in kept)


def test_a_check_run_leaves_the_readme_alone(smoke_project):
    table = (smoke_project / "figures" / "tables" / "table1.md").read_text(encoding="utf-8")
    assert "Profile smoke" in table
    assert "Profile smoke" not in (smoke_project / "README.md").read_text(encoding="utf-8")


def test_runs_of_the_paper_s_methods_start_from_the_same_centroids(smoke_project):
    import numpy as np

    runs = smoke_project / "data" / "runs"
    kept = [np.load(runs / f"mnist5k-{m}.npz") for m in ("kmeans", "affine", "st_paper")]
    for other in kept[1:]:
        np.testing.assert_array_equal(kept[0]["start"], other["start"])
    assert not np.array_equal(kept[0]["start"][0], kept[0]["start"][1])  # another seed
    assert not np.array_equal(kept[0]["centroids"][0], kept[1]["centroids"][0])


def test_S9_the_second_time_nothing_runs(smoke_project):
    before = made(smoke_project)
    began = time.monotonic()
    result, ran = repro(smoke_project)
    assert result.returncode == 0 and ran == []
    assert "Data and pipelines are up to date." in result.stdout
    assert time.monotonic() - began < 30
    assert made(smoke_project) == before


def test_metrics_are_shown(smoke_project):
    result = command(smoke_project, "dvc", "metrics", "show", "--json")
    shown = json.loads(result.stdout)[""]["data"]
    assert len(shown) == 8
    for name, entry in shown.items():
        values = entry["data"]
        assert f"data/runs/{values['dataset']}-{values['method']}.json" == name
        assert {"mean", "sd", "of_lowest_objective", "best"} <= set(values["ACC"])
    table = command(smoke_project, "dvc", "metrics", "show").stdout.splitlines()
    assert "ACC.mean" in table[0] and "NMI.mean" in table[0] and "ARI.mean" in table[0]
    assert max(map(len, table)) < 300  # no sentences, no lists of runs


def test_S9_a_changed_parameter_repeats_what_depends_on_it_and_nothing_else(smoke_project):
    before = made(smoke_project)
    with changed(smoke_project / "params.yaml", "max_iter: 300 ", "max_iter: 1 "):
        status = json.loads(command(smoke_project, "dvc", "status", "--json", "dvc.yaml").stdout)
        stages = {name for name in status if "check" not in name}
        assert stages == {"cluster@affine_mnist-kmeans", "cluster@mnist5k-kmeans"}
        result, ran = repro(smoke_project, "figures@affine_mnist")
        assert result.returncode == 0, result.stderr
        assert ran == ["check", "cluster@affine_mnist-kmeans", "figures@affine_mnist"]
        after = made(smoke_project)
        assert (
            after["figures/centroids-affine_mnist.png"]
            != (before["figures/centroids-affine_mnist.png"])
        )
    result, ran = repro(smoke_project)  # back: from the cache, or made again with equal bytes
    assert result.returncode == 0 and not [n for n in ran if "mnist5k" in n and "kmeans" not in n]
    assert made(smoke_project) == before


def test_the_same_again_gives_the_same_bytes(smoke_project):
    before = made(smoke_project)
    stages = ["cluster@affine_mnist-affine", "figures@affine_mnist", "tables"]
    result, ran = repro(smoke_project, "--force", "--single-item", *stages)
    assert result.returncode == 0, result.stderr
    assert ran == stages
    after = made(smoke_project)
    assert [name for name in before if after.get(name) != before[name]] == []


MISTAKES = [
    ("n_swaps: 1 ", "n_swap: 1 ", "n_swaps"),
    ("\nseeds:", "\nseed:", "seeds"),
    ("\nseeds:", "\nsedes: 1\nseeds:", "seeds"),
    ("\nprofile: smoke", "\nprofile: smok", "smoke"),
    ("\ndistortion: [mnist5k]", "\ndistortion: [mnist5l]", "mnist5k"),
    ("\nmethods: [kmeans", "\nmethods: [kmean", "kmeans"),
]


@pytest.mark.parametrize(("old", "new", "nearest"), MISTAKES)
def test_a_misspelt_key_stops_everything_before_it_runs(smoke_project, old, new, nearest):
    before, lock = made(smoke_project), (smoke_project / "dvc.lock").read_bytes()
    with changed(smoke_project / "params.yaml", old, new):
        result, ran = repro(smoke_project)
    assert result.returncode != 0
    assert f"did you mean {nearest!r}" in result.stderr + result.stdout
    assert ran in ([], ["check"])
    assert made(smoke_project) == before
    assert (smoke_project / "dvc.lock").read_bytes() == lock


def test_a_misspelt_parameter_of_a_notebook_stops_its_stage(smoke_project):
    old = "run data -p dataset="
    with changed(smoke_project / "dvc.yaml", old, "run data -p datset="):
        result, ran = repro(smoke_project)
    assert result.returncode != 0 and "did you mean 'dataset'" in result.stderr + result.stdout
    assert len([stage for stage in ran if stage.startswith("prepare")]) == 1
    assert not [stage for stage in ran if stage.startswith(("cluster", "figures", "tables"))]
    result, ran = repro(smoke_project)  # as it was
    assert result.returncode == 0 and not [n for n in ran if not n.startswith("prepare")]


def test_the_environment_can_t_change_the_profile_behind_the_pipeline_s_back(smoke_project):
    with changed(smoke_project / "params.yaml", "max_iter: 300 ", "max_iter: 299 "):
        result, ran = repro(smoke_project, STKM_PROFILE="default")
    assert result.returncode != 0 and ran == ["check"]
    assert "STKM_PROFILE is 'default'" in result.stderr + result.stdout


def test_S9_a_killed_stage_leaves_nothing_that_counts(smoke_project):
    before = made(smoke_project)
    stage, out = "cluster@affine_mnist-st_paper", "affine_mnist-st_paper"
    folder = str(Path(sys.executable).parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "--force", "--single-item", stage],
        cwd=smoke_project,
        env={**os.environ, "PYTHONPATH": str(smoke_project),
             "PATH": os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    runs = smoke_project / "data" / "runs"
    deadline = time.monotonic() + 120
    while (runs / f"{out}.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.05)  # dvc takes the old results away before the command starts
    time.sleep(2)  # the notebook is on its way
    assert process.poll() is None, "the stage was over before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for name in (f"data/runs/{out}.json", f"notebooks/executed/cluster-{out}.ipynb"):
        path = smoke_project / name
        assert not path.exists() or path.read_bytes() == before[name]
    result, ran = repro(smoke_project)
    assert result.returncode == 0, result.stderr
    assert set(ran) <= {stage}
    after = made(smoke_project)
    assert {name: after.get(name) for name in before} == before


def test_lists_in_the_parameters_decide_what_there_is(smoke_project):
    listed = command(smoke_project, "dvc", "stage", "list", "--name-only").stdout.split()
    params = yaml.safe_load((smoke_project / "params.yaml").read_text())
    pairs = [f"cluster@{d}-{m}" for d in params["datasets"] for m in params["methods"]]
    assert [name for name in listed if name.startswith("cluster")] == pairs
