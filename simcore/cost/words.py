"""The words that `simcore predict` and `simcore search` share: models, clusters, plans."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from simcore.compute.accelerators import ELEMENT_BYTES, Accelerator, accelerator
from simcore.cost.systems import CLUSTERS, RUNS, Cluster, Host, Software, fabric_of_topology, software_on, usual_fabric
from simcore.documents import Node, read
from simcore.errors import InputError, Location, Problem, Problems, closest, wrong
from simcore.model.effects import contradicting
from simcore.model.plan import (
    GRADIENT_BYTES,
    LINEAR,
    NAMES,
    OFFLOADED,
    OPTIONS,
    SPLIT_BY,
    ZERO_LEVELS,
    Plan,
    check,
    check_sizes,
)
from simcore.model.presets import model as named_model
from simcore.model.shape import Model, Weights
from simcore.model.steps import Module
from simcore.network.topology.load import load
from simcore.options import spelled
from simcore.system.collectives.nccl import read_fabric
from simcore.workload.loops import schedules


@cache
def _types(kind: Any) -> dict[str, Any]:
    """Of a dataclass's fields."""
    return {name: hint for name, hint in get_type_hints(kind).items() if name in kind.__dataclass_fields__}


# What a word may say, where not any number or yes and no.
CHOICES: dict[str, list[str]] = {
    **{name: [*get_args(kind)] for name, kind in _types(Plan).items() if get_origin(kind) is Literal},
    "recompute_modules": [str(module) for module in Module],
    "lora_modules": list(LINEAR),
    "frozen": [str(weights) for weights in Weights],
    "offload": list(OFFLOADED),
    "attention_dtype": ["fp8"],
    "parameter_dtype": ["fp8"],
    "dtype": list(ELEMENT_BYTES),
    "schedule": schedules.names(),
}


def model_of(given: str | os.PathLike[str] | Model) -> Model:
    """A shipped model, or the one that a Hugging Face config.json or a YAML file of fields describes."""
    if isinstance(given, Model):
        return given
    name = _named(given, "--model", "a shipped model's name, a file, or a Model")
    if Path(name).suffix in (".yaml", ".yml"):
        with Problems() as problems:
            model: Model = read_model(read(name, problems))
        return model
    return named_model(name)


def read_model(node: Node) -> Model:
    """A model by its name, its config.json, or the fields of `Model`."""
    if isinstance(node.value, str):
        return node.meant(named_model)
    model: Model = _built(node, Model, {"name": "model"})
    try:
        check_sizes(model)
    except InputError as error:
        _tell(node, error)
    return model


def _tell(node: Node, error: InputError) -> None:
    """What is wrong with the sizes of a model, where its fields stand."""
    named = {one.name: one.field for one in OPTIONS}
    parts = [node, *(item for _, item in node.mapping() if isinstance(item.value, dict))]
    entries = [entry for part in parts for entry in part.mapping()]
    for one in error.problems:
        said = (item for name, item in entries if name == named.get(one.field) and str(item.value) == one.found)
        next(said, node).problem(one.message, found=one.found)


def _built(node: Node, kind: Any, given: Mapping[str, object], *, also: tuple[str, ...] = ()) -> Any:
    """A dataclass of numbers, flags, choices and other dataclasses from a mapping of its fields.

    `given`: values of fields that are not stated; `also`: words that are none.
    """
    known = {field.name: field for field in fields(kind)}
    needed = tuple(name for name, field in known.items() if field.default is MISSING and name not in given)
    node.keys(required=needed, optional=(*(name for name in known if name not in needed), *also))
    values = dict(given)
    for name, item in node.mapping():
        if name in known:
            values[name] = _value(item, _types(kind)[name], given.get(name), needed=name in needed)
    if not set(needed) <= set(values):
        raise InputError(node.problems.found)
    return kind(**values)


