"""The report: a run's timeline with its context, and the document made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from simcore import __version__
from simcore.report import document as schema
from simcore.report.queues import queues_document
from simcore.timeline.breakdown import breakdown, class_figures, dimension_traffic, layer_figures
from simcore.timeline.events import FOREVER, LinkTable, Timeline
from simcore.units import format_ns, format_ranks
from simcore.workload.model import PhaseName, Workload

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.figure import Figure

HOTTEST_LINKS = 10
MOST_NAMED = 1024  # equally hot links that are looked at
PHASES = tuple(PhaseName)
NO_COLLECTIVE: tuple[str | None, int] = (None, 0)

Asked = Mapping[str, tuple[str | None, int]]  # phase -> (collective, bytes) of a layer


@dataclass(frozen=True, slots=True)
class Input:
    """A file the run read: its role (workload, topology, ...), its path as given, its SHA-256 in hexadecimal.

    Bytes of the path that are no UTF-8 are question marks: documents cannot hold them.
    """

    role: str
    path: str
    sha256: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", self.path.encode(errors="replace").decode())


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a run found; docs/report.md defines every figure. Times are whole nanoseconds, sizes bytes.

    `timeline` has every event. `profile` and `network` are the names of the timing rules, `inputs` the files that were
    read, with their hashes, and `warnings` what the user should know.
    `noise` is what many seeds gave, `helps` what changes of the run would save, `rules` what those of the profile add,
    `workload` what was run where it is one of rows, `options` those that were given and change figures, `jobs` the
    names of several that ran at once.
    """

    timeline: Timeline
    profile: str
    network: str
    inputs: tuple[Input, ...] = ()
    warnings: tuple[str, ...] = ()
    noise: schema.NoiseRow | None = None
    helps: tuple[schema.HelpRow, ...] = ()
    rules: tuple[schema.RuleRow, ...] = ()
    workload: Workload | None = None
    options: Mapping[str, schema.Option] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()

    @property
    def time_ns(self) -> int:
        """When the last iteration has ended, in nanoseconds."""
        return int(self.timeline.time_ns)

    @property
    def exposed_ns(self) -> int:
        """Nanoseconds in which rank 0 communicates and computes nothing."""
        return int(breakdown(self.timeline).exposed_comm_ns)

    @property
    def layers(self) -> list[schema.LayerRow]:
        """The figures of every layer, see docs/report.md."""
        return _layers(self.timeline)

    def title(self) -> str:
        """What was run and how long it took, for pictures."""
        named = {entry.role: Path(entry.path).name for entry in self.inputs}
        what = named.get("workload", "workload") + (f" on {named['topology']}" if "topology" in named else "")
        each = format_ns(self.time_ns / max(1, len(self.timeline.iterations)))
        return f"{what}: {each}" + " an iteration" * (len(self.timeline.iterations) > 1)

    def plot(self) -> Figure:
        """Where the time goes, as a matplotlib figure that pyplot does not know; `savefig` writes it."""
        from simcore.report.plots import breakdown_figure, titled

        return titled(breakdown_figure(self.to_dict()), self.title())

    def __repr__(self) -> str:
        return f"<Report: {format_ns(self.time_ns)} on {self.timeline.npus:,} NPUs, profile {self.profile}>"

    def to_dict(self) -> schema.ReportDocument:
        """The document of schema `simcore.report/1`: plain JSON values, whole nanoseconds, bytes."""
        timeline = self.timeline
        time_ns, compute_ns = int(timeline.time_ns), int(class_figures(timeline).compute_ns[0])
        document: schema.ReportDocument = {
            "schema": schema.SCHEMA,
            "version": __version__,
            "profile": self.profile,
            "network": self.network,
            "time_ns": time_ns,
            "iterations": [
                {"index": index, "start_ns": int(start), "end_ns": int(end)}
                for index, (start, end) in enumerate(timeline.iterations)
            ],
            "npus": timeline.npus,
            "classes": len(timeline.ranks),
            "compute_ns": compute_ns,
            "exposed_comm_ns": time_ns - compute_ns,
            "breakdown": cast(schema.BreakdownRow, asdict(breakdown(timeline))),
            "layers": _layers(timeline),
            "ranks": _ranks(timeline),
            "dims": _dims(timeline),
            "links": _links(timeline.links),
            "warnings": list(self.warnings),
            "inputs": [cast(schema.InputRow, asdict(entry)) for entry in self.inputs],
        }
        told: dict[str, object] = {
            "pipeline": _pipeline(timeline),
            "wafer": {"steps": timeline.wafer.steps} if timeline.wafer else None,
            "noise": self.noise,
            "jobs": list(self.jobs),
            "options": dict(self.options),
            "what_would_help": list(self.helps),
            "profile_rules": list(self.rules),
            **_network(timeline),
        }
        if self.options.get("power"):
            from simcore.report.power import power_over_time

            told["power"] = power_over_time(timeline, str(self.options["power"]))
        return cast(schema.ReportDocument, document | {name: said for name, said in told.items() if said})

    def to_json(self) -> str:
        """The document as text: keys sorted, no NaN, a line break at the end."""
        return schema.encode(self.to_dict())

    def provenance(self) -> str:
        """Where the figures come from, in a line for the metadata of pictures and traces."""
        files = (f"{one.role} {one.path}" + f" sha256:{one.sha256}" * bool(one.sha256) for one in self.inputs)
        made_by = f"simcore {__version__}, profile {self.profile}, network {self.network}"
        return "; ".join((made_by, *files))

    def to_pandas(self, table: str = "layers") -> pandas.DataFrame:
        """The `table` as a pandas frame: `layers` (a row per layer and phase), `ranks`, `dims`, `links`,
        `iterations`, `events`, `what_would_help`; InputError for another.
        """
        return cast("pandas.DataFrame", self._frame("pandas", table))

    def to_polars(self, table: str = "layers") -> polars.DataFrame:
        """The `table` as a polars frame; the tables are those of `to_pandas`."""
        return cast("polars.DataFrame", self._frame("polars", table))

    def _frame(self, package: str, table: str) -> object:
        from simcore.report.tables import columns_of, event_columns, needed

        held = event_columns(self.timeline.events) if table == "events" else columns_of(self.to_dict(), table)
        return needed(package).DataFrame(held)

    def _repr_html_(self) -> str:
        from simcore.report.text import notebook_html

        return notebook_html(self.to_dict())


