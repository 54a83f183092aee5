"""The report of the SimAI profiles, from Python and from the command line."""

from io import StringIO

import pytest

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.workload import text

WORKLOAD = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 2 vpp: 1 ga: 4 all_gpus: 64 \
checkpoints: 0 checkpoint_initiates: 0 pp_comm: 4096
3
embedding_layer -1 600 ALLREDUCE 50331648 1 NONE 0 1500 NONE 0 100
mlp_layer -1 175084 ALLREDUCE 50331648 87542 NONE 0 87542 NONE 0 100
grads -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1073741824 100
"""
OPTIONS = {"profile": "simai-1.6", "gpu_type": "H100", "nic_type": "cx7", "tp_overlap": 0.5}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "w.txt"
    file.write_text(WORKLOAD)
    return file


def test_the_report_has_every_row_once_and_shares_that_add_up(path):
    report = simcore.run(path, **OPTIONS)
    document = report.to_dict()
    assert [layer["name"] for layer in document["layers"]] == ["embedding_layer", "mlp_layer", "grads"]
    assert sum(document["breakdown"].values()) == document["time_ns"] == round(document["simai"]["total_us"] * 1000)
    assert document["time_ns"] == report.time_ns
    assert document["compute_ns"] == 600 + 1 + 1500 + 175084 + 2 * 87542 + 3
    assert document["breakdown"]["overlapped_ns"] > 0
    assert document["npus"] == 64
    assert str(report).startswith("One iteration takes 10.26 ms on 64 GPUs: compute 352.3 us")
    assert report.to_json() == simcore.run(path, **OPTIONS).to_json()


def test_a_workload_that_was_read_takes_as_long_as_its_file(path):
    assert simcore.run(text.read(path, "simai"), **OPTIONS).time_ns == simcore.run(path, **OPTIONS).time_ns


def test_standard_input_is_read_as_by_a_simulation(path, monkeypatch):
    monkeypatch.setattr("sys.stdin", StringIO(WORKLOAD))
    piped, there = simcore.run("-", **OPTIONS), simcore.run(path, **OPTIONS)
    assert piped.time_ns == there.time_ns
    assert piped.to_dict()["inputs"][0]["sha256"] == there.to_dict()["inputs"][0]["sha256"]


def test_a_specification_takes_as_long_as_its_text(tmp_path):
    options = ["--num_layers", "2", "--hidden_size", "64", "--num_attention_heads", "4", "--gpu_type", "H100"]
    for form, name in (("text", "w.txt"), ("spec", "w.yaml")):
        assert main(["generate", "megatron", *options, "--format", form, "-o", str(tmp_path / name)]) == 0
    text_ns, specification_ns = (simcore.run(tmp_path / name, **OPTIONS).time_ns for name in ("w.txt", "w.yaml"))
    assert text_ns == specification_ns > 0


def test_traces_have_no_rows_to_add_up(tmp_path):
    path = tmp_path / "w.et"
    assert main(["generate", "collective", "--kind", "all_reduce", "--bytes", "1 MiB", "-o", str(path)]) == 0
    for traces in (path, simcore.load_workload(path, npus=2)):
        with pytest.raises(InputError, match="adds up rows, which this has not"):
            simcore.run(traces, **OPTIONS)


def test_the_bandwidth_file_belongs_to_its_profile(path, tmp_path):
    measured = OPTIONS | {"profile": "simai-busbw"}
    with pytest.raises(InputError, match="--busbw"):
        simcore.run(path, **measured)
    with pytest.raises(InputError, match="--busbw"):
        simcore.run(path, **OPTIONS, busbw="f")
    file = tmp_path / "busbw.yaml"
    file.write_text("test\nTP:\nallreduce,: 300\nDP:\nallreduce,: 45\nPP:\nbusbw: 47.5\n")
    document = simcore.run(path, **measured, busbw=str(file)).to_dict()
    assert [entry["role"] for entry in document["inputs"]] == ["workload", "busbw"]


def test_bandwidths_that_nobody_asks_for_are_told(path, tmp_path):
    numbers = {"nvlink_bw": 360, "nic_bw": 48.5}
    one_number = simcore.run(path, **OPTIONS | {"nvlink_bw": 360, "gpu_type": "no such"}).to_dict()["warnings"]
    assert one_number == ["--gpu-type has no effect beside --nvlink-bw"]
    file = tmp_path / "busbw.yaml"
    file.write_text("test\nTP:\nallreduce,: 300\nDP:\nallreduce,: 45\nPP:\nbusbw: 47.5\n")
    given = OPTIONS | numbers | {"profile": "simai-busbw", "busbw": file, "nics_per_server": 4, "gpus_per_server": 4}
    told = {warning.partition(" has no effect")[0] for warning in simcore.run(path, **given).to_dict()["warnings"]}
    assert told == {"--nvlink-bw", "--nic-bw", "--gpu-type", "--nic-type", "--nics-per-server"}


@pytest.mark.parametrize(
    "name, value",
    [("topology", "ring8"), ("straggler", "5=2"), ("tp_overlap", 2), ("gpus", 0), ("dialect", "astra-sim")],
)
def test_what_only_a_simulation_has_and_what_no_server_has_is_refused(path, name, value):
    with pytest.raises(InputError, match=f"--{name.replace('_', '-')}"):
        simcore.run(path, **OPTIONS | {name: value})
