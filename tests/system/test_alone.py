"""A phase that has its links for itself, played once for all its groups, leaves nothing to the whole simulation."""

import json

import pytest

from simcore.api import run

WORKLOAD = """DATA
2
a -1 1000 NONE 0 900 NONE 0 800 ALLREDUCE 1048577 100
b -1 70 NONE 0 900 NONE 0 800 ALLTOALL 65536 10
"""
LISTS = "npus_count: [{1}]\nbandwidth: [100, 30]\nlatency: [10.5, 7]\ntopology: [{0}]\n"
# Name -> the file, and how many dimensions a workload sees.
TOPOLOGIES = {
    "mesh": (LISTS.format("Mesh, Mesh", "4, 3"), 2),
    "fat tree": (LISTS.format("FatTree, Ring", "6, 3") + "routers: [3, 0]\n", 2),
    "dragonfly": (LISTS.format("Dragonfly, Mesh", "6, 2") + "groups: [3, 0]\nrouters: [1, 0]\n", 2),
    "holes": (LISTS.format("Mesh, Mesh", "4, 3") + "wafer: {dead_npus: [5], dead_links: [[2, 3]]}\n", 1),
}
SYSTEMS = {
    "ring": {"all-reduce-implementation": ["ring"] * 2, "all-to-all-implementation": ["ring"] * 2},
    "bidirectional": {f"{kind}-implementation": ["bidirectionalRing"] * 2 for kind in ("all-reduce", "all-to-all")},
    "direct": {"all-reduce-implementation": ["direct"] * 2, "all-to-all-implementation": ["direct"] * 2},
    "window": {"all-reduce-implementation": ["direct2"] * 2, "all-to-all-implementation": ["direct2"] * 2},
    "whole machine": {f"{kind}-implementation": ["oneDirect"] for kind in ("all-reduce", "all-to-all")}
    | {f"{kind}-implementation": ["oneDirect"] for kind in ("all-gather", "reduce-scatter")},
}


@pytest.mark.parametrize("network", ["congested", "fair"])
@pytest.mark.parametrize("algorithm", SYSTEMS)
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_report_is_that_of_the_message_level_simulation(tmp_path, name, algorithm, network):
    topology, dims = TOPOLOGIES[name]
    files = {"w.txt": WORKLOAD, "net.yml": topology}
    system = {key: value[:dims] for key, value in SYSTEMS[algorithm].items()}
    system |= {"endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 3}
    files["sys.json"] = json.dumps(system)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    paths = [str(tmp_path / file) for file in ("w.txt", "net.yml", "sys.json")]
    usual, messages = (run(*paths, network=network, exact=exact).to_dict() for exact in ("", "messages"))
    for report in (usual, messages):
        report.pop("classes"), report.pop("options", None)
    assert usual == messages
