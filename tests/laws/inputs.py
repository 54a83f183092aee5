"""A small right input for every reader, and the command that reads it."""

import gzip
import io
import json
import tarfile
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import networkx as nx

from simcore.cli import main
from simcore.workload.chakra import schema, writer
from tests.cli.test_generate_wse import MODEL, PHASE
from tests.profiles_of_steps import recorded

ROW = "fc{} -1 1000 NONE 0 900 ALLGATHER 4096 800 ALLREDUCE 1048576 100\n"
ROWS = "2\n" + ROW.format(0) + ROW.format(1)
SIMAI = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 "
    "checkpoints: 1 0 checkpoint_initiates: 1 1 pp_comm: 0\n"
)
NETWORK = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n"
HIERARCHICAL = {
    "topology-name": "Hierarchical",
    "topologies-per-dim": ["Ring"],
    "dimension-type": ["N"],
    "dimensions-count": 1,
    "units-count": [4],
    "links-count": [2],
    "link-latency": [500],
    "link-bandwidth": [25],
    "nic-latency": [0],
    "router-latency": [0],
    "hbm-latency": [500],
    "hbm-bandwidth": [370],
    "hbm-scale": [0],
}
SCHEDULE = "collective: all_reduce\nranks: 4\nchunks: 1\nroot: 0\nsteps:\n" + "".join(
    f"  - - {{src: {src}, dst: {dst}, chunk: {chunk}, reduce: {reduce}}}\n"
    for src, dst, chunk, reduce in [(3, 2, 0, "true"), (1, 0, "[0]", 1), (2, 0, 0, "true"), (0, 1, 0, "false"),
                                    (0, 2, 0, 0), (0, 3, 0, "false")]
)  # fmt: skip
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "baseline",
    "local-mem-bw": 1600,
    "peak-perf": 300,
    "roofline-enabled": 0,
}
MEMORY = {
    "memory-type": "PER_NODE_MEMORY_EXPANSION",
    "remote-mem-latency": 10,
    "remote-mem-bw": 100,
    "num-nodes": 2,
    "num-npus-per-node": 2,
}
SHAPE = "{layers: 4, hidden: 1024, heads: 16, ffn: 4096, vocab: 1000}"
STUDY = (
    f"model: {SHAPE}\nseq: 256\naccelerators: 4\nglobal_batch: 8\ncluster: selene\nmicro_batch: [1]\n"
    "memory: 75 GB\nzero: [1]\n"
)
SPECIFICATION = (
    "generator: megatron\noptions:\n  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  vocab_size: 100\n"
    '  world_size: 4\n  global_batch: 4\n  seq_length: 64\n  gpu_type: "A100"\n  micro_batch: 1\n'
)
BANDWIDTHS = (
    "test\nTP:\nallreduce,: 300\nallgather,: 280\nDP:\nallreduce,: 100\nallgather,: null\n"
    "EP:\nalltoall,: 80\nPP:\nbusbw: 47.5\n"
)
TIMES = "attention_forward:\n  time_gpu_avg: 12.5\n  time_gpu_min: 11\nmlp_forward:\n  time_gpu_avg: 3\n"
LOG = "issue,npu_id=0,tick=0,node_id=0,node_name=COMP_A\ncallback,npu_id=0,tick=9,node_id=0,node_name=COMP_A\n"
FLEXFLOW = (
    "digraph taskgraph {\n"
    'node0 [label="{device_id=0|Dense|Forward|COMP_NODE|simulated_run_time=0.02}",shape=record];\n'
    'node1 [label="{device_id=4|C|C|COMM_SEND_RECV_NODE|src_device_id=0|dst_device_id=1|comm_size=8|run_time=1}"];\n'
    "node0 -> node1;\n"
)
SWEEP = (
    'run: {workload: dlrm, topology: ring8}\ngrid: {"topology.bandwidth[0]": [50, 100]}\n'
    "random: {samples: 1, seed: 1, values: {compute_scale: {low: 1, high: 2}}}\n"
)
OPERATOR = {key: [] for key in ("inputs", "input_shapes", "input_types", "outputs", "output_shapes", "output_types")}
HOST = {
    "schema": "1.0.1",
    "pid": 1,
    "nodes": [
        OPERATOR | {"id": 1, "name": "[pytorch|profiler|execution_graph|thread]", "parent": 0, "rf_id": 0},
        OPERATOR | {"id": 2, "name": "aten::mm", "parent": 1, "rf_id": 1},
    ],
}
LINKED = {
    "schema": "1.1.1-chakra.0.0.4",
    "nodes": [
        {
            "id": number,
            "name": name,
            "ctrl_deps": 1,
            "inputs": {"values": [[1, 2, 0, 4, 4, "cuda:0"]], "shapes": [[4]], "types": ["Tensor(float)"]},
            "outputs": {"values": [], "shapes": [], "types": []},
            "attrs": [{"name": "rf_id", "type": "uint64", "value": number}],
            **linked,
        }
        for number, name, linked in (
            (1, "[pytorch|profiler|execution_trace|thread]", {}),
            (2, "nccl:all_reduce", {"exclusive_dur": 5, "ts": 1}),
            (
                3,
                "ncclDevKernel_AllReduce",
                {"exclusive_dur": 9.5, "ts": 8, "cat": "kernel", "stream": 7, "sync_dep": [2]},
            ),
        )
    ],
}
MEASURED = {
    "rows": [
        {
            "id": "sc21-t1-1.7B",
            "hardware": {"accelerator": "A100-SXM-80GB", "per_node": 8, "count": 32},
            "model": {"layers": 4, "hidden": 2304, "heads": 24, "ffn": 9216, "seq": 64, "vocab": 512},
            "parallel": {"tp": 1, "pp": 1, "dp": 32},
            "batch": {"global_": 512, "micro": None},
            "measured": {"tflops_per_gpu": 137, "iter_s_implied": 3.53},
            "recompute": "full",
        }
    ],
    "bulk_tables": {
        "vtrain_single": {
            "columns": ["# layers", "hidden size", "attention heads", "sequence length", "global batch", "micro batch",
                        "tensor parallelism", "pipeline parallelism", "data parallelism", "# GPUs", "ms"],
            "rows": [[2, 1024, 16, 512, 8, 1, 2, 1, 4, 8, 40.5]],
        }
    },
    "collectives": [
        {
            "id": "c", "collective": "all_reduce", "ranks": 8, "nodes": 1, "hardware": "8 H100",
            "columns": ["bytes", "time_us", "busbw_GBps"], "points": [[1048576, 40.0, 45.0]],
        }
    ],
}  # fmt: skip
PROGRAM = [("work", 10), ("launch", "gemm", 20), ("launch", "ncclAllReduce", 30, 9), ("synchronise",)]
WAFER = "topology: [Mesh, Mesh]\nnpus_count: [2, 2]\nbandwidth: [50.0, 50.0]\nlatency: [10.0, 10.0]\n"
EXTRAS = (
    "name: n\ndescription: d\nlinks: [1, 1]\ngigabyte: binary\n"
    "wafer: {dead_npus: [], dead_links: [[0, 1]], spare_rows: 0}\n"
)
DRAGONFLY = "topology: [Dragonfly]\nnpus_count: [8]\ngroups: [2]\nrouters: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n"
TWISTED = {
    "topology": ["Torus", "Torus"],
    "npus_count": [2, 4],
    "bandwidth": [10, 10],
    "latency": [1, 1],
    "buffer": ["1 MiB", "1 MiB"],
    "twisted": True,
}
TREE = "topology: [FatTree]\nnpus_count: [8]\nbandwidth: [50 GB/s]\nlatency: [1 us]\noversubscription: [2.0]\n"
GENERATE = (
    "generate megatron --num_layers 2 --hidden_size 64 --num_attention_heads 4 --vocab_size 100 --world_size 2 "
    "--global_batch 2 --seq_length 64 --aiob_enable --comp_filepath {0}"
)


