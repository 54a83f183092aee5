"""`simcore trace`: look into execution traces and hide what is in them."""

from __future__ import annotations

from pathlib import Path

import click

from simcore.cli.command import SUMMARY, TIMELINE, Group, Target, emit, forced, option, warn
from simcore.cli.numbers import Finite, Whole

DRAWN = (".dot", ".gv", ".graphml")


@click.group(cls=Group)
def command() -> None:
    """Look into Chakra execution traces: a file, a folder, or the prefix of PREFIX.RANK.et.

    \b
    simcore trace info traces/llama
    simcore trace timeline traces/llama.0.et -o llama.html
    """


@command.command(short_help="Nodes, bytes, critical path, parallelism.")
@click.argument("trace")
def info(trace: str) -> None:
    """Nodes by kind, bytes by collective and group, critical path, parallelism.

    \b
    simcore trace info traces/llama
    simcore trace info traces/llama.0.et --json
    """
    from simcore.workload.chakra import reader, summary

    made = [
        (rank_list, summary.summarise(found.graph), found.warnings)
        for rank_list, found in reader.distinct_traces(trace)
    ]
    rows = [{"ranks": ranks, "warnings": list(warnings), **figures} for ranks, figures, warnings in made]
    shown = [f"ranks {ranks}\n{text}" if ranks else f"{trace}\n{text}" for ranks, text in
             ((ranks, summary.render(figures)) for ranks, figures, _ in made)]  # fmt: skip
    for _, _, warnings in made:
        for text in warnings:
            warn(text)
    emit({"schema": "simcore.trace_info/1", "trace": trace, "traces": rows}, "\n".join(shown))


@command.command(short_help="What a workload sends and computes in a step.")
@click.argument("workload")
@option(
    "-o",
    "--output",
    type=SUMMARY,
    metavar="FILE",
    help="Write it: .html .png .svg .pdf .json.",
)
def summary(workload: str, output: str | None) -> None:
    """What a whole WORKLOAD sends and computes in a step: a text, a specification, or all traces of a set.

    Groups of traces are read from PREFIX.groups.json where that is beside them.

    \b
    simcore trace summary traces/llama
    simcore trace summary step.txt -o step.html
    """
    from simcore.generate.contents import read_contents
    from simcore.report import workload as shown

    contents = read_contents(workload)
    if output:
        shown.write_summary(contents, output)
    emit(shown.document(contents), lambda: shown.render(contents))


@command.command(short_help="Dependencies as Graphviz (.dot) or GraphML.")
@click.argument("trace")
@option("-o", "--output", type=Target(DRAWN), required=True, metavar="FILE", help=".dot .gv .graphml")
def graph(trace: str, output: str) -> None:
    """Dependencies of one trace file as Graphviz (.dot) or GraphML (.graphml).

    \b
    simcore trace graph traces/llama.0.et -o llama.graphml
    """
    from simcore.files import write_text
    from simcore.workload.chakra import reader, summary

    draw = summary.graphml if output.endswith(".graphml") else summary.dot
    write_text(output, draw(reader.read_columns(trace)))


@command.command(short_help="Recorded durations, or a log of ASTRA-sim's.")
@click.argument("trace")
@option("-o", "--output", type=TIMELINE, required=True, metavar="FILE", help="What to write.")
@option("--ranks", metavar="RANKS", help="Ranks to show, for example 0-3,7.")
@option("--window", metavar="BEGIN:END", help="Time to show, for example 1ms:2.5ms.")
@option("--npu-frequency", type=Finite(0, min_open=True), default=1000.0, help="MHz of a log's ticks.")
def timeline(trace: str, output: str, ranks: str | None, window: str | None, npu_frequency: float) -> None:
    """A trace's recorded durations, or ASTRA-sim's log of issued and completed nodes, as a timeline.

    Nodes of a trace start as soon as they may: no network is simulated. The suffix says what is written: .png .svg
    .html, Chrome trace .json(.gz), Perfetto .pftrace(.gz).

    \b
    simcore trace timeline traces/llama.0.et -o llama.html
    simcore trace timeline log/log.log -o timeline.json.gz
    """
    from simcore.replay import recorded
    from simcore.report import artefacts
    from simcore.report.selection import parse_selection
    from simcore.workload.chakra import reader

    artefacts.check_timeline(output)
    is_log = Path(trace).is_file() and not trace.endswith(reader.SUFFIXES)
    report = recorded.of_log(trace, npu_frequency) if is_log else recorded.of_trace(trace)
    for text in (*report.warnings, *artefacts.write_timeline(report, output, parse_selection(ranks, window, None))):
        warn(text)


@command.command(short_help="The same trace without names and tensors.")
@click.argument("trace")
@click.argument("target", type=Target(prefix=True))
@option("--keep-sizes", is_flag=True, help="Keep bytes and operation counts: simulated times stay equal.")
@option("--salt", default="", help="Secret that the hashes depend on; default: the traces themselves.")
def obfuscate(trace: str, target: str, keep_sizes: bool, salt: str) -> None:
    """Write TRACE without names, tensors and sources to TARGET.et, or TARGET.RANK.et for a set.

    Sizes become the nearest power of two unless they are kept.

    \b
    simcore trace obfuscate traces/llama shared/llama
    simcore trace obfuscate traces/llama shared/llama --keep-sizes --salt secret
    """
    from simcore.workload.chakra import reader, variants, writer

    files = reader.current_files(trace)
    key = salt.encode()[:64] or variants.salt_of(files.values())
    hidden = {content: variants.obfuscate(content, key, keep_sizes=keep_sizes) for content in set(files.values())}
    base = target.removesuffix(".et")
    paths = {Path(f"{base}.{rank}.et" if rank >= 0 else f"{base}.et"): hidden[data] for rank, data in files.items()}
    writer.write_files(paths, force=forced())


@command.command(short_help="Traces of few ranks laid out on many.")
@click.argument("trace")
@click.argument("target", type=Target(prefix=True))
@option("--npus", type=Whole(1), required=True, help="Ranks to write, a multiple of those traced.")
@option("--comm-groups", default="", metavar="FILE", help="Groups that the traces name but do not define.")
@option("--grow", multiple=True, metavar="GROUP", help="A group that spans all blocks; repeatable.")
def rescale(trace: str, target: str, npus: int, comm_groups: str, grow: tuple[str, ...]) -> None:
    """Lay out the traces of few ranks on many: TARGET.RANK.et for blocks of as many ranks as were traced.

    Groups and messages repeat in every block, collectives of all ranks span all of them.

    \b
    simcore trace rescale traces/llama traces/big --npus 64
    """
    from simcore.workload.chakra import reader, writer
    from simcore.workload.chakra.groups import read_groups
    from simcore.workload.chakra.variants import rescale as lay_out

    contents = list(reader.current_files(trace).values())
    known = read_groups(comm_groups, len(contents)) if comm_groups else {}
    made = lay_out(contents, npus, known, grow)
    writer.write_files({Path(f"{target}.{rank}.et"): data for rank, data in enumerate(made)}, force=forced())
