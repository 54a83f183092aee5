"""The 12-column text workload of ASTRA-sim 1.0 and of SimAI/AICB, read and written; every defect is found at once.

::

    HEADER                                               see simcore.workload.headers
    N
    name  reserved  F ns  F type  F bytes  I ns  I type  I bytes  W ns  W type  W bytes  update ns  [loop]

F, I and W are forward, input gradient and weight gradient. Words are separated by any white space. Columns are
read as a whole; where a line is no row the words are read again without regard to lines, which finds wrapped rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, groupby, product, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any

from simcore.documents import read_text
from simcore.errors import InputError, Location, Problems, closest
from simcore.library import table
from simcore.memory import collection_paused
from simcore.units import parse_bytes
from simcore.workload import headers
from simcore.workload.headers import ROW_POLICIES, Header
from simcore.workload.model import CollectiveKind, Dialect, Group, Layer, Phase, Role, Workload
from simcore.workload.tokens import MAX_INTEGER, Cursor, Source, Token, is_integer, unsigned, unsigned_column

COLLECTIVES = {
    "ALLREDUCE": CollectiveKind.ALL_REDUCE,
    "ALLTOALL": CollectiveKind.ALL_TO_ALL,
    "ALLGATHER": CollectiveKind.ALL_GATHER,
    "REDUCESCATTER": CollectiveKind.REDUCE_SCATTER,
}
SUFFIXES = {"": Group.LOOP, "_EP": Group.EP, "_DP_EP": Group.DP_EP, "_CP": Group.CP}
Communication = tuple[CollectiveKind | None, Group]
TYPES: dict[str, Communication] = {"NONE": (None, Group.LOOP)} | {
    name + suffix: (kind, group) for name, kind in COLLECTIVES.items() for suffix, group in SUFFIXES.items()
}
SPELLINGS = {communication: name for name, communication in TYPES.items()}

_OF_PHASE = product(("forward", "input-gradient", "weight-gradient"), ("compute", "communication type", "size"))
COLUMNS = ("name", "reserved", *map(" ".join, _OF_PHASE), "update delay", "training loop of the row")
WIDTH = 12
TYPE_COLUMNS, SIZE_COLUMNS = (3, 6, 9), (4, 7, 10)
NOT_SENT = "ASTRA-sim 1.0 and SimAI send nothing for a word that they do not know, as for NONE"


def known_in(word: str, dialect: Dialect) -> bool:
    """Whether a communication type has a meaning in the dialect: ASTRA-sim 1.0 has no groups."""
    return dialect == "simai" or TYPES[word][1] is Group.LOOP


ROLES = {name: Role[role] for role, names in table(__file__, "roles.txt") for name in names.split()}


def role_of(name: str) -> Role:
    """What a row of a text file is; those without a name of their own are a micro-batch's."""
    return ROLES.get(name, Role.MICRO_BATCH)


def written_row(layer: Layer) -> str:
    """A row with tabs between its columns."""
    cells = (str(word) for p in layer.phases for word in (p.compute_ns, SPELLINGS[p.collective, p.group], p.size_bytes))
    loop = [layer.loop] if layer.loop else []
    return "\t".join([layer.name, str(layer.reserved), *cells, str(layer.update_ns), *loop])


def _check_row(row: list[Token], source: Source, width: int, dialect: Dialect) -> None:
    if len(row) != width:  # point at the first that is too much, or behind the last
        policy = "; the 13th is the row's training loop" if width > WIDTH else ""
        last = row[-1]
        place = row[width] if len(row) > width else Token("", last.line, last.column + len(last.text))
        missing = COLUMNS[len(row)] if len(row) < width else ""
        hint = f"the columns from '{missing}' on are missing" if missing else "only HYBRID_CUSTOMIZED has a 13th column"
        message = f"a row must have {width} columns{policy}"
        source.problem(place, message, f"{width} columns", f"{len(row)} columns", hint, field="row")
    for index, token in enumerate(row[:width] if len(row) >= width else ()):
        if _value(index, token.text, dialect) is not None:
            continue
        if index in TYPE_COLUMNS:
            _no_type(index, token, source)
        elif index == WIDTH:
            known = closest(token.text, ROW_POLICIES)
            source.problem(token, "unknown training loop of a row", known, field=COLUMNS[WIDTH])
        else:
            _not_a_number(index, token, source)


def _value(index: int, word: str, dialect: Dialect) -> int | None:
    """The value of a word in a column, 0 of those that are no numbers; None where it is wrong."""
    if index in (0, WIDTH):
        return 0 if index == 0 or word in ROW_POLICIES else None
    if index in TYPE_COLUMNS:
        return 0 if word in TYPES and known_in(word, dialect) else None
    if index == 1 and is_integer(word):  # of any sign
        size = unsigned(word.lstrip("+-"))
        return -size if size and word[0] == "-" else size
    return unsigned(word)


def _not_a_number(index: int, token: Token, source: Source) -> None:
    label, what = COLUMNS[index], "bytes" if index in SIZE_COLUMNS else "nanoseconds"
    if index == 1:
        source.problem(token, "reserved must be a whole number", "an integer in column 2, usually -1", field="reserved")
        return
    example = "2400000" if what == "bytes" else "1203"
    expected = f"integer {what} in column {index + 1}, for example {example}"
    message = f"{label} must be a whole number of {what}"
    if is_integer(token.text) and token.text[0].isdigit():
        message, expected = f"{label} is too large", f"integer {what} below 2^63 = {MAX_INTEGER + 1}"
    hint = "a communication type stands here: are the columns shifted?" if token.text in TYPES else ""
    with suppress(ValueError, OverflowError):  # a size with a unit, perhaps
        size = parse_bytes(token.text) if index in SIZE_COLUMNS else -1
        hint = f"write {size}" if 0 <= size <= MAX_INTEGER and str(size) != token.text else hint
    source.problem(token, message, expected, hint=hint, field=label)


