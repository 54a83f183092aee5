"""A run with profile simai-1.6 or simai-busbw: report and text of SimAI's closed forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from simcore import __version__
from simcore.cost.simai.bandwidth import read_bus_bandwidths
from simcore.cost.simai.rows import SimaiResult, evaluate
from simcore.errors import InputError
from simcore.files import sha256
from simcore.options import SimaiOptions, spelled
from simcore.report.document import SCHEMA, BreakdownRow, InputRow, RankRow, ReportDocument, encode
from simcore.report.model import Input
from simcore.report.table import Table, columns
from simcore.report.tables import layer_total
from simcore.units import format_ns, format_ranks
from simcore.workload.model import Workload

SHOWN_LAYERS = 10
# Options that nobody asks for beside others, which say the same bandwidth or all of them.
NEVER_ASKED = {
    "gpu_type": ("nvlink_bw", "busbw"),
    "nic_type": ("nic_bw", "busbw"),
    **dict.fromkeys(("nvlink_bw", "nic_bw", "nics_per_server"), ("busbw",)),
}


@dataclass(frozen=True, slots=True)
class SimaiReport:
    """What SimAI's closed forms answer: `result` has every figure, `to_dict` the document of docs/report.md."""

    profile: str
    result: SimaiResult
    inputs: tuple[Input, ...]

    @property
    def time_ns(self) -> int:
        """An iteration, in nanoseconds."""
        return round(self.result.summary.total_us * 1000)

    def to_dict(self) -> ReportDocument:
        """The document of schema `simcore.report/1`."""
        result, shares = self.result, _breakdown(self.result)
        compute_ns = shares["compute_ns"] + shares["overlapped_ns"]
        rank: RankRow = {
            "ranks": format_ranks(range(result.job.gpus)),
            "finish_ns": self.time_ns,
            "compute_ns": compute_ns,
            "comm_ns": sum(layer_total(layer, "comm_ns") for layer in result.layers),
            "exposed_comm_ns": shares["exposed_comm_ns"],
            "idle_ns": shares["idle_ns"],
        }
        return {
            "schema": SCHEMA,
            "version": __version__,
            "profile": self.profile,
            "network": "closed form",
            "time_ns": self.time_ns,
            "iterations": [{"index": 0, "start_ns": 0, "end_ns": self.time_ns}],
            "npus": result.job.gpus,
            "classes": 1,
            "compute_ns": compute_ns,
            "exposed_comm_ns": self.time_ns - compute_ns,
            "breakdown": shares,
            "layers": result.layers,
            "ranks": [rank],
            "dims": [],
            "links": {"count": 0, "hottest": []},
            "warnings": list(result.warnings),
            "inputs": [InputRow(role=one.role, path=one.path, sha256=one.sha256) for one in self.inputs],
            "simai": asdict(result.summary),
        }

    def to_json(self) -> str:
        """The document as text: keys sorted, no NaN, a line break at the end."""
        return encode(self.to_dict())

    def __str__(self) -> str:
        """What a terminal shows: the iteration in a sentence, exposed communication by group, the dominating rows."""
        result, summary, job = self.result, self.result.summary, self.result.job
        parts = {
            "compute": summary.compute_us,
            "exposed communication": summary.exposed_us,
            "pipeline bubble": summary.bubble_us,
            "pipeline transfers": summary.exposed_pp_us,
        }
        shares = ", ".join(
            f"{name} {format_ns(part_us * 1000)} ({part_us / summary.total_us:.1%})"
            for name, part_us in parts.items()
            if part_us
        )
        groups = {
            f"tensor parallel ({job.tp})": summary.exposed_tp_us,
            f"expert parallel ({job.ep})": summary.exposed_ep_us,
            f"data parallel ({job.dp})": summary.exposed_dp_us,
            f"data parallel of experts ({job.dp // job.ep})": summary.exposed_dp_ep_us,
        }
        exposed = [(name, part_us * 1000) for name, part_us in groups.items()]
        lines = [
            f"One iteration takes {format_ns(summary.total_us * 1000)} on {job.gpus:,} GPUs: {shares}.",
            f"Profile {self.profile}: closed forms, each row once; nothing overlaps but by the ratios given.",
            "",
            Table("", columns("Exposed communication", "time_ns"), exposed).text(),
            "",
            _layer_table(result).text(),
        ]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in result.warnings)]) + "\n"


