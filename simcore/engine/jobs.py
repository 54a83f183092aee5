"""Several jobs on one network: each alone, all together, all but one, and with a shared link widened.

What a job loses to another is what it gains when that one is left out; what it loses on a link is what it gains when
the link has as many times its bandwidth as jobs use it. Both are played, not estimated; neither adds up to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum

import numpy as np
from numpy.typing import ArrayLike

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Topology
from simcore.noise import Floats, Noise, Spread
from simcore.profiles import Profile
from simcore.progress import meter, metered
from simcore.system.config import SystemConfig
from simcore.timeline.events import LinkTable, Timeline
from simcore.workload.jobs import PLACES, Job, merged, placed

SHOWN_LINKS = 3


def runs_of(num_jobs: int) -> int:
    """How many runs tell what jobs lose: together, each alone, all but each, one for every link."""
    return 1 + num_jobs + (num_jobs if num_jobs > 2 else 0) + SHOWN_LINKS


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """A job's time, all repeats, alone and with the others; `lost_to_ns` is by the other jobs' names."""

    name: str
    npus: tuple[int, ...]
    start_ns: int
    repeats: int
    alone_ns: int
    together_ns: int
    lost_to_ns: dict[str, int]

    @property
    def slowdown(self) -> float:
        """How many times as long it takes beside the others."""
        return self.together_ns / self.alone_ns if self.alone_ns else 1.0


@dataclass(frozen=True, slots=True)
class SharedLink:
    """A link that several jobs use: bytes by job, and what each would gain if it were wider."""

    src: str
    dst: str
    size_bytes: dict[str, int]
    gain_ns: dict[str, int]


@dataclass(frozen=True, slots=True)
class Trial:
    """A placement that was tried: `worst` is the largest ratio of a job's time to the least it had alone anywhere."""

    rule: str
    seed: int
    runs: JobRuns
    worst: float


@dataclass(frozen=True, slots=True)
class _Wider(Spread):
    """One link that has `width` times its bandwidth."""

    link: int

    def factors(self, seed: int, *place: ArrayLike) -> Floats:
        """As `Spread.factors`: on the time of a byte."""
        return np.where(np.asarray(place[-1]) == self.link, 1 / self.width, 1.0)


