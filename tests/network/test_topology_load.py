"""Topology files are read exactly, and everything wrong in one is found with its place."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore import library
from simcore.errors import InputError
from simcore.network.topology.load import load
from simcore.network.topology.model import Memory

RING = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n"
MESH = "topology: [Mesh, Mesh]\nnpus_count: [4, 4]\nbandwidth: [50.0, 50.0]\nlatency: [10.0, 10.0]\n"
HIERARCHICAL = {
    "topology-name": "Hierarchical",
    "topologies-per-dim": ["Ring", "Switch"],
    "dimension-type": ["N", "P"],
    "dimensions-count": 2,
    "units-count": [4, 2],
    "links-count": [2, 1],
    "link-latency": [500, 700],
    "link-bandwidth": [25, 12.5],
    "nic-latency": [0, 100],
    "router-latency": [0, 20],
    "hbm-latency": [500, 1],
    "hbm-bandwidth": [370, 1],
    "hbm-scale": [1, 0],
}


def write(folder, text, name="net.yml"):
    path = folder / name
    path.write_text(text)
    return str(path)


def refusal(folder, text, name="net.yml"):
    with pytest.raises(InputError) as caught:
        load(write(folder, text, name))
    return str(caught.value).replace(str(folder) + "/", "")


@pytest.mark.parametrize("name", library.names("topologies"))
def test_every_shipped_topology_loads_and_describes_itself(name):
    topology = load(name)
    assert topology.name == name
    assert topology.description
    assert topology.npus > 1


def test_a_bare_bandwidth_is_in_the_gigabytes_asked_for_and_a_written_unit_is_exact(tmp_path):
    path = write(tmp_path, RING)
    assert load(path).dims[0].bandwidth_bytes_per_s == 50e9
    assert load(path, gigabyte_forced="binary").dims[0].bandwidth_bytes_per_s == 50 * 2**30
    stated = write(tmp_path, RING + "gigabyte: binary\n")
    assert load(stated).dims[0].bandwidth_bytes_per_s == 50 * 2**30
    assert load(stated, gigabyte_forced="decimal").dims[0].bandwidth_bytes_per_s == 50e9
    unit = write(tmp_path, RING.replace("50.0", '"400 Gb/s"').replace("500.0", '"0.5 us"'))
    assert load(unit, gigabyte_forced="binary").dims[0].bandwidth_bytes_per_s == 50e9
    assert load(unit).dims[0].latency_ns == 500


def test_hierarchical_json_of_astra_sim_1_fills_the_extra_terms(tmp_path):
    topology = load(write(tmp_path, json.dumps(HIERARCHICAL), "net.json"))
    ring, switch = topology.dims
    assert (ring.npus, ring.links, ring.bandwidth_bytes_per_s) == (4, 2, 25 * 2**30)
    assert (switch.nic_latency_ns, switch.router_latency_ns) == (100, 20)
    assert (ring.memory, switch.memory) == (Memory(500, 370, 1), Memory(1, 1, 0))


def test_a_wafer_shows_its_workload_the_mesh_without_spare_rows_or_the_live_npus(tmp_path):
    spared = load(write(tmp_path, MESH + "wafer: {dead_npus: [5], spare_rows: 1}\n"))
    assert [(dim.kind, dim.npus) for dim in spared.dims] == [("Mesh", 4), ("Mesh", 3)]
    holed = load(write(tmp_path, MESH + "wafer: {dead_npus: [5], dead_links: [[2, 1]]}\n"))
    assert [(dim.kind, dim.npus) for dim in holed.dims] == [("Wafer", 15)]
    assert holed.wafer.dead_links == ((1, 2),)


@pytest.mark.parametrize("directed", [False, True])
def test_a_node_link_graph_gives_its_links_npus_first(tmp_path, directed):
    pairs = [("sw", "a"), ("sw", "b"), *([("a", "sw"), ("b", "sw")] if directed else [])]
    edges = [{"source": a, "target": b, "bandwidth": "8 Gb/s", "latency": 5} for a, b in pairs]
    nodes = [{"id": "sw", "kind": "switch"}, {"id": "a"}, {"id": "b"}]
    (tmp_path / "g.json").write_text(json.dumps({"directed": directed, "nodes": nodes, "edges": edges}))
    graph = load(write(tmp_path, "graph: g.json\n")).graph
    assert (graph.npus, graph.names) == (2, ("a", "b", "sw"))
    assert sorted(zip(graph.src, graph.dst, strict=True)) == [(0, 2), (1, 2), (2, 0), (2, 1)]
    assert set(graph.bandwidth_bytes_per_s) == {1e9}


def test_graphml_gives_the_same_graph_as_node_link_json(tmp_path):
    networkx = pytest.importorskip("networkx")
    graph = networkx.cycle_graph(5)
    networkx.set_edge_attributes(graph, {edge: {"bandwidth": 25.0, "latency": 7.0} for edge in graph.edges})
    networkx.write_graphml(graph, tmp_path / "g.graphml")
    (tmp_path / "g.json").write_text(json.dumps(networkx.node_link_data(graph, edges="links")))
    as_xml, as_json = (load(write(tmp_path, f"graph: g.{kind}\n")).graph for kind in ("graphml", "json"))
    assert as_xml == as_json
    assert len(as_xml.src) == 10


@pytest.mark.parametrize("network", ["congested", "queued"])
def test_seeds_of_routes_are_of_32_bits(tmp_path, network):
    place = write(tmp_path, RING + "routing: [ecmp]\nrouting_seed: 4294967295\n")
    assert simcore.run("micro_all_to_all", load(place), network=network).time_ns > 0
    with pytest.raises(InputError, match="4,294,967,295"):
        load(write(tmp_path, RING + "routing: [ecmp]\nrouting_seed: 4294967296\n"))


ROW_OF_THREE = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="b" for="edge" attr.name="bandwidth"><default>50</default></key><key id="k" for="node" attr.name="kind"/>
<key id="l" for="edge" attr.name="latency"/>
<graph edgedefault="undirected"><node id="0"/><node id="1"/>
<node id="s"><data key="k">switch</data></node>
<edge source="0" target="s"><data key="l">5</data></edge>
<edge source="1" target="s"><data key="l">5</data><data key="b">8 Gb/s</data></edge>
</graph></graphml>
"""


