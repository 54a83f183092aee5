"""Files of other tools: a cluster of InfraGraph, an all-reduce of MSCCL on it, its links for ns-3; NCCL, htsim.

With the name of a picture (`python examples/other_tools.py other_tools.png`) it draws the cluster.
"""

import sys
import tempfile
from pathlib import Path

import simcore
from simcore.network.topology.draw import draw
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.packet import FORMATS
from simcore.report.plots import save

INFRAGRAPH = """\
name: two servers
devices:
- name: server
  components: [{name: npu, choice: npu, count: 4}, {name: sw, choice: switch}, {name: nic, choice: nic, count: 4}]
  links:
  - {name: nvlink, physical: {bandwidth: {gigabytes_per_second: 450}}}
  - {name: pcie, physical: {bandwidth: {gigabits_per_second: 512}}}
  edges:
  - {ep1: {component: npu}, ep2: {component: sw}, scheme: many2many, link: nvlink}
  - {ep1: {component: npu}, ep2: {component: nic}, scheme: one2one, link: pcie}
- name: leaf
  components: [{name: port, choice: port, count: 8}, {name: asic, choice: cpu}]
  links: [{name: inside, physical: {bandwidth: {gigabits_per_second: 400}}}]
  edges: [{ep1: {component: asic}, ep2: {component: port}, scheme: many2many, link: inside}]
instances: [{name: host, device: server, count: 2}, {name: leaf, device: leaf}]
links: [{name: cable, physical: {bandwidth: {gigabits_per_second: 400}}}]
edges:
- {ep1: {instance: "host[0]", component: nic}, ep2: {instance: leaf, component: "port[0:4]"}, link: cable}
- {ep1: {instance: "host[1]", component: nic}, ep2: {instance: leaf, component: "port[4:8]"}, link: cable}
"""
NCCL = """\
<system version="1"><cpu numaid="0">
  <pci busid="0000:18:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
    <gpu dev="0" sm="90"><nvlink target="0000:07:00.0" count="18"/></gpu></pci>
  <pci busid="0000:19:00.0" link_speed="32.0 GT/s PCIe" link_width="16">
    <gpu dev="1" sm="90"><nvlink target="0000:07:00.0" count="18"/></gpu></pci>
</cpu></system>
"""
WORKLOAD = "MICRO\n1\nsum -1 0 NONE 0 0 NONE 0 0 ALLREDUCE 8388608 1\n"
SYSTEM = "preferred-dataset-splits: 1\nall-reduce-implementation: [{}]\n"


def msccl_ring(ranks: int) -> str:
    """A ring as a program of MSCCL: receive, reduce and send; then copies go round."""
    step = (
        '<step s="{}" type="{}" srcbuf="i" srcoff="{}" dstbuf="i" dstoff="{}" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
    )
    lines = [f'<algo name="ring" proto="Simple" nchannels="1" ngpus="{ranks}" coll="allreduce" inplace="1">']
    for rank in range(ranks):
        kinds = ["s"] + ["rrcs"] * (ranks - 1) + ["rcs"] * (ranks - 2) + ["r"]
        lines.append(f'<gpu id="{rank}" i_chunks="{ranks}" o_chunks="{ranks}" s_chunks="0">')
        lines.append(f'<tb id="0" send="{(rank + 1) % ranks}" recv="{(rank - 1) % ranks}" chan="0">')
        lines += [step.format(place, kind, *[(rank - place) % ranks] * 2) for place, kind in enumerate(kinds)]
        lines.append("</tb></gpu>")
    return "\n".join([*lines, "</algo>"])


def main() -> str:
    """Print what came of each file; draw the cluster if a picture is named."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(INFRAGRAPH)
        (folder / "ring.xml").write_text(msccl_ring(8))
        (folder / "sum.txt").write_text(WORKLOAD)
        cluster = simcore.load_topology(folder / "cluster.yaml")
        links = LinkGraph(cluster)
        (folder / "links.txt").write_text(FORMATS[".txt"](links))
        times = {}
        for algorithm in ("ring", "{schedule: ring.xml}"):
            (folder / "system.yaml").write_text(SYSTEM.format(algorithm))
            for file in ("cluster.yaml", "links.txt"):
                report = simcore.run(folder / "sum.txt", folder / file, folder / "system.yaml")
                times[algorithm, file] = f"{report.time_ns / 1e3:.1f} us"
        (folder / "server.xml").write_text(NCCL)
        server = simcore.load_topology(folder / "server.xml").graph
        listed = (folder / "links.txt").read_text().splitlines()
    lines = [
        f"InfraGraph: {cluster.npus} NPUs, {len(links)} links; from NPU 0 to 4 over {len(links.route(0, 4))} of them",
        f"ns-3's list of them: {listed[0]} (nodes, switches, links), the last {listed[-1]}",
        f"all-reduce of 8 MiB, ring of simcore:       {times['ring', 'cluster.yaml']}",
        f"the same as a program of MSCCL:             {times['{schedule: ring.xml}', 'cluster.yaml']}",
        f"on the links read back from ns-3's list:    {times['{schedule: ring.xml}', 'links.txt']}",
    ]
    tree = FORMATS[".topo"](LinkGraph(Topology((Dimension("FatTree", 16, 50e9, 500.0, routers=4),)))).split()
    lines.append(f"NCCL's server: {server.npus} GPUs, {server.bandwidth_bytes_per_s[-1] / 1e9:.1f} GB/s of NVLink each")
    lines.append(f"htsim's file of a fat tree: {' '.join(tree[:4])}")
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        save(draw(links), Path(sys.argv[1]), text)
    return text


if __name__ == "__main__":
    print(main())
