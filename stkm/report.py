"""The report of one clustering as an HTML page that stands alone.

Pictures are embedded, nothing is loaded from anywhere (the page forbids it), every text from
outside (names of files and folders) is escaped, and there is no script.  The layout is in
``report.html`` beside this module.
"""

from __future__ import annotations

import base64
import io
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from stkm import plots
from stkm.validation import counted

__all__ = ["Grouping", "render"]

NEAREST, FARTHEST, UNSURE = 12, 6, 12  # pictures shown of each cluster, and between clusters
MOST = np.log(1000)  # gap of two likelihoods beyond which it is not told in numbers
PAGE = 3.9  # inches of a diagram: text of 8 points stays readable on a narrow screen


class Grouping(NamedTuple):
    """A fitted estimator with the images it is shown on; N images, K clusters.

    Attributes
    ----------
    km : fitted `STKMeans` or `AffineKMeans`
    images : (N, H, W) or (N, H, W, 3) float, 0 to 1, as the fit saw them
    names : N names, each ``file`` or ``folder/file``
    distances : (N, K), ``km.transform(images)``
    alignment : `Alignment`, ``km.align(images)``
    negative : whether the images are negatives of the files; pictures are shown as the files are

    Raises
    ------
    ValueError
        By :meth:`of`, which makes it.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import STKMeans
    >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
    >>> X[:10, 2:6, 3] = 1  # upright bars
    >>> X[10:, 3, 2:6] = 1  # lying bars
    >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
    >>> names = [f"{i}.png" for i in range(len(X))]
    >>> from stkm import report
    >>> grouping = report.Grouping.of(km, X, names)
    >>> grouping.distances.shape, grouping.labels.tolist() == km.labels_.tolist()
    ((20, 2), True)
    """

    km: Any
    images: np.ndarray
    names: Sequence[str]
    distances: np.ndarray
    alignment: Any
    negative: bool = False

    @classmethod
    def of(cls, km, images, names, *, negative=False):
        """Distances and warps of images under a fitted estimator.

        Parameters
        ----------
        km : fitted `STKMeans` or `AffineKMeans`
        images : (N, H, W) or (N, H, W, 3), 0 to 1
        names : N names
        negative : whether the images are negatives of the files

        Raises
        ------
        ValueError
            If the names are not one an image, or the images are not from 0 to 1.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> names = [f"{i}.png" for i in range(len(X))]
        >>> from stkm import report
        >>> report.Grouping.of(km, X, names).alignment.warped.shape
        (20, 8, 8)
        """
        images = np.asarray(images, np.float32)
        if len(names) != len(images):
            raise ValueError(f"{len(names)} names for {len(images)} images")
        if images.size and not (images.min() >= 0 and images.max() <= 1):
            raise ValueError(
                f"images have values from {images.min():g} to {images.max():g}, not 0 to 1: "
                "divide 8-bit images by 255 before the fit"
            )
        return cls(km, images, names, np.asarray(km.transform(images)), km.align(images), negative)

    @property
    def labels(self):
        """Cluster of each image, (N,) int, 0 to K - 1.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> names = [f"{i}.png" for i in range(len(X))]
        >>> from stkm import report
        >>> report.Grouping.of(km, X, names).labels[8:12].tolist()
        [0, 0, 1, 1]
        """
        return self.distances.argmin(1)

    def shown(self, pictures):
        """Pictures from 0 to 1 with the ground that the files have.

        Parameters
        ----------
        pictures : ndarray, of any shape
            Values below 0 and above 1 are cut off.

        Returns
        -------
        ndarray of the same shape

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import STKMeans
        >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
        >>> X[:10, 2:6, 3] = 1  # upright bars
        >>> X[10:, 3, 2:6] = 1  # lying bars
        >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
        >>> names = [f"{i}.png" for i in range(len(X))]
        >>> from stkm import report
        >>> grouping = report.Grouping.of(km, X, names, negative=True)
        >>> grouping.shown(np.array([0.0, 0.25, 2.0])).tolist()
        [1.0, 0.75, 0.0]
        """
        pictures = np.clip(pictures, 0, 1)
        return 1 - pictures if self.negative else pictures


