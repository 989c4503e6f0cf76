"""The repository keeps its own rules: notebooks, pipeline, imports, README and files agree."""

import ast
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import nbformat
import pytest
import yaml
from conftest import CACHES, MADE, ROOT

import stkm
from stkm import executed, site

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PIPELINES = [ROOT / folder / "dvc.yaml" for folder in (".", "notebooks", "data")]
STAGES = {
    name: stage
    for path in PIPELINES
    for name, stage in yaml.safe_load(path.read_text(encoding="utf-8"))["stages"].items()
}
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))

# An import may only go from a later to an earlier one of these.
ORDER = """
paths config results metrics
datasets.errors datasets.sampling datasets.spec datasets.files datasets.tfds_cache
datasets.folder datasets.raw datasets.mnist datasets.mnist5k datasets.usps datasets.arabic
datasets.letters datasets.photographs datasets.audio datasets.speech datasets.registry
datasets.records datasets.store datasets.overview datasets.loading datasets.warped datasets
validation checkpoint blocks warp resolution solvers devices prior align adam lloyd search learning
progress init fitting passes cluster minibatch launch
ceiling timing theory scaling parallel experiment ablation methods plots selection evidence tables
report export browser
deep.training deep.networks deep.autoencoder deep.estimators deep baselines
kernel executed notebook site __main__
""".split()

# Why a stage leaves out a module that its notebook imports stands in dvc.yaml.
RUNNER = {"stkm/__main__.py", "stkm/notebook.py", "stkm/executed.py", "stkm/kernel.py"}
READING = {"stkm/datasets/loading.py", "stkm/datasets/sampling.py", "stkm/datasets/spec.py"}


def nb(path):
    return nbformat.read(path, as_version=4)


def code(path):
    return [c.source for c in nb(path).cells if c.cell_type == "code"]


by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)

# -------------------------------------------------------------------- imports


