"""Changes are fitted from the same seeds, and compared in pairs."""

import numpy as np
import pytest
from helpers import bars
from scipy.stats import spearmanr, t

from stkm import STKMeans, ablation


def test_every_change_is_fitted_with_every_seed():
    X, _ = bars(30)
    changes = {"default": {"landmarks": 3}, "fixed": {"landmarks": 3, "prior": "fixed"}}
    found = ablation.fits(changes, X, X[:7], 3, [5, 2], at_most=1)
    assert list(found) == list(changes) and [f.seed for f in found["fixed"]] == [5, 2]
    km = STKMeans(3, landmarks=3, prior="fixed", random_state=2).fit(X)
    fit = found["fixed"][1]
    assert fit.objective == km.inertia_ and np.array_equal(fit.labels, km.labels_)
    assert np.array_equal(fit.new_labels, km.labels_[:7])
    assert fit.largest == np.bincount(km.labels_).max()


def test_a_parameter_that_is_not_there_stops_before_any_fit(monkeypatch):
    monkeypatch.setattr(ablation, "run_each", lambda *a: pytest.fail("it ran"))
    with pytest.raises(ValueError, match="landmark"):
        ablation.fits({"typo": {"landmark": 3}}, np.zeros((9, 8, 8)), np.zeros((1, 8, 8)), 2, [0])


def test_paired_difference():
    a, b = [0.9, 0.8, 0.95], [0.7, 0.75, 0.8]
    gap = np.subtract(a, b)
    half = t.ppf(0.975, 2) * gap.std(ddof=1) / np.sqrt(3)
    mean, low, high = ablation.difference(a, b)
    assert (mean, low, high) == pytest.approx((gap.mean(), gap.mean() - half, gap.mean() + half))
    assert ablation.difference([0.5], [0.25]) == (0.25, 0.25, 0.25)
    assert ablation.difference([1.0, 2.0], [0.5, 1.5]) == (0.5, 0.5, 0.5)


def test_rank_correlation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = -x + rng.normal(size=30)
    value, low, high = ablation.rank_correlation(x, y)
    assert value == spearmanr(x, y).statistic and -1 <= low < value < high < 0
    assert ablation.rank_correlation(x, y) == (value, low, high)
    assert np.isnan(ablation.rank_correlation([1, 1, 1], [1, 2, 3])).all()
