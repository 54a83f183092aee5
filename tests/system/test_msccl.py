"""Programs of MSCCL run as schedules: rings take a ring's time, what does no collective is refused with its line."""

import contextlib
import heapq
import random
import re
from collections import Counter, defaultdict, deque
from itertools import product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import simcore
from simcore.errors import InputError
from simcore.markup import read_markup
from simcore.network.topology.model import Dimension, Topology
from simcore.system.plans.msccl import read_program
from simcore.workload.model import CollectiveKind

STEP = (
    '<step s="{}" type="{}" srcbuf="{}" srcoff="{}" dstbuf="{}" dstoff="{}" cnt="1" depid="{}" deps="{}" hasdep="1"/>'
)


def program(collective, blocks, *, inputs, outputs, in_place=1):
    """A program: blocks by rank, each (send, recv, steps)."""
    lines = [
        f'<algo name="a" proto="Simple" nchannels="1" ngpus="{len(blocks)}" coll="{collective}" inplace="{in_place}">'
    ]
    for rank, held in enumerate(blocks):
        lines.append(f'<gpu id="{rank}" i_chunks="{inputs}" o_chunks="{outputs}" s_chunks="{2 * len(blocks)}">')
        for number, (send, recv, steps) in enumerate(held):
            lines.append(f'<tb id="{number}" send="{send}" recv="{recv}" chan="0">')
            lines += [STEP.format(place, *step) for place, step in enumerate(steps)]
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def ring_all_reduce(size):
    """The ring of NCCL: receive, reduce, send; then copies go round."""
    blocks = []
    for rank in range(size):
        steps = [("s", "i", rank, "i", rank, -1, -1)]
        for back in range(1, size):
            at = (rank - back) % size
            steps.append(("rrcs", "i", at, "i", at, -1, -1))
        for back in range(size, 2 * size - 1):
            at = (rank - back) % size
            steps.append(("r" if back == 2 * size - 2 else "rcs", "i", at, "i", at, -1, -1))
        blocks.append([((rank + 1) % size, (rank - 1) % size, steps)])
    return program("allreduce", blocks, inputs=size, outputs=size)


def direct(collective, size):
    """Everybody sends to everybody at once, a thread block for each peer."""
    blocks = []
    for rank in range(size):
        held = []
        for peer in range(size):
            if peer != rank and collective == "alltoall":
                steps = [("s", "i", peer, "o", rank, -1, -1), ("r", "i", 0, "o", peer, -1, -1)]
                held.append((peer, peer, steps))
            elif peer != rank:
                held.append((peer, peer, [("s", "i", 0, "o", rank, -1, -1), ("r", "i", 0, "o", peer, -1, -1)]))
        blocks.append(held)
    inputs = size if collective == "alltoall" else 1
    return program(collective, blocks, inputs=inputs, outputs=size, in_place=0)


def all_pairs(size):
    """One chunk each way into scratch, then a block sums up what all the others have brought."""
    blocks = []
    for rank in range(size):
        peers = [peer for peer in range(size) if peer != rank]
        held = [(peer, peer, [("s", "i", 0, "s", rank, -1, -1), ("r", "i", 0, "s", peer, -1, -1)]) for peer in peers]
        waits = [("nop", "i", 0, "i", 0, number, 1) for number in range(len(peers))]
        held.append((-1, -1, [*waits, *(("re", "s", peer, "i", 0, -1, -1) for peer in peers)]))
        blocks.append(held)
    return program("allreduce", blocks, inputs=1, outputs=1)


def forwarding(size):
    """An all-gather along a line, both ways: a block receives what another one sends on when it is there."""
    blocks = []
    for rank in range(size):
        held = []
        for here, away, own in (
            (rank - 1, rank + 1, range(rank + 1)),
            (rank + 1, rank - 1, range(size - 1, rank - 1, -1)),
        ):
            number = len(held)
            comes = [at for at in own if at != rank] if 0 <= here < size else []
            held.append((-1, here if comes else -1, [("r", "o", at, "o", at, -1, -1) for at in comes]))
            deps = {at: (number, place) for place, at in enumerate(comes)}
            goes = own if 0 <= away < size else []
            held.append((away if goes else -1, -1, [("s", "o", at, "o", at, *deps.get(at, (-1, -1))) for at in goes]))
        blocks.append(held)
    return program("allgather", blocks, inputs=1, outputs=size)


