"""`simcore generate wse faults`: how much longer steps take on a wafer with dead links or dead NPUs."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from simcore.cli.command import PICTURE, emit, verb
from simcore.cli.options import options_of
from simcore.errors import InputError
from simcore.units import format_ns


def _counts(text: str) -> list[int]:
    """The numbers of faults."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [-1]
    if min(counts) < 0:
        raise InputError.at("--counts", "not a list of numbers", expected="0,2,4,8", found=repr(text))
    return counts


@verb(
    short_help="Slowdown of steps by dead links or NPUs.",
    params=options_of("generate wse faults", output=PICTURE),
)
def faults(
    workload: str, topology: str, dead: str, counts: str, samples: int, seed: int, npu: str | None, output: str | None
) -> None:  # fmt: skip
    """Slowdown of a wafer's steps against the number of dead links or NPUs; spare rows take the place of dead NPUs.

    \b
    simcore generate wse faults --workload spec.yaml --topology wafer.yaml --counts 0,2,4 -o faults.png
    """
    from simcore.cli.wafer_faults import slowdowns

    numbers = _counts(counts)
    whole, ratios = slowdowns(workload, topology, npu, dead, numbers, samples, seed)
    if output:
        from simcore.report.plots import save, titled
        from simcore.report.wafer_figure import slowdown_figure

        most = f"{numbers[-1]} dead {dead}: {median(ratios[-1].tolist()):.3f} times as long (median)"
        title = f"{Path(workload).stem} on {Path(topology).stem}; {most}"
        save(titled(slowdown_figure(numbers, ratios, f"dead {dead}"), title), Path(output))
    rows = [
        {"dead": count, "slowdown": median(each.tolist()), "most": float(each.max())}
        for count, each in zip(numbers, ratios, strict=True)
    ]
    lines = (
        f"{row['dead']:>4} dead {dead}: {row['slowdown']:.3f} times as long (median), {row['most']:.3f} at most"
        for row in rows
    )
    first = f"Without more faults the steps take {format_ns(whole)}."
    emit({"dead": dead, "time_ns": whole, "rows": rows}, "\n".join([first, *lines]))
