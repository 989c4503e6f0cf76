"""USPS: 7 291 training and 2 007 test images of digits from envelopes, 16×16.

Not in the paper; peers report on it.  Source: ``STKM_DATA_DIR/usps/usps.npz``.
"""

from __future__ import annotations

from stkm.datasets.raw import obtain_npz, splits_of
from stkm.datasets.spec import Arrays, RawFile, Spec

__all__ = ["SPECS"]

_NPZ = RawFile(
    "usps.npz",
    "3d31545002e422d153fb8a4c7704bb032ff6aa05e2decf0984509fc519982dac",
    "no public address: arrays x_train, y_train, x_test, y_test made from data/USPS.mat of "
    "https://github.com/chenbocqu/SEMMDL (commit b1d83a52), turned upright, rounded to 0–255",
    size=1087686,
)


def _read() -> tuple[Arrays, list[dict[str, str]]]:
    """Read the four arrays."""
    stored, source = obtain_npz("usps", _NPZ)
    return splits_of(stored), source


USPS = Spec(
    name="usps",
    title="USPS",
    version="1.0.0",
    description=(
        "Handwritten digits from envelopes of the United States Postal Service, 16×16, white "
        "strokes on black; strokes touch the frame. Rows are sorted by class."
    ),
    origin="USPS",
    image_shape=(16, 16),
    class_names=tuple("0123456789"),
    class_counts={
        "train": (1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
        "test": (359, 264, 198, 166, 200, 160, 170, 147, 166, 177),
    },
    citation=(
        "@article{hull1994database,\n"
        "  author  = {Hull, Jonathan J.},\n"
        "  title   = {A database for handwritten text recognition research},\n"
        "  journal = {IEEE Transactions on Pattern Analysis and Machine Intelligence},\n"
        "  volume  = {16},\n"
        "  number  = {5},\n"
        "  pages   = {550--554},\n"
        "  year    = {1994}\n"
        "}"
    ),
    licence="none stated by the publisher",
    homepage="https://hastie.su.domains/ElemStatLearn/data.html",
    read=_read,
    raw_files=(_NPZ,),
    content={
        "train": (
            "64800b96bd06af928c192e308f19343b93c522464eda6f91969285da3f81ead8",
            "e04b9954dc0d54264588bda91668e6c5251f1396c1b0c96c0f66f09cd228d1e3",
        ),
        "test": (
            "ea98a23efbb5fad8415aa7780a78f038604960f8c14185471464da0c086e4ea6",
            "15d69ddee5e05670efabfcec8687c80ab76a18b7f6667b471f8bc2dd9f6da732",
        ),
    },
    differs="not in the paper",
)

SPECS = (USPS,)
