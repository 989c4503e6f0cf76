"""From a folder of pictures to files: groups, prototypes, warps and a report.

:func:`read_folder` → an estimator's ``fit`` → :func:`write`; :func:`cluster_folder` is all three,
the command ``python -m stkm cluster``.
"""

from __future__ import annotations

import csv
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stkm.datasets import folder as _folder
from stkm.results import write_npz, write_text
from stkm.validation import check_int, counted

__all__ = [
    "CHOSEN_ON",
    "FILES",
    "Pictures",
    "cluster_folder",
    "prepare_output",
    "read_folder",
    "write",
]

FILES = ("report.html", "labels.csv", "centroids.png", "warps.npz")
"""What :func:`write` makes."""

CHOSEN_ON = 600
"""Pictures, at most, on which a number of clusters is chosen."""

GROUNDS = ("auto", "dark", "light")


class Pictures(NamedTuple):
    """Images of a folder, ready for a fit.

    Attributes
    ----------
    images : (N, H, W) or (N, H, W, 3) float32, 0 to 1, bright on a dark ground
    names : N names, each ``file`` or ``folder/file``
    negative : whether the files have a light ground, so that these are their negatives
    notes : what was done to the images, and what looks odd, one sentence each

    Raises
    ------
    ValueError
        By :func:`read_folder`, which makes it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> from stkm import export
    >>> picture = np.zeros((8, 8), np.uint8)
    >>> picture[2:6, 3] = 255  # an upright bar
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(4):  # two upright, two lying
    ...         Image.fromarray(picture if i < 2 else picture.T).save(f"{folder}/{i}.png")
    ...     pictures = export.read_folder(folder)
    >>> pictures.notes
    ['2 are copies of others: 1.png, 3.png.']
    """

    images: np.ndarray
    names: list[str]
    negative: bool
    notes: list[str]