def test_defaults_of_graphml_hold_where_nothing_else_is_said(tmp_path):
    (tmp_path / "g.graphml").write_text(ROW_OF_THREE)
    graph = load(write(tmp_path, "graph: g.graphml\n")).graph
    assert (graph.names, graph.npus, graph.bandwidth_bytes_per_s) == (("0", "1", "s"), 2, (50e9, 50e9, 1e9, 1e9))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (">switch<", ">Switch<", "g.graphml:5:14: error: kind is not known"),
        ('"1" target="s"', '"1" target="S"', "g.graphml:7:1: error: there is no such node"),
        ('"1" target="s"', '"1" target="1"', "g.graphml:7:1: error: a link joins two nodes"),
        ('<node id="1"/>', '<node id="0"/>', "g.graphml:4:47: error: another node has this id"),
        ('"l">5</data><data', '"l">-1</data><data', "g.graphml:7:29: error: latency must be >= 0"),
        ('<data key="b">', '<data key="c">', "g.graphml:7:51: error: there is no such <key>"),
        ('"1" target="s"', '"1" target="s" directed="true"', "g.graphml:7:1: error: links of one direction"),
    ],
)
def test_what_is_wrong_in_graphml_is_said_at_its_place(tmp_path, old, new, said):
    assert old in ROW_OF_THREE
    (tmp_path / "g.graphml").write_text(ROW_OF_THREE.replace(old, new))
    with pytest.raises(InputError) as error:
        load(write(tmp_path, "graph: g.graphml\n"))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("nodes", "ends", "said"),
    [
        ([{"id": 1}, {"id": 2}, {"id": 1, "kind": "switch"}], (1, 2), "another node has this id"),
        ([{"id": 1}, {"id": 2}, {"id": "2"}], (1, 2), "another node has this id"),
        ([{"id": 1}, {"id": 2}], (1, 1), "a link joins two nodes"),
    ],
)
def test_nodes_of_one_id_and_links_from_a_node_to_itself_are_refused(tmp_path, nodes, ends, said):
    edge = {"source": ends[0], "target": ends[1], "bandwidth": 1, "latency": 5}
    (tmp_path / "g.json").write_text(json.dumps({"nodes": nodes, "links": [edge | {"source": 2, "target": 1}, edge]}))
    with pytest.raises(InputError, match=said):
        load(write(tmp_path, "graph: g.json\n"))


