"""`python -m stkm run`: checked arguments, the right kernel, the same bytes twice."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from stkm import executed, kernel, notebook
from stkm.notebook import ArgumentError

DEFAULTS = (
    'name = "mnist5k"  # a remark = with "signs"\nn = 3\nx: float = 0.5\nflag = True\nlimit = None'
)


def write(path, *sources, defaults=DEFAULTS):
    cells = [new_markdown_cell("# A notebook")]
    if defaults is not None:
        cells.append(new_code_cell(defaults, metadata={"tags": ["parameters"]}))
    cells += [new_code_cell(source) for source in sources]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


@pytest.fixture
def root(tmp_path):
    """A project root of its own: params.yaml and an empty folder of notebooks."""
    root = tmp_path / "root {0}"  # papermill fills in braces of paths
    (root / "notebooks").mkdir(parents=True)
    (root / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    return root


def stkm(root, *arguments, **env):
    return subprocess.run(
        [sys.executable, "-m", "stkm", *arguments],
        env={**os.environ, "STKM_ROOT": str(root), "PYTHONPATH": str(ROOT), **env},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )


def texts(path):
    """The printed text of each code cell of an executed notebook."""
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    return ["".join(o.get("text", "") for o in c.outputs) for c in cells]


# ------------------------------------------------------------------ arguments


def test_parameters_and_their_defaults_are_read(tmp_path):
    path = write(tmp_path / "a.ipynb", "1")
    expected = {"name": "mnist5k", "n": 3, "x": 0.5, "flag": True, "limit": None}
    assert notebook.parameters(path) == expected
    assert notebook.parameters(write(tmp_path / "b.ipynb", defaults=None)) == {}


@pytest.mark.parametrize("cell", ["a = 1 + b", "import os", "a, b = 1, 2", "a = (", "print(1)"])
def test_a_parameters_cell_with_more_than_literals_is_refused(tmp_path, cell):
    path = write(tmp_path / "a.ipynb", defaults=cell)
    with pytest.raises(ArgumentError, match=r"parameters cell of a\.ipynb"):
        notebook.parameters(path)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("name", "007", "007"),
        ("name", "nan", "nan"),
        ("name", "True", "True"),
        ("name", "", ""),
        ("n", "-12", -12),
        ("x", "3", 3.0),
        ("x", "1e-3", 0.001),
        ("flag", "false", False),
        ("flag", "True", True),
        ("limit", "200", 200),
        ("limit", "0.25", 0.25),
        ("limit", "None", None),
        ("limit", "007", "007"),
        ("limit", "__import__('os')", "__import__('os')"),
    ],
)
def test_values_take_the_type_of_the_default(tmp_path, name, text, value):
    (got,) = notebook.check(write(tmp_path / "a.ipynb"), {name: text}).values()
    assert got == value and type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("n", "3.5", "'n' must be of type int, not '3.5'"),
        ("n", "True", "'n' must be of type int"),
        ("x", "nan", "'x' must be of type float, not 'nan'"),
        ("x", "inf", "'x' must be of type float"),
        ("flag", "1", "'flag' must be true or false, not '1'"),
        ("nmae", "a", "has no parameter 'nmae'; did you mean 'name'"),
    ],
)
def test_wrong_values_and_names_are_refused(tmp_path, name, text, message):
    with pytest.raises(ArgumentError, match=message):
        notebook.check(write(tmp_path / "a.ipynb"), {name: text})


def test_a_list_can_only_be_set_in_the_notebook(tmp_path):
    path = write(tmp_path / "a.ipynb", defaults="sizes = [1, 2]")
    with pytest.raises(ArgumentError, match="set in the notebook"):
        notebook.check(path, {"sizes": "3"})


@given(st.text(max_size=50))
def test_any_string_reaches_the_notebook_as_data(text):
    from papermill.translators import PythonTranslator

    source = PythonTranslator.codify({"name": text})
    (assignment,) = ast.parse(source).body
    assert ast.literal_eval(assignment.value) == text


@given(st.lists(st.text(max_size=80), max_size=3), st.lists(st.text(max_size=80), max_size=3))
def test_output_names_are_safe_and_differ_when_values_do(one, other):
    def name(values):
        values = dict(enumerate(values))
        return notebook.output_path(Path("nb.ipynb"), values, Path("/out"))

    assert name(one).parent == Path("/out") and len(name(one).name) < 250
    assert name(one).name.isascii() and name(one).suffix == ".ipynb"
    assert (name(one) == name(other)) == (one == other)


def test_output_name_is_readable():
    path = notebook.output_path(Path("x/cluster.ipynb"), {"a": "mnist5k", "b": "st"}, Path("/o"))
    assert path == Path("/o/cluster-mnist5k-st.ipynb")


# -------------------------------------------------------- nothing runs, code 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "prob"], "no notebook 'prob' in .*; did you mean 'probe'"),
        (["run", "./absent.ipynb"], "no notebook 'absent'"),
        (["run", "probe", "-p", "nmae=a"], "no parameter 'nmae'; did you mean 'name'"),
        (["run", "probe", "-p", "name"], "not of the form NAME=VALUE"),
        (["run", "probe", "-p", "n=1", "-p", "n=2"], "'n' is given twice"),
        (["run", "probe", "-p", "n=many"], "'n' must be of type int"),
        (["run", "params.yaml/x.ipynb"], "no notebook"),
        (["rum", "probe"], "invalid choice"),
        ([], "required"),
    ],
)
def test_bad_arguments_stop_before_anything_runs(root, arguments, message):
    write(root / "notebooks" / "probe.ipynb", "open('ran', 'w')")
    result = stkm(root, *arguments)
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert re.search(message, result.stderr), result.stderr
    assert not (root / "notebooks" / "ran").exists()
    assert not (root / "notebooks" / "executed").exists()


def test_a_mistake_in_params_yaml_stops_before_anything_runs(root):
    write(root / "notebooks" / "probe.ipynb", "open('ran', 'w')")
    result = stkm(root, "run", "probe", STKM_PROFILE="smok")
    assert result.returncode == 2 and "did you mean 'smoke'" in result.stderr
    text = (root / "params.yaml").read_text().replace("n_runs", "n_rums", 1)
    (root / "params.yaml").write_text(text)
    result = stkm(root, "run", "probe")
    assert result.returncode == 2 and "'n_rums'" in result.stderr and "'n_runs'" in result.stderr
    assert not (root / "notebooks" / "ran").exists()


def test_a_file_that_is_no_notebook_and_a_wrong_root_are_named(root):
    (root / "notebooks" / "broken.ipynb").write_text('{"cells": 3}')
    result = stkm(root, "run", "broken")
    assert result.returncode == 2 and "broken.ipynb is not a notebook" in result.stderr
    result = stkm(root, "run", "broken", STKM_ROOT="/no/such/folder")
    assert result.returncode == 2 and "STKM_ROOT is '/no/such/folder'" in result.stderr


def test_missing_packages_are_named(root, tmp_path):
    write(root / "notebooks" / "probe.ipynb", "1")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['ipykernel'] = None")
    result = stkm(root, "run", "probe", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert result.returncode == 2
    assert "needs the package ipykernel" in result.stderr and "./run" in result.stderr


def test_help_names_the_exit_codes():
    result = stkm(ROOT, "--help")
    assert result.returncode == 0 and "exit codes" in result.stdout and "run" in result.stdout


# ------------------------------------------------------------------ execution

PROBE = """\
import json, os, random, sys, warnings
import stkm.paths
print(json.dumps([name, n, x, flag, limit]))
facts = [sys.executable, os.getcwd(), stkm.paths.__file__, os.environ["MPLBACKEND"]]
json.dump(facts, open("facts.json", "w"))
sys.stderr.write("to stderr\\n"); print("to stdout", object(), sys.executable, os.getcwd())
warnings.warn("careful")
print({"one", "two", "three", "four"})
for i in range(3):
    print(f"\\rstep {i}", end="")
