"""Figures of the paper, one function a kind of picture.

Every function draws given numbers and computes nothing.  It takes ``ax=`` (the
current axes by default) and returns the axes.  Nothing here chooses a backend
or shows a window.  Figures that are meant for print start with :func:`use_style`
and end with :func:`save`, which writes the same bytes for the same picture.

Grey images are (H, W) with 0 black and 1 white; colour images (H, W, 3).
Colours are fit for colour-blind readers, and no meaning hangs on colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.patheffects as effects
import matplotlib.pyplot as plt
import numpy as np
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
    "criterion",
    "curve",
    "embedding",
    "image",
    "mosaic",
    "regions",
    "save",
    "signed",
    "use_style",
    "warp_grid",
]

WIDTH = 6.75
"""Width of a full-page figure in inches, the text width of a two-column paper."""

COLOURS = ("#332288", "#E69F00", "#33BBEE", "#CC3311", "#000000", "#DDCC77", "#AA3377",
           "#0077BB", "#663333", "#EE6677")  # fmt: skip
"""Ten colours that stay apart on white for readers with and without full colour vision.

Chosen from the schemes of Okabe and Ito and of Paul Tol so that the least distance of two
in CIE Lab, as trichromats, protanopes and deuteranopes see them, is as large as it gets.
"""

MARKERS = "osD^vPX<>*"
GRID = "#EE7733"  # Tol's "vibrant" orange: seen on black, grey and white

STYLE = {
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
    "axes.prop_cycle": mpl.cycler(color=COLOURS),
    "image.cmap": "gray",
    "image.interpolation": "nearest",
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,  # TrueType, so that text stays text
    "svg.hashsalt": "stkm",
}
"""Settings of all figures of the paper; see :func:`use_style`."""


def use_style() -> None:
    """Make :data:`STYLE`, over matplotlib's own defaults, the settings of this process."""
    keep = {"backend", "interactive"}
    mpl.rcParams.update({k: v for k, v in mpl.rcParamsDefault.items() if k not in keep})
    mpl.rcParams.update(STYLE)


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
    """Draw one image (H, W[, 3]) with values from 0 to 1."""
    ax = plt.gca() if ax is None else ax
    ax.imshow(picture, vmin=0, vmax=1)
    ax.set_title(title)
    return _bare(ax)


def signed(difference: np.ndarray, *, title: str = "", ax: Axes | None = None) -> Axes:
    """Draw a difference (H, W) from -1 (purple) over 0 (white) to 1 (orange)."""
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
    """
    ax = plt.gca() if ax is None else ax
    height, width = field.shape[:2]
    line = {"color": GRID, "linewidth": 0.7}
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
    """Draw a table of images of one size, (R, C, H, W[, 3]), in one pair of axes.

    Parameters
    ----------
    row_labels, column_labels : sequence of str, optional
        Written left of the rows and above the columns.
    gap : int
        Pixels between images.
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
    return ax


def centroids(pictures: np.ndarray, *, columns: int = 10, ax: Axes | None = None) -> Axes:
    """Draw the centroids (K, H, W[, 3]) of one fit in order, ``columns`` a row.

    Values may be in any scale; the brightest of all is white.
    """
    ax = plt.gca() if ax is None else ax
    columns = min(columns, len(pictures))
    top = max(float(np.max(pictures)), 1e-12)
    blank = np.ones((-len(pictures) % columns, *pictures.shape[1:]))
    cells = np.concatenate([pictures / top, blank])
    return mosaic(cells.reshape(-1, columns, *pictures.shape[1:]), ax=ax)


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
    """Draw y over whole numbers x (passes, iterations), with a marker at each."""
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
    counts : ndarray, (n_classes, n_clusters)
        As `stkm.metrics.confusion` orders them: matched pairs on the diagonal.
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
    labels : ndarray of int, (N,)
        Class of each point.
    names : sequence of str
        Name of each class.
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
    """
    ax = plt.gca() if ax is None else ax
    varied = [name for name in settings[0] if len({repr(s.get(name)) for s in settings}) > 1]
    x, means = list(range(len(settings))), [float(np.mean(v)) for v in values]
    numbers = [settings[i].get(varied[0]) for i in x] if len(varied) == 1 else []
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