def test_what_files_between_the_two_generations_leave_out_is_understood(tmp_path):
    assert load(write(tmp_path, RING.replace("[Ring]", "Ring"))).dims == load(write(tmp_path, RING)).dims
    unnamed = {key: value for key, value in HIERARCHICAL.items() if key != "topology-name"}
    dims = (load(write(tmp_path, json.dumps(file), "net.json")).dims for file in (unnamed, HIERARCHICAL))
    assert next(dims) == next(dims)


EARLY = {
    "kinds by dimension": ({"topologies-per-dim": ["Ring", "AllToAll"]}, '["Ring", "FullyConnected"]', "[2, 1]"),
    "one kind for all": ({"topologies-per-dim": None, "topology-name": "Torus2D"}, '["Ring", "Ring"]', "[2, 2]"),
    "kinds in the name": (
        {"topologies-per-dim": None, "topology-name": "Ring_AllToAll"},
        '["Ring", "FullyConnected"]',
        "[2, 1]",
    ),
    "packages": (
        {"topologies-per-dim": None, "topology-name": "Ring_AllToAll", "units-count": None, "packages-counts": [2, 4]},
        '["Ring", "FullyConnected"]',
        "[2, 3]",
    ),
    "as many in each": (
        {
            "topologies-per-dim": None,
            "topology-name": "torus",
            "units-count": None,
            "dims-count": 2,
            "nodes-per-dim": 9,
        },
        '["Ring", "Ring"]',
        "[2, 2]",
    ),
}


@pytest.mark.parametrize("case", EARLY)
def test_a_file_from_before_links_were_counted_is_refused_with_the_lists_that_it_lacks(tmp_path, case):
    changes, kinds, counts = EARLY[case]
    file = {key: value for key, value in (HIERARCHICAL | {"links-count": None} | changes).items() if value}
    said = refusal(tmp_path, json.dumps(file), "net.json")
    assert f'"topologies-per-dim": {kinds}, "links-count": {counts}' in said


@pytest.mark.parametrize(
    ("kind", "npus", "links", "told"),
    [("Ring", 2, 1, "1 of the Ring's 2"), ("FullyConnected", 8, 6, "6 of the FullyConnected's 7"), ("Ring", 8, 3, "")],
)
def test_fewer_links_than_neighbours_are_told(tmp_path, kind, npus, links, told):
    file = HIERARCHICAL | {"topologies-per-dim": ["Switch", kind], "units-count": [4, npus], "links-count": [1, links]}
    assert [
        told in text and "dimension 1" in text for text in load(write(tmp_path, json.dumps(file), "net.json")).notes()
    ] == ([True] * bool(told))


