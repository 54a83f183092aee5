"""Topologies of other programs: NCCL's server in, ns-3's and htsim's files out."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.errors import InputError, Problems
from simcore.network.topology.graph import graph_dimension
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.network.topology.model import Dimension, Graph, Topology
from simcore.network.topology.packet import FORMATS, is_packet_network, read_packet_network

SERVER = """\
<system version="1">
  <cpu numaid="0">
    <pci busid="0000:04:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90"><nvlink target="0000:07:00.0" count="9"/><nvlink target="0000:06:00.0" count="9"/></gpu>
      </pci>
      <pci busid="0000:19:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1">
    <pci busid="0001:28:00.0" link_speed="" link_width="0">
      <gpu dev="1" sm="90"><nvlink target="0000:07:00.0" count="18"/></gpu>
    </pci>
  </cpu>
</system>
"""


@pytest.fixture
def server(tmp_path):
    (tmp_path / "server.xml").write_text(SERVER)
    return tmp_path / "server.xml"


def rates(path):
    graph = load(str(path)).graph
    names = [(graph.names[a], graph.names[b]) for a, b in zip(graph.src, graph.dst, strict=True)]
    return dict(zip(names, graph.bandwidth_bytes_per_s, strict=True))


def test_links_of_a_server_have_the_bandwidths_that_nccl_counts_with(server):
    found = rates(server)
    assert found["gpu0", "nvswitch"] == found["nvswitch", "gpu1"] == pytest.approx(18 * 20.6e9)
    assert found["pci 0000:04:00.0", "gpu0"] == pytest.approx(48e9)
    assert found["cpu1", "gpu1"] == pytest.approx(12e9)
    assert found["pci 0000:19:00.0", "net mlx5_0"] == pytest.approx(50e9)
    assert found["cpu0", "cpu1"] == found["cpu1", "cpu0"]
    assert load(str(server)).npus == 2


def test_gpus_of_a_server_meet_on_nvlink(server):
    links = LinkGraph(load(str(server)))
    assert [links.names[links.end_of(link, 1)] for link in links.route(0, 1)] == ["nvswitch", "gpu1"]


def test_servers_of_one_file_share_a_switch_of_nvlink_and_nothing_else(server):
    """As of an NVL72: NCCL tells servers apart by host_hash (ncclGetSystemId in src/graph/topo.cc), busids are each
    server's own."""
    both = [SERVER.replace("<cpu", f'<cpu host_hash="{host}"').split("\n", 1)[1] for host in ("0x1", "0x2")]
    both[1] = both[1].replace('count="18"', 'count="2"')
    server.write_text('<system version="1">\n' + both[0].replace("</system>\n", "") + both[1])
    found, names = rates(server), load(str(server)).graph.names
    assert names[:4] == ("host0 gpu0", "host0 gpu1", "host1 gpu0", "host1 gpu1")
    assert len(names) == len(set(names)) == 15  # the switch and seven of each server
    assert found["host0 gpu1", "nvswitch"] == 9 * found["nvswitch", "host1 gpu1"] == pytest.approx(18 * 20.6e9)
    assert {ends for ends in found if ends[0][:5] != ends[1][:5]} == {ends for ends in found if "nvswitch" in ends}
    links = LinkGraph(load(str(server)))
    assert [links.names[links.end_of(link, 1)] for link in links.route(1, 2)] == ["nvswitch", "host1 gpu0"]
    server.write_text(re.sub("<nvlink[^>]*>", "", server.read_text()))
    with pytest.raises(InputError, match=r"not connected[^!]*no way for 'host1 gpu0'"):
        load(str(server))


