"""The deep baselines: their formulas by hand, their parts against oracles, their contract."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import digits
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from stkm.deep import DEC, AEKMeans, Autoencoder, VaDE, networks
from stkm.deep.estimators import (
    Mixture,
    _negative_elbo,
    _standardised,
    _Variational,
    elbo_terms,
    log_bernoulli,
    soft_assignment,
    target_distribution,
)
from stkm.deep.networks import Transposed, decode, encode, make_network
from stkm.deep.training import Trainer, epoch_batches, hold_out

METHODS = {"AEKMeans": (AEKMeans, {}), "DEC": (DEC, {"update_interval": 8}),
           "VaDE": (VaDE, {"epochs": 4})}  # fmt: skip
QUICK = {"batch_size": 16, "layer_epochs": 2, "pretrain_epochs": 15, "random_state": 0}


PUBLISHED = networks.HIDDEN, networks.FILTERS, networks.DENSE


@pytest.fixture(scope="module", autouse=True)
def small_networks():
    """A few units in each layer: the tests are about what is done with them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("HIDDEN", (40, 30, 50)), ("FILTERS", 6), ("DENSE", 30)):
            patch.setattr(networks, name, value)
        yield


@pytest.fixture(scope="module")
def bars():
    """Upright and lying bars in colour, 12×10, with noise."""
    rng = np.random.default_rng(0)
    X = 0.1 * rng.random((40, 12, 10, 2))
    X[:20, 2:8, 3:5] += 0.9
    X[20:, 4:6, 2:9] += 0.9
    return (200 * X).astype(np.float32), np.repeat([0, 1], 20)


@pytest.fixture(scope="module", params=["mlp", "conv"])
def start(request, bars):
    options = {"layer_epochs": 2, "epochs": 40, "validation": 0.0, "learning_rate": 5e-3}
    return Autoencoder(request.param, batch_size=16, random_state=0, **options).fit(bars[0])


# ------------------------------------------------------------------- formulas


def test_soft_assignment_of_three_points():
    # squared distances to the centroids 0 and 2: (0, 4), (1, 1), (9, 1)
    q = soft_assignment(np.array([[0.0], [1.0], [3.0]]), np.array([[0.0], [2.0]]))
    np.testing.assert_allclose(q, [[5 / 6, 1 / 6], [1 / 2, 1 / 2], [1 / 6, 5 / 6]])


def test_target_distribution_of_three_points():
    q = np.array([[5 / 6, 1 / 6], [1 / 2, 1 / 2], [1 / 6, 5 / 6]])
    # both clusters weigh 3/2, so that p is q² made to sum to one
    np.testing.assert_allclose(
        target_distribution(q), [[25 / 26, 1 / 26], [1 / 2, 1 / 2], [1 / 26, 25 / 26]]
    )
    # a heavy cluster is held back: weights 1.5 and 0.5
    p = target_distribution(np.array([[0.75, 0.25], [0.75, 0.25]]))
    np.testing.assert_allclose(p, [[0.75, 0.25], [0.75, 0.25]])


