"""A naive model of the wafer generator's node level, written from its description alone: totals of every node.

`model` is a Hugging Face configuration, `system` the generator's, `routing` an array [choice][sequence][position] for
each expert layer. Costs are [memory bytes, multiply-accumulates, HBM bytes, network bytes].
"""

from __future__ import annotations

from math import ceil


def split(count, buckets):
    """Contiguous items of each bucket; the first `count % buckets` have one more."""
    items = list(range(count))
    found = []
    for bucket in range(buckets):
        size = count // buckets + (bucket < count % buckets)
        found.append(items[:size])
        items = items[size:]
    return found


class Node:
    """The sums of one node over the layers of a step: `queries` positions of every sequence after `context`."""

    def __init__(self, model, system, bsz, size, rank, prefill, context, queries):
        self.m, self.s, self.y, self.rank, self.bsz = model, system, size, rank, bsz
        self.prefill, self.context, self.q = prefill, context, queries
        self.tp, self.sp, dp = system["tp_attn"], system["sp"], system["dp_attn"]
        self.cluster = self.tp * self.sp
        self.owner = {}  # of each sequence, the node that sends it to experts
        for place, batch in enumerate(split(bsz, dp)):
            for inside, own in enumerate(split(len(batch), self.cluster)):
                self.owner |= {batch[each]: place * self.cluster + inside for each in own}
        self.local = split(bsz, dp)[rank // self.cluster]
        self.rows = len(self.local) * queries
        copies = system["n_redundant_shared_exp"]
        apart = system["num_nodes"] // copies
        self.copy = {each: at * apart for at, served in enumerate(split(bsz, copies)) for each in served}
        self.total = [0, 0, 0, 0]

    def add(self, memory=0, macs=0, net=0):
        for place, value in enumerate((memory, macs, memory, net)):
            self.total[place] += value

    def linear(self, rows, i, j, groups=1):
        self.add(groups * i * j * self.y, groups * rows * i * j)

    def reduced(self, width, members):
        if members > 1:
            self.add(net=self.rows * width * self.y)

    def layer(self, routing):
        hidden = self.m["hidden_size"]
        if "kv_lora_rank" in self.m:
            (self.naive if self.prefill else self.absorbed)(hidden)
        else:
            self.grouped(hidden)
        if routing is None:
            width = ceil(self.m["intermediate_size"] / self.cluster)
            self.gated(self.rows, width)
            self.reduced(hidden, self.cluster)
        else:
            self.mixture(routing)

    def gated(self, rows, width):
        hidden = self.m["hidden_size"]
        for i, j in ((hidden, width), (hidden, width), (width, hidden)):
            self.linear(rows, i, j)

    def grouped(self, hidden):
        heads, kv = (ceil(self.m[f"num_{name}_heads"] / self.tp) for name in ("attention", "key_value"))
        width = self.m.get("head_dim") or hidden // self.m["num_attention_heads"]
        for out in (heads, kv, kv):
            self.linear(self.rows, hidden, out * width)
        seen = ceil((self.q if self.prefill else self.context) / self.sp)
        batch = len(self.local)
        memory = 0 if self.prefill else 2 * batch * seen * kv * width * self.y
        self.add(memory, 2 * batch * seen * heads * width * self.q)
        self.reduced(heads * width, self.sp)
        self.linear(self.rows, heads * width, hidden)
        self.reduced(hidden, self.tp)

    def _latent(self):
        names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        return (ceil(self.m["num_attention_heads"] / self.tp), *(self.m[name] for name in names))

    def absorbed(self, hidden):
        heads, q_rank, kv_rank, nope, rope, v = self._latent()
        self.linear(self.rows, hidden, kv_rank + rope)
        self.linear(self.rows, hidden, q_rank)
        self.linear(self.rows, q_rank, heads * (nope + rope))
        self.linear(self.rows, nope, kv_rank, heads)
        cached = len(self.local) * ceil(self.context / self.sp)
        self.add(cached * (kv_rank + rope) * self.y, cached * heads * (kv_rank + rope + kv_rank) * self.q)
        self.reduced(heads * kv_rank, self.sp)
        self.linear(self.rows, kv_rank, v, heads)
        self.linear(self.rows, heads * v, hidden)
        self.reduced(hidden, self.tp)

    def naive(self, hidden):
        heads, q_rank, kv_rank, nope, rope, v = self._latent()
        self.linear(self.rows, hidden, kv_rank + rope)
        self.linear(self.rows, kv_rank, heads * (nope + v))
        self.linear(self.rows, hidden, q_rank)
        self.linear(self.rows, q_rank, heads * (nope + rope))
        self.add(0, len(self.local) * ceil(self.q / self.sp) * heads * (nope + rope + v) * self.q)
        self.reduced(heads * v, self.sp)
        self.linear(self.rows, heads * v, hidden)
        self.reduced(hidden, self.tp)

    def mixture(self, routing):
        count, hidden = self.m["n_routed_experts"], self.m["hidden_size"]
        holder = {e: node for node, held in enumerate(split(count, self.s["ep"])) for e in held}
        self.linear(self.rows, hidden, count)
        tokens = [(b, s) for b in range(self.bsz) for s in range(self.q)]
        chosen = {(b, s): [choice[b][s] for choice in routing] for b, s in tokens}
        for expert in range(count):
            served = sum(experts.count(expert) for experts in chosen.values())
            if holder[expert] == self.rank and served:
                self.gated(served, self.m["moe_intermediate_size"])
        served = self.q * sum(node == self.rank for node in self.copy.values())
        if served:
            self.gated(served, self.m["moe_intermediate_size"] * self.m["n_shared_experts"])
        if self.s["num_nodes"] == 1:
            return
        own = [token for token in tokens if self.owner[token[0]] == self.rank]
        # What leaves for the experts, without doubles, and what comes back from each of them.
        wanted = [{holder[e] for e in chosen[token]} | {self.copy[token[0]]} for token in own]
        back = [self.owner[b] for b, s in tokens for node in (*(holder[e] for e in chosen[b, s]), self.copy[b])
                if node == self.rank]  # fmt: skip
        kind = self.s["moe_comm"]
        if kind == "alltoall":
            sent = sum(len(nodes - {self.rank}) for nodes in wanted)
        elif kind == "multicast":
            sent = sum(nodes != {self.rank} for nodes in wanted)
        else:
            sent = len(own)
        returned = len(back) if kind == "allgather" else sum(node != self.rank for node in back)
        shared = len(own) if kind != "allgather" else 0
        self.add(net=(sent + returned + shared) * hidden * self.y)

    def head(self):
        width = ceil(self.m["vocab_size"] / self.cluster)
        self.linear(self.rows, self.m["hidden_size"], width)
        self.reduced(width, self.cluster)


def totals(model, system, job, context, routing, *, prefill):
    """Totals of all nodes in a step; `job` says bsz, bytes of an element, positions of a sequence, layers."""
    found = []
    for rank in range(system["num_nodes"]):
        node = Node(model, system, job["bsz"], job["bytes"], rank, prefill, context, job["queries"])
        for name in job["layers"]:
            if name == "lm_head":
                node.head()
            else:
                node.layer(routing.get(f"{name}_moe"))
        found.append(node.total)
    return found


def footprint(model, system, job, context):
    """Bytes that stay on every node until a context is reached: all its experts, without the head."""
    layers = [name for name in job["layers"] if name != "lm_head"]
    first = model.get("first_k_dense_replace", len(layers))
    routed = {f"{name}_moe": () for name in layers if int(name.removeprefix("decode")) >= first}
    # Nobody chooses an expert, and some copies of the shared one serve no sequence: those come on top.
    found = [each[0] for each in totals(model, system, job | {"layers": layers}, context, routed, prefill=False)]
    if routed:
        expert = 3 * model["hidden_size"] * model["moe_intermediate_size"] * job["bytes"]
        copies = system["n_redundant_shared_exp"]
        held = [len(each) for each in split(model["n_routed_experts"], system["ep"])]
        for idle in range(job["bsz"], copies):
            held[idle * system["num_nodes"] // copies] += model["n_shared_experts"]
        found = [bytes_ + len(routed) * expert * count for bytes_, count in zip(found, held, strict=True)]
    return found
