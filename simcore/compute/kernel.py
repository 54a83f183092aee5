"""One kernel as the device sees it: what it is, its sizes, its arithmetic and the bytes that it must move.

A multiply-add is two FLOPs. Bytes are what has to be read and written once in device memory, for elements of
`element_bytes`. Sizes are those of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

RESULT_BYTES = 2.0  # of an element of a product's result


class Gradient(Enum):
    """Which of a linear layer's three products it is; its operands lie in memory accordingly (TN, NN, NT)."""

    NONE = "forward"
    INPUT = "input gradient"
    WEIGHT = "weight gradient"


class Source(Enum):
    """Where a time comes from, best first."""

    MEASURED = "measured"  # this very shape on this device
    INTERPOLATED = "interpolated"  # between measured shapes of this device
    TRANSFERRED = "transferred"  # from another device's measurements
    ROOFLINE = "roofline"  # from stated rates


class Touch(StrEnum):
    """How a pass over memory walks through it; rates differ."""

    ELEMENTWISE = "elementwise"
    NORM = "norm"
    SOFTMAX = "softmax"
    ACTIVATION = "activation"
    ROTARY = "rotary"
    EMBEDDING = "embedding"
    QUANTISE = "quantise"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Product:
    """`batch` products [m, k] by [k, n]: the sizes of this very product, whichever gradient it is.

    Of a layer of `tokens` from `k` to `n` features the forward is (tokens, n, k), the input gradient (tokens, k, n)
    and the weight gradient (n, k, tokens). `row`: elements after which the next row begins in memory, where it is
    not `k` (heads side by side).
    """

    m: int
    n: int
    k: int
    batch: int = 1
    gradient: Gradient = Gradient.NONE
    row: int = 0

    @property
    def flops(self) -> float:
        """Two for every multiply-add."""
        return 2.0 * self.batch * self.m * self.n * self.k

    def moved_bytes(self, element_bytes: float) -> float:
        """Both operands once, the result once."""
        return self.batch * (element_bytes * self.k * (self.m + self.n) + RESULT_BYTES * self.m * self.n)


@dataclass(frozen=True, slots=True)
class GroupedProduct:
    """`experts` products side by side, of `tokens` rows in all: [tokens / experts, k] by [k, n] each.

    In a weight gradient `tokens` is what is summed over: [n, tokens / experts] by [tokens / experts, k].
    """

    experts: int
    tokens: int
    n: int
    k: int
    gradient: Gradient = Gradient.NONE

    @property
    def flops(self) -> float:
        """Two for every multiply-add."""
        return 2.0 * self.tokens * self.n * self.k

    def moved_bytes(self, element_bytes: float) -> float:
        """Every expert's weights once, rows in and out once."""
        weights, rows = self.experts * self.n * self.k, self.tokens
        if self.gradient is Gradient.WEIGHT:
            return element_bytes * rows * (self.n + self.k) + RESULT_BYTES * weights
        return element_bytes * (weights + rows * self.k) + RESULT_BYTES * rows * self.n


@dataclass(frozen=True, slots=True)
class Attention:
    """Fused attention: `heads` of `queries` each over `keys` tokens, `key_heads` of them with keys and values.

    Causal: the queries are the last of the keys. `window` 0 = all. `value_dim` 0 = as `head_dim`.
    """

    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    head_dim: int
    value_dim: int = 0
    causal: bool = True
    window: int = 0
    backward: bool = False

    @property
    def values(self) -> int:
        """Width of one head's values."""
        return self.value_dim or self.head_dim

    @property
    def pairs(self) -> float:
        """Queries times the keys each looks at, of one head: masked ones are skipped."""
        before = self.keys - self.queries if self.causal else self.keys
        window = min(self.window or self.keys, self.keys)
        if not self.causal:
            return float(self.queries * window)
        growing = max(0.0, min(self.queries, window - before))  # queries that see all before them
        return growing * (before + growing / 2) + (self.queries - growing) * window

    @property
    def flops(self) -> float:
        """Two products of pairs; the backward makes five (scores again, four gradients)."""
        forward = 2.0 * self.batch * self.heads * self.pairs * (self.head_dim + self.values)
        return 2.5 * forward if self.backward else forward

    def moved_bytes(self, element_bytes: float) -> float:
        """Queries, keys, values and the result; the backward also their gradients."""
        reached = min(self.keys, self.queries + self.window) if self.window else self.keys
        queries, keys = self.heads * self.queries, self.key_heads * reached
        once = element_bytes * self.batch * (queries + keys) * (self.head_dim + self.values)
        return 2 * once if self.backward else once


@dataclass(frozen=True, slots=True)
class LatentAttention(Attention):
    """Attention over a cache of low-rank vectors; values are a part of them and are read with them (DeepSeek's MLA)."""

    def moved_bytes(self, element_bytes: float) -> float:
        """Queries and results of every head, the cache once."""
        rows = self.heads * (self.head_dim + self.values) + self.keys * self.head_dim
        return element_bytes * self.batch * rows


@dataclass(frozen=True, slots=True)
class MemoryPass:
    """A kernel that only moves `bytes` (all reads and writes), walking through memory as `operation` says."""

    bytes: float
    operation: Touch = Touch.ELEMENTWISE

    @property
    def flops(self) -> float:
        """None that matters."""
        return 0.0

    def moved_bytes(self, element_bytes: float) -> float:
        """As stated."""
        return self.bytes


Kernel = Product | GroupedProduct | Attention | MemoryPass


@dataclass(frozen=True, slots=True)
class Duration:
    """How long a kernel takes and how well that is known.

    `distance`: octaves (log2 of sizes) to the nearest measured shape, 0 = this one; infinite without any. `spread`:
    the share by which 10 to 90 % of answers like this one miss. `table`: the measurements it rests on, "" = none.
    """

    seconds: float
    source: Source
    distance: float
    spread: float
    table: str = ""

    def lasting(self, seconds: float) -> Duration:
        """The same of another length."""
        return Duration(seconds, self.source, self.distance, self.spread, self.table)