"""
FIGURE = "import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1)).gca().plot([1, 2]);"


def test_O7_run_twice_gives_the_same_bytes_from_the_right_kernel(root, tmp_path):
    """Also with another kernel of the same name first on the path, and a home without settings."""
    theirs = tmp_path / "jupyter" / "kernels" / "python3"
    theirs.mkdir(parents=True)
    spec = {"argv": ["/bin/false"], "display_name": "theirs", "language": "python"}
    (theirs / "kernel.json").write_text(json.dumps(spec))
    source = write(root / "notebooks" / "probe.ipynb", PROBE, FIGURE)
    before = source.read_bytes()
    env = {"JUPYTER_PATH": str(tmp_path / "jupyter"), "HOME": str(tmp_path), "MPLBACKEND": "agg"}
    value = 'a"; open("ran", "w")\n\\'
    arguments = ["run", "probe", "-p", f"name={value}", "-p", "limit=7"]

    result = stkm(root, *arguments, **env)
    assert result.returncode == 0, result.stderr
    path = Path(result.stdout.strip())
    assert path.parent == root / "notebooks" / "executed"
    first = path.read_bytes()
    assert stkm(root, *arguments, **env).returncode == 0
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert source.read_bytes() == before

    facts = json.loads((root / "notebooks" / "facts.json").read_text())
    here = str(root / "notebooks")
    assert facts[:3] == [sys.executable, here, str(ROOT / "stkm" / "paths.py")]
    assert "inline" in facts[3]  # set by the kernel itself, in spite of agg
    assert not (root / "notebooks" / "ran").exists()
    printed = next(text for text in texts(path) if text)
    assert json.loads(printed.splitlines()[0]) == [value, 3, 0.5, True, 7]
    # stdout together and first, no address, no file of the kernel, no progress
    assert "to stdout <object object at 0x0> <env>/bin/python ./notebooks\n" in printed
    assert printed.index("step 2") < printed.index("to stderr\n<cell>:")
    assert "step 1" not in printed

    nb = nbformat.read(path, as_version=4)
    nbformat.validate(nb)
    text = first.decode()
    for volatile in (
        str(root),
        str(tmp_path),
        "ipykernel_",
        '"papermill"',
        "iopub",
        "execution_time",
    ):
        assert volatile not in text, volatile
    assert nb.metadata.kernelspec == executed.KERNELSPEC
    assert [c.execution_count for c in nb.cells if c.cell_type == "code"] == [1, 2, 3, 4]
    assert "image/png" in nb.cells[-1].outputs[0].data


def test_a_failing_cell_keeps_the_old_copy_and_shows_the_traceback(root):
    path = root / "notebooks" / "probe.ipynb"
    out = root / "notebooks" / "executed" / "probe.ipynb"
    out.parent.mkdir()
    out.write_text("old")
    write(
        path, "print('so far')", "def f():\n    raise KeyError('what is wrong')", "f()", "print(1)"
    )
    result = stkm(root, "run", "probe")
    assert result.returncode == 1 and result.stdout == ""
    assert "failed in cell 4: KeyError: 'what is wrong'" in result.stderr
    assert "raise KeyError" in result.stderr and "\x1b" not in result.stderr
    assert out.read_text() == "old"
    failed = out.with_name("probe.failed.ipynb")
    assert str(failed) in result.stderr and "so far\n" in texts(failed)
    assert sorted(p.name for p in out.parent.iterdir()) == ["probe.failed.ipynb", "probe.ipynb"]
    write(path, "print('well')")
    assert stkm(root, "run", "notebooks/probe.ipynb").returncode == 0  # by path this time
    assert "well\n" in texts(out) and not failed.exists()


def test_a_dying_kernel_is_an_error_and_leaves_nothing(root):
    write(root / "notebooks" / "probe.ipynb", "import os; os._exit(1)", defaults=None)
    result = stkm(root, "run", "probe")
    assert result.returncode == 1 and "the kernel of probe.ipynb died" in result.stderr
    assert not list((root / "notebooks" / "executed").glob("*.tmp.*"))
    assert not (root / "notebooks" / "executed" / "probe.ipynb").exists()


def test_a_kernel_that_does_not_start_is_an_error(root, tmp_path):
    write(root / "notebooks" / "probe.ipynb", "1")
    # stops every interpreter started with -m ipykernel_launcher, so the kernel's alone
    stop = "import os, sys; 'ipykernel_launcher' in ' '.join(sys.orig_argv) and os._exit(3)"
    (tmp_path / "sitecustomize.py").write_text(stop)
    result = stkm(root, "run", "probe", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert result.returncode == 1
    assert "the kernel of probe.ipynb died: Kernel died before replying" in result.stderr


# ------------------------------------------------------------------- cleaning


def outputs(*items):
    return [
        {"output_type": "stream", "name": name, "text": text}
        if name in ("stdout", "stderr")
        else {"output_type": "display_data", "metadata": {}, "data": {name: text}}
        for name, text in items
    ]


def test_streams_merge_between_displays_only():
    given = outputs(
        ("stderr", "e1\n"), ("stdout", "o1\n"), ("stderr", "e2\n"), ("stdout", "o2\n"),
        ("text/plain", "<A at 0x7f00deadbeef>"), ("stdout", "10%\r20%\rdone\n"),
    )  # fmt: skip
    expected = outputs(
        ("stdout", "o1\no2\n"), ("stderr", "e1\ne2\n"),
        ("text/plain", "<A at 0x0>"), ("stdout", "done\n"),
    )  # fmt: skip
    assert executed._clean_outputs(given) == expected


def test_paths_of_the_machine_are_replaced_whole_names_only(monkeypatch):
    monkeypatch.setattr(executed.paths, "ROOT", Path("/home/me/stkm"))
    monkeypatch.setenv("HOME", "/home/me")
    text = "/home/me/stkm/a.py /home/me/stkm-2/b /home/me/x /home/meg/y http://w.org/home/me/z"
    assert executed._neutral(text) == "./a.py ~/stkm-2/b ~/x /home/meg/y http://w.org/home/me/z"
    monkeypatch.setenv("HOME", "/")
    assert executed._neutral("a/b /usr") == "a/b /usr"
    assert executed._neutral("/tmp/ipykernel_12/345.py:1: W") == "<cell>:1: W"


def test_hidden_modules_come_back():
    with executed.hidden_modules("colorsys_absent", "json"):
        with pytest.raises(ImportError):
            import colorsys_absent  # noqa: F401
        import json as again
    assert again is json and "colorsys_absent" not in sys.modules


def test_the_kernel_imports_this_copy_and_draws_inline(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    env = kernel.environment()
    assert "MPLBACKEND" not in env and env["PYTHONPATH"] == f"{ROOT}:/elsewhere"
    assert os.environ["MPLBACKEND"] == "agg"


def test_every_parameter_named_in_the_pipeline_exists():
    """The `-p` names of dvc.yaml, checked against the notebooks they go to."""
    import yaml

    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    checked = 0
    for stage in stages.values():
        command = stage.get("do", stage)["cmd"]
        for line in command if isinstance(command, list) else [command]:
            match = re.search(r"-m stkm run (\S+)(.*)", line)
            if match:
                known = notebook.parameters(notebook.find(match[1]))
                assert set(re.findall(r"-p (\w+)=", match[2])) <= set(known), line
                checked += 1
    assert checked
