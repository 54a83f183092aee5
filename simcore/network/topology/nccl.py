"""A server's topology as NCCL and RCCL write it (NCCL_TOPO_DUMP_FILE, XML): GPUs, NVLink, XGMI, PCI, processors, cards.

Bandwidths are those that their own search counts with (src/graph/topo.h and topo.cc, BSD and MIT licences): a link of
NVLink by the GPU's compute capability, of XGMI by its architecture, PCI by speed and width, a card by its speed.
Latencies are not in the file: ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from simcore.markup import Element, read_markup
from simcore.network.topology.model import Edge, Graph, assemble

NOTE = "NCCL's file has no latencies: they are 250 ns a hop on NVLink and XGMI, 500 ns elsewhere"
GIGA = 1e9
NVLINK_GB_PER_S = ((100, 40.1), (90, 20.6), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0))
"""Least compute capability x 10 -> GB/s of one link in one direction; above the first that is known."""
XGMI_GB_PER_S = ((0x940, 48.0), (0x90A, 36.0), (0, 24.0))
"""Least architecture (gfx942, ..) -> GB/s of one link in one direction."""
PCI_UNITS = {"2.5": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}  # of 100 Mb/s a lane, by GT/s
USUAL_PCI_UNITS, USUAL_WIDTH, USUAL_NET_MBITS = 60, 16, 10_000
BETWEEN_PROCESSORS_GB_PER_S = 10.0
SWITCH = "nvswitch"
NVLINK_NS, PCI_NS = 250.0, 500.0


def read_nccl(path: Path) -> Graph:
    """The graph of one server: NPUs are its GPUs by `dev`, cards end in nodes of their own. InputError says where."""
    root = read_markup(path)
    if root.name != "system":
        raise root.error("not a topology of NCCL", expected="<system version=...>", found=f"<{root.name}>")
    processors = root.all("cpu")
    edges = [edge for number, cpu in enumerate(processors) for edge in _below(cpu, f"cpu{number}")]
    for one, other in combinations(range(len(processors)), 2):
        edges += _both(f"cpu{one}", f"cpu{other}", BETWEEN_PROCESSORS_GB_PER_S, PCI_NS)
    gpus = {gpu.integer("dev"): (pci, gpu) for pci in root.walk() for gpu in pci.all("gpu") if pci.name == "pci"}
    if not gpus:
        given = any(pci.text("class", "").startswith("0x03") for pci in root.walk() if pci.name == "pci")
        hint = "this is what NCCL is told; what it found has NVLink, too: set NCCL_TOPO_DUMP_FILE" if given else ""
        raise root.error("there is no GPU", expected="<pci ...><gpu dev=.../></pci>", hint=hint)
    names = {pci.text("busid").lower(): f"gpu{dev}" for dev, (pci, _) in gpus.items()}
    links: dict[tuple[str, str], float] = {}
    for dev in sorted(gpus):
        gpu = gpus[dev][1]
        direct = (link for link in gpu.all("xgmi") if link.text("target").lower() in names)
        for link in (*gpu.all("nvlink"), *direct):
            ends, nvlink = (f"gpu{dev}", names.get(link.text("target").lower(), SWITCH)), link.name == "nvlink"
            rates = NVLINK_GB_PER_S if nvlink else XGMI_GB_PER_S
            what = gpu.integer("sm", 80) if nvlink else gpu.integer("gcn", 0, base=16)
            each = next((rate for least, rate in rates if what >= least), rates[-1][1])
            links[ends] = links.get(ends, 0.0) + link.integer("count", 1) * each
    edges += [Edge(ends, rate * GIGA, NVLINK_NS) for ends, rate in links.items()]
    edges += [Edge((SWITCH, ends[0]), rate * GIGA, NVLINK_NS) for ends, rate in links.items() if ends[1] == SWITCH]
    kinds = {f"gpu{dev}": True for dev in sorted(gpus)}
    kinds |= {name: False for edge in edges for name in edge.ends if name not in kinds}
    return replace(assemble(kinds, edges, directed=True), level="server", note=NOTE)


def _below(element: Element, name: str) -> Iterator[Edge]:
    """The links of PCI below a processor or switch, both ways, and those of cards."""
    for pci in element.all("pci"):
        gpu = next(iter(pci.all("gpu")), None)
        own = f"gpu{gpu.integer('dev')}" if gpu else f"pci {pci.text('busid')}"
        speed = pci.text("link_speed", "").split(" ")[0].removesuffix(".0")
        units = PCI_UNITS.get(speed, USUAL_PCI_UNITS)  # as NCCL counts; usually 16 lanes of the third generation
        lanes = pci.integer("link_width", USUAL_WIDTH) or USUAL_WIDTH
        yield from _both(name, own, lanes * units / 80, PCI_NS)
        yield from _below(pci, own)
    for nic in element.all("nic"):
        for net in nic.all("net"):
            rate = (net.number("speed", USUAL_NET_MBITS) or USUAL_NET_MBITS) / 8000
            yield from _both(name, f"net {net.text('name')}", rate, net.number("latency", 0.0) * 1000 or PCI_NS)


def _both(one: str, other: str, gb_per_s: float, latency_ns: float) -> Iterator[Edge]:
    for ends in ((one, other), (other, one)):
        yield Edge(ends, gb_per_s * GIGA, latency_ns)
