"""What is sent: a collective (`Dataset`) is cut into chunks (`Stream`s) that go through phases in the dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from simcore.network.instant import Environment
from simcore.network.topology.fabric import IntArray
from simcore.system.collectives import Algorithm
from simcore.system.groups import GroupDim
from simcore.workload.model import CollectiveKind

if TYPE_CHECKING:
    from simcore.system.chunks.scheduler import Scheduler

IDLE = -1


class Turns(Struct, eq=False):
    """All NPUs, the one first that acts first of those that act in the same nanosecond; None = as their ids are.

    `play` works it out when somebody asks.
    """

    play: Callable[[], object] = tuple
    npus: IntArray | None = None

    @property
    def first(self) -> int:
        """Who acts first."""
        self.play()
        return 0 if self.npus is None else self.npus[0].item()


BY_ID = Turns()


class Lane(Struct, frozen=True, cache_hash=True):
    """A logical dimension as one kind of collective uses it: with an algorithm; `position` numbers the queues.

    A `local` one is a communicator of a trace, for which peers have costs and turns of their own.
    """

    position: int
    dim: GroupDim
    algorithm: Algorithm
    local: bool = False

    @property
    def backward(self) -> Lane:
        """The same dimension taken the other way round."""
        return replace(self, dim=replace(self.dim, backward=not self.dim.backward))


class Request(Struct, frozen=True):
    """A collective to issue: `lanes` are the dimensions it spans, ascending; `group` names a communicator,
    whose chunks are told apart by its `turn`: of those that come to a link in a nanosecond the lower one goes first.

    `root` is the NPU that a rooted collective starts from or ends at. Where an NPU of the group gives more, it is cut
    as its `most_bytes` are, so that all have the same chunks. `update_ns` is added to the completion; `layer` and
    `phase` are for the timeline only. `row` is the node's in its trace: of those that an NPU issues in one instant the
    lowest is first.
    """

    kind: CollectiveKind
    size_bytes: int
    lanes: tuple[Lane, ...]
    priority: int
    update_ns: int = 0
    layer: int = -1
    phase: int = -1
    name: int = 0
    group: str = ""
    turn: int = 0
    root: int = 0
    row: int = 0
    most_bytes: int = 0


class StreamPhase(Struct, frozen=True, eq=False):
    """One collective of one chunk in one dimension: `data_bytes` when it starts, `final_bytes` when it ends.

    `mirrored` says which of the two trees a double-binary-tree phase uses. `root` is the place of the root in the
    group, IDLE where a group has nothing to send, because the data of a rooted collective are elsewhere then. Equal
    ones are the same object (`phases` sees to it), so that looking one up costs little.
    """

    kind: CollectiveKind
    lane: Lane
    data_bytes: int
    final_bytes: int
    queue: int
    mirrored: bool = False
    root: int = 0

    @property
    def largest_bytes(self) -> int:
        """The larger of the two sizes."""
        return max(self.data_bytes, self.final_bytes)


Chunks = tuple[tuple[StreamPhase, ...], ...]
"""The phases of every chunk of a collective."""


class Dataset:
    """A collective on its way: `done` succeeds when all its chunks have arrived and the update delay is over.

    `chunks` are the phases of each, numbered from `first` on in their group, those of higher `priority` (that of the
    request, where none is given) go first; `iteration` is for the timeline. `then` is called at once, before anything
    else of that instant. `order` is the one in which NPUs saw the last chunk arrive, where that matters. `owner` has it
    on its way. `route` says what its NPU does next, where that may be told ahead: a `npus.npu.Route`.
    """

    __slots__ = (
        "_streams", "chunks", "done", "first", "issue_ns", "iteration", "order", "owner", "priority", "request",
        "route", "then",
    )  # fmt: skip

    owner: Scheduler

    def __init__(
        self,
        env: Environment,
        request: Request,
        chunks: Chunks = (),
        first: int = 0,
        priority: int | None = None,
        iteration: int = 0,
    ):
        self.request, self.issue_ns, self.chunks, self.first = request, env.now, chunks, first
        self.priority, self.iteration = request.priority if priority is None else priority, iteration
        self.done = env.event()
        self.then: Callable[[], object] | None = None
        self.route: object = None
        self.order = BY_ID
        self._streams: dict[tuple[int, int], Stream] | None = None

    @property
    def streams(self) -> dict[tuple[int, int], Stream]:
        """The chunks on their way, made when somebody asks for them one by one."""
        if self._streams is None:
            keys = [(self.request.turn, number) for number in range(self.first, self.first + len(self.chunks))]
            self._streams = {key: Stream(key, self, phases) for key, phases in zip(keys, self.chunks, strict=True)}
        return self._streams

    @property
    def came(self) -> tuple[float, int]:
        """When the NPU issued it, and where among those of that instant."""
        return self.issue_ns, self.request.row

    @property
    def missing(self) -> float:
        """What share of its chunks has not arrived."""
        return 1 if self._streams is None else len(self._streams) / max(len(self.chunks), 1)

    def arrive(self) -> None:
        """All chunks are there."""
        self._streams = {}


class Stream:
    """A chunk: `phase` after phase, `at` numbers the one it is in or, until it has `begun`, waits for; `key` (turn of
    its group, number) is the same on all its NPUs. The phase began at `begin_ns` and ends, where that is known, at
    `end_ns`.
    """

    __slots__ = ("at", "begin_ns", "begun", "dataset", "end_ns", "key", "phase", "phases", "priority")

    def __init__(self, key: tuple[int, int], dataset: Dataset, phases: tuple[StreamPhase, ...]):
        self.key, self.dataset, self.phases = key, dataset, phases
        self.priority = dataset.priority
        self.at, self.begun, self.phase, self.begin_ns = 0, False, phases[0], 0
        self.end_ns: float = -1

    def advance(self) -> None:
        """A phase is over, the next one waits."""
        self.at += 1
        self.begun, self.end_ns = False, -1
        self.phase = self.phases[self.at]

    @property
    def remaining(self) -> int:
        """Phases behind this one."""
        return len(self.phases) - self.at - 1


class LonePhase(Struct, eq=False):
    """A phase that is played by itself, as the only one of a chunk: all that `Played` asks of a `Stream`."""

    key: Any
    phase: StreamPhase
    at: int = 0


def begin(streams: Mapping[int, Stream]) -> None:
    """Let those whose chunks they are, by class, begin their phase."""
    next(iter(streams.values())).dataset.owner.begin(streams)


def through(stream: Stream) -> None:
    """Tell whose chunk it is that it is through its phase."""
    stream.dataset.owner.through(stream)
