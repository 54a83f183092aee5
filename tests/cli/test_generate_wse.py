"""`simcore generate wse`: files, JSON, refusals."""

import json

import pytest

from simcore.cli import generate_wse, main
from simcore.report.wafer_figure import layers_of, node_bytes
from simcore.workload.wafer import CoreStep, Instruction

MODEL = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_attention_heads": 4,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "vocab_size": 100,
}
PHASE = {
    "num_nodes": 8,
    "node_grid": [2, 4],
    "core_grid": [2, 2],
    "dp_attn": 2,
    "dp_ffn": 1,
    "tp_attn": 4,
    "tp_ffn": 1,
    "pp": 1,
    "sp": 1,
    "ep": 8,
    "n_redundant_shared_exp": 2,
    "expert_workload_model": "uniform",
    "moe_comm": "alltoall",
}


@pytest.fixture
def wse(tmp_path, monkeypatch, capfd):
    """Runs `simcore generate wse` in a folder with a small model and system; (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "system.json").write_text(json.dumps({"prefill": PHASE, "decode": PHASE}))

    def run(command, *words):
        files = ("--model_config", "config.json", "--system-config", "system.json", "--bsz", "8")
        status = main(["generate", "wse", command, *files, *words])
        return status, *capfd.readouterr()

    return run


def test_nodes_writes_a_row_file_and_a_graph_per_node_and_step(wse, tmp_path):
    """Headers of reference/wse.md section 2; decode0 and decode9 of ten steps; barriers are not in the graph."""
    status, out, _ = wse("nodes", "--json", "-o", "out", "--nodes", "0-1,7")
    assert status == 0
    assert sorted(json.loads(out)["iters"]) == ["decode0", "decode9"]
    files = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.csv"))
    steps = ("decode0", "decode9")
    expected = [f"graph/node_{node}/{step}.csv" for node in (0, 1, 7) for step in steps]
    assert files == expected + [f"nodes/decode/node_{node}/{step}.csv" for node in (0, 1, 7) for step in steps]
    rows = (tmp_path / "out/nodes/decode/node_0/decode0.csv").read_text().splitlines()
    graph = (tmp_path / "out/graph/node_0/decode0.csv").read_text().splitlines()
    assert rows[0].startswith("uid;operation;memory_footprint (B);num_ops (MAC);hbm_reads (B);network_data (B);")
    assert graph[0] == "uid;Op Type;Inputs;Outputs;Attributes"
    assert len(rows) - len(graph) == sum(";Barrier;" in line for line in rows)
    assert json.loads((tmp_path / "out/nodes/footprint.json").read_text()) == json.loads(out)["footprint_bytes"]


def test_files_are_overwritten_only_by_force(wse):
    """Exit 2 names the file."""
    assert wse("nodes", "-o", "out")[0] == 0
    status, _, text = wse("nodes", "-o", "out")
    assert status == 2
    assert "--force" in text
    assert wse("nodes", "-o", "out", "--force")[0] == 0


def test_a_routing_file_chooses_the_steps_and_the_experts(wse, tmp_path):
    """All tokens to experts 0 and 1, which are on node 0: the others have none."""
    routing = {"decode4": {f"decode{layer}_moe": [[[0]] * 8, [[1]] * 8] for layer in (1, 2, 3)}}
    (tmp_path / "routing.json").write_text(json.dumps(routing))
    status, out, _ = wse("nodes", "--json", "--routing", "routing.json", "--layers", "decode1")
    assert status == 0
    (step,) = json.loads(out)["iters"].items()
    ops = [node[1] for node in step[1]]
    assert step[0] == "decode4"
    assert ops[0] - ops[1] == (16 + 4) * 3 * 64 * 32  # sixteen choices and the half of the shared expert's tokens
    assert ops[4] - ops[1] == 4 * 3 * 64 * 32


def test_both_phases_are_made_when_neither_is_skipped(wse):
    """The peer's flags."""
    _, out, _ = wse("nodes", "--json", "--only_decode", "0", "--simplified_decode", "0", "--decode_len", "3")
    assert sorted(json.loads(out)["iters"]) == ["decode0", "decode1", "decode2", "prefill"]


def test_traces_writes_a_file_per_core(wse, tmp_path):
    """The form of reference/wse.md section 2."""
    status, out, _ = wse("traces", "--json", "-o", "out", "--iter", "decode0", "--layers", "decode2", "--nodes", "3")
    assert status == 0
    folder = tmp_path / "out/traces/decode/node_3/decode0"
    assert sorted(path.name for path in folder.iterdir()) == [f"core_{core}.csv" for core in range(4)]
    lines = [line for path in folder.iterdir() for line in path.read_text().splitlines()]
    assert len(lines) == sum(json.loads(out)["iters"]["decode0"]["instructions"].values())
    assert all(line.count("\t\t;decode2_") + line.count("\t\t;cross_layer_") == 1 for line in lines)


PREFILL = "--only_decode", "0", "--only_prefill", "1"


