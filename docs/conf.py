"""Settings of Sphinx: `sphinx-build -b html docs site/docs`, or `python -m stkm site`."""

import json
import os
import sys
import tempfile
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import docstrings  # noqa: E402
import examples  # noqa: E402

project = "stkm"
author = "the stkm authors"
copyright = author  # without a year: the same pages whenever they are built
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["made"]

default_role = "py:obj"
autosummary_generate = False  # every name has its entry on the page that lists it
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "none"  # the docstrings say it, with shapes
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]  # which keeps the _ of labels_

html_theme = "furo"
html_title = "stkm"
html_copy_source = False
html_domain_indices = False  # the reference is one
html_show_sphinx = False
html_math_renderer = "mathml"  # the default fetches a script from elsewhere
html_static_path = ["static"]
html_css_files = ["stkm.css"]
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "default"

log = logging.getLogger(__name__)


def _mathml(self, node, block):
    """Write a formula as MathML, which a browser draws without a script."""
    try:
        text = tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        log.warning("formula %r: %s", node.astext(), error, location=node)
        text = ""
    tag = "div" if block else "span"
    scrolls = ' tabindex="0"' if block else ""
    self.body.append(f'<{tag} class="math"{scrolls}>{text.strip()}</{tag}>')
    raise nodes.SkipNode


def _pictures(app):
    """Make the pictures of the pages by running the pages' code, unless they are there."""
    if app.config.stkm_pictures:
        return
    # gone with this object
    app.stkm_made = tempfile.TemporaryDirectory(prefix="stkm-docs-")
    app.config.stkm_pictures = app.stkm_made.name
    for page in examples.pages():
        if "(/made/" in page.read_text(encoding="utf-8"):
            for failure in examples.run(page, app.config.stkm_pictures):
                log.warning("%s: %s", page.name, failure)


def _place_pictures(app, document):
    for image in document.findall(nodes.image):
        if image["uri"].startswith("/made/"):
            made = Path(app.config.stkm_pictures).resolve() / Path(image["uri"]).name
            image["uri"] = "/" + os.path.relpath(made, HERE)


def _link_pages(app, name, source):
    """Put links to the pages of executed notebooks, which lie beside the documentation."""
    if "<!-- pages -->" not in source[0]:
        return
    pages = json.loads(app.config.stkm_pages or "[]")
    items = [f'<li><a href="../{page}.html">{escape(title)}</a></li>' for page, title in pages]
    text = f"<ul>{''.join(items)}</ul>" if items else (
        "No page here: `python -m stkm site` writes them when notebooks have been run."
    )  # fmt: skip
    source[0] = source[0].replace("<!-- pages -->", text)


def setup(app):
    app.add_config_value("stkm_pictures", "", "env")
    app.add_config_value("stkm_pages", "", "env")
    app.add_html_math_renderer(
        "mathml",
        (lambda self, node: _mathml(self, node, False), None),
        (lambda self, node: _mathml(self, node, True), None),
    )
    app.connect("builder-inited", _pictures)
    app.connect("source-read", _link_pages)
    app.connect("doctree-read", _place_pictures, priority=100)  # before Sphinx collects images
    app.connect("autodoc-process-docstring", docstrings.process, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", docstrings.properties, priority=900)  # after it
    app.connect("autodoc-skip-member", docstrings.skip)
    app.connect("missing-reference", docstrings.resolve)
    return {"parallel_read_safe": True}
