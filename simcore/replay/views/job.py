"""Many ranks at once: who waits for whom, how far apart they come, and the groups in which they communicate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from statistics import mean, median

from msgspec import Struct

from simcore.replay.pipelines.passes import Line, stages_of
from simcore.replay.session import Replay
from simcore.replay.views.breakdown import measured
from simcore.replay.whatif.retiming import role_of


class JobRank(Struct, frozen=True):
    """One rank's mean step: its parts, how long it waits in collectives, and how long others wait there for it.

    `last_in` counts the collectives that it reached last; `waits_for` is the rank it waits for longest, -1: none.
    `stage` is that of a pipeline, -1 where no transfers between ranks tell it.
    """

    rank: int
    step_ns: int
    compute_ns: int
    exposed_comm_ns: int
    waiting_ns: int
    awaited_ns: int
    last_in: int
    waits_for: int
    stage: int


class JobGroup(Struct, frozen=True):
    """Process groups of one role and size: their collectives in all steps of the recorded ranks, in ns.

    The role is tensor (tp), data (dp), pipeline (pp), context (cp) or expert (ep, dp_ep) parallel; "": nothing says it.
    """

    role: str
    description: str
    size: int
    groups: int
    collectives: int
    transfer_ns: int
    waiting_ns: int


class Job(Struct, frozen=True):
    """All ranks; `skew_ns` is how far apart the first and the last rank reach a collective: median and most."""

    ranks: tuple[JobRank, ...]
    groups: tuple[JobGroup, ...]
    matched: int
    skew_ns: tuple[int, int]

    @property
    def slowest(self) -> JobRank:
        """The rank that the others wait for longest."""
        return max(self.ranks, key=lambda one: (one.awaited_ns, one.step_ns, -one.rank))


def job(replay: Replay) -> Job:
    """From all steps after the first, coupled collectives only."""
    waits, last, skews = Counter[tuple[int, int]](), Counter[int](), []
    sources = {step.source: step for number in range(len(replay.ranks)) for step in replay.scored(number)}
    for step, match in ((step, match) for source, step in sources.items() for match in source.matches):
        numbers = [step.source.ranks[one.rank].view.trace.rank for one in match.members]
        lengths = [step.source.views[one.rank].trace.tasks.length_ns(one.task) for one in match.members]
        _, late = min(zip(lengths, numbers, strict=True))
        last[late] += 1
        skews.append(max(lengths) - match.shortest_ns)
        for number, length in zip(numbers, lengths, strict=True):
            waits[number, late] += length - match.shortest_ns
    steps, ranks = Counter(one.view.trace.rank for source in sources for one in source.ranks), list[JobRank]()
    stages = stages_of([Line(one.view, replay.scored(at)[0].position) for at, one in enumerate(replay.ranks)])
    for number, prepared in enumerate(replay.ranks):
        rank, shares = prepared.view.trace.rank, [measured(step) for step in replay.scored(number)]
        own = {late: waited for (waiting, late), waited in waits.items() if waiting == rank and waited}
        ranks.append(
            JobRank(
                rank=rank,
                step_ns=round(mean(step.measured_ns for step in replay.scored(number))),
                compute_ns=round(mean(one.compute_ns + one.overlapped_ns for one in shares)),
                exposed_comm_ns=round(mean(one.exposed_comm_ns for one in shares)),
                waiting_ns=sum(own.values()) // max(steps[rank], 1),
                awaited_ns=sum(waited for (_, late), waited in waits.items() if late == rank) // max(steps[rank], 1),
                last_in=last[rank],
                waits_for=max(own, key=lambda late: (own[late], -late), default=-1),
                stage=stages[number],
            )
        )
    skew = (round(median(skews)), max(skews)) if skews else (0, 0)
    return Job(tuple(ranks), tuple(_groups(replay)), len(skews), skew)


def _groups(replay: Replay) -> Iterator[JobGroup]:
    """The process groups that the collectives name, those with most time first."""
    found = defaultdict[tuple[str, str, int], list[tuple[str, int, int]]](list)
    for number in range(len(replay.ranks)):
        for step in replay.scored(number):
            tasks, collectives = step.prepared.view.trace.tasks, step.prepared.view.trace.collectives
            for task in (each for each in step.tasks if each in collectives):
                said, transfer_ns = collectives[task], step.source.transfer_ns(step.number, task)
                key = role_of(said), said.description, said.parties
                found[key].append((said.group, transfer_ns, tasks.length_ns(task) - transfer_ns))
    for key, rows in sorted(found.items(), key=lambda item: (-sum(row[1] for row in item[1]), item[0])):
        names, transfer, waiting = zip(*rows, strict=True)
        yield JobGroup(*key, len(set(names)), len(rows), sum(transfer), sum(waiting))
