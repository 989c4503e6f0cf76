"""From images to centroids: what a fit does, step by step, for both optimisers.

`Model` holds what depends on the data and the parameters (penalties, low-passes, tolerances); the
functions below take it, images ``(N, H, W, C)`` and weights. Nothing here sees a label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import init as _init
from . import solvers
from .adam import AdamMatcher
from .align import Matcher, low_pass
from .blocks import block_length, row_bytes
from .learning import ROUNDS, Lesson
from .lloyd import State, assign, candidates, cold_state, lloyd, update
from .prior import Prior
from .progress import Progress, pack_state, unpack_state
from .resolution import enlarge, factor, shrink
from .search import refined_objective, swaps
from .warp import Warp

__all__ = [
    "PASS",
    "Model",
    "Result",
    "aligned",
    "distances",
    "draw",
    "fit_adam",
    "fit_gauss_newton",
    "share",
]

FINAL = {"n_cold": 12, "n_warm": 6, "n_coarse": 10}  # iterations of `predict`, for all pairs
CONTENDERS, SETTLING = 4, 6  # centroids of an image that may win it, and rounds that let them
SETTLE = {"n_warm": 10}  # iterations of such a round
RIVAL = 10.0  # a lead of more than so many times the rival's last gain is safe
PASS = {"n_cold": 9, "n_warm": 4, "n_coarse": 6}  # of a pass: warps go on from pass to pass
SEARCH = PASS | {"n_cold": 5}  # of the search: as good an optimum in four fifths of the time
SEARCH_PASSES, SWAP_PASSES = 8, 4  # Lloyd passes before the swaps, and after each one
PART = 8000  # images that find what all the images of a larger set then go on from
N_INIT = 2  # n_init="auto": searches, of which that of lowest objective goes on
SWAPS_PER_CLUSTER = 2  # n_swaps="auto"
FINE_PASSES = 4  # of the Lloyd passes, the last ones, on all pixels
MIN_SMOOTHING, MIN_SIDE = 0.5, 20  # pixels; below them all passes look at all pixels
EXACT = 1e-6  # of the spread: rounding errors
EASE = 0.1  # weight of the displacement in the affine start: images that are far must get there
COARSE_STRIDE = 2  # low-passed images: the error on every second pixel says as much
LLOYD = ("coarse", "lloyd", "whole", "affine", "adam")  # stages whose steps are passes
LEARNED = ("taught", "swapped", "learned")  # places of a fit whose rounds have begun
WHOLE = ("spread", "done")  # places of a fit that goes on from what a part of its images found
AFFINE_SHARE = 3  # solver="adam": one pass in three fits affine maps on low-passed images


@dataclass(frozen=True)
class Model:
    """Warp, penalties and tolerances of one fit; lengths in pixels of the frame that is matched.

    frame : warps of the images as they are given; factor : pixels of them, in both directions, that
        are one of the frame that is matched (`stkm.resolution`); warp : its warps
    spread : mean squared distance of an image from the mean image, the unit of the penalties
    shift : squared shift of the centroids below which the loop stops
    """

    frame: Warp
    factor: int
    warp: Warp
    side: float
    spread: float
    penalty: np.ndarray
    affine_penalty: np.ndarray
    shift: float
    smoothing: float
    coarse: float
    learning_rate: float
    channels: int
    params: dict

    @classmethod
    def of(cls, warp, images, weights, params):
        """Model for images ``(N, H, W, C)`` and parameters; and these images, shrunk."""
        frame, r = warp, factor(warp.shape, params["smoothing"])
        warp, images = (frame.shrunk(r), shrink(images, r)) if r > 1 else (frame, images)
        side = float(np.sqrt(np.prod(warp.shape)))
        smooth = low_pass(images, params["smoothing"] * side)
        mean = np.average(smooth, axis=0, weights=weights)
        spread = ((smooth - mean) ** 2).sum((1, 2, 3), dtype=np.float64)
        spread = float(np.average(spread, weights=weights)) or 1.0
        weights = (params["bending"], params["displacement"], spread)
        model = cls(
            frame,
            r,
            warp,
            side,
            spread,
            solvers.penalty(warp, *weights),
            EASE * solvers.penalty(Warp.affine(warp.shape), *weights),
            # scikit-learn's rule: tol counts in units of the mean variance of a pixel
            params["tol"] * spread / np.prod(images.shape[1:]),
            params["smoothing"] * side,
            params["coarse"] * side,
            params["learning_rate"] * (side - 1) / 2,  # from the paper's units of [-1, 1]
            images.shape[3],
            params,
        )
        return model, images

    def shrink(self, images):
        """Images ``(N, H, W, C)`` on the frame that is matched."""
        return shrink(images, self.factor)

    def enlarge(self, images):
        """The inverse, for images that are low-passed."""
        return enlarge(images, self.factor, self.frame.shape)

    def smooth(self, images):
        """Images as the distance sees them: low-passed."""
        return low_pass(images, self.smoothing)

    def matcher(self, smooth, **options):
        """Gauss–Newton aligner of low-passed images."""
        return Matcher(
            smooth,
            self.warp,
            self.penalty,
            self.affine_penalty,
            coarse=self.coarse,
            batch_size=self.params["batch_size"],
            devices=self.params["devices"],
            **options,
        )

    def adam_matcher(self, images, n_steps, affine=False):
        """Adam aligner: of low-passed images for the warp, or strongly low-passed ones, affine."""
        p = self.params
        options = {"learning_rate": self.learning_rate, "batch_size": p["batch_size"]}
        if affine:
            warp, q, options["stride"] = (
                Warp.affine(self.warp.shape),
                self.affine_penalty,
                COARSE_STRIDE,
            )
            images = low_pass(images, self.coarse)
        else:
            warp, q, images = self.warp, self.penalty, self.smooth(images)
        return AdamMatcher(images, warp, q, p["n_clusters"], n_steps=n_steps, **options)

    def block(self, n_clusters):
        """Images whose distances to all centroids are computed at a time."""
        shape = (*self.warp.shape, self.channels)
        each = row_bytes(shape, n_clusters, 2 * len(self.warp.landmarks))
        return block_length(each, self.params["memory_limit"])

    @property
    def n_init(self):
        """Searches of one fit."""
        return N_INIT if self.params["n_init"] == "auto" else self.params["n_init"]

    @property
    def learned(self):
        """Whether the prior is learned."""
        return self.params["prior"] == "learned"

    @property
    def n_swaps(self):
        """Swaps tried in each search, and after the learning."""
        given, k = self.params["n_swaps"], self.params["n_clusters"]
        return SWAPS_PER_CLUSTER * k if given == "auto" else given

    @property
    def most_steps(self):
        """Entries that `report` and `tell` get at most: what a progress bar runs to."""
        search = self.n_init * (SEARCH_PASSES + self.n_swaps)
        return search + self.params["max_iter"] + self.learned * (3 * ROUNDS + self.n_swaps)

    @property
    def stride(self):
        """Pixels of the error in early passes: every second of a larger, low-passed frame."""
        fine = self.smoothing < MIN_SMOOTHING or min(self.warp.shape) < MIN_SIDE
        return 1 if fine else COARSE_STRIDE

    @property
    def adam_passes(self):
        """Passes of the affine stage and of the warp, for solver="adam"."""
        total = self.params["max_iter"]
        first = max(1, total // AFFINE_SHARE) if self.warp.kind == "tps" and self.coarse > 0 else 0
        return first, max(1, total - first)

    def lift(self, d):
        """Displacements ``(N, K, 2L)`` of the landmarks under affine maps ``(N, K, 6)``."""
        n, k = d.shape[:2]
        b = Warp.affine(self.warp.shape).basis_at(self.warp.landmarks)[0]
        return (d.reshape(n, k, 2, 3) @ b.T).reshape(n, k, -1).astype(np.float32)

    def lloyd(self, matcher, state, weights, history, stage, max_iter, after, **options):
        """`stkm.lloyd.lloyd` with this model's tolerance and candidates; ``after`` each pass.

        Every entry of ``history`` with this ``stage`` is a pass that is done already.
        """
        passes = [entry for entry in history if entry["stage"] == stage]
        if passes and passes[-1]["shift"] <= self.shift and not passes[-1]["relocated"]:
            return len(passes), True
        return lloyd(
            matcher,
            state,
            weights,
            max_iter=max_iter,
            tol=self.shift,
            history=history,
            stage=stage,
            n_candidates=self.params["n_candidates"],
            callback=after,
            first=len(passes),
            **options,
        )


@dataclass
class Result:
    """One fit: centers (K, H, W, C), labels (N,), objective, passes, log of all steps, prior."""

    centers: np.ndarray
    labels: np.ndarray
    objective: float
    n_iter: int
    converged: bool
    history: list
    prior: Prior | None = None


def distances(model, images, centers, prior=None, matcher=None):
    """f ``(N, K)`` and d ``(N, K, 2L)`` of images from the identity, on all pixels (Eq. 3)."""
    if model.params["solver"] == "adam":
        return _adam_distances(model, images, centers)
    matcher = model.matcher(model.smooth(images)) if matcher is None else matcher
    matcher.set_iterations(**FINAL)
    f, d = _fit_all(matcher, centers, None)
    if prior is not None:
        # the learned penalty is soft along the modes, and slow to follow from the identity
        f, d = _fit_all(matcher, centers, d, prior)
    return _settle(matcher, centers, f, d, prior)


def _fit_all(matcher, centers, d, prior=None):
    """One fit of every image to every centroid, from d ``(N, K, 2L)`` or from the identity."""
    state = cold_state(matcher, centers)
    index = np.arange(len(matcher.images))
    for k, center in enumerate(centers):
        start = None if d is None else d[:, k]
        state.f[:, k], state.d[:, k] = matcher.fit(
            k, index, matcher.prepare(center, prior, k), start
        )
    return state.f, state.d


def _settle(matcher, centers, f, d, prior):
    """Go on with the pairs that could still change a label: f and d, no f larger than before.

    An image that is bent far takes many more iterations than others to reach its centroid. After
    one round for the `CONTENDERS` nearest centroids of each image, a pair stays in the race while
    the nearest centroid's lead is less than `RIVAL` times what the pair gained in the last round.
    """
    n, k = f.shape
    state = State(centers, d, f, np.ones((n, k), bool), f.argmin(1), prior)
    mask = candidates(state, CONTENDERS)
    matcher.set_iterations(**SETTLE)
    for _ in range(SETTLING if k > 1 else 0):
        before = state.f.copy()
        assign(matcher, state, mask)
        nearest = state.f.min(1, keepdims=True)
        gained = before - state.f
        rival = mask & (state.f > nearest) & (state.f - RIVAL * gained < nearest)
        mask = rival | (rival.any(1, keepdims=True) & (state.f == nearest))
        if not mask.any():
            break
    return state.f, state.d


def _adam_distances(model, images, centers):
    """As many steps of each stage as the fit took; the centroids rest."""
    steps, (first, rest), d = model.params["adam_steps"], model.adam_passes, None
    matcher = model.adam_matcher(images, rest * steps)
    if first:
        rough = model.adam_matcher(images, first * steps, affine=True)
        d = model.lift(_fit_all(rough, low_pass(centers, model.coarse), None)[1])
        matcher.start_from(d)
    return _fit_all(matcher, centers, d)


class _Course:
    """Marks of a fit: where it is, from which it can go on (`stkm.progress`)."""

    def __init__(self, progress, weights, rng):
        self.progress, self.everyone, self.rng = progress, weights, rng
        self.history, self.place = [], None
        self.meta = {}  # what later steps need of earlier ones
        self.take(None)

    def take(self, part):
        """From now on the states are of the images ``part``, an index; None: of all."""
        self.part = part
        self.weights = self.everyone if part is None else self.everyone[part]

    def go_on(self, meta, arrays):
        """Stand where a mark was made; returns the state of it."""
        self.history, self.place = meta["history"], meta["place"]
        self.meta = {n: meta[n] for n in ("before", "swapped", "passes") if n in meta}
        self.take(arrays.get("part"))
        return unpack_state(arrays["state"])

    def mark(self, place, state, matcher=None, **meta):
        """The state is sound: it is what an interruption gives, and a checkpoint keeps."""
        self.meta |= meta
        self.place = place
        passes = sum(e["stage"] in LLOYD for e in self.history)
        known = self.part is None and np.isfinite(state.f).any()
        self.progress.latest = Result(
            state.centers,
            state.labels if known else None,
            state.objective(self.weights) if known else np.inf,
            passes,
            False,
            list(self.history),
            state.prior,
        )
        memory = getattr(matcher, "memory", None)
        arrays = {"state": pack_state(state), "memory": memory and memory(), "part": self.part}
        self.progress.mark(place, self.rng, arrays, history=self.history, **self.meta)

    def watch(self, place, state, matcher=None):
        """What `lloyd` calls after each pass."""

        def after(entry):
            self.progress.report(entry, len(state.labels))
            self.mark(place, state, matcher)

        return after


def fit_gauss_newton(model, images, weights, rng, start, progress=None):
    """Search on a part of the images, Lloyd on all of them, labels as `predict` gives them.

    With a learned prior, `PART` images of a larger set find centroids and prior, and all of them
    go on from there. ``start`` is None or given centroids ``(K, H, W, C)``, which skip the search.
    """
    progress = progress or Progress(verbose=model.params["verbose"])
    found, smooth = progress.restore(rng), model.smooth(images)
    course, state = _Course(progress, weights, rng), None
    if found:
        state = course.go_on(*found)
    elif start is None and model.learned and np.count_nonzero(weights) > PART:
        course.take(draw(weights, PART, rng))
    if course.part is not None:
        state = _find(model, smooth[course.part], start, state, course)[1]
        share(course.history, course.weights.sum() / weights.sum())
        course.take(None)
        course.place = "found"
    if course.place in ("found", *WHOLE):
        matcher, state = _spread(model, smooth, state, course)
    else:
        matcher, state = _find(model, smooth, start, state, course)
    if len(images) > model.block(len(state.centers)):
        matcher = None  # the labels have one for each block: room for it
    passes, converged = course.meta["passes"]
    history = course.history
    result = Result(state.centers, state.labels, 0.0, passes, converged, history, state.prior)
    return label(model, images, weights, result, matcher)


def draw(weights, size, rng):
    """Index of ``size`` images, in order, drawn without repetition by their weights."""
    size = min(size, int((weights > 0).sum()))
    chosen = rng.choice(len(weights), size, replace=False, p=weights / weights.sum())
    return np.sort(chosen)


def share(history, part):
    """Note that the steps so far have seen this part of the images' weight."""
    for entry in history:
        if entry["stage"] in (*LLOYD, "learn"):
            entry["share"] = float(part)


