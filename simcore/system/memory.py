"""Memory that is shared: the bus between an NPU and its network endpoint, and remote memory.

All packets of an NPU share its bus, in ASTRA-sim's LogGP model.

LogGP (Alexandrov et al., JPDC 44(1), 1997) prices a transfer with a latency L, an overhead o at both ends, a gap g
between transfers and G per byte. The rules are those of ASTRA-sim's `model-shared-bus: 1` (versions 1.0 and 2.x), as
are the packets of a collective: how large they are, where they go, which are reduced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from simcore import documents
from simcore.errors import Problems
from simcore.network.instant import DECISION, Environment, Timers, TimersOfNpus, after
from simcore.system.plans.automaton import After, Done, Pay
from simcore.system.plans.plan import Plan
from simcore.system.streams import StreamPhase
from simcore.workload.model import CollectiveKind

INNER_NS_PER_BYTE = 0.0038  # of the second bus, behind the NPU's end of the first
MAX_IN_A_ROW = 8  # transfers one end sends before the other gets its turn
REDUCED_BYTES, REDUCTION_SETUP_NS = 100, 50
FREE, SENDING, RECEIVING = range(3)


class BusCosts(Struct, frozen=True):
    """LogGP's L, o, g and G, and the time to reduce 100 bytes."""

    latency_ns: int = 0
    overhead_ns: int = 0
    gap_ns: int = 0
    ns_per_byte: float = 0.0
    reduction_ns: int = 1


class Route(NamedTuple):
    """Where a packet goes: to the memory or to the NPU, whether it is reduced there and comes back."""

    to_memory: bool = False
    reduced: bool = False
    send_back: bool = False


def _nobody(end: End, decides: bool) -> None:
    """Nobody listens to the ends."""


class MemoryBus:
    """The bus of one NPU. `timers` are the NPU's; its end has a second, faster bus behind it."""

    def __init__(
        self, env: Environment, timers: Timers, costs: BusCosts, touched: Touched = _nobody, *, inner: bool = True
    ):
        faster = replace(costs, ns_per_byte=INNER_NS_PER_BYTE)
        second = MemoryBus(env, timers, faster, touched, inner=False) if inner else None
        self._npu, self._memory = (End(env, timers.after, costs, behind, touched) for behind in (second, None))
        self._npu.partner, self._memory.partner = self._memory, self._npu

    def carry(self, route: Route, size_bytes: int, done: Done) -> None:
        """Take a packet along its route."""
        start = self._npu if route.to_memory else self._memory
        start.request(_Transfer(size_bytes, route.reduced, route.send_back, done))


class _Transfer(Struct, eq=False):
    """A packet on the bus; what it still has to do at the ends is struck off as it goes."""

    size_bytes: int
    reduced: bool
    send_back: bool
    done: Done


