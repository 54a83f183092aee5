"""What is in a graph, for people: figures, critical path, and a picture's text as `chakra_visualizer` writes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np

from simcore.markup import escaped
from simcore.units import format_bytes, format_ns
from simcore.workload.chakra.columns import Columns
from simcore.workload.model import CollectiveKind, Graph, NodeKind
from simcore.workload.order import waiting_order

SHOWN = 12  # nodes of the critical path that the text names


def summarise(graph: Graph) -> dict[str, Any]:
    """Figures of a graph as plain data; durations are those recorded in the trace, not simulated ones."""
    path, counts = critical_path(graph), np.bincount(graph.kind, minlength=len(NodeKind))
    critical_ns, total_ns = int(graph.duration_ns[path].sum()), int(graph.duration_ns.sum())
    return {
        "nodes": len(graph),
        "dependencies": len(graph.deps),
        "kinds": {kind.name.lower(): int(counts[kind]) for kind in NodeKind if counts[kind]},
        "host_nodes": int(graph.on_cpu.sum()),
        "streams": np.unique(graph.stream[~graph.on_cpu & (graph.stream >= 0)]).tolist(),
        "communication": _communication(graph),
        "duration_ns": total_ns,
        "critical_path": {
            "duration_ns": critical_ns,
            "nodes": len(path),
            "longest": [
                {"id": int(graph.node_id[row]), "name": graph.names[row], "duration_ns": int(graph.duration_ns[row])}
                for row in sorted(path, key=lambda row: (-graph.duration_ns[row], row))[:SHOWN]
            ],
        },
        "parallelism": round(total_ns / critical_ns, 3) if critical_ns else 1.0,
    }


def _communication(graph: Graph) -> list[dict[str, Any]]:
    """Count and bytes by collective (or send and receive) and group, most bytes first."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    kinds = list(CollectiveKind)
    for row in np.flatnonzero(graph.kind >= NodeKind.SEND).tolist():
        transfer = NodeKind(graph.kind[row]).name.lower()
        name = kinds[graph.collective[row]].value if graph.collective[row] >= 0 else transfer
        entry = found[name, graph.group_names[graph.group[row]]]
        entry[0] += 1
        entry[1] += int(graph.size_bytes[row])
    rows = [
        {"collective": name, "group": group, "count": count, "bytes": size_bytes}
        for (name, group), (count, size_bytes) in found.items()
    ]
    return sorted(rows, key=lambda row: (-row["bytes"], row["collective"], row["group"]))


def critical_path(graph: Graph) -> list[int]:
    """Rows of the chain of dependencies with the longest recorded duration, first to last."""
    if not len(graph):
        return []
    finish, offsets, deps = finish_times(graph), graph.dep_offsets.tolist(), graph.deps.tolist()
    row = max(range(len(graph)), key=finish.__getitem__)
    path = []
    while row >= 0:
        path.append(row)
        row = max(deps[offsets[row] : offsets[row + 1]], key=finish.__getitem__, default=-1)
    return path[::-1]


def finish_times(graph: Graph) -> list[int]:
    """When each row ends in ns, if it takes its recorded duration as soon as what it waits for has ended."""
    duration, offsets, deps = graph.duration_ns.tolist(), graph.dep_offsets.tolist(), graph.deps.tolist()
    finish = [0] * len(graph)
    for row in waiting_order(graph.dep_offsets, graph.deps):
        finish[row] = duration[row] + max(map(finish.__getitem__, deps[offsets[row] : offsets[row + 1]]), default=0)
    return finish


def render(summary: dict[str, Any]) -> str:
    """The figures for people."""
    path = summary["critical_path"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in summary["kinds"].items())
    total, critical = format_ns(summary["duration_ns"]), format_ns(path["duration_ns"])
    sent = format_bytes(sum(row["bytes"] for row in summary["communication"]))
    lines = [
        f"{summary['nodes']:,} nodes record {total} of work, {critical} of it one after the other, and send {sent}.",
        f"nodes          {summary['nodes']:,} ({kinds})",
        f"dependencies   {summary['dependencies']:,}",
        f"recorded time  {total} in all, parallelism {summary['parallelism']}",
        f"critical path  {critical}, {path['nodes']} nodes; the longest of them are listed last",
    ]
    for row in summary["communication"]:
        group = f" in group {row['group']}" if row["group"] else ""
        lines.append(f"{row['collective']:<15}{row['count']:,} x, {format_bytes(row['bytes'])}{group}")
    lines += [
        f"  {format_ns(node['duration_ns']):>9}  {node['id']:>6}  {node['name'][:80]}" for node in path["longest"]
    ]
    return "\n".join(lines)


# Kind of dependency -> arrow head.
ARROWS = {"data": "normal", "control": "tee"}


def _edges(columns: Columns) -> Iterator[tuple[int, int, str]]:
    """From, to and kind of every dependency, by the row that waits; data first."""
    node_id = columns.node_id.tolist()
    pairs = {"data": columns.data, "control": columns.control}
    found = [
        (row, dep, kind)
        for kind, both in pairs.items()
        for row, dep in zip(*(map(int, side) for side in both), strict=True)
    ]
    return ((dep, node_id[row], kind) for row, dep, kind in sorted(found, key=itemgetter(0)))


def dot(columns: Columns) -> str:
    """The graph for Graphviz: boxes, data dependencies with arrows, control dependencies with bars."""
    lines = ["digraph {"]
    for number, name in zip(columns.node_id.tolist(), columns.names, strict=True):
        label = name.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'\t{number} [label="{label}" id={number} shape=box]')
    lines += [f"\t{source} -> {target} [arrowhead={ARROWS[kind]}]" for source, target, kind in _edges(columns)]
    return "\n".join([*lines, "}", ""])


def graphml(columns: Columns) -> str:
    """The graph as GraphML: `label` on nodes, `dependency` (data or control) on edges."""
    space = "http://graphml.graphdrawing.org/xmlns"
    schema = f'xsi:schemaLocation="{space} {space}/1.0/graphml.xsd"'
    lines = [
        "<?xml version='1.0' encoding='utf-8'?>",
        f'<graphml xmlns="{space}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" {schema}>',
        '  <key id="d1" for="edge" attr.name="dependency" attr.type="string" />',
        '  <key id="d0" for="node" attr.name="label" attr.type="string" />',
        '  <graph edgedefault="directed">',
    ]
    node = '    <node id="{}">\n      <data key="d0">{}</data>\n    </node>'
    edge = '    <edge source="{}" target="{}">\n      <data key="d1">{}</data>\n    </edge>'
    named = zip(columns.node_id.tolist(), columns.names, strict=True)
    lines += [node.format(number, escaped(name)) for number, name in named]
    lines += [edge.format(*ends) for ends in sorted(_edges(columns), key=itemgetter(0))]
    return "\n".join([*lines, "  </graph>", "</graphml>", ""])