def _find(model, smooth, start, state, course):
    """Centroids and prior of low-passed images, from a start, a search, or where a mark stands.

    Returns (matcher, state).
    """
    weights, rng, history, place = course.weights, course.rng, course.history, course.place
    coarse = max(0, model.params["max_iter"] - FINE_PASSES) if model.stride > 1 else 0
    centers = None
    if state is None:
        place = "searched"
        if start is None:
            centers = search(model, smooth, weights, rng, history, course.progress)
        else:
            centers = model.smooth(start)
    matcher = model.matcher(smooth, stride=model.stride, **PASS)
    if state is None:
        state = cold_state(matcher, centers)
        course.mark("searched", state)
    n_iter, cold = 0, True
    if coarse:  # most passes look at every second pixel
        n_iter = sum(e["stage"] == "coarse" for e in history)
        if place in ("searched", "coarse"):
            watch = course.watch("coarse", state)
            n_iter, _ = model.lloyd(matcher, state, weights, history, "coarse", coarse, watch)
        cold = False
    matcher.set_stride(1)
    passes, converged = model.lloyd(
        matcher,
        state,
        weights,
        history,
        "lloyd",
        model.params["max_iter"] - coarse,
        course.watch("lloyd", state),
        cold=np.full(len(state.centers), cold),
    )
    course.meta["passes"] = [passes + n_iter, converged]
    # images that all are fitted exactly leave nothing to learn from
    exact = not state.objective(weights) > EXACT * model.spread * weights.sum()
    if model.learned and (place in LEARNED or not exact):
        learn(model, matcher, state, course, place)
    return matcher, state


