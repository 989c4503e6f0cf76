"""The notebooks run, as they stand and as the pipeline ran them, with the same numbers.

nbval runs them in a copy of the project after the pipeline's smoke run: every
source (lax: no cell may fail), and one executed copy (strict: every output as it
is kept; pictures are not compared, so the numbers behind them are printed).
"""

import os
import re

import nbformat
import pytest
from conftest import ROOT, command

pytestmark = pytest.mark.slow

SOURCES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
# Minutes of compilation, even for a few images: with STKM_NOTEBOOKS=all.  Their modules have tests.
LONG = {"scaling", "selection"}
EXECUTED = "notebooks/executed/cluster-affine_mnist-affine.ipynb"


def nbval(project, mode, path):
    return command(project, "pytest", "-q", "-p", "no:cacheprovider", mode, str(path))


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_notebook_runs(smoke_project, name):
    if name in LONG and os.environ.get("STKM_NOTEBOOKS") != "all":
        pytest.skip("takes minutes: with STKM_NOTEBOOKS=all")
    path = smoke_project / "notebooks" / f"{name}.ipynb"
    if name == "deep" and not (smoke_project / "data/deep/mnist5k-autoencoder-mlp").is_dir():
        # it goes on with what another notebook makes
        made = nbval(smoke_project, "--nbval-lax", path.with_name("autoencoder.ipynb"))
        assert made.returncode == 0, made.stdout[-3000:]
    before = path.read_bytes()
    result = nbval(smoke_project, "--nbval-lax", path)
    assert result.returncode == 0, result.stdout[-3000:]
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert f"{len(cells)} passed" in result.stdout
    assert path.read_bytes() == before  # dvc compares sources by their bytes


def test_O8_an_executed_copy_has_the_outputs_of_another_run(smoke_project):
    result = nbval(smoke_project, "--nbval", smoke_project / EXECUTED)
    assert result.returncode == 0, result.stdout[-3000:]


def test_O8_one_other_digit_in_the_summary_is_seen(smoke_project):
    book = nbformat.read(smoke_project / EXECUTED, as_version=4)
    (summary,) = [c for c in book.cells if "summary" in c.metadata.get("tags", [])]
    text = summary.outputs[0].text
    match = re.search(r"ACC \d+\.(\d)", text)
    other = str((int(match[1]) + 1) % 10)
    summary.outputs[0].text = text[: match.start(1)] + other + text[match.end(1) :]
    # beside the other copies, since a kernel starts in its notebook's folder
    changed = (smoke_project / EXECUTED).with_name("changed.ipynb")
    nbformat.write(book, changed)
    try:
        result = nbval(smoke_project, "--nbval", changed)
    finally:
        changed.unlink()
    assert result.returncode == 1 and "1 failed" in result.stdout, result.stdout[-3000:]


def executed(project):
    paths = sorted((project / "notebooks" / "executed").glob("*.ipynb"))
    assert len(paths) == 1 + 2 + 8 + 2 + 1
    return [(path, nbformat.read(path, as_version=4)) for path in paths]


def test_S12_executed_copies_were_run_in_order_and_without_complaint(smoke_project):
    for path, book in executed(smoke_project):
        cells = [c for c in book.cells if c.cell_type == "code"]
        assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1)), path.name
        for output in (o for c in cells for o in c.outputs):
            assert output.get("name") != "stderr", (path.name, output.text)
            assert output.output_type != "error"


def test_S8_the_perplexity_fits_the_number_of_images_and_is_printed(smoke_project):
    for path, book in executed(smoke_project):
        if path.stem.startswith("figures-"):
            text = "".join(o.get("text", "") for c in book.cells for o in c.get("outputs", []))
            n, perplexity = re.search(r"(\d+) images, perplexity ([\d.]+)", text).groups()
            assert float(perplexity) == pytest.approx(min(30.0, (int(n) - 1) / 3), rel=1e-4)


def test_executed_copies_hold_pictures_and_the_numbers_behind_them(smoke_project):
    for path, book in executed(smoke_project):
        outputs = [o for c in book.cells if c.cell_type == "code" for o in c.outputs]
        kinds = {kind for o in outputs for kind in o.get("data", {})}
        assert any(o.output_type == "stream" for o in outputs), path.name
        wanted = "text/markdown" if path.name == "tables.ipynb" else "image/png"
        assert wanted in kinds, path.name


def test_executed_copies_name_no_place_time_or_process(smoke_project):
    for path, _ in executed(smoke_project):
        text = re.sub(r'"image/png": "[^"]*"', "", path.read_text(encoding="utf-8"))
        assert str(smoke_project) not in text and str(ROOT) not in text, path.name
        assert not re.search(r'"(start_time|end_time|duration|iopub\.\w+)"', text), path.name
        assert "ipykernel_" not in text and "0x7" not in text.replace("0x0", ""), path.name


def test_the_summary_repeats_what_the_results_say(smoke_project):
    import json

    for path, book in executed(smoke_project):
        if not path.name.startswith("cluster-"):
            continue
        (summary,) = [c for c in book.cells if "summary" in c.metadata.get("tags", [])]
        record = smoke_project / "data" / "runs" / f"{path.stem.removeprefix('cluster-')}.json"
        scores = json.loads(record.read_text())
        for name in ("ACC", "NMI", "ARI"):
            line = re.search(rf"{name} (.*) ± (.*); lowest objective (.*); best (.*)",
                             summary.outputs[0].text)  # fmt: skip
            kept = [100 * scores[name][k] for k in ("mean", "sd", "of_lowest_objective", "best")]
            assert [float(x) for x in line.groups()] == pytest.approx(kept, abs=0.06)
