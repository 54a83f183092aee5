"""AICB's operation lists of DeepSpeed's ZeRO stages on a LLaMA-like model; tensor parallelism is never used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from simcore.generate.aicb.operations import EPOCH_END, Operation, compute
from simcore.generate.aicb.options import Options, check, refused

ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class Parameter:
    """One weight in the model's order; `index` is its place there."""

    index: int
    inputs: int
    outputs: int

    @property
    def elements(self) -> int:
        """Its size."""
        return self.inputs * self.outputs

    @property
    def size_bytes(self) -> int:
        """Its size in 16 bits."""
        return ELEMENT_BYTES * self.elements


def deepspeed_operations(options: Options) -> list[Operation]:
    """Operations of set-up and of `epoch_num` steps; InputError names the option where AICB stops or crashes."""
    check(options)
    parameters = _parameters(options)
    run = _Zero3(options, parameters) if options.stage == 3 else _Zero12(options, parameters)
    made = [*run.set_up(), EPOCH_END]
    for _ in range(options.epoch_num):
        # With pipeline stages AICB runs no micro-batch at all and steps twice.
        for _ in range(options.micro_batches if options.pp == 1 else 0):
            made += [*run.forward(), *run.backward()]
        for _ in range(1 if options.pp == 1 else 2):
            made += run.step()
        made.append(EPOCH_END)
    return made


def _parameters(options: Options) -> list[Parameter]:
    """Weights as AICB lists them: within an MLP gate, down, up."""
    width, query, ffn, vocab = options.hidden_size, options.query_size, options.ffn, options.vocab_size
    norm = (width, 1)
    attention = [(width, query)] * 3 + [(query, width)]
    layer = [norm, *attention, norm, (width, ffn), (ffn, width), (width, ffn)]
    shapes = [(vocab, width), *(layer * options.stage_layers), norm, (width, vocab)]
    return [Parameter(index, *shape) for index, shape in enumerate(shapes)]


def _products(options: Options, parameter: Parameter, stage: str, weight_stage: str | None = None) -> list[Operation]:
    """Multiplications of a matrix, none of a norm: the input's side, and in the backward the weight's as well."""
    if not options.computes or parameter.outputs == 1:
        return []
    batch, tokens = options.micro_batch, options.micro_batch * options.seq_length
    inputs, outputs = parameter.inputs, parameter.outputs
    made = [compute((batch, options.seq_length, inputs), (inputs, outputs), f"{stage}.computation")]
    if weight_stage is not None:
        made.append(compute((inputs, tokens), (tokens, outputs), weight_stage))
    return made


