"""What a table of measurements measures: its columns, which sizes are near each other, and the work that is done.

The columns are those of the open tables (docs/kernels.md). One column is swept, the other sizes make a configuration,
words (type, framework, stage) must agree. Axes say how far two configurations are from each other: a difference of one
octave in a column counts as its weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simcore.compute.measured.curves import Columns, Floats
from simcore.library import table

Axis = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """What a device has to do, row by row: FLOPs, bytes of memory, bytes over a rank's link, messages one by one.

    `alone_bytes` of memory are moved while nothing is computed.
    """

    flops: Floats | float = 0.0
    memory_bytes: Floats | float = 0.0
    alone_bytes: Floats | float = 0.0
    link_bytes: Floats | float = 0.0
    steps: Floats | float = 0.0


_Work = Callable[[Columns, float], Work]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One of `OPERATIONS`, and the same only as itself.

    `repeated` sizes belong to the sweep: `without exact` sets configurations that differ in them aside, too.

    `mixed`: rows of all words tell of sizes that were not measured with the words asked for. `warm`: measured again and
    again on the same data, which stay in the cache where they fit.

    `rests_on` names a better known operation that does nearly the same work; `there` gives its columns.
    """

    name: str
    swept: str
    words: tuple[str, ...]
    axes: tuple[Axis, ...]
    work: _Work
    repeated: tuple[str, ...] = ()
    by_point: bool = False
    mixed: bool = False
    warm: bool = False
    rests_on: str = ""
    there: Callable[[Columns], Columns] = dict

    @property
    def sizes(self) -> tuple[str, ...]:
        """Columns of a configuration, in the order of their first axis."""
        return tuple(dict.fromkeys(name for axis in self.axes for name in axis if name != self.swept))

    @property
    def type_column(self) -> str:
        """The column that says the data type."""
        return self.words[0]

    def filled(self, sizes: Columns) -> Columns:
        """All sizes: what is not stated is 1, or as large as the size it is a part of."""
        rows = len(next(iter(sizes.values())))
        return {
            name: sizes.get(name, sizes.get(_PART_OF.get(name, ""), np.ones(rows, np.int64))) for name in self.sizes
        }

    def places(self, sizes: Columns) -> Floats:
        """Coordinates [rows, axes] of configurations, in weighted octaves."""
        logs = {name: np.log2(np.maximum(np.asarray(sizes[name], float), 1.0)) for name in self.sizes}
        return np.stack([sum(weight * logs[name] for name, weight in axis.items()) for axis in self.axes], axis=1)


_PART_OF = {"ranks_per_node": "ranks", "kv_heads": "heads"}


def _product(c: Columns, size: float) -> Work:
    """Gradients of before are read when those are known that they add to."""
    m, n, k, batch = _all(c, "m", "n", "k", "batch")
    told = "accumulate" in c and "out_dtype" in c
    added = np.where(c["out_dtype"] == "fp32", 4, 2) * c["accumulate"] * m * n if told else 0.0
    return Work(
        2 * batch * m * n * k, batch * (size * k * (m + n) + max(size, 2) * m * n), batch * (_cast(size, m * k) + added)
    )


def _cast(size: float, elements: Floats) -> Floats:
    """Bytes that 16-bit elements cost which are cast to narrower ones first."""
    return (2 + size) * elements * (size < 2)


def _all(c: Columns, *names: str) -> tuple[Floats, ...]:
    """Columns as floats; a size that a table does not state is 1."""
    rows = len(next(iter(c.values())))
    return tuple(np.asarray(c[name], float) if name in c else np.ones(rows) for name in names)


def _seen(c: Columns, keys: Floats) -> Floats:
    """Keys that a query looks at, of those there are; a window of 0 is none."""
    window = np.asarray(c["window"], float)
    return np.minimum(np.where(window > 0, window, keys), keys)


def _prefill(c: Columns, size: float) -> Work:
    heads, keys, width, batch, seq = _all(c, "heads", "kv_heads", "head_dim", "batch", "seq")
    seen = _seen(c, seq)
    moved = batch * seq * width * ((size + 2) * heads + 4 * size * keys)  # keys and values also go to a cache
    return Work(4 * batch * heads * (seen * seq - seen * seen / 2) * width, moved)


def _bidirectional(c: Columns, size: float) -> Work:
    heads, width, batch, seq = _all(c, "heads", "head_dim", "batch", "seq")
    return Work(4 * batch * heads * seq * seq * width, 4 * size * batch * seq * heads * width)


def _decode(c: Columns, size: float) -> Work:
    heads, keys, width, batch, context = _all(c, "heads", "kv_heads", "head_dim", "batch", "context")
    seen = _seen(c, context)
    return Work(4 * batch * heads * seen * width, batch * (2 * size * keys * seen + 4 * heads) * width)


def _causal(c: Columns, size: float) -> Work:
    heads, keys, width, value, batch, seq = _all(c, "heads", "kv_heads", "qk_head_dim", "v_head_dim", "batch", "seq")
    return Work(batch * heads * seq * seq * (width + value), size * batch * seq * (heads + keys) * (width + value))


LATENT, ROTARY, _LATENT_HEAD = 512.0, 64.0, 128.0  # sizes of the measured latent attention (DeepSeek-V2, V3)


