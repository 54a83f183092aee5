"""An all-to-all over uplinks that are half as fast: what flow control, congestion control and routing make of it.

With the name of a picture (`python examples/queues.py queues.png`) it draws what waits for the fullest uplink.
"""

import sys
import tempfile
from pathlib import Path

import simcore
from simcore.report.plots import canvas, save

TREE = {
    "topology": "[FatTree]",
    "npus_count": "[16]",
    "bandwidth": '["400 Gb/s"]',
    "latency": '["500 ns"]',
    "routers": "[4]",
    "oversubscription": "[2]",
    "buffer": "[1 MiB]",
    "flow_control": "[pfc]",
    "ecn": "[{kmin: 100 KiB, kmax: 400 KiB, pmax: 0.2}]",
}
CASES = {
    "pfc": {},
    "credits": {"flow_control": "[credits]"},
    "drop": {"flow_control": "[drop]"},
    "pfc, dcqcn": {"congestion_control": '[{law: dcqcn, additive: "400 Mb/s"}]'},
    "pfc, hpcc": {"congestion_control": "[hpcc]"},
    "pfc, swift": {"congestion_control": "[swift]"},
    "pfc, window": {"congestion_control": "[window]"},
    "pfc, spray": {"routing": "[spray]"},
    "pfc, adaptive": {"routing": "[adaptive]"},
}


def play(keys: dict[str, str]) -> simcore.Report:
    """The run on the tree with some keys changed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tree.yaml"
        file.write_text("".join(f"{key}: {value}\n" for key, value in (TREE | keys).items()))
        return simcore.run("micro_all_to_all", file, network="queued", comm_scale=1.0)


def picture(reports: dict[str, simcore.Report], path: str, about: str) -> None:
    """The most that waits for one uplink, in each part of the run."""
    with canvas(8.0, 3.6) as (figure, axes):
        for name in ("pfc", "pfc, dcqcn", "pfc, hpcc", "pfc, swift"):
            report = reports[name]
            curve = report.to_dict()["queues"]["deepest"][0]["curve_bytes"]
            step_us = report.time_ns / len(curve) / 1e3
            times = [step_us * at for at in range(len(curve) + 1)]
            axes.stairs([size / 1e6 for size in curve], times, label=name, linewidth=1.6)
        axes.set_title("What waits for one uplink under four laws", loc="left", fontsize=10)
        axes.set_xlabel("time (us)")
        axes.set_ylabel("waiting for the fullest uplink (MB)")
        axes.set_xlim(0)
        axes.set_ylim(0)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
    save(figure, Path(path), about)


def main() -> str:
    """Print the table; draw the picture if one is named."""
    reports = {name: play(keys) for name, keys in CASES.items()}
    lines = ["case               time  most waiting  stood still   marks  drops"]
    for name, report in reports.items():
        queues = report.to_dict()["queues"]
        most = max(row["peak_bytes"] for row in queues["deepest"])
        lines.append(
            f"{name:14}  {report.time_ns / 1e6:4.2f} ms  {most / 1e6:9.2f} MB  {queues['still_ns'] / 1e6:8.2f} ms"
            f"  {queues['marks']:6}  {queues['drops']:5}"
        )
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(reports, sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
