"""Where the corrected workload differs from AICB's file of the same options: bytes of a step by purpose, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from simcore.errors import InputError
from simcore.generate.aicb.operations import EPOCH_END
from simcore.generate.aicb.options import Options
from simcore.library import table
from simcore.workload.model import Group, Layer, Phase, Role

Bytes = Counter[str]


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
_PURPOSES = {name: purposes for name, *purposes in table(__file__, "purposes.txt")}


def deviations(options: Options, layers: Iterable[Layer]) -> list[Deviation]:
    """Purposes whose bytes differ between AICB's file of these options and the corrected rows, in a fixed order."""
    ours = _sums((_purpose(layer, at), phase.size_bytes) for layer, at, phase in _sent(layers))
    try:
        theirs = _aicb_bytes(options)
    except InputError as error:
        reason = "; ".join(problem.message for problem in error.problems)
        return [Deviation("everything", 0, sum(ours.values()), f"AICB refuses these options: {reason}")]
    differ = ((what, theirs[what], ours[what], why) for what, why in REASONS.items() if theirs[what] != ours[what])
    return [*(Deviation(*each) for each in differ), *_other(options)]


def _other(options: Options) -> Iterator[Deviation]:
    """What differs without changing bytes."""
    profiled, splits = options.aiob_enable, options.enable_sequence_parallel and options.tp > 1
    applies = {"profiled times": profiled, "embedding collective": splits, "pipeline stages": options.pp > 1}
    for which, what, reason in table(__file__, "others.txt"):
        if applies.get(which, not profiled):
            yield Deviation(what, 0, 0, reason)


def _aicb_bytes(options: Options) -> Bytes:
    """Bytes of AICB's own file by purpose."""
    if options.frame == "DeepSpeed":
        from simcore.generate.aicb.deepspeed import deepspeed_operations

        made = deepspeed_operations(replace(options, epoch_num=1))
        return _sums(
            (_of_aicb(one.stage.partition(".")[2], 0), one.size if isinstance(one.size, int) and one.group else 0)
            for one in made[made.index(EPOCH_END) :]  # behind the set-up
        )
    from simcore.generate.aicb.training import training_text

    # Bytes do not depend on times; AICB's DeepSeek has a file with times only.
    profiled = replace(options, aiob_enable=options.aiob_enable or options.frame == "DeepSeek")
    sent = _sent(training_text(profiled, times={}).layers)
    return _sums((_of_aicb(layer.name, at), phase.size_bytes) for layer, at, phase in sent)


def _sent(layers: Iterable[Layer]) -> Iterator[tuple[Layer, int, Phase]]:
    """Rows with the numbers of their passes that end in a collective, and these."""
    for layer in layers:
        yield from ((layer, at, phase) for at, phase in enumerate(layer.phases) if phase.collective is not None)


def _of_aicb(name: str, at: int) -> str:
    """What AICB's row or operation sends in a pass: it has no other mark than its name."""
    return _PURPOSES[name][at] if name in _PURPOSES else name


def _purpose(layer: Layer, at: int) -> str:
    """What one of our rows sends in a pass; of experts to their replicas."""
    of_experts = layer.phases[at].group is Group.DP_EP and layer.role not in (Role.SHARDS, Role.REPLICAS)
    return "expert " * of_experts + _PURPOSES[layer.role.name][at]


def _sums(some: Iterable[tuple[str, int]]) -> Bytes:
    """Bytes by purpose."""
    sums = Counter[str]()
    for what, size in some:
        sums[what] += size
    return sums
