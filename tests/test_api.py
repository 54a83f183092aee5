"""The Python face of `simcore run`: what it refuses and what it says then; what it takes."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import graph
from simcore.api import load_topology, load_workload, run
from simcore.cli import main
from simcore.engine.settings import parse_straggler, straggler_factors
from simcore.errors import DeadlockError, InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.options import factor, seed
from simcore.report.document import ReportDocument
from simcore.workload.chakra import writer
from simcore.workload.model import Layer, NodeKind, Phase, Workload

REMOTE = '{"memory-type": "MEMORY_POOL", "remote-mem-latency": 1000, "remote-mem-bw": 2}'
SQUARE = Topology((Dimension("Ring", 4, 5e10, 500.0), Dimension("Ring", 2, 5e10, 500.0)))
MICRO = "MICRO\n1\nall -1 0 NONE 0 0 NONE 0 0 ALLREDUCE 4096 0\n"


def refused(**changes):
    arguments = {"workload": "micro_all_reduce", "topology": "ring8"} | changes
    with pytest.raises(InputError) as caught:
        run(**arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"profile": "astra-sim-3"}, ["no such profile", "did you mean 'astra-sim-2'", "simai-busbw"]),
        ({"topology": None}, ["--topology"]),
        ({"topology": "ring9"}, ["no such name in topologies", "ring8"]),
        ({"workload": None}, ["--workload", "this is no workload", "NoneType"]),
        ({"workload": "micro_all_reduse"}, ["no such name in workloads", "micro_all_reduce"]),
        ({"network": "congestd"}, ["--network", "did you mean 'congested'"]),
        ({"network": "fair", "profile": "astra-sim-2"}, ["--network", "congestion-free"]),
        ({"network": "congested", "profile": "astra-sim-1.0"}, ["astra-sim-1.0 has no network 'congested'"]),
        ({"straggler": ("8=2",)}, ["--straggler", "ranks 0 to 7"]),
        ({"straggler": ("3-1=2",)}, ["--straggler", "0-3,7=1.5"]),
        ({"straggler": ("1",)}, ["--straggler", "0-3,7=1.5"]),
        ({"straggler": ("1=0",)}, ["--straggler", "above 0"]),
        ({"straggler": ("1=nan",)}, ["--straggler", "above 0"]),
        ({"straggler": ("a-b=2",)}, ["--straggler"]),
    ],
)
def test_a_wrong_argument_is_named_with_what_would_be_right(changes, words):
    message = refused(**changes)
    for word in words:
        assert word in message


def test_stragglers_add_up_over_ranges():
    assert parse_straggler("0-1,3=1.5") == ([range(2), range(3, 4)], 1.5)
    ring = Topology((Dimension("Ring", 4, 1e9, 1.0),))
    assert straggler_factors(("0-1=2", "1=3"), ring) == {0: 2.0, 1: 6.0}


def test_groups_that_do_not_divide_the_machine_are_refused_at_the_header(tmp_path):
    path = tmp_path / "workload.txt"
    row = "one -1 1 ALLREDUCE 64 1 NONE 0 1 NONE 0 0"
    path.write_text(f"HYBRID_TRANSFORMER model_parallel_NPU_group: 3\n1\n{row}\n")
    message = refused(workload=str(path))
    assert f"{path}:1" in message
    assert "3 does not divide the 8 NPUs" in message


def test_more_algorithms_than_dimensions_are_refused_at_their_key(tmp_path):
    system = tmp_path / "system.json"
    system.write_text('{\n "all-reduce-implementation": ["ring", "ring"]\n}\n')
    assert f"{system}:2" in refused(system=str(system))


def test_an_intra_dimension_policy_of_another_profile_is_refused(tmp_path):
    system = tmp_path / "system.json"
    system.write_text('{"intra-dimension-scheduling": "RG"}')
    assert "native has no intra-dimension-scheduling 'RG'" in refused(system=str(system))


@pytest.mark.parametrize("profile", ["native", "astra-sim-1.0", "astra-sim-2"])
def test_a_report_names_its_inputs_as_given(tmp_path, profile):
    path = tmp_path / "workload.txt"
    path.write_text(MICRO)
    report = run(str(path), "ring8", profile=profile).to_dict()
    assert [entry["role"] for entry in report["inputs"]] == ["workload", "topology"]
    assert [entry["path"] for entry in report["inputs"]] == [str(path), "ring8"]
    assert report["npus"] == 8
    assert report["classes"] == 1


def test_in_the_native_profile_no_straggler_deadlocks_a_machine_with_little_room(tmp_path):
    """Groups in both dimensions, the last gradient first, one chunk at a time: every order of arrival is met."""
    path, system = tmp_path / "workload.txt", tmp_path / "system.json"
    rows = [f"l{i} -1 10 NONE 0 20 ALLREDUCE {4096 * (i + 1)} 5 ALLREDUCE {65536 // (i + 1)} 0" for i in range(5)]
    path.write_text("HYBRID_DATA_MODEL\n5\n" + "\n".join(rows) + "\n")
    system.write_text('{"scheduling-policy": "LIFO", "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4}')
    for slow in ("0=9", "5=3", "1-6=2"):
        report = run(str(path), "torus_4x4x4", str(system), iterations=2, straggler=(slow,))
        assert report.to_dict()["time_ns"] > 0


def test_a_deadlock_of_astra_sim_s_queues_is_reported_as_such(tmp_path):
    """Each NPU starts what it has first: a slow one and its partners then wait for each other (astra-sim #370)."""
    path, system, machine = (tmp_path / name for name in ("workload.txt", "system.json", "net.yaml"))
    rows = [f"l{i} -1 10 NONE 0 5000 NONE 0 5000 ALLREDUCE {65536 * (i + 1)} 0" for i in range(4)]
    path.write_text("DATA\n4\n" + "\n".join(rows) + "\n")
    system.write_text('{"scheduling-policy": "LIFO", "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4}')
    machine.write_text("topology: [Ring]\nnpus_count: [4]\nbandwidth: [10.0]\nlatency: [500.0]\n")
    for network in ("congestion-free", "congested"):
        with pytest.raises(DeadlockError, match="NPU 2 waits for") as caught:
            run(str(path), str(machine), str(system), profile="astra-sim-2", straggler=("2=3.7",), network=network)
        assert "plays it; NPU 2 plays chunk" in str(caught.value)
        assert "--profile native" in str(caught.value)


def test_a_preset_computes_what_is_not_given_and_is_refused_where_all_is_given(tmp_path):
    """V100: 125 TFLOP/s, 0.9 TB/s; a product of 1e9 operations on 1e6 bytes is bound by arithmetic: 8 us."""
    node = writer.node(0, "mm", NodeKind.COMPUTE, attributes={"num_ops": 10**9, "tensor_size": 10**6})
    (tmp_path / "t.0.et").write_bytes(writer.encode(writer.metadata(), [node]))
    preset = run(str(tmp_path / "t.0.et"), "ring8", npu="V100-SXM2-16GB")
    assert preset.to_dict()["time_ns"] == 8000
    node = writer.node(0, "mm", NodeKind.COMPUTE, duration_micros=8)
    (tmp_path / "timed.0.et").write_bytes(writer.encode(writer.metadata(), [node]))
    timed = tmp_path / "timed.0.et"
    for workload, profile in (("dlrm", "native"), (timed, "native"), (timed, "astra-sim-1.0")):
        with pytest.raises(InputError, match="--npu"):
            run(workload, "ring8", npu="H100", profile=profile)
    (tmp_path / "replay.json").write_text('{"replay-only": 1}')
    with pytest.raises(InputError, match="--npu"):
        run(tmp_path / "t.0.et", "ring8", tmp_path / "replay.json", npu="H100")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("iterations", 0),
        ("iterations", 1.5),
        ("iterations", True),
        ("iterations", "٣"),
        ("queues_per_dim", 0),
        ("comm_scale", -1),
        ("comm_scale", float("nan")),
        ("compute_scale", "fast"),
        ("injection_scale", float("inf")),
        ("rendezvous", "yes"),
        ("straggler", 5),
        ("seed", -1),
        ("network", 3),
        ("dialect", "english"),
        ("iteratoins", 1),
    ],
)
def test_python_and_the_command_line_refuse_the_same(name, value, capsys):
    message = refused(**{name: value})
    assert f"--{name.replace('_', '-')}: error:" in message
    if isinstance(value, int | float | str) and not isinstance(value, bool) and name != "straggler":
        words = ["run", "--workload", "micro_all_reduce", "--topology", "ring8"]
        assert main([*words, f"--{name.replace('_', '-')}={value}"]) == 2
        assert f"--{name.replace('_', '-')}" in capsys.readouterr().err


