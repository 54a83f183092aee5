"""The types of what commands print with --json; `simcore schema` publishes them.

The engine's report is typed where it is made, comparisons and contents of workloads are the dataclasses that they are
made of; every other document is a row of fields here. A key ends in its unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias, MappingProxyType
from typing import Any

import msgspec

from simcore.cli.command import emit
from simcore.cost.closed.scaling import Model, Spread
from simcore.cost.sensitivity import Sensitivity
from simcore.network.topology.cost import Item
from simcore.replay.views.changed import Help
from simcore.replay.views.compare import TraceComparison
from simcore.replay.views.job import Job
from simcore.replay.views.report import Utilisation
from simcore.report.compare import ReportComparison
from simcore.report.document import BreakdownRow, ReportDocument, encode
from simcore.report.jobs import JobsComparison, JobsDocument
from simcore.report.workload_compare import WorkloadComparison
from simcore.workload.contents import Contents

SHARES, COUNTS, INTERVAL = dict[str, float], dict[str, int], tuple[float, float]


def _object(title: str, /, *, may: Mapping[str, Any] = MappingProxyType({}), **must: Any) -> Any:
    """The type of a JSON object with keys that it must have and others that it may have."""
    optional = [(key, kind | msgspec.UnsetType, msgspec.UNSET) for key, kind in may.items()]
    return msgspec.defstruct(title, [*must.items(), *optional], kw_only=True)


def _many(kind: Any) -> Any:
    return GenericAlias(list, (kind,))


_thing = _object("Thing", name=str, description=str)
_dimension = _object("Dimension", kind=str, npus=int, bandwidth_bytes_per_s=float, latency_ns=float, links=int)
_wafer = _object("Wafer", columns=int, rows=int, dead_npus=list[int], dead_links=list[tuple[int, int]], spare_rows=int)
_table = _object(
    "Table", name=str, device=str, operation=str, types=list[str], rows=int, source=str, licence=str, own=bool
)
_stage = _object("StageMemory", stage=int, peak_bytes=int, parts=COUNTS)
_kernel = _object(
    "DecidingKernel", kernel=str, share=float, seconds=float, source=str, distance=float, spread=float, table=str,
    over_short_run=float,
)  # fmt: skip
_sources = _object(
    "Sources", measured_share=float, interpolated_share=float, transferred_share=float, roofline_share=float,
    mean_distance=float, tables=list[str], deciding=_many(_kernel),
)  # fmt: skip
_validated = _object("Row", id=str, measured_s=float, predicted_s=float, error=float, interval_s=INTERVAL)
_refused = _object("Refused", id=str, reason=str)
_suite = _object(
    "Suite", name=str, rows=_many(_validated), refused=_many(_refused), mean_abs_error=float, p90_abs_error=float,
    max_abs_error=float, bias=float, in_sample=bool, left_out=SHARES | None, noise=SHARES, tight=COUNTS,
)  # fmt: skip
_plan = _object(
    "Candidate", step_s=float, memory_bytes=int, parts_s=SHARES, tp=int, pp=int, cp=int, ep=int, dp=int,
    virtual_stages=int, micro_batch=int, recompute=str, zero=int, schedule=str,
)  # fmt: skip
_rival = _object("Rival", choice=str, step_s=float, memory_bytes=int, parts_s=SHARES)
_run = _object("Run", key=str, options=dict[str, Any], inputs=dict[str, str], version=str, figures=SHARES, error=str)
_step = _object("ReplayedStep", index=int, measured_ns=int, predicted_ns=int, error=float, steady=bool)
_breakdowns = _object("Breakdowns", measured=BreakdownRow, predicted=BreakdownRow)
_rank = _object(
    "ReplayedRank", rank=int, file=str, steps=_many(_step), period_error=float, null_error=float, step_noise=float,
    host_share=float, coverage=float, breakdown=_breakdowns, kernel_start_error_ns=COUNTS, edges=COUNTS,
    utilisation=Utilisation, critical_path_ns=COUNTS, idle_causes_ns=COUNTS, waiting=COUNTS, warnings=list[str],
    may={"helps": list[Help]},
)  # fmt: skip
_problem = _object("Problem", file=str, line=int, column=int, field=str, expected=str, found=str, hint=str)

DOCUMENTS: dict[str, Any] = {
    "run": ReportDocument,
    "jobs": JobsDocument,
    "list": GenericAlias(dict, (str, _many(_thing))),
    "topology": _object(
        "Topology", schema=str, name=str, description=str, npus=int, devices=int, links=int, degree=COUNTS,
        diameter_hops=int, bisection_bytes_per_s=float, bisection_how=str, dims=_many(_dimension),
        may={"wafer": _wafer},
    ),
    "network-cost": _object(
        "NetworkCost", schema=str, name=str, npus=int, prices=dict[str, str], items=list[Item], missing=list[str],
        usd=float, usd_per_npu=float, watts=float, usd_of_power_per_year=float,
    ),
    "trace": _object("Trace", schema=str, trace=str, traces=list[dict[str, Any]]),
    "workload": Contents,
    "data": _object("Data", schema=str, tables=_many(_table)),
    "transformer": _object(
        "Transformer", N=float, N_effective=float, D=float, p=int, n_batches=float, batch_size=int,
        microbatch_sizes=list[int] | None, FLOP=SHARES, Tx=SHARES, Rx=SHARES, net=SHARES,
    ),
    "scaling": _object("Scaling", model=Model, spreads=list[Spread]),
    "failures": _object(
        "Failures", schema=str, goodput=SHARES, lost=SHARES, stops=float, interval_s=float, checkpoint_s=float,
        machine_mtbf_s=float, smallest_nodes=int, daly_goodput=float,
    ),
    "predict": _object(
        "Prediction", schema=str, step_s=float, interval_s=INTERVAL, parts=SHARES, tokens_per_s_per_accelerator=float,
        mfu=float, memory=_many(_stage), sources=_sources,
    ),
    "validate": _object("Validation", schema=str, suites=_many(_suite)),
    "search": _object(
        "Search", schema=str, candidates=int, fitting=int, simulated=int, best=_many(_plan), front=_many(_plan),
        why=_many(_rival), may={"interval_s": INTERVAL, "sensitivities": list[Sensitivity]},
    ),
    "sweep": _object(
        "Sweep", schema=str, may={"runs": int, "failed": int, "folder": str, "varied": list[str], "rows": _many(_run)}
    ),
    "compare": ReportComparison,
    "compare-jobs": JobsComparison,
    "compare-workloads": WorkloadComparison,
    "compare-traces": TraceComparison,
    "replay": _object(
        "Replay", schema=str, version=str, ranks=_many(_rank), job=Job, stragglers=COUNTS,
        may={"pipeline": dict[str, Any]},
    ),
    "generate": _object(
        "Generated", schema=str, rows=list[dict[str, Any]], deviations=list[dict[str, Any]], warnings=list[str]
    ),
    "written": _object("Written", schema=str, written=list[str]),
    "error": _object("Failure", error=_many(_problem)),
}  # fmt: skip
"""Name -> type of the document."""


def schema(name: str | None) -> None:
    """Print the JSON Schema of a document; without a name what there is."""
    if name is None:
        emit({"documents": list(DOCUMENTS)}, "\n".join(DOCUMENTS))
        return
    document = msgspec.json.schema(DOCUMENTS[name])
    emit(document, lambda: encode(document))
