"""Which model do the last two figures of AICB's notes belong to? 34,552,676,352 gathered, 69,105,352,704 reduced.

With the name of a picture (`python examples/aicb_pair.py aicb_pair.png`) it draws what they count.
"""

import sys
import tempfile
from pathlib import Path

from simcore.cli import main as simcore
from simcore.report.plots import canvas, save

LAYERS, HIDDEN, FEED_FORWARD, ROWS = 96, 12288, 32768, 50257
PAIR = (34_552_676_352, 69_105_352_704)
OPTIONS = """generate megatron --compat aicb-2.1 -q --world_size 1024 --global_batch 128 --micro_batch 1 --num_layers 96
    --hidden_size 12288 --num_attention_heads 96 --vocab_size 50257 --swiglu --use_distributed_optimizer"""
CASES = ((2048, 4), (4096, 4), (2048, 8), (4096, 8))
"""Positions and ranks of tensor parallelism."""


def parameters(positions: int, tp: int) -> dict[str, int]:
    """Of a rank, as AICB counts: layers without their gates, the word table four times."""
    layer = 4 * HIDDEN**2 + 2 * HIDDEN * FEED_FORWARD
    rows = -(-ROWS // (128 * tp)) * 128  # of a rank: padded
    return {"layers": LAYERS * layer // tp, "word table": 4 * rows * HIDDEN, "positions": positions * HIDDEN}


def written(positions: int, tp: int) -> tuple[int, int]:
    """Bytes gathered and reduced in the first row of the workload."""
    with tempfile.TemporaryDirectory() as folder:
        file, more = f"{folder}/w.txt", f"--seq_length {positions} --max_position_embeddings {positions}"
        words = f"{OPTIONS} {more} --tensor_model_parallel_size {tp} -o {file}"
        if simcore(words.split()):
            raise SystemExit(2)
        row = next(line.split() for line in Path(file).read_text().splitlines() if line.startswith("grad_norm"))
    return int(row[4]), int(row[10])


def picture(path: str, about: str) -> None:
    """Bars: the bytes gathered, by what they are of, and the notes' figure."""
    with canvas(7.0, 2.8) as (figure, axes):
        left = [0.0] * len(CASES)
        for part, colour in zip(("layers", "word table", "positions"), ("#0072B2", "#E69F00", "#009E73"), strict=True):
            sizes = [2 * parameters(*case)[part] / 1e9 for case in CASES]
            axes.barh(range(len(CASES)), sizes, left=left, color=colour, label=part)
            left = [before + size for before, size in zip(left, sizes, strict=True)]
        axes.axvline(PAIR[0] / 1e9, color="#222222", linewidth=1, linestyle="--", label="the notes' figure")
        axes.set_yticks(range(len(CASES)), [f"TP {tp}, {positions:,} positions" for positions, tp in CASES])
        axes.set_title("GPT-175B: what a rank gathers in a step, as AICB counts", loc="left", fontsize=10)
        axes.set_xlabel("gathered (GB)")
        axes.invert_yaxis()
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
    save(figure, Path(path), about)


def main() -> str:
    """Print what AICB's file says beside the closed form; draw the picture if one is named."""
    lines = ["positions  TP        gathered         reduced   closed form (2 bytes)"]
    for case in CASES:
        gathered, reduced = written(*case)
        same = "the notes' pair" if (gathered, reduced) == PAIR else ""
        form = 2 * sum(parameters(*case).values())
        lines.append(f"{case[0]:9}  {case[1]:2}  {gathered:14,}  {reduced:14,}  {form:14,}  {same}".rstrip())
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        picture(sys.argv[1], text)
    return text


if __name__ == "__main__":
    print(main())
