"""What a step runs on: accelerators, their interconnect and the software on them; the named, and what is usual.

`software.json` beside this file describes the named, with sources. A software profile says what a framework makes of
measured kernels and collectives (`Software`, `Loop`); `like` names one whose other fields it shares. A cluster is
accelerators, a fabric and a software profile; what a cluster states of a software's fields is its site's. Fabrics are
in `simcore.system.collectives.nccl`, or the dimensions of a topology file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

from simcore.compute.accelerators import Accelerator, accelerator, variant
from simcore.errors import InputError, closest
from simcore.hashed import Hashed
from simcore.library import table
from simcore.model.timing import LOOP, Loop
from simcore.network.topology.links import rates_bytes_per_s
from simcore.network.topology.model import Topology
from simcore.system.collectives.nccl import FABRICS, Fabric


@dataclass(frozen=True, slots=True)
class Software:
    """What a training framework on its hosts costs beyond kernels.

    `launch_s`: host time per kernel class; a pass whose launches take longer than its kernels takes that long.
    `step_s`: once a step (data, logging, gradient-norm synchronisation). `tiles`: tensor-parallel collectives run piece
    by piece beside the products they feed, all but the first of as many pieces as there are ranks. `slowdown`: the
    share of the time a collective runs beside kernels that these lose; `slowdown_across`: of one that waits for network
    cards; `piece_s`: to hand over a piece. `hides_input_gradient`: the sum of input gradients runs beside the weight
    gradients. `expert_launch_s`: host time per local expert and pass, where experts are launched one by one.
    `sends_once`: a token goes once to a rank, however many of its experts live there. `exchange`: who brings tokens to
    their experts and back, NCCL's all-to-all or DeepEP's kernels; `hides_exchange`: beside the kernels of another
    micro-batch. `synchronous`: a launch waits for the kernel before it (CUDA_LAUNCH_BLOCKING). `accumulation_bytes`:
    what adding a micro-batch's gradient to those before it moves per parameter, in a pass of its own; 0 = the product
    that makes it adds. `transposing_bytes`: what turning a frozen 8-bit weight moves, where products want both ways.
    `jitter`: standard deviation of a rank's step over its mean; all wait for the slowest. Under ZeRO 1
    `owners_broadcast`: every owner of a share sends its new parameters to the others in turn, in place of one gather;
    `sums_whole`: gradients are all-reduced, not scattered. `gathers_keys`: keys and values of other context ranks,
    repeated for all heads, are gathered in one go that attention waits for, not passed around beside it. `scales_s`:
    what a part of the model waits in a pass for the largest values of all ranks that 8-bit scales follow.
    `reserved_bytes`: of a device's memory beside what a step asks for: buffers of libraries, the allocator's segments.
    `gradient_bytes`, `gradients_apart`, `loss_bytes`, `by_matrix`, `optimizer_bytes`, `fused_attention`: of a plan that
    says nothing else.
    `family`: what profiles that err alike have in common.
    """

    launch_s: float = 10e-6
    step_s: float = 0.03
    tiles: bool = False
    slowdown: float = 0.38  # mean of what NCCL beside products costs these (Echo, arXiv 2412.12487)
    slowdown_across: float = 0.1
    piece_s: float = 0.0
    hides_input_gradient: bool = False
    sends_once: bool = False
    exchange: Literal["nccl", "deepep", "deepep_low_latency"] = "nccl"
    hides_exchange: bool = False
    expert_launch_s: float = 0.0
    synchronous: bool = False
    accumulation_bytes: float = 0.0
    transposing_bytes: float = 0.0
    kernels: Loop = LOOP
    jitter: float = 0.013
    owners_broadcast: bool = False
    sums_whole: bool = False
    gathers_keys: bool = False
    scales_s: float = 0.0
    reserved_bytes: int = 0
    gradient_bytes: int = 4
    gradients_apart: bool = False
    loss_bytes: int = 4
    by_matrix: bool = False
    optimizer_bytes: int = 12
    fused_attention: bool = True
    family: str = ""

    @property
    def usual(self) -> dict[str, Any]:
        """What its plans do that say nothing else."""
        return {name: getattr(self, name) for name in _OF_PLANS}


_OF_PLANS = "gradient_bytes", "gradients_apart", "loss_bytes", "by_matrix", "optimizer_bytes", "fused_attention"


@dataclass(frozen=True, slots=True)
class Host:
    """An accelerator's share of its host: the link between them, one way, and the host's memory.

    PCIe 4.0 x16 carries 25 GB/s of its 32. `memory_bytes_per_s` is what the optimizer's step reaches: CPU-Adam moves 28
    bytes a parameter, and takes 2.57 s for 10^10 on 256 GB/s of DDR4 (ZeRO-Offload, arXiv 2101.06840, table 4): 43 %;
    of a DGX A100's 410 GB/s an eighth each.
    """

    link_bytes_per_s: float = 25e9
    memory_bytes_per_s: float = 0.43 * 410e9 / 8


_HOSTS = {name: Host(float(link), float(memory)) for name, link, memory in table(__file__, "hosts.txt")}


@dataclass(frozen=True)
class Cluster(Hashed):
    """Accelerators, their interconnect, the software on them; hosts if not the usual; the second's topology, if any.

    `losses`: the share of a step that runs lose on top of it (stragglers, clocks, data, checkpoints), benchmarks none.
    `together`: by what ranks meet on, how many of a group lie in a node (`simcore.cost.step.seats`).
    """

    __hash__ = Hashed.__hash__

    accelerator: str
    fabric: Fabric
    software: Software = field(default_factory=Software)
    losses: float = 0.0
    own_host: Host | None = None
    topology: Topology | None = None
    together: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def device(self) -> Accelerator:
        """One of the accelerators."""
        return accelerator(self.accelerator)

    @property
    def host(self) -> Host:
        """An accelerator's share of its host: as stated, or what it usually stands in."""
        return self.own_host or _HOSTS.get(self.device.preset, Host())

    @property
    def memory_bytes(self) -> int:
        """Memory of one device that a step may take, beside what software reserves of it."""
        return max(0, self.device.memory_bytes - self.software.reserved_bytes)