@cache
def module_file(name):
    """The file of module `name` of the package, or None."""
    base = ROOT.joinpath(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def imports(source, package=""):
    """Modules of the package that Python `source` imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                if base == "stkm" and alias.name in stkm._PUBLIC:
                    whole = f"stkm.{stkm._PUBLIC[alias.name]}"
                found.add(whole if module_file(whole) else base)
    return {name for name in found if name.startswith("stkm.") and module_file(name)}


@cache
def direct(name):
    path = module_file(name)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return imports(path.read_text(encoding="utf-8"), package)


def closure(names):
    done, todo = set(), set(names)
    while todo:
        name = todo.pop()
        done.add(name)
        todo |= direct(name) - done
    return done


def all_modules():
    files = sorted((ROOT / "stkm").rglob("*.py"))
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in files]
    return [name.removesuffix(".__init__") for name in names]


def test_the_order_names_every_module():
    assert sorted(f"stkm.{name}" for name in ORDER) == sorted(set(all_modules()) - {"stkm"})


@pytest.mark.parametrize("name", ORDER)
def test_imports_go_one_way(name):
    """Also inside functions; data sets that are looked up by name are not seen here."""
    later = set(ORDER[ORDER.index(name) :])
    wrong = {m for m in direct(f"stkm.{name}") if m.removeprefix("stkm.") in later}
    assert not wrong, f"stkm.{name} imports {sorted(wrong)}"


@pytest.mark.parametrize("name", ["warp", "align", "init", "cluster", "fitting", "lloyd", "search"])
def test_fitting_sees_neither_labels_nor_pictures(name):
    seen = closure({f"stkm.{name}"})
    assert not seen & {"stkm.metrics", "stkm.plots", "stkm.config", "stkm.results", "stkm.datasets"}


# ------------------------------------------------------------------- pipeline


def notebook_of(stage):
    match = re.search(r"-m stkm run (\w+)", STAGES[stage]["cmd"])
    return match and ROOT / "notebooks" / f"{match[1]}.ipynb"


RUNS = [stage for stage in STAGES if notebook_of(stage)]


@pytest.mark.parametrize("stage", RUNS)
def test_a_stage_depends_on_what_its_notebook_imports(stage):
    path = notebook_of(stage)
    needed = closure(imports("\n".join(code(path))))
    expected = {module_file(name).relative_to(ROOT).as_posix() for name in needed} - RUNNER
    listed = {dep for dep in STAGES[stage]["deps"] if dep.startswith("stkm")}
    if "stkm/datasets" in listed:  # the whole folder
        listed.discard("stkm/datasets")
        expected = {dep for dep in expected if not dep.startswith("stkm/datasets/")}
    elif any(dep.startswith("stkm/datasets/") for dep in expected):
        expected = {d for d in expected if not d.startswith("stkm/datasets/")} | READING
    if stage.startswith("cluster"):
        expected.discard("stkm/plots.py")
    assert sorted(listed) == sorted(expected)
    assert f"notebooks/{path.name}" in STAGES[stage]["deps"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_dependency_stands_once(stage):
    assert len(STAGES[stage].get("deps", [])) == len(set(STAGES[stage].get("deps", [])))


def names(item):
    return item if isinstance(item, str) else next(iter(item))


@pytest.mark.parametrize("stage", STAGES)
def test_no_output_lies_inside_a_dependency_of_its_own_stage(stage):
    made = [names(out) for key in ("outs", "metrics") for out in STAGES[stage].get(key, [])]
    for out in made:
        for dep in STAGES[stage]["deps"]:
            assert out != dep and not out.startswith(dep.rstrip("/") + "/"), (out, dep)


def test_the_main_pipeline_waits_for_no_other():
    """A folder that it depends on, in which another pipeline writes, would make it run that one."""
    own, *others = (yaml.safe_load(p.read_text(encoding="utf-8"))["stages"] for p in PIPELINES)
    needed = {dep.rstrip("/") for stage in own.values() for dep in stage.get("deps", [])}
    needed = {dep for dep in needed if "$" not in dep}  # the others are of one data set
    for stage in (stage for other in others for stage in other.values()):
        for out in map(names, stage["outs"]):
            parents = {str(parent) for parent in Path(out).parents} | {out}
            assert not parents & needed, out


@pytest.mark.parametrize("stage", STAGES)
def test_what_git_keeps_is_not_cached_and_the_rest_is_ignored_by_git(stage):
    for key in ("outs", "metrics"):
        for out in STAGES[stage].get(key, []):
            kept = isinstance(out, dict) and out[names(out)].get("cache") is False
            assert kept == names(out).startswith("figures/"), out


@pytest.mark.parametrize("stage", RUNS)
def test_every_parameter_of_the_notebook_is_given_by_name(stage):
    from stkm import notebook

    given = re.findall(r"-p (\w+)=", STAGES[stage]["cmd"])
    known = notebook.parameters(notebook_of(stage))
    assert set(given) <= set(known)
    assert given == list(STAGES[stage].get("matrix", given))
    # these are also to be run without
    assert set(known) == set(given) or stage in ("quickstart", "tables", "own_images")


def test_every_notebook_has_a_stage():
    assert {notebook_of(stage) for stage in RUNS} == set(NOTEBOOKS)


def test_lists_stand_once():
    """Data sets and methods are named in params.yaml alone."""
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    for name in PARAMS["datasets"]:
        assert name not in text
    for stage in STAGES.values():
        for values in stage.get("matrix", {}).values():
            assert re.fullmatch(r"\$\{[\w.]+\}", values)


def test_everything_waits_for_the_check_of_the_parameters():
    assert "params.yaml" in STAGES["check"]["deps"]
    (stamp,) = STAGES["check"]["outs"]
    assert all(stamp in STAGES[stage]["deps"] for stage in RUNS)


# ------------------------------------------------------------------- security

# To read these back runs whatever code they hold.
UNPICKLES = re.compile(
    r"\b(?:c?[pP]ickle|dill|cloudpickle|marshal|joblib|torch)\.loads?\(|\bUnpickler\(|\bshelve\.open"
    r"|\bread_pickle\(|allow_pickle\s*=\s*(?!False\b)|\bpickle_module\b"
    r"|from (?:c?[pP]ickle|dill|cloudpickle|marshal|joblib|shelve) import [^\n]*\b(?:loads?|open)\b"
    r"|\byaml\.(?:unsafe_load|full_load|load)(?:_all)?\(|\bUnsafeLoader\b|\bFullLoader\b"
)
OWN = "copies of an estimator that the test itself has made"
MAY_UNPICKLE = {
    "stkm/config.py": "a subclass of yaml.SafeLoader, which builds plain values only",
    "tests/test_minibatch.py": OWN,
    "tests/test_cases_core.py": OWN,
    "tests/test_sklearn.py": OWN,
}


def test_nothing_that_is_read_can_run_code():
    """Neither data, results and checkpoints nor parameters: no pickle, and the safe YAML only."""
    texts = {p: p.read_text(encoding="utf-8") for p in ROOT.glob("[sdft]*/**/*.py")}
    texts |= {ROOT / "run": (ROOT / "run").read_text(encoding="utf-8")}
    texts |= {p: "\n".join(code(p)) for p in NOTEBOOKS}
    found = {p.relative_to(ROOT).as_posix() for p, text in texts.items() if UNPICKLES.search(text)}
    assert found == set(MAY_UNPICKLE)
    assert "class Loader(yaml.SafeLoader)" in (ROOT / "stkm/config.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name, argument",
    [
        ("pickle.load", "f"),
        ("joblib.load", "path"),
        ("yaml.load", "text, Loader=yaml.Loader"),
        ("np.load", "path, allow_pickle" + "=True"),
    ],
)
def test_what_can_run_code_would_be_found(name, argument):
    assert UNPICKLES.search(f"x = {name}({argument})")
    assert not UNPICKLES.search("np.load(path, allow_pickle=False); yaml.safe_load(text)")


# ------------------------------------------------------------------ notebooks


@by_name
def test_a_notebook_is_source(path):
    text = path.read_text(encoding="utf-8")
    book = nb(path)
    nbformat.validate(book)
    assert (book.nbformat, book.nbformat_minor) == (4, 5)
    assert text == nbformat.writes(book).rstrip("\n") + "\n"
    assert book.metadata == {"kernelspec": executed.KERNELSPEC}
    for cell in book.cells:
        assert set(cell.metadata) <= {"tags"}
        assert re.fullmatch(r"[a-z][a-z0-9-]*", cell.id)
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None


@by_name
def test_a_notebook_tells_a_story(path):
    cells = nb(path).cells
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")
    assert len(re.findall(r"^- ", cells[0].source, re.M)) == 3
    tags = [tag for cell in cells for tag in cell.metadata.get("tags", [])]
    assert tags.count("summary") == 1 and tags.count("parameters") <= 1
    summary = next(c for c in cells if "summary" in c.metadata.get("tags", []))
    assert "print(" in summary.source
    assert not any("nbval" in tag for tag in tags)  # nothing is kept out of the comparison
    drawing = [c.source for c in cells if "plt.subplots" in c.source]
    prints = "\n".join(c.source for c in cells if c.cell_type == "code")
    assert prints.count("print(") >= len(drawing)


@by_name
def test_S12_prose_holds_no_result(path):
    """Results are printed by the cells; a number in prose would go stale."""
    for cell in nb(path).cells:
        if cell.cell_type == "markdown":
            assert not re.search(r"\d[.,]\d|\d\s?%|\d\s?(s|min|px)\b", cell.source), cell.source


@by_name
def test_a_notebook_holds_calls_not_code(path):
    for node in ast.walk(ast.parse("\n".join(code(path)))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            assert node.end_lineno - node.lineno < 5, node.name
    text = "\n".join(code(path))
    assert "for dataset in" not in text and "time(" not in text and "tqdm" not in text
    assert not re.search(r"plt\.show|matplotlib\.use|%matplotlib|warnings\.filter", text)


# --------------------------------------------------------------------- README


def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


ROWS = site.map_rows(readme())
ROW_NAMES = {name for row in ROWS for name in row["figures"]}
OUTS = [names(out) for stage in STAGES.values() for out in stage.get("outs", [])]
# names of figures and tables as the map has them: what hangs on the data set is `<set>`
MADE_NAMES = {
    Path(out).stem.replace("${item.dataset}", "<set>") for out in OUTS if out.startswith("figures/")
}


def test_every_figure_has_a_row_in_the_map_and_every_row_a_figure():
    assert {"transformations", "centroids-<set>", "tsne-<set>", "table1"} <= MADE_NAMES
    assert sorted(ROW_NAMES) == sorted(MADE_NAMES)
    for row in ROWS:
        assert row["sources"] and row["made_by"], row
        assert all((ROOT / "notebooks" / f"{name}.ipynb").is_file() for name in row["sources"])


FIGURES = sorted((ROOT / "figures").rglob("*.*"))
# rows whose files nobody has made yet, and the stage that makes them: to become fewer, not more
TO_BE_MADE = {
    "accuracy_vs_distortion-<set>": "accuracy_vs_distortion",
    "selection-<set>": "selection",
}


def is_of(path, name):
    """Whether a file of figures/ is one of those that a row of the map names."""
    return bool(re.fullmatch(re.escape(name).replace("<set>", r"\w+"), path.stem))


@pytest.mark.parametrize("path", FIGURES, ids=lambda p: p.name)
def test_a_file_in_figures_belongs_to_a_row(path):
    assert any(is_of(path, name) for name in ROW_NAMES)


@pytest.mark.parametrize("name", sorted(ROW_NAMES))
def test_a_row_has_files_in_figures_or_is_listed_as_to_be_made(name):
    there = any(is_of(path, name) for path in FIGURES)
    assert there != (name in TO_BE_MADE), f"{name}: figures/ has its files: {there}"


@pytest.mark.parametrize(("name", "stage"), TO_BE_MADE.items())
def test_what_is_to_be_made_is_made_by_a_stage(name, stage):
    made = [Path(names(out)).stem for out in STAGES[stage]["outs"]]
    assert name in [stem.replace("${item.dataset}", "<set>") for stem in made]


def test_every_picture_has_a_twin_with_its_numbers():
    pictures = [out for out in OUTS if out.startswith("figures/") and out.endswith(".png")]
    assert len(pictures) > 10
    for picture in pictures:
        assert picture.removesuffix(".png") + ".json" in OUTS, picture
        assert picture.removesuffix(".png") + ".pdf" in OUTS, picture


def test_the_readme_links_to_files_that_are_there_or_made():
    outs = [names(out) for stage in STAGES.values() for out in stage.get("outs", [])]
    made = [re.escape(out).replace(r"\$\{item\.dataset\}", r"\w+").replace(
        r"\$\{item\.method\}", r"\w+") for out in outs]  # fmt: skip
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", readme()):
        there = (ROOT / target).exists() or any(re.fullmatch(m, target) for m in made)
        assert there, target


def test_the_table_of_the_readme_is_the_one_in_figures():
    text = readme()
    inside = text.split("<!-- table1 -->")[1].split("<!-- /table1 -->")[0].strip()
    table = ROOT / "figures" / "tables" / "table1.md"
    profile = json.loads(table.with_suffix(".json").read_text(encoding="utf-8"))["profile"]
    if profile == "smoke":
        pytest.skip("figures/ holds a check run, which the README does not show")
    assert inside == table.read_text(encoding="utf-8").strip()


# ---------------------------------------------------------------------- files


def files():
    """Files that belong to the repository: tracked, or new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    except (FileNotFoundError, subprocess.CalledProcessError):  # an unpacked archive
        made = [ROOT / name for name in MADE]
        found = [path for path in ROOT.rglob("*") if not CACHES & set(path.parts)]
        found = [path for path in found if not any(path.is_relative_to(m) for m in made)]
    return [p for p in found if p.is_file()]


def test_no_file_is_large():
    assert [p for p in files() if p.stat().st_size > 2**20] == []


MACHINE = re.compile(
    r"/(?:home|Users|root)/\w"  # somebody's folder
    r"|\b(?:\d{1,3}\.){3}\d{1,3}\b"  # an address in a network
    r"|\b[\w-]+(?:\.[\w-]+)*\.(?:internal|intranet|lan|localdomain)\b"
)


def test_nothing_names_a_machine():
    for path in files():
        if path.suffix in (".png", ".pdf", ".lock"):
            continue
        text = path.read_text(encoding="utf-8")
        assert str(ROOT) not in text, path
        if "tests" not in path.parts:  # tests make up machines of other people
            assert not MACHINE.search(text), (path, MACHINE.search(text))


def test_the_lock_has_hashes_and_no_addresses():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text and "--index" not in text and "@" not in text
    entries = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert len(entries) > 100
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]


def test_the_parameters_in_the_repository_are_the_published_ones():
    assert PARAMS["profile"] == "default"
