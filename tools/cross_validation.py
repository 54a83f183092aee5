"""How far predictions are from measurements that they may not use, printed as the table of docs/kernels.md.

    python -m tools.cross_validation ../shared/data/kernels [--rows 2000]

Left out in turn: the whole (n, k) column, head configuration, model of experts or row width of every row asked for
(`--without-exact`); of collectives each size, and each whole curve of an operation and its ranks; of gradient products
each layer in all its passes; and whole devices.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simcore.compute.measured import estimate
from simcore.compute.measured.curves import Curves
from simcore.compute.measured.operations import OPERATIONS
from simcore.compute.measured.rows import predicted
from simcore.compute.measured.tables import Entry, Word, forget, split_name, words_of

Table = dict[str, NDArray[np.generic]]
SHORT = ("h100", "h200", "b200", "b300", "gb300")
REAL_CURVES, REAL_ENTRIES = estimate.curves, estimate.entries


def main() -> int:
    """Print every line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1000, help="rows of every table and type")
    options = parser.parse_args()
    print(
        "| left out | mean | median | p90 | bias | rows | large: mean | median | p90 |",
        "|" + "---|" * 9,
        sep="\n",
    )
    for name, tables, dtypes in COLUMNS:
        errors = [one_table(options, table, dtypes, without_exact=True) for table in tables]
        show(name, np.concatenate([found for found, _ in errors]), np.concatenate([large for _, large in errors]))
    for name, table, together in TOGETHER:
        found = np.concatenate(list(unseen(options, table, together)))
        show(name, found, np.zeros(len(found), bool))
    for device in SHORT:
        for operation, dtypes in DEVICE:
            estimate.entries = without_device(device)
            found, large = one_table(options, f"aic_{device}_{operation}", dtypes, without_exact=False)
            show(f"{device} as a whole, {operation} {' '.join(dtypes)}", found, large)
            estimate.entries = REAL_ENTRIES
            forget()
    return 0


COLUMNS = [
    *((f"products bf16, {one}", [f"aic_{one}_gemm"], ["bf16"]) for one in ("a100", *SHORT)),
    *((f"products fp8, {one}", [f"aic_{one}_gemm"], ["fp8"]) for one in SHORT),
    *((f"products nvfp4, {one}", [f"aic_{one}_gemm"], ["nvfp4"]) for one in ("b200", "b300", "gb300")),
    *((f"sustained products, {one}", [f"aic_{one}_gemm_sustained"], []) for one in ("h200", "b200")),
    *((f"attention bf16, {one}", [f"aic_{one}_attention_prefill"], ["bf16"]) for one in ("a100", *SHORT)),
    *((f"experts, {one}", [f"aic_{one}_moe"], []) for one in ("a100", *SHORT)),
    ("memory passes", [f"vidur_{one}_memory" for one in ("a100", "h100")], []),
    *((f"NCCL in a node, sizes, {one}", [f"aic_{one}_nccl"], []) for one in ("a100", *SHORT)),
]
DEVICE = [
    ("gemm", ["bf16"]),
    ("gemm", ["fp8"]),
    ("gemm", ["nvfp4"]),
    ("attention_prefill", ["bf16"]),
    ("moe", []),
    ("nccl", []),
]


def one_table(
    options: argparse.Namespace, name: str, dtypes: list[str], *, without_exact: bool
) -> tuple[NDArray, NDArray]:
    """Errors of a sample of rows, and which of them are large."""
    _, device, operation = split_name(name) or ("", "", "")
    table = read(options.folder / f"{name}.npz")
    column = OPERATIONS[operation].type_column
    types = np.array(words_of(table, column))
    wanted = np.flatnonzero(np.isin(types, dtypes or sorted(set(types))))
    chosen = np.sort(np.random.default_rng(7).permutation(wanted)[: options.rows])
    asked = rows(table, chosen)
    if not len(chosen):
        return np.empty(0), np.empty(0, bool)
    answer = predicted(OPERATIONS[operation], device, asked, without_exact=without_exact)
    return answer["predicted_us"] / asked["time_us"] - 1, large(asked)