def _value(node: Node, kind: Any, otherwise: object, *, needed: bool) -> object:
    inner: Any = next(filter(is_dataclass, (kind, *get_args(kind))), None)
    if inner:
        return _built(node, inner, _fields_of(otherwise) if isinstance(otherwise, inner) else {})
    if get_origin(kind) is Literal:
        return node.choice([*get_args(kind)])
    simple = {bool: node.flag, str: node.text, float: node.number}
    return simple[kind]() if kind in simple else node.integer(1 if needed else 0)


def plan_word(name: str, node: Node, choices: list[str] | None = None) -> Any:
    """What a plan's field of this name is to be: among its choices, or of its type, from 1 on where that is usual."""
    kind, several = _types(Plan)[name], choices is None  # who gives choices lets one of them be taken
    choices = choices or CHOICES.get(name)
    if get_origin(kind) is tuple and several:
        return tuple(item.choice(choices) if choices else item.integer(0) for item in node.sequence())
    if choices:
        return node.choice(choices) or choices[0]
    number = _value(node, kind, None, needed=getattr(Plan, name, 1) == 1)
    if number not in _NUMBERS.get(name, (number,)):
        node.problem("there is no such choice", expected=", ".join(map(str, _NUMBERS[name])))
    return number


_NEEDED = ("world_size", "seq")
_NUMBERS: dict[str, Sequence[object]] = {"gradient_bytes": GRADIENT_BYTES, "zero": ZERO_LEVELS}


def _named(given: object, place: str, expected: str) -> str:
    if not isinstance(given, str | os.PathLike):
        raise wrong(place, expected, given)
    return str(given)


def cluster_of(given: str | os.PathLike[str] | Cluster) -> Cluster:
    """A cluster by its name, from a file, or of accelerators with what usually joins them; InputError names others."""
    if isinstance(given, Cluster):
        return given
    name = _named(given, "--cluster", "a known cluster's name, a file, or a Cluster")
    if name.lower() in CLUSTERS:
        return CLUSTERS[name.lower()]
    if Path(name).suffix in (".yaml", ".yml", ".json"):
        with Problems() as problems:
            return read_cluster(read(name, problems))
    try:
        device = accelerator(name)
    except InputError as error:
        expected = f"a file, an accelerator (simcore list npus), or a cluster: {closest(name, CLUSTERS)}"
        told = {"expected": expected, "found": name, "hint": error.problems[0].message}
        raise InputError.at("--cluster", "there is no such cluster", **told) from error
    return Cluster(device.name, usual_fabric(device), software_on(device))


def read_cluster(node: Node) -> Cluster:
    """A cluster by its name, or accelerators with a fabric (else the usual) or topology, software and run (`RUNS`)."""
    if isinstance(node.value, str):
        return node.meant(cluster_of)
    joined = "topology" if "topology" in node else "fabric"
    node.keys(required=("accelerator",), optional=(joined, "software", "run", "host"))
    if node.problems.found:
        raise InputError(node.problems.found)
    device = node["accelerator"].meant(accelerator)
    run = node["run"].choice(list(RUNS)) if "run" in node else None
    host = _built(node["host"], Host, {}) if "host" in node else None
    if topology := node["topology"].meant(load) if joined == "topology" else None:
        joins = fabric_of_topology(topology)
    else:
        joins = read_fabric(node["fabric"]) if "fabric" in node else usual_fabric(device)
    return Cluster(device.name, joins, _software(node, device), RUNS.get(str(run), 0.0), host, topology)


def under(conditions: str, cluster: Cluster, software: str = "") -> Cluster:
    """The cluster with what such a run loses, and such software; "" leaves them. InputError names the known."""
    if software:
        cluster = replace(cluster, software=software_on(cluster.device, software))
    if conditions and conditions not in RUNS:
        expected = closest(conditions, RUNS)
        raise InputError.at(conditions, "no such conditions", expected=expected, found=repr(conditions))
    return replace(cluster, losses=RUNS[conditions]) if conditions else cluster


