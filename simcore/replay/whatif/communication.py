"""What a change did to the communication of a step, kind by kind."""

from __future__ import annotations

from dataclasses import dataclass

from simcore.replay.session import StepReplay
from simcore.replay.whatif.transfers import kind_of

__all__ = ["Change", "changes"]


@dataclass(frozen=True, slots=True)
class Change:
    """Kernels of one kind: how many, and how long all of them last as recorded and as replayed, waiting left out."""

    count: int = 0
    recorded_ns: int = 0
    new_ns: int = 0


def changes(step: StepReplay) -> dict[str, Change]:
    """The communication kernels of one rank's step whose arguments were recorded, by kind."""
    trace, nodes = step.prepared.view.trace, step.graph.ranks[step.number]
    lengths = (step.schedule.end_ns - step.schedule.start_ns)[-1]
    found: dict[str, Change] = {}
    for task, node in zip(nodes.tasks, nodes.ends, strict=True):
        said = trace.collectives.get(task)
        if said is None:
            continue
        kind = kind_of(said.operation) or said.operation
        before = found.get(kind, Change())
        recorded_ns = step.source.transfer_ns(step.number, task)
        found[kind] = Change(before.count + 1, before.recorded_ns + recorded_ns, before.new_ns + int(lengths[node]))
    return found
