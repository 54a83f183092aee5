"""Whatever is given as the value of any option of any verb: an answer, or an error that names it; never a traceback."""

import random

import click
import pytest

from simcore.cli import cli
from tests.laws.commands import check
from tests.laws.inputs import GENERATE, inputs
from tests.laws.mutations import VALUES

EXAMPLES = 2
MORE = ("0-3,7=1.5", "tp=0:2", "1ms:2ms", "compute=normal:0.1", "link 0-1 down @ 1ms-", "a=b", "1,2", "x.png", "4")
LENGTHY = {
    "iterations",
    "runs",
    "num_runs",
    "jobs",
    "npus",
    "layers",
    "samples",
    "length",
    "prefill_len",
    "decode_len",
    "bsz",
    "timeline",
    "links",
    "plot",
}
SMALL = "--num_layers 2 --hidden_size 64 --num_attention_heads 4 --vocab_size 100 --world_size 2 --global_batch 2"
WAFER = "--bsz 8 --json --model_config {0}/model.json --system_config {0}/phases.json"
TABLE = "dtype,n,k,m,time_us\nbf16,4096,4096,4096,215.0\nbf16,4096,4096,8192,410.0\n"
COMMANDS = {
    "run": "run --workload {0}/w.txt --topology {0}/net.yml -q",
    "run traces": "run --workload {0}/t --topology {0}/net.yml -q",
    "run simai": "run --profile simai-1.6 --gpus 4 --gpu-type A100 --nic-type cx7 --workload {0}/closed.txt -q",
    "topology show": "topology show {0}/net.yml",
    "generate collective": "generate collective --kind all_reduce --bytes 4096 --npus 4 -o {0}/made/c --force",
    "generate schedule": "generate schedule --kind all_reduce --topology {0}/net.yml -o {0}/made/s.yaml --force",
    "generate synthetic": "generate synthetic --from {0}/t -o {0}/made/s --force",
    "generate megatron": GENERATE.format("{0}/times.txt"),
    "generate deepspeed": f"generate deepspeed --seq_length 64 {SMALL}",
    "generate deepseek": "generate deepseek --num_layers 2 --world_size 2 --global_batch 2 --seq_length 64",
    "generate inference": "generate inference llama-3-8b --world_size 2",
    "generate wse nodes": f"generate wse nodes {WAFER}",
    "generate wse traces": f"generate wse traces {WAFER}",
    "convert": "convert {0}/w.txt {0}/made/t --npus 2 --force",
    "trace info": "trace info {0}/t.0.et",
    "trace obfuscate": "trace obfuscate {0}/t.0.et {0}/made/o --force",
    "trace rescale": "trace rescale {0}/t {0}/made/r --npus 8 --force",
    "trace summary": "trace summary {0}/w.txt",
    "trace timeline": "trace timeline {0}/log.txt -o {0}/made/l.json --force",
    "replay": "replay {0}/profile.json",
    "cost simple": "cost simple --n_layers 4 --d_model 512 --chip_type H100",
    "cost transformer": "cost transformer --num_layers 4 --d_model 512 --dataset_size 1e9 --skip_efficiency_check",
    "predict": "predict --model llama-3-8b --cluster h100 --accelerators 8 --seq 1024 --tp 2",
    "data add": "data add {0}/own_h100_gemm.csv",
    "data predict": "data predict {0}/own_h100_gemm.csv -o {0}/made/predicted.npz",
    "search": "search {0}/study.yaml",
    "sweep": "sweep {0}/sweep.yaml -o {0}/made/swept -q --jobs 1",
    "compare": "compare {0}/made {0}/made",
    "validate": "validate --data {0}/measured.json",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("options")
    inputs(made)
    (made / "own_h100_gemm.csv").write_text(TABLE)
    return made


def command(words):
    """The click command that some words call."""
    found = cli
    for word in words:
        if not isinstance(found, click.Group):
            break
        found = found.get_command(click.Context(found), word)
    return found


def options(words):
    """Its options that take a value."""
    for one in command(words).params:
        if isinstance(one, click.Option) and not one.is_flag and one.name not in LENGTHY:
            yield max(one.opts, key=len), one


@pytest.mark.parametrize("name", COMMANDS)
def test_no_value_of_an_option_ends_in_a_traceback(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SIMCORE_TABLES", str(folder / "tables"))
    words, chance = COMMANDS[name].format(folder).split(), random.Random(name)  # noqa: S311 - repeatable
    for option, known in options(name.split()):
        own = [str(choice) for choice in getattr(known.type, "choices", ())]
        for value in chance.sample((*VALUES, *MORE, *own), EXAMPLES):
            if "\0" not in value:
                check([*words, f"{option}={value}"])


def test_every_verb_is_tried():
    assert {name.split()[0] for name in COMMANDS} | {"list", "schema"} == set(cli.list_commands(click.Context(cli)))
