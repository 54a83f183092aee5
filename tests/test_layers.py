"""Layers import downwards only; heavy libraries are imported where they are used."""

import ast
from functools import cache
from pathlib import Path

import networkx

from simcore.profiles import profiles

PACKAGE = Path(__file__).parent.parent / "simcore"
BASE = {"errors", "registry", "units", "documents", "library", "files", "memory", "noise", "options"}
BASE |= {"front", "hashed", "markup", "peers", "places", "progress"}
ALLOWED = {
    "errors": set(),
    "units": set(),
    "front": set(),
    "hashed": set(),
    "registry": {"errors"},
    "documents": {"errors", "files", "library", "peers"},
    "library": {"errors"},
    "files": {"errors"},
    "markup": {"errors", "documents"},
    "memory": set(),
    "peers": {"errors", "library"},
    "places": {"errors", "documents"},
    "progress": set(),
    "options": {"errors"},
    "noise": {"errors", "options"},
    "workload": BASE,
    "timeline": BASE,
    "compute": BASE | {"workload"},
    "model": BASE | {"workload", "compute"},
    "generate": BASE | {"workload", "compute", "model"},
    "network": BASE | {"timeline", "workload"},
    "system": BASE | {"compute", "workload", "network", "timeline"},
    "profiles": BASE | {"workload", "network", "system", "timeline"},
    "engine": BASE | {"workload", "network", "system", "profiles", "timeline"},
    "wafer": BASE | {"workload", "network", "timeline", "engine"},
    "report": BASE | {"timeline", "workload", "compute"},
}
ALLOWED |= {top: BASE | set(ALLOWED) | {"__version__"} for top in ("replay", "cost", "sweep", "testing")}
ALLOWED["cost"] |= {"replay"}  # a suite extrapolates from written traces
ALLOWED["api"] = set(ALLOWED)
ALLOWED["jobs"] = set(ALLOWED)
ALLOWED["__init__"] = set(ALLOWED)
SIMPY = {"system", "network"}
LAZY = {"matplotlib", "networkx", "pandas", "polars", "scipy", "distributed", "optuna"}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path):
    return ast.parse(path.read_text())


def layer(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path):
    """What a module imports: names and their nodes."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only"
            found += [(f"{node.module}.{alias.name}", node) for alias in node.names]
    return found


@cache
def type_checking(path):
    """Nodes below `if TYPE_CHECKING:`."""
    body = tree_of(path).body
    guarded = (node for node in body if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING")
    return {id(inner) for guard in guarded for inner in ast.walk(guard)}


def test_a_module_imports_from_its_own_layer_and_those_below():
    for path in (path for path in modules() if layer(path) not in {"cli", "__main__"}):
        allowed = {layer(path), "__version__", *ALLOWED[layer(path)]}
        names = [name for name, _ in imported(path) if name.startswith("simcore.")]
        assert [name for name in names if name.split(".")[1] not in allowed] == [], path


def test_no_modules_import_each_other():
    """Imports inside functions count; those of types alone do not."""
    paths = {path: ("simcore", *path.relative_to(PACKAGE).with_suffix("").parts) for path in modules()}
    names = {".".join(parts).removesuffix(".__init__"): path for path, parts in paths.items()}
    graph = networkx.DiGraph()
    for name, path in names.items():
        types = type_checking(path)
        for there, node in imported(path):
            if id(node) not in types and there.startswith("simcore."):
                graph.add_edge(name, there if there in names else there.rpartition(".")[0])
    assert [circle for circle in networkx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_what_reads_execution_traces_imports_no_converter():
    for path in (PACKAGE / "workload" / "chakra").glob("*.py"):
        names = [name for name, _ in imported(path)]
        assert not [name for name in names if name.startswith("simcore.workload.chakra.convert")], path.name


def test_every_profile_of_the_profiles_folder_is_simulated():
    own = {path.stem for path in (PACKAGE / "profiles").glob("*.py")} - {"__init__", "profile"}
    assert {profiles.get(name).delay.__module__.rpartition(".")[2] for name in profiles.names()} == own


def test_heavy_libraries_are_imported_inside_the_functions_that_need_them():
    for path in modules():
        roots = [(name.split(".")[0], node) for name, node in imported(path)]
        if any(root in LAZY for root, _ in roots):
            at_import = {id(node) for node in tree_of(path).body} - type_checking(path)
            assert [root for root, node in roots if root in LAZY and id(node) in at_import] == [], path


def test_simpy_belongs_to_the_layers_that_simulate():
    users = {layer(path) for path in modules() for name, _ in imported(path) if name.split(".")[0] == "simpy"}
    assert users <= SIMPY


def test_no_file_is_longer_than_600_lines():
    assert [path for path in modules() if len(path.read_text().splitlines()) > 600] == []
