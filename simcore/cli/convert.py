"""`simcore convert`: workloads and traces to Chakra, JSON and back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from simcore.cli.command import warn
from simcore.cli.kinds import forced
from simcore.errors import InputError
from simcore.files import make_folder
from simcore.generate.synthetic import merge
from simcore.network.topology.load import load
from simcore.workload.chakra import groups, reader, writer
from simcore.workload.chakra.convert.conversion import Options, convert, is_text
from simcore.workload.chakra.param_form import to_param


def command(source: str, target: str, **given: Any) -> None:
    """Convert SOURCE to Chakra traces TARGET.RANK.et, or a trace to TARGET.et or TARGET.json."""
    asked = SimpleNamespace(**given)
    if asked.form:
        with_text = is_text(source) and Path(source).exists()
        others = asked.kineto, asked.native, asked.topology, asked.num_dims, asked.npu_frequency, asked.compat
        if any(others) or asked.iterations > 1 or with_text:
            hint = f"simcore convert {source} traces/w, then simcore convert traces/w {target} --to {asked.form}"
            raise InputError.at("--to", "takes traces as they are", expected="traces, and no other option", hint=hint)
        writer.write_files(_for_param(source, target, asked.npus, asked.comm_groups), force=forced())
        return
    if asked.comm_groups:
        raise InputError.at("--comm-groups", "belongs to --to param")
    if asked.native and asked.compat:
        raise InputError.at("--native", "excludes --compat", hint="Chakra's converter makes another graph")
    if asked.topology and not asked.native:
        raise InputError.at("--topology", "belongs to --native", hint="--npus says how many ranks to write")
    if asked.num_dims and (asked.native or not is_text(source)):
        raise InputError.at("--num-dims", "belongs to a text workload without --native", found=source)
    dims = tuple(dim.npus for dim in load(asked.topology).dims) if asked.topology else (asked.npus,) * asked.native
    options = Options(
        asked.npus, asked.iterations, asked.compat == "chakra", asked.kineto, asked.rank, dims, asked.policy.upper(),
        asked.num_dims or 0, asked.npu_frequency, warn,
    )  # fmt: skip
    writer.write_files(convert(source, target, options), force=forced())
    if not asked.native and is_text(source):
        warn("ASTRA-sim, and profile astra-sim-2, play compute columns as microseconds, as Chakra's converter does"
             + "; the other profiles too" * bool(asked.compat))  # fmt: skip


def _for_param(source: str, target: str, npus: int, comm_groups: str) -> dict[Path, bytes]:
    """PARAM's trace of every rank of a set; all ranks of a group must run the same collectives in one order."""
    count = npus if Path(source).is_file() else reader.count_ranks(source)
    graphs = reader.read_graphs(source, count, groups.of_set(source, count, comm_groups))
    merge(graphs)
    made, folder = to_param(graphs), make_folder(target, force=True)
    return {folder / f"{rank}.json": data for rank, data in enumerate(made)}
