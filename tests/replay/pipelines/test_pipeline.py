"""Laws of another pipeline: a recorded step compiled for other degrees takes what the generated step of these takes."""

import json
from dataclasses import replace
from functools import cache

import pytest

from simcore import api
from simcore.cli import main
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.generate.step import load_step
from simcore.profiles import profiles
from simcore.replay.pipelines.pipeline import Rebuilt, compiled
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.whatif.transfers import Interconnect
from simcore.report.model import Report
from simcore.report.timelines.kineto import kineto_traces
from simcore.workload.kineto_reader import read_kineto
from simcore.workload.model import Phase
from simcore.workload.text import write
from tests.replay.written import machine, step, traces

# A tied table's gradient is not in a text, so that nothing would tell how much of them the last stage has.
PLAIN = {"untie_embeddings_and_output_weights": True, "overlap_grad_reduce": True}
SEQUENCE = {"enable_sequence_parallel": True, "use_distributed_optimizer": True} | PLAIN
OTHERS = [
    {"pp": 4}, {"dp": 8}, {"dp": 2}, {"layers": 16}, {"layers": 4}, {"pp": 4, "micro_batches": 8}, {"pp": 1},
    {"pp": 4, "dp": 2, "layers": 12, "micro_batches": 3},
]  # fmt: skip
LAUNCHES = 0.008  # an optimizer takes its launches for few parameters as for many: up to 24 us of these 2 to 3 ms


def run_ns(workload, topology, schedule="1f1b"):
    """What a workload takes."""
    settings = Settings(schedule=schedule if workload.parallelism.pp > 1 else "")
    timeline = simulate(workload, api.load_topology(topology), None, profiles.get("native"), settings)
    return Report(timeline, "native", "", workload=workload)


def recorded(report):
    """The replay of a written run."""
    found = [read_kineto(content, f"rank{rank}.json") for rank, content in kineto_traces(report).values()]
    return replay_traces(found, Changes())


