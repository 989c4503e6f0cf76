"""The documentation: its code runs, it builds without a warning, names all, asks nobody."""

import importlib
import re
import subprocess
import sys

import chromium
import pytest
from conftest import ROOT
from test_site import tags

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import docstrings  # noqa: E402
import examples  # noqa: E402

MODULES = ["warp", "align", "metrics", "plots", "selection", "export", "deep", "browser", "launch"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the code of all pages runs and leaves its pictures."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture(scope="module")
def built(folder, tmp_path_factory):
    """The pages, of a build in which warnings are errors."""
    pictures = {name for page in DOCS.rglob("*.md") for name in shown(page)}
    for page in examples.pages():
        if any(not (folder / name).is_file() for name in shown(page)):
            assert examples.run(page, folder) == []
    assert pictures <= {path.name for path in folder.iterdir()}
    out = tmp_path_factory.mktemp("docs")
    pages = '[["figures-digits", "Figures & digits"]]'
    values = ["-D", f"stkm_pictures={folder}", "-D", f"stkm_pages={pages}"]
    command = [sys.executable, "-W", "ignore", "-m", "sphinx", "-q", "-W", "-b", "html",
               "-d", str(out / "parsed"), *values, str(DOCS), str(out / "html")]  # fmt: skip
    # not in this process: Sphinx replaces the signatures of what it documents
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / "html"


def shown(page):
    """Pictures of a page that its own code makes."""
    return re.findall(r"\(/made/([\w.-]+)\)", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", examples.pages(), ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_gives_what_the_page_says(page, folder):
    assert examples.parse(page).examples
    assert "".join(examples.run(page, folder)) == ""
    assert all((folder / name).stat().st_size for name in shown(page))


@pytest.mark.parametrize("page", examples.pages(), ids=lambda page: page.stem)
def test_no_code_of_a_page_is_left_out(page):
    text = page.read_text(encoding="utf-8")
    assert "+SKIP" not in text
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
        assert kind == "python", kind
        assert block.startswith(">>> "), block


def test_an_example_that_is_wrong_is_told(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> 1 + 1\n3\n```\n")
    (failure,) = ["".join(examples.run(page, tmp_path))]
    assert "Expected:\n    3" in failure and "Got:\n    2" in failure


def test_every_public_name_has_an_entry(built):
    from sphinx.util.inventory import InventoryFile

    with open(built / "objects.inv", "rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, name: name)
    known = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    stkm = importlib.import_module("stkm")
    wanted = {f"stkm.{name}" for name in stkm.__all__}
    for module in MODULES:
        names = importlib.import_module(f"stkm.{module}").__all__
        wanted |= {f"stkm.{module}"} | {f"stkm.{module}.{name}" for name in names}
    assert sorted(wanted - known) == []
    methods = ("fit", "predict", "transform", "align", "plot", "deformation_modes_")
    assert {f"stkm.STKMeans.{name}" for name in methods} <= known
    assert "stkm.MiniBatchSTKMeans.partial_fit" in known and "stkm.Warp.inverse" in known


def test_the_pages_ask_nobody_and_say_what_pictures_show(built):
    pages = sorted(built.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for tag, attrs in tags(page):
            source = attrs.get("src") or (attrs.get("href") if tag == "link" else None)
            if source and source != "#":  # of this page itself, on its own
                assert not re.match(r"(\w+:)?//", source), (page, source)
                assert (
                    source.startswith("data:") or (page.parent / source.partition("?")[0]).exists()
                )
            if tag == "img":
                assert len(attrs["alt"]) > 20, (page, attrs)
    styles = "".join(path.read_text() for path in built.rglob("*.css"))
    assert not re.search(r"@import|url\(\s*[\"']?(\w+:)?//", styles)


def test_links_lead_somewhere(built):
    for page in built.rglob("*.html"):
        for tag, attrs in tags(page):
            href = attrs.get("href", "").partition("#")[0]
            if tag == "a" and href and not re.match(r"\w+:", href):
                beside = href in ("../index.html", "../figures-digits.html")
                assert beside or (page.parent / href).is_file(), (page, href)


def test_formulas_are_mathml(built):
    text = (built / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") > 20 and "$$" not in text and 'class="math"' in text


def test_the_notebooks_have_links(built):
    text = (built / "notebooks.html").read_text(encoding="utf-8")
    assert '<a href="../figures-digits.html">Figures &amp; digits</a>' in text
    assert '<a href="../index.html">' in text


def test_house_style_becomes_numpydoc():
    lines = ["Does.", "", "Parameters", "----------", "a, b : two; c : |d|, ``|d|``", "x,",
             "y : as `Z` has", "    them", "fig : Figure", "    A figure.", "", "Returns",
             "-------", "(N,) of labels_"]  # fmt: skip
    docstrings.process(None, "function", "f", None, None, lines)
    assert lines == ["Does.", "", "Parameters", "----------", "a, b", "    two", "c",
                     "    \\|d\\|, ``|d|``", "x, y", "    as `Z` has", "    them", "fig : Figure",
                     "    A figure.", "", "Returns", "-------", "result",
                     "    (N,) of labels\\_"]  # fmt: skip


@pytest.mark.skipif(chromium.BROWSER is None, reason="needs Chromium")
@pytest.mark.slow
def test_a_browser_has_nothing_to_complain_about(built, tmp_path):
    pages = sorted(built.rglob("*.html"))
    found = chromium.looks(pages, [390], tmp_path / "profile")
    found |= chromium.looks([built / "tutorial.html", built / "api/estimators.html"], [1280],
                            tmp_path / "profile")  # fmt: skip
    assert sum(seen["images"] for seen in found.values()) > 5
    for place, seen in found.items():
        assert seen["over"] <= 0, (place, seen)
        assert not (seen["bad"] or seen["errors"] or seen["requests"]), (place, seen)