REFUSALS = {
    "an unknown key": (RING + "colour: red\n", "net.yml:5:1", "colour"),
    "a misspelt key": (RING.replace("npus_count", "npu_count"), "net.yml:2:1", "npus_count"),
    "a missing key": (RING.replace("latency: [500.0]\n", ""), "net.yml:1:1", "latency"),
    "a list of another length": (RING.replace("[4]", "[4, 2]"), "net.yml:2:13", "1 entries"),
    "an unknown kind": (RING.replace("Ring", "Rng"), "net.yml:1:12", "did you mean 'Ring'"),
    "not a number": (RING.replace("50.0", ".nan"), "net.yml:3:13", "nan"),
    "a foreign unit": (RING.replace("500.0", '"5 parsec"'), "net.yml:4:11", "parsec"),
    "a dead NPU out of range": (MESH + "wafer: {dead_npus: [16]}\n", "net.yml:5:21", "0 to 15"),
    "a link over the edge of a row": (MESH + "wafer: {dead_links: [[3, 4]]}\n", "net.yml:5:22", "neighbours"),
    "a wafer on a ring": (RING + "wafer: {dead_npus: [1]}\n", "net.yml:5:8", "Mesh"),
    "too few spare rows": (MESH + "wafer: {dead_npus: [1, 5], spare_rows: 1}\n", "net.yml:5:40", "column 1"),
    "no graph file": ("graph: nowhere.json\n", "net.yml:1:8", "nowhere.json"),
    "a dragonfly without groups": (RING.replace("Ring", "Dragonfly"), "net.yml:2:14", "groups"),
    "a graph in two parts": ("graph: parts.json\n", "net.yml:1:8", "not connected"),
    "a wafer in two parts": (MESH + "wafer: {dead_npus: [1, 5, 9, 13]}\n", "net.yml:5:8", "NPU 2"),
    "oversubscription of a ring": (RING + "oversubscription: [2]\n", "net.yml:5:20", "FatTree"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_file_is_refused_with_its_place(tmp_path, case):
    text, place, names = REFUSALS[case]
    (tmp_path / "parts.json").write_text('{"nodes": [{"id": 0}, {"id": 1}], "links": []}')
    message = refusal(tmp_path, text)
    assert place in message
    assert names in message


def test_all_problems_of_a_file_are_told_at_once(tmp_path):
    message = refusal(tmp_path, RING.replace("Ring", "Rng").replace("[4]", "[0]") + "colour: red\n")
    assert message.count("error:") == 3


KEYS = "topology", "npus_count", "bandwidth", "latency"
AS_IN_LISTS = {"topologies-per-dim": "topology", "units-count": "npus_count", "link-bandwidth": "bandwidth"}


@given(
    st.dictionaries(st.sampled_from((*KEYS, "graph", "wafer")), st.none() | st.just([]) | st.just([0]) | st.just("x"))
)
def test_whatever_is_wrong_with_a_file_has_a_place_in_it(changed):
    lists = dict(zip(KEYS, (["Ring"], [4], [50.0], [500.0]), strict=True)) | changed
    hierarchical = HIERARCHICAL | {key: changed.get(own, HIERARCHICAL[key]) for key, own in AS_IN_LISTS.items()}
    with TemporaryDirectory() as folder:
        for content in (lists, hierarchical):
            present = {key: value for key, value in content.items() if value is not None}
            path = Path(write(Path(folder), json.dumps(present)))
            try:
                load(str(path))
            except InputError as error:
                assert all(one.location.file == str(path) and one.location.line for one in error.problems)


@pytest.mark.parametrize("graph", ["nowhere.json", "switches.json"])
def test_a_graph_without_npus_or_file_is_told_at_its_place_alone(tmp_path, graph):
    write(tmp_path, json.dumps({"nodes": [{"id": 0, "kind": "switch"}], "links": []}), "switches.json")
    assert refusal(tmp_path, f"graph: {graph}\n").count("error:") == 1


def test_edges_of_a_graph_must_join_known_nodes_and_say_their_figures(tmp_path):
    edges = [{"source": 0, "target": 9, "bandwidth": 1, "latency": 1}, {"source": 0, "target": 1}]
    (tmp_path / "g.json").write_text(json.dumps({"nodes": [{"id": 0}, {"id": 1}], "links": edges}, indent=1))
    message = refusal(tmp_path, "graph: g.json\n")
    assert message.count("g.json:") == 2
    assert "bandwidth, latency" in message


def test_a_dimension_of_a_torus_is_a_ring(tmp_path):
    assert load(write(tmp_path, RING.replace("Ring", "Torus"))).dims == load(write(tmp_path, RING)).dims
