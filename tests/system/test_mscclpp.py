"""Plans of MSCCL++ run as schedules: what they put, get and reduce is proven, and what is not ordered is refused.

The layout is that of the plans in microsoft/mscclpp, test/executor-tests (MIT licence); these plans are made here.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.system.plans.schedule import read
from simcore.workload.model import CollectiveKind


def local(buffer, index, size=1):
    return {"type": buffer, "index": index, "size": size}


def there(number, index, size=1):
    return {"buffer_id": number, "index": index, "size": size}


def op(name, sources=(), targets=(), **more):
    moves = {"src_buff": list(sources), "dst_buff": list(targets), "channel_type": "memory"} if sources else {}
    return {"name": name, **moves, **more}


def sync(name, *channels):
    return op(name, channel_ids=list(channels), channel_type="memory")


def gpu(rank, size, inputs, blocks, *, buffers, outputs=0, semaphores=()):
    """A rank with a memory channel to every other one, and one remote buffer of each kind of every other one."""
    peers = [peer for peer in range(size) if peer != rank]
    remote = [
        {"rank": peer, "type": kind, "access_channel_types": ["memory"]} for peer in peers for kind in buffers
    ]  # fmt: skip
    refs = [{"access_channel_type": "memory", "remote_buffer_ids": list(range(len(remote)))}]
    channels = [{"channel_type": "memory", "channel_ids": list(range(size - 1))}]
    return {
        "id": rank, "input_chunks": inputs, "output_chunks": outputs, "scratch_chunks": 2 * size * inputs,
        "threadblocks": [
            {"id": number, "ops": ops, "channels": channels, "remote_buffer_refs": refs}
            for number, ops in enumerate(blocks)
        ],
        "channels": [{"channel_type" if rank % 2 else "type": "memory", "connected_to": peers}],
        "remote_buffers": remote,
        "semaphores": [{"init_value": each} for each in semaphores],
    }  # fmt: skip


def plan(collective, gpus, *, in_place=True):
    return {"name": "a", "collective": collective, "protocol": "Simple", "inplace": in_place, "gpus": gpus}


def all_gather(size):
    """Everybody puts its chunk into everybody's output."""
    every = range(size - 1)
    gpus = []
    for rank in range(size):
        puts = [op("put", [local("o", rank)], [there(number, rank)]) for number in every]
        ops = [sync("rlxsignal", *every), sync("rlxwait", *every), *puts, op("nop"), sync("signal", *every)]
        gpus.append(gpu(rank, size, 1, [[*ops, sync("wait", *every)]], buffers="o", outputs=size))
    return plan("allgather", gpus)


def ring_all_gather(size):
    """Chunks go on from rank to rank, a signal each."""
    gpus = []
    for rank in range(size):
        after, before = (rank + 1) % size, (rank - 1) % size
        peers = [peer for peer in range(size) if peer != rank]
        go, come = peers.index(after), peers.index(before)
        ops = []
        for step in range(size - 1):
            at = (rank - step) % size
            ops += [op("pws", [local("o", at)], [there(go, at)], channel_ids=[go]), sync("wait", come)]
        gpus.append(gpu(rank, size, 1, [ops], buffers="o"))
    return plan("allgather", gpus)


def all_pairs_packets(size):
    """Every rank sums one chunk that all bring as packets, and hands the sum out as packets."""
    gpus = []
    for rank in range(size):
        peers = [peer for peer in range(size) if peer != rank]
        puts = [op("ppkt", [local("i", peer)], [there(number, rank)]) for number, peer in enumerate(peers)]
        brought = [local("s", peer) for peer in peers]
        out = [there(number, size + rank) for number in range(size - 1)]
        hands = op("respkt", [local("i", rank), *brought], [local("i", rank), *out], reduce_op="sum")
        takes = [op("upkt", [local("s", size + peer)], [local("i", peer)]) for peer in peers]
        gpus.append(gpu(rank, size, size, [puts, [hands], takes], buffers="s"))
    return plan("allreduce", gpus)


def read_reduce(size, *, shared=1):
    """Every rank reads its chunk of all, sums it, and puts the sum back; `shared` blocks do it together."""
    every = range(size - 1)
    gpus = []
    for rank in range(size):
        blocks = []
        for number in range(shared):
            info = {"tbg_info": {"tb_id": number, "tbg_size": shared}} if shared > 1 else {}
            at = [there(2 * peer, rank) for peer in every]
            summed = op("rres", [local("i", rank), *at], [local("i", rank), *at], reduce_op="sum", **info)
            first = number == 0
            ready = [sync("signal", *every), sync("wait", *every)] * first
            meet = [op("barrier", barrier_id=0, num_threadblocks=shared)] * (shared > 1)
            end = [sync("signal", *every), sync("wait", *every)] * first
            blocks.append([*ready, *meet, summed, *meet, *end])
        gpus.append(gpu(rank, size, size, blocks, buffers="is", outputs=size))
    return plan("allreduce", gpus)


