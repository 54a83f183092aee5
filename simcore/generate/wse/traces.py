"""The core level: the rows of all nodes played in lockstep, each turned into instructions of its node's cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from msgspec import Struct, field

from simcore.errors import SimulationError
from simcore.generate.wse.exchange import Routed
from simcore.generate.wse.kernels import Core, Wires, attention, product, receivers, total
from simcore.generate.wse.nodes import Job, operations
from simcore.generate.wse.operations import ATTENTION, LINEAR, TOGETHER, Operation, Step, tensor
from simcore.generate.wse.program import Banks, Program, unplaced
from simcore.generate.wse.tiling import Tiling

# Operations that only rename and cut: operation, layouts of its inputs -> layouts of its outputs. An Add makes no
# instruction (as in the peer): its result is found where the product that follows needs it.
MOVES: dict[str, Callable[[Operation, list[Banks]], list[Banks]]] = {
    "View": lambda operation, held: [held[0].reshape(operation.shape[1])],
    "Split": lambda operation, held: np.split(held[0], np.cumsum(operation.shape[1])[:-1], axis=operation.shape[0]),
    "Transpose": lambda operation, held: [np.swapaxes(held[0], *operation.shape[0])],
    "Slice": lambda operation, held: [_slice(operation, held[0])],
    "Concat": lambda operation, held: [_concat(operation, held)],
    "Add": lambda _, held: [unplaced(held[0].shape)],
}
KERNELS = {**dict.fromkeys(LINEAR, product), **dict.fromkeys(ATTENTION, attention), "Sum": total}


def _slice(operation: Operation, held: Banks) -> Banks:
    dims, axis, first, last = operation.shape
    extent: tuple[slice, ...] = (*(slice(None),) * axis, slice(first, last))
    return held.reshape(dims)[extent]


def _concat(operation: Operation, held: list[Banks]) -> Banks:
    axis, sizes, out = operation.shape
    every = zip(held, sizes, strict=True)
    return np.concatenate([part.reshape(*out[:axis], size, *out[axis + 1 :]) for part, size in every], axis=axis)


def instructions(
    job: Job, step: Step, routed: Routed, tiling: Tiling | None = None, *, spread: bool = False
) -> Program:
    """The instructions of all cores of all nodes in one step.

    Different from the peer: the Barrier rows of the node level stop the communicating cores of their nodes,
    all-gathers and prefill work, rings count positions, not node numbers. `spread` lets the core of each bank
    communicate, not core 0 alone.
    """
    program = Program(job.system.nodes, job.system.cores)
    return _Play(job, step, routed, program, tiling or Tiling(), Wires(program, job.element_bytes, spread)).run()


class _Play(Struct):
    """The state of the lockstep: what every node has to do, where every tensor lies, who waits for whom."""

    job: Job
    step: Step
    routed: Routed
    program: Program
    tiling: Tiling
    wires: Wires
    tensors: dict[str, Banks] = {}
    uses: Counter[str] = field(default_factory=Counter)
    waiting: dict[str, dict[int, Operation]] = {}
    layers: int = 0

    def run(self) -> Program:
        """Play all rows."""
        nodes = range(self.program.nodes)
        rows = [list(operations(self.job, self.step, node, self.routed))[::-1] for node in nodes]
        for node in nodes:  # the queries are there, in the tiles that the first layer needs
            shape = (self.job.batch, self.step.queries, self.job.model.hidden)
            self.tensors[tensor(node, "queries")] = unplaced(shape)
            self.uses[tensor(node, "queries")] = 1
            for operation in rows[node]:
                self.uses.update(operation.inputs)
        started = [False] * len(rows)
        while any(rows):
            moved = [self._turn(node, rows[node], started) for node in nodes]
            if not any(moved):
                left = ", ".join(f"{held[-1].uid} on node {node}" for node, held in enumerate(rows) if held)
                raise SimulationError(f"the nodes wait for each other: {left}")
        return self.program

    def _turn(self, node: int, rows: list[Operation], started: list[bool]) -> bool:
        """Run one node up to and with its next operation that makes instructions; whether anything happened."""
        moved, bank = False, self.program.bank
        # The inputs are there, and no earlier collective of the node is still open.
        while rows and self.tensors.keys() >= {*rows[-1].inputs} and all(node not in m for m in self.waiting.values()):
            operation, moved = rows.pop(), True
            if operation.kind in MOVES:
                self._keep(operation, MOVES[operation.kind](operation, self._take(operation)))
                continue
            if operation.kind != "Barrier" and started[node]:  # all its cores meet before every layer but the first
                self.program.barrier(f"cross_layer_{self.layers}", range(bank(node, 0), bank(node + 1, 0)))
                self.layers += 1
            started[node] |= operation.kind != "Barrier"
            self._play(node, operation)
            break
        return moved

    def _take(self, operation: Operation) -> list[Banks]:
        """The layouts of the inputs; those that nobody else needs are forgotten."""
        held = [self.tensors[name] for name in operation.inputs]
        for name in operation.inputs:
            self.uses[name] -= 1
            if not self.uses[name]:
                del self.tensors[name]
        return held

    def _keep(self, operation: Operation, layouts: list[Banks]) -> None:
        """Remember the layouts of the outputs that somebody needs."""
        for name, layout in zip(operation.outputs, layouts, strict=True):
            if self.uses[name]:
                self.tensors[name] = layout

    def _play(self, node: int, operation: Operation) -> None:
        """Make the instructions of one operation, or wait for the other members of its group."""
        if operation.kind in TOGETHER:
            self._meet(node, operation)
        elif kernel := KERNELS.get(operation.kind):
            core = Core(self.program, node, self.tiling, self.job.element_bytes)
            self._keep(operation, [kernel(core, operation, self._take(operation))])
        else:
            self._send(node, operation)

    def _send(self, node: int, operation: Operation) -> None:
        """AlltoAll and Unicast: a tensor for every receiver; Multicast: one for all."""
        held, targets = self._take(operation), receivers(operation)
        if operation.kind == "Multicast":
            if held and targets:
                layout = self.wires.send(operation.uid, "MULTICAST", (node, *targets), held[0])
                self._keep(operation, [layout] * len(targets))
            return
        uid = f"{operation.uid}_unicast" if operation.kind == "AlltoAll" else operation.uid
        pairs = zip(held, targets, strict=True)
        self._keep(operation, [self.wires.send(uid, "COPY", (node, target), part) for part, target in pairs])

    def _meet(self, node: int, operation: Operation) -> None:
        """A collective or a barrier: run it when its last member has come."""
        members = self.waiting.setdefault(f"{operation.uid} {operation.group}", {})
        members[node] = operation
        group = operation.group or ()
        if len(members) < len(group):
            return
        del self.waiting[f"{operation.uid} {operation.group}"]
        if operation.kind == "Barrier":
            self.wires.barrier(operation.uid, group)
            return
        empty = np.zeros((0, 1, self.job.model.hidden), np.int16)
        held = {each: (self._take(members[each]) or [empty])[0].reshape(members[each].shape) for each in group}
        if operation.kind == "AllReduce":
            self.wires.all_reduce(operation.uid, held)
            layouts = held
        else:
            layouts = dict.fromkeys(group, self.wires.all_gather(operation.uid, held))
        for each in group:
            self._keep(members[each], [layouts[each]])
