"""How long one kernel takes on one device, from measurements first.

>>> from simcore.compute.accelerators import accelerator
>>> from simcore.compute.kernel import Product
>>> found = duration(Product(8192, 8192, 8192), accelerator("H100"), "bf16")
>>> found.source.value, found.table, round(found.seconds * 1e3, 1)
('measured', 'aic_h100_gemm', 1.5)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator
from simcore.compute.kernel import (
    Attention,
    Duration,
    Gradient,
    GroupedProduct,
    Kernel,
    MemoryPass,
    Product,
    Source,
    Touch,
)
from simcore.compute.measured import parametric
from simcore.compute.measured.curves import Columns, Floats
from simcore.compute.measured.estimate import Machine, Question, answer
from simcore.compute.measured.operations import OPERATIONS
from simcore.compute.measured.tables import Word

__all__ = ["collective", "collective_curve", "duration", "expert_exchange"]

# Time of a gradient's product over the forward product of its own sizes (SimuMax, A100 PCIe and B200: medians of the
# layouts NN and, summed in 32 bits, NT over TN).
_LAYOUT = {Gradient.NONE: 1.0, Gradient.INPUT: 1.0, Gradient.WEIGHT: 1.05}
_STAGE = {Gradient.NONE: "forward", Gradient.INPUT: "input_grad", Gradient.WEIGHT: "weight_grad"}
_LOAD_BYTES = 16  # that matrix units are fed with at once
_SOURCES = tuple(Source)


def duration(kernel: Kernel, device: Accelerator, dtype: str, *, sustained: bool = False) -> Duration:
    """Seconds of a kernel, where they come from and how far from the nearest measurement.

    Parameters
    ----------
    dtype
        Of the operands: "bf16", "fp16", "fp32", "fp8", "fp8_block", "fp4" (NVFP4).
    sustained
        As in a run of a second and more at the board's power limit, not as a few repetitions from cold.

    Raises
    ------
    InputError
        If there is no such data type.
    """
    return _duration(kernel, device, dtype, sustained)


@lru_cache(maxsize=65536)
def _duration(kernel: Kernel, device: Accelerator, dtype: str, sustained: bool) -> Duration:
    found: Duration = _HOW[type(kernel)](kernel, device, dtype, sustained)
    return found


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
    return _ask("expert_exchange", ("bf16", mode, stage), sizes | {"sms": 1 if low_latency else sms}, device)[1]


def collective(kind: str, size_bytes: float, ranks: int, device: Accelerator) -> Duration:
    """Seconds of a NCCL collective inside a node, as nccl-tests has it: back to back, nobody late.

    `kind`: "all_reduce", "all_gather", "reduce_scatter" or "all_to_all"; `size_bytes`: the full buffer.
    """
    sizes = {"ranks": ranks, "ranks_per_node": ranks, "size_bytes": size_bytes}
    return _ask("nccl", ("fp16", kind), sizes, device)[1]


_CURVE_BYTES = 2.0 ** np.arange(8, 30, 0.5)  # what the tables span


@lru_cache(maxsize=1024)
def collective_curve(kind: str, ranks: int, device: Accelerator) -> tuple[Floats, Floats]:
    """Bytes and seconds of `collective`, from small to large, where more bytes never take less time."""
    sizes = {"ranks": np.full(len(_CURVE_BYTES), ranks), "size_bytes": _CURVE_BYTES}
    found = answer(Question(OPERATIONS["nccl"], Machine(_table_name(device), device), ("fp16", kind), sizes))
    return _CURVE_BYTES, np.maximum.accumulate(found.seconds)


def _ask(
    operation: str, words: tuple[Word, ...], sizes: Mapping[str, float], device: Accelerator
) -> tuple[Question, Duration]:
    """One row of a table's operation."""
    columns = {name: np.array([value], float) for name, value in sizes.items()}
    question = Question(OPERATIONS[operation], Machine(_table_name(device), device), words, columns)
    found = answer(question)
    source = _SOURCES[int(found.source[0])]
    seconds, distance, spread = (float(one[0]) for one in (found.seconds, found.distance, found.spread))
    return question, Duration(seconds, source, distance, spread, found.table)


def _table_name(device: Accelerator) -> str:
    """A device as tables of measurements call it."""
    return device.name.partition("-SXM")[0].lower().replace("-", "_")


def _product(kernel: Product, device: Accelerator, dtype: str, sustained: bool) -> Duration:
    """A batch is looked up as one product of all its rows, times the ratio of their parametric times."""
    rows = {"m": kernel.m * kernel.batch, "n": kernel.n, "k": kernel.k}
    if dtype == "fp32":
        sizes = {"m": kernel.m, "n": kernel.n, "k": kernel.k, "batch": kernel.batch}
        found = _ask("gemm_fp32", ("fp32", "bmm" if kernel.batch > 1 else "linear"), sizes, device)[1]
    else:
        operation, words = ("gemm_sustained", (dtype, None)) if sustained else ("gemm", (dtype,))
        question, found = _ask(operation, words, rows, device)
        if kernel.batch > 1:
            whole = {"m": kernel.m, "n": kernel.n, "k": kernel.k, "batch": kernel.batch}
            found = _times(found, _ratio(question, whole), exact=False)
    return _times(found, _LAYOUT[kernel.gradient] * _loads(kernel, dtype), exact=kernel.gradient is Gradient.NONE)


def _loads(kernel: Product, dtype: str) -> float:
    """How many loads take the place of one: where rows begin off its boundary, one for every element.

    Heads of 108 or 150 elements are such; batched products then fall back to kernels that read element by element.
    """
    width = ELEMENT_BYTES[parametric.plain_type(dtype)]
    return _LOAD_BYTES / width if kernel.row * width % _LOAD_BYTES else 1.0


