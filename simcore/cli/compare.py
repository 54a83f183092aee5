"""`simcore compare`: two reports, of jobs, too, or workloads: where the time went, what is sent and computed."""

from __future__ import annotations

import gzip
import zlib
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from simcore import library
from simcore.cli.command import emit, terminal_width

if TYPE_CHECKING:
    from simcore.report.aligned import Comparison


def command(a: str, b: str, rows: int) -> None:
    """Say what changed from report A to report B, and why: per layer, collective and dimension."""
    found = _compared(a, b)
    emit(found.to_dict(), lambda: found.render(width=terminal_width(), num_rows=rows))


def _compared(a: str, b: str) -> Comparison:
    """What differs, by what A and B are."""
    if _is_profile(a) and _is_profile(b):
        from simcore.replay.views.compare import compare_traces
        from simcore.workload.kineto_reader import read_ranks

        [first], [second] = (read_ranks([name])[:1] for name in (a, b))
        return compare_traces(first, second)
    if not (_is_report(a) or _is_report(b)) and (_is_workload(a) or _is_workload(b)):
        from simcore.generate.step import read_contents
        from simcore.report.workload_compare import compare_contents

        return compare_contents(read_contents(a), read_contents(b))
    from simcore.report.archive import read_report
    from simcore.report.compare import compare
    from simcore.report.jobs import compare_jobs, read_jobs_report

    of_a, of_b = read_jobs_report(a), read_jobs_report(b)
    if of_a and of_b:
        return compare_jobs(of_a, of_b, (a, b))
    return compare(read_report(a), read_report(b))


def _is_profile(name: str) -> bool:
    """Whether a name is a profiler's trace: JSON with a list of events."""
    path = Path(name)
    if not name.endswith((".json", ".json.gz")) or not path.is_file():
        return False
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            begin = file.read(1 << 20)
    except (OSError, EOFError, zlib.error):
        return False
    return b'"traceEvents"' in begin or begin.lstrip().startswith(b"[")


def _is_report(name: str) -> bool:
    """Whether a name looks like a report."""
    return name.endswith((".json", ".npz")) or (Path(name) / "report.json").exists()


def _is_workload(name: str) -> bool:
    """Whether a name is a text, a specification, a trace, a folder or prefix of traces, or a shipped workload."""
    path = Path(name)
    traces = path.glob("*.e[tg]*") if path.is_dir() else path.parent.glob(f"{escape(path.name)}.*.e[tg]*")
    return path.is_file() or any(traces) or name in library.names("workloads")