def in_one_step(size):
    """As RCCL's allreduce_1step: all data to everybody's scratch; what has been sent is summed up in place."""
    blocks = []
    for rank in range(size):
        peers = [peer for peer in range(size) if peer != rank]
        held = []
        for place, peer in enumerate(peers):
            sends = [("s", "i", at, "s", at, -1, -1) for at in range(2)]
            comes = [("r", "i", at, "s", 2 * place + at, -1, -1) for at in range(2)]
            held.append((peer, peer, [*sends, *comes]))
        for at in range(2):
            waits = [("nop", "i", 0, "i", 0, number, deps) for number in range(len(peers)) for deps in (at, 2 + at)]
            sums = [("re", "s", 2 * place + at, "i", at, -1, -1) for place in range(len(peers))]
            held.append((-1, -1, [*waits, *sums]))
        blocks.append(held)
    return program("allreduce", blocks, inputs=2, outputs=2)


def gossip(size, draw):
    """An all-gather in any order: a block for each peer sends and receives as it comes, and may wait for more."""
    steps = {(rank, peer): [] for rank in range(size) for peer in range(size) if peer != rank}
    came = [{rank: (-1, -1)} for rank in range(size)]
    missing = [(rank, chunk) for rank in range(size) for chunk in range(size) if rank != chunk]
    while missing:
        rank, chunk = missing.pop(draw.randrange(len(missing)))
        there = draw.choice([other for other in range(size) if chunk in came[other]])
        own = [peer for peer in range(size) if peer != there]
        any_step = [(at, place) for at, peer in enumerate(own) for place in range(len(steps[there, peer]))]
        wait = came[there][chunk] if there != chunk else draw.choice([(-1, -1), *any_step])
        steps[there, rank].append(("s", "o", chunk, "o", chunk, *wait))
        number = [peer for peer in range(size) if peer != rank].index(there)
        came[rank][chunk] = number, len(steps[rank, there])
        steps[rank, there].append(("r", "o", chunk, "o", chunk, -1, -1))
    blocks = [[(peer, peer, steps[rank, peer]) for peer in range(size) if peer != rank] for rank in range(size)]
    return program("allgather", blocks, inputs=1, outputs=size)


def naive_ns(root, chunk_ns, latency_ns):
    """When the last step is done: each comes behind the one before, what it waits for and the message it takes; a
    wire takes one chunk at a time."""
    blocks = {(gpu.integer("id"), tb.integer("id")): tb for gpu in root.all("gpu") for tb in gpu.all("tb")}
    done, wires, free_ns = {key: [0] for key in blocks}, defaultdict(deque), Counter()

    def goes(rank, number):
        tb, times = blocks[rank, number], done[rank, number]
        if len(times) > len(tb.all("step")):
            return False
        step, comes = tb.all("step")[len(times) - 1], wires[tb.integer("recv", minimum=-1), rank]
        kind, to = step.text("type"), (rank, tb.integer("send", minimum=-1))
        others = done.get((rank, step.integer("depid", minimum=-1)), [0])
        place = step.integer("deps", minimum=-1) + 1
        if place >= len(others) or (kind[0] == "r" and kind != "re" and not comes):
            return False
        times.append(max(times[-1], others[place], comes.popleft() if kind[0] == "r" and kind != "re" else 0))
        if kind[-1] == "s":
            free_ns[to] = max(times[-1], free_ns[to]) + chunk_ns
            wires[to].append(free_ns[to] + latency_ns)
        return True

    while any(goes(*key) for key in blocks):
        pass
    assert all(len(times) > len(blocks[key].all("step")) for key, times in done.items())
    return max(map(max, done.values()))


