"""The section of docs/validation.md on recorded steps: python -m tools.replay_validation FOLDER (of public traces)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean

from simcore.replay.run import Changes
from simcore.replay.session import Replay, replay_prepared
from simcore.replay.steps.build import Prepared
from simcore.replay.views.report import trust
from simcore.replay.views.trial import foresight
from simcore.replay.whatif.changes import host
from simcore.workload.kineto import KinetoTrace
from simcore.workload.kineto_reader import read_ranks

# Every public trace of more than two steps that is not sampled.
TRACES = {
    "recommendation model, A100, rank 3 of 8": "hta/trace_diff__control__control.json.gz",
    "recommendation model, A100, rank 0 of 16": "hta/negative_queue_length_values_check__rank0.json.gz",
    "ResNet, V100": "hta/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "ResNet, MI300X, rank 0 of 8": "tracelens/mi300__resnet_act_checkpoint.json.gz",
    "DDP, A100, rank 0 of 2": "hta/nccl_parser_config__nccl_data.json.gz",
    "ResNet-50, V100, loader in process": "kineto/r50_w0.pt.trace.json.gz",
    "ResNet-50, V100, 4 loader workers": "kineto/r50_w4.pt.trace.json.gz",
}
LOADERS = "ResNet-50, V100, loader in process", "ResNet-50, V100, 4 loader workers"
HEADER = "trace | steps | dependencies alone | null model | host share | tested | next step | null model | persistence"


def tables(read: Callable[[str], Sequence[KinetoTrace]]) -> Iterator[str]:
    """Lines of both tables, of traces that `read` gives for a place."""
    ranks = {name: [Prepared(trace) for trace in read(place)] for name, place in TRACES.items()}
    replays = {name: replay_prepared(prepared, Changes()) for name, prepared in ranks.items()}
    yield from _header(HEADER)
    for name, prepared in ranks.items():
        found, (ahead,) = trust(replays[name], 0), foresight(prepared)
        errors = found["unaided_error"], found["null_error"]
        cells = [name, f"{len(prepared[0].view.windows)}", *(f"{error:.2%}" for error in errors)]
        cells += [f"{found['host_share']:.0%}", "yes" if found["tested"] else "no"]
        yield _row([*cells, *(f"{error:.2%}" for error in (ahead.graph, ahead.null, ahead.persistence))])
    yield ""
    yield from _header("from | to | predicted | measured | error | persistence")
    for one, other in (LOADERS, LOADERS[::-1]):
        recorded, wanted = replays[one], replays[other]
        factor = _loader_ns(wanted) / _loader_ns(recorded)
        predicted_ns = _step_ns(replay_prepared(ranks[one], Changes(), [host("loader", factor)]), "period")
        before_ns, measured_ns = (_step_ns(each, "baseline") for each in (recorded, wanted))
        ends = f"{one}, {before_ns / 1e6:.1f} ms", f"{other}: loader x {factor:.3g}"
        times = f"{predicted_ns / 1e6:.1f} ms", f"{measured_ns / 1e6:.1f} ms"
        yield _row([*ends, *times, *(f"{found / measured_ns - 1:+.1%}" for found in (predicted_ns, before_ns))])


def _loader_ns(replay: Replay) -> float:
    return float(mean(int(step.graph.loader_ns.sum()) for step in replay.scored(0)))


def _step_ns(replay: Replay, side: str) -> float:
    return float(mean(getattr(step, side).device_ns for step in replay.scored(0)))


def _header(titles: str) -> list[str]:
    return [f"| {titles} |", "|---" * len(titles.split("|")) + "|"]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print("\n".join(tables(lambda place: read_ranks([folder / place]))))