def spread_of(seed: int, jitter: Sequence[str], times_ns: Sequence[int]) -> schema.NoiseRow:
    """What the runs of some seeds have in common."""
    p5, p95 = np.percentile(times_ns, [5, 95])
    spread: schema.SpreadRow = {
        "mean": round(float(np.mean(times_ns))),
        "p5": round(float(p5)),
        "p95": round(float(p95)),
    }
    runs, listed = len(times_ns), list(times_ns)
    return {"seed": seed, "jitter": list(jitter), "runs": runs, "time_ns": spread, "times_ns": listed}


def _network(timeline: Timeline) -> dict[str, object]:
    """What faults, queues and circuits did, where there were some."""
    links, circuits, told = timeline.links, timeline.circuits, dict[str, object]()
    if links is not None:
        kept = ("fault", "begin_ns", "transfers", "rerouted")
        told["faults"] = [
            {name: getattr(one, name) for name in kept}
            | {"end_ns": one.end_ns if one.end_ns < FOREVER else -1, "bytes": one.size_bytes}
            for one in links.faults
        ]
        told["queues"] = queues_document(links, links.queues, timeline.time_ns) if links.queues else None
    if circuits is not None:
        changes, names = len(circuits.changes) - 1, list(circuits.names)
        told["circuits"] = {"configurations": names, "changes": changes, "changing_ns": changes * circuits.delay_ns}
    return told


def _layers(timeline: Timeline) -> list[schema.LayerRow]:
    """One row per layer of a text workload."""
    figures = layer_figures(timeline, timeline.pipeline.classes if timeline.pipeline else (0,))
    asked: Sequence[Asked] = timeline.asked or [{}] * len(timeline.layers)
    sums = np.moveaxis(figures, 0, 2).tolist()
    kinds = [[own.get(phase, NO_COLLECTIVE) for phase in PHASES] for own in asked]
    rows = enumerate(zip(timeline.layers, kinds, sums, strict=True))
    return [
        schema.layer_row(
            index, name, *(schema.phase_row(kind, *figures) for kind, figures in zip(own, layer_sums, strict=True))
        )
        for index, (name, own, layer_sums) in rows
    ]


