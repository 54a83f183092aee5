"""`simcore convert`: workloads and traces to Chakra, JSON and back."""

from __future__ import annotations

from pathlib import Path

from simcore.cli.command import warn
from simcore.cli.kinds import forced
from simcore.errors import InputError
from simcore.files import make_folder
from simcore.generate.synthetic import merge
from simcore.network.topology.load import load
from simcore.workload.chakra import reader, writer
from simcore.workload.chakra.convert.conversion import Options, convert, is_text
from simcore.workload.chakra.groups import read_groups
from simcore.workload.chakra.param_form import to_param


def command(
    source: str,
    target: str,
    npus: int,
    iterations: int,
    kineto: str,
    rank: int,
    native: bool,
    topology: str,
    policy: str,
    num_dims: int | None,
    npu_frequency: float | None,
    form: str | None,
    comm_groups: str,
    compat: str | None,
) -> None:
    """Convert SOURCE to Chakra traces TARGET.RANK.et, or a trace to TARGET.et or TARGET.json."""
    if form:
        others = is_text(source) and Path(source).exists()
        if kineto or native or topology or num_dims or npu_frequency or compat or iterations > 1 or others:
            hint = f"simcore convert {source} traces/w, then simcore convert traces/w {target} --to {form}"
            raise InputError.at("--to", "takes traces as they are", expected="traces, and no other option", hint=hint)
        writer.write_files(_for_param(source, target, npus, comm_groups), force=forced())
        return
    if comm_groups:
        raise InputError.at("--comm-groups", "belongs to --to param")
    if native and compat:
        raise InputError.at("--native", "excludes --compat", hint="Chakra's converter makes another graph")
    if topology and not native:
        raise InputError.at("--topology", "belongs to --native", hint="--npus says how many ranks to write")
    if num_dims and (native or not is_text(source)):
        raise InputError.at("--num-dims", "belongs to a text workload without --native", found=source)
    sizes = tuple(dim.npus for dim in load(topology).dims) if topology else (npus,) * native
    exactly = compat == "chakra"
    options = Options(npus, iterations, exactly, kineto, rank, sizes, policy.upper(), num_dims or 0, npu_frequency)
    files = convert(source, target, options)
    writer.write_files(files, force=forced())
    if not native and is_text(source):
        warn("ASTRA-sim, and profile astra-sim-2, play compute columns as microseconds, as Chakra's converter does"
             + "; the other profiles too" * bool(compat))  # fmt: skip


def _for_param(source: str, target: str, npus: int, comm_groups: str) -> dict[Path, bytes]:
    """PARAM's trace of every rank of a set; all ranks of a group must run the same collectives in one order."""
    count = npus if Path(source).is_file() else max(reader.files_of_set(source), default=0) + 1
    graphs = reader.read_graphs(source, count, read_groups(comm_groups, count) if comm_groups else {})
    merge(graphs)
    made, folder = to_param(graphs), make_folder(target, force=True)
    return {folder / f"{rank}.json": data for rank, data in enumerate(made)}
