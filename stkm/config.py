"""The one reader of ``params.yaml``.

Every number of the experiments stands in ``params.yaml``.  :func:`load` reads it
into frozen dataclasses whose fields are the allowed keys: a key that is unknown,
missing or of another type raises :class:`ConfigError`, which names the key and,
where it looks like a slip, the nearest known one.

To add a knob, add one line to the dataclass of its block and one line to
``params.yaml``; to add a method, add a dataclass to :data:`METHODS`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from stkm import paths

__all__ = ["DEEP_METHODS", "METHODS", "Config", "ConfigError", "Run", "Seeds", "load", "suggest"]

Count = Annotated[int, 1]
"""A whole number of at least 1; a plain ``int`` or ``float`` is at least 0."""


class ConfigError(ValueError):
    """Something in ``params.yaml``, or a name asked of it, is wrong."""


# --------------------------------------------------------------------- blocks


@dataclass(frozen=True)
class Seeds:
    """Where the random numbers start: run i uses ``base + i``."""

    base: int


@dataclass(frozen=True)
class Run:
    """One profile: how much of everything is computed.

    ``None`` stands for all images, and elsewhere for the package's own default.
    """

    n_train: Count | None
    n_test: Count | None
    n_runs: Count
    tsne_images: Count
    max_iter: Count | None
    n_swaps: int | None
    paper_epochs: Count
    workers: Count | None
    timing_pairs: Count
    timing_images: Count
    timing_doublings: Count
    timing_points: Count
    ablation_images: Count | None
    ablation_runs: Count
    ablation_changes: Count | None
    scaling_images: Count
    scaling_doublings: int
    scaling_devices: Count
    deep_runs: Count
    layer_epochs: int
    pretrain_epochs: Count
    dec_updates: Count
    vade_epochs: Count
    further_train: Count | None
    further_test: Count | None
    further_runs: Count
    # theory, choice without labels, accuracy against distortion
    theory_images: Annotated[int, 3]
    theory_pairs: Annotated[int, 2]
    theory_fit: Count
    theory_points: Annotated[int, 2]
    theory_epochs: Count
    selection_images: Count | None
    selection_repeats: Count
    selection_values: Count | None
    distortion_images: Count | None
    distortion_values: Count | None


@dataclass(frozen=True)
class KMeans:
    """scikit-learn's K-means on the raw pixels."""

    title: ClassVar[str] = "K-means"

    max_iter: Count
    tol: float


@dataclass(frozen=True)
class Affine:
    """AI K-means: the warp loop with the affine basis; ``None``: the package's default."""

    title: ClassVar[str] = "AI K-means"

    displacement: float | None
    smoothing: float | None


@dataclass(frozen=True)
class STPaper:
    """ST K-means as published (Eq. 3, Adam)."""

    title: ClassVar[str] = "ST K-means (paper mode)"

    landmarks: Count
    learning_rate: float


@dataclass(frozen=True)
class ST:
    """ST K-means with penalised warps; ``None``: the package's default."""

    title: ClassVar[str] = "ST K-means (default mode)"

    landmarks: Count
    bending: float | None
    displacement: float | None
    smoothing: float | None


@dataclass(frozen=True)
class AE:
    """K-means of an autoencoder's code; one autoencoder of each architecture serves all methods."""

    title: ClassVar[str] = "AE + K-means"
    architecture: ClassVar[str] = "mlp"

    learning_rate: float
    dropout: float


@dataclass(frozen=True)
class DEC:
    """Deep embedded clustering."""

    title: ClassVar[str] = "DEC (MLP)"
    architecture: ClassVar[str] = "mlp"

    learning_rate: float
    update_interval: Count
    tol: float


@dataclass(frozen=True)
class DECConv(DEC):
    """The same, with convolutions."""

    title: ClassVar[str] = "DEC (Conv)"
    architecture: ClassVar[str] = "conv"


@dataclass(frozen=True)
class VaDE:
    """Variational deep embedding."""

    title: ClassVar[str] = "VaDE (MLP)"
    architecture: ClassVar[str] = "mlp"

    learning_rate: float
    decay: float


@dataclass(frozen=True)
class VaDEConv(VaDE):
    """The same, with convolutions."""

    title: ClassVar[str] = "VaDE (Conv)"
    architecture: ClassVar[str] = "conv"


METHODS: dict[str, Any] = {
    "kmeans": KMeans,
    "affine": Affine,
    "st_paper": STPaper,
    "st": ST,
    "ae": AE,
    "dec": DEC,
    "dec_conv": DECConv,
    "vade": VaDE,
    "vade_conv": VaDEConv,
}
"""The block of each method of the ``method:`` section; its ``title`` is for tables and figures."""

DEEP_METHODS = tuple(name for name, block in METHODS.items() if hasattr(block, "architecture"))
"""Methods that begin with an autoencoder: named in ``deep:``, the others in ``methods:``."""