def test_an_nvlink_leads_where_its_class_says(server):
    """To the processor on POWER9 and Grace; to nothing where the other GPU is hidden; there is no switch for either."""
    text = SERVER.replace('target="0000:07:00.0" count="9"', 'target="0000:28:00.0" count="2" tclass="0x068001"')
    text = text.replace('target="0000:06:00.0" count="9"', 'target="0005:00:00.0" count="4" tclass="0x030200"')
    text = text.replace('<nvlink target="0000:07:00.0" count="18"/>', '<c2c bw="22400" count="10"/>')
    server.write_text(text)
    found = rates(server)
    assert found["gpu0", "cpu0"] == found["cpu0", "gpu0"] == pytest.approx(2 * 20.6e9)
    assert found["cpu1", "gpu1"] == pytest.approx(224e9)
    assert {other for ends in found if "gpu0" in ends for other in ends} == {"gpu0", "cpu0", "pci 0000:04:00.0"}
    links = LinkGraph(load(str(server)))
    route = links.route(0, 1)
    assert [links.names[links.end_of(link, 1)] for link in route] == ["cpu0", "cpu1", "gpu1"]
    assert [links.latency_ns[link] for link in route] == [250, 500, 250]


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ('arch="ppc64" vendor="IBM"', 32), ('arch="arm64"', 6), ("", 10),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79"', 6),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106"', 10),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"', 22),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="173"', 40),
        ('arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"', 40),
        ('arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"', 16),
        ('arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="17"', 24),
        ('arch="x86_64" vendor="AuthenticAMD" familyid="26" modelid="2"', 32),
    ],
)  # fmt: skip
def test_processors_are_joined_as_nccl_counts_with(server, words, rate):
    """GB/s: ncclTopoGetInterCpuBw and ncclTopoAddCpu in src/graph/topo.cc of NCCL (2026)."""
    server.write_text(SERVER.replace('<cpu numaid="0"', f'<cpu numaid="0" {words}'))
    assert rates(server)["cpu0", "cpu1"] == rate * 1e9


@pytest.mark.parametrize(
    ("architecture", "rate"), [("906", 24e9), ("910", 36e9), ("942", 48e9), ("gfx90a", 36e9), ("gfx950", 48e9)]
)
def test_a_server_as_rccl_writes_it_has_the_links_between_its_gpus(server, architecture, rate):
    """GB/s of a link of XGMI: src/graph/topo.h of RCCL, which writes architectures either way (910 is gfx90a; its own
    models are in tools/topo_expl). A processor may be its other end."""
    text = SERVER.replace('0000:07:00.0" count="18', '0000:18:00.0" count="18').replace("0000:06:00.0", "0001:28:00.0")
    text = text.replace("nvlink", "xgmi").replace('sm="90"', f'gcn="{architecture}"')
    server.write_text(text)
    found = rates(server)
    assert (found["gpu0", "gpu1"], found["gpu1", "gpu0"]) == (9 * rate, 18 * rate)
    assert not any("nvswitch" in ends for ends in found)
    server.write_text(text.replace("0001:28:00.0", "0002:00:00.0"))
    assert not any("nvswitch" in ends for ends in rates(server))
    server.write_text(text.replace(f'"{architecture}"', '"gfx"'))
    with pytest.raises(InputError, match="gcn of <gpu>"):
        rates(server)


def test_halves_of_a_pci_switch_are_joined_where_the_file_says_so(server):
    """ncclTopoAddPciLinks in src/graph/topo.cc of NCCL: LOC_BW, 5000 GB/s; nothing where the other half is hidden."""
    text = re.sub("<nvlink[^>]*>", "", SERVER).replace("</cpu>\n</system>", "</pci></cpu></system>")
    text = text.replace('numaid="1">', 'numaid="1"><pci busid="0001:0A:00.0"><pcilink target="0000:04:00.0"/>')
    server.write_text(text.replace('<pci busid="0000:18', '<pcilink target="0001:0a:00.0"/><pci busid="0000:18'))
    found, links = rates(server), LinkGraph(load(str(server)))
    halves = "pci 0000:04:00.0", "pci 0001:0A:00.0"
    assert found[halves] == found[halves[::-1]] == 5000e9
    assert [links.names[links.end_of(link, 1)] for link in links.route(0, 1)] == [*halves, "gpu1"]
    server.write_text(text.replace('target="0000:04:00.0"', 'target="0000:05:00.0"'))
    assert not any("0000:05" in name for ends in rates(server) for name in ends)


def test_a_report_says_that_latencies_are_not_the_files(server):
    (server.parent / "infra.yaml").write_text(INFRASTRUCTURE)
    for file in (server, server.parent / "infra.yaml"):
        assert [text for text in simcore.run("micro_all_reduce", file).warnings if "250 ns a hop" in text]


@pytest.mark.parametrize("command", ["show", "cost", "export"])
def test_so_does_whoever_looks_at_it_or_writes_it(server, tmp_path, capsys, command):
    (tmp_path / "infra.yaml").write_text(INFRASTRUCTURE + "annotations: [{name: row}]\n")
    for file in (server, tmp_path / "infra.yaml"):
        out = ["-o", str(tmp_path / "net.txt"), "--force"] if command == "export" else []
        assert main(["topology", command, str(file), *out]) == 0
        assert "warning: " in (told := capsys.readouterr().err)
        assert "250 ns a hop" in told
        assert ("annotations (line" in told) == (file != server)


