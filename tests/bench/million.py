"""A million warped digits, fitted by mini-batches from a memory-mapped file: accuracy and memory.

    STKM_DATA_DIR=... ./run python tests/bench/million.py [--images 1000000] [--reference 60000]

Writes random affine and thin-plate-spline warps of MNIST's training images to one file of bytes
(784 MB for a million; kept with ``--folder``), fits `MiniBatchSTKMeans` to all of them and
`STKMeans` to the first ``--reference``, once in memory and once in blocks (``keep="nearest"``), and
scores all on 10 000 warps of test images that none has seen. Labels are used for the scores alone.
Each fit is a process of its own, so that its memory is its own. More than an hour on two cores.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stkm import MiniBatchSTKMeans, STKMeans, load_dataset, metrics, scaling
from stkm.timing import peak_memory


def files(folder, n):
    """Paths of the training and test images; a file that is there is taken as it is."""
    paths = []
    for split, count in (("train", n), ("test", 10_000)):
        path = folder / f"{split}-{count}.npy"
        if not path.exists():
            digits = load_dataset("mnist", split)
            begun = time.perf_counter()
            scaling.warped_copies(digits.images, count, path, seed=len(paths))
            print(f"{path.name}: written in {time.perf_counter() - begun:.0f} s", flush=True)
        paths.append(path)
    return paths


def fit(kind, train, test, n, seed):
    """Fit, score, and print what was measured as JSON."""
    X, T = np.load(train, mmap_mode="r")[:n], np.load(test, mmap_mode="r")
    truth = np.resize(load_dataset("mnist", "test").labels, len(T))
    before, begun = peak_memory(), time.perf_counter()
    if kind == "mini-batch":
        km = MiniBatchSTKMeans(10, compute_labels=False, random_state=seed).fit(X)
    else:
        blocks = {"keep": "nearest", "memory_limit": 512} if kind == "in blocks" else {}
        km = STKMeans(10, random_state=seed, **blocks).fit(X)
    took, peak = time.perf_counter() - begun, peak_memory()
    score = metrics.clustering_accuracy(truth, km.predict(T))
    found = {"images": len(X), "seconds": took, "peak": peak, "before": before, "acc": score}
    print(json.dumps(found | {"steps": getattr(km, "n_steps_", None)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--reference", type=int, default=60_000, metavar="N", help="0: none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="for the images, which stay there")
    parser.add_argument("--fit", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fit:
        kind, train, test, n = given.fit
        return fit(kind, train, test, int(n), given.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        train, test = files(folder, given.images)
        whole = given.reference
        for kind, n in (
            ("mini-batch", given.images),
            ("full batch", whole),
            ("in blocks", whole),
        ):
            if n:
                arguments = ["--fit", kind, str(train), str(test), str(n), "--seed", given.seed]
                command = [sys.executable, __file__, *map(str, arguments)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                row = json.loads(out.splitlines()[-1])
                steps = f"{row['steps']} steps, " if row["steps"] else ""
                print(
                    f"{kind}, {row['images']} images: {row['seconds']:.0f} s, {steps}memory "
                    f"{row['peak']:.2f} GiB ({row['before']:.2f} before), test ACC "
                    f"{100 * row['acc']:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
