"""Every reader of files, called as the commands call it, with a small right file of each kind.

What a command does behind the reader is not done: `tests/laws/inputs.py` and its campaign go through whole commands.
"""

import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simcore.cli.table import command
from simcore.cost.published import suites as published
from simcore.cost.published.reading import sort_rows
from simcore.cost.search import read_study as read_search
from simcore.cost.simai.bandwidth import read_bus_bandwidths
from simcore.generate.aicb.times import inference_times, training_times
from simcore.generate.step import load_step
from simcore.generate.wse import source as wafer_source
from simcore.generate.wse.jobs import specification
from simcore.generate.wse.routing import read_counts, read_routing
from simcore.generate.wse.settings import read_system
from simcore.generate.wse.tiling import read_tiling
from simcore.model.huggingface import configuration
from simcore.network.topology.cost import read_prices
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.replay import recorded
from simcore.report.archive import read_report
from simcore.sweep.study import read_study
from simcore.sweep.sweep import read_rows
from simcore.system import config
from simcore.system.memory import read_remote
from simcore.system.plans import schedule
from simcore.workload import text
from simcore.workload.chakra import reader
from simcore.workload.chakra.convert import flexflow, pytorch
from simcore.workload.chakra.groups import read_groups
from simcore.workload.chakra.summary import summarise
from simcore.workload.chakra.variants import obfuscate
from simcore.workload.jobs import read_jobs
from simcore.workload.kineto_reader import read_ranks
from tests.laws.inputs import MODEL, NETWORK, Input, archive, inputs
from tests.laws.inputs import text as encoded
from tests.network.test_formats import COMPOSED, SERVER

NPUS, MOST_SHOWN = 4, 1 << 12
ROUTING = {"decode0": {"decode1_moe": [[[0], [1]], [[2], [3]]]}}
LLAMA = {
    "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100,
    "intermediate_size": 96, "num_key_value_heads": 2, "tie_word_embeddings": False, "attention_bias": True,
}  # fmt: skip
JOBS = (
    "topology: ring8\nsearch: 1\njobs:\n  - {name: a, workload: micro_all_reduce, place: [0, 1], repeats: 2}\n"
    "  - {workload: micro_all_to_all, npus: 2, place: spread, start: 1 us}\n"
)
PRICES = (
    "name: mine\nsource: an offer\ndefault: [inside]\nusd_per_kwh: 0.12\nlevels:\n  inside:\n    length_m: 30\n"
    "    link: {models: [{rate: 400 Gb/s, up_to_m: 50, usd: 150, usd_per_m: 20, watts: 17}]}\n"
    "    switch: {usd_per_gbyte_per_s: 13}\n    nic: {models: [{rate: 400 Gb/s, usd: 1500, watts: 25}]}\n"
)
TILES = {"layers": {"q*": [2, None, 4]}, "defaults": {"Linear": [1, 2, 3]}}
ROW = {"key": "k", "options": {"a": 1}, "inputs": {}, "version": "0", "figures": {"time_ns": 5}, "error": ""}
ROWS = (
    "uid;operation;memory_footprint (B);num_ops (MAC);hbm_reads (B);network_data (B);comm. group;Dimensions\n"
    "q;Linear;10;20;30;0;N/A;[2, 3] x [3, 4]\nr;AllReduce;0;0;0;8;[0, 1];[2, 2]\n"
    "a;AlltoAll;0;0;0;8;[0, 1];[2, 2] -> [1, 1]\n"
)
NS3 = "4 2 1 1 4 H20\n2 3\n0 2 900Gbps 0.000025ms 0\n1 2 900Gbps 25ns 0\n0 3 200Gbps 1us 0\n1 3 1e9bps 0.001ms 0\n"
CORE = "0 READ 4 1024\n1 GEMM 4 8 16 [0]\n2 WRITE 4 1024 [1] ; out\n3 COPY 1 2 3 [0 1]\n4 BARRIER all [2 3]\n"
_STEP = '<step type="{}" srcbuf="{}" srcoff="{}" dstbuf="o" dstoff="{}" cnt="1" depid="-1" deps="-1"/>'
PROGRAM = '<algo coll="allgather" ngpus="2" inplace="0">' + "".join(
    f'<gpu id="{rank}" i_chunks="1"><tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">'
    f"{_STEP.format('s', 'i', 0, rank)}{_STEP.format('r', 'i', 0, 1 - rank)}{_STEP.format('cpy', 'i', 0, rank)}"
    "</tb></gpu>"
    for rank in range(2)
) + "</algo>"  # fmt: skip
_SYNC = {"channel_ids": [0], "channel_type": "memory"}
PLAN = {"collective": "allreduce", "inplace": True, "gpus": [{
    "id": rank, "input_chunks": 2, "channels": [{"channel_type": "memory", "connected_to": [1 - rank]}],
    "remote_buffers": [{"rank": 1 - rank, "type": "i"}], "semaphores": [{"init_value": 1}], "threadblocks": [{
        "channels": [_SYNC], "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
        "ops": [
            {"name": "sem_acquire", "semaphore_ids": [0]}, {"name": "barrier", "barrier_id": 0, "num_threadblocks": 1},
            {"name": "rre",
             "src_buff": [{"type": "i", "index": rank, "size": 1}, {"buffer_id": 0, "index": rank, "size": 1}],
             "dst_buff": [{"type": "i", "index": rank, "size": 1}], "channel_type": "memory"},
            {"name": "put", "src_buff": [{"type": "i", "index": rank, "size": 1}], "channel_type": "memory",
             "dst_buff": [{"buffer_id": 0, "index": rank, "size": 1}], "tbg_info": {"tb_id": 0, "tbg_size": 1}},
            {"name": "signal", **_SYNC}, {"name": "wait", **_SYNC}],
    }]} for rank in range(2)]}  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """`read` takes the path of a file; `pack` makes the file of its changed content."""

    file: str
    content: bytes
    read: Callable[[Path], object]
    pack: Callable[[bytes], bytes] = bytes
    binary: bool = False


