"""AICB's SimAI training text for Megatron, experts and DeepSeek, with and without computation times (AIOB).

The two ways give different files, not only different times: `_Profiled` drops the backward collectives of tensor
parallelism, `_Unprofiled` writes them whatever the size of the group. Both describe one rank of one pipeline stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simcore.generate.aicb.modules import Block, Module, embedding, head, layer_norm, layers
from simcore.generate.aicb.options import Options, check, refused
from simcore.generate.aicb.rows import NOTHING, TextFile, phase, row
from simcore.generate.aicb.times import Times, module_time, stage_time, training_times
from simcore.workload.model import Layer, Phase

FP8_SHARE = (1 + 4 / 128) / 2
"""Bytes of an fp8 activation with a 4-byte scale per 128, relative to bf16 (DeepSeek-V3, section 3.3)."""


def training_text(options: Options, times: Times | None = None) -> TextFile:
    """Make the file AICB's training generator writes; InputError names the option where AICB stops or crashes.

    `times` stand for those of `comp_filepath`.
    """
    check(options)
    visited = _sequence_parallel(options) if options.enable_sequence_parallel else _whole_blocks(options)
    total = sum(part.elements for part in visited)
    experts = sum(part.elements for part in visited if "moe" in part.name)
    names = [part.name for part in visited]
    if options.aiob_enable:
        if times is None:
            if options.comp_filepath is None:
                hint, expected = (
                    "AICB would profile the kernels on a GPU here",
                    "--comp_filepath FILE, in AICB's format",
                )
                found = "--aiob_enable without it"
                raise refused("comp_filepath", "computation times need a time file", expected, found, hint)
            times = training_times(options.comp_filepath, recompute=options.recompute_activations)
        body = _profiled(options, times, names, total, experts)
    else:
        body = _unprofiled(options, names, total, experts)
    # Loss and optimizer, whatever the sizes of the groups.
    sizes = {f"cross_entropy{i}": 4 * options.seq_length * options.micro_batch for i in (1, 2, 3)}
    sizes |= {f"optimizer{i}": 4 for i in (1, 2, 3, 4)}
    tail = [row(name, phase(0, "ALLREDUCE", size), phase(0), phase(0)) for name, size in sizes.items()]
    return TextFile(_header(options), [*body, *tail])


def _header(options: Options) -> str:
    """First line; `vpp` is the number of layers of a stage, and with sequence parallelism the bytes are a float."""
    handed: float = options.activation_bytes
    if options.enable_sequence_parallel:
        handed /= options.tp
    return (
        f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {options.tp} ep: {options.ep} pp: {options.pp} "
        f"vpp: {options.stage_layers} ga: {options.micro_batches} all_gpus: {options.world_size} "
        f"checkpoints: 0 checkpoint_initiates: 0 pp_comm: {handed if options.pp > 1 else 0}"
    )


def _sequence_parallel(options: Options) -> list[Module | Block]:
    """Every module that AICB visits with sequence parallelism; a norm has parameters but no row.

    Of a layer's two norms one is counted, the final norm never; DeepSeek's shared expert is counted with the experts
    and again as a dense MLP; the head is part of every stage.
    """
    norm = layer_norm(options.hidden_size)
    visited: list[Module | Block] = [embedding(options)]
    for attention, feed_forward in layers(options):
        visited += [*attention.modules, norm]
        visited += [
            replace(module, elements=feed_forward.elements) if module.kind == "experts" else module
            for module in feed_forward.modules
        ]
    return [*visited, head(options)]


def _whole_blocks(options: Options) -> list[Module | Block]:
    """What AICB visits without: embedding and blocks; a shared expert inside an expert block is visited again."""
    visited: list[Module | Block] = [embedding(options)]
    for block in (block for blocks in layers(options) for block in blocks):
        visited.append(block)
        if block.name == "mlp_moelayer" and len(block.modules) > 1:
            visited.append(Block("mlp_layer", block.modules[1:]))
    return visited


def _norm_rows(options: Options, total: int) -> list[Layer]:
    """Without sequence parallelism all parameters, not those of the norms, are reduced over the tensor group."""
    return [row("layernorm", input_grad=phase(1, "ALLREDUCE", 2 * total))] * (not options.enable_sequence_parallel)


def _expert_rows(options: Options, experts: int) -> list[Layer]:
    """Gradients of the experts; written for dense models too, unless the expert group is the data-parallel one."""
    if options.ep == options.dp:
        return []
    return [
        row("moe_grad_norm1", weight_grad=phase(1, "ALLGATHER_DP_EP", 2 * experts)),
        row("moe_grad_norm2", weight_grad=phase(1, "REDUCESCATTER_DP_EP", 4 * experts)),
    ]


def _profiled(options: Options, times: Times, names: list[str], total: int, experts: int) -> Iterator[Layer]:
    """Rows before the tail with computation times."""
    gather, optimizer = (stage_time(times, "grad", way) for way in ("forward", "backward"))
    dense = total - experts
    yield row("grad_gather", weight_grad=phase(1, "ALLGATHER", 2 * dense))
    yield row("grad_param_comm", weight_grad=phase(1, "REDUCESCATTER", 4 * dense))
    yield row("grad_param_compute", input_grad=phase(gather + optimizer))
    yield from _norm_rows(options, total)
    yield row("embedding_grads", input_grad=_if_split(options, "ALLREDUCE", options.activation_bytes))
    yield from _expert_rows(options, experts)
    if not options.micro_batches:
        return
    batch = list(_Profiled(options, times).rows(names, optimizer))
    # AICB's variable for the backward time leaks: every later embedding repeats that of the row before it.
    carried = batch[-1].weight_grad.compute_ns
    later = [replace(batch[0], weight_grad=phase(carried)), *batch[1:]]
    for index in range(options.micro_batches):
        yield from later if index else batch


def _if_split(options: Options, collective: str, size_bytes: int, compute_ns: int = 1) -> Phase:
    """A collective of the tensor group, nothing when the group is one rank."""
    return phase(compute_ns, collective, size_bytes) if options.tp > 1 else phase(compute_ns)


@dataclass(frozen=True, slots=True)
class _Profiled:
    """Rows of a micro-batch with times: a module's time serves its forward, input and weight gradients alike."""

    options: Options
    times: Times

    def rows(self, names: list[str], optimizer_ns: int) -> Iterator[Layer]:
        """Rows of the first micro-batch."""
        made: dict[str, list[Layer]] = {"fused": []}
        for name in names:
            if name not in made:
                made[name] = self._module(name, optimizer_ns)
            yield from made[name]

    def _module(self, name: str, optimizer_ns: int) -> list[Layer]:
        size = self.options.activation_bytes
        if name == "embedding_layer":
            forward = _if_split(self.options, "ALLREDUCE", size, stage_time(self.times, "embedding", ""))
            return [row(name, forward, weight_grad=phase(optimizer_ns))]
        forward_ns, backward_ns = (module_time(self.times, name, way) for way in ("forward", "backward"))
        if not self.options.enable_sequence_parallel:
            forward = _if_split(self.options, "ALLREDUCE", size, forward_ns)
            return [row(name, forward, phase(backward_ns), phase(backward_ns))]
        if name == "mlp_moelayer":
            return _exchange_rows(self.options, phase(forward_ns), phase(backward_ns), gated=True)
        return [self._linear(name, forward_ns, backward_ns)]

    def _linear(self, name: str, forward_ns: int, backward_ns: int) -> Layer:
        """Half a block's time each for its column and its row; recompute doubles attention a second time."""
        size = self.options.activation_bytes
        doubled = forward_ns * 2 if self.options.recompute_activations and "attention" in name else forward_ns
        if "attention_linear" in name:
            return row(name, phase(doubled), phase(backward_ns), phase(backward_ns))
        forward_ns, backward_ns = int(doubled / 2), int(backward_ns / 2)
        # A column's backward reduce-scatter has size 0: meant as hidden behind the computation, which a row cannot say.
        forward, backward = ("ALLGATHER", size), ("REDUCESCATTER", 0)
        if "row" in name:
            forward, backward = ("REDUCESCATTER", size), ("ALLGATHER", size)
        both = _if_split(self.options, *forward, forward_ns), _if_split(self.options, *backward, backward_ns)
        return row(name, *both, phase(backward_ns))


