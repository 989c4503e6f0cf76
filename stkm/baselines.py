"""The deep methods of Table 1 (`stkm.deep`), set up from ``params.yaml``.

The methods of a run start from the same autoencoder, which :func:`autoencoders` has trained and
kept: within a run they differ in the clustering alone.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stkm import config
from stkm.deep import DEC, AEKMeans, Autoencoder, VaDE
from stkm.experiment import Run
from stkm.parallel import run_each

__all__ = ["Pretrained", "autoencoders", "make", "runs"]


@dataclass(frozen=True)
class Pretrained:
    """The autoencoder of one run: its seed, log, loss, and new images as it gives them back."""

    seed: int
    history: list[dict]
    loss: float
    diverged: bool
    images: np.ndarray


def autoencoders(
    architecture: str,
    settings: config.Config,
    rows: np.ndarray,
    new_rows: np.ndarray,
    image_shape: tuple[int, ...],
    folder: Path,
) -> list[Pretrained]:
    """Train the autoencoder of each run and keep it in `folder`.

    Run *i* has the seed ``seeds.base + i``, whatever the number of runs.

    Parameters
    ----------
    architecture : str
        ``mlp`` or ``conv``.
    settings : Config
        The block ``ae`` and the active profile decide the rest.
    rows : ndarray, (N, H*W[*C])
        Images to fit.
    new_rows : ndarray, (M, H*W[*C])
        Images to give back.
    image_shape : (H, W) or (H, W, C)
    folder : path
    """
    args = (architecture, settings, rows, new_rows, image_shape, folder)
    return _each(_pretrain, args, settings)


def _each(function, args, settings) -> list:
    seeds = range(settings.seeds.base, settings.seeds.base + settings.run.deep_runs)
    return run_each(function, [(*args, seed) for seed in seeds], settings.run.workers)


def _kept(folder: Path, seed: int) -> Path:
    return folder / f"{seed}.npz"


def _pretrain(architecture, settings, rows, new_rows, image_shape, folder, seed) -> Pretrained:
    run = settings.run
    model = Autoencoder(
        architecture,
        layer_epochs=run.layer_epochs,
        epochs=run.pretrain_epochs,
        image_shape=image_shape,
        random_state=seed,
        **dataclasses.asdict(settings.method("ae")),
    ).fit(rows)
    model.save(_kept(folder, seed))
    images = model.inverse_transform(model.transform(new_rows))
    return Pretrained(seed, model.history_, model.loss_, model.diverged_, images)


def make(
    name: str,
    settings: config.Config,
    n_clusters: int,
    image_shape: tuple[int, ...],
    autoencoder: Autoencoder | None,
    seed: int,
) -> Any:
    """Return deep method `name` as an unfitted estimator of flat images.

    Parameters
    ----------
    name : str
        One of `stkm.config.DEEP_METHODS`.
    settings : Config
        The method's block and the active profile decide the rest.
    n_clusters : int
    image_shape : (H, W) or (H, W, C)
    autoencoder : Autoencoder, optional
        To start from; without it the method trains one.
    seed : int
        ``random_state``.

    Raises
    ------
    stkm.config.ConfigError
        If there is no such method.
    """
    block, run = settings.method(name), settings.run
    options = {"architecture": block.architecture, "image_shape": image_shape}
    options |= {"autoencoder": autoencoder, "random_state": seed}
    if isinstance(block, config.DEC):
        more = {"max_updates": run.dec_updates, **dataclasses.asdict(block)}
        return DEC(n_clusters, **options, **more)
    if isinstance(block, config.VaDE):
        return VaDE(n_clusters, epochs=run.vade_epochs, **options, **dataclasses.asdict(block))
    return AEKMeans(n_clusters, **options)


def runs(
    name: str,
    settings: config.Config,
    rows: np.ndarray,
    new_rows: np.ndarray,
    n_clusters: int,
    image_shape: tuple[int, ...],
    folder: Path,
) -> list[Run]:
    """Fit deep method `name` once for each run of the active profile, side by side.

    Parameters
    ----------
    name, settings, n_clusters, image_shape
        As for :func:`make`.
    rows : ndarray, (N, H*W[*C])
        Images to fit.
    new_rows : ndarray, (M, H*W[*C])
        Images to label.
    folder : path
        Where :func:`autoencoders` has put those to start from.

    Raises
    ------
    FileNotFoundError
        If an autoencoder is not there; the message says how to make it.
    """
    args = (name, settings, rows, new_rows, n_clusters, image_shape, folder)
    return _each(_run, args, settings)


def _run(name, settings, rows, new_rows, n_clusters, image_shape, folder, seed) -> Run:
    architecture = settings.method(name).architecture
    path = _kept(folder, seed)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: run the notebook `autoencoder` with architecture={architecture} "
            "first, or `./run dvc repro notebooks/dvc.yaml`, which does"
        )
    start = Autoencoder.load(path, architecture=architecture, image_shape=image_shape)
    model = make(name, settings, n_clusters, image_shape, start, seed).fit(rows)
    return Run(seed, None, model, model.predict(new_rows))
