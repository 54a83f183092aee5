"""A step on a cluster as the rows that the engine runs, and what a layer's rows take alone.

Kernels and collectives are those of `simcore.model.layer`. What waits for a collective has it as the collective of a
row; so has the sum of input gradients that runs beside weight gradients. What software hides where rows cannot say it
(pieces of a collective beside the product they feed, parameters gathered ahead, keys passed around beside attention)
is in the times of the kernels it runs beside: what it outlasts them by, and what they lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product, takewhile
from math import ceil, fsum

import numpy as np

from simcore.compute.duration import expert_exchange
from simcore.compute.kernel import Attention, MemoryPass, Product
from simcore.cost.systems import Cluster, Software
from simcore.model.layer import accumulation, blocks, embedding, head, mtp_blocks, optimizer
from simcore.model.memory import NOTHING, Held, activation_bytes, layer_parameters, of_weights, states
from simcore.model.plan import Plan, layers_of, stage_parts
from simcore.model.rows import FORWARD, GROUPS, INPUT_GRAD, WEIGHT_GRAD, Rows
from simcore.model.shape import LayerKind, Model, kinds
from simcore.model.steps import Axis, Beside, Block, Collective, Kernel, Part, Step, dropped, in_phase
from simcore.model.timing import KernelTimer, duration, prepare
from simcore.system.collectives.nccl import collective_s
from simcore.units import whole_ns
from simcore.workload.model import CollectiveKind, Layer, Phase, PhaseName

AXES = {group: axis for axis, group in GROUPS.items()}
_SHARES_EVERY_PASS = 2  # the ZeRO level from which every micro-batch communicates


@lru_cache(maxsize=4096)
def in_nodes(ranks: int, stride: int, world_size: int, node_ranks: int, first: int = 0) -> tuple[int, ...]:
    """How many ranks groups have at most in a node, each number once.

    Groups of ranks `stride` apart fill a world that begins at a rank, one after the other, wherever nodes end.

    >>> in_nodes(3, 2, 6, 8), in_nodes(3, 2, 24, 8), in_nodes(3, 1, 6, 8), in_nodes(3, 1, 6, 8, first=6)
    ((3,), (2, 3), (3,), (2, 3))
    """
    if stride >= node_ranks:
        return (1,)
    span = ranks * stride
    firsts = first + np.arange(max(1, min(node_ranks, world_size // span)))[:, None] * span + np.arange(stride)
    groups = np.unique(firsts % node_ranks)[:, None] + stride * np.arange(ranks)
    return tuple(sorted({int(np.bincount(group // node_ranks).max()) for group in groups}))


@lru_cache(maxsize=4096)
def stage_seats(plan: Plan, cluster: Cluster) -> tuple[Cluster, ...]:
    """The cluster as the ranks of every stage see it: how many of a group lie in a node there.

    Where stages begin with a node, or groups divide nodes, it is the cluster itself.
    """
    width, nodes = plan.world_size // plan.pp, cluster.fabric.node_ranks
    if width == 1:  # nobody there to compare the largest values with
        cluster = replace(cluster, software=replace(cluster.software, scales_s=0.0))
    layouts = [(axis, axis.layout(plan)) for axis in Axis]
    starts = [stage * width % nodes for stage in range(plan.pp)]
    there = {at: [in_nodes(*how, width, nodes, at) for _, how in layouts] for at in dict.fromkeys(starts)}
    alone = [in_nodes(*how, how[0] * how[1], nodes) for _, how in layouts]
    if all(found == alone for found in there.values()):
        return (cluster,) * plan.pp
    return tuple(replace(cluster, together=tuple(zip(Axis, there[at], strict=True))) for at in starts)


@lru_cache(maxsize=4096)
def seats(plan: Plan, cluster: Cluster) -> tuple[Cluster, ...]:
    """The cluster as the ranks of every part of the model see it, of all stages that run it."""
    of_stages, parts = [*zip(stage_seats(plan, cluster), stage_parts(plan.outline), strict=True)], plan.outline.parts
    usual = of_stages[0][0]
    if all(seen is usual for seen, _ in of_stages):
        return (usual,) * parts
    of_parts = ([dict(seen.together).values() for seen, own in of_stages if part in own] for part in range(parts))
    shares = ([tuple(sorted({*chain.from_iterable(some)})) for some in zip(*of, strict=True)] for of in of_parts)
    return tuple(replace(cluster, together=tuple(zip(Axis, some, strict=True))) for some in shares)


@dataclass(frozen=True, slots=True)
class Machine(KernelTimer):
    """Times of a plan's kernels and collectives on a cluster."""

    plan: Plan
    cluster: Cluster

    @property
    def software(self) -> Software:
        """What runs the plan."""
        return self.cluster.software

    def kernel_s(self, kernel: Kernel) -> float:
        """As software runs it."""
        return duration(kernel, self.cluster.device, self.plan.dtype, self.software.kernels).seconds

    def optimizer_s(self, elements: int) -> float:
        """Seconds of the optimizer; on the host gradients go there and the new weights back."""
        if "optimizer" not in self.plan.offload:
            return self.kernel_s(optimizer(elements, self.plan.optimizer_bytes))
        host, moved = self.cluster.host, self.plan.gradient_bytes + self.plan.parameter_bytes
        return elements * (moved / host.link_bytes_per_s + _HOST_ADAM_BYTES / host.memory_bytes_per_s)

    def collective_s(self, kind: CollectiveKind, size_bytes: float, axis: Axis) -> float:
        """Seconds of a collective of whole buffers on the ranks of an axis."""
        ranks, shares = self._placed(axis)
        return max(collective_s(kind, size_bytes, ranks, share, self.cluster.fabric) for share in shares)

    def _placed(self, axis: Axis) -> tuple[int, tuple[int, ...]]:
        """How many ranks meet on an axis, and how many of them in a node: the slowest group counts."""
        ranks, stride = axis.layout(self.plan)
        known, nodes = dict(self.cluster.together), self.cluster.fabric.node_ranks
        return ranks, known.get(axis) or in_nodes(ranks, stride, self.plan.world_size, nodes)

    def exposed_s(self, collective_s_: float, compute_s: float, axis: Axis) -> float:
        """What a collective beside kernels costs: what it outlasts them by, and what they lose to it.

        Inside a node it takes their cores and memory; one that waits for network cards hardly any.
        """
        return max(0.0, collective_s_ - compute_s) + self.slowdown(axis) * min(collective_s_, compute_s)

    def beside_s(self, some: Iterable[tuple[float, Axis]], compute_s: float) -> float:
        """What collectives cost that run one after the other beside kernels."""
        cost_s = 0.0
        for collective_s_, axis in some:
            cost_s += self.exposed_s(collective_s_, compute_s, axis)
            compute_s = max(0.0, compute_s - collective_s_)
        return cost_s

    def slowdown(self, axis: Axis) -> float:
        """The share of their time that kernels lose beside a collective: one inside a node takes their cores."""
        return self.software.slowdown if self._inside(axis) else self.software.slowdown_across

    def _inside(self, axis: Axis) -> bool:
        """Whether all ranks that meet on an axis share a node."""
        ranks, shares = self._placed(axis)
        return (ranks,) == shares

    def phase_ns(self, phase: Phase) -> int:
        """The time of a row's collective."""
        if phase.collective is None:
            return 0
        return whole_ns(1e9 * self.collective_s(phase.collective, phase.size_bytes, AXES[phase.group]))


