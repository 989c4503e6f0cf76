"""One program for one device, several, or several machines: images split, centroids everywhere.

A batch of pairs is the axis that is split (`jax.sharding`, `jax.shard_map`): every device gets as
many images as a single one would, and copies of the centroid, its Hessian and the basis. A piece
of ``batch_size`` images is computed as one, by the same program, wherever it lies, and the sums of
pieces are added in one order, in float64, on the host. So labels and centroids are those of a
single device of the kind, bit for bit; a sum reduced among the devices would differ in its last
digits with their number, and with it, now and then, a label.

Over several processes (`stkm.launch`) all of them run the same program on the same images, and each
computes its share of every batch.
"""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .solvers import source_of

__all__ = ["Split", "choose", "split_over"]

AXIS = "images"


def choose(devices):
    """Devices by name: None = the first, 'all', how many, a `Mesh` or sequence of `jax.Device`.

    With several processes, None means the devices of all of them.

    Raises
    ------
    ValueError : there are not so many, or the argument is none of these
    """
    kinds = f"devices={devices!r}: expected None, 'all', a number, a Mesh or jax devices"
    there = jax.devices()
    if isinstance(devices, Mesh):
        devices = devices.devices.ravel()
    if devices is None:
        return there if jax.process_count() > 1 else there[:1]
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(kinds)
        return there
    if isinstance(devices, (int, np.integer)) and not isinstance(devices, bool):
        if not 1 <= devices <= len(there):
            raise ValueError(f"devices={devices}: jax has {len(there)} ({there[0].platform})")
        chosen = there[:devices]
    else:
        try:
            chosen = list(devices)
        except TypeError:
            raise ValueError(kinds) from None
        if not chosen or not all(isinstance(d, jax.Device) for d in chosen):
            raise ValueError(kinds)
    if len({d.process_index for d in chosen}) < jax.process_count():
        raise ValueError(
            f"devices={devices!r}: each of the {jax.process_count()} processes needs one at least"
        )
    return chosen


def split_over(devices=None):
    """The `Split` over devices as in `choose`; one for each choice, so programs are shared."""
    return _split(tuple(choose(devices)))


@lru_cache
def _split(devices):
    return Split(devices)


class Split:
    """Calls of batched functions in pieces, one for each device.

    Attributes
    ----------
    parts : number of devices; alone : whether it is jax's first, and calls are made as they are
    """

    def __init__(self, devices):
        self.parts = len(devices)
        self.alone = devices == tuple(jax.devices()[:1])
        mesh = Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))
        self.mesh, self.programs = mesh, {}
        self.cut, self.everywhere = NamedSharding(mesh, P(AXIS)), NamedSharding(mesh, P())

    def rounds(self, pieces):
        """(pieces, padded) of `stkm.warp.batches`, as many of one length at a time as devices.

        Yields the pieces and all their padded versions in one array; where there are fewer than
        devices, the last one is repeated.
        """
        group = []
        for part, padded in pieces:
            if group and (len(group) == self.parts or len(padded) != len(group[0][1])):
                yield self._round(group)
                group = []
            group.append((part, padded))
        if group:
            yield self._round(group)

    def _round(self, group):
        if self.alone:
            return [group[0][0]], group[0][1]
        padded = [p for _, p in group]
        padded += padded[-1:] * (self.parts - len(padded))
        return [part for part, _ in group], np.concatenate(padded)

    def replicate(self, tree):
        """Arrays with a copy on every device; as they are where there is one device."""
        return tree if self.alone else jax.tree.map(partial(_put, self.everywhere), tree)

    def __call__(self, function, images, batched, rest, **static):
        """``function(*sources, *batched, *rest, **static)``, computed in pieces.

        Parameters
        ----------
        images : tuple of arrays (n, H, W, C), which are packed where they are needed
        batched : tuple of arrays with n rows; n is a multiple of ``parts``
        rest : anything that all devices need whole

        Returns what the function does, the pieces' first axes one after the other.
        """
        key = (function, len(images), tuple(static.items()))
        if key not in self.programs:
            body = jax.shard_map(
                partial(_packed, partial(function, **static)),
                mesh=self.mesh,
                in_specs=(P(AXIS), P(AXIS), P()),
                out_specs=P(AXIS),
                check_vma=False,
            )
            # the results are small: every process gets all of them
            self.programs[key] = jax.jit(body, out_shardings=self.everywhere)
        cut = jax.tree.map(partial(_put, self.cut), (images, batched))
        return self.programs[key](*cut, self.replicate(rest))


def _packed(function, images, batched, rest):
    return function(*(source_of(x) for x in images), *batched, *rest)


def _put(sharding, a):
    """An array on the devices of a sharding; every process copies its own part only."""
    if isinstance(a, jax.Array) and a.sharding == sharding:
        return a
    a = np.asarray(a)
    a = a.astype(jax.dtypes.canonicalize_dtype(a.dtype), copy=False)
    return jax.make_array_from_callback(a.shape, sharding, a.__getitem__)