class End:
    """One end of a bus. A transfer puts this end into sending and the other into receiving, whatever it was doing.

    `touched` is told where a packet is queued, and where the end decides by itself who is next.
    """

    partner: End

    def __init__(self, env: Environment, later: After, costs: BusCosts, inner: MemoryBus | None, touched: Touched):
        self._env, self._after, self._costs, self._inner, self._touched = env, later, costs, inner, touched
        self._state = self._before = FREE
        self._last_ns = self._in_a_row = 0
        self._sends: deque[_Transfer] = deque()
        self._receives: deque[_Transfer] = deque()
        self._reductions: deque[_Transfer] = deque()
        self._reducing = False

    def request(self, transfer: _Transfer) -> None:
        """Send a packet, which the NPU's end fetches over the inner bus first."""
        queue = partial(self._do, partial(self._queue, transfer))
        if self._inner:
            self._inner.carry(Route(), transfer.size_bytes, queue)
        else:
            queue()

    def _queue(self, transfer: _Transfer) -> None:
        self._touched(self, False)
        self._sends.append(transfer)

    def _do(self, then: Done) -> None:
        then()
        self._go_on()

    def _go_on(self) -> None:
        """Send the next packet, unless the other end waits for its turn."""
        if self._state != FREE or not self._sends:
            return
        other = self.partner
        if self._in_a_row > MAX_IN_A_ROW and other._sends and other._in_a_row <= MAX_IN_A_ROW:
            other._go_on()
        else:
            self._send(self._sends.popleft())

    def _send(self, transfer: _Transfer) -> None:
        costs, now_ns = self._costs, int(self._env.now)
        start_ns = costs.overhead_ns
        if self._before == SENDING and start_ns + now_ns - self._last_ns <= costs.gap_ns:
            start_ns = costs.gap_ns - (now_ns - self._last_ns)
        bytes_ns = (transfer.size_bytes - 1) * costs.ns_per_byte
        self.partner._receive(transfer, int(start_ns + bytes_ns + costs.latency_ns + costs.overhead_ns))
        self._state = SENDING
        self._after(int(start_ns + bytes_ns), self._sent)

    def _receive(self, transfer: _Transfer, duration_ns: int) -> None:
        self._receives.append(transfer)
        self._before, self._state = self._state, RECEIVING
        self._in_a_row = 0
        self._after(duration_ns, self._received)

    def _sent(self) -> None:
        self._last_ns = int(self._env.now)
        self._before, self._state = self._state, FREE
        self._in_a_row += 1
        if self._in_a_row > MAX_IN_A_ROW and self._sends:
            self._touched(self, True)
        self._go_on()

    def _received(self) -> None:
        self._last_ns = int(self._env.now)
        self._before = self._state
        transfer = self._receives.popleft()
        if not self._receives:
            self._state = FREE
        if transfer.reduced:
            transfer.reduced = False
            self._by_memory(transfer, partial(self._reduce, transfer), back=True)
        else:
            self._pass_on(transfer)
        if self._state == FREE and self._sends:
            self._touched(self, True)
        self._go_on()

    def _pass_on(self, transfer: _Transfer) -> None:
        """Send a packet back, or be done with it."""
        back, transfer.send_back = transfer.send_back, False
        self._by_memory(transfer, partial(self._queue, transfer) if back else transfer.done, back)

    def _by_memory(self, transfer: _Transfer, then: Done, back: bool) -> None:
        """The NPU's end moves a packet over the inner bus, there or there and back, before anything else."""
        if self._inner:
            self._inner.carry(Route(to_memory=True, send_back=back), transfer.size_bytes, partial(self._do, then))
        else:
            then()

    def _reduce(self, transfer: _Transfer) -> None:
        self._reductions.append(transfer)
        self._reduce_next()

    def _reduce_next(self) -> None:
        """One reduction at a time, first come, first served."""
        if self._reductions and not self._reducing:
            self._reducing = True
            work = self._reductions[0].size_bytes // REDUCED_BYTES * self._costs.reduction_ns
            self._after(work + REDUCTION_SETUP_NS, self._reduced)

    def _reduced(self) -> None:
        self._reducing = False
        self._pass_on(self._reductions.popleft())
        self._reduce_next()
        self._go_on()


Touched = Callable[[End, bool], None]
Carry = Callable[[Route, int, Done], None]


def packets(algorithm: str, kind: CollectiveKind, plan: Plan) -> list[tuple[Route, int]]:
    """All packets of a phase and their bytes: `plan.window` are there from the start, every receive adds one.

    Packets come in batches: `plan.window` go to the memory, those after them to the NPU and, but for the last
    `plan.window`, back. A reduce-scatter reduces them, an all-reduce those of every other batch. Those that no message
    follows are as large as the message that would.
    """
    window, sizes = plan.window, [entry.size_bytes for entry in plan.expanded]
    following = sizes[-1]
    if algorithm == "halvingDoubling":
        following = following // 2 if kind == CollectiveKind.REDUCE_SCATTER else following * 2
    behind = {"direct": window, "halvingDoubling": plan.size.bit_length() - 2}.get(algorithm, plan.size - 1)
    found = []
    for number, size_bytes in enumerate(sizes + [following] * window):
        batch, place = divmod(number, window + behind)
        to_memory = place < window
        reduces = kind == CollectiveKind.REDUCE_SCATTER or (kind == CollectiveKind.ALL_REDUCE and batch % 2 == 0)
        found.append((Route(to_memory, reduces and not to_memory, not to_memory and place < behind), size_bytes))
    return found