def _latent_prefill(c: Columns, size: float) -> Work:
    heads, batch, seq, prefix = (*_all(c, "heads", "batch", "seq"), np.asarray(c["prefix"], float))
    widths = 2 * _LATENT_HEAD + ROTARY
    flops = batch * heads * seq * (seq + 2 * prefix) * widths
    return Work(flops, 2 * size * batch * (seq + prefix) * heads * widths)


def _latent_decode(c: Columns, size: float) -> Work:
    heads, batch, seen = _all(c, "heads", "batch", "context")
    cached = LATENT + ROTARY
    return Work(2 * batch * heads * seen * (LATENT + cached), batch * (size * seen * cached + 4 * heads * cached))


def _latent_product(c: Columns, size: float) -> Work:
    heads, tokens = _all(c, "heads", "tokens")
    weights = LATENT * _LATENT_HEAD
    return Work(2 * heads * tokens * weights, heads * (size * weights + 2 * tokens * (LATENT + _LATENT_HEAD)))


def _experts(c: Columns, size: float) -> Work:
    """A routed feed-forward: experts that get a token read their weights; few tokens still fill a tile."""
    names = ("gated", "hidden", "inter", "experts", "topk", "tp", "ep", "tokens")
    gated, hidden, inter, experts, topk, tp, ep, tokens = _all(c, *names)
    local, rows, width = np.maximum(1, experts / ep), tokens * topk / ep, inter / tp
    reached = local * (1 - np.exp(-rows / local))
    weights = hidden * width * np.where(gated > 0, 3, 2)
    moved = reached * weights * size + rows * 4 * (hidden + width) + tokens * hidden * 4
    return Work(2 * np.maximum(rows, 32 * reached) * weights, moved)


def _grouped(c: Columns, size: float) -> Work:
    groups, m, n, k = _all(c, "groups", "m", "n", "k")
    return Work(2 * groups * m * n * k, groups * (size * k * (m + n) + 2 * m * n), groups * _cast(size, m * k))


def _whole(c: Columns) -> Columns:
    """A batch or group of products as one with all their rows."""
    batch, groups, m = _all(c, "batch", "groups", "m")
    return {"m": batch * groups * m, "n": c["n"], "k": c["k"]}


# Elements read and written for one of the result.
_TRAFFIC = {"add": 3.0, "div": 3.0, "mul": 3.0, "pow": 3.0, "activation": 2.0}


def _pass(c: Columns, size: float) -> Work:
    rows, columns = _all(c, "rows", "columns")
    traffic = np.array([_TRAFFIC.get(str(name), 2.0) for name in c["op"]]) if "op" in c else 2.0
    return Work(memory_bytes=size * traffic * rows * columns)


def _quantise(c: Columns, size: float) -> Work:
    m, k = _all(c, "m", "k")
    return Work(memory_bytes=(2 + size) * m * k)


def _collective(c: Columns, _: float) -> Work:
    ranks, size = _all(c, "ranks", "size_bytes")
    share = (ranks - 1) / ranks
    return Work(link_bytes=share * size, steps=np.log2(ranks))


_NETWORK_SHARE = 8.0  # a node's link over a rank's network card


def _exchange(c: Columns, _: float) -> Work:
    """A token goes once to every rank, and once over the network to every node, that has an expert of it."""
    nodes, ranks, hidden, topk, tokens = _all(c, "nodes", "ranks", "hidden", "topk", "tokens")
    copies, away = (places * (1 - (1 - 1 / places) ** topk) * (1 - 1 / places) for places in (ranks, nodes))
    return Work(link_bytes=2 * tokens * hidden * np.maximum(copies, _NETWORK_SHARE * away), steps=np.log2(ranks))


_ATTENTION = (_prefill, _bidirectional, _decode, _causal, _latent_prefill, _latent_decode, _latent_product)
_WORKS = (_product, _grouped, _experts, *_ATTENTION, _pass, _quantise, _collective, _exchange)
_WORK = {work.__name__[1:]: work for work in _WORKS}
_LOOP: Mapping[str, Any] = {"rests_on": "gemm", "there": _whole}
_TRAITS: Mapping[str, Mapping[str, Any]] = {
    "loop": _LOOP,
    "mixed": {**_LOOP, "mixed": True},
    "points": {"by_point": True},
    "warm": {"warm": True},
    "-": {},
}
_LONG_RUNS = ("gemm", "attention_prefill", "attention_bidirectional")  # measured at the power limit, too


def _sustained(short: Operation) -> Operation:
    """The same in runs of a second at the board's power limit."""
    return replace(short, name=f"{short.name}_sustained", words=("dtype", "framework"), rests_on=short.name)


def _measured(name: str, work: str, swept: str, words: str, repeated: str, traits: str, axes: str) -> Operation:
    pairs = [[size.partition("^") for size in axis.split("*")] for axis in axes.split()]
    weighed = tuple({size: float(weight or 1) for size, _, weight in axis} for axis in pairs)
    again = tuple(repeated.strip("-").split())
    return Operation(name, swept, tuple(words.split()), weighed, _WORK[work], again, **_TRAITS[traits])


OPERATIONS: dict[str, Operation] = {row[0]: _measured(*row) for row in table(__file__, "operations.txt")}
OPERATIONS |= {one.name: one for one in map(_sustained, [OPERATIONS[name] for name in _LONG_RUNS])}
