"""How long something takes that tables measure: looked up, interpolated, transferred from a near device, or computed.

Every answer corrects a simpler one by what measurements near by say about it: a parametric time by the device's own
table, short runs by sustained ones, forward products by gradients, shipped tables by a user's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simcore.compute.accelerators import Accelerator, names, recognised
from simcore.compute.accelerators import accelerator as preset
from simcore.compute.kernel import Source
from simcore.compute.measured import parametric
from simcore.compute.measured.curves import Columns, Curves, Floats, Integers
from simcore.compute.measured.kriging import Kriging
from simcore.compute.measured.operations import OPERATIONS, Operation
from simcore.compute.measured.tables import Entry, Word, curves, entries
from simcore.errors import InputError, closest

__all__ = ["Answer", "Machine", "Question", "answer", "machine"]

_KRIGING = Kriging()
_REACH = 2.0  # an octave beyond the end of a curve counts as so many in a size
_FAR = 1e6
_AT_ONCE = 256  # questions per block, to bound memory
_NEAREST_DEVICES = 2


@dataclass(frozen=True, slots=True)
class Machine:
    """A device as tables call it, and what is stated about it."""

    name: str
    accelerator: Accelerator


def machine(name: str) -> Machine:
    """The device or system that a table's name says; InputError names the nearest.

    >>> machine("h100_dgx").accelerator.name
    'H100-SXM-80GB'
    """
    try:
        return Machine(name, preset(name))
    except InputError:
        found = recognised(name.replace("_", " "))
    if found is None:
        raise InputError.at(name, "no such device", expected=closest(name, names()), found=repr(name))
    return Machine(name, found)


@dataclass(frozen=True, slots=True)
class Question:
    """Rows of one operation with the same words on one device; `sizes` as columns, the swept one among them.

    `without_exact`: as though the configurations asked for had not been measured (of a collective: the very points).
    """

    operation: Operation
    device: Machine
    words: tuple[Word, ...]
    sizes: Columns
    without_exact: bool = False

    @property
    def along(self) -> Floats:
        """log2 of the swept size."""
        return np.log2(np.asarray(self.sizes[self.operation.swept], float))

    @property
    def dtype(self) -> str:
        """The data type."""
        return str(self.words[0])

    def at(self, sizes: Columns) -> Question:
        """The same about other rows, measured ones too."""
        return replace(self, sizes=sizes, without_exact=False)

    def complete(self) -> Columns:
        """Sizes and words alike as columns."""
        rows = len(self.along)
        words = zip(self.operation.words, self.words, strict=True)
        return {**self.sizes, **{name: np.repeat(np.array([word]), rows) for name, word in words if word is not None}}


@dataclass(frozen=True, slots=True)
class Answer:
    """Row by row: natural logarithm of microseconds, distance in octaves, spread, place of the source in `Source`."""

    log_us: Floats
    distance: Floats
    spread: Floats
    source: Integers
    table: str

    @property
    def seconds(self) -> Floats:
        """Seconds."""
        return np.asarray(np.exp(self.log_us) * 1e-6)


_PLACE = {source: place for place, source in enumerate(Source)}


def answer(question: Question) -> Answer:
    """The best that is known."""
    own = _own(question)
    return _from(question, own)


def _own(question: Question) -> list[Curves]:
    """Curves of the device itself, best first; each corrects larger ones that come after it."""
    tables = _candidates(question.operation.name, question.device)
    found = [there for words in _spellings(question) for entry in tables if (there := curves(entry, words))]
    chain: list[Curves] = []
    for there in found:
        if not chain or len(there.along) > len(chain[-1].along):
            chain.append(there)
    return chain


def _candidates(operation: str, device: Machine) -> list[Entry]:
    """Tables of an operation on a device: the user's own, then by that name, then of the same accelerator."""
    of_kind = [entry for entry in entries() if entry.operation == operation]
    named = [entry for entry in of_kind if entry.device == device.name]
    alike = named or [entry for entry in of_kind if machine(entry.device).accelerator is device.accelerator]
    return sorted(alike, key=lambda entry: (not entry.own, len(entry.device), -entry.rows))


_ALIKE = {"fp16": ("bf16",), "bf16": ("fp16",), "fp8": ("fp8_static",), "fp4": ("nvfp4",)}


_LOOSE = ("framework", "launch")  # words that another may stand in for


