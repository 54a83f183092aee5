"""Random cases of ASTRA-sim 2.x, as its oracle writes them, with every option that its files and command line know."""

from math import prod
from random import Random

from tests.oracles.packets import GIBIBYTE

KINDS = ("ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL")
SIZES = (8, 67, 1001, 4096, 65537, 1_000_003, 1 << 26)
EVEN_SIZES, BYTE_PER_NS = (7200, 14400, 28800), 1e9 / GIBIBYTE
NODES = ("COMP", *["COMM_COLL"] * 3, *["COMM_SEND"] * 2, "MEM_LOAD", "MEM_STORE", "BROADCAST", "INVALID")


def fair_dim(kind, npus, latency_ns):
    """Every link carries a byte in a nanosecond."""
    return {"type": kind, "npus": npus, "bandwidth_GBps": BYTE_PER_NS, "latency_ns": latency_ns}


def implementations(names):
    """Keys of a system file, from a list of algorithms for each kind of collective."""
    return {f"{kind.lower().replace('_', '-')}-implementation": chosen for kind, chosen in names.items()}


def draw(seed):
    """A case: on every NPU work, collectives and messages that wait for some of the others.

    Every other one is `even`: times on links and at endpoints are multiples of 10 ns, so that much happens at one time.
    """
    draw, even = Random(seed), seed % 2 == 1  # noqa: S311 - a seed gives the same case everywhere
    aware = even or draw.random() < 0.4
    dims = _dims(draw, aware)
    if even:
        dims = [fair_dim(dims[0]["type"], dims[0]["npus"], draw.choice((10, 20, 50)))]
    npus = prod(dim["npus"] for dim in dims)
    system = _system(draw, dims)
    if even:
        system |= {"endpoint-delay": 10, "local-mem-bw": 1_000_000}
    groups = {str(number): draw.sample(range(npus), draw.randint(2, npus)) for number in (1, 20)}
    case = {
        "backend": "congestion_aware" if aware else "congestion_unaware", "topology": {"dims": dims}, "system": system,
        "cli": _command_line(draw), "comm_groups": groups, "remote_memory": _memory(draw, npus),
    }  # fmt: skip
    return case | {"workload": {"kind": "nodes", "per_npu": _Traces(draw, case, npus).drawn(even)}}


