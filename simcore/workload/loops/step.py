"""The vocabulary of training loops: a loop is a list of `Step`s, which says what is computed, sent and awaited."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from simcore.registry import Registry
from simcore.workload.model import Group, Parallelism, PhaseName, Workload

LETTER = {PhaseName.FORWARD: "F", PhaseName.INPUT_GRAD: "I", PhaseName.WEIGHT_GRAD: "W"}


class Order(Enum):
    """Which priority a collective gets; SYSTEM follows the system's scheduling policy."""

    SYSTEM = "system"
    LIFO = "lifo"
    FIFO = "fifo"
    HIGHEST = "highest"


class Span(Enum):
    """Which part of the machine a column's collectives span."""

    NONE = "none"
    ALL = "all"
    FIRST_DIM = "dimension 0"
    OTHER_DIMS = "dimensions 1.."
    MODEL = "the model-parallel group"
    DATA = "the data-parallel group"


class Ref(NamedTuple):
    """The collective of a layer's phase."""

    phase: PhaseName
    layer: int

    def __str__(self) -> str:
        return f"{LETTER[self.phase]}{self.layer}"


class Step(Struct, frozen=True):
    """One state of the loop: wait for `before`, compute, issue a collective, wait for `after`.

    `blocking` waits for the issued collective itself. `computes` is False where the loop only moves on, `instant`
    where not even that is a state of its own (see `Profile.step_ns`).
    """

    phase: PhaseName
    layer: int
    before: Ref | None = None
    issue: Ref | None = None
    blocking: bool = False
    order: Order = Order.SYSTEM
    after: Ref | None = None
    computes: bool = True
    instant: bool = False

    def __str__(self) -> str:
        return f"{LETTER[self.phase]}{self.layer}"


class Loop(Struct, frozen=True):
    """A training loop: its steps for one iteration, and which groups its columns mean.

    `activations` is the span of the forward and input-gradient columns, `gradients` of the weight-gradient column,
    `first_row` replaces both on row 0 (the DLRM loops' embedding). A `staged` one runs in pipeline stages, too: its
    groups stay within a stage.
    """

    steps: Callable[[Workload], list[Step]]
    activations: Span = Span.NONE
    gradients: Span = Span.NONE
    first_row: Span | None = None
    staged: bool = False


loops: Registry[Loop] = Registry("training loop")


def column_group(
    workload: Workload, row_loop: str, first: bool, phase: PhaseName, own: Group, *, from_header: bool = False
) -> Group | Span:
    """Which group the collective of a column spans: its own suffix, or what the training loop (of the row) says.

    The `first` row is special where the file's loop says so, whatever the row's own (ASTRA-sim 1.0). With
    `from_header`, activations that a loop sends to everybody stay in the header's model-parallel group.
    """
    if own != Group.LOOP:
        return own
    of_file: Loop = loops.get(workload.loop)
    if of_file.first_row and first:
        return of_file.first_row
    loop: Loop = loops.get(row_loop or workload.loop)
    if phase == PhaseName.WEIGHT_GRAD:
        return loop.gradients
    stays = from_header and loop.activations == Span.ALL and workload.parallelism.tp
    return Span.MODEL if stays else loop.activations


def group_axes(sizes: Parallelism, npus: int) -> dict[Group | Span, tuple[int, int]]:
    """Group -> (number of ranks, how far apart their ids are), TP innermost, pipeline stages outermost."""
    tp, cp, ep, pp = (max(1, size) for size in (sizes.tp, sizes.cp, sizes.ep, sizes.pp))
    data = max(1, npus // (tp * pp))
    apart = sizes.expert_stride
    axes: dict[Group | Span, tuple[int, int]] = {Group.TP: (tp, 1), Group.CP: (cp, tp), Group.EP: (ep, apart)}
    axes[Group.DP_EP] = max(1, tp * data // (apart * ep)), apart * ep
    axes |= {Group.DP: (data, tp), Group.PP: (pp, tp * data)}
    return axes | {Span.MODEL: axes[Group.TP], Span.DATA: axes[Group.DP]}
