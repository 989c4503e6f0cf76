"""Static pages of the executed notebooks and tables, with an index from figure to function.

The pages need nothing but themselves: no script, no font and no style sheet from elsewhere, and
pictures stand in the page or beside it. Every picture has an alternative text. Names of files and
the README's text are escaped; of notebooks and tables, which may hold HTML of their own, the page
forbids the browser to run anything. The documentation lies beside them, in ``docs``, where Sphinx
is installed (``pip install "stkm[docs]"``).
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stkm import paths

__all__ = ["Page", "build", "document", "map_rows"]

MANY = 4  # pages that stand in a line
SPHINX = ("sphinx", "myst_parser", "furo")  # what the documentation needs

# `file:` since a page that is opened from a disk has no origin that 'self' could be
POLICY = "default-src 'none'; img-src 'self' file: data:; style-src 'unsafe-inline'"

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.25; }
a { color: #0b5394; }
img { max-width: 100%; height: auto; }
p, li, td, th, figcaption, h1, h2 { overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: .82rem; line-height: 1.4; padding: .6rem; margin: .4rem 0;
      background: #f6f6f6; border-radius: 4px; }
.output pre, .output_area pre { background: none; border-left: 3px solid #ddd; }
code { font-size: .88em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
td, th { padding: .2rem .5rem; border-bottom: 1px solid #ddd; text-align: left; }
.scroll td, .scroll th { overflow-wrap: normal; white-space: nowrap; }
.scroll td:last-child { white-space: normal; min-width: 6rem; }
.prompt, .anchor-link { display: none; }
figure { margin: 1rem 0; }
nav { font-size: .9rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr));
           gap: 1rem; }
.gallery figure { margin: 0; border: 1px solid #ddd; border-radius: 4px; padding: .6rem; }
"""


@dataclass(frozen=True)
class Page:
    """One page: file name without suffix, title, and the notebook source that it belongs to."""

    name: str
    title: str
    source: str


def build(
    folder: Path | None = None, *, say: Callable[[str], object] = lambda text: None
) -> list[Page]:
    """Write the site; returns its pages, the index and the documentation left out.

    Parameters
    ----------
    folder : where; `paths.SITE` by default. What was there is replaced as a whole
    say : is given a line where the documentation is left out, and why

    Raises
    ------
    ValueError : there is no executed notebook
    RuntimeError : Sphinx can't build the documentation
    """
    folder = Path(folder or paths.SITE)
    books = sorted(p for p in paths.EXECUTED.glob("*.ipynb") if not p.stem.endswith(".failed"))
    if not books:
        raise ValueError(f"no executed notebook in {paths.EXECUTED}: run the pipeline first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.tmp.", dir=folder.parent))
    try:
        exporter = _exporter()
        pages = [_notebook_page(path, fresh, exporter) for path in books]
        pages += [_table_page(path, fresh) for path in sorted(paths.TABLES.glob("*.md"))]
        documented = document(fresh / "docs", pages, say=say)
        _index(pages, fresh, documented)
        fresh.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return pages


def document(
    folder: Path,
    pages: Sequence[Page] = (),
    *,
    say: Callable[[str], object] = lambda text: None,
) -> bool:
    """Build the documentation in a folder; returns whether there is one.

    Parameters
    ----------
    folder : where; ``index.html`` is its first page
    pages : of the site, one folder up, to which it links
    say : is given a line where Sphinx, its theme or the sources are not there

    Raises
    ------
    RuntimeError : Sphinx stopped; its last lines are the message
    """
    source = paths.ROOT / "docs"
    if not (source / "conf.py").is_file():
        say("no documentation: there is no docs/conf.py")
        return False
    missing = [name for name in SPHINX if importlib.util.find_spec(name) is None]
    if missing:
        say(f"no documentation: {', '.join(missing)} not installed, pip install 'stkm[docs]'")
        return False
    links = json.dumps([(page.name, page.title) for page in pages])
    with tempfile.TemporaryDirectory() as parsed:  # the doctrees are no part of the site
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", parsed]
        command += ["-D", f"stkm_pages={links}", str(source), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the documentation can't be built: {done.stderr[-2000:]}")
    for line in done.stderr.strip().splitlines():
        say(line)
    (folder / ".buildinfo").unlink(missing_ok=True)
    return True


# ---------------------------------------------------------------------- pages


def _write(folder: Path, name: str, title: str, body: str) -> None:
    back = "" if name == "index" else '<nav><a href="index.html">All figures and pages</a></nav>'
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{STYLE}{_code_style()}</style>
</head>
<body><main>
{back}
{body}
</main></body>
</html>
"""
    (folder / f"{name}.html").write_text(text, encoding="utf-8")


def _code_style() -> str:
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(style="default").get_style_defs(".highlight")


def _exporter() -> Any:
    from nbconvert import HTMLExporter

    # this template, unlike the others, asks for no script from elsewhere
    exporter = HTMLExporter(template_name="basic", exclude_anchor_links=True)
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    return exporter


def _notebook_page(path: Path, folder: Path, exporter: Any) -> Page:
    import nbformat

    book = nbformat.read(path, as_version=4)
    title = _title(book)
    values = path.stem.partition("-")[2].replace("-", ", ")
    whole = f"{title}: {values}" if values else title
    _describe(book, whole)
    body, _ = exporter.from_notebook_node(book)
    _write(folder, path.stem, whole, _scrollable(body))
    return Page(path.stem, whole, path.stem.partition("-")[0])


def _title(book: Any) -> str:
    first = next(c.source for c in book.cells if c.cell_type == "markdown")
    return first.splitlines()[0].lstrip("# ")


def _describe(book: Any, title: str) -> None:
    """Give every picture an alternative text: page, heading and the sentence before it."""
    heading, sentence = "", ""
    for cell in book.cells:
        if cell.cell_type == "markdown":
            found = re.findall(r"^#+ (.*)$", cell.source, re.M)
            heading = found[-1] if found else heading
            prose = re.sub(r"^(#+|-) .*$", "", cell.source, flags=re.M).strip()
            sentence = re.split(r"(?<=[.:?])\s", _bare(prose), maxsplit=1)[0] if prose else ""
        for output in cell.get("outputs", []):
            for kind in set(output.get("data", {})) & {"image/png", "image/jpeg"}:
                parts = [title, *(part for part in (_bare(heading), sentence) if part)]
                alt = ". ".join(dict.fromkeys(part.rstrip(".:") for part in parts))
                output.metadata.setdefault(kind, {})["alt"] = f"{alt}."


def _bare(text: str) -> str:
    """Markdown without its marks."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[*`_]", "", text).replace("\n", " ")


