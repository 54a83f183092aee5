"""When does an optical switch pay? All-to-alls of growing size on a ring, and on a full mesh of the same ports.

With the name of a picture (`python examples/circuits.py circuits.png`) it draws the times.
"""

import sys
import tempfile
from pathlib import Path

import simcore
from simcore.report.plots import canvas, save

NPUS, LATENCY_NS, DELAY_US = 16, 500, 100
FULL = 'topology: [FullyConnected]\nnpus_count: [16]\nbandwidth: ["40 Gb/s"]\nlatency: ["500 ns"]\n'
RING = 'topology: [Ring]\nnpus_count: [16]\nbandwidth: ["300 Gb/s"]\nlatency: ["500 ns"]\n'
SWITCHED = f"{RING}circuits: {{delay: {DELAY_US} us, all_to_all: full.yaml}}\n"
SIZES = tuple(1 << power for power in range(8, 22, 2))  # to each of the others


def times_us() -> dict[str, list[float]]:
    """On the ring, and with circuits that are changed for it."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {"full.yaml": FULL, "ring": RING, "circuits": SWITCHED, "system.yaml": "preferred-dataset-splits: 1\n"}
        for file, content in files.items():
            (folder / file).with_suffix(".yaml").write_text(content)
        for network in ("ring", "circuits"):
            for size in SIZES:
                graph = simcore.graph(NPUS)
                graph.collective("all_to_all", size * NPUS)
                report = simcore.run(graph, folder / f"{network}.yaml", folder / "system.yaml")
                found.setdefault(network, []).append(report.time_ns / 1e3)
    return found


def closed_form_us(size: int) -> float:
    """A change of circuits, then every message on a link of its own."""
    return DELAY_US + (size / 5 + LATENCY_NS) / 1e3


def picture(rows: dict[str, list[float]], path: str, about: str) -> None:
    """Time against size, with the closed form."""
    with canvas(7.0, 3.2) as (figure, axes):
        axes.plot(SIZES, rows["ring"], marker="o", color="#0072B2", label="on the ring")
        axes.plot(SIZES, rows["circuits"], "o", color="#D55E00", label=f"circuits changed in {DELAY_US} us")
        axes.plot(SIZES, [closed_form_us(size) for size in SIZES], color="#D55E00", linewidth=1, label="closed form")
        axes.set_title("An all-to-all of 16 NPUs, 600 Gb/s of ports each", loc="left", fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(SIZES, [f"{size >> 10} KiB" if size >> 10 else f"{size} B" for size in SIZES])
        axes.set_yticks([10, 100, 1000], ["10", "100", "1,000"])
        axes.set_xlabel("to each of the others")
        axes.set_ylabel("time (us)")
        axes.legend(frameon=False)
    save(figure, Path(path), about)


def main() -> str:
    """Print the table; draw the picture if one is named."""
    rows = times_us()
    lines = ["  bytes        ring      circuits   closed form"]
    for place, size in enumerate(SIZES):
        ring, changed = rows["ring"][place], rows["circuits"][place]
        lines.append(f"{size:7}  {ring:7.1f} us  {changed:9.1f} us  {closed_form_us(size):9.1f} us")
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(rows, sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
