"""The 12-column text workload of ASTRA-sim 1.0 and of SimAI/AICB, read and written; every defect is found at once.

::

    HEADER                                               see simcore.workload.headers
    N
    name  reserved  F ns  F type  F bytes  I ns  I type  I bytes  W ns  W type  W bytes  update ns  [loop]

F, I and W are forward, input gradient and weight gradient. Words are separated by any white space. Columns are
read as a whole; where a line is no row the words are read again without regard to lines, which finds wrapped rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, groupby, product, repeat
from operator import attrgetter
from pathlib import Path

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


def read_row(row: list[Token], source: Source, width: int, dialect: Dialect) -> Layer:
    """One row, its problems noted."""
    if len(row) != width:  # point at the first that is too much, or behind the last
        policy = "; the 13th is the row's training loop" if width > WIDTH else ""
        last = row[-1]
        place = row[width] if len(row) > width else Token("", last.line, last.column + len(last.text))
        missing = COLUMNS[len(row)] if len(row) < width else ""
        hint = f"the columns from '{missing}' on are missing" if missing else "only HYBRID_CUSTOMIZED has a 13th column"
        message = f"a row must have {width} columns{policy}"
        source.problem(place, message, f"{width} columns", f"{len(row)} columns", hint, field="row")
    if len(row) < width:
        return Layer(row[0].text, location=source.location(row[0]))
    cells = [_cell(index, token, source, dialect) for index, token in enumerate(row[:width])]
    kinds = (TYPES.get(row[column].text, (None, Group.LOOP)) for column in TYPE_COLUMNS)
    forward, input_grad, weight_grad = (
        Phase(cells[column - 1], kind, cells[column + 1], group)
        for column, (kind, group) in zip(TYPE_COLUMNS, kinds, strict=True)
    )
    name, where, loop = row[0].text, source.location(row[0]), row[WIDTH].text if width > WIDTH else ""
    return Layer(name, forward, input_grad, weight_grad, cells[11], cells[1], loop, where, role_of(name))


def _cell(index: int, token: Token, source: Source, dialect: Dialect) -> int:
    """The value of one column; words give 0."""
    if index == 0:
        return 0
    if index in TYPE_COLUMNS:
        _check_type(index, token, source, dialect)
        return 0
    if index == WIDTH:
        if token.text not in ROW_POLICIES:
            known = closest(token.text, ROW_POLICIES)
            source.problem(token, "unknown training loop of a row", known, field=COLUMNS[WIDTH])
        return 0
    value = unsigned(token.text)
    if index == 1 and is_integer(token.text):  # of any sign
        value = unsigned(token.text.lstrip("+-"))
        value = -value if value and token.text[0] == "-" else value
    if value is None:
        _not_a_number(index, token, source)
    return value or 0


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
        hint = f"write {size}" if size >= 0 and str(size) != token.text else hint
    source.problem(token, message, expected, hint=hint, field=label)


def _check_type(index: int, token: Token, source: Source, dialect: Dialect) -> None:
    word, label = token.text, COLUMNS[index]
    if word == "ALLREDUCEALLTOALL":
        hint = "split the layer in two rows, one with ALLREDUCE and one with ALLTOALL"
        source.problem(token, "ALLREDUCEALLTOALL is not supported", closest(word, TYPES), hint=hint, field=label)
    elif word not in TYPES:
        hint = "are the columns shifted?" if is_integer(word) else ""
        source.problem(token, f"unknown {label}", closest(word, TYPES), hint=hint, field=label)
    elif not known_in(word, dialect):
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
        header = headers.read_header(cursor, dialect)
        layers = _layers(cursor, header)
        if header.count is not None and not problems.found:
            headers.check_against_layers(source, header, header.count)
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
        warnings=(*headers.header_warnings(header, file), *_ignored_sizes(layers)),
    )


def _layers(cursor: Cursor, header: Header) -> tuple[Layer, ...]:
    """The rows behind the header, the quick way when they are right."""
    source, first = cursor.source, cursor.peek()
    width = WIDTH + (header.loop == "HYBRID_CUSTOMIZED")
    if first is None:
        if header.count is not None:
            expected = f"{header.count} rows of {width} columns"
            source.problem(source.end(), "the layers are missing", expected, field="row")
        return ()
    starts_line = not source.lines[first.line - 1][: first.column - 1].strip()
    with collection_paused():
        layers = _quick(source, first.line, width, header.dialect) if starts_line else None
    if layers is None:  # wrapped rows if that reads without a problem, otherwise one row a line and all its problems
        tokens = list(iter(cursor.take, None))
        rows, trial = [tokens[start : start + width] for start in range(0, len(tokens), width)], _trial(source)
        whole = len(rows[-1]) == width
        with suppress(InputError):  # too many problems
            for row in rows if whole else ():
                read_row(row, trial, width, header.dialect)
        if not whole or trial.problems.found:
            rows = [list(line) for _, line in groupby(tokens, attrgetter("line"))]
        layers = tuple(read_row(row, source, width, header.dialect) for row in rows)
    if header.count is not None and len(layers) != header.count:
        message = f"the header announces {header.count} layers but {len(layers)} follow"
        source.problem(header.count_place, message, str(len(layers)), hint="one row a layer", field="layers")
    return layers


def _quick(source: Source, first_line: int, width: int, dialect: Dialect) -> tuple[Layer, ...] | None:
    """A row a line, read column by column, where each different word is looked at once; None when one is not right."""
    lines = [(number, line) for number, line in enumerate(source.lines[first_line - 1 :], first_line) if line.strip()]
    rows = [line.split() for _, line in lines]
    if set(map(len, rows)) != {width}:
        return None
    trial, columns = _trial(source), list(zip(*rows, strict=True))
    cells = [(), *(_column(index, words, trial, dialect) for index, words in enumerate(columns[1:], 1))]
    if trial.problems.found:
        return None
    made = cache(Phase)  # equal phases are one object
    phases = []
    for column in TYPE_COLUMNS:
        kinds, groups = zip(*map(TYPES.__getitem__, columns[column]), strict=True)
        phases.append(map(made, cells[column - 1], kinds, cells[column + 1], groups))
    starts = (line.index(name) + 1 for name, (_, line) in zip(columns[0], lines, strict=True))
    places = map(Location, repeat(source.file), (number for number, _ in lines), starts)
    loops = columns[WIDTH] if width > WIDTH else repeat("")
    return tuple(map(Layer, columns[0], *phases, cells[11], cells[1], loops, places, map(role_of, columns[0])))


def _column(index: int, words: Sequence[str], source: Source, dialect: Dialect) -> Sequence[int]:
    """The values of a column, as `_cell` gives them."""
    values = None if index in (*TYPE_COLUMNS, WIDTH) else unsigned_column(words)
    if values is None:
        known = {word: _cell(index, Token(word, 1, 1), source, dialect) for word in set(words)}
        values = [known[word] for word in words]
    return values


def _trial(source: Source) -> Source:
    """The same text, with problems of its own."""
    trial = Source("", source.file, Problems())
    trial.lines = source.lines
    return trial


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
