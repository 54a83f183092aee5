"""`simcore generate megatron|deepspeed|deepseek|inference` as typed."""

import json

import pytest

from simcore.cli import main
from simcore.generate.step import load_step
from simcore.workload import text

SMALL = ("--num_layers", "2", "--hidden_size", "256", "--num_attention_heads", "4", "--vocab_size", "1000")
SPREAD = ("--world_size", "8", "--tensor_model_parallel_size", "2", "--global_batch", "8", "--seq_length", "128")


def run(capsys, *words):
    code = main(["generate", *map(str, words)])
    return code, *capsys.readouterr()


def test_underscores_hyphens_and_beginnings_of_options_mean_the_same(capsys):
    _, one, _ = run(capsys, "megatron", *SMALL, *SPREAD, "--use-distributed-optimizer", "--gpu_type", "A100")
    words = [word.replace("_", "-") for word in (*SMALL, *SPREAD)]
    _, two, _ = run(capsys, "megatron", *words, "--use_distr", "--gpu-type=A100")
    assert one == two


def test_the_default_is_a_text_that_reads_back(capsys, tmp_path):
    path = tmp_path / "step.txt"
    code, out, _ = run(capsys, "megatron", *SMALL, *SPREAD, "--gpu_type", "H100", "-o", path)
    assert (code, out) == (0, "")
    assert text.read(path).parallelism.all_gpus == 8
    code, _, error = run(capsys, "megatron", *SMALL, *SPREAD, "--gpu_type", "H100", "-o", path)
    assert code == 2
    assert "--force" in error
    assert run(capsys, "megatron", *SMALL, *SPREAD, "--gpu_type", "H100", "-o", path, "--force")[0] == 0


def test_json_lists_deviations_with_bytes_and_reasons(capsys):
    _, out, _ = run(capsys, "megatron", *SMALL, *SPREAD, "--gpu_type", "A100", "--json")
    document = json.loads(out)
    assert document["header"].startswith("HYBRID_TRANSFORMER_FWD_IN_BCKWD")
    assert {entry["what"] for entry in document["deviations"]} >= {"replicated gradients", "computation times"}
    for entry in document["deviations"]:
        assert entry["difference_bytes"] == entry["bytes"] - entry["aicb_bytes"]
    assert document["memory"]["stages"][0]["total_bytes"] > 0


def test_a_written_profile_gives_back_its_forward_times(capsys, tmp_path):
    """AICB's format has one time for all three phases: those of the forward pass survive."""
    path = tmp_path / "times.txt"
    words = ("megatron", *SMALL, *SPREAD)
    _, computed, _ = run(capsys, *words, "--gpu_type", "A100", "--profile_out", path)
    _, measured, _ = run(capsys, *words, "--comp_filepath", path)
    pairs = zip(text.parse(computed, "a").layers, text.parse(measured, "b").layers, strict=True)
    assert all(one.forward == two.forward for one, two in pairs)


def test_a_specification_makes_the_same_workload(capsys, tmp_path):
    path = tmp_path / "step.yaml"
    words = ("--model", "llama-3-8b", *SPREAD, "--gpu_type", "H100")
    assert run(capsys, "megatron", *words, "--format", "spec", "-o", path)[0] == 0
    _, written, _ = run(capsys, "megatron", *words)
    assert text.write(load_step(path).workload) == written


def test_a_specification_runs_as_the_text_of_the_same_options(capsys, tmp_path):
    topology = tmp_path / "net.yaml"
    topology.write_text("topology: [Ring, Switch]\nnpus_count: [2, 4]\nbandwidth: [300, 25]\nlatency: [500, 2000]\n")
    times = []
    for form, name in (("text", "step.txt"), ("spec", "step.yaml")):
        words = (*SMALL, *SPREAD, "--gpu_type", "A100", "--format", form, "-o", tmp_path / name)
        assert run(capsys, "megatron", *words)[0] == 0
        assert main(["run", "--workload", str(tmp_path / name), "--topology", str(topology), "--json"]) == 0
        times.append(json.loads(capsys.readouterr().out)["time_ns"])
    assert times[0] == times[1] > 0