def test_a_dump_of_nccl_may_have_any_name(server):
    other = server.rename(server.with_suffix(".txt"))
    assert load(str(other)).npus == 2


def test_a_server_may_be_the_graph_of_a_topology(server):
    (server.parent / "net.yaml").write_text("name: mine\ngraph: server.xml\n")
    assert load(str(server.parent / "net.yaml")).graph == load(str(server)).graph


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SERVER.replace('count="18"', 'count="0"'), "server.xml:14:28: error: count of <nvlink>"),
        (SERVER.replace("<gpu", "<cat").replace("</gpu", "</cat"), "there is no GPU"),
        ('<system version="1"><cpu><pci busid="1" class="0x030200"/></cpu></system>', "NCCL_TOPO_DUMP_FILE"),
        (
            "<system><cpu>\n" + '<pci busid="1">' * 5000 + "</pci>" * 5000 + "</cpu></system>",
            "server.xml:2:931: error: nested",
        ),
        (SERVER.replace('dev="0" sm', 'dev="x" sm'), "server.xml:5:"),
        (SERVER.replace('busid="0000:18:00.0" ', ""), "has no busid"),
        ("<algo/>", "not a topology of NCCL"),
        (SERVER.replace('dev="1"', 'dev="0"'), "server.xml:14:7: error: another device of this server has the same"),
        (SERVER.replace("0001:28", "0000:18"), "server.xml:13:5: error: another device of this server has the same"),
        (SERVER.replace("0000:19", "0000:04"), "busid='0000:04:00.0'"),
        (SERVER.replace("<net ", '<net name="mlx5_0" speed="1"/><net ', 1), "name='mlx5_0'"),
        (SERVER.replace("</gpu>", '</gpu><gpu dev="5"/>', 1), "server.xml:5:118: error: another device of this server"),
        (SERVER.replace(' sm="90"', "", 1), "server.xml:5:9: error: <gpu> has no sm"),
        (SERVER.replace(' count="18"', ""), "server.xml:14:28: error: <nvlink> has no count"),
        (SERVER.replace("nvlink", "xgmi").replace("0000:07", "0001:28"), "server.xml:5:9: error: <gpu> has no gcn"),
        (SERVER.replace("0000:07", "0000:18"), "server.xml:5:30: error: a link joins two devices"),
    ],
)
def test_a_broken_file_of_nccl_is_refused(server, text, words):
    server.write_text(text)
    with pytest.raises(InputError) as caught:
        load(str(server))
    assert words in str(caught.value)


INFRASTRUCTURE = """\
name: two
devices:
- name: server
  components:
  - {name: npu, choice: npu, count: 4}
  - {name: sw, choice: switch, count: 1}
  - {name: nic, choice: nic, count: 4}
  links:
  - {name: xpu, physical: {bandwidth: {gigabytes_per_second: 450}}}
  - {name: pcie, physical: {bandwidth: {gigabits_per_second: 512}}}
  edges:
  - {ep1: {component: npu}, ep2: {component: "sw[0]"}, scheme: many2many, link: xpu}
  - {ep1: {component: npu}, ep2: {component: "nic[0:4]"}, scheme: one2one, link: pcie}
- name: switch
  components: [{name: port, choice: port, count: 8}, {name: asic, choice: cpu, count: 1}]
  links: [{name: ic, physical: {bandwidth: {gigabits_per_second: 400}}}]
  edges: [{ep1: {component: asic}, ep2: {component: port}, scheme: many2many, link: ic}]
instances:
- {name: host, device: server, count: 2}
- {name: leaf, device: switch, count: 1}
links: [{name: cable, physical: {bandwidth: {gigabits_per_second: 400}}}]
edges:
- {ep1: {instance: "host[0]", component: nic}, ep2: {instance: "leaf[0]", component: "port[0:4]"}, link: cable}
- {ep1: {instance: "host[1]", component: nic}, ep2: {instance: leaf, component: "port[4:8]"}, link: cable}
"""


def test_an_infragraph_is_a_topology_of_all_its_instances(tmp_path):
    (tmp_path / "infra.yaml").write_text(INFRASTRUCTURE)
    topology = load(str(tmp_path / "infra.yaml"))
    assert (topology.npus, topology.name) == (8, "two")
    assert len(topology.graph.src) == 2 * (2 * (4 + 4) + 8 + 8)
    found = rates(tmp_path / "infra.yaml")
    assert found["host.1.npu.3", "host.1.sw.0"] == 450e9
    assert found["host.1.nic.0", "leaf.0.port.4"] == found["leaf.0.asic.0", "leaf.0.port.7"] == 50e9
    links = LinkGraph(topology)
    assert len(links.route(0, 3)) == 2  # over the switch of their server
    assert len(links.route(0, 4)) == 6  # card, port, asic, port, card
    (tmp_path / "infra.yaml").write_text(INFRASTRUCTURE.replace("choice: npu", "choice: xpu"))
    assert load(str(tmp_path / "infra.yaml")).graph == topology.graph