def render(grouping: Grouping, *, title: str, notes: Sequence[str] = ()) -> str:
    """Return the report as one HTML text.

    Parameters
    ----------
    grouping : Grouping
    title : str
        Heading of the page.
    notes : sequence of str
        What the reader should know about the images; shown on top.

    Returns
    -------
    str
        The whole page; it needs no other file.

    Raises
    ------
    ValueError
        By :meth:`Grouping.of`; nothing of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import STKMeans
    >>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
    >>> X[:10, 2:6, 3] = 1  # upright bars
    >>> X[10:, 3, 2:6] = 1  # lying bars
    >>> km = STKMeans(2, landmarks=3, prior="fixed", init=X[[0, 10]], max_iter=2).fit(X)
    >>> names = [f"{i}.png" for i in range(len(X))]
    >>> from stkm import report
    >>> page = report.render(report.Grouping.of(km, X, names), title="Bars")
    >>> page.startswith("<!DOCTYPE html>"), "<h1>Bars</h1>" in page
    (True, True)
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    km, labels = grouping.km, grouping.labels
    sizes = np.bincount(labels, minlength=len(km.cluster_centers_))
    height, width = grouping.images.shape[1:3]
    return environment.get_template("report.html").render(
        title=title,
        notes=notes,
        counted=counted,
        n_images=len(labels),
        height=height,
        width=width,
        shown_width=max(48, min(96, 2 * width)),
        clusters=[_cluster(grouping, k, size) for k, size in enumerate(sizes)],
        unsure=_unsure(grouping),
        figures=_figures(grouping),
        folded=_folded(grouping),
        folders=_folders(grouping.names, labels, len(sizes)),
        likelihood=km.prior_ is not None,
        settings=_settings(km),
        warp=km.warp_.kind,
    )


def _cluster(g: Grouping, k: int, size: int) -> dict[str, Any]:
    """Return what the page shows of cluster k."""
    own = np.flatnonzero(g.labels == k)
    own = own[np.argsort(g.distances[own, k], kind="stable")]
    far = own[NEAREST:][::-1][:FARTHEST]
    rows = [{"name": g.names[int(i)], "distance": g.distances[i, k]} for i in own]
    return {
        "number": k,
        "size": int(size),
        "picture": _png(g.shown(g.km.cluster_centers_[k])),
        "nearest": [_thumbnail(g, i) for i in own[:NEAREST]],
        "farthest": [_thumbnail(g, i) for i in far],
        "rows": rows,
    }


def _thumbnail(g: Grouping, i: int) -> dict[str, str]:
    return {"name": g.names[i], "picture": _png(g.shown(g.images[i]))}


def _folded(g: Grouping) -> dict[str, Any]:
    """Return in how many images the warp folds, and where most."""
    share = np.asarray(g.alignment.folded)
    worst = int(share.argmax())
    return {"images": int((share > 0).sum()), "name": g.names[worst], "most": share[worst]}


def _unsure(g: Grouping) -> list[dict[str, Any]]:
    """Return the images whose two nearest centroids are almost equally near."""
    if g.distances.shape[1] < 2:
        return []
    two = np.argsort(g.distances, axis=1, kind="stable")[:, :2]
    lead = np.diff(np.take_along_axis(g.distances, two, 1), axis=1)[:, 0]
    order = np.argsort(lead, kind="stable")[:UNSURE]
    return [
        {
            **_thumbnail(g, i),
            "first": int(two[i, 0]),
            "second": int(two[i, 1]),
            "lead": _lead(lead[i], None if g.km.prior_ is not None else g.distances[i, two[i, 0]]),
        }
        for i in order
    ]


def _lead(gap: float, distance: float | None) -> str:
    """Return what a gap between two distances says: of likelihoods (no `distance`) or errors."""
    if distance is None:
        return f"{_short(np.exp(gap))} times" if gap < MOST else "more than 1000 times"
    return f"{_short(100 * gap / distance)} %" if distance > 0 else "exact"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _folders(names: Sequence[str], labels: np.ndarray, n_clusters: int) -> dict[str, list[int]]:
    """Return images of each folder by cluster; nothing if all lie in one."""
    folders = np.array([name.rpartition("/")[0] or "(none)" for name in names], dtype=object)
    kinds = sorted(set(folders))
    if len(kinds) < 2:
        return {}
    return {
        kind: np.bincount(labels[folders == kind], minlength=n_clusters).tolist() for kind in kinds
    }


def _settings(km: Any) -> dict[str, str]:
    """Return parameters of the estimator and versions, as text."""
    import jax
    import sklearn

    import stkm

    params = {k: v for k, v in km.get_params().items() if k != "verbose"}
    long = {k: f"array {np.shape(v)}" for k, v in params.items() if np.ndim(v)}
    versions = f"stkm {stkm.__version__}, Python {platform.python_version()}, "
    versions += f"jax {jax.__version__}, scikit-learn {sklearn.__version__}"
    return {"estimator": type(km).__name__, **{k: str(v) for k, v in (params | long).items()},
            "versions": versions}  # fmt: skip


# ------------------------------------------------------------------- pictures


def _uri(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")


def _png(picture: np.ndarray) -> str:
    """Return one image (H, W[, 3]) from 0 to 1 as a data URI."""
    buffer = io.BytesIO()
    Image.fromarray(np.round(255 * picture).astype(np.uint8)).save(buffer, "png", optimize=True)
    return _uri(buffer.getvalue())


def _drawn(draw: Callable[[Axes], Any], width: float, height: float) -> str:
    """Return what `draw` draws on axes of so many inches as a data URI."""
    with mpl.rc_context(plots.STYLE):
        fig = Figure(figsize=(width, height), layout="constrained")
        draw(fig.subplots())
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return _uri(buffer.getvalue())


def _figures(g: Grouping) -> dict[str, str]:
    """Return the diagrams of the page as data URIs."""
    km, a = g.km, g.alignment
    tall = g.images.shape[1] / g.images.shape[2]
    groups = [np.flatnonzero(g.labels == k) for k in range(len(km.cluster_centers_))]
    # of each cluster the image in the middle, by distance
    some = [own[np.argsort(g.distances[own, k])[len(own) // 2]] for k, own in enumerate(groups)
            if len(own)]  # fmt: skip
    moved = km.warp_.landmarks + a.displacements[some]
    found = {
        "warps": _drawn(
            lambda ax: plots.warps(
                g.images[some],
                a.warped[some],
                km.cluster_centers_[a.labels[some]],
                km.warp_.field(a.displacements[some]),
                moved if len(moved[0]) else None,
                names=[str(k) for k in a.labels[some]],
                ax=ax,
            ),
            PAGE,
            0.3 + PAGE / 5.4 * tall * len(some),
        ),
        "distances": _drawn(
            lambda ax: plots.distances(g.distances, ax=ax), max(PAGE, 0.3 * len(groups)), 2.6
        ),
        "history": _drawn(lambda ax: plots.history(km.history_, ax=ax), PAGE, 2.6),
    }
    if km.prior_ is not None:
        modes = km.mode_images(n_modes=1)[0]
        found["modes"] = _drawn(
            lambda ax: plots.deformation_modes(modes, ax=ax),
            PAGE,
            0.3 + PAGE / 5.4 * tall * len(groups),
        )
    return found