def pipelined(size):
    """A block copies into scratch piece by piece, another puts what a semaphore says is there."""
    gpus = []
    for rank in range(size):
        peers = [peer for peer in range(size) if peer != rank]
        loop = {"unit_size": 1024, "num_chunks": 1}
        copies = [op("copy", [local("i", peer)], [local("s", peer)]) for peer in peers]
        released = {"name": "sem_release", "semaphore_ids": [0]}
        puts = [op("put", [local("s", peer)], [there(number, rank)]) for number, peer in enumerate(peers)]
        acquired = {"name": "sem_acquire", "semaphore_ids": [0]}
        blocks = [
            [{"name": "pipeline", "iter_context": loop, "ops": [*copies, released]}],
            [{"name": "pipeline", "iter_context": loop, "ops": [acquired, *puts]}, sync("signal", *range(size - 1))],
            [sync("wait", *range(size - 1)), op("copy", [local("i", rank)], [local("o", rank)])],
        ]
        gpus.append(gpu(rank, size, size, blocks, buffers="o", semaphores=[0]))
    return plan("alltoall", gpus, in_place=False)


def written(folder, made):
    path = folder / "plan.json"
    path.write_text(json.dumps(made, indent=1))
    return path


@given(st.integers(2, 7))
@settings(max_examples=6, deadline=None)
def test_plans_are_proven(tmp_path_factory, size):
    folder = tmp_path_factory.mktemp("mscclpp")
    pairs = size * (size - 1)
    for made, kind, count in (
        (all_gather(size), CollectiveKind.ALL_GATHER, pairs),
        (ring_all_gather(size), CollectiveKind.ALL_GATHER, pairs),
        (all_pairs_packets(size), CollectiveKind.ALL_REDUCE, 2 * pairs),
        (read_reduce(size), CollectiveKind.ALL_REDUCE, 2 * pairs),
        (pipelined(size), CollectiveKind.ALL_TO_ALL, pairs),
    ):
        schedule = read(written(folder, made))
        assert (schedule.claim.kind, schedule.claim.size, len(schedule.transfers)) == (kind, size, count)


@given(st.integers(2, 5), st.integers(1, 6), st.integers(1, 1 << 20))
@settings(max_examples=10, deadline=None)
def test_thread_blocks_that_share_a_chunk_move_what_one_would(tmp_path_factory, size, shared, per_rank):
    folder = tmp_path_factory.mktemp("mscclpp")
    sent = []
    for blocks in (1, shared):
        schedule = read(written(folder, read_reduce(size, shared=blocks)))
        made = schedule.plan(CollectiveKind.ALL_REDUCE, size, per_rank * size * shared, 0)
        sent.append([made.bytes_of(rank) for rank in range(size)])
    assert sent[0] == sent[1] == [2 * (size - 1) * per_rank * shared] * size


def time_ns(folder, made, kind, size, chosen):
    written(folder, made)
    (folder / "system.yaml").write_text(f"preferred-dataset-splits: 1\n{kind}-implementation: [{chosen}]\n")
    graph = simcore.graph(size)
    graph.collective(kind.replace("-", "_"), 1 << 20)
    topology = Topology((Dimension("FullyConnected", size, 1e9, 500.0),))
    return simcore.run(graph, topology, folder / "system.yaml").time_ns


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize(("make", "algorithm"), [(all_gather, "direct"), (ring_all_gather, "ring")])
def test_a_plan_takes_as_long_as_the_algorithm_it_spells_out(tmp_path, make, algorithm, size):
    times = [time_ns(tmp_path, make(size), "all-gather", size, each) for each in ("{schedule: plan.json}", algorithm)]
    assert times[0] == times[1]


@pytest.mark.parametrize("make", [all_pairs_packets, read_reduce])
def test_an_all_reduce_in_two_exchanges_takes_as_long_as_the_direct_one(tmp_path, make):
    times = [time_ns(tmp_path, make(4), "all-reduce", 4, each) for each in ("{schedule: plan.json}", "direct")]
    assert times[0] == times[1]


def changed(made, change):
    change(made)
    return made


def ops(made, rank=0, block=0):
    return made["gpus"][rank]["threadblocks"][block]["ops"]