_SCALES_BLOCKS = 2024  # the year of the first devices that do
_HOST_ADAM_BYTES = 28  # reads gradient, weight, two moments, writes three


@dataclass(frozen=True, slots=True)
class Cell:
    """Rows of a layer, an embedding or a head for one micro-batch, and how long they take alone.

    `backward_ns` has the weight gradients in it unless the schedule has cells of their own for them, of `weight_ns`.
    `waits`: exposed collectives in all passes, in seconds, by axis.
    """

    rows: tuple[Layer, ...]
    forward_ns: int
    backward_ns: int
    weight_ns: int
    waits: dict[Axis, float]

    @property
    def busy_ns(self) -> int:
        """All passes."""
        return self.forward_ns + self.backward_ns + self.weight_ns


def cut_of(plan: Plan) -> Plan:
    """A plan as its cells see it: what layers see, the parts of the model as stages, and how these are cut.

    Where every pass communicates also what replicas share, and as its batch the micro-batches that are reduced at once;
    of schedules whether weight gradients have cells.
    """
    sharing: tuple[int, ...] = ()
    if plan.zero >= _SHARES_EVERY_PASS:
        ranks = plan.tp * plan.cp * plan.dp
        sharing = ranks, plan.zero, plan.shard, plan.gradient_bytes, plan.reduced_at_once
    return _cut(plan.of_layer, plan.outline.parts, plan.cuts, plan.splits_backward, sharing)


