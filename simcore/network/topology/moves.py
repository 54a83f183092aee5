"""Moves of equal places, after which all looks as before, and who plays for whom then."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Places = TypeVar("Places", int, NDArray[np.int64])


class Symmetry(Enum):
    """Moves by their kind."""

    NONE = auto()
    """None: every place has its own part."""
    EXCHANGES = auto()
    """Place p becomes p XOR something."""
    TURNS = auto()
    """All places move on by some, the last to the first."""
    OWN = auto()
    """Those of a fabric of its own kind, as it says."""


class Moves(Protocol):
    """Moves of one kind: there is one that brings place 0 to each other one. They are equal, and have a hash."""

    symmetry: Symmetry

    def on(self, places: Places, by: Places) -> Places:
        """Where the move that brings place 0 to `by` brings others."""

    def back(self, places: Places, by: Places) -> Places:
        """Where they come from."""


class Turns(Struct, frozen=True):
    """On by so many of `size` places."""

    size: int
    symmetry = Symmetry.TURNS

    def on(self, places: Places, by: Places) -> Places:
        """As of `Moves`."""
        return (places + by) % self.size

    def back(self, places: Places, by: Places) -> Places:
        """As of `Moves`."""
        return (places - by) % self.size


class Exchanges(Struct, frozen=True):
    """In pairs, of places whose numbers differ in the same bits."""

    symmetry = Symmetry.EXCHANGES

    def on(self, places: Places, by: Places) -> Places:
        """As of `Moves`."""
        return places ^ by

    back = on


class Fold(Struct, frozen=True):
    """Which NPUs play for others: of every `width` neighbours the first `inner` ones, each for those `inner` apart."""

    width: int = 1
    inner: int = 1

    def of(self, npus: NDArray[np.int64]) -> NDArray[np.int64]:
        """Who plays for each."""
        return npus - npus % self.width + npus % self.width % self.inner

    def fits(self, kinds: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of rows of neighbours, each told by what it does: whether all do what those do who play for them."""
        found: NDArray[np.bool_] = (kinds == kinds[..., self.of(np.arange(kinds.shape[-1]))]).all(axis=-1)
        return found

    def players(self, members: NDArray[np.int64]) -> int:
        """How many of a group play: the first ones, for those behind them in turn."""
        own = self.of(members[: self.inner + 1])
        again = np.flatnonzero(own[1:] == own[0])
        return int(again[0]) + 1 if len(again) else len(members)

    def classes(self, npus: int) -> list[range]:
        """The NPUs of each that plays."""
        firsts = range(0, npus, self.width)
        return [range(first + own, first + self.width, self.inner) for first in firsts for own in range(self.inner)]


EVERYBODY = Fold()
