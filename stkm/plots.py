"""Figures, one function a kind of picture.

Every function draws given numbers and computes nothing: at most it puts images in the
order of numbers that it is given.  It takes ``ax=`` (the current axes by default) and
returns the axes.  Nothing here chooses a backend
or shows a window.  Figures that are meant for print start with :func:`use_style`
and end with :func:`save`, which writes the same bytes for the same picture.

Grey images are (H, W) with 0 black and 1 white; colour images (H, W, 3).
Colours are fit for colour-blind readers, and no meaning hangs on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.patheffects as effects
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.ndimage import distance_transform_edt

from stkm import paths

__all__ = [
    "COLOURS",
    "STYLE",
    "WIDTH",
    "centroids",
    "confusion",
    "contact_sheet",
    "criterion",
    "curve",
    "deformation_modes",
    "distances",
    "embedding",
    "history",
    "image",
    "in_style",
    "members",
    "mosaic",
    "overview",
    "regions",
    "save",
    "signed",
    "use_style",
    "warp_grid",
    "warps",
]

WIDTH = 6.75
"""Width of a full-page figure in inches, the text width of a two-column paper."""

MANY = 15  # columns of a mosaic over which words are written upright

COLOURS = ("#332288", "#E69F00", "#33BBEE", "#CC3311", "#000000", "#DDCC77", "#AA3377",
           "#0077BB", "#663333", "#EE6677")  # fmt: skip
"""Ten colours that stay apart on white for readers with and without full colour vision.

Chosen from the schemes of Okabe and Ito and of Paul Tol so that the least distance of two
in CIE Lab, as trichromats, protanopes and deuteranopes see them, is as large as it gets.
"""

MARKERS = "osD^vPX<>*"
GRID = "#EE7733"  # Tol's "vibrant" orange: seen on black, grey and white

STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "image.cmap": "gray",
    "image.interpolation": "nearest",
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # TrueType, so that text stays text
    "svg.hashsalt": "stkm",
}
"""Settings of all figures of the paper; see :func:`use_style`."""


def use_style() -> None:
    """Make :data:`STYLE`, over matplotlib's own defaults, the settings of this process.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> from stkm import plots
    >>> with mpl.rc_context():  # undone at the end
    ...     plots.use_style()
    ...     mpl.rcParams["font.size"]
    9.0
    """
    mpl.rcParams.update(_defaults() | STYLE)


@contextmanager
def in_style() -> Iterator[None]:
    """Draw in :data:`STYLE` what is drawn within, and leave the settings as they were.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> from stkm import plots
    >>> before = mpl.rcParams["font.size"]
    >>> with plots.in_style():
    ...     mpl.rcParams["font.size"]
    9.0
    >>> mpl.rcParams["font.size"] == before
    True
    """
    with mpl.rc_context(_defaults() | STYLE):
        yield


def _defaults() -> dict[Any, Any]:
    keep = {"backend", "interactive"}
    return {k: v for k, v in mpl.rcParamsDefault.items() if k not in keep}


def save(fig: Figure, name: str, folder: Path | None = None) -> list[Path]:
    """Write a figure as PNG (150 dots an inch) and PDF, without dates.

    Parameters
    ----------
    fig : Figure
    name : str
        File name without a suffix, as ``centroids-mnist5k``.
    folder : Path, optional
        ``paths.FIGURES`` by default.

    Returns
    -------
    list of Path
        Both files.  Each appears whole or not at all.

    Raises
    ------
    ValueError
        If `name` has a folder or a suffix in it.

    Examples
    --------
    >>> import tempfile
    >>> from matplotlib.figure import Figure
    >>> from stkm import plots
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in plots.save(Figure((1, 1)), "nothing", folder)]
    ['nothing.png', 'nothing.pdf']
    """
    if not name or Path(name).name != name or Path(name).suffix:
        raise ValueError(f"figure name {name!r} must be a plain name like 'centroids-mnist5k'")
    dates = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
    written = []
    for kind, metadata in dates.items():
        target = Path(folder or paths.FIGURES) / f"{name}.{kind}"
        with paths.atomic_path(target) as temporary, mpl.rc_context(STYLE):
            fig.savefig(temporary, format=kind, metadata=metadata)
        written.append(target)
    return written


# ------------------------------------------------------------------- pictures


def _bare(ax: Axes) -> Axes:
    """Take ticks and frame off."""
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def image(picture: np.ndarray, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw one image.

    Parameters
    ----------
    picture : ndarray, (H, W) or (H, W, 3)
        Values from 0 (black) to 1 (white); what lies beyond is cut off.
    title : str
        Written above.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError
        If `picture` has another shape (matplotlib's).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> ax = plots.image(np.eye(8), title="a diagonal")
    >>> ax.images[0].get_clim()
    (0.0, 1.0)
    """
    ax = plt.gca() if ax is None else ax
    ax.imshow(picture, vmin=0, vmax=1)
    ax.set_title(title)
    return _bare(ax)


