"""The deep baselines of the published table: AE + K-means, DEC and VaDE.

They need equinox, which is not among the package's run-time dependencies: ``pip install
stkm[deep]``.
"""

from .autoencoder import Autoencoder
from .estimators import DEC, AEKMeans, VaDE

__all__ = ["AEKMeans", "Autoencoder", "DEC", "VaDE"]
