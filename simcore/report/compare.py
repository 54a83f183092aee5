"""Two reports aligned: where the time went, per share, layer, collective and dimension."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from simcore.errors import printable
from simcore.report.document import Option, PhaseRow, ReportDocument
from simcore.report.grid import grid, top
from simcore.report.tables import phases
from simcore.report.text import PHASE_WORDS, wrapped
from simcore.units import format_bytes, format_ns
from simcore.workload.model import PhaseName

__all__ = ["SCHEMA", "Comparison", "Pair", "compare", "headline", "render"]

SCHEMA = "simcore.compare/1"
NUM_ROWS = 12
NO_PHASE: PhaseRow = {"compute_ns": 0, "comm_ns": 0, "exposed_ns": 0, "collective": None, "bytes": 0}


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure in both reports."""

    a: int
    b: int

    @property
    def difference(self) -> int:
        """What B has more than A."""
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class LayerPair:
    """A phase of a layer in both reports; layers are aligned by name, equal names in order.

    `only` is 'a' or 'b' where the other report has no such layer, '' where both have it.
    """

    name: str
    phase: PhaseName
    only: str
    collective: str
    compute_ns: Pair
    comm_ns: Pair
    exposed_ns: Pair
    size_bytes: Pair


@dataclass(frozen=True, slots=True)
class CollectivePair:
    """All collectives of a kind in both reports."""

    collective: str
    comm_ns: Pair
    exposed_ns: Pair
    size_bytes: Pair


