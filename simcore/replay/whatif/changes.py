"""What could be different: factors on the durations of tasks, and how often layers are run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.replay.graph import Graph, RankNodes
from simcore.replay.rank import RankView
from simcore.replay.whatif.layers import LayerStack, Segment, find_layers
from simcore.replay.whatif.overlap import one_after_another, without_waits
from simcore.replay.whatif.products import width_factors
from simcore.replay.whatif.retiming import Retimed
from simcore.replay.whatif.splice import block_of, spliced

__all__ = ["Layers", "Overlap", "Retimed", "Scale", "Straggler", "WhatIf", "Width", "combined", "edited"]

Factors = NDArray[np.float64]


class WhatIf(Protocol):
    """A change of durations; `title` says it in the answer."""

    @property
    def title(self) -> str:
        """What is changed, in words."""

    def factors(self, rank: RankView) -> Factors:
        """The factor on the duration of each task of a rank."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Tasks whose name matches take `factor` times as long."""

    pattern: re.Pattern[str]
    factor: float

    @property
    def title(self) -> str:
        """What is changed, in words."""
        return f"{self.pattern.pattern} x {self.factor:g}"

    def factors(self, rank: RankView) -> Factors:
        """The factor where the name matches, else 1."""
        hit = np.array([bool(self.pattern.search(name)) for name in rank.trace.names])
        return np.where(hit[rank.trace.tasks.name], self.factor, 1.0)


@dataclass(frozen=True, slots=True)
class Straggler:
    """Everything but communication takes `factor` times as long on some ranks."""

    ranks: tuple[range, ...]
    factor: float

    @property
    def title(self) -> str:
        """What is changed, in words."""
        spans = ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in self.ranks if span)
        return f"computation on rank {spans} x {self.factor:g}"

    def factors(self, rank: RankView) -> Factors:
        """The factor on a straggler's computation, else 1."""
        slow = any(rank.trace.rank in span for span in self.ranks)
        return np.where(rank.communication | (not slow), 1.0, self.factor)


@dataclass(frozen=True, slots=True)
class Layers:
    """Another number of layers: recorded ones are repeated or left out as a whole (Lumos, MLSys 2025, section 3.4).

    Ordinary ones are chosen: those that launch as many kernels as most do and are nearest to the median kernel time.
    """

    count: int

    @property
    def title(self) -> str:
        """What is changed, in words."""
        return f"layers = {self.count}"

    def factors(self, rank: RankView) -> Factors:
        """Every kernel takes its time."""
        return np.ones(len(rank.trace.tasks))

    def edit(self, graph: Graph, ranks: Sequence[RankView], steps: Sequence[int]) -> Graph:
        """The step's graph with that many layers.

        Raises
        ------
        InputError
            When the traces do not say what a layer is, or ranks say different things.
        """
        stacks = [find_layers(rank, step) for rank, step in zip(ranks, steps, strict=True)]
        chosen = stacks[0].alike[: max(stacks[0].count - self.count, 1)]
        if self.count == stacks[0].count:
            return graph
        if stacks[0].count - self.count > len(chosen):
            least = stacks[0].count - len(chosen)
            what = f"only {len(chosen)} of the {stacks[0].count} layers launch the same kernels"
            raise InputError.at("--set", what, expected=f"layers >= {least}", found=f"layers={self.count}")
        times = max(self.count - stacks[0].count, -1) + 1
        parts = [block for number in chosen for block in _blocks(stacks, number)]
        return spliced(graph, [block_of(graph, dict(enumerate(part))) for part in parts], times)


def _blocks(stacks: Sequence[LayerStack], number: int) -> list[tuple[Segment, ...]]:
    """The parts of a layer, each on all ranks."""
    parts = [stack.segments.get(number, ()) for stack in stacks]
    if len({stack.count for stack in stacks}) > 1 or len(set(map(len, parts))) > 1:
        found = ", ".join(f"{stack.count} x {stack.title!r}" for stack in stacks)
        hint = "of a pipeline's stages: --set pp=N layers=N --topology T compiles the step anew"
        raise InputError.at(
            "--set", "layers cannot be changed: the ranks recorded different ones", found=found, hint=hint
        )
    return list(zip(*parts, strict=True))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Communication beside computation never ("off"), or wherever only waits between streams prevented it ("full").

    Off: in the order of launches every communication kernel waits for the computation before it, and what is computed
    after it waits for it. Full: no stream waits for another one between communication and computation; the host's
    waits and the order on each stream stay.
    """

    mode: Literal["off", "full"]

    @property
    def title(self) -> str:
        """What is changed, in words."""
        return f"overlap {self.mode}"

    def factors(self, rank: RankView) -> Factors:
        """Every kernel takes its time."""
        return np.ones(len(rank.trace.tasks))

    def edit(self, graph: Graph, ranks: Sequence[RankView], steps: Sequence[int]) -> Graph:
        """The step's graph with other waits between communication and computation."""
        if self.mode == "full":
            return without_waits(graph, _talks(graph, ranks))
        return one_after_another(
            graph, [_by_launch(nodes, rank) for nodes, rank in zip(graph.ranks, ranks, strict=True)]
        )


def _talks(graph: Graph, ranks: Sequence[RankView]) -> NDArray[np.bool_]:
    """Which nodes are communication."""
    talks = np.zeros(len(graph.kind), dtype=bool)
    for nodes, rank in zip(graph.ranks, ranks, strict=True):
        for column in (nodes.begins, nodes.ends):
            talks[column] = rank.communication[nodes.tasks]
    return talks


def _by_launch(nodes: RankNodes, rank: RankView) -> list[tuple[int, int, bool]]:
    """(first node, last node, communication) of a rank's tasks in the order of their launches."""
    place = {task: number for number, task in enumerate(rank.launch_order.tolist())}
    rows = sorted(range(len(nodes.tasks)), key=lambda row: place[nodes.tasks[row]])
    return [(nodes.begins[row], nodes.ends[row], bool(rank.communication[nodes.tasks[row]])) for row in rows]


@dataclass(frozen=True, slots=True)
class Width:
    """Another hidden or feed-forward size: matrix products are timed anew, other computation keeps its time.

    As in Lumos (MLSys 2025, section 3.4); a product's recorded time changes by the ratio of its roofline times.
    """

    which: Literal["hidden", "ffn"]
    size: int

    @property
    def title(self) -> str:
        """What is changed, in words."""
        return f"{self.which} = {self.size}"

    def factors(self, rank: RankView) -> Factors:
        """The ratio of roofline times where a product has the dimension, else 1 (see `width_factors`)."""
        return width_factors(rank, self.which, self.size)


def edited(whats: Sequence[WhatIf], graph: Graph, ranks: Sequence[RankView], steps: Sequence[int]) -> Graph:
    """The graph with all changes of what is run."""
    for what in whats:
        graph = what.edit(graph, ranks, steps) if isinstance(what, Layers | Overlap | Retimed) else graph
    return graph


def combined(whats: Sequence[WhatIf], rank: RankView) -> Factors:
    """The product of all changes, per task."""
    factors = np.ones(len(rank.trace.tasks))
    for what in whats:
        factors = factors * what.factors(rank)
    return factors