class Naive:
    """Ranks, slots and wires between ranks: blocks go on one step at a time, whoever is drawn."""

    def __init__(self, root):
        self.held, self.wires, self.done = {}, defaultdict(deque), Counter()
        self.blocks = {(gpu.integer("id"), tb.integer("id")): tb for gpu in root.all("gpu") for tb in gpu.all("tb")}
        gather = root.text("coll") == "allgather"
        for gpu in root.all("gpu"):
            rank, inputs = gpu.integer("id"), gpu.integer("i_chunks")
            for at in range(inputs):
                self.held[rank, "io", rank * inputs + at if gather else at] = Counter([(at, rank)])

    def slot(self, rank, step, end):
        buffer = step.text(f"{end}buf")
        return rank, "s" if buffer == "s" else "io", step.integer(f"{end}off")

    def goes(self, rank, number):
        tb = self.blocks[rank, number]
        if self.done[rank, number] == len(tb.all("step")):
            return False
        step = tb.all("step")[self.done[rank, number]]
        comes = self.wires[tb.integer("recv", minimum=-1), rank]
        awaited = self.done[rank, step.integer("depid", minimum=-1)] > step.integer("deps", minimum=-1)
        if not awaited or (step.text("type") in {"r", "rcs", "rrc", "rrcs"} and not comes):
            return False
        self.does(rank, tb, step, step.text("type"), comes)
        self.done[rank, number] += 1
        return True

    def does(self, rank, tb, step, kind, comes):
        source, target = (self.slot(rank, step, end) for end in ("src", "dst"))
        value = comes.popleft() if kind in {"r", "rcs", "rrc", "rrcs"} else Counter()
        if kind in {"s", "re", "rrc", "rrcs"}:
            value = value + self.held.get(source, Counter())
        if kind == "re":
            value = value + self.held.get(target, Counter())
        if kind not in {"s", "nop"}:
            self.held[target] = value
        if kind in {"s", "rcs", "rrcs"}:
            self.wires[rank, tb.integer("send")].append(value)

    def play(self, draw):
        """What every rank holds in the end: of which chunk whose data, how often."""
        order = list(self.blocks)
        while any(self.goes(*key) for key in draw.sample(order, len(order))):
            pass
        return self.held


@given(st.sampled_from([ring_all_reduce, all_pairs, forwarding, in_one_step]), st.integers(2, 4), st.randoms())
@settings(max_examples=150, deadline=None)
def test_what_is_proven_works_in_whatever_order_blocks_go_on(tmp_path_factory, make, size, draw):
    """Programs without some of the waits that they have: played naively, one step of a block drawn at random after the
    other, those that are not refused give everybody everything."""
    path = tmp_path_factory.getbasetemp() / "algo.xml"
    text = make(size)
    path.write_text(text)
    read_program(path)
    waits = re.findall(r'depid="\d+" deps="\d+"', text)
    for wait in draw.sample(waits, min(len(waits), draw.randint(0, 2))):
        parts = text.split(wait)
        at = draw.randrange(1, len(parts)) if len(parts) > 1 else 0
        text = wait.join(parts[:at]) + 'depid="-1" deps="-1"' + wait.join(parts[at:]) if at else text
    path.write_text(text)
    with contextlib.suppress(InputError):
        claim, _ = read_program(path)
        gather = claim.kind == CollectiveKind.ALL_GATHER
        for _ in range(4):
            held = Naive(read_markup(path)).play(draw)
            for rank, chunk in product(range(size), range(claim.chunks)):
                whose = [(0, chunk)] if gather else [(chunk, one) for one in range(size)]
                assert held[rank, "io", chunk] == Counter(whose)


def time_ns(tmp_path, text, kind, size, chosen, size_bytes=1 << 20, network="congested", latency_ns=500.0, more=""):
    (tmp_path / "algo.xml").write_text(text)
    choice = {"program": "{schedule: algo.xml}"}.get(chosen, chosen)
    (tmp_path / "system.yaml").write_text(f"preferred-dataset-splits: 1\n{kind}-implementation: [{choice}]\n{more}")
    graph = simcore.graph(size)
    graph.collective(kind.replace("-", "_"), size_bytes)
    topology = Topology((Dimension("FullyConnected", size, 1e9, latency_ns),))
    report = simcore.run(graph, topology, tmp_path / "system.yaml", network=network)
    assert (chosen == "program") == any("protocols" in text for text in report.warnings)
    return report.time_ns


