"""How long something takes that tables measure: looked up, interpolated, transferred from a near device, or computed.

Every answer corrects a simpler one by what measurements near by say about it: a parametric time by the device's own
table, short runs by sustained ones, forward products by gradients, shipped tables by a user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simcore.compute.accelerators import Accelerator
from simcore.compute.accelerators import accelerator as preset
from simcore.compute.kernel import Source
from simcore.compute.measured import parametric
from simcore.compute.measured.curves import Columns, Curves, Floats, Integers
from simcore.compute.measured.kriging import Kriging
from simcore.compute.measured.operations import OPERATIONS, Operation, Work
from simcore.compute.measured.tables import ANY, Word, curves, entries, own_folder, remembered, words_of
from simcore.progress import meter

_KRIGING = Kriging()
_REACH = 2.0  # an octave beyond the end of a curve counts as so many in a size
_FAR = 1e6
_SAME = 1e-6  # octaves
_FOREIGN = 2.0  # octaves that another maker's device counts as
_RECOMPILED = 0.4  # octaves that kernels for another chip count as, or that another host launches one by one
_RESTATED = 0.1  # of the octaves between a device and the same with figures that a site states otherwise
_REWIRED = 4.0  # octaves that another wiring of the same devices counts as
_AT_ONCE = 128  # questions per block, whose matrices stay in a cache
_NEAREST_DEVICES = 2
_BORROWED = 1.5  # octaves to the last device that few curves are completed from: beyond, rates say as much
_LEAST_ASTRAY = 0.03  # what answers from another device differ by at least
_ASTRAY = 0.02, 0.3  # what devices differ by, however alike, and what an octave between them adds to that


@dataclass(frozen=True, slots=True)
class Machine:
    """A device as tables call it, and what is stated about it."""

    name: str
    accelerator: Accelerator

    @property
    def site(self) -> frozenset[str]:
        """Words of the name that are not the accelerator's: how it is wired."""
        return frozenset(self.name.lower().split("_")) - set(self.accelerator.name.lower().split("-"))


@lru_cache(maxsize=256)
def machine(name: str) -> Machine:
    """The device or system that a table's name says; InputError names the nearest.

    >>> machine("h100_dgx").accelerator.name
    'H100-SXM-80GB'
    """
    return Machine(name, preset(name))


@dataclass(frozen=True, eq=False)
class Question:
    """Rows of one operation with the same words on one device; `sizes` as columns, the swept one among them.

    `without_exact`: as though the configurations asked for had not been measured (of a collective: the very points).
    """

    operation: Operation
    device: Machine
    words: tuple[Word, ...]
    sizes: Columns
    without_exact: bool = False

    @cached_property
    def own(self) -> Path:
        """Where the user's tables are."""
        return own_folder()

    @cached_property
    def along(self) -> Floats:
        """log2 of the swept size."""
        found: Floats = np.log2(np.asarray(self.sizes[self.operation.swept], float))
        return found

    @cached_property
    def filled(self) -> Columns:
        """All sizes of the configurations."""
        return self.operation.filled(self.sizes)

    @cached_property
    def places(self) -> Floats:
        """Where these are, in weighted octaves."""
        return self.operation.places(self.filled)

    @cached_property
    def work(self) -> Work:
        """What there is to do."""
        rows = len(self.along)
        words = zip(self.operation.words, self.words, strict=True)
        said = {name: np.repeat(np.array([word]), rows) for name, word in words if word is not None}
        return self.operation.work({**said, **self.sizes}, parametric.element_bytes(self.dtype))

    @property
    def dtype(self) -> str:
        """The data type."""
        return str(self.words[0])

    def at(self, sizes: Columns) -> Question:
        """The same about other rows, measured ones too."""
        return Question(self.operation, self.device, self.words, sizes)

    def on(self, device: Machine) -> Question:
        """The same on another device: all else that is known of it stays."""
        made = object.__new__(Question)
        vars(made).update(vars(self), device=device)
        return made

    def some(self, rows: NDArray[np.generic]) -> Question:
        """The same about some of the rows; itself where these are all."""
        if len(rows) == len(self.along) and rows.dtype != bool:
            return self
        return replace(self, sizes={name: np.asarray(values)[rows] for name, values in self.sizes.items()})


