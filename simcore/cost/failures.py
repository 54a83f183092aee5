"""Failures in time: a run of weeks with stops, rollbacks, checkpoints, spare nodes and repairs, drawn many times.

Nodes fail at random (exponentially), also while a run restarts. A failure throws the run back to the last checkpoint
that is written; then it is noticed, a spare takes the node's place, all start again and load. Without a spare the run
goes on with fewer replicas (`replica_nodes`), until a checkpoint is written after a repair, or waits for a repair. Time
is counted in seconds of the real clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, floor, inf

from simcore.cost.closed.operation import daly_interval_s
from simcore.errors import InputError
from simcore.progress import meter

LOSSES = ("checkpoint_s", "rollback_s", "restart_s", "waiting_s", "slower_s")
MOST_STOPS = 10_000_000
LEAST_INTERVAL_S = 1.0  # Daly's for a checkpoint that takes no time


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is written and where to.

    `storage_bytes_per_s` is that of all nodes together, `node_bytes_per_s` of one node's links. An asynchronous
    checkpoint stops the run while nodes copy it to their memory (`snapshot_bytes_per_s` a node) and is written beside
    the training, whose messages it holds up for the share `network_busy` of the time its bytes take on a node's links.
    The next one begins when it is written.
    """

    size_bytes: float = 0.0
    storage_bytes_per_s: float = inf
    node_bytes_per_s: float = inf
    snapshot_bytes_per_s: float = 0.0
    network_busy: float = 0.0

    def write_s(self, nodes: int) -> float:
        """How long it takes to write, or to read."""
        return max(self.size_bytes / self.storage_bytes_per_s, self.size_bytes / nodes / self.node_bytes_per_s)

    def blocks_s(self, nodes: int) -> float:
        """How long the run stands still for it, or loses to its messages."""
        if not self.snapshot_bytes_per_s:
            return self.write_s(nodes)
        share = self.size_bytes / nodes
        return share / self.snapshot_bytes_per_s + self.network_busy * share / self.node_bytes_per_s

    def behind_s(self, nodes: int) -> float:
        """How long after that it is not yet written."""
        return self.write_s(nodes) if self.snapshot_bytes_per_s else 0.0


@dataclass(frozen=True, slots=True)
class Failures:
    """A run of `wall_s` on `nodes`; `mtbf_s` is the mean time between failures of one node.

    `interval_s` of work lie between checkpoints, 0 = Daly's; more where one is written for longer. `detect_s` goes by
    before a failure is noticed, `restart_s` before a new start trains (without loading). `replica_nodes` = 0: the run
    cannot shrink.
    """

    nodes: int
    mtbf_s: float
    wall_s: float
    checkpoint: Checkpoint = Checkpoint()
    interval_s: float = 0.0
    detect_s: float = 0.0
    restart_s: float = 0.0
    spares: int = 0
    repair_s: float = 0.0
    replica_nodes: int = 0

    @property
    def machine_mtbf_s(self) -> float:
        """Mean time between failures of any node."""
        return self.mtbf_s / self.nodes

    def work_s(self, nodes: int) -> float:
        """Work between checkpoints when so many nodes run, as time at full size."""
        blocks_s = self.checkpoint.blocks_s(self.nodes)
        wanted_s = self.interval_s or max(daly_interval_s(blocks_s, self.machine_mtbf_s), LEAST_INTERVAL_S)
        return max(wanted_s, self.checkpoint.behind_s(nodes) * nodes / self.nodes)


@dataclass(slots=True)
class FailureRun:
    """What one run came to: useful seconds (at full size), stops, and the seconds that were lost, by cause."""

    useful_s: float = 0.0
    stops: int = 0
    smallest: int = 0
    lost_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LOSSES, 0.0))