@lru_cache(maxsize=8192)
def _cut(layers: Plan, parts: int, cuts: tuple[int, ...], splits: bool, sharing: tuple[int, ...]) -> Plan:
    cut = layers.but(pp=parts, cuts=cuts, schedule=_SPLITTING if splits else "")
    shared = "world_size", "zero", "shard", "gradient_bytes", "global_batch"
    return cut.but(**dict(zip(shared, sharing, strict=False)))


@lru_cache(maxsize=8192)
def layer_plan(cut: Plan) -> Plan:
    """The plan as one layer sees it: what differs elsewhere is left at its default."""
    again = cut.recompute == "full"  # cells are told which layers are done again
    recompute = "none" if again else cut.recompute
    return cut.but(pp=1, cuts=(), recompute=recompute, recompute_layers=0, offload_layers=0)


def cells_of(model: Model, cut: Plan, cluster: Cluster, part: int) -> list[tuple[Cell, int]]:
    """Cells of the layers of a part of the model, and how many there are of each."""
    plan, some = layer_plan(cut), layers_of(model, cut, cut.pp, cut.cuts, (part,))
    return [(cell_of(model, plan, cluster, one.kind, again=one.again, away=one.away), one.number) for one in some]


def end_cells(model: Model, cut: Plan, cluster: Cluster, *, last: bool) -> list[tuple[Cell, int]]:
    """Cells of an end of the model, and how many there are of each: of the last also the layers of MTP modules."""
    plan, deeper = layer_plan(cut), range(model.depth, model.depth + model.mtp_layers * last)
    inner = ((cell_of(model, plan, cluster, kind, again=cut.again(0)), many) for kind, many in kinds(model, deeper))
    return [(cell_of(model, plan, cluster, last), 1), *inner]


def scales_of(cut: Plan, cluster: Cluster) -> list[tuple[Cell, int]]:
    """What a part of the model waits, both ways, for the largest values of all ranks.

    Delayed 8-bit scales follow these. Once for all its layers: Transformer Engine sums up what an `fp8_autocast`
    has found (`is_first_fp8_module` in its `fp8.py`), and Megatron has one around the layers of a part. Blackwell
    scales blocks by themselves.
    """
    wait_s = cluster.software.scales_s
    if not wait_s or cut.dtype != "fp8" or cluster.device.year >= _SCALES_BLOCKS:
        return []
    wait = Phase(whole_ns(1e9 * wait_s))
    return [(Cell((Layer("scales", wait, wait),), wait.compute_ns, wait.compute_ns, 0, {Axis.DATA: 2 * wait_s}), 1)]


_SPLITTING = "zb-h1"  # any schedule with cells for weight gradients


_Place = LayerKind | bool
"""A kind of layer; or an end of the model, the embedding, or if it is the last the heads, MTP modules' among them."""


@lru_cache(maxsize=8192)
def cell_of(
    model: Model, plan: Plan, cluster: Cluster, place: _Place, *, again: bool = False, away: bool = False
) -> Cell:
    """A place under a `layer_plan`, or with full recomputation done `again` before its gradients.

    The host keeps activations and weights of layers that are `away`, and moves them beside the layer's kernels.
    """
    moved, kind = (0.0, 0.0), place if isinstance(place, LayerKind) else None
    held = layer_parameters(model, plan, kind) if kind else _held(_blocks(model, plan, place), plan)
    if away and kind:
        made = activation_bytes(model, plan, kind, again=again) if plan.away("activations") else 0.0
        there = states(held, plan)[0] if plan.away("weights") else 0
        moved = max(made, there), made + there  # out and in are ways of their own
    alone = plan.of_layer.but(schedule=plan.schedule)  # nothing sharded
    return _sharded(_unsharded(model, alone, cluster, place, again, moved), held, plan, cluster)


