"""The header of a 12-column text workload: training loop, its arguments, number of layers.

One grammar reads both dialects: ``LOOP [B] (KEY VALUE..)* N``. ASTRA-sim 1.0 knows the loop's own arguments in a
fixed order (`LOOPS`); any other key, or another order, is SimAI's keyed header. Keys may lack their colon:
`pp_comm 8388608` occurs in the wild. Source: ASTRA-sim branch ASTRA-sim-1.0 @07d5d19, SimAI @f5efb5a9, AICB 2.1.
"""

from __future__ import annotations

from typing import Any

from simcore.errors import InputError, closest
from simcore.library import table
from simcore.peers import refuse_foreign
from simcore.workload.loops import schedules
from simcore.workload.model import Dialect, Parallelism, Workload
from simcore.workload.tokens import Cursor, Token, is_integer, unsigned

GROUP, BOTTOM, CHECKPOINTS = "model_parallel_NPU_group", "DLRM_LAST_BOTTOM_LAYER", "checkpoints"
INITIATES, PIPELINE, STAGES, SCHEDULE = "checkpoint_initiates", "pp_comm", "stage_rows", "schedule"

# Training loop -> the arguments that its header must give.
LOOPS = {loop: tuple(said.replace("-", "").split()) for loop, said in table(__file__, "loops.txt")}
# What the 13th column may say: every loop whose dimensions do not depend on header arguments it lacks.
ROW_POLICIES = tuple(loop for loop in LOOPS if loop != "HYBRID_CUSTOMIZED" and GROUP not in LOOPS[loop])

# Key -> field of Parallelism. `cp`, `etp`, `stage_rows` and `schedule` are ours: SimAI, which passes over words that it
# does not know, has neither context parallelism nor pipelines, and splits experts like all else.
SIZES = {key: key for key in (GROUP, "ep", "pp", "vpp", "cp", "ga", "all_gpus", "etp")}
SIZES |= {GROUP: "tp", "ga": "gradient_accumulation", "etp": "expert_tp"}
LISTS = (CHECKPOINTS, INITIATES)
# Key -> field of Workload, in the order in which they are written.
FIELDS = {BOTTOM: "last_bottom_layer", **SIZES, **{key: key for key in (*LISTS, STAGES, SCHEDULE)}}
FIELDS[PIPELINE] = "pipeline_bytes"
OPTIONAL = (GROUP, "cp", "etp", STAGES, SCHEDULE)  # a SimAI header has them only where they say something
# `mode` stands in AICB's inference files and means nothing to a simulator.
KEYS = (*FIELDS, "mode")


