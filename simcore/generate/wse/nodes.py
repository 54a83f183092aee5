"""The node level: the operations of every node in every step, their totals, and the memory footprint."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.generate.wse.exchange import Exchange, Routed
from simcore.generate.wse.experts import mixture
from simcore.generate.wse.operations import MOVEMENT, Block, Operation, Owner, Part, Rows, Scope, Step, index_of, tensor
from simcore.generate.wse.routing import Routing, draw
from simcore.generate.wse.rows import attention, dense, head
from simcore.generate.wse.settings import Ints, System
from simcore.generate.wse.training import backward
from simcore.model.plan import split
from simcore.model.shape import Model
from simcore.workload.model import PhaseName


class Job(Struct, frozen=True):
    """Everything that the rows of a phase follow from.

    `layers` are names in the model's order (`decode0` ... `lm_head`, in prefill too); `routing` holds arrays given
    by the user per step, or None to draw them; `counts` tokens per expert for empirical routing. `phase` is "prefill",
    "decode", or "train": a step of sequences of `prefill_len` positions, the prefill's rows and the backward pass's.
    """

    model: Model
    system: System
    batch: int
    prefill_len: int
    decode_len: int
    speculative: int
    element_bytes: int
    layers: tuple[str, ...]
    phase: str
    simplified: bool = True
    routing: dict[str, Routing] | None = None
    counts: Ints | None = None
    seed: int = 42


def steps(job: Job) -> list[Step]:
    """The steps of the job: the prefill, or decode steps (the first and the last when simplified).

    Routing given by the user chooses among them.
    """
    if job.phase != "decode":
        made = [Step(job.phase, 0, job.prefill_len)]
    else:
        last = job.decode_len - 1
        numbers = sorted({0, last}) if job.simplified else range(job.decode_len)
        made = [Step(f"decode{i}", job.prefill_len + i, 1 + job.speculative) for i in numbers]
    return [step for step in made if job.routing is None or step.name in job.routing]


def exchanges(job: Job, step: Step) -> Routed:
    """What each selected expert layer moves in a step on each copy of its experts, by the layer's name."""
    experts = job.model.experts
    if experts is None:
        return {}
    number = 0 if step.prefill else step.context - job.prefill_len
    given = (job.routing or {}).get(step.name, {})
    names = [name for name in job.layers if name != "lm_head" and not job.model.dense(index_of(name))]
    drawn: Routing = {}
    if any(f"{name}_moe" not in given for name in names):
        drawn = draw(job.model, job.system.routing, (job.batch, step.queries), number, job.counts, job.seed)
    arrays = drawn | given
    return {name: Exchange.of(arrays[f"{name}_moe"], experts, job.system) for name in names}


def _stage_layers(job: Job, node: int) -> list[str]:
    """The selected layers that run on the node's pipeline stage; the head is on the last."""
    stage = node // job.system.stage_nodes
    held = split(job.model.layers, job.system.pp)[stage]
    last = stage == job.system.pp - 1
    return [name for name in job.layers if (last if name == "lm_head" else index_of(name) in held)]


def _beside(job: Job, node: int, step: int) -> int | None:
    """The node in the same place of the nearest stage with layers, `step` 1 behind and -1 before its own."""
    stage, end = job.system.stage_nodes, job.system.nodes if step > 0 else -1
    places = range(node + step * stage, end, step * stage)
    return next((place for place in places if _stage_layers(job, place)), None)


def operations(job: Job, step: Step, node: int, routed: Routed, *, movement: bool = True) -> Iterator[Operation]:
    """The rows of one node in one step, in the order of execution; `movement` adds those that cost nothing."""
    trains = job.phase == "train"
    scope = Scope(job.model, job.system, step, job.batch, job.element_bytes, node, movement, trains or not movement)
    if not (layers := _stage_layers(job, node)):
        return
    here = node % job.system.stage_nodes // job.system.replica_nodes
    own = {name: copies[here] for name, copies in routed.items()}
    rows = _forward(job, scope, layers, own)
    if not trains:
        yield from rows
        return
    made = []
    for each in rows:
        made.append(each)
        yield each
    yield from _backward(job, scope, made, own)


