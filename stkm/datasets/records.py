"""The tensorflow-datasets builder of each data set, in array_record files.

tensorflow itself is never imported: images are stored as tensors of raw bytes,
which array_record compresses, and read through the builder's data source.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

try:
    import tensorflow_datasets as tfds
    from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
    from tensorflow_datasets.proto import tf_example_pb2
except ImportError as error:
    raise ImportError(
        "preparing a data set needs tensorflow-datasets and array-record, which are not "
        "installed; install them with: pip install 'stkm[data]'"
    ) from error

from stkm.datasets.spec import Arrays, Spec

__all__ = ["ArrayBuilder", "read_records", "write_records"]

_BLOCK = 1024
"""Records that are read at a time: bounds the memory beyond the result's own."""


class ArrayBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg, misc]
    """Builder of a data set whose images are at hand as arrays.

    Not registered, so that it does not collide with builders of the same name
    that tensorflow-datasets has; `builder_class` makes one for a `Spec`.
    """

    spec: Spec
    arrays: Arrays

    def _info(self) -> tfds.core.DatasetInfo:
        """Describe the set: features, citation, licence; order is kept."""
        spec = self.spec
        image = tfds.features.Tensor(
            shape=spec.image_shape, dtype=np.uint8, encoding=tfds.features.Encoding.BYTES
        )
        label = tfds.features.ClassLabel(names=list(spec.class_names))
        return tfds.core.DatasetInfo(
            builder=self,
            description=spec.description,
            features=tfds.features.FeaturesDict({"image": image, "label": label}),
            supervised_keys=("image", "label"),
            homepage=spec.homepage,
            citation=spec.citation,
            license=spec.licence,
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator]:
        """Return a generator for each split; the download manager is not used."""
        return {split: self._generate_examples(split) for split in self.spec.class_counts}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the images of a split with their place as key."""
        images, labels = self.arrays[split]
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield i, {"image": image, "label": int(label)}


def builder_class(spec: Spec, arrays: Arrays) -> type[ArrayBuilder]:
    """Return the builder class of `spec`, named as it is, over `arrays`."""
    members = {
        "name": spec.name,
        "VERSION": tfds.core.Version(spec.version),
        "spec": spec,
        "arrays": arrays,
        "__module__": __name__,
        "__doc__": spec.description,
    }
    title = "".join(part.capitalize() for part in spec.name.split("_"))
    made: Any = type(ArrayBuilder)
    return made(title, (ArrayBuilder,), members, skip_registration=True)


def _order_fields(path: Path) -> None:
    """Write the records of an array_record file again, their fields in a fixed order.

    A record is a map from field to value, and the map is written in an order
    that differs from one process to the next: equal sets had unequal files.
    """
    reader = ArrayRecordReader(str(path))
    part = path.with_name(f".{path.name}")
    writer = ArrayRecordWriter(str(part), "group_size:1")  # as tensorflow-datasets writes
    for start in range(0, reader.num_records(), _BLOCK):
        for record in reader.read(start, min(start + _BLOCK, reader.num_records())):
            example = tf_example_pb2.Example.FromString(record)
            writer.write(example.SerializeToString(deterministic=True))
    writer.close()
    reader.close()
    os.replace(part, path)


def write_records(spec: Spec, arrays: Arrays, data_dir: Path) -> Path:
    """Write the set below `data_dir` and return the folder ``name/version``."""
    builder = builder_class(spec, arrays)(data_dir=str(data_dir), file_format="array_record")
    # tensorflow-datasets speaks of a download of unknown size; there is none
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        builder.download_and_prepare()
    folder = Path(builder.data_dir)
    for path in folder.glob("*.array_record-*"):
        _order_fields(path)
    return folder


def read_records(folder: Path) -> Arrays:
    """Read all images of the set prepared in `folder`, in their order.

    Returns
    -------
    dict of str to (images, labels)
        uint8 (N, H, W[, C]) and int64 (N,).
    """
    builder = tfds.builder_from_directory(str(folder))
    shape = builder.info.features["image"].shape
    arrays = {}
    for split, info in builder.info.splits.items():
        source = builder.as_data_source(split)
        images = np.empty((info.num_examples, *shape), np.uint8)
        labels = np.empty(info.num_examples, np.int64)
        for start in range(0, len(labels), _BLOCK):
            rows = range(start, min(start + _BLOCK, len(labels)))
            for row, record in zip(rows, source.__getitems__(rows), strict=True):
                images[row], labels[row] = record["image"], record["label"]
        arrays[split] = images, labels
    return arrays
