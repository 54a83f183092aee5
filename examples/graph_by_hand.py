"""Graphs by hand: ASTRA-sim's example of two dependent nodes, then a ring of NPUs that hand something on."""

import tempfile
from pathlib import Path

import simcore


def two_nodes(npus: int) -> simcore.GraphBuilder:
    """Two computations of 5 ns on every NPU, the second after the first."""
    graph = simcore.graph(npus)
    first = graph.compute(5)
    graph.compute(5, depends=[first])
    return graph


def handed_on(npus: int, size: str) -> simcore.GraphBuilder:
    """What NPU 0 computes goes from NPU to NPU, and all sum up what they have at the end."""
    graph = simcore.graph(npus)
    last = graph.compute("20 us", on=0)
    for npu in range(1, npus):
        graph.send(npu - 1, npu, size, depends=[last])
        last = graph.recv(npu - 1, npu, size)
    graph.collective("all_reduce", size, name="sum")
    return graph


def main() -> None:
    """Print times, in memory and from the files that were saved."""
    print("two nodes, 64 NPUs:", simcore.run(two_nodes(64), "ring64").to_dict()["time_ns"], "ns")
    graph = handed_on(8, "1 MB")
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "ring")
        saved = simcore.run(Path(folder) / "ring", "ring8").to_dict()["time_ns"]
    print("handed on:", simcore.run(graph, "ring8").to_dict()["time_ns"], "ns; from its files:", saved, "ns")


if __name__ == "__main__":
    main()
