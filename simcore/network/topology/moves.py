"""Moves of equal places: what all of them may do at once, after which everything looks as before."""

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
