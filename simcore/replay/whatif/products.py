"""Matrix products of a recorded step under other widths, by the ratio of their roofline times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from simcore.compute import kernel
from simcore.compute.accelerators import Accelerator, recognised
from simcore.compute.duration import duration
from simcore.errors import InputError
from simcore.replay.kinds import ATTENTION
from simcore.replay.steps.rank import RankView
from simcore.workload.kineto import Product


def width_factors(rank: RankView, which: str, size: int) -> NDArray[np.float64]:
    """The factor on each task's duration when the width `which` ("hidden" or "ffn") becomes `size`; InputError when
    products, widths or the device are not known, or communication would change in a way the trace hides.
    """
    old = _width(rank, which, which)
    if rank.communication.any():
        raise _refused(which, "nothing says how the sizes of the collectives depend on it", "", rank)

    def wider(product: Product) -> Product:
        m, k, n = (size if side == old else side for side in (product.m, product.k, product.n))
        return replace(product, m=m, k=k, n=n)

    return _factors(rank, which, wider)


def shard_factors(rank: RankView, old: int, new: int) -> NDArray[np.float64]:
    """The factor on each task's duration when weights are divided among `new` ranks instead of `old` > 1.

    Every weight has the hidden size on one side, and is divided on the other; attention is divided by heads (Shoeybi et
    al. 2019, section 3). InputError when products, the hidden size or the device are not known, or a side cannot be
    divided so.
    """
    hidden = _width(rank, "tp", "hidden")
    weights = [(product.k, product.n) for product in rank.trace.products.values()]
    tokens, _ = Counter(product.m for product in rank.trace.products.values()).most_common(1)[0]
    sides = {side for weight in weights if hidden in weight for side in weight} - {hidden}
    if (hidden, tokens) not in weights:  # a gradient of weights has the tokens between its sides
        sides.discard(tokens)

    def divided(product: Product) -> Product:
        shape = [product.m, product.k, product.n]
        at = next((at for at in (2, 1, 0) if shape[at] in sides), shape.index(hidden) if shape.count(hidden) > 1 else 3)
        if at < len(shape) and shape[at] * old % new:
            raise _refused("tp", f"a side of {shape[at]} x {old}, which {new} ranks cannot share", "", rank)
        m, k, n = (side * old // new if at == place else side for place, side in enumerate(shape))
        return replace(product, m=m, k=k, n=n)

    factors = _factors(rank, "tp", divided)
    return np.where(rank.of_category(ATTENTION), old / new, factors)


def _width(rank: RankView, which: str, name: str) -> int:
    """The recorded width of a name; InputError when nothing tells it."""
    if not rank.trace.products:
        hint = "record with record_shapes=True, or give --host"
        raise _refused(which, "no matrix product says its shape", hint, rank)
    found = widths(rank.trace.products.values()).get(name, 0)
    if not found:
        raise _refused(which, "no dimension is common to most weights", "", rank)
    return found


def _factors(rank: RankView, which: str, changed: Callable[[Product], Product]) -> NDArray[np.float64]:
    """The ratio of the kernels' times where a product changes, else 1."""
    factors, device = np.ones(len(rank.trace.tasks)), recognised(rank.trace.device)
    if device is None:
        raise _refused(which, f"nothing is known of the device {rank.trace.device!r}", "", rank)
    for row, product in rank.trace.products.items():
        other = changed(product)
        if other != product:
            factors[launched(rank, row)] = _seconds(other, device) / _seconds(product, device)
    return factors


def widths(products: Iterable[Product]) -> dict[str, int]:
    """The hidden size, of most weights [k, n], and the feed-forward size, which most others have beside it.

    The feed-forward size stands on both sides of the hidden one (up and down), the vocabulary only on one.
    """
    weights = Counter((product.k, product.n) for product in products)
    sides = Counter[int]()
    for (k, n), count in weights.items():
        sides.update(dict.fromkeys({k, n}, count))
    if not sides:
        return {}
    hidden, count = min(sides.items(), key=lambda side: (-side[1], side[0]))
    if 2 * count <= weights.total():
        return {}
    beside = {
        n: weights[k, n] + weights[n, k] for k, n in weights if k == hidden and n != hidden and (n, hidden) in weights
    }
    ffn = min(beside, key=lambda size: (-beside[size], size), default=0)
    return {"hidden": hidden, "ffn": ffn}


def launched(rank: RankView, operator: int) -> NDArray[np.int64]:
    """The tasks launched by an operator."""
    rows = rank.trace.operators
    return rank.launched(int(rows.lane[operator]), int(rows.start_ns[operator]), int(rows.end_ns[operator]))


def _refused(which: str, found: str, hint: str, rank: RankView) -> InputError:
    what = f"{which} cannot be changed: the trace does not say enough"
    alone = "" if which == "tp" else ", without communication,"
    expected = f"shapes of matrix products on one known device{alone} in {rank.trace.file}"
    return InputError.at("--set", what, expected=expected, found=found, hint=hint)


def _seconds(product: Product, device: Accelerator) -> float:
    dtype = product.dtype if product.dtype in device.peak_flops_per_s else "fp16"
    return duration(kernel.Product(product.m, product.n, product.k), device, dtype).seconds
