"""Other degrees of data and tensor parallelism: which recorded group changes, and what every transfer becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from simcore.errors import InputError
from simcore.replay.rank import RankView
from simcore.replay.whatif.transfers import Transfer
from simcore.workload.kineto import Collective
from simcore.workload.model import CollectiveKind, Group
from simcore.workload.operations import SEND, kind_of

__all__ = ["Degree", "Regrouping", "Role", "role_of", "roles"]

Role = Literal["dp", "tp"]
TITLES: dict[Role, str] = {"dp": "data parallel", "tp": "tensor parallel"}
# How process groups are described by Megatron-LM (TENSOR_MODEL_PARALLEL_GROUP) and PyTorch's device meshes (mesh_tp).
DESCRIBED = tuple(
    (group, re.compile(rf"{words}|(^|[^a-z])({short})([^a-z]|$)", re.IGNORECASE))
    for group, words, short in (
        (Group.DP_EP, "expert.*data", "edp"),
        (Group.EP, "expert", "ep"),
        (Group.CP, "context", "cp"),
        (Group.PP, "pipeline", "pp"),
        (Group.DP, "data", "dp|fsdp|ddp"),
        (Group.TP, "tensor", "tp"),
    )
)
BOTH_ENDS = re.compile("embedding", re.IGNORECASE)  # a pipeline's first and last stage
NEITHER = re.compile(r"_and_|expert", re.IGNORECASE)  # groups that mix roles, or belong to experts
OF_ONE_RANK = {CollectiveKind.ALL_GATHER, CollectiveKind.GATHER}  # their sizes are a rank's part of the buffer


@dataclass(frozen=True, slots=True)
class Regrouping:
    """A group of `old` ranks, `stride` apart, that becomes one of `new`.

    Ranks outside of it are numbered anew: rank = inner + stride * (place in the group + new * outer).
    """

    role: Role
    name: str
    old: int
    new: int
    stride: int

    def applied(self, said: Collective, transfer: Transfer) -> Transfer | None:
        """The transfer in the larger or smaller job; None where its group takes in part of the changed one.

        A buffer that the changed group gathers keeps its size, so each rank puts in another part of it. With another
        tensor parallel degree every rank holds, and data parallel ranks exchange, another part of the parameters.
        """
        if self.new == self.old or (not said.ranks and transfer.kind != SEND and said.group != self.name):
            return transfer
        cells = [self.cell(rank) for rank in transfer.ranks]
        others = sorted({(inner, outer) for inner, _, outer in cells})
        grown = transfer.kind != SEND and len(cells) == len(others) * self.old
        if grown:
            cells = [(inner, place, outer) for inner, outer in others for place in range(self.new)]
        elif transfer.kind != SEND and len({place for _, place, _ in cells}) > 1:
            return None
        ranks = [inner + self.stride * (place % self.new + self.new * outer) for inner, place, outer in cells]
        ranks = sorted(ranks) if grown else ranks
        divided = (grown and transfer.kind in OF_ONE_RANK) or (self.role == "tp" and _plays("dp", said.description))
        share = transfer.share * (self.old / self.new if divided else 1)
        return replace(transfer, ranks=tuple(ranks), share=share) if len(set(ranks)) == len(ranks) else None

    def cell(self, rank: int) -> tuple[int, int, int]:
        """(inner, place in the group, outer) of a recorded rank."""
        return rank % self.stride, rank // self.stride % self.old, rank // self.stride // self.old


@dataclass(frozen=True, slots=True)
class Degree:
    """Another number of ranks in the data or tensor parallel group; `named` finds it by description or ranks."""

    role: Role
    size: int
    named: re.Pattern[str] | None = None

    def __str__(self) -> str:
        return f"{self.role} = {self.size}"

    def of(self, rank: RankView) -> Regrouping:
        """What this means for the groups of a recorded rank.

        Raises
        ------
        InputError
            When the trace does not say which group it is, or its ranks are not evenly spaced.
        """
        name, ranks = self._group(rank)
        found = Regrouping(self.role, name, len(ranks), self.size, max(ranks[1] - ranks[0], 1))
        inner, _, outer = found.cell(ranks[0])
        if [found.cell(one) for one in ranks] != [(inner, place, outer) for place in range(len(ranks))]:
            raise self._refused(rank, f"ranks {list(ranks)}", "evenly spaced ranks of the group")
        return found

    def _group(self, rank: RankView) -> tuple[str, tuple[int, ...]]:
        """Name and ranks of the group named or described so; else data parallel is the only one without a role."""
        groups = _groups(rank)
        if self.named:
            chosen = [said for said in groups if self.named.search(f"{said.description} {said.group}")]
        else:
            chosen = [said for said in groups if _plays(self.role, said.description)]
            chosen = chosen or [said for said in groups if self.role == "dp" and _untold(said.description)]
        distinct = {said.ranks or said.group: said for said in chosen}
        if len(distinct) == 1:
            return chosen[0].group, _ranks(chosen[0])
        shown = "; ".join(dict.fromkeys(f"{said.description} {said.group}" for said in groups))
        found = f"{len(distinct)} such among the groups {shown[:200]}" if groups else "no process group of a collective"
        raise self._refused(rank, found, f"NCCL arguments of one {TITLES[self.role]} group")

    def _refused(self, rank: RankView, found: str, expected: str) -> InputError:
        return InputError.at(
            "--set",
            f"{self.role} cannot be changed: the trace does not say which collectives are {TITLES[self.role]}",
            expected=f"{expected} in {rank.trace.file}",
            found=found,
            hint=f"--group '{self.role}=REGEX' finds the group by its description or its ranks",
        )


def _plays(role: Role, description: str) -> bool:
    """Whether a group's description tells this role and not the other."""
    return [name for name in roles(description) if name in TITLES] == [role] and not NEITHER.search(description)


def roles(description: str) -> list[Group]:
    """The roles that a group's description tells; what divides the model first comes first."""
    return [group for group, pattern in DESCRIBED if pattern.search(description)]


def role_of(said: Collective) -> str:
    """The role of a process group by its description: what divides the model first; transfers are a pipeline's."""
    usual = kind_of(said.operation) == SEND or BOTH_ENDS.search(said.description)
    return str(next(iter(roles(said.description)), Group.PP if usual else ""))


def _untold(description: str) -> bool:
    """Whether a group's description tells no role at all, as PyTorch's default_pg."""
    return not roles(description) and not NEITHER.search(description) and not BOTH_ENDS.search(description)


def _groups(rank: RankView) -> list[Collective]:
    """A collective of every process group with more than one rank."""
    collectives = (said for said in rank.trace.collectives.values() if said.size > 1)
    found = {(said.group, said.description): said for said in collectives if kind_of(said.operation) != SEND}
    return list(found.values())


def _ranks(said: Collective) -> tuple[int, ...]:
    return said.ranks or tuple(range(said.size))