def test_a_report_fits_its_published_schema():
    schema = msgspec.json.schema(ReportDocument)
    report = run("dlrm", "ring8", jitter="compute=lognormal:0.1", runs=2, what_would_help=True).to_dict()
    known = schema["$defs"]["ReportDocument"]
    assert set(known["required"]) <= set(report) <= set(known["properties"])


def test_a_header_of_another_machine_is_told(tmp_path):
    path = tmp_path / "w.txt"
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 9216 "
    path.write_text(f"{header}checkpoints: 0 checkpoint_initiates: 0\n1\none -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 64 0\n")
    assert "9,216 GPUs and the topology 8 NPUs" in " ".join(run(path, "ring8").warnings)


@pytest.mark.parametrize("profile", ["native", "astra-sim-1.0"])
@pytest.mark.parametrize(
    ("header", "algorithms", "told"),
    [
        ("DATA", "ring", "1"),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 4", "ring", "1"),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", "ring", "1"),
        ("HYBRID_MODEL_DATA", "ring", ""),
        ("DATA", "ring_ring", ""),
        ("DATA", "oneRing", ""),
    ],
)
def test_dimensions_without_an_algorithm_are_told_where_something_would_be_sent(
    tmp_path, header, algorithms, told, profile
):
    (tmp_path / "w.txt").write_text(f"{header}\n1\none -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 65536 1\n")
    (tmp_path / "s.txt").write_text(f"all-reduce-implementation: {algorithms}\nall-gather-implementation: ring\n")
    said = run(str(tmp_path / "w.txt"), SQUARE, str(tmp_path / "s.txt"), profile=profile).warnings
    words = "all-reduce-implementation names no algorithm for dimension {}: nothing of that kind is sent there"
    assert [text for text in said if "algorithm" in text] == [words.format(told)] * bool(told)