@lru_cache(maxsize=8192)
def _unsharded(
    model: Model, plan: Plan, cluster: Cluster, place: _Place, again: bool, moved_bytes: tuple[float, float]
) -> Cell:
    return _prepared(model, plan, cluster).cell(_blocks(model, plan, place), again=again, moved_bytes=moved_bytes)


@lru_cache(maxsize=4096)
def _prepared(model: Model, plan: Plan, cluster: Cluster) -> _Placed:
    """The machine, all kernels of the model looked up: together is many times as fast as cell by cell."""
    machine, layers = _Placed(plan, cluster, model), kinds(model, range(model.depth + model.mtp_layers))
    places: list[_Place] = [*(kind for kind, _ in layers), False, True]
    some = [_blocks(model, plan, place) for place in places]
    summed = (_over_weights(each, machine) for each in some)
    kernels = chain(*summed, *(block.kernels for each in some for block in each))
    passes = [one for kernel, phase in product(kernels, PhaseName) for one in in_phase(kernel, phase)]
    prepare(passes, cluster.device, plan.dtype)
    return machine


def _over_weights(some: Sequence[Block], machine: Machine) -> tuple[Kernel, ...]:
    """Passes over the weights of blocks: adding their gradients to those of micro-batches before, transposing them.

    Frozen weights that are held in 8 bits alone are transposed for every input gradient, as products want them before
    Blackwell; of trained ones a transposed copy is kept for a step (`disable_parameter_transpose_cache`).
    """
    software, plan, held = machine.software, machine.plan, _held(some, machine.plan)
    trained = held.trained + held.trained_experts
    turned = plan.parameter_dtype == "fp8" and machine.cluster.device.year < _SCALES_BLOCKS
    frozen = held.whole - trained if turned else 0
    return accumulation(trained, software.accumulation_bytes) + accumulation(frozen, software.transposing_bytes)


def _held(some: Iterable[Block], plan: Plan) -> Held:
    return sum((of_weights(block.weights, plan) for block in some), NOTHING)


def _blocks(model: Model, plan: Plan, place: _Place) -> tuple[Block, ...]:
    if isinstance(place, LayerKind):
        return blocks(model, plan, place)
    if not place:
        return (embedding(model, plan),)
    return (head(model, plan), *(mtp_blocks(model, plan) * model.mtp_layers if model.mtp_layers else ()))


def _sharded(cell: Cell, held: Held, plan: Plan, cluster: Cluster) -> Cell:
    """With gathering of weights and reducing of gradients in every micro-batch, where these are sharded (ZeRO 2, 3)."""
    if plan.zero < _SHARES_EVERY_PASS:
        return cell
    machine, gathers, reduces = Machine(plan, cluster), list[tuple[float, Axis]](), list[tuple[float, Axis]]()
    for count, trained, axis, copies in (
        (held.dense, held.trained, Axis.DATA, Axis.REPLICAS),
        (held.experts, held.trained_experts, Axis.EXPERT_DATA, Axis.EXPERT_REPLICAS),
    ):
        reduced = trained * plan.gradient_bytes
        if plan.zero > _SHARES_EVERY_PASS:
            gathers.append((machine.collective_s(CollectiveKind.ALL_GATHER, count * plan.parameter_bytes, axis), axis))
        owned = reduced / axis.layout(plan)[0]  # hybrid sharding sums what a rank owns over replicas
        for kind, size, over in (
            (CollectiveKind.REDUCE_SCATTER, reduced, axis),
            (CollectiveKind.ALL_REDUCE, owned, copies),
        ):
            reduces.append((machine.collective_s(kind, size, over) / plan.global_batch, over))
    ahead_s = machine.beside_s(gathers, cell.forward_ns * 1e-9)
    back_s = machine.beside_s([*gathers, *reduces], (cell.backward_ns + cell.weight_ns) * 1e-9)
    return replace(
        cell,
        rows=(_longer(cell.rows[0], ahead_s, back_s), *cell.rows[1:]),
        forward_ns=cell.forward_ns + whole_ns(1e9 * ahead_s),
        backward_ns=cell.backward_ns + whole_ns(1e9 * back_s),
        waits=cell.waits | {Axis.DATA: ahead_s + back_s},
    )


