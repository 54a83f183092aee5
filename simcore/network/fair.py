"""Links shared fairly: all transfers on a link run at once, at max-min fair rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct, field

from simcore.network.clock import whole_latency
from simcore.network.congested import Deliver, LinkNetwork
from simcore.network.faults import Outlook
from simcore.network.instant import DECISION, TRANSMISSION, Environment, after
from simcore.network.topology.fabric import FloatArray, Routes
from simcore.network.topology.links import LinkGraph
from simcore.network.trees import Combination, Meeting, Reduction, branches
from simcore.timeline.events import LinkTable
from simcore.units import whole_ns

_TOLERANCE = 1e-12


def max_min_rates(routes: Routes, capacity_bytes_per_s: FloatArray) -> FloatArray:
    """Rate of every flow, in bytes per second; infinite for a flow that takes no link.

    Water filling (Bertsekas and Gallager, Data Networks, section 6.5): a link whose equal share is the least of all
    links of each of its flows is a bottleneck, and its flows are settled. All such links are settled in one round, so
    rounds are few even when levels are many.
    """
    flows = np.repeat(np.arange(len(routes.counts)), routes.counts)
    links = routes.links
    rates = np.full(len(routes.counts), np.inf)
    left = capacity_bytes_per_s.astype(np.float64).copy()
    while len(flows):
        share = left / np.maximum(np.bincount(links, minlength=len(left)), 1)
        wanted = np.full(len(rates), np.inf)
        np.minimum.at(wanted, flows, share[links])
        # A link is a bottleneck unless one of its flows is held further down by another link.
        held = wanted[flows] < share[links] * (1 - _TOLERANCE)
        bottleneck = np.ones(len(left), bool)
        bottleneck[links[held]] = False
        settled = np.zeros(len(rates), bool)
        settled[flows[bottleneck[links]]] = True
        rates[settled] = wanted[settled]
        gone = settled[flows]
        left -= np.bincount(links[gone], rates[flows[gone]], len(left))
        np.maximum(left, 0.0, out=left)
        flows, links = flows[~gone], links[~gone]
    return rates


class _Flow(Struct, eq=False):
    """A transfer under way: what is left of it, at which rate in bytes per second, and the faults that slowed it."""

    key: Any
    size_bytes: int
    route: tuple[int, ...]
    latency_ns: int
    deliver: Deliver
    left_bytes: float
    rate: float = 0.0
    hit: set[int] = field(default_factory=set)


class _Pool(Struct, eq=False):
    """Transfers that share links, directly or not, and have had the same rates since a time.

    They are `of_links`, of which they use `used`. Ends that were foretold under rates of another `version` are void.
    Once most transfers of a pool are over it may fall apart: it had so many at `most`.
    """

    since_ns: int
    flows: list[_Flow] = field(default_factory=list)
    of_links: dict[int, None] = field(default_factory=dict)
    used: list[int] = field(default_factory=list)
    version: int = 0
    most: int = 0


_by_key, _route = attrgetter("key"), attrgetter("route")


class FairShare(LinkNetwork):
    """A fluid model: rates change only when a transfer begins or ends, and are max-min fair in between.

    They change only for those that share links with it, directly or not, and are found anew only for these.
    A transfer's last byte arrives its route's latency after the transfer ends. Ends are rounded up to whole
    nanoseconds. Links that have a transfer count as busy. Faults change rates when they begin and end; a transfer keeps
    the way that was there when it was sent.
    """

    in_parts = ties_turn = True  # nobody is served before another one
    bears_faults = True  # as changes of rates
    has_trees = True

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        self._pools: dict[int, _Pool] = {}  # of links
        self._new: list[_Flow] = []
        self._changed: dict[_Pool, None] = {}
        self._pending_ns = -1  # the instant whose end will settle the rates
        self._shares = lru_cache(maxsize=256)(self._shares_of)  # rounds and iterations send the same again
        self._alone = lru_cache(maxsize=1 << 16)(self._rate_alone)
        self._meetings: dict[Any, Meeting] = {}
        self._outlook = Outlook(links)
        for change_ns in self._outlook.changes:
            after(env, change_ns, self._change, DECISION)

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Deliver) -> None:
        """As `Network.send`."""
        path = self._path(src, dst)
        route = self._outlook.around(path.links, src, dst, self.env.now)
        if route is None:  # until there is a way again
            wait_ns = self._outlook.next_change(self.env.now) - self.env.now
            after(self.env, wait_ns, partial(self.send, src, dst, size_bytes, key, deliver))
            return
        if route != path.links:
            path = self._along(route)
        self._flow(path.links, size_bytes, key, deliver, sum(path.steps_ns))

    def multicast(
        self, src: int, dst: Sequence[int], size_bytes: int, key: tuple[Any, ...], deliver: Callable[[int], None]
    ) -> None:
        """As `TreeNetwork.multicast`: one transfer over all links of the tree, at the rate of the slowest."""
        tree, _ = branches(self.links, src, dst)
        wanted = set(dst)

        def through() -> None:  # the last byte has left the root; it is at every end its latency later
            for branch in (branch for branch in tree if branch.node in wanted):
                after(self.env, branch.mark_ns, partial(deliver, branch.node))

        self._flow(tuple(branch.link for branch in tree), size_bytes, key, through)

    def combine(self, src: int, peer: int, size_bytes: int, key: Any, switch: Reduction, deliver: Deliver) -> None:
        """As `TreeNetwork.combine`: one transfer over all links up and down, once all are there."""
        up, down = self.links.route(src, peer)[0], self.links.route(peer, src)[-1]
        latency_ns = whole_latency(sum(self.links.latency_ns[[up, down]].tolist())) + switch.latency_ns
        meeting = self._meetings.setdefault(switch.name, Meeting())
        meeting.parts.append(Combination(key, up, latency_ns, down, 0, deliver))
        if len(meeting.parts) < switch.parts:
            return
        del self._meetings[switch.name]
        reduced_ns = self.env.now + switch.reduced_ns(size_bytes)
        parts = sorted(meeting.parts, key=lambda part: part.key)
        route = tuple(link for part in parts for link in (part.up, part.down))

        def through() -> None:
            left_ns = max(reduced_ns - self.env.now, 0)
            for part in parts:
                after(self.env, left_ns + part.up_ns, part.deliver)

        self._flow(route, size_bytes, parts[0].key, through)

    def _flow(self, route: tuple[int, ...], size_bytes: int, key: Any, through: Deliver, latency_ns: int = 0) -> None:
        """Begin a transfer over many links; `through` is called a latency after it ends."""
        if not route or not size_bytes:
            after(self.env, latency_ns, through)
            return
        for link in route:
            self._size_bytes[link] += size_bytes
        self._new.append(_Flow(key, size_bytes, route, latency_ns, through, float(size_bytes)))
        self._settle_now()

    def table(self) -> LinkTable:
        """What every link carried so far, a transfer under way counted in full, and what the faults did."""
        return replace(super().table(), faults=self._outlook.counts())

    def _settle_now(self) -> None:
        """New rates once everything of this instant is known."""
        if self._pending_ns != self.env.now:
            self._pending_ns = self.env.now
            after(self.env, 0, self._settle, TRANSMISSION)

    def _change(self) -> None:
        """Faults begin or end."""
        self._changed.update(dict.fromkeys(self._pools.values()))
        self._settle()

    def _progress(self, pool: _Pool) -> None:
        """Move transfers on to now, at the rates they had."""
        now_ns = self.env.now
        elapsed_ns = now_ns - pool.since_ns
        if elapsed_ns:
            for flow in pool.flows:
                flow.left_bytes -= flow.rate * elapsed_ns * 1e-9
            for link in pool.used:
                self._count(link, 0, pool.since_ns, now_ns)
        pool.since_ns = now_ns

    def _join(self, flow: _Flow) -> None:
        """A transfer makes one pool of those whose links it takes."""
        met = dict.fromkeys(self._pools[link] for link in flow.route if link in self._pools)
        pool, *others = sorted(met, key=lambda each: -len(each.of_links)) or [_Pool(self.env.now)]
        self._progress(pool)
        for other in others:
            self._progress(other)
            pool.flows += other.flows
            pool.of_links |= other.of_links
            self._pools.update(dict.fromkeys(other.of_links, pool))
            self._changed.pop(other, None)
            other.version += 1
        pool.flows.append(flow)
        pool.of_links.update(dict.fromkeys(flow.route))
        self._pools.update(dict.fromkeys(flow.route, pool))
        self._changed[pool] = None

    def _dissolve(self, pool: _Pool) -> None:
        """What is left may share links no more."""
        del self._changed[pool]
        pool.version += 1
        for link in pool.of_links:
            del self._pools[link]
        for flow in pool.flows:
            self._join(flow)

    def _settle(self) -> None:
        """Rates for those who share links with what has come or gone, and when the first of them ends."""
        new, self._new, self._pending_ns = self._new, [], -1
        for flow in new:
            self._join(flow)
        for pool in [*self._changed]:
            self._progress(pool)
            if 2 * len(pool.flows) <= pool.most:
                self._dissolve(pool)
        changed, self._changed = self._changed, {}
        slow = self._outlook.slow(self.env.now)
        for pool in changed:
            self._rate(pool, slow)

    def _rate(self, pool: _Pool, slow: list[tuple[int, frozenset[int]]]) -> None:
        pool.flows.sort(key=_by_key)  # sums of floats must not depend on who was sent first
        for index, links in slow:
            for flow in pool.flows:
                if index not in flow.hit and not links.isdisjoint(flow.route):
                    flow.hit.add(index)
                    self._outlook.note(index, flow.size_bytes)
        if len(pool.flows) == 1 and not slow:
            pool.flows[0].rate, pool.used = self._alone(pool.flows[0].route)
        else:
            rates, pool.used = self._shares(tuple(index for index, _ in slow), tuple(map(_route, pool.flows)))
            for flow, rate in zip(pool.flows, rates, strict=True):
                flow.rate = rate
        pool.version += 1
        pool.most = max(pool.most, len(pool.flows))
        first_s = min(flow.left_bytes / flow.rate for flow in pool.flows)
        after(self.env, max(whole_ns(first_s * 1e9), 0), partial(self._end, pool, pool.version))

    def _rate_alone(self, route: tuple[int, ...]) -> tuple[float, list[int]]:
        """Of a transfer that shares its links with none but those that it stands for: it takes a link once for each."""
        taken = Counter(route)
        return min(self._rates[link] / times for link, times in taken.items()), list(taken)

    def _shares_of(self, _slow: tuple[int, ...], taken: tuple[tuple[int, ...], ...]) -> tuple[list[float], list[int]]:
        """Rates of transfers that take such routes while some faults slow links, and the links that they use."""
        links = np.array([link for route in taken for link in route], np.int64)
        routes = Routes(np.array([len(route) for route in taken], np.int64), links)
        return max_min_rates(routes, self._outlook.capacity(self.env.now)).tolist(), np.unique(links).tolist()

    def _end(self, pool: _Pool, version: int) -> None:
        """Some transfers are through."""
        if version != pool.version:
            return
        self._progress(pool)
        if len(pool.flows) == 1:  # it is through: nobody else's rate changes
            for link in pool.of_links:
                del self._pools[link]
            after(self.env, pool.flows[0].latency_ns, pool.flows[0].deliver)
            return
        # What is left by the rounding of a rate is nothing.
        through = [flow for flow in pool.flows if whole_ns(flow.left_bytes / flow.rate * 1e9) <= 0]
        gone = set(through)
        pool.flows = [flow for flow in pool.flows if flow not in gone]
        self._changed[pool] = None
        for flow in through:
            after(self.env, flow.latency_ns, flow.deliver)
        self._settle_now()
