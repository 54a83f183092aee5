"""Synthesised for the network at hand, whatever it looks like (`synthesised2`: two pieces per rank)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simcore.system.collectives.registry import PlanOptions, native
from simcore.system.explicit import Explicit, Transfer
from simcore.system.synthesis import Sent, gather, scatter
from simcore.system.wires import Wire
from simcore.workload.model import CollectiveKind

MOST_TRANSFERS = 1 << 18


@native(
    "synthesised",
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    network_aware=True,
)
def synthesised(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """Chunks go from neighbour to neighbour, the rarest first; an all-reduce reduces and scatters, then gathers.

    `options.window` is the number of pieces that a rank's share is cut into, 1 where it is 0. ValueError for so
    many ranks that it would take long.
    """
    pieces = max(1, options.window)
    if size * size * pieces > MOST_TRANSFERS:
        raise ValueError(f"{size} ranks with {pieces} pieces each are too many to synthesise a collective for")
    wires = options.wires() if options.wires else _everywhere(size)
    total_bytes = data_bytes * (size if kind == CollectiveKind.ALL_GATHER else 1)
    count = size * pieces
    ends = [total_bytes * chunk // count for chunk in range(count + 1)]
    largest = -(-total_bytes // count)
    reduced = scatter(wires, size, pieces, largest) if kind != CollectiveKind.ALL_GATHER else []
    gathered = gather(wires, size, pieces, largest) if kind != CollectiveKind.REDUCE_SCATTER else []
    first = max((sent.step + 1 for sent in reduced), default=0)
    transfers = [*_transfers(reduced, ends, 0, reduce=True), *_transfers(gathered, ends, first, reduce=False)]
    return Explicit.ordered(size, transfers)


def _transfers(found: Sequence[Sent], ends: Sequence[int], first: int, *, reduce: bool) -> Iterator[Transfer]:
    for sent in found:
        size_bytes = ends[sent.chunk + 1] - ends[sent.chunk]
        charge_bytes = size_bytes if reduce else 0
        yield Transfer(first + sent.step, sent.src, sent.dst, (sent.chunk,), size_bytes, reduce, charge_bytes)


def _everywhere(size: int) -> list[Wire]:
    """A link between any two, where nobody says what the network is."""
    pairs = [(src, dst) for src in range(size) for dst in range(size) if src != dst]
    return [Wire(src, dst, (link,), (1e9,), 0) for link, (src, dst) in enumerate(pairs)]
