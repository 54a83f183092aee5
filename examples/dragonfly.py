"""Every group of a dragonfly sends to the next one: what do ways over a third group, and looking at queues, help?

With the name of a picture (`python examples/dragonfly.py dragonfly.png`) it draws the times.
"""

import sys
import tempfile
from pathlib import Path

import simcore
from simcore.report.plots import canvas, save

NPUS, IN_A_GROUP = 32, 4
RATE, SIZE = 25e9, 1 << 20  # 200 Gb/s, 1 MiB
KINDS = ("Dragonfly", "DragonflyPlus")  # Slingshot's networks are of the first kind
WAYS = ("minimal", "valiant", "adaptive", "ugal")
FILE = """\
topology: [{kind}]
npus_count: [32]
groups: [8]
routers: [2]
bandwidth: ["200 Gb/s"]
latency: ["300 ns"]
routing: [{way}]
"""


def time_us(kind: str, way: str) -> float:
    """Of a message from every NPU to the one in its place of the next group, with one link between two groups."""
    graph = simcore.graph(NPUS)
    for npu in range(NPUS):
        there = (npu + IN_A_GROUP) % NPUS
        graph.send(npu, there, SIZE)
        graph.recv(npu, there, SIZE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dragonfly.yaml"
        file.write_text(FILE.format(kind=kind, way=way))
        return simcore.run(graph, file, network="queued").time_ns / 1e3


def picture(rows: dict[str, list[float]], path: str, about: str) -> None:
    """Bars: the times of both kinds by what chooses the way, and the bytes of a group over its one link."""
    with canvas(7.0, 2.8) as (figure, axes):
        for number, (kind, colour) in enumerate(zip(KINDS, ("#0072B2", "#E69F00"), strict=True)):
            lines = [place + 0.4 * number - 0.2 for place in range(len(rows))]
            axes.barh(lines, [times[number] for times in rows.values()], 0.38, color=colour, label=kind)
        axes.axvline(one_link_us(), color="#222222", linewidth=1, linestyle="--", label="a group over one link")
        axes.set_yticks(range(len(rows)), rows)
        axes.invert_yaxis()
        axes.set_title("Every group of a dragonfly sends to the next", loc="left", fontsize=10)
        axes.set_xlabel("time (us)")
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    save(figure, Path(path), about)


def one_link_us() -> float:
    """What the bytes of a group take over one link."""
    return IN_A_GROUP * SIZE / RATE * 1e6


def main() -> str:
    """Print the table; draw the picture if one is named."""
    rows = {way: [time_us(kind, way) for kind in KINDS] for way in WAYS}
    lines = [f"ways      {KINDS[0]:>14} {KINDS[1]:>14}"]
    lines += [f"{name:8}" + "".join(f"{time:11.1f} us " for time in times).rstrip() for name, times in rows.items()]
    lines.append(f"bytes of a group over the one link that leads to the next: {one_link_us():.1f} us")
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(rows, sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