@dataclass(frozen=True, slots=True)
class DimensionPair:
    """A dimension in both reports, aligned by index; its kind and size, with an arrow where they differ."""

    name: str
    size_bytes: Pair
    busy_ns: Pair


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports aligned.

    Times are sums over iterations where both reports have as many, else means per iteration (`per_iteration`).
    `settings` says what differs in the question: (what, in A, in B).
    """

    per_iteration: bool
    num_iterations: Pair
    settings: tuple[tuple[str, str, str], ...]
    time_ns: Pair
    compute_ns: Pair
    exposed_comm_ns: Pair
    idle_ns: Pair
    layers: tuple[LayerPair, ...]
    collectives: tuple[CollectivePair, ...]
    dims: tuple[DimensionPair, ...]

    def to_dict(self) -> dict[str, object]:
        """A JSON document: every pair as {"a", "b"}."""
        return {"schema": SCHEMA, **asdict(self)}


def compare(a: ReportDocument, b: ReportDocument) -> Comparison:
    """Align two reports."""
    iterations = Pair(max(1, len(a["iterations"])), max(1, len(b["iterations"])))
    per_iteration = iterations.a != iterations.b
    mean = _Mean(*((iterations.a, iterations.b) if per_iteration else (1, 1)))
    shares_a, shares_b = a["breakdown"], b["breakdown"]
    return Comparison(
        per_iteration=per_iteration,
        num_iterations=iterations,
        settings=tuple(_settings(a, b)),
        time_ns=mean.pair(a["time_ns"], b["time_ns"]),
        compute_ns=mean.pair(
            shares_a["compute_ns"] + shares_a["overlapped_ns"], shares_b["compute_ns"] + shares_b["overlapped_ns"]
        ),
        exposed_comm_ns=mean.pair(shares_a["exposed_comm_ns"], shares_b["exposed_comm_ns"]),
        idle_ns=mean.pair(shares_a["idle_ns"], shares_b["idle_ns"]),
        layers=tuple(_layers(a, b, mean)),
        collectives=tuple(_collectives(a, b, mean)),
        dims=tuple(_dims(a, b, mean)),
    )


@dataclass(frozen=True, slots=True)
class _Mean:
    """What figures are divided by."""

    a: int
    b: int

    def pair(self, a: int, b: int) -> Pair:
        return Pair(round(a / self.a) if self.a > 1 else a, round(b / self.b) if self.b > 1 else b)


def _settings(a: ReportDocument, b: ReportDocument) -> Iterable[tuple[str, str, str]]:
    """What differs between the two questions."""
    plain_a, plain_b = ({key: str(value) for key, value in report.items()} for report in (a, b))
    for key in ("version", "profile", "network", "npus"):
        if plain_a[key] != plain_b[key]:
            yield key, plain_a[key], plain_b[key]
    options_a, options_b = (report.get("options", {}) for report in (a, b))
    for key in sorted({*options_a, *options_b}):
        if options_a.get(key) != options_b.get(key):
            yield key, _given(options_a.get(key)), _given(options_b.get(key))
    files_a, files_b = ({entry["role"]: entry for entry in report["inputs"]} for report in (a, b))
    for role in dict.fromkeys([*files_a, *files_b]):
        file_a, file_b = files_a.get(role), files_b.get(role)
        if (file_a and file_a["sha256"]) != (file_b and file_b["sha256"]):
            yield role, file_a["path"] if file_a else "none", file_b["path"] if file_b else "none"


def _given(value: Option | None) -> str:
    if value is None:
        return "none"
    return " ".join(value) if isinstance(value, list) else str(value)


def _by_key(report: ReportDocument) -> dict[tuple[str, int, PhaseName], PhaseRow]:
    """Phases by layer name, how often the name came before, and phase."""
    seen: Counter[str] = Counter()
    rows: dict[tuple[str, int, PhaseName], PhaseRow] = {}
    for layer in report["layers"]:
        name = layer["name"]
        rows |= {(name, seen[name], phase): row for phase, row in phases(layer)}
        seen[name] += 1
    return rows


def _layers(a: ReportDocument, b: ReportDocument, mean: _Mean) -> Iterable[LayerPair]:
    rows_a, rows_b = _by_key(a), _by_key(b)
    for key in dict.fromkeys([*rows_a, *rows_b]):
        row_a, row_b = rows_a.get(key, NO_PHASE), rows_b.get(key, NO_PHASE)
        only = "b" if key not in rows_a else "a" if key not in rows_b else ""
        yield LayerPair(
            name=key[0],
            phase=key[2],
            only=only,
            collective=_kinds(row_a["collective"], row_b["collective"], only),
            compute_ns=mean.pair(row_a["compute_ns"], row_b["compute_ns"]),
            comm_ns=mean.pair(row_a["comm_ns"], row_b["comm_ns"]),
            exposed_ns=mean.pair(row_a["exposed_ns"], row_b["exposed_ns"]),
            size_bytes=Pair(row_a["bytes"], row_b["bytes"]),
        )


def _kinds(a: str | None, b: str | None, only: str) -> str:
    """The collective of a phase; with an arrow where it changed."""
    if only:
        return (a if only == "a" else b) or ""
    return _arrow(a or "none", b or "none") if a or b else ""


def _arrow(a: str, b: str) -> str:
    return a if a == b else f"{a} -> {b}"


def _collectives(a: ReportDocument, b: ReportDocument, mean: _Mean) -> Iterable[CollectivePair]:
    """The layers' communication by kind, in alphabetical order."""
    rows_a, rows_b = list(_by_key(a).values()), list(_by_key(b).values())
    for kind in sorted({row["collective"] for row in [*rows_a, *rows_b] if row["collective"]}):
        same_a, same_b = ([row for row in rows if row["collective"] == kind] for rows in (rows_a, rows_b))
        yield CollectivePair(
            collective=kind,
            comm_ns=mean.pair(sum(row["comm_ns"] for row in same_a), sum(row["comm_ns"] for row in same_b)),
            exposed_ns=mean.pair(sum(row["exposed_ns"] for row in same_a), sum(row["exposed_ns"] for row in same_b)),
            size_bytes=Pair(sum(row["bytes"] for row in same_a), sum(row["bytes"] for row in same_b)),
        )