def _pipeline(timeline: Timeline) -> schema.Pipeline | None:
    """The schedule, and the time of the first NPU of every stage; idle is the bubble."""
    told = timeline.pipeline
    if not told:
        return None
    stages: list[schema.StageRow] = []
    width = timeline.npus // told.stages
    for stage, npu_class in enumerate(told.classes):
        ranks = format_ranks(range(stage * width, (stage + 1) * width))
        shares = cast(schema.BreakdownRow, asdict(breakdown(timeline, npu_class)))
        finish_ns = int(timeline.finish_ns[npu_class])
        stages.append({"stage": stage, "ranks": ranks, "finish_ns": finish_ns, **shares})
    return {"schedule": told.schedule, "micro_batches": told.micro_batches, "chunks": told.chunks, "stages": stages}


def _ranks(timeline: Timeline) -> list[schema.RankRow]:
    """One row per set of NPUs with equal figures, in the order of their first NPU."""
    figures = class_figures(timeline)
    keys = ("finish_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "idle_ns")
    equal: dict[tuple[int, ...], list[Sequence[int]]] = {}
    columns = (getattr(figures, key).tolist() for key in keys)
    for members, *row in zip(timeline.ranks, *columns, strict=True):
        equal.setdefault(tuple(row), []).append(members)
    members = [parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts)) for parts in equal.values()]
    joined = sorted(zip(members, equal, strict=True), key=lambda entry: entry[0][0])
    rows = ({"ranks": format_ranks(ranks)} | dict(zip(keys, row, strict=True)) for ranks, row in joined)
    return [cast(schema.RankRow, row) for row in rows]


def _dims(timeline: Timeline) -> list[schema.DimensionRow]:
    """Traffic of NPU 0 in each dimension."""
    rows: list[schema.DimensionRow] = [
        {"index": index, "kind": kind, "npus": npus, "bytes_per_npu": size_bytes, "busy_ns": busy_ns}
        for index, ((kind, npus), (size_bytes, busy_ns)) in enumerate(
            zip(timeline.dims, dimension_traffic(timeline), strict=True)
        )
    ]
    for row, rated in zip(rows, timeline.rated_bytes_per_s, strict=False):  # none in archives of earlier versions
        row["rated_bytes_per_s"] = rated
    return rows


def _largest(values: NDArray[np.int64], rank: int) -> int:
    """The value that so many reach, all if there are fewer."""
    rank = min(rank, len(values))
    return int(np.partition(values, -rank)[-rank]) if rank else 0


def _links(links: LinkTable | None) -> schema.Links:
    """How many links there are and which are busiest."""
    if links is None:
        return {"count": 0, "hottest": []}
    busy, carried = links.busy_ns, links.size_bytes
    least_ns = _largest(busy, HOTTEST_LINKS)
    longest, as_long = np.flatnonzero(busy > least_ns), np.flatnonzero(busy == least_ns)
    least_bytes = _largest(carried[as_long], HOTTEST_LINKS - len(longest))
    hotter = np.r_[longest, as_long[carried[as_long] > least_bytes]]
    # Of links as hot as the last one shown the first names count; a symmetric machine has millions of them.
    equal = as_long[carried[as_long] == least_bytes][:MOST_NAMED]
    rows: list[schema.LinkRow] = [
        {"src": links.src[at], "dst": links.dst[at], "bytes": int(carried[at]), "busy_ns": int(busy[at])}
        for at in (*hotter.tolist(), *equal.tolist())
    ]
    rows.sort(
        key=lambda row: (-row["busy_ns"], -row["bytes"], len(row["src"]), row["src"], len(row["dst"]), row["dst"])
    )
    return {"count": len(busy), "hottest": rows[:HOTTEST_LINKS]}