def test_gradient_of_the_divergence_is_the_published_one():
    # DEC, Eq. 4 and 5: 2 Σ_j (1 + |z − μ_j|²)⁻¹ (p_j − q_j)(z − μ_j), and minus its sum over images
    rng = np.random.default_rng(0)
    z, mu = rng.normal(size=(3, 2)), rng.normal(size=(2, 2))
    p = target_distribution(soft_assignment(z, mu))

    def divergence(z, mu):
        return (p * (jnp.log(p) - jnp.log(soft_assignment(z, mu)))).sum()

    with jax.enable_x64(True):
        by_z, by_mu = jax.grad(divergence, (0, 1))(jnp.asarray(z), jnp.asarray(mu))
        steps = 1e-6 * np.eye(z.size).reshape(-1, *z.shape)
        numbers = [(divergence(z + s, mu) - divergence(z - s, mu)) / 2e-6 for s in steps]
    np.testing.assert_allclose(np.ravel(by_z), numbers, rtol=1e-6, atol=1e-8)
    q, apart = soft_assignment(z, mu), z[:, None] - mu
    each = 2 * ((p - q) / (1 + (apart**2).sum(-1)))[..., None] * apart
    np.testing.assert_allclose(by_z, each.sum(1), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(by_mu, -each.sum(0), rtol=1e-6, atol=1e-8)


@pytest.fixture
def mixture():
    rng = np.random.default_rng(1)
    parts = np.log([0.2, 0.5, 0.3]), rng.normal(size=(3, 2)), 0.5 * rng.normal(size=(3, 2))
    return Mixture(*(jnp.asarray(p) for p in parts))


def test_density_of_the_mixture_is_scipy_s(mixture):
    z = np.random.default_rng(2).normal(size=(4, 2))
    weights = np.exp(mixture.log_weights)
    expected = [
        [np.log(w) + multivariate_normal(m, np.diag(np.exp(v))).logpdf(row)
         for w, m, v in zip(weights, mixture.means, mixture.log_variances, strict=True)]
        for row in z
    ]  # fmt: skip
    np.testing.assert_allclose(mixture.joint(jnp.asarray(z)), expected, rtol=1e-5, atol=1e-5)


def test_terms_of_the_bound_are_the_means_over_many_samples(mixture):
    rng = np.random.default_rng(3)
    mean, log_variance = rng.normal(size=(3, 2)), 0.3 * rng.normal(size=(3, 2))
    gamma = rng.dirichlet(np.ones(3), size=3)
    code, cluster, entropy = elbo_terms(mixture, *map(jnp.asarray, (mean, log_variance, gamma)))
    sd = np.exp(log_variance / 2)
    n = 200_000
    z = mean + sd * rng.normal(size=(n, 3, 2))
    joint = np.asarray(mixture.joint(jnp.asarray(z.reshape(-1, 2)))).reshape(n, 3, 3)
    log_pi = np.log([0.2, 0.5, 0.3])
    sampled = (gamma * (joint - log_pi).mean(0)).sum(1)
    np.testing.assert_allclose(code, sampled, atol=0.03)
    np.testing.assert_allclose(cluster, (gamma * (log_pi - np.log(gamma))).sum(1), atol=1e-5)
    log_q = -(np.log(2 * np.pi) + log_variance + ((z - mean) / sd) ** 2).sum(-1) / 2
    np.testing.assert_allclose(entropy, -log_q.mean(0), atol=0.03)


def test_a_certain_image_has_a_finite_bound_and_gradient(mixture):
    certain = jnp.asarray([[1.0, 0.0, 0.0]])

    def total(gamma):
        return sum(
            t.sum() for t in elbo_terms(mixture, jnp.zeros((1, 2)), jnp.zeros((1, 2)), gamma)
        )

    assert np.isfinite(total(certain)) and np.isfinite(jax.grad(total)(certain)).all()
    cluster = elbo_terms(mixture, jnp.zeros((1, 2)), jnp.zeros((1, 2)), certain)[1]
    assert cluster[0] == pytest.approx(np.log(0.2), abs=1e-5)


def test_gradient_of_the_bound_is_the_one_of_differences(monkeypatch):
    monkeypatch.setattr(networks, "HIDDEN", (5,))
    rng = np.random.default_rng(4)
    images, key = rng.random((5, 3, 3, 1)), jax.random.key(1)
    parts = np.zeros(3), rng.normal(size=(3, 2)), 0.3 * rng.normal(size=(3, 2))
    network, state = make_network("mlp", (3, 3, 1), 2, key)
    mixture = Mixture(*map(jnp.asarray, parts))
    model = _Variational(network, VaDE._first_head(network, mixture, key), mixture)
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, shape = jax.tree.flatten(arrays)
    leaves = [leaf + 0.1 * rng.normal(size=leaf.shape) for leaf in leaves]  # the head is at zero
    # all weights at once in some directions, and the variances, which are last, one by one
    steps = [[rng.normal(size=leaf.shape) for leaf in leaves] for _ in range(5)]
    steps += [[*(np.zeros(leaf.shape) for leaf in leaves[:-1]), one.reshape(3, 2)]
              for one in np.eye(6)]  # fmt: skip

    def bound(leaves):
        model = eqx.combine(jax.tree.unflatten(shape, leaves), rest)
        return _negative_elbo(model, state, (images,), key)[0]

    with jax.enable_x64(True):
        value_and_gradient = jax.jit(jax.value_and_grad(bound))

        def at(step, size):
            return value_and_gradient([a + size * s for a, s in zip(leaves, step, strict=True)])

        gradient = at(steps[0], 0.0)[1]
        numbers = [float(at(step, 1e-6)[0] - at(step, -1e-6)[0]) / 2e-6 for step in steps]
        slopes = [sum(np.vdot(g, s) for g, s in zip(gradient, step, strict=True)) for step in steps]
    np.testing.assert_allclose(slopes, numbers, rtol=1e-6, atol=1e-7)
    assert np.abs(numbers).min() > 1e-3


def test_log_likelihood_of_pixels_by_hand():
    images = jnp.asarray([[1.0, 0.0, 0.25]]).reshape(1, 1, 3, 1)
    logits = jnp.log(jnp.asarray([3.0, 1.0, 1 / 3])).reshape(1, 1, 3, 1)  # p = 3/4, 1/2, 1/4
    by_hand = np.log(0.75) + np.log(0.5) + 0.25 * np.log(0.25) + 0.75 * np.log(0.75)
    assert log_bernoulli(images, logits)[0] == pytest.approx(by_hand, rel=1e-5)


# -------------------------------------------------------------------- networks


@pytest.mark.parametrize(("frame", "small"), [((28, 27), (14, 14)), ((7, 8), (4, 4))])
def test_transposed_convolution_spreads_every_pixel_over_five_by_five(frame, small):
    layer = Transposed(3, 2, frame, last=True, key=jax.random.key(1))
    x = np.random.default_rng(0).normal(size=(3, *small)).astype(np.float32)
    out = np.zeros((2, 2 * small[0] + 6, 2 * small[1] + 6))
    for i in range(small[0]):
        for j in range(small[1]):
            spread = np.einsum("abon,n->oab", layer.weight, x[:, i, j])
            out[:, 2 * i : 2 * i + 5, 2 * j : 2 * j + 5] += spread
    expected = out[:, 2 : 2 + frame[0], 2 : 2 + frame[1]] + layer.bias
    np.testing.assert_allclose(layer(jnp.asarray(x), None)[0], expected, atol=1e-5)


@pytest.mark.parametrize("architecture", ["mlp", "conv"])
@pytest.mark.parametrize("shape", [(9, 14, 3), (4, 5, 1)])
def test_a_network_gives_images_of_the_same_shape(architecture, shape):
    def there_and_back(images):
        network, state = make_network(architecture, shape, 10, jax.random.key(0))
        codes, state = encode(network, images, state)
        return codes, decode(network, codes, state)[0]

    codes, logits = jax.eval_shape(there_and_back, jnp.zeros((2, *shape)))
    assert codes.shape == (2, 10) and logits.shape == (2, *shape)


def test_the_networks_have_the_published_sizes(monkeypatch):
    assert PUBLISHED == ((500, 500, 2000), 32, 400)
    for name, value in zip(("HIDDEN", "FILTERS", "DENSE"), PUBLISHED, strict=True):
        monkeypatch.setattr(networks, name, value)
    dense, conv = (
        eqx.filter_eval_shape(
            lambda k, a=a: make_network(a, (28, 28, 1), 10, k)[0], jax.random.key(0)
        )
        for a in ("mlp", "conv")
    )
    shapes = [layer.linear.weight.shape for layer in (*dense.encoder[1:], *dense.decoder[:-1])]
    widths = [784, 500, 500, 2000, 10, 2000, 500, 500, 784]
    assert shapes == [(b, a) for a, b in zip(widths[:-1], widths[1:], strict=True)]
    shapes = [layer.filters.weight.shape for layer in conv.encoder[1:4]]
    assert shapes == [(32, 1, 5, 5), (32, 32, 5, 5), (32, 32, 5, 5)]
    assert [layer.linear.weight.shape for layer in conv.encoder[5:]] == [(400, 512), (10, 400)]


def test_every_row_is_in_an_epoch_and_every_batch_is_full():
    index = epoch_batches(10, 4, np.random.default_rng(0))
    assert index.shape == (3, 4) and set(index.ravel()) == set(range(10))
    assert epoch_batches(3, 64, np.random.default_rng(0)).shape == (1, 3)


def test_training_stops_at_the_last_finite_network():
    network, state = make_network("mlp", (4, 4, 1), 2, jax.random.key(0))
    log = []

    def loss(model, state, rows, key):
        bad = jnp.where(rows[0].max() > 1, jnp.nan, 1.0)
        return bad * sum((a**2).sum() for a in jax.tree.leaves(model) if a is not None), state

    model = network.encoder[1].linear
    trainer = Trainer(model, state, loss, optax.sgd(0.1), np.random.default_rng(0), "s", log.append)
    rows = np.zeros((4, 1), np.float32)
    assert trainer.run((rows,), [[0, 1]])
    kept = trainer.model
    with pytest.warns(ConvergenceWarning, match="'s' is not finite in epoch 2"):
        assert not trainer.run((rows + 2,), [[0, 1]])
    assert trainer.model is kept and trainer.diverged
    assert [e["loss"] is None for e in log] == [False, True]


def test_a_finite_loss_with_a_gradient_that_is_not_stops_it_too():
    """The root has no gradient at zero: the loss is finite, the step is not."""

    def loss(model, state, rows, key):
        return jnp.sqrt(jnp.abs(model["w"] * rows[0])).sum(), state

    trainer = Trainer({"w": jnp.ones(())}, None, loss, optax.sgd(0.1),
                      np.random.default_rng(0), "s", lambda entry: None)  # fmt: skip
    assert trainer.run((np.ones((2, 1), np.float32),), [[0, 1]])
    kept = trainer.model
    with pytest.warns(ConvergenceWarning, match="'s' is not finite in epoch 2"):
        assert not trainer.run((np.zeros((2, 1), np.float32),), [[0, 1]])
    assert trainer.diverged and trainer.model is kept and np.isfinite(trainer.model["w"])


def test_a_last_step_that_is_too_long_stops_it_too():
    """Loss, gradient and weights are finite, the loss of the new weights is not."""

    def loss(model, state, rows, key):
        return (model["w"] ** 2 * rows[0]).sum(), state

    trainer = Trainer({"w": jnp.ones(())}, None, loss, optax.sgd(1e25),
                      np.random.default_rng(0), "s", lambda entry: None)  # fmt: skip
    kept = trainer.model
    with pytest.warns(ConvergenceWarning, match="'s' is not finite in epoch 1"):
        assert not trainer.run((np.ones((2, 1), np.float32),), [[0, 1]])
    assert trainer.diverged and trainer.model is kept


def test_rows_held_out_take_no_part():
    rows = np.arange(20.0)[:, None]
    taught, (held,) = hold_out(rows, 0.25, np.random.default_rng(0))
    assert len(held) == 5 and sorted([*taught.ravel(), *held.ravel()]) == list(range(20))
    assert hold_out(rows[:9], 0.1, np.random.default_rng(0))[1] is None


def test_the_network_of_the_lowest_held_out_loss_is_kept():
    # the model goes up by 0.1 a step, towards what it is taught; what is held out lies at 0.32
    def loss(model, state, rows, key):
        return jnp.abs(model["w"] - rows[0]).mean(), state

    log = []
    trainer = Trainer({"w": jnp.zeros(())}, None, loss, optax.sgd(0.1),
                      np.random.default_rng(0), "s", log.append)  # fmt: skip
    one = np.ones((4, 1), np.float32)
    trainer.epochs((one,), 9, 4, held=(0.32 * one,), patience=2)
    assert trainer.model["w"] == pytest.approx(0.3)
    assert len(log) == 6 and [round(e["held_out"], 2) for e in log[:4]] == [0.22, 0.12, 0.02, 0.08]


# ----------------------------------------------------------------- autoencoder


def test_reconstructions_are_near_and_in_the_images_own_scale(start, bars):
    X = bars[0]
    back = start.inverse_transform(start.transform(X))
    assert back.shape == X.shape
    error = ((back - X) ** 2).mean()
    assert error < 0.3 * X.var()
    assert start.loss_ == pytest.approx(error * X[0].size / (X.max() - X.min()) ** 2, rel=1e-3)


def test_a_saved_autoencoder_is_the_same(start, bars, tmp_path):
    start.save(tmp_path / "ae.npz")
    again = Autoencoder.load(tmp_path / "ae.npz", architecture=start.architecture)
    np.testing.assert_array_equal(again.transform(bars[0]), start.transform(bars[0]))
    assert again.history_ == start.history_ and again.history_
    assert again.diverged_ is start.diverged_
    np.savez(tmp_path / "foreign.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match=r"foreign.npz was not written by Autoencoder.save"):
        Autoencoder.load(tmp_path / "foreign.npz", architecture=start.architecture)
    other = "conv" if start.architecture == "mlp" else "mlp"
    with pytest.raises(ValueError, match=f"does not hold a network '{other}'"):
        Autoencoder.load(tmp_path / "ae.npz", architecture=other)


def test_codes_brought_to_one_scale_leave_the_images_as_they_are(start, bars):
    codes = start.transform(bars[0]).astype(np.float64)
    network, scaled = _standardised(start.network_, codes)
    assert abs(scaled.mean()) < 1e-6 and scaled.var(0).mean() == pytest.approx(1)
    z, _ = encode(eqx.nn.inference_mode(network), jnp.asarray(start.check(bars[0])), start.state_)
    np.testing.assert_allclose(z, scaled, atol=1e-4)
    again = decode(eqx.nn.inference_mode(network), z, start.state_)[0]
    before = decode(eqx.nn.inference_mode(start.network_), jnp.asarray(codes, np.float32),
                    start.state_)[0]  # fmt: skip
    np.testing.assert_allclose(again, before, atol=1e-3)


def test_layers_are_trained_one_after_the_other(bars):
    ae = Autoencoder(epochs=1, layer_epochs=2, batch_size=16, random_state=0).fit(bars[0])
    stages = [e["stage"] for e in ae.history_]
    assert stages == [f"layer {i}" for i in (1, 1, 2, 2, 3, 3, 4, 4)] + ["whole"]


# -------------------------------------------------------------------- contract


@pytest.fixture(scope="module", params=METHODS)
def fitted(request, start, bars):
    cls, options = METHODS[request.param]
    km = cls(2, architecture=start.architecture, autoencoder=start, **QUICK, **options)
    return km.fit(bars[0])


def test_two_kinds_of_bars_are_told_apart(fitted, bars):
    X, y = bars
    assert fitted.labels_.dtype == np.int32 and fitted.labels_.shape == (40,)
    assert len({(a, b) for a, b in zip(fitted.labels_, y, strict=True)}) == 2
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    assert fitted.n_used_ == 2 and fitted.n_iter_ >= 1 and np.isfinite(fitted.inertia_)
    assert fitted.cluster_centers_.shape == (2, *X.shape[1:]) and fitted.encode(X).shape == (40, 10)
    assert 0 <= fitted.cluster_centers_.min() and fitted.cluster_centers_.max() <= X.max() + 1e-3


def test_the_same_seed_gives_the_same_fit(fitted, bars):
    again = clone(fitted).set_params(autoencoder=fitted.autoencoder).fit(bars[0])
    np.testing.assert_array_equal(again.labels_, fitted.labels_)
    assert again.inertia_ == fitted.inertia_
    np.testing.assert_array_equal(again.cluster_centers_, fitted.cluster_centers_)


def test_probabilities_sum_to_one_and_agree_with_the_labels(fitted, bars):
    if not hasattr(fitted, "predict_proba"):
        pytest.skip("K-means has no probabilities")
    p = fitted.predict_proba(bars[0])
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(p.argmax(1), fitted.labels_)


@pytest.mark.parametrize("name", METHODS)
def test_flat_images_and_no_autoencoder_given(name, bars):
    cls, options = METHODS[name]
    X = bars[0][..., 0]
    flat = cls(2, image_shape=(12, 10), **QUICK, **options).fit(X.reshape(len(X), -1))
    square = cls(2, **QUICK, **options).fit(X)
    np.testing.assert_array_equal(flat.labels_, square.labels_)
    assert flat.cluster_centers_.shape == (2, 12, 10)
    assert {e["stage"] for e in flat.history_} >= {"layer 1", "whole"}


@pytest.mark.parametrize(
    ("name", "architecture"), [("AEKMeans", "conv"), ("DEC", "mlp"), ("VaDE", "conv")]
)
def test_images_without_variance_give_one_cluster_and_a_warning(name, architecture):
    cls, options = METHODS[name]
    km = cls(2, architecture=architecture, **{**QUICK, "pretrain_epochs": 1}, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        km.fit(np.full((20, 8, 8), 7.0))
    assert any("have no image" in str(w.message) for w in caught) == (km.n_used_ < 2)
    assert np.isfinite(km.inertia_) and np.isfinite(km.cluster_centers_).all()


@pytest.fixture(scope="module", params=[DEC, VaDE])
def untrained(request):
    """Fitted to digits with a black rim, no epoch before the clustering; images and warnings."""
    cls, X = request.param, digits(500).copy()
    X[:, [0, -1]] = X[:, :, [0, -1]] = 0  # a few digits touch it
    options = {"max_updates": 2, "update_interval": 8} if cls is DEC else {"epochs": 1}
    km = cls(10, layer_epochs=0, pretrain_epochs=0, random_state=0, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        km.fit(X)
    return km, X, [str(w.message) for w in caught]


def test_O6_without_training_the_clusters_in_use_are_counted(untrained):
    km, _, caught = untrained
    assert km.n_used_ == len(np.unique(km.labels_)) and np.isfinite(km.inertia_)
    said = [text for text in caught if "have no image" in text]
    assert bool(said) == (km.n_used_ < 10)
    assert not said or said[0].startswith(f"{10 - km.n_used_} of 10 clusters")


def test_S11_pixels_that_are_the_same_in_all_images_give_a_finite_loss(untrained):
    """The rim of the digits: its variance, by which a network could divide, is zero."""
    km, X, _ = untrained
    assert (np.ptp(X, 0) == 0).sum() >= 4 * 27
    losses = [v for e in km.history_ for v in e.values() if isinstance(v, float)]
    assert losses and np.isfinite(losses).all()
    assert np.isfinite(km.inertia_) and np.isfinite(km.cluster_centers_).all()


@pytest.fixture(scope="module")
def colours():
    """390 images in one of three colours, as many as the set of heads has, not square; their start.

    The start is an autoencoder, as every method has one.
    """
    rng = np.random.default_rng(0)
    kinds = np.arange(390) % 3
    X = rng.integers(0, 60, (390, 12, 16, 3), dtype=np.uint8)
    X[np.arange(390), :, :, kinds] += 150
    options = {"layer_epochs": 0, "epochs": 6, "learning_rate": 1e-2, "validation": 0.0}
    return X, kinds, Autoencoder("mlp", random_state=0, **options).fit(X)


@pytest.mark.parametrize("name", METHODS)
def test_many_colour_images_of_two_sides(name, colours):
    cls, options = METHODS[name]
    X, kinds, start = colours
    few = {DEC: {"max_updates": 2}, VaDE: {"epochs": 1, "validation": 0.0}}  # seconds to compile
    km = cls(3, autoencoder=start, random_state=0, **options | few.get(cls, {})).fit(X)
    assert km.labels_.shape == (390,) and km.cluster_centers_.shape == (3, 12, 16, 3)
    assert len({*zip(km.labels_, kinds, strict=True)}) == 3  # one kind a cluster
    np.testing.assert_array_equal(km.predict(X[:70]), km.labels_[:70])
    # the prototype of a kind is brightest in its channel
    shown = km.cluster_centers_.mean((1, 2)).argmax(1)
    np.testing.assert_array_equal(shown[km.labels_], kinds)


@pytest.mark.parametrize("cls", [DEC, VaDE])
def test_a_fit_that_diverges_says_when_and_ends_as_it_began(cls, colours):
    X, kinds, start = colours
    options = {"validation": 0.0} if cls is VaDE else {"update_interval": 8}
    with pytest.warns(ConvergenceWarning, match=f"'{cls.__name__}' is not finite in epoch 1"):
        km = cls(3, autoencoder=start, learning_rate=1e12, random_state=0, **options).fit(X)
    assert km.diverged_ and [e["loss"] for e in km.history_ if e["stage"] == cls.__name__] == [None]
    assert np.isfinite(km.cluster_centers_).all() and np.isfinite(km.inertia_)
    assert len({*zip(km.labels_, kinds, strict=True)}) == 3


def test_DEC_ends_when_fewer_labels_than_one_in_a_thousand_change(monkeypatch):
    changes = iter([[], range(3), range(2), range(1), []])
    labels = np.repeat([0, 1], 1000)

    def assignment(model, state, scaled):
        for row in next(changes):
            labels[row] = 1 - labels[row]
        return np.eye(2)[labels] * 0.8 + 0.1

    monkeypatch.setattr(DEC, "_q", staticmethod(assignment))
    X = np.random.default_rng(0).random((2000, 4, 4))
    options = {"layer_epochs": 0, "pretrain_epochs": 0, "update_interval": 1}
    km = DEC(2, random_state=0, **options).fit(X)
    # 2 of 2000 are one in a thousand, 1 is fewer
    assert [e["changed"] for e in km.history_] == [1.0, 3 / 2000, 2 / 2000]
    assert km.n_iter_ == 4 and not km.diverged_


WRONG = [
    ({"n_clusters": 0}, "n_clusters=0"),
    ({"n_clusters": 41}, "n_samples=40 should be >= n_clusters=41"),
    ({"architecture": "cnn"}, "'mlp', 'conv'"),
    ({"batch_size": 1}, "batch_size=1"),
    ({"pretrain_epochs": -1}, "pretrain_epochs=-1"),
    ({"pretrain_learning_rate": 0.0}, "pretrain_learning_rate=0"),
    ({"autoencoder": "mine"}, "autoencoder='mine'"),
]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(("change", "words"), WRONG)
def test_a_wrong_parameter_is_named(name, change, words, bars):
    with pytest.raises(ValueError, match=words):
        METHODS[name][0](**{"n_clusters": 2, **change}).fit(bars[0])


@pytest.mark.parametrize(
    ("cls", "change"),
    [(DEC, {"momentum": 1.0}), (DEC, {"update_interval": 0}), (VaDE, {"decay": 0.0}),
     (VaDE, {"learning_rate": 0.0}), (DEC, {"tol": -1.0})],
)  # fmt: skip
def test_a_wrong_parameter_of_one_method_is_named(cls, change, bars):
    (name,) = change
    with pytest.raises(ValueError, match=name):
        cls(2, **change).fit(bars[0])


def test_nan_and_other_shapes_are_refused(fitted, bars):
    with pytest.raises(ValueError, match="NaN"):
        AEKMeans(2).fit(np.where(np.arange(bars[0].size).reshape(bars[0].shape) == 5, np.nan, 1.0))
    with pytest.raises(ValueError, match="but the fit had"):
        fitted.predict(bars[0][:, :-1])
