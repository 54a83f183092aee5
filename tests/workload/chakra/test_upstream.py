"""Upstream's own files: each is read as its dump says, runs, and obfuscated with its sizes takes the same time."""

import gzip
import json
import tarfile

import pytest

from simcore.api import run
from simcore.errors import InputError
from simcore.replay.recorded import of_trace
from simcore.workload.chakra import reader, variants
from simcore.workload.chakra.convert.conversion import Options, convert
from tests.shared import FOLDER, shared

CHAKRA = FOLDER / "data" / "traces" / "chakra"
SUFFIXES = (".et", ".et.gz", ".eg")
FILES = sorted(path for path in CHAKRA.rglob("*") if path.name.endswith(SUFFIXES)) or [None]
SETS = sorted({path.parent / path.name.split(".0.")[0] for path in FILES if path and ".0." in path.name}) or [None]
ARCHIVES = {
    "feeder_tests_trace.tar.gz": ("tests/data/chakra.0.et", 3664),
    "json_trace.tar.gz": ("jsonData/chakra.0.json", 0),
    "1.0.2-chakra.0.0.4.tgz": ("1.0.2-chakra.0.0.4.json", 0),
}
TYPES = ["INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE"]
TYPES += ["COMM_RECV_NODE", "COMM_COLL_NODE"]
NAMELESS = {"one_comm_send_node", "one_comm_recv_node"}  # the generator writes no peer into them
MACHINE = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n"
MEMORY = '{"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 10, "remote-mem-bw": 100}'


def name_of(path):
    return str(path.relative_to(CHAKRA)) if path else "none"


def dump_of(path):
    """What upstream's own reader found in a file, if that is there."""
    name = path.name.removesuffix(".gz")
    stem = name if name.endswith(".eg") else name.removesuffix(".et")
    for suffix, load in ((".dump.json", open), (".dump.json.gz", gzip.open)):
        dump = path.with_name(stem + suffix)
        if dump.exists():
            with load(dump, "rt") as file:
                return json.load(file)
    return None


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_holds_the_nodes_of_its_dump(path):
    shared("data", "traces", "chakra")
    graph = reader.distinct_ranks(path)[0][0].graph
    dump = dump_of(path)
    if not dump:
        assert len(graph)
        return
    nodes = sorted(dump["nodes"], key=lambda node: int(node.get("id", 0)))
    assert graph.node_id.tolist() == [int(node.get("id", 0)) for node in nodes]
    assert list(graph.names) == [node.get("name", "") for node in nodes]
    if path.name.endswith(".eg"):  # the first schema: cycles at 1 GHz
        assert graph.duration_ns.tolist() == [int(node.get("simulated_run_time", 0)) for node in nodes]
        return
    assert [TYPES[kind] for kind in graph.kind.tolist()] == [node.get("type", TYPES[0]) for node in nodes]
    assert graph.duration_ns.tolist() == [1000 * int(node.get("duration_micros", 0)) for node in nodes]


@pytest.mark.parametrize("prefix", SETS, ids=name_of)
@pytest.mark.parametrize("profile", ["native", "astra-sim-2"])
def test_a_set_runs_and_takes_as_long_when_it_is_obfuscated(prefix, profile, tmp_path):
    shared("data", "traces", "chakra")
    if (profile, prefix.name) == ("astra-sim-2", "BARRIER"):
        return  # the peer has none
    machine, memory = tmp_path / "net.yml", tmp_path / "memory.json"
    machine.write_text(MACHINE)
    memory.write_text(MEMORY)
    files = reader.current_files(str(prefix))
    single = len(files) == 1
    for place, obfuscated in (("a", False), ("b", True)):
        for rank, data in files.items():
            shown = variants.obfuscate(data, b"salt", keep_sizes=True) if obfuscated else data
            (tmp_path / (f"{place}.et" if single else f"{place}.{rank}.et")).write_bytes(shown)
    names = [str(tmp_path / (f"{place}.et" if single else place)) for place in "ab"]
    assert of_trace(names[0]).timeline.time_ns == of_trace(names[1]).timeline.time_ns
    options = {"profile": profile, "remote_memory": str(memory)}
    if prefix.name in NAMELESS:
        with pytest.raises(InputError, match="names no rank"):
            run(names[0], str(machine), **options)
        return
    times = [run(name, str(machine), **options).to_dict()["time_ns"] for name in names]
    assert times[0] == times[1] >= 0


@pytest.mark.parametrize("name", sorted(ARCHIVES))
def test_an_archive_s_trace_is_converted_and_runs(name, tmp_path):
    member, nodes = ARCHIVES[name]
    with tarfile.open(shared("data", "traces", "chakra", name)) as archive:
        archive.extract(member, tmp_path, filter="data")
    target = tmp_path / "made.0.et"
    target.write_bytes(next(iter(convert(str(tmp_path / member), str(target), Options()).values())))
    graph = reader.distinct_ranks(target)[0][0].graph
    assert len(graph) == nodes or (not nodes and len(graph))
    assert of_trace(str(target)).timeline.time_ns >= 0
