"""A user's own tables: kept beside the shipped ones, and asked before them."""

import io
import json
from pathlib import Path

import numpy as np

from simcore.compute.measured.estimate import machine
from simcore.compute.measured.files import columns_of, read_table
from simcore.compute.measured.tables import Entry, forget, own_folder, pack
from simcore.files import write_bytes, write_text


def add_table(path: Path, device: str = "") -> Entry:
    """Check a table and keep it; one of the same name is replaced.

    Raises
    ------
    InputError
        If the file's name, its device or its columns are wrong, or the folder cannot be written.
    """
    source, where, operation = columns_of(path, device)
    machine(where)
    table = read_table(path, operation, answers=True)
    packed = pack(operation, table)
    types = [str(word) for word in table.get(f"{operation.type_column}_names", np.array([]))]
    name = f"{source}_{where}_{operation.name}"
    entry = Entry(name, where, operation.name, tuple(types), len(packed["level"]), str(path), "your own", own_folder())
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **packed)  # type: ignore[arg-type]
    own_folder().mkdir(parents=True, exist_ok=True)
    write_bytes(entry.path, buffer.getvalue())
    index = own_folder() / "index.json"
    lines = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
    kept = [line for line in lines if line["name"] != name]
    fields = {key: getattr(entry, key) for key in ("name", "device", "operation", "types", "rows", "source", "licence")}
    write_text(index, json.dumps([*kept, fields], indent=1))
    forget()
    return entry
