"""`simcore run` and `simcore generate wse faults` on workloads of the wafer-scale generator."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from simcore.cli import main
from simcore.generate.wse.files import HEADER, row, write_lines
from simcore.generate.wse.settings import parse_layers
from simcore.generate.wse.source import Source, load
from tests.cli.test_generate_wse import MODEL, PHASE
from tests.generate.test_wse_nodes import SYSTEMS
from tests.generate.wse import SMALL, SMALL_LLAMA, job, rows, system

WAFER = """topology: [Mesh, Mesh]
npus_count: [{0}, {1}]
bandwidth: [100.0, 100.0]
latency: [10.0, 10.0]
"""
OPTIONS = "model_config: config.json, system_config: system.json, bsz: 8, prefill_len: 16"
FILES = ("--model_config", "config.json", "--system_config", "system.json")
SIZES = ("--bsz", "8", "--prefill_len", "16")


@pytest.fixture
def simcore(tmp_path, monkeypatch, capsys):
    """Runs a command in a folder with a model, wafers and specifications: (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "system.json").write_text(json.dumps({"prefill": PHASE, "decode": PHASE}))
    rows, columns = PHASE["node_grid"]
    (tmp_path / "wafer.yaml").write_text(WAFER.format(columns, rows))
    high, wide = PHASE["core_grid"]
    (tmp_path / "cores.yaml").write_text(WAFER.format(columns * wide, rows * high))
    (tmp_path / "spec.yaml").write_text(f"generator: wse\noptions: {{{OPTIONS}, decode_len: 2}}\n")
    (tmp_path / "train.yaml").write_text(f"generator: wse\noptions: {{{OPTIONS}, train: true}}\n")

    def run(*words):
        status = main(list(words))
        return status, *capsys.readouterr()

    return run


def report(simcore, workload, *words, topology="wafer.yaml"):
    """The report of a run."""
    status, out, text = simcore("run", "--workload", workload, "--topology", topology, "--json", *words)
    assert status == 0, text
    return json.loads(out)


@pytest.mark.parametrize(("spec", "words"), [("spec.yaml", ("--decode_len", "2")), ("train.yaml", ("--train",))])
def test_rows_and_their_specification_run_alike(simcore, spec, words):
    """Everything but the inputs is equal."""
    assert simcore("generate", "wse", "nodes", *FILES, *SIZES, *words, "-o", "out")[0] == 0
    made, read = report(simcore, spec), report(simcore, "out")
    assert made | {"inputs": read["inputs"]} == read
    assert read == report(simcore, "out/nodes") | {"inputs": read["inputs"]}
    assert [step["tokens"] for step in made["wafer"]["steps"]] == ([8 * 16] if "--train" in words else [8, 8])


@pytest.mark.parametrize("spelled", [json.dumps, lambda given: "---\n" + json.dumps(given, indent=1), yaml.safe_dump])
def test_a_specification_may_be_spelled_in_any_yaml(simcore, tmp_path, spelled):
    """JSON and quoted keys were taken for a training step's."""
    options = yaml.safe_load((tmp_path / "spec.yaml").read_text())["options"]
    (tmp_path / "spelled.yaml").write_text(spelled({"generator": "wse", "options": options}))
    expected = report(simcore, "spec.yaml")
    assert report(simcore, "spelled.yaml")["wafer"] == expected["wafer"]


def test_options_of_an_unknown_generator_are_nobody_s(simcore, tmp_path):
    """One error, not one for every option; nor is a file sent from one place to the same place."""
    (tmp_path / "other.yaml").write_text(f"generator: wsee\noptions: {{{OPTIONS}}}\n")
    text = simcore("run", "--workload", "other.yaml", "--topology", "wafer.yaml")[2]
    assert text.count("error:") == 1
    (tmp_path / "spec.json").write_text((tmp_path / "spec.yaml").read_text())
    assert "named .yaml" in simcore("run", "--workload", "spec.json", "--topology", "wafer.yaml")[2]


