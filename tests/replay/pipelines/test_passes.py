"""A pipeline whose program names no ranges is the one that names them: transfers and repetition tell its layers."""

import json

import pytest

from simcore import api
from simcore.errors import InputError
from simcore.replay.pipelines.passes import Line, stages_of
from simcore.replay.pipelines.pipeline import Rebuilt
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.whatif.transfers import Interconnect
from simcore.report.timelines.kineto import kineto_traces
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder
from tests.replay.written import machine, step

PLAIN = {"untie_embeddings_and_output_weights": True, "overlap_grad_reduce": True}
SEQUENCE = {"enable_sequence_parallel": True, "use_distributed_optimizer": True} | PLAIN


def replayed(run, named, other_thread=False):
    """The replay of a written run, with the program's ranges or without; backward kernels on another thread."""
    found = []
    for rank, content in kineto_traces(run).values():
        document = json.loads(content)
        ranges = [event for event in document["traceEvents"] if event.get("cat") == "user_annotation"]
        backwards = [one for one in ranges if "backward micro-batch" in one["name"]]
        lost = [] if named else [one for one in ranges if "ProfilerStep" not in one["name"]]
        document["traceEvents"] = [event for event in document["traceEvents"] if event not in lost]
        for event in document["traceEvents"] if other_thread else ():
            if any(one["ts"] <= event.get("ts", -1) < one["ts"] + one["dur"] for one in backwards):
                event["tid"] = 99 if event.get("cat") == "cuda_runtime" else event["tid"]
        found.append(read_kineto(json.dumps(document).encode(), f"rank{rank}.json"))
    return replay_traces(found, Changes())


def written(folder, schedule="1f1b", pp=2, **more):
    return api.run(step(folder, layers=8, pp=pp, **more), machine(folder, pp=pp), schedule=schedule)


@pytest.mark.parametrize("more", [PLAIN, SEQUENCE], ids=["plain", "sequence parallel"])
@pytest.mark.parametrize(
    ("schedule", "pp", "threads"), [("gpipe", 2, 1), ("1f1b", 2, 1), ("1f1b", 4, 1), ("1f1b", 2, 2)]
)
def test_without_ranges_a_step_takes_what_it_took(schedule, pp, threads, more, tmp_path):
    run = written(tmp_path, schedule, pp, **more)
    found = Rebuilt(
        replayed(run, named=False, other_thread=threads > 1),
        {},
        Interconnect(api.load_topology(machine(tmp_path, pp=pp))),
    )
    assert (found.plan.pp, found.plan.layers, found.plan.micro_batches, found.plan.schedule) == (pp, 8, 4, schedule)
    assert found.report.timeline.time_ns == run.timeline.time_ns


@pytest.mark.parametrize("changes", [{"pp": 4}, {"dp": 8}, {"layers": 16}, {"micro_batches": 8}], ids=str)
def test_another_pipeline_is_predicted_as_from_named_ranges(changes, tmp_path):
    run, sizes = written(tmp_path, **SEQUENCE), {"pp": 2, "dp": 4} | changes
    there = Interconnect(api.load_topology(machine(tmp_path, pp=sizes["pp"], dp=sizes["dp"])))
    times = [Rebuilt(replayed(run, named), changes, there).report.timeline.time_ns for named in (False, True)]
    # The first stage's last gradients end the step here; as a range of the embedding they stay with that.
    assert times[0] == pytest.approx(times[1], rel=0.004)


def test_stages_follow_the_transfers(tmp_path):
    replay = replayed(written(tmp_path, pp=4, **PLAIN), named=False)
    lines = [Line(rank.view, 0) for rank in replay.ranks]
    order = sorted(zip(stages_of(lines), (line.rank for line in lines), strict=True))
    assert [stage for stage, _ in order] == [0, 1, 2, 3]
    assert [rank for _, rank in order] == sorted(rank for _, rank in order)
    assert stages_of(lines[1:]) == [-1, -1, -1]


@pytest.mark.parametrize("schedule", ["interleaved", "zb-h1", "dualpipe"])
def test_passes_that_are_not_told_apart_are_refused(schedule, tmp_path):
    virtual = {"virtual_pipeline_model_parallel_size": 2} if schedule == "interleaved" else {}
    replay = replayed(written(tmp_path, schedule, **PLAIN, **virtual), named=False)
    with pytest.raises(InputError, match="where layers and micro-batches begin"):
        Rebuilt(replay, {}, Interconnect(api.load_topology(machine(tmp_path))))


def test_one_device_without_layers_lists_its_ranges(tmp_path):
    recorder = Recorder()
    recorder.annotate("block forward", [("launch", "gemm", 10)])
    replay = replay_traces([read_kineto(recorder.content(), "one.json")], Changes())
    with pytest.raises(InputError, match="ranges block; no transfer says which stage rank 0 is"):
        Rebuilt(replay, {"pp": 2}, Interconnect(api.load_topology(machine(tmp_path))))
