"""Runs the code of a page: every `>>>` in it, in the order of the page, as one session."""

import contextlib
import doctest
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def pages():
    """Pages with code that is run: the tutorial, how-to pages and limits."""
    return [HERE / "tutorial.md", *_how_to(), HERE / "limits.md"]


def _how_to():
    return sorted(page for page in (HERE / "howto").glob("*.md") if page.stem != "index")


def parse(page):
    """The examples of a page as one `doctest.DocTest`."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^ *```.*$", "", text, flags=re.M)  # the end of a block ends what is expected
    return doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)


def run(page, folder):
    """Run a page's code in a folder, where its pictures are left.

    Returns the failures, one text each: what was run, expected, and what came out.
    """
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    failures = []
    test = parse(page)
    test.globs["__name__"] = "__main__"
    with contextlib.chdir(folder), matplotlib.rc_context(matplotlib.rcParamsDefault):
        matplotlib.use("agg")
        doctest.DocTestRunner(verbose=False, optionflags=OPTIONS).run(test, out=failures.append)
    plt.close("all")
    return failures
