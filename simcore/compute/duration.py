"""How long one kernel takes on one device, from measurements first.

>>> from simcore.compute.accelerators import accelerator
>>> from simcore.compute.kernel import Product
>>> found = duration(Product(8192, 8192, 8192), accelerator("H100"), "bf16")
>>> found.source.value, found.table, round(found.seconds * 1e3, 1)
('measured', 'aic_h100_gemm', 1.5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.kernel import (
    Attention,
    Duration,
    Gradient,
    GroupedProduct,
    Kernel,
    LatentAttention,
    MemoryPass,
    Product,
    Source,
    Touch,
)
from simcore.compute.measured import parametric
from simcore.compute.measured.curves import Floats
from simcore.compute.measured.estimate import Answer, Machine, Question, answer
from simcore.compute.measured.operations import LATENT, OPERATIONS, ROTARY
from simcore.compute.measured.tables import Word, own_folder, remembered

# Time of a gradient's product over the forward product of its own sizes (SimuMax, A100 PCIe and B200: medians of the
# layouts NN and, summed in 32 bits, NT over TN).
_LAYOUT = {Gradient.NONE: 1.0, Gradient.INPUT: 1.0, Gradient.WEIGHT: 1.05}
_OTHER_PASS = 0.12  # what eight of ten backward kernels differ from such factors by, here and in attention
_STAGE = {Gradient.NONE: "forward", Gradient.INPUT: "input_grad", Gradient.WEIGHT: "weight_grad"}
_LOAD_BYTES = 16  # that matrix units are fed with at once
_SOURCES = tuple(Source)


def duration(kernel: Kernel, device: Accelerator, dtype: str) -> Duration:
    """Seconds of a kernel from cold, where they come from and how far from the nearest measurement.

    Parameters
    ----------
    dtype
        Of the operands: "bf16", "fp16", "fp32", "fp8", "fp8_block", "fp4" (NVFP4).

    Raises
    ------
    InputError
        If there is no such data type.
    """
    return durations([(kernel, dtype)], device)[0]


def durations(kernels: Sequence[tuple[Kernel, str]], device: Accelerator) -> list[Duration]:
    """As `duration` for many kernels and their types: rows of a table are asked for together, and remembered."""
    known = _known_of(own_folder(), device)
    if len(known) > _MOST_KNOWN:
        known.clear()
    recipes = {one: _HOW[type(one[0])](one[0], device, one[1]) for one in kernels if one not in known}
    if recipes:
        _learn((ask for ask, _ in recipes.values()), device, known)
        known |= {one: finish(known[ask]) for one, (ask, finish) in recipes.items()}
    return [known[one] for one in kernels]


class Ask(NamedTuple):
    """One row of a table's operation."""

    operation: str
    words: tuple[Word, ...]
    sizes: tuple[tuple[str, float], ...]


Recipe = tuple[Ask, Callable[[Duration], Duration]]


_Known = dict[tuple[object, ...], Duration]
_MOST_KNOWN = 1 << 16


@remembered(64)
def _known_of(own: Path, device: Accelerator) -> _Known:
    """Kernels and rows of a device that were looked up with a user's tables in a folder."""
    return {}


def _learn(asks: Iterable[Ask], device: Accelerator, known: _Known) -> None:
    """Look up what is not known: all rows of one operation with the same words at once."""
    groups: dict[tuple[object, ...], dict[Ask, None]] = {}
    for ask in asks:
        if ask not in known:
            groups.setdefault((ask.operation, ask.words, len(ask.sizes)), {})[ask] = None
    for group in groups.values():
        found = _answered(list(group), device)
        columns = (found.seconds, found.source, found.distance, found.spread, found.table)
        for ask, seconds, source, *others in zip(group, *(one.tolist() for one in columns), strict=True):
            known[ask] = Duration(seconds, _SOURCES[source], *others)


def _answered(asks: Sequence[Ask], device: Accelerator) -> Answer:
    """Rows of one operation with the same words and columns."""
    first = asks[0]
    names = [name for name, _ in first.sizes]
    columns = np.array([[size for _, size in ask.sizes] for ask in asks], float)
    sizes = {name: columns[:, place] for place, name in enumerate(names)}
    return answer(Question(OPERATIONS[first.operation], Machine(_table_name(device), device), first.words, sizes))


