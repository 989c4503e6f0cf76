"""Command line of the package: ``python -m stkm run NOTEBOOK -p name=value``."""

from __future__ import annotations

import argparse
import sys

EPILOG = """\
exit codes:
  0  the notebook ran; the path of its executed copy is printed
  1  a cell of the notebook failed (the end of its traceback is shown)
  2  a wrong argument or a mistake in params.yaml; nothing has run

examples:
  python -m stkm run quickstart
  python -m stkm run cluster -p dataset=mnist5k -p method=st
"""


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m stkm", description=__doc__, epilog=EPILOG, formatter_class=raw
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
    return parser


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
        values = _pairs(arguments.parameters)
        from stkm import config, notebook
    except ValueError as error:  # also a STKM_ROOT that is no folder
        parser.error(str(error))
    try:
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
