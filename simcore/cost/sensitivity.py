"""Which constants an answer follows: those of kernels, of the software and of the collectives, one moved at a time.

Memory is a sum of bytes: each part's share of them is how it follows the bytes of that part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import fsum
from typing import Any, TypeVar

from simcore.cost.published.rows import Collective, Held, Question, Step
from simcore.cost.systems import Cluster, Software
from simcore.model.timing import Loop
from simcore.system.collectives.nccl import Fabric

STEP = 0.05

Made = TypeVar("Made", Loop, Software, Fabric)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How an answer follows a constant: relative change of the answer per relative change of the constant."""

    constant: str
    elasticity: float


def of_question(question: Question) -> list[Sensitivity]:
    """All constants that move the answer to a question, the strongest first."""
    if isinstance(question, Step):
        name = question.cluster if isinstance(question.cluster, str) else ""
        return of_cluster(question.system(), lambda cluster: replace(question, cluster=cluster).seconds(), name)
    if isinstance(question, Collective):
        fabrics = _moved(question.fabric)
        moved = ((f"{other.name}.{key}", replace(question, fabric=other).seconds()) for key, other in fabrics)
        return _elasticities(question.seconds(), moved)
    parts = question.explained().parts
    whole, unit = fsum(parts.values()), "bytes" if isinstance(question, Held) else "time"
    return _sorted(Sensitivity(f"{unit} of {name}", part / whole) for name, part in parts.items())


def of_cluster(cluster: Cluster, seconds: Callable[[Cluster], float], name: str = "") -> list[Sensitivity]:
    """The same of any answer about a cluster; `name` is what its software constants go by."""
    software, device = cluster.software, cluster.accelerator
    kernels = ((f"{device}.{key}", replace(software, kernels=moved)) for key, moved in _moved(software.kernels))
    costs = ((f"{name or 'software'}.{key}", moved) for key, moved in _moved(software))
    fabrics = ((f"{moved.name}.{key}", replace(cluster, fabric=moved)) for key, moved in _moved(cluster.fabric))
    changed = [*((label, replace(cluster, software=moved)) for label, moved in (*kernels, *costs)), *fabrics]
    return _elasticities(seconds(cluster), ((label, seconds(moved)) for label, moved in changed))


def averaged(answers: Sequence[Sequence[Sensitivity]]) -> list[Sensitivity]:
    """The mean over several answers."""
    sums: dict[str, float] = {}
    for one in (each for answer in answers for each in answer):
        sums[one.constant] = sums.get(one.constant, 0.0) + one.elasticity / len(answers)
    return _sorted(Sensitivity(name, elasticity) for name, elasticity in sums.items())


def _elasticities(base: float, moved: Iterable[tuple[str, float]]) -> list[Sensitivity]:
    return _sorted(Sensitivity(name, (answer / base - 1) / STEP) for name, answer in moved if answer != base)


def _sorted(some: Iterable[Sensitivity]) -> list[Sensitivity]:
    return sorted(some, key=lambda one: (-abs(one.elasticity), one.constant))


def told(some: Sequence[Sensitivity]) -> str:
    """The three constants that matter most, for people."""
    return ", ".join(f"{one.constant} {one.elasticity:+.2f}" for one in some[:3])


def _moved(constants: Made) -> Iterator[tuple[str, Made]]:
    """A dataclass with each of its numbers moved, and that number's name; a zero means that something is left out."""
    for name in (field.name for field in fields(constants)):
        value = getattr(constants, name)
        if isinstance(value, float) and value:
            moved: Any = {name: value * (1 + STEP)}
            yield name, replace(constants, **moved)