@given(st.integers(2, 9))
@settings(max_examples=8, deadline=None)
def test_programs_are_proven(tmp_path_factory, size):
    path = tmp_path_factory.mktemp("msccl") / "algo.xml"
    kinds = {
        ring_all_reduce(size): CollectiveKind.ALL_REDUCE,
        all_pairs(size): CollectiveKind.ALL_REDUCE,
        direct("allgather", size): CollectiveKind.ALL_GATHER,
        direct("alltoall", size): CollectiveKind.ALL_TO_ALL,
    }
    for text, kind in kinds.items():
        path.write_text(text)
        claim, transfers = read_program(path)
        assert (claim.kind, claim.size) == (kind, size)
        assert len(transfers) == (2 * size * (size - 1) if "rrcs" in text and size > 1 else size * (size - 1))


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_ring_as_a_program_takes_as_long_as_the_ring(tmp_path, size):
    times = [time_ns(tmp_path, ring_all_reduce(size), "all-reduce", size, chosen) for chosen in ("program", "ring")]
    assert times[0] == times[1]


@pytest.mark.parametrize(("collective", "kind"), [("allgather", "all-gather"), ("alltoall", "all-to-all")])
def test_a_direct_exchange_as_a_program_takes_as_long_as_the_direct_one(tmp_path, collective, kind):
    times = [time_ns(tmp_path, direct(collective, 4), kind, 4, chosen) for chosen in ("program", "direct")]
    assert times[0] == times[1]


MAKERS = {
    "all-gather": [gossip, lambda size, draw: forwarding(size), lambda size, draw: direct("allgather", size)],
    "all-reduce": [lambda size, draw, make=make: make(size) for make in (ring_all_reduce, all_pairs, in_one_step)],
}


@given(st.sampled_from([(kind, make) for kind in MAKERS for make in MAKERS[kind]]), st.integers(2, 5), st.randoms())
@example(("all-gather", gossip), 5, random.Random(1))  # noqa: S311 - no secret
@settings(max_examples=60, deadline=None)
def test_a_program_takes_as_long_as_its_blocks_which_do_one_step_after_the_other(tmp_path_factory, chosen, size, draw):
    (kind, make), folder = chosen, tmp_path_factory.getbasetemp()
    text = make(size, draw)
    (folder / "naive.xml").write_text(text)
    root = read_markup(folder / "naive.xml")
    size_bytes = 1000 * root.all("gpu")[0].integer("i_chunks")
    for network in ("congested", "congestion-free"):
        assert time_ns(folder, text, kind, size, "program", size_bytes, network) == naive_ns(root, 1000, 500)


def whispers(size, chunks, draw):
    """An all-gather, every message of which has a channel and two thread blocks of its own; and its messages: from
    whom, to whom, how many chunks, and which one before brings them."""
    cut = [draw.randint(1, chunks - 1) for _ in range(size)]
    first = [(at, 0) for at in range(size)] + [(at, cut[at]) for at in range(size)]
    missing = [(rank, *piece) for rank in range(size) for piece in first if piece[0] != rank]
    came, messages, blocks = {piece: {piece[0]: (-1, -1)} for piece in first}, [], [[] for _ in range(size)]
    while missing:
        rank, owner, begin = missing.pop(draw.randrange(len(missing)))
        there = draw.choice(list(came[owner, begin]))
        count, (before, block) = chunks - begin if begin else cut[owner], came[owner, begin][there]
        where = f'srcbuf="o" srcoff="{owner * chunks + begin}" dstbuf="o" dstoff="{owner * chunks + begin}"'
        for at, peers, kind, waits in (
            (there, (rank, -1), "s", f'depid="{block}" deps="{min(block, 0)}"'),
            (rank, (-1, there), "r", 'depid="-1" deps="-1"'),
        ):
            head = 'id="{}" send="{}" recv="{}" chan="{}"'.format(len(blocks[at]), *peers, len(messages))
            blocks[at].append(f'<tb {head}><step type="{kind}" {where} cnt="{count}" {waits}/></tb>')
        came[owner, begin][rank] = len(messages), len(blocks[rank]) - 1
        messages.append((there, rank, count, before))
    head = f'i_chunks="{chunks}" o_chunks="{size * chunks}"'
    ranks = [f'<gpu id="{rank}" {head}>\n{"".join(own)}</gpu>' for rank, own in enumerate(blocks)]
    return f'<algo ngpus="{size}" coll="allgather">\n{"".join(ranks)}</algo>', messages