def _graphs(path: Path) -> object:
    return [graph.graph if hasattr(graph, "graph") else graph for graph in reader.read_graphs(str(path), NPUS).graphs]


def _summary(path: Path) -> object:
    trace = reader.distinct_ranks(path)[0][0]
    return summarise(trace.graph), obfuscate(reader.current_files(str(path))[-1], b"salt", keep_sizes=False)


def _configuration(path: Path) -> object:
    return command("run").make_context("run", ["--config", str(path)])


def _shown(path: Path) -> object:
    if load(str(path)).npus > MOST_SHOWN:  # what is asked for is done, however long it takes
        return None
    return command("topology").main(["show", "--json", str(path)], standalone_mode=False)


def _measurements(path: Path) -> object:
    return sort_rows([published.load(path)])


def _host(path: Path) -> object:
    return pytorch.convert(str(path))


def _linked_to(host: Path, path: Path) -> object:
    return pytorch.convert(str(host), str(path))


def _routing(model: Path, path: Path) -> object:
    return read_routing(path, configuration(model), 2, {"decode0": 1})


def _counts(model: Path, path: Path) -> object:
    return read_counts(path, configuration(model))


def _instructions(path: Path) -> object:
    return list(wafer_source._instructions(path))


def _archive(members: dict[str, bytes], about: bytes) -> bytes:
    """An archive of some members and what is told about them."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, data in (members | {"about.npy": about}).items():
            packed.writestr(zipfile.ZipInfo(name), data)
    return made.getvalue()


READS: dict[str, Callable[[Path], object]] = {
    "workload.txt": text.read,
    "dlrm.txt": text.read,
    "simai.txt": text.read,
    "network.yml": load,
    "wafer.yml": load,
    "shown.yml": _shown,
    "dragonfly.yml": load,
    "twisted.yml": lambda path: LinkGraph(load(str(path))),
    "tree.yml": lambda path: LinkGraph(load(str(path))),
    "first.json": lambda path: load(str(path), gigabyte_forced="binary"),
    "links.json": lambda path: load(str(path.with_name("over.json.yml"))),
    "links.graphml": lambda path: load(str(path.with_name("over.graphml.yml"))),
    "system.json": config.read,
    "system.txt": config.read,
    "schedule.yaml": schedule.read,
    "nodes.yaml": lambda path: config.read(path.with_name("custom.yaml")),
    "groups.json": lambda path: read_groups(str(path), NPUS),
    "memory.json": lambda path: read_remote(str(path)),
    "trace.et": _graphs,
    "trace.json": _graphs,
    "param.json": _graphs,
    "trace.et.gz": _graphs,
    "info.et": _summary,
    "old.eg": _graphs,
    "profile.json": lambda path: read_ranks([path]),
    "profile.json.gz": lambda path: read_ranks([path]),
    "profile.tar.gz": lambda path: read_ranks([path]),
    "run.yaml": _configuration,
    "report.json": read_report,
    "spec.yaml": load_step,
    "study.yaml": read_search,
    "sweep.yaml": read_study,
    "model.json": configuration,
    "phases.json": lambda path: read_system(path, "decode"),
    "times.txt": lambda path: (training_times(path), inference_times(path)),
    "bandwidths.yaml": read_bus_bandwidths,
    "log.txt": lambda path: recorded.spans(str(path)),
    "tasks.graph": lambda path: flexflow.convert(str(path)),
    "host.json": _host,
    "linked.json": _host,
    "measured.json": _measurements,
    "events.npz": read_report,
}
"""Reader of a file of `tests.laws.inputs`; those that only another command reads are left out."""
PACKS = {"trace.et.gz": "trace.et", "profile.json.gz": "profile.json"}
BINARY = {"trace.et", "trace.et.gz", "info.et", "old.eg", "events.npz", "profile.tar.gz"}


def readers(folder: Path) -> dict[str, Reader]:
    """Every reader by the name of its file; what stands beside those files is written to `folder`."""
    given = inputs(folder)
    made = [_of_input(given, name, read) for name, read in READS.items()]
    events = zipfile.ZipFile(io.BytesIO(given["events.npz"].content))
    members = {name: events.read(name) for name in events.namelist()}
    made += [
        Reader("broken.et.gz", gzip.compress(given["trace.et"].content), _graphs, binary=True),
        Reader("members.tar.gz", given["profile.json"].content, lambda path: read_ranks([path]), archive),
        Reader("about.npz", members["about.npy"], read_report, partial(_archive, members)),
        Reader("kineto.json", given["profile.json"].content, partial(_linked_to, folder / "host.json")),
        Reader("routing.json", encoded(ROUTING), partial(_routing, folder / "model.json")),
        Reader("counts.json", encoded([[1] * 16] * 3), partial(_counts, folder / "model.json")),
        Reader("bincounts.json", encoded({"0": [1.5] * 16, "1": [3.0] * 16}), partial(_counts, folder / "model.json")),
        Reader("recorded.json", encoded({"logical_count": [[[1] * 16] * 4]}), partial(_counts, folder / "model.json")),
        Reader("jobs.yaml", encoded(JOBS), read_jobs),
        Reader("prices.yaml", encoded(PRICES), lambda path: read_prices(str(path))),
        Reader("circuits.yaml", encoded(NETWORK + "circuits: {delay: 1 us, all_to_all: net.yml}\n"), load),
        Reader("server.xml", SERVER.replace('sm="90"', 'gcn="942"').replace("nvlink", "xgmi").encode(), load),
        Reader("infra.yaml", COMPOSED.encode(), load),
        Reader("algo.xml", PROGRAM.encode(), schedule.read),
        Reader("plan.json", encoded(PLAN), schedule.read),
        Reader("tiling.json", encoded(TILES), read_tiling),
        Reader("config.json", encoded(LLAMA), configuration),
        Reader("deepseek.json", encoded(MODEL), configuration),
        Reader("rows.csv", encoded(ROWS), lambda path: list(wafer_source._rows(path))),
        Reader("core.csv", encoded(CORE), _instructions),
        Reader("ns3.txt", encoded(NS3), load),
        Reader("results.jsonl", encoded(ROW).replace(b"\n", b"") + b"\n", read_rows),
        Reader("wse.yaml", encoded("generator: wse\noptions:\n  model_config: model.json\n  system_config: p.json\n"
                                   "  bsz: 8\n  dtype: fp16\n  layers: all\n"), specification),
    ]  # fmt: skip
    return {each.file: each for each in made}


def _of_input(given: dict[str, Input], name: str, read: Callable[[Path], object]) -> Reader:
    if name in PACKS:
        return Reader(name, given[PACKS[name]].content, read, partial(gzip.compress, compresslevel=1), name in BINARY)
    return Reader(name, given[name].content, read, binary=name in BINARY)
