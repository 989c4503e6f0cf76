"""What a fit does beside fitting: a bar, checkpoints, the latest result for who interrupts it."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter

import jax
import numpy as np
from tqdm import tqdm

from . import checkpoint
from .lloyd import State
from .prior import Prior

__all__ = ["Progress"]

SHARE = 10  # a checkpoint is written when the fit has gone on for so many times what one takes


class Progress:
    """Follows one fit.

    Parameters
    ----------
    total : images of all passes, for the bar; None: no bar
    verbose : prints a line a step, in place of the bar, which a terminal shows otherwise; a
        callable gets every entry of the history as it comes
    path, identity : of checkpoints (`stkm.checkpoint`); None: none

    Attributes
    ----------
    found : (meta, arrays) to go on from, or None; latest : the result so far, or None
    """

    def __init__(self, total=None, verbose=False, path=None, identity=None):
        self.path, self.identity, self.verbose = path, identity, verbose
        self.found = None if path is None else checkpoint.read(path, identity)
        self.latest, self._due = None, 0.0
        self.passes = Counter()  # steps told, of each stage
        self.outer = ({}, {})  # meta and arrays of what lies around: earlier runs
        self.first = jax.process_index() == 0  # of several processes, one tells and writes
        hidden = verbose or total is None or not self.first
        self.bar = tqdm(
            total=total,
            disable=True if hidden else None,  # None: silent where no terminal listens
            unit=" images",
            unit_scale=True,
            leave=False,
        )

    def close(self):
        """Take the bar away."""
        self.bar.close()

    # ------------------------------------------------------------ telling

    def report(self, entry, images=0):
        """A step is done, on so many images: a line where ``verbose`` is set, else the bar."""
        if callable(self.verbose):
            self.verbose(entry)
        elif self.verbose:
            if "accepted" in entry:
                end = "kept" if entry["accepted"] else "not kept"
            elif "changed" in entry:
                end = f"{entry['changed']} labels changed"
            else:
                end = f"{len(entry['relocated'])} centroids relocated"
            print(f"{entry['stage']}: objective {entry['objective']:.6g}, {end}")
        stage = entry["stage"]
        self.passes[stage] += 1
        number = f"{stage} {self.passes[stage]}"
        self.bar.set_postfix_str(f"{number}, objective {entry['objective']:.6g}", False)
        self.bar.update(images)

    def advance(self, images):
        """So many images of a pass that isn't over: for the bar alone."""
        self.bar.update(images)

    def tell(self, entry):
        """A step of a search is done: for a callable ``verbose`` alone."""
        if callable(self.verbose):
            self.verbose(entry)

    # ------------------------------------------------------------ going on

    def restore(self, rng):
        """The mark to go on from, (place, arrays), or None; sets the generator as it was there."""
        if self.found is None:
            return None
        found, self.found = self.found, None
        rng.bit_generator.state = found[0]["rng"]
        return found

    def mark(self, place, rng, arrays, **meta):
        """A point from which the fit can go on; written unless the last file is too young.

        Parameters
        ----------
        place : name of the point; arrays, meta : as `stkm.checkpoint.write` takes them
        """
        if self.path is None or not self.first or time.monotonic() < self._due:
            return
        start = time.monotonic()
        meta |= {"identity": self.identity, "place": place, "rng": rng.bit_generator.state}
        checkpoint.write(self.path, meta | self.outer[0], arrays | self.outer[1])
        now = time.monotonic()
        self._due = now + SHARE * (now - start)


def pack_state(state):
    """Arrays of a `State`, for a checkpoint."""
    if state is None:
        return None
    arrays = {f.name: getattr(state, f.name) for f in dataclasses.fields(State)}
    return arrays | {"prior": pack_prior(state.prior)}


def unpack_state(arrays):
    """The `State` of these arrays."""
    return State(**{**arrays, "prior": unpack_prior(arrays.get("prior"))})


def pack_prior(prior):
    """Arrays of a `Prior`; None of None."""
    return None if prior is None else {n: np.asarray(v) for n, v in vars(prior).items()}


def unpack_prior(arrays):
    """The `Prior` of these arrays; None of None."""
    if arrays is None:
        return None
    return Prior(**{n: a if a.ndim else float(a) for n, a in arrays.items()})