def _spread(model, smooth, state, course):
    """All the images align with what a part of them found, and learn on from there.

    Returns (matcher, state).
    """
    weights, history = course.weights, course.history
    if course.place not in WHOLE:
        state = _align(model, smooth, state.centers, state.prior)
        entry = {"stage": "spread", "objective": state.objective(weights), "relocated": []}
        history.append(entry)
        course.progress.report(entry, len(weights))
        course.mark("spread", state)
    matcher = model.matcher(smooth, **PASS)
    if course.place == "spread":
        if state.prior is not None:
            report = course.progress.report
            lesson_of(model, matcher, weights, history, course.rng, report).rounds(state)
        else:  # the part was fitted exactly, the other images need not be
            watch = course.watch("spread", state)
            cold = np.zeros(len(state.centers), bool)
            passes = model.params["max_iter"]
            model.lloyd(matcher, state, weights, history, "whole", passes, watch, cold=cold)
        course.mark("done", state)
    return matcher, state


def aligned(matcher, centers, prior):
    """State of all an aligner's images and all centroids, from the identity."""
    state = cold_state(matcher, centers)
    everything = np.ones_like(state.mask)
    assign(matcher, state, everything, np.ones(len(centers), bool))
    if prior is not None:  # its penalty is slow to follow from the identity
        state.prior = prior
        assign(matcher, state, everything)
    return state


