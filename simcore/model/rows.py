"""A training step as rows: what one rank computes of a model, of one stage or all, and which collectives it joins.

Rows stand in forward order, once per micro-batch; a training loop runs them downwards, then upwards for the gradients.
Before them stand the rows of the end of the step, which the upward pass reaches last. A run of kernels is a row; a
collective behind it goes with it, as does the sum of the gradients of its input, beside its weight gradients. Other
collectives are rows of their own. Sizes are those of whole buffers: the gathered result, the unreduced input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, groupby
from typing import Any, Protocol

from simcore.errors import InputError
from simcore.library import table
from simcore.model.layer import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, blocks, embedding, head, mtp_blocks, optimizer
from simcore.model.memory import Held, of_weights, part_parameters, tied_gradient_bytes
from simcore.model.plan import Plan, check
from simcore.model.shape import LayerKind, Model
from simcore.model.steps import Axis, Beside, Block, Collective, Kernel, Part, Step, dropped
from simcore.workload.model import CollectiveKind, Group, Layer, Phase, PhaseName, Role, Workload

FORWARD, INPUT_GRAD, WEIGHT_GRAD = PhaseName.FORWARD, PhaseName.INPUT_GRAD, PhaseName.WEIGHT_GRAD
NORM_BYTES = 4
IDLE = Phase()
GROUPS = {Axis.TENSOR: Group.LOOP, Axis.CONTEXT: Group.CP, Axis.EXPERT: Group.EP}

NAMES = dict(table(__file__, "rows.txt"))
"""Parts of a model, by which a run of their kernels begins or between which it lies -> what its row is called."""


class Timer(Protocol):
    """Times of one micro-batch on one rank; the optimizer's step is a part like others."""

    def time_ns(self, part: Part, kernels: Sequence[Kernel], phase: PhaseName) -> int:
        """Nanoseconds of the kernels of a part of the model in a phase."""


def optimizer_ns(timer: Timer, elements: int, state_bytes: int = 12) -> int:
    """Nanoseconds of the optimizer on so many elements."""
    return timer.time_ns(Part.OPTIMIZER, [optimizer(elements, state_bytes)], FORWARD)


