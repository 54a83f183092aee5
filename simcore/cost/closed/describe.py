"""What the cost commands print, in the lines of training-run-cost, and their JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from simcore.cost.closed.operation import OperationCost
from simcore.cost.closed.simple import Chip, Setup, SimpleRun, Variant
from simcore.cost.closed.transformer import Cost, Pass, RunCost
from simcore.units import format_rate

DAY_S = 86400.0
Figures = dict[str, float]
Rates = dict[str, float]


def figures(cost: Pass) -> Figures:
    """FLOP, Tx, Rx and net of a pass; the traffic in elements."""
    return {"FLOP": cost.flop, "Tx": cost.sent, "Rx": cost.received, "net": cost.sent + cost.received}


def columns(cost: Cost) -> dict[str, Figures]:
    """The figures of the forward pass, the backward pass and both."""
    return {"fwd": figures(cost.forward), "bwd": figures(cost.backward), "total": figures(cost.forward + cost.backward)}


def rates(run: RunCost, cluster_flop_rate: float, precision_bytes: float) -> Rates:
    """Rates of one cluster while it computes at `cluster_flop_rate`, bytes per second, and the run's seconds."""
    found = figures(run.done)
    bytes_per_s = {key: precision_bytes * found[key] / found["FLOP"] * cluster_flop_rate for key in ("net", "Tx", "Rx")}
    runtime_s = found["FLOP"] / (run.grid.clusters * cluster_flop_rate)
    return {"FLOP": cluster_flop_rate, **bytes_per_s, "runtime_s": runtime_s}


def transformer_document(run: RunCost, found: Rates | None) -> dict[str, object]:
    """The JSON of `cost transformer`: elements, FLOP, and with a rate bytes per second and seconds."""
    table = columns(run.total)
    document: dict[str, object] = {
        "N": run.parameters,
        "N_effective": run.parameters / run.model.experts,
        "D": run.tokens,
        "p": run.grid.clusters,
        "n_batches": run.training.batches,
        "batch_size": run.training.batch_size,
        "microbatch_sizes": None if run.microbatch_sizes is None else list(run.microbatch_sizes),
        "parts": [{"name": name, **columns(cost)} for name, cost in (*run.weights, *run.of_tokens)],
    }
    document |= {metric: {column: table[column][metric] for column in table} for metric in ("FLOP", "Tx", "Rx", "net")}
    if found is not None:
        per_cluster = {f"{key}_bytes_per_s": found[key] for key in ("net", "Tx", "Rx")}
        document["cluster"] = {"flop_per_s": found["FLOP"], **per_cluster}
        document["runtime_s"] = found["runtime_s"]
    return document


def transformer_lines(run: RunCost, found: Rates | None) -> Iterator[str]:
    """The text of `cost transformer`."""
    yield f"N: {run.parameters:.3e} ({run.parameters / run.model.experts:.3e} effective)"
    yield f"D: {run.tokens:.3e}"
    sizes = run.microbatch_sizes
    told = f" (microbatch size must be in {list(sizes)} to be efficient)" if sizes is not None else ""
    yield f"b: {run.training.batch_size}{told}"
    axes = ", ".join(f"{name.upper()}: {degree}" for name, degree in asdict(run.grid).items())
    yield f"P: {run.grid.clusters} = {{{axes}}}"
    yield from ("", "", "FULL TRAINING RUN COST")
    table = columns(run.total)
    shown = ["fwd"] if run.training.forward_only else [*table]
    yield f"{'Metric':>10}" + "".join(f"{column.title():>15}" for column in shown)
    for metric in table["fwd"]:
        yield f"{metric:>10}" + "".join(f"{table[column][metric]:>15.3e}" for column in shown)
    if found is None:
        return
    for who, count in (("Cluster", 1), ("Total", run.grid.clusters)):
        net, sent, received = (found[key] * count for key in ("net", "Tx", "Rx"))
        yield ""
        yield f"{who + ' FLOP/sec:':<21}{found['FLOP'] * count:.3e}"
        yield f"{who + ' bytes/sec:':<21}{net:.3e} ({sent:.3e} Tx, {received:.3e} Rx)"
    yield ""
    yield f"{'Runtime:':<21}{duration(found['runtime_s'])}"


def duration(seconds: float) -> str:
    """Days, hours, minutes or seconds with one decimal."""
    for unit, length in (("days", DAY_S), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def _count(number: float | None) -> str:
    """A number with one decimal, or two digits when it is small."""
    return f"{number:,.1f}" if number and number >= 1 else f"{number:.2g}"


def simple_lines(
    run: SimpleRun, setup: Setup, name: str, hardware: Chip, variant: Variant, base_utilization: float
) -> list[str]:
    """The text of `cost simple`: `simple.readme.txt` and `simple.head.txt` have its lines."""
    lines = Path(__file__).with_name(f"simple.{variant}.txt").read_text(encoding="utf-8").splitlines()
    memory, network = hardware.memory_bytes_per_s / 1e12, hardware.network_bytes_per_s / 1e9
    rates = {"tera_flop": hardware.flop_per_s / 1e12, "memory": memory, "network": network}
    return [line.format(run=run, setup=setup, name=name, utilization=base_utilization, **rates) for line in lines]


def operation_lines(cost: OperationCost) -> Iterator[str]:
    """What operating the run adds; only what was asked."""
    yield from ("", "OPERATION")
    if cost.break_even_bytes_per_s is not None:
        yield f"{'Break-even link:':<21}{format_rate(cost.break_even_bytes_per_s)} a cluster"
    if cost.communication_s is not None:
        bound = "the links" if cost.communication_s > cost.ideal_s else "the arithmetic"
        yield f"{'Link time:':<21}{duration(cost.communication_s)}, so {bound} bound the run"
    if cost.checkpoint_interval_s is not None:
        yield f"{'Checkpoint every:':<21}{duration(cost.checkpoint_interval_s)}"
        yield f"{'Failures:':<21}{_count(cost.expected_failures)} expected"
    yield f"{'Wall clock:':<21}{duration(cost.wall_clock_s)} ({cost.wall_clock_s / cost.ideal_s - 1:+.1%})"
    if cost.energy_joules is not None:
        yield f"{'Energy:':<21}{_count(cost.energy_joules / 3.6e9)} MWh"
    if cost.money is not None:
        yield f"{'Money:':<21}{cost.money:,.0f}"