def of_size(cluster: Cluster, accelerators: int) -> Cluster:
    """The cluster as so many accelerators have it; how a topology joins them it says itself."""
    return cluster if cluster.topology else replace(cluster, fabric=cluster.fabric.in_nodes(accelerators, 0))


def _software(node: Node, device: Accelerator) -> Software:
    """A profile by its name, or what differs from it (`like`) or from the usual one, which it is without a word."""
    if "software" not in node:
        return software_on(device)
    said = node["software"]
    if isinstance(said.value, str):
        return said.meant(partial(software_on, device))
    base = said["like"].meant(partial(software_on, device)) if "like" in said else software_on(device)
    made: Software = _built(said, Software, _fields_of(base), also=("like",))
    return made


def _fields_of(made: Any) -> dict[str, object]:
    """The fields of a dataclass, as they are."""
    return {field.name: getattr(made, field.name) for field in fields(made)}


def plan_of(model: Model, cluster: Cluster, accelerators: int, words: Mapping[str, Any]) -> Plan:
    """The plan that the words say; degrees left out are 1, `dp` what is left of the accelerators.

    The batch, where it is left out, is a micro-batch for every replica and stage. InputError where degrees do not
    multiply to the accelerators, or do not divide what they split.
    """
    words = _read_words({"world_size": accelerators, **words})
    chosen = {"dtype": cluster.device.wide_dtype, **cluster.software.usual, **words}
    asked = chosen.pop("dp", None)
    plan = Plan(**chosen)
    accelerators, product = plan.world_size, plan.tp * plan.cp * plan.pp
    dp = asked or max(1, accelerators // product)
    if product * dp != accelerators:
        degrees = f"tp {plan.tp} x cp {plan.cp} x pp {plan.pp} x dp {dp} = {product * dp}"
        message = "the degrees do not multiply to the accelerators"
        raise InputError.at("--accelerators", message, expected=degrees, found=str(accelerators))
    if "global_batch" not in words:
        plan = replace(plan, global_batch=plan.usual_batch)
    if model.experts and plan.tp > 1 and "sequence_parallel" not in words:
        plan = replace(plan, sequence_parallel=True)
    cluster.device.peak(plan.dtype)
    check_size(cluster, accelerators)
    check(model, plan, _OPTIONS)
    if plan.pp > 1:
        _ = plan.order  # schedules that do not exist are refused, too
    with Problems() as problems:
        for name, needed in contradicting(model, plan, words):
            problems.add(Problem(Location(spelled(name)), "has no effect here", needed, found=str(words[name])))
    return plan


def _read_words(words: Mapping[str, Any]) -> dict[str, Any]:
    """What words mean, None nothing; InputError for those that are none of a plan's, or say what they cannot."""
    read_words: dict[str, Any] = {}
    with Problems() as problems:
        for name, value in words.items():
            place = spelled("accelerators" if name == "world_size" else name)
            if name not in _types(Plan) and name != "dp":
                expected = closest(name, [*_types(Plan), "dp"])
                problems.add(Problem(Location(place), "there is no such option", expected=expected))
            elif value is not None or name in _NEEDED:
                node = Node.given(place[2:], value, place, problems)
                read_words[name] = plan_word("tp" if name == "dp" else name, node)
    return read_words


def check_size(cluster: Cluster, accelerators: int) -> None:
    """InputError where a topology has fewer NPUs."""
    there = cluster.topology.npus if cluster.topology else accelerators
    if accelerators > there:
        message = "the topology has fewer NPUs"
        raise InputError.at("--accelerators", message, expected=f"at most {there}", found=str(accelerators))


# What the messages of `check` name by options of the generators, and by what of a model does not divide.
_FIELDS = NAMES["plan"] | {option: NAMES["plan"][by] for option, by in SPLIT_BY.items()}
_OPTIONS = {option: field.replace("_", "-") for option, field in _FIELDS.items()}
