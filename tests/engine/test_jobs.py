"""Several jobs on one network: jobs that share nothing change nothing, jobs that share a link take the max-min time."""

import json
import pickle
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.engine.jobs import JobRuns
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.files import write_bytes
from simcore.library import resolve
from simcore.network.topology.model import Dimension, Graph, Topology
from simcore.network.topology.ports import Ports
from simcore.profiles import profiles
from simcore.report.archive import events_npz, read_archive
from simcore.report.text import dominating, headline
from simcore.timeline.events import EventKind
from simcore.units import format_ns
from simcore.workload.jobs import PLACES, Job, merged, placed, read_jobs

NATIVE = profiles.get("native")
RATE, LATENCY_NS = 1e9, 100.0


def dumbbell(pairs):
    """Senders 0, 2, 4, .. and receivers 1, 3, 5, .. on either side of one link."""
    left, right = 2 * pairs, 2 * pairs + 1
    ends = [(2 * pair, left) for pair in range(pairs)] + [(left, right)] + [(right, 2 * p + 1) for p in range(pairs)]
    count = len(ends)
    names = (*map(str, range(2 * pairs)), "left", "right")
    columns = (RATE,) * count, (LATENCY_NS,) * count
    graph = Graph(2 * pairs, names, *map(tuple, zip(*ends, strict=True)), *columns)
    return Topology((Dimension("Graph", 2 * pairs, RATE, LATENCY_NS),), graph=graph)


def message(size_bytes, times=1):
    """NPU 0 of the job sends to NPU 1, so often one after the other."""
    graph, before = simcore.graph(2), []
    for tag in range(times):
        before = [graph.send(0, 1, size_bytes, tag=tag, depends=before)]
        graph.recv(0, 1, size_bytes, tag=tag)
    return graph.graphs()


def ring(npus, size_bytes, compute_ns=0):
    graph = simcore.graph(npus)
    graph.collective("all_reduce", size_bytes, depends=[graph.compute(compute_ns)])
    return graph.graphs()


def outcomes(jobs, places, topology, network="fair"):
    runs = JobRuns(jobs, places, topology, None, NATIVE, Settings(network=network, fold=False))
    return runs.outcomes


@given(st.integers(2, 4), st.integers(1, 10**6))
@settings(max_examples=15, deadline=None)
def test_equal_jobs_on_one_link_take_the_max_min_time(pairs, size):
    jobs = [Job(f"j{pair}", message(1000 * size), 2) for pair in range(pairs)]
    found = outcomes(jobs, [(2 * pair, 2 * pair + 1) for pair in range(pairs)], dumbbell(pairs))
    assert {outcome.alone_ns for outcome in found} == {1000 * size + 300}
    assert {outcome.together_ns for outcome in found} == {pairs * 1000 * size + 300}
    assert all(set(outcome.lost_to_ns.values()) == {1000 * size} for outcome in found)


@given(st.data())
@settings(max_examples=12, deadline=None)
def test_jobs_that_share_no_link_do_not_change_each_other(data):
    sizes = data.draw(st.lists(st.integers(1, 10**6), min_size=2, max_size=3))
    jobs = [Job(f"j{n}", ring(4, size), 4, start_ns=data.draw(st.integers(0, 10**5))) for n, size in enumerate(sizes)]
    topology = Topology((Dimension("Switch", 4, RATE, LATENCY_NS), Dimension("Switch", 3, RATE, LATENCY_NS)))
    network = data.draw(st.sampled_from(["fair", "congested"]))
    for outcome in outcomes(jobs, placed(jobs, [4, 3], 0), topology, network):
        assert outcome.together_ns == outcome.alone_ns
        assert not any(outcome.lost_to_ns.values())


