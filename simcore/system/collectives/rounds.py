"""Collectives of rounds in which every rank does the same with other peers: rings, pairs, and what spreads by steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from simcore.system.collectives.registry import EVERYBODY, PlanOptions, collective, native
from simcore.system.plans.plan import Plan, Round
from simcore.workload.model import CollectiveKind

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = EVERYBODY


def _once(size: int, rounds: Iterable[Round], *, exchange: bool = False) -> Plan:
    """Each round once."""
    return Plan(size, tuple((entry, 1) for entry in rounds), exchange=exchange)


def _doublings(size: int) -> list[int]:
    """1, 2, 4, .. below `size`."""
    return [1 << level for level in range((size - 1).bit_length())]


def _power_of_two(name: str, size: int) -> None:
    if size & (size - 1):
        raise ValueError(f"{name} needs a power of two of ranks, not {size}")


@collective("ring")
def ring(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Everything goes to the next neighbour."""
    return _ring(kind, size, data_bytes)


def _ring(kind: CollectiveKind, size: int, data_bytes: int, hop: int = 1) -> Plan:
    """Rounds of the ring collectives on `size` ranks, to the rank `hop` on.

    `data_bytes` is the running size: what one rank contributes to an all-gather, the whole vector of the others.
    All-reduce: reduce-scatter then all-gather, 2(n-1) messages of data/n (Patarasuk and Yuan, JPDC 69(2), 2009). An
    all-to-all forwards step by step: the share for the rank d on takes d hops, n(n-1)/2 messages in all.
    """
    share = data_bytes // size
    reducing, forwarding = Round(hop, share, share), Round(hop, share)
    rounds = {
        ALL_REDUCE: ((reducing, size - 1), (forwarding, size - 1)),
        REDUCE_SCATTER: ((reducing, size - 1),),
        ALL_GATHER: ((Round(hop, data_bytes), size - 1),),
        ALL_TO_ALL: ((forwarding, size * (size - 1) // 2),),
    }
    return Plan(size, rounds[kind])


@native("bidirectionalRing", *EVERYBODY)
def bidirectional_ring(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Two rings of half the data each, opposite ways round, so that both directions of links work.

    Half of what a ring takes for large data: all-reduce 2(n-1) latency + (n-1)/n S / bandwidth.
    An all-to-all sends every share the shorter way round, half of it each way where both are as long:
    S n/8 / bandwidth for an even n.
    """
    if kind == ALL_TO_ALL:
        there, back = (_shorter_way(size, data_bytes, forward=forward) for forward in (True, False))
        return replace(there, beside=(back,))
    unit = 1 if kind == ALL_GATHER else size
    half = data_bytes // unit // 2 * unit
    return replace(_ring(kind, size, data_bytes - half), beside=(_ring(kind, size, half, size - 1),))


def _shorter_way(size: int, data_bytes: int, *, forward: bool) -> Plan:
    """Shares for ranks less than half the ring away, hop by hop, then the part of that for the opposite rank."""
    share, steps = data_bytes // size, (size - 1) // 2
    opposite = share - share // 2 if forward else share // 2
    hop = 1 if forward else size - 1
    rounds = ((Round(hop, share), steps * (steps + 1) // 2), (Round(hop, opposite), size // 2 * (1 - size % 2)))
    return Plan(size, tuple((entry, count) for entry, count in rounds if count))


@collective("direct", windowed=True)
def direct(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Every rank sends to every other rank, all at once or a window of messages at a time.

    Rounds to the ranks 1, 2, .. n-1 on; an all-reduce does so twice, the second half after the whole first.
    """
    window = min(options.window or size - 1, size - 1)
    share = data_bytes if kind == ALL_GATHER else data_bytes // size
    halves = 2 if kind == ALL_REDUCE else 1
    hops = [*range(1, size)] * halves
    reduces = _reductions(kind, len(hops), window, size, options)
    rounds = [Round(hop, share, share if reduced else 0) for hop, reduced in zip(hops, reduces, strict=True)]
    counted = tuple((entry, len(list(same))) for entry, same in groupby(rounds))
    return Plan(size, counted, window, own=options.own, half=size - 1 if halves == 2 else 0)


def _reductions(kind: CollectiveKind, count: int, window: int, size: int, options: PlanOptions) -> list[bool]:
    """Which receives are reduced: those of a reduce-scatter, and the first half of an all-reduce.

    ASTRA-sim's counters: `window` packets free, a batch charged, and so on; the first `window` are sends. An all-reduce
    charges every other charged batch only.
    """
    if kind not in {ALL_REDUCE, REDUCE_SCATTER}:
        return [False] * count
    if not options.astra_reductions:
        return [index < size - 1 for index in range(count)]
    batch = (size - 1) * window if options.local_group else window
    free, charged, not_this_time = [False] * window, [True] * batch, [kind == REDUCE_SCATTER] * batch
    period = [*free, *charged, *free, *not_this_time]
    return [period[index % len(period)] for index in range(window, window + count)]


@collective("halvingDoubling")
def halving_doubling(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Pairs exchange ever smaller halves, then ever larger ones (Rabenseifner 2004).

    Rounds with partners 1, 2, 4, .. away for the halving, n/2, .., 1 for the doubling.
    ValueError unless n is a power of two, and for an all-to-all.
    """
    _power_of_two("halvingDoubling", size)
    if kind == ALL_TO_ALL:
        raise ValueError("halvingDoubling cannot do an all-to-all")
    levels = range(size.bit_length() - 1)
    halving = [(1 << level, data_bytes >> (level + 1)) for level in levels]
    doubling = [(size >> (level + 1), data_bytes << level) for level in levels]
    back = halving[::-1]
    if options.astra_reductions:  # ASTRA-sim halves the last size once more, truncated, and doubles it every time
        back = [(hop, halving[-1][1] // 2 << doublings) for doublings, (hop, _) in enumerate(back, 1)]
    messages = {REDUCE_SCATTER: halving, ALL_GATHER: doubling, ALL_REDUCE: halving + back}[kind]
    charges = [sent for _, sent in halving] if kind != ALL_GATHER else []
    if options.astra_reductions:
        charges = charges[1:]
    charges += [0] * (len(messages) - len(charges))
    rounds = (Round(hop, sent, charge) for (hop, sent), charge in zip(messages, charges, strict=True))
    return _once(size, rounds, exchange=True)


@native("recursiveDoubling", ALL_REDUCE)
def recursive_doubling(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Pairs exchange and reduce the whole vector, ever farther apart: few steps, much to send.

    log2(n) rounds with the partners 1, 2, 4, .. n/2 away (Thakur et al., IJHPCA 19(1), 2005).
    ValueError unless n is a power of two.
    """
    _power_of_two("recursiveDoubling", size)
    return _once(size, (Round(hop, data_bytes, data_bytes) for hop in _doublings(size)), exchange=True)


@native("pairwise", ALL_TO_ALL)
def pairwise(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Every rank sends a share to one other and hears from one, in each of n - 1 rounds.

    Round k swaps shares with rank XOR k where n is a power of two, else sends k on and hears from k behind.
    (n-1) (latency + S/n / bandwidth) on links of its own (Thakur et al., IJHPCA 19(1), 2005).
    """
    return _once(size, (Round(hop, data_bytes // size) for hop in range(1, size)), exchange=not size & (size - 1))


@native("bruck", ALL_GATHER, ALL_TO_ALL)
def bruck(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Any number of ranks in ceil(log2 n) rounds (Bruck et al., IEEE TPDS 8(11), 1997).

    Round k reaches 2^k ranks on; the rotations before and after move nothing over the network.
    All-gather: all that a rank has goes to the rank 2^k behind, in the last round only what is missing there.
    All-to-all: the shares whose distance to go has bit k set move 2^k on.
    """
    if kind == ALL_GATHER:
        return _once(size, (Round(size - step, min(step, size - step) * data_bytes) for step in _doublings(size)))
    moving = ((step, sum(1 for distance in range(size) if distance & step)) for step in _doublings(size))
    return _once(size, (Round(step, shares * (data_bytes // size)) for step, shares in moving))


@native("pat", ALL_GATHER, REDUCE_SCATTER)
def pat(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Gather down, or reduce up, one tree per rank, all trees at once (Jeaugey, arXiv 2506.20252; NCCL 2.23).

    ceil(log2 n) rounds for any n, the farthest partner first and with the least data: Bruck's dimensions reversed.
    All-gather: in the round of hop h, all parts go on by h that lie a multiple of 2 h behind and do not come too far
    round. A reduce-scatter is the same backwards, reducing. With room for all parts (NCCL sends fewer at once when its
    buffers are too small).
    """
    parts = [(hop, (size + hop - 1) // (2 * hop)) for hop in _doublings(size)]
    if kind == ALL_GATHER:
        return _once(size, (Round(hop, count * data_bytes) for hop, count in reversed(parts)))
    share = data_bytes // size
    return _once(size, (Round(size - hop, count * share, count * share) for hop, count in parts))


@native("dissemination", CollectiveKind.BARRIER)
def dissemination(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """A barrier in ceil(log2 n) rounds (Hensgen, Finkel and Manber, IJPP 17(1), 1988).

    Round k tells the rank 2^k on what has been heard: after the last, everybody has heard of everybody.
    Every message has `data_bytes`.
    """
    return _once(size, (Round(hop, data_bytes) for hop in _doublings(size)))
