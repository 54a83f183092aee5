"""What networks cost: closed forms of Clos networks, ASTRA-sim 1.0's own lines, a published sheet of clusters."""

import json
from math import isclose, prod
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.cli import main
from simcore.errors import InputError
from simcore.network.topology.cost import clos, cost_of, read_prices, shipped_prices, total_usd
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.network.topology.model import Dimension, Topology

GIB = 2.0**30
NCCL = """<system version="1"><cpu numaid="0">
  <pci busid="0000:18:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
    <gpu dev="0" sm="90"><nvlink target="0000:07:00.0" count="18"/></gpu></pci>
  <pci busid="0000:19:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
    <gpu dev="1" sm="90"><nvlink target="0000:07:00.0" count="18"/></gpu></pci>
</cpu></system>
"""
SPEEDS = (400_000, 800_000)  # Mb/s of network cards
RADIX = st.sampled_from([4, 8, 16, 64])


def cost(dims, prices="400g-2024", lengths=()):
    return cost_of(LinkGraph(Topology(tuple(dims))), read_prices(prices), lengths)


def test_the_line_of_astra_sims_slides_is_printed(tmp_path, capsys):
    network = {
        "topology-name": "Hierarchical", "dimensions-count": 1, "topologies-per-dim": ["FullyConnected"],
        "dimension-type": ["N"], "units-count": [64], "links-count": [63], "link-latency": [500], "link-bandwidth": [1],
    }  # fmt: skip
    (tmp_path / "net.json").write_text(json.dumps(network))
    assert main(["topology", "cost", str(tmp_path / "net.json"), "--compat", "astra-sim-1.0"]) == 0
    line = "[CostModel] Adding (inter-Node, Link) bandwidth: 1, radix: 1, count: 2016 (added cost: $8064)\n"
    assert capsys.readouterr().out == line
    (tmp_path / "mine.yaml").write_text("default: [Node]\nlevels: {Node: {link: {usd_per_gbyte_per_s: 1}}}\n")
    words = ["--compat", "astra-sim-1.0", "--prices", str(tmp_path / "mine.yaml")]
    assert main(["topology", "cost", str(tmp_path / "net.json"), *words]) == 0
    assert "(inter-Node, Link)" in (said := capsys.readouterr().out) and "$8064" not in said


