"""Random cases through the profiles of ASTRA-sim and through naive models that know nothing of simcore."""

from functools import partial
from random import Random

import pytest

from simcore.api import run
from simcore.errors import DeadlockError, InputError
from simcore.network.instant import Environment, after
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.system.messages.in_order import StoreAndForward
from tests.laws.cases_astra_sim_1 import case, layer, machine, random_case, system
from tests.oracles import astra1, astra2
from tests.oracles.cases_astra2 import KINDS, draw, fair_dim, implementations, in_rows
from tests.oracles.packets import Clock, RefusalError
from tests.published.peers import PHASES, first_generation, second_generation
from tests.published.test_astra_sim import ranks_of

OF_2_X = (7, 312, 2366, 25338)
"""Seeds of 2.x with a communicator and one* (two), one of all NPUs and `involved_dim`, and a tag of 500,000,000."""
LATE = (0, 9, 12)
"""Seeds of `late_ones` where it counts which messages are received before what an NPU does in that nanosecond."""
WHO_IS_FIRST = (744, 1030, 1849, 2241, 2284, 7410064)
"""Seeds with Themis where chunks of one nanosecond go on in an order that each NPU has for itself."""
TURNS = (135, 170, 198, 318)
"""Seeds of `some_dimensions` where it counts that dimensions without an algorithm take no turn."""
TOGETHER = (0, 14, 18, 23, 408, 511)
"""Seeds of `together` where who is first of those that end together decides a figure."""
APART = (0, 40)
"""Seeds of `meeting` where messages of some NPUs arrive between what others do."""
TREES_APART = (0, 190, 216, 257)
"""Seeds of `trees_meeting` where trees go no way round, and an NPU begins two chunks before the next one begins any.

In 216 the last NPU to do something has no part in some of the trees that end then.
"""
BUSES = (8, 17, 48)
"""Seeds of `meeting` where packets of an NPU wait for each other on its memory bus in an order of their own."""
FAST_BUSES = (19, 22, 33, 55, 81564)
"""Seeds of `meeting_on_fast_buses` where the last NPU does what follows at once, others at the end of the instant.

In 81564 NPUs ask for their loop's next state before others send what arrives then, as in `STEPPING`.
"""
CLOSE = (1, 65, 162, 261)
"""Seeds of `close_by` where that decides a figure, or the original never ends (1, 261)."""
STEPPING = (1, 29, 84, 114, 121, 175, 263)
"""Seeds where some NPUs have issued what others issue behind a chunk that leaves; in 1 the original never ends."""


def of_model(simulation):
    """The figures that a naive model gives, None where the original does not."""
    try:
        return simulation.run()
    except RefusalError:
        return None


def late_one():
    """Which chunk is first depends on a reduction being paid behind the endpoint's delay, not at once with it."""
    system = {
        "scheduling-policy": "FIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 3, "local-mem-bw": 10,
        "preferred-dataset-splits": 3, "collective-optimization": "baseline",
        **implementations({kind: ["direct1"] for kind in KINDS}),
    }  # fmt: skip
    details = {"id": 200, "type": "COMM_COLL", "collective": "ALL_REDUCE", "bytes": 300, "priority": 0}
    per_npu = [[details] for _ in range(4)]
    per_npu.append([{"id": 0, "type": "COMP", "duration_micros": 1}, details | {"data_deps": [0]}])
    return {
        "backend": "congestion_aware", "system": system, "cli": {"num-queues-per-dim": 2}, "comm_groups": {},
        "topology": {"dims": [fair_dim("FullyConnected", 5, 10)]}, "workload": {"kind": "nodes", "per_npu": per_npu},
    }  # fmt: skip


def late_ones(seed):
    """An all-reduce in windows, which NPUs begin a few nanoseconds apart, and messages take as long as the endpoint."""
    draw = Random(seed)  # noqa: S311
    kind, npus, delay_ns = draw.choice(("Ring", "FullyConnected", "Switch")), draw.randint(3, 9), draw.choice((2, 4))
    case = late_one()
    case["system"] |= {"endpoint-delay": delay_ns, "local-mem-bw": 1600}
    case["system"] |= implementations({each: [f"direct{draw.randint(2, 5)}"] for each in KINDS})
    per_npu = []
    for _ in range(npus):
        nodes = [{"id": at, "type": "COMP", "duration_micros": 0} for at in range(draw.randint(0, 8))]
        nodes = [node | {"data_deps": [node["id"] - 1] * (node["id"] > 0)} for node in nodes]
        per_npu.append([*nodes, case["workload"]["per_npu"][0][0] | {"data_deps": [node["id"] for node in nodes]}])
    dim = fair_dim(kind, npus, delay_ns / (2 if kind == "Switch" else 1)) | {"bandwidth_GBps": 500}
    return case | {
        "backend": "congestion_unaware", "topology": {"dims": [dim]}, "workload": {"kind": "nodes", "per_npu": per_npu}
    }  # fmt: skip