def test_a_specification_with_a_wrong_key_says_where(tmp_path):
    path = tmp_path / "step.yaml"
    path.write_text("generator: megatron\noptions:\n  word_size: 8\n")
    with pytest.raises(Exception, match=r"3:3: error: unknown key 'word_size'[\s\S]*world_size"):
        load_step(path)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("megatron", "--world_size", "7", "--tensor_model_parallel_size", "2"), "--world_size"),
        (("megatron", "--model", "llama-3-9b"), "--model"),
        (("megatron", "--moe_enable", "--compat", "aicb-2.1"), "--enable_sequence_parallel"),
        (("megatron", "--recompute", "full", "--compat", "aicb-2.1"), "--recompute"),
        (("megatron", "-m", "8"), "--model_size"),
        (("megatron", "--pp_rank", "3", "--gpu_type", "A100", "--global_batch", "1"), "--pp_rank"),
        (("megatron", "--format", "chakra", "--gpu_type", "A100"), "--output"),
        (("deepspeed", "--compat", "aicb-2.1"), "--format"),
        (("deepspeed", "--stage", "4"), "--stage"),
        (("megatron", *SMALL, *SPREAD, "--schedule", "zb-v"), "--schedule"),
        (("megatron", *SMALL, "--virtual_pipeline_model_parallel_size", "2"), "no pipeline to schedule"),
        (("megatron", *SMALL, *SPREAD, "--schedule", "dualpipe", "--format", "csv"), "--schedule"),
        (("megatron", *SMALL, *SPREAD, "--comp_filepath", "absent.txt"), "--comp_filepath"),
        (("megatron", "-m", "7", "--pp_rank", "0", "--format", "chakra", "-o", "made"), "--ranks"),
        (("inference", "gpt-13b", "--pp_rank", "0", "--format", "chakra", "-o", "made"), "--ranks"),
        (("inference", "DeepSeek-671B", "--compat", "aicb-2.1"), "CONFIG"),
        (("inference", "gpt-13b", "--tensor_model_parallel_size", "3", "--world_size", "3"), "--tensor_model_parallel"),
        (("inference", "gpt-13b", "--tensor_model_parallel_size", "0"), "--tensor_model_parallel_size"),
    ],
)
def test_a_wrong_value_exits_2_and_names_its_option(words, named, capsys):
    code, out, error = run(capsys, *words)
    assert (code, out) == (2, "")
    assert named in error
    assert "Traceback" not in error


def test_narrow_products_take_less_where_the_accelerator_has_them(capsys):
    """All but the head, attention with 8 bits at least; an accelerator without them is an error."""
    words = ("megatron", "--model", "llama-3-8b", "--use_distributed_optimizer", "--world_size", "8", "--global_batch")
    spent = {}
    for dtype in ("bfloat16", "float8", "fp4"):
        code, out, _ = run(capsys, *words, "8", "--gpu_type", "B200", "--dtype", dtype)
        layers = text.parse(out, "made").layers
        spent[dtype] = sum(layer.weight_grad.compute_ns for layer in layers if layer.name == "mlp_layer")
        assert code == 0
    assert spent["bfloat16"] > 1.3 * spent["float8"] > 1.3 * spent["fp4"]
    code, _, error = run(capsys, *words, "8", "--gpu_type", "A100", "--dtype", "float8")
    assert (code, "no peak rate for the data type 'fp8'" in error) == (2, True)


def test_gradients_of_narrow_products_are_reduced_as_those_of_16_bits(capsys):
    words = ("deepspeed", "-m", "7", "--world_size", "8", "--stage", "2", "--global_batch", "8", "--gpu_type", "H100")
    sent = []
    for dtype in ("bfloat16", "float8"):
        _, out, _ = run(capsys, *words, "--dtype", dtype)
        sent.append([layer.weight_grad.size_bytes for layer in text.parse(out, "made").layers])
    assert sent[0] == sent[1] and sum(sent[0]) > 0


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("model", ["llama-3-8b", "deepseek-v2-lite", "qwen3-30b-a3b"])
def test_an_inference_step_reads_back_and_only_goes_forward(phase, model, capsys):
    degrees = ("--world_size", "8", "--tensor_model_parallel_size", "2", "--seq_length", "1024", "--micro_batch", "4")
    experts = () if model.startswith("llama") else ("--expert_model_parallel_size", "4")
    _, out, _ = run(capsys, "inference", model, *degrees, *experts, "--phase", phase, "--gpu_type", "H100")
    layers = text.parse(out, "made").layers
    assert sum(layer.forward.compute_ns for layer in layers) > 0
    assert not any(layer.input_grad.compute_ns or layer.weight_grad.compute_ns for layer in layers)


