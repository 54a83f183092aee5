"""How far predictions are from measurements that they may not use, printed as the table of docs/kernels.md.

    python -m tools.cross_validation ../shared/data/kernels [--rows 500] [--seeds 101 102 103]

Hidden in turn, all at once: a random fifth of the configurations (of collectives: of the points), a random quarter of
the octaves of their sizes (of collectives: of the curves), the device with all of its tables. A gradient product's
configuration is its layer, whichever pass it is. Choose constants by other seeds than those of the page.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from simcore.compute.measured import estimate
from simcore.compute.measured.curves import Curves
from simcore.compute.measured.estimate import predicted
from simcore.compute.measured.operations import OPERATIONS, Operation
from simcore.compute.measured.tables import Entry, Word, forget, split_name, words_of
from tools.pack_measurements import exchanged, read

Table = dict[str, NDArray[np.generic]]
SHORT = ("h100", "h200", "b200", "b300", "gb300")
ALL = ("a100", *SHORT)
SHARES = {"configurations": 0.2, "octaves": 0.25, "the device": 1.0}


class Hiding(NamedTuple):
    """What is hidden, which share of it, and in which draw."""

    how: str
    share: float
    seed: int


LINES: list[tuple[str, str, str, tuple[str, ...]]] = [  # what, table, type, devices
    ("products bf16", "aic_{}_gemm", "bf16", ALL),
    ("products fp8", "aic_{}_gemm", "fp8", SHORT),
    ("products nvfp4", "aic_{}_gemm", "nvfp4", SHORT[2:]),
    ("sustained products", "aic_{}_gemm_sustained", "", ("h200", "b200")),
    ("gradient products", "simumax_{}_gemm_gradients", "", ("a100_pcie", "b200")),
    ("grouped products", "simumax_{}_grouped_gemm", "", ("b200",)),
    ("attention bf16", "aic_{}_attention_prefill", "bf16", ALL),
    ("attention fp8", "aic_{}_attention_prefill", "fp8", SHORT[:3]),
    ("decoding, 16-bit keys", "aic_{}_attention_decode", "", ALL),
    ("experts", "aic_{}_moe", "", ALL),
    ("memory passes", "vidur_{}_memory", "", ALL[:2]),
    ("NCCL in a node", "aic_{}_nccl", "", ALL),
    ("frameworks' all-reduce", "aic_{}_custom_all_reduce", "", ALL),
    ("expert exchange", "aic_{}_expert_exchange", "", ("h100", *SHORT[2:])),
]


def main() -> int:
    """Print every line; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=500, help="rows of every table and type")
    parser.add_argument("--share", type=float, default=SHARES["configurations"], help="of the configurations")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103], help="which random folds")
    options = parser.parse_args()
    shares = SHARES | {"configurations": options.share}
    print("| percent off: mean, median, p90, bias | " + " | ".join(f"{how} hidden" for how in SHARES) + " |")
    print("|" + "---|" * (1 + len(SHARES)))
    for what, name, dtype, devices in LINES:
        for device in devices:
            table = rows_of(options.folder, name.format(device))
            cells = [
                errors(name.format(device), table, dtype, [Hiding(*each, seed) for seed in options.seeds], options.rows)
                for each in shares.items()
            ]
            print("| " + " | ".join([f"{what}, {device}", *map(figures, cells)]) + " |", flush=True)
    return 0


def rows_of(folder: Path, name: str) -> Table:
    """A table's columns."""
    path = folder / f"{name}.npz"
    columns = read(path) if path.exists() else exchanged(folder, name.split("_")[1])
    return {name: values for name, values in columns.items() if values.ndim}


def errors(name: str, table: Table, dtype: str, hidings: Sequence[Hiding], rows: int) -> NDArray:
    """Errors of a sample of the hidden rows."""
    _, device, kind = split_name(name) or ("", "", "")
    operation = OPERATIONS[kind]
    wanted = np.array([dtype in ("", word) for word in words_of(table, operation.type_column)])
    layouts = np.array(words_of(table, "layout"))
    found = []
    for hiding in hidings:
        out = np.flatnonzero(wanted & hidden(operation, table, layouts, hiding))
        chosen = np.sort(np.random.default_rng(hiding.seed).permutation(out)[:rows])
        asked = {name: values if name.endswith("_names") else values[chosen] for name, values in table.items()}
        with without(operation, device, hiding):
            found.append(predicted(operation, device, asked)["predicted_us"] / asked["time_us"] - 1)
    return np.concatenate(found)


def hidden(operation: Operation, columns: Table, layouts: NDArray, hiding: Hiding) -> NDArray[np.bool_]:
    """Which rows of an operation's columns are."""
    (how, share, seed), filled = hiding, operation.filled(columns)
    sizes = [filled[name] for name in operation.sizes if name not in operation.repeated]
    if operation.name == "gemm_gradients":
        sizes = [*np.sort([columns["n"], np.where(layouts == "NT", columns["m"], columns["k"])], axis=0)]
    if operation.by_point and how == "configurations":
        sizes.append(columns[operation.swept])
    logs = np.log2(np.maximum(np.stack(sizes, axis=1).astype(float), 1.0))
    if how == "octaves" and not operation.by_point:
        logs = np.floor(logs + np.random.default_rng(seed).random(len(sizes)))
    drawn = [zlib.crc32(repr((seed, row)).encode()) / 2**32 for row in np.round(logs, 6).tolist()]
    return np.array(drawn) < share


@contextmanager
def without(operation: Operation, device: str, hiding: Hiding) -> Iterator[None]:
    """The tables without what is hidden: of a device all, or rows of the operation, by whatever name it is called."""
    accelerator, curves, entries = estimate.machine(device).accelerator, estimate.curves, estimate.entries

    def others() -> tuple[Entry, ...]:
        return tuple(one for one in entries() if estimate.machine(one.device).accelerator is not accelerator)

    def shown(entry: Entry, said: tuple[Word, ...]) -> Curves | None:
        there, own = curves(entry, said), estimate.machine(entry.device).accelerator is accelerator
        if there is None or not own or entry.operation != operation.name:
            return there
        points = {name: np.repeat(values, np.diff(there.first)) for name, values in there.sizes.items()}
        points[operation.swept] = np.rint(2.0**there.along)
        layouts = points.get("layout", np.full(len(there.along), (*said, "")[1]))
        return some_points(there, ~hidden(operation, points, layouts, hiding))

    changed: dict[str, Callable[..., object]] = {"entries": others} if hiding.how == "the device" else {"curves": shown}
    forget()
    with patch.multiple(estimate, **changed):
        yield
    forget()


def some_points(there: Curves, kept: NDArray[np.bool_]) -> Curves | None:
    """Curves with some of their points; None without any."""
    if not kept.any():
        return None
    counts = np.add.reduceat(kept.astype(int), there.first[:-1])
    sizes = {name: values[counts > 0] for name, values in there.sizes.items()}
    first = np.concatenate([[0], np.cumsum(counts[counts > 0])])
    places, along, log_us = there.places[counts > 0], there.along[kept], there.log_us[kept]
    return replace(there, sizes=sizes, places=places, first=first, along=along, log_us=log_us)


def figures(found: NDArray) -> str:
    """Mean, median and 90th percentile of the sizes of errors and their mean, in percent."""
    if not len(found):
        return "-"
    size = 100 * np.abs(found)
    return f"{size.mean():.1f}, {np.median(size):.1f}, {np.quantile(size, 0.9):.1f}, {100 * found.mean():+.1f}"


if __name__ == "__main__":
    sys.exit(main())
