"""Command line of the package: ``python -m stkm run NOTEBOOK -p name=value``, ``check``, ``site``.

``run`` executes a notebook, ``check`` reads params.yaml, ``site`` writes pages of what was made.
"""

from __future__ import annotations

import argparse
import sys

EPILOG = """\
exit codes:
  0  the notebook ran, its executed copy's path is printed; or the check found nothing
  1  a cell of the notebook failed (the end of its traceback is shown); or there is nothing to show
  2  a wrong argument or a mistake in params.yaml; nothing has run

examples:
  python -m stkm run quickstart
  python -m stkm run cluster -p dataset=mnist5k -p method=st
  python -m stkm check
  python -m stkm site
"""

CHECKED = "params.yaml is well formed\n"


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m stkm",
        description=__doc__.splitlines()[0],
        epilog=EPILOG,
        formatter_class=raw,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a notebook and keep the executed copy",
        description="Run a notebook in its own folder. The executed copy goes to "
        "notebooks/executed/NOTEBOOK[-value ...].ipynb.",
        epilog=EPILOG,
        formatter_class=raw,
    )
    run.add_argument("notebook", metavar="NOTEBOOK", help="a name, as in notebooks/, or a path")
    run.add_argument(
        "-p",
        dest="parameters",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter of the notebook's `parameters` cell; may be repeated",
    )
    check = commands.add_parser(
        "check",
        help="check params.yaml and run nothing",
        description="Check that params.yaml has every key, no other, and only known names.",
    )
    check.add_argument(
        "--stamp", metavar="FILE", help="write this file, always the same, if all is well"
    )
    commands.add_parser(
        "site",
        help="write the executed notebooks and tables as pages",
        description="Write site/index.html and a page for each executed notebook and table. "
        "The pages need no network.",
    )
    return parser


def _check(stamp: str | None) -> None:
    """Check ``params.yaml``, the names of its data sets too.

    Raises
    ------
    stkm.config.ConfigError
        For the first mistake; no stamp is written then.
    """
    from stkm import config, results
    from stkm.datasets.registry import available

    for name in config.load().datasets:
        if name not in available():
            raise config.ConfigError(
                f"unknown data set {name!r} in datasets{config.suggest(name, available())}"
            )
    if stamp:
        results.write_text(stamp, CHECKED)


def _site() -> int:
    """Write the pages of what is there; returns the exit code."""
    from stkm import paths, site

    try:
        pages = site.build()
    except ValueError as error:
        print(f"stkm: {error}", file=sys.stderr)
        return 1
    print(f"{len(pages)} pages; begin with {paths.SITE / 'index.html'}")
    return 0


def _pairs(texts: list[str]) -> dict[str, str]:
    """Split NAME=VALUE texts; the value may hold anything, also ``=``."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"-p {text!r} is not of the form NAME=VALUE")
        if name in pairs:
            raise ValueError(f"parameter {name!r} is given twice")
        pairs[name] = value
    return pairs


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        values = _pairs(getattr(arguments, "parameters", []))
        from stkm import config, notebook
    except ValueError as error:  # also a STKM_ROOT that is no folder
        parser.error(str(error))
    try:
        if arguments.command == "check":
            _check(arguments.stamp)
        elif arguments.command == "site":
            return _site()
        else:
            print(notebook.run(arguments.notebook, values))
    except (notebook.ArgumentError, config.ConfigError) as error:
        print(f"stkm: {error}", file=sys.stderr)
        return 2
    except notebook.NotebookError as error:
        print("\n".join([f"stkm: {error}", *getattr(error, "__notes__", [])]), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
