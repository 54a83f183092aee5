"""`exact="messages"`: the run that plays every message of every NPU, and what it refuses because it could not."""

from dataclasses import replace
from itertools import permutations
from unittest import mock

import pytest

import simcore
from simcore.errors import InputError
from simcore.network.congested import CutThrough
from simcore.network.fair import FairShare
from simcore.profiles import profiles
from simcore.system.transport import CongestionFree


def system_file(folder, text):
    path = folder / "system.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("network", ["congested", "fair", "congestion-free"])
def test_the_report_is_the_usual_one_but_for_classes_and_options(network):
    usual, messages = (
        simcore.run("dlrm", "ring8", network=network, straggler=("3=1.5",), exact=exact).to_dict()
        for exact in ("", "messages")
    )
    assert messages.pop("classes") == 8
    del usual["classes"]
    assert messages.pop("options") == usual.pop("options") | {"exact": "messages"}
    assert messages == usual


@pytest.mark.parametrize(
    ("network", "model"), [("congested", CutThrough), ("congestion-free", CongestionFree), ("fair", FairShare)]
)
def test_every_message_of_every_npu_goes_through_the_network(network, model):
    """On a ring of 8, 2 x 7 rounds of every NPU in each of four chunks."""
    with mock.patch.object(model, "send", autospec=True, side_effect=model.send) as send:
        simcore.run("micro_all_reduce", "ring8", network=network, exact="messages")
    assert send.call_count == 8 * 14 * 4


def test_what_is_asked_for_is_what_was_asked_for_where_one_npu_plays_for_all(tmp_path):
    """Requests of an all-to-all come back from NPUs that are further and further away."""
    (tmp_path / "w.txt").write_text("MICRO\n1\nexchange -1 0 NONE 0 0 NONE 0 0 ALLTOALL 65536 1\n")
    usual, messages = (
        simcore.run(str(tmp_path / "w.txt"), "ring8", rendezvous=True, exact=exact) for exact in ("", "messages")
    )
    assert usual.time_ns == messages.time_ns
    assert usual.to_dict()["classes"] == 1


class Slow(CutThrough):
    def _end_ns(self, link, start_ns, size_bytes, rate):
        return super()._end_ns(link, start_ns, size_bytes, 2 * rate) + 50


class Remembers(CutThrough):
    """A phase still finds the links taken that another one has left."""

    def _advance(self, message, now_ns):
        link, head_ns = message.path.links[message.hop], super()._advance(message, now_ns)
        self._free_ns[link] += 50_000
        return head_ns


@pytest.mark.parametrize("made", [Slow, Remembers])
@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_a_network_made_of_another_has_times_of_its_own(tmp_path, made, one_at_a_time):
    native = profiles.get("native")
    own = replace(native, shared_links={**native.shared_links, "congested": made.on})
    chosen = system_file(tmp_path, "active-chunks-per-dimension: 1\n") if one_at_a_time else None
    with profiles.lend(own) as name:
        usual, messages = (simcore.run("dlrm", "ring8", chosen, profile=name, exact=how) for how in ("", "messages"))
    assert usual.time_ns == messages.time_ns != simcore.run("dlrm", "ring8", chosen).time_ns


@pytest.mark.parametrize(
    ("options", "system", "place", "said"),
    [
        ({"profile": "astra-sim-2"}, "", "--exact", "is not played message by message"),
        ({"exact": "events"}, "", "--exact", "wrong value"),
        ({}, "collectives: nccl\nnccl-fabric: dgx-a100\n", "system.yaml:1:14", "takes measured times"),
        (
            {"network": "congestion-free"},
            "all-gather-implementation: [oneMulticast]\n",
            "--exact messages with --network congestion-free",
            "all_gather by multicast copies or reduces on links",
        ),
    ],
)
def test_what_has_no_messages_of_its_own_is_refused(options, system, place, said, tmp_path):
    workload = tmp_path / "gather.txt"
    workload.write_text("MICRO\n1\ngather -1 0 NONE 0 0 NONE 0 0 ALLGATHER 65536 1\n")
    given = {"exact": "messages", **options, "system": system_file(tmp_path, system) if system else None}
    with pytest.raises(InputError) as refused:
        simcore.run(str(workload), "ring8", **given)
    (problem,) = refused.value.problems
    assert str(problem.location).endswith(place)
    assert said in problem.message


@pytest.mark.parametrize("kinds", [*permutations(["ALLGATHER", "ALLREDUCE", "ALLTOALL"])], ids="-".join)
def test_what_is_refused_is_the_first_of_the_workload(kinds, tmp_path):
    rows = [f"{kind} -1 0 NONE 0 0 NONE 0 0 {kind} 65536 1\n" for kind in kinds]
    (tmp_path / "w.txt").write_text(f"MICRO\n{len(rows)}\n{''.join(rows)}")
    system = system_file(tmp_path, "collectives: nccl\nnccl-fabric: dgx-a100\n")
    with pytest.raises(InputError) as refused:
        simcore.run(str(tmp_path / "w.txt"), "ring8", system, rendezvous=True)
    said = refused.value.problems[0].message.replace("_", "")
    assert said == f"the {kinds[0].lower()} by nccl cannot wait for its receivers to ask"


def test_what_nobody_sends_in_a_dimension_of_one_npu_is_not_refused(tmp_path):
    (tmp_path / "gather.txt").write_text("MICRO\n1\ngather -1 0 NONE 0 0 NONE 0 0 ALLGATHER 65536 1\n")
    (tmp_path / "one.yaml").write_text(
        "topology: [Ring, Switch]\nnpus_count: [4, 1]\nbandwidth: [50, 50]\nlatency: [500, 500]\n"
    )
    system = system_file(tmp_path, "all-gather-implementation: [ring, oneMulticast]\n")
    usual, exact = (
        simcore.run(tmp_path / "gather.txt", tmp_path / "one.yaml", system, network="congestion-free", exact=exact)
        for exact in ("", "messages")
    )
    assert usual.time_ns == exact.time_ns
