"""Profiles `simai-1.6` and `simai-busbw`: SimAI-Analytical's sums over the rows of a workload, each row once.

Nothing overlaps but by given ratios, there is no network and no pipeline: bubble and stage transfers are closed forms.
Source: SimAI @f5efb5a9 (1.6) and @4e66932a (2025-03). Where SimAI crashes or prints garbage, the natural value and a
warning are given, or an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from simcore.cost.simai.bandwidth import GIB, GPUS, NICS, BusBandwidths, Computed, Job, Measured
from simcore.errors import InputError, closest
from simcore.options import SimaiOptions
from simcore.report.document import LayerRow, PhaseRow, layer_row, phase_row
from simcore.report.tables import layer_total
from simcore.workload.model import CollectiveKind, Group, Layer, Phase, Workload

RECOMPUTING = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
SMALLEST_FORWARD_BYTES = 4096
INT32_MAX = (1 << 31) - 1
Clock = Callable[[CollectiveKind, Group, int, int], int]


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
    """What SimAI-Analytical prints, each row as a report's, and what it should have said."""

    job: Job
    layers: list[LayerRow]
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
    repeats, least = _recomputations(workload), SMALLEST_FORWARD_BYTES if workload.loop == RECOMPUTING else 0
    layers = [
        layer_row(index, layer.name, *_phases(layer, clock.time_ns, job, options, 1 + (index in repeats), least))
        for index, layer in enumerate(workload.layers)
    ]
    summary = _summary(layers, workload, job, options, bandwidths, warnings)
    if any(_single(phase.compute_ns) > INT32_MAX for layer in workload.layers for phase in layer.phases):
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
    warnings |= dict.fromkeys(_passed_over(workload))
    ga, ep = sizes.gradient_accumulation or 1, sizes.ep or 1
    servers = (options.gpus_per_server, options.nics_per_server)
    return Job(gpus, tp, ep, gpus // (tp * pp), *servers, pp, sizes.vpp or 1, ga)


def _passed_over(workload: Workload) -> Iterator[str]:
    """What a header says that SimAI does not read, or not as it stands there."""
    if len(workload.stage_rows) > 1:
        one = "simcore generate --pp_rank N writes those of one"
        yield f"SimAI passes over stage_rows: the rows of all stages are added up as if one stage had them; {one}"
    sizes = workload.parallelism
    said = {"schedule": bool(workload.schedule), "etp": sizes.expert_tp not in (0, sizes.tp), "cp": sizes.cp > 1}
    yield from (f"SimAI passes over {key}" for key, there in said.items() if there)
    if workload.pipeline_bytes > INT32_MAX:
        yield f"SimAI has 32 bits for pp_comm, which {workload.pipeline_bytes} does not fit"


def _chosen(value: float | None, name: str, table: dict[str, float], option: str, type_option: str) -> float:
    """A bandwidth given as a number, otherwise by a name in small or large letters."""
    if value is not None:
        return value
    if not name:
        raise InputError.at(option, "profile simai-1.6 needs a bandwidth", expected=f"{option} or {type_option}")
    found = next((bandwidth for known, bandwidth in table.items() if known.lower() == name.lower()), None)
    if found is None:
        raise InputError.at(type_option, f"unknown type '{name}'", expected=closest(name, table), found=repr(name))
    return found


def _recomputations(workload: Workload) -> range:
    """Layers whose forward pass runs twice; SimAI reads only the first entry of either list."""
    if workload.loop != RECOMPUTING or not workload.checkpoint_initiates:
        return range(0)
    first, last = workload.checkpoints[0], workload.checkpoint_initiates[0]
    if first >= last:
        message = f"SimAI takes the first entries alone, and reads out of bounds from checkpoint {first} to {last}"
        raise InputError.at(workload.location, message, expected="a first checkpoint below the first initiator")
    return range(first, last)


def _phases(
    layer: Layer, time_ns: Clock, job: Job, options: SimaiOptions, repeats: int, least_bytes: int
) -> Iterator[PhaseRow]:
    """The phases of one row; the forward column's group decides which overlap its input gradient has, too."""
    inner = options.ep_overlap if layer.forward.group is Group.EP else options.tp_overlap
    yield _phase(layer.forward, Group.TP, time_ns, job, inner, repeats, least_bytes)
    yield _phase(layer.input_grad, Group.TP, time_ns, job, inner)
    yield _phase(layer.weight_grad, Group.DP, time_ns, job, options.dp_overlap)


def _group(phase: Phase, plain: Group) -> Group:
    """The group that a column names, otherwise the `plain` one of its phase."""
    return plain if phase.group is Group.LOOP else phase.group


def _phase(
    phase: Phase, plain: Group, time_ns: Clock, job: Job, overlap: float, repeats: int = 1, least_bytes: int = 0
) -> PhaseRow:
    """Nanoseconds; exposed is what the group's overlap leaves of the communication."""
    group = _group(phase, plain)
    size = max(phase.size_bytes, least_bytes) if phase.size_bytes else 0
    # The group size a column takes, which is not always that of its group.
    ranks = job.ep if group is Group.EP else job.tp
    if plain is Group.DP:
        ranks = job.dp // job.ep if group is Group.DP_EP else job.dp
    comm_ns = time_ns(phase.collective, group, ranks, _single(size)) if phase.collective else 0
    compute_ns = _single(phase.compute_ns) * repeats
    return phase_row((phase.collective, phase.size_bytes), compute_ns, comm_ns, _exposed(comm_ns, overlap))


def _single(value: int) -> int:
    """SimAI scales compute and sizes in 32-bit floats, so 24 significant bits are left of them."""
    return int(np.float32(value))


def _exposed(whole: int, overlap: float) -> int:
    """What an overlap leaves of a time, also where that is all: in 32-bit floats, cut to a whole number."""
    return int(np.float32(whole) * (1 - np.float32(overlap)))


def _summary(
    layers: list[LayerRow],
    workload: Workload,
    job: Job,
    options: SimaiOptions,
    bandwidths: BusBandwidths | None,
    warnings: dict[str, None],
) -> SimaiSummary:
    outer, inner = Counter[Group](), Counter[Group]()
    for asked, layer in zip(workload.layers, layers, strict=True):
        outer[_group(asked.weight_grad, Group.DP)] += layer["weight_grad"]["exposed_ns"]
        inner[_group(asked.forward, Group.TP)] += layer["forward"]["exposed_ns"] + layer["input_grad"]["exposed_ns"]
    compute_us = sum(layer_total(layer, "compute_ns") for layer in layers) / 1000
    exposed_us = sum(layer_total(layer, "exposed_ns") for layer in layers) / 1000
    # A stage is idle while the pipeline fills and drains; weight-gradient communication is not in it.
    inside_ns = sum(
        layer_total(layer, "compute_ns") + layer["forward"]["comm_ns"] + layer["input_grad"]["comm_ns"]
        for layer in layers
        if layer["name"] != "embedding_layer"
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