def test_keys_of_an_infragraph_that_nobody_reads_are_told(tmp_path):
    text = INFRASTRUCTURE.replace("choice: cpu, count: 1", "choice: cpu, maker: us")
    (tmp_path / "infra.yaml").write_text(text.replace("450}", "450}, delay: {ns: 3}") + "annotations: [{name: row}]\n")
    (note,) = load(str(tmp_path / "infra.yaml")).notes()
    assert note.endswith("not read: delay (line 9), maker (line 15), annotations (line 25)")
    (tmp_path / "infra.yaml").write_text(INFRASTRUCTURE)
    assert "not read" not in load(str(tmp_path / "infra.yaml")).notes()[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("scheme: one2one, link: pcie", "scheme: one2one, link: usb", ["no such link", "infra.yaml:13:82", "pcie"]),
        ("gigabytes_per_second", "gigabyte_per_second", ["link 'xpu' has no bandwidth", "infra.yaml:12:81"]),
        ('"nic[0:4]"', '"nic[0:3]"', ["one2one", "infra.yaml:13"]),
        ("device: switch", "device: swich", ["no such device", "switch"]),
        ('component: "port[4:8]"', 'component: "port[9]"', ["0 to 7"]),
        ('"nic[0:4]"', '"nic[0:9]"', ["infra.yaml:13:46", "0 to 3", "nic[0:4]"]),
        ('"nic[0:4]"', '"nic[3:3]"', ["infra.yaml:13:46", "0 to 3"]),
        ('"nic[0:4]"', '"nic[0:4:0]"', ["infra.yaml:13:46", "0 to 3"]),
        ('"nic[0:4]"', '"nic[-:4]"', ["infra.yaml:13:46", "no such part"]),
        ('instance: "host[1]"', 'instance: "hots[1]"', ["no such part", "host"]),
        ("choice: npu", "choice: tpu", ["no NPU"]),
        ('ep2: {component: "sw[0]"}', "ep2: {component: sw, device: nvl}", ["no such part", "'nvl'"]),
        ('instance: "host[1]"', 'instance: "host[0]"', ["not connected", "host.1"]),
        ("{name: sw, choice: switch, count: 1}", "{name: switch, choice: device}", ["no such part", "sw"]),
        ("{name: nic, choice: nic, count: 4}", "{name: cx5, choice: device}", ["infra.yaml:7", "no such device"]),
        ("{name: nic, choice: nic, count: 4}", "{name: server, choice: device}", ["infra.yaml:7", "inside itself"]),
        ("{name: pcie, phys", "{name: xpu, phys", ["infra.yaml:10:12", "another one of links"]),
        ("{name: nic, choice: nic", "{name: sw, choice: nic", ["infra.yaml:7:12", "another one of components"]),
        ("- name: switch", "- name: server", ["infra.yaml:14:9", "another one of devices"]),
        ("{name: leaf, device", "{name: host, device", ["infra.yaml:20:10", "another one of instances"]),
        (
            "{gigabytes_per_second: 450",
            "{g_bits_per_second: 9, gigabytes_per_second: 450",
            ["said 2 times", "infra.yaml:9:39"],
        ),
        (
            "physical: {bandwidth: {gigabits",
            "physical: {latency: {nanoseconds: 9}, bandwidth: {gigabits",
            ["infra.yaml:10:52", "unit of a latency", "ms, ns, us"],
        ),
    ],
)
def test_a_wrong_infragraph_is_refused_with_its_place(tmp_path, old, new, words):
    (tmp_path / "infra.yaml").write_text(INFRASTRUCTURE.replace(old, new))
    with pytest.raises(InputError) as caught:
        load(str(tmp_path / "infra.yaml"))
    assert all(word in str(caught.value) for word in words), str(caught.value)