def _align(model, smooth, centers, prior):
    """State of all images, from the identity; `PART` at a time, so that memory is bounded."""
    parts = []
    for begin in range(0, len(smooth), PART):
        matcher = model.matcher(smooth[begin : begin + PART], **PASS)
        parts.append(aligned(matcher, centers, prior))
    d, f, mask, labels = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("d", "f", "mask", "labels")
    )
    return State(centers, d, f, mask, labels, prior)


def lesson_of(model, matcher, weights, history, rng=None, callback=None):
    """What the rounds of a fit share; some images are held out where there is an ``rng``."""
    p = model.params
    return Lesson.of(
        matcher,
        weights,
        rng,
        penalty=np.kron(np.eye(2), model.penalty),
        n_clusters=p["n_clusters"],
        n_modes=p["n_modes"],
        tying=p["tying"],
        n_candidates=p["n_candidates"],
        size=p["search_size"],
        history=history,
        callback=callback,
    )


def learn(model, matcher, state, course, place):
    """Centroids and prior by the likelihood, from a state that Lloyd's loop found.

    ``place`` says what of it is done: `LEARNED`, or something before.
    """
    rng, now = course.rng, course.rng.bit_generator.state
    before = course.meta.get("before", now)
    rng.bit_generator.state = before  # the same images are held out
    report = course.progress.report
    lesson = lesson_of(model, matcher, course.weights, course.history, rng, report)
    if place not in LEARNED:
        lesson.rounds(state)
        course.mark("taught", state, before=before)
    else:
        rng.bit_generator.state = now
    if place not in ("swapped", "learned"):
        swapped = lesson.swaps(state, model.n_swaps, rng)
        if swapped:
            lesson.restart(state, lesson.taught)
        course.mark("swapped", state, swapped=swapped)
    if course.meta["swapped"] and place != "learned":
        lesson.rounds(state)
        course.mark("learned", state)