@cache
def based(more, folder, *, optimizer):
    """The replay of two stages of four replicas, eight layers and four micro-batches."""
    start = load_step(step(folder, layers=8, **dict(more))).workload
    return recorded(run_ns(start if optimizer else without_optimizer(start), machine(folder)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recorded")


def without_optimizer(workload):
    """The step without the rows whose time is no multiple of the parameters."""
    rows = tuple(replace(row, forward=Phase()) if row.name == "optimizer" else row for row in workload.layers)
    return replace(workload, layers=rows)


@pytest.mark.parametrize("more", [PLAIN, SEQUENCE], ids=["plain", "sequence parallel"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"])
def test_compiled_at_its_own_degrees_a_step_takes_what_it_took(schedule, more, tmp_path):
    virtual = {"virtual_pipeline_model_parallel_size": 2} if schedule in ("interleaved", "zb-v") else {}
    run = api.run(step(tmp_path, layers=8, **more, **virtual), machine(tmp_path), schedule=schedule)
    again = Rebuilt(recorded(run), {}, Interconnect(api.load_topology(machine(tmp_path))))
    assert again.plan.schedule == schedule
    assert again.report.timeline.time_ns == again.base.timeline.time_ns == run.timeline.time_ns
    assert again.base_error == 0


@pytest.mark.parametrize(("stages", "layers", "micro_batches"), [(2, 5, 4), (3, 8, 3), (4, 11, 5)])
def test_where_the_model_turns_round_is_seen_also_in_parts_that_differ(stages, layers, micro_batches, tmp_path):
    """The last stage of a V holds two parts that follow each other."""
    virtual = {"virtual_pipeline_model_parallel_size": 2}
    given = step(tmp_path, pp=stages, dp=2, layers=layers, micro_batches=micro_batches, **PLAIN, **virtual)
    run = api.run(given, machine(tmp_path, pp=stages, dp=2), schedule="zb-v")
    again = Rebuilt(recorded(run), {}, Interconnect(api.load_topology(machine(tmp_path, pp=stages, dp=2))))
    assert again.plan.schedule == "zb-v"
    assert again.report.timeline.time_ns == run.timeline.time_ns


@pytest.mark.parametrize("more", [PLAIN, SEQUENCE], ids=["plain", "sequence parallel"])
@pytest.mark.parametrize("changes", OTHERS, ids=str)
def test_another_pipeline_takes_what_the_generated_step_takes(changes, more, tmp_path, folder):
    target = {"layers": 8, "pp": 2, "dp": 4, "micro_batches": 4} | changes
    there = machine(tmp_path, pp=target["pp"], dp=target["dp"])
    wanted = without_optimizer(load_step(step(tmp_path, **target, **more)).workload)
    base = based(tuple(more.items()), folder, optimizer=False)
    predicted = Rebuilt(base, changes, Interconnect(api.load_topology(there)))
    # What ends a step is shared out by the gradients of each layer, and cut to whole bytes on every rank.
    assert predicted.report.timeline.time_ns == pytest.approx(run_ns(wanted, there).timeline.time_ns, abs=200)


@pytest.mark.parametrize(
    "changes", [{"pp": 4, "layers": 12}, {"layers": 4, "micro_batches": 8}, {"dp": 2, "schedule": "gpipe"}], ids=str
)
def test_the_way_back_leads_to_the_step_it_came_from(changes, tmp_path, folder):
    """Written as a text and run again, layers that were repeated or left out are layers of their own."""
    base, text = based(tuple(PLAIN.items()), folder, optimizer=False), tmp_path / "w.txt"
    there, here = (
        Interconnect(api.load_topology(machine(tmp_path, **sizes)))
        for sizes in ({"pp": changes.get("pp", 2), "dp": changes.get("dp", 4)}, {})
    )
    forth = Rebuilt(base, changes, there)
    text.write_text(write(compiled(forth.recorded, forth.plan)))
    run = api.run(str(text), there.topology, schedule=forth.plan.schedule)
    start = {"pp": 2, "dp": 4, "layers": 8, "micro_batches": 4, "schedule": "1f1b"}
    back = Rebuilt(recorded(run), start, here)
    assert run.timeline.time_ns == forth.report.timeline.time_ns
    assert back.report.timeline.time_ns == pytest.approx(Rebuilt(base, {}, here).report.timeline.time_ns, abs=200)


@pytest.mark.parametrize("changes", OTHERS[:6], ids=str)
def test_with_an_optimizer_its_launches_are_what_is_missed(changes, tmp_path, folder):
    target = {"layers": 8, "pp": 2, "dp": 4, "micro_batches": 4} | changes
    there = machine(tmp_path, pp=target["pp"], dp=target["dp"])
    wanted = api.run(step(tmp_path, **target, **SEQUENCE), there)
    base = based(tuple(SEQUENCE.items()), folder, optimizer=True)
    predicted = Rebuilt(base, changes, Interconnect(api.load_topology(there))).report
    assert predicted.timeline.time_ns == pytest.approx(wanted.timeline.time_ns, rel=LAUNCHES)


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "dualpipe"])
def test_another_schedule_takes_what_the_run_under_it_takes(schedule, tmp_path):
    given = step(tmp_path, layers=8, **SEQUENCE), machine(tmp_path)
    predicted = Rebuilt(recorded(api.run(*given)), {"schedule": schedule}, Interconnect(api.load_topology(given[1])))
    assert predicted.report.timeline.time_ns == api.run(*given, schedule=schedule).timeline.time_ns


def test_the_command_says_what_it_takes_and_writes_the_workload_that_takes_as_long(tmp_path, capsys):
    file, there, text = tmp_path / "r.tar.gz", machine(tmp_path, pp=4), tmp_path / "w.txt"
    assert main(["run", "--workload", step(tmp_path), "--topology", machine(tmp_path), "--timeline", str(file)]) == 0
    capsys.readouterr()
    words = ["replay", str(file), "--set", "pp=4", "schedule=zb-h1", "--topology", there]
    assert main([*words, "--recorded-topology", machine(tmp_path), "--export-text", str(text)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("With tp 2, pp 4, dp 4, 4 layers, 4 micro-batches, zb-h1 a step takes")
    assert "the recorded pipeline, played in the same way" in said
    assert "(+0.0%)" in said
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["pipeline"]
    assert document["target"]["pp"] == len(document["stages"]) == 4
    assert api.run(str(text), there, schedule="zb-h1").timeline.time_ns == document["predicted_ns"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["pp=4"], "--topology T"),
        (["pp=8", "--topology", "there"], "4 layers are fewer than the 8 parts"),
        (["pp=4", "--topology", "here"], "32 NPUs: tp 2 x dp 4 x pp 4"),
        (["pp=4", "hidden=64", "--topology", "there"], "pp, dp, layers, micro_batches, vpp and schedule"),
        (["schedule=1f2b", "--topology", "here"], "no such schedule"),
        (
            ["pp=4", "--topology", "there", "--straggler", "0=2"],
            "--straggler: error: does not go with another pipeline",
        ),
    ],
)
def test_what_cannot_be_compiled_is_said(words, why, tmp_path, capsys):
    file = tmp_path / "r.tar.gz"
    main(["run", "--workload", step(tmp_path), "--topology", machine(tmp_path), "--timeline", str(file)])
    capsys.readouterr()
    places = {"here": machine(tmp_path), "there": machine(tmp_path, pp=4)}
    assert main(["replay", str(file), "--set", *(places.get(word, word) for word in words)]) == 2
    assert why in capsys.readouterr().err


def test_a_trace_that_lacks_a_stage_is_refused(tmp_path):
    found = traces(api.run(step(tmp_path), machine(tmp_path)))
    with pytest.raises(InputError, match="a rank of each of the 2 stages"):
        Rebuilt(replay_traces(found[:1], Changes()), {}, Interconnect(api.load_topology(machine(tmp_path))))


def test_forward_passes_alone_have_no_gradients_to_know_of(tmp_path):
    """Replicas that never meet may be as many as one likes."""

    def ahead(workload):
        rows = tuple(replace(row, input_grad=Phase(), weight_grad=Phase()) for row in workload.layers)
        return replace(workload, layers=rows)

    start = {"layers": 8, "pp": 2, "dp": 4, "micro_batches": 4}
    base, wanted = (
        ahead(without_optimizer(load_step(step(tmp_path, **sizes, **PLAIN)).workload))
        for sizes in (start, start | {"pp": 4})
    )
    there = machine(tmp_path, pp=4)
    predicted = Rebuilt(
        recorded(run_ns(base, machine(tmp_path))), {"pp": 4, "dp": 4}, Interconnect(api.load_topology(there))
    )
    assert predicted.report.timeline.time_ns == run_ns(wanted, there).timeline.time_ns
