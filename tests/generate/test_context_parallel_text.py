"""Context parallelism in text: rows say `_CP`, the header `cp:`; what runs is what the specification describes."""

import json
from pathlib import Path

import pytest

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.workload import text
from simcore.workload.model import Group

SHAPE = "--num_layers 2 --hidden_size 512 --num_attention_heads 8 --vocab_size 1024 --seq_length 2048 --gpu_type A100"
MACHINE = "topology: [Switch, Switch]\nnpus_count: [4, 4]\nbandwidth: [300, 25]\nlatency: [500, 2000]\n"


def generated(folder, name, *more, form):
    words = ["generate", "megatron", *SHAPE.split(), "--world_size", "16", "--global_batch", "16", *more]
    assert main([*words, "--format", form, "-o", str(folder / name)]) == 0
    return str(folder / name)


def time_ns(folder, workload):
    (folder / "machine.yaml").write_text(MACHINE)
    return simcore.run(workload, folder / "machine.yaml").time_ns


@pytest.mark.parametrize(("tp", "cp"), [(1, 2), (2, 2), (2, 4), (4, 4)])
def test_the_text_takes_as_long_as_the_specification(tmp_path, tp, cp):
    degrees = ["--tensor_model_parallel_size", str(tp), "--context_parallel_size", str(cp)]
    written = generated(tmp_path, "step.txt", *degrees, form="text")
    times = [time_ns(tmp_path, each) for each in (written, generated(tmp_path, "s.yaml", *degrees, form="spec"))]
    assert times[0] == times[1]
    read = text.read(written)
    assert read.parallelism.cp == cp
    assert {phase.group for layer in read.layers for phase in (layer.forward, layer.input_grad)} >= {Group.CP}
    assert text.parse(text.write(read), written) == read


def test_without_it_no_row_says_so(tmp_path):
    assert "CP" not in Path(generated(tmp_path, "step.txt", form="text")).read_text()


def test_native_traces_put_context_parallel_ranks_together(tmp_path):
    degrees = ["--tensor_model_parallel_size", "2", "--context_parallel_size", "4"]
    written = generated(tmp_path, "step.txt", *degrees, form="text")
    assert main(["convert", written, str(tmp_path / "t"), "--native", "--npus", "16"]) == 0
    assert main(["convert", str(tmp_path / "t"), str(tmp_path / "replay"), "--to", "param"]) == 0
    trace = json.loads((tmp_path / "replay" / "1.json").read_text())
    groups = [entry["global_ranks"] for entry in trace if entry["comms"] == "init"]
    assert [1, 3, 5, 7] in groups


def test_rows_without_the_number_of_ranks_and_closed_forms_of_simai_are_refused(tmp_path):
    written = generated(tmp_path, "step.txt", "--context_parallel_size", "2", form="text")
    content = Path(written).read_text()
    with pytest.raises(InputError, match="rows name context-parallel ranks"):
        text.parse(content.replace("cp: 2 ", ""), "step.txt")
    with pytest.raises(InputError, match="SimAI knows no context parallelism"):
        simcore.run(written, profile="simai-1.6", gpus=16, nvlink_bw=360, nic_bw=48.5)