def in_rows(seed):
    """A case in which NPUs do the same in communicators that are rows of a dimension, of one number each.

    And in stages, each of which sends to its places in another one; where there are some, collectives stay inside.
    """
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    aware = draw.random() < 0.3
    dims = _dims(draw, aware)
    npus, (at, dim) = prod(dim["npus"] for dim in dims), draw.choice([*enumerate(dims)])
    size = draw.choice([size for size in range(2, dim["npus"] + 1) if dim["npus"] % size == 0])
    stride = prod(dim["npus"] for dim in dims[:at]) * draw.choice((1, dim["npus"] // size))
    rows = [range(first, first + size * stride, stride) for first in range(npus) if first // stride % size == 0]
    group_of = {npu: {"pg_name": str(number)} for number, row in enumerate(rows, 1) for npu in row}
    width = draw.choice([width for width in range(size * stride, npus + 1) if npus % width == 0])
    staged, traces = width < npus, [[] for _ in range(npus)]

    def add(npu, details):
        nodes = traces[npu]
        before = nodes[-1:] if details["type"] == "COMM_SEND" else nodes[-1 - seed % 2 :]
        nodes.append({"id": len(nodes), "data_deps": [node["id"] for node in before]} | details)

    for step in range(6):
        kind, size_bytes = draw.choice((*KINDS, "COMP", *["COMM_SEND"] * 2 * staged)), draw.choice(SIZES)
        begin, end = draw.sample(range(npus // width), 2) if staged else (0, 0)
        local = staged or draw.random() < 0.7
        for npu in range(begin * width, (begin + 1) * width) if kind == "COMM_SEND" else range(npus):
            if kind == "COMM_SEND":
                message = {"src": npu, "dst": npu + (end - begin) * width, "bytes": size_bytes, "tag": step}
                add(npu, {"type": kind} | message)
                add(message["dst"], {"type": "COMM_RECV"} | message)
            elif kind == "COMP":
                add(npu, {"type": kind, "duration_micros": (size_bytes + npu // width) % 7})
            else:
                sent = {"type": "COMM_COLL", "collective": kind, "bytes": size_bytes}
                add(npu, sent | (group_of[npu] if local else {}))
    return {
        "backend": "congestion_aware" if aware else "congestion_unaware", "topology": {"dims": dims},
        "system": _system(draw, dims) | {"roofline-enabled": 0}, "cli": _command_line(draw),
        "comm_groups": {str(number): [*row] for number, row in enumerate(rows, 1)},
        "workload": {"kind": "nodes", "per_npu": traces},
    }  # fmt: skip


def _dims(draw, aware):
    """One to three, one where links are shared; a ring of two that shares links aborts the original."""
    dims = []
    for _ in range(1 if aware else draw.choice((1, 2, 3))):
        kind, room = draw.choice(("Ring", "FullyConnected", "Switch")), 16 // prod(dim["npus"] for dim in dims)
        sizes = [size for size in (2, 3, 4, 5, 8, 16) if size <= room and not (aware and kind == "Ring" and size == 2)]
        if sizes:
            bandwidth, latency = draw.choice((0.5, 12.5, 46.6, 50, 308.36)), draw.choice((0, 1.5, 30, 500, 936.25))
            npus = draw.choice(sizes)
            dims.append({"type": kind, "npus": npus, "bandwidth_GBps": bandwidth, "latency_ns": latency})
    return dims


def _system(draw, dims):
    whole, short = draw.random() < 0.15, draw.random() < 0.2
    chosen = {}
    for kind in KINDS:
        names = [_algorithm(draw, dim["npus"], kind) for dim in dims]
        if whole:
            first = _algorithm(draw, prod(dim["npus"] for dim in dims), kind, trees=False)
            names = [f"one{first[0].upper()}{first[1:]}", *names[1:]]
        chosen[kind] = names[: draw.randint(1, len(names))] if short or whole else names
    return {
        "scheduling-policy": draw.choice(("LIFO", "FIFO", "EXPLICIT")),
        "endpoint-delay": draw.choice((1, 10, 47)),
        "active-chunks-per-dimension": draw.choice((1, 2, 3, 8)),
        "preferred-dataset-splits": draw.choice((1, 2, 3, 7)),
        "collective-optimization": draw.choice(("baseline", "localBWAware")),
        "local-mem-bw": draw.choice((50, 1600)),
        "roofline-enabled": int(draw.random() < 0.25),
        "peak-perf": draw.choice((1, 312, 989.4)),
        "replay-only": int(draw.random() < 0.05),
        **implementations(chosen),
    }


def _algorithm(draw, npus, kind, *, trees=True):
    powers = [] if npus & (npus - 1) else ["doubleBinaryTree"] * trees + ["halvingDoubling"] * (kind != "ALL_TO_ALL")
    return draw.choice(["ring", "direct", f"direct{draw.randint(1, npus + 1)}", *powers])


def _command_line(draw):
    found = {"num-queues-per-dim": draw.choice((1, 1, 2, 3, 4)), "rendezvous-protocol": draw.random() < 0.2}
    found |= {"injection-scale": draw.choice((1.5, 2, 3.3))} if draw.random() < 0.2 else {}
    return found | ({"comm-scale": 2, "compute-scale": 0.5} if draw.random() < 0.1 else {})


def _memory(draw, npus):
    kind = draw.choice(("PER_NPU_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "MEMORY_POOL"))
    found = {"memory-type": kind, "remote-mem-latency": draw.choice((1, 1000)), "remote-mem-bw": draw.choice((2.5, 50))}
    each = draw.choice([size for size in range(1, npus + 1) if npus % size == 0])
    return found | ({"num-nodes": npus // each, "num-npus-per-node": each} if "NODE" in kind else {})


class _Traces:
    """The nodes of every NPU. In most cases what needs the communication slot is in a chain, so that none deadlocks."""

    def __init__(self, draw, case, npus):
        self._draw, self._groups, self._dims = draw, case["comm_groups"], case["topology"]["dims"]
        self._roofline = case["system"]["roofline-enabled"]
        self._per_npu, self._chained = [[] for _ in range(npus)], draw.random() < 0.85

    def drawn(self, even):
        draw, sizes = self._draw, EVEN_SIZES if even else SIZES
        for _ in range(draw.randint(1, 8)):
            self._event(draw.choice(NODES), draw.choice(sizes))
        for npu in range(len(self._per_npu)):
            self._compute(npu, {})
        return self._per_npu

    def _event(self, kind, size):
        draw, npus = self._draw, range(len(self._per_npu))
        some = draw.sample(npus, draw.randint(1, len(npus)))
        host = {"is_cpu_op": True} if draw.random() < 0.25 else {}
        if kind == "COMM_COLL":
            self._collective(size)
        elif kind == "COMM_SEND":
            self._message(size)
        elif kind == "BROADCAST":
            for npu in npus:
                self._add(npu, {"type": "COMM_COLL", "collective": kind, "bytes": 1000, "duration_micros": npu % 3})
        elif kind != "INVALID" or draw.random() < 0.2:  # they hang where nothing follows
            for npu in some:
                self._compute(npu, host) if kind == "COMP" else self._add(npu, {"type": kind, "tensor_size": size})

    def _compute(self, npu, host):
        draw = self._draw
        details = {"type": "COMP", "duration_micros": draw.choice((0, 1, 7, 50))} | host
        if self._roofline and not host:
            details |= {"num_ops": draw.choice((1000, 123_456_789)), "tensor_size": draw.choice((64, 1 << 20))}
        self._add(npu, details)

    def _collective(self, size):
        draw, group = self._draw, self._draw.choice(("", "", "0", *self._groups))
        details = {
            "type": "COMM_COLL",
            "collective": draw.choice(KINDS),
            "bytes": size,
            "priority": draw.randint(-1, 2),
        }
        members = self._groups.get(group, range(len(self._per_npu)))
        if len(members) == len(self._per_npu) and draw.random() < 0.3:
            used = [draw.random() < 0.6 for _ in self._dims[1:]]
            details["involved_dim"] = [True, *used, *[True] * draw.choice((0, 3 - len(used)))]
        for npu in members:
            self._add(npu, details | ({"pg_name": group} if group else {}))

    def _message(self, size):
        src, dst = self._draw.sample(range(len(self._per_npu)), 2)
        tag = self._draw.choice((0, 1, 500_000_000))
        details = {"src": src, "dst": dst, "bytes": size, "tag": tag}
        self._add(src, {"type": "COMM_SEND"} | details)
        self._add(dst, {"type": "COMM_RECV"} | details)

    def _add(self, npu, details):
        draw, nodes = self._draw, self._per_npu[npu]
        density = draw.choice((0.2, 0.6, 0.9))
        deps = [node["id"] for node in nodes if draw.random() < density]
        if self._chained and details["type"] not in {"COMP", "COMM_RECV"}:
            deps += [node["id"] for node in nodes if node["type"] not in {"COMP", "COMM_RECV"}][-1:]
        ctrl = [dep for dep in deps if draw.random() < 0.3]
        number = (nodes[-1]["id"] if nodes else -1) + draw.choice((1, 1, 100))
        data = [dep for dep in deps if dep not in ctrl]
        nodes.append({"id": number, "data_deps": data, "ctrl_deps": ctrl} | details)
