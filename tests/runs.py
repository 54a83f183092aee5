"""Small random runs: machines, workloads, systems and settings for the laws."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from hypothesis import strategies as st

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN, Ports
from simcore.network.topology.twisted import whole_dimension
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.system.config import Algorithm, SystemConfig
from simcore.workload.loops import loops
from simcore.workload.model import CollectiveKind, Layer, Parallelism, Phase, PhaseName, Workload

KINDS = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
)
PROFILES = ("native", "astra-sim-1.0", "astra-sim-2")
MODES = [(name, mode) for name in PROFILES for mode in profiles.get(name).networks]
TRANSFORMERS = {"HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD"}
MOST_NPUS = 16
HASHED = Ports(routing="ecmp", seed=1)


@dataclass(frozen=True)
class Run:
    """All inputs of a run of a training loop."""

    workload: Workload
    topology: Topology
    system: SystemConfig | None = None
    profile: str = "native"
    settings: Settings = field(default_factory=Settings)

    def timeline(self, **changes: object):
        """Its timeline; `changes` are settings."""
        settings = replace(self.settings, **changes)
        return simulate(self.workload, self.topology, self.system, profiles.get(self.profile), settings)

    def report(self, **changes: object) -> dict[str, object]:
        """Its report, which adds up, with every link; without the number of classes, which may depend on folding."""
        timeline = self.timeline(**changes)
        document = dict(Report(timeline, self.profile, self.settings.network).to_dict())
        check_sums(document)
        del document["classes"]
        if timeline.links:
            document["every link"] = timeline.links.size_bytes.tolist(), timeline.links.busy_ns.tolist()
        return document


SHARES = ("compute_ns", "overlapped_ns", "exposed_comm_ns", "idle_ns")


def check_sums(report: dict[str, object]) -> None:
    """Parts add up: of the run's time, of each stage's and rank's, and the layers' computation; none is negative."""
    stages = report["pipeline"]["stages"] if "pipeline" in report else [report["breakdown"]]
    for row in (report["breakdown"], *stages):
        assert sum(row[name] for name in SHARES) == report["time_ns"]
        assert min(row[name] for name in SHARES) >= 0
    for row in report["ranks"]:
        assert row["compute_ns"] + row["exposed_comm_ns"] == row["finish_ns"] <= report["time_ns"]
        assert 0 <= row["idle_ns"] <= row["exposed_comm_ns"]
    assert report["compute_ns"] + report["exposed_comm_ns"] == report["time_ns"]
    if report["layers"]:
        computed = sum(layer[phase]["compute_ns"] for layer in report["layers"] for phase in PhaseName)
        assert computed == sum(row["compute_ns"] + row["overlapped_ns"] for row in stages)
    for row in (*report["dims"], *report["links"]["hottest"]):
        assert 0 <= row["busy_ns"] <= report["time_ns"]


def micro(kind: CollectiveKind, size_bytes: int) -> Workload:
    """One collective of the whole machine and nothing else."""
    return Workload("MICRO", (Layer("one", weight_grad=Phase(0, kind, size_bytes)),))


@st.composite
def machines(draw, kinds=("Ring", "FullyConnected", "Switch"), *, most_npus=MOST_NPUS, sizes=(2, 3, 4, 5, 8)):
    """One to three dimensions, on some of which a hash chooses among shortest ways."""
    dims: list[Dimension] = []
    for _ in range(draw(st.integers(1, 3))):
        room = most_npus // prod(dim.npus for dim in dims)
        fitting = [size for size in sizes if size <= room]
        if not fitting:
            break
        rate = draw(st.sampled_from([1e9, 12.5e9, 50e9, 53.6870912e9]))
        latency_ns = draw(st.sampled_from([0.0, 1.0, 7.0, 500.0]))
        npus = draw(st.sampled_from(fitting))
        kind, links, ports = (draw(st.sampled_from(some)) for some in (kinds, [1, 1, 2], [PLAIN, PLAIN, PLAIN, HASHED]))
        dims.append(Dimension(kind, npus, rate, latency_ns, links, ports=ports))
    return Topology(tuple(dims))


@st.composite
def twisted_tori(draw, rates, latencies, *, most_npus=54):
    """Sides of k and 2k in any order, each dimension with its own speed."""
    shapes = [(k, sides) for k in (2, 3) for sides in [(1, 2), (2, 1), (1, 1, 2), (1, 2, 1), (2, 1, 2)]]
    k, sides = draw(st.sampled_from([each for each in shapes if each[0] ** len(each[1]) * prod(each[1]) <= most_npus]))
    dims = tuple(Dimension("Ring", k * side, draw(rates), draw(latencies)) for side in sides)
    return Topology((whole_dimension(dims),), twisted=dims)


SIZES = st.sampled_from([1, 5, 64, 1000, 4096, 65536, 1 << 20])
PHASES = st.builds(Phase, st.sampled_from([0, 1, 10, 1000, 50_000]), st.none() | st.sampled_from(KINDS), SIZES)


def _fitting(topology: Topology) -> list[int]:
    """Sizes of model-parallel groups: none, half the first dimension, all of it, everything."""
    first = topology.dims[0].npus
    return [1, first // 2 if first % 2 == 0 else 1, first, topology.npus]


@st.composite
def workloads(draw, topology: Topology):
    """A training loop of up to four layers that fits a machine."""
    loop = draw(st.sampled_from([name for name in loops if name != "HYBRID_CUSTOMIZED"]))
    count = draw(st.integers(1, 4))
    layers = tuple(
        Layer(f"layer{i}", draw(PHASES), draw(PHASES), draw(PHASES), draw(st.sampled_from([0, 3])))
        for i in range(count)
    )
    parallelism = Parallelism(tp=draw(st.sampled_from(_fitting(topology))) if loop in TRANSFORMERS else 0)
    checkpointed = loop == "HYBRID_TRANSFORMER_FWD_IN_BCKWD" and count > 1
    return Workload(
        loop,
        layers,
        parallelism,
        last_bottom_layer=draw(st.integers(0, count - 1)),
        checkpoints=(0,) if checkpointed else (),
        checkpoint_initiates=(count - 1,) if checkpointed else (),
    )


@st.composite
def systems(draw, topology: Topology):
    """Any settings that fit a machine; trees and halvings only on powers of two."""
    names = ["ring", "direct"]
    powers = all(dim.npus & (dim.npus - 1) == 0 for dim in topology.dims)
    reducing = [*names, "halvingDoubling"] if powers else names

    def chosen(known):
        return tuple(
            Algorithm(draw(st.sampled_from(known)), draw(st.sampled_from([0, 0, 1, 2]))) for _ in topology.dims
        )

    implementations = {kind: chosen(names if kind == CollectiveKind.ALL_TO_ALL else reducing) for kind in KINDS}
    if powers and draw(st.booleans()):
        implementations[CollectiveKind.ALL_REDUCE] = tuple(Algorithm("doubleBinaryTree") for _ in topology.dims)
    return SystemConfig(
        scheduling_policy=draw(st.sampled_from(["LIFO", "FIFO"])),
        endpoint_delay_ns=draw(st.sampled_from([None, 0, 10])),
        active_chunks_per_dimension=draw(st.sampled_from([1, 1, 2, 5])),
        preferred_dataset_splits=draw(st.sampled_from([1, 2, 4])),
        implementations=implementations,
        collective_optimization=draw(st.sampled_from(["localBWAware", "baseline"])),
        intra_dimension_scheduling=draw(st.sampled_from(["FIFO", "SCF", "lessRemainingPhaseFirst"])),
        inter_dimension_scheduling=draw(st.sampled_from(["ascending", "ascending", "roundRobin", "themis"])),
        local_memory_bytes_per_s=draw(st.sampled_from([0.0, 100e9])),
    )


@st.composite
def runs(draw, kinds=("Ring", "FullyConnected", "Switch"), modes=MODES, *, places=None, stragglers=True):
    """Any run, on `places` or on products of such dimensions."""
    topology = draw(machines(kinds) if places is None else places)
    profile, network = draw(st.sampled_from(modes))
    slow: dict[int, float] = {}
    if stragglers and draw(st.booleans()):
        slow = draw(st.dictionaries(st.integers(0, topology.npus - 1), st.sampled_from([1.5, 2.0]), max_size=3))
    settings = Settings(
        iterations=draw(st.sampled_from([1, 2])),
        network=network,
        queues_per_dim=draw(st.sampled_from([1, 1, 2])),
        stragglers=slow,
    )
    system = draw(st.none() | systems(topology))
    return Run(draw(workloads(topology)), topology, system, profile, settings)