@dataclass(slots=True)
class _Zero12:
    """ZeRO-1 and ZeRO-2: gradients are reduced in buckets that carry over from micro-batch to micro-batch.

    Every micro-batch is reduced: AICB knows no boundary of gradient accumulation.
    """

    options: Options
    parameters: list[Parameter]
    bucket: list[Parameter] = field(default_factory=list)

    def set_up(self) -> Iterator[Operation]:
        """The model is broadcast."""
        if self.options.amp_enabled:
            message = f"mixed precision by amp is not possible with ZeRO-{self.options.stage}"
            hint = "AICB crashes here: it uses the last parameter it would have broadcast"
            raise refused("amp_enabled", message, "ZeRO-3, or no --amp_enabled", "--amp_enabled", hint)
        dp = self.options.dp
        for parameter in self.parameters:
            yield Operation("broadcast", "dp_group", dp, parameter.size_bytes, "init")
        yield Operation("barrier", "all", dp, self.parameters[-1].size_bytes, "init.__init__")

    def forward(self) -> Iterator[Operation]:
        """Multiplications only."""
        for parameter in self.parameters:
            yield from _products(self.options, parameter, "forward")

    def backward(self) -> Iterator[Operation]:
        """A bucket is reduced when the next gradient does not fit."""
        held = sum(parameter.elements for parameter in self.bucket)
        for parameter in reversed(self.parameters):
            if held + parameter.elements > self.options.reduce_bucket_size:
                yield from self._reduce("backward")
                held = 0
            self.bucket.append(parameter)
            held += parameter.elements
            yield from _products(self.options, parameter, "backward", "backward.computation")

    def step(self) -> Iterator[Operation]:
        """The rest of the gradients, a flag for overflow, and the parameters in shards padded to the group."""
        yield from self._reduce("step")
        dp = self.options.dp
        yield Operation("all_reduce", "dp_group", dp, 1, "step.has_overflow")
        if self.options.allgather_bucket_size < 1:
            found = self.options.allgather_bucket_size
            raise refused("allgather_bucket_size", "the bucket is empty", "1 or more", found, "")
        total = sum(parameter.elements for parameter in self.parameters)
        shards = max(total // self.options.allgather_bucket_size, 1)
        size = total // shards
        for elements in [size] * (shards - 1) + [total - (shards - 1) * size]:
            padded = -(-elements // dp) * dp
            yield Operation("all_gather", "dp_group", dp, ELEMENT_BYTES * padded, "step.all_gather_dp_groups")

    def _reduce(self, stage: str) -> Iterator[Operation]:
        """Reduce and empty the bucket; ZeRO-2 with contiguous gradients sends every piece to its owner."""
        bucket, self.bucket = self.bucket, []
        dp = self.options.dp
        if self.options.stage == 1 or not self.options.contiguous_gradients:
            size = sum(parameter.size_bytes for parameter in bucket)
            yield Operation("all_reduce", "dp_group", dp, size, f"{stage}.allreduce_bucket")
            return
        for owner, size in _pieces(bucket, self.parameters, dp):
            yield Operation("reduce", "dp_group", dp, size, f"{stage}.average_tensor", dst=owner)


def _pieces(bucket: Sequence[Parameter], parameters: Sequence[Parameter], dp: int) -> Iterator[tuple[int, int]]:
    """Owners and bytes of a bucket: the flat buffer of all parameters is cut in `dp` equal parts.

    Neighbouring pieces of one owner merge. A parameter that starts where a part ends also gives that part's owner a
    piece of no bytes.
    """
    ends = list(accumulate(parameter.elements for parameter in parameters))
    share = max(1, -(-ends[-1] // dp))
    merged: list[tuple[int, int, int]] = []
    for parameter in reversed(bucket):
        end = ends[parameter.index]
        for owner, start, stop in _parts(end - parameter.elements, end, share):
            first = merged.pop()[1] if merged and merged[-1][0] == owner else start
            merged.append((owner, first, stop))
    for owner, first, stop in merged:
        yield owner, ELEMENT_BYTES * (stop - first)


def _parts(start: int, end: int, share: int) -> Iterator[tuple[int, int, int]]:
    """Owner, start and end of each part of a parameter."""
    owner = max(0, -(-start // share) - 1)
    while (owner + 1) * share < end:
        yield owner, start, (owner + 1) * share
        owner, start = owner + 1, (owner + 1) * share
    yield owner, start, end


@dataclass(slots=True)
class _Zero3:
    """ZeRO-3: parameters are gathered before use, once the order of use is known several ahead of time.

    The first micro-batch of the run has no order yet: each parameter is gathered alone and freed at once.
    """

    options: Options
    parameters: list[Parameter]
    queue: deque[tuple[int, Parameter]] = field(default_factory=deque)
    resident: set[int] = field(default_factory=set)
    live_elements: int = 0
    fetched_for: dict[int, int] = field(default_factory=dict)
    bucket_elements: int = 0
    persistent: dict[int, Parameter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Small parameters stay, as long as they are few."""
        total = 0
        for parameter in self.parameters:
            fits = parameter.elements + total <= self.options.model_persistence_threshold
            if fits and parameter.elements <= self.options.param_persistence_threshold:
                total += parameter.elements
                self.persistent[parameter.index] = parameter

    def set_up(self) -> Iterator[Operation]:
        """The model is broadcast (not with amp), then gathered weight by weight."""
        dp = self.options.dp
        for parameter in () if self.options.amp_enabled else self.parameters:
            yield Operation("broadcast", "dp_group", dp, parameter.size_bytes, "init._broadcast_model", src=0)
        yield Operation("barrier", "all", dp, 0, "init._create_fp16_partitions_with_defragmentation")
        for _ in range(2):
            yield Operation("barrier", "all", dp, 0, "init._setup_for_real_optimizer")
        for parameter in self.parameters:
            yield Operation("all_gather", "dp_group", dp, parameter.size_bytes, "init._allgather_params")

    def forward(self) -> Iterator[Operation]:
        """Gather, use and free each parameter."""
        for step, parameter in enumerate(self.parameters):
            yield from self._gather(parameter, "forward")
            self._free(parameter, step)

    def backward(self) -> Iterator[Operation]:
        """The same in reverse, with reduce-scatters; then the order of use is known."""
        size = len(self.parameters)
        for step, parameter in enumerate(reversed(self.parameters)):
            yield from self._gather(parameter, "backward")
            self._free(parameter, step + size)
            yield from self._reduce(parameter)
        self.queue = deque(enumerate([*self.parameters, *reversed(self.parameters)]))
        self.fetched_for = {}

    def step(self) -> Iterator[Operation]:
        """The rest of the gradients, overflow, norm, and the parameters that stay."""
        dp = self.options.dp
        size = ELEMENT_BYTES * self.bucket_elements
        yield Operation("reduce_scatter", "dp_group", dp, size, "step.reduce_scatter_fn")
        yield Operation("all_reduce", "dp_group", dp, 1, "step.has_overflow")
        yield Operation("all_reduce", "dp_group", dp, 8, "step.get_grad_norm_direct")
        self.bucket_elements = self.live_elements = 0
        self.resident.clear()
        for parameter in self.persistent.values():
            yield from self._gather_alone(parameter, "step")

    def _gather(self, parameter: Parameter, stage: str) -> Iterator[Operation]:
        return self._gather_ahead(parameter, stage) if self.queue else self._gather_alone(parameter, stage)

    def _gather_alone(self, parameter: Parameter, stage: str) -> Iterator[Operation]:
        if parameter.index not in self.resident:
            yield self._all_gather([parameter], stage)
            self._fetch(parameter)
        yield from self._computed(parameter, stage)

    def _gather_ahead(self, parameter: Parameter, stage: str) -> Iterator[Operation]:
        """Take the parameter and what the queue says comes next, up to the bucket and the live parameters."""
        bucket: list[Parameter] = []
        if parameter.index not in self.resident:
            self.queue.popleft()
            bucket.append(parameter)
            self._fetch(parameter)
        taken = sum(held.elements for held in bucket)
        full = self.options.prefetch_bucket_size
        while self.queue and taken < full and self.live_elements < self.options.max_live_parameters:
            step, ahead = self.queue.popleft()
            self.fetched_for[ahead.index] = max(step, self.fetched_for.get(ahead.index, -1))
            if ahead.index in self.resident:
                continue
            bucket.append(ahead)
            self._fetch(ahead)
            taken += ahead.elements
        if bucket:
            yield self._all_gather(bucket, stage)
        for held in bucket:
            yield from self._computed(held, stage)

    def _fetch(self, parameter: Parameter) -> None:
        self.resident.add(parameter.index)
        self.live_elements += parameter.elements

    def _all_gather(self, parameters: Sequence[Parameter], stage: str) -> Operation:
        size = sum(parameter.size_bytes for parameter in parameters)
        return Operation("all_gather", "dp_group", self.options.dp, size, f"{stage}.allgather_fn")

    def _computed(self, parameter: Parameter, stage: str) -> list[Operation]:
        """Multiplications stand where a parameter is fetched; the weight's has no stage in the backward."""
        if stage == "step":
            return []
        return _products(self.options, parameter, stage, "" if stage == "backward" else None)

    def _free(self, parameter: Parameter, step: int) -> None:
        """Free a used parameter, unless it stays or was fetched for a later use too."""
        if self.queue and (parameter.index in self.persistent or self.fetched_for.get(parameter.index, -1) > step):
            return
        self.resident.discard(parameter.index)
        self.live_elements -= parameter.elements

    def _reduce(self, parameter: Parameter) -> Iterator[Operation]:
        if parameter.elements + self.bucket_elements > self.options.reduce_bucket_size:
            size = ELEMENT_BYTES * self.bucket_elements
            yield Operation("reduce_scatter", "dp_group", self.options.dp, size, "backward.reduce_scatter_fn")
            self.bucket_elements = 0
        self.bucket_elements += parameter.elements