@dataclass(frozen=True)
class Deep:
    """What the deep methods run on, and which of them."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    architectures: tuple[str, ...]


@dataclass(frozen=True)
class Further:
    """Data sets whose files have to be fetched, and the methods that run on them."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    deep: tuple[str, ...]
    architectures: tuple[str, ...]
    ablation: tuple[str, ...]


@dataclass(frozen=True)
class Config:
    """All of ``params.yaml``, checked.

    Attributes
    ----------
    profile : str
        Name of the active profile.
    datasets, methods : tuple of str
        What the pipeline runs.
    ablation : tuple of str
        Those of the data sets on which the parts of the default mode are taken away, one by one.
    selection, distortion : tuple of str
        Those on which the choices without labels, and accuracy against distortion, are measured.
    deep : Deep
        What the deep methods run on.
    further : Further
        Data sets of the pipeline ``data/dvc.yaml``; see :meth:`on`.
    seeds : Seeds
    profiles : dict of str to Run
    method_blocks : dict of str to dataclass
        One block per method; read it with :meth:`method`.
    runs_folder, deep_folder : Path
        Where the results of the methods and of the deep methods go.
    """

    profile: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    ablation: tuple[str, ...]
    selection: tuple[str, ...]
    distortion: tuple[str, ...]
    deep: Deep
    further: Further
    seeds: Seeds
    profiles: dict[str, Run]
    method_blocks: dict[str, Any]
    runs_folder: Path = paths.RUNS
    deep_folder: Path = paths.DEEP

    @property
    def run(self) -> Run:
        """The active profile's block."""
        return self.profiles[self.profile]

    def method(self, name: str) -> Any:
        """Return the block of method `name` (see :data:`METHODS`).

        Raises
        ------
        ConfigError
            If there is no such method.
        """
        return self.method_blocks[_known("method", name, self.method_blocks)]

    def on(self, dataset: str) -> Config:
        """Return the same for one data set.

        A set of :attr:`further` has its own numbers of images and runs, and its own folder.
        """
        if dataset not in self.further.datasets:
            return self
        run = self.run
        sizes: Any = {"n_train": run.further_train, "n_test": run.further_test}
        runs = {"n_runs": run.further_runs, "deep_runs": run.further_runs}
        return dataclasses.replace(
            self,
            profiles={**self.profiles, self.profile: dataclasses.replace(run, **sizes, **runs)},
            runs_folder=paths.FURTHER,
            deep_folder=paths.FURTHER,
        )

    def dataset(self, name: str) -> str:
        """Return `name` if it is one of :attr:`datasets`.

        Raises
        ------
        ConfigError
            If it is not.
        """
        return _known("data set", name, self.datasets)


# -------------------------------------------------------------------- reading


def load(path: str | os.PathLike[str] | None = None, profile: str | None = None) -> Config:
    """Read and check ``params.yaml``.

    Parameters
    ----------
    path : path-like, optional
        The file; ``paths.PARAMS`` by default.
    profile : str, optional
        The profile to make active.  Without it ``STKM_PROFILE`` decides if set
        and not empty (in a stage of the pipeline it may not differ from the
        file), else the file's own ``profile:`` line.

    Returns
    -------
    Config

    Raises
    ------
    ConfigError
        If the file is absent, is not YAML, or holds an unknown, missing or
        mistyped key, or if there is no such profile.
    """
    path = Path(paths.PARAMS if path is None else path)
    tree = _parse(path)
    keys = [f.name for f in dataclasses.fields(Config) if f.default is dataclasses.MISSING]
    keys[keys.index("method_blocks")] = "method"
    lists = ("methods", "datasets", "ablation", "selection", "distortion")
    _check_keys(tree, keys, path.name)
    sections = {key: _mapping(tree[key], key) for key in ("profiles", "method")}
    _check_keys(sections["method"], METHODS, "method", kind="method")
    profiles = {n: _block(Run, b, f"profiles.{n}") for n, b in sections["profiles"].items()}
    written = _value(str, tree["profile"], "profile")
    asked = os.environ.get("STKM_PROFILE")
    if asked and asked != written and "DVC_STAGE" in os.environ:
        # the pipeline knows only what the file says, and would keep the one as the other
        raise ConfigError(
            f"STKM_PROFILE is {asked!r}, but in the pipeline the line `profile:` of {path.name} "
            f"decides, which says {written!r}: change the line, or unset STKM_PROFILE"
        )
    chosen = profile or asked or written
    methods, datasets, ablation, selection, distortion = (
        _value(tuple[str, ...], tree[n], n) for n in lists
    )
    deep = _block(Deep, tree["deep"], "deep")
    further = _block(Further, tree["further"], "further")
    if set(datasets) & set(further.datasets):
        raise ConfigError("further.datasets names a set that `datasets` has")
    plain = [name for name in METHODS if name not in DEEP_METHODS]
    for given, known, kind in (
        (methods, plain, "method"),
        (deep.methods, DEEP_METHODS, "method of deep"),
        (deep.architectures, ("mlp", "conv"), "architecture"),
        (further.architectures, ("mlp", "conv"), "architecture"),
        (further.methods, plain, "method of further"),
        (further.deep, DEEP_METHODS, "method of further.deep"),
        # a stage finds only what its own pipeline prepares
        (ablation, datasets, "data set of ablation"),
        (further.ablation, further.datasets, "data set of further.ablation"),
        (selection, datasets, "data set of selection"),
        (distortion, datasets, "data set of distortion"),
        (deep.datasets, datasets, "data set of deep"),
    ):
        for name in given:
            _known(kind, name, known)
    for where, chosen_methods, architectures in (
        ("deep.methods", deep.methods, deep.architectures),
        ("further.deep", further.deep, further.architectures),
    ):
        for name in chosen_methods:
            if METHODS[name].architecture not in architectures:
                raise ConfigError(
                    f"{where} has {name!r}, but {where.split('.')[0]}.architectures lacks "
                    f"{METHODS[name].architecture!r}"
                )
    return Config(
        profile=_known("profile", chosen, profiles),
        datasets=datasets,
        methods=methods,
        ablation=ablation,
        selection=selection,
        distortion=distortion,
        deep=deep,
        further=further,
        seeds=_block(Seeds, tree["seeds"], "seeds"),
        profiles=profiles,
        method_blocks={
            name: _block(METHODS[name], block, f"method.{name}")
            for name, block in sections["method"].items()
        },
    )