CARDS = """\
  - {ep1: {device: "card[0:2]", component: "bus[0]"}, ep2: {component: "nic[1:3]"}, link: pcie}
- name: card
  components: [{name: bus, choice: custom}, {name: asic, choice: cpu}, {name: plug, choice: device, count: 2}]
  links: [{name: pcie, physical: {bandwidth: {gigabits_per_second: 256}}}]
  edges:
  - {ep1: {component: bus}, ep2: {component: asic}, link: pcie}
  - {ep1: {component: asic}, ep2: {device: "plug[0:2]", component: "pin[0]"}, scheme: many2many, link: pcie}
- name: plug
  components: [{name: pin, choice: port}]
"""
COMPOSED = INFRASTRUCTURE.replace("- name: switch\n", CARDS + "- name: switch\n").replace(
    "  links:\n  - {name: xpu,", "  - {name: card, choice: device, count: 2}\n  links:\n  - {name: xpu,"
)
"""With devices inside devices, as the makers' own DGX has its cards and their plugs."""


def test_an_infragraph_has_devices_inside_devices(tmp_path):
    for name, text in (("composed.yaml", COMPOSED), ("flat.yaml", INFRASTRUCTURE)):
        (tmp_path / name).write_text(text)
    found, plain = rates(tmp_path / "composed.yaml"), rates(tmp_path / "flat.yaml")
    assert {ends: rate for ends, rate in found.items() if ".card." not in "".join(ends)} == plain
    assert len(found) == len(plain) + 2 * 2 * 2 * 4
    assert found["host.1.card.0.bus.0", "host.1.nic.1"] == 64e9
    assert found["host.0.card.1.asic.0", "host.0.card.1.plug.1.pin.0"] == 32e9


def test_an_infragraph_says_latencies_and_ways_into_devices_as_its_own_package_reads_them(tmp_path):
    """As infragraph 3.1's service: 'a[0:2].b[0]' leads into a device, whole components are
    joined as far as they go, nothing is joined with itself."""
    text = COMPOSED.replace(
        "  edges:\n", "  edges:\n  - {ep1: {component: npu}, ep2: {component: npu}, link: xpu}\n", 1
    )
    for old, new in (
        ('device: "card[0:2]", component: "bus[0]"', 'component: "card[0:2].bus[0]"'),
        ("name: nic, choice: nic, count: 4", "name: nic, choice: nic, count: 6"),
        ('"nic[0:4]"', "nic"),
        ('[0]", component: nic}', '[0]", component: "nic[:4]"}'),
        ('"port[4:8]"', "port"),
        ("400}}}]\nedges", "400}, latency: {choice: us, us: 1.5}}}]\nedges"),
    ):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "infra.yaml").write_text(text)
    graph = load(str(tmp_path / "infra.yaml")).graph
    latencies = {
        (graph.names[a], graph.names[b]): ns for a, b, ns in zip(graph.src, graph.dst, graph.latency_ns, strict=True)
    }
    assert latencies["host.0.nic.3", "leaf.0.port.3"] == latencies["leaf.0.port.5", "host.1.nic.5"] == 1500
    assert latencies["host.0.card.1.bus.0", "host.0.nic.2"] == latencies["host.0.npu.3", "host.0.nic.3"] == 250
    assert not any(a == b for a, b in latencies)
    assert "no latency it is 250 ns" in graph.note
    (tmp_path / "infra.yaml").write_text(INFRASTRUCTURE.replace("bandwidth: {", "latency: {ns: 90}, bandwidth: {"))
    assert not load(str(tmp_path / "infra.yaml")).graph.note


def test_an_infragraph_from_before_there_were_schemes_is_read_as_it_was_meant(tmp_path):
    """Older schemas say `many2many: true` or `false`, the `type` of a component and `g_bits_per_second`."""
    (tmp_path / "infra.yaml").write_text(INFRASTRUCTURE)
    graph = load(str(tmp_path / "infra.yaml")).graph
    text = INFRASTRUCTURE.replace("scheme: many2many", "many2many: true").replace("scheme: one2one", "many2many: false")
    text = text.replace('"sw[0]"', "sw").replace("choice:", "type:").replace("gigabits_", "g_bits_")
    (tmp_path / "infra.yaml").write_text(text)
    assert load(str(tmp_path / "infra.yaml")).graph == graph


@pytest.mark.parametrize(("number", "new"), [("host[1]", "host[-1]"), ("host[0]", "host[-2]"), ("sw[0]", "sw[-1]")])
def test_an_infragraph_may_count_from_the_end(tmp_path, number, new):
    """As infragraph 3.1's service and Python do: -1 is the last."""
    for name, text in (("plain.yaml", INFRASTRUCTURE), ("infra.yaml", INFRASTRUCTURE.replace(number, new))):
        (tmp_path / name).write_text(text)
    assert load(str(tmp_path / "infra.yaml")).graph == load(str(tmp_path / "plain.yaml")).graph