def expert_exchange(
    stage: str,
    device: Accelerator,
    *,
    tokens: int,
    hidden: int,
    top_k: int,
    experts: int,
    ranks: int,
    nodes: int = 1,
    sms: int = 20,
    low_latency: bool = False,
) -> Duration:
    """Seconds in which DeepEP sends each rank's `tokens` to their experts ("dispatch") or back ("combine").

    Parameters
    ----------
    tokens
        Of one rank. `ranks` share the experts, in `nodes` nodes.
    sms
        Multiprocessors that the normal kernels take from computation meanwhile; the low-latency ones take none.
    """
    mode = "low_latency" if low_latency else "normal"
    sizes = {"nodes": nodes, "ranks": ranks, "hidden": hidden, "topk": top_k, "experts": experts, "tokens": tokens}
    ask = _ask("expert_exchange", ("bf16", mode, stage), **sizes, sms=1 if low_latency else sms)
    known = _known_of(own_folder(), device)
    _learn([ask], device, known)
    return known[ask]


_CURVE_BYTES = 2.0 ** np.arange(8, 30, 0.5)  # what the tables span


@lru_cache(maxsize=1024)
def collective_curve(kind: str, ranks: int, device: Accelerator) -> tuple[Floats, Floats]:
    """Bytes (of the full buffer) and seconds of a NCCL collective inside a node, from small to large.

    As nccl-tests has it: back to back, nobody late; more bytes never take less time. `kind`: "all_reduce",
    "all_gather", "reduce_scatter" or "all_to_all".
    """
    asks = [_ask("nccl", ("fp16", kind), ranks=ranks, size_bytes=size) for size in _CURVE_BYTES.tolist()]
    return _CURVE_BYTES, np.maximum.accumulate(_answered(asks, device).seconds)


def _ask(operation: str, words: tuple[Word, ...], **sizes: float) -> Ask:
    return Ask(operation, words, tuple(sizes.items()))


def _table_name(device: Accelerator) -> str:
    """A device as tables of measurements call it."""
    name, at, stated = device.name.partition("@")
    return name.partition("-SXM")[0].lower().replace("-", "_") + at + stated


def _product(kernel: Product, device: Accelerator, dtype: str) -> Recipe:
    """A batch is looked up as one product of all its rows, times the ratio of their parametric times."""
    rows = replace(kernel, m=kernel.m * kernel.batch, batch=1)
    factor = _LAYOUT[kernel.gradient] * _loads(kernel, dtype)
    if dtype == "fp32":
        words = (dtype, "bmm" if kernel.batch > 1 else "linear")
        ask = _ask("gemm_fp32", words, m=kernel.m, n=kernel.n, k=kernel.k, batch=kernel.batch)
    else:
        ask = _ask("gemm", (dtype,), m=rows.m, n=rows.n, k=rows.k)
        factor *= _longer("gemm", kernel, rows, device, dtype)
    return ask, lambda found: _times(found, factor, derived=kernel.gradient is not Gradient.NONE)


def _longer(operation: str, kernel: Kernel, measured: Kernel, device: Accelerator, dtype: str) -> float:
    """Parametric time of a kernel over that of the one which is measured in its place."""
    if kernel == measured:
        return 1.0
    width, spec = parametric.element_bytes(dtype), OPERATIONS[operation]
    own, other = (
        parametric.seconds(spec, one.flops, one.moved_bytes(width), device, dtype) for one in (kernel, measured)
    )
    return own / other


def _loads(kernel: Product, dtype: str) -> float:
    """How many loads take the place of one: where rows begin off its boundary, one for every element.

    Heads of 108 or 150 elements are such; batched products then fall back to kernels that read element by element.
    """
    width = ELEMENT_BYTES[parametric.plain_type(dtype)]
    return _LOAD_BYTES / width if kernel.row * width % _LOAD_BYTES else 1.0


def _grouped(kernel: GroupedProduct, device: Accelerator, dtype: str) -> Recipe:
    """Measured by the sizes of the layer, whichever pass it is: each expert's tokens, features out and in."""
    n, k = (kernel.k, kernel.n) if kernel.gradient is Gradient.INPUT else (kernel.n, kernel.k)
    words = (dtype, _STAGE[kernel.gradient], int(kernel.gradient is Gradient.WEIGHT))
    each = max(1.0, kernel.tokens / kernel.experts)
    return _ask("grouped_gemm", words, groups=kernel.experts, m=each, n=n, k=k), lambda found: found


