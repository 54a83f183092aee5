"""Where the corrected workload differs from AICB's file of the same options: bytes of a step by purpose, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from simcore.errors import InputError
from simcore.generate.aicb.operations import Operation
from simcore.generate.aicb.options import Options
from simcore.library import table
from simcore.workload.model import Group, Layer, PhaseName

Bytes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One purpose of communication, its bytes of a step in AICB's file and here, and why they differ."""

    what: str
    aicb_bytes: int
    bytes: int
    reason: str

    def to_dict(self) -> dict[str, int | str]:
        """The entry of the JSON document."""
        return asdict(self) | {"difference_bytes": self.bytes - self.aicb_bytes}


REASONS = dict(table(__file__, "deviations.txt"))
"""Purpose -> why the bytes differ."""
_PURPOSES = table(__file__, "purposes.txt")

_DIRECTED = ("embedding", "attention", "feed-forward", "experts", "head")


def deviations(options: Options, layers: Iterable[Layer]) -> list[Deviation]:
    """Purposes whose bytes differ between AICB's file of these options and the corrected rows, in a fixed order."""
    ours = _row_bytes(layers)
    try:
        theirs = _aicb_bytes(options)
    except InputError as error:
        reason = "; ".join(problem.message for problem in error.problems)
        return [Deviation("everything", 0, sum(ours.values()), f"AICB refuses these options: {reason}")]
    found = [
        Deviation(what, theirs.get(what, 0), ours.get(what, 0), reason)
        for what, reason in REASONS.items()
        if theirs.get(what, 0) != ours.get(what, 0)
    ]
    return [*found, *_other(options)]


def _other(options: Options) -> Iterator[Deviation]:
    """What differs without changing bytes."""
    times = (
        "AICB takes one profile of whatever shape and GPU, the same for forward and both gradients"
        if options.aiob_enable
        else "AICB writes 1 ns for every computation"
    )
    yield Deviation("computation times", 0, 0, times)
    if options.enable_sequence_parallel and options.tp > 1:
        reason = "AICB all-reduces the embedding's output where sequence parallelism reduce-scatters the same buffer"
        yield Deviation("embedding collective", 0, 0, reason)
    if options.pp > 1:
        reason = "AICB's stages are all alike, with embedding and head, and a remainder of the layers is dropped"
        yield Deviation("pipeline stages", 0, 0, reason)


def _aicb_bytes(options: Options) -> Bytes:
    """Bytes of AICB's own file by purpose."""
    if options.frame == "DeepSpeed":
        from simcore.generate.aicb.deepspeed import deepspeed_operations

        return _operation_bytes(deepspeed_operations(replace(options, epoch_num=1)))
    from simcore.generate.aicb.training import training_text

    # Bytes do not depend on times; AICB's DeepSeek has a file with times only.
    profiled = replace(options, aiob_enable=options.aiob_enable or options.frame == "DeepSeek")
    return _row_bytes(training_text(profiled, times={}).layers)


def _row_bytes(layers: Iterable[Layer]) -> Bytes:
    sums: dict[str, int] = {}
    for layer in layers:
        for name in PhaseName:
            phase = layer.phase(name)
            if phase.collective is not None:
                what = _purpose(layer.name, name, phase.group)
                sums[what] = sums.get(what, 0) + phase.size_bytes
    return sums


def _purpose(row: str, phase: PhaseName, group: Group) -> str:
    """What a row's collective is for."""
    if row == "grad_norm":
        return "parameters gathered" if phase is PhaseName.FORWARD else "gradients reduced"
    if row.startswith("gather_"):
        return "parameters gathered"
    if row.startswith("replicas_"):
        return "gradients reduced"
    named = row.startswith(("grad_", "moe_grad", "parameter_gather", "gradient_norm"))  # with a purpose of their own
    if row.startswith("gradient_reduce") or (phase is PhaseName.WEIGHT_GRAD and not named):
        return "expert gradients reduced" if group is Group.DP_EP else "gradients reduced"
    what = next((what for start, what in _PURPOSES if row.startswith(start)), row)
    return f"{what} {'forward' if phase is PhaseName.FORWARD else 'backward'}" if what in _DIRECTED else what


def _operation_bytes(operations: Iterable[Operation]) -> Bytes:
    """Bytes of one DeepSpeed step by purpose, set-up left out."""
    sums: dict[str, int] = {}
    for operation in operations:
        if operation.stage.startswith("init") or operation.group is None or not isinstance(operation.size, int):
            continue
        what = "parameters gathered" if operation.kind == "all_gather" else "gradients reduced"
        if operation.stage.endswith(("has_overflow", "get_grad_norm_direct")):
            what = "optimizer"
        sums[what] = sums.get(what, 0) + operation.size
    return sums
