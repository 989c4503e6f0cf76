"""Spatial Transformer K-means: clustering of images up to the way they are bent and turned.

    >>> from stkm import STKMeans  # doctest: +SKIP
    >>> km = STKMeans(n_clusters=10, random_state=0).fit(images)  # doctest: +SKIP

Cosentino, Balestriero, Bahroun, Sengupta, Baraniuk, Aazhang: "Spatial Transformer K-Means",
arXiv 2012.09743 / 2202.07829.
"""

from importlib import import_module

__version__ = "0.1.0"

_PUBLIC = {
    "STKMeans": "cluster",
    "AffineKMeans": "cluster",
    "MiniBatchSTKMeans": "minibatch",
    "Alignment": "align",
    "align": "align",
    "Warp": "warp",
    "load_dataset": "datasets",
    "load_images": "datasets",
}
_MODULES = ("config", "datasets", "metrics", "paths", "plots", "results", "selection", "warp")
__all__ = sorted([*_PUBLIC, "metrics", "plots"])


def __getattr__(name):
    """Public names are imported when first used, so that `import stkm` is quick."""
    if name in _PUBLIC:
        return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'stkm' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