def suggest(name: object, known: Iterable[object]) -> str:
    """Return "; did you mean 'x'? known: …" for a message about an unknown `name`."""
    names = [str(k) for k in known]
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return f"{hint} known: {', '.join(names) or 'none'}"


def _parse(path: Path) -> dict[str, Any]:
    """Return the top-level mapping of the YAML file `path`."""
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, which also refuses a key given twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = sorted({str(key) for key in keys if keys.count(key) > 1})
            if twice:
                line = node.start_mark.line + 1
                raise ConfigError(
                    f"{path}: {twice[0]!r} is given twice in the block at line {line}"
                )
            return super().construct_mapping(node, deep)

    try:
        # A subclass of the safe loader: it builds plain values only.
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; run from a checkout of the project, "
            "or set STKM_ROOT to the folder that holds params.yaml"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    return _mapping(tree, path.name)


def _known(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `name` if it is in `known`, else raise naming the nearest."""
    known = list(known)
    if name not in known:
        raise ConfigError(f"unknown {kind} {name!r}{suggest(name, known)}")
    return name


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{where} must be a block of keys, not {value!r}")
    return value


def _check_keys(block: Mapping[str, Any], known: Iterable[str], where: str, kind="key") -> None:
    """Raise unless the keys of `block` are exactly `known`."""
    known = list(known)
    for key in block:
        if key not in known:
            raise ConfigError(f"unknown {kind} {key!r} in {where}{suggest(key, known)}")
    missing = [key for key in known if key not in block]
    if missing:
        raise ConfigError(f"{where} lacks the {kind} {missing[0]!r}")


def _block(cls: type, value: Any, where: str) -> Any:
    """Build dataclass `cls` from the mapping `value`, every field required."""
    block = _mapping(value, where)
    _check_keys(block, [field.name for field in dataclasses.fields(cls)], where)
    hints = get_type_hints(cls, include_extras=True)
    return cls(**{key: _value(hints[key], block[key], f"{where}.{key}") for key in block})


def _value(hint: Any, value: Any, where: str) -> Any:
    """Return `value` as the type `hint`, or raise naming the key `where`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _value(next(a for a in args if a is not type(None)), value, where)
    if origin is Annotated:
        return _number(args[0], value, where, least=args[1])
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where} is {value!r}{suggest(value, args)}")
        return value
    if origin is tuple:
        return _names(value, where)
    if hint in (int, float):
        return _number(hint, value, where, least=0)
    if not isinstance(value, hint):
        raise ConfigError(f"{where} must be of type {hint.__name__}, not {value!r}")
    return value


def _number(kind: type, value: Any, where: str, least: float) -> Any:
    """Return `value` as an int or float of at least `least`."""
    wanted = "a whole number" if kind is int else "a number"
    # bool is a subclass of int, but `n_runs: yes` is a slip
    accepted = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, accepted):
        hint = ""
        if isinstance(value, str) and kind is float:
            # YAML 1.1 reads 1e-4 as text; it wants the decimal point
            hint = " (write an exponent with a decimal point, as in 1.0e-4)"
        raise ConfigError(f"{where} must be {wanted}, not {value!r}{hint}")
    if not math.isfinite(value) or value < least:
        raise ConfigError(f"{where} must be {wanted} of at least {least}, not {value!r}")
    return kind(value)


def _names(value: Any, where: str) -> tuple[str, ...]:
    """Return a list of distinct names as a tuple."""
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"{where} must be a list of names, not {value!r}")
    if len(set(value)) < len(value):
        raise ConfigError(f"{where} names something twice: {value!r}")
    return tuple(value)
