"""`simcore convert`: workloads and traces to Chakra, JSON and back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from simcore.cli.command import refuse_idle, warn
from simcore.cli.kinds import forced
from simcore.errors import InputError
from simcore.files import make_folder
from simcore.generate.synthetic import merge
from simcore.network.topology.load import load
from simcore.workload.chakra import groups, reader, writer
from simcore.workload.chakra.convert.conversion import SOURCES, TEXT, Options, convert, source_of
from simcore.workload.chakra.param_form import to_param

OPTIONS = {name for kind in SOURCES for name in kind.takes}


def command(source: str, target: str, **given: Any) -> None:
    """Convert SOURCE to Chakra traces TARGET.RANK.et, or a trace to TARGET.et or TARGET.json."""
    asked, kind = SimpleNamespace(**given), source_of(source)
    if asked.form:
        if kind is TEXT and Path(source).exists():
            hint = f"simcore convert {source} traces/w, then simcore convert traces/w {target} --to {asked.form}"
            raise InputError.at("--to", "takes traces as they are", expected="traces", hint=hint)
        refuse_idle(("npus",) * Path(source).is_file(), OPTIONS, kind.name)
        writer.write_files(_for_param(source, target, asked.npus, asked.comm_groups), force=forced())
        return
    dims = tuple(dim.npus for dim in load(asked.topology).dims) if asked.topology else (asked.npus,) * asked.native
    options = Options(
        asked.npus, asked.iterations, asked.compat == "chakra", asked.kineto, asked.rank, dims, asked.policy.upper(),
        asked.num_dims or 0, asked.npu_frequency, warn,
    )  # fmt: skip
    made = convert(source, target, options)
    refuse_idle(kind.takes, OPTIONS, kind.name)
    writer.write_files(made, force=forced())
    if not asked.native and kind is TEXT:
        warn("ASTRA-sim, and profile astra-sim-2, play compute columns as microseconds, as Chakra's converter does"
             + "; the other profiles too" * bool(asked.compat))  # fmt: skip


def _for_param(source: str, target: str, npus: int, comm_groups: str) -> dict[Path, bytes]:
    """PARAM's trace of every rank of a set; all ranks of a group must run the same collectives in one order."""
    count = npus if Path(source).is_file() else reader.count_ranks(source)
    graphs = reader.read_graphs(source, count, groups.of_set(source, count, comm_groups))
    merge(graphs)
    made, folder = to_param(graphs), make_folder(target, force=True)
    return {folder / f"{rank}.json": data for rank, data in enumerate(made)}
