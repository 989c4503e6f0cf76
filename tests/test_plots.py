"""Figures: what is drawn is what was given, and the same picture is the same file."""

import subprocess
import sys

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import ROOT
from PIL import Image

from stkm import plots
from stkm.metrics import confusion


@pytest.fixture(autouse=True)
def style():
    with matplotlib.rc_context():
        plots.use_style()
        yield
        plt.close("all")


def shown(ax):
    return np.asarray(ax.images[0].get_array())


def draw_all(axes):
    """One picture of each kind, on given axes; returns what each function returned."""
    rng = np.random.default_rng(0)
    picture = rng.random((8, 6))
    field = np.stack(np.meshgrid(np.arange(8.0), np.arange(6.0), indexing="ij"), -1)
    points, labels = rng.normal(size=(40, 2)), np.arange(40) % 4
    table = confusion(labels, (labels + 1) % 4)
    return [
        plots.image(picture, title="image", ax=axes[0]),
        plots.signed(picture - 0.5, title="difference", ax=axes[1]),
        plots.warp_grid(field, field.reshape(-1, 2)[::7], ax=axes[2]),
        plots.mosaic(rng.random((2, 3, 8, 6)), row_labels="ab", column_labels="xyz", ax=axes[3]),
        plots.centroids(rng.random((5, 8, 6)), columns=3, ax=axes[4]),
        plots.curve([0, 1, 2], [3, 2, 1], label="objective", xlabel="pass", ax=axes[5]),
        plots.confusion(table.counts, "abcd", table.clusters.tolist(), ax=axes[6]),
        plots.embedding(points, labels, "abcd", title="plane", ax=axes[7]),
        plots.criterion([{"k": 2}, {"k": 3}], [[1, 2], [3, 4]], winner=1, label="c", ax=axes[8]),
        plots.regions(labels.reshape(5, 8)[:, :5], np.linspace(0, 1, 5), "abcd", ax=axes[9]),
    ]


def test_every_function_draws_on_the_given_axes_and_returns_them():
    fig, axes = plt.subplots(2, 5)
    assert draw_all(axes.flat) == list(axes.flat)
    assert plt.get_fignums() == [fig.number]  # nothing else was opened


def test_without_axes_the_current_ones_are_used():
    fig, ax = plt.subplots()
    assert plots.image(np.zeros((4, 4))) is ax and plots.curve([1], [2]) is ax
    assert plt.get_fignums() == [fig.number]


def test_a_mosaic_has_every_image_at_its_place():
    rng = np.random.default_rng(1)
    cells = rng.random((2, 3, 5, 4)).astype(np.float32)
    ax = plots.mosaic(cells, row_labels=["r0", "r1"], column_labels=["c0", "c1", "c2"], gap=2)
    sheet = shown(ax)
    assert sheet.shape == (2 * 7 - 2, 3 * 6 - 2)
    for r in range(2):
        for c in range(3):
            np.testing.assert_array_equal(sheet[7 * r : 7 * r + 5, 6 * c : 6 * c + 4], cells[r, c])
    assert (sheet[5:7] == 1).all() and (sheet[:, 4:6] == 1).all()  # the gaps are white
    assert [t.get_text() for t in ax.get_yticklabels()] == ["r0", "r1"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["c0", "c1", "c2"]


def test_colour_images_keep_their_channels():
    cells = np.random.default_rng(2).random((1, 2, 5, 4, 3)).astype(np.float32)
    sheet = shown(plots.mosaic(cells))
    assert sheet.shape == (5, 10, 3)
    np.testing.assert_array_equal(sheet[:, 6:], cells[0, 1])


def test_centroids_of_any_scale_and_number():
    pictures = np.random.default_rng(3).random((5, 6, 6))
    grey = shown(plots.centroids(pictures, columns=3))
    plt.figure()
    bytes_ = shown(plots.centroids(255 * pictures, columns=3))
    np.testing.assert_allclose(grey, bytes_, atol=1e-6)
    assert grey.max() == 1 and (grey[8:, 16:] == 1).all()  # the place of a sixth stays white
    np.testing.assert_allclose(grey[:6, :6], pictures[0] / pictures.max(), atol=1e-6)


def test_the_grid_goes_through_the_points_of_the_field():
    rows, columns = np.meshgrid(np.arange(6.0), np.arange(9.0), indexing="ij")
    field = np.stack([rows + 0.5, columns - 1.0], -1)  # half down, one to the left
    ax = plots.warp_grid(field, np.array([[2.0, 3.0]]), step=3)
    *lines, dots = ax.get_lines()
    assert len(lines) == 2 + 3
    np.testing.assert_array_equal(lines[1].get_ydata(), np.full(9, 3.5))
    np.testing.assert_array_equal(lines[1].get_xdata(), np.arange(9) - 1.0)
    assert dots.get_xydata().tolist() == [[3.0, 2.0]]  # matplotlib's order is (column, row)
    assert ax.yaxis_inverted()  # row 0 on top, as in images


def test_confusion_prints_every_count_but_zero():
    counts = np.array([[5, 0], [1, 12]])
    ax = plots.confusion(counts, ["cat", "dog"], ["1", "0"])
    assert {(t.get_position(), t.get_text()) for t in ax.texts} == {
        ((0, 0), "5"), ((0, 1), "1"), ((1, 1), "12")
    }  # fmt: skip


def test_embedding_draws_every_point_and_names_every_class():
    rng = np.random.default_rng(4)
    points, labels = rng.normal(size=(60, 2)), np.arange(60) % 12
    ax = plots.embedding(points, labels, [f"class {k}" for k in range(12)])
    drawn = np.concatenate([line.get_xydata() for line in ax.get_lines()])
    assert sorted(map(tuple, drawn)) == sorted(map(tuple, points))
    assert [t.get_text() for t in ax.texts] == [f"class {k}" for k in range(12)]
    looks = {(line.get_color(), line.get_marker()) for line in ax.get_lines()}
    assert len(looks) == 12  # more classes than colours: other markers


def test_colours_stay_apart_for_colour_blind_readers():
    """Least distance in CIE Lab, also as a protanope and a deuteranope sees them."""
    from matplotlib.colors import to_rgb
    from skimage.color import rgb2lab

    linear = np.array([to_rgb(c) for c in plots.COLOURS]) ** 2.2
    # Machado, Oliveira, Fernandes 2009, severity 1
    protan = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
              [-0.003882, -0.048116, 1.051998]]  # fmt: skip
    deutan = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
              [-0.011820, 0.042940, 0.968881]]  # fmt: skip
    for view in (np.eye(3), np.array(protan), np.array(deutan)):
        lab = rgb2lab((np.clip(linear @ view.T, 0, 1) ** (1 / 2.2))[None])[0]
        apart = np.linalg.norm(lab[:, None] - lab[None], axis=-1) + 1e3 * np.eye(len(lab))
        assert apart.min() > 20, apart.min()  # 2.3 is just noticeable


