"""Graphs by hand: ASTRA-sim's example of two dependent nodes, then a ring of NPUs that hand something on.

With the name of a picture (`python examples/graph_by_hand.py graph_by_hand.png`) it draws who does what when.
"""

import sys
import tempfile
from pathlib import Path

import simcore
from simcore.report.gantt import timeline_figure
from simcore.report.plots import save
from simcore.report.timelines.selection import Limits, Selection, choose


def two_nodes(npus: int) -> simcore.GraphBuilder:
    """Two computations of 5 ns on every NPU, the second after the first."""
    graph = simcore.graph(npus)
    first = graph.compute(5)
    graph.compute(5, depends=[first])
    return graph


def handed_on(npus: int, size: str) -> simcore.GraphBuilder:
    """What NPU 0 computes goes from NPU to NPU, while all sum something up."""
    graph = simcore.graph(npus)
    last = graph.compute("20 us", on=0)
    for npu in range(1, npus):
        graph.send(npu - 1, npu, size, depends=[last])
        last = graph.recv(npu - 1, npu, size)
    graph.collective("all_reduce", size, name="sum")
    return graph


def main() -> str:
    """Print times, in memory and from the files that were saved; draw the picture if one is named."""
    cycles = simcore.run(two_nodes(64), "ring64").time_ns
    graph = handed_on(8, "1 MB")
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "ring")
        saved = simcore.run(Path(folder) / "ring", "ring8").time_ns
    report = simcore.run(graph, "ring8")
    text = f"two nodes, 64 NPUs: {cycles} ns\nhanded on: {report.time_ns} ns; from its files: {saved} ns"
    if len(sys.argv) > 1:
        view = choose(report.timeline, Selection(), Limits(8, 1000))
        save(timeline_figure(report.timeline, view), Path(sys.argv[1]), text)
    return text


if __name__ == "__main__":
    print(main())
