"""The 12-column text workload of ASTRA-sim 1.0 and of SimAI/AICB, read and written; every defect is found at once.

::

    HEADER                                               see simcore.workload.headers
    N
    name  reserved  F ns  F type  F bytes  I ns  I type  I bytes  W ns  W type  W bytes  update ns  [loop]

F, I and W are forward, input gradient and weight gradient. Words are separated by any white space. A file whose lines
are rows is read column by column; only when something does not fit is it read again word by word, which also finds
rows wrapped over lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from pathlib import Path

from simcore.collection import collection_paused
from simcore.documents import read_text
from simcore.errors import InputError, Location, Problems
from simcore.workload import headers
from simcore.workload.columns import (
    COLLECTIVES,
    COLUMNS,
    SPELLINGS,
    TYPE_COLUMNS,
    TYPES,
    WIDTH,
    known_in,
    read_row,
    written_row,
)
from simcore.workload.headers import LOOPS, ROW_POLICIES, Header
from simcore.workload.model import Dialect, Group, Layer, Phase, Workload
from simcore.workload.tokens import MAX_INTEGER, Cursor, Source, Token, is_integer

__all__ = ["COLLECTIVES", "COLUMNS", "LOOPS", "parse", "read", "write"]

SAFE_DIGITS = 18


def read(path: str | Path, dialect: Dialect | None = None) -> Workload:
    """The workload in a file; `dialect` overrides what the header tells. InputError lists every defect."""
    return parse(read_text(path), str(path), dialect)


def parse(text: str, file: str, dialect: Dialect | None = None) -> Workload:
    """The workload in a text; `file` names it in errors.

    Sizes are bytes, computes and the update delay nanoseconds. `location` points at the header's group size (at the
    loop where there is none), which is what must fit the number of NPUs.
    """
    with Problems() as problems:
        source = Source(text, file, problems)
        cursor = Cursor(source)
        header = headers.read_header(cursor, dialect)
        layers = _layers(cursor, header)
        if header.count is not None and not problems.found:
            headers.check_against_layers(source, header, header.count)
            _check_context(source, header, layers)
    return Workload(
        loop=header.loop,
        layers=layers,
        parallelism=header.parallelism(),
        dialect=header.dialect,
        last_bottom_layer=header.value(headers.BOTTOM, -1),
        checkpoints=header.values.get(headers.CHECKPOINTS, ()),
        checkpoint_initiates=header.values.get(headers.INITIATES, ()),
        pipeline_bytes=header.value(headers.PIPELINE, 0),
        stage_rows=header.values.get(headers.STAGES, ()),
        name=Path(file).stem,
        location=source.location(header.place),
        warnings=(*headers.header_warnings(header, file), *_ignored_sizes(layers)),
    )


def _check_context(source: Source, header: Header, layers: Iterable[Layer]) -> None:
    """Collectives of context-parallel ranks need the number of these."""
    groups = (phase.group for layer in layers for phase in (layer.forward, layer.input_grad, layer.weight_grad))
    if not header.value("cp", 0) and Group.CP in groups:
        source.problem(header.place, "rows name context-parallel ranks", "cp: NUMBER in the header", field="cp")


def _layers(cursor: Cursor, header: Header) -> tuple[Layer, ...]:
    """The rows behind the header, the quick way when they are right."""
    source, first = cursor.source, cursor.peek()
    width = WIDTH + (header.loop == "HYBRID_CUSTOMIZED")
    if first is None:
        if header.count is not None:
            source.problem(
                source.end(), "the layers are missing", f"{header.count} rows of {width} columns", field="row"
            )
        return ()
    starts_line = not source.lines[first.line - 1][: first.column - 1].strip()
    with collection_paused():
        layers = _quick(source, first.line, width, header.dialect) if starts_line else None
    if layers is None:
        layers = _careful(cursor, width, header)
    elif header.count is not None and len(layers) != header.count:
        _wrong_count(source, header, len(layers))
    return layers


def _wrong_count(source: Source, header: Header, rows: int) -> None:
    message = f"the header announces {header.count} layers but {rows} follow"
    source.problem(header.count_place, message, str(rows), hint="one row a layer", field="layers")


# --- the quick way: whole columns


class _DoubtError(ValueError):
    """Something in a column may be wrong; the careful way will tell."""


def _quick(source: Source, first_line: int, width: int, dialect: Dialect) -> tuple[Layer, ...] | None:
    """All rows by columns; None when anything is not as it should be."""
    split = list(map(str.split, source.lines[first_line - 1 :]))
    rows = list(filter(None, split))
    if set(map(len, rows)) != {width}:
        return None
    columns = list(zip(*rows, strict=True))
    places = [Location(source.file, line, 1) for line, words in enumerate(split, first_line) if words]
    _indent(source, places)
    try:
        phases = [_phases(columns[c - 1], columns[c], columns[c + 1], dialect) for c in TYPE_COLUMNS]
        update, reserved = _numbers(columns[11]), _signed(columns[1])
        loops = _policies(columns[12]) if width > WIDTH else repeat("")
    except ValueError:  # doubt, or more digits than int() takes
        return None
    return tuple(map(Layer, columns[0], phases[0], phases[1], phases[2], update, reserved, loops, places))


def _numbers(column: Sequence[str]) -> list[int]:
    """A column of unsigned integers."""
    digits = "".join(column)
    if not (digits.isascii() and digits.isdigit()):
        raise _DoubtError
    values = list(map(int, column))
    if max(values) > MAX_INTEGER:
        raise _DoubtError
    return values


def _signed(column: Sequence[str]) -> list[int]:
    """A column of few different integers of any sign."""
    words = set(column)
    if not all(len(word) <= SAFE_DIGITS and is_integer(word) for word in words):
        raise _DoubtError
    made = {word: int(word) for word in words}
    return [made[word] for word in column]


def _policies(column: Sequence[str]) -> Sequence[str]:
    """A column of training loops."""
    if not set(column) <= set(ROW_POLICIES):
        raise _DoubtError
    return column


def _phases(computes: Sequence[str], types: Sequence[str], sizes: Sequence[str], dialect: Dialect) -> list[Phase]:
    """One Phase a row; equal ones are one object, for models repeat their layers."""
    if not all(word in TYPES and known_in(word, dialect) for word in set(types)):
        raise _DoubtError
    return list(map(_Phases().__getitem__, zip(_numbers(computes), types, _numbers(sizes), strict=True)))


class _Phases(dict[tuple[int, str, int], Phase]):
    """Compute, type and size -> Phase, made on first use."""

    def __missing__(self, key: tuple[int, str, int]) -> Phase:
        kind, group = TYPES[key[1]]
        made = self[key] = Phase(key[0], kind, key[2], group)
        return made


def _indent(source: Source, places: list[Location]) -> None:
    """Correct the column of rows that are indented."""
    for index, place in enumerate(places):
        line = source.lines[place.line - 1]
        if line[0].isspace():
            places[index] = Location(place.file, place.line, len(line) - len(line.lstrip()) + 1)


# --- the careful way: word by word


def _careful(cursor: Cursor, width: int, header: Header) -> tuple[Layer, ...]:
    """Rows of words; wrapped rows if that reads without a problem, otherwise one row a line and all its problems."""
    source, tokens = cursor.source, []
    while token := cursor.take():
        tokens.append(token)
    rows = [tokens[start : start + width] for start in range(0, len(tokens), width)]
    if len(rows[-1]) != width or not _readable(rows, source, header):
        rows = _by_line(tokens)
    layers = tuple(read_row(row, source, width, header.dialect) for row in rows)
    if header.count is not None and len(rows) != header.count:
        _wrong_count(source, header, len(rows))
    return layers


def _readable(rows: list[list[Token]], source: Source, header: Header) -> bool:
    """Whether rows cut at every `width` words are all right."""
    trial = Source("", source.file, Problems())
    trial.lines = source.lines
    try:
        for row in rows:
            read_row(row, trial, len(row), header.dialect)
    except InputError:
        return False
    return not trial.problems.found


def _by_line(tokens: list[Token]) -> list[list[Token]]:
    rows: dict[int, list[Token]] = {}
    for token in tokens:
        rows.setdefault(token.line, []).append(token)
    return list(rows.values())


def _ignored_sizes(layers: Iterable[Layer]) -> list[str]:
    """One warning for all sizes that stand beside NONE."""
    silent = [
        layer
        for layer in layers
        if (layer.forward.size_bytes and not layer.forward.collective)
        or (layer.input_grad.size_bytes and not layer.input_grad.collective)
        or (layer.weight_grad.size_bytes and not layer.weight_grad.collective)
    ]
    if not silent:
        return []
    rows = f"{len(silent)} rows, the first is '{silent[0].name}'" if len(silent) > 1 else f"row '{silent[0].name}'"
    return [f"{silent[0].location}: a size beside the type NONE is ignored ({rows})"]


# --- writing


def write(workload: Workload) -> str:
    """The file of a workload, `parse` of which gives the same workload again; columns are separated by tabs.

    InputError when the format cannot hold it: a name with white space, a group without a suffix, header values that
    the dialect has no words for.
    """
    rows = (_row(layer, workload) for layer in workload.layers)
    return "\n".join(chain([headers.write_header(workload), str(len(workload.layers))], rows)) + "\n"


def _row(layer: Layer, workload: Workload) -> str:
    name = workload.name or "workload"
    if len(layer.name.split()) != 1 or layer.name != layer.name.strip():
        raise InputError.at(name, "a layer's name must be one word", found=repr(layer.name))
    if bool(layer.loop) != (workload.loop == "HYBRID_CUSTOMIZED"):
        message = "a row has its own training loop in HYBRID_CUSTOMIZED, and only there"
        raise InputError.at(name, message, found=f"{layer.name}: {layer.loop!r}")
    for phase in (layer.forward, layer.input_grad, layer.weight_grad):
        word = SPELLINGS.get((phase.collective, phase.group))
        if word is None or not known_in(word, workload.dialect):
            found = f"{phase.collective} in group {phase.group.name}"
            raise InputError.at(name, f"{workload.dialect} has no word for this", found=found)
    return written_row(layer)
