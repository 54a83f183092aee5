"""What the user asked for beside the inputs, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from simcore.errors import InputError
from simcore.profiles import NetworkMode

__all__ = ["Settings", "parse_straggler", "straggler_factors"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run.

    `network` is a mode of the profile, "" = its default. The scales multiply compute times, message sizes and endpoint
    delays. `stragglers` maps an NPU to the factor on its compute times. `fold` lets equal NPUs share a process.
    """

    iterations: int = 1
    network: NetworkMode | Literal[""] = ""
    queues_per_dim: int = 1
    compute_scale: float = 1.0
    comm_scale: float = 1.0
    injection_scale: float = 1.0
    rendezvous: bool = False
    fold: bool = True
    stragglers: Mapping[int, float] = field(default_factory=dict)


def parse_straggler(text: str) -> tuple[list[range], float]:
    """`RANKS=FACTOR` such as `0-3,7=1.5`: the ranks and the factor on their compute times.

    >>> parse_straggler("0-3,7=1.5")
    ([range(0, 4), range(7, 8)], 1.5)
    """
    ranks, _, factor = text.partition("=")
    try:
        value = float(factor)
        spans = [_span(part) for part in ranks.split(",")]
    except ValueError:
        value, spans = -1.0, []
    if 0 < value < float("inf"):
        return spans, value
    raise InputError.at(
        "--straggler",
        "a straggler is RANKS=FACTOR",
        expected="ranks and a factor above 0, for example 0-3,7=1.5",
        found=repr(text),
    )


def _span(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def straggler_factors(texts: tuple[str, ...], npus: int) -> dict[int, float]:
    """The factor of every rank that is named; a rank named twice is slowed down twice."""
    factors: dict[int, float] = {}
    for text in texts:
        spans, factor = parse_straggler(text)
        for span in spans:
            if not span or span[0] < 0 or span[-1] >= npus:
                raise InputError.at(
                    "--straggler", "there is no such NPU", expected=f"ranks 0 to {npus - 1}", found=repr(text)
                )
            for rank in span:
                factors[rank] = factors.get(rank, 1.0) * factor
    return factors