WORDS = sorted(set(re.findall(r"[a-z]\w+(?=:)", INFRASTRUCTURE)))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("new", ["x", None])
def test_an_infragraph_without_one_of_its_keys_is_read_or_refused(tmp_path, word, new):
    text = re.sub(rf"\b{word}:", f"{new}:" if new else f"{word}: 7 #", INFRASTRUCTURE, count=1)
    (tmp_path / "infra.yaml").write_text(text)
    with contextlib.suppress(InputError):
        assert load(str(tmp_path / "infra.yaml")).npus > 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["Ring", "Mesh", "Switch", "FullyConnected"]), st.integers(2, 4)),
        min_size=1,
        max_size=3,
    )
)
def test_the_links_of_ns3s_file_are_the_links_there_are(shape):
    links = LinkGraph(Topology(tuple(Dimension(kind, size, 50e9, 500.0) for kind, size in shape)))
    (nodes, switches, count), listed, *lines = [line.split() for line in FORMATS[".txt"](links).splitlines()]
    assert (int(nodes), int(switches), 2 * int(count)) == (links.nodes, links.nodes - links.npus, len(links))
    assert list(map(int, listed)) == list(range(links.npus, links.nodes))
    pairs = [(int(line[0]), int(line[1])) for line in lines]
    there = list(zip(links.src.tolist(), links.dst.tolist(), strict=True))
    assert sorted(pairs + [pair[::-1] for pair in pairs]) == sorted(there)
    assert all(line[2:] == ["400Gbps", "0.0005ms", "0"] for line in lines)


def test_a_fat_tree_is_htsims():
    """The numbers of htsim's own example of 32 nodes, 4:1 oversubscribed (its test of fat_tree_topology)."""
    tree = Topology((Dimension("FatTree", 32, 12.5e9, 1000.0, oversubscription=4.0, routers=4),))
    tiers = ["Nodes 32 Tiers 2 Podsize 32"]
    tiers += ["Tier 0 Downlink_speed_Gbps 100 Radix_Down 8 Radix_Up 2 Oversubscribed 4 Downlink_Latency_ns 1000"]
    tiers += ["Switch_Latency_ns 0 Tier 1 Downlink_speed_Gbps 100 Radix_Down 4 Downlink_Latency_ns 1000"]
    tiers += ["Switch_Latency_ns 0"]
    assert FORMATS[".topo"](LinkGraph(tree)).split() == " ".join(tiers).split()


def as_htsim_reads(text):
    """The figures of each tier, as FatTreeTopology::load of github.com/Broadcom/csg-htsim takes them."""
    head, tiers = {}, []
    for key, value in (line.split(" ") for line in text.splitlines() if line):
        if key == "Tier":
            assert int(value) == len(tiers)
            tiers.append({})
        else:
            here = tiers[-1] if tiers else head
            assert key.lower() not in here, "htsim ends at a second setting"
            here[key.lower()] = int(value)
    return head, tiers


@given(st.integers(2, 9), st.integers(1, 8), st.sampled_from([1.0, 2.0, 4.0, 1.5]), st.sampled_from([1.0, 12.5, 50.0]))
def test_what_htsim_reads_of_a_fat_tree_are_its_links(leaves, npus, ratio, gbyte_per_s):
    dim = Dimension("FatTree", leaves * npus, gbyte_per_s * 1e9, 700.0, routers=leaves, oversubscription=ratio)
    links = LinkGraph(Topology((dim,)))
    try:
        head, (tor, agg) = as_htsim_reads(FORMATS[".topo"](links))
    except InputError:
        assert npus % ratio or ratio % 1
        return
    assert head == {"nodes": leaves * npus, "tiers": 2, "podsize": leaves * npus}
    ratio = tor.get("oversubscribed", 1)
    assert tor["radix_down"] // tor["radix_up"] == ratio, "or htsim sees a mismatch"
    uplinks = head["nodes"] * tor["downlink_speed_gbps"] // (agg["downlink_speed_gbps"] * ratio)
    spines = uplinks // agg["radix_down"]
    assert (uplinks, spines) == (leaves * tor["radix_up"], tor["radix_up"])
    assert 2 * (head["nodes"] + uplinks) == len(links)
    assert {tor["downlink_speed_gbps"], agg["downlink_speed_gbps"]} == set(links.bandwidth_bytes_per_s / 125e6)
    assert {tier["downlink_latency_ns"] for tier in (tor, agg)} == set(links.latency_ns)