def test_text_is_readable_in_print():
    sizes = [v for k, v in plots.STYLE.items() if k.endswith("size") and k != "lines.markersize"]
    assert sizes and min(sizes) >= 8
    fig, axes = plt.subplots(2, 4, figsize=(plots.WIDTH, 4))
    draw_all(axes.flat)
    fig.canvas.draw()
    box = fig.bbox
    for ax in axes.flat:
        for text in [ax.title, ax.xaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]:
            if text.get_text():
                extent = text.get_window_extent()
                assert text.get_size() >= 8
                assert box.x0 <= extent.x0 and extent.x1 <= box.x1, text
                assert box.y0 <= extent.y0 and extent.y1 <= box.y1, text


SAVE = """
import sys
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_plots import draw_all
from stkm import plots
plots.use_style()
fig, axes = plt.subplots(2, 4, figsize=(plots.WIDTH, 4))
draw_all(axes.flat)
plots.save(fig, "all", Path(sys.argv[1]))
"""


def test_the_same_picture_is_the_same_file(tmp_path):
    """In other processes: another order of hashes, other settings of the user, a later clock."""
    for name, seed in (("first", "1"), ("second", "2")):
        settings = tmp_path / name / "matplotlibrc"
        settings.parent.mkdir()
        settings.write_text(f"figure.dpi: {60 + 17 * int(seed)}\nfont.size: 1{seed}\n")
        subprocess.run(
            [sys.executable, "-c", SAVE, str(tmp_path / name), str(ROOT / "tests")],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PATH": "",
                 "MATPLOTLIBRC": str(settings), "HOME": str(tmp_path)},
            check=True,
        )  # fmt: skip
    for kind in ("png", "pdf"):
        one, two = (tmp_path / name / f"all.{kind}" for name in ("first", "second"))
        assert one.read_bytes() == two.read_bytes(), kind
    with Image.open(tmp_path / "first" / "all.png") as png:
        assert png.size == (round(plots.WIDTH * 150), 600)
        assert "Software" not in png.info
    pdf = (tmp_path / "first" / "all.pdf").read_bytes()
    assert b"CreationDate" not in pdf and b"/FontFile2" in pdf  # TrueType


def test_a_failed_save_leaves_the_old_figure(tmp_path, monkeypatch):
    fig, _ = plt.subplots()
    paths = plots.save(fig, "a", tmp_path)
    assert [p.name for p in paths] == ["a.png", "a.pdf"]
    before = paths[0].read_bytes()
    monkeypatch.setattr(fig, "savefig", lambda path, **_: (path.write_text("half"), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        plots.save(fig, "a", tmp_path)
    assert paths[0].read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pdf", "a.png"]


@pytest.mark.parametrize("name", ["", "a.png", "b/a", "../a"])
def test_a_figure_has_a_plain_name(tmp_path, name):
    with pytest.raises(ValueError, match="plain name"):
        plots.save(plt.figure(), name, tmp_path)


def test_the_module_leaves_settings_and_backend_alone():
    code = (
        "import matplotlib as m\n"
        "m.use('svg'); m.rcParams['font.size'] = 31; before = dict(m.rcParams)\n"
        "from stkm import plots\n"
        "assert dict(m.rcParams) == before\n"
        "plots.use_style()\n"
        "assert m.get_backend() == 'svg' and m.rcParams['font.size'] == 9"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
