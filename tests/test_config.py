"""`params.yaml` is read whole and checked: a slip in it stops everything at once."""

import dataclasses

import pytest
import yaml

from stkm import config, paths
from stkm.config import ConfigError


@pytest.fixture
def tree():
    return yaml.safe_load(paths.PARAMS.read_text())


@pytest.fixture
def load(tmp_path):
    def load(tree, **kwargs):
        path = tmp_path / "params.yaml"
        path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
        return config.load(path, **kwargs)

    return load


def test_the_project_file_holds_every_key_and_value(tree):
    cfg = config.load()
    assert cfg.profile == tree["profile"] == "default"
    assert set(cfg.profiles) == {"smoke", "default", "paper"}
    assert cfg.methods == tuple(tree["methods"]) and cfg.datasets == tuple(tree["datasets"])
    assert dataclasses.asdict(cfg.run) == tree["profiles"]["default"]
    assert dataclasses.asdict(cfg.seeds) == tree["seeds"]
    for name, block in tree["method"].items():
        assert dataclasses.asdict(cfg.method(name)) == block


def test_the_profile_line_stands_alone_at_the_margin():
    lines = paths.PARAMS.read_text().splitlines()
    assert [line for line in lines if line.startswith("profile:")] == ["profile: default"]


def test_profile_argument_beats_environment_beats_file(load, tree, monkeypatch):
    assert load(tree).profile == "default"
    monkeypatch.setenv("STKM_PROFILE", "smoke")
    assert load(tree).run == config.load().profiles["smoke"]
    assert load(tree, profile="paper").profile == "paper"
    monkeypatch.setenv("STKM_PROFILE", "")
    assert load(tree).profile == "default"


def test_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.load().run.n_runs = 3


def _set(tree, dotted, value):
    *parents, last = dotted.split(".")
    for key in parents:
        tree = tree[key]
    tree[last] = value


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("profiles.smoke.n_trian", 5, r"'n_trian' in profiles.smoke; did you mean 'n_train'"),
        ("profil", "smoke", r"unknown key 'profil' in params.yaml; did you mean 'profile'"),
        ("profile", "smok", r"unknown profile 'smok'; did you mean 'smoke'"),
        ("methods", ["st_papr"], r"unknown method 'st_papr'; did you mean 'st_paper'"),
        ("method.kmaens", {}, r"unknown method 'kmaens' in method; did you mean 'kmeans'"),
        ("method.st.landmarks", "six", r"method.st.landmarks must be a whole number, not 'six'"),
        ("method.st.landmarks", 6.5, r"method.st.landmarks must be a whole number"),
        ("method.st.landmarks", True, r"method.st.landmarks must be a whole number, not True"),
        ("method.st.landmarks", 0, r"at least 1, not 0"),
        ("method.st.landmarks", None, r"method.st.landmarks must be"),
        ("method.st.bending", -1.0, r"method.st.bending must be a number of at least 0"),
        ("method.st.bending", float("nan"), r"method.st.bending must be a number"),
        ("method.st.bending", float("inf"), r"method.st.bending must be a number"),
        ("method.st", None, r"method.st must be a block"),
        ("seeds", [0], r"seeds must be a block"),
        ("datasets", "mnist5k", r"datasets must be a list"),
        ("datasets", ["mnist5k", "mnist5k"], r"names something twice"),
        ("profile", 3, r"profile must be of type str"),
        ("further.datasets", ["usps", "mnist5k"], r"names a set that `datasets` has"),
        ("further.methods", ["dec"], r"unknown method of further 'dec'"),
        ("further.deep", ["st"], r"unknown method of further.deep 'st'"),
        ("further.deep", ["dec_conv"], r"further.deep has 'dec_conv', but further.architectures"),
        ("ablation", ["usps"], r"unknown data set of ablation 'usps'"),
        ("further.ablation", ["mnist5k"], r"unknown data set of further.ablation 'mnist5k'"),
    ],
)
def test_a_wrong_key_or_value_is_named(load, tree, key, value, message):
    _set(tree, key, value)
    with pytest.raises(ConfigError, match=message):
        load(tree)


@pytest.mark.parametrize("key", ["profiles.smoke.n_runs", "method.st.bending", "seeds", "methods"])
def test_a_missing_key_is_named(load, tree, key):
    *parents, last = key.split(".")
    block = tree
    for parent in parents:
        block = block[parent]
    del block[last]
    with pytest.raises(ConfigError, match=f"lacks the key '{last}'"):
        load(tree)


def test_a_missing_method_block_is_named(load, tree):
    del tree["method"]["affine"]
    with pytest.raises(ConfigError, match="method lacks the method 'affine'"):
        load(tree)


def test_null_means_all_only_where_allowed(load, tree):
    tree["profiles"]["smoke"]["n_train"] = None
    assert load(tree).profiles["smoke"].n_train is None
    tree["profiles"]["smoke"]["n_runs"] = None
    with pytest.raises(ConfigError, match="n_runs"):
        load(tree)


def test_an_exponent_without_a_point_gets_a_hint(load):
    text = paths.PARAMS.read_text().replace("tol: 1.0e-4", "tol: 1e-4", 1)
    with pytest.raises(ConfigError, match=r"decimal point, as in 1.0e-4"):
        load(text)


def test_a_whole_number_is_a_fine_weight(load, tree):
    tree["method"]["st"]["bending"] = 2
    bending = load(tree).method("st").bending
    assert bending == 2.0 and isinstance(bending, float)


def test_a_key_given_twice_is_refused(load):
    text = paths.PARAMS.read_text() + "\nseeds: {base: 1}\n"
    with pytest.raises(ConfigError, match="'seeds' is given twice"):
        load(text)


@pytest.mark.parametrize("text", ["a: [1", "\t", "- 1\n- 2\n", "", "a: !!python/name:os.system"])
def test_a_file_that_is_no_plain_mapping_is_refused(load, text):
    with pytest.raises(ConfigError, match=r"params\.yaml"):
        load(text)


def test_a_file_that_is_absent_says_where_it_should_be(tmp_path):
    with pytest.raises(ConfigError, match="STKM_ROOT"):
        config.load(tmp_path / "params.yaml")


def test_names_asked_for_are_checked():
    cfg = config.load()
    assert cfg.dataset("mnist5k") == "mnist5k"
    with pytest.raises(ConfigError, match="unknown data set 'mnist5'; did you mean 'mnist5k'"):
        cfg.dataset("mnist5")
    with pytest.raises(ConfigError, match="unknown method 'kmean'; did you mean 'kmeans'"):
        cfg.method("kmean")


def test_a_further_set_has_its_own_sizes_runs_and_folder():
    cfg = config.load(profile="smoke")
    name = cfg.further.datasets[0]
    assert cfg.on("mnist5k") is cfg and cfg.on("one_s_own") is cfg
    there = cfg.on(name)
    assert (there.run.n_train, there.run.n_test) == (cfg.run.further_train, cfg.run.further_test)
    assert there.run.n_runs == there.run.deep_runs == cfg.run.further_runs
    assert there.run.paper_epochs == cfg.run.paper_epochs
    assert there.runs_folder == there.deep_folder == paths.FURTHER != cfg.runs_folder
    assert cfg.deep_folder == paths.DEEP and cfg.profiles["paper"] == there.profiles["paper"]


def test_a_name_like_nothing_known_gets_the_list_only():
    assert config.suggest("zzz", ["one", "two"]) == "; known: one, two"
