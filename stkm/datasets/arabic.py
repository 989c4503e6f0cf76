"""Arabic handwritten characters (AHCD): 13 440 training and 3 360 test images, 32×32.

Sources, in this order: ``STKM_DATA_DIR/arabic_char/arabic_char.npz``, or the
publisher's four CSV files in that folder.  The CSV files hold the images
transposed and labels from 1; both are turned to ours, and the sums of the
arrays must be the same either way.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stkm.datasets import files
from stkm.datasets.raw import obtain_npz, splits_of
from stkm.datasets.spec import Arrays, RawFile, Spec

__all__ = ["SPECS", "read_csv"]

_SIDE = 32
_HOME = "https://github.com/mloey/Arabic-Handwritten-Characters-Dataset"

_NPZ = RawFile(
    "arabic_char.npz",
    "b89f222b013a022280d5e66bbcdba42bb69f8218ee753fb0ee55219bcefdb39e",
    "no public address: arrays x_train, y_train, x_test, y_test made from the four CSV files, "
    "images turned upright, labels less 1",
    size=2345803,
)

_CSV = {
    "train": ("csvTrainImages 13440x1024.csv", "csvTrainLabel 13440x1.csv"),
    "test": ("csvTestImages 3360x1024.csv", "csvTestLabel 3360x1.csv"),
}


def read_csv(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images, upright, and labels from 0 of one split's two CSV files.

    Raises
    ------
    ValueError
        If a file does not hold rows of whole numbers in range, or the two
        differ in length.
    """
    pixels = np.loadtxt(images, delimiter=",", dtype=np.int64, ndmin=2)
    letters = np.loadtxt(labels, delimiter=",", dtype=np.int64, ndmin=1)
    if pixels.shape != (len(letters), _SIDE**2) or pixels.min() < 0 or pixels.max() > 255:
        raise ValueError(
            f"{images.name} and {labels.name} do not hold as many labels as images of "
            f"{_SIDE}×{_SIDE} values from 0 to 255: {pixels.shape} and {letters.shape}"
        )
    upright = pixels.astype(np.uint8).reshape(-1, _SIDE, _SIDE).transpose(0, 2, 1)
    return np.ascontiguousarray(upright), letters - 1


def _read() -> tuple[Arrays, list[dict[str, str]]]:
    """Read the npz file, else the four CSV files."""
    folder = files.raw_folder("arabic_char")
    paths = {split: [folder / name for name in names] for split, names in _CSV.items()}
    every = [path for pair in paths.values() for path in pair]
    if not (folder / _NPZ.name).is_file() and all(path.is_file() for path in every):
        arrays = {split: read_csv(*pair) for split, pair in paths.items()}
        return arrays, [{"file": p.name, "sha256": files.file_sha256(p)} for p in every]
    alternative = (
        f"Or the publisher's files from {_HOME} (Arabic Handwritten Characters Dataset CSV.zip): "
        f"{', '.join(path.name for path in every)}. Their contents are checked when they are read."
    )
    stored, source = obtain_npz("arabic_char", _NPZ, alternative=alternative)
    return splits_of(stored), source


ARABIC = Spec(
    name="arabic_char",
    title="Arabic Characters",
    version="1.0.0",
    description=(
        "The 28 letters of the Arabic alphabet, written by 60 people, 32×32, white strokes on "
        "black, upright. Writers of the training and the test images differ."
    ),
    origin="Arabic Handwritten Characters (AHCD)",
    image_shape=(_SIDE, _SIDE),
    class_names=tuple(
        "alef beh teh theh jeem hah khah dal thal reh zain seen sheen sad dad tah zah ain ghain "
        "feh qaf kaf lam meem noon heh waw yeh".split()
    ),
    class_counts={"train": (480,) * 28, "test": (120,) * 28},
    citation=(
        "@article{elsawy2017arabic,\n"
        "  author  = {El-Sawy, Ahmed and Loey, Mohamed and El-Bakry, Hazem},\n"
        "  title   = {Arabic Handwritten Characters Recognition using Convolutional Neural "
        "Network},\n"
        "  journal = {WSEAS Transactions on Computer Research},\n"
        "  volume  = {5},\n"
        "  pages   = {11--19},\n"
        "  year    = {2017}\n"
        "}"
    ),
    licence="none stated by the publisher, who asks for the citation",
    homepage=_HOME,
    read=_read,
    raw_files=(_NPZ,),
    content={
        "train": (
            "4542b6a6ff9acab47fc57e9aad237c3e3d5d4dda5e7baf55ed793ca6460e9888",
            "d9d8ebd8c95a9a01cbd3f53a3e9b710df0eb284ad65c802b9ed7bb3b3e14e332",
        ),
        "test": (
            "9b1cd0084777eb1862b97c8bc9e23ffa20edb52c5cfa77e0eb5889dfa3b7f85c",
            "00c6a004d108b0baedabdaf3e01b29dbf474db2c5516501dc0fc39c371f067f1",
        ),
    },
)

SPECS = (ARABIC,)
