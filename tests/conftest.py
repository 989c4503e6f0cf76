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

ROOT = Path(__file__).resolve().parent.parent

# The package computes in float32; a test that needs float64 asks for it locally.
os.environ["JAX_ENABLE_X64"] = "0"
# What a developer has set must not decide whether a test passes.
for name in ("STKM_PROFILE", "STKM_ROOT", "MPLBACKEND"):
    os.environ.pop(name, None)

settings.register_profile("stkm", deadline=None, derandomize=True, database=None)
settings.load_profile("stkm")

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
