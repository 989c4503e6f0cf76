"""Warps of images: thin-plate splines, affine maps and translations as one linear model.

Conventions, used everywhere in the package
-------------------------------------------
* Images are real arrays ``(N, H, W)`` or ``(N, H, W, C)``; their intensity scale is kept as given.
* Coordinates are in pixels, order (row, column), origin at the *centre* of pixel [0, 0]::

        column 0     1     2              the frame of a 3 x 3 image: pixel centres
      row 0  *-----*-----*                at 0, 1, 2; beyond the outer centres the
             |     |     |                intensity falls linearly to 0 within one
          1  *-----*-----*                pixel and stays 0.
             |     |     |
          2  *-----*-----*

* A warp samples the image x at ``F(p) = p + B(p) d`` for every pixel p of the frame:
  ``T(x, d)(p) = x(F(p))``.  ``d`` are displacements of L landmarks, ``(L, 2)`` in pixels;
  zeros are the identity.  The rows of B sum to one.  Because the thin-plate system does not
  depend on the *target* landmarks, F is linear in d, and B is all that the solver needs.

The thin-plate spline is that of the paper's appendix ("Thin-Plate-Spline Interpolation") after
Duchon (1977) and Bookstein (1989): U(r) = r^2 log r^2 with r the Euclidean distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike, NDArray

__all__ = ["Warp", "pack_taps", "sample", "sample_taps"]

# ∫∫ (f_rr² + 2 f_rc² + f_cc²) = 16π wᵀKw for f = Σ w U(|p - p_i|): U is 16π times the
# fundamental solution of the squared Laplacian.
ENERGY = 16 * np.pi


# ---------------------------------------------------------------- bilinear sampling


def pack_taps(images, xp=jnp):
    """Four neighbours of every cell side by side, so that one look-up brings all of them.

    Parameters
    ----------
    images : (N, H, W, C), any scale
    xp : numpy or jax.numpy

    Returns
    -------
    (N * (H+1) * (W+1), 4, C): upper left, upper right, lower left, lower right pixel. Cells start
    at (-1, -1): the border outside the frame is 0.

    Raises
    ------
    ValueError : another number of axes

    Examples
    --------
    >>> import numpy as np
    >>> from stkm.warp import pack_taps
    >>> taps = pack_taps(np.ones((1, 2, 2, 1)), np)
    >>> taps.shape, taps[4, :, 0].tolist()  # the cell in the middle
    ((9, 4, 1), [1.0, 1.0, 1.0, 1.0])
    """
    n, h, w, c = images.shape
    q = xp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = xp.stack([q[:, :-1, :-1], q[:, :-1, 1:], q[:, 1:, :-1], q[:, 1:, 1:]], axis=3)
    return taps.reshape(n * (h + 1) * (w + 1), 4, c)


def sample_taps(taps, shape, rows, cols, index=None):
    """Bilinear values and their derivatives at points, from packed images.

    Parameters
    ----------
    taps : (M * (H+1) * (W+1), 4, C), M images of :func:`pack_taps`
    shape : (H, W) of the images
    rows, cols : (N, m), points in pixels
    index : (N,), which packed image each row belongs to; default 0 … N−1. It is not checked

    Returns
    -------
    value, d/drow, d/dcol, each (N, m, C), in intensity and intensity per pixel. Between pixel
    centres the derivatives are exact; *on* a centre they are those of the cell to the lower right.

    Raises
    ------
    TypeError : ``rows`` and ``cols`` differ in shape (jax's)

    Examples
    --------
    >>> import numpy as np
    >>> from stkm.warp import pack_taps, sample_taps
    >>> image = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> points = np.full((1, 1), 1.5, np.float32)
    >>> [float(a) for a in np.ravel(sample_taps(pack_taps(image), (4, 4), points, points))]
    [7.5, 4.0, 1.0]
    """
    h, w = shape
    index = jnp.arange(len(rows), dtype=jnp.int32) if index is None else index
    in_rows, in_cols = abs(rows - (h - 1) / 2) < (h + 1) / 2, abs(cols - (w - 1) / 2) < (w + 1) / 2
    rows = jnp.clip(rows, -1.0, h)
    cols = jnp.clip(cols, -1.0, w)
    i = jnp.minimum(jnp.floor(rows), h - 1.0)
    j = jnp.minimum(jnp.floor(cols), w - 1.0)
    cell = ((i + 1) * (w + 1) + (j + 1)).astype(jnp.int32)
    cell = cell + (index * ((h + 1) * (w + 1)))[:, None]
    # the barrier keeps XLA from computing the index again for each of the four taps
    cell = lax.optimization_barrier(cell)
    v = taps.at[cell].get(mode="promise_in_bounds", wrap_negative_indices=False)  # (N, m, 4, C)
    a, b = (rows - i)[..., None], (cols - j)[..., None]
    v00, v01, v10, v11 = v[:, :, 0], v[:, :, 1], v[:, :, 2], v[:, :, 3]
    # convex form: exact at a = 0 and at a = 1, so the identity returns the image bit for bit
    top, bottom = (1 - b) * v00 + b * v01, (1 - b) * v10 + b * v11
    value = (1 - a) * top + a * bottom
    d_row, d_col = bottom - top, (1 - a) * (v01 - v00) + a * (v11 - v10)
    return value, d_row * in_rows[..., None], d_col * in_cols[..., None]  # flat beyond the frame


@jax.jit
def _sample(images, coords):
    n, h, w, c = images.shape
    flat = jnp.broadcast_to(coords, (n, *coords.shape[1:])).reshape(n, -1, 2)
    parts = sample_taps(pack_taps(images), (h, w), flat[..., 0], flat[..., 1])
    return tuple(p.reshape(*(n, *coords.shape[1:-1]), c) for p in parts)


def sample(images: ArrayLike, coords: ArrayLike, *, derivatives: bool = False) -> Any:
    """Bilinear samples of images at absolute coordinates; 0 outside the frame.

    Parameters
    ----------
    images : array (N, H, W) or (N, H, W, C), any real type and scale
    coords : array (N, ..., 2) or (1, ..., 2), (row, column) in pixels
    derivatives : also return the derivatives by row and by column, in intensity per pixel

    Returns
    -------
    array (N, ...) or (N, ..., C); with ``derivatives`` a tuple of three of them.
    Equals ``scipy.ndimage.map_coordinates(order=1, mode="grid-constant")``.

    Raises
    ------
    ValueError : images or coordinates of another shape

    References
    ----------
    The bilinear sampling of the paper's spatial transformer, T(x, d) of Eq. 3 (arXiv 2202.07829).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm.warp import sample
    >>> image = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    >>> sample(image, [[[1.0, 1.5], [9.0, 9.0]]]).tolist()
    [[5.5, 0.0]]
    """
    images, coords = as_float(images), as_float(coords)
    if images.ndim not in (3, 4):
        raise ValueError(f"images must be (N, H, W) or (N, H, W, C), got {images.shape}")
    n = len(images)
    if coords.ndim < 2 or coords.shape[-1] != 2 or coords.shape[0] not in (1, n):
        raise ValueError(f"coords must be ({n}, ..., 2) or (1, ..., 2), got {coords.shape}")
    grey = images.ndim == 3
    x = images[..., None] if grey else images
    where = np.broadcast_to(coords, (n, *coords.shape[1:]))
    shape = (n, *coords.shape[1:-1], x.shape[-1])
    out = tuple(np.zeros(shape, x.dtype) for _ in range(3 if derivatives else 1))
    for part, padded in batches(np.arange(n), 128):
        for whole, piece in zip(out, _sample(x[padded], where[padded]), strict=False):
            whole[part] = np.asarray(piece)[: len(part)]
    out = tuple(o[..., 0] for o in out) if grey else out
    return out if derivatives else out[0]


def as_float(a):
    """As a numpy array of floating type; float64 stays only where jax's x64 is enabled."""
    a = np.asarray(a)
    if a.dtype == np.float64 and jax.config.jax_enable_x64:
        return a
    return a.astype(np.float32, copy=False)


def batches(index, size):
    """Pieces of ``index`` (an array) and the same padded by repetition to one of two lengths.

    ``size``, or 64 for a rest that small: two compiled programs, whatever the number of images.
    """
    for start in range(0, len(index), size):
        part = index[start : start + size]
        length = min(64, size) if len(part) <= 64 else size
        yield part, np.pad(part, (0, length - len(part)), mode="edge")


# ---------------------------------------------------------------- the linear model of warps


def _radial(points, landmarks):
    """U(r) = r² log r² (m, L) and its derivatives by row and column; all 0 at r = 0."""
    delta = points[:, None, :] - landmarks[None, :, :]
    r2 = (delta**2).sum(-1)
    log = np.log(np.where(r2 > 0, r2, 1.0))  # the inner where keeps log away from 0
    slope = np.where(r2 > 0, 2 * (log + 1), 0.0)[..., None] * delta
    return r2 * log, slope[..., 0], slope[..., 1]


def _features(points, landmarks, kind):
    """Functions that span the warps at points (m, 2): (m, F) and both derivatives."""
    m, one = len(points), np.ones((len(points), 1))
    zero = np.zeros_like(one)
    if kind in ("identity", "translation"):
        return one, zero, zero
    linear = np.hstack([one, points])
    d_row, d_col = np.hstack([zero, one, zero]), np.hstack([zero, zero, one])
    if kind == "affine":
        return linear, d_row, d_col
    u, u_row, u_col = _radial(points, landmarks)
    assert u.shape == (m, len(landmarks))
    return np.hstack([u, linear]), np.hstack([u_row, d_row]), np.hstack([u_col, d_col])


def _check_shape(shape):
    shape = tuple(int(s) for s in shape)
    if len(shape) != 2 or min(shape) < 4:
        raise ValueError(f"a frame has height and width of at least 4 pixels, got shape {shape}")
    return shape


def _check_landmarks(points, shape):
    """Landmarks ``(L, 2)`` in pixels, distinct, in the frame and not on one line."""
    points = np.asarray(points, dtype=np.float64)
    h, w = shape
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3:
        raise ValueError(f"landmarks must be (L, 2) with L >= 3, got shape {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("landmarks contain NaN or infinity")
    low, high = points.min(0), points.max(0)
    if (low < -0.5).any() or (high > np.array([h, w]) - 0.5).any() or (high - low).max() <= 1:
        raise ValueError(
            f"landmarks are (row, column) in pixels, rows 0 to {h - 1} and columns 0 to {w - 1}; "
            f"got values from {low.tolist()} to {high.tolist()} (normalised coordinates?)"
        )
    distance = ((points[:, None] - points[None]) ** 2).sum(-1)
    twins = np.argwhere(np.triu(distance < 1e-12, 1))
    if len(twins):
        i, j = twins[0]
        raise ValueError(f"landmarks {i} and {j} are the same point {points[i].tolist()}")
    if np.linalg.svd(points - points.mean(0), compute_uv=False)[1] < 1e-6 * max(h, w):
        raise ValueError(
            f"all {len(points)} landmarks are collinear: a spline needs three off a line"
        )
    return points


@dataclass(frozen=True, eq=False)
class Warp:
    """A family of warps of one frame, linear in the displacements of its landmarks.

    Make one with :meth:`tps`, :meth:`affine`, :meth:`translation` or :meth:`identity`.

    Attributes
    ----------
    shape : (H, W) of the frame in pixels
    landmarks : (L, 2) source landmarks, (row, column) in pixels
    coefficients : (F, L) from landmark displacements to the weights of the F basis functions
    bending : (L, L), ``bending_energy(d) = Σ_axes dᵀ bending d``; zeros for affine warps
    kind : "tps", "affine", "translation" or "identity"

    Raises
    ------
    ValueError : by the four methods above, for a frame below 4 pixels a side or unfit landmarks

    References
    ----------
    T(x, d) of Eq. 3 and appendix "Thin-Plate-Spline Interpolation" of the paper (arXiv 2202.07829).
    Duchon 1977; Bookstein 1989 (thin-plate splines).

    Examples
    --------
    >>> import numpy as np
    >>> from stkm import Warp
    >>> w = Warp.tps((28, 28), landmarks=6)
    >>> image = np.random.default_rng(0).random((1, 28, 28), dtype=np.float32)
    >>> bool((np.asarray(w(image, np.zeros((1, 36, 2)))) == image).all())
    True
    """

    shape: tuple[int, int]
    landmarks: np.ndarray
    coefficients: np.ndarray
    bending: np.ndarray
    kind: str

    @classmethod
    def tps(cls, shape: tuple[int, int], landmarks: int | ArrayLike = 6) -> Self:
        """Thin-plate splines on a uniform grid of landmarks, or on given ones.

        With K_ij = U(|p_i - p_j|) and P = [1, p], the system [[K, P], [Pᵀ, 0]] is inverted once,
        in float64.

        Parameters
        ----------
        shape : (H, W) in pixels, at least 4 each
        landmarks : g for a uniform g × g grid, 2 to min(H, W) − 1, or points (L, 2) in pixels,
            (row, column), distinct, in the frame, not on one line

        Raises
        ------
        ValueError : a frame or landmarks that are not so

        References
        ----------
        Appendix "Thin-Plate-Spline Interpolation" of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> from stkm import Warp
        >>> Warp.tps((8, 8), landmarks=3).landmarks[:4].tolist()
        [[0.0, 0.0], [0.0, 3.5], [0.0, 7.0], [3.5, 0.0]]
        """
        shape = _check_shape(shape)
        if np.ndim(landmarks) == 0:
            g = landmarks
            if isinstance(g, bool) or int(g) != g or not 2 <= g < min(shape):  # type: ignore[operator]
                raise ValueError(
                    f"landmarks={g!r}: a grid has 2 to {min(shape) - 1} landmarks a side "
                    f"on a frame of {shape[0]}x{shape[1]}"
                )
            axes = [np.linspace(0, s - 1, int(g)) for s in shape]
            landmarks = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        return cls._spline(shape, _check_landmarks(landmarks, shape))

    @classmethod
    def _spline(cls, shape, points):
        n = len(points)
        p = np.hstack([np.ones((n, 1)), points])
        system = np.block([[_radial(points, points)[0], p], [p.T, np.zeros((3, 3))]])
        inverse = np.linalg.inv(system)[:, :n]
        bending = ENERGY * (inverse[:n] + inverse[:n].T) / 2
        return cls(shape, points, inverse, bending, "tps")

    @classmethod
    def affine(cls, shape: tuple[int, int]) -> Self:
        """All affine maps, by the displacements of three corners of the frame.

        Parameters
        ----------
        shape : (H, W) in pixels, at least 4 each

        Raises
        ------
        ValueError : a smaller frame

        References
        ----------
        The affine transformations of AI K-means in Table 1 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> from stkm import Warp
        >>> Warp.affine((8, 8)).landmarks.tolist()
        [[0.0, 0.0], [0.0, 7.0], [7.0, 0.0]]
        """
        h, w = shape = _check_shape(shape)
        return cls._affine(shape, np.array([[0, 0], [0, w - 1], [h - 1, 0]], dtype=np.float64))

    @classmethod
    def _affine(cls, shape, points):
        coefficients = np.linalg.inv(np.hstack([np.ones((3, 1)), points]))
        return cls(shape, points, coefficients, np.zeros((3, 3)), "affine")

    @classmethod
    def translation(cls, shape: tuple[int, int]) -> Self:
        """Shifts of the whole image, by the displacement of its centre.

        Parameters
        ----------
        shape : (H, W) in pixels, at least 4 each

        Raises
        ------
        ValueError : a smaller frame

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import Warp
        >>> image = np.eye(4, dtype=np.float32)[None]
        >>> Warp.translation((4, 4))(image, [[[0, 1]]])[0].tolist()  # from the right
        [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
        """
        h, w = shape = _check_shape(shape)
        centre = np.array([[(h - 1) / 2, (w - 1) / 2]])
        return cls(shape, centre, np.ones((1, 1)), np.zeros((1, 1)), "translation")

    @classmethod
    def identity(cls, shape: tuple[int, int]) -> Self:
        """No warp at all: clustering with it is plain K-means.

        Parameters
        ----------
        shape : (H, W) in pixels, at least 4 each

        Raises
        ------
        ValueError : a smaller frame

        Examples
        --------
        >>> from stkm import Warp
        >>> Warp.identity((8, 8)).landmarks.shape
        (0, 2)
        """
        empty = np.zeros((0, 0))
        return cls(_check_shape(shape), np.zeros((0, 2)), np.zeros((1, 0)), empty, "identity")

    def shrunk(self, r: int) -> Self:
        """The same warps on the frame of `stkm.resolution.shrink`.

        Displacements there, times r, are displacements here. The landmarks stay where they are;
        r × r pixels of this frame are one of the other.

        Parameters
        ----------
        r : whole number of at least 1, pixels of this frame for one

        Raises
        ------
        ZeroDivisionError : r is 0

        Examples
        --------
        >>> from stkm import Warp
        >>> Warp.affine((8, 8)).shrunk(2).shape
        (4, 4)
        """
        shape = tuple(-(-s // r) for s in self.shape)
        points = (self.landmarks - (r - 1) / 2) / r
        if self.kind == "tps":
            return self._spline(shape, points)
        if self.kind == "affine":
            return self._affine(shape, points)
        return type(self)(shape, points, self.coefficients, self.bending, self.kind)

    def basis_at(self, points: ArrayLike) -> tuple[NDArray[np.float64], ...]:
        """B at any points, and its derivatives by row and by column.

        Parameters
        ----------
        points : (m, 2), (row, column) in pixels

        Returns
        -------
        three arrays (m, L) float64: B, without unit, and its derivatives, per pixel

        Raises
        ------
        ValueError : points of another shape

        References
        ----------
        Appendix "Thin-Plate-Spline Interpolation" of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> from stkm import Warp
        >>> b, by_row, by_column = Warp.affine((8, 8)).basis_at([[3.5, 3.5]])
        >>> b.round(6).tolist(), by_row.round(3).tolist()
        ([[0.0, 0.5, 0.5]], [[-0.143, 0.0, 0.143]])
        """
        return tuple(
            f @ self.coefficients
            for f in _features(np.asarray(points, float), self.landmarks, self.kind)
        )

    @cached_property
    def pixels(self) -> NDArray[np.float64]:
        """Pixel centres, ``(H * W, 2)`` float64, (row, column).

        Examples
        --------
        >>> from stkm import Warp
        >>> Warp.affine((4, 4)).pixels[:3].tolist()
        [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
        """
        h, w = self.shape
        return (
            np.stack(np.meshgrid(np.arange(h), np.arange(w), indexing="ij"), -1)
            .reshape(-1, 2)
            .astype(float)
        )

    @cached_property
    def _basis(self):
        return self.basis_at(self.pixels)

    @property
    def basis(self) -> NDArray[np.float64]:
        """B on the pixels, ``(H * W, L)`` float64 without unit, rows sum to one.

        References
        ----------
        Appendix "Thin-Plate-Spline Interpolation" of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import Warp
        >>> basis = Warp.tps((8, 8), landmarks=3).basis
        >>> basis.shape, bool(np.allclose(basis.sum(1), 1))
        ((64, 9), True)
        """
        return self._basis[0]

    def _check(self, d):
        d = np.asarray(d)
        if d.ndim != 3 or d.shape[1:] != self.landmarks.shape:
            raise ValueError(
                f"displacements must be (N, {len(self.landmarks)}, 2) in pixels, got {d.shape}"
            )
        if not np.isfinite(d).all():
            raise ValueError("displacements contain NaN or infinity")
        return d

    def field(self, d: ArrayLike) -> NDArray[np.float64]:
        """Absolute sampling coordinates F(p) of every pixel.

        Order (row, column). ``skimage.transform.warp`` and ``scipy.ndimage.map_coordinates`` take
        the last axis first, OpenCV two maps, of columns and of rows::

            skimage.transform.warp(image, np.moveaxis(field, -1, 0), order=1)  # = self(image, d)
            cv2.remap(image, *np.float32(field[..., ::-1]).transpose(2, 0, 1), cv2.INTER_LINEAR)

        Parameters
        ----------
        d : (N, L, 2) displacements of the landmarks, pixels

        Returns
        -------
        (N, H, W, 2) float64, pixels

        Raises
        ------
        ValueError : displacements of another shape, NaN or infinity

        References
        ----------
        Appendix "Thin-Plate-Spline Interpolation" of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> from stkm import Warp
        >>> Warp.translation((4, 4)).field([[[1.0, -0.5]]])[0, 2, 3].tolist()
        [3.0, 2.5]
        """
        d = np.asarray(self._check(d), dtype=np.float64)
        return (self.pixels + self.basis @ d).reshape(len(d), *self.shape, 2)

    def __call__(self, images: ArrayLike, d: ArrayLike) -> NDArray[np.floating]:
        """Warped images ``T(x, d)``; 0 outside the frame.

        Parameters
        ----------
        images : (N, H, W) or (N, H, W, C), of the frame's size, any real type and scale
        d : (N, L, 2) displacements of the landmarks, pixels

        Returns
        -------
        array of the images' shape and scale, float32 (float64 where jax's x64 is enabled)

        Raises
        ------
        ValueError : images of another size than the frame's, displacements of another shape or
            number, NaN or infinity in these

        References
        ----------
        Eq. 3 of the paper (arXiv 2202.07829).

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import Warp
        >>> image = np.eye(4, dtype=np.float32)[None]
        >>> Warp.translation((4, 4))(image, [[[0, 0.5]]])[0, 1].tolist()  # half a column
        [0.5, 0.5, 0.0, 0.0]
        """
        images, d = as_float(images), self._check(d)
        if images.ndim not in (3, 4) or images.shape[1:3] != self.shape:
            raise ValueError(
                f"images must be (N, {self.shape[0]}, {self.shape[1]}[, C]), got {images.shape}"
            )
        if len(images) != len(d):
            raise ValueError(f"{len(images)} images but {len(d)} displacements")
        return sample(images, self.field(d).astype(images.dtype))

    def bending_energy(self, d: ArrayLike) -> NDArray[np.float64]:
        """∫∫ f_rr² + 2 f_rc² + f_cc² over the plane, summed over both axes.

        Free of units: the same for a frame and displacements of twice the size.  Zero exactly for
        affine maps.

        Parameters
        ----------
        d : (N, L, 2) displacements of the landmarks, pixels

        Returns
        -------
        (N,) float64, not negative but for rounding

        Raises
        ------
        ValueError : displacements of another shape, NaN or infinity

        References
        ----------
        Bookstein 1989 (the energy of a thin-plate spline); the paper has no such penalty.

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import Warp
        >>> d = np.zeros((2, 9, 2))
        >>> d[0] += 1  # a shift
        >>> d[1, 4] = 1  # the middle landmark alone
        >>> Warp.tps((8, 8), landmarks=3).bending_energy(d).round(3) + 0.0
        array([0.   , 4.672])
        """
        d = np.asarray(self._check(d), dtype=np.float64)
        return np.einsum("nla,lm,nma->n", d, self.bending, d)

    def jacobian(self, d: ArrayLike) -> NDArray[np.float64]:
        """det of dF/dp at every pixel: 1 for the identity, <= 0 where the map folds.

        Parameters
        ----------
        d : (N, L, 2) displacements of the landmarks, pixels

        Returns
        -------
        (N, H, W) float64, without unit

        Raises
        ------
        ValueError : displacements of another shape, NaN or infinity

        Examples
        --------
        >>> from stkm import Warp
        >>> w = Warp.affine((4, 4))
        >>> w.jacobian((w.landmarks * 0.5)[None])[0].round(6).max()  # 1.5 both ways
        np.float64(2.25)
        """
        d = np.asarray(self._check(d), dtype=np.float64)
        by_row, by_col = self._basis[1] @ d, self._basis[2] @ d  # (N, H*W, 2)
        det = (1 + by_row[..., 0]) * (1 + by_col[..., 1]) - by_row[..., 1] * by_col[..., 0]
        return det.reshape(len(d), *self.shape)

    def folded(self, d: ArrayLike) -> NDArray[np.float64]:
        """Share of pixels where the map folds (det <= 0).

        Parameters
        ----------
        d : (N, L, 2) displacements of the landmarks, pixels

        Returns
        -------
        (N,) float64 in [0, 1]

        Raises
        ------
        ValueError : displacements of another shape, NaN or infinity

        Examples
        --------
        >>> from stkm import Warp
        >>> w = Warp.affine((4, 4))
        >>> mirrored = w.landmarks[:, ::-1] - w.landmarks  # rows and columns change places
        >>> w.folded([0 * mirrored, mirrored]).tolist()
        [0.0, 1.0]
        """
        return (self.jacobian(d) <= 0).mean((1, 2))

    def fit_field(self, field: ArrayLike) -> NDArray[np.float64]:
        """Displacements whose map comes nearest, in least squares, to a field.

        Parameters
        ----------
        field : (N, H, W, 2), absolute coordinates in pixels as :meth:`field` returns them

        Returns
        -------
        (N, L, 2) float64, pixels

        Raises
        ------
        ValueError : a field of another shape

        Examples
        --------
        >>> from stkm import Warp
        >>> w = Warp.translation((4, 4))
        >>> w.fit_field(w.field([[[1.0, -0.5]]])).round(6).tolist()
        [[[1.0, -0.5]]]
        """
        field = np.asarray(field, dtype=np.float64)
        if field.ndim != 4 or field.shape[1:] != (*self.shape, 2):
            raise ValueError(
                f"field must be (N, {self.shape[0]}, {self.shape[1]}, 2), got {field.shape}"
            )
        shift = field.reshape(len(field), -1, 2) - self.pixels
        return np.einsum("lp,npa->nla", np.linalg.pinv(self.basis), shift)

    def _check_points(self, points):
        points = np.asarray(points, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
            raise ValueError(
                f"points must be (m, 2), finite, (row, column) in pixels; got {points.shape}"
            )
        return points

    def map_points(self, points: ArrayLike, d: ArrayLike) -> NDArray[np.float64]:
        """F at any points: where ``self(images, d)`` looks for its value there.

        Parameters
        ----------
        points : (m, 2), (row, column) in pixels, also between pixels and beyond the frame
        d : (N, L, 2) displacements in pixels

        Returns
        -------
        (N, m, 2) float64, (row, column) in pixels

        Raises
        ------
        ValueError : points or displacements of another shape, NaN or infinity

        Examples
        --------
        >>> from stkm import Warp
        >>> w = Warp.translation((8, 8))
        >>> w.map_points([[2.0, 3.0]], [[[1.0, -0.5]]]).tolist()
        [[[3.0, 2.5]]]
        """
        points, d = self._check_points(points), np.asarray(self._check(d), dtype=np.float64)
        return points + self.basis_at(points)[0] @ d

    def warp_keypoints(
        self, points: ArrayLike, d: ArrayLike, *, max_iter: int = 30, tol: float = 1e-6
    ) -> NDArray[np.float64]:
        """Where points of the image lie in the warped image: q with F(q) = p.

        A keypoint at p of ``image`` is found at q in ``self(image, d)``. It goes against the
        displacements, as the content of an image that is looked at further right moves to the left.

        Parameters
        ----------
        points : (m, 2), (row, column) in pixels of the image, as :meth:`map_points` takes them
        d : (N, L, 2) displacements in pixels
        max_iter, tol : of Newton's method; tol in pixels

        Returns
        -------
        (N, m, 2) float64, (row, column) in pixels of the warped image. Where the map folds, a point
        may lie at several places, or at none: then it is the nearest value found (:meth:`folded`)

        Raises
        ------
        ValueError : points or displacements of another shape, NaN or infinity

        Examples
        --------
        >>> from stkm import Warp
        >>> w = Warp.translation((8, 8))
        >>> w.warp_keypoints([[3.0, 2.5]], [[[1.0, -0.5]]]).tolist()
        [[[2.0, 3.0]]]
        """
        points, d = self._check_points(points), np.asarray(self._check(d), dtype=np.float64)
        out = np.empty((len(d), len(points), 2))
        basis = self.basis_at(points)[0]
        for k, move in enumerate(d):
            q = points - basis @ move
            for _ in range(max_iter):
                b, b_row, b_col = self.basis_at(q)
                miss = q + b @ move - points
                if np.abs(miss).max(initial=0.0) < tol:
                    break
                r, c = b_row @ move, b_col @ move  # derivatives of the displacement
                j00, j11, j01, j10 = 1 + r[:, 0], 1 + c[:, 1], c[:, 0], r[:, 1]
                det = j00 * j11 - j01 * j10
                det = np.where(
                    np.abs(det) < 0.05, np.copysign(0.05, det), det
                )  # bounded step at folds
                q = q - np.stack(
                    [
                        (j11 * miss[:, 0] - j01 * miss[:, 1]) / det,
                        (j00 * miss[:, 1] - j10 * miss[:, 0]) / det,
                    ],
                    -1,
                )
            out[k] = q
        return out

    def inverse_field(
        self, d: ArrayLike, *, max_iter: int = 30, tol: float = 1e-6
    ) -> NDArray[np.float64]:
        """Coordinates q with F(q) = p for every pixel p, by Newton's method.

        Points that have no inverse (folds) keep the nearest value found; compare :meth:`folded`.

        Parameters
        ----------
        d : (N, L, 2) displacements of the landmarks, pixels
        max_iter, tol : of Newton's method; tol in pixels

        Returns
        -------
        (N, H, W, 2) float64, pixels

        Raises
        ------
        ValueError : displacements of another shape, NaN or infinity

        Examples
        --------
        >>> from stkm import Warp
        >>> Warp.translation((4, 4)).inverse_field([[[1.0, -0.5]]])[0, 2, 2].tolist()
        [1.0, 2.5]
        """
        q = self.warp_keypoints(self.pixels, d, max_iter=max_iter, tol=tol)
        return q.reshape(len(q), *self.shape, 2)

    def inverse(self, images: ArrayLike, d: ArrayLike) -> NDArray[np.floating]:
        """Images warped by the inverse map: undoes ``self(images, d)`` up to interpolation.

        Parameters
        ----------
        images : (N, H, W) or (N, H, W, C), of the frame's size, any real type and scale
        d : (N, L, 2) displacements of the landmarks, pixels

        Returns
        -------
        array (N, H, W[, C]) in the images' scale

        Raises
        ------
        ValueError : displacements of another shape or number than images, NaN or infinity in these

        Examples
        --------
        >>> import numpy as np
        >>> from stkm import Warp
        >>> image = np.eye(4, dtype=np.float32)[None]
        >>> w, d = Warp.translation((4, 4)), [[[0.0, 1.0]]]
        >>> w.inverse(w(image, d), d)[0].tolist()  # pixel [0, 0] was lost outside
        [[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
        """
        return sample(as_float(images), self.inverse_field(d).astype(np.float32))