def large(table: Table) -> NDArray[np.bool_]:
    """Products from 1,024 each way; attention from 2,048 tokens and 50 GFLOP."""
    if "m" in table:
        return np.minimum(np.minimum(table["m"], table["n"]), table["k"]) >= 1024 if "n" in table else table["m"] < 0
    if "seq" in table and "heads" in table:
        flops = 2.0 * table["heads"] * table["batch"] * table["seq"].astype(float) ** 2 * table.get("head_dim", 128)
        return (table["seq"] >= 2048) & (flops > 5e10)
    return np.zeros(len(table["time_us"]), bool)


def unseen(options: argparse.Namespace, name: str, together: Callable[[Table, str], NDArray]) -> Iterator[NDArray]:
    """Errors of the rows of a table that belong together, with all of these hidden, for each such set in turn."""
    _, device, operation = split_name(name) or ("", "", "")
    table = read(options.folder / f"{name}.npz")
    words = np.array(words_of(table, OPERATIONS[operation].words[1]))
    members = np.concatenate([together(rows(table, words == word), word) for word in np.unique(words)])
    places = np.concatenate([np.flatnonzero(words == word) for word in np.unique(words)])
    for one in np.unique(members):

        def shown(entry: Entry, said: tuple[Word, ...], one: str = one) -> Curves | None:
            there = REAL_CURVES(entry, said)
            if there is None or (entry.device, entry.operation) != (device, operation):
                return there
            swept = np.rint(2.0**there.along).astype(int)
            points = {column: np.repeat(values, np.diff(there.first)) for column, values in there.sizes.items()}
            return some_points(there, together({**points, OPERATIONS[operation].swept: swept}, str(said[1])) != one)

        forget()
        estimate.curves = shown
        asked = rows(table, np.sort(places[members == one]))
        yield predicted(OPERATIONS[operation], device, asked)["predicted_us"] / asked["time_us"] - 1
    estimate.curves = REAL_CURVES
    forget()


def some_points(there: Curves, kept: NDArray[np.bool_]) -> Curves | None:
    """Curves with some of their points; None without any."""
    if not kept.any():
        return None
    counts = np.add.reduceat(kept.astype(int), there.first[:-1])
    sizes = {name: values[counts > 0] for name, values in there.sizes.items()}
    first = np.concatenate([[0], np.cumsum(counts[counts > 0])])
    return Curves(there.table, sizes, there.places[counts > 0], first, there.along[kept], there.log_us[kept])


def curve(table: Table, word: str) -> NDArray:
    """The collective and its ranks."""
    return np.char.add(f"{word} ", table["ranks"].astype(str))


def layer(table: Table, layout: str) -> NDArray:
    """Features in and out of the layer that a product is a pass of, by its layout."""
    into, out = {"TN": "kn", "NN": "nk", "NT": "nm"}[layout]
    return np.char.add(np.char.add(table[into].astype(str), " to "), table[out].astype(str))


TOGETHER = [
    *((f"gradient products, {one}", f"simumax_{one}_gemm_gradients", layer) for one in ("a100_pcie", "b200")),
    *((f"NCCL in a node, curves, {one}", f"aic_{one}_nccl", curve) for one in ("a100", *SHORT)),
]


def without_device(device: str) -> Callable[[], tuple[Entry, ...]]:
    """The index without a device's tables."""
    forget()
    return lambda: tuple(entry for entry in REAL_ENTRIES() if entry.device != device)


def read(path: Path) -> Table:
    """A table's columns."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files if archive[name].ndim}


def rows(table: Table, chosen: NDArray) -> Table:
    """Some of its rows."""
    return {name: values if name.endswith("_names") else values[chosen] for name, values in table.items()}


def show(name: str, errors: NDArray, chosen: NDArray) -> None:
    """One line of the table, in percent."""
    if not len(errors):
        return
    cells = [name, *figures(errors), f"{100 * errors.mean():+.1f}", str(len(errors))]
    print("| " + " | ".join([*cells, *(figures(errors[chosen]) if chosen.any() else ["", "", ""])]) + " |", flush=True)


def figures(errors: NDArray) -> list[str]:
    """Mean, median and 90th percentile of the sizes of errors."""
    size = 100 * np.abs(errors)
    return [f"{value:.1f}" for value in (size.mean(), np.median(size), np.quantile(size, 0.9))]


if __name__ == "__main__":
    sys.exit(main())
