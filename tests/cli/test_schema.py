"""What commands print with --json is what `simcore schema` says it is."""

import json
import shlex
from pathlib import Path

import msgspec
import pytest

from simcore.cli import main
from simcore.cli.documents import DOCUMENTS
from tests.profiles_of_steps import recorded

STUDY = "run: {workload: micro_all_reduce}\ngrid: {topology: [ring8]}\n"
SEARCH = "{model: gpt-7.5b, seq: 2048, accelerators: 8, global_batch: 8, cluster: selene, tp: [8], pp: [1]}"
STEP = [("work", 100, 50), ("launch", "gemm", 400), ("synchronise",)]
JOBS = "{topology: ring8, jobs: [{name: one, workload: micro_all_reduce, npus: 4}]}"
CALLS = {
    "run --workload micro_all_reduce --topology ring8": "run",
    "run --workload gpt_7b --gpus 64 --profile simai-1.6 --nvlink-bw 300 --nic-bw 25": "run",
    "run jobs.yaml": "jobs",
    "list npus": "list",
    "topology show wafer_8x7": "topology",
    "topology cost h100_fat_tree": "network-cost",
    "generate collective --kind all_reduce --bytes 1MiB -o one.et": "written",
    "trace info one.et": "trace",
    "generate synthetic --from one.et -o like": "synthesis",
    "trace summary dlrm": "workload",
    "data list": "data",
    "cost transformer --num_layers 96 --d_model 12288 --dataset_size 3e11": "transformer",
    "cost simple --chip A100_40GB --n_layers 32 --d_model 4096": "simple",
    "cost simple --variant head --chip_type H100 --n_layers 32 --d_model 4096": "simple",
    "cost scaling --training-flop 1e25 --max-devices 1000": "scaling",
    "cost failures --nodes 8 --mtbf '6334 h' --days 1 --runs 2": "failures",
    "predict --model gpt-7.5b --cluster selene --accelerators 8 --tp 8 --seq 2048 --global-batch 8": "predict",
    "validate mlsys23_table5": "validate",
    "search search.yaml --explain": "search",
    "sweep start study.yaml -o SWEEP --jobs 1": "sweep",
    "sweep report SWEEP": "sweep",
    "run --workload micro_all_reduce --topology ring8 -o A": "run",
    "compare A A": "compare",
    "run jobs.yaml -o B": "jobs",
    "compare B B": "compare-jobs",
    "compare dlrm dlrm": "compare-workloads",
    "generate megatron --model llama-3-8b --world_size 8 --tensor_model_parallel_size 8 --global_batch 8 "
    "--seq_length 2048 --gpu_type H100": "generate",
    "replay trace.json": "replay",
    "compare trace.json trace.json": "compare-traces",
    "run --workload nowhere --topology ring8": "error",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("documents")
    for name, text in (("study.yaml", STUDY), ("search.yaml", SEARCH), ("jobs.yaml", JOBS)):
        (made / name).write_text(text)
    (made / "trace.json").write_bytes(recorded(STEP).content())
    return made


@pytest.fixture(scope="module")
def said(folder):
    """What every call prints, in one folder: later calls read what earlier ones wrote."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for call in CALLS:
            out = Path("printed")
            with out.open("w") as stream:
                patch.setattr("sys.stdout", stream)
                main([*shlex.split(call), "--json", "-q"])
                patch.undo()
                patch.chdir(folder)
            made[call] = out.read_bytes()
    return made


@pytest.mark.parametrize("call", CALLS)
def test_a_document_is_of_its_published_type(call, said):
    msgspec.json.decode(said[call], type=DOCUMENTS[CALLS[call]])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_type_is_published(name, capsys):
    assert name in CALLS.values()
    assert main(["schema", name, "--json"]) == 0
    assert {"$ref", "type"} & json.loads(capsys.readouterr().out).keys()
