"""Where profiles depart from the native model, in words, and what each departure adds to a run."""

import json
from dataclasses import fields

import pytest
from click.testing import CliRunner

from simcore.api import run
from simcore.cli import cli
from simcore.errors import InputError
from simcore.profiles import GraphRules, profiles
from simcore.report.text import render
from tests.laws.cases_astra_sim_1 import case, layer, machine, system
from tests.published.peers import first_generation

NATIVE = profiles.get("native")
DEPARTING = [name for name in profiles.names() if profiles.get(name).rules]
SAID = {"name", "rules", "graph"}  # what a profile is called and says of itself; its parts count one by one


def departures(profile):
    """Fields that are not native's."""
    own = [(entry.name, profile, NATIVE) for entry in fields(profile) if entry.name not in SAID]
    own += [(f"graph.{entry.name}", profile.graph, NATIVE.graph) for entry in fields(GraphRules)]
    return {name for name, one, other in own if _value(one, name) != _value(other, name)}


def _value(rules, name):
    return getattr(rules, name.rpartition(".")[2])


def test_both_generations_of_astra_sim_say_their_rules():
    assert DEPARTING == ["astra-sim-1.0", "astra-sim-2"]


@pytest.mark.parametrize("name", DEPARTING)
def test_every_field_that_departs_is_in_one_rule_and_no_other_field_is(name):
    said = [field for rule in profiles.get(name).rules for field in rule.fields]
    assert sorted(said) == sorted({*said}) and departures(profiles.get(name)) == {*said}


@pytest.mark.parametrize("name", DEPARTING)
def test_with_all_its_rules_turned_a_profile_is_native(name):
    turned = profiles.get(name)
    for rule in turned.rules:
        turned = turned.turned(rule, NATIVE)
    assert not departures(turned)


SIMAI = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 2 pp: 1 ga: 1\n1\nrow -1 5 {} 64 0 NONE 0 5 {} 64 1\n"