@pytest.mark.parametrize("profile", ["native", "astra-sim-2"])
@pytest.mark.parametrize(("asked", "told"), [({}, True), ({"involved_dim": [True, False]}, False)])
def test_so_they_are_of_traces_but_for_those_of_some_npus(tmp_path, asked, told, profile):
    attributes = {"is_cpu_op": False, "comm_type": 0, "comm_size": 1 << 16, **asked}
    content = writer.encode(writer.metadata(), [writer.node(0, "a", NodeKind.COLLECTIVE, attributes=attributes)])
    (tmp_path / "w.et").write_bytes(content)
    nodes = graph(8)
    nodes.collective("all_reduce", 1 << 16, on=range(4))
    (tmp_path / "s.txt").write_text("all-reduce-implementation: ring\n")
    for workload, warned in ((str(tmp_path / "w.et"), told), (nodes, False)):
        said = run(workload, SQUARE, str(tmp_path / "s.txt"), profile=profile).warnings
        assert any("names no algorithm for dimension 1" in text for text in said) == warned


def test_what_a_trace_has_no_use_for_is_told(tmp_path):
    (tmp_path / "m.json").write_text('{"memory-type": "MEMORY_POOL", "remote-mem-latency": 0, "remote-mem-bw": 512}')
    (tmp_path / "g.json").write_text('{"1": [0, 1]}')
    (tmp_path / "s.json").write_text('{"trace-enabled": 1, "track-local-mem": 0, "boost-mode": 1}')
    given = {"remote_memory": "m.json", "comm_groups": "g.json", "system": "s.json"}
    options = {role: str(tmp_path / name) for role, name in given.items()}
    attributes = {"is_cpu_op": False, "comm_type": 0, "comm_size": 1 << 16}
    every = writer.node(0, "a", NodeKind.COLLECTIVE, attributes=attributes)
    some = writer.node(0, "a", NodeKind.COLLECTIVE, attributes=attributes | {"pg_name": "1"})
    load = writer.node(1, "b", NodeKind.MEM_LOAD, attributes={"is_cpu_op": False, "tensor_size": 64})

    def told(*nodes):
        for rank in range(2):
            (tmp_path / f"w.{rank}.et").write_bytes(writer.encode(writer.metadata(), nodes))
        machine = Topology((Dimension("Ring", 2, 5e10, 500.0),))
        return [
            text.split()[0] for text in run(str(tmp_path / "w"), machine, profile="astra-sim-2", **options).warnings
        ]

    assert told(every) == ["--comm-groups", "trace-enabled", "--remote-memory"]
    assert told(some, load) == ["trace-enabled"]