@dataclass(frozen=True)
class Input:
    """Content of a file that `command` reads as {0}; the folder of all inputs is {1}."""

    file: str
    content: bytes
    command: str


PARAM = [
    {"comms": "init", "pg_id": 0, "global_ranks": [0, 1, 2, 3], "world_size": 4},
    {"compute": "gemm", "mm_dim": 512, "dtype": "float16", "count": 10},
    {"comms": "all_reduce", "in_msg_size": 64, "out_msg_size": 64, "dtype": "float", "req": 1, "startTime_ns": 500},
    {"comms": "wait", "req": 1},
]


def text(content: object) -> bytes:
    """As it stands in the file; a mapping or list as JSON."""
    return (content if isinstance(content, str) else json.dumps(content, indent=1)).encode()


def graph() -> nx.Graph:
    """A square of links."""
    made = nx.cycle_graph(4)
    nx.set_edge_attributes(made, 50.0, "bandwidth")
    nx.set_edge_attributes(made, 500.0, "latency")
    return made


def archive(content: bytes) -> bytes:
    """A compressed tar file with one trace."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("trace.json")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def old_trace() -> bytes:
    """A computation and an all-gather behind it, in Chakra's schema 0.0.3."""
    node = schema.messages("0.0.3")["Node"]
    work, gather = node(id=0, name="n", type=4), node(id=1, name="c", type=7, parent=[0], inputs="[]")
    work.attribute.add(name="runtime", type=1).i = 5
    for name, value in (("comm_type", 2), ("comm_size", 64)):
        gather.attribute.add(name=name, type=1).i = value
    return b"".join(writer.frame(message.SerializeToString()) for message in (work, gather))


