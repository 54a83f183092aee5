"""A naive model of AICB 2.1's text files of training, written from its description; `lines` gives a whole file."""

from __future__ import annotations

from tests.oracles.packets import RefusalError

DEFAULTS = {
    "world_size": 1, "tensor_model_parallel_size": 1, "pipeline_model_parallel": 1, "expert_model_parallel_size": 1,
    "global_batch": 4, "micro_batch": 1, "num_layers": 24, "hidden_size": 1024, "seq_length": 2048, "vocab_size": 32000,
    "make_vocab_size_divisible_by": 128, "num_experts": 1, "moe_router_topk": 1, "n_dense_layers": 3,
    "n_shared_expert": 2, "qk_rope_dim": 64, "qk_nope_dim": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "v_head_dim": 128,
}  # fmt: skip
SWITCHES = ("swiglu", "enable_sequence_parallel", "add_bias_linear", "moe_enable", "aiob_enable",
            "recompute_activations")  # fmt: skip
MLA = ("attention_linear_q_lora", "attention_q_column", "attention_linear_kv_lora", "attention_kv_column",
       "attention_o_row")  # fmt: skip
NOTHING = ("NONE", 0)


class File:
    """The rows of one file; `sections` are the times of the description file in microseconds, minimum and average."""

    def __init__(self, parameters, sections):
        given = DEFAULTS | dict.fromkeys(SWITCHES, False) | parameters
        self.__dict__.update(given)
        self.tp, self.pp, self.ep = (given[name] for name in (
            "tensor_model_parallel_size", "pipeline_model_parallel", "expert_model_parallel_size"))  # fmt: skip
        self.sp = self.enable_sequence_parallel
        self.latent = given.get("frame") == "DeepSeek"
        if self.world_size % (self.tp * self.pp) or (self.moe_enable and not self.sp):
            raise RefusalError("asserted")
        self.dp = self.world_size // (self.tp * self.pp)
        self.ga = self.global_batch // (self.micro_batch * self.dp)
        self.layers = self.num_layers // self.pp
        self.heads = given.get("num_attention_heads") or self.num_layers
        wide = 64 * int(8 * self.hidden_size / 3 / 64) if self.swiglu else 4 * self.hidden_size
        self.ffn = given.get("ffn_hidden_size") or wide
        self.act = 2 * self.micro_batch * self.seq_length * self.hidden_size
        if self.latent and self.ga and self.layers:
            if self.sp and not self.aiob_enable:
                raise RefusalError("no times")
            if self.sp and not self.moe_enable and self.layers > self.n_dense_layers:
                raise RefusalError("no size of the group of experts")
        self.rows, self._times = [], self._read(sections)

    def _read(self, sections):
        """Whole nanoseconds; blocks are sums of sections whose names say what they are part of."""
        ns = {name: average * 1000 for name, (_, average) in sections.items() if name != "param_time"}
        flash = {name: 2 for name in ns if self.recompute_activations and "atten" in name and "flash" in name}
        attention = sum(
            time * flash.get(name, 1) for name, time in ns.items() if "atten" in name or name == "layernorm"
        )
        mlp = sum(time for name, time in ns.items() if "atten" not in name and ("mlp" in name or name == "layernorm2"))
        gradients = [round(time * 1000) for time in sections.get("param_time", (0, 0))]
        found = {"attention": round(attention), "mlp": round(mlp), "embedding": round(ns.get("Emb", 1))}
        return found | {"gradients": gradients} | {name: round(ns.get(name, 0)) for name in MLA}

    def add(self, name, forward=NOTHING, inner=NOTHING, outer=NOTHING, ns=(1, 1, 1)):
        if self.aiob_enable:
            forward, inner = (("NONE", 0) if kind == "NONE" else (kind, size) for kind, size in (forward, inner))
        self.rows.append((name, -1, ns[0], *forward, ns[1], *inner, ns[2], *outer, 100))

    def parameters(self):
        """Elements of one rank's stage, and those of its experts."""
        h, tp, f, latent = self.hidden_size, self.tp, self.ffn, self.latent
        q = h // self.heads * self.heads
        padding = self.make_vocab_size_divisible_by * tp
        padded = -(-self.vocab_size // padding) * padding
        total, experts = 4 * (padded // tp) * h + self.seq_length * h, 0
        biases = self.add_bias_linear
        for layer in range(self.layers):
            if latent:
                total += self._latent()
            else:
                total += h * (3 * q // tp) + h * (q // tp) + biases * (3 * q // tp + h)
            if self.sp:
                total += 2 * h
            dense = 2 * h * (f // tp) + biases * (f // tp + h)
            if self.moe_enable and (not latent or layer >= self.n_dense_layers):
                own = 2 * h * f * (self.num_experts // self.ep) // tp
                if latent:
                    shared = dense if self.n_shared_expert else 0
                    own, total = 3 * h * f * (self.num_experts // self.ep) // tp + shared, total + shared
                total, experts = total + own, experts + own
            else:
                total += dense
        if self.sp:
            total += h * (padded // tp) + biases * (padded // tp)
        return total, experts

    def _latent(self):
        h, tp, heads = self.hidden_size, self.tp, self.heads
        queries, keys = self.q_lora_rank, self.kv_lora_rank
        up = queries * heads * (self.qk_nope_dim + self.qk_rope_dim) // tp
        wide = keys * heads * (self.qk_nope_dim + self.v_head_dim) // tp
        down = h * queries + 2 * queries + h * (keys + self.qk_rope_dim) + 2 * keys
        bias = queries + keys + self.qk_rope_dim + up // (queries or 1) + wide // (keys or 1) + h
        return down + up + wide + heads * self.v_head_dim * h // tp + self.add_bias_linear * bias

    def prologue(self):
        total, experts = self.parameters()
        if self.aiob_enable:
            self.add("grad_gather", outer=("ALLGATHER", 2 * (total - experts)))
            self.add("grad_param_comm", outer=("REDUCESCATTER", 4 * (total - experts)))
            self.add("grad_param_compute", ns=(1, sum(self._times["gradients"]), 1))
        else:
            self.add("grad_norm", forward=("ALLGATHER", 2 * total), outer=("REDUCESCATTER", 4 * total))
        if not self.sp:
            self.add("layernorm", inner=("ALLREDUCE", 2 * total))
        if self.aiob_enable:
            self.add("embedding_grads", inner=("ALLREDUCE", self.act) if self.tp > 1 else NOTHING)
        if self.ep != self.dp:
            self.add("moe_grad_norm1", outer=("ALLGATHER_DP_EP", 2 * experts))
            self.add("moe_grad_norm2", outer=("REDUCESCATTER_DP_EP", 4 * experts))

    def lines(self):
        self.prologue()
        carry = self._times["gradients"][1]
        for _ in range(self.ga):
            carry = self.measured(carry) if self.aiob_enable else self.plain()
        for number in (1, 2, 3):
            self.add(f"cross_entropy{number}", ("ALLREDUCE", 4 * self.seq_length * self.micro_batch), ns=(0, 0, 0))
        for number in (1, 2, 3, 4):
            self.add(f"optimizer{number}", ("ALLREDUCE", 4), ns=(0, 0, 0))
        between = 0 if self.pp == 1 else self.act
        if self.pp > 1 and self.sp:
            between = self.act / self.tp
        header = (f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {self.tp} ep: {self.ep} pp: {self.pp} "
                  f"vpp: {self.layers} ga: {self.ga} all_gpus: {self.world_size} checkpoints: 0 "
                  f"checkpoint_initiates: 0 pp_comm: {between}")  # fmt: skip
        return [header, str(len(self.rows)), *("\t".join(map(str, row)) for row in self.rows)]

    def measured(self, carry):
        """A micro-batch with times; the weight-gradient time that the next one's embedding takes over."""
        split, act = self.tp > 1, self.act
        reduce = ("ALLREDUCE", act) if split else NOTHING
        gather, scatter, late = (
            (kind, size) if split else NOTHING
            for kind, size in (("ALLGATHER", act), ("REDUCESCATTER", act), ("REDUCESCATTER", 0)))  # fmt: skip
        again = 2 if self.recompute_activations and self.sp else 1
        times, half = self._times, {name: int(self._times[name] / 2) for name in ("attention", "mlp")}
        self.add("embedding_layer", reduce, ns=(times["embedding"], 1, carry))
        for layer in range(self.layers):
            if self.latent and not self.sp:
                self.add("attention_layer_mla", reduce, ns=(times["attention"],) * 3)
            elif self.latent:
                for name in MLA:
                    ends = {"column": (gather, late), "row": (scatter, gather)}
                    part = 1 if "linear" in name else 2
                    self.add(
                        name,
                        *ends.get(name.rsplit("_", 1)[1], ()),
                        ns=[int(times[name] * more / part) for more in (again, 1, 1)],
                    )
            elif self.sp:
                ns = [int(times["attention"] * more / 2) for more in (again, 1, 1)]
                self.add("attention_column", gather, late, ns=ns)
                self.add("attention_row", scatter, gather, ns=ns)
            else:
                self.add("attention_layer", reduce, ns=(times["attention"],) * 3)
            if self.moe_enable and (not self.latent or layer >= self.n_dense_layers):
                self.experts(split, self.ep > 1, times["mlp"])
                if not (self.latent and self.n_shared_expert):
                    continue
            if self.sp:
                self.add("mlp_column", gather, late, ns=(half["mlp"],) * 3)
                self.add("mlp_row", scatter, gather, ns=(half["mlp"],) * 3)
            else:
                self.add("mlp_layer", reduce, ns=(times["mlp"],) * 3)
        if self.sp:
            self.add("final_column", gather, late, ns=(half["attention"],) * 3)
            return half["attention"]
        return times["mlp"] if self.layers else carry

    def experts(self, split, spread, ns=1):
        """The five rows of experts."""
        name, routed = "mlp_moelayer", self.act * self.moe_router_topk
        away = routed // self.tp
        sent = int(away * (1 + 4 / 128) / 2) if self.latent else away
        counts = ("ALLGATHER", 2 * self.ep * self.num_experts * self.tp) if split or spread else NOTHING
        whole, part = (("ALLGATHER", routed), ("REDUCESCATTER", routed)) if split else (NOTHING, NOTHING)
        dispatch, back = (("ALLTOALL_EP", size) if spread else NOTHING for size in (sent, away))
        self.add(name, counts, ns=(ns, ns, 1))
        self.add(name, dispatch, back)
        self.add(name, whole, part)
        self.add(name, part, whole)
        self.add(name, back, back)

    def plain(self):
        """A micro-batch without times."""
        act = self.act
        twice = 2 if self.recompute_activations else 1
        reduce, none = ("ALLREDUCE", act), ("NONE", act)
        gather, scatter = ("ALLGATHER", act), ("REDUCESCATTER", act)
        again = [(kind, twice * size) for kind, size in (reduce, gather, scatter)]
        self.add("embedding_layer", *((none, none) if self.sp else (reduce, reduce)))
        for _ in range(self.layers):
            if self.sp:
                self.add("attention_column", again[1], NOTHING)
                self.add("attention_row", again[2], none)
            else:
                self.add("attention_layer_mla" if self.latent else "attention_layer", again[0], reduce)
            if self.moe_enable:
                self.experts(split=True, spread=True)
            elif self.sp:
                self.add("mlp_column", gather, NOTHING)
                self.add("mlp_row", scatter, none)
            else:
                self.add("mlp_layer", reduce, reduce)
        if self.sp:
            self.add("final_column", gather)
        self.add("embedding_norm", ("ALLREDUCE", 2 * self.vocab_size * self.hidden_size))