def served_ns(messages, chunk_ns, latency_ns):
    """When the last one is there, of messages that links serve as they come; none where two come at once."""
    turns, free_ns, came_ns, seen = [(0, at) for at, one in enumerate(messages) if one[3] < 0], Counter(), 0, set()
    while turns:
        now_ns, at = heapq.heappop(turns)
        src, dst, count, _ = messages[at]
        if now_ns and (src, dst, now_ns) in seen:
            return None
        seen.add((src, dst, now_ns))
        free_ns[src, dst] = max(now_ns, free_ns[src, dst]) + count * chunk_ns
        there_ns = free_ns[src, dst] + latency_ns
        came_ns = max(came_ns, there_ns)
        for then in (then for then, one in enumerate(messages) if one[3] == at):
            heapq.heappush(turns, (there_ns, then))
    return came_ns


@given(st.integers(2, 5), st.randoms())
@example(5, random.Random(0))  # noqa: S311 - no secret
@settings(max_examples=60, deadline=None)
def test_thread_blocks_do_not_wait_for_others_that_send_to_the_same_rank(tmp_path_factory, size, draw):
    text, messages = whispers(size, 100, draw)
    expected_ns = served_ns(messages, 100, 77)
    assume(expected_ns is not None)
    for network in ("congested", "congestion-free"):
        found_ns = time_ns(tmp_path_factory.getbasetemp(), text, "all-gather", size, "program", 10000, network, 77.0)
        assert found_ns == expected_ns


@given(st.integers(2, 20), st.sampled_from(["congested", "congestion-free", "fair"]))
@settings(max_examples=20, deadline=None)
def test_what_a_block_receives_later_is_there_later(tmp_path_factory, many, network):
    """A chunk that comes behind many, which take long to reduce, goes back when they do, and before them."""
    first = [(1, -1, [("s", *"i1i1", -1, -1), ("s", *"i0i0", -1, -1)])]
    first += [(-1, 1, [("r", *"i0i0", -1, -1), ("r", *"i1i1", -1, -1)])]
    second = [(-1, 0, [("rrc", *"i1i1", -1, -1), ("r", *"i0s0", -1, -1)]), (-1, -1, [("re", *"s0i0", 0, 1)])]
    second += [(0, -1, [("s", *"i0i0", 1, 0), ("s", *"i1i1", 0, 0)])]
    text = program("allreduce", [first, second], inputs=many + 1, outputs=many + 1)
    text = re.sub('(srcoff="1"[^>]*) cnt="1"', rf'\1 cnt="{many}"', text)
    folder, size_bytes, more = tmp_path_factory.getbasetemp(), 1000 * (many + 1), "local-mem-bw: 0.1\n"  # GB/s
    all_ns = size_bytes + 500
    came_ns = all_ns if network == "fair" else all_ns - 1000
    reduced_ns = came_ns + many * 30000  # of a chunk three kilobytes are moved
    assert time_ns(folder, text, "all-reduce", 2, "program", size_bytes, network, more=more) == reduced_ns + all_ns