@given(
    st.lists(
        st.tuples(st.sampled_from(["Ring", "FullyConnected", "Switch"]), st.integers(3, 5)), min_size=1, max_size=3
    ),
    st.integers(1, 3),
    st.sampled_from([("Node", 4.0, 13.0, 0.0), ("Pod", 7.4, 23.7, 47.8)]),
)
def test_dollars_are_those_of_astra_sims_formulas(shape, lanes, level):
    name, link, switch, nic = level
    expected, npus = 0.0, prod(size for _, size in shape)
    dims = []
    for kind, size in shape:
        links = lanes * {"Ring": 2, "FullyConnected": size - 1, "Switch": 1}[kind]
        dims.append(Dimension(kind, size, 3 * GIB, 0.0, links, links_per_npu=True, level=name))
        cables = {"Ring": size * links // 2, "FullyConnected": size * lanes * (size - 1) // 2, "Switch": size * links}
        count = npus // size * cables[kind]
        expected += 3 * count * (link + (switch + nic) * (kind == "Switch"))
    assert isclose(total_usd(cost(dims, "astra-sim-1.0")), expected)


@given(RADIX)
def test_a_fat_tree_of_three_levels_takes_the_boxes_of_its_closed_form(radix):
    assert clos(radix**3 // 4, radix).boxes == 5 * radix**2 // 4


@given(st.integers(1, 5000), RADIX)
def test_boxes_have_the_ports_for_what_is_asked_and_both_ends_of_inner_cables(ports, radix):
    found = clos(ports, radix)
    assert found.boxes * radix >= ports + 2 * found.cables
    assert found.cables >= ports * (ports > radix)
    assert found.boxes <= clos(ports + 1, radix).boxes


MORE = st.sampled_from([("n0", "n1"), ("n1", "n2"), ("n1", "s1"), ("n2", "s1")])


@given(more=st.dictionaries(MORE, st.sampled_from([100, 200, 400])))
def test_a_graph_takes_the_cards_and_ports_of_the_links_that_it_has(tmp_path_factory, more):
    """Links between two NPUs need no card, and a port costs what its own link is fast."""
    folder, names = tmp_path_factory.mktemp("graph"), ["n0", "n1", "n2", "s0", "s1"]
    speeds = {("n0", "s0"): 100, ("n1", "s0"): 400, ("n2", "s0"): 100, ("s0", "s1"): 200} | more
    edges = [
        {"source": one, "target": other, "bandwidth": f"{rate} Gb/s", "latency": 500}
        for (one, other), rate in speeds.items()
    ]
    nodes = [{"id": name} | ({"kind": "switch"} if name[0] == "s" else {}) for name in names]
    graph = {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": edges}
    (folder / "net.json").write_text(json.dumps(graph))
    (folder / "net.yaml").write_text("graph: net.json\n")
    model = {"models": [{"rate": "100 Gb/s", "usd": 1, "ports": 4}]}
    parts = [{part: {"usd_per_gbyte_per_s": 8}} for part in ("link", "nic", "switch")] + [{"switch": model}]
    found = []
    for part in parts:
        (folder / "p.json").write_text(json.dumps({"default": ["a"], "levels": {"a": part}}))
        items = cost_of(LinkGraph(load(str(folder / "net.yaml"))), read_prices(str(folder / "p.json")))
        found.append(total_usd(items))
    ends = [{one[0], other[0]} for one, other in speeds]
    cards = sum(rate for of, rate in zip(ends, speeds.values(), strict=True) if of == {"n", "s"})
    ports = [sum(rate for pair, rate in speeds.items() if name in pair) for name in ("s0", "s1")]
    boxes = sum(clos(rate // 100, 4).boxes for rate in ports)  # a port for every 100 Gb/s
    assert found == [sum(speeds.values()), cards, sum(ports), boxes]


SHEET = {64: 8, 128: 48, 256: 96, 512: 192, 1024: 384, 2048: 768, 4096: 2560, 8192: 5120, 16384: 10240}
"""Servers of 8 GPUs -> 64-port switches; public spreadsheet of H100 clusters, August 2024 (prices/400g-2024.yaml)."""


@pytest.mark.parametrize(("servers", "switches"), SHEET.items())
def test_rail_optimised_clusters_take_the_switches_of_the_published_sheet(servers, switches):
    items = cost([Dimension("Switch", 8, 450e9, 0.0), Dimension("Switch", servers, 50e9, 0.0)])
    assert sum(item.count for item in items if item.part == "switch") == switches


@pytest.mark.parametrize(("servers", "usd"), [(64, 963_840), (256, 8_698_880), (512, 17_397_760)])
def test_their_network_costs_what_the_sheet_says_within_five_percent(servers, usd):
    items = cost([Dimension("Switch", 8, 450e9, 0.0), Dimension("Switch", servers, 50e9, 0.0)])
    assert total_usd(items) == pytest.approx(usd, rel=0.05)


def test_a_link_of_twice_the_rate_takes_two_cables():
    one, two = (cost([Dimension("Ring", 8, rate, 0.0)]) for rate in (50e9, 100e9))
    assert (one[0].count, two[0].count) == (8, 16)


@given(st.integers(2, 40), st.integers(1, 9), st.integers(1, 5))
def test_cards_of_several_ports_are_as_many_as_their_ports_fill_and_join_nothing(tmp_path_factory, npus, lanes, ports):
    """An NPU's link of several ports takes whole cards of its own, or a share of one; no card has cables inside."""
    file = tmp_path_factory.mktemp("cards") / "p.yaml"
    card, cable = f"{{rate: 1, ports: {ports}, usd: 7}}", "{rate: 1, usd: 3}"
    file.write_text(f"default: [a]\nlevels: {{a: {{nic: {{models: [{card}]}}, link: {{models: [{cable}]}}}}}}\n")
    items = cost([Dimension("Switch", npus, lanes * 1e9, 0.0)], str(file))
    cards = npus * -(-lanes // ports) if lanes > ports else -(-npus // (ports // lanes))
    assert [(item.part, item.count) for item in items] == [("link", npus * lanes), ("nic", cards)]


@given(st.integers(2, 200), st.lists(st.tuples(RADIX, st.integers(1, 999)), min_size=1, max_size=3), st.integers(0, 99))
def test_of_several_models_the_one_that_is_cheapest_with_its_cables_is_bought(tmp_path_factory, npus, boxes, cable):
    def total(models):
        file = tmp_path_factory.mktemp("models") / "p.yaml"
        sold = ", ".join(f"{{rate: 1, ports: {ports}, usd: {usd}}}" for ports, usd in models)
        link = f"link: {{models: [{{rate: 1, usd: {cable}}}]}}"
        file.write_text(f"default: [a]\nlevels: {{a: {{switch: {{models: [{sold}]}}, {link}}}}}\n")
        return total_usd(cost([Dimension("Switch", npus, 1e9, 0.0)], str(file)))

    assert total(boxes) == min(total([model]) for model in boxes)


def test_a_cable_that_nobody_sells_is_refused():
    with pytest.raises(InputError, match="70 m long"):
        cost([Dimension("Ring", 8, 50e9, 0.0)], lengths=[70])


@pytest.mark.parametrize("name", shipped_prices())
def test_every_shipped_price_file_is_read_and_names_its_source(name):
    assert read_prices(name).source


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("default: [a]\nlevels: {a: {link: {models: [{usd: 3}]}}}\n", ["p.yaml:2", "rate"]),
        ("default: [b]\nlevels: {a: {}}\n", ["p.yaml:1", "a"]),
        ("default: [a]\nlevels: {a: {}, b: c}\n", ["p.yaml:2", "a", "'c'"]),
        ("default: [a]\nlevels: {a: {cable: {}}}\n", ["p.yaml:2", "cable", "link"]),
        ("default: [a]\nlevels: {a: {switch: {models: [{rate: 1, ports: 3}]}}}\n", ["p.yaml:2", "even number"]),
        ("default: [a]\nlevels: {a: {nic: {models: [{rate: 1, ports: 0}]}}}\n", ["p.yaml:2:46", "ports"]),
        (
            "default: [a]\nlevels: {a: {nic: {usd_per_gbyte_per_s: 2, models: [{rate: 1}]}}}\n",
            ["p.yaml:2:41", "has no effect beside models"],
        ),
        ("default: [a]\nlevels: {a: {link: {models: [{rate: 1, watts: 2}]}}}\n", ["p.yaml:2:30", "'usd' is missing"]),
        ("default: [a]\nlevels: {a: {switch: {models: [{rate: 1, usd: 2}]}}}\n", ["p.yaml:2:32", "'ports' is missing"]),
        ("default: [a]\nlevels: {a: {nic: {watts_per_gbyte_per_s: 1}}}\n", ["'usd_per_gbyte_per_s' is missing"]),
        ("default: [a]\nlevels: {a: {nic: {models: []}}}\n", ["p.yaml:2:28", "one model"]),
        ("default: [a]\nlevels: {a: {nic: {models: [{rate: 1, usd: -1}]}}}\n", ["p.yaml:2:44", "usd must be >= 0"]),
        ("defaults: [a]\nlevels: {a: {}}\n", ["p.yaml:1:1", "did you mean 'default'"]),
    ],
)
def test_a_wrong_price_file_is_refused_with_its_place(tmp_path, capsys, text, words):
    (tmp_path / "p.yaml").write_text(text)
    assert main(["topology", "cost", "ring8", "--prices", str(tmp_path / "p.yaml")]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said


def test_a_typo_in_any_key_of_a_price_file_is_told_with_the_right_one(tmp_path):
    models = [{"rate": 1, "ports": 64, "usd": 1, "watts": 1, "usd_per_m": 1, "up_to_m": 5}]
    parts = {"link": {"models": models}, "nic": {"usd_per_gbyte_per_s": 1, "watts_per_gbyte_per_s": 1}, "switch": {}}
    file = {"name": "a", "source": "b", "gigabyte": "decimal", "usd_per_kwh": 1, "default": ["a"],
            "levels": {"a": {"length_m": 2, **parts}}}  # fmt: skip
    for key in [*file, *parts, *parts["nic"], *models[0], "length_m", "models"]:
        (tmp_path / "p.json").write_text(json.dumps(file).replace(f'"{key}":', f'"{key}s":'))
        with pytest.raises(InputError, match=f"did you mean '{key}'"):
            read_prices(str(tmp_path / "p.json"))


def test_the_table_of_astra_sim_knows_our_words_for_levels():
    known = read_prices("astra-sim-1.0").levels
    assert known["server"] is known["cluster"] is known["Node"]


@given(st.permutations(['"a": {"switch": {"usd_per_gbyte_per_s": 1}}', '"b": {}', '"c": "a"', '"d": "b"']))
def test_a_level_has_its_second_name_wherever_that_stands(entries):
    with TemporaryDirectory() as folder:
        path = Path(folder, "p.yaml")
        path.write_text(f"default: [a]\nlevels: {{{', '.join(entries)}}}\n")
        levels = read_prices(str(path)).levels
    assert (levels["c"], levels["d"]) == (levels["a"], levels["b"])


def test_a_level_without_prices_is_refused(tmp_path, capsys):
    (tmp_path / "net.yaml").write_text(
        "topology: [Ring]\nnpus_count: [8]\nbandwidth: [50]\nlatency: [500]\nlevels: [moon]\n"
    )
    assert main(["topology", "cost", str(tmp_path / "net.yaml")]) == 2
    assert f"{tmp_path / 'net.yaml'}: error" in (said := capsys.readouterr().err) and "moon" in said


@given(
    st.lists(st.tuples(st.sampled_from(["Ring", "FullyConnected", "Switch", "FatTree"]), st.integers(2, 9)), min_size=1,
             max_size=3),
    st.permutations([40e9, 50e9, 60e9]),
)  # fmt: skip
def test_a_network_costs_what_its_dimensions_cost_in_any_order(shape, rates):
    dims = [Dimension(kind, size, rate, 0.0, level="cluster") for (kind, size), rate in zip(shape, rates, strict=False)]
    npus = prod(dim.npus for dim in dims)
    alone = sum(npus // dim.npus * total_usd([item for item in cost([dim]) if item.part != "switch"]) for dim in dims)
    for order in (dims, dims[::-1]):
        items = cost(order)
        assert isclose(total_usd([item for item in items if item.part != "switch"]), alone)
        assert sorted(item.usd for item in items) == sorted(item.usd for item in cost(dims))


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("h100_fat_tree", ["dimension 0"]),
        ("optical_16", ["circuit switch"]),
        ("ring8", []),
        ("tpu_v4_torus", []),  # three dimensions that are alike are at one level
    ],
)
def test_what_is_not_in_the_sum_is_said(capsys, name, missing):
    assert main(["topology", "cost", name, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["missing"]
    assert len(said) == len(missing)
    assert all(word in text for word, text in zip(missing, said, strict=True))


def test_a_server_alone_has_no_price_in_a_table_that_leaves_servers_out(tmp_path, capsys):
    for name in ("dgx_a100_8", str(tmp_path / "server.xml")):
        (tmp_path / "server.xml").write_text(NCCL)
        assert main(["topology", "cost", name]) == 2
        assert "no part of it has a price in 400g-2024" in (said := capsys.readouterr().err) and "level server" in said


MINE = """levels:
  server: {switch: {usd_per_gbyte_per_s: 10}}
  cluster:
    link: {models: [{rate: 400 Gb/s, usd: 1000}]}
    nic: {models: [{rate: 400 Gb/s, usd: 1500}]}
    switch: {models: [{rate: 400 Gb/s, ports: 64, usd: 36000}]}
default: [server, cluster]
"""


def test_cards_of_nccls_server_are_bought_between_servers_and_its_switches_inside(tmp_path, capsys):
    nets = "".join(f'<net name="mlx5_{number}" dev="{number}" speed="{speed}"/>' for number, speed in enumerate(SPEEDS))
    card = f'<pci busid="0000:1a:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><nic>{nets}</nic></pci></cpu>'
    (tmp_path / "server.xml").write_text(NCCL.replace("</cpu>", card))
    (tmp_path / "mine.yaml").write_text(MINE)
    assert (
        main(["topology", "cost", str(tmp_path / "server.xml"), "--prices", str(tmp_path / "mine.yaml"), "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    sums = {
        level: sum(item["usd"] for item in found["items"] if item["level"] == level) for level in ("server", "cluster")
    }
    pci, nvlink, nets = 3 * 48 + 48, 2 * 18 * 20.6, sum(SPEEDS) / 8000  # the ports of two of PCI, of NVSwitch
    assert isclose(sums["server"], 10 * (pci + nvlink + nets))
    assert sums["cluster"] == 1500 * 3  # a card of 400 Gb/s, and two for 800
    assert found["missing"] == ["what network cards lead to: the file does not tell"]


@given(st.integers(1, 5), st.integers(1, 8))
def test_infragraphs_instances_are_servers_and_switches(servers, cards):
    """So many cables, cards and a switch of as many ports; what is inside is the price of a server's level."""
    parts = [f"{{name: {part}, choice: {part}, count: {cards}}}" for part in ("npu", "nic")]
    edges = [
        f'{{ep1: {{instance: "host[{at}]", component: nic}}, link: cable, '
        f'ep2: {{instance: leaf, component: "port[{at * cards}:{(at + 1) * cards}]"}}}}'
        for at in range(servers)
    ]
    inner = "links: [{name: in, physical: {bandwidth: {gigabits_per_second: 512}}}]"
    graph = f"""devices:
- {{name: server, components: [{", ".join(parts)}, {{name: sw, choice: switch}}], {inner},
   edges: [{{ep1: {{component: npu}}, ep2: {{component: nic}}, link: in}},
           {{ep1: {{component: npu}}, ep2: {{component: sw}}, scheme: many2many, link: in}}]}}
- {{name: leaf, components: [{{name: port, choice: port, count: {servers * cards}}}, {{name: asic, choice: cpu}}],
   {inner}, edges: [{{ep1: {{component: asic}}, ep2: {{component: port}}, scheme: many2many, link: in}}]}}
instances: [{{name: host, device: server, count: {servers}}}, {{name: leaf, device: leaf}}]
links: [{{name: cable, physical: {{bandwidth: {{gigabits_per_second: 400}}}}}}]
edges: [{", ".join(edges)}]
"""
    with TemporaryDirectory() as folder:
        (Path(folder) / "net.yaml").write_text(graph)
        items = cost_of(LinkGraph(load(str(Path(folder) / "net.yaml"))), read_prices("400g-2024"))
    assert [(item.part, item.count, item.level) for item in items] == [
        ("link", servers * cards, "cluster"), ("nic", servers * cards, "cluster"), ("switch", 1, "cluster")
    ]  # fmt: skip
