"""How far predictions of steps miss measured ones: intervals from the errors on jobs that are alike.

`errors.json` has the error of every published step, by who published it and what kind of job it is, with that source
left out of the fits of software; `python -m tools.calibrate --errors` writes it anew. A step that
somebody published is never judged by that source: its interval comes from all others.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import log, log2
from pathlib import Path

from simcore.compute.accelerators import ELEMENT_BYTES, accelerator
from simcore.cost.systems import Cluster
from simcore.model.plan import Plan
from simcore.model.shape import Model

FILE = Path(__file__).parent / "errors.json"


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes jobs alike: software family, device and its maker, bits of products, scale, sort of model."""

    software: str
    device: str
    maker: str
    bits: int
    octave: int
    model: str

    def likeness(self, other: Kind) -> float:
        """1 for the same kind, less for every difference."""
        found = _PER_OCTAVE ** abs(self.octave - other.octave)
        for name, share in _DIFFERENCES.items():
            if getattr(self, name) != getattr(other, name):
                found *= share
        return found if self.software else _NAMELESS * found


# What is left of a likeness where jobs differ in something; per doubling of the accelerators. Hardly anything where
# makers do: the rates that AMD's boards reach of the stated ones, over NVIDIA's, are 0.62 to 0.93.
_DIFFERENCES = {"software": 0.15, "device": 0.4, "maker": 0.05, "bits": 0.6, "model": 0.15}
_PER_OCTAVE = 0.93
_STRANGER = 0.15  # of a chip that nobody published steps of: its kernels are transferred from others
# Software of which nobody published steps errs as all steps do under profiles of other families: every source alike,
# half are missed by 15 % and nine in ten by 50 % (`python -m tools.calibrate --strangers`). So what was missed under
# profiles of their own hardly counts.
_NAMELESS = 0.05


@dataclass(frozen=True, slots=True)
class Seen:
    """Errors (predicted over measured, less one) of one source on jobs of a kind."""

    source: str
    kind: Kind
    errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Margin:
    """A step takes at least the prediction over 1 + `share`, at most the prediction times as much.

    `support`: how many sources measured such jobs, each counted by how alike its jobs are; below 1, margins are wider.
    """

    share: float
    support: float

    @property
    def widened(self) -> bool:
        """Whether nothing like it was measured."""
        return self.support < 1


def kind_of(model: Model, plan: Plan, cluster: Cluster) -> Kind:
    """What kind of job it is."""
    device = cluster.device
    sort = "lora" if plan.lora_rank else "experts" if model.experts else "dense"
    bits = round(8 * ELEMENT_BYTES[plan.dtype])
    return Kind(cluster.software.family, device.preset, device.maker, bits, round(log2(plan.world_size)), sort)


def interval(answer: float, margin: float) -> tuple[float, float]:
    """What an answer is within a factor of 1 + `margin` of."""
    return answer / (1 + margin), answer * (1 + margin)


@lru_cache(maxsize=1)
def shipped_errors() -> tuple[Seen, ...]:
    """The errors on published steps."""
    table = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    return tuple(Seen(source, Kind(*kind), tuple(errors)) for source, kind, errors in table)


@lru_cache(maxsize=1)
def _rising() -> list[tuple[float, int]]:
    """The size of every error, ascending, and the number of what it is of; -1: of what nothing is known of."""
    seen = [(abs(log(1 + error)), at) for at, one in enumerate(shipped_errors()) for error in one.errors]
    return sorted([*seen, *((error, -1) for error in _UNKNOWN)])


@lru_cache(maxsize=4096)
def margin_of(kind: Kind, besides: frozenset[str] = frozenset()) -> Margin:
    """What nine in ten like jobs stay within, of all sources but those named."""
    others = {at: one for at, one in enumerate(shipped_errors()) if one.source not in besides}
    known = any(_chip(one.kind.device) == _chip(kind.device) for one in others.values())
    alike = {at: (1.0 if known else _STRANGER) * kind.likeness(one.kind) for at, one in others.items()}
    counts: dict[str, float] = {}
    best: dict[str, float] = {}
    for at, one in others.items():
        counts[one.source] = counts.get(one.source, 0.0) + alike[at] * len(one.errors)
        best[one.source] = max(best.get(one.source, 0.0), alike[at])
    # A source weighs as its most alike job, however many jobs it has.
    weights = {at: alike[at] * best[one.source] / counts[one.source] for at, one in others.items()}
    weights[-1] = _PRIOR / len(_UNKNOWN)
    rising = _rising()
    sums = list(accumulate(weights.get(at, 0.0) for _, at in rising))
    share = rising[min(bisect_left(sums, _COVERED * sums[-1]), len(rising) - 1)][0]
    return Margin(share, sum(best.values()))


@lru_cache(maxsize=256)
def _chip(device: str) -> tuple[str, int, float]:
    """What devices share that differ in memory and links alone: H100 and H800."""
    one = accelerator(device)
    return one.maker, one.cores, max(one.peak_flops_per_s.values())


_COVERED = 0.9
_UNKNOWN = (0.05, 0.1, 0.2, 0.3, 0.5)  # how far steps are missed of which nothing is known
_PRIOR = 0.2  # and how much that weighs, in sources: such that intervals hold on steps whose source is left out