def test_a_network_is_varied_without_a_file():
    machine = load_topology("ring8")
    assert (
        run("micro_all_reduce", machine.replace(bandwidth="1 GB/s")).time_ns
        > 10 * run("micro_all_reduce", "ring8").time_ns
    )
    for wrong in ({"bandwidth": 0}, {"bandwidth": "fast"}, {"latency": [1, 2]}, {"latency": -1}):
        with pytest.raises(InputError):
            machine.replace(**wrong)


@given(
    st.sampled_from(["npus", "bandwidth_bytes_per_s", "latency_ns"]), st.one_of(st.floats(), st.integers(), st.text())
)
def test_a_dimension_made_by_hand_is_one_that_a_file_could_give(name, value):
    said = {"npus": 4, "bandwidth_bytes_per_s": 5e10, "latency_ns": 500.0, name: value}
    number = isinstance(value, int | float)
    able = {
        "npus": isinstance(value, int) and value > 0,
        "bandwidth_bytes_per_s": number and value > 0,
        "latency_ns": number and 0 <= value < float("inf"),
    }[name]
    if able:
        assert Topology((Dimension("Ring", **said),)).npus == said["npus"]
        return
    with pytest.raises(InputError, match=f"^{name}: error: wrong value"):
        Dimension("Ring", **said)


def test_a_topology_has_a_dimension():
    for wrong in ((), Dimension("Ring", 4, 5e10, 500.0), None):
        with pytest.raises(InputError, match="dims: error: wrong value"):
            Topology(wrong)


@pytest.mark.parametrize("profile", ["native", "simai-1.6"])
@pytest.mark.parametrize("figure", [-1, 1.5, 1 << 63, "4", None])
@pytest.mark.parametrize("name", ["update_ns", "compute_ns of forward", "size_bytes of weight_grad"])
def test_a_row_made_by_hand_is_one_that_a_text_could_give(name, figure, profile):
    """A negative size took less than no time."""
    field, _, phase = name.partition(" of ")
    wrong = Layer("fc", **{phase: Phase(**{field: figure})} if phase else {field: figure})
    machine = {"topology": "ring8"} if profile == "native" else {"gpus": 8, "nvlink_bw": 300, "nic_bw": 25}
    with pytest.raises(InputError, match=f"^layer 1 'fc': error: {name} is wrong"):
        run(Workload("DATA", (Layer("one"), wrong)), profile=profile, **machine)


def test_loaded_inputs_paths_and_plain_texts_are_taken():
    machine = load_topology(Path("topologies/ring8.yaml"))
    rows = load_workload("dlrm", machine.npus)
    by_object = run(rows, machine, straggler="5=2").to_dict()
    by_name = run("dlrm", "ring8", straggler=("5=2",)).to_dict()
    assert by_object["time_ns"] == by_name["time_ns"]
    assert by_object["ranks"] == by_name["ranks"]


@pytest.mark.parametrize("given", [None, 8, b"ring8", ["ring8"]])
def test_nothing_but_a_name_or_a_path_is_loaded(given):
    """None was a file of the name "None"."""
    with pytest.raises(InputError, match="--topology: error: this is no topology"):
        load_topology(given)
    with pytest.raises(InputError, match="--workload: error: this is no workload"):
        load_workload(given)


@pytest.mark.parametrize("name", [None, 3, ["native"], "nativ"])
def test_what_is_no_name_of_a_table_or_a_profile_is_told_with_those_there_are(name):
    """None and numbers were TypeErrors."""
    with pytest.raises(InputError, match=r"no such profile\n.*one of: astra-sim-1.0"):
        load_topology("ring8", profile=name)
    with pytest.raises(InputError, match=r"no such table\n.*one of: dims, events"):
        run("micro_all_reduce", "ring8").to_pandas(name)


OUTSIDE = st.one_of(st.floats(-1e300, 0), st.floats(1e-300, 9e-13), st.floats(1.1e30, 1e300))