class _Charges(dict[Axis, tuple[float, float]]):
    """Seconds that hidden collectives add to the forward and to the backward pass, by axis."""

    def add(self, axis: Axis, forward_s: float, backward_s: float) -> None:
        """Some more."""
        ahead, back = self.get(axis, (0.0, 0.0))
        self[axis] = ahead + forward_s, back + backward_s

    @property
    def totals(self) -> tuple[float, float]:
        """Of all axes."""
        return fsum(ahead for ahead, _ in self.values()), fsum(back for _, back in self.values())


@dataclass(frozen=True, slots=True)
class _Placed(Machine):
    """Makes cells of a model."""

    model: Model

    def cell(self, some: Sequence[Block], *, again: bool, moved_bytes: tuple[float, float]) -> Cell:
        """Blocks as rows, with what they hide, and what their host keeps them waiting, in their first row's times.

        `moved_bytes` go between host and accelerator beside the forward pass, and beside the backward.
        """
        plan, charges, rows = self.plan, _Charges(), list[Layer]()
        for block in some:
            rows += Rows(self.model, plan, self).block(self._visible(block, charges, again=again), again=again)[0]
        rows = [self._slowed(row) for row in rows]
        kernels = [kernel for block in some for kernel in block.kernels]
        repeated = kernels if again else [one for block in some for one in dropped(block.kernels, plan)]
        summed = _over_weights(some, self)
        self._expert_launches(kernels, charges, repeated)
        rows[0] = _longer(rows[0], *charges.totals, self.seconds(summed))
        rows[0] = _longer(rows[0], *self._host_s(rows, kernels, [*repeated, *summed]))
        # What moving outlasts the kernels by, both ways: copies take no cores.
        forward_ns, *backward_ns = self._times(rows)
        ahead_s, back_s = (size / self.cluster.host.link_bytes_per_s for size in moved_bytes)
        waits = max(0.0, ahead_s - forward_ns * 1e-9), max(0.0, back_s - sum(backward_ns) * 1e-9)
        rows[0] = _longer(rows[0], *waits)
        charges.add(Axis.HOST, *waits)
        return self._alone(rows, charges)

    # --- what is hidden

    def _visible(self, block: Block, charges: _Charges, *, again: bool) -> Block:
        """The block with the collectives that its kernels wait for; what the others cost goes to `charges`."""
        kept, repeated = list[Step](), block.steps if again else dropped(block.steps, self.plan)
        for at, step in enumerate(block.steps):
            if isinstance(step, Kernel):
                kept.append(step)
            elif hidden := self._hidden_s(block, at, self._sent_once(step)):
                forward_s, backward_s = hidden
                charges.add(step.axis, forward_s, backward_s + (forward_s if step in repeated else 0.0))
            elif step.beside is Beside.WEIGHT_GRADIENT and not self.software.hides_input_gradient:
                kept.append(replace(step, beside=Beside.NOTHING))
            else:
                kept.append(self._sent_once(step))
        return replace(block, steps=tuple(kept))

    def _hidden_s(self, block: Block, at: int, step: Collective) -> tuple[float, float] | None:
        """What a collective costs that runs beside other kernels than those of a row's weight gradients, both ways."""
        exchanged_s = self._exchanged_s(step)
        around = step.beside is Beside.ATTENTION  # keys and values of other context ranks
        gathered = around and self.software.gathers_keys
        copies = self.model.heads / self.model.key_heads if gathered else 1
        ahead_s, back_s = (
            exchanged_s or (self.collective_s(kind, copies * step.size_bytes, step.axis) if kind else 0.0)
            for kind in (step.forward, step.backward)
        )
        if self.software.hides_exchange and _exchanges(step):
            ahead, back = (self.phase_s(block.kernels, phase) for phase in (FORWARD, INPUT_GRAD))
            return self.exposed_s(ahead_s, ahead, step.axis), self.exposed_s(back_s, back, step.axis)
        if exchanged_s:
            return exchanged_s, exchanged_s
        if gathered:
            return ahead_s, ahead_s + back_s
        if around:
            core = [kernel for kernel in block.kernels if isinstance(kernel.work, Attention)]
            ahead, back = (self.phase_s(core, phase) for phase in (FORWARD, INPUT_GRAD))
            return max(0.0, ahead_s - ahead), max(0.0, ahead_s + back_s - back)  # keys come round once more
        if step.beside is Beside.NOTHING or step.axis is not Axis.TENSOR:
            return None
        if step.beside is Beside.INPUT_GRADIENT:
            before = [one for one in block.steps[:at] if isinstance(one, Kernel)]
            return 0.0, self.exposed_s(back_s, self.phase_s(before, INPUT_GRAD), step.axis)
        if not self.software.tiles:
            return None
        if step.beside is Beside.PRODUCTS:
            made = _run(reversed(block.steps[:at]))
            ahead, back = (self.phase_s(_product(made), phase) for phase in (FORWARD, INPUT_GRAD))
            return self._in_tiles(step.forward, ahead_s, ahead), self._in_tiles(step.backward, back_s, back)
        fed = _run(block.steps[at + 1 :])
        forward_s = self._in_tiles(step.forward, ahead_s, self.phase_s(_product(fed), FORWARD))
        return forward_s, self.exposed_s(back_s, self.phase_s(fed, WEIGHT_GRAD), step.axis)

    def _in_tiles(self, kind: CollectiveKind | None, whole_s: float, product_s: float) -> float:
        """What a collective costs piece by piece beside a product: inside a node pieces keep up with it.

        A gather begins with the piece that is there; of a sum the last piece is waited for; pieces are handed over.
        """
        if kind is None:
            return 0.0
        pieces = self.plan.tp
        last_s = 0.0 if kind is CollectiveKind.ALL_GATHER else whole_s / pieces
        hidden_s = whole_s - last_s
        lasting_s = hidden_s if self._inside(Axis.TENSOR) else product_s
        return last_s + self.exposed_s(hidden_s, lasting_s, Axis.TENSOR) + pieces * self.software.piece_s

    def _sent_once(self, step: Collective) -> Collective:
        """Tokens to their experts: sent once, a token goes to each place where experts of it are."""
        experts, ranks = self.model.experts, self.plan.ep
        if not (_exchanges(step) and experts and self.software.sends_once):
            return step
        inside = max(1, self.cluster.fabric.node_ranks // Axis.EXPERT.layout(self.plan)[1])
        places = ranks // inside if ranks > inside else ranks
        copies = places * (1 - (1 - 1 / places) ** experts.top_k)
        return replace(step, size_bytes=int(step.size_bytes * copies / experts.top_k))

    def _exchanged_s(self, step: Collective) -> float:
        """Seconds of a dispatch or a combine by DeepEP's kernels, half of both; 0 where NCCL exchanges tokens."""
        experts, plan = self.model.experts, self.plan
        if self.software.exchange == "nccl" or not (_exchanges(step) and experts):
            return 0.0
        ranks, stride = Axis.EXPERT.layout(plan)
        both = (
            expert_exchange(
                stage,
                self.cluster.device,
                tokens=plan.tokens // (plan.tp if plan.shards_sequence else 1),
                hidden=self.model.hidden,
                top_k=experts.top_k,
                experts=experts.count,
                ranks=ranks,
                nodes=ceil(ranks * stride / self.cluster.fabric.node_ranks),
                low_latency=self.software.exchange == "deepep_low_latency",
            )
            for stage in ("dispatch", "combine")
        )
        return fsum(one.seconds for one in both) / 2

    def _slowed(self, row: Layer) -> Layer:
        """A row whose weight gradients run beside a collective: they lose time to it."""
        summed, beside = row.input_grad, row.weight_grad.compute_ns
        if summed.collective is None or not beside or self.plan.splits_backward:
            return row
        lost = self.slowdown(AXES[summed.group]) * min(beside, self.phase_ns(summed))
        return replace(row, weight_grad=replace(row.weight_grad, compute_ns=beside + ceil(lost)))

    # --- what the host costs

    def _expert_launches(self, kernels: Sequence[Kernel], charges: _Charges, repeated: Sequence[Kernel]) -> None:
        """What one product's pass waits for the host, which launches every expert apart once it knows their tokens."""
        experts = [kernel for kernel in kernels if kernel.part is Part.EXPERTS]
        if not experts or not self.model.experts:
            return
        local = max(1, self.model.experts.count // self.plan.ep)
        late_s = max(0.0, local * self.software.expert_launch_s - self.seconds(experts))
        again = any(kernel.part is Part.EXPERTS and not isinstance(kernel.work, MemoryPass) for kernel in repeated)
        charges.add(Axis.EXPERT, late_s, late_s * (2 + again))  # two gradients for one product

    def _host_s(
        self, rows: Sequence[Layer], kernels: Sequence[Kernel], more: Sequence[Kernel]
    ) -> tuple[float, float, float]:
        """What launches take longer than their kernels, pass by pass; all they take where each waits for the last."""
        launches = [sum(one.launches for kernel in kernels for one in in_phase(kernel, phase)) for phase in PhaseName]
        launches[1] += sum(kernel.launches for kernel in more)
        for row in rows:
            for at, phase in enumerate((row.forward, row.input_grad, row.weight_grad)):
                launches[at] += phase.collective is not None
        ahead, back, apart = (count * self.software.launch_s for count in launches)
        times = self._times(rows)
        if not times[2]:
            back, apart = back + apart, 0.0
        if self.software.synchronous:
            return 2 * ahead, 2 * back, 2 * apart  # there and back
        late = zip((ahead, back, apart), times, strict=True)
        ahead, back, apart = (max(0.0, lasts_s - done * 1e-9) for lasts_s, done in late)
        return ahead, back, apart

    # --- alone

    def _times(self, rows: Iterable[Layer]) -> tuple[int, int, int]:
        """Nanoseconds of the passes of rows that meet nobody: what the training loop makes of them."""
        forward = backward = weight = 0
        phase_ns, splits = self.phase_ns, self.plan.splits_backward
        for row in rows:
            forward += row.forward.compute_ns + phase_ns(row.forward)
            summed, beside = phase_ns(row.input_grad), row.weight_grad.compute_ns
            weight += beside if splits else 0
            backward += row.input_grad.compute_ns + (summed if splits else max(summed, beside))
        return forward, backward, weight

    def _alone(self, rows: Sequence[Layer], charges: _Charges) -> Cell:
        waits = {axis: ahead + back for axis, (ahead, back) in charges.items()}
        splits = self.plan.splits_backward
        for row in rows:
            beside = 0 if splits else row.weight_grad.compute_ns
            for phase, hides in ((row.forward, 0), (row.input_grad, beside)):
                if phase.collective:
                    axis = AXES[phase.group]
                    waits[axis] = waits.get(axis, 0.0) + max(0, self.phase_ns(phase) - hides) * 1e-9
        return Cell(tuple(rows), *self._times(rows), waits)


def _run(steps: Iterable[Step]) -> list[Kernel]:
    """The kernels up to the first collective."""
    return [one for one in takewhile(lambda one: isinstance(one, Kernel), steps) if isinstance(one, Kernel)]


def _product(run: Iterable[Kernel]) -> list[Kernel]:
    """The first product of a run, if there is one."""
    return [one for one in run if isinstance(one.work, Product)][:1]


def _exchanges(step: Collective) -> bool:
    """Whether it brings tokens to their experts or back."""
    return step.axis is Axis.EXPERT and step.forward is CollectiveKind.ALL_TO_ALL


def _longer(row: Layer, forward_s: float, backward_s: float, weight_s: float = 0.0) -> Layer:
    """The row with more to compute."""
    ahead, back, apart = map(_more, row.phases, (forward_s, backward_s, weight_s))
    return Layer(row.name, ahead, back, apart, role=row.role)


def _more(phase: Phase, seconds_: float) -> Phase:
    return replace(phase, compute_ns=phase.compute_ns + whole_ns(1e9 * seconds_)) if seconds_ else phase