def read_folder(
    folder: str | os.PathLike[str],
    size: int | tuple[int, int] | None = None,
    *,
    grey: bool = True,
    ground: str = "auto",
) -> Pictures:
    """Read a folder of pictures and look at them.

    Parameters
    ----------
    folder : path
        Read as `load_images` reads it: PNG, JPEG and TIFF, folders in it one level deep.
    size : int or (int, int), optional
        Side, or (height, width), in pixels.  None: `common_size` of the files.
    grey : bool
        False: RGB.
    ground : 'auto', 'dark' or 'light'
        Beyond the frame the intensity is 0, so shapes must be bright on dark: pictures with a
        light ground are turned to negatives.  'auto' goes by the rims.

    Raises
    ------
    FolderNotFound
        (a FileNotFoundError and a ValueError) if there is no such folder.
    ValueError
        If there is no image that can be read, or an argument is not one of the above.

    Returns
    -------
    Pictures

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> from stkm import export
    >>> picture = np.zeros((8, 8), np.uint8)
    >>> picture[2:6, 3] = 255  # an upright bar
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(4):  # two upright, two lying
    ...         Image.fromarray(picture if i < 2 else picture.T).save(f"{folder}/{i}.png")
    ...     pictures = export.read_folder(folder)
    >>> pictures.images.shape, pictures.names, pictures.negative
    ((4, 8, 8), ['0.png', '1.png', '2.png', '3.png'], False)
    """
    if ground not in GROUNDS:
        raise ValueError(f"ground={ground!r}: expected one of {', '.join(map(repr, GROUNDS))}")
    sizes = _folder.image_sizes(folder)
    notes = []
    if size is None and sizes:
        size = _folder.common_size(list(sizes.values()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raw, names = _folder.load_images(folder, size, grey)
    notes += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    (height, width), kinds = raw.shape[1:3], set(sizes.values())
    if kinds != {(height, width)}:
        had = f"{len(kinds)} sizes" if len(kinds) > 1 else "{}×{} pixels".format(*next(iter(kinds)))
        notes.append(f"The files have {had}; all images are scaled to {height}×{width}.")
    found = _folder.inspect_images(raw)
    negative = found.light_ground if ground == "auto" else ground == "light"
    if negative:
        notes.append(
            "The ground is light, so the fit works on negatives; pictures are as the files."
        )
    if found.constant:
        listed = _listed([names[i] for i in found.constant])
        notes.append(
            f"{len(found.constant)} of one value only, which no warp can change: {listed}."
        )
    if found.repeated:
        listed = _listed([names[i] for i in found.repeated])
        notes.append(f"{len(found.repeated)} are copies of others: {listed}.")
    images = raw.astype(np.float32) / 255
    return Pictures(1 - images if negative else images, names, negative, notes)


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


# ---------------------------------------------------------------------- files


def prepare_output(
    out: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Path:
    """Check, before any work, that results may be written to a folder; return its absolute path.

    Parameters
    ----------
    out : path
        Need not exist.
    source : path, optional
        The folder of the pictures: results inside it would be read as pictures the next time.
    force : bool
        Whether files of :data:`FILES` there may be replaced.  Other files are never touched.

    Raises
    ------
    ValueError
        If `out` is a file or lies in `source`.
    FileExistsError
        If a file of :data:`FILES` is there and `force` is not given.

    Returns
    -------
    Path

    Examples
    --------
    >>> import tempfile
    >>> from stkm import export
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export.prepare_output(f"{folder}/groups").name
    'groups'
    """
    path = Path(out).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError(f"{out} is a file; the results need a folder")
    if source is not None and path.resolve().is_relative_to(Path(source).resolve()):
        raise ValueError(
            f"{out} lies in {source}: its pictures would be read as images the next time; "
            "choose a folder beside it"
        )
    there = [name for name in FILES if (path / name).exists()]
    if there and not force:
        raise FileExistsError(f"{out} already holds {', '.join(there)}: nothing is overwritten")
    return path


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """Give an empty folder beside `out`, whose files are moved there if the block succeeds."""
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield staging
        out.mkdir(exist_ok=True)
        for path in sorted(staging.iterdir()):
            os.replace(path, out / path.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write(
    out: str | os.PathLike[str],
    km: Any,
    images: np.ndarray,
    names: Sequence[str],
    *,
    negative: bool = False,
    notes: Sequence[str] = (),
    title: str = "Groups of images",
    force: bool = False,
) -> list[Path]:
    """Write the files of a clustering, all or none.

    ``labels.csv`` has a row an image: name, cluster, distance, second-nearest cluster, and the
    distances to all.  ``centroids.png`` shows the prototypes.  ``warps.npz`` has ``names``,
    ``labels``, ``distances`` (N, K), ``displacements`` (N, L, 2) and ``landmarks`` (L, 2) in
    pixels, (row, column), ``folded`` (N,), ``warped`` (N, H, W[, 3]) and ``centroids``
    (K, H, W[, 3]), both as the fit sees them.  ``report.html`` is `stkm.report.render`.

    Parameters
    ----------
    out : path
        A folder; made if it is absent.
    km : fitted `STKMeans` or `AffineKMeans`
    images : ndarray, (N, H, W) or (N, H, W, 3), 0 to 1
        As the fit saw them.
    names : sequence of str, length N
    negative, notes, title
        As `Pictures` and `stkm.report.render` have them.
    force : bool
        Whether earlier results there may be replaced.

    Returns
    -------
    list of Path
        The files, in the order of :data:`FILES`.

    Raises
    ------
    ValueError
        If names and images don't belong together, or `out` is a file.
    FileExistsError
        If there are results already and `force` is not given.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from stkm import STKMeans
    >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
    >>> X[:10, 2:6, 3] = 1  # upright bars
    >>> X[10:, 3, 2:6] = 1  # lying bars
    >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
    >>> names = [f"{i}.png" for i in range(len(X))]
    >>> from stkm import export
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in export.write(f"{folder}/groups", km, X, names)]
    ['report.html', 'labels.csv', 'centroids.png', 'warps.npz']
    """
    from stkm import report

    folder = prepare_output(out, force=force)
    grouping = report.Grouping.of(km, images, names, negative=negative)
    with _staged(folder) as staging:
        write_text(staging / "report.html", report.render(grouping, title=title, notes=notes))
        _write_labels(staging / "labels.csv", grouping)
        _draw_centroids(staging / "centroids.png", grouping)
        a = grouping.alignment
        write_npz(
            staging / "warps.npz",
            names=np.array(list(names), dtype=str),
            labels=grouping.labels,
            distances=grouping.distances,
            displacements=a.displacements,
            landmarks=km.warp_.landmarks,
            folded=a.folded,
            warped=a.warped,
            centroids=km.cluster_centers_,
        )
    return [folder / name for name in FILES]


def _write_labels(path: Path, grouping: Any) -> None:
    """Write a row an image."""
    distances = grouping.distances
    order = np.argsort(distances, axis=1, kind="stable")
    head = ["name", "cluster", "distance", "second"]
    head += [f"distance_{k}" for k in range(distances.shape[1])]
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(head)
        for name, near, values in zip(grouping.names, order, distances, strict=True):
            second = int(near[1]) if len(near) > 1 else ""
            best = f"{values[near[0]]:.6g}"
            rows.writerow([name, int(near[0]), best, second, *(f"{v:.6g}" for v in values)])


def _draw_centroids(path: Path, grouping: Any) -> None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from stkm import plots

    centers = grouping.shown(grouping.km.cluster_centers_)
    sizes = np.bincount(grouping.labels, minlength=len(centers))
    columns = min(10, len(centers))
    tall = 1.3 * centers.shape[1] / centers.shape[2] * -(-len(centers) // columns)
    with mpl.rc_context(plots.STYLE):
        fig = Figure(figsize=(0.7 * columns, 0.15 + 0.7 * tall))
        titles = [f"{k}: {n}" for k, n in enumerate(sizes)]
        plots.centroids(centers, names=titles, columns=columns, ax=fig.subplots())
        fig.savefig(path, dpi=200, metadata={"Software": None})


# -------------------------------------------------------------------- command


def _choose(
    estimator: Any, images: np.ndarray, least: int, most: int, seed: int, quiet: bool
) -> tuple[int, str]:
    """The number of clusters by the gap of the least utility, and a sentence that says so."""
    from stkm.selection import select

    some = images[:: -(-len(images) // CHOSEN_ON)]
    if len(some) <= most:
        some = images
    quick = estimator(n_init=1, n_swaps=2, max_iter=4)
    grid = {"n_clusters": range(least, most + 2)}
    found = select(
        some, grid, "gap", estimator=quick, n_repeats=1, random_state=seed, verbose=not quiet
    )
    values = ", ".join(
        f"{row['parameters']['n_clusters']}: {row['mean']:.2f}"
        for row in found.rows
        if row["mean"] is not None
    )
    n = found.winner["n_clusters"]
    return n, (
        f"{n} clusters, chosen from {least} to {most} without labels: of one more than that, the "
        f"least useful would add little. Scores, higher is better: {values} (quick fits of "
        f"{counted(len(some), 'picture')})."
    )


class _Bar:
    """A progress bar that an estimator calls after each step of its fit."""

    def __init__(self, km: Any, quiet: bool):
        from tqdm import tqdm

        # on errors' stream; delay: nothing is drawn before there is something to say
        self.km, self.bar = km, tqdm(desc="fit", unit="step", disable=quiet, leave=True)

    def __call__(self, entry: dict[str, Any]) -> None:
        self.bar.total = self.km._model.most_steps
        self.bar.set_description(f"fit: {entry['stage']}", refresh=False)
        self.bar.update()

    def close(self) -> None:
        self.bar.total = self.bar.n  # fits end early, as a rule
        self.bar.refresh()
        self.bar.close()


def cluster_folder(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    n_clusters: int | tuple[int, int],
    size: int | tuple[int, int] | None = None,
    grey: bool = True,
    ground: str = "auto",
    affine: bool = False,
    seed: int = 0,
    force: bool = False,
    quiet: bool = False,
    say: Any = lambda text: None,
) -> list[Path]:
    """Cluster the pictures of a folder and write all results; see :func:`write`.

    Parameters
    ----------
    folder, size, grey, ground
        As :func:`read_folder` takes them.
    out, force
        As :func:`prepare_output` takes them.
    n_clusters : int or (int, int)
        The number; or the least and the largest one, between which it is chosen without labels by
        the criterion 'gap' of `stkm.selection`, on quick fits of at most `CHOSEN_ON` pictures.
    affine : bool
        True: `AffineKMeans`.
    seed : int
        Same seed, same result.
    quiet : bool
        True: no progress bar.
    say : callable
        Is given each sentence about the images, and each warning of the fit.

    Raises
    ------
    ValueError
        For a wrong argument, or a folder without images; nothing is computed then.
    FileExistsError
        If there are results already and `force` is not given.

    Returns
    -------
    list of Path
        As of :func:`write`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from PIL import Image
    >>> from stkm import export
    >>> picture = np.zeros((8, 8), np.uint8)
    >>> picture[2:6, 3] = 255  # an upright bar
    >>> with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
    ...     for i in range(4):  # two upright, two lying
    ...         Image.fromarray(picture if i < 2 else picture.T).save(f"{folder}/{i}.png")
    ...     made = export.cluster_folder(folder, out, n_clusters=2, affine=True, quiet=True)
    >>> [path.name for path in made]
    ['report.html', 'labels.csv', 'centroids.png', 'warps.npz']
    """
    least, most = n_clusters if isinstance(n_clusters, tuple) else (n_clusters, n_clusters)
    check_int("n_clusters", least, 1 if least == most else 2)
    check_int("n_clusters", most, least)
    check_int("seed", seed, 0, 2**32 - 1)
    target = prepare_output(out, source=folder, force=force)
    pictures = read_folder(folder, size, grey=grey, ground=ground)
    needed = most if least == most else most + 1  # the gap needs one more to look at
    if len(pictures.names) < needed:
        asked = f"{most} clusters need" if least == most else f"a range up to {most} needs"
        raise ValueError(
            f"{len(pictures.names)} image(s): {asked} at least {needed}, one image for each"
        )
    n, (height, width) = len(pictures.names), pictures.images.shape[1:3]
    say(f"{counted(n, 'image')}, {height}×{width}")
    for note in pictures.notes:
        say(note)
    from stkm import AffineKMeans, STKMeans

    estimator = AffineKMeans if affine else STKMeans
    k, chosen = least, []
    if least < most:
        k, text = _choose(estimator, pictures.images, least, most, seed, quiet)
        chosen = [text]
        say(text)
    km = estimator(k, random_state=seed)
    km.verbose = _Bar(km, quiet)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            km.fit(pictures.images)
        finally:
            km.verbose.close()
            km.verbose = 0
    odd = [f"{w.message}." for w in caught if issubclass(w.category, UserWarning)]
    for text in odd:
        say(text)
    name = Path(folder).resolve().name
    return write(
        target,
        km,
        pictures.images,
        pictures.names,
        negative=pictures.negative,
        notes=[*pictures.notes, *chosen, *odd],
        title=f"{name}: {counted(n, 'image')} in {counted(k, 'cluster')}",
        force=force,
    )