def test_a_seed_that_is_given_goes_before_that_of_the_file(tmp_path):
    file, jobs = tmp_path / "jobs.yaml", "topology: ring64\njobs: [{workload: dlrm, npus: 4, place: random}]\n"

    def placed_with(text, **given):
        file.write_text(text)
        return simcore.run_jobs(file, **given).to_dict()["jobs"][0]["npus"]

    assert placed_with(f"seed: 1\n{jobs}", seed=3) == placed_with(f"seed: 3\n{jobs}") != placed_with(jobs)


def test_a_job_that_starts_when_the_other_is_done_loses_nothing():
    jobs = [Job("a", message(10**6), 2), Job("b", message(10**6), 2, start_ns=2 * 10**6)]
    assert {outcome.slowdown for outcome in outcomes(jobs, [(0, 1), (2, 3)], dumbbell(2))} == {1.0}


def test_a_job_starts_when_it_starts_however_slow_its_npus_are():
    job = Job("a", message(10**6), 2, start_ns=10**5)
    slow = Settings(network="fair", fold=False, compute_scale=5.0, stragglers={0: 3.0})
    assert JobRuns([job], [(0, 1)], dumbbell(1), None, NATIVE, slow).outcomes[0].together_ns == 10**6 + 300


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("workload", ["dlrm", "mlp_model_parallel", "micro_all_reduce"])
@given(start_ns=st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_a_job_computes_as_long_as_a_run_of_it_and_is_idle_until_it_starts(
    tmp_path_factory, workload, repeats, start_ns
):
    """Neither the start nor the delay behind a collective is computation."""
    file = tmp_path_factory.mktemp("jobs") / "jobs.yaml"
    jobs = f"[{{workload: {workload}, npus: 8, start: {start_ns}, repeats: {repeats}}}]"
    file.write_text(f"topology: ring8\nnetwork: congested\njobs: {jobs}\n")
    job = simcore.run_jobs(str(file)).report.to_dict()
    alone = simcore.run(workload, "ring8", iterations=repeats).to_dict()
    shares, parts = job["breakdown"], alone["breakdown"]
    assert shares["compute_ns"] + shares["overlapped_ns"] == job["compute_ns"] == alone["compute_ns"]
    assert shares["idle_ns"] - start_ns in range(parts["exposed_comm_ns"] + parts["idle_ns"] + 1)
    assert job["ranks"][0]["idle_ns"] == shares["idle_ns"]


def test_a_wider_link_gives_back_what_sharing_took():
    jobs = [Job("a", message(10**6), 2), Job("b", message(10**6), 2)]
    runs = JobRuns(jobs, [(0, 1), (2, 3)], dumbbell(2), None, NATIVE, Settings(network="fair", fold=False))
    (link,) = runs.shared_links
    assert (link.src, link.dst) == ("left", "right")
    assert link.gain_ns == {"a": 10**6, "b": 10**6}
    assert runs.fairness == pytest.approx(1.0)


def test_a_generators_specification_is_a_job(tmp_path, capsys):
    """It takes as long as a run of it, and what is in the way of reading it is said."""
    options = (
        "{world_size: 8, global_batch: 8, num_layers: 2, hidden_size: 512, num_attention_heads: 8, seq_length: 128}"
    )
    (tmp_path / "spec.yaml").write_text(f"generator: megatron\noptions: {options}\n")
    (tmp_path / "jobs.yaml").write_text("topology: ring8\njobs: [{workload: spec.yaml, npus: 8}]\n")
    assert main(["run", str(tmp_path / "jobs.yaml"), "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["step_ns"] == simcore.run(str(tmp_path / "spec.yaml"), "ring8", network="fair").to_dict()["time_ns"]
    (tmp_path / "more.yaml").write_text("topology: ring8\njobs: [{workload: jobs.yaml, npus: 8}]\n")
    assert main(["run", str(tmp_path / "more.yaml")]) == 2
    assert "this is a file of jobs" in capsys.readouterr().err


@pytest.mark.parametrize("flow_control", ["credits", "pfc", "drop"])
def test_a_wider_link_gives_back_what_sharing_took_from_queues_that_end_somewhere(flow_control):
    """As long as the last segment of either takes, more or less; that was a refusal of faults nobody had asked for."""
    jobs, segment = [Job("a", message(10**6), 2), Job("b", message(10**6), 2)], 1000
    ports = Ports(2 * 10**6, flow_control, 10**6, 10**6 - segment, segment_bytes=segment)
    topology = dumbbell(2)
    topology = replace(topology, dims=(replace(topology.dims[0], ports=ports),))
    runs = JobRuns(jobs, [(0, 1), (2, 3)], topology, None, NATIVE, Settings(network="queued", fold=False))
    (link,) = runs.shared_links
    assert (link.src, link.dst) == ("left", "right")
    assert all(gain_ns == pytest.approx(10**6, abs=2 * segment) for gain_ns in link.gain_ns.values())


def test_rules_of_another_program_widen_no_link_and_whole_machine_barriers_play_no_part_of_it(tmp_path, capsys):
    jobs = [
        f"{{name: {name}, workload: micro_all_reduce, place: {place}}}"
        for name, place in (("a", [0, 4]), ("b", [1, 5]))
    ]
    (tmp_path / "jobs.yaml").write_text(f"topology: ring8\njobs: [{', '.join(jobs)}]\n")
    words = ["run", str(tmp_path / "jobs.yaml"), "--json", "--profile"]
    assert main([*words, "astra-sim-2", "--network", "congested"]) == 0
    assert json.loads(capsys.readouterr().out)["shared_links"] == []
    assert main([*words, "astra-sim-1.0"]) == 2
    assert "communicators of all NPUs" in capsys.readouterr().err


@given(st.sampled_from(sorted(PLACES.names())), st.lists(st.integers(1, 8), min_size=1, max_size=3), st.integers(0, 9))
def test_every_placement_gives_every_job_its_own_npus(rule, sizes, seed):
    dims = [4, 3, 2]
    jobs = [Job(str(number), message(1), size, place=rule) for number, size in enumerate(sizes)]
    places = placed(jobs, dims, seed)
    assert [len(place) for place in places] == sizes
    taken = [npu for place in places for npu in place]
    assert len(set(taken)) == len(taken)
    assert set(taken) <= set(range(prod(dims)))
    assert placed(jobs, dims, seed) == places


def test_placements_are_what_they_are_called():
    def of(rule, npus):
        return placed([Job("a", message(1), npus, place=rule)], [4, 4], 0)[0]

    assert of("packed", 4) == (0, 1, 2, 3)
    assert of("rail", 5) == (0, 4, 8, 12, 1)
    assert of("spread", 4) == (0, 4, 8, 12)


def test_the_best_placement_keeps_jobs_off_each_others_links():
    jobs = [Job("a", ring(4, 10**6), 4), Job("b", ring(4, 10**6), 4)]
    topology = Topology((Dimension("Ring", 8, RATE, LATENCY_NS),))
    runs = JobRuns(jobs, [(0, 1, 2, 3), (4, 5, 6, 7)], topology, None, NATIVE, Settings(network="fair", fold=False))
    trials = runs.trials(3, 0)
    assert trials[0].rule == "packed"
    assert trials[0].worst == 1.0
    assert trials[-1].worst > 1.5


@given(st.data())
@settings(max_examples=6, deadline=None)
def test_a_search_never_ends_with_a_worse_placement_than_the_given_one(data):
    npus = st.permutations(range(8))
    jobs = [Job("a", ring(3, 10**6), 3, place=tuple(data.draw(npus)[:3])), Job("b", ring(4, 10**5), 4, place="spread")]
    topology = Topology((Dimension("Ring", 8, RATE, LATENCY_NS),))
    runs = JobRuns(jobs, placed(jobs, [8], 0), topology, None, NATIVE, Settings(network="fair", fold=False))
    least = runs.trials(data.draw(st.integers(0, 1)), 0)
    assert runs.places in [trial.runs.places for trial in least]
    assert least[0].worst == min(trial.worst for trial in least)


@pytest.mark.parametrize("network", ["fair", "congested"])
@pytest.mark.parametrize(("topology", "npus"), [("ring8", 8), ("circuits.yaml", 16)])
def test_a_job_that_has_the_machine_takes_as_long_as_a_run_of_it(tmp_path, capsys, network, topology, npus):
    """Over circuits, too, where each collective takes what is usual on those that it has."""
    (tmp_path / "circuits.yaml").write_text(
        "topology: [Ring]\nnpus_count: [16]\nbandwidth: [37.5]\nlatency: [500]\n"
        "circuits: {delay: 10 us, all_reduce: optical_16_full}\n"
    )
    place = tmp_path / topology if topology.endswith("yaml") else topology
    (tmp_path / "jobs.yaml").write_text(f"topology: {place}\njobs: [{{workload: dlrm, npus: {npus}}}]\n")
    assert main(["run", str(tmp_path / "jobs.yaml"), "--json", "--network", network]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["together_ns"] == simcore.run("dlrm", place, network=network).to_dict()["time_ns"]


@given(st.sampled_from([0.3, 0.5, 0.7, 1.3]), st.sampled_from([1.1, 1.5, 3.0]))
@settings(max_examples=6, deadline=None)
def test_a_slow_npu_of_a_scaled_job_takes_as_long_as_that_of_a_run(tmp_path_factory, scale, factor):
    """Both are rounded, one after the other."""
    jobs = tmp_path_factory.getbasetemp() / "scaled.yaml"
    jobs.write_text("topology: ring8\njobs: [{workload: dlrm, npus: 8}]\n")
    slow = {"network": "congested", "compute_scale": scale, "straggler": f"2={factor}"}
    assert simcore.run_jobs(jobs, **slow).runs.together.time_ns == simcore.run("dlrm", "ring8", **slow).time_ns


@pytest.mark.parametrize("policy", ["LIFO", "FIFO", "EXPLICIT"])
@pytest.mark.parametrize("said", ["typed", "file"])
def test_the_policy_of_a_system_file_counts_for_jobs_as_for_a_run(tmp_path, capsys, policy, said):
    """Of rows it gives the priorities, which traces have of their own: they count where it says so."""
    traces = str(tmp_path / "traces")
    assert main(["convert", str(resolve("dlrm", "workloads")), traces, "--npus", "8", "--native"]) == 0
    (tmp_path / "system.json").write_text(json.dumps({"scheduling-policy": policy, "active-chunks-per-dimension": 1}))
    typed = str(tmp_path / "system.json") if said == "typed" else None
    for workload in [traces] + ["dlrm"] * (policy != "EXPLICIT"):
        file = {"topology": "ring8", "jobs": [{"workload": workload, "npus": 8}]}
        file |= {} if typed else {"system": "system.json"}
        (tmp_path / "jobs.yaml").write_text(json.dumps(file))
        found = simcore.run_jobs(tmp_path / "jobs.yaml", system=typed, network="congested")
        alone = simcore.run(workload, "ring8", tmp_path / "system.json", network="congested")
        assert found.runs.together.time_ns == alone.time_ns, workload


@given(st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_a_trace_that_is_repeated_takes_as_often_as_long(tmp_path_factory, repeats, start):
    folder = tmp_path_factory.mktemp("jobs")
    graph = simcore.graph(2)
    graph.collective("all_reduce", 10**6, depends=[graph.compute(5000)])
    graph.save(folder / "w")
    entry = f"{{workload: {folder / 'w'}, npus: 2, repeats: {repeats}, start: {start}, place: [3, 1]}}"
    (folder / "jobs.yaml").write_text(f"seed: 20241125\njobs: [{entry}]\n")
    once, (job,) = Job("a", graph.graphs(), 2), read_jobs(folder / "jobs.yaml").jobs
    topology = Topology((Dimension("Switch", 4, RATE, LATENCY_NS),))
    (alone,), (several,) = outcomes([once], [(3, 1)], topology), outcomes([job], [(3, 1)], topology)
    assert several.alone_ns == repeats * alone.alone_ns


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: []\n", ["one job or more"]),
        ("seed: -1\njobs: [{workload: dlrm, npus: 2}]\n", ["jobs.yaml:1:7", "seed"]),
        ("jobs: [{workload: dlrm}]\n", ["how many NPUs"]),
        ("jobs: [{workload: dlrm, npus: 4, place: everywhere}]\n", ["no such placement", "packed"]),
        (
            "jobs: [{workload: gpt_175b_pipeline, npus: 60}]\n",
            ["gpt_175b_pipeline.txt:1", "8 stages", "a multiple of 64"],
        ),
        ("jobs: [{workload: dlrm, npus: 4, place: [1, 2]}]\n", ["4 NPUs"]),
        ("jobs: [{workload: dlrm, place: [1, 1]}]\n", ["2 NPUs, each once"]),
        ("search: 2\njobs: [{workload: dlrm, place: [1, 2]}]\n", ["jobs.yaml:1:9", "nothing to search"]),
        (
            "jobs: [{workload: dlrm, npus: 1, name: a}, {workload: dlrm, npus: 1, name: a}]\n",
            ["jobs.yaml:1:44", "name of its own", "a\n"],
        ),
        ("topology: ring8\njobs: [{workload: dlrm, npus: 9}]\n", ["jobs.yaml:2:31", "at most 8"]),
        ("topology: ring8\njobs: [{workload: dlrm, place: [1, 8]}]\n", ["jobs.yaml:2:32", "0 to 7"]),
        ("MICRO\n1\na -1 5 NONE 0 5 NONE 0 5 NONE 0 1\n", ["text workload", "--workload takes it"]),
        ("jobs: [{workload: dlrm, npus: 4}]\n", ["topology is needed"]),
        ("topology: ring8\nnetwork: wet\njobs: [{workload: dlrm, npus: 4}]\n", ["fair"]),
    ],
)
def test_a_wrong_file_of_jobs_is_refused(tmp_path, capsys, text, words):
    (tmp_path / "jobs.yaml").write_text(text)
    assert main(["run", str(tmp_path / "jobs.yaml")]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


def test_a_typo_in_any_key_of_a_file_of_jobs_is_told_with_the_right_one(tmp_path):
    job = {"name": "a", "workload": "dlrm", "npus": 2, "start": "1 us", "repeats": 2, "place": "rail"}
    file = {"topology": "ring8", "system": "s", "network": "fair", "seed": 1, "search": 1, "jobs": [job]}
    for key in [*file, *job]:
        text = json.dumps(file).replace(f'"{key}"', f'"{key[0]}{key[2:]}"')
        (tmp_path / "jobs.json").write_text(text)
        with pytest.raises(InputError, match=f"did you mean '{key}'") as told:
            read_jobs(tmp_path / "jobs.json")
        assert told.value.problems[0].location.column == json.dumps(file).index(f'"{key}"') + 1


def test_jobs_run_on_slow_links_and_slow_npus(tmp_path, capsys):
    """With buffers that end, too: alone each job takes what `simcore run` takes of it with the same trouble."""
    (tmp_path / "jobs.yaml").write_text("topology: ring8\njobs: [{workload: dlrm, npus: 8}]\n")
    trouble = ["--fault", "link 3-4 x0.25", "--straggler", "5=3", "--network", "queued"]
    out = tmp_path / "out"
    assert main(["run", str(tmp_path / "jobs.yaml"), "--json", *trouble, "-o", str(out)]) == 0
    capsys.readouterr()
    (job,) = json.loads((out / "jobs.json").read_text())["jobs"]
    assert (out / "timeline.html").exists()
    report = simcore.run("dlrm", "ring8", fault="link 3-4 x0.25", straggler="5=3", network="queued")
    assert job["alone_ns"] == report.to_dict()["time_ns"]


def test_the_shared_links_shown_are_those_of_the_job_that_loses():
    """The job that computes loses nothing, however much it sends over the links it shares."""
    jobs = [
        Job("idle", ring(2, 10**8, compute_ns=10**9), 2),
        Job("a", ring(2, 10**6), 2),
        Job("b", ring(2, 10**6, 1), 2),
        Job("late", ring(2, 10**8), 2, start_ns=5 * 10**8),
    ]
    topology = Topology((Dimension("Mesh", 8, RATE, LATENCY_NS),))
    runs = JobRuns(jobs, [(4, 6), (0, 2), (1, 3), (5, 7)], topology, None, NATIVE, Settings(network="fair", fold=False))
    assert {(link.src, link.dst) for link in runs.shared_links[:2]} == {("1", "2"), ("2", "1")}


def test_options_that_belong_to_one_workload_are_refused(tmp_path, capsys):
    (tmp_path / "jobs.yaml").write_text("topology: ring8\njobs: [{workload: dlrm, npus: 4}]\n")
    closed = ["--profile", "simai-1.6"]
    for option in (["--workload", "dlrm"], ["--rendezvous"], ["--links", str(tmp_path / "x.png")], closed):
        assert main(["run", str(tmp_path / "jobs.yaml"), *option]) == 2
        said = capsys.readouterr().err
        assert option[0] in said and "no such" not in said


@pytest.mark.parametrize(
    ("place", "options", "told"),
    [
        ("spread", {"seed": 3}, ["--seed 3 changes nothing: no job is placed at random"]),
        ("random", {"seed": 3}, []),
        ("packed", {"profile": "astra-sim-2", "comm_scale": 3}, ["ignores --compute-scale and --comm-scale"]),
        ("packed", {"profile": "astra-sim-2", "system": "themis.json"}, ["ignores inter-dimension-scheduling"]),
    ],
)
def test_what_jobs_do_not_heed_is_told_as_for_a_run(tmp_path, monkeypatch, place, options, told):
    monkeypatch.chdir(tmp_path)
    Path("jobs.yaml").write_text(f"topology: ring8\njobs: [{{workload: dlrm, npus: 4, place: {place}}}]\n")
    Path("themis.json").write_text('{"inter-dimension-scheduling": "themis"}')
    warnings = simcore.run_jobs("jobs.yaml", **options).report.warnings
    assert len(warnings) == len(told)
    assert all(words in text for words, text in zip(told, warnings, strict=True))


def test_jobs_run_on_optical_circuits_and_the_headers_gpus_are_compared(tmp_path, capsys):
    header = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 512"
    row = "a\t-1\t10\tALLREDUCE\t4096\t10\tNONE\t0\t10\tNONE\t0\t0"
    (tmp_path / "w.txt").write_text(f"{header} checkpoints: 0 checkpoint_initiates: 0\n1\n{row}\n")
    jobs = f"{{workload: {tmp_path / 'w.txt'}, npus: 8}}, {{workload: micro_all_to_all, npus: 8, name: b}}"
    (tmp_path / "jobs.yaml").write_text(f"topology: optical_16\njobs: [{jobs}]\n")
    assert main(["run", str(tmp_path / "jobs.yaml"), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["shared_links"] == []
    assert "says 512 GPUs and the job has 8 NPUs" in said.err
    assert "changed all at once" in said.err and "one ring" not in said.err
    assert main(["run", str(tmp_path / "jobs.yaml"), "--topology", "mesh_8x8"]) == 0
    assert "collectives among NPUs that are no row of one are rings" in capsys.readouterr().err


def test_two_jobs_may_not_name_one_npu():
    with pytest.raises(InputError):
        placed([Job("a", message(1), 2, place=(0, 1)), Job("b", message(1), 2, place=(1, 2))], [4], 0)


def test_sets_of_traces_are_found_beside_the_file_by_their_prefix_whatever_form_they_have(tmp_path, monkeypatch):
    """Their groups, too; a dot in a name ends no prefix."""
    (tmp_path / "study").mkdir()
    monkeypatch.chdir(tmp_path)
    graph = simcore.graph(4)
    graph.collective("all_reduce", 10**6, on=[0, 2])
    for name in ("binary", "v1.2", "form.json"):
        graph.save(tmp_path / "study" / name)
    entries = ", ".join(f"{{name: {n}, workload: {n}, npus: 4}}" for n in ("binary", "v1.2", "form"))
    (tmp_path / "study" / "jobs.yaml").write_text(f"jobs: [{entries}]\n")
    jobs = read_jobs("study/jobs.yaml").jobs
    ranks = [[*job.graphs.groups.values()] for job in jobs]
    assert ranks == [[(0, 2)]] * 3
    square = Topology((Dimension("Switch", 4, RATE, LATENCY_NS),))
    assert len({simcore.run(f"study/{name}", square).time_ns for name in ("binary", "v1.2", "form")}) == 1


def test_a_group_that_is_called_all_is_not_all():
    graph = simcore.graph(4)
    graph.collective("all_reduce", 10**6)
    graphs = graph.graphs()
    named = [replace(one, group_names=tuple(name or "all" for name in one.group_names)) for one in graphs.graphs]
    pair = replace(graphs, graphs=(*graphs.graphs, *named), groups={"all": (0, 1)})
    merged_groups = merged([Job("a", pair, 4)], [(0, 1, 2, 3)], 4).groups
    assert sorted(merged_groups.values()) == [(0, 1), (0, 1, 2, 3)]


def test_a_folder_of_jobs_says_what_was_run_and_repeats_it(tmp_path, capsys):
    (tmp_path / "jobs.yaml").write_text(
        "topology: ring8\njobs: [{workload: dlrm, npus: 4}, {workload: dlrm, npus: 4}]\n"
    )
    first, second, plain = (str(tmp_path / name) for name in ("first", "second", "plain"))
    assert main(["run", str(tmp_path / "jobs.yaml"), "--fault", "link 3-4 x0.25", "-o", first]) == 0
    assert main(["run", "--config", f"{first}/run.yaml", "-o", second]) == 0
    assert (tmp_path / "first" / "jobs.json").read_text() == (tmp_path / "second" / "jobs.json").read_text()
    assert main(["run", str(tmp_path / "jobs.yaml"), "-o", plain]) == 0
    capsys.readouterr()
    assert main(["compare", first, plain]) == 0
    assert "They differ in fault" in " ".join(capsys.readouterr().out.split())


def test_two_runs_of_jobs_are_compared_job_by_job(tmp_path, capsys):
    """Every figure is that of the two runs; a job that only one of them has is told, with no figure in the other."""
    entry = "{{name: {}, workload: dlrm, npus: 4, place: {}}}"
    found, names = [], (("left", "right"), ("left", "other"))
    for number, place in enumerate(("spread", "packed")):
        jobs = ", ".join(entry.format(name, place) for name in names[number])
        (tmp_path / "jobs.yaml").write_text(f"topology: ring8\njobs: [{jobs}]\n")
        assert main(["run", str(tmp_path / "jobs.yaml"), "-o", str(tmp_path / str(number)), "-q"]) == 0
        found.append(json.loads((tmp_path / str(number) / "jobs.json").read_text()))
    capsys.readouterr()
    folders = [str(tmp_path / "0"), str(tmp_path / "1")]
    for words in (folders, [f"{folder}/jobs.json" for folder in folders]):
        assert main(["compare", *words, "--json"]) == 0
        compared = json.loads(capsys.readouterr().out)
        assert [(job["name"], job["only"], job["npus"]) for job in compared["jobs"]] == [
            ("left", "", "0,2,4,6 -> 0-3"), ("right", "a", "1,3,5,7 -> none"), ("other", "b", "none -> 4-7"),
        ]  # fmt: skip
        before, after = (run["jobs"][0] for run in found)
        for figure in ("alone_step_ns", "step_ns", "slowdown"):
            assert compared["jobs"][0][figure] == {"a": before[figure], "b": after[figure]}
        assert compared["time_ns"] == {"a": found[0]["time_ns"], "b": found[1]["time_ns"]}
        assert main(["compare", *words]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "a step of left takes 266 us in B where it takes" in said and ("workload (" in said) == (
            words == folders
        )
        assert "other - 266 us - 266 us - - 1.000" in said
    (tmp_path / "one").mkdir()
    assert main(["run", "--workload", "dlrm", "--topology", "ring8", "-o", str(tmp_path / "one"), "-q"]) == 0
    capsys.readouterr()
    assert main(["compare", f"{folders[0]}/jobs.json", str(tmp_path / "one")]) == 2
    assert "this is a report of jobs" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "stride", "dim"), [(0, 1, 0), (0, 4, 1), (5, 16, 2)])
def test_what_a_group_sends_is_counted_in_the_dimension_along_which_it_lies(first, stride, dim):
    """A ring of four sends 2 (n - 1) / n of an all-reduce, over the links of its own dimension."""
    graph = simcore.graph(64)
    members = [first + stride * place for place in range(4)]
    graph.collective("all_reduce", 4_000_000, on=members)
    timeline = simcore.run(graph, "torus_4x4x4").timeline
    chunks = timeline.events.kind == EventKind.CHUNK
    assert {*timeline.events.stream[chunks].tolist()} == {1 + dim}
    found = simcore.run(graph, "torus_4x4x4").to_dict()
    if not first:  # figures are those of NPU 0
        assert [row["bytes_per_npu"] for row in found["dims"]] == [6_000_000 * (at == dim) for at in range(3)]
    used = {(link["src"], link["dst"]) for link in found["links"]["hottest"] if link["bytes"]}
    assert {int(dst) - int(src) for src, dst in used} <= {stride, -3 * stride, -stride, 3 * stride}


def test_the_page_of_jobs_says_when_they_are_done_and_blames_no_rank_of_another(tmp_path):
    (tmp_path / "jobs.yaml").write_text(
        "topology: ring8\njobs: [{workload: dlrm, npus: 4}, {workload: dlrm, npus: 4, repeats: 3}]\n"
    )
    found = simcore.run_jobs(tmp_path / "jobs.yaml")
    document = found.report.to_dict()
    assert headline(document).startswith(f"2 jobs are done after {format_ns(found.report.time_ns)} on 8 NPUs; rank 0:")
    said = dominating(document)
    assert "Last to end: ranks 4-5" in said and "Everyone waits" not in said
    assert document["jobs"] == ["job0", "job1"]
    write_bytes(tmp_path / "events.npz", events_npz(found.report))
    assert read_archive(tmp_path / "events.npz").to_dict() == document


def test_jobs_in_python_take_what_a_run_takes_and_travel_between_processes(tmp_path):
    file, machine = tmp_path / "jobs.yaml", simcore.load_topology("ring8")
    file.write_text("topology: ring64\njobs: [{workload: dlrm, npus: 4}, {workload: dlrm, npus: 4}]\n")
    made = [simcore.run_jobs(file, given) for given in ("ring8", Path("topologies/ring8.yaml"), machine)]
    assert len({str(one.to_dict()) for one in made}) == 1
    assert pickle.loads(pickle.dumps(made[0])).to_dict() == made[0].to_dict()  # noqa: S301 - our own
    for wrong, option in (({"path": None}, "workload"), ({"topology": 8}, "topology"), ({"system": 8}, "system")):
        with pytest.raises(InputError, match=f"--{option}: error: this is no {option}"):
            simcore.run_jobs(**{"path": file, **wrong})
