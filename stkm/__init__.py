"""Spatial Transformer K-means: clustering of images up to the way they are bent and turned.

Names are imported when they are first used, so that ``import stkm`` is quick.

References
----------
Cosentino, Balestriero, Bahroun, Sengupta, Baraniuk, Aazhang: "Spatial Transformer K-Means",
arXiv 2012.09743 / 2202.07829.

Examples
--------
>>> import numpy as np
>>> from stkm import STKMeans
>>> X = 0.1 * np.random.default_rng(0).random((20, 8, 8))
>>> X[:10, 2:6, 3] = 1  # upright bars
>>> X[10:, 3, 2:6] = 1  # lying bars
>>> km = STKMeans(n_clusters=2, landmarks=3, prior="fixed", random_state=0).fit(X)
>>> sorted(np.bincount(km.labels_).tolist())
[10, 10]
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
__all__ = [
    "AffineKMeans",
    "Alignment",
    "MiniBatchSTKMeans",
    "STKMeans",
    "Warp",
    "align",
    "load_dataset",
    "load_images",
    "metrics",
    "plots",
    "selection",
]

if TYPE_CHECKING:  # what a type checker and an editor see; without them these would be Any
    from . import config as config
    from . import datasets as datasets
    from . import metrics, plots, selection
    from . import paths as paths
    from . import results as results
    from . import warp as warp
    from .align import Alignment, align
    from .cluster import AffineKMeans, STKMeans
    from .datasets import load_dataset, load_images
    from .minibatch import MiniBatchSTKMeans
    from .warp import Warp
else:

    def __getattr__(name):
        """Public names are imported when first used, so that `import stkm` is quick."""
        if name in _PUBLIC:
            return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
        if name in _MODULES:
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module 'stkm' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
