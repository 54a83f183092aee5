"""All kinds a dimension can have, by name: importing them enters them. A new kind is one file and one line here."""

from __future__ import annotations

from simcore.network.topology import dragonfly, fat_tree, fully_connected, ring, switch
from simcore.network.topology.fabric import FABRICS

__all__ = ["BUILT_IN", "FABRICS"]

BUILT_IN = (ring, fully_connected, switch, fat_tree, dragonfly)