def _spellings(question: Question) -> list[tuple[Word, ...]]:
    """The words asked for, then with a type that runs at the same rate, then of any software."""
    first, *others = question.words
    loose = [None if name in _LOOSE else word for name, word in zip(question.operation.words, question.words)][1:]
    types = [first, *_ALIKE.get(str(first), ())]
    return list(dict.fromkeys((one, *words) for words in (others, loose) for one in types))


def _from(question: Question, own: list[Curves]) -> Answer:
    """What the first curves say, upon what is known without them."""
    if not own:
        return _elsewhere(question)
    there, *others = own

    def below(asked: Question) -> Answer:
        if others:
            return _from(asked, others)
        return _beneath(asked)

    return _interpolated(question, there, below)


def _beneath(question: Question) -> Answer:
    """What a time is a multiple of: another operation's, or the parametric one."""
    operation = question.operation
    if not operation.rests_on:
        return _computed(question)
    simpler = OPERATIONS[operation.rests_on]
    words = (question.words[0], *(None for _ in simpler.words[1:]))
    return answer(replace(question, operation=simpler, words=words))


def _computed(question: Question) -> Answer:
    log_us = parametric.log_us(question.operation, question.complete(), question.device.accelerator, question.dtype)
    rows = len(log_us)
    return Answer(log_us, np.full(rows, _FAR), np.full(rows, 0.5), np.full(rows, _PLACE[Source.ROOFLINE]), "")


def _elsewhere(question: Question) -> Answer:
    """From the nearest devices with such a table, by the ratio of parametric times; nearer ones count more."""
    near = _near_devices(question)
    if not near:
        return _beneath(question)
    shares = np.array([1 / (0.05 + distance) ** 2 for distance, _ in near])
    found = [_moved(question, device) for _, device in near]
    log_us = np.average([one.log_us for one in found], axis=0, weights=shares)
    nearest = found[0]
    source = np.full(len(log_us), _PLACE[Source.TRANSFERRED])
    distance = nearest.distance + near[0][0]
    return Answer(log_us, distance, nearest.spread + 0.05, source, nearest.table)


def _moved(question: Question, device: Machine) -> Answer:
    """Another device's answer times the ratio of the parametric times."""
    there = replace(question, device=device)
    found = _from(there, _own(there))
    return replace(found, log_us=found.log_us + _computed(question).log_us - _computed(there).log_us)


def _near_devices(question: Question) -> list[tuple[float, Machine]]:
    """The nearest devices whose tables can answer, with their distance in octaves of the stated rates."""
    tried = {entry.device for entry in entries() if entry.operation == question.operation.name}
    others = [machine(name) for name in sorted(tried)]
    ranked = sorted(((_apart(question, other), other) for other in others), key=lambda pair: (pair[0], pair[1].name))
    return [(distance, other) for distance, other in ranked if _own(replace(question, device=other))][:_NEAREST_DEVICES]


def _apart(question: Question, other: Machine) -> float:
    """Octaves between two devices' peak and memory rates."""
    here, there = question.device.accelerator, other.accelerator
    dtype = question.dtype
    peak = np.log2(parametric.stated_peak(here, dtype) / parametric.stated_peak(there, dtype))
    memory = np.log2(here.memory_bytes_per_s / there.memory_bytes_per_s)
    return float(np.hypot(peak, memory)) + 0.05 * abs(here.year - there.year)


def _interpolated(question: Question, there: Curves, below: Callable[[Question], Answer]) -> Answer:
    """On the configuration's own curve where there is one, otherwise between the nearest."""
    rows, along = len(question.along), question.along
    own = _own_curve(question, there)
    low, high = there.ends
    inside = (own >= 0) & (along >= low[own] - 1e-9) & (along <= high[own] + 1e-9)
    if question.without_exact and not question.operation.by_point:
        inside &= False
    log_us, distance, spread = np.empty(rows), np.empty(rows), np.empty(rows)
    source = np.full(rows, _PLACE[Source.INTERPOLATED])
    if inside.any():
        curve, place = own[inside], along[inside]
        exact = there.octaves_to_point(curve, place)
        log_us[inside] = there.around(curve, place) if question.without_exact else there.at(curve, place)
        distance[inside] = np.maximum(exact, 0.5) if question.without_exact else exact
        spread[inside] = 0.02
        source[inside] = np.where(distance[inside] == 0, _PLACE[Source.MEASURED], source[inside])
    outside = np.flatnonzero(~inside)
    for start in range(0, len(outside), _AT_ONCE):
        block = outside[start : start + _AT_ONCE]
        asked = replace(question, sizes={name: np.asarray(values)[block] for name, values in question.sizes.items()})
        log_us[block], distance[block], spread[block] = _between(asked, there, below)
    return Answer(log_us, distance, spread, source, there.table)