@pytest.mark.parametrize("name", [*DEPARTING, "native"])
@pytest.mark.parametrize("totals", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_what_a_peer_does_not_read_as_simai_does_is_told_where_it_is_there(tmp_path, name, totals, named):
    path = tmp_path / "simai.txt"
    path.write_text(SIMAI.format("ALLGATHER" if totals else "REDUCESCATTER", "ALLREDUCE_DP_EP" if named else "NONE"))
    told = [text for text in run(str(path), "ring8", profile=name).warnings if f"profile {name}" in text]
    assert any("SimAI's files give totals" in text for text in told) == (totals and name in DEPARTING)
    assert any("(DP_EP); its original has none" in text for text in told) == (named and name in DEPARTING)


@pytest.fixture
def two_states(tmp_path):
    """Two states of the loop, 5 ns each, and nothing to send."""
    path = tmp_path / "two.txt"
    path.write_text("DATA\n1\nrow -1 5 NONE 0 0 NONE 0 5 NONE 0 1\n")
    return str(path)


def test_a_state_of_the_loop_adds_its_nanosecond(two_states):
    rows = run(two_states, "ring8", profile="astra-sim-1.0", explain_profile=True).to_dict()["profile_rules"]
    assert [(row["rule"], row["time_ns"], row["added_ns"]) for row in rows if row["added_ns"]] == [
        ("Every state of the training loop costs a nanosecond.", 10, 2),
        ("All of these: profile native.", 10, 2),
    ]


@pytest.mark.parametrize("name", DEPARTING)
def test_the_last_row_is_the_native_run_and_what_changes_most_comes_first(name):
    document = run("dlrm", "torus_4x4x4", profile=name, explain_profile=True).to_dict()
    *rows, last = document["profile_rules"]
    assert last["time_ns"] == run("dlrm", "torus_4x4x4").to_dict()["time_ns"]
    added = [abs(row["added_ns"] or 0) for row in rows]
    assert added == sorted(added, reverse=True) and any(added)
    assert {row["time_ns"] + row["added_ns"] for row in rows if not row["refused"]} == {document["time_ns"]}


def test_a_rule_that_cannot_be_left_out_alone_says_why(tmp_path, two_states):
    system = tmp_path / "system.txt"
    system.write_text("model-shared-bus: 1\nL: 1\no: 1\ng: 1\nG: 0.1\n")
    report = run(two_states, "ring8", str(system), profile="astra-sim-1.0", explain_profile=True)
    [refused] = [row for row in report.to_dict()["profile_rules"][:-1] if row["refused"]]
    assert "memory bus" in refused["rule"] and "memory bus" in refused["refused"] and refused["time_ns"] is None


def test_the_command_prints_the_rules_as_text_and_as_json(two_states):
    command = ["run", "--workload", two_states, "--topology", "ring8", "--profile", "astra-sim-1.0"]
    text = CliRunner().invoke(cli, [*command, "--explain-profile"]).output
    assert "+2 ns +16.67%  Every state of the training loop costs a nanosecond." in text
    found = json.loads(CliRunner().invoke(cli, [*command, "--explain-profile", "--json"]).output)
    assert found["profile_rules"][-1]["rule"] == "All of these: profile native."


def test_rules_that_change_nothing_are_counted_without_the_run_without_all_of_them(two_states):
    """None of ASTRA-sim 2.x changes anything where nothing is sent."""
    told = render(run(two_states, "ring8", profile="astra-sim-2", explain_profile=True).to_dict())
    assert f"{len(profiles.get('astra-sim-2').rules)} rules change nothing here." in told


@pytest.mark.parametrize("algorithms", ["direct4_ring", "direct5_halvingDoubling", "ring_ring"])
@pytest.mark.parametrize("endpoint_ns", [1, 100])
def test_on_shared_links_nobody_asks_who_is_first_of_messages_that_meet(algorithms, endpoint_ns, tmp_path):
    """Messages that take less than the endpoint's delay are told apart only where they share no links."""
    network = machine(["FullyConnected", "Ring"], [6, 2], links_count=[5, 2], link_latency=1, link_bandwidth=200)
    chosen = system(algorithms, endpoint_delay=endpoint_ns, active_chunks_per_dimension=4, preferred_dataset_splits=3)
    drawn = case("DATA", [layer(wg=(0, "REDUCESCATTER", 600))], network, chosen, num_passes=1)
    rows = run(**first_generation(drawn, tmp_path), explain_profile=True).to_dict()["profile_rules"]
    assert all(row["time_ns"] or row["refused"] for row in rows)


def test_native_has_nothing_to_explain(two_states):
    with pytest.raises(InputError, match="departs from nothing"):
        run(two_states, "ring8", explain_profile=True)


@pytest.mark.parametrize(
    ("name", "scale", "warned"), [("astra-sim-1.0", 0.01, 1), ("astra-sim-1.0", 1, 0), ("native", 0.01, 0)]
)
def test_where_the_originals_assertions_stop_it_is_said(two_states, name, scale, warned):
    warnings = run(two_states, "ring8", profile=name, injection_scale=scale).to_dict()["warnings"]
    assert sum("endpoint delay is 0" in warning for warning in warnings) == warned


@pytest.mark.parametrize("size_bytes", [1, 3, 4, 100])
@pytest.mark.parametrize("kind", ["ALLREDUCE", "ALLGATHER"])
@pytest.mark.parametrize("name", profiles.names())
def test_where_the_originals_never_end_it_is_said(name, kind, size_bytes, tmp_path):
    """Usual systems cut into 4 chunks; 2.x makes other collectives than all-gathers larger."""
    path = tmp_path / "tiny.txt"
    path.write_text(f"DATA\n1\nrow -1 5 NONE 0 0 NONE 0 5 {kind} {size_bytes} 1\n")
    never = size_bytes < 4 and name in {"astra-sim-1.0", "astra-sim-2" * (kind == "ALLGATHER")}
    for fold in (True, False):
        warnings = run(str(path), "ring8", profile=name, no_fold=not fold).to_dict()["warnings"]
        assert sum("the original never ends" in warning for warning in warnings) == never


@pytest.mark.parametrize("network", ["congested", "congestion-free"])
@pytest.mark.parametrize("kind", ["Ring", "Switch"])
@pytest.mark.parametrize("npus", [2, 3])
def test_a_congested_ring_of_two_is_said_to_stop_the_original(network, kind, npus, tmp_path):
    path = tmp_path / "network.yaml"
    path.write_text(f"topology: [{kind}]\nnpus_count: [{npus}]\nbandwidth: [50]\nlatency: [500]\n")
    report = run("micro_all_reduce", str(path), profile="astra-sim-2", network=network).to_dict()
    stops = (network, kind, npus) == ("congested", "Ring", 2)
    assert any("stops at a Ring of 2" in warning for warning in report["warnings"]) == stops


@pytest.mark.parametrize(
    ("name", "scale", "told"), [("native", 2.0, True), ("native", 1.0, False), ("astra-sim-1.0", 2.0, False)]
)
def test_a_factor_on_no_delay_is_told(two_states, name, scale, told):
    warnings = run(two_states, "ring8", profile=name, injection_scale=scale).to_dict()["warnings"]
    assert any("--injection-scale has no effect" in warning for warning in warnings) == told


@pytest.mark.parametrize("name", ["astra-sim-1.0", "astra-sim-2"])
def test_the_delay_of_a_file_that_gives_none_is_not_scaled(name, tmp_path):
    """The originals scale the key when they read it."""
    found, file = {}, tmp_path / "system.json"
    for key in ({}, {"endpoint-delay": 10}):
        file.write_text(json.dumps({"scheduling-policy": "LIFO", **key}))
        for scale in (1, 3):
            report = run("micro_all_reduce", "ring8", str(file), profile=name, injection_scale=scale).to_dict()
            told = any("--injection-scale has no effect" in warning for warning in report["warnings"])
            found[len(key), scale] = report["time_ns"], told
    assert found[0, 1] == found[1, 1] and found[0, 3] == (found[0, 1][0], True)
    assert found[1, 3][0] > found[1, 1][0] and not found[1, 3][1]