def signed(difference: np.ndarray, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw a difference of images: below 0 purple, 0 white, above 0 orange.

    Parameters
    ----------
    difference : ndarray, (H, W)
        Values from -1 to 1; what lies beyond is cut off.
    title : str
        Written above.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError
        If `difference` has another shape (matplotlib's).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> ax = plots.signed(np.eye(8) - 0.5)
    >>> ax.images[0].get_clim()
    (-1.0, 1.0)
    """
    ax = plt.gca() if ax is None else ax
    ax.imshow(difference, cmap="PuOr_r", vmin=-1, vmax=1)
    ax.set_title(title)
    return _bare(ax)


def warp_grid(
    field: np.ndarray,
    landmarks: np.ndarray | None = None,
    *,
    step: int = 3,
    ax: Axes | None = None,
) -> Axes:
    """Draw where a warp looks: every ``step``-th line of the pixel grid, and the landmarks.

    Parameters
    ----------
    field : ndarray, (H, W, 2)
        The point (row, column), in pixels, that each pixel of the result is
        taken from: ``Warp.field(d)[i]``.
    landmarks : ndarray, (L, 2), optional
        Points (row, column) to mark: ``warp.landmarks + d[i]``.

    step : int
        At least 1.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `step` is 0.
    IndexError
        If `field` is no (H, W, 2).

    References
    ----------
    The warp of Eq. 3 of the paper (arXiv 2202.07829), drawn as `stkm.Warp.field` gives it.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import Warp, plots
    >>> warp = Warp.tps((8, 8), landmarks=3)
    >>> d = np.zeros((1, 9, 2))
    >>> d[0, 4] = 1, 0  # the middle landmark one pixel down
    >>> ax = plots.warp_grid(warp.field(d)[0], warp.landmarks + d[0], step=2)
    >>> len(ax.lines)  # four rows, four columns, the landmarks
    9
    """
    ax = plt.gca() if ax is None else ax
    height, width = field.shape[:2]
    line: Any = {"color": GRID, "linewidth": 0.7}
    for r in range(0, height, step):
        ax.plot(field[r, :, 1], field[r, :, 0], **line)
    for c in range(0, width, step):
        ax.plot(field[:, c, 1], field[:, c, 0], **line)
    if landmarks is not None:
        ax.plot(landmarks[:, 1], landmarks[:, 0], "o", color="white", markersize=2.6,
                markeredgecolor=GRID, markeredgewidth=0.8)  # fmt: skip
    # the frame, with a margin for what is taken from outside
    ax.set(xlim=(-2.5, width + 1.5), ylim=(height + 1.5, -2.5), aspect="equal", facecolor="black")
    return _bare(ax)


def mosaic(
    rows: Sequence[Sequence[np.ndarray]] | np.ndarray,
    *,
    row_labels: Sequence[str] = (),
    column_labels: Sequence[str] = (),
    gap: int = 2,
    ax: Axes | None = None,
) -> Axes:
    """Draw a table of images of one size in one pair of axes.

    Parameters
    ----------
    rows : ndarray, (R, C, H, W) or (R, C, H, W, 3), or lists of such images
        R rows of C images, values from 0 (black) to 1 (white).
    row_labels, column_labels : sequence of str, optional
        Written left of the rows and above the columns.
    gap : int
        Pixels between images.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If rows or images differ in size, or there is another number of labels than of rows or
        columns.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> ax = plots.mosaic(np.ones((2, 3, 8, 8)), row_labels=["first", "second"])
    >>> ax.images[0].get_array().shape  # 2 x 8 + 2 by 3 x 8 + 2 x 2 pixels
    (18, 28)
    """
    ax = plt.gca() if ax is None else ax
    cells = np.asarray(rows, dtype=np.float32)
    n_rows, n_columns, height, width = cells.shape[:4]
    tall, wide = height + gap, width + gap
    sheet = np.ones((n_rows * tall - gap, n_columns * wide - gap, *cells.shape[4:]), np.float32)
    for r, row in enumerate(cells):
        for c, cell in enumerate(row):
            sheet[r * tall : r * tall + height, c * wide : c * wide + width] = cell
    ax.imshow(sheet, vmin=0, vmax=1)
    _bare(ax)
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    if len(row_labels):
        ax.set_yticks([r * tall + height / 2 for r in range(n_rows)], row_labels)
    if len(column_labels):
        ax.set_xticks([c * wide + width / 2 for c in range(n_columns)], column_labels)
        if n_columns > MANY and max(map(len, map(str, column_labels))) > 2:
            ax.tick_params(axis="x", labelrotation=90)  # words would run into each other
    return ax


def contact_sheet(
    pictures: np.ndarray,
    *,
    names: Sequence[str] = (),
    columns: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw images (N, H, W[, 3]) of one size in reading order, ``columns`` a row.

    Parameters
    ----------
    pictures : ndarray, (N, H, W) or (N, H, W, 3)
        In any scale that begins at 0; the brightest value of all is white.
    names : sequence of str, length N, optional
        Written above each image, cut to what fits.
    columns : int

    Raises
    ------
    ValueError
        If there is no image, or the names are not one an image.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> ax = plots.contact_sheet(np.eye(8)[None].repeat(3, 0), names=["a", "b", "c"])
    >>> [text.get_text() for text in ax.texts]
    ['a', 'b', 'c']
    """
    pictures = np.asarray(pictures)
    if pictures.ndim not in (3, 4) or not len(pictures):
        raise ValueError(f"pictures must be (N, H, W[, 3]) with N > 0, got {pictures.shape}")
    if len(names) not in (0, len(pictures)):
        raise ValueError(f"{len(names)} names for {len(pictures)} pictures")
    ax = plt.gca() if ax is None else ax
    columns = min(columns, len(pictures))
    blank = np.ones((-len(pictures) % columns, *pictures.shape[1:]))
    cells = np.concatenate([pictures / _white(pictures), blank])
    height, width = pictures.shape[1:3]
    gap = max(2, round(0.3 * height)) if len(names) else 2
    mosaic(cells.reshape(-1, columns, *pictures.shape[1:]), gap=gap, ax=ax)
    for i, name in enumerate(names):
        row, column = divmod(i, columns)
        ax.text(column * (width + gap), row * (height + gap) - 1.5, _cut(str(name), 12),
                fontsize=8, va="bottom", parse_math=False)  # fmt: skip
    return ax


def centroids(
    pictures: np.ndarray,
    *,
    names: Sequence[str] = (),
    columns: int = 10,
    ax: Axes | None = None,
) -> Axes:
    """Draw the centroids of one fit in order, ``columns`` a row.

    Parameters
    ----------
    pictures : ndarray, (K, H, W) or (K, H, W, 3)
        In any scale that begins at 0; the brightest value of all is white.
    names : sequence of str, length K, optional
        Written above each: ``[f"{k}: {n}" for k, n in enumerate(np.bincount(km.labels_))]`` are
        sizes.
    columns : int
        At least 1.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no centroid, or the names are not one a centroid.

    References
    ----------
    Centroids of Eq. 4 of the paper (arXiv 2202.07829), as its figures of centroids show them.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> ax = plots.centroids(np.ones((3, 8, 8)))
    >>> ax.images[0].get_array().shape
    (8, 28)
    """
    return contact_sheet(pictures, names=names, columns=columns, ax=ax)


def members(
    images: np.ndarray,
    distances: np.ndarray,
    *,
    which: str | tuple[int, int] = "nearest",
    n_images: int = 8,
    names: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw images of each cluster, or those that lie between two clusters.

    Parameters
    ----------
    images : ndarray, (N, H, W) or (N, H, W, 3)
        In any scale that begins at 0.
    distances : ndarray, (N, K)
        Of the images to the centroids, as ``km.transform(images)`` gives them.
    which : 'nearest', 'farthest' or a pair of clusters
        A row a cluster with its images nearest to the centroid, nearest first; with those
        farthest from it, farthest first; or, for the pair (a, b), one row of the images whose
        two nearest centroids are a and b and which are the least sure: from the side of a
        (left) to the side of b.
    n_images : int
        At most so many a row.  Places without an image stay white.
    names : sequence of str, length K, optional
        Names of the clusters; their numbers by default.

    Raises
    ------
    ValueError
        For another `which`, and if images and distances don't belong together.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> images = np.arange(5)[:, None, None] * np.ones((5, 8, 8))
    >>> ax = plots.members(images, np.array([[0, 9], [1, 9], [2, 9], [9, 0], [9, 1.0]]))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['0 (3)', '1 (2)']
    """
    images, distances = np.asarray(images), np.asarray(distances)
    if distances.ndim != 2 or len(distances) != len(images) or not len(images):
        raise ValueError(f"{len(images)} images, but distances {distances.shape}, not (N, K)")
    n_clusters = distances.shape[1]
    names = [str(k) for k in range(n_clusters)] if len(names) == 0 else names
    labels = distances.argmin(1)
    if isinstance(which, str):
        if which not in ("nearest", "farthest"):
            raise ValueError(f"which={which!r}: expected 'nearest', 'farthest' or two clusters")
        rows, row_labels = [], []
        for k in range(n_clusters):
            own = np.flatnonzero(labels == k)
            own = own[np.argsort(distances[own, k], kind="stable")]
            rows.append((own if which == "nearest" else own[::-1])[:n_images])
            row_labels.append(f"{_cut(names[k], 14)} ({len(own)})")
    else:
        a, b = which
        if a == b or not {a, b} <= set(range(n_clusters)):
            raise ValueError(f"which={which!r}: expected two different clusters of {n_clusters}")
        two = np.argsort(distances, axis=1, kind="stable")[:, :2]
        both = np.flatnonzero((np.sort(two, axis=1) == sorted((a, b))).all(1))
        lead = distances[both, a] - distances[both, b]
        unsure = np.argsort(np.abs(lead), kind="stable")[:n_images]
        rows, row_labels = [both[unsure[np.argsort(lead[unsure], kind="stable")]]], []
    n_columns = max(1, max(len(row) for row in rows))
    white = _white(images)
    cells = np.full((len(rows), n_columns, *images.shape[1:]), 1.0, np.float32)
    for row, cell in zip(rows, cells, strict=True):
        cell[: len(row)] = images[row] / white
    ax = mosaic(cells, row_labels=row_labels, ax=ax)
    if not isinstance(which, str):
        # row and column of the frame, not of the picture: there may be few images
        ax.set_title(f"{len(both)} images are nearest to {names[a]} and {names[b]}")
        for x, k, side in ((0, a, "left"), (1, b, "right")):
            ax.text(x, -0.03, f"nearer to {names[k]}", transform=ax.transAxes, fontsize=8,
                    ha=side, va="top", parse_math=False)  # fmt: skip
    return ax


def warps(
    images: np.ndarray,
    warped: np.ndarray,
    targets: np.ndarray,
    fields: np.ndarray,
    landmarks: np.ndarray | None = None,
    *,
    names: Sequence[str] = (),
    step: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how each image was bent: image, grid on it, warped image, centroid, residual.

    Parameters
    ----------
    images, warped, targets : ndarray, (N, H, W) or (N, H, W, 3)
        Images, ``a.warped`` and the centroid of each, ``km.cluster_centers_[a.labels]``, of
        ``a = km.align(images)``; in one scale that begins at 0.
    fields : ndarray, (N, H, W, 2)
        The point (row, column), in pixels, that each pixel is taken from:
        ``km.warp_.field(a.displacements)``.
    landmarks : ndarray, (N, L, 2), optional
        Points to mark on the grid, in pixels: ``km.warp_.landmarks + a.displacements``.
    names : sequence of str, length N, optional
    step : int, optional
        Every so many-th line of the grid is drawn; by default eight or so a side.

    The residual is warped image minus centroid: orange where the image is brighter, purple where
    it is darker.  A centroid is the mean of low-passed images, so edges stay in the residual.

    Raises
    ------
    ValueError
        If the numbers or sizes of the arrays differ.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import Warp, plots
    >>> x, warp = np.ones((2, 8, 8)), Warp.tps((8, 8), landmarks=3)
    >>> ax = plots.warps(x, x, x, warp.field(np.zeros((2, 9, 2))))
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['image', 'grid', 'warped', 'centroid', 'residual']
    """
    images, warped, targets = (np.asarray(v, np.float32) for v in (images, warped, targets))
    fields = np.asarray(fields)
    if not images.shape == warped.shape == targets.shape or not len(images):
        raise ValueError(
            f"images {images.shape}, warped {warped.shape} and targets {targets.shape} differ"
        )
    if fields.shape != (*images.shape[:3], 2):
        raise ValueError(f"fields must be {(*images.shape[:3], 2)}, got {fields.shape}")
    white = _white(images, targets)
    difference = (warped - targets) / white
    if difference.ndim == 4:
        difference = difference.mean(-1)
    residual = mpl.colormaps["PuOr_r"]((difference.clip(-1, 1) + 1) / 2)[..., :3]
    image, bent, target = (_rgb(v / white) for v in (images, warped, targets))
    gap, (height, width) = 2, images.shape[1:3]
    step = max(2, round(max(height, width) / 8)) if step is None else step
    titles = ["image", "grid", "warped", "centroid", "residual"]
    cells = np.stack([image, 0.7 * image, bent, target, residual], 1)
    cut = [_cut(name, 14) for name in names]
    ax = mosaic(cells, row_labels=cut, column_labels=titles, gap=gap, ax=ax)
    for n, field in enumerate(fields):
        corner = np.array([n * (height + gap), width + gap])
        frame = mpl.patches.Rectangle(
            (corner[1] - 0.5, corner[0] - 0.5), width, height, transform=ax.transData
        )
        drawn = []
        for points in [*field[::step], *field[:, ::step].swapaxes(0, 1)]:
            drawn += ax.plot(*(points + corner).T[::-1], color=GRID, linewidth=0.5)
        if landmarks is not None:
            drawn += ax.plot(*(landmarks[n] + corner).T[::-1], "o", color="white", markersize=1.4,
                             markeredgecolor=GRID, markeredgewidth=0.4)  # fmt: skip
        for line in drawn:  # afterwards, since `plot` clips by the axes
            line.set_clip_path(frame)
    ax.set(
        xlim=(-0.5, 5 * (width + gap) - gap - 0.5),
        ylim=(len(images) * (height + gap) - gap - 0.5, -0.5),
    )
    return ax


def deformation_modes(
    pictures: np.ndarray,
    sds: Sequence[float] = (-2, -1, 0, 1, 2),
    *,
    mode: int = 0,
    names: Sequence[str] = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw every centroid bent along one of its modes, a row a cluster.

    Parameters
    ----------
    pictures : ndarray, (K, M, S, H, W) or (K, M, S, H, W, 3)
        As ``km.mode_images(sds)`` gives them (its first array: bent; its second: shaded).
    sds : sequence of S numbers
        How far along the mode, in standard deviations, as given to ``mode_images``.
    mode : int
        Which of the M modes; 0 is the largest.
    names : sequence of str, length K, optional
        Names of the clusters; their numbers by default.

    Raises
    ------
    ValueError
        If there is no such mode, or S is not the length of `sds`.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> ax = plots.deformation_modes(np.ones((2, 1, 3, 8, 8)), sds=(-1, 0, 1))
    >>> [label.get_text() for label in ax.get_xticklabels()]
    ['-1 sd', '0', '+1 sd']
    """
    pictures = np.asarray(pictures)
    if pictures.ndim not in (5, 6) or pictures.shape[2] != len(sds):
        raise ValueError(
            f"pictures must be (K, M, {len(sds)}, H, W[, 3]), one for each of sds, "
            f"got {pictures.shape}"
        )
    if not 0 <= mode < pictures.shape[1]:
        raise ValueError(f"mode={mode}: the pictures show modes 0 to {pictures.shape[1] - 1}")
    labels = ["0" if sd == 0 else f"{sd:+g} sd" for sd in sds]
    shown = pictures[:, mode]
    names = [str(k) for k in range(len(shown))] if len(names) == 0 else names
    cells = (shown / _white(shown)).clip(0, 1)
    return mosaic(cells, row_labels=names, column_labels=labels, ax=ax)


def _white(*pictures: np.ndarray) -> float:
    """Return the brightest value of all: white."""
    return max(*(float(np.max(p)) for p in pictures), 1e-12)


def _rgb(pictures: np.ndarray) -> np.ndarray:
    """Return grey (N, H, W) or colour images from 0 to 1 as (N, H, W, 3)."""
    clipped = pictures.clip(0, 1)
    return clipped if clipped.ndim == 4 else np.repeat(clipped[..., None], 3, -1)


def _cut(name: str, length: int) -> str:
    """Return at most `length` characters of a name."""
    return name if len(name) <= length else f"{name[: length - 1]}…"


# -------------------------------------------------------------------- numbers


def curve(
    x: Sequence[float],
    y: Sequence[float],
    *,
    label: str | None = None,
    xlabel: str = "",
    ylabel: str = "",
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw y over whole numbers x (passes, iterations), with a marker at each.

    Parameters
    ----------
    x, y : sequence of float, length n
        In units of the caller's, which the labels name.
    label : str, optional
        For a legend, which the caller draws.
    xlabel, ylabel : str
        Of the axes.
    ax : Axes, optional
        The current ones by default.
    **line
        As ``Axes.plot`` takes it: colour, marker, ...

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If `x` and `y` differ in length (matplotlib's).

    Examples
    --------
    >>> from stkm import plots
    >>> ax = plots.curve([1, 2, 3], [9.0, 5.0, 4.0], xlabel="pass", ylabel="objective")
    >>> ax.lines[-1].get_ydata().tolist()
    [9.0, 5.0, 4.0]
    """
    ax = plt.gca() if ax is None else ax
    ax.plot(x, y, **{"marker": "o", "label": label, **line})
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    return ax


def confusion(
    counts: np.ndarray,
    classes: Sequence[str],
    clusters: Sequence[str],
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw how many images of each class (row) are in each cluster (column).

    Parameters
    ----------
    counts : ndarray of int, (n_classes, n_clusters)
        As `stkm.metrics.confusion` orders them: matched pairs on the diagonal.
    classes : sequence of str, length n_classes
        Names of the rows.
    clusters : sequence of str, length n_clusters
        Names of the columns.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is no count.

    Examples
    --------
    >>> from stkm import metrics, plots
    >>> table = metrics.confusion(["a", "a", "b"], [7, 3, 3])
    >>> ax = plots.confusion(table.counts, table.classes, [str(k) for k in table.clusters])
    >>> [text.get_text() for text in ax.texts]
    ['1', '1', '1']
    """
    ax = plt.gca() if ax is None else ax
    top = max(int(counts.max()), 1)
    ax.imshow(counts, cmap="Blues", vmin=0, vmax=top)
    for (r, c), count in np.ndenumerate(counts):
        if count:
            ax.text(c, r, str(count), ha="center", va="center", fontsize=8,
                    color="white" if count > 0.55 * top else "black")  # fmt: skip
    ax.set_xticks(range(len(clusters)), clusters)
    ax.set_yticks(range(len(classes)), classes)
    ax.set(xlabel="cluster", ylabel="class")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(True)
    return ax


def embedding(
    points: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw points of the plane by class: colour, marker and, at its middle, its name.

    Parameters
    ----------
    points : ndarray, (N, 2)
        Horizontal and vertical coordinate, in any unit.
    labels : ndarray of int, (N,)
        Class of each point, from 0.
    names : sequence of str
        Name of each class.
    title : str
        Written above.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    IndexError
        If a class has no name, or `points` and `labels` differ in length.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> points = np.array([[0.0, 0], [0, 1], [5, 5]])
    >>> ax = plots.embedding(points, np.array([0, 0, 1]), ["one", "two"])
    >>> [text.get_text() for text in ax.texts]
    ['one', 'two']
    """
    ax = plt.gca() if ax is None else ax
    for k in np.unique(labels):
        own = points[labels == k]
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k // len(COLOURS) % len(MARKERS)]
        ax.plot(*own.T, marker, color=colour, markersize=2.6, markeredgewidth=0, alpha=0.75)
        middle = np.median(own, axis=0)
        # beside the middle, so that it does not hide a class that shrinks to a dot
        name = ax.annotate(names[k], middle, (7, 6), textcoords="offset points", color=colour,
                           fontsize=11, fontweight="bold", ha="center", va="center",
                           zorder=3)  # fmt: skip
        name.set_path_effects([effects.withStroke(linewidth=2.5, foreground="white")])
    ax.set(title=title, xticks=[], yticks=[])
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.07)
    ax.spines[:].set(visible=True, color="#BBBBBB")
    return ax


def criterion(
    settings: Sequence[dict[str, Any]],
    values: Sequence[Sequence[float]],
    *,
    winner: int,
    label: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw a criterion of several settings: a circle a repeat, a line through the means.

    Where the settings differ in one number alone it is the horizontal axis, else every setting
    has a place of its own. The winner's mean is filled.

    Parameters
    ----------
    settings : sequence of dict
        Parameters of each setting.
    values : sequence of sequences of float
        One number a repeat, for each setting.
    winner : int
        Index of the setting that won.

    label : str
        What the criterion measures, with its unit.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If settings and values differ in number.
    IndexError
        If there is no setting, or none of the number `winner`.

    Examples
    --------
    >>> from stkm import plots
    >>> settings = [{"n_clusters": k} for k in (2, 3, 4)]
    >>> ax = plots.criterion(settings, [[0.5], [0.9], [0.6]], winner=1, label="ARI of two fits")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('n_clusters', 'ARI of two fits')
    """
    ax = plt.gca() if ax is None else ax
    varied = [name for name in settings[0] if len({repr(s.get(name)) for s in settings}) > 1]
    means = [float(np.mean(v)) for v in values]
    x: list[Any] = list(range(len(settings)))
    numbers: list[Any] = [settings[i].get(varied[0]) for i in x] if len(varied) == 1 else []
    if numbers and all(isinstance(v, (int, float)) and v > 0 for v in numbers):
        x = numbers
        ax.set_xlabel(varied[0])
        if max(x) > 12 * min(x):
            ax.set_xscale("log")
        elif all(isinstance(v, int) for v in x):
            ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
        ax.plot(*np.array(sorted(zip(x, means, strict=True))).T, color=COLOURS[7], linewidth=1)
    else:
        words = [", ".join(f"{n} {s.get(n)}" for n in varied) or "one setting" for s in settings]
        ax.set_xticks(x, words, rotation=45, ha="right", rotation_mode="anchor", fontsize=7)
    for place, own in zip(x, values, strict=True):
        ax.plot([place] * len(own), own, "o", color=COLOURS[7], markerfacecolor="none", alpha=0.6)
    ax.plot(x, means, "_", color=COLOURS[7], markersize=12, markeredgewidth=2)
    ax.plot([x[winner]], [means[winner]], "D", color=COLOURS[3], markersize=6, label="winner")
    ax.set_ylabel(label)
    ax.legend(frameon=False)
    return ax


def regions(
    labels: np.ndarray,
    axis: np.ndarray,
    names: Sequence[str] = (),
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw which cluster owns each point of a plane: a colour, its name and lines between them.

    Parameters
    ----------
    labels : ndarray of int, (side, side)
        Rows are the second coordinate, upwards.
    axis : ndarray, (side,)
        Coordinates of rows and columns, evenly spaced.
    names : sequence of str
        Name of each cluster; its number by default.

    title : str
        Written above.
    ax : Axes, optional
        The current ones by default.

    Returns
    -------
    Axes

    Raises
    ------
    IndexError
        If `labels` is not two-dimensional, `axis` has fewer than two coordinates, or a cluster has
        no name.

    References
    ----------
    Proposition 4 of the paper (arXiv 2202.07829), whose regions this draws.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> labels = np.repeat([[0, 0, 1, 1]], 4, 0)  # two halves, left and right
    >>> ax = plots.regions(labels, np.linspace(-0.2, 1.2, 4), ["left", "right"])
    >>> [text.get_text() for text in ax.texts]
    ['left', 'right']
    """
    ax = plt.gca() if ax is None else ax
    half = (axis[1] - axis[0]) / 2
    extent = (axis[0] - half, axis[-1] + half) * 2
    colours = np.array([mpl.colors.to_rgb(c) for c in COLOURS])[labels % len(COLOURS)]
    ax.imshow(0.5 + 0.5 * colours, origin="lower", extent=extent)  # paler: the names are read
    for k in np.unique(labels):
        inside = (labels == k).astype(float)
        if inside.min() < inside.max():
            ax.contour(axis, axis, inside, [0.5], colors="black", linewidths=0.6)
        if inside.mean() > 0.01:  # the deepest point of a region: its middle may lie outside
            depth = distance_transform_edt(np.pad(inside, 1))[1:-1, 1:-1]
            r, c = np.unravel_index(depth.argmax(), depth.shape)
            ax.annotate(names[k] if len(names) else str(k), (axis[c], axis[r]), (0, 9),
                        textcoords="offset points", ha="center", va="center", fontsize=9,
                        fontweight="bold")  # fmt: skip
    ax.plot([0, 1, 0], [0, 0, 1], "o", color="black", markerfacecolor="white")
    ax.set_title(title)
    ax.set(xlim=extent[:2], ylim=extent[2:], xticks=[0, 1], yticks=[0, 1])
    return ax


def distances(
    values: np.ndarray,
    *,
    names: Sequence[str] = (),
    ylabel: str = "distance to the centroid",
    ax: Axes | None = None,
) -> Axes:
    """Draw for each cluster the distances of its own images beside those of all others.

    Clusters that stand apart have boxes that don't touch.  Boxes go from the lower to the upper
    quartile, whiskers to the last image within 1.5 times as much; single images are dots.

    Parameters
    ----------
    values : ndarray, (N, K)
        ``km.transform(images)``.  With a learned prior these are minus log-likelihoods.
    names : sequence of str, length K, optional
        Names of the clusters; their numbers by default.

    Raises
    ------
    ValueError
        If `values` is no (N, K).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> ax = plots.distances(np.array([[1.0, 5], [2, 6], [7, 1]]))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['own images', 'all others']
    """
    values = np.asarray(values)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"distances must be (N, K), got shape {values.shape}")
    ax = plt.gca() if ax is None else ax
    labels, clusters = values.argmin(1), np.arange(values.shape[1])
    names = [str(k) for k in clusters] if len(names) == 0 else names
    look: Any = {"widths": 0.32, "patch_artist": True, "manage_ticks": False}
    for shift, own, colour, hatch, label in (
        (-0.19, True, COLOURS[7], "", "own images"),
        (0.19, False, "#DDDDDD", "////", "all others"),
    ):
        groups = [values[(labels == k) == own, k] for k in clusters]
        ax.boxplot(
            groups,
            positions=clusters + shift,
            boxprops={"facecolor": colour, "hatch": hatch, "linewidth": 0.8},
            medianprops={"color": "black", "linewidth": 1.4},
            flierprops={"marker": ".", "markersize": 2.5, "markeredgecolor": "#666666"},
            label=label,
            **look,
        )
    ax.set_xticks(clusters, names)
    ax.set(xlabel="cluster", ylabel=ylabel)
    ax.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return ax


LEARNED = ("learn", "learned swap", "spread")


def history(steps: Sequence[Mapping[str, Any]], *, ax: Axes | None = None) -> Axes:
    """Draw the objective over the steps of a fit, a line and a marker a stage.

    Filled markers are steps that were kept, hollow ones swaps or rounds that were tried and
    undone.  Stages with a learned prior have another objective, minus a log-likelihood, on an
    axis of its own to the right.  Where a step saw a share of the images, its objective is divided
    by it.

    Parameters
    ----------
    steps : sequence of dict
        ``km.history_``: each has 'stage' and 'objective'.

    Raises
    ------
    ValueError
        If there are no steps.

    Examples
    --------
    >>> from stkm import plots
    >>> steps = [{"stage": "lloyd", "objective": value} for value in (9.0, 5.0, 4.0)]
    >>> ax = plots.history(steps)
    >>> ax.get_lines()[0].get_ydata().tolist()
    [9.0, 5.0, 4.0]
    """
    # an estimator made from centroids has its last step alone
    steps = [s for s in steps if s["stage"] not in ("searched", "final")] or list(steps)
    if not steps:
        raise ValueError("no steps in the history of this fit")
    ax = plt.gca() if ax is None else ax
    groups: dict[tuple[str, Any], list[int]] = {}
    for i, step in enumerate(steps):
        groups.setdefault((step["stage"], step.get("search")), []).append(i)
    stages = list(dict.fromkeys(stage for stage, _ in groups))
    learned = [stage for stage in stages if stage in LEARNED]
    right = ax.twinx() if learned and len(learned) < len(stages) else ax
    seen: dict[str, Any] = {}
    for (stage, _), where in groups.items():
        on = right if stage in LEARNED else ax
        colour, marker = COLOURS[stages.index(stage)], MARKERS[stages.index(stage)]
        kept = np.array(
            [steps[i].get("accepted", not steps[i].get("undone", False)) for i in where], bool
        )
        values = [steps[i]["objective"] / steps[i].get("share", 1) for i in where]
        x, y = np.array(where) + 1, np.array(values)
        (line,) = on.plot(x[kept], y[kept], marker=marker, color=colour, label=stage)
        on.plot(x[~kept], y[~kept], marker, color=colour, markerfacecolor="none")
        seen.setdefault(stage, line)
    ax.set(xlabel="step", ylabel="objective")
    if right is not ax:
        right.set_ylabel("minus log-likelihood")
        right.spines["right"].set_visible(True)
    ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    ax.legend(seen.values(), seen.keys(), frameon=False, ncols=3, loc="lower center",
              bbox_to_anchor=(0.5, 1))  # fmt: skip
    return ax


def overview(
    pictures: np.ndarray,
    sizes: np.ndarray,
    steps: Sequence[Mapping[str, Any]],
    *,
    modes: np.ndarray | None = None,
    sds: Sequence[float] = (-2, -1, 0, 1, 2),
    images: np.ndarray | None = None,
    values: np.ndarray | None = None,
    bent: Mapping[str, Any] | None = None,
    fig: Figure | None = None,
) -> dict[str, Axes]:
    """Draw one fit on one page: what ``km.plot(images)`` shows.

    Parameters
    ----------
    pictures : ndarray, (K, H, W[, 3])
        Centroids.
    sizes : ndarray of int, (K,)
        Images in each cluster.
    steps : sequence of dict
        ``km.history_``.
    modes, sds
        As :func:`deformation_modes` takes them.
    images, values : ndarray
        As :func:`members` takes them, and :func:`distances` the second; both or neither.
    bent : mapping
        Arguments of :func:`warps`, by name.
    fig : Figure, optional
        A new one by default.

    Returns
    -------
    dict of Axes
        By name: 'centroids', 'history' and, where there is something to draw,
        'deformation_modes', 'nearest', 'farthest', 'warps', 'distances'.

    Raises
    ------
    ValueError
        As :func:`centroids`, :func:`history` and the functions of the other parts.

    References
    ----------
    Centroids and objective of Eq. 2 to 4 of the paper (arXiv 2202.07829); modes of the learned
    prior, `stkm.STKMeans`.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import plots
    >>> steps = [{"stage": "lloyd", "objective": 1.0}]
    >>> sorted(plots.overview(np.ones((2, 8, 8)), np.array([3, 4]), steps))
    ['centroids', 'history']
    """
    n_clusters, tall = len(pictures), pictures.shape[1] / pictures.shape[2]
    columns = min(10, n_clusters)
    # inches: what is drawn half a page wide has 2.5 for images, beside names and numbers
    layout: Any = [["centroids"] * 2]
    heights = [0.3 + 1.3 * 6.2 / 10 * tall * -(-n_clusters // columns)]
    if images is not None and values is not None:
        layout += [["nearest", "farthest"]]
        heights += [0.3 + 2.5 / 8 * tall * n_clusters]
    if bent is not None or modes is not None:
        left = "warps" if bent is not None else "deformation_modes"
        layout += [[left, "deformation_modes" if modes is not None else "warps"]]
        n_rows = n_clusters if modes is not None or bent is None else len(bent["images"])
        heights += [0.5 + 2.5 / 5 * tall * n_rows]
    layout += [["history", "distances" if values is not None else "history"]]
    heights += [2.2]
    if fig is None:
        fig = plt.figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    axes = fig.subplot_mosaic(layout, height_ratios=heights)
    titles = [f"{k}: {n}" for k, n in enumerate(sizes)]
    centroids(pictures, names=titles, columns=columns, ax=axes["centroids"])
    axes["centroids"].set_title("Centroids (cluster: images)", pad=14)
    history(steps, ax=axes["history"])
    if modes is not None:
        deformation_modes(modes, sds, ax=axes["deformation_modes"])
        axes["deformation_modes"].set_title("Largest mode of bending")
    if images is not None and values is not None:
        for which in ("nearest", "farthest"):
            members(images, values, which=which, ax=axes[which])
            axes[which].set_title(
                f"Images {which} {'to' if which[0] == 'n' else 'from'} the centroid"
            )
    if values is not None:
        distances(values, ax=axes["distances"])
    if bent is not None:
        warps(**bent, ax=axes["warps"])
        axes["warps"].set_title("How an image of each cluster is bent")
    return axes