def _no_type(index: int, token: Token, source: Source) -> None:
    word, label = token.text, COLUMNS[index]
    if word == "ALLREDUCEALLTOALL":
        hint = "split the layer in two rows, one with ALLREDUCE and one with ALLTOALL"
        source.problem(token, "ALLREDUCEALLTOALL is not supported", closest(word, TYPES), hint=hint, field=label)
    elif word not in TYPES:
        hint = "are the columns shifted?" if is_integer(word) else NOT_SENT
        source.problem(token, f"unknown {label}", closest(word, TYPES), hint=hint, field=label)
    else:
        hint = "SimAI's header gives the group sizes, for example 'ep: 8'"
        source.problem(token, "groups need a SimAI header", closest(word, COLLECTIVES), hint=hint, field=label)


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
        header = Header(cursor, dialect)
        layers = _layers(cursor, header)
        if header.count is not None and not problems.found:
            header.check(header.count)
            # Collectives of context-parallel ranks need the number of these.
            named = any(phase.group is Group.CP for layer in layers for phase in layer.phases)
            if named and not header.value("cp", 0):
                place, expected = header.place, "cp: NUMBER in the header"
                source.problem(place, "rows name context-parallel ranks", expected, field="cp")
    return Workload(
        **header.told(),
        layers=layers,
        name=Path(file).stem,
        location=source.location(header.place),
        warnings=(*header.warnings(), *_ignored_sizes(layers)),
    )


def _layers(cursor: Cursor, header: Header) -> tuple[Layer, ...]:
    """The rows behind the header: one a line, or wrapped ones where only these read without a problem."""
    source, first = cursor.source, cursor.peek()
    width = WIDTH + (header.loop == "HYBRID_CUSTOMIZED")
    if first is None:
        if header.count is not None:
            expected = f"{header.count} rows of {width} columns"
            source.problem(source.end(), "the layers are missing", expected, field="row")
        return ()
    with collection_paused():
        rest = enumerate(source.lines[first.line - 1 :], first.line)
        numbers, lines = map(list, zip(*((number, line) for number, line in rest if line.strip()), strict=True))
        lines[0] = lines[0][first.column - 1 :].rjust(len(lines[0]))  # without what else it says
        rows = [line.split() for line in lines]
        starts = (line.index(row[0]) + 1 for row, line in zip(rows, lines, strict=True))
        places: Iterator[Location] = map(Location, repeat(source.file), numbers, starts)
        layers = _read_columns(rows, places, width, header.dialect)
    if layers is None:
        tokens = list(iter(cursor.take, None))
        wrapped = [tokens[start : start + width] for start in range(0, len(tokens), width)]
        words, places = [[token.text for token in row] for row in wrapped], (source.location(row[0]) for row in wrapped)
        layers = _read_columns(words, places, width, header.dialect)
    if layers is None:
        for _, line in groupby(tokens, attrgetter("line")):
            _check_row(list(line), source, width, header.dialect)
    count = len(rows if layers is None else layers)
    if header.count not in (None, count):
        message = f"the header announces {header.count} layers but {count} follow"
        source.problem(header.count_place, message, str(count), hint="one row a layer", field="layers")
    return layers or ()


def _read_columns(
    rows: Sequence[Sequence[str]], places: Iterable[Location], width: int, dialect: Dialect
) -> tuple[Layer, ...] | None:
    """Rows read column by column, where each different word is looked at once; None when one is not right."""
    if set(map(len, rows)) != {width}:
        return None
    columns, cells = list(zip(*rows, strict=True)), list[Sequence[Any]]([()])
    for index, words in enumerate(columns[1:], 1):
        values: Sequence[int | None] | None = None if index in (*TYPE_COLUMNS, WIDTH) else unsigned_column(words)
        if values is None:
            known = {word: _value(index, word, dialect) for word in set(words)}
            values = [*map(known.__getitem__, words)]
            if None in known.values():
                return None
        cells.append(values)
    made = cache(Phase)  # equal phases are one object
    phases = []
    for column in TYPE_COLUMNS:
        kinds, groups = zip(*map(TYPES.__getitem__, columns[column]), strict=True)
        phases.append(map(made, cells[column - 1], kinds, cells[column + 1], groups))
    loops = columns[WIDTH] if width > WIDTH else repeat("")
    return tuple(map(Layer, columns[0], *phases, cells[11], cells[1], loops, places, map(role_of, columns[0])))


def _ignored_sizes(layers: Iterable[Layer]) -> list[str]:
    """One warning for all sizes that stand beside NONE."""
    sized = ((layer, p) for layer in layers for p in layer.phases if p.size_bytes and not p.collective)
    silent = list({id(layer): layer for layer, _ in sized}.values())
    if not silent:
        return []
    rows = f"{len(silent)} rows, the first is '{silent[0].name}'" if len(silent) > 1 else f"row '{silent[0].name}'"
    return [f"{silent[0].location}: a size beside the type NONE is ignored ({rows})"]


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
    for phase in layer.phases:
        word = SPELLINGS.get((phase.collective, phase.group))
        if word is None or not known_in(word, workload.dialect):
            found = f"{phase.collective} in group {phase.group.name}"
            raise InputError.at(name, f"{workload.dialect} has no word for this", found=found)
    return written_row(layer)