@pytest.mark.parametrize(
    ("command", "words", "named"),
    [
        ("nodes", ("--layers", "decode4"), "--layers"),
        ("nodes", ("--nodes", "0-8"), "--nodes"),
        ("nodes", ("--only_prefill", "1"), "--only_prefill"),
        ("nodes", ("--dtype", "fp32"), "--dtype"),
        ("nodes", ("--routing", "none.json"), "none.json"),
        ("traces", ("--iter", "decode3"), "--iter"),
        ("traces", ("--tiling", "config.json"), "config.json:1:"),
        ("traces", ("--train",), "--train"),
        ("nodes", ("--no-graph",), "--outdir, too"),
        ("nodes", (*PREFILL, "--decode_len", "5"), "no --decode_len beside --only_prefill 1"),
        ("nodes", (*PREFILL, "--spec_dec", "2"), "no --spec_dec beside --only_prefill 1"),
        ("traces", (*PREFILL, "--simplified_decode", "0"), "no --simplified_decode beside --only_prefill 1"),
        ("nodes", ("--train", "--decode_len", "5"), "no --decode_len beside --train"),
        ("nodes", ("--train", "--spec_dec", "1"), "no --spec_dec beside --train"),
        ("nodes", ("--train", "--only_decode", "0"), "no --only_decode beside --train"),
        ("nodes", ("--train", "--only_prefill", "1"), "no --only_prefill beside --train"),
        ("nodes", ("--train", "--simplified_decode", "0"), "no --simplified_decode beside --train"),
    ],
)
def test_what_is_wrong_is_named(wse, command, words, named):
    """Exit 2, the option or the file with its place, no traceback."""
    status, _, text = wse(command, *words)
    assert status == 2
    assert named in text
    assert "Traceback" not in text


def test_worker_processes_write_what_one_process_writes(wse, tmp_path, monkeypatch):
    """Large steps are written by all processor cores."""
    assert wse("nodes", "-o", "one", "--decode_len", "1")[0] == 0
    monkeypatch.setattr("simcore.cli.generate_wse.MANY_TOKENS", 0)
    monkeypatch.setattr("simcore.cli.generate_wse.cores", lambda: 2)
    assert wse("nodes", "-o", "two", "--decode_len", "1")[0] == 0
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.csv")]
    assert len(files) == 16
    assert all((tmp_path / "one" / each).read_text() == (tmp_path / "two" / each).read_text() for each in files)


def test_traces_on_disk_are_drawn_layer_by_layer(wse, tmp_path, capfd):
    wse("traces", "--layers", "decode1,decode2", "-o", "output")
    assert main(["generate", "wse", "visualize", "--layers", "decode2", "--iter", "decode0"]) == 0
    visuals = tmp_path / "output" / "visuals"
    assert [path.relative_to(visuals).as_posix() for path in sorted(visuals.rglob("*.*"))] == [
        "decode0/decode2.csv",
        "decode0/decode2.png",
    ]
    capfd.readouterr()
    assert main(["generate", "wse", "visualize", "--system_config", "system.json", "--force", "--json"]) == 0
    drawn = json.loads(capfd.readouterr().out)["bytes"]
    assert {step: sorted(layers) for step, layers in drawn.items()} == {
        step: ["decode1", "decode2"] for step in ("decode0", "decode9")
    }
    assert len(list(visuals.rglob("*.png"))) == 4
    one = next((tmp_path / "output" / "traces").rglob("core_*.csv")).parent
    last = len(list(one.iterdir())) - 1
    for core, said in ((last, "nodes have different numbers of cores"), (0, "core 0 is missing")):
        (one / f"core_{core}.csv").unlink()
        assert main(["generate", "wse", "visualize", "--force"]) == 2
        assert said in capfd.readouterr().err


def test_a_step_is_drawn_on_the_grid_of_its_phase(wse, tmp_path, monkeypatch):
    row = PHASE | {"node_grid": [1, PHASE["num_nodes"]]}
    (tmp_path / "system.json").write_text(json.dumps({"prefill": row, "decode": PHASE}))
    wse("traces", "--layers", "decode2", "--only_decode", "0", "--prefill_len", "4", "-o", "output")
    grids = {}
    monkeypatch.setattr(generate_wse, "moves_figure", lambda _, title, nodes, cores: grids.update({title: nodes}))
    monkeypatch.setattr(generate_wse, "save", lambda *_: None)
    assert main(["generate", "wse", "visualize", "--system_config", "system.json"]) == 0
    assert grids["prefill, decode2"] == tuple(row["node_grid"])
    assert grids["decode0, decode2"] == tuple(PHASE["node_grid"])


def test_counts_that_nothing_is_drawn_by_are_refused(wse, tmp_path):
    experts, layers = MODEL["n_routed_experts"], MODEL["num_hidden_layers"] - MODEL["first_k_dense_replace"]
    (tmp_path / "counts.json").write_text(json.dumps([[1] * experts] * layers))
    drawn = PHASE | {"expert_workload_model": "empirical_mmlu"}
    (tmp_path / "system.json").write_text(json.dumps({"prefill": PHASE, "decode": drawn}))
    assert wse("nodes", "--expert_counts", "counts.json")[0] == 0
    status, _, said = wse("nodes", "--expert_counts", "counts.json", "--only_decode", "0", "--only_prefill", "1")
    assert (status, "--expert_counts: error: nothing is drawn" in said) == (2, True)


def test_a_picture_counts_the_bytes_that_leave_their_bank():
    step = CoreStep("decode0", 0, 2, [[], [], [], []])
    read, copy = Instruction("READ", (3, 100), (), "decode5_q"), Instruction("COPY", (0, 2, 7), (), "decode5_q")
    home, spread = Instruction("WRITE", (0, 50), (), "decode5_q"), Instruction("MULTICAST", (0, 1, 2, 5), (), "lm_head")
    step.traces[0].extend([read, copy, home, spread])
    found = layers_of(step)
    assert found == {"decode5": {(3, 0): 100, (0, 2): 7}, "lm_head": {(0, 1): 5, (0, 2): 5}}
    assert node_bytes(found["decode5"], 2, 2).tolist() == [[0, 7], [100, 0]]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--layers", "decode9"], "decode2"), (["--iter", "decode7"], "decode0"), (["-o", "nowhere"], "no traces")],
)
def test_what_is_not_on_disk_is_not_drawn(wse, capfd, words, said):
    wse("traces", "--layers", "decode2", "-o", "output")
    assert main(["generate", "wse", "visualize", *words]) == 2
    assert said in capfd.readouterr().err
