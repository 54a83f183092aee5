"""What the user asked for beside the inputs, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from simcore.errors import InputError, closest, wrong
from simcore.network.topology.model import Topology
from simcore.noise import QUIET, Noise, parse_jitter
from simcore.options import number
from simcore.profiles import NetworkMode, Profile
from simcore.units import parse_spans
from simcore.workload.loops.step import group_axes
from simcore.workload.model import Group, Parallelism

Exact = Literal["", "messages"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run.

    `network` is a mode of the profile, "" = its default. The scales multiply compute times, message sizes and endpoint
    delays. `stragglers` maps an NPU to the factor on its compute times. `fold` lets equal NPUs share a process.
    `schedule` names the pipeline schedule, "" = the workload's usual one. `noise` is that of
    compute times; noisy links are the topology's. `link_times` keeps when every link is occupied. `exact` = "messages"
    sends every message of every NPU over its own links, whatever faster way there is.
    """

    iterations: int = 1
    network: NetworkMode | Literal[""] = ""
    queues_per_dim: int = 1
    compute_scale: float = 1.0
    comm_scale: float = 1.0
    injection_scale: float = 1.0
    rendezvous: bool = False
    fold: bool = True
    schedule: str = ""
    stragglers: Mapping[int, float] = field(default_factory=dict)
    noise: Noise = QUIET
    link_times: bool = False
    exact: Exact = ""

    @property
    def folds(self) -> bool:
        """Whether equal NPUs may share a process: noise tells all of them apart."""
        return self.fold and not self.noise.compute and not self.exact


def noise_of(seed: int | None, jitter: tuple[str, ...], runs: int, profile: Profile) -> Noise:
    """The noise that was asked for, when the profile has it."""
    noise = parse_jitter(jitter, seed or 0)
    if noise.links and not profile.noisy_links:
        message = f"profile {profile.name} knows no noisy links"
        raise InputError.at("--jitter", message, expected="compute=..., or profile native", found=str(jitter))
    if runs > 1 and not noise:
        message = "without --jitter all runs are the same"
        raise InputError.at("--runs", message, expected="--jitter compute=lognormal:0.02", found=str(runs))
    return noise


def parse_straggler(text: str) -> tuple[list[range], float]:
    """`RANKS=FACTOR` such as `0-3,7=1.5`: the ranks and the factor on their compute times.

    >>> parse_straggler("0-3,7=1.5")
    ([range(0, 4), range(7, 8)], 1.5)
    """
    ranks, _, factor = text.partition("=")
    try:
        value = number(factor, 0)
        spans = parse_spans(ranks)
    except ValueError:
        value, spans = -1.0, []
    if value > 0:
        return spans, value
    raise wrong("--straggler", "RANKS=FACTOR with a factor above 0, for example 0-3,7=1.5", text)


def straggler_factors(
    texts: tuple[str, ...], topology: Topology, parallelism: Parallelism | None = None
) -> dict[int, float]:
    """The factor of every rank that is named; a rank named twice is slowed down twice.

    `RANKS=FACTOR`, or `NAME=INDEXES:FACTOR` for every NPU with such an index in its group: `dp=3:1.2`, `dim0=0-1:2`.
    """
    axes, npus = _axes(topology, parallelism), topology.npus
    factors: dict[int, float] = {}
    for text in texts:
        name, ranks, what = "", "ranks", "NPU"
        size, stride, said = npus, 1, text
        if ":" in text:
            name, _, rest = text.partition("=")
            if name not in axes:
                expected = closest(name, axes)
                raise InputError.at("--straggler", "no such group or dimension", expected=expected, found=repr(text))
            (size, stride), ranks, what = axes[name], f"{name} indexes", f"index in {name}"
            said = "=".join(rest.rsplit(":", 1))
        spans, factor = parse_straggler(said)
        if any(span[-1] >= size for span in spans):
            expected = f"{ranks} 0 to {size - 1}"
            raise InputError.at("--straggler", f"there is no such {what}", expected=expected, found=repr(text))
        wanted = [*chain.from_iterable(spans)]
        if name:
            indexes = {*wanted}
            wanted = [npu for npu in range(npus) if npu // stride % size in indexes]
        for npu in wanted:
            factors[npu] = factors.get(npu, 1.0) * factor
    return factors


def _axes(topology: Topology, parallelism: Parallelism | None) -> dict[str, tuple[int, int]]:
    """Name -> (size, how far apart in NPU ids neighbours are): dimensions, and the groups of a header, TP innermost.

    DP counts all NPUs with the same place in TP and PP, those of EP included, as gradients are reduced.
    """
    dims = zip(topology.dims, topology.strides, strict=True)
    axes = {f"dim{index}": (dim.npus, stride) for index, (dim, stride) in enumerate(dims)}
    if parallelism:
        spans = group_axes(parallelism, topology.npus)
        axes |= {group.value: spans[group] for group in (Group.TP, Group.EP, Group.DP, Group.PP)}
    return axes
