"""AICB's files: every record of the oracle, the five executions of the first document, row-count laws."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.generate.aicb.deepspeed import deepspeed_operations
from simcore.generate.aicb.inference import InferenceOptions, inference_text
from simcore.generate.aicb.megatron import megatron_operations
from simcore.generate.aicb.operations import csv_text
from simcore.generate.aicb.options import Options
from simcore.generate.aicb.presets import PRESETS, preset
from simcore.generate.aicb.training import training_text
from simcore.workload import text
from tests.shared import FOLDER, shared

ORACLE = FOLDER / "oracle" / "aicb.json"
RECORDS = json.loads(ORACLE.read_text())["records"] if ORACLE.exists() else [{"name": "absent"}]

TIMES = """train_iter:10
Emb:
    time_gpu_avg: 799
layernorm:
    time_gpu_avg: 70
atten_qkv:
    time_gpu_avg: 889
atten_flash:
    time_gpu_avg: 512
atten_linear:
    time_gpu_avg: 349
layernorm2:
    time_gpu_avg: 71
mlp_linear_1:
    time_gpu_avg: 1408
mlp_gelu:
    time_gpu_avg: 257
mlp_linear_2:
    time_gpu_avg: 742
param_time:
    time_gpu_min: 16647
    time_gpu_avg: 17374
"""


@pytest.fixture
def times(tmp_path):
    """The averages of AICB's Example.txt that its generators use."""
    path = tmp_path / "times.txt"
    path.write_text(TIMES)
    return str(path)


def expanded(sequence, rows):
    for item in sequence:
        if isinstance(item, int):
            yield rows[item]
        else:
            count, block = item
            yield from list(expanded(block, rows)) * count


def made(record, folder):
    """Our file of an oracle record, for operation lists its first eight columns."""
    oracle = json.loads(ORACLE.read_text())
    values = {key.replace("-", "_"): value for key, value in record["params"].items() if key != "_pos"}
    if "_pos" in record["params"]:
        model, configuration = record["params"]["_pos"]
        path = folder / "config.json"
        path.write_text(json.dumps(oracle["inference_configs"][Path(configuration).stem]))
        return str(inference_text(InferenceOptions(model, str(path), **values))).splitlines()
    if "comp_filepath" in values:
        path = folder / "Example.txt"
        path.write_text(oracle["comp_file_Example.txt"])
        values["comp_filepath"] = str(path)
    options = Options(**values)
    if record["generator"].startswith("SimAI"):
        return str(training_text(options)).splitlines()
    make = deepspeed_operations if options.frame == "DeepSpeed" else megatron_operations
    return [",".join(line.split(",")[:8]) for line in csv_text(make(options)).splitlines()[1:]]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["name"])
def test_a_file_is_the_one_that_aicb_wrote(record, tmp_path):
    """Source: AICB at commit 23eec3c, run on CPU, unmodified (shared/oracle/aicb.json)."""
    shared("oracle", "aicb.json")
    if "fails" in record:
        with pytest.raises(InputError):
            made(record, tmp_path)
        return
    head = [record["header_line"], str(record["row_count"])] if record["generator"].startswith("SimAI") else []
    assert made(record, tmp_path) == head + list(expanded(record["sequence"], record["rows"]))


EXECUTION = Options(
    world_size=512,
    tensor_model_parallel_size=2,
    global_batch=2048,
    num_layers=36,
    seq_length=1024,
    hidden_size=4096,
    num_attention_heads=32,
    vocab_size=50257,
    swiglu=True,
    use_flash_attn=True,
    aiob_enable=True,
)


def changed(options, **values):
    return Options(**({field.name: getattr(options, field.name) for field in fields(Options)} | values))


@pytest.mark.parametrize(
    ("values", "rows", "gathered", "forward"),
    [
        ({}, 598, 6459228160, 8388608),
        ({"seq_length": 2048}, 598, 6467616768, 16777216),
        ({"hidden_size": 2048, "num_attention_heads": 16}, 598, 1823473664, 4194304),
        ({"global_batch": 1024}, 306, 6459228160, 8388608),
        (
            {"num_layers": 48, "seq_length": 4096, "hidden_size": 6144, "num_attention_heads": 48},
            790,
            18201182208,
            50331648,
        ),
    ],
)
def test_the_five_executions_of_the_first_document_come_out_as_the_tool_wrote_them(
    values, rows, gathered, forward, times
):
    """Source: the document's figures with its transcription errors corrected (508 is 598)."""
    file = training_text(changed(EXECUTION, comp_filepath=times, **values))
    assert len(file.layers) == rows
    assert file.layers[0].weight_grad.size_bytes == gathered
    assert file.layers[1].weight_grad.size_bytes == 2 * gathered
    assert file.layers[2].input_grad.compute_ns == 34021000
    assert {layer.forward.size_bytes for layer in file.layers if layer.name == "mlp_layer"} == {forward}