@given(OUTSIDE, st.integers(2**62 + 1, 10**40))
def test_what_is_out_of_a_range_is_told_the_end_that_it_passes(value, large):
    """Of 1e39 it said "a number above 0", as of 1e-300; of a large seed "a whole number of at least 0"."""
    end = "above 0, at most 1e+30" if value > 1 else "above 0" if value <= 0 else "of at least 1e-12"
    with pytest.raises(ValueError, match=f"a number {re.escape(end)}$"):
        factor(value)
    with pytest.raises(ValueError, match="a whole number from 0 to 4,611,686,018,427,387,904"):
        seed(str(large))
    assert seed("0" * 30 + "7") == 7


def test_what_changes_nothing_of_a_workload_is_not_loaded(tmp_path):
    with pytest.raises(InputError, match="--comm-groups changes nothing: it is for traces"):
        load_workload("dlrm", comm_groups="no such file")
    graph(2).save(tmp_path / "t")
    with pytest.raises(InputError, match="--dialect changes nothing: it is for text workloads"):
        load_workload(tmp_path / "t", dialect="simai")


def test_files_of_options_may_be_paths(tmp_path):
    builder = graph(8)
    builder.collective("all_reduce", "1 MiB", on=range(4))
    builder.save(tmp_path / "t")
    (tmp_path / "g.json").write_text('{"1": [0, 1, 2, 3]}')
    by_text, by_path = (run(tmp_path / "t", "ring8", comm_groups=kind(tmp_path / "g.json")) for kind in (str, Path))
    assert by_text.to_dict() == by_path.to_dict()
    missing = refused(workload=str(tmp_path / "t"), remote_memory=tmp_path / "m.json")
    assert f"{tmp_path}/m.json: error: cannot read" in missing


def test_of_two_options_of_one_value_the_wrong_one_is_named():
    assert refused(workload="dlrm", topology="dlrm").startswith("--topology: error:")
    assert refused(workload="ring8", topology="ring8").startswith("--workload: error:")


def test_a_dialect_that_does_not_exist_is_not_loaded():
    with pytest.raises(InputError, match="astra-sim or simai"):
        load_workload("micro_all_reduce", dialect="english")


def test_what_is_loaded_says_shortly_what_it_is():
    assert repr(load_workload("dlrm")) == "<Workload dlrm: HYBRID_DLRM, 8 layers>"
    assert repr(load_topology("torus_4x4x4")) == "<Topology torus_4x4x4: Ring of 4 x Ring of 4 x Ring of 4>"


def test_traces_are_loaded_for_as_many_npus_as_there_are_files(tmp_path):
    assert main(["convert", "workloads/dlrm.txt", str(tmp_path / "w"), "--npus", "4"]) == 0
    assert len(load_workload(tmp_path / "w").graph_of_rank) == 4
    assert len(load_workload(tmp_path / "w.0.et").graph_of_rank) == 1


GIVEN = {"iterations": 3, "dialect": "simai", "schedule": "gpipe", "comm_groups": "{}", "remote_memory": REMOTE}


@pytest.mark.parametrize("name", [*GIVEN, "roofline-enabled", "replay-only"])
def test_what_is_for_another_kind_of_workload_is_told(name, tmp_path):
    """Of an option it is known; `--schedule` without a pipeline is refused."""
    file, value = tmp_path / "given.json", GIVEN.get(name)
    if value is None:
        file.write_text(f'{{"{name}": 1, "peak-perf": 1, "local-mem-bw": 1}}')
        changes = {"system": str(file)}
    else:
        file.write_text(str(value))
        changes = {name: str(file) if str(value).startswith("{") else value}
    (tmp_path / "w.txt").write_text(MICRO)
    nodes = graph(8)
    nodes.collective("all_reduce", 4096)

    def told(workload):
        try:
            warnings = run(workload, "ring8", **changes).to_dict()["warnings"]
        except InputError as error:
            return str(error)
        return next((each for each in warnings if "changes nothing" in each), "")

    option = f"--{name.replace('_', '-')}" if name in GIVEN else name
    kinds = [told(str(tmp_path / "w.txt")), told(nodes)]
    assert sum(each.startswith(f"{option} changes nothing: it is for ") for each in kinds) == 1
    assert all("no pipeline" in each for each in kinds if each and not each.startswith(option))
