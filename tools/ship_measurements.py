"""Make the shipped measurements of training steps from files of the published forms: the fields that predictions use.

``python tools/ship_measurements.py SOURCE.json TARGET.json`` keeps a row's configuration, its source and its step time
with the spread over runs; how a figure was checked stays in the source file.
"""

import json
import sys
from pathlib import Path

KEPT = ("id", "source", "benchmark", "model", "parallel", "batch", "recompute", "dtype", "framework", "precision")
KEPT += ("options", "inexact", "note", "round")
HARDWARE = ("accelerator", "count", "per_node", "scale_out", "note")
MEASURED = ("iter_s", "spread_pct", "max_memory_gb", "max_reserved_gib", "tflops_per_chip", "power")


def main(source: str, target: str) -> None:
    """Write the rows, one a line."""
    document = json.loads(Path(source).read_text(encoding="utf-8"))
    rows = []
    for row in document["rows"]:
        kept = {key: row[key] for key in KEPT if row.get(key) not in (None, "")}
        kept |= {key: None for key in ("parallel", "precision") if key in row and row[key] is None}
        kept["hardware"] = {key: row["hardware"][key] for key in HARDWARE if row["hardware"].get(key)}
        kept["measured"] = {key: row["measured"][key] for key in MEASURED if key in row["measured"]}
        rows.append(kept)
    heads = {"sources": document["sources"], "licence": "facts; rights in the sources are their owners'"}
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    text = json.dumps(heads, indent=1)[:-2] + ',\n "rows": [\n  ' + lines + "\n ]\n}\n"
    Path(target).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