@given(data=st.data(), batch=st.integers(1, 13), prefill_len=st.integers(1, 5))
def test_rows_tell_the_new_positions_of_the_whole_batch(data, batch, prefill_len):
    """Whatever the phase, the layers and who shares sequences: those of the specification."""
    phase = data.draw(st.sampled_from(["decode", "prefill", "train"]))
    settings = SYSTEMS[data.draw(st.sampled_from(sorted(SYSTEMS)))]
    tp, sp = data.draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]))
    cluster = min(settings.replica_nodes, tp * sp)
    degrees = {"tp": tp, "sp": cluster // tp, "dp": settings.stage_nodes // cluster} if cluster % tp == 0 else {}
    on = structs.replace(settings, **degrees) if phase != "train" or settings.dp_ffn == 1 else system(**degrees)
    layers = ",".join(data.draw(st.sets(st.sampled_from(parse_layers("all", SMALL)), min_size=1)))
    shape = data.draw(st.sampled_from([SMALL, SMALL_LLAMA, replace(SMALL_LLAMA, parallel_block=True)]))
    made = job(shape, on, layers, batch=batch, prefill_len=prefill_len, phase=phase)
    step, _, every = rows(made)
    with TemporaryDirectory() as folder:
        for node, held in enumerate(every):
            write_lines(Path(folder) / f"node_{node}" / f"{step.name}.csv", [HEADER, *map(row, held)])
        assert load(Path(folder)).steps[0].tokens == batch * step.queries


def test_the_report_of_a_wafer_adds_up(simcore):
    """Breakdown and iterations; compute of rank 0 is that of the layers."""
    found = report(simcore, "spec.yaml")
    assert sum(found["breakdown"].values()) == found["time_ns"]
    assert sum(step["time_ns"] for step in found["wafer"]["steps"]) == found["time_ns"]
    assert sum(layer["forward"]["compute_ns"] for layer in found["layers"]) == found["compute_ns"]
    assert found["links"]["hottest"][0]["bytes"] > 0
    assert report(simcore, "spec.yaml", "--network", "congestion-free")["time_ns"] <= found["time_ns"]
    known = report(simcore, "spec.yaml", "--npu", "WSE-3")
    assert known["time_ns"] < found["time_ns"]
    assert known["warnings"] == [] and ["round figures" in text for text in found["warnings"]] == [True]


@given(nodes=st.sampled_from([4, 8, 16]), data=st.data())
def test_nodes_that_do_not_stand_as_on_their_grid_are_told(nodes, data):
    """Node n is NPU n, whatever its neighbours; a side of one NPU is none."""
    grids = [(nodes // rows, rows) for rows in (1, 2, 4) if nodes % rows == 0]
    grid, there = data.draw(st.sampled_from(grids)), data.draw(st.sampled_from(grids))
    source = Source((), "", grids=(grid, grid[::-1]))
    same, turned = there == grid or 1 in {*grid} & {*there}, there == grid[::-1] or 1 in {*grid} & {*there}
    assert len([*source.misplaced(there)]) == (not same) + (not turned)


def test_a_run_on_another_grid_than_the_specifications_tells_it(simcore, tmp_path):
    (tmp_path / "high.yaml").write_text(WAFER.format(*PHASE["node_grid"]))
    assert not any("node_grid" in text for text in report(simcore, "spec.yaml")["warnings"])
    [text] = [text for text in report(simcore, "spec.yaml", topology="high.yaml")["warnings"] if "node_grid" in text]
    assert text.startswith("node_grid: [2, 4] is 4 x 2 and the topology 2 x 4 NPUs")


def test_a_training_step_fills_all_three_parts_of_a_layer(simcore):
    """Weight gradients compute what the products of the forward pass do."""
    for layer in report(simcore, "train.yaml")["layers"]:
        assert all(layer[part]["compute_ns"] > 0 for part in ("forward", "input_grad", "weight_grad"))


def test_traces_run_on_a_mesh_of_cores(simcore):
    """No faster than without queues; the folder and its parent are the same."""
    words = ("--layers", "decode0,decode2", "--iter", "decode0", "-o", "out")
    assert simcore("generate", "wse", "traces", *FILES, *SIZES, *words)[0] == 0
    found = report(simcore, "out", topology="cores.yaml")
    free = report(simcore, "out/traces", "--network", "congestion-free", topology="cores.yaml")
    assert found["npus"] == 32
    assert free["time_ns"] <= found["time_ns"]
    assert found["wafer"]["steps"][0]["move_ns"]["max"] <= found["time_ns"]


def test_a_folder_of_results_has_the_pictures_of_the_wafer(simcore, tmp_path):
    """The map, the matrices, the table; and words for people."""
    status, out, _ = simcore(
        "run", "--workload", "spec.yaml", "--topology", "wafer.yaml", "-o", "r", "--links", "l.png"
    )
    assert status == 0
    assert "tokens/s" in out
    assert {"links.png", "matrix.png", "matrix_decode0.png", "traffic.csv"} <= {
        each.name for each in tmp_path.glob("r/*")
    }
    assert (tmp_path / "l.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("dead", ["links", "npus"])
def test_faults_make_a_step_slower_and_a_picture(simcore, tmp_path, dead):
    """Without faults the factor is one."""
    (tmp_path / "spare.yaml").write_text(WAFER.format(4, 4) + "wafer: {spare_rows: 2}\n")
    words = ("--workload", "spec.yaml", "--topology", "spare.yaml", "--dead", dead, "--samples", "2")
    status, out, _ = simcore("generate", "wse", "faults", *words, "--counts", "0,2", "--json", "-o", "f.png")
    found = json.loads(out)["rows"]
    assert status == 0
    assert [each["dead"] for each in found] == [0, 2]
    assert found[0]["slowdown"] == 1.0 <= found[1]["most"]
    assert (tmp_path / "f.png").exists()
    assert simcore("generate", "wse", "faults", *words, "--counts", "0")[0] == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--workload", "spec.yaml", "--topology", "small.yaml"), "fewer NPUs"),
        (("--workload", "wrong.yaml", "--topology", "wafer.yaml"), "wrong.yaml:2:"),
        (("--workload", "layers.yaml", "--topology", "wafer.yaml"), "layers.yaml:2:"),
        (("--workload", "spec.yaml", "--topology", "wafer.yaml", "--network", "fair"), "--network"),
        (("--workload", "spec.yaml", "--topology", "wafer.yaml", "--npu", "none"), "no such accelerator"),
        (("--workload", "spec.yaml", "--topology", "wafer.yaml", "--iterations", "2"), "--iterations"),
        (("--workload", "spec.yaml", "--topology", "wafer.yaml", "--profile", "astra-sim-2"), "--profile"),
        (("--workload", "spec.yaml", "--topology", "wafer.yaml", "--system", "system.json"), "--system"),
        (("--workload", "bad", "--topology", "wafer.yaml"), "decode0.csv:2:"),
        (("--workload", "far", "--topology", "wafer.yaml"), "no such node"),
        (("--workload", "odd", "--topology", "wafer.yaml"), "decode0.csv:2:"),
        (("--workload", "gap", "--topology", "wafer.yaml"), "node 1 is missing"),
        (("--workload", "hole", "--topology", "cores.yaml"), "core 1 is missing"),
        (("--workload", "worse", "--topology", "cores.yaml"), "core_0.csv:1:"),
    ],
)
def test_what_is_wrong_with_a_wafer_run_is_named(simcore, tmp_path, words, named):
    """Exit 2, the place, no traceback."""
    (tmp_path / "small.yaml").write_text(WAFER.format(2, 2))
    (tmp_path / "wrong.yaml").write_text(f"generator: wse\noptions: {{{OPTIONS}, batch: 3}}\n")
    (tmp_path / "layers.yaml").write_text(f"generator: wse\noptions: {{{OPTIONS}, layers: decode77}}\n")
    header = "uid;operation;memory_footprint (B);num_ops (MAC);hbm_reads (B);network_data (B);comm. group;Dimensions\n"
    for path, text in {
        "bad/nodes/decode/node_0/decode0.csv": header + "x;Linear;1\n",
        "far/nodes/decode/node_0/decode0.csv": header + "x_ar;AllReduce;0;0;0;16;[0, 5];[2, 4]\n",
        "odd/nodes/decode/node_0/decode0.csv": header + "x_ar;AllReduce;0;0;0;16;[0, 'a'];[2, 4]\n",
        "gap/nodes/decode/node_0/decode0.csv": header,
        "gap/nodes/decode/node_2/decode0.csv": header,
        "hole/traces/decode/node_0/decode0/core_0.csv": "",
        "hole/traces/decode/node_0/decode0/core_2.csv": "",
        "worse/traces/decode/node_0/decode0/core_0.csv": "0 READ [3]\t\t;x\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    status, _, text = simcore("run", *words)
    assert (status, "Traceback" in text) == (2, False), text
    assert named in text
