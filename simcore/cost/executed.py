"""The schedule of `cost simple` on a real topology: what the closed form leaves out (latency, hops, contention).

A row is a layer: its products in three equal passes, an all-reduce of its output behind the forward and of its input's
gradient behind the backward over the `tp` ranks; stages hand the residual stream on; at the end every rank sums its
weights' gradients over the `dp` ranks. Sizes are those of the closed form (`simcore.cost.simple`).
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.cost.simple import MATRICES, Setup, SimpleRun
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Topology
from simcore.profiles import profiles
from simcore.workload.model import CollectiveKind, Layer, Parallelism, Phase, Workload

__all__ = ["Executed", "execute", "workload"]


@dataclass(frozen=True, slots=True)
class Executed:
    """Seconds of a batch: on the topology, there without any communication, and in the closed form.

    `excess` is the executed time over the closed form's, less one.
    """

    batch_time: float
    compute_only: float
    closed_form: float
    excess: float

    def lines(self) -> list[str]:
        """What `cost simple` prints of it."""
        return [
            "",
            f"on the topology: {self.batch_time:.6g} s per batch, {self.excess:+.1%} against the closed form",
            f"    without communication: {self.compute_only:.6g} s",
        ]


def execute(setup: Setup, run: SimpleRun, topology: Topology) -> Executed:
    """One batch on the topology; InputError when it has another size or the setup has no such execution."""
    _check(setup, topology)
    with_s, without_s = (_seconds(workload(setup, run, communicates=some), topology) for some in (True, False))
    return Executed(with_s, without_s, run.batch_time, with_s / run.batch_time - 1)


def _check(setup: Setup, topology: Topology) -> None:
    for option, degree in (("n_experts", setup.experts), ("tp2", setup.tp2)):
        if degree > 1:
            message = f"--topology executes data, tensor and pipeline parallelism, not --{option}"
            raise InputError.at(f"--{option}", message, expected="1", found=str(degree))
    if topology.npus != setup.chips:
        message = f"the topology has {topology.npus} NPUs, the setup {setup.chips} chips"
        raise InputError.at("--topology", message, expected=f"{setup.chips} = pp x dp x tp", found=str(topology.npus))


def _seconds(program: Workload, topology: Topology) -> float:
    return simulate(program, topology, None, profiles.get("native"), Settings()).time_ns * 1e-9


def workload(setup: Setup, run: SimpleRun, *, communicates: bool = True) -> Workload:
    """A batch as a text workload of one stage, which all stages run."""
    width = setup.precision_bits / 8 if communicates else 0.0
    residual_bytes = setup.microbatch_tokens * setup.d_model / setup.dp * width
    gradient_bytes = setup.parameters_per_expert / (setup.chips // setup.dp) * width
    pass_ns, count = round(MATRICES * run.matmul_time * 1e9), setup.batch_size // setup.microbatch_size
    summed = _sum(pass_ns, residual_bytes, setup.tp)
    layer = Layer("layer", summed, summed, Phase(pass_ns))
    end = Layer("gradient_reduce", weight_grad=_sum(0, gradient_bytes, setup.dp))
    return Workload(
        "HYBRID_TRANSFORMER",
        (end, *[layer] * (setup.layers // setup.pp * count)),
        Parallelism(tp=setup.tp, ep=1, pp=setup.pp, vpp=setup.interleaving, gradient_accumulation=count),
        "simai",
        pipeline_bytes=round(residual_bytes / setup.tp) if setup.pp > 1 else 0,
    )


def _sum(compute_ns: int, size_bytes: float, ranks: int) -> Phase:
    """A computation and an all-reduce behind it, where there is something to sum."""
    if ranks == 1 or round(size_bytes) == 0:
        return Phase(compute_ns)
    return Phase(compute_ns, CollectiveKind.ALL_REDUCE, round(size_bytes))
