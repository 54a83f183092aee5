"""A file given in place of another: every reader says at once what it is and what to do with it."""

import json

import pytest

from simcore.cli import main
from simcore.library import folder

GIVEN = {
    "report.json": (json.dumps({"breakdown": {"exposed_comm_ns": 1}, "network": "x"}).encode(), "a report of simcore"),
    "net.yaml": ((folder("topologies") / "ring8.yaml").read_bytes(), "a topology"),
    "w.txt": ((folder("workloads") / "dlrm.txt").read_bytes(), "a text workload"),
    "links.graphml": (b'<?xml version="1.0"?>\n<graphml/>\n', "a graph"),
    "links.json": (b'{"directed": true, "nodes": [], "links": []}', "a graph"),
    "page.html": (b"<!doctype html>\n<title>x</title>", "a page"),
    "wide.json": ('{"traceEvents": []}'.encode("utf-16"), "UTF-16"),
    "picture.png": (b"\x89PNG\r\n\x1a\n\x00", "a picture"),
    "events.npz": (b"PK\x03\x04\xe7", "events.npz of simcore run"),
    "rank0.json.zst": (b"\x28\xb5\x2f\xfd\x24\x00", "a compressed file (zstd"),
    "layers.csv": (b"layer,name,phase,compute_ns\n0,a,forward,1\n", "the table of layers"),
    "study.yaml": (b"grid: {topology: [ring8]}\n", "a study of simcore sweep"),
    "run.yaml": (b"options: {}\nprovenance: {}\n", "the options of a run"),
    "ds_config.json": (b'{"train_batch_size": 64, "zero_optimization": {"stage": 3}}', "a configuration of DeepSpeed"),
    "titan.toml": (b'# debug\n[job]\ndump_folder = "x"\n[parallelism]\n', "a configuration of TorchTitan"),
    "nemo.yaml": (b"name: gpt\ntrainer:\n  devices: 8\nmodel: {}\n", "a configuration of NeMo"),
    "megatron.yaml": (b"language_model:\n  num_layers: 24\n", "a configuration of Megatron-LM"),
    "ci.yaml": (b"ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --num-layers: 12\n", "options of Megatron-LM"),
    "ranks.json": (b'{"version": "2.0", "rank_count": 1, "rank_list": [{"rank_id": 0}]}', "a rank table"),
    "pool.json": (b'{"memory-type": "MEMORY_POOL", "remote-mem-latency": 0}', "ASTRA-sim's remote memory"),
    "deepseek.json": (
        b'{"num_layers": 61, "router_expert": 256, "expert_dim": 2048}',
        "AICB's configuration of a model",
    ),
    "busbw.yaml": (b"test\nTP:\nallreduce,: 300\n", "SimAI's bus bandwidths"),
    "dims.json": (b'{"physical-dims": ["8", "8"]}', "the logical dimensions of a network for ns-3"),
    "config.json": (b'{"packet": {"payload_size": 1000}, "congestion_control": {"cc_mode": 12}}', "settings for ns-3"),
    "sent.csv": (b"comm_type,comm_group,comm_group_size\nCommType.all_reduce,CommGroup.dp_group,8\n", "AICB's list"),
    "base.yml": (b"base_emb_dim: 2048\nici_fsdp_parallelism: -1\n", "a configuration of MaxText"),
}
READERS = {
    "convert {}": ("x", {"w.txt"}),
    "run --workload {}": ("--topology ring8", {"w.txt"}),
    "run --topology {}": ("--workload dlrm", {"net.yaml"}),
    "run --config {}": ("--workload dlrm --topology ring8", {"run.yaml"}),
    "run {}": ("", set()),
    "sweep {}": ("", {"study.yaml"}),
    "search {}": ("", set()),
    "predict --cluster h100 --accelerators 8 --seq 2048 --model {}": ("", set()),
    "replay {}": ("", set()),
    "compare {}": ("r.json", {"report.json", "events.npz"}),
    "run --workload dlrm --topology ring8 --system {}": ("", set()),
    "run --workload dlrm --profile simai-busbw --busbw {}": ("", {"busbw.yaml"}),
    "run --workload t.et --topology ring8 --comm-groups {}": ("", set()),
    "run --workload t.et --topology ring8 --remote-memory {}": ("", {"pool.json"}),
    "trace info {}": ("", set()),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_another_kind_is_named_with_what_takes_it(reader, tmp_path, capsys, monkeypatch):
    more, own = READERS[reader]
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "collective", "--kind", "all_reduce", "--bytes", "64", "-o", "t.et"]) == 0
    for name, (content, what) in GIVEN.items():
        if name in own:
            continue
        (tmp_path / name).write_bytes(content)
        assert main(f"{reader.format(tmp_path / name)} {more}".split()) == 2
        said = capsys.readouterr().err
        assert what in said, name
        assert "hint:" in said, name
        assert said.count("error:") == 1, name


def test_a_document_that_ends_too_soon_is_told_where_whatever_it_could_have_been(tmp_path, capsys):
    path = tmp_path / "document"
    for broken in ("grid: {topology: [ring8", '{"1": [0, 1'):
        path.write_text(broken)
        assert main(["sweep", str(path)]) == 2
        assert f"{path}:1:1: error: not well-formed" in capsys.readouterr().err.replace(":2:1:", ":1:1:")
