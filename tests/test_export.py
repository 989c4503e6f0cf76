"""From a folder of pictures to files: the command line, the files it writes, the report."""

import base64
import csv
import io
import re
import subprocess
import sys
from html.parser import HTMLParser

import matplotlib

matplotlib.use("agg")

import numpy as np
import pytest
from conftest import ROOT
from helpers import bars
from PIL import Image

from stkm import AffineKMeans, __main__, export, report
from stkm.datasets.folder import common_size, image_sizes, inspect_images, load_images
from stkm.export import FILES
from stkm.warp import Warp

NASTY = ["<script>alert(1)</script>.png", 'a"onerror="x.png', "b&lt;.png", "ü ñ,;'.png"]


def save(folder, images, names, negative=False):
    folder.mkdir(parents=True, exist_ok=True)
    for image, name in zip(images, names, strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        pixels = np.round(255 * (1 - image if negative else image)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def fitted():
    """An estimator, 24 images and names that HTML could take for its own."""
    images, kinds = bars(24)
    images = images.clip(0, 1)
    names = [f"{'xyz'[k]}/{i}.png" for i, k in enumerate(kinds)]
    names[: len(NASTY)] = [f"<b>/{name}" for name in NASTY]
    return AffineKMeans(3, n_swaps=0, max_iter=3, random_state=0).fit(images), images, names


@pytest.fixture(scope="module")
def written(fitted, tmp_path_factory):
    km, images, names = fitted
    out = tmp_path_factory.mktemp("out") / "groups"
    export.write(out, km, images, names, notes=["<i>note</i>"], title="<u>title</u>")
    return out


class Page(HTMLParser):
    """Tags, attributes and text of a page, and whether its tags are closed in order."""

    VOID = {"meta", "img", "link", "br"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def of(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


# ---------------------------------------------------------------- a look before clustering


def test_sizes_are_read_without_the_pixels_and_upright(tmp_path):
    save(tmp_path, [np.zeros((6, 9)), np.zeros((5, 5))], ["b.png", "sub/a.png"])
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("L", (9, 6)).save(tmp_path / "c.jpg", exif=exif)
    (tmp_path / "d.png").write_text("no picture")
    assert image_sizes(tmp_path) == {"b.png": (6, 9), "c.jpg": (9, 6), "sub/a.png": (5, 5)}
    with pytest.warns(UserWarning, match="d.png"):
        loaded = load_images(tmp_path, 8)[1]
    assert loaded == list(image_sizes(tmp_path))


@pytest.mark.parametrize(
    "sizes, expected",
    [
        ([(28, 28)] * 3, (28, 28)),
        ([(48, 12)], (48, 12)),
        ([(480, 640)], (36, 48)),
        ([(20, 10), (22, 10), (21, 11)], (21, 10)),  # the median, not enlarged
        ([(2000, 10)], (48, 4)),
    ],
)
def test_one_size_for_all(sizes, expected):
    assert common_size(sizes) == expected
    with pytest.raises(ValueError, match="no image size"):
        common_size([])


def test_constant_images_copies_and_a_light_ground_are_found():
    images = np.full((5, 8, 8), 230, np.uint8)
    images[1:4, 3:5, 3:5] = [[[10]], [[20]], [[10]]]
    found = inspect_images(images)
    assert found == ([0, 4], [3, 4], True)
    assert not inspect_images(255 - images).light_ground
    assert inspect_images(np.repeat(images[..., None], 3, -1)) == found
    with pytest.raises(ValueError, match="uint8"):
        inspect_images(images / 255)


def test_a_light_ground_is_turned_and_said(tmp_path):
    images, _ = bars(4)
    dark = export.read_folder(
        save(tmp_path / "dark", images.clip(0, 1), "a.png b.png c.png d.png".split())
    )
    light = export.read_folder(
        save(tmp_path / "light", images.clip(0, 1), "a.png b.png c.png d.png".split(), True)
    )
    assert not dark.negative and light.negative
    np.testing.assert_allclose(dark.images, light.images, atol=1e-6)
    assert dark.notes == [] and "negatives" in light.notes[0]
    kept = export.read_folder(tmp_path / "light", ground="dark")
    np.testing.assert_allclose(kept.images, 1 - dark.images, atol=1e-6)
    with pytest.raises(ValueError, match="'auto', 'dark', 'light'"):
        export.read_folder(tmp_path / "light", ground="white")


def test_what_was_done_to_the_images_is_said(tmp_path):
    save(
        tmp_path,
        [np.eye(60), np.eye(30), np.ones((30, 30)), np.eye(30)],
        ["a.png", "b.png", "c.png", "d.png"],
    )
    (tmp_path / "e.png").write_text("no picture")
    found = export.read_folder(tmp_path)
    assert found.images.shape == (4, 30, 30) and found.names == ["a.png", "b.png", "c.png", "d.png"]
    unreadable, scaled, constant, copies = found.notes
    assert "e.png" in unreadable and "2 sizes" in scaled and "30×30" in scaled
    assert "1 of one value" in constant and "c.png" in constant
    assert "1 are copies" in copies and "d.png" in copies


# ---------------------------------------------------------------- files


def test_all_files_are_written_and_nothing_else(written):
    assert sorted(p.name for p in written.iterdir()) == sorted(FILES)
    assert [p.name for p in written.parent.iterdir()] == ["groups"]
    with Image.open(written / "centroids.png") as png:
        assert png.width > 100


def test_labels_and_distances_are_those_of_the_estimator(written, fitted):
    km, images, names = fitted
    with open(written / "labels.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == names
    distances = km.transform(images)
    assert [int(row["cluster"]) for row in rows] == distances.argmin(1).tolist()
    assert [int(row["second"]) for row in rows] == distances.argsort(1)[:, 1].tolist()
    kept = [[float(row[f"distance_{k}"]) for k in range(3)] for row in rows]
    np.testing.assert_allclose(kept, distances, rtol=1e-5)


def test_warps_are_kept_so_that_they_can_be_made_again(written, fitted):
    km, images, names = fitted
    kept = np.load(written / "warps.npz")
    assert kept["names"].tolist() == names
    warp = Warp.affine(kept["centroids"].shape[1:3])  # as the report says
    np.testing.assert_allclose(warp(images, kept["displacements"]), kept["warped"], atol=1e-5)
    np.testing.assert_array_equal(kept["centroids"], km.cluster_centers_)
    np.testing.assert_array_equal(kept["labels"], km.predict(images))


def test_results_are_not_overwritten_and_a_failure_leaves_them(written, fitted, monkeypatch):
    before = {p.name: p.read_bytes() for p in written.iterdir()}
    with pytest.raises(FileExistsError, match="already holds report.html"):
        export.write(written, *fitted)
    (written / "mine.txt").write_text("kept")
    monkeypatch.setattr(export, "_draw_centroids", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export.write(written, *fitted, force=True)
    with pytest.raises(ZeroDivisionError):
        export.write(written.parent / "other", *fitted)
    monkeypatch.undo()
    assert [p.name for p in written.parent.iterdir()] == ["groups"]
    after = {p.name: p.read_bytes() for p in written.iterdir()}
    assert after.pop("mine.txt") == b"kept" and after == before
    export.write(written, *fitted, notes=["<i>note</i>"], title="<u>title</u>", force=True)
    (written / "mine.txt").unlink()
    assert {p.name: p.read_bytes() for p in written.iterdir()} == before  # same bytes again


def test_names_and_scale_must_fit_the_images(fitted, tmp_path):
    km, images, names = fitted
    with pytest.raises(ValueError, match="23 names for 24 images"):
        export.write(tmp_path / "a", km, images, names[1:])
    with pytest.raises(ValueError, match="divide 8-bit images by 255"):
        export.write(tmp_path / "a", km, 255 * images, names)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- report


@pytest.fixture(scope="module")
def page(written):
    return Page((written / "report.html").read_text(encoding="utf-8"))


def test_the_report_asks_for_nothing_from_outside(written, page):
    text = (written / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|//\w+\.|url\(|@import|<script|<link|<iframe", text)
    for image in page.of("img"):
        assert image["src"].startswith("data:image/png;base64,")
        Image.open(io.BytesIO(base64.b64decode(image["src"].split(",")[1]))).verify()
    assert all(a["href"].startswith("#") for a in page.of("a"))
    (policy,) = [m["content"] for m in page.of("meta") if m.get("http-equiv")]
    assert policy.startswith("default-src 'none'; img-src data:")


def test_names_are_shown_as_text(page):
    for name in NASTY:
        assert f"<b>/{name}" in page.text
    assert "<u>title</u>" in page.text and "<i>note</i>" in page.text
    assert not page.of("script") and not page.of("b") and not page.of("u")
    allowed = {"src", "alt", "class", "title"}
    assert all(set(image) <= allowed for image in page.of("img"))


def test_every_picture_has_a_text_and_every_link_a_target(page):
    assert all(image["alt"].strip() for image in page.of("img"))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {a["href"][1:] for a in page.of("a")} <= set(ids)
    regions = [d for d in page.of("div") if d.get("class") == "scroll"]
    assert regions and all(d["tabindex"] == "0" and d["aria-label"] for d in regions)
    assert page.of("html")[0]["lang"] == "en" and len(page.of("h1")) == 1 == len(page.of("main"))


def test_the_report_counts_images_by_folder_and_cluster(page, fitted):
    km, images, names = fitted
    labels = km.predict(images)
    assert "24 images of 12×12 pixels" in page.text
    for k, n in enumerate(np.bincount(labels, minlength=3)):
        assert f"Cluster {k}: {n} image" in page.text
    assert report._folders(["a/1", "a/2", "3"], np.array([0, 1, 1]), 2) == {
        "(none)": [0, 1],
        "a": [1, 1],
    }
    assert report._folders(["1", "2"], np.array([0, 1]), 2) == {}


def test_the_report_says_where_warps_fold(page, fitted):
    km, images, names = fitted
    folded = km.align(images).folded
    worst = names[int(folded.argmax())]
    g = report.Grouping.of(km, images, names)
    n = int((folded > 0).sum())
    assert report._folded(g) == {"images": n, "name": worst, "most": folded.max()}
    told = f"folds over itself in {n} of 24 images" if n else "No grid folds"
    assert told in page.text
    still = g._replace(alignment=g.alignment._replace(folded=np.zeros(24)))
    assert "No grid folds over itself" in report.render(still, title="x")


def test_negatives_are_shown_as_the_files_are(fitted):
    km, images, names = fitted
    g = report.Grouping.of(km, images[:4], names[:4], negative=True)
    np.testing.assert_allclose(g.shown(images), 1 - images)
    uri = report._png(g.shown(images[0])).split(",")[1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri))))
    np.testing.assert_allclose(pixels / 255, 1 - images[0], atol=0.003)


# ---------------------------------------------------------------- command line


def run(*arguments):
    return __main__.main(["cluster", *map(str, arguments)])


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    images, _ = bars(24)
    names = [f"{i:02}.png" for i in range(24)]
    return save(tmp_path_factory.mktemp("in") / "shapes", images.clip(0, 1), names, negative=True)


def test_the_command_clusters_a_folder(pictures, tmp_path, capsys):
    out = tmp_path / "a" / "groups"
    assert run(pictures, "--n-clusters", 3, "--out", out, "--affine") == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(out / "report.html")
    assert "24 images, 12×12" in printed.err and "negatives" in printed.err
    assert re.search(r"fit: \w+: 100%", printed.err.split("\r")[-1])  # the bar ends full
    assert sorted(p.name for p in out.iterdir()) == sorted(FILES)
    first = {name: (out / name).read_bytes() for name in FILES}
    assert run(pictures, "--n-clusters", 3, "--out", out, "--affine") == 2
    assert "--force" in capsys.readouterr().err
    again = ["--n-clusters", 3, "--out", out, "--affine", "--force", "--quiet"]
    assert run(pictures, *again) == 0
    assert capsys.readouterr().err == ""
    assert {name: (out / name).read_bytes() for name in FILES} == first
    text = (out / "report.html").read_text(encoding="utf-8")
    assert str(pictures) not in text and "shapes: 24 images in 3 clusters" in text


def test_the_command_chooses_a_number_of_clusters(pictures, tmp_path, capsys):
    out = tmp_path / "groups"
    assert run(pictures, "--n-clusters", "2-4", "--out", out, "--affine", "--quiet") == 0
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "shapes: 24 images in 3 clusters" in text
    assert "3 clusters, chosen from 2 to 4 without labels" in text
    assert re.search(r"2: -?\d+\.\d\d, 3: \d+\.\d\d, 4: ", text)
    assert capsys.readouterr().err == ""


def test_wrong_arguments_stop_before_any_work(pictures, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(AffineKMeans, "fit", lambda *_: pytest.fail("fitted"))
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "file").write_text("")
    out, two = tmp_path / "out", ["--n-clusters", "2", "--affine", "--out"]
    cases = [
        ((tmp_path / "none", *two, out), "no folder"),
        ((empty, *two, out), "no image in"),
        ((pictures, *two, tmp_path / "file"), "is a file"),
        ((pictures, *two, pictures / "out"), "lies in"),
        ((pictures, *two, pictures), "lies in"),
        ((pictures, *two, out, "--n-clusters", "25"), "24 image(s): 25 clusters need at least 25"),
        ((pictures, *two, out, "--n-clusters", "0"), "n_clusters=0"),
        ((pictures, *two, out, "--n-clusters", "20-24"), "a range up to 24 needs at least 25"),
        ((pictures, *two, out, "--seed", "-1"), "seed=-1"),
    ]
    for arguments, text in cases:
        assert run(*arguments) == 2, text
        assert text in capsys.readouterr().err
    for bad in (
        ["--size", "3x"],
        ["--size", "2"],
        ["--ground", "grey"],
        ["--n-cluster", "x"],
        ["--n-clusters", "4-2"],
        ["--n-clusters", "1-3"],
        ["--n-clusters", "2-x"],
    ):
        with pytest.raises(SystemExit) as stop:
            run(pictures, *two, out, *bad)
        assert stop.value.code == 2
    assert not out.exists()


@pytest.mark.parametrize("error, code", [(KeyboardInterrupt, 130), (OSError("no space"), 1)])
def test_what_is_stopped_leaves_nothing(pictures, tmp_path, monkeypatch, error, code):
    def fail(*_):
        raise error

    monkeypatch.setattr(export, "_draw_centroids", fail)
    monkeypatch.setattr(AffineKMeans, "fit", _quick_fit)
    assert run(pictures, "--n-clusters", 3, "--affine", "--out", tmp_path / "x", "--quiet") == code
    assert not list(tmp_path.iterdir())


def _quick_fit(self, X):
    """Centroids without a search."""
    start = AffineKMeans.from_centroids(X[:3], X)
    self.__dict__ |= {k: v for k, v in vars(start).items() if k not in self.get_params()}
    return self


@pytest.mark.parametrize("text, size", [("32", (32, 32)), ("32x48", (32, 48)), ("6×8", (6, 8))])
def test_sizes_are_height_by_width(text, size):
    assert __main__._size(text) == size


def test_help_needs_nothing_and_says_what_comes_out():
    code = "import sys; sys.modules['papermill'] = sys.modules['jax'] = None\n"
    code += "from stkm.__main__ import main; main(['cluster', '--help'])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    for word in (*FILES, "exit codes", "examples", "--force", "HxW"):
        assert word in result.stdout


@pytest.mark.parametrize(
    "line, hint",
    [
        (["cluster", "x", "--nclusters", "3", "--out", "y"], "did you mean --n-clusters?"),
        (["cluster", "x", "--n-clusters", "3", "--out", "y", "--forse"], "did you mean --force?"),
        (["check", "--stmap=x"], "did you mean --stamp?"),
    ],
)
def test_a_misspelt_option_is_told_its_likeliest_meaning(line, hint, capsys):
    with pytest.raises(SystemExit) as stop:
        __main__.main(line)
    assert stop.value.code == 2 and hint in capsys.readouterr().err


def test_gaps_are_told_in_plain_numbers():
    _lead = report._lead
    assert [_lead(np.log(x), None) for x in (1.5, 150)] == ["1.5 times", "150 times"]
    assert _lead(10.0, None) == "more than 1000 times"
    assert [_lead(x, 4.0) for x in (0.1, 8.0)] == ["2.5 %", "200 %"] and _lead(1.0, 0.0) == "exact"


def test_a_fit_warns_of_images_dark_on_light_at_the_line_that_calls_it(recwarn):
    X = np.zeros((12, 8, 8))
    X[::2, 2:6, 3] = X[1::2, 3, 2:6] = 1
    km = AffineKMeans(2, n_init=1, n_swaps=0, max_iter=1, random_state=0)
    km.fit(X)
    assert not [w for w in recwarn if "light rim" in str(w.message)]
    km.fit(1 - X)
    (told,) = [w for w in recwarn if "light rim" in str(w.message)]
    assert told.filename == __file__
