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


def test_words_over_many_columns_are_upright():
    few, many = (np.ones((1, n, 4, 4)) for n in (10, 28))
    for cells, words, turned in ((few, "alef", 0), (many, "b", 0), (many, "alef", 90)):
        ax = plots.mosaic(cells, column_labels=[words] * cells.shape[1], ax=plt.figure().gca())
        assert {text.get_rotation() for text in ax.get_xticklabels()} == {turned}


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
    fig, axes = plt.subplots(2, 5, figsize=(plots.WIDTH, 4))
    draw_all(axes.flat)
    fig.canvas.draw()
    box = fig.bbox
    for ax in axes.flat:
        # a tick beyond the ends of its axis is not drawn
        (left, right), (bottom, top) = sorted(ax.get_xlim()), sorted(ax.get_ylim())
        ticks = [t for t in ax.get_xticklabels() if left <= t.get_position()[0] <= right]
        ticks += [t for t in ax.get_yticklabels() if bottom <= t.get_position()[1] <= top]
        for text in [ax.title, ax.xaxis.label, *ticks]:
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
fig, axes = plt.subplots(2, 5, figsize=(plots.WIDTH, 4))
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


# ---------------------------------------------------------------- pictures of a fit


def blobs(n=9, size=8):
    """Images (n, size, size), each of one value that tells which it is, and distances (n, 3)."""
    images = np.arange(1, n + 1)[:, None, None] / n * np.ones((n, size, size))
    values = np.random.default_rng(5).random((n, 3)) + 2
    values[np.arange(n), np.arange(n) % 3] = np.arange(n)[::-1] / n  # later ones are nearer
    return images, values


def grid(n, size=8):
    rows, columns = np.meshgrid(np.arange(1.0 * size), np.arange(1.0 * size), indexing="ij")
    return np.stack([rows, columns], -1)[None].repeat(n, 0)


STEPS = [
    {"stage": "search", "objective": 9.0, "search": 0},
    {"stage": "search", "objective": 7.0, "search": 0},
    {"stage": "swap", "objective": 6.0, "accepted": True, "search": 0},
    {"stage": "swap", "objective": 8.0, "accepted": False, "search": 0},
    {"stage": "searched", "objective": 6.0, "search": 0},
    {"stage": "lloyd", "objective": 5.0},
    {"stage": "learn", "objective": -3.0},
    {"stage": "learn", "objective": -2.0, "undone": True},
    {"stage": "final", "objective": -4.0},
]


def test_every_picture_of_a_fit_goes_on_the_given_axes():
    fig, axes = plt.subplots(2, 4)
    images, values = blobs()
    flat = axes.flat
    drawn = [
        plots.contact_sheet(images, ax=flat[0]),
        plots.members(images, values, ax=flat[1]),
        plots.members(images, values, which=(0, 2), ax=flat[2]),
        plots.warps(images[:2], images[:2], images[:2], grid(2), grid(2)[:, 0], ax=flat[3]),
        plots.deformation_modes(np.ones((3, 2, 5, 8, 8)), mode=1, ax=flat[4]),
        plots.distances(values, ax=flat[5]),
        plots.history(STEPS, ax=flat[6]),
        plots.centroids(images[:3], names="abc", ax=flat[7]),
    ]
    assert drawn == list(axes.flat)
    assert plt.get_fignums() == [fig.number]


def test_members_are_in_the_order_of_their_distance():
    images, values = blobs()
    sheet = shown(plots.members(images, values))
    first = sheet[4, ::10][:3] * 9  # the first row, an image every 8 + 2 pixels
    np.testing.assert_allclose(first, [7, 4, 1], atol=1e-4)
    plt.figure()
    sheet = shown(plots.members(images, values, which="farthest", n_images=2))
    np.testing.assert_allclose(sheet[4, ::10] * 9, [1, 4], atol=1e-4)


def test_images_between_two_clusters_go_from_one_to_the_other():
    images = np.arange(1, 6)[:, None, None] / 5 * np.ones((5, 8, 8))
    values = np.array([[3, 1, 9], [1, 3, 9], [1, 1.5, 9], [9, 1, 1], [0, 9, 9.5]])
    ax = plots.members(images, values, which=(0, 1), n_images=3)
    np.testing.assert_allclose(shown(ax)[4, ::10] * 5, [2, 3, 1], atol=1e-4)
    assert ax.get_title() == "4 images are nearest to 0 and 1"


def test_a_pair_without_images_between_is_an_empty_row():
    images, values = blobs(3)
    values = np.array([[0, 1, 9.0]] * 3)
    assert (shown(plots.members(images, values, which=(1, 2))) == 1).all()


def test_the_grid_of_a_warp_lies_on_its_image():
    field = grid(2) + np.array([0.0, 1.0])  # looks one pixel to the right
    ax = plots.warps(np.ones((2, 8, 8)), np.ones((2, 8, 8)), np.zeros((2, 8, 8)), field, step=4)
    lines = ax.get_lines()
    assert len(lines) == 2 * 4
    # second image: rows begin at 10; the grid is in the second column, at 10, and one further
    np.testing.assert_array_equal(lines[4].get_ydata(), np.full(8, 10.0))
    np.testing.assert_array_equal(lines[4].get_xdata(), np.arange(8) + 11.0)
    sheet = shown(ax)
    red, green, blue = sheet[4, 44]  # residual 1: orange
    assert red > blue and sheet[4, 24].tolist() == [1, 1, 1]
    left, right = ax.transData.inverted().transform(lines[4].get_clip_box())[:, 0]
    assert (left, right) == pytest.approx((9.5, 17.5))