def _table_page(path: Path, folder: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    title = f"Table: {path.stem.replace('_', ' ')}"
    _write(folder, f"table-{path.stem}", title, f"<h1>{escape(title)}</h1>{_markdown(text)}")
    return Page(f"table-{path.stem}", title, "tables")


def _markdown(text: str, escaped: bool = False) -> str:
    """HTML of Markdown, in which HTML stays what it is or becomes text."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    renderer = IPythonRenderer(escape=escaped, allow_harmful_protocols=not escaped)
    return _scrollable(MarkdownWithMath(renderer).render(text))


def _scrollable(html: str) -> str:
    """Wide tables scroll by themselves, not the page."""
    html = re.sub(r"<table\b", '<div class="scroll" tabindex="0"><table', html)
    return html.replace("</table>", "</table></div>")


# ---------------------------------------------------------------------- index


def map_rows(text: str) -> list[dict[str, Any]]:
    """Rows of the README's map: ``title``, ``figures`` (patterns), ``sources``, ``made_by``.

    Parameters
    ----------
    text : of the README

    Raises
    ------
    ValueError : it has no such table
    """
    found = re.search(r"^\| figure or table \|.*\n\|[-| ]*\n((?:\|.*\n)+)", text, re.M)
    if not found:
        raise ValueError("README.md has no table that begins with `| figure or table |`")
    rows = []
    for line in found[1].splitlines():
        what, where, made_by = (cell.strip() for cell in line.strip().strip("|").split(" | "))
        rows.append(
            {
                "title": _bare(what.partition(": ")[0]),
                "figures": re.findall(r"`([\w<>-]+)`", what),
                "sources": re.findall(r"notebooks/(\w+)\.ipynb", where),
                "made_by": made_by,
            }
        )
    return rows


def _index(pages: list[Page], folder: Path, documented: bool) -> None:
    readme = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    parts = [f"<h1>{escape(readme.splitlines()[0].lstrip('# '))}</h1>"]
    parts.append("<p>Figures and tables, the pages that made them, and the functions behind.</p>")
    if documented:
        parts.append('<p><a href="docs/index.html">Documentation</a>: tutorial, how-to pages, '
                     "the method, reference.</p>")  # fmt: skip
    for row in map_rows(readme):
        parts.append(f"<h2>{escape(row['title'])}</h2>")
        links = [_link(page) for page in pages if page.source in row["sources"]]
        where = (
            f"Pages: {', '.join(links)}." if links else "No page: its notebook has not been run."
        )
        parts.append(
            f"<p>{where} Made by {_markdown(row['made_by'], escaped=True).strip()[3:-4]}.</p>"
        )
        shown = [_figure(path, row["title"], folder) for name in row["figures"]
                 for path in _files(name)]  # fmt: skip
        if shown:
            parts.append(f'<div class="gallery">{"".join(shown)}</div>')
        named = {f"table-{name}" for name in row["figures"]}
        tables = [_link(page) for page in pages if page.name in named]
        if tables:
            parts.append(f"<p>Table: {', '.join(tables)}.</p>")
    parts.append("<h2>All pages</h2><ul>")
    parts += [f"<li>{_link(page)}</li>" for page in pages]
    _write(folder, "index", "Spatial Transformer K-Means: figures and tables",
           "\n".join([*parts, "</ul>"]))  # fmt: skip


def _link(page: Page) -> str:
    return f'<a href="{quote(page.name)}.html">{escape(page.title)}</a>'


def _files(name: str) -> list[Path]:
    """Pictures of a name of the map, ``centroids-<set>`` or ``transformations``."""
    return sorted(paths.FIGURES.glob(f"{re.sub('<[^>]*>', '*', name)}.png"))


def _figure(path: Path, title: str, folder: Path) -> str:
    (folder / "figures").mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "figures" / path.name)
    alt = escape(f"{title}, {path.stem.partition('-')[2] or path.stem}", quote=True)
    return (
        f'<figure><img src="figures/{quote(path.name)}" alt="{alt}" loading="lazy">'
        f"<figcaption>{escape(path.stem)}</figcaption></figure>"
    )