def _exchange_rows(options: Options, forward: Phase, input_grad: Phase, *, gated: bool) -> list[Layer]:
    """Five rows of an expert layer: token counts, dispatch, gather, scatter, combine.

    The experts' time stands on the first, before the tokens arrive. `gated` leaves out collectives of groups of one.
    """
    if not options.moe_enable:
        hint = "AICB crashes here: the size of the expert group was never set"
        expected = "--moe_enable, or --n_dense_layers for a dense model"
        what, found = "a model with expert layers needs this option", "expert layers without it"
        raise refused("moe_enable", what, expected, found, hint)
    split, shared = options.tp > 1 or not gated, options.ep > 1 or not gated
    routed = options.activation_bytes * options.moe_router_topk
    share = routed // options.tp
    dispatched = int(share * FP8_SHARE) if options.frame == "DeepSeek" else share

    def one(forward: tuple[str, int], backward: tuple[str, int], present: bool) -> Layer:
        # Where a group is one rank the unprofiled file would keep the size; the profiled one clears it.
        return row("mlp_moelayer", phase(1, *forward), phase(1, *backward)) if present else row("mlp_moelayer")

    counts = 2 * options.ep * options.num_experts * options.tp
    first = phase(forward.compute_ns, "ALLGATHER", counts) if split or shared else forward
    return [
        row("mlp_moelayer", first, input_grad),
        one(("ALLTOALL_EP", dispatched), ("ALLTOALL_EP", share), shared),
        one(("ALLGATHER", routed), ("REDUCESCATTER", routed), split),
        one(("REDUCESCATTER", routed), ("ALLGATHER", routed), split),
        one(("ALLTOALL_EP", share), ("ALLTOALL_EP", share), shared),
    ]