@pytest.mark.parametrize(
    "case", [*map(draw, (*range(60), *OF_2_X)), late_one(), *map(in_rows, range(60)), *map(late_ones, LATE)]
)
def test_every_npu_of_2_x_is_done_when_the_naive_model_says(case, tmp_path):
    expected = of_model(astra2.Simulation(case))
    try:
        rows = run(**second_generation(case, tmp_path)).to_dict()["ranks"]
    except (DeadlockError, InputError):
        assert expected is None, "what the original runs"
        return
    found = {rank: row for row in rows for rank in ranks_of(row["ranks"])}
    assert expected == {key: [found[rank][key] for rank in range(len(found))] for key in ("finish_ns", "compute_ns")}


@pytest.mark.parametrize("kind", ["Ring", "FullyConnected", "Switch"])
@pytest.mark.parametrize("seed", range(10))
def test_links_of_2_x_carry_messages_in_the_order_of_the_naive_model(kind, seed):
    """Of much that happens at one time; what is delivered sends the next message then, and more of an NPU later."""
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    npus, latency_ns, count = draw.choice((3, 4, 5)), draw.choice((0, 10, 20)), 120
    starts = [(draw.randrange(1, 60) * 10, draw.sample(range(npus), 2), draw.choice((10, 20))) for _ in range(count)]
    follows = {at: draw.sample(range(count), draw.randint(1, 3)) for at in draw.sample(range(count), count // 2)}

    def played(at, send, now, later):
        """Send all at their times; what was delivered in which order, and what was called later."""
        log, left = [], set(follows)

        def timed(number):
            log.append((now(), "later", number))

        def go(number):
            _, (src, dst), size = starts[number]
            send(src, dst, size, number)

        def arrived(number):
            log.append((now(), number))
            for other in follows[number] if number in left else ():
                left.discard(number)
                go(other)
                later(starts[other][1][0], starts[other][2], partial(timed, other))

        for number, (time, _, _) in enumerate(starts):
            at(time, lambda number=number: go(number))
        return log, arrived

    env, clock = Environment(), Clock()
    links = LinkGraph(Topology((Dimension(kind, npus, 1e9, latency_ns),)))
    network = StoreAndForward(env, links)
    naive = astra2.Aware(clock, [fair_dim(kind, npus, latency_ns)])

    def send(src, dst, size, number):
        network.send(src, dst, size, 0, lambda: arrived(number))

    found, arrived = played(partial(after, env), send, lambda: env.now, network.running.call)
    env.run()
    expected, naive.arrive = played(clock.at, naive.carry, lambda: clock.now, clock.npu_at)
    clock.run()
    assert found == expected


def together(seed):
    """A case of 1.0 whose dimensions cost as much as each other, so that chunks of several of them end together."""
    draw = Random(seed)  # noqa: S311
    npus = draw.choice(([2, 2], [3, 2], [2, 3], [4, 2], [3, 3], [2, 2, 2], [2, 3, 2]))
    network = machine(["FullyConnected"] * len(npus), npus, links_count=[n - 1 for n in npus], link_latency=50)
    chosen = system(
        draw.choice(("ring", "ring", "direct")) + "_ring" * (len(npus) - 1),
        scheduling_policy=draw.choice(("LIFO", "FIFO")),
        active_chunks_per_dimension=draw.choice((1, 2, 3)),
        preferred_dataset_splits=draw.choice((2, 3, 4, 5)),
        inter_dimension_scheduling=draw.choice(("ascending", "roundRobin")),
        intra_dimension_scheduling=draw.choice(("FIFO", "SCF", "RG", "lessRemainingPhaseFirst")),
    )
    kinds, sizes = ("ALLREDUCE", "ALLREDUCE", "REDUCESCATTER", "ALLGATHER"), (960, 965, 480, 1000, 97)
    rows = [(draw.choice((0, 0, 100)), draw.choice(kinds), draw.choice(sizes)) for _ in range(draw.randint(1, 4))]
    return case(
        "DATA",
        [layer(wg=row) for row in rows],
        network,
        chosen,
        num_passes=1,
        num_queues_per_dim=draw.choice((1, 1, 2)),
    )


def meeting(seed):
    """As `together`, where a message takes exactly as long as the endpoint's delay, or nearly so."""
    case, draw = together(seed), Random(seed + 5)  # noqa: S311
    case["system"]["endpoint-delay"] = 50
    case["network"]["link-bandwidth"] = [draw.choice((50, 100_000))] * len(case["network"]["units-count"])
    return case


def stepping(seed):
    """As `meeting`, where links, endpoints and computation take a few nanoseconds, as the steps of the loop do."""
    case, draw = meeting(seed), Random(seed + 3)  # noqa: S311
    few_ns, dims = draw.choice((1, 2, 3)), len(case["network"]["units-count"])
    case["network"] |= {"link-latency": [few_ns] * dims, "link-bandwidth": [100_000] * dims}
    case["system"]["endpoint-delay"] = few_ns
    for row in case["workload"]["layers"]:
        row |= {phase: (draw.choice((0, 1, few_ns, 2 * few_ns)), *row[phase][1:]) for phase in PHASES}
        row["update"] = draw.choice((1, few_ns))
    return case


def close_by(seed):
    """As `stepping`, where messages take longer than the endpoint, so that phases are solved."""
    case, draw = stepping(seed), Random(seed + 77)  # noqa: S311
    dims = len(case["network"]["units-count"])
    case["system"]["endpoint-delay"] = draw.choice((1, 2))
    latencies = [draw.choice((3, 4, 5))] * dims, [draw.choice((0, 0, 0.5))] * dims
    case["network"] |= dict(zip(("link-latency", "nic-latency"), latencies, strict=True))
    for row in case["workload"]["layers"]:
        row |= {phase: (draw.choice((0, 1, 2, 3, 5, 8, 13)), *row[phase][1:]) for phase in PHASES}
        row["update"] = draw.choice((0, 1, 1, 2))
    return case


def trees_meeting(seed):
    """As `meeting`, in dimensions of 2 NPUs, with all-reduces in trees, which have no direction as the rings have."""
    case = meeting(seed)
    dims = len(case["network"]["units-count"])
    case["network"] |= {"units-count": [2] * dims, "links-count": [1] * dims}
    case["system"]["all-reduce-implementation"] = "_".join(["doubleBinaryTree"] * dims)
    case["run"]["num_queues_per_dim"] = 3
    return case


def late_halves():
    """An all-reduce whose second half begins when messages come that take as long as the endpoint's delay."""
    network = machine(["Ring"], [4], links_count=2, link_latency=50)
    return case("DATA", [layer(wg=(0, "ALLREDUCE", 64))], network, system("direct2", endpoint_delay=50), num_passes=1)


def meeting_on_buses(seed):
    """As `meeting`, over memory buses."""
    case, draw = meeting(seed), Random(seed + 17)  # noqa: S311
    bus = {"L": draw.choice((1, 10.7, 7)), "o": draw.choice((1, 3)), "g": draw.choice((0, 2, 9))}
    case["system"] |= {"model-shared-bus": 1, **bus, "G": draw.choice((0.0038, 0.1))}
    return case


def meeting_on_fast_buses(seed):
    """As `meeting_on_buses`, where small packets take no time."""
    case, draw = meeting_on_buses(seed), Random(seed)  # noqa: S311
    case["system"] |= {"L": draw.choice((0, 1)), "o": 0, "g": 0, "G": draw.choice((0, 0.0038))}
    return case


def small(seed):
    """Any case of 1.0 that the naive model plays soon."""
    return random_case(seed, most_npus=8)


def some_dimensions(seed):
    """As `without_bus`, where dimensions take turns, and kinds of collectives have algorithms for some of them."""
    case, draw = without_bus(seed), Random(seed)  # noqa: S311
    case["system"]["inter-dimension-scheduling"] = "roundRobin"
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
        names = case["system"][f"{kind}-implementation"].split("_")
        shorter = "_".join(names[: draw.randint(1, len(names))])
        case["system"][f"{kind}-implementation"] = draw.choice((shorter, shorter, "oneRing"))
    return case


def without_bus(seed):
    """As `small`, without a memory bus."""
    found = small(seed)
    found["system"].pop("model-shared-bus", None)
    return found


@pytest.mark.parametrize(
    ("made", "seed"),
    [
        *((small, seed) for seed in range(60)),
        *((without_bus, seed) for seed in (*WHO_IS_FIRST, 1530, 5133)),
        (random_case, 7310350),
        *((some_dimensions, seed) for seed in TURNS),
        *((meeting_on_buses, seed) for seed in BUSES),
        *((meeting_on_fast_buses, seed) for seed in FAST_BUSES),
        *((stepping, seed) for seed in STEPPING),
        *((close_by, seed) for seed in CLOSE),
        *((together, seed) for seed in TOGETHER),
        *((meeting, seed) for seed in APART),
        *((trees_meeting, seed) for seed in TREES_APART),
        (lambda _: late_halves(), 0),
    ],
)
def test_every_figure_of_1_0_is_that_of_the_naive_model(made, seed, tmp_path):
    case = made(seed)
    expected = of_model(astra1.Simulation(case))
    try:
        report = run(**first_generation(case, tmp_path)).to_dict()
    except DeadlockError:
        assert expected is None, "what the original runs"
        return
    layers = [
        {(short, figure): layer[phase][f"{figure}_ns"] for short, phase in PHASES.items() for figure in astra1.FIGURES}
        for layer in report["layers"]
    ]
    ends = [each["end_ns"] for each in report["iterations"]][: len(expected["pass_end_ns"])]
    assert expected == {"finish_ns": report["time_ns"], "pass_end_ns": ends, "layers": layers}
