"""Where the corrected workload differs from AICB's file of the same options: bytes of a step by purpose, and why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from simcore.errors import InputError
from simcore.generate.aicb.operations import EPOCH_END
from simcore.generate.aicb.options import Options
from simcore.library import table
from simcore.workload.model import Group, Layer

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

        made = deepspeed_operations(replace(options, epoch_num=1))
        return _sums(
            (one.stage.partition(".")[2], 0, False, one.size if isinstance(one.size, int) and one.group else 0)
            for one in made[made.index(EPOCH_END) :]  # behind the set-up
        )
    from simcore.generate.aicb.training import training_text

    # Bytes do not depend on times; AICB's DeepSeek has a file with times only.
    profiled = replace(options, aiob_enable=options.aiob_enable or options.frame == "DeepSeek")
    return _row_bytes(training_text(profiled, times={}).layers)


def _row_bytes(layers: Iterable[Layer]) -> Bytes:
    return _sums(
        (layer.name, at, phase.group is Group.DP_EP, phase.size_bytes)
        for layer in layers
        for at, phase in enumerate(layer.phases)
        if phase.collective is not None
    )


def _sums(some: Iterable[tuple[str, int, bool, int]]) -> Bytes:
    """Bytes by purpose, of rows by name, the number of the pass, whether experts' replicas meet, and bytes."""
    sums = Counter[str]()
    for name, at, of_experts, size in some:
        what = next((purposes[at] for start, *purposes in _PURPOSES if name.startswith(start)), name)
        sums[("expert " * of_experts + "gradients reduced") if what == "+" else what] += size
    return sums
