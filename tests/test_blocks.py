"""Images read in blocks: any sequence, the same results, bounded memory, named errors."""

import numpy as np
import pytest
from helpers import bars
from hypothesis import given
from hypothesis import strategies as st

from stkm import STKMeans
from stkm.blocks import Images, block_length, row_bytes


class Records:
    """A data source as tensorflow-datasets has them: records by number, no array."""

    def __init__(self, images, many=False):
        self.images, self.read = images, []
        if many:
            self.__getitems__ = lambda index: [self[i] for i in index]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        self.read.append(i)
        return {"image": self.images[i], "label": 0}


@pytest.fixture(scope="module")
def fitted():
    X, _ = bars(150)
    return STKMeans(3, landmarks=3, n_swaps=1, random_state=0).fit(X), X


def memory_of(tmp_path, X):
    np.save(tmp_path / "x.npy", X)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


# ---------------------------------------------------------------- reading


@given(st.lists(st.integers(0, 19), min_size=1, max_size=30), st.integers(0, 20))
def test_a_sequence_holds_what_the_array_holds(index, start):
    X = (np.arange(20 * 20) % 256).astype(np.uint8).reshape(20, 4, 5)
    for source in (X, Records(X), Records(X, many=True), [x.tolist() for x in X]):
        images = Images(source)
        assert len(images) == 20 and images.shape == (4, 5, 1) and images.grey
        assert np.array_equal(images[np.array(index)][..., 0], X[index])
        if start < 20:
            assert np.array_equal(images[start : start + 7][..., 0], X[start : start + 7])
        assert images[0:1].dtype == np.float32  # the scale of the integers stays


def test_images_flat_in_colour_and_as_pairs():
    X = np.random.default_rng(0).random((6, 8, 9, 3), np.float32)
    assert np.array_equal(Images(X.reshape(6, -1), (8, 9, 3))[2:4], X[2:4])
    assert Images(X).shape == (8, 9, 3) and not Images(X).grey

    class Pairs(Records):
        def __getitem__(self, i):
            return self.images[i], 5

    assert np.array_equal(Images(Pairs(X))[1:3], X[1:3])


def test_only_what_is_asked_is_read():
    records = Records(np.zeros((10**6, 4, 4), np.uint8))
    Images(records)[np.array([7, 5000])]
    assert records.read == [0, 7, 5000]


WRONG = {
    "none": (Records(np.zeros((0, 4, 4))), "0 image(s)"),
    "small": (Records(np.zeros((3, 3, 8))), "3x8 pixels"),
    "text": (Records(np.full((3, 4, 4), "a")), "must be numbers"),
    "one colour image": (np.ones((20, 20, 3)), "X[None]"),
    "one image": (np.ones((20, 20)), "X[None]"),
    "features": (np.ones((20, 20)), "Expected images"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_set_of_images_is_named(name):
    with pytest.raises(ValueError) as e:
        Images(WRONG[name][0])
    assert WRONG[name][1] in str(e.value)


def test_a_bad_image_further_on_is_named():
    X = np.ones((9, 4, 4))
    X[6, 1, 1] = np.nan
    assert len(Images(X)[0:6]) == 6
    with pytest.raises(ValueError, match="images 4 to 8: .*contains NaN"):
        Images(X)[4:9]
    mixed = Records([np.ones((4, 4)), np.ones((4, 5)), np.ones((4, 5))])
    with pytest.raises(ValueError, match=r"image 1 has shape \(4, 5\), image 0 \(4, 4\)"):
        Images(mixed)[0:2]
    with pytest.raises(ValueError, match=r"shape \(4, 5\), the first has \(4, 4, 1\)"):
        Images(mixed)[1:3]

    class Other(Records):
        def __getitem__(self, i):
            return {"x": self.images[i]}

    with pytest.raises(ValueError, match="records need an 'image'"):
        Images(Other([1]))


# ---------------------------------------------------------------- blocks


def test_a_block_fits_in_its_limit():
    each = row_bytes((28, 28, 1), 10, 72)
    assert block_length(each) * each <= 2**30 < 2 * block_length(each) * each
    assert block_length(each, 100) * each <= 100 * 2**20
    assert block_length(each, 1e-6) == 64  # the least, whatever the limit
    for limit in (0, -1, np.nan, "much"):
        with pytest.raises(ValueError, match="memory_limit="):
            block_length(each, limit)


def test_blocks_change_no_distance(fitted, tmp_path):
    km, X = fitted
    whole = km.transform(X)
    small = STKMeans(3, landmarks=3, n_swaps=1, memory_limit=1e-3, random_state=0).fit(X)
    assert small._model.block(3) == 64
    assert np.array_equal(small.labels_, km.labels_)
    assert np.array_equal(small.cluster_centers_, km.cluster_centers_)
    assert small.inertia_ == km.inertia_
    for source in (X, memory_of(tmp_path, X), Records(X)):
        assert np.array_equal(small.transform(source), whole)
        assert np.array_equal(small.predict(source), km.predict(X))
    a, b = small.align(X), km.align(X)
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert small.score(X) == km.score(X)


def test_a_sequence_is_fitted_as_the_array_is(fitted):
    km, X = fitted
    again = STKMeans(3, landmarks=3, n_swaps=1, random_state=0).fit(Records(X))
    assert np.array_equal(again.labels_, km.labels_)
    assert np.array_equal(again.cluster_centers_, km.cluster_centers_)
