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
    from simcore.jobs import run_jobs
    from simcore.report.model import Report
    from simcore.workload.chakra.builder import GraphBuilder, graph

__version__ = "0.1.0"

__all__ = [
    "GraphBuilder", "Report", "__version__", "graph", "load_topology", "load_workload", "predict", "run", "run_jobs",
]  # fmt: skip

_HOMES = dict.fromkeys(("load_topology", "load_workload", "predict", "run"), "simcore.api")
_HOMES |= dict.fromkeys(("GraphBuilder", "graph"), "simcore.workload.chakra.builder")
_HOMES |= {"Report": "simcore.report.model", "run_jobs": "simcore.jobs"}


def __getattr__(name: str) -> Any:
    """Import what is asked for, so that `simcore --help` does not pay for NumPy and SimPy."""
    if name not in _HOMES:
        raise AttributeError(f"module 'simcore' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
