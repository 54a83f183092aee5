"""Double binary tree: reduce up one tree, broadcast down; chunks alternate between two opposite trees.

The trees are numbered in order (Sanders, Speck, Träff 2009, as NCCL and ASTRA-sim use them); a tree only all-reduces.
"""

from __future__ import annotations

from simcore.system.collectives.registry import PlanOptions, algorithms
from simcore.system.explicit import Explicit, Transfer
from simcore.workload.model import CollectiveKind


@algorithms.register("doubleBinaryTree")
def double_binary_tree(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Explicit:
    """All data go up a tree and down again, whatever the collective; ValueError unless n is a power of two.

    An inner rank pays the reduction for what comes from below, and again for what comes from above (ASTRA-sim).
    """
    transfers, last = [], 2 * size.bit_length() - 3
    for rank, (above, height) in enumerate(tree(size, mirrored=options.mirrored)):
        if above >= 0:
            charge_bytes = data_bytes if height else 0
            transfers.append(Transfer(height, rank, above, (0,), data_bytes, True, data_bytes))
            transfers.append(Transfer(last - height, above, rank, (0,), data_bytes, charge_bytes=charge_bytes))
    return Explicit.ordered(size, transfers)


def tree(size: int, *, mirrored: bool) -> list[tuple[int, int]]:
    """The rank above each one, -1 above the root, and how far the rank is above the leaves.

    A perfect binary tree over n - 1 ranks, numbered in order, hangs below a root that is the last rank. `mirrored`
    numbers from the other end: the root is rank 0. ValueError unless `size` is a power of two.
    """
    if size & (size - 1) or size < 2:
        raise ValueError(f"doubleBinaryTree needs a power of two of ranks, not {size}")
    # Counted from 1, a rank's height is the number of its last zeros in binary, and the next bit says on which side.
    above = [(place ^ place & -place | (place & -place) << 1) - 1 for place in range(1, size)] + [-1]
    heights = [(place & -place).bit_length() - 1 for place in range(1, size + 1)]
    if mirrored:
        above, heights = [size - 1 - rank if rank >= 0 else -1 for rank in reversed(above)], heights[::-1]
    return list(zip(above, heights, strict=True))
