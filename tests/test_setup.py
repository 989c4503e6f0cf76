"""`./run` makes, repairs and reuses the environment; the packaging says what is true.

The tests of `run` use the real script in a copy with an empty lock, and a `uv`
that makes a real environment but installs nothing, so that each takes a second.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
UV = """#!/usr/bin/env bash
case "$1 ${2-}" in
  "--version "*) echo uv 0 ;;
  "venv "*) "${@: -2:1}" -m venv --without-pip "${@: -1}" ;;
  "pip sync")
    [[ "$*" == *--require-hashes* ]] || exit 65
    echo sync >>installs
    sleep "${SLOW:-0}" ;;
  *) exit 64 ;;
esac
"""


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Checkout:
    """A folder with `run`, an empty lock and the tools to run it with."""

    def __init__(self, root):
        self.root = root / "my checkout"  # a path with a space
        self.root.mkdir()
        self.tools = root / "tools"
        for name in ("run", "pyproject.toml"):
            (self.root / name).write_bytes((ROOT / name).read_bytes())
        (self.root / "run").chmod(0o755)
        (self.root / "requirements.lock").write_text("# nothing\n")
        executable(self.tools / "uv", UV)
        self.env = {"PATH": f"{self.tools}:/usr/bin:/bin", "STKM_PYTHON": str(PYTHON)}
        self.env["HOME"] = str(root)

    def start(self, *command, **env):
        env = {k: v for k, v in {**self.env, **env}.items() if v is not None}
        pipe = subprocess.PIPE
        command = [str(self.root / "run"), *command]
        return subprocess.Popen(command, env=env, cwd="/", stdout=pipe, stderr=pipe, text=True)

    def __call__(self, *command, **env):
        process = self.start(*command, **env)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return out.strip(), err.strip()

    @property
    def installs(self):
        log = self.root / "installs"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


SHOW = "import json, os, sys; print(json.dumps([sys.prefix, os.getcwd(), dict(os.environ)]))"


def test_first_call_installs_and_the_next_only_runs(checkout):
    out, err = checkout("python", "-c", SHOW, PYTHONPATH="/elsewhere", PYTHONHOME="/elsewhere")
    assert "installing" in err and checkout.installs == 1
    prefix, cwd, env = json.loads(out)
    venv = str(checkout.root / ".venv")
    assert (prefix, cwd, env["VIRTUAL_ENV"]) == (venv, str(checkout.root), venv)
    assert env["PATH"].startswith(f"{venv}/bin:") and env["PYTHONNOUSERSITE"] == "1"
    assert env["JAX_COMPILATION_CACHE_DIR"] == str(checkout.root / ".cache" / "jax")
    assert env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
    assert not {"MPLBACKEND", "JAX_PLATFORMS", "PYTHONPATH", "PYTHONHOME"} & set(env)
    assert checkout("echo", "a  b", "*") == ("a  b *", "")
    assert checkout.installs == 1


def test_what_the_user_has_set_stays(checkout):
    own = {"JAX_COMPILATION_CACHE_DIR": "/x", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "3"}
    env = json.loads(checkout("python", "-c", SHOW, JUPYTER_PATH="/theirs", **own)[0])[2]
    assert {k: env[k] for k in own} == own
    assert env["JUPYTER_PATH"] == f"{checkout.root}/.venv/share/jupyter:/theirs"


def test_the_checkout_is_importable_from_any_folder(checkout):
    (checkout.root / "stkm").mkdir()
    (checkout.root / "stkm" / "__init__.py").write_text("here = __file__")
    code = "import os; os.chdir('/'); import stkm; print(stkm.here)"
    assert checkout("python", "-c", code)[0] == str(checkout.root / "stkm" / "__init__.py")


def test_exit_code_is_the_commands(checkout):
    process = checkout.start("sh", "-c", "exit 7")
    process.communicate()
    assert process.returncode == 7


def test_a_changed_lock_and_a_moved_checkout_install_anew(checkout, tmp_path):
    checkout("true")
    (checkout.root / ".venv" / "leftover").touch()
    (checkout.root / "requirements.lock").write_text("# something else\n")
    checkout("true")
    assert checkout.installs == 2 and not (checkout.root / ".venv" / "leftover").exists()
    checkout.root = checkout.root.rename(tmp_path / "moved")
    assert checkout("python", "-c", "import sys; print(sys.prefix)")[0] == f"{tmp_path}/moved/.venv"
    assert checkout.installs == 3


@pytest.mark.parametrize("lock_tool", ["flock", "fcntl"])
def test_killed_installation_is_repaired_and_two_starts_install_once(checkout, lock_tool):
    if lock_tool == "fcntl":  # a machine without the flock program, as macOS
        for tool in "bash env dirname mkdir cat cksum rm mv sleep true".split():
            path = subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip()
            (checkout.tools / tool).symlink_to(path)
        checkout.env["PATH"] = str(checkout.tools)
    process = checkout.start("true", SLOW="2")
    while checkout.installs == 0:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.kill()  # its child goes on for two seconds and holds the lock
    process.wait()
    assert (checkout.root / ".venv").exists()
    two = [checkout.start("true", SLOW="0.5") for _ in range(2)]
    errors = [process.communicate(timeout=60)[1] for process in two]
    assert [process.returncode for process in two] == [0, 0], errors
    assert checkout.installs == 2
    assert sum("installing" in error for error in errors) == 1
    assert all("waiting for another" in error for error in errors)


def test_a_failing_installation_fails_and_is_tried_again(checkout):
    executable(checkout.tools / "uv", UV.replace("echo sync", "exit 9; echo sync"))
    for _ in range(2):
        process = checkout.start("echo", "ran")
        out, err = process.communicate()
        assert process.returncode != 0 and out == "" and "installing" in err
    executable(checkout.tools / "uv", UV)
    assert checkout("echo", "ran")[0] == "ran"


def test_broken_and_too_old_pythons_on_path_are_passed_over(checkout):
    shims = checkout.root.parent / "shims"
    for name in ("python3.12", "python3.11", "python3", "python"):
        executable(shims / name, "#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    good = checkout.root.parent / "good"
    good.mkdir()
    (good / PYTHON.name).symlink_to(PYTHON)
    path = f"{shims}:{good}:{checkout.env['PATH']}"
    assert f"{good}/{PYTHON.name}" in checkout("true", PATH=path, STKM_PYTHON=None)[1]


def test_without_a_python_it_says_what_it_needs(checkout):
    process = checkout.start("true", STKM_PYTHON="/no/such/python")
    assert "STKM_PYTHON=/no/such/python is not a working Python" in process.communicate()[1]
    assert process.returncode == 1
    bare = checkout.root.parent / "bare"
    bare.mkdir()
    for tool in ("bash", "dirname", "mkdir", "cksum", "env"):
        path = subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip()
        (bare / tool).symlink_to(path)
    process = checkout.start("true", STKM_PYTHON=None, PATH=str(bare))
    assert "needs Python 3.11 or 3.12" in process.communicate()[1]
    assert process.returncode == 1 and not (checkout.root / ".venv").exists()


@pytest.mark.parametrize("home", [None, "", "/no/such/folder"])
def test_a_missing_home_is_replaced(checkout, home):
    env = json.loads(checkout("python", "-c", SHOW, HOME=home)[0])[2]
    assert env["HOME"] == str(checkout.root / ".cache" / "home") and Path(env["HOME"]).is_dir()


def test_O7_our_kernel_comes_before_another_of_its_name(checkout):
    theirs = checkout.root.parent / ".local" / "share" / "jupyter" / "kernels" / "python3"
    theirs.mkdir(parents=True)
    spec = {"argv": ["/bin/false"], "display_name": "theirs", "language": "python"}
    (theirs / "kernel.json").write_text(json.dumps(spec))
    out, _ = checkout("python", "-c", SHOW)
    kernels = Path(json.loads(out)[0]) / "share" / "jupyter" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(json.dumps({**spec, "display_name": "ours"}))
    # This test's own interpreter has a kernel too, which would come in between.
    env = {**json.loads(out)[2], "PATH": os.environ["PATH"], "JUPYTER_PREFER_ENV_PATH": "0"}
    code = (
        "from jupyter_client.kernelspec import get_kernel_spec as g; "
        "print(g('python3').display_name)"
    )
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert found.stdout.strip() == "ours", found.stderr
    theirs_first = {**env, "JUPYTER_PATH": ""}
    found = subprocess.run(
        [sys.executable, "-c", code], env=theirs_first, capture_output=True, text=True
    )
    assert found.stdout.strip() == "theirs"  # so the variable is what decides


def test_pip_does_where_there_is_no_uv(checkout, tmp_path):
    (checkout.tools / "uv").unlink()
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "answer = 42")
        archive.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (checkout.root / "requirements.lock").write_text(
        f"tiny @ {wheel.as_uri()} --hash=sha256:{digest}\n"
    )
    out, err = checkout("python", "-c", "import sys, tiny; print(tiny.answer, sys.prefix)")
    assert out == f"42 {checkout.root / '.venv'}" and "with uv" not in err


def test_no_command_prints_the_usage(checkout):
    process = checkout.start()
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "") and err.startswith("usage: ./run COMMAND")
    assert checkout("--help")[0].startswith("usage:") and checkout.installs == 0


def test_a_warm_start_is_quick(checkout):
    checkout("true")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        checkout("true")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.15, times


# ------------------------------------------------------------------ packaging


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def pins():
    lines = re.findall(
        r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text(), re.M
    )
    return {canonicalize_name(name): version for name, version in lines}


def test_every_pin_has_a_hash_and_no_address_stands_in_the_lock():
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) > 100
    for block in blocks:
        assert re.match(r"[\w.\[\]-]+==\S+", block) and "--hash=sha256:" in block, block
    assert "://" not in text and "index-url" not in text


def test_the_lock_satisfies_pyproject_and_the_input_file(project, pins):
    wanted = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    lines = (ROOT / "requirements.in").read_text().splitlines()
    wanted += [line.split("#")[0] for line in lines if line.split("#")[0].strip()]
    for requirement in map(Requirement, wanted):
        if requirement.name != "stkm":
            version = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), (str(requirement), version)


def test_scripts_are_executable_and_ci_runs_the_readmes_test_command():
    for name in ("run", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK)
        subprocess.run(["bash", "-n", str(ROOT / name)], check=True)
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec ./run pytest"
    assert "./run pytest" in (ROOT / "README.md").read_text()


def test_conda_environment_installs_the_lock():
    env = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert "python=3.11" in env["dependencies"]
    assert {"pip": ["-r requirements.lock"]} in env["dependencies"]


def test_citation_names_the_paper_and_this_version(project):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"] == "MIT"
    addresses = [citation["preferred-citation"]["url"], citation["references"][0]["url"]]
    assert [a.rsplit("/")[-1] for a in addresses] == ["2202.07829", "2012.09743"]
    for work in (citation["preferred-citation"], citation["references"][0]):
        assert [a["family-names"] for a in work["authors"]][:1] == ["Cosentino"]
        assert len(work["authors"]) == 6


def test_the_wheel_holds_the_package_alone_and_works(tmp_project, tmp_path):
    build = "from hatchling.build import build_wheel; build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_project, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("stkm-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert {name.split("/")[0] for name in names} == {
        "stkm",
        wheel.name.split("-py3")[0] + ".dist-info",
    }
    assert "stkm/report.html" in names  # what the report is made from
    assert "stkm/py.typed" in names and "stkm/paths.py" in names
    assert not [name for name in names if "__pycache__" in name]
    code = "import stkm.paths as p, stkm.metrics as m; print(m.nmi([0, 1], [1, 0]), p.ROOT)"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "XDG_CACHE_HOME": str(tmp_path)}
    out = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert out.split() == ["1.0", str(tmp_path / "stkm")]


# ---------------------------------------------------------------------- paths


def test_paths_follow_the_environment(tmp_path, monkeypatch):
    from stkm import paths

    assert paths.ROOT == ROOT and paths.PARAMS.is_file()
    assert paths.TABLES == ROOT / "figures" / "tables"
    monkeypatch.setenv("STKM_DATA_DIR", str(tmp_path / "raw"))
    monkeypatch.setenv("STKM_PREPARED_DIR", str(tmp_path / "prepared"))
    assert (paths.raw_dir(), paths.prepared_dir()) == (tmp_path / "raw", tmp_path / "prepared")
    monkeypatch.setenv("STKM_DATA_DIR", "")
    assert paths.raw_dir() == ROOT / "data" / "raw"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STKM_ROOT", ".")
    assert paths.find_root() == tmp_path
    monkeypatch.setenv("STKM_ROOT", "absent")
    with pytest.raises(ValueError, match="STKM_ROOT is 'absent', which is not a folder"):
        paths.find_root()


def test_light_modules_stay_light():
    code = (
        "import sys, stkm.paths, stkm.config, stkm.notebook; "
        "print([m for m in ('numpy', 'jax', 'sklearn', 'papermill', 'yaml') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert out.stdout.strip() == "[]", out.stdout + out.stderr