def estimate(workload: Workload, given: Mapping[str, Any], read: Input | None = None) -> SimaiReport:
    """The closed forms of a workload that was `read` from a file; `given` are options, `profile` among them.

    InputError for an option that only a simulation has.
    """
    profile, known = given["profile"], {each.name for each in fields(SimaiOptions)}
    for name, value in given.items():
        if name not in known | {"profile", "dialect"} and value is not None:
            message = f"profile {profile} has closed forms and simulates nothing"
            raise InputError.at(spelled(name), message, expected="another profile", hint="see docs/simai.md")
    if given.get("dialect") not in (None, "simai"):
        message = f"profile {profile} reads SimAI's dialect, where the size of an all-gather is the gathered total"
        raise InputError.at("--dialect", message, expected="simai", found=repr(given["dialect"]))
    options = SimaiOptions.of({name: given[name] for name in known & given.keys()})
    if (profile == "simai-busbw") != bool(options.busbw):
        message = "the file of bus bandwidths belongs to profile simai-busbw, and that profile needs it"
        raise InputError.at("--busbw", message, expected="--profile simai-busbw --busbw FILE")
    bandwidths = read_bus_bandwidths(options.busbw) if options.busbw else None
    inputs = [read] if read else []
    inputs += [Input("busbw", options.busbw, sha256(options.busbw))] if options.busbw else []
    result = evaluate(workload, options, bandwidths)
    return SimaiReport(profile, replace(result, warnings=(*result.warnings, *_idle(given))), tuple(inputs))


def _idle(given: Mapping[str, Any]) -> Iterator[str]:
    """What to say of options that were given and change nothing."""
    for name, others in NEVER_ASKED.items():
        for other in [other for other in others if given.get(name) and given.get(other)][:1]:
            yield f"{spelled(name)} has no effect beside {spelled(other)}"


def _breakdown(result: SimaiResult) -> BreakdownRow:
    """Disjoint shares; the bubble is idle time, and pipeline transfers stand out like other communication."""
    summary = result.summary
    time_ns, compute_ns = round(summary.total_us * 1000), round(summary.compute_us * 1000)
    hidden_ns = sum(layer_total(layer, "comm_ns") - layer_total(layer, "exposed_ns") for layer in result.layers)
    overlapped_ns = max(0, min(compute_ns, hidden_ns))  # 32-bit floats may show more than there is
    exposed_ns = round((summary.exposed_us + summary.exposed_pp_us) * 1000)
    return {
        "compute_ns": compute_ns - overlapped_ns,
        "overlapped_ns": overlapped_ns,
        "exposed_comm_ns": exposed_ns,
        "idle_ns": time_ns - compute_ns - exposed_ns,
    }


def _layer_table(result: SimaiResult) -> Table:
    """Rows of equal name summed, the longest first."""
    sums: dict[str, list[float]] = {}
    for layer in result.layers:
        entry = sums.setdefault(layer["name"], [0, 0, 0])
        for place, value in enumerate((1, layer_total(layer, "compute_ns"), layer_total(layer, "exposed_ns"))):
            entry[place] += value
    longest = sorted(sums.items(), key=lambda item: -(item[1][1] + item[1][2]))
    shown = columns("Layer", ("rows", "rows", "d"), "compute_ns", "exposed_ns")
    return Table("", shown, [(name, *figures) for name, figures in longest], noun="names").first(SHOWN_LAYERS)
