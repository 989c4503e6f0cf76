"""How a fit grows: with images, devices and processes; in seconds, memory, and by a model of cost.

What depends on the number of devices is measured in processes of its own, since jax counts its
devices once. As in `stkm.timing`, nothing that fits or chooses looks at a clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from . import solvers
from .cluster import STKMeans
from .minibatch import MiniBatchSTKMeans
from .timing import peak_memory, seconds
from .warp import Warp

__all__ = [
    "Cost",
    "Machine",
    "cost",
    "counted",
    "days",
    "growth",
    "over_devices",
    "pair_iterations",
    "warped_copies",
]


BLOCK = 1024  # images warped at a time

# --------------------------------------------------------------------- data


def warped_copies(images, n, path, *, degrees=15.0, stretch=0.1, shift=1.5, sd=0.75, seed=0):
    """n random warps of images, written to a memory-mapped ``.npy``: the path.

    Parameters
    ----------
    images : (m, H, W) uint8; copy i is of image i mod m
    degrees, stretch, shift : bounds of turns, of both axes' stretches and of shifts (pixels)
    sd : of the displacements of 5 × 5 landmarks, pixels
    """
    m, h, w = images.shape
    warp = Warp.tps((h, w), landmarks=5)
    points, centre = warp.landmarks, (np.array([h, w]) - 1) / 2
    out = np.lib.format.open_memmap(path, "w+", np.uint8, (n, h, w))
    rng = np.random.default_rng(seed)
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        part = rng.uniform(-1, 1, (BLOCK, 5))
        angle = np.deg2rad(degrees * part[:, 0])
        turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], 1)
        linear = turn.reshape(-1, 2, 2) * (1 + stretch * part[:, None, 1:3])
        moved = np.einsum("nij,lj->nli", linear, points - centre) + centre
        moves = (
            moved + shift * part[:, None, 3:] - points + rng.normal(0, sd, (BLOCK, *points.shape))
        )
        source = images[rows % m].astype(np.float32)
        source = np.concatenate([source, np.zeros((BLOCK - len(rows), h, w), np.float32)])
        warped = np.asarray(warp(source, moves))[: len(rows)]
        out[rows] = np.clip(np.rint(warped), 0, 255)
    out.flush()
    return path


# ------------------------------------------------------------------- growth


def growth(path, counts, *, steps=None, **params):
    """Time and memory of a mini-batch fit of the first images of a file, for several numbers.

    Each fit is a process of its own, so that its memory is its own. With ``steps`` it ends after
    so many, and at most as many images are labelled as they have drawn; else after a pass.

    Returns
    -------
    list of dicts: n; steps; seconds of the sample's fit; of a step, and images of a step; of
    labelling an image; peak (GiB) of the process, and before the fit
    """
    task = {"task": "growth", "path": str(path), "steps": steps, "params": params}
    return [_child(task | {"n": n}) for n in counts]


def over_devices(images, devices, processes=1, *, centers, rounds=2, **params):
    """Seconds of one labelling of images over forced host devices, and what comes of it.

    Parameters
    ----------
    images : (N, H, W); centers : (K, H, W), the centroids that they are compared with
    devices : forced host devices of each process; processes : through `stkm.launch`

    Returns
    -------
    dict: seconds, devices (all of them), labels (N,), distances (N,)
    """
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.npz"
        np.savez(data, images=images, centers=centers)
        task = {"task": "devices", "path": str(data), "rounds": rounds, "params": params}
        found = _child(task, devices, processes)
        with np.load(str(data) + ".out.npz") as out:
            return found | dict(out)


def _child(task, devices=1, processes=1):
    """What this module, run as a script, prints as JSON."""
    flags = os.environ.get("XLA_FLAGS", "")
    env = os.environ | {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={devices}"}
    launcher = ["-m", "stkm.launch", "-n", str(processes), "--"] if processes > 1 else []
    command = [sys.executable, *launcher, "-m", "stkm.scaling", json.dumps(task)]
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), env.get("PYTHONPATH", "")])
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{task['task']}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


class _Timed(MiniBatchSTKMeans):
    """Notes when each step begins and ends, and lets the last one be the last."""

    _last = None

    def _step(self, *arguments):
        begun = time.perf_counter()
        mean, shift = super()._step(*arguments)
        self._marks = [*getattr(self, "_marks", []), (begun, time.perf_counter())]
        return mean, -np.inf if len(self._marks) == self._last else shift  # below any `tol`


def _grow(path, n, steps, params):
    X = np.load(path, mmap_mode="r")[:n]
    before, start = peak_memory(), time.perf_counter()
    km = _Timed(**params, compute_labels=False, max_no_improvement=None)
    km._last = steps
    marks = km.fit(X)._marks
    took = sorted(end - begun for begun, end in marks)
    labelling, _ = seconds(partial(km.predict, X[:1000]), 1)
    km.predict(X if steps is None else X[-steps * km.batch_size :])  # the memory that it takes
    return {
        "n": n,
        "steps": len(marks),
        "sample": marks[0][0] - start,
        "step": took[len(took) // 2],
        "batch": min(km.batch_size, n),
        "labelling": labelling / min(n, 1000),
        "peak": peak_memory(),
        "before": before,
    }


def _label(path, rounds, params):
    with np.load(path) as file:
        images, centers = file["images"], file["centers"]
    km = STKMeans.from_centroids(centers, images[: len(centers)], devices="all", **params)
    took, f = seconds(partial(km.transform, images), rounds)
    if jax.process_index() == 0:
        np.savez(path + ".out.npz", labels=f.argmin(1), distances=f.min(1))
    return {"seconds": took, "devices": jax.device_count()}


# --------------------------------------------------------------- cost model


@dataclass(frozen=True)
class Cost:
    """Of one iteration of one pair: floating-point operations, and bytes from memory."""

    flop: float
    bytes: float


@dataclass(frozen=True)
class Machine:
    """What a machine does in a second, of what its makers name: a share that a program reaches."""

    name: str
    flop: float
    bytes: float
    share: float
    price: float | None = None


def cost(pixels, landmarks, channels=1):
    """The model: one Gauss–Newton iteration of one pair, from shapes alone.

    Displacements of pixels and forces on landmarks are products with the basis, 4 FLOP for each
    pixel, landmark and axis pair together 8; the step is one with the Hessian and those of four
    L-BFGS memories. A sample takes about 40 FLOP a pixel and channel. From memory come the four
    taps of every pixel and the coordinates and samples between the operations (about 12 floats a
    pixel and channel); the basis is shared by a batch, and stays in the cache.
    """
    size = 2 * landmarks
    flop = 8 * pixels * landmarks + 40 * pixels * channels + 2 * size**2 + 40 * size
    return Cost(float(flop), float(4 * pixels * (4 * channels + 12 * channels + 2)))


def counted(shape, landmarks, batch_size=64):
    """The same as XLA counts it in the compiled iteration: `Cost`; shape is (H, W)."""
    warp = Warp.tps(shape, landmarks)
    grid = solvers.make_grid(warp, np.eye(len(warp.landmarks)))
    x = jnp.zeros((batch_size, *shape, 1), jnp.float32)
    d = jnp.zeros((batch_size, 2 * len(warp.landmarks)), jnp.float32)

    def iteration(source, target, d, grid, inverse):
        f, g = solvers._evaluate(source, shape, solvers._at(target, grid), d, grid)
        return f, d - g @ inverse

    eye = jnp.eye(d.shape[1])
    lowered = jax.jit(iteration).lower(solvers.source_of(x), x[:1], d, grid, eye)
    found = lowered.compile().cost_analysis()
    found = found[0] if isinstance(found, list) else found
    return Cost(found["flops"] / batch_size, found["bytes accessed"] / batch_size)


def pair_iterations(n_clusters, n_candidates, *, cold, coarse, warm, settle=0.0, stride=1):
    """Iterations of an image against all centroids, in units of one on all pixels.

    Parameters
    ----------
    cold, coarse : from the identity, against every centroid; the coarse ones on every second pixel
        of both directions with three landmarks, of which a tenth of the cost is left
    warm : of the nearest ``n_candidates``; settle : mean iterations of the pairs still in the race
    stride : of the pixels in the cold ones
    """
    cold = cold / stride**2 + coarse / 10
    return n_clusters * cold + min(n_candidates, n_clusters) * warm + settle


def days(n_images, passes, iterations, one, machine):
    """Days of so many passes over images, the slower of arithmetic and memory: (days, which)."""
    times = {
        "arithmetic": one.flop / (machine.share * machine.flop),
        "memory": one.bytes / (machine.share * machine.bytes),
    }
    which = max(times, key=times.get)
    return n_images * passes * iterations * times[which] / 86400, which


def main(text):
    """A measurement in a process of its own: reads a task, prints what was measured, both JSON."""
    given = json.loads(text)
    task = {"growth": _grow, "devices": _label}[given.pop("task")]
    print(json.dumps(task(**given)))


if __name__ == "__main__":
    main(sys.argv[1])
