"""The columns of the 12-column text format: their names, their words, and what may be wrong in each."""

from __future__ import annotations

from simcore.errors import closest
from simcore.units import parse_bytes
from simcore.workload.headers import ROW_POLICIES
from simcore.workload.model import CollectiveKind, Dialect, Group, Layer, Phase
from simcore.workload.tokens import MAX_INTEGER, Source, Token, is_integer, unsigned

__all__ = [
    "COLLECTIVES",
    "COLUMNS",
    "SPELLINGS",
    "TYPES",
    "TYPE_COLUMNS",
    "WIDTH",
    "known_in",
    "read_row",
    "written_row",
]

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

COLUMNS = (
    "name",
    "reserved",
    "forward compute",
    "forward communication type",
    "forward size",
    "input-gradient compute",
    "input-gradient communication type",
    "input-gradient size",
    "weight-gradient compute",
    "weight-gradient communication type",
    "weight-gradient size",
    "update delay",
    "training loop of the row",
)
WIDTH = 12
TYPE_COLUMNS, SIZE_COLUMNS = (3, 6, 9), (4, 7, 10)


def known_in(word: str, dialect: Dialect) -> bool:
    """Whether a communication type has a meaning in the dialect: ASTRA-sim 1.0 has no groups."""
    return dialect == "simai" or TYPES[word][1] is Group.LOOP


def _phase(compute_ns: int, word: str, size_bytes: int) -> Phase:
    kind, group = TYPES.get(word, (None, Group.LOOP))
    return Phase(compute_ns, kind, size_bytes, group)


def written_row(layer: Layer) -> str:
    """A row with tabs between its columns."""
    phases = (layer.forward, layer.input_grad, layer.weight_grad)
    cells = (str(word) for p in phases for word in (p.compute_ns, SPELLINGS[p.collective, p.group], p.size_bytes))
    loop = [layer.loop] if layer.loop else []
    return "\t".join([layer.name, str(layer.reserved), *cells, str(layer.update_ns), *loop])


def read_row(row: list[Token], source: Source, width: int, dialect: Dialect) -> Layer:
    """One row, its problems noted."""
    if len(row) != width:
        _wrong_width(row, source, width)
    if len(row) < width:
        return Layer(row[0].text, location=source.location(row[0]))
    cells = [_cell(index, token, source, dialect) for index, token in enumerate(row[:width])]
    forward, input_grad, weight_grad = (_phase(cells[c - 1], row[c].text, cells[c + 1]) for c in TYPE_COLUMNS)
    loop = row[WIDTH].text if width > WIDTH else ""
    return Layer(row[0].text, forward, input_grad, weight_grad, cells[11], cells[1], loop, source.location(row[0]))


def _wrong_width(row: list[Token], source: Source, width: int) -> None:
    """A row with too few or too many columns: point at the first that is too much, or behind the last."""
    policy = "; the 13th is the row's training loop" if width > WIDTH else ""
    last = row[-1]
    place = row[width] if len(row) > width else Token("", last.line, last.column + len(last.text))
    missing = COLUMNS[len(row)] if len(row) < width else ""
    hint = f"the columns from '{missing}' on are missing" if missing else "only HYBRID_CUSTOMIZED has a 13th column"
    message = f"a row must have {width} columns{policy}"
    source.problem(place, message, f"{width} columns", f"{len(row)} columns", hint, field="row")


def _cell(index: int, token: Token, source: Source, dialect: Dialect) -> int:
    """The value of one column; words give 0."""
    if index == 0:
        return 0
    if index in TYPE_COLUMNS:
        _check_type(index, token, source, dialect)
        return 0
    if index == WIDTH:
        _check_policy(token, source)
        return 0
    value = _any_sign(token.text) if index == 1 else unsigned(token.text)
    if value is None:
        _not_a_number(index, token, source)
    return value or 0


def _any_sign(text: str) -> int | None:
    value = unsigned(text.lstrip("+-")) if is_integer(text) else None
    return value if value is None or text[0] != "-" else -value


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
    source.problem(token, message, expected, hint=_number_hint(index, token.text), field=label)


def _number_hint(index: int, text: str) -> str:
    """What was probably meant."""
    if text in TYPES:
        return "a communication type stands here: are the columns shifted?"
    if index not in SIZE_COLUMNS:
        return ""
    try:
        size = parse_bytes(text)
    except (ValueError, OverflowError):
        return ""
    return f"write {size}" if size >= 0 and str(size) != text else ""


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


def _check_policy(token: Token, source: Source) -> None:
    if token.text not in ROW_POLICIES:
        source.problem(token, "unknown training loop of a row", closest(token.text, ROW_POLICIES), field=COLUMNS[WIDTH])