class Packets:
    """Takes packets over the buses of all NPUs, whose ends tell `touched`."""

    def __init__(self, env: Environment, timers: TimersOfNpus, costs: BusCosts):
        self._env, self._timers, self._costs = env, timers, costs
        self._packets, self._bus = cache(packets), cache(self._new_bus)
        self.touched: Touched = _nobody

    def pay(self, npu: int, phase: StreamPhase, plan: Plan, reduction_ns: Callable[[int], int]) -> Pay:
        """What the packets of a phase cost on one NPU; reductions cost as much again as without a bus."""
        carry = partial(self._carry, npu, reduction_ns)
        if plan.transfers:
            return _of_transfers(plan, carry)
        known = self._packets(phase.lane.algorithm.name, phase.kind, plan)
        return lambda number, reduce_bytes, credit: carry(*known[number], credit)

    def _carry(self, npu: int, reduction_ns: Callable[[int], int], route: Route, size_bytes: int, credit: Done) -> None:
        then = partial(self._timers[npu].after, reduction_ns(size_bytes), credit) if route.reduced else credit
        self._bus(npu).carry(route, size_bytes, then)

    def _new_bus(self, npu: int) -> MemoryBus:
        return MemoryBus(self._env, self._timers[npu], self._costs, self.touched)


def _of_transfers(plan: Plan, carry: Carry) -> Pay:
    """Packets of an explicit plan: those that its sends begin with, and those it receives, sent back if it goes on."""
    missing: dict[int, int] = {}

    def pay(number: int, reduce_bytes: int, credit: Done) -> None:
        if number < 0:
            carry(Route(to_memory=True), plan.transfers[~number].size_bytes, credit)
            return
        for follower in plan.before[number]:
            missing[follower] = missing.get(follower, len(plan.after[follower])) - 1
        goes_on = any(missing[follower] == 0 for follower in plan.before[number])
        carry(Route(False, reduce_bytes > 0, goes_on), plan.transfers[number].size_bytes, credit)

    return pay


SHARES = {"PER_NPU_MEMORY_EXPANSION": 0, "MEMORY_POOL": -1}  # a port each, one for all
TYPES = ["NO_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", *SHARES]


class RemoteMemory(Struct, frozen=True):
    """Latency and bandwidth of one transfer; `npus_per_node` share a port (0: each has its own, -1: all share one).

    `max_npus` is how many there are ports for (0: no limit).
    """

    latency_ns: int = 0
    bytes_per_ns: float = 1.0
    npus_per_node: int = 0
    max_npus: int = 0

    def transfer_ns(self, size_bytes: int) -> int:
        """Time of one transfer."""
        return int(size_bytes / self.bytes_per_ns) + self.latency_ns

    def port(self, npu: int) -> int:
        """Which port an NPU's transfers queue at."""
        if self.npus_per_node < 0:
            return 0
        return npu // self.npus_per_node if self.npus_per_node else npu


class Port:
    """A port of remote memory: one transfer at a time, first come, first served.

    Where it `gathers`, it looks when all that happens at a time has happened: who comes then is served in the order of
    NPUs, otherwise as they ask (ASTRA-sim).
    """

    def __init__(self, env: Environment, *, gathers: bool):
        self._env, self._gathers, self._busy = env, gathers, False
        self._waiting: list[tuple[int, int, int, Done]] = []
        self._numbers = count()

    def ask(self, npu: int, serve: Callable[[Done], None], done: Done) -> None:
        """Serve an NPU when it is its turn, and tell it when that is done."""
        begin: Done = partial(serve, partial(self._served, done))
        heappush(self._waiting, (self._env.now, npu if self._gathers else 0, next(self._numbers), begin))
        self._turn()

    def _served(self, done: Done) -> None:
        done()
        self._busy = False
        self._turn()

    def _turn(self) -> None:
        if self._gathers:
            after(self._env, 0, self._next, DECISION)
        else:
            self._next()

    def _next(self) -> None:
        if self._waiting and not self._busy:
            self._busy = True
            heappop(self._waiting)[-1]()


def read_remote(path: str) -> RemoteMemory | None:
    """A remote memory file; None when it says that there is none."""
    with Problems() as problems:
        root = documents.read(path, problems)
        rate, ports = ("remote-mem-latency", "remote-mem-bw"), ("num-nodes", "num-npus-per-node")
        kind = str(root["memory-type"].value) if "memory-type" in root else ""
        needed = (*rate, *ports) if kind == "PER_NODE_MEMORY_EXPANSION" else rate if kind in SHARES else ()
        root.keys(required=("memory-type", *needed), optional=(*rate, *ports))
        if "memory-type" in root:
            root["memory-type"].choice(TYPES)
        if problems.found or not needed:
            return None
        per_node = SHARES[kind] if kind in SHARES else root["num-npus-per-node"].integer(1)
        max_npus = 0 if kind in SHARES else per_node * root["num-nodes"].integer(1)
        return RemoteMemory(root[rate[0]].integer(), root[rate[1]].number(above=True), per_node, max_npus)