@settings(max_examples=40, deadline=None)
@given(
    layers=st.integers(1, 6),
    batches=st.integers(0, 4),
    tp=st.sampled_from([1, 2, 4]),
    sequence_parallel=st.booleans(),
    replicas=st.sampled_from([1, 2, 4]),
)
def test_the_number_of_rows_follows_from_layers_and_micro_batches(layers, batches, tp, sequence_parallel, replicas):
    """Prologue, micro-batches of 2 + 2L rows (with sequence parallelism 3 + 4L), seven at the end."""
    options = Options(
        world_size=tp * replicas,
        tensor_model_parallel_size=tp,
        global_batch=replicas * batches,
        num_layers=layers,
        num_attention_heads=4,
        hidden_size=64,
        enable_sequence_parallel=sequence_parallel,
    )
    file = training_text(options)
    each = 3 + 4 * layers if sequence_parallel else 2 + 2 * layers
    prologue = 1 + (not sequence_parallel) + 2 * (replicas != 1)
    assert len(file.layers) == prologue + batches * each + 7
    assert text.parse(str(file), "made").layers == tuple(file.layers)


def test_a_dense_stage_of_deepspeed_gathers_every_parameter_once_a_step():
    """ZeRO-1 and 2 gather all parameters in shards padded to the group: the sum is at most a group's padding more."""
    for stage in (1, 2):
        options = Options(frame="DeepSpeed", stage=stage, world_size=8, global_batch=8, num_layers=2, hidden_size=64)
        operations = deepspeed_operations(options)
        gathered = sum(op.size for op in operations if op.kind == "all_gather")
        broadcast = sum(op.size for op in operations if op.kind == "broadcast")
        assert 0 <= gathered - broadcast <= 2 * 8


@given(st.integers(0, 9), st.integers(1, 70), st.integers(0, 2), st.integers(0, 400))
def test_contiguous_gradients_are_reduced_once_each_by_ranks_there_are(width, ranks, layers, bucket):
    """ZeRO-2: also a model without a weight, of which rank 0 gets a piece of no bytes for each of its parameters."""
    shape = {"hidden_size": width, "num_attention_heads": 1, "vocab_size": 5, "num_layers": layers}
    run = {"world_size": ranks, "global_batch": ranks, "contiguous_gradients": True, "reduce_bucket_size": bucket}
    made = deepspeed_operations(Options("DeepSpeed", stage=2, **shape, **run))
    reduced = [operation for operation in made if operation.kind == "reduce"]
    broadcast = [operation.size for operation in made if operation.kind == "broadcast"]
    assert sum(operation.size for operation in reduced) == sum(broadcast)
    assert reduced and {operation.dst for operation in reduced} <= set(range(ranks))


@pytest.mark.parametrize(
    ("values", "option"),
    [
        ({"world_size": 6, "tensor_model_parallel_size": 4}, "--world_size"),
        ({"moe_enable": True}, "--enable_sequence_parallel"),
        ({"num_experts": 3, "expert_model_parallel_size": 2, "world_size": 2}, "--num_experts"),
        ({"world_size": 3, "tensor_model_parallel_size": 3, "num_attention_heads": 4}, "--hidden_size"),
        ({"aiob_enable": True}, "--comp_filepath"),
        ({"micro_batch": 0}, "--micro_batch"),
        ({"frame": "DeepSeek", "enable_sequence_parallel": True}, "--aiob_enable"),
        ({"frame": "DeepSpeed", "stage": 2, "amp_enabled": True}, "--amp_enabled"),
        ({"frame": "DeepSpeed", "stage": 1, "allgather_bucket_size": 0}, "--allgather_bucket_size"),
        ({"pipeline_model_parallel": 2, "world_size": 2, "workload_only": None}, "--workload_only"),
    ],
)
def test_what_aicb_cannot_do_is_an_error_that_names_the_option(values, option):
    lists = "workload_only" in values
    options = Options(**{key: value for key, value in values.items() if value is not None})
    make = megatron_operations if lists else deepspeed_operations if options.frame == "DeepSpeed" else training_text
    with pytest.raises(InputError) as error:
        make(options)
    assert option in {problem.location.file for problem in error.value.problems}


@pytest.mark.parametrize("frame", PRESETS)
def test_every_preset_is_a_set_of_options(frame):
    for size in PRESETS[frame]:
        assert Options(frame=frame, **preset(frame, size)).num_layers > 0
