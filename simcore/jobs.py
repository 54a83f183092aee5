"""`simcore run JOBS`: several jobs on one network, each alone and beside the others."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from simcore.api import cautions, machine_of, network_of, path_of, place_of, program, settings_of, told
from simcore.documents import Node
from simcore.engine.jobs import JobOutcome, JobRuns, Trial, runs_of
from simcore.engine.settings import straggler_factors
from simcore.engine.setup import usual_system
from simcore.errors import InputError
from simcore.files import sha256
from simcore.library import resolve
from simcore.network.faults import parse_faults
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.options import RunOptions, SimaiOptions, spelled
from simcore.profiles import profiles
from simcore.progress import meter
from simcore.report.jobs import SCHEMA, JobRow, JobsDocument, PlacementRow, SharedLinkRow
from simcore.report.model import Input, Report
from simcore.report.table import Table, columns
from simcore.system import config
from simcore.units import format_ns, format_ranks
from simcore.workload.jobs import placed, read_jobs

TAKEN = ("network", "profile", "queues_per_dim", "compute_scale", "comm_scale", "injection_scale", "seed",
         "straggler", "fault", "link_times")  # fmt: skip
T = TypeVar("T")
NETWORK = "fair"  # the law of links that several jobs share at once
ONE_RING = "on several dimensions, collectives among NPUs that are no row of one are rings, and all-to-alls direct"


@dataclass(frozen=True, slots=True)
class JobsReport:
    """What became of jobs, and of the placements that were tried; `report` is that of all jobs at once."""

    runs: JobRuns
    trials: tuple[Trial, ...]
    report: Report

    def to_dict(self) -> JobsDocument:
        """The document `jobs.json` (docs/jobs.md)."""
        return JobsDocument(
            schema=SCHEMA,
            network=self.report.network,
            time_ns=self.runs.together.time_ns,
            fairness=self.runs.fairness,
            jobs=[_row(outcome) for outcome in self.runs.outcomes],
            shared_links=[cast(SharedLinkRow, asdict(link)) for link in self.runs.shared_links],
            placements=[
                PlacementRow(rule=one.rule, seed=one.seed, places=[*map(list, one.runs.places)], worst=one.worst)
                for one in self.trials
            ],
        )

    def render(self) -> str:
        """What people read: jobs, then shared links, then placements."""
        runs, rows = self.runs, []
        for outcome in runs.outcomes:
            worst = max(outcome.lost_to_ns.items(), key=lambda item: item[1], default=("", 0))
            times = [time_ns // outcome.repeats for time_ns in (outcome.alone_ns, outcome.together_ns)]
            blamed = f"{worst[0]} {format_ns(worst[1] // outcome.repeats)}" if worst[1] > 0 else "-"
            where = format_ranks(sorted(outcome.npus))
            rows.append((outcome.name, where, outcome.start_ns, *times, outcome.slowdown, blamed))
        figures = ("start_ns", "step_alone_ns", "together_ns", ("slowdown", "slowdown", ".3f"))
        shown = columns("job", "NPUs", *figures, "most lost to")
        last = max(runs.outcomes, key=lambda outcome: outcome.slowdown)
        lost = f"{last.name} loses most, it takes {last.slowdown - 1:.1%} longer than alone"
        lost = lost if last.slowdown > 1 else "none takes longer than alone"
        done = f"NPUs {'are' if len(runs.jobs) > 1 else 'is'} done after {format_ns(runs.together.time_ns)}"
        jobs = f"{len(runs.jobs)} jobs" if len(runs.jobs) > 1 else "A job"
        parts = [f"{jobs} on {runs.topology.npus} {done}: {lost}."]
        parts.append(f"Network {self.report.network}; fairness {runs.fairness:.3f} (Jain).\n")
        parts.append(Table("", shown, rows).text(120) + "\n")
        repeats = {outcome.name: outcome.repeats for outcome in runs.outcomes}
        shared = [
            (f"{link.src} -> {link.dst}", job, size, link.gain_ns[job] // repeats[job])
            for link in runs.shared_links
            for job, size in link.size_bytes.items()
        ]
        if shared:
            told = columns("shared link", "job", ("bytes", "carried"), ("gain_ns", "a wider link saves"))
            parts.append(Table("", told, shared).text(120))
        for trial in self.trials:
            how = {"random": f"random (seed {trial.seed})", "given": "as given"}.get(trial.rule, trial.rule)
            parts.append(f"placed {how}: the worst job takes {trial.worst:.3f} times its least")
        return "\n".join(parts)


def run_jobs(
    path: str | os.PathLike[str],
    topology: str | os.PathLike[str] | Topology | None = None,
    system: str | os.PathLike[str] | None = None,
    **options: Any,
) -> JobsReport:
    """Play several jobs on one network, each alone and beside the others.

    Parameters
    ----------
    path : str or path
        A file of jobs (docs/jobs.md).
    topology : str, path or what `load_topology` gives
        A file or the name of a shipped example. It goes before that of the file.
    system : str or path
        A system file, which goes before that of the file.
    **options
        Those of `simcore run` that go with a file of jobs, with underscores.

    Returns
    -------
    JobsReport
        `runs.outcomes` are the jobs' times; `to_dict()` all of it.

    Raises
    ------
    InputError
        If an input is wrong; it lists every problem with its place.
    """
    named = None if system is None else path_of("system", system, "a path")
    return play_jobs(path_of("workload", path, "a path"), topology, named, RunOptions.of(options))


def play_jobs(
    path: str, topology: str | os.PathLike[str] | Topology | None, system: str | None, asked: RunOptions
) -> JobsReport:
    """`run_jobs` with options that have been read."""
    for option, _ in asked.changed():
        if option.name not in TAKEN:
            raise InputError.at(spelled(option.name), "does not go with several jobs")
    if asked.profile in SimaiOptions.profiles:
        message = f"profile {asked.profile} has closed forms and simulates nothing, so that no job meets another"
        raise InputError.at("--profile", message, expected=f"one of: {', '.join(profiles)}", found=repr(asked.profile))
    where, rules = resolve(path, "workloads"), profiles.get(asked.profile)
    given_of = partial(_meant, system, find=config.read)
    # A shipped text is told as one.
    file = read_jobs(where, program, lambda entry: (given_of(entry) or config.SystemConfig()).scheduling_policy)
    machine = _meant(topology, file.topology, partial(machine_of, profile=asked.profile))
    if machine is None:
        raise InputError.at("--topology", "a topology is needed", expected="topology: in the file, or --topology T")
    usual = network_of(NETWORK if NETWORK in rules.networks else "", rules)
    machine = replace(machine, faults=parse_faults(asked.fault, LinkGraph(machine)) if asked.fault else ())
    network = _meant(asked.network, file.network, partial(network_of, rules=rules)) or usual
    said = given_of(file.system)
    given = said or usual_system(machine, rules)
    settings = replace(settings_of(asked, network, straggler_factors(asked.straggler, machine)), fold=False)
    seed = file.seed if asked.seed is None else asked.seed
    places = placed(file.jobs, [dim.npus for dim in machine.dims], seed)
    meter().expect(runs_of(len(file.jobs)))
    runs = JobRuns(file.jobs, places, machine, given, rules, settings)
    trials = runs.trials(file.trials, seed) if file.trials else []
    runs = trials[0].runs if trials else runs
    place = file.topology.text() if file.topology and not topology else place_of(topology)
    named = system or (file.system.path() if file.system else "")
    rules_of = [named, *(found.location.file for found in given.schedules())] if named else []
    read = {"workload": (path, [str(where)]), "topology": (place, machine.files), "system": (named, rules_of)}
    inputs = [Input(role, name, sha256(*found)) for role, (name, found) in read.items() if found]
    inputs += [Input(f"workload of {job.name}", path, job.sha256) for job in file.jobs]
    warnings = dict.fromkeys([*machine.notes(), *(text for job in file.jobs for text in job.graphs.warnings)])
    if len(machine.dims) > 1:
        warnings[ONE_RING] = None
    if asked.seed is not None and not (file.trials or any(job.place == "random" for job in file.jobs)):
        warnings[f"--seed {asked.seed} changes nothing: no job is placed at random"] = None
    warned = (*warnings, *cautions(file.jobs[0].graphs, rules, settings, said), *runs.together.notes)
    report = Report(
        runs.together,
        rules.name,
        network,
        tuple(inputs),
        warned,
        options=told(asked),
        jobs=tuple(job.name for job in file.jobs),
    )
    return JobsReport(runs, tuple(trials), report)


def _meant(typed: Any, entry: Node | None, find: Callable[[Any], T]) -> T | None:
    """What an option means, or the file's entry where it is not typed."""
    return find(typed) if typed else entry.meant(lambda _: find(entry.path())) if entry else None


def _row(outcome: JobOutcome) -> JobRow:
    steps = {"alone_step_ns": outcome.alone_ns // outcome.repeats, "step_ns": outcome.together_ns // outcome.repeats}
    told = {"npus": format_ranks(sorted(outcome.npus)), "slowdown": outcome.slowdown}
    return cast(JobRow, asdict(outcome) | steps | told)
