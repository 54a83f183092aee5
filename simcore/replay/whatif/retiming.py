"""Another interconnect, or degree of data or tensor parallelism: the group that changes, and transfers timed anew."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.library import table
from simcore.replay.steps.graph import EdgeKind, NodeKind, StepGraph
from simcore.replay.steps.rank import NOWHERE, RankView
from simcore.replay.whatif.products import shard_factors
from simcore.replay.whatif.transfers import Interconnect, Transfer, bus_bytes, transfer_of
from simcore.system.collectives import ROOTED
from simcore.workload.kineto import Collective
from simcore.workload.model import SEND, CollectiveKind, Group, kind_of

Role = Literal["dp", "tp"]
MOST_RANKS = 1_000_000  # of a group
TITLES: dict[Role, str] = {"dp": "data parallel", "tp": "tensor parallel"}
DESCRIBED = tuple(
    (Group(role), re.compile(rf"{words}|(^|[^a-z])({short})([^a-z]|$)", re.IGNORECASE))
    for role, words, short in table(__file__, "groups.txt")
)
BOTH_ENDS = re.compile("embedding", re.IGNORECASE)  # a pipeline's first and last stage
NEITHER = re.compile(r"_and_|expert", re.IGNORECASE)  # groups that mix roles, or belong to experts
OF_ONE_RANK = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}  # their sizes are a rank's part of the buffer


class Regrouping(Struct, frozen=True):
    """A group of `old` ranks, `stride` apart, that becomes one of `new`.

    Ranks outside of it are numbered anew: rank = inner + stride * (place in the group + new * outer).
    """

    role: Role
    name: str
    old: int
    new: int
    stride: int

    def applied(self, said: Collective, transfer: Transfer) -> Transfer | None:
        """The transfer in the larger or smaller job; None where its group takes in part of the changed one.

        A buffer that the changed group gathers keeps its size, so each rank puts in another part of it. With another
        tensor parallel degree every rank holds, and data parallel ranks exchange, another part of the parameters.
        """
        if self.new == self.old or (not said.ranks and transfer.kind != SEND and said.group != self.name):
            return transfer
        found = self._renumbered(transfer.ranks, sends=transfer.kind == SEND)
        if found is None:
            return None
        ranks, grown = found
        divided = (grown and transfer.kind in OF_ONE_RANK) or (self.role == "tp" and _plays("dp", said.description))
        share = transfer.share * (self.old / self.new if divided else 1)
        return replace(transfer, ranks=ranks, share=share)

    @cache  # noqa: B019  groups are few, and a new one may have a million ranks
    def _renumbered(self, ranks: tuple[int, ...], *, sends: bool) -> tuple[tuple[int, ...], bool] | None:
        """What recorded ranks are then, and whether they become more or fewer; None where they are no such ranks."""
        cells = [self.cell(rank) for rank in ranks]
        others = sorted({(inner, outer) for inner, _, outer in cells})
        grown = not sends and len(cells) == len(others) * self.old
        if grown:
            cells = [(inner, place, outer) for inner, outer in others for place in range(self.new)]
        elif not sends and len({place for _, place, _ in cells}) > 1:
            return None
        after = [inner + self.stride * (place % self.new + self.new * outer) for inner, place, outer in cells]
        return (tuple(sorted(after) if grown else after), grown) if len(set(after)) == len(after) else None

    def cell(self, rank: int) -> tuple[int, int, int]:
        """(inner, place in the group, outer) of a recorded rank."""
        return rank % self.stride, rank // self.stride % self.old, rank // self.stride // self.old


class Degree(Struct, frozen=True):
    """Another number of ranks in the data or tensor parallel group; `named` finds it by description or ranks."""

    role: Role
    size: int
    named: re.Pattern[str] | None = None

    def __str__(self) -> str:
        return f"{self.role} = {self.size}"

    def of(self, rank: RankView) -> Regrouping:
        """What this means for the groups of a recorded rank; InputError when the trace does not say which group it is,
        or its ranks are not evenly spaced.
        """
        name, ranks = self._group(rank)
        found = Regrouping(self.role, name, len(ranks), self.size, max(ranks[1] - ranks[0], 1))
        inner, _, outer = found.cell(ranks[0])
        if [found.cell(one) for one in ranks] != [(inner, place, outer) for place in range(len(ranks))]:
            raise self._refused(rank, f"ranks {list(ranks)}", "evenly spaced ranks of the group")
        return found

    def _group(self, rank: RankView) -> tuple[str, tuple[int, ...]]:
        """Name and ranks of the group named or described so; else data parallel is the only one without a role."""
        collectives = (said for said in rank.trace.collectives.values() if said.size > 1)
        found = {(said.group, said.description): said for said in collectives if kind_of(said.operation) != SEND}
        groups = list(found.values())  # a collective of each with more than one rank
        if self.named:
            chosen = [said for said in groups if self.named.search(f"{said.description} {said.group}")]
        else:
            chosen = [said for said in groups if _plays(self.role, said.description)]
            # What tells no role at all, as PyTorch's default_pg.
            silent = [said for said in groups if not role_of(said) and not NEITHER.search(said.description)]
            chosen = chosen or (silent if self.role == "dp" else [])
        distinct = {said.ranks or said.group: said for said in chosen}
        if len(distinct) == 1:
            return chosen[0].group, chosen[0].ranks or tuple(range(chosen[0].size))
        shown = "; ".join(dict.fromkeys(f"{said.description} {said.group}" for said in groups))
        what = f"{len(distinct)} such among the groups {shown[:200]}" if groups else "no process group of a collective"
        raise self._refused(rank, what, f"NCCL arguments of one {TITLES[self.role]} group")

    def _refused(self, rank: RankView, found: str, expected: str) -> InputError:
        return InputError.at(
            "--set",
            f"{self.role} cannot be changed: the trace does not say which collectives are {TITLES[self.role]}",
            expected=f"{expected} in {rank.trace.file}",
            found=found,
            hint=f"--group '{self.role}=REGEX' finds the group by its description or its ranks",
        )


def _plays(role: Role, description: str) -> bool:
    """Whether a group's description tells this role and not the other."""
    return [name for name in roles(description) if name in TITLES] == [role] and not NEITHER.search(description)