class Header:
    """The header of a text, read up to and with the number of layers; what is wrong goes to the source's problems.

    `dialect` overrides what the keys tell. `places` are the words the values stand at, `count` is None when it is not
    readable. InputError at once when there is nothing to read.
    """

    def __init__(self, cursor: Cursor, dialect: Dialect | None):
        self.source, self.cursor, self.schedule = cursor.source, cursor, ""
        self.values: dict[str, tuple[int, ...]] = {}
        self.entries: dict[str, tuple[Token, ...]] = {}
        loop, problem = cursor.take(), self.source.problem
        if loop is None:
            problem(self.source.end(), "the workload is empty", "a training loop, the number of layers, the layers")
            raise InputError(self.source.problems.found)
        self.loop, self.places = loop.text, {"": loop}
        if loop.text in LOOPS:
            self._read()
        else:
            refuse_foreign("\n".join(self.source.lines), self.source.file, ("a text workload",))
            hint = "the loop and its arguments are separate words: HYBRID_DLRM 4" if loop.text[-1].isdigit() else ""
            problem(loop, "unknown training loop", closest(loop.text, LOOPS), hint=hint, field="loop")
            while (token := cursor.peek()) and token.line == loop.line:
                cursor.take()
        # SimAI's when a key stands there that ASTRA-sim 1.0 would not read at this place.
        order, usual = tuple(self.values), LOOPS.get(loop.text)
        keyed = bool(self.entries.get(BOTTOM)) if usual is None or order == usual else bool(order)
        self.dialect: Dialect = dialect or ("simai" if keyed else "astra-sim")
        self.count_place = cursor.peek() or self.source.end()
        self.count = self._count()
        if loop.text not in LOOPS and self.count is None:
            raise InputError(self.source.problems.found)  # no text workload at all: what its rows lack says nothing

    def _count(self) -> int | None:
        """The number of layers, None when it is missing or wrong."""
        token = self.cursor.peek()
        expected = "the number of layers, for example 8"
        if token is None:
            self.source.problem(self.source.end(), "the number of layers is missing", expected, field="layers")
            return None
        value = unsigned(token.text)
        alone = len(self.source.lines[token.line - 1].split()) == 1
        if value is None and not alone and not is_integer(token.text):
            message = "the number of layers is missing before this row"
            self.source.problem(token, message, expected, field="layers")
            return None
        self.cursor.take()
        if not value:
            message = "the number of layers must be a positive whole number"
            self.source.problem(token, message, expected, field="layers")
        return value or None

    def value(self, key: str, default: int) -> int:
        """A single value of the header."""
        return self.values[key][0] if self.values.get(key) else default

    @property
    def place(self) -> Token:
        """Where to point when the header does not fit the machine: the group size, otherwise the loop."""
        return self.places.get(GROUP, self.places[""])

    def told(self) -> dict[str, Any]:
        """The fields of a workload that the header tells."""
        found: dict[str, Any] = {"parallelism": Parallelism(**{SIZES[key]: self.value(key, 0) for key in SIZES})}
        found |= {key: self.values.get(key, ()) for key in (*LISTS, STAGES)}
        numbers = ((PIPELINE, 0), (BOTTOM, -1))
        found |= {FIELDS[key]: self.value(key, usual) for key, usual in numbers}
        return found | {"loop": self.loop, "dialect": self.dialect, "schedule": self.schedule}

    def _read(self) -> None:
        """All arguments of a known loop."""
        required, last = LOOPS[self.loop], self.places[""]
        if required == (BOTTOM,):
            self._positional_bottom_layer()
        while (token := self.cursor.peek()) and not is_integer(token.text):
            known = _key(token.text) in KEYS
            if not known and token.line != last.line:
                break
            self.cursor.take()
            last = token
            if known:
                self._argument(token)
                continue
            hint = closest(_key(token.text), KEYS)
            self.source.problem(token, f"unknown header key '{token.text}'", hint, field="header")
            following = self.cursor.peek()
            if following and following.line == token.line and is_integer(following.text):
                self.cursor.take()  # the number behind a word that is no key goes with it
        keyed = any(key not in required for key in self.values)
        optional = LISTS if keyed and not any(key in self.values for key in LISTS) else ()
        for key in required:
            if key not in self.values and key not in optional:
                example = f"{self.loop} 4" if key == BOTTOM else f"{key}: ..."
                found, message = " ".join(self.values) or "no arguments", f"{self.loop} needs '{key}'"
                self.source.problem(self.places[""], message, example, found, field=key)

    def _positional_bottom_layer(self) -> None:
        """ASTRA-sim 1.0's `HYBRID_DLRM B`; an integer on the next line with no other behind it is the layer count."""
        start, token = self.cursor.position, self.cursor.peek()
        if token is None or not is_integer(token.text):
            return
        self.cursor.take()
        following = self.cursor.peek()
        if token.line != self.places[""].line and not (following and is_integer(following.text)):
            self.cursor.position = start
            return
        self._store(BOTTOM, token, [self._number(BOTTOM, token)])

    def _argument(self, token: Token) -> None:
        key = _key(token.text)
        if key in self.values:
            self.source.problem(token, f"the key '{key}' stands twice", "one", field=key)
        value = self.cursor.peek()
        if value is None or _key(value.text) in KEYS:
            told = repr(value.text) if value else "the end of the file"
            self.source.problem(token, f"'{key}' has no value", f"{key}: NUMBER", told, field=key)
            self._store(key, token, [])
            return
        self.cursor.take()
        places = [value]
        if key == SCHEDULE:
            if value.text not in schedules.names():
                expected = closest(value.text, schedules.names())
                self.source.problem(value, "there is no such schedule", expected, field=key)
            self.schedule, places = value.text, []
        if key in (*LISTS, STAGES):  # `checkpoints: k c1 .. ck`
            length, places = self._number(key, value), []
            while len(places) < length and (entry := self.cursor.peek()) and _key(entry.text) not in KEYS:
                self.cursor.take()
                places.append(entry)
            if len(places) < length:
                told = f"{length} {'row counts' if key == STAGES else 'layer indices'} after '{key}: {length}'"
                self.source.problem(value, f"'{key}' has too few entries", told, f"{len(places)}", field=key)
        self._store(key, value, [self._number(key, place) for place in places])
        self.entries[key] = tuple(places)

    def _number(self, key: str, token: Token) -> int:
        """A whole number; AICB prints `pp_comm: 6291456.0`."""
        whole, point, rest = token.text.partition(".")
        text = whole if point and key == PIPELINE and not rest.strip("0") else token.text
        value = unsigned(text)
        if value is None or (key == GROUP and value == 0):
            least = 1 if key == GROUP else 0
            message = f"'{key}' must be a whole number of at least {least}"
            self.source.problem(token, message, f"an integer from {least} to 2^63 - 1", field=key)
            return least
        return value

    def _store(self, key: str, place: Token, values: list[int]) -> None:
        self.values[key], self.places[key] = tuple(values), place

    def check(self, layers: int) -> None:
        """Whether the layer indices of the header exist in a file of `layers` rows."""
        valid = f"a layer index from 0 to {layers - 1}"
        place = self.places.get(BOTTOM)
        if place and self.value(BOTTOM, 0) >= layers:
            self.source.problem(place, f"there is no layer {self.value(BOTTOM, 0)}", valid, field=BOTTOM)
        for key in LISTS:
            for index, token in zip(self.values.get(key, ()), self.entries.get(key, ()), strict=False):
                if index >= layers:
                    self.source.problem(token, f"'{key}' names a layer that does not exist", valid, field=key)
        if place and BOTTOM not in LOOPS.get(self.loop, (BOTTOM,)):
            message = f"{self.loop} has no bottom layers"
            self.source.problem(place, message, "HYBRID_DLRM or HYBRID_DLRM_ENHANCED", field=BOTTOM)
        if any(self.values.get(key) for key in LISTS) and CHECKPOINTS not in LOOPS.get(self.loop, LISTS):
            message = f"{self.loop} does not recompute, so it has no checkpoints"
            self.source.problem(self.places[CHECKPOINTS], message, "HYBRID_TRANSFORMER_FWD_IN_BCKWD", field=CHECKPOINTS)
        self._check_stages(layers)
        if not self.source.problems.found:
            self._check_recomputation()

    def _check_stages(self, layers: int) -> None:
        """The parts of a pipelined model: as many as there are stages, virtual ones counted, and together all rows."""
        rows, stages = self.values.get(STAGES, ()), self.value("pp", 1) * max(1, self.value("vpp", 1))
        if self.schedule and self.value("pp", 1) < 2:
            place = self.places[SCHEDULE]
            self.source.problem(place, "there is no pipeline to schedule", "pp: 2 or more", field=SCHEDULE)
        if not rows:
            return
        place = self.places[STAGES]
        if len(rows) != stages:
            expected = f"{STAGES}: {stages} and as many numbers"
            told = f"'{STAGES}' must count the rows of pp * vpp parts"
            self.source.problem(place, told, expected, f"{len(rows)}", field=STAGES)
        elif sum(rows) != layers or not all(rows):
            told = f"the rows of '{STAGES}' are not those of the file"
            self.source.problem(place, told, f"positive numbers that add up to {layers}", f"{sum(rows)}", field=STAGES)

    def _check_recomputation(self) -> None:
        """Every initiator needs a checkpoint at or below it and an initiator above that checkpoint to stop at."""
        checkpoints, initiates = self.values.get(CHECKPOINTS, ()), self.values.get(INITIATES, ())
        for index, token in zip(initiates, self.entries.get(INITIATES, ()), strict=False):
            below = [checkpoint for checkpoint in checkpoints if checkpoint <= index]
            if not below:
                message = f"no checkpoint at or below layer {index}, where recomputation starts"
                self.source.problem(token, message, f"one of 'checkpoints:' to be at most {index}", field=INITIATES)
            elif not any(other > max(below) for other in initiates):
                message = f"recomputation from checkpoint {max(below)} never ends"
                hint = "it runs up to the first layer of 'checkpoint_initiates:' above the checkpoint"
                self.source.problem(token, message, f"an entry above {max(below)}", hint=hint, field=INITIATES)

    def warnings(self) -> list[str]:
        """What SimAI warns about: sizes that are missing or 0, pipeline traffic without a pipeline."""
        if self.dialect != "simai" or GROUP not in self.values:
            return []
        where = f"{self.source.file}:{self.places[''].line}"
        absent = [key for key in ("pp", "vpp", "ga") if not self.value(key, 0)]
        found = [f"{where}: the header gives no {', '.join(absent)}; 1 is meant where it is needed"] if absent else []
        stages, traffic = self.value("pp", 1), self.value(PIPELINE, 0)
        untold = stages > 1 and not traffic and STAGES not in self.values  # rows of every stage may hold its waiting
        if untold or (stages <= 1 and traffic > 0):
            found.append(f"{where}: pp is {stages} but pp_comm is {traffic} bytes")
        return found