def _grouped(kernel: GroupedProduct, device: Accelerator, dtype: str, sustained: bool) -> Duration:
    each = max(1.0, kernel.tokens / kernel.experts)
    sides = {"n": kernel.n, "k": kernel.k}
    weight = kernel.gradient is Gradient.WEIGHT
    sizes = {"groups": kernel.experts, "m": each, **sides}
    if weight:
        sizes = {"groups": kernel.experts, "m": kernel.n, "n": kernel.k, "k": each}
    words = (dtype, _STAGE[kernel.gradient], int(weight))
    return _ask("grouped_gemm", words, sizes, device)[1]


def _attention(kernel: Attention, device: Accelerator, dtype: str, sustained: bool) -> Duration:
    """Looked up as the square of all keys; fewer queries by the ratio of parametric times.

    Heads whose values are narrower are measured with training kernels only.
    """
    if kernel.values != kernel.head_dim and kernel.causal:
        stage = "backward" if kernel.backward else "forward"
        return _ask("attention_causal", ("bf16", stage, 1), _training_sizes(kernel), device)[1]
    operation = "attention_decode" if kernel.queries == 1 else "attention_prefill" if kernel.causal else _WHOLE
    swept = "context" if kernel.queries == 1 else "seq"
    sizes = {
        "heads": kernel.heads,
        "kv_heads": kernel.key_heads,
        "head_dim": kernel.head_dim,
        "window": kernel.window if kernel.window < kernel.keys else 0,
        "batch": kernel.batch,
        swept: kernel.keys,
    }
    question, found = _ask(operation, (dtype,), sizes, device)
    forward = replace(kernel, backward=False)
    square = replace(forward, queries=kernel.keys if kernel.queries > 1 else 1, value_dim=kernel.head_dim)
    size = parametric.element_bytes(dtype)
    work, all_s = (
        parametric.seconds(question.operation, one.flops, one.moved_bytes(size), device, dtype)
        for one in (forward, square)
    )
    found = _times(found, work / all_s, exact=work == all_s)
    return _times(found, _backward(kernel, device), exact=False) if kernel.backward else found


_WHOLE = "attention_bidirectional"


def _backward(kernel: Attention, device: Accelerator) -> float:
    """Time of the backward over the forward's, as training kernels of the nearest devices have it."""
    sizes = _training_sizes(kernel)
    stages = [_ask("attention_causal", ("bf16", stage, 1), sizes, device)[1] for stage in ("backward", "forward")]
    return stages[0].seconds / stages[1].seconds


def _training_sizes(kernel: Attention) -> dict[str, float]:
    """Columns of the training kernels' tables."""
    return {
        "heads": kernel.heads,
        "kv_heads": kernel.key_heads,
        "qk_head_dim": kernel.head_dim,
        "v_head_dim": kernel.values,
        "batch": kernel.batch,
        "seq": kernel.keys,
    }


# How a pass is measured: operation, words and what one element of the result reads and writes.
_PASSES: dict[Touch, tuple[str, tuple[Word, ...], float]] = {
    Touch.ELEMENTWISE: ("memory", ("fp16", "add", None), 3.0),
    Touch.COPY: ("memory", ("fp16", "add", None), 3.0),
    Touch.NORM: ("memory", ("fp16", "norm", None), 2.0),
    Touch.ACTIVATION: ("memory", ("fp16", "activation", 1), 3.0),
    Touch.ROTARY: ("memory", ("fp16", "rotary", None), 2.0),
    Touch.EMBEDDING: ("memory", ("fp16", "embedding", None), 2.0),
    Touch.SOFTMAX: ("memory_fp32", ("fp32", "softmax"), 2.0),
    Touch.QUANTISE: ("quantize_scale_matrix", ("fp8",), 1.5),
}
_WIDTH = 4096  # columns of a pass whose bytes alone are known


def _memory(kernel: MemoryPass, device: Accelerator, dtype: str, sustained: bool) -> Duration:
    operation, words, traffic = _PASSES[kernel.operation]
    size = ELEMENT_BYTES[parametric.plain_type(str(words[0]))]
    elements = kernel.bytes / (traffic * (2.0 if operation.startswith("quantize") else size))
    width = min(float(_WIDTH), max(elements, 1.0))
    spec = OPERATIONS[operation]
    sizes = dict.fromkeys(spec.sizes, width) | {spec.swept: max(1.0, elements / width)}
    return _ask(operation, words, sizes, device)[1]


def _ratio(question: Question, sizes: Mapping[str, float]) -> float:
    """Parametric time of other sizes over that of the question's."""
    columns: Columns = {name: np.array([value], float) for name, value in sizes.items()}
    there = (question.operation, columns, question.device.accelerator, question.dtype)
    here = (question.operation, question.sizes, question.device.accelerator, question.dtype)
    return float(np.exp(parametric.log_us(*there) - parametric.log_us(*here))[0])


def _times(found: Duration, factor: float, *, exact: bool) -> Duration:
    """A time that measurements give up to a factor; `exact`: the factor is part of what was measured."""
    moved = found.source is Source.MEASURED and not (exact and factor == 1.0)
    source = Source.INTERPOLATED if moved else found.source
    return replace(found, seconds=found.seconds * factor, source=source)


_HOW: dict[type, Callable[[Any, Accelerator, str, bool], Duration]] = {
    Product: _product,
    GroupedProduct: _grouped,
    Attention: _attention,
    MemoryPass: _memory,
}
