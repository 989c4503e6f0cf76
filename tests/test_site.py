"""The site: pages that need nothing but themselves, fit a telephone and say what they show."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import chromium
import nbformat
import numpy as np
import pytest
from PIL import Image

from stkm import paths, site

README = """# stkm: Title

| figure or table | notebook | made by |
|---|---|---|
| Centroids: `centroids-<set>` | [`figures.ipynb`](notebooks/figures.ipynb), from [`cluster.ipynb`](notebooks/cluster.ipynb) | `STKMeans`, `plots.mosaic` |
| Table 1: [`table1`](figures/tables/table1.md) | [`tables.ipynb`](notebooks/tables.ipynb) | `stkm.tables` |
| Appendix F, data | [`data.ipynb`](notebooks/data.ipynb) | `stkm.datasets` |
"""  # noqa: E501


def picture():
    import base64
    import io

    made = io.BytesIO()
    Image.fromarray(np.zeros((200, 900), np.uint8)).save(made, "PNG")
    return base64.b64encode(made.getvalue()).decode()


def book(code="x = 1"):
    new = nbformat.v4
    output = new.new_output("display_data", {"image/png": picture(), "text/plain": "<Figure>"})
    long = new.new_output("stream", text="0123456789 " * 60 + "\n")
    cells = [
        new.new_markdown_cell("# The methods\n\nWhat you will see here:\n\n- **this**;\n- that"),
        new.new_markdown_cell("## In the *plane*\n\nPoints by [class](x.md): all. And more."),
        new.new_code_cell(code, outputs=[output, long], execution_count=1),
    ]
    return new.new_notebook(cells=cells)


@pytest.fixture
def project(tmp_path, monkeypatch):
    folders = {"EXECUTED": "executed", "TABLES": "figures/tables", "FIGURES": "figures"}
    for name, folder in folders.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(paths, name, tmp_path / folder)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "SITE", tmp_path / "site")
    (tmp_path / "README.md").write_text(README)
    for name in ("figures-digits", "cluster-digits-st", "tables"):
        nbformat.write(book(), tmp_path / "executed" / f"{name}.ipynb")
    wide = "| a | b |\n| --- | --- |\n| " + "wide_word " * 40 + "| <b>2</b> |\n"
    (tmp_path / "figures/tables/table1.md").write_text(wide)
    Image.fromarray(np.zeros((200, 900), np.uint8)).save(tmp_path / "figures/centroids-digits.png")
    return tmp_path


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def tags(path):
    return Tags(path.read_text(encoding="utf-8")).found


def test_a_page_for_each_notebook_and_table_and_an_index(project):
    pages = site.build()
    assert [page.name for page in pages] == [
        "cluster-digits-st", "figures-digits", "tables", "table-table1"
    ]  # fmt: skip
    assert pages[0].title == "The methods: digits, st" and pages[0].source == "cluster"
    names = {path.name for path in (project / "site").iterdir()}
    assert names == {f"{page.name}.html" for page in pages} | {"index.html", "figures"}


def test_the_index_leads_from_a_figure_to_its_pages_and_function(project):
    site.build()
    text = (project / "site/index.html").read_text()
    (section,) = re.findall(r"<h2>Centroids</h2>(.*?)<h2>", text, re.S)
    assert 'href="figures-digits.html"' in section and 'href="cluster-digits-st.html"' in section
    assert "<code>STKMeans</code>" in section and 'src="figures/centroids-digits.png"' in section
    assert 'href="table-table1.html"' in text and "its notebook has not been run" in text


def test_nothing_comes_from_elsewhere(project):
    site.build()
    for path in (project / "site").glob("*.html"):
        for tag, attrs in tags(path):
            assert tag not in ("script", "iframe", "object"), path
            if tag in ("img", "link"):
                source = attrs.get("src") or attrs["href"]
                assert source.startswith("data:") or (project / "site" / source).is_file()
        assert "@import" not in path.read_text() and "url(" not in path.read_text()


EVIL = "<img src=x onerror=alert(1)>\"'&amp;<script>alert(1)</script>"
FILE = "a\"><script>alert(1)<'#?%&"  # a slash can't be in a name


def test_names_and_texts_are_escaped(project):
    """Of files, of classes in a cell's output, in a title, and in the README."""
    stem = f"figures-{FILE}"
    bad = book()
    bad.cells[0].source = f"# Title {EVIL}"
    bad.cells[2].outputs += [
        nbformat.v4.new_output("stream", text=f"class {EVIL}\n"),
        nbformat.v4.new_output("execute_result", {"text/plain": repr([EVIL])}),
    ]
    nbformat.write(bad, project / "executed" / f"{stem}.ipynb")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(project / f"figures/centroids-{FILE}.png")
    made_by = f"`code`, {EVIL}, [x](javascript:alert(1))"
    readme = README.replace("# stkm: Title", f"# {EVIL}").replace("`stkm.tables`", made_by)
    (project / "README.md").write_text(readme.replace("Appendix F, data", f"Data {EVIL}"))
    site.build()
    index = project / "site/index.html"
    for tag, attrs in tags(index):
        assert tag != "script" and not any(name.startswith("on") for name in attrs), attrs
        assert not attrs.get("href", "").startswith("javascript"), attrs
        if tag == "img":
            assert (project / "site" / unquote(attrs["src"])).is_file(), attrs
    links = {unquote(a["href"]) for tag, a in tags(index) if tag == "a"}
    assert f"{stem}.html" in links and "&lt;script&gt;" in index.read_text()
    page = (project / "site" / f"{stem}.html").read_text()
    head, body = page.split("</head>")
    assert "<script" not in head and "class &lt;img src=x onerror" in body
    outside = re.sub(r"<h1.*?</h1>", "", body, flags=re.S)  # a notebook's prose may hold HTML
    for tag, attrs in Tags(outside).found:
        assert tag != "script" and not any(name.startswith("on") for name in attrs), attrs