def _unprofiled(options: Options, names: list[str], total: int, experts: int) -> Iterator[Layer]:
    """Rows before the tail without times; the experts' parameters are part of `grad_norm` and come again after it."""
    yield row("grad_norm", phase(1, "ALLGATHER", 2 * total), NOTHING, phase(1, "REDUCESCATTER", 4 * total))
    yield from _norm_rows(options, total)
    yield from _expert_rows(options, experts)
    if not options.micro_batches:
        return
    made = {name: _unprofiled_module(options, name) for name in dict.fromkeys(names)}
    words = phase(1, "ALLREDUCE", 2 * options.vocab_size * options.hidden_size)
    batch = [layer for name in names for layer in made[name]] + [row("embedding_norm", words)]
    for _ in range(options.micro_batches):
        yield from batch


def _unprofiled_module(options: Options, name: str) -> list[Layer]:
    """Rows of a module without times, whatever the size of the tensor group; recompute doubles forward bytes."""
    size = options.activation_bytes
    doubled = size * 2 if options.recompute_activations and "attention" in name else size
    if not options.enable_sequence_parallel:
        return [row(name, phase(1, "ALLREDUCE", doubled), phase(1, "ALLREDUCE", size))]
    if "attention_linear" in name:
        hint = "AICB crashes here: it asks an absent time table for the low-rank projections"
        expected = "--aiob_enable --comp_filepath FILE"
        what = "DeepSeek with sequence parallelism needs computation times"
        raise refused("aiob_enable", what, expected, "neither", hint)
    if name == "mlp_moelayer":
        return _exchange_rows(options, NOTHING, NOTHING, gated=False)
    rows = {
        "embedding": [row(name, phase(1, "NONE", size), phase(1, "NONE", size))],
        "column": [row(name, phase(1, "ALLGATHER", doubled), NOTHING)],
        "row": [row(name, phase(1, "REDUCESCATTER", doubled), phase(1, "NONE", size))],
    }
    return next((made for part, made in rows.items() if part in name), [])
