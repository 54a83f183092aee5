"""Naive models of training-run-cost's two scripts, written from their description alone; `args` has its options.

`transformer` carries pieces of data along: which sizes they have, which axes their sizes lie on, on which they are
scattered. They are on all other axes as copies.
"""

from __future__ import annotations

from collections import Counter
from math import ceil, prod

from tests.oracles.packets import RefusalError

GRID = ("p_data", "p_pipe", "p_exp", "p_seq", "p_tensor_int", "p_tensor_ext")
CHIPS = {
    "H100": (1979e12, 3.35e12, 900e9),
    "A100_40GB": (624e12, 1555e9, 600e9),
    "H100_x64_pod": (64 * 1979e12, 64 * 3.35e12, 1e9),
    "RTX4090": (165.16e12, 1008e9, 10e9),
}


def whole(number, divisor):
    """A division that must leave nothing."""
    if number % divisor:
        raise RefusalError(f"{number} / {divisor}")
    return number // divisor


class Piece:
    """Data of some dimensions, a name each."""

    def __init__(self, run, names, scattered=()):
        self.run, self.names, self.scattered = run, frozenset(names), frozenset(scattered)
        local = prod(whole(*run.dims[name]) for name in self.names)
        whole(local, prod(run.degree[axis] for axis in self.scattered))

    @property
    def size(self):
        return prod(self.run.dims[name][0] for name in self.names)

    @property
    def copies(self):
        axes = {self.run.axis[name] for name in self.names} | self.scattered
        return prod(degree for axis, degree in self.run.degree.items() if axis not in axes)

    def times(self, other):
        made = Piece(self.run, self.names | other.names)
        self.run.count(flop_fwd=made.size * made.copies, flop_bwd=4 * made.size * made.copies)
        return made

    def reduced(self, name, becomes=("", "")):
        """The sum over a dimension, spread over its axis; one that is left may take that over under another name."""
        left = self.names - {name}
        size, degree = self.run.dims[name]
        rest = self.copies * prod(self.run.dims[each][0] for each in left)
        self.run.count(flop_fwd=rest * (size - 1), tx_fwd=rest * (degree - 1), rx_fwd=rest * (degree - 1),
                       tx_bwd=rest * (degree > 1), rx_bwd=rest * (degree - 1))  # fmt: skip
        names = {becomes[1] if each == becomes[0] else each for each in left}
        axes = {self.run.axis[each] for each in self.names} | self.scattered
        return Piece(self.run, names, axes - {self.run.axis[each] for each in names} - {None})

    def spread(self, crossing=0.0):
        degree = prod(self.run.degree[axis] for axis in self.scattered)
        moved = self.size * self.copies * (degree + crossing - 1)
        self.run.count(tx_fwd=self.size * max(degree > 1, crossing), rx_fwd=moved,
                       flop_bwd=moved, tx_bwd=moved, rx_bwd=moved)  # fmt: skip
        return Piece(self.run, self.names)

    def dot(self, other, *names):
        made = self.times(other)
        for name in names:
            made = made.reduced(name).spread()
        return made


class Run:
    """Counters of a whole run; `weight` is how often what is counted happens."""

    def __init__(self, a):
        self.degree = {axis: a[axis] for axis in GRID}
        e, d, c, layers, b = a["num_experts"], a["d_model"], a["d_head"], a["num_layers"], a["batch_size"]
        tokens = whole(a["seq_len"], e)
        f = a["d_ffn"] if "d_ffn" in a else a.get("d_ffn_ratio", 4) * d
        h = a["num_heads"] if "num_heads" in a else whole(d * a.get("total_attn_width_ratio", 1), c)
        places = {
            "sample": (a["p_data"], "p_data"), "layer": (a["p_pipe"], "p_pipe"), "expert": (e, "p_exp"),
            "token": (tokens, "p_seq"), "written expert": (e, None), "written token": (tokens, "p_tensor_ext"),
            "d": (d, "p_tensor_ext"), "f": (f, "p_tensor_int"), "h": (h, "p_tensor_int"), "c": (c, None),
            "h + f": (h + f, "p_tensor_int"),
        }  # fmt: skip
        self.dims = {name: (size, self.degree.get(axis, 1)) for name, (size, axis) in places.items()}
        self.axis = {name: axis for name, (_, axis) in places.items()}
        for size, degree in self.dims.values():
            whole(size, degree)
        whole(b, a["p_data"])
        self.batches = round(a["dataset_size"] / (b * a["seq_len"]))
        self.sizes = None if a.get("skip_efficiency_check") else self._efficient(a, b, tokens, f, h * c)
        self.counts, stage = Counter(), whole(layers, a["p_pipe"])
        if not self.batches:
            raise RefusalError("nothing over nothing")
        crossing = 1 - (1 - (a["p_pipe"] - 1) / layers) / a["p_exp"]
        self.weight = self.batches * stage
        self._weights(a, stage)
        self.weight *= b / a["p_data"]
        self._tokens(a, crossing)

    def _efficient(self, a, b, tokens, f, width):
        most = b // (4 * a["p_pipe"]) if a["p_pipe"] > 1 else b
        step = a["p_data"]
        least = ceil(1024 / (tokens / (step * a["p_seq"])) / step) * step
        found = [size for size in range(least, most + 1, step) if b % size == 0]
        bubble = a["p_pipe"] > 1 and b // step < 4 * a["p_pipe"]
        narrow = a["p_tensor_int"] > min(f, width) / 1024 or a["p_tensor_ext"] > a["d_model"] / 1024
        if b * tokens > 4096 * 2048 or bubble or not found or narrow:
            raise RefusalError("wasteful")
        return found

    def count(self, **metrics):
        for name, value in metrics.items():
            self.counts[name] += self.weight * value

    def _weights(self, a, stage):
        spread = ("p_data", "p_seq")
        query = key = ("layer", "expert", "d", "h", "c"), spread
        wide = ("layer", "expert", "d", "f"), spread
        if not a.get("no_multi_query_attn"):
            key = ("layer", "expert", "d", "c"), (*spread, "p_tensor_int")
        pieces = [Piece(self, *each) for each in [query, key, wide] * 2 + [wide] * bool(a.get("use_glu"))]
        self.parameters = stage * sum(piece.size for piece in pieces)
        self.query, self.key, self.up, *_ = [piece.spread() for piece in pieces]

    def _tokens(self, a, crossing):
        x = Piece(self, ("sample", "layer", "expert", "token", "d"))
        q = self.query.dot(x, "d")
        for _ in range(2):
            part = self.key.times(x).reduced("d", ("token", "written token"))
            names = part.names - {"expert"} | {"written expert"}
            k = Piece(self, names, part.scattered | {"p_exp"}).spread()
        scores = q.dot(k, "c")
        summed = scores.reduced("written expert").reduced("written token").spread()
        weighted = scores.times(summed).times(k).reduced("written expert").spread()
        attended = weighted.reduced("written token").spread()
        out = self.query.dot(attended, "c")
        if a.get("consecutive_attn_and_ffn"):
            out.reduced("h").spread()
        for _ in range(1 + bool(a.get("use_glu"))):
            hidden = self.up.dot(x, "d")
        if a.get("use_glu"):
            hidden = hidden.times(hidden)
        down = self.up.times(hidden)
        last = "f" if a.get("consecutive_attn_and_ffn") else "h + f"
        Piece(self, down.names - {"f"} | {last}).reduced(last).spread(crossing)