TABLE: Mapping[str, Any] = json.loads((Path(__file__).parent / "software.json").read_text(encoding="utf-8"))


def profile(table: Mapping[str, Mapping[str, Any]], name: str) -> Software:
    """A profile of a table, with what it shares with others."""
    stated = dict(table[name])
    base = profile(table, stated.pop("like")) if "like" in stated else Software()
    return _with(base, {field: value for field, value in stated.items() if field not in ("source", "on")})


def _with(base: Software, stated: Mapping[str, Any]) -> Software:
    """A profile with other values of the fields that are stated; those of kernels are a mapping of its own."""
    fields = dict(stated)
    if "kernels" in fields:
        fields["kernels"] = replace(base.kernels, **fields["kernels"])
    return replace(base, **fields)


def clusters(table: Mapping[str, Any] = TABLE) -> dict[str, Cluster]:
    """All clusters of a table of the form of `software.json`."""
    found = {}
    for name, stated in table["clusters"].items():
        site = dict(stated)
        device, fabric_name, software_name = (site.pop(key) for key in ("accelerator", "fabric", "software"))
        losses = table["runs"][site.pop("run", "benchmark")]["losses"]
        site.pop("source", None)
        made = _with(profile(table["software"], software_name), site)
        found[name] = Cluster(device, FABRICS[fabric_name], made, losses)
    return found


SOFTWARE: dict[str, Software] = {name: profile(TABLE["software"], name) for name in TABLE["software"]}
CLUSTERS = clusters()
RUNS: dict[str, float] = {name: run["losses"] for name, run in TABLE["runs"].items()}


