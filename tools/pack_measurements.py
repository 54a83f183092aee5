"""Make the compact tables that ship in simcore/compute/measured/tables from a folder of open measurements.

    python -m tools.pack_measurements ../shared/data/kernels

Anybody can run it on other tables of the same columns (docs/kernels.md). Points that straight lines between their
neighbours give within 2 % are left out (thinned), and so are times that the device's peak does not allow, of kernels
that did something else; one table is held in memory at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simcore.compute.measured.estimate import machine
from simcore.compute.measured.operations import OPERATIONS, Operation
from simcore.compute.measured.parametric import element_bytes, stated_peak
from simcore.compute.measured.tables import LEVELS, SHIPPED, pack, split_name, words_of

WHOLE = 10_000  # points up to which none is left out
Columns = dict[str, NDArray[np.generic]]
LICENCES = {
    "aic": "Apache-2.0",
    "simumax": "Apache-2.0",
    "neusight": "MIT",
    "vidur": "MIT",
    "llmcompass": "BSD-3-Clause",
}


def main() -> int:
    """Pack every table whose operation is known; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tables SOURCE_DEVICE_OPERATION.npz")
    parser.add_argument("-o", "--output", type=Path, default=SHIPPED)
    parser.add_argument("--within", type=float, default=0.015, help="what a point left out may differ by")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    plain = [path for path in sorted(options.folder.glob("*.npz")) if "_deepep_" not in path.stem]
    index = [line for path in plain if (line := packed(path.stem, read(path), options))]
    exchanging = sorted({path.stem.split("_")[1] for path in options.folder.glob("*_deepep_*.npz")})
    index += [packed(f"aic_{one}_expert_exchange", exchanged(options.folder, one), options) for one in exchanging]
    text = ",\n".join(json.dumps(line, sort_keys=True) for line in index)
    (options.output / "index.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
    total = sum(path.stat().st_size for path in options.output.glob("*.npz"))
    print(f"{len(index)} tables, {total / 1e6:.2f} MB")
    return 0


def read(path: Path) -> Columns:
    """The columns of a table."""
    with np.load(path) as archive:
        return dict(archive)


def exchanged(folder: Path, device: str) -> Columns:
    """DeepEP's tables, which hold two times a row, with one row a time: mode, stage and the SMs that were taken."""
    modes = {mode: read(folder / f"aic_{device}_deepep_{mode}.npz") for mode in ("normal", "low_latency")}
    parts = []
    for code, columns in enumerate(modes.values()):
        for stage, name in enumerate(("dispatch", "combine")):
            times = [values for column, values in columns.items() if column.startswith(name) and column.endswith("_us")]
            rows = len(columns["tokens"])
            sizes = {size: columns[size] for size in ("nodes", "ranks", "hidden", "topk", "experts", "tokens")}
            words = {"mode": np.full(rows, code), "stage": np.full(rows, stage), "dtype": np.zeros(rows, int)}
            sms = columns.get(f"{name}_sms", np.ones(rows, int))
            parts.append(sizes | words | {"sms": sms, "time_us": np.sum(times, axis=0)})
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    spelt = {"mode_names": [*modes], "stage_names": ["dispatch", "combine"], "dtype_names": ["bf16"]}
    return joined | {name: np.array(words) for name, words in spelt.items()} | {"source": modes["normal"]["source"]}


def packed(stem: str, columns: Columns, options: argparse.Namespace) -> dict[str, object] | None:
    """Write one table; its line of the index."""
    named = split_name(stem)
    if not named:
        print(f"{stem}: left out, its operation is not known")
        return None
    source, device, name = named
    operation = OPERATIONS[name]
    columns = possible(columns, operation, device)
    whole = pack(operation, columns)
    small = len(whole["level"]) <= WHOLE
    table = whole if small else selected(whole, operation, thinned(operation, whole, options.within))
    np.savez_compressed(options.output / f"{stem}.npz", **table)
    types = sorted({str(word) for word in columns.get(f"{operation.type_column}_names", np.array([]))})
    return {
        "name": stem,
        "device": device,
        "operation": name,
        "types": types,
        "rows": len(table["level"]),
        "source": str(columns["source"]),
        "licence": LICENCES[source],
    }


def thinned(operation: Operation, packed: Columns, share: float) -> NDArray[np.bool_]:
    """Which points to keep, so that straight lines between them in logarithms meet all others within `share`."""
    along, level = np.log2(packed[operation.swept].astype(float)), packed["level"].astype(float) * np.log(2) / LEVELS
    first = np.concatenate([[0], np.cumsum(packed["points"].astype(np.int64))])
    kept = np.zeros(len(along), bool)
    for start, end in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        _keep(along, level, start, end - 1, kept, share)
    return kept


def _keep(
    along: NDArray[np.float64], level: NDArray[np.float64], start: int, end: int, kept: NDArray[np.bool_], share: float
) -> None:
    """Greedily: from each kept point on to the farthest whose line meets all in between."""
    kept[[start, end]] = True
    while start < end:
        step = start + 1
        for further in range(start + 2, end + 1):
            share_of_way = (along[start + 1 : further] - along[start]) / (along[further] - along[start])
            line = level[start] + share_of_way * (level[further] - level[start])
            if np.abs(line - level[start + 1 : further]).max() > share:
                break
            step = further
        kept[step] = True
        start = step


def selected(packed: Columns, operation: Operation, kept: NDArray[np.bool_]) -> Columns:
    """A packed table with only the points that are kept."""
    curve = np.repeat(np.arange(len(packed["points"])), packed["points"].astype(np.int64))
    counts = np.bincount(curve[kept], minlength=len(packed["points"]))
    points = {name: packed[name][kept] for name in (operation.swept, "level")}
    return {**packed, "points": counts.astype(np.min_scalar_type(int(counts.max(initial=0)))), **points}


def possible(columns: Columns, operation: Operation, device: str) -> Columns:
    """The rows that take at least 0.9 of what their FLOPs take at the stated peak."""
    rows, types = len(columns["time_us"]), np.array(words_of(columns, operation.type_column))
    kept = np.ones(rows, bool)
    for dtype in np.unique(types):
        peak_per_us = stated_peak(machine(device).accelerator, dtype) * 1e-6
        flops = operation.work(columns, element_bytes(dtype)).flops
        kept &= (types != dtype) | (columns["time_us"] >= 0.9 * np.asarray(flops) / peak_per_us)
    if not kept.all():
        print(f"{operation.name} on {device}: {rows - int(kept.sum())} rows beat the stated peak and are left out")
    return {name: values[kept] if len(np.atleast_1d(values)) == rows else values for name, values in columns.items()}


if __name__ == "__main__":
    sys.exit(main())
