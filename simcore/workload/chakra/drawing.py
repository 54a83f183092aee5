"""A trace as a picture's text: Graphviz and GraphML, as `chakra_visualizer` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from simcore.errors import printable
from simcore.workload.chakra.columns import Columns

__all__ = ["dot", "graphml"]

# Kind of dependency -> arrow head.
ARROWS = {"data": "normal", "control": "tee"}


def _edges(columns: Columns) -> Iterator[tuple[int, int, str]]:
    """From, to and kind of every dependency, by the row that waits; data first."""
    node_id = columns.node_id.tolist()
    found = []
    for order, (kind, pairs) in enumerate((("data", columns.data), ("control", columns.control))):
        rows, wanted = pairs[0].tolist(), pairs[1].tolist()
        found += [(row, order, dep, kind) for row, dep in zip(rows, wanted, strict=True)]
    for row, _, dep, kind in sorted(found, key=lambda edge: edge[:2]):
        yield dep, node_id[row], kind


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
    for number, name in zip(columns.node_id.tolist(), columns.names, strict=True):
        lines += [
            f"    <node id={quoteattr(str(number))}>",
            f'      <data key="d0">{escape(printable(name))}</data>',
            "    </node>",
        ]
    for source, target, kind in sorted(_edges(columns), key=lambda edge: edge[0]):
        lines += [
            f'    <edge source="{source}" target="{target}">',
            f'      <data key="d1">{kind}</data>',
            "    </edge>",
        ]
    return "\n".join([*lines, "  </graph>", "</graphml>", ""])