_DESCRIPTIONS = table(__file__, "described.txt")


def fabric_of(hardware: str) -> Fabric:
    """The fabric a collective table's hardware text means; no NVLS where it says that NCCL was held to rings."""
    name = next(name for word, name in _DESCRIPTIONS if word == "-" or word in hardware)
    return replace(FABRICS[name], multicast_ranks=1 << 30) if "forced to ring" in hardware else FABRICS[name]


_USUAL = {
    start: (fabric, int(rate), float(link.strip("-") or 0))
    for start, fabric, rate, link in table(__file__, "usual.txt")
}
_ON_PCIE = "l40s", 800, 32.0  # of others with links of PCIe's rate
_FOR_PIECES = 100e9  # bytes/s of links to peers below which nobody sends collectives in pieces (PCIe)
_CARDS = re.compile(
    r"(?:(\d+) ?x ?)?(?:(\d+) ?x ?)?(?:[a-z][\w/-]* )*(\d+(?:\.\d+)?) ?([GT])(?:b(?:/s|ps|it/s|e)?)?\b"
    r"(?:[\w /-]*?(?:\bper |/ ?)(node|host|server|gpu|accelerator|device|chip|rank)\b)?",
    re.IGNORECASE,
)
_IN_ALL = "node", "host", "server"
_RATE = re.compile(r"([\d.]+) TB/s")


def placed(
    device: str, software: str, *, count: int, per_node: int = 0, scale_out: str = "", remarks: str = ""
) -> Cluster:
    """Accelerators with the interconnect usual for them and some software.

    `scale_out` may state the network cards ("4 x 100 Gb RoCE per node", "200 Gbps per GPU"), `remarks` a memory rate
    ("2.4 TB/s") by which a kind of the device is told.
    """
    known = accelerator(device)
    if rate := _RATE.search(remarks):
        known = variant(known, float(rate[1]) * 1e12)
    fabric, gigabits = _usual(known)
    fabric = fabric.in_nodes(count, per_node)
    if cards := _cards_gigabits(scale_out, per_node or fabric.sharing_ranks):
        fabric = fabric.with_cards(cards / gigabits)
    return Cluster(known.name, fabric, software_on(known, software))


def _cards_gigabits(scale_out: str, per_node: int) -> int:
    """Gb/s of a node's network cards for computation together, 0 where that is not said.

    >>> _cards_gigabits("8x ConnectX-7 IB NDR 400Gb/s", 8), _cards_gigabits("200 Gbps per GPU", 4)
    (3200, 800)
    >>> _cards_gigabits("Storage: 2x IB 400Gb/s, Compute: 8x IB 200Gb/s", 8), _cards_gigabits("100 GbE", 8)
    (1600, 0)
    """
    compute = next((one for one in scale_out.split(",") if "compute" in one.lower()), scale_out)
    cards = _CARDS.search(compute)
    count, more, rate, unit, each = cards.groups() if cards else ("", "", "", "", "")
    if not rate or not (count or each):
        return 0
    whole = int(count or 1) * int(more or 1) * float(rate) * (1000 if unit in "Tt" else 1)
    return round(whole) * (per_node if each and each.lower() not in _IN_ALL else 1)


_AKIN: dict[str, str] = TABLE["akin"]  # frameworks of which nobody published steps -> the profile they are most like
_APART = re.compile("[ -]")  # words of a name may stand so, or together
_NAMED = {_APART.sub("", name.lower()): profile for name, profile in TABLE["frameworks"].items()}
_NAMED |= {_APART.sub("", name.lower()): name for name in _AKIN}
_ANY_NAME = "|".join(
    "[ -]?".join(map(re.escape, _APART.split(name))) for name in sorted([*TABLE["frameworks"], *_AKIN], key=len)[::-1]
)
_NAMES = re.compile(rf"(?<![a-z])({_ANY_NAME})(?=v\d|[^a-z]|$)", re.IGNORECASE)


