"""A wafer's steps in words."""

from __future__ import annotations

from collections.abc import Iterator

from simcore.report.document import ReportDocument
from simcore.units import format_ns


def wafer_steps(document: ReportDocument) -> Iterator[str]:
    """The steps of a wafer in words, a paragraph each; nothing for other runs."""
    for step in document.get("wafer", {"steps": []})["steps"]:
        most, rate = step["compute_ns"], f", {step['tokens_per_s']:,.0f} tokens/s" if step["tokens"] else ""
        busiest = f"NPU {most['npu']} computes most, {format_ns(most['max'])} (mean {format_ns(most['mean'])})"
        lines = [f"{step['name']}: {format_ns(step['time_ns'])}{rate}; {busiest}."]
        late = [
            f"{each['npu']} (+{format_ns(each['cost_ns'])} in {each['phases']} phases)"
            for each in step.get("stragglers", [])
        ]
        lines += [f"Stragglers: {', '.join(late[:3])}."] if late else []
        yield "\n".join(lines)