def test_pages_forbid_the_browser_to_run_anything(project):
    site.build()
    for path in (project / "site").glob("*.html"):
        (policy,) = [a["content"] for tag, a in tags(path) if "http-equiv" in a]
        assert "default-src 'none'" in policy and "script" not in policy, path


def test_every_picture_says_what_it_shows(project):
    site.build()
    alts = {path.stem: [a["alt"] for tag, a in tags(path) if tag == "img"]
            for path in (project / "site").glob("*.html")}  # fmt: skip
    assert alts["figures-digits"] == ["The methods: digits. In the plane. Points by class."]
    assert alts["index"] == ["Centroids, digits"]


def test_links_of_the_site_lead_somewhere(project):
    site.build()
    for path in (project / "site").glob("*.html"):
        for tag, attrs in tags(path):
            href = attrs.get("href", "")
            if tag == "a" and not href.startswith(("http", "#")):
                assert (project / "site" / href).is_file() or href == "x.md", (path, href)


def test_a_run_that_failed_has_no_page(project):
    nbformat.write(book(), project / "executed" / "figures-toy.failed.ipynb")
    assert not any("failed" in page.name for page in site.build())


def test_a_broken_notebook_leaves_the_old_site_as_it_was(project):
    site.build()
    before = {p.name: p.read_bytes() for p in (project / "site").glob("*.html")}
    (project / "executed/bad.ipynb").write_text("{")
    with pytest.raises(Exception, match="bad|JSON|not"):
        site.build()
    assert {p.name: p.read_bytes() for p in (project / "site").glob("*.html")} == before
    assert not list(project.glob(".site*"))


def test_the_same_again_gives_the_same_bytes(project):
    site.build()
    before = {p.name: p.read_bytes() for p in (project / "site").glob("*.html")}
    site.build()
    assert {p.name: p.read_bytes() for p in (project / "site").glob("*.html")} == before


CONF = """
html_theme = "basic"
def setup(app):
    app.add_config_value("stkm_pages", "", "env")
    app.connect("source-read", lambda app, name, source: source.append(
        source.pop().replace("PAGES", app.config.stkm_pages)))
"""


def test_the_documentation_lies_in_the_site_and_knows_its_pages(project):
    (project / "docs").mkdir()
    (project / "docs/conf.py").write_text(CONF)
    (project / "docs/index.rst").write_text("Title\n=====\n\nPAGES\n")
    said = []
    site.build(say=said.append)
    assert said == []
    assert 'href="docs/index.html"' in (project / "site/index.html").read_text()
    assert "figures-digits" in (project / "site/docs/index.html").read_text()
    assert not {".buildinfo", ".doctrees"} & {p.name for p in (project / "site/docs").iterdir()}
    before = {p: p.read_bytes() for p in (project / "site").rglob("*") if p.is_file()}
    site.build()
    assert {p: p.read_bytes() for p in (project / "site").rglob("*") if p.is_file()} == before
    (project / "docs/conf.py").write_text("1 / 0")
    with pytest.raises(RuntimeError, match="division by zero"):
        site.build()
    assert (project / "site/docs/index.html").is_file()


def test_without_sphinx_the_site_says_so_in_a_line(project, monkeypatch):
    (project / "docs").mkdir()
    (project / "docs/conf.py").write_text(CONF)
    monkeypatch.setattr(site, "SPHINX", ("sphinx", "not_there_at_all"))
    said = []
    assert site.build(say=said.append)
    assert said == ["no documentation: not_there_at_all not installed, pip install 'stkm[docs]'"]
    assert not (project / "site/docs").exists()
    assert "docs/" not in (project / "site/index.html").read_text()


def test_without_a_run_there_is_no_site(project):
    for path in (project / "executed").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match="no executed notebook"):
        site.build()
    with pytest.raises(ValueError, match="no table"):
        site.map_rows("# nothing")


@pytest.mark.skipif(chromium.BROWSER is None, reason="needs Chromium")
@pytest.mark.slow
def test_a_browser_has_nothing_to_complain_about(project, tmp_path):
    site.build()
    pages = sorted((project / "site").glob("*.html"))
    found = chromium.looks(pages, [1280, 390], tmp_path / "profile")
    assert len(found) == 2 * len(pages) and sum(seen["images"] for seen in found.values())
    for place, seen in found.items():
        assert seen["over"] <= 0, (place, seen)
        assert not (seen["bad"] or seen["errors"] or seen["requests"]), (place, seen)
