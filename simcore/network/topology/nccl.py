"""A topology as NCCL and RCCL write it (NCCL_TOPO_DUMP_FILE, XML): GPUs, NVLink, XGMI, PCI, processors, cards.

Bandwidths are those that their own search counts with (src/graph/topo.h and topo.cc, BSD and MIT licences): a link of
NVLink by the GPU's compute capability, of XGMI by its architecture, PCI by speed and width, a card by its speed.
Latencies are not in the file: ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from operator import itemgetter
from pathlib import Path

from simcore.markup import Element, read_markup
from simcore.network.topology.model import Edge, Graph, assemble

NOTE = "NCCL's file has no latencies: they are 250 ns a hop on NVLink and XGMI, 500 ns elsewhere"
GIGA = 1e9
NVLINK_GB_PER_S = ((100, 40.1), (90, 20.6), (87, 20.0), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0))
"""Least compute capability x 10 -> GB/s of one link in one direction; above the first that is known."""
XGMI_GB_PER_S = ((0x940, 48.0), (0x90A, 36.0), (0, 24.0))
"""Least architecture (gfx942, ..) -> GB/s of one link in one direction."""
PCI_UNITS = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}  # of 100 Mb/s a lane, by GT/s
WITHIN_GB_PER_S = 5000.0  # what joins the halves of one PCI switch (`pcilink`)
USUAL_PCI_UNITS, USUAL_WIDTH, USUAL_NET_MBITS = 60, 16, 10_000
BETWEEN_PROCESSORS_GB_PER_S = (
    ("ppc64", 0, 0, 32.0), ("arm64", 0, 0, 6.0),
    ("AuthenticAMD", 0xBF, 0, 32.0), ("AuthenticAMD", 0xAF, 0, 24.0), ("AuthenticAMD", 0x8F, 0, 16.0),
    ("AuthenticAMD", 26, 0, 32.0), ("AuthenticAMD", 25, 0, 24.0), ("AuthenticAMD", 0, 0, 16.0),
    ("GenuineIntel", 6, 0xCF, 40.0), ("GenuineIntel", 6, 0xB0, 22.0), ("GenuineIntel", 6, 0xAD, 40.0),
    ("GenuineIntel", 6, 0x8F, 22.0), ("GenuineIntel", 6, 0x55, 10.0), ("GenuineIntel", 0, 0, 6.0),
    ("", 0, 0, 10.0),
)  # fmt: skip
"""Architecture or maker, least family and model -> GB/s to another processor; the first row that fits."""
SWITCH = "nvswitch"
GPU_CLASS, PROCESSOR_CLASS = "0x03", "0x068001"  # of what an NVLink leads to; all else is a switch
NVLINK_NS, PCI_NS = 250.0, 500.0


def read_nccl(path: Path) -> Graph:
    """The graph: NPUs are the GPUs by `dev`, server by server; cards end in nodes of their own. InputError says where.

    A file of several servers (`host_hash`) is of a domain of NVLink, as of an NVL72: all GPUs lead to one switch.
    """
    root = read_markup(path)
    if root.name != "system":
        raise root.error("not a topology of NCCL", expected="<system version=...>", found=f"<{root.name}>")
    servers: dict[str, list[Element]] = {}
    for cpu in root.all("cpu"):
        servers.setdefault(cpu.text("host_hash", ""), []).append(cpu)
    gpus: list[str] = []
    edges: list[Edge] = []
    links: dict[tuple[str, str], float] = {}
    for number, processors in enumerate(servers.values()):
        prefix = f"host{number} " if len(servers) > 1 else ""
        gpus += _server(processors, prefix, edges, links)
    if not gpus:
        given = any(pci.text("class", "").startswith("0x03") for pci in root.walk() if pci.name == "pci")
        hint = "this is what NCCL is told; what it found has NVLink, too: set NCCL_TOPO_DUMP_FILE" if given else ""
        raise root.error("there is no GPU", expected="<pci ...><gpu dev=.../></pci>", hint=hint)
    edges += [Edge(ends, rate * GIGA, NVLINK_NS) for ends, rate in links.items()]
    kinds = dict.fromkeys(gpus, True)
    edges += [Edge(ends[::-1], rate * GIGA, NVLINK_NS) for ends, rate in links.items() if ends[1] not in kinds]
    kinds |= {name: False for edge in edges for name in edge.ends if name not in kinds}
    graph = assemble(kinds, edges, directed=True)
    cards = tuple(_card_gb_per_s(net) * GIGA for net in root.walk() if net.name == "net")
    return replace(graph, boxes=("server",) * len(graph.names), card_bytes_per_s=cards, note=NOTE)


def _server(
    processors: list[Element], prefix: str, edges: list[Edge], links: dict[tuple[str, str], float]
) -> list[str]:
    """The GPUs of a server by `dev`; its PCI goes to the edges, what its GPUs are linked by to the links, in GB/s."""
    named = [(f"{prefix}cpu{number}", cpu) for number, cpu in enumerate(processors)]
    edges += [edge for name, cpu in named for edge in _below(cpu, name, prefix)]
    for (one, cpu), (other, _) in permutations(named, 2):
        edges.append(Edge((one, other), _between_gb_per_s(cpu) * GIGA, PCI_NS))
    found: dict[int, tuple[Element, str]] = {}
    names: dict[str, str] = {}
    taken = set[tuple[str, object]]()
    for name, pci in ((name, pci) for name, cpu in named for pci in cpu.walk() if pci.name == "pci"):
        busid = pci.text("busid").lower()
        _once(pci, taken, busid=busid)
        for gpu in pci.all("gpu"):
            dev = gpu.integer("dev")
            _once(gpu, taken, dev=dev, pci=busid)
            found[dev], names[busid] = (gpu, name), f"{prefix}gpu{dev}"
    for net in (each for cpu in processors for each in cpu.walk() if each.name == "net"):
        _once(net, taken, name=net.text("name"))  # by which NCCL finds it again
    edges += _halves(processors, prefix)
    for dev, (gpu, processor) in sorted(found.items(), key=itemgetter(0)):
        for link in (*gpu.all("nvlink"), *gpu.all("xgmi"), *gpu.all("c2c")):
            if target := _end(link, names, processor):
                ends = f"{prefix}gpu{dev}", target
                if ends[0] == target:
                    raise link.error("a link joins two devices", "another target", target)
                links[ends] = links.get(ends, 0.0) + link.integer("count", minimum=1) * _gb_per_s(link, gpu)
    return [f"{prefix}gpu{dev}" for dev in sorted(found)]


def _halves(processors: list[Element], prefix: str) -> Iterator[Edge]:
    """What joins the halves of PCI switches that say so, where both are there."""
    every = [pci for cpu in processors for pci in cpu.walk() if pci.name == "pci"]
    switches = {pci.text("busid").lower(): f"{prefix}pci {pci.text('busid')}" for pci in every if not pci.all("gpu")}
    said = ((pci.text("busid"), link.text("target")) for pci in every for link in pci.all("pcilink"))
    for one, other in (map(switches.get, map(str.lower, ends)) for ends in said):
        if one and other:
            yield Edge((one, other), WITHIN_GB_PER_S * GIGA, PCI_NS)


def _once(element: Element, taken: set[tuple[str, object]], **said: object) -> None:
    """Nothing else of its server may have what a device has for itself."""
    for same in said.items():
        if same in taken:
            found = "{}={!r}".format(*same)
            raise element.error("another device of this server has the same", "every device once", found)
        taken.add(same)


def _end(link: Element, names: Mapping[str, str], processor: str) -> str:
    """Where a link of a GPU leads to: another, its processor (POWER, Grace), the switch; "" if it is hidden."""
    kind = PROCESSOR_CLASS if link.name == "c2c" else link.text("tclass", "")
    if kind == PROCESSOR_CLASS:
        return processor
    unknown = "" if link.name == "xgmi" or kind.startswith(GPU_CLASS) else SWITCH
    return names.get(link.text("target").lower(), unknown)


def _gb_per_s(link: Element, gpu: Element) -> float:
    """Of one link; C2C says how many MB/s."""
    if link.name == "c2c":
        return link.integer("bw", minimum=1) / 1000
    nvlink = link.name == "nvlink"
    rates = NVLINK_GB_PER_S if nvlink else XGMI_GB_PER_S
    what = gpu.integer("sm") if nvlink else gpu.integer("gcn", base=16, prefix="gfx")
    return next((rate for least, rate in rates if what >= least), rates[-1][1])


def _between_gb_per_s(cpu: Element) -> float:
    """From a processor to another."""
    said = {cpu.text("arch", ""), cpu.text("vendor", ""), ""}
    family, model = cpu.integer("familyid", 0), cpu.integer("modelid", 0)
    rows = (row for row in BETWEEN_PROCESSORS_GB_PER_S if row[0] in said)
    return next(rate for _, least, least_model, rate in rows if family >= least and model >= least_model)


def _below(element: Element, name: str, prefix: str) -> Iterator[Edge]:
    """The links of PCI below a processor or switch, both ways, and those of cards."""
    for pci in element.all("pci"):
        gpu = next(iter(pci.all("gpu")), None)
        own = prefix + (f"gpu{gpu.integer('dev')}" if gpu else f"pci {pci.text('busid')}")
        speed = pci.text("link_speed", "").split(" ")[0].removesuffix(".0")
        units = PCI_UNITS.get(speed, USUAL_PCI_UNITS)  # as NCCL counts; usually 16 lanes of the third generation
        lanes = pci.integer("link_width", USUAL_WIDTH) or USUAL_WIDTH
        yield from _both(name, own, lanes * units / 80, PCI_NS)
        yield from _below(pci, own, prefix)
    for nic in element.all("nic"):
        for net in nic.all("net"):
            latency_ns = net.number("latency", 0.0) * 1000 or PCI_NS
            yield from _both(name, f"{prefix}net {net.text('name')}", _card_gb_per_s(net), latency_ns)


def _card_gb_per_s(net: Element) -> float:
    return (net.number("speed", USUAL_NET_MBITS) or USUAL_NET_MBITS) / 8000


def _both(one: str, other: str, gb_per_s: float, latency_ns: float) -> Iterator[Edge]:
    for ends in ((one, other), (other, one)):
        yield Edge(ends, gb_per_s * GIGA, latency_ns)