@dataclass(frozen=True, slots=True)
class Answer:
    """Row by row: natural logarithm of microseconds, distance in octaves, spread, place of the source in `Source`.

    And the table of the nearest measurement.
    """

    log_us: Floats
    distance: Floats
    spread: Floats
    source: Integers
    table: NDArray[np.object_]

    @property
    def seconds(self) -> Floats:
        """Seconds of each row."""
        found: Floats = np.exp(self.log_us) * 1e-6
        return found


_PLACE = {source: place for place, source in enumerate(Source)}


def answer(question: Question) -> Answer:
    """The best that is known."""
    return _from(question, _own(question))


def predicted(
    operation: Operation, device: str, table: Columns, *, without_exact: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Columns `predicted_us`, `distance` (octaves), `source` (a word of `Source`) of a table's rows, in their order."""
    rows = len(table[operation.swept])
    time_us, distance, source = np.empty(rows), np.empty(rows), np.empty(rows, "U12")
    spelt = np.array([one.value for one in Source])
    columns = [name for name in (operation.swept, *operation.sizes) if name in table]
    words = list(zip(*(words_of(table, name) for name in operation.words), strict=True))
    there = machine(device)
    for spelling in meter().over(dict.fromkeys(words)):  # rows that agree in all words are asked together
        block = np.flatnonzero([one == spelling for one in words])
        sizes = {name: table[name][block] for name in columns}
        found = answer(Question(operation, there, spelling, sizes, without_exact))
        time_us[block], distance[block], source[block] = np.exp(found.log_us), found.distance, spelt[found.source]
    return {"predicted_us": time_us, "distance": distance, "source": source}


def _own(question: Question) -> list[Curves]:
    """Curves of the device itself, best first; each corrects larger ones that come after it."""
    return _chain(question.own, question.operation, question.device, question.words)


@remembered(1024)
def _chain(own: Path, operation: Operation, device: Machine, words: tuple[Word, ...]) -> list[Curves]:
    of_kind = [entry for entry in entries() if entry.operation == operation.name]
    named = [entry for entry in of_kind if entry.device == device.name]
    alike = named or [entry for entry in of_kind if machine(entry.device).accelerator is device.accelerator]
    # The user's own tables, then by that name, then of the same accelerator.
    tables = sorted(alike, key=lambda entry: (not entry.own, len(entry.device), -entry.rows))
    found = [there for said in _spellings(operation, words) for entry in tables if (there := curves(entry, said))]
    chain = list[Curves]()
    for there in found:
        if not chain or len(there.along) > len(chain[-1].along):
            chain.append(there)
    return chain


_ALIKE = {"fp16": ("bf16",), "bf16": ("fp16",), "fp8": ("fp8_static",), "fp4": ("nvfp4",)}


def _spellings(operation: Operation, said: tuple[Word, ...]) -> list[tuple[Word, ...]]:
    """The words asked for, then with a type that runs at the same rate, then of any software, or whatever the words."""
    first, *others = said
    wider = {"framework": None, **(dict.fromkeys(operation.words, ANY) if operation.mixed else {})}
    loose = [wider.get(name, word) for name, word in zip(operation.words, said, strict=True)][1:]
    types = [first, *_ALIKE.get(str(first), ())]
    return list(dict.fromkeys((one, *words) for words in (others, loose) for one in types))


def _from(question: Question, own: list[Curves], alone: Answer | None = None) -> Answer:
    """What the first curves say, upon what is known without them; upon `alone`, where other devices are not asked.

    Few curves alone are no device's: near devices' say what they have in common.
    """
    if not own:
        return alone or _elsewhere(question)
    there, *others = own
    few = alone is None and len(there.first) <= _KRIGING.neighbours
    alike = bool(
        others or (few and _near(question.own, question.operation, question.device, question.words, _BORROWED))
    )

    def below(asked: Question) -> Answer:
        rest = alone and (alone if asked is question else _beneath(asked))
        if alike:
            return _from(asked, others, rest)
        return rest or _beneath(asked)

    residuals = _residuals(question.own, there, question.device, question.words, alone is None)
    within = any(other.mixed and other.table == there.table for other in others)
    known = _Known(below, residuals, alike, within)
    return _interpolated(question, there, known)


def _beneath(question: Question) -> Answer:
    """What a time is a multiple of: a better known operation's, by the ratio of their work, or the parametric one."""
    computed, operation = _computed(question), question.operation
    if not operation.rests_on:
        return computed
    simpler = OPERATIONS[operation.rests_on]
    words = (question.words[0], *(None for _ in simpler.words[1:]))
    asked = replace(question, operation=simpler, words=words, sizes=operation.there(question.sizes))
    found = answer(asked)
    return replace(found, log_us=found.log_us + computed.log_us - _computed(asked).log_us)


def _computed(question: Question) -> Answer:
    log_us = parametric.log_us(
        question.operation, question.work, question.sizes, question.device.accelerator, question.dtype
    )
    rows = len(log_us)
    return Answer(
        log_us,
        np.full(rows, _FAR),
        np.full(rows, 0.5),
        np.full(rows, _PLACE[Source.ROOFLINE]),
        np.full(rows, "", object),
    )


def _elsewhere(question: Question) -> Answer:
    """From the nearest devices with such a table: the surer of itself, and the nearer, the more one counts."""
    near = _near(question.own, question.operation, question.device, question.words)
    beneath = _beneath(question)
    if not near:
        return beneath
    found = [_moved(question, device, beneath) for _, device in near]
    away = np.array([distance for distance, _ in near])[:, None]
    told = zip(*((one.log_us, one.distance, one.spread, one.table) for one in found), strict=True)
    log_us, within, spread, table = map(np.array, told)
    apart = (_ASTRAY[0] + _ASTRAY[1] * away) * (1.0 + within)
    unsure = np.hypot(apart, spread)
    shares = (apart if question.operation.by_point else unsure) ** -2.0  # few curves cannot tell their spread
    surest = shares.argmax(0), np.arange(shares.shape[1])
    least_log_us = parametric.least_log_us(
        question.operation, question.work, question.device.accelerator, question.dtype
    )
    log_us = np.maximum(np.average(log_us, axis=0, weights=shares), least_log_us)
    moved = np.full(len(log_us), _PLACE[Source.TRANSFERRED])
    return Answer(log_us, (away + within)[surest], unsure[surest] + _LEAST_ASTRAY, moved, table[surest])


def _moved(question: Question, device: Machine, beneath: Answer) -> Answer:
    """Another device's answer times the ratio of what it rests on, here and there."""
    there = question.on(device)
    base = _beneath(there)
    found = _from(there, _own(there), base)
    return replace(found, log_us=found.log_us + beneath.log_us - base.log_us)


@remembered(1024)
def _near(
    own: Path, operation: Operation, device: Machine, words: tuple[Word, ...], most: float = np.inf
) -> list[tuple[float, Machine]]:
    """The nearest devices whose tables can answer, with their distance in octaves of the stated rates: `most` of it."""
    tried = {entry.device for entry in entries() if entry.operation == operation.name}
    others = [machine(name) for name in sorted(tried) if name != device.name]
    apart = ((_apart(operation, words, device, other), other) for other in others)
    ranked = sorted((pair for pair in apart if pair[0] <= most), key=lambda pair: (pair[0], pair[1].name))
    return list(islice((pair for pair in ranked if _chain(own, operation, pair[1], words)), _NEAREST_DEVICES))


def _apart(operation: Operation, words: tuple[Word, ...], device: Machine, other: Machine) -> float:
    """Octaves between two devices' peak and memory rates, limits and links: boards without are of another class."""
    here, there = device.accelerator, other.accelerator
    later = 0.05 * abs(here.year - there.year) + _FOREIGN * (here.maker != there.maker)
    links = here.link_bytes_per_s, there.link_bytes_per_s
    if "ranks" in operation.sizes:
        later += _RECOMPILED * ("eager" in words and here.host != there.host)
        return _octaves(*links) + _REWIRED * (device.site != other.site) + later
    pairs = (
        [parametric.stated_peak(one, str(words[0])) for one in (here, there)],
        (here.memory_bytes_per_s, there.memory_bytes_per_s),
        (here.power_w, there.power_w),
        links,
    )
    later += _RECOMPILED * (here.chip != there.chip)
    same = _RESTATED if here.preset == there.preset else 1.0
    return same * float(np.hypot.reduce([_octaves(*pair) for pair in pairs])) + later


def _octaves(one: float, other: float) -> float:
    """Between two rates; far where only one is stated."""
    return abs(float(np.log2(one / other))) if one and other else _REWIRED * (one != other)


class _Known(NamedTuple):
    """What is known without some curves, and how much longer each of their points takes: not a number until asked.

    `alike`: from other measurements of the same, and these curves are `within` them.
    """

    below: Callable[[Question], Answer]
    residuals: Floats
    alike: bool
    within: bool


@remembered(256)
def _residuals(own: Path, there: Curves, device: Machine, words: tuple[Word, ...], lent: bool) -> Floats:
    return np.full(len(there.along), np.nan)


def _interpolated(question: Question, there: Curves, known: _Known) -> Answer:
    """On the configuration's own curve where there is one, otherwise between the nearest."""
    rows, along = len(question.along), question.along
    configurations = zip(*(np.asarray(values).tolist() for values in question.filled.values()), strict=True)
    own = np.array([there.of.get(one, -1) for one in configurations], dtype=np.int64)  # -1 where no curve has it
    low, high = there.ends
    inside = (own >= 0) & (along >= low[own] - 1e-9) & (along <= high[own] + 1e-9)
    if question.without_exact and not question.operation.by_point:
        inside &= False
    if known.within and inside.any():  # many of all words tell more than a line between two of the same
        inside[inside] = _along_curve(question.some(inside), there, own[inside])[1] == 0
    log_us, distance, spread = np.empty(rows), np.empty(rows), np.full(rows, 0.02)
    source, table = np.full(rows, _PLACE[Source.INTERPOLATED]), np.full(rows, there.table, object)
    if inside.any():
        log_us[inside], distance[inside] = _along_curve(question.some(inside), there, own[inside])
    outside, made = np.flatnonzero(~inside), (log_us, distance, spread, source, table)
    for start in range(0, len(outside), _AT_ONCE):
        block = outside[start : start + _AT_ONCE]
        for column, found in zip(made, _between(question.some(block), there, known), strict=True):
            column[block] = found
    source[distance == 0] = _PLACE[Source.MEASURED]
    return Answer(*made)


def _along_curve(question: Question, there: Curves, own: Integers) -> tuple[Floats, Floats]:
    """log(us) and distance on the line between a curve's own points, straight in logarithms.

    A collective's is straight as it is, between points: a latency, and bytes at some rate.
    """
    along = question.along
    left, right, share = (there.around if question.without_exact else there.between)(own, along)
    gap = np.minimum(np.abs(there.along[left] - along), np.abs(there.along[right] - along))
    step = there.log_us[right] - there.log_us[left]
    rise = share * step
    if question.operation.by_point:
        octaves = there.along[right] - there.along[left]
        grown = (2.0 ** (np.clip(share, 0, 1) * octaves) - 1) / np.maximum(2.0**octaves - 1, _SAME)
        rise = np.where((share < 0) | (share > 1), rise, np.log1p(grown * np.expm1(step)))
    return there.log_us[left] + rise, np.where(gap < _SAME, 0.0, gap)


def _between(question: Question, there: Curves, known: _Known) -> tuple[NDArray[Any], ...]:
    """What an `Answer` is made of, from the nearest configurations, each at the same swept size."""
    base = known.below(question)
    beneath = np.maximum(base.source, _PLACE[Source.INTERPOLATED])
    if known.within:
        return base.log_us, base.distance, base.spread, beneath, base.table
    apart, beyond = _apart_from(question, there)
    near = nearest_places(apart, min(_KRIGING.neighbours, apart.shape[1]))
    beyond, barred = (np.take_along_axis(values, near, axis=1) for values in (beyond, np.isinf(apart)))
    offsets = [there.places[near] - question.places[:, None], _other_words(question, there)[near], beyond[..., None]]
    votes = np.where(barred, 0.0, _residual(question, there, near, known))
    said, left = _KRIGING.says(np.concatenate(offsets, axis=2), _idle(question, there, near), votes, barred)
    nearest = apart.min(1)
    unheard = np.isinf(nearest)  # nothing measured that may be used
    nearer = unheard | (known.alike & (base.distance < nearest))
    spread = 0.8 * np.sqrt(left) + 0.02
    return (
        base.log_us + np.where(unheard, 0.0, said),
        np.maximum(np.where(nearer, base.distance, nearest), 1e-3),
        np.where(nearer, np.maximum(spread, base.spread), spread),
        np.where(nearer, beneath, _PLACE[Source.INTERPOLATED]),
        np.where(nearer, base.table, there.table),
    )


def _other_words(question: Question, there: Curves) -> Floats:
    """[curves, 1]: how many words of mixed curves are not those asked for, each of them an octave; else no axis."""
    words = zip(question.operation.words, question.words, strict=True)
    other = [there.sizes[name] != word for name, word in words if name in there.sizes]
    return np.sum(other, axis=0, dtype=float)[:, None] if there.mixed and other else np.empty((len(there.places), 0))


def _apart_from(question: Question, there: Curves) -> tuple[Floats, Floats]:
    """How far curves are from each row, without end where they are forbidden, and how much of it is past their ends."""
    along, (low, high) = question.along[:, None], there.ends
    beyond = _REACH * (along - np.minimum(np.maximum(along, low), high))
    squares = beyond**2
    for own, others in zip(question.places.T, there.places.T, strict=True):  # in order, as no product of matrices does
        squares = squares + (own[:, None] - others) ** 2
    apart = np.sqrt(squares + 1e-9)
    if question.without_exact:
        apart[_forbidden(question, there)] = np.inf
    return apart, beyond


def nearest_places(apart: Floats, count: int) -> Integers:
    """The so many nearest of each row, ascending; of those as far the first, on any machine."""
    # The last digits are the machine's: what is as far but for these counts as far, and its place decides.
    ranked = np.round(apart, 7) + np.arange(apart.shape[1]) * 1e-12
    return np.sort(ranked.argpartition(count - 1, axis=1)[:, :count], axis=1)


def _idle(question: Question, there: Curves, near: Integers) -> Floats:
    """Octaves that neighbours lose more than the question to idle cores, at the same swept size."""
    own = {name: np.asarray(values)[:, None] for name, values in question.sizes.items()}
    theirs = {name: values[near] for name, values in there.sizes.items()}
    sizes = theirs | {question.operation.swept: own[question.operation.swept]}
    lost, mine = (np.log2(parametric.dealt_out(one, question.device.accelerator)) for one in (sizes, own))
    return np.broadcast_to(lost - mine, near.shape)


def _forbidden(question: Question, there: Curves) -> NDArray[np.bool_]:
    """[rows, curves]: the configurations asked for, whatever the sizes that belong to the sweep."""
    same = np.ones((len(question.along), len(there.first) - 1), bool)
    for name, values in question.filled.items():
        if name not in question.operation.repeated:
            same &= np.asarray(values)[:, None] == there.sizes[name]
    return same


def _residual(question: Question, there: Curves, near: Integers, known: _Known) -> Floats:
    """How much longer neighbours take than what is known without these curves [questions, neighbours].

    Worked out at measured points, once each, and interpolated as times are.
    """
    left, right, share = there.between(near, question.along[:, None])
    points = np.concatenate([left.ravel(), right.ravel()])
    if np.isnan(known.residuals[points]).any():
        whole = np.arange(len(known.residuals))
        points = whole if len(whole) <= _AT_ONCE else np.unique(points)
        points = points[np.isnan(known.residuals[points])]
        curve = np.searchsorted(there.first, points, side="right") - 1
        sizes = {name: values[curve] for name, values in there.sizes.items()}
        sizes[question.operation.swept] = np.rint(2.0 ** there.along[points])
        known.residuals[points] = there.log_us[points] - known.below(question.at(sizes)).log_us
    before, after = known.residuals[left], known.residuals[right]
    found: Floats = before + share * (after - before)
    return found
