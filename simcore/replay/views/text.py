"""A replayed step as a workload text: one row for every collective, with the computation since the one before it."""

from __future__ import annotations

from simcore.errors import InputError
from simcore.replay.session import Replay
from simcore.replay.views.chakra import collectives
from simcore.replay.views.report import typical_step
from simcore.timeline.breakdown import union_ns
from simcore.workload.model import Layer, Phase, Workload
from simcore.workload.text import write

__all__ = ["to_workload_text"]


def to_workload_text(replay: Replay) -> str:
    """Rows of the first rank's typical step, for the data parallel loop: collectives go on behind the computation.

    That loop plays weight gradients from the last row to the first, so the rows stand in reverse order of launch.

    Raises
    ------
    InputError
        When the trace does not say what its collectives do and how large they are.
    """
    prepared, step = replay.ranks[0], typical_step(replay, 0)
    rank, trace, rows = prepared.view, prepared.view.trace, step.graph.ranks[step.number].tasks
    known = collectives(trace)
    wanted = rank.launch_order[rank.communicating(step.position)[rank.launch_order]].tolist()
    found = [task for task in wanted if task in known]
    if wanted and not found:
        raise InputError.at(
            "--export-text",
            "the rows of the text cannot be cut: no collective says its kind and size",
            expected=f"NCCL arguments of communication kernels in {trace.file}",
            found=f"{len(wanted)} communication kernels without them",
            hint="recent PyTorch versions record them, a host execution trace has them (--host); "
            "--export-chakra keeps the recorded times instead",
        )
    working = [task for task in rows if not rank.communication[task]]
    layers, since = [], -(1 << 62)
    for number, task in enumerate([*found, None]):
        until = int(rank.launch_ns[task]) if task is not None else 1 << 62
        own = [each for each in working if since <= rank.launch_ns[each] < until]
        compute_ns = union_ns(trace.tasks.start_ns[own], trace.tasks.end_ns[own])
        kind, size = (known[task][0], known[task][1].size_bytes) if task is not None else (None, 0)
        layers.append(Layer(f"segment{number}", weight_grad=Phase(compute_ns, kind, size)))
        since = until
    return write(Workload("DATA", tuple(reversed(layers)), name=trace.file))
