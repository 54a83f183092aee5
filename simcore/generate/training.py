"""A training step of a transformer as a workload: the rows of one rank of a pipeline stage, or of all stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from simcore.errors import InputError
from simcore.model.memory import part_parameters, tied_gradient_bytes
from simcore.model.plan import Plan, check
from simcore.model.rows import Rows, Timer
from simcore.model.shape import Model
from simcore.workload.model import Layer, Workload

LOOP = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"


def stage_workload(model: Model, plan: Plan, durations: Timer, stage: int = 0) -> Workload:
    """Rows of one rank of a pipeline stage for one step; InputError names the options that do not fit each other."""
    check_rows(model, plan)
    parts = plan.parts(stage)  # where two pipelines meet, a micro-batch passes through half of them
    return _workload(model, plan, _rows(Rows(model, plan, durations), parts[: len(parts) // plan.copies]))


def pipeline_workload(model: Model, plan: Plan, durations: Timer) -> Workload:
    """Rows of one rank of every part of the model in order; InputError as `stage_workload`."""
    check_rows(model, plan)
    rows = Rows(model, plan, durations)
    made = [_rows(rows, (part,)) for part in range(plan.outline.parts)]
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


def _rows(rows: Rows, parts: tuple[int, ...]) -> list[Layer]:
    """The end of the step, then every micro-batch of some parts of the model."""
    held = part_parameters(rows.model, rows.plan, parts)
    first, later = ([row for part in parts for row in rows.micro_batch(part, last=last)] for last in (True, False))
    return [*rows.end(held), *first, *(later * (rows.plan.micro_batches - 1))]


def _workload(model: Model, plan: Plan, layers: Iterable[Layer]) -> Workload:
    handed = plan.tokens * model.hidden * plan.element_bytes // plan.apart if plan.pp > 1 else 0
    told, schedule = tuple(unsaid(model, plan)), plan.schedule if plan.pp > 1 else ""
    workload = Workload(LOOP, tuple(layers), plan.sizes, "simai", pipeline_bytes=handed, schedule=schedule)
    return replace(workload, name=model.name, warnings=told)


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
