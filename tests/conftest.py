"""What all tests share: fixed settings and a copy of the project to work in."""

import os
import shutil
import subprocess
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
        "notebooks/executed build dist").split()  # fmt: skip
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