class _Life:
    """One run, from event to event."""

    def __init__(self, asked: Failures, seed: int):
        self.asked, self.source = asked, random.Random(seed)  # noqa: S311 - no secret
        self.now_s, self.healthy = 0.0, asked.nodes + asked.spares
        self.repairs: list[float] = []
        self.found = FailureRun(smallest=asked.nodes)

    def play(self) -> FailureRun:
        """Train and stop until the time is over."""
        while self.now_s < self.asked.wall_s:
            fails_s, grows_s, left_s = self._failure_s(), self._growth_s(), self.asked.wall_s - self.now_s
            lasts_s = min(fails_s, grows_s, left_s)
            self._train(lasts_s, thrown_away=lasts_s < left_s)
            self.now_s += lasts_s
            self._repair()
            if lasts_s == fails_s:
                self._lose_node()
            if lasts_s < left_s:
                self._start(self.asked.detect_s if lasts_s == fails_s else 0.0)
        return self.found

    def _size(self, healthy: int) -> int:
        """How many nodes run: all, or whole replicas of those that are left, or none."""
        asked = self.asked
        if healthy >= asked.nodes:
            return asked.nodes
        return healthy // asked.replica_nodes * asked.replica_nodes if asked.replica_nodes else 0

    def _failure_s(self) -> float:
        """How long until one of the nodes that run fails."""
        return self.source.expovariate(self._size(self.healthy) / self.asked.mtbf_s)

    def _growth_s(self) -> float:
        """How long until a checkpoint is written after repairs that let the run grow."""
        running = self._size(self.healthy)
        for more, time_s in enumerate(sorted(self.repairs) if running < self.asked.nodes else (), 1):
            if self._size(self.healthy + more) > running:
                cycle_s, behind_s = self._cycle_s(running), self.asked.checkpoint.behind_s(running)
                return max(1.0, ceil((time_s - self.now_s - behind_s) / cycle_s)) * cycle_s + behind_s
        return inf

    def _cycle_s(self, running: int) -> float:
        """From one checkpoint to the next."""
        asked = self.asked
        return asked.work_s(running) * asked.nodes / running + asked.checkpoint.blocks_s(running)

    def _train(self, lasts_s: float, *, thrown_away: bool) -> None:
        """So much time of work and checkpoints; with `thrown_away`, what no written checkpoint holds is lost."""
        asked, running = self.asked, self._size(self.healthy)
        speed, cycle_s = running / asked.nodes, self._cycle_s(running)
        work_s = asked.work_s(running) / speed
        cycles, rest_s = divmod(lasts_s, cycle_s)
        trained_s = kept_s = cycles * work_s + min(rest_s, work_s)
        if thrown_away:  # what is written at this moment counts, however the division rounds
            kept_s = max(0, floor((lasts_s - asked.checkpoint.behind_s(running)) / cycle_s + 1e-9)) * work_s
        self.found.useful_s += kept_s * speed
        self.found.lost_s["checkpoint_s"] += lasts_s - trained_s
        self.found.lost_s["rollback_s"] += trained_s - kept_s
        self.found.lost_s["slower_s"] += kept_s * (1 - speed)

    def _lose_node(self) -> None:
        self.found.stops += 1
        if self.found.stops > MOST_STOPS:
            message = "the machine fails too often to make progress"
            raise InputError.at("--mtbf", message, found=f"{self.asked.machine_mtbf_s:g} s between failures")
        self.healthy -= 1
        heappush(self.repairs, self.now_s + self.asked.repair_s)
        self._repair()

    def _start(self, detect_s: float) -> None:
        """Until the run trains again, with the nodes that are there by then; a failure on the way begins it anew.

        A node is being repaired from its failure on, also before that is noticed.
        """
        asked, noticed_s = self.asked, self.now_s + detect_s
        while self.now_s < asked.wall_s:
            while not self._size(self.healthy) and self.now_s < asked.wall_s:
                self._pass("waiting_s", self.repairs[0] - self.now_s)
            if self.now_s >= asked.wall_s:
                return
            self.found.smallest = min(self.found.smallest, self._size(self.healthy))
            takes_s = max(noticed_s - self.now_s, 0.0) + asked.restart_s
            takes_s += asked.checkpoint.write_s(self._size(self.healthy))
            fails_s = self._failure_s()
            self._pass("restart_s", min(takes_s, fails_s))
            if fails_s >= takes_s:
                return
            self._lose_node()
            noticed_s = self.now_s + asked.detect_s

    def _repair(self) -> None:
        """Nodes that are repaired by now are healthy."""
        while self.repairs and self.repairs[0] <= self.now_s:
            heappop(self.repairs)
            self.healthy += 1

    def _pass(self, cause: str, lasts_s: float) -> None:
        """Time in which nothing is trained."""
        left_s = self.asked.wall_s - self.now_s
        self.now_s = self.asked.wall_s if lasts_s >= left_s else self.now_s + lasts_s
        self._repair()
        self.found.lost_s[cause] += min(lasts_s, left_s)


def draw(asked: Failures, runs: int, seed: int) -> list[FailureRun]:
    """So many runs, each with a seed of its own."""
    return [_Life(asked, seed + number).play() for number in meter().over(range(runs))]