def test_the_command_writes_files_and_refuses_what_they_cannot_say(tmp_path, capsys):
    assert main(["topology", "export", "torus_4x4x4", "-o", str(tmp_path / "torus.txt")]) == 0
    assert (tmp_path / "torus.txt").read_text().startswith("64 0 192\n")
    assert main(["topology", "export", "torus_4x4x4", "-o", str(tmp_path / "torus.topo")]) == 2
    assert main(["topology", "export", "torus_4x4x4", "-o", str(tmp_path / "torus.gif")]) == 2
    assert "fat trees" in capsys.readouterr().err
    assert main(["topology", "export", "optical_16", "-o", str(tmp_path / "optical.txt")]) == 0
    assert "at first: export optical_16_full, too" in capsys.readouterr().err


@given(
    st.lists(
        st.tuples(st.sampled_from(["Ring", "Mesh", "Switch", "FullyConnected"]), st.integers(2, 4)),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_a_network_written_for_ns3_is_read_back_link_by_link(shape, blank):
    links = LinkGraph(Topology(tuple(Dimension(kind, size, 50e9, 500.0) for kind, size in shape)))
    head, *lines = FORMATS[".txt"](links).splitlines()
    spread = [part for line in lines for part in ([" ", line] if blank else [line] if line else [])]
    text = "\n".join([head, *spread]) + "\n"  # ns-3 asks for words, wherever lines end
    assert is_packet_network(text)
    graph = read_packet_network(text, "net.txt", Problems())
    assert graph.npus == links.npus

    def sides(src, dst, rate, latency_ns):
        return sorted(zip(list(src), list(dst), list(rate), list(latency_ns), strict=True))

    assert sides(graph.src, graph.dst, graph.bandwidth_bytes_per_s, graph.latency_ns) == sides(
        links.src.tolist(), links.dst.tolist(), links.bandwidth_bytes_per_s.tolist(), links.latency_ns.tolist()
    )


@given(st.lists(st.tuples(st.sampled_from([12.5e9, 25e9]), st.sampled_from([0.0, 500.0])), min_size=1), st.randoms())
def test_links_of_one_pair_may_stand_in_any_order(there, draw):
    back, count = draw.sample(there, len(there)), len(there)
    rates, latencies = zip(*there, *back, strict=True)
    graph = Graph(2, ("a", "b"), (0,) * count + (1,) * count, (1,) * count + (0,) * count, rates, latencies)
    lines = FORMATS[".txt"](LinkGraph(Topology((graph_dimension(graph),), graph=graph))).splitlines()
    assert lines[0] == f"2 0 {count}"
    assert sorted(line.split()[2:4] for line in lines[2:]) == sorted(
        [f"{rate / 125e6:g}Gbps", f"{ns / 1e6:g}ms"] for rate, ns in there
    )


SIMAI = """4 2 1 1 4 H20
2 3
0 2 900Gbps 0.000025ms 0
1 2 900Gbps 0.000025ms 0
0 3 200Gbps 0.001ms 0
1 3 200Gbps 0.001ms 0
"""


def test_a_topology_of_simai_is_read_as_it_is(tmp_path, capsys):
    """Words of its first line: nodes, GPUs of a server, NVSwitches, switches, links, GPU (gen_Topo_Template.py)."""
    (tmp_path / "Rail_2g").write_text(SIMAI)
    topology = load(str(tmp_path / "Rail_2g"))
    assert (topology.npus, len(topology.graph.src)) == (2, 8)
    assert sorted(set(topology.graph.latency_ns)) == [25.0, 1000.0]
    assert max(topology.graph.bandwidth_bytes_per_s) == 112.5e9
    assert (
        main(["run", "--workload", "gpt_7b", "--topology", str(tmp_path / "Rail_2g"), "-o", str(tmp_path / "o")]) == 0
    )
    assert "the workload's header says 512 GPUs and the topology 2 NPUs" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["0", "0.0", "1e-6", "0.01", None])
def test_links_that_lose_packets_are_told(tmp_path, rate):
    (tmp_path / "net.txt").write_text(f"3 1 2\n2\n0 2 400Gbps 0.0005ms {rate or ''}\n1 2 400Gbps 0.0005ms 0\n")
    assert bool(load(str(tmp_path / "net.txt")).notes()) == (rate in {"1e-6", "0.01"})


def test_what_stands_behind_the_links_is_the_authors_as_in_the_files_of_hpcc(tmp_path):
    notes = "\nFirst line: total node #, switch node #, link #\nsrc0 dst0 rate delay error_rate\n"
    for name, text in (("plain", SIMAI), ("noted", SIMAI + notes)):
        (tmp_path / name).write_text(text)
    assert load(str(tmp_path / "noted")).graph == load(str(tmp_path / "plain")).graph
    (tmp_path / "more").write_text(SIMAI + "0 9 x\n1 9 x\n")
    with pytest.raises(InputError) as caught:
        load(str(tmp_path / "more"))
    assert [problem.message for problem in caught.value.problems] == ["there are 6 links"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0 3 200Gbps", "0 3 200", ["net:5:5", "a rate above 0"]),
        ("0 3 200Gbps", "0 9 200Gbps", ["net:5:3", "0 to 3"]),
        ("0 3 200Gbps", "0 0 200Gbps", ["net:5:3", "another node"]),
        ("4 H20", "5 H20", ["net:1", "there are 4 links"]),
        ("1 2 900Gbps 0.000025ms", "1 2 900Gbps -1", ["net:4:13", "a delay"]),
        ("2 3\n", "2 x\n", ["net:2:3", "a node"]),
        (SIMAI, "4 2 2 0 4 H20\n", ["net:1:9", "net:2:1", "a node"]),
    ],
)
def test_a_wrong_list_of_links_is_refused_with_its_place(tmp_path, old, new, words):
    (tmp_path / "net").write_text(SIMAI.replace(old, new))
    with pytest.raises(InputError) as caught:
        load(str(tmp_path / "net"))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert len(caught.value.problems) == len({*caught.value.problems})


