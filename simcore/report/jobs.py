"""The document of several jobs on one network, schema `simcore.jobs/1`, as types; and two of them aligned by job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypedDict

import msgspec

from simcore.errors import InputError
from simcore.files import read_bytes
from simcore.report.aligned import Comparison, Pair, align, both
from simcore.report.archive import read_report
from simcore.report.compare import differing, said
from simcore.report.table import Table, columns, signed
from simcore.units import format_ns

SCHEMA = "simcore.jobs/1"


class JobRow(TypedDict):
    """A job alone and beside the others: all repeats, and a step of them."""

    name: str
    npus: str
    start_ns: int
    repeats: int
    alone_ns: int
    together_ns: int
    alone_step_ns: int
    step_ns: int
    slowdown: float
    lost_to_ns: dict[str, int]


class SharedLinkRow(TypedDict):
    """A link that several jobs use: bytes by job, and what each would gain if it were wider."""

    src: str
    dst: str
    size_bytes: dict[str, int]
    gain_ns: dict[str, int]


class PlacementRow(TypedDict):
    """A placement that was tried."""

    rule: str
    seed: int
    places: list[list[int]]
    worst: float


class JobsDocument(TypedDict):
    """What became of jobs on one network."""

    schema: str
    network: str
    time_ns: int
    fairness: float
    jobs: list[JobRow]
    shared_links: list[SharedLinkRow]
    placements: list[PlacementRow]


@dataclass(frozen=True, slots=True)
class Ratios:
    """A ratio in A and in B; None where there is none."""

    a: float | None
    b: float | None


@dataclass(frozen=True, slots=True)
class JobPair:
    """A job in both; `only` is 'a' or 'b' where the other has none of its name, '' where both have it."""

    name: str
    only: str
    npus: str
    alone_step_ns: Pair
    step_ns: Pair
    slowdown: Ratios


@dataclass(frozen=True, slots=True)
class JobsComparison(Comparison):
    """Jobs aligned by name; `settings` says what differs in the question, where the folders of both runs are given."""

    SCHEMA: ClassVar[str] = "simcore.compare_jobs/1"

    settings: tuple[tuple[str, str, str], ...] | None
    time_ns: Pair
    fairness: Ratios
    jobs: tuple[JobPair, ...]

    def headline(self) -> str:
        """The job whose step changed most beside the others."""
        together = [job for job in self.jobs if not job.only]
        most = max(together, key=lambda job: abs(job.step_ns.difference), default=None)
        if most is None:
            return "There is no job of the same name in both."
        if not most.step_ns.difference:
            return "Beside the others every job's step takes as long in both."
        times = f"takes {format_ns(most.step_ns.b)} in B where it takes {format_ns(most.step_ns.a)} in A"
        alone = most.alone_step_ns.difference
        cause = f"alone {signed(alone, 'ns')}" if alone else "alone it takes as long in both"
        return f"Beside the others a step of {most.name} {times} ({signed(most.step_ns.difference, 'ns')}); {cause}."

    def about(self) -> str:
        """When all are done, and what differs."""
        done = f"All jobs are done after {format_ns(self.time_ns.a)} in A and {format_ns(self.time_ns.b)} in B."
        return done if self.settings is None else f"{done} {said(self.settings)}"

    def tables(self) -> Iterator[Table]:
        """Every job's step alone and together, and its slowdown; then where they are."""
        slowdown = [(side, f"slowdown {side.upper()}", ".3f") for side in ("a", "b")]
        rows = [
            (job.name, *_cells(job, job.alone_step_ns)[:2], *_cells(job, job.step_ns), job.slowdown.a, job.slowdown.b)
            for job in self.jobs
        ]
        yield Table("", columns("job", *both("ns", "alone")[:2], *both("ns", "together"), *slowdown), rows, noun="jobs")
        yield Table("", columns("job", "NPUs"), [(job.name, job.npus) for job in self.jobs], noun="jobs")


def _cells(job: JobPair, pair: Pair) -> tuple[int | None, ...]:
    """Of a pair; a job that one side lacks has no figure there."""
    return tuple(
        None if job.only and side != job.only else value for side, value in zip("ab-", pair.sides, strict=True)
    )


def read_jobs_report(path: str) -> JobsDocument | None:
    """What `simcore run JOBS --json` printed, or the folder of `-o`; None where it is something else."""
    file = Path(path) / "jobs.json" if Path(path).is_dir() else Path(path)
    if file.suffix != ".json" or not file.is_file() or SCHEMA.encode() not in (content := read_bytes(file)):
        return None
    try:
        return msgspec.json.decode(content, type=JobsDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message, expected = "not a report of jobs", f"JSON of {SCHEMA}"
        raise InputError.at(str(file), message, expected=expected, found=str(error)) from error


def compare_jobs(a: JobsDocument, b: JobsDocument, folders: tuple[str, str]) -> JobsComparison:
    """Align two reports of jobs; what was asked is in the report beside them, where both are folders."""
    settings = None
    if all(map(os.path.isdir, folders)):
        settings = tuple(differing(*map(read_report, folders)))
    of_a, of_b = ({job["name"]: job for job in one["jobs"]} for one in (a, b))
    jobs = tuple(_pair(name, job_a, job_b) for name, job_a, job_b in align(of_a, of_b, None))
    times, fairness = Pair(a["time_ns"], b["time_ns"]), Ratios(a["fairness"], b["fairness"])
    return JobsComparison(settings, times, fairness, jobs)


def _pair(name: str, a: JobRow | None, b: JobRow | None) -> JobPair:
    only = "b" if a is None else "a" if b is None else ""
    npus = " -> ".join(dict.fromkeys(job["npus"] if job else "none" for job in (a, b)))
    alone = Pair(*(job["alone_step_ns"] if job else 0 for job in (a, b)))
    together = Pair(*(job["step_ns"] if job else 0 for job in (a, b)))
    return JobPair(name, only, npus, alone, together, Ratios(*(job["slowdown"] if job else None for job in (a, b))))
