"""Laws of the collective algorithms: every registered plan moves the right data, and the solvers equal the messages."""

import heapq
from collections import Counter
from itertools import count

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simcore.system.alone.solver import solve, stepped, transfers
from simcore.system.collectives import PlanOptions, algorithms, traits_of
from simcore.system.collectives.trees import tree
from simcore.system.groups import RankGroup
from simcore.system.plans.automaton import TransferAutomaton, at_endpoint
from simcore.system.plans.flow import Claim, faults
from simcore.system.plans.maker import Costs
from simcore.system.plans.plan import Plan, Round, Transfer
from simcore.testing import check_plan
from simcore.workload.model import CollectiveKind
from tests.runs import KINDS

ALL_REDUCE, ALL_GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
REDUCE_SCATTER, ALL_TO_ALL = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
ABLE = {name: traits_of(name).kinds for name in algorithms} | {
    "halvingDoubling": (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
}
OTHERS = {"doubleBinaryTree", "synthesised", "bidirectionalRing", "inNetwork", "multicast"}
PLANS = [(name, kind) for name in algorithms if name not in OTHERS for kind in ABLE[name] if kind in KINDS]
POWERS = dict.fromkeys(["halvingDoubling", "recursiveDoubling"], (2, 4, 8, 16))
EVERY = (2, 3, 4, 5, 8, 9, 16)
QUICK = settings(deadline=None, max_examples=15)

# What a rank sends of S bytes (its own part for an all-gather) on n ranks: reference, textbook formulas.
BYTES = {
    ALL_REDUCE: lambda n, size_bytes: 2 * (n - 1) * size_bytes // n,
    REDUCE_SCATTER: lambda n, size_bytes: (n - 1) * size_bytes // n,
    ALL_GATHER: lambda n, size_bytes: (n - 1) * size_bytes,
    ALL_TO_ALL: lambda n, size_bytes: (n - 1) * size_bytes // n,
}

# What is sent besides: a ring's shares take many hops to all ranks, short ways repeat what has been sent.
EXTRA = {
    ("ring", ALL_TO_ALL): lambda n: n / 2,
    ("bruck", ALL_TO_ALL): lambda n: sum(distance.bit_count() for distance in range(n)) / (n - 1),
    ("recursiveDoubling", ALL_REDUCE): lambda n: n * (n.bit_length() - 1) / (2 * (n - 1)),
}


def costs(endpoint_ns, reduction_ns):
    """What a rank pays beside the network."""
    return Costs(endpoint_ns, reduction_ns, PlanOptions())


def make(name: str, kind: CollectiveKind, data: st.DataObject) -> tuple[Plan, int]:
    """A plan on some ranks, and the bytes of a share."""
    ranks, share = data.draw(st.sampled_from(POWERS.get(name, EVERY))), data.draw(st.integers(1, 10**6))
    return algorithms.get(name)(kind, ranks, ranks * share, PlanOptions(data.draw(st.integers(0, 4)))), share


@pytest.mark.parametrize(("name", "kind"), PLANS)
@QUICK
@given(data=st.data())
def test_every_rank_sends_what_the_formulas_say(name, kind, data):
    plan, share = make(name, kind, data)
    extra = EXTRA.get((name, kind), lambda _: 1)(plan.size)
    assert plan.bytes_of(0) == pytest.approx(BYTES[kind](plan.size, plan.size * share) * extra, rel=1e-12)


@pytest.mark.parametrize(("name", "kind"), PLANS)
@QUICK
@given(data=st.data())
def test_every_round_is_a_permutation_and_no_plan_sends_less_than_it_must(name, kind, data):
    plan, share = make(name, kind, data)
    check_plan(plan, kind, plan.size, share)


@pytest.mark.parametrize(("name", "kind"), [entry for entry in PLANS if entry[1] in {ALL_REDUCE, REDUCE_SCATTER}])
@QUICK
@given(data=st.data())
def test_every_byte_that_is_not_a_rank_s_own_is_reduced_once(name, kind, data):
    plan, share = make(name, kind, data)
    whole = plan.size * plan.num_rounds if name == "recursiveDoubling" else plan.size - 1  # all of it, every time
    assert sum(entry.reduce_bytes for entry in plan.expanded) == whole * share


# --- data flow: the plan's sizes and peers, played with sets of contributions in place of bytes


def ring_flow(plan: Plan) -> list[dict[int, frozenset[int]]]:
    """Shares and who contributed to them, when round r forwards share rank - r around."""
    n = plan.size
    held = [{share: frozenset({rank}) for share in range(n)} for rank in range(n)]
    for number, entry in enumerate(plan.expanded):
        sent = [((rank - number) % n, held[rank][(rank - number) % n]) for rank in range(n)]
        for rank, (share, data) in enumerate(sent):
            peer = plan.peer(rank, entry.hop)
            held[peer][share] = (data | held[peer][share]) if entry.reduce_bytes else data
    return held


def direct_flow(plan: Plan) -> list[dict[int, frozenset[int]]]:
    """Reduced shares go to their owners, then the owners' results to everybody."""
    n, half = plan.size, plan.half or plan.num_rounds
    held = [{share: frozenset({rank}) for share in range(n)} for rank in range(n)]
    entries = plan.expanded
    for part in (entries[:half], entries[half:]):
        before = [dict(mine) for mine in held]
        for entry in part:
            for rank in range(n):
                peer = plan.peer(rank, entry.hop)
                share = peer if entry.reduce_bytes else rank
                data = before[rank][share]
                held[peer][share] = (data | held[peer][share]) if entry.reduce_bytes else data
    return held


def halving_flow(plan: Plan) -> list[dict[int, frozenset[int]]]:
    """Pairs swap halves of what they still work on, then give back what they have."""
    n = plan.size
    held = [{share: frozenset({rank}) for share in range(n)} for rank in range(n)]
    active = [set(range(n)) for _ in range(n)]
    unit = plan.expanded[0].size_bytes * 2 // n
    for entry in plan.expanded:
        before, mine = [dict(data) for data in held], [set(shares) for shares in active]
        for rank in range(n):
            peer = plan.peer(rank, entry.hop)
            if entry.reduce_bytes:
                kept = {share for share in mine[rank] if share & entry.hop == rank & entry.hop}
                assert entry.size_bytes == (len(mine[rank]) - len(kept)) * unit
                active[rank] = kept
                for share in kept:
                    held[rank][share] = before[rank][share] | before[peer][share]
            else:
                assert entry.size_bytes == len(mine[peer]) * unit
                active[rank] = mine[rank] | mine[peer]
                held[rank].update({share: before[peer][share] for share in mine[peer]})
    return held


def doubling_flow(plan: Plan) -> list[dict[int, frozenset[int]]]:
    """Pairs reduce all that both have; nobody's contribution may be counted twice."""
    n = plan.size
    held = [frozenset({rank}) for rank in range(n)]
    for entry in plan.expanded:
        peers = [held[plan.peer(rank, entry.hop)] for rank in range(n)]
        assert not any(mine & other for mine, other in zip(held, peers, strict=True))
        held = [mine | other for mine, other in zip(held, peers, strict=True)]
    return [dict.fromkeys(range(n), mine) for mine in held]


FLOWS = {"recursiveDoubling": doubling_flow, "ring": ring_flow, "direct": direct_flow, "halvingDoubling": halving_flow}


@pytest.mark.parametrize(
    ("name", "ranks"), [(name, n) for name, kind in PLANS if kind == ALL_REDUCE for n in POWERS.get(name, EVERY)]
)
def test_after_an_all_reduce_every_rank_has_every_contribution_to_every_share(name, ranks):
    plan = algorithms.get(name)(ALL_REDUCE, ranks, ranks * 64, PlanOptions())
    everybody = frozenset(range(ranks))
    for held in FLOWS[name](plan):
        assert all(data == everybody for data in held.values())


@pytest.mark.parametrize("ranks", EVERY)
def test_a_ring_s_all_to_all_forwards_every_share_to_its_rank(ranks):
    plan = algorithms.get("ring")(ALL_TO_ALL, ranks, ranks * 64, PlanOptions())
    steps = sum(range(1, ranks))  # a share for the rank d on is sent d times
    assert plan.num_rounds == steps
    assert {entry.hop for entry, _ in plan.rounds} == {1}


@pytest.mark.parametrize("ranks", [*EVERY, 6, 7, 13])
def test_bruck_gathers_the_next_parts_until_it_has_all(ranks):
    plan = algorithms.get("bruck")(ALL_GATHER, ranks, 1, PlanOptions())
    held = [[rank] for rank in range(ranks)]  # in the order in which they are gathered: the rank's own first
    for entry in plan.expanded:
        before = [list(mine) for mine in held]
        for rank in range(ranks):
            held[plan.peer(rank, entry.hop)] += before[rank][: entry.size_bytes]
    for rank, mine in enumerate(held):
        assert mine == [(rank + on) % ranks for on in range(ranks)]
    assert plan.num_rounds == (ranks - 1).bit_length()


@pytest.mark.parametrize("ranks", [*EVERY, 6, 7, 13])
def test_bruck_takes_every_share_of_an_all_to_all_to_its_rank(ranks):
    plan = algorithms.get("bruck")(ALL_TO_ALL, ranks, ranks, PlanOptions())
    held = [{(rank, to) for to in range(ranks)} for rank in range(ranks)]
    for entry in plan.expanded:
        moving = [{share for share in mine if (share[1] - rank) % ranks & entry.hop} for rank, mine in enumerate(held)]
        assert {len(shares) for shares in moving} == {entry.size_bytes}
        held = [mine - shares for mine, shares in zip(held, moving, strict=True)]
        for rank in range(ranks):
            held[plan.peer(rank, entry.hop)] |= moving[rank]
    for rank, mine in enumerate(held):
        assert mine == {(origin, rank) for origin in range(ranks)}
    assert plan.num_rounds == (ranks - 1).bit_length()


@pytest.mark.parametrize("ranks", [*EVERY, 6, 7, 13])
def test_after_a_dissemination_barrier_everybody_has_heard_of_everybody_and_not_before(ranks):
    plan = algorithms.get("dissemination")(CollectiveKind.BARRIER, ranks, 1, PlanOptions())
    heard = [{rank} for rank in range(ranks)]
    for entry in plan.expanded:
        assert len(heard[0]) < ranks
        before = [set(mine) for mine in heard]
        for rank in range(ranks):
            heard[plan.peer(rank, entry.hop)] |= before[rank]
    assert all(len(mine) == ranks for mine in heard)


@pytest.mark.parametrize("ranks", [*EVERY, 6, 7, 13])
def test_pairwise_meets_every_other_rank_once_one_at_a_time(ranks):
    plan = algorithms.get("pairwise")(ALL_TO_ALL, ranks, ranks, PlanOptions())
    assert plan.window == 1
    for rank in range(ranks):
        peers = {plan.peer(rank, entry.hop) for entry in plan.expanded}
        assert sorted(peers | {rank}) == list(range(ranks))


@pytest.mark.parametrize("kind", [ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL])
@pytest.mark.parametrize("ranks", EVERY)
def test_direct_meets_every_other_rank_once(kind, ranks):
    plan = algorithms.get("direct")(kind, ranks, ranks * 64, PlanOptions())
    assert sorted(plan.peer(0, entry.hop) for entry in plan.expanded) == list(range(1, ranks))


# --- the solvers against the messages


@st.composite
def problems(draw):
    """A plan with the times of its messages, arrivals and costs."""
    name, kind = draw(st.sampled_from(PLANS))
    ranks = draw(st.sampled_from(POWERS.get(name, (2, 3, 4, 5, 8))))
    options = PlanOptions(draw(st.integers(0, 4)), *(draw(st.booleans()) for _ in range(3)))
    plan = algorithms.get(name)(kind, ranks, draw(st.sampled_from([0, 1, 7, 64, 4096, 65536])), options)
    uneven = draw(st.booleans())
    base = (
        draw(st.lists(st.integers(0, 900), min_size=ranks, max_size=ranks))
        if uneven
        else [draw(st.integers(0, 900))] * ranks
    )

    def delay(src, dst, size_bytes):
        return np.array(base)[src] + 3 * ((dst - src) % ranks if uneven else 1) + size_bytes // 7

    skew = st.integers(0, 2000) if draw(st.booleans()) else st.just(5)
    arrivals = draw(st.lists(skew, min_size=ranks, max_size=ranks))
    return plan, delay, arrivals, draw(st.sampled_from([0, 1, 10, 500]))


@settings(deadline=None, max_examples=150)
@given(problems(), st.sampled_from([0, 5]))
def test_a_solved_phase_is_the_one_played_message_by_message(problem, reduction_per_byte):
    plan, delay, arrivals, endpoint_ns = problem
    group = RankGroup(np.arange(plan.size), delay)

    def reduction_ns(size_bytes: int) -> int:
        return size_bytes * reduction_per_byte // 100

    def message_ns(rank: int, number: int) -> int:
        entry = plan.expanded[number]
        return int(delay(np.array([rank]), np.array([plan.peer(rank, entry.hop)]), entry.size_bytes)[0])

    paid, came_ns = costs(endpoint_ns, reduction_ns), np.array(arrivals)
    assert solve(plan, group, came_ns, paid).tolist() == stepped(plan, came_ns, message_ns, paid).tolist()


@settings(deadline=None)
@given(problems())
def test_nobody_leaves_before_everybody_has_come_and_a_later_rank_hurries_nobody(problem):
    plan, delay, arrivals, endpoint_ns = problem
    assume(plan.window == 1)
    group = RankGroup(np.arange(plan.size), delay)
    free = costs(endpoint_ns, lambda _: 0)
    exits = solve(plan, group, np.array(arrivals), free)
    later = solve(plan, group, np.array([arrivals[0] + 100, *arrivals[1:]]), free)
    assert (later >= exits).all()
    shifted = solve(plan, group, np.array(arrivals) + 1000, free)
    assert (shifted == exits + 1000).all()


def play_explicit(plan, arrivals, delay_ns, endpoint_ns, reduction_ns):
    """Exits of ranks that are machines on a network where messages between the same two follow each other."""
    queue, order, now = [], count(), 0
    exits, free_ns = [-1] * len(arrivals), {}

    def at(time_ns, callback):
        heapq.heappush(queue, (time_ns, next(order), callback))

    def machine(rank):
        def send(index, dst, size_bytes):
            start_ns = max(now, free_ns.get((rank, dst), 0))
            time_ns = delay_ns(rank, dst, size_bytes)
            free_ns[rank, dst] = start_ns + time_ns - delay_ns(rank, dst, 0)
            at(start_ns + time_ns, lambda: machines[dst].arrive(index))

        def done():
            exits[rank] = now

        def later(delay, call):
            at(now + delay, call)

        return TransferAutomaton(plan, rank, at_endpoint(later, endpoint_ns, reduction_ns), later, send, done)

    machines = [machine(rank) for rank in range(len(arrivals))]
    for rank, arrival in enumerate(arrivals):
        at(arrival, machines[rank].start)
    while queue:
        now, _, callback = heapq.heappop(queue)
        callback()
    return exits


@st.composite
def explicit_plans(draw):
    """Any transfers, sensible or not."""
    ranks = draw(st.integers(2, 6))
    rank = st.integers(0, ranks - 1)
    chunks = st.lists(st.integers(0, 3), min_size=1, max_size=2).map(tuple)
    ends = st.tuples(rank, rank).filter(lambda pair: pair[0] != pair[1])
    made = draw(
        st.lists(st.tuples(st.integers(0, 5), ends, chunks, st.sampled_from([0, 7, 700]), st.booleans()), max_size=25)
    )
    return Plan.of(ranks, [Transfer(step, *pair, *rest, 77) for step, pair, *rest in made])


@QUICK
@given(st.data(), st.sampled_from([0, 10]), st.sampled_from([0, 77]))
def test_a_solved_explicit_plan_is_the_one_played_message_by_message(data, endpoint_ns, reduction_ns):
    trees = st.builds(algorithms.get("doubleBinaryTree"), st.just(ALL_REDUCE), st.sampled_from([2, 4, 8, 16, 32]),
                      st.just(700), st.builds(PlanOptions, mirrored=st.booleans()))  # fmt: skip
    plan = data.draw(st.one_of(trees, explicit_plans()))
    arrivals = data.draw(st.lists(st.integers(0, 3000), min_size=plan.size, max_size=plan.size))

    def delay_ns(src, dst, size_bytes):
        return 100 + 7 * src + abs(src - dst) + size_bytes

    played = play_explicit(plan, arrivals, delay_ns, endpoint_ns, lambda _: reduction_ns)
    group = RankGroup(np.arange(plan.size), delay_ns)
    assert transfers(plan, group, np.array(arrivals), costs(endpoint_ns, lambda _: reduction_ns)).tolist() == played


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_double_binary_tree_all_reduces(ranks, mirrored):
    plan = algorithms.get("doubleBinaryTree")(ALL_REDUCE, ranks, 64, PlanOptions(mirrored=mirrored))
    assert not list(faults(plan, Claim(ALL_REDUCE, ranks, 1)))


@pytest.mark.parametrize("ranks", [2, 4, 8, 64, 256])
def test_the_two_trees_span_all_ranks_and_a_rank_is_inner_in_one_of_them_at_most_twice(ranks):
    one, other = (tree(ranks, mirrored=mirrored) for mirrored in (False, True))
    for shape in (one, other):
        assert max(Counter(above for above, _ in shape).values()) <= 2
        assert max(height for _, height in shape) == ranks.bit_length() - 1
        assert all(height < shape[above][1] for above, height in shape if above >= 0)
    leaves = [{rank for rank in range(ranks) if not shape[rank][1]} for shape in (one, other)]
    assert not leaves[0] & leaves[1], "a leaf of one tree works in the other"


@pytest.mark.parametrize("ranks", [3, 6, 12])
def test_algorithms_of_powers_of_two_refuse_other_numbers(ranks):
    for name in POWERS:
        with pytest.raises(ValueError, match="power of two"):
            algorithms.get(name)(ALL_REDUCE, ranks, 64, PlanOptions())
    with pytest.raises(ValueError, match="power of two"):
        tree(ranks, mirrored=False)


def test_a_plan_prints_its_rounds():
    assert str(Plan(4, ((Round(1, 16, 16), 3), (Round(1, 16), 3)))) == "3x +1 16 B  3x +1 16 B"
    assert str(Plan(4, ((Round(2, 16), 1),), exchange=True)) == "1x ^2 16 B"


def test_an_explicit_plan_prints_its_steps():
    plan = Plan.of(2, [Transfer(1, 1, 0, (0, 1), 8), Transfer(0, 0, 1, (0,), 4, True)])
    assert str(plan) == "0: 0+>1 [0] 4 B\n1: 1->0 [0,1] 8 B"