def inputs(folder: Path) -> dict[str, Input]:
    """Every reader's input; files that stand beside them are written to `folder`."""
    for name, content in {
        "w.txt": "DATA\n" + ROWS,
        "net.yml": NETWORK,
        "sys.json": SYSTEM,
        "own.yaml": "all-reduce-implementation: [{schedule: schedule.yaml}]\n",
        "custom.yaml": "per-node-custom-implementation: nodes.yaml\n",
        "model.json": MODEL,
    }.items():
        (folder / name).write_bytes(text(content))
    (folder / "phases.json").write_bytes(text({"prefill": PHASE, "decode": PHASE}))
    run = ["run", "--workload", f"{folder}/w.txt", "--topology", f"{folder}/net.yml"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["convert", f"{folder}/w.txt", f"{folder}/t", "--npus", "4"]) == 0
        assert main(["convert", f"{folder}/t.0.et", f"{folder}/t.json"]) == 0
        assert main([*run, "-o", f"{folder}/made", "-q"]) == 0
    trace, traced = (folder / "t.0.et").read_bytes(), recorded(PROGRAM).content()
    run = "run --json --topology {1}/net.yml --workload "
    on = "run --json --workload {1}/w.txt --topology "
    node = "run --json --workload {1}/t.0.et --topology {1}/net.yml "
    wse = "generate wse nodes --bsz 8 --json "
    listed = [
        Input("workload.txt", text("DATA\n" + ROWS), run + "{0}"),
        Input("dlrm.txt", text("HYBRID_DLRM 1\n" + ROWS), run + "{0}"),
        Input("simai.txt", text(SIMAI + ROWS), run + "{0}"),
        Input(
            "closed.txt",
            text(SIMAI + ROWS),
            "run --json --profile simai-1.6 --gpu-type A100 --nic-type cx7 --workload {0}",
        ),
        Input("network.yml", text(NETWORK), on + "{0}"),
        Input("wafer.yml", text(WAFER + EXTRAS), on + "{0}"),
        Input("shown.yml", text(WAFER + EXTRAS), "topology show --json {0}"),
        Input("dragonfly.yml", text(DRAGONFLY), on + "{0}"),
        Input("twisted.yml", text(TWISTED), on + "{0}"),
        Input("tree.yml", text(TREE), on + "{0}"),
        Input("first.json", text(HIERARCHICAL), on + "{0} --profile astra-sim-1.0"),
        Input("links.json", text(nx.node_link_data(graph(), edges="links")), on + "{1}/over.json.yml"),
        Input("links.graphml", "".join(nx.generate_graphml(graph())).encode(), on + "{1}/over.graphml.yml"),
        Input("system.json", text(SYSTEM), node + "--profile astra-sim-2 --system {0}"),
        Input("native.json", text(SYSTEM), on + "{1}/net.yml --system {0}"),
        Input(
            "system.txt",
            text("".join(f"{k}: {v[0] if isinstance(v, list) else v}\n" for k, v in SYSTEM.items())),
            on + "{1}/net.yml --profile astra-sim-1.0 --system {0}",
        ),
        Input("schedule.yaml", text(SCHEDULE), on + "{1}/net.yml --system {1}/own.yaml"),
        Input("nodes.yaml", b"999: t\n998: nowhere\n", node + "--system {1}/custom.yaml"),
        Input("groups.json", text({"1": [0, 1], "2": [2, 3]}), node + "--comm-groups {0}"),
        Input("memory.json", text(MEMORY), node + "--remote-memory {0}"),
        Input("trace.et", trace, run + "{0}"),
        Input("param.json", text(PARAM), run + "{0}"),
        Input("trace.json", (folder / "t.json").read_bytes(), run + "{0}"),
        Input("trace.et.gz", gzip.compress(trace), run + "{0}"),
        Input("info.et", trace, "trace info {0} --json"),
        Input("profile.json", traced, "replay --json {0}"),
        Input("profile.json.gz", gzip.compress(traced), "replay --json {0}"),
        Input("profile.tar.gz", archive(traced), "replay --json {0}"),
        Input("run.yaml", (folder / "made" / "run.yaml").read_bytes(), "run --json --config {0}"),
        Input("report.json", (folder / "made" / "report.json").read_bytes(), "compare --json {0} {1}/made"),
        Input("spec.yaml", text(SPECIFICATION), run + "{0}"),
        Input("study.yaml", text(STUDY), "search --json {0}"),
        Input("model.json", text(MODEL), wse + "--system_config {1}/phases.json --model_config {0}"),
        Input(
            "phases.json",
            text({"prefill": PHASE, "decode": PHASE}),
            wse + "--model_config {1}/model.json --system_config {0}",
        ),
        Input("times.txt", text(TIMES), GENERATE),
        Input(
            "bandwidths.yaml",
            text(BANDWIDTHS),
            "run --json --profile simai-busbw --gpus 4 --workload {1}/closed.txt --busbw {0}",
        ),
        Input("log.txt", text(LOG), "trace timeline {0} -o {1}/log.json --force"),
        Input("tasks.graph", text(FLEXFLOW), "convert {0} {1}/tasks --force"),
        Input("old.eg", old_trace(), run + "{0}"),
        Input("host.json", text(HOST), "convert {0} {1}/host --force"),
        Input("linked.json", text(LINKED), "convert {0} {1}/linked --force"),
        Input("measured.json", text(MEASURED), "validate --json --data {0}"),
        Input("events.npz", (folder / "made" / "events.npz").read_bytes(), "compare --json {0} {1}/made"),
        Input("sweep.yaml", text(SWEEP), "sweep {0} -o {1}/swept --jobs 1 -q"),
        Input("convert.txt", text("DATA\n" + ROWS), "convert {0} {1}/converted --npus 2 --force"),
    ]
    for name in ("links.json", "links.graphml"):
        (folder / f"over.{name[6:]}.yml").write_text(f"graph: {name}\n")
    for made in listed:
        (folder / made.file).write_bytes(made.content)
    return {made.file: made for made in listed}