def label(model, images, weights, result, matcher=None):
    """Labels and objective of a result as `predict` gives them: every warp from the identity."""
    size, f = model.block(len(result.centers)), []
    for start in range(0, len(images), size):
        one = matcher if len(images) <= size else None  # the fit's own has all the images
        part = images[start : start + size]
        f.append(distances(model, part, result.centers, result.prior, one)[0])
    f = np.concatenate(f)
    result.labels = f.argmin(1).astype(np.int32)
    result.objective = float(weights @ f.min(1).astype(np.float64))
    result.history.append({"stage": "final", "objective": result.objective})
    return result


def search(model, smooth, weights, rng, history, progress):
    """Centroids by k-means++ on the warp distance, Lloyd and swaps, on a part of the images.

    Of ``n_init`` searches, each from its own start, that of lowest objective is kept. The error is
    taken on every `Model.stride`-th pixel.
    """
    p = model.params
    part = np.arange(len(smooth))
    if len(part) > p["search_size"]:
        part = draw(weights, max(p["search_size"], p["n_clusters"]), rng)
    matcher = model.matcher(smooth[part], stride=model.stride, **SEARCH)
    found = [
        _search_once(model, matcher, weights[part], run, stream, history, progress)
        for run, stream in enumerate(rng.spawn(model.n_init))
    ]
    return min(found, key=lambda pair: pair[0])[1].centers