@dataclass(frozen=True, slots=True)
class Rows:
    """Builds the rows of parts of a model under a plan."""

    model: Model
    plan: Plan
    timer: Timer
    _known: dict[tuple[LayerKind, bool, bool], list[Layer]] = field(default_factory=dict)

    # --- a block

    def block(self, block: Block, *, again: bool = False) -> tuple[list[Layer], int]:
        """Rows of a block, and which of them its experts are.

        Done `again`, it runs forward once more before its gradients, collectives included.
        """
        made, at, experts = list[Layer](), -1, -1
        repeated = () if again else dropped(block.steps, self.plan)
        back: Collective | None = None
        for of_experts, some in groupby(block.steps, _run_of):
            steps = [*some]
            if run := [step for step in steps if isinstance(step, Kernel)]:
                at = len(made)
                experts = at if of_experts else experts
                made += self._run(run, back, again=again)
                back = None
            for step in (step for step in steps if isinstance(step, Collective)):
                forward, backward = _phase(step, step.forward), _phase(step, step.backward)
                if step.beside is Beside.WEIGHT_GRADIENT:
                    backward, back = IDLE, step
                if at >= 0 and backward == IDLE and step.beside is Beside.PRODUCTS:
                    made[at] = _with(made[at], step.role, forward=forward)
                elif forward != IDLE or backward != IDLE:
                    made.append(Layer(step.name, forward, backward, role=step.role))
                if step in repeated:
                    made.append(Layer(f"{step.name}_recompute", input_grad=_phase(step, step.forward), role=step.role))
                at = -1
        if again:
            # The upward pass reads these first, from the last to the first.
            more = (Layer(f"{row.name}_recompute", input_grad=row.forward, role=row.role) for row in reversed(made))
            made += [row for row in more if row.input_grad != IDLE]
        return made, experts

    def _run(self, kernels: Sequence[Kernel], back: Collective | None, *, again: bool) -> list[Layer]:
        """The row of a run of kernels, and what of it selective recomputation does again just before its gradients."""
        forward, input_grad, weight_grad = (Phase(self._time(kernels, phase)) for phase in PhaseName)
        row = Layer(_name(kernels), forward, input_grad, weight_grad)
        made = [_with(row, back.role, input_grad=_phase(back, back.backward)) if back else row]
        if repeated := () if again else dropped(kernels, self.plan):
            made.append(Layer(f"{made[0].name}_recompute", input_grad=Phase(self._time(repeated, FORWARD))))
        return made

    def _time(self, kernels: Sequence[Kernel], phase: PhaseName) -> int:
        parts = dict.fromkeys(kernel.part for kernel in kernels)
        return sum(self.timer.time_ns(part, [one for one in kernels if one.part is part], phase) for part in parts)

    # --- a step

    def step(self, parts: tuple[int, ...]) -> list[Layer]:
        """The end of the step, then every micro-batch of some parts of the model."""
        first, later = ([row for part in parts for row in self.micro_batch(part, last=last)] for last in (True, False))
        end = self.end(part_parameters(self.model, self.plan, parts))
        return [*end, *first, *(later * (self.plan.micro_batches - 1))]

    def micro_batch(self, part: int, *, last: bool) -> list[Layer]:
        """Rows of a part of the model; `last` of the upward pass, the first in the file: its gradients are complete."""
        model, plan = self.model, self.plan
        made = self._sharded(embedding(model, plan), reduced=last) if part == 0 else []
        for position, layer in enumerate(plan.layers(model, part)):
            made += self.layer(model.kind(layer), again=plan.again(position), reduced=last)
        if part < plan.outline.parts - 1:
            return made
        block, copied = head(model, plan), plan.pp > 1 and plan.ties_stages(model)
        tables = (*block.weights, *model.embedding_weights()[:1]) if copied else block.weights
        made += self._sharded(replace(block, weights=tables), reduced=last)
        for layer in range(model.depth, model.depth + model.mtp_layers):
            combine, again = mtp_blocks(model, plan)
            made += self._sharded(combine, reduced=last)
            made += self.layer(model.kind(layer), again=plan.again(0), reduced=last)
            made += self._sharded(again, reduced=last)
        return made

    def layer(self, kind: LayerKind, *, again: bool, reduced: bool) -> list[Layer]:
        """Rows of a layer."""
        key = kind, again, reduced
        if key not in self._known:
            made = [self._sharded(block, again=again, reduced=reduced) for block in blocks(self.model, self.plan, kind)]
            self._known[key] = [row for rows in made for row in rows]
        return self._known[key]

    # --- data parallelism

    def _sharded(self, block: Block, *, reduced: bool, again: bool = False) -> list[Layer]:
        """Rows of a block with what data parallelism adds to it."""
        plan, (rows, experts) = self.plan, self.block(block, again=again)
        if plan.replicas == 1 and plan.expert_replicas == 1:
            return rows
        held = of_weights(block.weights, plan)
        if plan.zero >= 2 or (reduced and plan.overlap):
            rows = self._reduced(block, rows, experts, held)
        if plan.zero < 3 or plan.sharing == 1:
            return rows
        # Parameters are gathered before the forward and again before the gradients. The group is written DP_EP, in a
        # file without expert groups the data-parallel one; with hybrid sharding EP.
        gather = Phase(0, ALL_GATHER, plan.parameter_bytes * held.whole, Group.EP if plan.shard else Group.DP_EP)
        name = f"gather_{block.name}"
        back = Layer(f"{name}_again", input_grad=gather, role=Role.SHARDS)
        return [Layer(name, gather, role=Role.SHARDS), *rows, back]

    def _reduced(self, block: Block, rows: list[Layer], experts: int, held: Held) -> list[Layer]:
        """Gradients of a block go out with its topmost row, the upward pass's last; those of experts with theirs."""
        plan = self.plan
        if plan.shard:
            # Hybrid sharding: reduced to the ranks that share them, then summed over their replicas. The text calls the
            # groups EP and DP_EP: ranks next to each other, and those that stand in their place elsewhere.
            count = held.trained + held.trained_experts
            near = self._gradient_phase(count, Group.EP if plan.shard > 1 else Group.LOOP)
            rows[0] = _with(rows[0], weight_grad=near)
            summed = Phase(0, ALL_REDUCE, plan.gradient_bytes * -(-count // plan.shard), Group.DP_EP)
            # The upward pass comes to it after the row that reduces.
            far = Layer(f"replicas_{block.name}", weight_grad=summed, role=Role.REPLICAS)
            return [far, *rows] if plan.shard < plan.replicas else rows
        if plan.replicas > 1 and held.trained:
            rows[0] = _with(rows[0], weight_grad=self._gradient_phase(held.trained, Group.LOOP))
        if held.trained_experts and plan.expert_replicas > 1:
            summed = self._gradient_phase(held.trained_experts, Group.DP_EP)
            rows[experts] = _with(rows[experts], weight_grad=summed)
        return rows

    def _gradient_phase(self, count: int, group: Group) -> Phase:
        kind = REDUCE_SCATTER if self.plan.zero else ALL_REDUCE
        return Phase(0, kind, self.plan.gradient_bytes * count, group)

    # --- the end of a step

    def end(self, held: Held) -> list[Layer]:
        """End of the step: gradients reduced, parameters gathered, the gradients' norm; what waits for them goes down.

        The loop waits for collectives of weight gradients only when it comes down to their rows again. So what needs
        the sums, gradients of replicated weights and the optimizer, is computed forward, below the rows that send: the
        optimizer opens the next step in place of closing this one, and a step is as long.
        """
        plan, rows = self.plan, list[Layer]()
        if plan.replicas > 1:
            rows.append(Layer("gradient_norm", weight_grad=Phase(0, ALL_REDUCE, NORM_BYTES), role=Role.NORM))
        meeting = [one.row for one in sums(held, plan) if one.axis.layout(plan)[0] > 1]
        rows += (row for row in meeting if row.role is Role.GATHER)
        rows += (row for row in meeting if row.role is Role.REDUCE and not plan.overlap)
        if plan.shards_sequence:
            summed = Phase(0, ALL_REDUCE, plan.gradient_bytes * held.replicated)
            rows.append(Layer("replicated_gradients", summed, role=Role.REPLICATED))
        step_ns = optimizer_ns(self.timer, held.owned(plan), plan.optimizer_bytes)
        return [*rows, Layer("optimizer", Phase(step_ns), role=Role.OPTIMIZER)]


@dataclass(frozen=True, slots=True)
class Sum:
    """Collectives that end a step, `calls` of them in turn, each of whole buffers of `size_bytes`."""

    kind: CollectiveKind
    size_bytes: int
    axis: Axis
    calls: int = 1

    @property
    def row(self) -> Layer:
        """It as a row of its own."""
        gathers = self.kind not in (ALL_REDUCE, REDUCE_SCATTER)
        name, role = ("parameter_gather", Role.GATHER) if gathers else ("gradient_reduce", Role.REDUCE)
        experts, group = ("_experts", Group.DP_EP) if self.axis is Axis.EXPERT_DATA else ("", Group.LOOP)
        return Layer(f"{name}{experts}", weight_grad=Phase(0, self.kind, self.size_bytes, group), role=role)


def sums(held: Held, plan: Plan, *, whole: bool = False, by_owners: bool = False) -> Iterator[Sum]:
    """What ends a step for the replicated parameters, then for the experts'; nothing with ZeRO 3.

    ZeRO 1 scatters the sums of the gradients (some software sends all of them to everybody: `whole`), hybrid sharding
    sums what a rank owns over replicas; then new weights are gathered, or every owner broadcasts its own. ZeRO 2 has
    scattered the sums before, ZeRO 3 gathers weights in the next step (Rajbhandari et al. 2020, section 7).
    """
    for count, axis, copies in (
        (held.trained, Axis.DATA, Axis.REPLICAS),
        (held.trained_experts, Axis.EXPERT_DATA, Axis.EXPERT_REPLICAS),
    ):
        summed, calls = count * plan.gradient_bytes, plan.sharing if by_owners else 1
        if count and plan.zero <= 1:
            yield Sum(ALL_REDUCE if whole or not plan.zero else REDUCE_SCATTER, summed, axis)
        if count and plan.zero == 1 and copies.layout(plan)[0] > 1:
            yield Sum(ALL_REDUCE, -(-summed // axis.layout(plan)[0]), copies)
        if count and plan.zero in (1, 2):
            kind = CollectiveKind.BROADCAST if by_owners else ALL_GATHER
            yield Sum(kind, count * plan.parameter_bytes // calls, axis, calls)


def _run_of(step: Step) -> bool | None:
    """What kernels of a run share: experts' gradients go out with a row of their own, to replicas of their own."""
    return step.part is Part.EXPERTS if isinstance(step, Kernel) else None


def _name(kernels: Sequence[Kernel]) -> str:
    """What a run of kernels is called: by both ends of a block where tensor ranks do not meet inside, or its first."""
    parts = dict.fromkeys(kernel.part for kernel in kernels)
    both = (NAMES.get(f"{one} {other}") for one, other in combinations(parts, 2))
    return next(filter(None, both), NAMES.get(kernels[0].part, str(kernels[0].part)))


def _phase(collective: Collective, kind: CollectiveKind | None) -> Phase:
    return IDLE if kind is None else Phase(0, kind, collective.size_bytes, GROUPS[collective.axis])


def _with(row: Layer, role: Role | None = None, **sent: Phase) -> Layer:
    """The row with these collectives behind its computations, and the role they give it."""
    computed = ((name, phase, getattr(row, name).compute_ns) for name, phase in sent.items() if phase != IDLE)
    behind: dict[str, Any] = {name: replace(phase, compute_ns=time_ns) for name, phase, time_ns in computed}
    return replace(row, role=role or row.role, **behind)


# --- workloads


def stage_workload(model: Model, plan: Plan, durations: Timer, stage: int = 0) -> Workload:
    """Rows of one rank of a pipeline stage for one step; InputError names the options that do not fit each other."""
    check_rows(model, plan)
    parts = plan.parts(stage)  # where two pipelines meet, a micro-batch passes through half of them
    return _workload(model, plan, Rows(model, plan, durations).step(parts[: len(parts) // plan.copies]))


def pipeline_workload(model: Model, plan: Plan, durations: Timer) -> Workload:
    """Rows of one rank of every part of the model in order; InputError as `stage_workload`."""
    check_rows(model, plan)
    rows = Rows(model, plan, durations)
    made = [rows.step((part,)) for part in range(plan.outline.parts)]
    lengths = tuple(map(len, made)) if plan.pp > 1 else ()
    return replace(_workload(model, plan, chain.from_iterable(made)), stage_rows=lengths)


def check_rows(model: Model, plan: Plan) -> None:
    """As `check`; InputError, too, where one collective of a row would need groups that a header cannot say."""
    check(model, plan)
    apart = model.experts is not None and (plan.ep > 1 or plan.expert_tp != plan.tp)
    for refused, option, message in (
        (plan.zero == 3 and apart, "stage", "rows cannot say that experts are shared by other ranks than all else"),
        (plan.zero == 3 and model.mtp_layers > 0, "stage", "rows cannot say what MTP modules share with the model"),
        (plan.shard > 0 and plan.zero < 3, "shard_ranks", "rows have hybrid sharding of parameters only (ZeRO 3)"),
        (plan.shard > 0 and plan.ep > 1, "shard_ranks", "rows cannot say ranks that share states beside expert ranks"),
    ):
        if refused:
            raise InputError.at(f"--{option}", message, hint="simcore predict takes such plans, and writes their steps")


def _workload(model: Model, plan: Plan, layers: Iterable[Layer]) -> Workload:
    handed = plan.passed_tokens(model) * model.hidden * plan.element_bytes // plan.apart if plan.pp > 1 else 0
    # Made, so that one that does not exist for so many micro-batches is refused here and not where the rows are run.
    told, schedule = tuple(unsaid(model, plan)), plan.order.name if plan.schedule and plan.pp > 1 else ""
    workload = Workload("HYBRID_TRANSFORMER_FWD_IN_BCKWD", tuple(layers), plan.sizes(model), "simai", name=model.name)
    return replace(workload, pipeline_bytes=handed, schedule=schedule, warnings=told)


def unsaid(model: Model, plan: Plan) -> list[str]:
    """What rows cannot say, and operation lists can."""
    found = []
    if size := tied_gradient_bytes(model, plan):
        shared = "tied" if model.tied else "shared"
        found.append(f"the first and the last stage also all-reduce {size} bytes of the {shared} word table's gradient")
    if 1 < plan.shard < plan.replicas:
        found.append("the sum of gradients over replicas does not wait for their reduce-scatter; in traces it does")
    if plan.offload:
        found.append(f"what moving {' and '.join(plan.offload)} to the host and back costs: predictions have it")
    return found
