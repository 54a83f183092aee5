"""Two things aligned, A and B: what every comparison shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, TypeVar

from simcore.errors import printable
from simcore.report.table import Table
from simcore.report.text import wrapped

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure in A and in B."""

    a: int
    b: int

    @property
    def difference(self) -> int:
        """What B has more than A."""
        return self.b - self.a

    @property
    def sides(self) -> tuple[int, int, int]:
        """Cells of the columns of `both`."""
        return self.a, self.b, self.difference


def align(a: Mapping[K, V], b: Mapping[K, V], missing: W) -> Iterator[tuple[K, V | W, V | W]]:
    """Both sides of every key: those of A in its order, then what only B has."""
    return ((key, a.get(key, missing), b.get(key, missing)) for key in dict.fromkeys([*a, *b]))


def both(unit: str, what: str = "") -> tuple[tuple[str, str, str], ...]:
    """Columns of a figure: in A, in B, and what B has more."""
    return ("a", f"{what} A".strip(), unit), ("b", f"{what} B".strip(), unit), ("change", "B - A", f"+{unit}")


class Comparison(ABC):
    """Two things aligned: a sentence that says what changed and why, and tables of what changed most."""

    SCHEMA: ClassVar[str]

    def to_dict(self) -> dict[str, object]:
        """A JSON document: every pair as {"a", "b"}."""
        return {"schema": self.SCHEMA, **asdict(self)}  # type: ignore[call-overload]  # those that can be made are dataclasses

    @abstractmethod
    def headline(self) -> str:
        """What changed, in a sentence."""

    @abstractmethod
    def about(self) -> str:
        """What A and B are, or in what they differ."""

    @abstractmethod
    def tables(self) -> Iterator[Table]:
        """What changed, most first."""

    def render(self, *, width: int = 80, num_rows: int = 12) -> str:
        """The comparison for a terminal."""
        words = (wrapped(printable(text), width) for text in (self.headline(), self.about()))
        parts = (*words, *(table.first(num_rows).text(width) for table in self.tables()))
        return "\n\n".join(filter(None, parts)) + "\n"
