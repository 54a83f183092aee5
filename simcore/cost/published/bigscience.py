"""BigScience's trials before BLOOM on Jean Zay, 176B to 205B on up to 384 A100.

The source is train/tr11-176B-ml/chronicles-prequel.md of bigscience-workshop/bigscience. A row of the table leaves out
what its section of the chronicle says. Of several shapes that a size was tried with, a row's is the one whose FLOPs are
the row's own TFLOP/s times its seconds, a product that no machine changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simcore.cost.published.megatron import OF_2021, gpt
from simcore.cost.published.rows import Job, Row, Step, job, named
from simcore.cost.published.tables import table_rows

_WORDS, _SEQ = 250_880, 2048
# Size -> (layers, width) of models that were tried.
_SHAPES, _EARLY = (
    {size: [(int(layers), int(hidden)) for layers, hidden in some] for size, some in named(source).items()}
    for source in ("bigscience", "bigscience-early")
)
_EARLY_WIDTH, _EARLY_HEADS, _HEADS = 14400, 96, 64
_SUMS_IN_32_BITS = "02-28"  # from that day gradients are summed in 32 bits
_ONE_NODE_BATCH = 512  # stated over the table of single nodes, whose column says otherwise


def bigscience(document: Mapping[str, Any]) -> Iterator[Row]:
    """Megatron-DeepSpeed with full recomputation, ZeRO 1, 250k words.

    Left out are rows without a time (out of memory, hangs) or with degrees that do not multiply to the nodes.
    """
    for name, row in table_rows(document, "bigscience_a100"):
        shape = _shape(row)
        if not shape:
            continue
        tp, pp, dp = _degrees(row)
        if tp * pp * dp == 8 * int(row["Nodes"]) and _batch(row) % (dp * int(row["MBS"])) == 0:
            system = "jean-zay-bf16" if str(row["Notes"]).startswith(_SUMS_IN_32_BITS) else "jean-zay"
            yield Row(f"{name}-{row['Size']}", float(row["Sec/it"]), Step((_job(row, shape),), system))


def _shape(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """(layers, width) of a row that gives a time."""
    if not row["Sec/it"] or row["Sec/it"] == "x":
        return None
    size, early = row["Size"] or "", str(row["Notes"]).startswith("02-20")
    shapes = _EARLY[size] if early and size in _EARLY else _SHAPES.get(size, [])
    return min(shapes, key=lambda shape: _misfit(row, *shape), default=None)


def _misfit(row: Mapping[str, Any], layers: int, hidden: int) -> float:
    """How far a shape is from the FLOPs of a row, counted as the chronicle does from 21 February on."""
    whole = float(row["TFLOPs"] or 0) * float(row["Sec/it"]) * 8e12 * int(row["Nodes"])
    more = 1 + _SEQ / (6 * hidden) + _WORDS / (16 * layers * hidden)  # Narayanan et al. 2021, section 3
    return abs(96.0 * _batch(row) * _SEQ * layers * hidden * hidden * more - whole)


def _batch(row: Mapping[str, Any]) -> int:
    return _ONE_NODE_BATCH if int(row["Nodes"]) == 1 else int(row["GBS"])


def _degrees(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return int(row["TP"]), int(row["PP"]), int(row["DP"] or 1)


def _job(row: Mapping[str, Any], shape: tuple[int, int]) -> Job:
    layers, hidden = shape
    heads = int(row["NHEADS"] or (_EARLY_HEADS if hidden == _EARLY_WIDTH else _HEADS))
    model = gpt({"layers": layers, "hidden": hidden, "heads": heads, "vocab": _WORDS, "seq": _SEQ})
    sums = {"gradients_apart": True, "gradient_bytes": 4 if str(row["Notes"]).startswith(_SUMS_IN_32_BITS) else 2}
    choices = {**OF_2021, "dtype": "bf16", "recompute": "full", "zero": 1, "micro_batch": int(row["MBS"]), **sums}
    tp, pp, dp = _degrees(row)
    return job(model, _SEQ, _batch(row), tp=tp, pp=pp, dp=dp, **choices)