def _search_once(model, matcher, w, run, rng, history, progress):
    """Objective and state of one search."""
    p, log = model.params, []

    def to_image(i):
        everyone = np.arange(len(matcher.images))
        return matcher.fit(0, everyone, matcher.prepare(matcher.images[i]))

    index, found = _init.greedy_kmeans_plusplus(to_image, w, p["n_clusters"], rng)
    state = cold_state(matcher, matcher.images[index])
    for k, (f, d) in enumerate(found):
        state.f[:, k], state.d[:, k] = f, d
    warm = np.zeros(p["n_clusters"], bool)
    model.lloyd(matcher, state, w, log, "search", SEARCH_PASSES, progress.report, cold=warm)
    state = swaps(
        matcher,
        state,
        w,
        n_swaps=model.n_swaps,
        n_passes=SWAP_PASSES,
        tol=model.shift,
        rng=rng,
        history=log,
        n_candidates=p["n_candidates"],
        callback=progress.tell,
    )
    value = refined_objective(matcher, state, w, p["n_candidates"])
    log.append({"stage": "searched", "objective": value})
    history.extend({**entry, "search": run} for entry in log)
    return value, state


def fit_adam(model, images, weights, start, rng, progress=None):
    """The published loop: affine maps on low-passed images first, then the warp itself (Eq. 3).

    ``start`` are centroids ``(K, H, W, C)``. The labels are those of the last pass.
    """
    progress = progress or Progress(verbose=model.params["verbose"])
    found, course = progress.restore(rng), _Course(progress, weights, rng)
    kept = course.go_on(*found) if found else None
    history, place = course.history, course.place
    steps, (first, rest) = model.params["adam_steps"], model.adam_passes
    matcher = model.adam_matcher(images, steps)
    state = cold_state(matcher, model.smooth(start))
    cold = np.ones(len(start), bool)
    if first and place != "adam":
        rough = model.adam_matcher(images, steps, affine=True)
        affine = cold_state(rough, low_pass(start, model.coarse))
        if place == "affine":
            affine = kept
            rough.recall(found[1]["memory"])
        watch = course.watch("affine", affine, rough)
        model.lloyd(rough, affine, weights, history, "affine", first, watch)
        state.d, state.labels = model.lift(affine.d), affine.labels
        matcher.start_from(state.d)
        state.centers = update(matcher, state, weights)
        cold[:] = False
    if place == "adam":
        state = kept
        matcher.recall(found[1]["memory"])
    watch = course.watch("adam", state, matcher)
    n_iter, converged = model.lloyd(
        matcher, state, weights, history, "adam", rest, watch, cold=cold
    )
    objective = history[-1]["objective"]
    return Result(state.centers, state.labels, objective, first + n_iter, converged, history)
