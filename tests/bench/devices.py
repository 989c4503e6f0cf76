"""One device, four forced ones, two processes: the same fit of 5 000 digits?

    ./run python tests/bench/devices.py [--images 5000]

Prints how many labels differ from those of one device, the largest difference of a centroid's
pixel, and seconds. Forced host devices share the cores of the machine, so seconds say nothing of
several chips. Takes about ten minutes on two cores.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FIT = """
import sys, time
import jax, numpy as np
from stkm import STKMeans, load_dataset
n, out = int(sys.argv[1]), sys.argv[2]
X = np.concatenate([load_dataset("mnist5k", split).images for split in ("train", "test")])[:n]
begun = time.perf_counter()
km = STKMeans(10, n_init=1, random_state=0, devices="all").fit(X / np.float32(255))
if jax.process_index() == 0:
    np.savez(out, labels=km.labels_, centers=km.cluster_centers_, inertia=km.inertia_,
             seconds=time.perf_counter() - begun, devices=jax.device_count())
"""
WAYS = {
    "one device": (1, ()),
    "four devices": (4, ()),
    "two processes": (1, ("-m", "stkm.launch", "-n", "2")),
}


def fit(folder, n, devices, launcher):
    script, out = folder / "fit.py", folder / "out.npz"
    script.write_text(FIT, encoding="utf-8")
    flag = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    command = [sys.executable, *launcher, str(script), str(n), str(out)]
    subprocess.run(command, env=os.environ | {"XLA_FLAGS": flag}, check=True)
    with np.load(out) as arrays:
        return dict(arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=5000, metavar="N", help="1 to 5000")
    n = parser.parse_args().images
    one = None
    with tempfile.TemporaryDirectory() as folder:
        for name, (devices, launcher) in WAYS.items():
            begun = time.perf_counter()
            found = fit(Path(folder), n, devices, launcher)
            one = found if one is None else one
            print(
                f"{name}: {found['devices']} device(s), {len(found['labels'])} images, "
                f"{(found['labels'] != one['labels']).sum()} labels differ, centroids by "
                f"{np.abs(found['centers'] - one['centers']).max():.1e}, objective by "
                f"{abs(found['inertia'] - one['inertia']) / abs(one['inertia']):.1e} of it; fit "
                f"{found['seconds']:.0f} s, in all {time.perf_counter() - begun:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
