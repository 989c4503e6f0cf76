"""What all tests share: fixed settings and a copy of the project to work in."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from joblib import cpu_count
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parent.parent

# The package computes in float32; a test that needs float64 asks for it locally.
os.environ["JAX_ENABLE_X64"] = "0"
# What a developer has set must not decide whether a test passes.
for name in ("STKM_PROFILE", "STKM_ROOT", "MPLBACKEND"):
    os.environ.pop(name, None)

settings.register_profile("stkm", deadline=None, derandomize=True, database=None)
settings.load_profile("stkm")

# A process that shares the tests with another one stays on one core, so that they don't get into
# each other's way: XLA spends much of a second core on handing small pieces between threads.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(WORKER.removeprefix("gw")) % len(cores)]})

# The files whose tests share one run of the pipeline (`smoke_project`): the longest piece.
SMOKE = ("test_pipeline.py", "test_notebooks.py")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Share all tests among two processes, where there are two cores; files that are named, not.

    Not a setting of pyproject.toml: nbval's cells of a notebook must stay in one process.
    """
    if WORKER is None and config.getoption("numprocesses", 1) is None and cpu_count() > 1:
        if [Path(arg).resolve() for arg in config.args] == [ROOT / "tests"]:
            config.option.numprocesses, config.option.dist = 2, "loadfile"
            config.option.loadscopereorder = False


class SmokeTogether(LoadFileScheduling):
    """A file's tests stay in one process, and all that use `smoke_project` in the same one."""

    def _split_scope(self, nodeid):
        scope = super()._split_scope(nodeid)
        return "smoke" if scope.endswith(SMOKE) else scope


def pytest_xdist_make_scheduler(config, log):
    return SmokeTogether(config, log)


def pytest_collection_modifyitems(items):
    if WORKER:  # the longest piece first
        items.sort(key=lambda item: item.path.name not in SMOKE)


# What is made, not written: neither source nor wanted in a copy.
MADE = (".git .venv .cache .dvc/cache .dvc/tmp data/raw data/prepared data/runs "
        "notebooks/executed data/drawn data/deep site build dist").split()  # fmt: skip
CACHES = {"__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache", ".ipynb_checkpoints"}


def copy_project(target: Path) -> Path:
    """Copy the source files of the checkout to `target`, a new git repository."""

    def made(folder: str, names: list[str]) -> set[str]:
        here = Path(folder).relative_to(ROOT)
        return {n for n in names if n in CACHES or (here / n).as_posix() in MADE}

    shutil.copytree(ROOT, target, ignore=made)
    subprocess.run(["git", "init", "--quiet", str(target)], check=True)  # dvc wants one
    return target


@pytest.fixture
def tmp_project(tmp_path: Path) -> Path:
    """A copy of the project that a test may change and run in."""
    return copy_project(tmp_path / "project")


@pytest.fixture
def no_network(monkeypatch):
    """Let no connection and no look-up of a host name succeed."""

    def refuse(*args, **kwargs):
        raise OSError("network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def command(project: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    """Run ``python -m <arguments>`` in a copy of the project, as `./run` would there."""
    folder = str(Path(sys.executable).parent)
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    settings = {
        "PATH": os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": str(project),  # before the checkout that the environment points to
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=project,
        env={**os.environ, **settings, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def edit(path: Path, old: str, new: str) -> None:
    """Replace the only place of `old` in a file."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in {path.name}"
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="session")
def smoke_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project after `dvc repro` of two data sets in the smoke profile."""
    project = copy_project(tmp_path_factory.mktemp("smoke") / "project")
    for name in ("figures", "dvc.lock"):  # nothing that was made before
        shutil.rmtree(project / name, ignore_errors=True)
        (project / name).unlink(missing_ok=True)
    edit(project / "params.yaml", "\nprofile: default", "\nprofile: smoke")
    text = (project / "params.yaml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^datasets:.*$", "datasets: [affine_mnist, mnist5k]", text)
    (project / "params.yaml").write_text(text, encoding="utf-8")
    result = command(project, "dvc", "repro")
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return project
