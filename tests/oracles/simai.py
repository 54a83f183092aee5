"""A naive model of SimAI-Analytical, written from its description alone; cases are dictionaries as of its oracle.

What C++ keeps in a `float` has 24 significant bits here, too: sizes, computations, bandwidths, shares, exposed times.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf, isnan, nan
from pathlib import Path
from struct import pack, unpack

from tests.oracles.packets import GIBIBYTE, RefusalError

MEBIBYTE = 1 << 20
TABLES = Path(__file__).parents[2] / "simcore/cost/simai/ratios.txt"
NVLINK = {"A100": 12 * 20, "A800": 8 * 20, "H100": 18 * 20.6, "H20": 18 * 20.6, "H800": 8 * 20.6}
NIC = {"cx6": 23.5, "cx7": 48.5, "bf3": 48.5}
SMALL_NS = {2: 10_000, 4: 12_000, 8: 15_000, 16: 66_000, 32: 135_000, 64: 200_000, 128: 320_000}
KINDS = ("ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL")
FIGURES = ("compute", "comm", "exposed")


def single(number):
    """The nearest number of 24 significant bits."""
    return unpack("f", pack("f", number))[0]


def ratio_of(number, divisor):
    """A division as C++ has it."""
    if divisor:
        return number / divisor
    return inf if number > 0 else -inf if number < 0 else nan


def ticks(time):
    """Whole nanoseconds as C++ makes them of a number: none of infinitely many."""
    if isnan(time) or time < 0:
        raise RefusalError("garbage")
    return 0 if time == inf else int(time)


class Simulation:
    """The sums of one workload; `run` gives its summary in microseconds and every row's figures in nanoseconds."""

    def __init__(self, case):
        self._case, self._run = case, {"g_p_s": 8, "n_p_s": 8, "dp_o": 0, "tp_o": 0, "ep_o": 0, "pp_o": 1} | case["run"]
        words = case["workload"]["header"].split()
        self._loop, self._numbers = words[0], {}
        for key, value in pairwise(words):
            self._numbers.setdefault(key.rstrip(":"), int(value) if value.isdigit() else 0)
        self._lists = {key: int(words[at + 2]) for at, key in enumerate(words) if key.startswith("checkpoint")
                       and words[at + 1] != "0"}  # fmt: skip
        tp, self._ep = self._numbers["model_parallel_NPU_group"], self._numbers["ep"]
        self._tp, self._dp = tp, self._run["g"] // (tp * self._numbers["pp"])
        self._measured = _sections(case["busbw_yaml"]) if "busbw_yaml" in case else None

    def run(self):
        rows = [self._row(index, layer) for index, layer in enumerate(self._case["workload"]["layers"])]
        keys = ("compute", "exposed", "exposed_dp", "exposed_dp_ep", "exposed_tp", "exposed_ep", "bubble")
        sums = dict.fromkeys(keys, 0.0)
        for layer, row in zip(self._case["workload"]["layers"], rows, strict=True):
            outer, inner = _group(layer["wg"][1], "DP"), _group(layer["fwd"][1], "TP")
            sums["exposed_dp_ep" if outer == "DP_EP" else "exposed_dp"] += row["wg", "exposed"]
            sums["exposed_ep" if inner == "EP" else "exposed_tp"] += row["fwd", "exposed"] + row["ig", "exposed"]
            for figure in ("compute", "exposed"):
                sums[figure] += sum(row[phase, figure] for phase in ("fwd", "ig", "wg"))
            if layer["name"] != "embedding_layer":
                sums["bubble"] += sum(value for (phase, figure), value in row.items()
                                      if figure == "compute" or (figure == "comm" and phase != "wg"))  # fmt: skip
        times = self._numbers["ga"] * self._numbers["vpp"]
        sums["bubble"] *= (self._numbers["pp"] - 1) / times
        found = {f"{key}_us": value / 1000 for key, value in sums.items()} | {"exposed_pp_us": self._pipeline(times)}
        found["total_us"] = sum(found[f"{key}_us"] for key in ("compute", "exposed", "bubble", "exposed_pp"))
        return {"summary": found, "rows": rows}

    def _row(self, index, layer):
        hidden = self._run["ep_o" if _group(layer["fwd"][1], "TP") == "EP" else "tp_o"]
        row = {}
        for phase, share in (("fwd", hidden), ("ig", hidden), ("wg", self._run["dp_o"])):
            compute, kind, size = layer[phase]
            recomputing = phase == "fwd" and self._loop.endswith("FWD_IN_BCKWD")
            size = max(size, 4096) if recomputing and size else size
            times = 2 if recomputing and self._again(index) else 1
            comm = self._time(phase, kind, int(single(size)))
            row[phase, "compute"], row[phase, "comm"] = int(single(compute)) * times, comm
            row[phase, "exposed"] = int(single(single(comm) * single(1 - single(share))))
        return row

    def _again(self, index):
        """Whether a layer is computed again: from the first checkpoint of the list to the first initiator."""
        if "checkpoint_initiates:" not in self._lists:
            return False
        first, last = self._lists.get("checkpoints:", 1 << 31), self._lists["checkpoint_initiates:"]
        if first >= last:
            raise RefusalError("no checkpoint below the initiator")
        return first <= index < last

    def _pipeline(self, times):
        size, hidden = self._numbers.get("pp_comm", 0), single(self._run["pp_o"])
        bandwidth = hidden if self._measured is None else self._measured["PP"]["busbw"]
        whole = ticks(2 * times * ratio_of(size / GIBIBYTE, bandwidth) * 1e9 / 1000) if hidden < 1 else 0
        return int(single(single(whole) * single(1 - hidden)))

    def _time(self, phase, word, size):
        kind = next((kind for kind in KINDS if word.startswith(kind)), None)
        if kind is None:
            return 0
        group = _group(word, "DP" if phase == "wg" else "TP")
        if phase == "wg":
            ranks = self._dp // self._ep if group == "DP_EP" else self._dp
        else:
            ranks = self._ep if group == "EP" else self._tp
        if self._measured is not None:
            bandwidth = self._file(kind, group)
        elif 1 < size < MEBIBYTE:
            return SMALL_NS.get(ranks, 0)
        else:
            bandwidth = self._bus(kind, group, ranks, size) if group == "TP" or ranks > 1 else None
        if bandwidth is None:
            return 0
        passes = 2 if kind == "ALLREDUCE" else 1
        return ticks(ratio_of(ratio_of(size / GIBIBYTE, bandwidth) * 1e9 * passes * (ranks - 1), ranks))

    def _file(self, kind, group):
        """The figure of the file that a collective takes, None where it takes no time."""
        name = {"ALLREDUCE": "allreduce", "ALLTOALL": "alltoall"}.get(kind, "allgather")
        inside = self._tp <= self._run["g_p_s"]
        if group == "TP":
            return self._measured["TP"][name]
        if group == "EP":
            found = {"allreduce": "TP", "alltoall": "EP"}.get(name) if inside else None
            return found and self._measured[found][name]
        if self._run["g"] == self._run["g_p_s"] and inside:
            return self._measured["TP"][name] if name == "allreduce" else None
        return self._measured["EP" if group == "DP_EP" else "DP"]["allreduce" if name == "allreduce" else "allgather"]

    def _bus(self, kind, group, ranks, size):
        tp, g, c = self._tp, self._run["g_p_s"], self._run["n_p_s"]
        side = tp * self._ep
        nodes, gpus, nics = {
            "TP": (1, tp, c) if tp <= g else (tp // g, g, c),
            "EP": (1, g // tp, c) if tp * ranks <= g else (tp * ranks // g, max(1, g // tp), c // min(tp, g)),
            "DP": (ranks, g // tp, c // tp) if tp <= g else (ranks, 1, c // g),
            "DP_EP": (ranks, g // side, c // side) if side <= g else (ranks, 1, c // g),
        }[group]
        if nodes * gpus == 1:
            return 0
        if nics < 1:
            return -1
        nv = single(self._run.get("nv") or NVLINK[self._run["g_type"]])
        network = single(single(self._run.get("nic") or NIC[self._run["nic_t"]]) * nics)
        limit = single(single(nv * gpus) / (gpus - 1)) if gpus > 1 and network > nv else nv
        bound = nodes > 1 and gpus > 1 and limit < network
        if nodes == 1:
            found = nv
        elif kind == "ALLTOALL":
            found = single(single(single(network / gpus) * (nodes * gpus - 1)) / ((nodes - 1) * gpus))
        else:
            found = network if gpus == 1 else min(limit, network)
        return single(single(self._share(kind, group, ranks, size, bound)) * found)

    def _share(self, kind, group, ranks, size, bound):
        tp, g = self._tp, self._run["g_p_s"]
        if group == "TP" and kind in ("ALLGATHER", "REDUCESCATTER"):
            return ratio("nvlink" if bound else "nic", max(1, tp // g), size)
        if group == "TP" and kind == "ALLTOALL":
            return ratio("all_to_all", max(1, tp // g), size)
        if group == "EP" and kind == "ALLTOALL":
            nodes = 1 if tp * ranks <= g else 9 if tp >= g else tp * ranks // g
            return ratio("all_to_all", nodes, size)
        return 1


def ratio(table, nodes, size):
    """The share of a table: `nodes` 9 is its column "Multi 16", and what it does not have is that of 16."""
    known = {1: "1", 2: "2", 4: "4", 8: "8", 16: "16", 32: "32", 64: "64", 128: "128", 9: "multi"}
    rows = (line.split() for line in TABLES.read_text().splitlines() if line[:1] != "#")
    columns = {tuple(row[:2]): [float(share) for share in row[2:]] for row in rows}
    shares = columns.get((table, known.get(nodes, "16")), [1] * 11)
    sizes = [MEBIBYTE << step for step in range(4, 15)]
    if size > sizes[-1]:
        raise RefusalError("a size above the table's")
    if size == 0:
        return 1
    found = shares[0]
    for (low, high), (less, more) in zip(pairwise(sizes), pairwise(shares), strict=True):
        if low <= size <= high:
            found = less + (more - less) * (size - low) / (high - low)
            break
    return found / shares[-1]


def _group(word, plain):
    kind = next((kind for kind in KINDS if word.startswith(kind)), word)
    return {"": plain, "_EP": "EP", "_DP_EP": "DP_EP"}.get(word.removeprefix(kind), "NONE")


def _sections(text):
    found, section = {}, ""
    for line in text.splitlines()[1:]:
        key, _, value = (part.strip() for part in line.partition(":"))
        if value:
            found.setdefault(section, {})[key.rstrip(",")] = -1 if value == "null" else single(float(value))
        else:
            section = key
    return found
