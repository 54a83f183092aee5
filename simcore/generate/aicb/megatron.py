"""AICB's operation list of a Megatron or DeepSeek step, as the first pipeline stage runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from simcore.generate.aicb.modules import Module, embedding, head, layers, total_elements
from simcore.generate.aicb.operations import EPOCH_END, Operation, compute
from simcore.generate.aicb.options import Options, check, refused
from simcore.generate.aicb.training import FP8_SHARE

_CALLED = {"column": "MegatronColumnLinear", "row": "MegatronRowLinear", "linear": "Linear"}  # norms are nothing


def megatron_operations(options: Options) -> list[Operation]:
    """Operations of set-up and of `epoch_num` steps; InputError names the option where AICB stops or crashes."""
    check(options)
    if options.pp > 1 and not options.workload_only:
        hint = "AICB would ask the running process group for its rank here"
        found, message = f"{options.pp} pipeline stages without it", "an operation list of a pipeline needs this option"
        raise refused("workload_only", message, "--workload_only", found, hint)
    stage = _Stage(options)
    step = [*(_pipelined(options, stage) if options.pp > 1 else _unpipelined(options, stage))]
    step += [*_optimizer(options)] * (2 if options.pp > 1 else 1)  # a pipeline's optimizer step is emitted twice
    return [*_set_up(options), EPOCH_END, *([*step, EPOCH_END] * options.epoch_num)]


def _set_up(options: Options) -> Iterator[Operation]:
    where = "init.model_setup"
    replicas = Operation("all_reduce", "dp_group", options.dp, 8, where)
    yield replicas
    for _ in range(3):
        yield replicas
        if options.pp > 1:
            yield Operation("all_reduce", "pp_group", options.pp, 8, where)
    yield Operation("all_gather", "dp_group", options.dp, 32, where)
    yield Operation("broadcast", "tp_group", options.tp, 24, where, src=0)
    if options.pp_rank == options.pp - 1 and options.pp > 1:
        positions = options.seq_length * options.hidden_size
        for elements in (embedding(options).elements - positions, positions):
            yield Operation("all_reduce", "tp_group", options.tp, 2 * elements, where)
    yield Operation("all_gather", "dp_group", options.dp, 64, where)


def _inputs(options: Options) -> list[Operation]:
    """What the first tensor rank tells the others before a micro-batch."""
    tokens = 8 * (options.world_size + options.seq_length * options.micro_batch)
    return [Operation("broadcast", "tp_group", options.tp, size, "forward_step", src=0) for size in (40, tokens)]


def _unpipelined(options: Options, stage: _Stage) -> list[Operation]:
    loss = "forward_step._VocabParallelCrossEntropy"
    mean = "forward_step.average_losses_across_data_parallel_group"
    batch = [
        *(_inputs(options) if options.tp > 1 else []),
        *stage.forward(),
        *[Operation("all_reduce", "tp_group", options.tp, 4 * options.micro_batch * options.seq_length, loss)] * 3,
        Operation("all_reduce", "dp_group", options.dp, 4, mean),
        *stage.backward(),
    ]
    return batch * options.micro_batches


def _pipelined(options: Options, stage: _Stage) -> list[Operation]:
    """1F1B of stage 0; no loss, and the transfers ignore sequence parallelism."""
    warm_up = min(options.pp - 1, options.micro_batches)

    ways = ("isend", "forward", "send"), ("irecv", "forward", "recv"), ("irecv", "backward", "recv")
    send, receive, drained = (
        Operation(kind, "pp_group", 1, options.activation_bytes, f"{pass_}_step", additional=f"{what}_next")
        for kind, pass_, what in ways
    )
    forward, backward = [*_inputs(options), *stage.forward()], stage.backward()
    steady = [*forward, receive, send, *backward] * (options.micro_batches - warm_up)
    return [*([*forward, send] * warm_up), *steady, *([drained, *backward] * warm_up)]


def _optimizer(options: Options) -> Iterator[Operation]:
    """Gradients and parameters; a stage's parameters are divided by the number of stages once more."""
    elements, replicas = total_elements(options), options.dp
    if options.use_distributed_optimizer:
        yield Operation("reduce_scatter", "dp_group", replicas, 4 * elements // options.pp, "step")
        yield Operation("all_gather", "dp_group", replicas, 2 * elements // options.pp, "step")
    else:
        yield Operation("all_reduce", "dp_group", replicas, 4 * elements // options.pp, "step.finish_grad_sync")
    # The parameters of the norms are never marked, so there are none to reduce.
    yield Operation("all_reduce", "tp_group", options.tp, 0, "step._allreduce_layernorm_grads")
    yield Operation("all_reduce", "tp_group", options.tp, 4, "step.check_for_nan")


@dataclass(frozen=True, slots=True)
class _Stage:
    """Operations of a stage's modules; the LM head has none, and the experts none in the backward."""

    options: Options

    def forward(self) -> list[Operation]:
        """Embedding and layers, in order."""
        head(self.options)  # checks that the vocabulary can be split
        made = (self._experts() if module.kind == "experts" else self._forward(module) for module in self._modules())
        return [*self._embedding("forward"), *chain.from_iterable(made)]

    def backward(self) -> list[Operation]:
        """Layers in reverse, but inside a layer attention before the MLP, and inside a block forward order."""
        made = map(self._backward, self._modules(-1))
        return [*chain.from_iterable(made), *self._embedding("backward")]

    def _modules(self, way: int = 1) -> Iterator[Module]:
        return (module for blocks in layers(self.options)[::way] for block in blocks for module in block.modules)

    @property
    def _sequence_parallel(self) -> bool:
        return self.options.enable_sequence_parallel and self.options.tp > 1

    def _collective(self, kind: str, width: int, where: str) -> Iterator[Operation]:
        """A collective over a micro-batch's activations of this width, unless the tensor group is one rank."""
        if self.options.tp > 1:
            size = 2 * self.options.seq_length * self.options.micro_batch * width
            yield Operation(kind, "tp_group", self.options.tp, size, where)

    def _product(self, left: tuple[int, ...], right: tuple[int, ...], where: str) -> Iterator[Operation]:
        if self.options.computes:
            yield compute(left, right, where)

    def _embedding(self, way: str) -> Iterator[Operation]:
        yield from self._collective("all_reduce", self.options.hidden_size, f"{way}.MegatronEmbedding")

    def _shape(self, module: Module) -> tuple[int, int, int]:
        """Tokens of a sequence, and both widths of the matrix on a rank.

        With sequence parallelism columns take the full sequence for a rank's share: tp times too many rows.
        """
        tp, column = self.options.tp, module.kind == "column"
        sequence = self.options.seq_length * (tp if column and self._sequence_parallel else 1)
        return sequence, module.inputs // (tp if module.kind == "row" else 1), module.outputs // (tp if column else 1)

    def _forward(self, module: Module) -> Iterator[Operation]:
        if module.kind not in _CALLED:
            return
        where, (sequence, inputs, outputs) = f"forward.{_CALLED[module.kind]}", self._shape(module)
        if module.kind == "column" and self._sequence_parallel:
            yield from self._collective("all_gather", module.inputs, where)
        rows = (sequence, self.options.micro_batch, inputs)
        yield from self._product(rows, (inputs, outputs), f"{where}.{module.name}")
        if module.kind == "row":
            kind = "reduce_scatter" if self._sequence_parallel else "all_reduce"
            yield from self._collective(kind, module.outputs, where)

    def _backward(self, module: Module) -> Iterator[Operation]:
        """The gradient of the input, which AICB leaves out where ranks do not split the matrix, then of the weight."""
        if module.kind not in _CALLED:
            return
        where, (sequence, inputs, outputs) = f"backward.{_CALLED[module.kind]}", self._shape(module)
        batch, column, gathers = self.options.micro_batch, module.kind == "column", self._sequence_parallel
        name = f"{where}{'' if module.kind == 'row' else '.'}{module.name}"  # AICB forgets a dot
        if module.kind != "linear":
            if gathers:
                yield from self._collective("all_gather", module.inputs if column else module.outputs, where)
            yield from self._product((sequence, batch, outputs), (outputs, inputs), name)
        if column and gathers:
            yield from self._collective("reduce_scatter", module.inputs, where)
        yield from self._product((outputs, sequence * batch), (sequence * batch, inputs), name)
        if column and not gathers:
            yield from self._collective("all_reduce", module.inputs, where)

    def _experts(self) -> Iterator[Operation]:
        """Exchange of tokens; the experts' own multiplications are missing. DeepSeek dispatches in fp8."""
        options, deepseek = self.options, self.options.frame == "DeepSeek"
        routed = options.seq_length * options.hidden_size * options.micro_batch * options.moe_router_topk
        share = routed // options.tp * 2
        if not deepseek and (options.tp > 1 or options.ep > 1):
            counts = 2 * options.ep * options.num_experts * options.tp
            yield Operation("all_gather", "ep_group", None, counts, "forward.MoE.preprocess")
        if options.ep > 1:
            size = share * FP8_SHARE if deepseek else share
            yield Operation("all_to_all", "ep_group", None, size, "forward.MoE.dispatch")
        if options.tp > 1:
            yield Operation("all_gather", "tp_group", None, 2 * routed, "forward.MoE.permutation")
            yield Operation("reduce_scatter", "tp_group", None, 2 * routed, "forward.MoE.unpermutation")
        if options.ep > 1:
            yield Operation("all_to_all", "ep_group", None, share, "forward.MoE.combine")
