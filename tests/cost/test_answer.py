"""`simcore predict`: the document, its sums, its refusals, and what it writes."""

import json
from dataclasses import replace

import pytest

import simcore
from simcore.cli import main
from simcore.cost.answer import model_flops
from simcore.errors import InputError
from simcore.model.plan import Plan
from simcore.model.presets import model
from simcore.model.shape import total_parameters

STEP = (
    *("predict", "--model", "llama-3-8b", "--cluster", "h100", "--accelerators", "16", "--tp", "2", "--pp", "2"),
    *("--global-batch", "16", "--seq", "2048", "--zero", "1"),
)


def test_parts_and_shares_add_up(capsys):
    assert main([*STEP, "--json", "--run"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "simcore.prediction/1"
    assert sum(document["parts"].values()) == pytest.approx(document["step_s"])
    assert document["run_s"] == pytest.approx(document["step_s"], abs=1e-6)
    low, high = document["interval_s"]
    assert low < document["step_s"] < high
    shares = [share for name, share in document["sources"].items() if name.endswith("_share")]
    assert sum(shares) == pytest.approx(1)
    assert [stage["peak_bytes"] for stage in document["memory"]] == [
        sum(stage["parts"].values()) for stage in document["memory"]
    ]


def test_utilisation_counts_six_flops_a_parameter_and_token_and_attention():
    """Megatron-LM's 72 B s L h^2 (1 + s / 6h + V / 12 L h), scores that a causal mask hides left out."""
    found = simcore.predict("gpt-175b", "selene", 1024, 2048, tp=8, pp=16, dp=8, global_batch=64)
    shape, tokens = model("gpt-175b"), 64 * 2048
    weights = 6 * tokens * total_parameters(shape)
    attention = 6 * tokens * 2048 * shape.layers * shape.hidden
    flops = found.mfu * found.step_s * 1024 * 312e12
    assert flops == pytest.approx(weights + attention, rel=0.01)


@pytest.mark.parametrize("further", [1, 2])
def test_utilisation_counts_all_of_an_mtp_module(further):
    """DeepSeek-V3, section 2.2: a layer, the head again, and the projection of two hidden states to one."""
    shape, plan = model("llama-3-8b"), Plan(1, 2048)
    deeper, shallow = replace(shape, mtp_layers=further), replace(shape, layers=shape.layers - 1)
    layer = model_flops(shape, plan) - model_flops(shallow, plan)
    product = 6 * plan.seq * shape.hidden
    each = layer + product * (2 * shape.hidden + shape.vocab)
    assert model_flops(deeper, plan) - model_flops(shape, plan) == pytest.approx(further * each, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"tp": "two"}, "--tp: error: tp must be a whole number of at least 1"),
        ({"tpp": 2}, "--tpp: error: there is no such option\n  expected: did you mean 'tp'?"),
        ({"accelerators": 0}, "--accelerators: error: accelerators must be"),
        ({"cuts": ("a", 2)}, "cuts must be"),
        ({"model": 5}, "--model: error: wrong value\n  expected: a shipped model's name, a file, or a Model"),
        ({"cluster": None}, "--cluster: error: wrong value"),
    ],
    ids=str,
)
def test_what_python_gives_is_checked_as_what_is_typed(words, told):
    given = {"model": "llama-3-8b", "cluster": "h100", "accelerators": 8, "seq": 4096}
    with pytest.raises(InputError) as caught:
        simcore.predict(**given | words)
    assert told in str(caught.value)


@pytest.mark.parametrize("suffix", ["txt", "et"])
def test_a_written_step_is_there_once(suffix, tmp_path, capsys):
    target = tmp_path / f"step.{suffix}"
    assert main([*STEP, "-o", str(target)]) == 0
    assert len(list(tmp_path.iterdir())) == (1 if suffix == "txt" else 17)
    assert main([*STEP, "-o", str(target)]) == 2
    assert "--force" in capsys.readouterr().err


def test_a_written_step_whose_rows_wait_for_transfers_is_read_without_a_warning(tmp_path):
    assert main([*STEP, "-o", str(tmp_path / "step.txt")]) == 0
    workload = simcore.load_workload(tmp_path / "step.txt")
    assert (workload.parallelism.pp, workload.pipeline_bytes, workload.warnings) == (2, 0, ())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tp", "3"), "do not multiply"),
        (("--dp", "2"), "do not multiply"),
        (("--cluster", "h10"), "did you mean 'h100'"),
        (("--model", "lama"), "no such model"),
        (("--cuts", "1,2"), "not those of the model"),
        (("--global-batch", "15"), "--global-batch"),
        (("--dtype", "fp4"), "no peak rate"),
        (("-o", "step.csv"), ".et, .txt"),
        (("--recompute-layers", "2"), "--recompute full"),
        (("--load", "2"), "a model with experts"),
        (("--virtual-stages", "99"), "some between the ends would have none"),
        (("--model", "gpt-2", "--cp", "4", "--context", "all_to_all"), "--cp: error: 12 is not divisible by 8"),
        (
            ("--schedule", "zb-v", "--pp", "32", "--dp", "1", "--accelerators", "32", "--tp", "1"),
            "some between the ends would have none",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(words, told, capsys):
    assert main([*STEP, *words]) == 2
    assert told in capsys.readouterr().err


def test_a_step_on_the_links_of_a_topology_takes_about_as_long(tmp_path, capsys):
    """Its nodes and what joins them stand for it in the prediction; the links themselves carry the run."""
    cluster, links = tmp_path / "cluster.yaml", tmp_path / "links.yaml"
    cluster.write_text(f"accelerator: H100\ntopology: {links}\n")
    links.write_text("topology: [Switch, Switch]\nnpus_count: [4, 4]\nbandwidth: [450, 50]\nlatency: [500, 1000]\n")
    step = ("predict", "--model", "llama-3-8b", "--cluster", str(cluster), "--seq", "2048", "--global-batch", "32")
    assert main([*step, "--accelerators", "16", "--tp", "4", "--sequence-parallel", "--run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["run_s"] == pytest.approx(document["step_s"], abs=1e-6)
    assert document["network_run_s"] == pytest.approx(document["step_s"], rel=0.1)
    assert main([*step, "--accelerators", "32"]) == 2
    assert "fewer NPUs" in capsys.readouterr().err