def test_decoding_is_bound_by_reading_the_weights_and_the_cache(capsys):
    """Pope et al. 2022, section 2.1: a small batch takes the time of its bytes, whatever its length adds in cache."""
    words = ("inference", "llama-3-8b", "--micro_batch", "1", "--gpu_type", "H100", "--json")
    _, out, _ = run(capsys, *words, "--seq_length", "8192")
    document = json.loads(out)
    held = document["memory"]["parameter_bytes"] + document["memory"]["kv_cache_bytes"]
    spent_s = sum(row["forward"]["compute_ns"] for row in document["rows"]) / 1e9
    assert held / 3.35e12 < spent_s < 3 * held / 3.35e12


@pytest.mark.parametrize(("context", "heads"), [(1, 12), (128, 1), (1024, 12)])
def test_a_decoder_reads_what_an_encoder_wrote_as_it_reads_its_own(capsys, tmp_path, context, heads):
    """Both caches are as long. What an encoder wrote was projected to keys and values ahead of the first token."""
    sizes = {"d_model": 768, "d_ff": 2048, "d_kv": 64, "num_heads": heads, "num_layers": 2, "vocab_size": 1000}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "t5", **sizes}))
    words = ("inference", "t5", path, "--seq_length", str(context), "--micro_batch", "8", "--gpu_type", "H100")
    _, out, _ = run(capsys, *words)
    spent = {layer.name: layer.forward.compute_ns for layer in text.parse(out, "made").layers}
    assert 0.7 * spent["attention_layer"] < spent["cross_layer"] < spent["attention_layer"]
    path.write_text(
        json.dumps({"model_type": "gpt2", "n_layer": 1, "n_head": 12, "n_embd": 768, "n_positions": 1, **sizes})
    )
    _, out, _ = run(capsys, *words)
    assert text.parse(out, "made").layers[0].forward.compute_ns == spent["embedding_layer"]


def test_a_token_that_begins_a_piece_reads_nothing_before_it(capsys, tmp_path):
    """Of Llama 4's layers only the fourth reads the whole cache for it."""
    sizes = {"num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 8, "vocab_size": 1000}
    sizes |= {"intermediate_size": 512, "intermediate_size_mlp": 512, "num_local_experts": 2}
    path, served = tmp_path / "config.json", ("inference", "any", tmp_path / "config.json", "--micro_batch", "64")
    path.write_text(json.dumps({"model_type": "llama4_text", "attention_chunk_size": 8192, **sizes}))
    spent = []
    for context in ("8192", "8193"):
        _, out, _ = run(capsys, *served, "--gpu_type", "H100", "--seq_length", context)
        spent.append([row.forward.compute_ns for row in text.parse(out, "made").layers if "attention" in row.name])
    assert spent[0][0] == spent[0][3] < 2 * spent[1][3]
    assert len({*spent[1][:3]}) == 1 and 10 * spent[1][0] < spent[1][3]


STAGES = (*SMALL, *SPREAD, "--pipeline_model_parallel", "2", "--gpu_type", "A100")


@pytest.mark.parametrize("form", ["text", "csv"])
def test_a_stage_of_minus_one_is_none_asked_for(form, capsys):
    """AICB's default, which the help tells."""
    _, none, _ = run(capsys, "megatron", *STAGES, "--format", form)
    _, first, _ = run(capsys, "megatron", *STAGES, "--format", form, "--pp_rank", "0")
    assert run(capsys, "megatron", *STAGES, "--format", form, "--pp_rank", "-1")[:2] == (0, none)
    assert (first == none) == (form == "csv")


def test_traces_tell_what_they_have_no_use_for_and_write_times_as_a_text_does(capsys, tmp_path):
    given = ("--epoch_num", "2", "--workload_only", "--gpu_type", "V100")
    model = ("--model", "gpt-13b", "--seq_length", "64")
    words = (*model, "--world_size", "2", "--pipeline_model_parallel", "2", "--dtype", "float16", *given)
    written = ("--profile_out", tmp_path / "of_traces.txt", "-o", tmp_path / "step")
    code, _, error = run(capsys, "megatron", *words, "--format", "chakra", *written)
    assert code == 0
    assert "without effect but under --compat or --format csv: --epoch_num" in error
    assert "without effect but under --compat: --workload_only" in error
    assert "does not fit" in error
    run(capsys, "megatron", *words[:-5], "--gpu_type", "V100", "--profile_out", tmp_path / "of_text.txt")
    assert (tmp_path / "of_traces.txt").read_text() == (tmp_path / "of_text.txt").read_text()
