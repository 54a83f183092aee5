"""What `simcore convert` does: tells what the source is and makes the files of the target."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from msgspec import Struct

from simcore.documents import read_text
from simcore.errors import InputError
from simcore.progress import meter
from simcore.workload import text
from simcore.workload.chakra import json_form, legacy, reader, writer
from simcore.workload.chakra.convert import flexflow, native, pytorch
from simcore.workload.chakra.convert import text as text_converter
from simcore.workload.chakra.pytorch_form import is_host_trace

Files = dict[Path, bytes]
JSON = (".json", ".json.gz")
FLEXFLOW = b"digraph taskgraph"
ENDINGS = (".et", ".et.gz", *JSON)
CYCLES_PER_MHZ = 1_000_000  # of one of FlexFlow's units, which Chakra's converter takes for seconds


class Options(Struct, frozen=True):
    """How to convert.

    `npus` and `iterations` belong to text workloads, `kineto` and `rank` to PyTorch's traces. `compat` asks for what
    Chakra's own converters make. `sizes`, the dimensions of the machine, asks for the training loop itself instead of
    Chakra's graph of it, with priorities after `policy`. `num_dims` is how many dimensions collectives of a text name;
    `npu_frequency_mhz` is the clock whose cycles durations count (FlexFlow with `compat`, and Chakra's schema of 2023).
    `tell` hears what of a source gets lost.
    """

    npus: int = 1
    iterations: int = 1
    compat: bool = False
    kineto: str = ""
    rank: int = 0
    sizes: tuple[int, ...] = ()
    policy: str = "LIFO"
    num_dims: int = 0
    npu_frequency_mhz: float | None = None
    tell: Callable[[str], None] = lambda text: None

    def clock_mhz(self, *, counts: bool) -> float:
        """The clock; InputError where one is given and the source `counts` no cycles."""
        if self.npu_frequency_mhz and not counts:
            expected = "a FlexFlow graph with --compat chakra, or traces of Chakra's schema of 2023"
            raise InputError.at("--npu-frequency", "the source counts no cycles", expected=expected)
        return self.npu_frequency_mhz or 1000.0


def convert(source: str, target: str, options: Options) -> Files:
    """Path -> content of every file that converting `source` makes; InputError when it cannot be converted."""
    return source_of(source).make(source, target, options)


class Source(Struct, frozen=True):
    """A kind of source: its `name`, the options that change something for it, what converts and what recognises it."""

    name: str
    takes: tuple[str, ...]
    make: Callable[[str, str, Options], Files]
    recognise: Callable[[str, bytes], bool] = lambda source, data: True


def source_of(source: str) -> Source:
    """What a source is taken for; what nothing recognises is a text workload."""
    path = Path(source)
    if path.is_dir() or not path.exists():
        return TRACES if reader.is_trace(source) else TEXT
    data = reader.content(path)
    return next(kind for kind in SOURCES if kind.recognise(source, data))


def _from_trace(source: str, target: str, options: Options) -> Files:
    """A trace of any schema or form as .et of today's schema, or as JSON when the target's name ends so."""
    content = reader.content(Path(source))
    data = legacy.to_current(content, source, options.clock_mhz(counts=legacy.detect(content) == "2023-01"))
    reader.decode(data, source)
    if not target.endswith(ENDINGS):
        raise InputError.at(target, "cannot tell what to make of a trace", expected="a name that ends in .et or .json")
    return {Path(target): _formed(data, source, target, options)}


def _formed(data: bytes, source: str, target: str, options: Options) -> bytes:
    """A trace of today's schema in the form that the name of its file asks for."""
    if not target.endswith(JSON):
        if options.compat:
            raise InputError.at("--compat", "has no effect on traces", expected="a target that ends in .json")
        return data
    return (json_form.to_jsonizer(data) if options.compat else json_form.to_json(data, source)).encode()


def _trace_set(source: str, target: str, options: Options) -> Files:
    """Every rank of a set in today's schema, as JSON when the target's name ends so, and the groups beside it."""
    counts = any(".eg" in file.suffixes for file in reader.files_of_set(source).values())
    files = reader.current_files(source, options.clock_mhz(counts=counts))
    base, ending = _parted(target)
    made = {Path(f"{base}.{rank}{ending}"): _formed(data, source, ending, options) for rank, data in files.items()}
    return made | writer.groups_beside(source, base)


def _from_flexflow(source: str, target: str, options: Options) -> Files:
    clock_mhz = options.clock_mhz(counts=options.compat)
    unit = clock_mhz * CYCLES_PER_MHZ if options.compat else flexflow.NS_PER_MS
    return _ranks(source, target, flexflow.convert(source, ns_per_unit=unit), options)


def _from_pytorch(source: str, target: str, options: Options) -> Files:
    options.clock_mhz(counts=False)
    data = pytorch.convert(source, options.kineto, compat=options.compat, tell=options.tell)
    reader.decode(data, source)
    if target.endswith(JSON):
        data = _formed(data, source, target, options)
    return {Path(target if target.endswith(ENDINGS) else f"{target}.{options.rank}.et"): data}


def _from_text(source: str, target: str, options: Options) -> Files:
    options.clock_mhz(counts=False)
    workload = text.read(source)
    if options.sizes:
        made = native.convert(workload, options.sizes, options.iterations, policy=options.policy)
        return _ranks(source, target, made, options)
    steps = text_converter.steps(workload, options.iterations, num_dims=options.num_dims, compat=options.compat)
    if any(layer.update_ns and any(phase.collective for phase in layer.phases) for layer in workload.layers):
        options.tell("update delays are left out, as Chakra's converter leaves them out; --native keeps them")
    if not options.compat:
        return _ranks(source, target, [text_converter.encode(steps)] * options.npus, options)
    body = read_text(source).replace("\r\n", "\n").replace("\r", "\n")
    firsts = (rank * len(steps) for rank in meter().over(range(options.npus)))
    made = [text_converter.encode(steps, first_id=at, compat=True, source=body) for at in firsts]
    return _ranks(source, target, made, options)


def _ranks(source: str, target: str, contents: list[bytes], options: Options) -> Files:
    """A trace for every rank, as JSON when the target's name ends so; most contents are one object."""
    base, ending = _parted(target)
    form = cache(lambda data: _formed(data, source, ending, options) if ending in JSON else data)
    return {Path(f"{base}.{rank}{ending}"): form(data) for rank, data in enumerate(contents)}


def _parted(target: str) -> tuple[str, str]:
    """How the names of a set's files begin and end."""
    ending = next((each for each in ENDINGS if target.endswith(each)), "")
    return target.removesuffix(ending), ending or ".et"


TEXT = Source(
    "a text workload", ("npus", "iterations", "native", "topology", "policy", "num_dims", "compat"), _from_text
)
TRACES = Source("a set of traces", ("compat",), _trace_set)
SOURCES = (
    Source("PyTorch's host trace", ("kineto", "rank", "compat"), _from_pytorch, lambda _, data: is_host_trace(data)),
    Source("a trace", ("compat",), _from_trace, lambda at, data: reader.is_trace(at) or json_form.is_json(data)),
    Source("FlexFlow's graph", ("compat",), _from_flexflow, lambda _, data: data[:200].lstrip().startswith(FLEXFLOW)),
    TEXT,
)