def _dims(a: ReportDocument, b: ReportDocument, mean: _Mean) -> Iterable[DimensionPair]:
    rows_a, rows_b = ({dim["index"]: dim for dim in report["dims"]} for report in (a, b))
    for index in sorted({*rows_a, *rows_b}):
        dim_a, dim_b = rows_a.get(index), rows_b.get(index)
        names = [f"{dim['kind']} of {dim['npus']}" if dim else "none" for dim in (dim_a, dim_b)]
        size = mean.pair(dim_a["bytes_per_npu"] if dim_a else 0, dim_b["bytes_per_npu"] if dim_b else 0)
        busy = mean.pair(dim_a["busy_ns"] if dim_a else 0, dim_b["busy_ns"] if dim_b else 0)
        yield DimensionPair(f"{index}: {_arrow(*names)}", size, busy)


def headline(comparison: Comparison) -> str:
    """What changed and why, in a sentence."""
    time = comparison.time_ns
    if not time.difference:
        return f"Both take {format_ns(time.a)}{_each(comparison)}; {_unchanged(comparison)}."
    faster = time.difference < 0
    factor = max(time.a, time.b) / max(min(time.a, time.b), 1)
    verdict = f"{factor:.3g} times as {'fast' if faster else 'slow'} as A"
    if factor < 1.1:
        verdict = f"{100 * abs(time.difference) / max(time.a, 1):.2g}% {'less' if faster else 'more'}"
    times = f"B takes {format_ns(time.b)}{_each(comparison)} where A takes {format_ns(time.a)}"
    return f"{times}, {verdict}: {_cause(comparison)}."


def _each(comparison: Comparison) -> str:
    return " per iteration" if comparison.per_iteration or comparison.num_iterations.a == 1 else ""


def _unchanged(comparison: Comparison) -> str:
    pairs = (comparison.compute_ns, comparison.exposed_comm_ns, comparison.idle_ns)
    rows = [pair.difference for layer in comparison.layers for pair in (layer.compute_ns, layer.comm_ns)]
    if not any(pair.difference for pair in pairs) and not any(rows):
        return "nothing that is measured changed"
    return "what changed inside cancels out"


def _cause(comparison: Comparison) -> str:
    """The share of time that changed most in the direction of the whole, and the layer behind it."""
    whole = comparison.time_ns.difference
    shares = {
        "compute": comparison.compute_ns.difference,
        "exposed communication": comparison.exposed_comm_ns.difference,
        "idle time": comparison.idle_ns.difference,
    }
    name, change = max(shares.items(), key=lambda share: share[1] * (1 if whole > 0 else -1))
    said = f"{name} {'grew' if change > 0 else 'fell'} by {format_ns(abs(change))}"
    if abs(change) < abs(whole):
        said += f" ({change / whole:.0%} of the difference)"
    layer = _layer_behind(comparison.layers, name, change)
    return f"{said}, above all {layer}" if layer else said


def _layer_behind(layers: Sequence[LayerPair], share: str, change: int) -> str:
    """The phase of a layer that contributes most to the change of a share."""
    sign = 1 if change > 0 else -1
    if share == "idle time" or not layers:
        return ""
    computing = share == "compute"
    layer = max(layers, key=lambda each: sign * (each.compute_ns if computing else each.exposed_ns).difference)
    by = (layer.compute_ns if computing else layer.exposed_ns).difference
    if sign * by <= 0:
        return ""
    what = f"{PHASE_WORDS[layer.phase]} of {layer.name}"
    if computing:
        return f"in the {what} ({_signed(by)})"
    return f"the {layer.collective} after the {what} ({_signed(by)}; {_why(layer)})"


