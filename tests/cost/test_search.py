import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.cli import main
from simcore.compute.operations import Transformer
from simcore.cost.memory import memory_bytes
from simcore.cost.predict import Job, lower_bound_s, predict
from simcore.cost.search import Study, candidates, search
from simcore.cost.systems import CLUSTERS
from simcore.workload.loops import schedules

GPT = Transformer(8, 2048, 16, 8192, 32000, 1024)
SCHEDULES = [name for name in schedules.names() if name != "interleaved"]


@settings(max_examples=10, deadline=None)
@given(
    gpus=st.sampled_from([8, 16]),
    batch=st.sampled_from([16, 32]),
    top=st.integers(1, 4),
    share=st.sampled_from([1.0, 0.3]),
)
def test_pruning_finds_what_trying_everything_finds(gpus, batch, top, share):
    limit = int(share * 20e9)
    study = Study(Job(GPT, batch), gpus, CLUSTERS["selene"], schedule=SCHEDULES, memory_bytes=limit)
    found = search(study, top)
    jobs = [job for job in dict.fromkeys(candidates(study)) if memory_bytes(job) <= limit]
    times = sorted(predict(job, study.cluster).step_s for job in jobs)
    assert [one.step_s for one in found.best] == pytest.approx(times[:top])
    assert found.simulated <= found.fitting == len(jobs)


@pytest.mark.parametrize("name", schedules.names())
def test_no_schedule_beats_its_bound(name):
    job = replace(
        Job(GPT, 64, pp=4, dp=2), schedule=name, chunks=2 if name in {"interleaved", "zb-v", "dualpipe"} else 1
    )
    assert predict(job, CLUSTERS["selene"]).step_s >= lower_bound_s(job, CLUSTERS["selene"]) * (1 - 1e-12)


def test_the_front_trades_time_for_memory():
    front = search(Study(Job(GPT, 32), 16, CLUSTERS["selene"]), 5).front
    assert [one.step_s for one in front] == sorted(one.step_s for one in front)
    assert [one.memory_bytes for one in front] == sorted((one.memory_bytes for one in front), reverse=True)


STUDY = """
model: {layers: 8, hidden: 2048, heads: 16, ffn: 8192, vocab: 32000, seq: 1024}
accelerators: 16
global_batch: 32
system: {accelerator: H100, fabric: hgx-h100}
micro_batch: [1, 2]
"""


def test_a_study_file_is_searched_and_explained(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    assert main(["search", str(path), "--json", "--top", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "simcore.search/1"
    assert len(document["best"]) == 2
    assert document["why"]
    assert main(["search", str(path)]) == 0
    assert "fastest at each memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("hidden: 2048, ", ""), "'hidden' is missing"),
        (("accelerators", "acelerators"), "did you mean 'accelerators'"),
        (("H100, ", "H10O, "), "no such accelerator"),
        (("[1, 2]", "[1, two]"), ":6:18"),
        (("seq: 1024}", "seq: 1024}\nmemory: 1 MB"), "nothing fits"),
        (("global_batch: 32", "global_batch: 32\nrecompute: [some]"), "selective"),
    ],
)
def test_a_wrong_study_says_where(change, message, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace(*change))
    assert main(["search", str(path)]) == 2
    assert message in capsys.readouterr().err
