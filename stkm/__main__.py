"""Command line of the package.

``python -m stkm cluster FOLDER --n-clusters K --out DIR`` groups the pictures of a folder;
``run NOTEBOOK -p name=value`` runs a notebook, ``check`` looks at params.yaml, and ``site`` writes
pages of what was made.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import NoReturn

CLUSTER = """\
Groups pictures up to the way they are bent and turned, finds a clean prototype of each group,
and writes to DIR:

  report.html    prototypes, members, warps, numbers; open it in any browser, it stands alone
  labels.csv     cluster and all distances of each picture
  centroids.png  the prototypes
  warps.npz      every number: labels, distances, warps, prototypes (numpy)

FOLDER holds PNG, JPEG or TIFF files; folders in it are read one level deep. Shapes may be bright
on dark or dark on light. Pictures of several sizes, or with more than 48 pixels a side, are scaled
to one size.
"""

CLUSTER_EPILOG = """\
exit codes:
  0  done, the path of the report is printed
  1  something failed on the way; DIR is as it was
  2  a wrong argument, no picture in FOLDER, or results in DIR already; nothing was computed
  130  stopped by Ctrl-C; DIR is as it was

examples:
  python -m stkm cluster glyphs --n-clusters 10 --out groups
  python -m stkm cluster leaves --n-clusters 4-9 --out groups --size 64x48 --colour
  python -m stkm cluster cells --n-clusters 4 --out groups --affine --seed 1 --force

How long: a few minutes for 300 pictures of 28x28 pixels in 10 clusters on two cores; the time grows
with pictures, clusters and pixels.
"""

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
  python -m stkm cluster my_folder --n-clusters 10 --out groups     (cluster --help says more)
"""

CHECKED = "params.yaml is well formed\n"


class _Parser(argparse.ArgumentParser):
    """A parser that names what an unknown option may have meant."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[override]
        known = [name for action in self._actions for name in action.option_strings]
        given = [arg.partition("=")[0] for arg in args or () if arg.startswith("--")]
        self.near = [
            f"{name}: did you mean {near[0]}?"
            for name in given
            if not any(option.startswith(name) for option in known)
            and (near := difflib.get_close_matches(name, known, n=1))
        ]
        found, rest = super().parse_known_args(args, namespace)
        if rest and self.near:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        super().error("; ".join([message, *self.near]))


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
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
        description="Write site/index.html, a page for each executed notebook and table, and the "
        "documentation, where Sphinx is installed, in site/docs. The pages need no network.",
    )
    _add_cluster(commands)
    return parser


def _add_cluster(commands: argparse._SubParsersAction[_Parser]) -> None:
    """Add the arguments of ``cluster``."""
    cluster = commands.add_parser(
        "cluster",
        help="group the pictures of a folder and write a report",
        description=CLUSTER,
        epilog=CLUSTER_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = cluster.add_argument
    add("folder", metavar="FOLDER", help="the pictures")
    add(
        "--n-clusters",
        type=_count,
        required=True,
        metavar="K",
        help="number of groups, rather more than fewer: two that show the same are easily joined; "
        "or a range, as 4-9, from which it is chosen without labels by quick fits of each number",
    )
    add(
        "--out",
        required=True,
        metavar="DIR",
        help="where the results go; made if it is absent, not inside FOLDER",
    )
    add(
        "--size",
        type=_size,
        metavar="HxW",
        help="height x width in pixels, as 32x48, or one side, as 32 "
        "(default: by the files, at most 48 a side)",
    )
    add(
        "--ground",
        choices=("auto", "dark", "light"),
        default="auto",
        help="what the shapes lie on (default: by the rims of the pictures)",
    )
    add("--colour", action="store_true", help="compare colours too, not only grey")
    add(
        "--affine",
        action="store_true",
        help="allow shifts, turns, stretches and shears only, no bending: faster, and right for "
        "rigid things",
    )
    add("--seed", type=int, default=0, metavar="N", help="same seed, same result (default: 0)")
    add(
        "--force",
        action="store_true",
        help="replace earlier results in DIR; other files there stay",
    )
    add("--quiet", action="store_true", help="no progress bar, no remarks")


def _count(text: str) -> int | tuple[int, int]:
    """Read 6, or 4-9 as (least, largest)."""
    least, dash, most = text.partition("-")
    try:
        numbers = (int(least), int(most)) if least and dash else (int(text), int(text))
    except ValueError:
        numbers = (1, 0)
    if numbers[0] > numbers[1] or dash and least and numbers[0] < 2:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number, as 6, nor a range of numbers from 2 on, as 4-9"
        )
    return numbers[0] if numbers[0] == numbers[1] else numbers


def _size(text: str) -> tuple[int, int]:
    """Read 32x48 or 32 as (height, width)."""
    parts = text.lower().replace("×", "x").split("x")
    try:
        sides = [int(part) for part in parts]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2) or min(sides) < 4:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HEIGHTxWIDTH, as 32x48, or one side, as 32, of at least 4 pixels"
        )
    return sides[0], sides[-1]


def _cluster(arguments: argparse.Namespace) -> int:
    """Group the pictures of a folder; returns the exit code."""
    from stkm import export

    def say(text: str) -> None:
        if not arguments.quiet:
            print(text, file=sys.stderr)

    try:
        written = export.cluster_folder(
            arguments.folder,
            arguments.out,
            n_clusters=arguments.n_clusters,
            size=arguments.size,
            grey=not arguments.colour,
            ground=arguments.ground,
            affine=arguments.affine,
            seed=arguments.seed,
            force=arguments.force,
            quiet=arguments.quiet,
            say=say,
        )
    except FileExistsError as error:
        print(f"stkm: {error}; --force replaces them", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"stkm: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # no space, no right to write
        print(f"stkm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stkm: stopped; nothing was written", file=sys.stderr)
        return 130
    print(written[0])
    return 0


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
        pages = site.build(say=lambda text: print(f"stkm: {text}", file=sys.stderr))
    except (RuntimeError, ValueError) as error:
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
    if arguments.command == "cluster":  # works in an installation without notebooks
        return _cluster(arguments)
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
