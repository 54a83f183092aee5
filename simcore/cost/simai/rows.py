"""Profiles `simai-1.6` and `simai-busbw`: SimAI-Analytical's sums over the rows of a workload, each row once.

Nothing overlaps but by given ratios, there is no network and no pipeline: bubble and stage transfers are closed forms.
Source: SimAI @f5efb5a9 (1.6) and @4e66932a (2025-03). Where SimAI crashes or prints garbage, the natural value and a
warning are given, or an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simcore.cost.simai.bandwidth import GIB, GPUS, NICS, BusBandwidths, Computed, Job, Measured
from simcore.errors import InputError, closest
from simcore.options import SimaiOptions
from simcore.workload.model import CollectiveKind, Group, Layer, Phase, PhaseName, Workload

RECOMPUTING = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
SMALLEST_FORWARD_BYTES = 4096
INT32_MAX = (1 << 31) - 1
Clock = Callable[[CollectiveKind, Group, int, int], int]


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """One phase of a row, in nanoseconds; `exposed_ns` is what its group's overlap leaves of `comm_ns`."""

    compute_ns: int
    comm_ns: int
    exposed_ns: int
    collective: CollectiveKind | None
    size_bytes: int
    group: Group


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """The three phases of a row."""

    name: str
    forward: PhaseFigures
    input_grad: PhaseFigures
    weight_grad: PhaseFigures

    @property
    def phases(self) -> tuple[PhaseFigures, PhaseFigures, PhaseFigures]:
        """In their order."""
        return self.forward, self.input_grad, self.weight_grad

    @property
    def compute_ns(self) -> int:
        """Compute of all phases."""
        return sum(phase.compute_ns for phase in self.phases)

    @property
    def exposed_ns(self) -> int:
        """Exposed communication of all phases."""
        return sum(phase.exposed_ns for phase in self.phases)


@dataclass(frozen=True, slots=True)
class SimaiSummary:
    """The summary line, microseconds, unrounded."""

    total_us: float
    compute_us: float
    exposed_us: float
    exposed_dp_us: float
    exposed_dp_ep_us: float
    exposed_tp_us: float
    exposed_ep_us: float
    exposed_pp_us: float
    bubble_us: float


@dataclass(frozen=True, slots=True)
class SimaiResult:
    """What SimAI-Analytical prints, and what it should have said."""

    job: Job
    layers: tuple[LayerFigures, ...]
    summary: SimaiSummary
    warnings: tuple[str, ...] = field(default=())


def evaluate(workload: Workload, options: SimaiOptions, bandwidths: BusBandwidths | None = None) -> SimaiResult:
    """The closed forms of a SimAI workload, with `bandwidths` those of profile simai-busbw.

    InputError where the workload or the options do not fit.
    """
    warnings: dict[str, None] = dict.fromkeys(workload.warnings)
    job = _job(workload, options, warnings)
    clock: Computed | Measured
    if bandwidths is not None:
        clock = Measured(job, bandwidths)
    else:
        nvlink = _chosen(options.nvlink_bw, options.gpu_type, GPUS, "--nvlink-bw", "--gpu-type")
        clock = Computed(job, nvlink, _chosen(options.nic_bw, options.nic_type, NICS, "--nic-bw", "--nic-type"))
    repeats = _recomputations(workload)
    layers = tuple(
        _layer(layer, clock.time_ns, job, options, 1 + (index in repeats), workload.loop)
        for index, layer in enumerate(workload.layers)
    )
    summary = _summary(layers, workload, job, options, bandwidths, warnings)
    if any(layer.forward.compute_ns > INT32_MAX for layer in layers):
        warnings["SimAI never ends with a compute time of 2^31 ns or more"] = None
    return SimaiResult(job, layers, summary, (*warnings, *clock.warnings))