class JobRuns:
    """The runs of jobs at their places; each is played once, when it is asked for."""

    def __init__(
        self,
        jobs: Sequence[Job],
        places: Sequence[tuple[int, ...]],
        topology: Topology,
        system: SystemConfig | None,
        profile: Profile,
        settings: Settings,
    ):
        self.jobs, self.places, self.topology = tuple(jobs), tuple(places), topology
        self.everyone = frozenset(range(len(jobs)))  # by number
        self._system, self._profile, self._settings = system, profile, settings
        self._known: dict[tuple[frozenset[int], int], Timeline] = {}

    def play(self, active: frozenset[int], widened: int = -1, factor: int = 1) -> Timeline:
        """The run of some jobs (by number), with the bandwidth of one link `factor` times its own."""
        if (active, widened) not in self._known:
            chosen = sorted(active)
            graphs = merged([self.jobs[i] for i in chosen], [self.places[i] for i in chosen], self.topology.npus)
            topology = self.topology
            if widened >= 0:
                topology = replace(topology, noise=Noise(links=_Wider("wider", factor, widened)))
            with metered():  # a run is one part of the whole
                found = simulate(graphs, topology, self._system, self._profile, self._settings)
            meter().advance()
            self._known[active, widened] = found
        return self._known[active, widened]

    def trials(self, count: int, seed: int) -> list[Trial]:
        """One placement by every rule, `count` random ones and the given one; first what slows its worst job least.

        Equal ones are tried once, under the first name that they have.
        """
        wanted = [(rule, seed) for rule in PLACES.names() if rule != "random"]
        wanted += [("random", seed + number) for number in range(count)]
        dims = [dim.npus for dim in self.topology.dims]
        rest = self.topology, self._system, self._profile, self._settings
        places: dict[tuple[tuple[int, ...], ...], tuple[str, int]] = {}
        for rule, number in wanted:
            places.setdefault(tuple(placed(self.jobs, dims, number, rule)), (rule, number))
        places.setdefault(self.places, ("given", seed))
        tried = [(*named, JobRuns(self.jobs, where, *rest)) for where, named in places.items()]
        numbers = range(len(self.jobs))
        least = [min(runs.time_ns(job, runs.play(frozenset({job}))) for *_, runs in tried) for job in numbers]
        if not all(least):
            message = "a job takes no time: there is nothing to place"
            raise InputError.at("search", message, expected="jobs that do something")
        found = [
            Trial(rule, number, runs, max(runs.time_ns(job, runs.together) / least[job] for job in numbers))
            for rule, number, runs in tried
        ]
        return sorted(found, key=lambda trial: trial.worst)

    @property
    def together(self) -> Timeline:
        """All jobs at once."""
        return self.play(self.everyone)

    def time_ns(self, job: int, timeline: Timeline) -> int:
        """How long a job takes in a run, from its start to the last of its NPUs."""
        finish = np.zeros(self.topology.npus, np.int64)
        for members, finish_ns in zip(timeline.ranks, timeline.finish_ns, strict=True):
            finish[list(members)] = finish_ns
        return int(finish[list(self.places[job])].max()) - self.jobs[job].start_ns

    @cached_property
    def outcomes(self) -> list[JobOutcome]:
        """Every job's times."""
        found = []
        for number, (job, place) in enumerate(zip(self.jobs, self.places, strict=True)):
            together_ns, lost = self.time_ns(number, self.together), {}
            for other in sorted(self.everyone - {number}):
                without = self.play(self.everyone - {other})
                lost[self.jobs[other].name] = together_ns - self.time_ns(number, without)
            alone_ns = self.time_ns(number, self.play(frozenset({number})))
            found.append(JobOutcome(job.name, place, job.start_ns, job.repeats, alone_ns, together_ns, lost))
        return found

    @cached_property
    def shared_links(self) -> list[SharedLink]:
        """The links on which a job may have lost most of what it lost, the worst first; of those alike the fullest.

        What others keep a link busy is one bound of that; with even shares the job's own time, once for each of them,
        too. None where none can be widened: where circuits change, and with another program's rules.
        """
        numbers = range(len(self.jobs))
        alone = [self.play(frozenset({number})) for number in numbers]
        tables = [timeline.links for timeline in alone if timeline.links is not None]
        if len(tables) < len(alone) or self.topology.circuits or not self._profile.noisy_links:
            return []
        sizes, busy_ns = (np.stack([getattr(table, name) for table in tables]) for name in ("size_bytes", "busy_ns"))
        total, users = sizes.sum(axis=0), (sizes > 0).sum(axis=0)
        lost = [self.time_ns(number, self.together) - self.time_ns(number, alone[number]) for number in numbers]
        bounds = np.minimum(busy_ns.sum(axis=0) - busy_ns, (users - 1) * busy_ns)
        worst = np.minimum(bounds, np.reshape(lost, (-1, 1))).max(axis=0)
        order = sorted(np.flatnonzero(users > 1).tolist(), key=lambda link: (-worst[link], -total[link], link))
        return [self._shared(tables[0], link, sizes[:, link].tolist()) for link in order[:SHOWN_LINKS]]

    def _shared(self, table: LinkTable, link: int, size_bytes: Sequence[int]) -> SharedLink:
        users = [number for number, size in enumerate(size_bytes) if size]
        wider = self.play(self.everyone, link, len(users))
        gains = {self.jobs[user].name: self.time_ns(user, self.together) - self.time_ns(user, wider) for user in users}
        sizes = {self.jobs[user].name: size_bytes[user] for user in users}
        return SharedLink(table.src[link], table.dst[link], sizes, gains)

    @property
    def fairness(self) -> float:
        """Jain's index of the speeds that are left: 1 when all are slowed alike, 1/n when one takes everything."""
        speeds = [1 / outcome.slowdown for outcome in self.outcomes]
        return fsum(speeds) ** 2 / (len(speeds) * fsum(speed**2 for speed in speeds))