def _key(word: str) -> str:
    return word.removesuffix(":")


def write_header(workload: Workload) -> str:
    """The first line; InputError when the workload's dialect has no words for what it holds."""
    if workload.loop not in LOOPS:
        raise InputError.at(workload.loop, "unknown training loop", expected=closest(workload.loop, LOOPS))
    required, sizes = LOOPS[workload.loop], workload.parallelism
    values = {key: getattr(sizes if key in SIZES else workload, name) for key, name in FIELDS.items()}
    unsaid = {BOTTOM} - {*required} | {key for key in OPTIONAL if not values[key]}
    keys = [key for key in FIELDS if key not in unsaid]
    if workload.dialect == "astra-sim":
        if lost := [key for key, value in values.items() if value not in (0, -1, "", ()) and key not in required]:
            message = f"ASTRA-sim 1.0's header of {workload.loop} cannot say {', '.join(lost)}"
            raise InputError.at(workload.name or "workload", message, hint="write it in the simai dialect")
        if required == (BOTTOM,):
            return f"{workload.loop} {workload.last_bottom_layer}"
        keys = [*required]
    words = [workload.loop]
    for key in keys:
        value = values[key]
        words += [f"{key}:", *map(str, (len(value), *value) if isinstance(value, tuple) else [value])]
    return " ".join(words)