def _why(layer: LayerPair) -> str:
    """Why a layer waits longer or shorter for its collective."""
    size = layer.size_bytes
    if layer.only:
        return f"only {layer.only.upper()} has this layer"
    if size.difference:
        return f"its size went from {format_bytes(size.a)} to {format_bytes(size.b)}"
    if layer.comm_ns.difference:
        change = "more" if layer.comm_ns.difference > 0 else "less"
        return f"of the same size, it takes {format_ns(abs(layer.comm_ns.difference))} {change}"
    return "it takes as long, but overlaps differently"


def _signed(difference: int) -> str:
    sign = "+" if difference > 0 else "-" if difference < 0 else ""
    return sign + format_ns(abs(difference))


def render(comparison: Comparison, *, width: int = 80, num_rows: int = NUM_ROWS) -> str:
    """The comparison for a terminal."""
    parts = (
        wrapped(headline(comparison), width),
        wrapped(_settings_text(comparison.settings), width),
        _shares_table(comparison, width),
        _layers_table(comparison.layers, width, num_rows),
        _collectives_table(comparison.collectives, width),
        _dims_table(comparison.dims, width),
    )
    return "\n\n".join(printable(part) for part in parts if part) + "\n"


def _settings_text(settings: Sequence[tuple[str, str, str]]) -> str:
    if not settings:
        return "Both have the same inputs and settings."
    return "They differ in " + "; ".join(f"{what} ({a} -> {b})" for what, a, b in settings) + "."


def _cells(pair: Pair) -> tuple[str, str, str]:
    return format_ns(pair.a), format_ns(pair.b), _signed(pair.difference)


def _shares_table(comparison: Comparison, width: int) -> str:
    shares: Mapping[str, Pair] = {
        "time": comparison.time_ns,
        "compute": comparison.compute_ns,
        "exposed communication": comparison.exposed_comm_ns,
        "idle": comparison.idle_ns,
    }
    rows = [(name, *_cells(pair)) for name, pair in shares.items()]
    title = "rank 0, per iteration" if comparison.per_iteration else "rank 0"
    return grid((title, "A", "B", "B - A"), rows, width=width)


def _layers_table(layers: Sequence[LayerPair], width: int, num_rows: int) -> str:
    """The phases that changed most."""
    changed = [layer for layer in layers if _change(layer)]
    chosen = sorted(changed, key=lambda layer: -_change(layer))[:num_rows]
    rows = [
        (
            layer.name + f" (only {layer.only.upper()})" * bool(layer.only),
            layer.phase.value,
            _signed(layer.compute_ns.difference),
            _signed(layer.comm_ns.difference),
            _signed(layer.exposed_ns.difference),
            layer.collective,
        )
        for layer in chosen
    ]
    header = ("layer, B - A", "phase", "compute", "comm", "exposed", "collective")
    if not rows:
        return "No layer changed." if layers else ""
    note = top(len(chosen), len(changed), "changed phases")
    return grid(header, rows, left=(0, 1, 5), width=width) + ("\n" + note if note else "")


def _change(layer: LayerPair) -> int:
    compute, exposed = abs(layer.compute_ns.difference), abs(layer.exposed_ns.difference)
    return max(compute + exposed, abs(layer.comm_ns.difference))


def _collectives_table(collectives: Sequence[CollectivePair], width: int) -> str:
    rows = [
        (
            pair.collective,
            *_cells(pair.comm_ns),
            _signed(pair.exposed_ns.difference),
            format_bytes(pair.size_bytes.a),
            format_bytes(pair.size_bytes.b),
        )
        for pair in collectives
    ]
    header = ("collective", "time A", "time B", "B - A", "exposed B - A", "size A", "size B")
    return grid(header, rows, width=width) if rows else ""


def _dims_table(dims: Sequence[DimensionPair], width: int) -> str:
    rows = [
        (dim.name, format_bytes(dim.size_bytes.a), format_bytes(dim.size_bytes.b), *_cells(dim.busy_ns)) for dim in dims
    ]
    header = ("dimension", "sent A", "sent B", "busy A", "busy B", "B - A")
    return grid(header, rows, width=width) if rows else ""