def _own_curve(question: Question, there: Curves) -> Integers:
    """Which curve has each row's configuration; -1 where none has."""
    names = [name for name in question.operation.sizes if name in there.sizes]
    known = {row: place for place, row in enumerate(zip(*(there.sizes[name].tolist() for name in names), strict=True))}
    asked = zip(*(np.asarray(question.sizes[name]).tolist() for name in names), strict=True)
    return np.array([known.get(row, -1) for row in asked], dtype=np.int64)


def _between(question: Question, there: Curves, below: Callable[[Question], Answer]) -> tuple[Floats, Floats, Floats]:
    """log(us), distance and spread from the nearest configurations, each at the same swept size."""
    operation, along = question.operation, question.along
    places, asked = operation.places(_filled(there, operation)), operation.places(_stated(question, there))
    low, high = there.ends
    beyond = _REACH * (along[:, None] - np.clip(along[:, None], low, high))
    apart = np.sqrt((asked**2).sum(1)[:, None] + (places**2).sum(1) - 2 * asked @ places.T + beyond**2 + 1e-9)
    if question.without_exact:
        apart[_forbidden(question, there)] = np.inf
    count = min(_KRIGING.neighbours, len(places))
    near = np.argpartition(apart, count - 1, axis=1)[:, :count]
    offsets = np.concatenate([places[near] - asked[:, None], np.take_along_axis(beyond, near, 1)[..., None]], axis=2)
    offsets = np.where(np.isinf(np.take_along_axis(apart, near, 1))[..., None], _FAR, offsets)
    weights, left = _KRIGING.weights(offsets)
    residual = there.at(near, along[:, None]) - _base_at(question, there, near, below)
    base = below(question)
    alone = np.isinf(apart.min(1))  # nothing measured that may be used
    log_us = base.log_us + np.where(alone, 0.0, (weights * residual).sum(1))
    spread = np.where(alone, base.spread, 1.3 * residual.std(1) * np.sqrt(left) + 0.02)
    return log_us, np.where(alone, base.distance, np.maximum(apart.min(1), 1e-3)), spread


def _filled(there: Curves, operation: Operation) -> dict[str, NDArray[np.generic]]:
    """All columns of the configurations; those that a table does not state are 1."""
    ones = np.ones(len(there.first) - 1, np.int64)
    return {name: there.sizes.get(name, ones) for name in operation.sizes}


def _stated(question: Question, there: Curves) -> dict[str, NDArray[np.generic]]:
    """The same of the rows asked for."""
    ones = np.ones(len(question.along), np.int64)
    return {
        name: np.asarray(question.sizes[name]) if name in there.sizes and name in question.sizes else ones
        for name in question.operation.sizes
    }


def _forbidden(question: Question, there: Curves) -> NDArray[np.bool_]:
    """[rows, curves]: the configurations asked for, whatever the sizes that belong to the sweep."""
    names = [name for name in question.operation.sizes if name not in question.operation.repeated]
    same = np.ones((len(question.along), len(there.first) - 1), bool)
    for name in names:
        if name in there.sizes:
            same &= np.asarray(question.sizes[name])[:, None] == there.sizes[name]
    return same


def _base_at(question: Question, there: Curves, near: Integers, below: Callable[[Question], Answer]) -> Floats:
    """What is known without these curves at the neighbours' configurations and the swept sizes they have there."""
    operation = question.operation
    low, high = there.ends
    along = np.clip(question.along[:, None], low[near], high[near])
    sizes = {name: values[near].ravel() for name, values in _filled(there, operation).items()}
    for name, values in question.sizes.items():
        sizes.setdefault(name, np.repeat(np.asarray(values), near.shape[1]))
    sizes[operation.swept] = (2.0**along).ravel()
    return below(question.at(sizes)).log_us.reshape(near.shape)
