"""Which ranks stand together: Megatron-LM's order, tensor ranks innermost, then context, data and pipeline.

Experts: their tensor ranks innermost, then expert ranks, then the replicas of an expert, all within a stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simcore.model.plan import Plan
from simcore.model.steps import Axis


@dataclass(frozen=True, slots=True)
class Groups:
    """Every group of more than one rank by its number, and the number of a rank's group of each kind."""

    members: Mapping[int, tuple[int, ...]]
    number: Mapping[tuple[str, int], int]

    def of(self, kind: str, rank: int) -> int:
        """Number of the group of this kind (as in operation lists) that a rank is in; 0: it is alone."""
        return self.number.get((kind, rank), 0)


def groups_of(plan: Plan) -> Groups:
    """All groups of a plan, numbered from 1 by kind, then by their first rank.

    >>> groups = groups_of(Plan(8, 128, tp=2, pp=2))
    >>> groups.members[groups.of("dp_group", 5)], groups.of("ep_group", 5)
    ((5, 7), 0)
    """
    members: dict[int, tuple[int, ...]] = {}
    number: dict[tuple[str, int], int] = {}
    for kind, (size, stride) in _layout(plan).items():
        for rank in range(plan.world_size if size > 1 else 0):
            if (kind, rank) in number or rank + stride * (size - 1) >= plan.world_size:
                continue
            group = tuple(rank + stride * place for place in range(size))
            members[len(members) + 1] = group
            number |= {(kind, member): len(members) for member in group}
    return Groups(members, number)


def _layout(plan: Plan) -> dict[str, tuple[int, int]]:
    """Number of ranks and distance of neighbours of each kind of group."""
    whole = plan.but(shard=0)
    return {
        "tp_group": Axis.TENSOR.layout(plan),
        "cp_group": Axis.CONTEXT.layout(plan),
        "dp_group": Axis.DATA.layout(whole),
        "ep_group": Axis.EXPERT.layout(plan),
        "ep_dp_group": Axis.EXPERT_DATA.layout(whole),
        "shard_group": Axis.DATA.layout(plan) if plan.shard else (1, 1),
        "replica_group": Axis.REPLICAS.layout(plan),
        # Ranks of the first stage with those in their place in the last: both hold a tied word table.
        "embedding_group": (min(plan.pp, 2), plan.world_size // plan.pp * (plan.pp - 1)),
    }
