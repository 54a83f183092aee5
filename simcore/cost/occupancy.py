"""Memory of a stage over a step: every layer of every cell takes and gives back what it keeps, at its time.

Parameters, gradients and optimizer states stand from the beginning, as frameworks' buffers do. A layer's activations
come with its forward and go with its backward (with its weight gradients, where these have cells of their own); what is
computed again, the head's logits and gathered parameters live as long as their layer is at work. All of it is cut from
the caching allocator's segments, whose sum no step gives back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simcore.cost.predict import part_times_ns
from simcore.cost.systems import Cluster
from simcore.model.allocator import Allocator, Piece
from simcore.model.layer import embedding, mtp_blocks
from simcore.model.memory import Needs, again_bytes, head_bytes, kept_bytes, layer_bytes, stage_needs, states
from simcore.model.plan import Plan
from simcore.model.shape import Model
from simcore.workload.loops.schedules import Cell
from simcore.workload.loops.timing import play

_LASTING = ("parameters", "gradients", "optimizer")
_PASSES = {"F": "forward", "B": "backward", "W": "weight gradients"}


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes from a time on: activations of every micro-batch in flight, what only lives now, what segments hold."""

    time_s: float
    cause: str
    flying: tuple[tuple[int, int], ...]
    workspace: int
    allocated: int
    reserved: int

    @property
    def activations(self) -> int:
        """Of all micro-batches in flight."""
        return sum(size for _, size in self.flying)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A stage's memory over a step; `lasting` bytes by what they are stand all the time."""

    stage: int
    lasting: dict[str, int]
    moments: tuple[Moment, ...]

    @property
    def peak(self) -> Moment:
        """Where most is asked for, for the first time."""
        return max(self.moments, key=lambda moment: moment.activations + moment.workspace)

    @property
    def peak_bytes(self) -> int:
        """What is asked for there."""
        return sum(self.lasting.values()) + self.peak.activations + self.peak.workspace

    @property
    def reserved_bytes(self) -> int:
        """What segments hold at the end: rounding and fragmentation included."""
        return self.moments[-1].reserved


@dataclass(slots=True)
class _Stage:
    """One stage at work."""

    model: Model
    plan: Plan
    needs: Needs
    allocator: Allocator = field(default_factory=Allocator)
    held: dict[tuple[int, int, int], list[Piece]] = field(default_factory=dict)
    flying: dict[int, int] = field(default_factory=dict)
    workspace: int = 0

    def cell(self, cell: Cell, part: int, start_s: float, end_s: float) -> Iterator[Moment]:
        """A cell, layer by layer."""
        steps = [*self._steps(part)]
        ends = {-1: "embedding", self.model.depth + self.model.mtp_layers: "head"}
        frees = cell.kind == ("W" if self.plan.splits_backward else "B")
        if cell.kind != "F":
            steps.reverse()
        each_s = (end_s - start_s) / len(steps)
        for at, (number, lasting, working) in enumerate(steps):
            key, name = (cell.micro_batch, part, number), ends.get(number) or f"layer {number}"
            needed = [self.needs.gathered_bytes(self.plan), *(working if cell.kind == "B" else ())]
            taken = [self.allocator.take(size) for size in needed if size]
            self.workspace = sum(piece.asked for piece in taken)
            if cell.kind == "F":
                self.held[key] = [self.allocator.take(size) for size in lasting if size]
                self._fly(cell.micro_batch, sum(lasting))
            cause = f"{_PASSES[cell.kind]} of micro-batch {cell.micro_batch}, {name}"
            yield self.moment(start_s + at * each_s, cause)
            for piece in taken:
                self.allocator.give(piece)
            self.workspace = 0
            if frees:
                gone = self.held.pop(key)
                self._fly(cell.micro_batch, -sum(piece.asked for piece in gone))
                for piece in reversed(gone):
                    self.allocator.give(piece)
        yield self.moment(end_s, f"end of {_PASSES[cell.kind]} of micro-batch {cell.micro_batch}")

    def _fly(self, micro_batch: int, size: int) -> None:
        left = self.flying.get(micro_batch, 0) + size
        self.flying[micro_batch] = left
        if not left:
            del self.flying[micro_batch]

    def moment(self, time_s: float, cause: str) -> Moment:
        """What is held from now on."""
        now = self.allocator
        return Moment(time_s, cause, tuple(self.flying.items()), self.workspace, now.allocated, now.reserved)

    def _steps(self, part: int) -> Iterator[tuple[int, list[int], list[int]]]:
        """Layers of a part of the model: what they keep, and what their backward needs besides."""
        model, plan, last = self.model, self.plan.of_layer, self.plan.outline.parts - 1
        if part == 0:
            yield -1, _whole(kept_bytes([embedding(model, plan)], plan)), []
        layers = self.plan.layers(model, part)
        for some, again, away in self.plan.layer_states(layers):
            for layer in some:
                # Of a group that is computed again the first layer's input is kept; then all are there up to this one.
                behind = (layer - layers.start) % self.plan.group if again else 0
                kept = [] if behind else _whole(layer_bytes(model, plan, model.kind(layer), again=again))
                group = [*map(model.kind, range(layer - behind, layer + 1))] if again else []
                whole = [size for kind in group for size in _whole(layer_bytes(model, plan, kind, again=False))]
                gone = away and "activations" in self.plan.offload
                whole += _whole(again_bytes(model, plan, model.kind(layer)))
                yield layer, [] if gone else kept, kept + whole if gone else whole
        if part == last:
            for layer in range(model.depth, model.depth + model.mtp_layers):
                beside, kind, again = kept_bytes(mtp_blocks(model, plan), plan), model.kind(layer), plan.again(0)
                whole = _whole(layer_bytes(model, plan, kind, again=False)) if again else []
                yield layer, _whole((*beside, *layer_bytes(model, plan, kind, again=again))), whole
            loss, turned = head_bytes(model, plan)
            turned = (*turned, self.needs.beside_bytes(self.plan)[1])
            yield model.depth + model.mtp_layers, [], _whole(max(loss, turned, key=sum))


def _whole(sizes: Iterable[float]) -> list[int]:
    return [round(size) for size in sizes]


def occupancy(model: Model, plan: Plan, cluster: Cluster, stage: int = 0) -> Occupancy:
    """The memory of a rank of a stage over a predicted step."""
    needs = stage_needs(model, plan, stage)
    working = _Stage(model, plan, needs)
    lasting = dict(zip(_LASTING, states(needs.held, plan), strict=True))
    lasting["parameters"] -= states(needs.hosted, plan)[0]
    lasting["gradients"] += needs.beside_bytes(plan)[0]
    for size in filter(None, lasting.values()):
        working.allocator.take(size)
    order, played = plan.order, play(plan.order, part_times_ns(model, plan, cluster))
    moments = [working.moment(0.0, "start of the step")]
    for cell, start_ns, end_ns in zip(order.order[stage], played.start[stage], played.end[stage], strict=True):
        moments += working.cell(cell, order.part(stage, cell.chunk), start_ns * 1e-9, end_ns * 1e-9)
    moments.append(working.moment(played.makespan * 1e-9, "end of the pipeline"))
    return Occupancy(stage, lasting, tuple(moments))
