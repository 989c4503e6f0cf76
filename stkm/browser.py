"""A browser of warps for notebooks: pick a picture, move landmarks, see what it costs.

Needs ipywidgets (``pip install "stkm[notebooks]"``), which nothing else here does; so the
package does not import this module by itself: ``from stkm.browser import Browser``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from typing import Any

import ipywidgets as widgets
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from stkm import plots
from stkm.validation import check_images, check_int

__all__ = ["Browser"]


class Browser(widgets.VBox):
    """Pick an image, move its landmarks by sliders, see its distance to every centroid.

    The left picture shows the image and the grid of the warp, the next one the warped image
    ``T(x, d)`` (Eq. 3), the third the centroid that it is nearest to then.  The bars are the
    squared errors ``sum((T(x, d) - centroid)**2)`` at rest and as bent: the part of the distance
    that a warp lowers; K-means with warps takes the lowest over all warps, at the price of their
    penalty.  Landmarks that were moved stay moved until another image is picked or *Put back*
    is pressed.  *As fitted* bends the image as the fit lays it onto its own centroid.

    Parameters
    ----------
    km : fitted STKMeans or AffineKMeans
    X : array_like, (N, H, W[, C]), or flat where the fit took them flat
        Images of the fitted size, in the fitted range of values.
    names : sequence of str, length N, optional
        Shown beside the picture's number, as the files' names.
    start : int
        Number of the image that is shown first, 0 to N - 1.

    Attributes
    ----------
    displacements : ndarray, (L, 2)
        Of the landmarks, rows down and columns to the right, in pixels.
    errors : ndarray, (K,)
        Squared errors of the warped image to the centroids, as shown.

    Raises
    ------
    ValueError
        For images that the fit can't take, names of another number, a start outside.
    sklearn.exceptions.NotFittedError
        If `km` is not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import STKMeans
    >>> from stkm.browser import Browser
    >>> X = np.zeros((6, 8, 8), np.float32)
    >>> X[:3, 2:6, 3] = X[3:, 3, 2:6] = 1
    >>> km = STKMeans(2, landmarks=3, prior="fixed", n_swaps=0, max_iter=2, random_state=0).fit(X)
    >>> browser = Browser(km, X)
    >>> browser.landmark.value = 4
    >>> browser.down.value = 1.5
    >>> browser.displacements[4].tolist()
    [1.5, 0.0]
    >>> browser.errors.shape
    (2,)
    """

    def __init__(
        self, km: Any, X: Any, names: Sequence[str] = (), *, start: int = 0, **layout: Any
    ) -> None:
        images, grey = check_images(X, km.image_shape)
        images = images[..., 0] if grey else images
        if len(names) not in (0, len(images)):
            raise ValueError(f"{len(images)} images but {len(names)} names: give one for each")
        start = check_int("start", start, 0, len(images) - 1)
        self._km, self._images, self._names = km, images, list(names)
        self._white = max(float(images.max()), 1e-12)
        self._quiet = False
        grid = km.warp_
        reach = max(grid.shape) / 4
        wide = {"description_width": "8em"}
        self.picture = widgets.BoundedIntText(
            start, min=0, max=len(images) - 1, description="picture", style=wide
        )
        self.landmark = widgets.IntSlider(
            len(grid.landmarks) // 2, min=0, max=len(grid.landmarks) - 1, description="landmark",
            style=wide,
        )  # fmt: skip
        self.down, self.right = (
            widgets.FloatSlider(
                0, min=-reach, max=reach, step=0.25, description=name, style=wide,
                readout_format=".2f",
            )
            for name in ("rows down", "columns right")
        )  # fmt: skip
        self.back = widgets.Button(description="Put back", tooltip="all landmarks to rest")
        self.fitted = widgets.Button(description="As fitted", tooltip="the warp found by the fit")
        self.view = widgets.Image(format="png", layout={"max_width": "100%"})
        self.text = widgets.HTML()
        controls = [self.picture, self.landmark, self.down, self.right]
        super().__init__(
            [*controls, widgets.HBox([self.back, self.fitted]), self.text, self.view], **layout
        )
        self.picture.observe(self._pick, "value")
        self.landmark.observe(self._point, "value")
        for slider in (self.down, self.right):
            slider.observe(self._move, "value")
        self.back.on_click(lambda _: self._bend(np.zeros_like(grid.landmarks)))
        self.fitted.on_click(lambda _: self._bend(self._found.displacements[0]))
        self._pick()  # `align` refuses what the fit can't take

    def __repr__(self) -> str:  # what a page without a kernel shows
        return f"Browser of {len(self._images)} pictures (its sliders need JupyterLab and a kernel)"

    def _pick(self, _: Any = None) -> None:
        """Another image, all landmarks at rest."""
        self._image = self._images[[self.picture.value]]
        self._found = self._km.align(self._image)
        self._rest = self._errors(self._image)
        self._bend(np.zeros_like(self._km.warp_.landmarks))

    def _errors(self, image: np.ndarray) -> np.ndarray:
        """Squared errors (K,) of one image to all centroids."""
        return ((image - self._km.cluster_centers_) ** 2).reshape(self._km.n_clusters, -1).sum(1)

    def _bend(self, displacements: np.ndarray) -> None:
        """All landmarks at once."""
        self.displacements = np.array(displacements, dtype=np.float64)
        self._point()
        self._draw()

    def _point(self, _: Any = None) -> None:
        """The sliders show where the chosen landmark is; the other landmarks stay."""
        here = self.displacements[self.landmark.value]
        reach = max(float(np.abs(here).max()), max(self._km.warp_.shape) / 4)
        self._quiet = True
        for slider, value in zip((self.down, self.right), here, strict=True):
            slider.min, slider.max = min(slider.min, -reach), max(slider.max, reach)
            slider.value = float(value)
        self._quiet = False

    def _move(self, _: Any) -> None:
        if not self._quiet:
            self.displacements[self.landmark.value] = self.down.value, self.right.value
            self._draw()

    def _draw(self) -> None:
        warp, d = self._km.warp_, self.displacements[None]
        bent = warp(self._image, d)
        self.errors = self._errors(bent)
        nearest = int(self.errors.argmin())
        name = escape(self._names[self.picture.value]) if self._names else ""
        self.text.value = (
            f"<p>{name} The fit: cluster {self._found.labels[0]}. As bent here: nearest to "
            f"cluster {nearest}, squared error {self.errors[nearest]:.2f} "
            f"(least at rest {self._rest.min():.2f}), "
            f"bending energy {float(warp.bending_energy(d)[0]):.3f}.</p>"
        )
        self.view.value = self._drawn(bent[0], nearest)

    def _drawn(self, bent: np.ndarray, nearest: int) -> bytes:
        """PNG of image and grid, warped image, nearest centroid, squared errors."""
        warp, d = self._km.warp_, self.displacements[None]
        with mpl.rc_context(plots.STYLE):
            fig = Figure(figsize=(8, 2.2))
            axes = fig.subplots(1, 4, width_ratios=(1, 1, 1, 1.4))
            pictures = (self._image[0], bent, self._km.cluster_centers_[nearest])
            titles = ("picture and grid", "warped", f"centroid {nearest}")
            for ax, picture, title in zip(axes, pictures, titles, strict=False):
                plots.image((picture / self._white).clip(0, 1), title=title, ax=ax)
            points = warp.landmarks + d[0]
            step = max(2, max(warp.shape) // 9)
            plots.warp_grid(warp.field(d)[0], points, step=step, ax=axes[0])
            axes[0].plot(*points[self.landmark.value][::-1], "o", color=plots.COLOURS[3])
            clusters = np.arange(len(self.errors))
            shown = (
                (-0.2, self._rest, {"label": "at rest", "color": plots.COLOURS[7]}),
                (0.2, self.errors, {"label": "as bent", "color": "#DDDDDD", "hatch": "//"}),
            )
            for shift, errors, look in shown:
                axes[3].bar(clusters + shift, errors, 0.4, **look)
            axes[3].set(xlabel="cluster", ylabel="squared error", xticks=clusters)
            axes[3].legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
            buffer = io.BytesIO()
            fig.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()