def _forward(job: Job, scope: Scope, layers: list[str], routed: dict[str, Exchange]) -> Iterator[Operation]:
    """The layers of the node's stage, with what comes from the stage before and goes to the one after."""
    node, before, block = scope.node, _beside(job, scope.node, -1), Block(scope, layers[0])
    if before is not None:  # what the previous stage sent
        sent = _stage_layers(job, before)
        yield _meeting(f"{sent[-1]}_pp_barrier", before, node, Owner(sent[-1], Part.STAGES))
        source = tensor(node, f"{sent[-1]}_pp_{before}")
    else:  # this cluster's part of all queries
        shape, local = (scope.batch, scope.step.queries, scope.model.hidden), scope.local
        yield block.move("queries", "Slice", (shape, 0, local.start, local.stop), tensor(node, "queries"))
        source = block.at("queries")
    for name in layers:
        source = yield from _layer(scope, name, source, routed)
    yield from _passed(scope, _beside(job, node, 1), Owner(layers[-1], Part.STAGES), source)


def _backward(job: Job, scope: Scope, rows: list[Operation], routed: dict[str, Exchange]) -> Iterator[Operation]:
    """The same layers backwards; gradients go to the stage before."""
    layers, after = _stage_layers(job, scope.node), _beside(job, scope.node, 1)
    if after is not None:
        held = _stage_layers(job, after)
        whose = Owner(held[0], Part.STAGES, PhaseName.INPUT_GRAD)
        yield _meeting(f"{held[0]}_pp_barrier_dgrad", scope.node, after, whose)
    own = [each for each in rows if each.of and each.of.part is not Part.STAGES and each.kind not in MOVEMENT]
    yield from backward(scope, own, routed)
    whose = Owner(layers[0], Part.STAGES, PhaseName.INPUT_GRAD)
    yield from _passed(scope, _beside(job, scope.node, -1), whose, "", "_dgrad")


def _passed(scope: Scope, goal: int | None, of: Owner, source: str, suffix: str = "") -> Iterator[Operation]:
    """Send the output, or its gradient, to the node in the same place of the next stage; wait until it is there."""
    if goal is None:
        return
    uid, inputs = f"{of.layer}_pp", filter(None, [source])
    yield Block(scope, uid).unicast(f"{uid}{suffix}", goal, scope.shape, *inputs)._replace(of=of)
    yield _meeting(f"{uid}_barrier{suffix}", scope.node, goal, of)


def _meeting(uid: str, first: int, second: int, of: Owner) -> Operation:
    """Two nodes of neighbouring stages wait for each other."""
    return Operation(uid, "Barrier", (), group=tuple(sorted((first, second))), of=of)


def _layer(scope: Scope, name: str, source: str, routed: dict[str, Exchange]) -> Rows:
    """One layer, or the head."""
    if name == "lm_head":
        return (yield from scope.owned(name, Part.DENSE, head(scope, name, source)))
    out = yield from scope.owned(name, Part.ATTENTION, attention(scope, name, source))
    if name in routed and scope.model.experts:
        rows = mixture(scope, scope.model.experts, routed[name], name, out)
        return (yield from scope.owned(name, Part.MIXTURE, rows))
    suffix = "dense" if scope.model.latent else "ffn"
    return (yield from scope.owned(name, Part.DENSE, dense(scope, f"{name}_{suffix}", out)))


def totals(job: Job, step: Step, nodes: list[int], routed: Routed) -> list[list[int]]:
    """[memory bytes, multiply-accumulates, HBM bytes, network bytes] of each node in a step."""
    sums = []
    for node in nodes:
        rows = (row[5:9] for row in operations(job, step, node, routed, movement=False))
        macs, memory, hbm, net = (sum(column) for column in zip((0, 0, 0, 0), *rows, strict=True))
        sums.append([memory, macs, hbm, net])
    return sums


def footprint_bytes(job: Job, nodes: list[int]) -> list[int]:
    """Weights and cache of each node at the end of decoding: all its experts, without the head."""
    step = Step("decode", job.prefill_len + job.decode_len, 1)
    layers = tuple(name for name in job.layers if name != "lm_head")
    system = replace(job.system, exchange="allgather")  # looks at no token by itself
    resting = replace(job, layers=layers, phase="decode", system=system)
    routed: Routed = {}
    if experts := job.model.experts:  # every expert and every copy has a token, so that all weights are counted
        many = max(experts.count * system.dp_ffn, system.stage_nodes)
        rows = ceil(many / system.dp) * system.dp  # as many in each cluster
        everyone = Exchange.of(np.arange(rows).reshape(1, rows, 1) % experts.count, experts, system)
        routed = {name: everyone for name in layers if not job.model.dense(index_of(name))}
    return [total[0] for total in totals(resting, step, nodes, routed)]