def roles(description: str) -> list[Group]:
    """The roles that a group's description tells; what divides the model first comes first."""
    return [group for group, pattern in DESCRIBED if pattern.search(description)]


def role_of(said: Collective) -> str:
    """The role of a process group by its description: what divides the model first; transfers are a pipeline's."""
    usual = kind_of(said.operation) == SEND or BOTH_ENDS.search(said.description)
    return str(next(iter(roles(said.description)), Group.PP if usual else ""))


class Retimed(Struct, frozen=True):
    """Communication under other degrees and on another network.

    A kernel whose arguments were recorded takes what its collective takes on `network`; with `recorded` too, the time
    it was under way changes by the ratio of both networks' times. Without a network it keeps its bus bandwidth, as in
    Lumos (MLSys 2025).
    """

    degrees: tuple[Degree, ...] = ()
    network: Interconnect | None = None
    recorded: Interconnect | None = None

    def __str__(self) -> str:
        degrees = ", ".join(map(str, self.degrees))
        machine = Path(self.network.topology.path or "another topology").name if self.network else ""
        return (f"{degrees} on {machine}" if machine else degrees) if degrees else f"the interconnect of {machine}"

    def factors(self, rank: RankView) -> NDArray[np.float64]:
        """Products and attention that are divided among other tensor parallel ranks (see `shard_factors`)."""
        factors = np.ones(len(rank.trace.tasks))
        for degree in self.degrees:
            old = degree.of(rank).old
            if degree.role == "tp" and old != degree.size:
                factors *= shard_factors(rank, old, degree.size)
        return factors

    def batches(self, rank: RankView) -> float:
        """By how much the samples of a step grow: as the data parallel ranks do, each with its own."""
        return prod(degree.size / degree.of(rank).old for degree in self.degrees if degree.role == "dp")

    def edit(self, graph: StepGraph, ranks: Sequence[RankView], steps: Sequence[int]) -> StepGraph:
        """The graph with communication timed anew; coupled kernels still last equally long. InputError when the network
        has too few NPUs, or the trace does not say whose degree changes.
        """
        durations, lags, alone = graph.duration_ns.copy(), graph.lag_ns.copy(), set[int]()
        waits = (graph.kind[graph.source] == NodeKind.ARRIVAL) & (graph.kind[graph.target] == NodeKind.TASK)
        waited, met = np.zeros_like(durations), _met(graph)
        waited[graph.target[waits]] = lags[waits]
        for nodes, rank in zip(graph.ranks, ranks, strict=True):
            groups = self._groups(rank)
            for task, begin, node in zip(nodes.tasks, nodes.begins, nodes.ends, strict=True):
                said = rank.trace.collectives.get(task)
                alone |= {begin, node} if said is not None and _left_alone(said, groups) else set()
                if said is not None:
                    whole, times_ns = met[node] >= max(said.parties, 1), (int(durations[node]), int(waited[node]))
                    both = self._times_ns(said, groups, *times_ns, coupled=bool(whole))
                    durations[node], waited[node] = (sum(both), 0) if begin == node else both
        lags[waits] = waited[graph.target[waits]]
        finish = np.arange(len(durations))
        for nodes in graph.ranks:
            finish[nodes.begins] = nodes.ends
        joins = graph.edge_kind == EdgeKind.COLLECTIVE
        longest = durations.copy()
        for _ in range(2):  # coupled kernels last as long as the longest of them: to where they meet, and back
            np.maximum.at(longest, graph.target[joins], longest[finish[graph.source[joins]]])
        longest[graph.kind == NodeKind.ARRIVAL] = 0
        changed = replace(graph, duration_ns=longest, lag_ns=lags).kept(~(joins & np.isin(graph.target, list(alone))))
        return changed.lasting([self.factors(rank) for rank in ranks])

    def _groups(self, rank: RankView) -> list[Regrouping]:
        """Outermost first: the numbers inside a group do not change with those outside of it."""
        groups = sorted((degree.of(rank) for degree in self.degrees), key=lambda group: -group.stride)
        if len({group.name for group in groups}) < len(groups):
            raise InputError.at("--group", "one process group cannot have two degrees", found=groups[0].name)
        return groups

    def _times_ns(
        self, said: Collective, groups: Sequence[Regrouping], transfer_ns: int, waited_ns: int, *, coupled: bool
    ) -> tuple[int, int]:
        """The new time and the waiting; of one rank alone, what the recorded network does not explain was waiting."""
        before = transfer_of(said)
        after = _regrouped(said, before, groups)
        if _left_alone(said, groups):
            return 0, 0
        if before is None or after is None or (self.network and not before.sized):
            return transfer_ns, waited_ns
        if self.network and not self.recorded:
            return self.network.time_ns(after), waited_ns
        new, old = bus_bytes(after), bus_bytes(before)
        if self.network and self.recorded:
            new, old = self.network.time_ns(after), self.recorded.time_ns(before)
            if not coupled:
                whole_ns = transfer_ns + waited_ns
                transfer_ns = min(old, whole_ns)
                waited_ns = whole_ns - transfer_ns
        return round(transfer_ns * (new / old)) if old else transfer_ns, waited_ns

    def notes(self, rank: RankView, tasks: Sequence[int], *, alone: bool) -> list[str]:
        """What was assumed, and what kept its time, among some tasks of a rank; `alone` where others, or others of its
        groups, were not recorded.
        """
        groups = self._groups(rank)
        remarks = Counter(
            text for task in tasks if rank.communication[task] for text in self._remarks(rank, task, groups)
        )
        notes = [f"{count} x {text}" for text, count in sorted(remarks.items())]
        if alone and self.network and not self.recorded and rank.communication[tasks].any():
            notes.append(
                "how much of communication is waiting for ranks that were not recorded is estimated, and stays"
            )
        if any(group.role == "tp" and group.new != group.old for group in groups):
            rows = np.array([task for task in tasks if not rank.communication[task]], dtype=np.int64)
            lengths = (rank.trace.tasks.end_ns - rank.trace.tasks.start_ns)[rows]
            changed = f"{lengths[self.factors(rank)[rows] != 1].sum() / max(lengths.sum(), 1):.0%} of the computation"
            notes.append(f"tensor parallel: {changed}, products and attention, is divided; the rest stays")
        return notes

    def _remarks(self, rank: RankView, task: int, groups: Sequence[Regrouping]) -> Iterator[str]:
        said = rank.trace.collectives.get(task)
        before = transfer_of(said) if said else None
        if said is None or before is None or (self.network and not before.sized):
            yield "communication keeps its recorded time: kind, size or group were not recorded"
        elif _regrouped(said, before, groups) is None:
            yield f"{before.kind} keeps its recorded time: its group takes in part of the one that changes"
        elif self.network and not said.ranks:
            yield f"{before.kind} in a group whose ranks were not recorded: taken as ranks 0 to {said.size - 1}"
        elif self.network and before.kind in ROOTED:
            yield f"{before.kind} whose root was not recorded: taken as the group's first rank"


def _met(graph: StepGraph) -> NDArray[np.int64]:
    """For each node that ends a coupled collective how many ranks meet there, else 0."""
    joins = graph.edge_kind == EdgeKind.COLLECTIVE
    arrivals = np.bincount(graph.target[joins & (graph.rank[graph.target] == NOWHERE)], minlength=len(graph.rank))
    ends, met = joins & (graph.rank[graph.source] == NOWHERE), np.zeros_like(graph.rank)
    met[graph.target[ends]] = arrivals[graph.source[ends]]
    return met


def _regrouped(said: Collective, transfer: Transfer | None, groups: Sequence[Regrouping]) -> Transfer | None:
    for group in groups:
        transfer = group.applied(said, transfer) if transfer else None
    return transfer


def _left_alone(said: Collective, groups: Sequence[Regrouping]) -> bool:
    """Whether a collective of several ranks becomes one of a single rank, which has nobody to wait for."""
    before = transfer_of(said)
    after = _regrouped(said, before, groups)
    return before is not None and after is not None and len(after.ranks) == 1 < len(before.ranks)