RING = ring_all_reduce(4)
ADDS_TO_WHAT_IS_SENT = program(
    "allreduce",
    [[(1 - rank, -1, [("s", *"i0i0", -1, -1)]), (-1, 1 - rank, [("rrc", *"i0i0", -1, -1)])] for rank in range(2)],
    inputs=1,
    outputs=1,
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (RING.replace('type="rrcs"', 'type="rcs"', 1), 0, "this is no all_reduce"),
        (RING.replace('type="s"', 'type="nop"', 1), 0, "reduces two different chunks"),
        (all_pairs(3).replace('type="s"', 'type="nop"', 1), 21, "never gets past"),
        (RING.replace('type="s"', 'type="shout"', 1), 4, "no such step"),
        (RING.replace('dstbuf="i"', 'dstbuf="out"', 1), 4, "no such dstbuf"),
        (RING.replace('coll="allreduce"', 'coll="shuffle"'), 1, "no such collective"),
        (RING.replace('send="1"', 'send="7"'), 3, "there is no such rank"),
        (RING.replace('send="1"', 'send="0"', 1), 3, "0 to 3, but for 0 itself"),
        (all_pairs(3).replace('tb id="1"', 'tb id="0"', 1), 7, 'id="0"'),
        (all_pairs(3).replace('send="2"', 'send="1"', 1), 7, 'send="1" chan="0"'),
        (all_pairs(3).replace('recv="2"', 'recv="1"', 1), 7, 'recv="1" chan="0"'),
        (RING.replace('<gpu id="3"', '<gpu id="2"'), 1, "every rank"),
        (RING.replace('srcbuf="i"', 'srcbuf="s"', 1), 4, "has nothing in slot"),
        (RING.replace("</algo>", ""), 0, "not well-formed"),
        (forwarding(3).replace('depid="0" deps="0"', 'depid="-1" deps="-1"'), 20, "reads what may not have come yet"),
        (all_pairs(3).replace('hasdep="1"', 'hasdep="0"'), 12, "nobody is told"),
        (all_pairs(3).replace('s_chunks="6"', 's_chunks="1"'), 0, "buffer s of rank 2 has no chunk 1"),
        (RING.replace('dstoff="3"', 'dstoff="4"', 1), 0, "buffer io of rank 0 has no chunk 4"),
        (ADDS_TO_WHAT_IS_SENT, 0, "overwrites slot 0 of buffer io of rank"),
        ("<system/>", 1, "not a program of MSCCL"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><algo/>', 1, "document type"),
        (RING.replace('ngpus="4"', f'ngpus="{10**18}"'), 1, "every rank"),
        ("<algo>\n" + "<gpu>" * 5000 + "</gpu>" * 5000 + "</algo>", 2, "nested deeper"),
    ],
)
def test_a_program_that_does_not_work_is_refused_with_its_place(tmp_path, text, line, words):
    (tmp_path / "algo.xml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_program(tmp_path / "algo.xml")
    said = str(caught.value)
    assert words in said
    assert f"algo.xml:{line or ''}" in said


def test_a_step_is_waited_for_until_its_block_tells_so(tmp_path):
    """MSCCL's interpreter counts a block's steps for others behind those with `hasdep`: a later one tells of it."""
    text = forwarding(4)
    silent = re.sub('(type="r".*)hasdep="1"(.*\n.* s="1" type="r")', r'\1hasdep="0"\2', text)
    later = text.split("<gpu")  # two of the ranks receive twice and hand on both
    for rank, block in ((1, 2), (2, 0)):
        later[rank + 1] = later[rank + 1].replace(f'depid="{block}" deps="0"', f'depid="{block}" deps="1"')
    sent = []
    for each in (text, silent, "<gpu".join(later)):
        (tmp_path / "a.xml").write_text(each)
        sent.append(read_program(tmp_path / "a.xml"))
    assert sent[0] != sent[1] == sent[2]


@pytest.mark.parametrize(
    ("old", "new"), [('ngpus="4"', 'ngpus="4" nchunksperloop="8"'), ('"3" i_chunks="4"', '"3" i_chunks="5"')]
)
def test_ranks_have_the_chunks_of_a_loop(tmp_path, old, new):
    """Of 8 parts such a program would reduce 4."""
    text = ring_all_reduce(4)
    (tmp_path / "a.xml").write_text(text.replace(old, new))
    with pytest.raises(InputError, match="other chunks than a loop"):
        read_program(tmp_path / "a.xml")
    (tmp_path / "a.xml").write_text(text.replace('ngpus="4"', 'ngpus="4" nchunksperloop="4"'))
    read_program(tmp_path / "a.xml")