def transformer(a):
    """What transformer.py prints."""
    run = Run(a)
    found = {"N": run.parameters, "D": run.batches * a["batch_size"] * a["seq_len"], "n_batches": run.batches}
    for metric in ("flop", "tx", "rx"):
        forward, backward = (run.counts[f"{metric}_{way}"] for way in ("fwd", "bwd"))
        backward += forward if a.get("activation_checkpointing") else 0
        found[metric] = {"fwd": forward, "bwd": backward, "total": forward + backward}
    return found, run.sizes


def simple(a, variant):
    """What simple_transformer.py prints, as its readme shows or at its head."""
    later = variant == "head"
    flops, memory, net = CHIPS[a.get("chip_type", "H100")]
    net = a.get("network_bandwidth", 125e8 if a.get("chip_type") == "H100_x64_pod" and not later else net)
    used = a.get("base_utilization", 0.6) if later else 1
    e, k, m, length, b = (
        a[key] for key in ("n_experts", "n_routed_experts", "microbatch_size", "seq_len", "batch_size")
    )
    pp, stages, dp, tp, tp2 = (a[key] for key in ("pp", "pipeline_interleaving", "dp", "tp", "tp2"))
    d, layers, byte = a["d_model"], a["n_layers"], a["precision_bits"] / 8
    inner, chips = a["d_internal_ratio"] * d, pp * dp * tp * tp2 * e
    whole(e, k), whole(m * length, dp)
    if pp == 1 and stages > 1:
        raise RefusalError("one stage cannot be interleaved")
    x, y, z = whole(inner, tp), whole(d, tp2), whole(m * length * k, dp * e)
    matmul = max(2 * x * y * z / (used * flops) * byte, (x * y + y * z + x * z) / (used * memory))

    def moved(elements, over):
        return 2 * (elements / over * byte) / net

    interval = whole(layers, pp * stages)
    inside = 2 * moved(m * length * inner * k, dp * tp * e) if tp2 > 1 else 0
    outside = 2 * moved(m * length * d, dp * tp2 * e // k) if k * tp > 1 else 0
    stage, always = moved(m * length * d, dp * tp * tp2 * e), k * tp == 1 and e > 1
    bubble = 0
    for layer in range((pp - 1) * interval):
        bubble += 6 * matmul + inside + outside
        if layer % interval == interval - 1:
            bubble += stage if later else 2 * stage
        elif always:
            bubble += 2 * (e - 1) / e * stage
    steps = layers // pp * whole(b, m)
    full = steps * 6 * matmul
    if later:
        full = max(full, steps * (inside + outside + (1 if always else 1 / interval) * 2 * stage))
    weights = e * layers * 2 * d * inner
    batch = bubble + full + (moved(weights, chips // dp) if dp > 1 else 0)
    batches = int(a.get("dataset_size", 20 * weights) // (b * length))
    if not batches:
        raise RefusalError("no batch, which the original takes for a run of no time")
    flop = 6 * (weights // e * k) * b * length
    return {
        "P": weights, "D": batches * b * length, "n_batches": batches, "p": chips, "matmul_time": matmul,
        "pipeline_bubble_time": bubble, "pipeline_full_time": full, "batch_time": batch,
        "util": flop / (chips * flops / byte * batch), "run_time_days": batch * batches / 86400,
    }  # fmt: skip