def framework(words: str) -> str:
    """The profile of the first framework that some words name, or the one akin to it; "" where they name none."""
    found = _NAMES.search(words)
    return _NAMED[_APART.sub("", found[0].lower())] if found else ""


def profile_of(name: str) -> str:
    """The software profile that a framework is taken for."""
    return _AKIN.get(name, name)


def software_on(device: Accelerator, name: str = "") -> Software:
    """A software profile on a device, without a name the usual one, or what stands for it on the chip or the maker's.

    A framework's name as publications write it means its profile. Steps of one that is only akin to a profile have
    wider intervals. Nobody sends collectives in pieces over PCIe. InputError names the nearest.

    >>> from simcore.compute.accelerators import accelerator
    >>> software_on(accelerator("H100"), "NVIDIA NeMo 24.12") == SOFTWARE["megatron-core"]
    True
    """
    known, name = TABLE["software"], name or TABLE["usual"].get(device.maker, "unknown")
    said, name = name, name if name in known else framework(name)
    if not name:
        raise InputError.at(said, "no such software", expected=closest(said, known), found=repr(said))
    at = own = profile_of(name)
    while at and not (there := [one for one in (device.chip, device.maker) if one in known[at].get("on", ())]):
        at = known[at].get("like", "")
    found = SOFTWARE[known[at]["on"][there[0]] if at else own]
    found = found if own == name else replace(found, family="")  # which errors it has is not known
    return replace(found, tiles=False) if 0 < device.link_bytes_per_s < _FOR_PIECES else found


def usual_fabric(device: Accelerator) -> Fabric:
    """The interconnect usual for a device; InputError where none is known."""
    return _usual(device)[0]


def _usual(device: Accelerator) -> tuple[Fabric, int]:
    """The fabric, and the Gb/s of its network cards."""
    link = device.link_bytes_per_s * 1e-9
    found = next((entry for start, entry in _USUAL.items() if device.name.startswith(start)), None)
    if 0 < link < _FOR_PIECES * 1e-9 and not (found and found[2] == link):
        found = _ON_PCIE
    if found is None:
        hint = f"state a fabric ({', '.join(FABRICS)}) or a topology"
        raise InputError.at(device.name, "no interconnect is known", expected=", ".join(_USUAL), hint=hint)
    name, gigabits, told = found
    return FABRICS[name].with_links(link / told if told else 1.0), gigabits


_MESSAGE_S = 10e-6
_WAYS = 2  # the passes of a level, there and back


def fabric_of_topology(topology: Topology) -> Fabric:
    """Nodes are the first dimension; the slowest of the others is what they are joined by. Stated rates, not measured.

    InputError for graphs, wafers and twisted tori, which have no nodes.
    """
    if not topology.apart:
        message, found = "predictions count with nodes and what joins them", topology.name or topology.path
        raise InputError.at("topology", message, expected="a topology of dimensions", found=found)
    node, *others = topology.dims
    further = others or [node]
    own_bytes_per_s, *shared_bytes_per_s = (  # that an NPU sends when all do
        rate / dim.oversubscription for rate, dim in zip(rates_bytes_per_s(topology), topology.dims, strict=True)
    )
    slowest_bytes_per_s = min(shared_bytes_per_s, default=own_bytes_per_s)
    latency_s = max(dimension.latency_ns for dimension in further) * 1e-9
    ranks = node.npus if others else prod(dimension.npus for dimension in topology.dims)
    rates = own_bytes_per_s, slowest_bytes_per_s * node.npus, slowest_bytes_per_s
    near_s, far_s = _WAYS * node.latency_ns * 1e-9, _WAYS * latency_s
    return Fabric(topology.name, ranks, "stated", *rates, near_s=near_s, far_s=far_s, hop_s=_MESSAGE_S + latency_s)
