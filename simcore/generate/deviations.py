"""Where the corrected workload differs from AICB's file of the same options: bytes of a step by purpose, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from simcore.errors import InputError
from simcore.generate.aicb.operations import Operation
from simcore.generate.aicb.options import Options
from simcore.workload.model import Group, Layer, PhaseName

__all__ = ["Deviation", "deviations"]

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


REASONS = {
    "parameters gathered": "AICB counts the word table four times, sizes positions by the sequence, leaves out the gate"
    " of gated layers, and gathers also where nothing is sharded or a rank has no replica",
    "gradients reduced": "as for parameters; without sharded states gradients are all-reduced",
    "expert parameters gathered": "AICB's experts have no gate, and it gathers also without a sharded optimizer",
    "expert gradients reduced": "AICB's experts have no gate, and its group size is not compared with the replicas",
    "replicated gradients": "AICB all-reduces every parameter over the tensor group without sequence parallelism; only"
    " with it are there gradients to sum, those of weights that every tensor rank holds whole",
    "embedding forward": "AICB all-reduces also with sequence parallelism, which reduce-scatters, and in every stage",
    "embedding backward": "AICB writes the activations' size once a step; only sequence parallelism gathers, each time",
    "attention forward": "AICB's latent attention gathers the hidden size where low-rank vectors are; without profile"
    " it communicates also in a tensor group of one",
    "attention backward": "AICB drops the backward collectives of tensor parallelism, or writes them with size 0, and"
    " never gathers inputs again for weight gradients",
    "feed-forward forward": "without profile AICB communicates also in a tensor group of one",
    "feed-forward backward": "as for attention",
    "experts forward": "AICB counts tokens in 2 bytes (they are 64-bit) over a fixed group, and dispatches"
    " DeepSeek's in fp8",
    "experts backward": "AICB exchanges also in groups of one where no times are given",
    "head forward": "AICB has the head with sequence parallelism only, and in every stage",
    "head backward": "AICB writes size 0 or nothing for the gradient of the head's input",
    "word table": "AICB all-reduces the word table forward in every micro-batch, which no framework does",
    "loss": "AICB writes the three reductions once a step, also in a tensor group of one; they are of every micro-batch"
    " on the last stage",
    "context exchange": "AICB reads the context parallel size and ignores it",
    "further tokens": "AICB has no multi-token prediction",
    "optimizer": "AICB has four reductions of a number; there is one, of the gradients' norm",
}
"""Purpose -> why the bytes differ."""

_ROWS = (
    ("grad_gather", "parameters gathered"),
    ("grad_param", "gradients reduced"),
    ("moe_grad_norm1", "expert parameters gathered"),
    ("moe_grad_norm2", "expert gradients reduced"),
    ("parameter_gather_experts", "expert parameters gathered"),
    ("parameter_gather", "parameters gathered"),
    ("layernorm", "replicated gradients"),
    ("replicated_gradients", "replicated gradients"),
    ("embedding_grads", "embedding backward"),
    ("embedding_norm", "word table"),
    ("embedding", "embedding"),
    ("attention_context", "context exchange"),
    ("attention", "attention"),
    ("mlp_moelayer", "experts"),
    ("moe_", "experts"),
    ("mlp", "feed-forward"),
    ("shared_expert", "feed-forward"),
    ("mtp_combine", "further tokens"),
    ("final", "head"),
    ("head", "head"),
    ("cross_entropy", "loss"),
    ("optimizer", "optimizer"),
    ("gradient_norm", "optimizer"),
)
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
    if row.startswith("gradient_reduce") or (phase is PhaseName.WEIGHT_GRAD and not _listed_gradient(row)):
        return "expert gradients reduced" if group is Group.DP_EP else "gradients reduced"
    what = next((what for start, what in _ROWS if row.startswith(start)), row)
    return f"{what} {'forward' if phase is PhaseName.FORWARD else 'backward'}" if what in _DIRECTED else what


def _listed_gradient(row: str) -> bool:
    """Whether a row's weight-gradient column has a purpose of its own."""
    return row.startswith(("grad_", "moe_grad", "parameter_gather", "gradient_norm"))


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
