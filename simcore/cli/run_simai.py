"""`simcore run --profile simai-1.6 | simai-busbw`: report and text of SimAI's closed forms."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

from simcore import __version__
from simcore.errors import InputError
from simcore.profiles.simai import LayerFigures, PhaseFigures, SimaiOptions, SimaiResult, evaluate
from simcore.profiles.simai_bandwidth import read_bus_bandwidths
from simcore.report.document import SCHEMA, BreakdownRow, InputRow, LayerRow, PhaseRow, RankRow, ReportDocument
from simcore.timeline.events import format_ranks
from simcore.units import format_ns
from simcore.workload import text

__all__ = ["Profile", "run", "summary_text"]

Profile = Literal["simai-1.6", "simai-busbw"]
SHOWN_LAYERS = 10


def run(workload_path: Path | str, profile: Profile, values: Mapping[str, Any]) -> tuple[str, ReportDocument]:
    """Text and document of one evaluation; `values` holds options by their parameter."""
    given = {field.name: values[field.name] for field in fields(SimaiOptions) if values.get(field.name) is not None}
    inputs = [_input("workload", workload_path)]
    busbw = values.get("busbw")
    if (profile == "simai-busbw") != bool(busbw):
        message = "the file of bus bandwidths belongs to profile simai-busbw, and that profile needs it"
        raise InputError.at("--busbw", message, expected="--profile simai-busbw --busbw FILE")
    if busbw:
        given["bandwidths"] = read_bus_bandwidths(busbw)
        inputs.append(_input("busbw", busbw))
    result = evaluate(text.read(workload_path, "simai"), SimaiOptions(**given))
    return summary_text(result, profile), _document(result, profile, inputs)


def _input(role: str, path: Path | str) -> InputRow:
    """Provenance of a file; one that cannot be read is refused by its reader."""
    there = Path(path).is_file()
    digest = hashlib.sha256(Path(path).read_bytes() if there else b"").hexdigest()
    return {"role": role, "path": str(path), "sha256": digest}


def _document(result: SimaiResult, profile: Profile, inputs: list[InputRow]) -> ReportDocument:
    shares = _breakdown(result)
    time_ns, compute_ns = round(result.summary.total_us * 1000), shares["compute_ns"] + shares["overlapped_ns"]
    rank: RankRow = {
        "ranks": format_ranks(range(result.job.gpus)),
        "finish_ns": time_ns,
        "compute_ns": compute_ns,
        "comm_ns": sum(phase.comm_ns for layer in result.layers for phase in _phases(layer)),
        "exposed_comm_ns": shares["exposed_comm_ns"],
        "idle_ns": shares["idle_ns"],
    }
    return {
        "schema": SCHEMA,
        "version": __version__,
        "profile": profile,
        "network": "closed form",
        "time_ns": time_ns,
        "iterations": [{"index": 0, "start_ns": 0, "end_ns": time_ns}],
        "npus": result.job.gpus,
        "classes": 1,
        "compute_ns": compute_ns,
        "exposed_comm_ns": time_ns - compute_ns,
        "breakdown": shares,
        "layers": [_layer(index, layer) for index, layer in enumerate(result.layers)],
        "ranks": [rank],
        "dims": [],
        "links": {"count": 0, "hottest": []},
        "warnings": list(result.warnings),
        "inputs": inputs,
        "simai": asdict(result.summary),
    }


def _breakdown(result: SimaiResult) -> BreakdownRow:
    """Disjoint shares; the bubble is idle time, and pipeline transfers stand out like other communication."""
    summary = result.summary
    time_ns, compute_ns = round(summary.total_us * 1000), round(summary.compute_us * 1000)
    hidden_ns = sum(phase.comm_ns - phase.exposed_ns for layer in result.layers for phase in _phases(layer))
    overlapped_ns = min(compute_ns, round(hidden_ns))
    exposed_ns = round((summary.exposed_us + summary.exposed_pp_us) * 1000)
    return {
        "compute_ns": compute_ns - overlapped_ns,
        "overlapped_ns": overlapped_ns,
        "exposed_comm_ns": exposed_ns,
        "idle_ns": time_ns - compute_ns - exposed_ns,
    }


def _phases(layer: LayerFigures) -> tuple[PhaseFigures, PhaseFigures, PhaseFigures]:
    return layer.forward, layer.input_grad, layer.weight_grad


def _layer(index: int, layer: LayerFigures) -> LayerRow:
    forward, input_grad, weight_grad = map(_phase, _phases(layer))
    return {
        "index": index,
        "name": layer.name,
        "forward": forward,
        "input_grad": input_grad,
        "weight_grad": weight_grad,
    }


def _phase(phase: PhaseFigures) -> PhaseRow:
    return {
        "compute_ns": phase.compute_ns,
        "comm_ns": phase.comm_ns,
        "exposed_ns": round(phase.exposed_ns),
        "collective": str(phase.collective) if phase.collective else None,
        "bytes": phase.size_bytes,
    }


def summary_text(result: SimaiResult, profile: str) -> str:
    """What a terminal shows: the iteration in one sentence, exposed communication by group, the dominating rows."""
    summary, job = result.summary, result.job
    parts = {
        "compute": summary.compute_us,
        "exposed communication": summary.exposed_us,
        "pipeline bubble": summary.bubble_us,
        "pipeline transfers": summary.exposed_pp_us,
    }
    shares = ", ".join(f"{name} {_share(part_us, summary.total_us)}" for name, part_us in parts.items() if part_us)
    groups = {
        f"tensor parallel ({job.tp})": summary.exposed_tp_us,
        f"expert parallel ({job.ep})": summary.exposed_ep_us,
        f"data parallel ({job.dp})": summary.exposed_dp_us,
        f"data parallel of experts ({job.dp // job.ep})": summary.exposed_dp_ep_us,
    }
    lines = [
        f"One iteration takes {format_ns(summary.total_us * 1000)} on {job.gpus:,} GPUs: {shares}.",
        f"Profile {profile}: closed forms, each row once; nothing overlaps but by the ratios given.",
        "",
        f"{'Exposed communication':<36}{'time':>12}",
        *(f"{name:<36}{format_ns(part_us * 1000):>12}" for name, part_us in groups.items()),
        "",
        *_layer_lines(result),
    ]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in result.warnings)]) + "\n"


def _share(part_us: float, total_us: float) -> str:
    return f"{format_ns(part_us * 1000)} ({part_us / total_us:.1%})"


def _layer_lines(result: SimaiResult) -> list[str]:
    """Rows of equal name summed, the longest first."""
    sums: dict[str, list[float]] = {}
    for layer in result.layers:
        entry = sums.setdefault(layer.name, [0, 0, 0])
        for place, value in enumerate((1, layer.compute_ns, layer.exposed_ns)):
            entry[place] += value
    longest = sorted(sums.items(), key=lambda item: -(item[1][1] + item[1][2]))
    rows = [
        f"{name:<28}{count:>8.0f}{format_ns(compute):>12}{format_ns(exposed):>12}"
        for name, (count, compute, exposed) in longest[:SHOWN_LAYERS]
    ]
    left_out = [f"({len(longest) - SHOWN_LAYERS} more names)"] if len(longest) > SHOWN_LAYERS else []
    return [f"{'Layer':<28}{'rows':>8}{'compute':>12}{'exposed':>12}", *rows, *left_out]