@pytest.mark.parametrize("option", ["--topology", "--system", "--workload"])
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ENABLE_QCN 1\nUSE_DYNAMIC_PFC_THRESHOLD 1\n", "SimAI.conf"),
        ("Nodes 16\nTiers 2\nPodsize 16\n", "htsim's fat tree"),
        ("Nodes 16\nConnections 4\n0->1 start 0 size 100\n", "htsim's list of connections"),
        ('{"logical-dims": ["16", "8"]}', "logical dimensions of a network for ns-3"),
        ("num-npus: 8\nnum-packages: 4\ntopology: Torus3D\n", "ASTRA-sim's Garnet"),
        ('{"active_power_W": 250, "idle_power_W": 35}', "power and energy"),
        ('{"execution_trace_prefixes": ["a", "b"]}', "list of jobs"),
        ('{"1": [0, 1, 2, 3]}', "groups of ranks"),
        ('{\n "schema": "1.0.2-chakra.0.0.4", "pid": 5, "nodes": []}', "PyTorch's host execution trace"),
        ("infrastructure:\n  devices:\n  - name: dgx\n    connections: [cpu.0.fabric.cpu.1]\n", "draft of InfraGraph"),
    ],
)
def test_a_file_of_another_simulator_is_named_with_what_to_write_instead(tmp_path, capsys, option, text, named):
    (tmp_path / "theirs").write_text(text)
    given = {"--workload": "dlrm", "--topology": "ring8"} | {option: str(tmp_path / "theirs")}
    assert main(["run", *(word for pair in given.items() for word in pair)]) == 2
    said = capsys.readouterr().err
    assert named in said
    assert "hint:" in said


def test_a_timeline_is_no_workload_and_the_message_says_what_it_is(tmp_path, capsys):
    path = tmp_path / "timeline.json"
    path.write_text('{"otherData": {"left_out": []}, "traceEvents": []}')
    for words in (["run", "--topology", "ring8", "--workload", str(path)], ["convert", str(path), str(tmp_path / "x")]):
        assert main(words) == 2
        assert capsys.readouterr().err.splitlines()[0].endswith("this is a profiler's timeline (Chrome trace)")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("-g", "--gpus"), ("-g_p_s", "--gpus-per-server"), ("-nv", "--nvlink-bw"), ("-nic=48.5", "--nic-bw"),
        ("-n_p_s", "--nics-per-server"), ("-busbw", "--busbw"), ("-n", "--topology"), ("-dp_o", "--dp-overlap"),
        ("--ep-overlap-ratio", "--ep-overlap"), ("--num-passes", "--iterations"), ("--result", "-o"),
    ],
)  # fmt: skip
def test_an_option_of_another_simulator_is_named_as_it_is_called_here(theirs, ours, capsys):
    assert main(["run", "--workload", "dlrm", theirs, "2"]) == 2
    said = capsys.readouterr().err
    assert f"{theirs.partition('=')[0]}: error: there is no such option" in said
    assert f"expected: {ours}, as it is called here" in said