def in_the_switch(made):
    """As plans of MSCCL++'s tests: a channel to the switch, of a group of ranks, and an operation there."""
    gpu = made["gpus"][0]
    group = {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 3, "ranks": [0, 1, 2]}]}
    gpu["channels"].append(group)
    gpu["threadblocks"][0]["channels"].append({"channel_type": "switch", "channel_ids": [0]})
    ops(made)[2].update(name="glres", channel_type="switch")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (changed(ring_all_gather(4), lambda made: ops(made, 3).pop(1)), "reads what may not have come yet"),
        (changed(all_gather(3), lambda made: ops(made)[2].update(name="nop")), "misses chunk 0 of rank 0 at the end"),
        (changed(all_gather(3), lambda made: ops(made)[0].update(name="nop")), "never gets past this"),
        (changed(all_gather(3), lambda made: ops(made)[-1].update(channel_ids=[0, 1, 1])), "never gets past this"),
        (changed(all_gather(3), lambda made: ops(made)[2].update(name="glres")), "switches reduce"),
        (changed(all_gather(3), in_the_switch), "switches reduce"),
        (changed(all_gather(3), lambda made: ops(made)[2].update(name="putt")), "no such operation"),
        (changed(all_gather(3), lambda made: ops(made)[2]["src_buff"].pop()), "a target for every source"),
        (changed(all_gather(3), lambda made: ops(made)[2]["src_buff"][0].update(size=2)), "differ in size"),
        (changed(all_gather(3), lambda made: ops(made)[2]["dst_buff"][0].update(buffer_id=9)), "no such remote buffer"),
        (changed(all_gather(3), lambda made: ops(made)[0].update(channel_ids=[5])), "no such channel"),
        (changed(all_gather(3), lambda made: made.update(collective="sendrecv")), "no such collective"),
        (changed(all_gather(3), lambda made: made["gpus"].reverse()), "ranks stand in order"),
        (changed(all_gather(3), lambda made: made["gpus"][1].pop("threadblocks")), "has no 'threadblocks'"),
        (changed(all_pairs_packets(3), lambda made: ops(made, 1).pop()), "never gets past this"),
        (
            changed(all_pairs_packets(3), lambda made: ops(made, 0, 1)[0]["src_buff"].append(local("s", 2))),
            "reduced a second time",
        ),
        (changed(all_gather(3), lambda made: made.pop("collective")), "no 'collective'"),
        (changed(all_gather(3), lambda made: made["gpus"][1].update(input_chunks=5)), "ranks have as much input"),
        (changed(all_gather(3), lambda made: made["gpus"][1].update(output_chunks=1)), "not the output of this"),
        (changed(read_reduce(3, shared=2), lambda made: made["gpus"][1].update(output_chunks=6)), "not the output of"),
        (changed(all_gather(3), lambda made: made.update(inplace="no")), "inplace must be true or false"),
        (
            changed(all_pairs_packets(3), lambda made: made["gpus"][1].update(scratch_chunks=2)),
            "buffer s of rank 1 has no chunk 2",
        ),
    ],
)
def test_a_plan_that_does_not_work_is_refused_with_its_place(tmp_path, made, words):
    with pytest.raises(InputError, match=words) as caught:
        read(written(tmp_path, made))
    assert all(problem.location.line for problem in caught.value.problems)


def pair(ops, buffers, *, chunks, blocks=False):
    """Two ranks that are not alike, as in the executor's own tests: operations by rank, one remote buffer of a kind."""
    gpus = []
    for rank in range(2):
        made = ops[rank] if blocks else [ops[rank]]
        gpus.append(gpu(rank, 2, chunks, made, buffers=buffers[rank]))
    return plan("allreduce", gpus)


def reads_on_one_side_and_puts_from_the_other():
    """What `reduce.json` does: rank 0 reads, reduces and sends in one go, gets and reduces; rank 1 reads and puts."""
    both = [sync("signal", 0), op("nop"), sync("wait", 0)]
    first = [
        op("copy", [local("i", 2, 2)], [local("s", 2, 2)]),
        *both,
        op("rres", [local("i", 0), there(0, 0)], [local("i", 0), there(1, 0)]),
        op("get", [there(0, 1)], [local("s", 1)]),
        op("res", [local("i", 1), local("s", 1)], [local("i", 1), there(1, 1)]),
        *both,
    ]
    second = [
        op("copy", [local("i", 0, 2)], [local("s", 0, 2)]),
        *both,
        op("rre", [local("i", 2, 2), there(0, 2, 2)], [local("i", 2, 2)]),
        op("copy", [local("i", 2, 2)], [local("s", 2, 2)]),
        op("put", [local("s", 2, 2)], [there(1, 2, 2)]),
        *both,
    ]
    return pair([first, second], ["si", "si"], chunks=4)


def packets_in_three_blocks():
    """What `reduce_pack.json` does: a block puts packets, one reduces and sends what came, one unpacks the sums."""
    first = [
        [op("ppkt", [local("i", 1)], [there(0, 1)])],
        [op("respkt", [local("i", 0), local("s", 0)], [local("i", 0), there(0, 0)])],
        [op("upkt", [local("s", 1)], [local("i", 1)])],
    ]
    second = [
        [op("ppkt", [local("i", 0)], [there(0, 0)])],
        [op("recspkt", [local("i", 1), local("s", 1)], [local("i", 1), local("s", 2), there(0, 1)])],
        [op("upkt", [local("s", 0)], [local("i", 0)])],
    ]
    return pair([first, second], ["s", "s"], chunks=2, blocks=True)


@pytest.mark.parametrize("make", [reads_on_one_side_and_puts_from_the_other, packets_in_three_blocks])
def test_plans_of_mscclpps_own_tests_are_all_reduces_that_send_every_chunk_there_and_back(tmp_path, make):
    schedule = read(written(tmp_path, make()))
    moved = [sum(len(entry.chunks) for entry in schedule.transfers if entry.src == rank) for rank in range(2)]
    assert moved == [schedule.claim.chunks] * 2
    half = sum(len(entry.chunks) for entry in schedule.transfers if entry.reduce)
    assert half == schedule.claim.chunks