def test_colour_images_are_bent_in_colour():
    x = np.random.default_rng(0).random((1, 8, 8, 3))
    sheet = shown(plots.warps(x, x, x, grid(1)))
    np.testing.assert_allclose(sheet[:, :8], x[0] / x.max(), atol=1e-6)
    assert np.ptp(sheet[:, 40:].reshape(-1, 3), axis=0).max() < 1e-6  # residual 0 everywhere


def test_modes_are_those_asked_for():
    pictures = np.arange(2 * 2 * 3)[:, None, None] * np.ones((12, 4, 4))
    ax = plots.deformation_modes(pictures.reshape(2, 2, 3, 4, 4), (-1, 0, 1.5), mode=1)
    np.testing.assert_allclose(shown(ax)[::6, ::6] * 11, [[3, 4, 5], [9, 10, 11]], atol=1e-5)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["-1 sd", "0", "+1.5 sd"]


def test_the_boxes_are_the_quartiles_of_own_and_other_images():
    values = np.array([[1.0, 10], [2, 11], [3, 12], [20, 0], [30, 1]])
    ax = plots.distances(values)
    boxes = [p.get_path().get_extents().intervaly.tolist() for p in ax.patches]
    assert boxes == [[1.5, 2.5], [0.25, 0.75], [22.5, 27.5], [10.5, 11.5]]


def test_a_cluster_without_images_has_no_box_and_a_place():
    ax = plots.distances(np.array([[1.0, 2, 3], [1, 2, 3]]), names=["a", "b", "c"])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "b", "c"]


def test_the_history_shows_what_was_undone_as_hollow_and_learning_on_the_right():
    ax = plots.history(STEPS)
    (right,) = [a for a in ax.figure.axes if a is not ax]
    drawn = [line.get_xydata().tolist() for line in ax.get_lines() if len(line.get_xdata())]
    assert drawn == [[[1, 9], [2, 7]], [[3, 6]], [[4, 8]], [[5, 5]]]
    hollow = [line.get_markerfacecolor() == "none" for line in ax.get_lines()]
    assert hollow == [False, True] * 3
    assert [line.get_xydata().tolist() for line in right.get_lines()] == [[[6, -3]], [[7, -2]]]
    assert right.get_ylabel() == "minus log-likelihood"


def test_names_are_shown_as_they_are():
    """A file name is text: no mathematics, nothing longer than its place."""
    ax = plots.contact_sheet(np.ones((2, 8, 8)), names=["$\\frac$", "x" * 50])
    ax.figure.canvas.draw()
    assert [len(t.get_text()) for t in ax.texts] == [7, 12]


BAD = {
    "no picture": (lambda: plots.contact_sheet(np.ones((0, 8, 8))), "N > 0"),
    "one picture": (lambda: plots.centroids(np.ones((8, 8))), "(N, H, W[, 3])"),
    "names": (lambda: plots.contact_sheet(np.ones((2, 8, 8)), names=["a"]), "1 names for 2"),
    "which": (lambda: plots.members(*blobs(), which="near"), "'nearest', 'farthest'"),
    "one cluster": (lambda: plots.members(*blobs(), which=(1, 1)), "two different clusters of 3"),
    "no cluster": (lambda: plots.members(*blobs(), which=(0, 3)), "two different clusters of 3"),
    "other images": (lambda: plots.members(np.ones((2, 8, 8)), np.ones((3, 2))), "2 images, but"),
    "fields": (lambda: plots.warps(*[np.ones((2, 8, 8))] * 3, grid(1)), "(2, 8, 8, 2)"),
    "targets": (lambda: plots.warps(*blobs()[:1] * 2, np.ones((2, 8, 8)), grid(9)), "differ"),
    "sds": (lambda: plots.deformation_modes(np.ones((1, 1, 3, 8, 8))), "(K, M, 5, H, W"),
    "mode": (lambda: plots.deformation_modes(np.ones((1, 1, 5, 8, 8)), mode=1), "modes 0 to 0"),
    "distances": (lambda: plots.distances(np.ones(3)), "(N, K)"),
    "no step": (lambda: plots.history([]), "no steps"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_picture_that_cannot_be_drawn_says_why(name):
    call, text = BAD[name]
    with pytest.raises(ValueError) as e:
        call()
    assert text in str(e.value)
    assert not plt.get_fignums()  # nothing was opened


@pytest.mark.parametrize("n_clusters", [1, 3, 23])
def test_the_overview_fits_any_number_of_clusters(n_clusters):
    rng = np.random.default_rng(0)
    images = rng.random((60, 10, 8))
    fig = plt.figure(figsize=(plots.WIDTH, 9))
    x = images[:n_clusters]
    field = np.stack(np.meshgrid(np.arange(10.0), np.arange(8.0), indexing="ij"), -1)
    bent = {"images": x, "warped": x, "targets": x, "fields": field[None].repeat(n_clusters, 0)}
    axes = plots.overview(
        x,
        np.ones(n_clusters, int),
        STEPS,
        modes=x[:, None, None].repeat(5, 2),
        images=images,
        values=rng.random((60, n_clusters)),
        bent=bent,
        fig=fig,
    )
    names = "centroids deformation_modes distances farthest history nearest warps"
    assert sorted(axes) == names.split()
    assert {ax.figure for ax in axes.values()} == {fig}
    fig.canvas.draw()
