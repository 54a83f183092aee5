"""Make the compact tables that ship in simcore/compute/measured/tables from a folder of open measurements.

    python -m tools.pack_measurements ../shared/data/kernels

Anybody can run it on other tables of the same columns (docs/kernels.md). Points that straight lines between their
neighbours give within 2 % are left out (thinned); one table is held in memory at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from simcore.compute.measured.operations import OPERATIONS
from simcore.compute.measured.tables import SHIPPED, pack, selected, split_name, thinned

WHOLE = 10_000  # points up to which none is left out
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
    index = [line for path in sorted(options.folder.glob("*.npz")) if (line := packed(path, options))]
    text = ",\n".join(json.dumps(line, sort_keys=True) for line in index)
    (options.output / "index.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
    total = sum(path.stat().st_size for path in options.output.glob("*.npz"))
    print(f"{len(index)} tables, {total / 1e6:.2f} MB")
    return 0


def packed(path: Path, options: argparse.Namespace) -> dict[str, object] | None:
    """Write one table; its line of the index."""
    named = split_name(path.stem)
    if not named:
        print(f"{path.name}: left out, its operation is not known")
        return None
    source, device, name = named
    operation = OPERATIONS[name]
    with np.load(path) as archive:
        columns = dict(archive)
    whole = pack(operation, columns)
    small = len(whole["level"]) <= WHOLE
    table = whole if small else selected(whole, operation, thinned(operation, whole, options.within))
    np.savez_compressed(options.output / path.name, **table)
    types = sorted({str(word) for word in columns.get(f"{operation.type_column}_names", np.array([]))})
    return {
        "name": path.stem,
        "device": device,
        "operation": name,
        "types": types,
        "rows": len(table["level"]),
        "source": str(columns["source"]),
        "licence": LICENCES[source],
    }


if __name__ == "__main__":
    sys.exit(main())
