"""`simcore trace`: look into execution traces and hide what is in them."""

from __future__ import annotations

from pathlib import Path

from simcore.cli.command import emit, warn
from simcore.cli.kinds import forced
from simcore.errors import InputError
from simcore.files import write_text
from simcore.generate.step import read_contents
from simcore.replay import recorded
from simcore.report import artefacts
from simcore.report import workload as shown
from simcore.report.timelines.selection import parse_selection
from simcore.workload.chakra import groups, reader, summary, variants, writer


def info(trace: str) -> None:
    """Nodes by kind, bytes by collective and group, critical path, parallelism."""
    rows, texts = [], []
    for ranks, found in reader.distinct_traces(trace):
        figures = summary.summarise(found.graph)
        rows.append({"ranks": ranks, "warnings": list(found.warnings), **figures})
        texts.append(f"ranks {ranks}\n{summary.render(figures)}" if ranks else f"{trace}\n{summary.render(figures)}")
        for text in found.warnings:
            warn(text)
    emit({"schema": "simcore.trace_info/1", "trace": trace, "traces": rows}, "\n".join(texts))


def contents(workload: str, output: str | None) -> None:
    """What a whole workload sends and computes in a step."""
    found = read_contents(workload)
    if output:
        shown.write_summary(found, output)
    emit(shown.document(found), lambda: shown.render(found))


def graph(trace: str, output: str) -> None:
    """Dependencies of one trace file as Graphviz (.dot) or GraphML (.graphml)."""
    draw = summary.graphml if output.endswith(".graphml") else summary.dot
    write_text(output, draw(reader.read_columns(trace)))


def timeline(trace: str, output: str, ranks: str | None, window: str | None, npu_frequency: float | None) -> None:
    """A trace's recorded durations, or ASTRA-sim's log of issued and completed nodes, as a timeline."""
    is_log = Path(trace).is_file() and not trace.endswith(reader.SUFFIXES)
    if npu_frequency and not is_log:
        raise InputError.at("--npu-frequency", "the source counts no cycles", expected="a log of ASTRA-sim")
    report = recorded.of_log(trace, npu_frequency) if is_log else recorded.of_trace(trace)
    for text in (*report.warnings, *artefacts.write_timeline(report, output, parse_selection(ranks, window, None))):
        warn(text)


def obfuscate(trace: str, target: str, keep_sizes: bool, salt: str) -> None:
    """Write a trace, or all of a set, without names, tensors and sources."""
    files = reader.current_files(trace)
    key = salt.encode()[:64] or variants.salt_of(files.values())
    hidden = {content: variants.obfuscate(content, key, keep_sizes=keep_sizes) for content in set(files.values())}
    base = target.removesuffix(".et")
    paths = {Path(f"{base}.{rank}.et" if rank >= 0 else f"{base}.et"): hidden[data] for rank, data in files.items()}
    writer.write_files(paths | writer.groups_beside(trace, base), force=forced())


def rescale(trace: str, target: str, npus: int, comm_groups: str, grow: tuple[str, ...]) -> None:
    """Lay out the traces of few ranks on many."""
    reader.rank_files(trace, reader.count_ranks(trace))  # all of them are there
    traced = list(reader.current_files(trace).values())
    made = variants.rescale(traced, npus, groups.of_set(trace, len(traced), comm_groups), grow)
    writer.write_files({Path(f"{target}.{rank}.et"): data for rank, data in enumerate(made)}, force=forced())
