"""simcore: a discrete-event simulator of distributed training steps.

>>> import simcore
>>> report = simcore.run("dlrm", "ring8", profile="astra-sim-1.0")
>>> report.to_dict()["classes"]
1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simcore.api import load_topology, load_workload, predict, run
    from simcore.report.model import Report

__version__ = "0.1.0"

__all__ = ["Report", "__version__", "load_topology", "load_workload", "predict", "run"]

_HOMES = {
    "Report": "simcore.report.model",
    "load_topology": "simcore.api",
    "load_workload": "simcore.api",
    "predict": "simcore.api",
    "run": "simcore.api",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that `simcore --help` does not pay for NumPy and SimPy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'simcore' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