def _job(workload: Workload, options: SimaiOptions, warnings: dict[str, None]) -> Job:
    """The group sizes; a header value that is missing is 1."""
    sizes = workload.parallelism
    gpus, tp, pp = options.gpus or sizes.all_gpus, sizes.tp, sizes.pp or 1
    if not workload.loop.startswith("HYBRID_TRANSFORMER"):
        message = f"the SimAI profiles need a transformer loop: SimAI itself crashes on {workload.loop}"
        raise InputError.at(workload.location, message, expected=f"{RECOMPUTING} or HYBRID_TRANSFORMER")
    for layer in workload.layers:
        if Group.CP in {layer.forward.group, layer.input_grad.group, layer.weight_grad.group}:
            raise InputError.at(layer.location, "SimAI knows no context parallelism", expected="profile native")
    if gpus < tp * pp:
        message = f"{gpus} GPUs are fewer than tensor x pipeline parallelism = {tp} x {pp}"
        raise InputError.at("--gpus", message, expected=f"a multiple of {tp * pp}")
    if gpus % (tp * pp):
        warnings[f"{gpus} GPUs are no multiple of tp x pp = {tp * pp}; SimAI rounds data parallelism down"] = None
    ga, ep = sizes.gradient_accumulation or 1, sizes.ep or 1
    servers = (options.gpus_per_server, options.nics_per_server)
    return Job(gpus, tp, ep, gpus // (tp * pp), *servers, pp, sizes.vpp or 1, ga)


def _chosen(value: float | None, name: str, table: dict[str, float], option: str, type_option: str) -> float:
    """A bandwidth given as a number, otherwise by a name."""
    if value is not None:
        return value
    if not name:
        raise InputError.at(option, "profile simai-1.6 needs a bandwidth", expected=f"{option} or {type_option}")
    if name not in table:
        raise InputError.at(type_option, f"unknown type '{name}'", expected=closest(name, table), found=repr(name))
    return table[name]


def _recomputations(workload: Workload) -> range:
    """Layers whose forward pass runs twice; SimAI reads only the first entry of either list."""
    if workload.loop != RECOMPUTING or not workload.checkpoint_initiates:
        return range(0)
    first, last = workload.checkpoints[0], workload.checkpoint_initiates[0]
    if first >= last:
        message = f"SimAI takes the first entries alone, and reads out of bounds from checkpoint {first} to {last}"
        raise InputError.at(workload.location, message, expected="a first checkpoint below the first initiator")
    return range(first, last)


def _layer(layer: Layer, time_ns: Clock, job: Job, options: SimaiOptions, repeats: int, loop: str) -> LayerFigures:
    """The figures of one row; the forward column's group decides which overlap its input gradient has, too."""
    inner = options.ep_overlap if layer.forward.group is Group.EP else options.tp_overlap
    least = SMALLEST_FORWARD_BYTES if loop == RECOMPUTING else 0
    forward = _phase(layer.forward, PhaseName.FORWARD, time_ns, job, inner, repeats, least)
    input_grad = _phase(layer.input_grad, PhaseName.INPUT_GRAD, time_ns, job, inner)
    weight_grad = _phase(layer.weight_grad, PhaseName.WEIGHT_GRAD, time_ns, job, options.dp_overlap)
    return LayerFigures(layer.name, forward, input_grad, weight_grad)


def _phase(
    phase: Phase, name: PhaseName, time_ns: Clock, job: Job, overlap: float, repeats: int = 1, least_bytes: int = 0
) -> PhaseFigures:
    outer = name is PhaseName.WEIGHT_GRAD
    plain = Group.DP if outer else Group.TP
    group = phase.group if phase.group is not Group.LOOP else plain
    size = max(phase.size_bytes, least_bytes) if phase.size_bytes else 0
    # The group size a column takes, which is not always that of its group.
    ranks = job.ep if group is Group.EP else job.tp
    if outer:
        ranks = job.dp // job.ep if group is Group.DP_EP else job.dp
    comm_ns = time_ns(phase.collective, group, ranks, _single(size)) if phase.collective else 0
    compute_ns = _single(phase.compute_ns) * repeats
    return PhaseFigures(compute_ns, comm_ns, _exposed(comm_ns, overlap), phase.collective, phase.size_bytes, group)


def _single(value: int) -> int:
    """SimAI scales compute and sizes in 32-bit floats, so 24 significant bits are left of them."""
    return int(np.float32(value))


def _exposed(whole: int, overlap: float) -> int:
    """What an overlap leaves of a time, also where that is all: in 32-bit floats, cut to a whole number."""
    return int(np.float32(whole) * (1 - np.float32(overlap)))


def _summary(
    layers: tuple[LayerFigures, ...],
    workload: Workload,
    job: Job,
    options: SimaiOptions,
    bandwidths: BusBandwidths | None,
    warnings: dict[str, None],
) -> SimaiSummary:
    outer = dict.fromkeys(Group, 0)
    inner = dict.fromkeys(Group, 0)
    for layer in layers:
        outer[layer.weight_grad.group] += layer.weight_grad.exposed_ns
        inner[layer.forward.group] += layer.forward.exposed_ns + layer.input_grad.exposed_ns
    compute_us = sum(layer.compute_ns for layer in layers) / 1000
    exposed_us = sum(layer.exposed_ns for layer in layers) / 1000
    # A stage is idle while the pipeline fills and drains; weight-gradient communication is not in it.
    inside_ns = sum(
        layer.compute_ns + layer.forward.comm_ns + layer.input_grad.comm_ns
        for layer in layers
        if layer.name != "embedding_layer"
    )
    bubble_us = (job.pp - 1) / (job.gradient_accumulation * job.vpp) * inside_ns / 1000
    exposed_pp_us = _pipeline_us(workload.pipeline_bytes, job, options.pp_overlap, bandwidths, warnings)
    return SimaiSummary(
        total_us=compute_us + exposed_us + bubble_us + exposed_pp_us,
        compute_us=compute_us,
        exposed_us=exposed_us,
        exposed_dp_us=(outer[Group.DP] + outer[Group.EP]) / 1000,
        exposed_dp_ep_us=outer[Group.DP_EP] / 1000,
        exposed_tp_us=(inner[Group.TP] + inner[Group.DP_EP]) / 1000,
        exposed_ep_us=inner[Group.EP] / 1000,
        exposed_pp_us=exposed_pp_us,
        bubble_us=bubble_us,
    )


def _pipeline_us(
    size_bytes: int, job: Job, overlap: float, bandwidths: BusBandwidths | None, warnings: dict[str, None]
) -> int:
    """What stands out of the transfers between stages; 1.6 takes the overlap itself for the bandwidth."""
    if overlap == 1 or (bandwidths is not None and not size_bytes):
        return 0
    if bandwidths is None:
        warnings[f"SimAI 1.6 divides the pipeline's bytes by the overlap ratio {overlap:g}, not by a bandwidth"] = None
    bandwidth = overlap if bandwidths is None else bandwidths.of("PP", "busbw")
    if bandwidth == 0:
        return 0
    transfer_ns = size_bytes / GIB / float(np.float32(bandwidth)) * 1e9
    return _exposed(math.trunc(2 * job.vpp * job.gradient_accumulation * transfer_ns / 1000), overlap)
