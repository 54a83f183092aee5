"""Which ranks a column's collective spans: the group, and what the header says of its size and place."""

from __future__ import annotations

from simcore.workload.loops import Loop, Span, loops
from simcore.workload.model import Group, Layer, Parallelism, PhaseName, Workload

__all__ = ["column_group", "group_axes"]


def column_group(
    workload: Workload, layer: Layer, index: int, phase: PhaseName, own: Group, *, from_header: bool = False
) -> Group | Span:
    """Which group the collective of a column spans: its own suffix, or what the training loop says.

    Row 0 is special where the file's loop says so, whatever the row's own (ASTRA-sim 1.0). With `from_header`,
    activations that a loop sends to everybody stay in the header's model-parallel group.
    """
    if own != Group.LOOP:
        return own
    of_file: Loop = loops.get(workload.loop)
    if of_file.first_row and index == 0:
        return of_file.first_row
    loop: Loop = loops.get(layer.loop or workload.loop)
    span = loop.gradients if phase == PhaseName.WEIGHT_GRAD else loop.activations
    return Span.MODEL if from_header and span == Span.ALL and workload.parallelism.tp else span


def group_axes(sizes: Parallelism, npus: int) -> dict[Group | Span, tuple[int, int]]:
    """Group -> (number of ranks, how far apart their ids are), TP innermost, pipeline stages outermost."""
    tp, cp, ep, pp = (max(1, size) for size in (sizes.tp, sizes.cp, sizes.ep, sizes.pp))
    data = max(1, npus // (tp * pp))
    axes: dict[Group | Span, tuple[int, int]] = {Group.TP: (tp, 1), Group.CP: (cp, tp), Group.EP: (ep, tp)}
    axes |= {Group.DP: (data, tp), Group.DP_EP: (max(1, data // ep), tp * ep), Group.PP: (pp, tp * data)}
    return axes | {Span.MODEL: axes[Group.TP], Span.DATA: axes[Group.DP]}