def _attention(kernel: Attention, device: Accelerator, dtype: str) -> Recipe:
    """Looked up as the causal square of all keys; other queries and no mask by the ratio of parametric times.

    Heads whose values are narrower are measured with training kernels only. (The tables without a mask mix kernels of
    serving frameworks that differ by a factor of three.)
    """
    if kernel.values != kernel.head_dim and kernel.causal:
        return _training(kernel), lambda found: found
    single = kernel.queries == 1
    operation = "attention_decode" if single else "attention_prefill"
    sizes = {
        "heads": kernel.heads,
        "kv_heads": kernel.key_heads,
        "head_dim": kernel.head_dim,
        "window": kernel.window if kernel.window < kernel.keys else 0,
        "batch": kernel.batch,
        "context" if single else "seq": kernel.keys,
    }
    one = replace(kernel, backward=False)
    square = replace(one, queries=1 if single else kernel.keys, value_dim=kernel.head_dim, causal=True)
    factor = _longer(operation, one, square, device, dtype) * (_BACKWARD if kernel.backward else 1.0)
    return _ask(operation, (dtype,), **sizes), lambda found: _times(found, factor, derived=kernel.backward)


def _latent(kernel: LatentAttention, device: Accelerator, dtype: str) -> Recipe:
    """Measured at the widths of DeepSeek's models; others by the ratio of parametric times."""
    measured = replace(kernel, head_dim=int(LATENT + ROTARY), value_dim=int(LATENT))
    factor = _longer("mla_decode", kernel, measured, device, dtype)
    ask = _ask("mla_decode", (dtype,), heads=kernel.heads, batch=kernel.batch, context=kernel.keys)
    return ask, lambda found: _times(found, factor)


# Time of the backward over the forward's in training kernels with work enough for the device (SimuMax, A100 PCIe and
# B200: 2.9 to 3.6; less only where the host's launch is what was timed of the forward).
_BACKWARD = 3.0


def _training(kernel: Attention) -> Ask:
    return _ask(
        "attention_causal",
        ("bf16", "backward" if kernel.backward else "forward", 1),
        heads=kernel.heads,
        kv_heads=kernel.key_heads,
        qk_head_dim=kernel.head_dim,
        v_head_dim=kernel.values,
        batch=kernel.batch,
        seq=kernel.keys,
    )


# How a pass is measured: operation, words and what one element of the result reads and writes. What only walks through
# memory runs at the rate of an addition (as NeuSight's relu and tanh do); of norms a training framework's are taken,
# as serving's reach half of their rate.
_ADDED: tuple[str, tuple[Word, ...], float] = ("memory", ("fp16", "add", None), 3.0)
_PASSES: dict[Touch, tuple[str, tuple[Word, ...], float]] = {
    Touch.NORM: ("memory_fp32", ("fp32", "layernorm"), 2.0),
    Touch.SOFTMAX: ("memory_fp32", ("fp32", "softmax"), 2.0),
    Touch.QUANTISE: ("quantize_scale_matrix", ("fp8",), 1.5),
}
_WIDTH = 4096  # columns of a pass whose bytes alone are known


def _memory(kernel: MemoryPass, device: Accelerator, dtype: str) -> Recipe:
    operation, words, traffic = _PASSES.get(kernel.operation, _ADDED)
    size = ELEMENT_BYTES[parametric.plain_type(str(words[0]))]
    elements = kernel.bytes / (traffic * (2.0 if operation.startswith("quantize") else size))
    width = min(float(_WIDTH), max(elements, 1.0))
    spec = OPERATIONS[operation]
    sizes = dict.fromkeys(spec.sizes, width) | {spec.swept: max(1.0, elements / width)}
    least_s = kernel.bytes / device.memory_bytes_per_s if kernel.bytes > _CACHED_BYTES else 0.0
    return _ask(operation, words, **sizes), lambda found: found.lasting(max(found.seconds, least_s))


_CACHED_BYTES = 2e8  # more than any device's caches hold


def _times(found: Duration, factor: float, *, derived: bool = False) -> Duration:
    """A time that measurements give up to a factor; `derived`: those of the forward pass."""
    moved = found.source is Source.MEASURED and (derived or factor != 1.0)
    source, spread = Source.INTERPOLATED if moved else found.source, hypot(found.spread, _OTHER_PASS * derived)
    return Duration(found.seconds * factor, source, found.distance, spread, found.table)


_HOW: dict[type, Callable[[Any, Accelerator, str], Recipe]] = {
    Product: _product,
    GroupedProduct: _grouped,
    Attention: _attention,
    LatentAttention: _latent,
    MemoryPass: _memory,
}
