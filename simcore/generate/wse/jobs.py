"""The options of the generator, from the command line or a specification, made into the steps to run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from simcore.documents import Node, read
from simcore.errors import InputError, Problems
from simcore.generate.wse.exchange import Routed
from simcore.generate.wse.nodes import Job, exchanges, steps
from simcore.generate.wse.operations import Step
from simcore.generate.wse.routing import read_counts, read_routing
from simcore.generate.wse.settings import COUNTED, parse_layers, parse_nodes, read_system
from simcore.library import table
from simcore.model.plan import check_sizes
from simcore.model.presets import SHIPPED
from simcore.model.presets import model as named_model
from simcore.progress import meter

ELEMENT_BYTES = {"fp16": 2, "fp8": 1}
# What an option is when it is not given; its type is that of the option. Files have none.
_OPTIONS = list(table(__file__, "options.txt"))
DEFAULTS: dict[str, Any] = {name: json.loads(value) for name, value, *_ in _OPTIONS}
FILES = ("model_config", "system_config", "routing", "expert_counts")
NEEDED = ("model_config", "system_config")
MINIMUM = {name: int(least) for name, _, least, _ in _OPTIONS if least != "-"}
OF_DECODE = [name for name, *_, step in _OPTIONS if step == "decode"]
OF_SERVING = [name for name, *_, step in _OPTIONS if step != "any"]


class Made(NamedTuple):
    """A step with everything needed to make its rows."""

    job: Job
    step: Step
    nodes: list[int]
    routed: Routed


def made(options: Mapping[str, Any]) -> Iterator[Made]:
    """Every step of every phase that the options ask for."""
    for job in _jobs(options):
        nodes = parse_nodes(options["nodes"], job.system.nodes)
        yield from (Made(job, step, nodes, exchanges(job, step)) for step in meter().over(steps(job)))


def _phases(options: Mapping[str, Any]) -> list[str]:
    """Training alone, or the phases that the two flags leave."""
    if options["train"]:
        _refuse(options, OF_SERVING, "a training step is neither prefill nor decode", "--train")
        return ["train"]
    if options["only_decode"] and options["only_prefill"]:
        hint = "--only_decode 0 goes with --only_prefill 1"
        raise InputError.at("--only_prefill", "nothing is left of prefill and decode", hint=hint)
    if options["only_prefill"]:
        _refuse(options, OF_DECODE, "no step of decode is made", "--only_prefill 1")
    skips = (("prefill", "only_decode"), ("decode", "only_prefill"))
    return [phase for phase, skipped in skips if not options[skipped]]


def _refuse(options: Mapping[str, Any], names: Iterable[str], message: str, beside: str) -> None:
    """InputError where one of these is given, though nothing that is made follows it."""
    for name in (name for name in names if options[name] != DEFAULTS[name]):
        raise InputError.at(f"--{name}", message, expected=f"no --{name} beside {beside}")


def _jobs(options: Mapping[str, Any]) -> list[Job]:
    """The jobs of all phases; their steps are those of the routing file where there is one."""
    model = named_model(options["model_config"])
    if model.encoder_layers:
        message = "a wafer runs decoder-only models"
        raise InputError.at("--model_config", message, expected="a model without an encoder", found=model.name)
    check_sizes(model)
    jobs = [
        Job(
            model=model,
            system=read_system(options["system_config"], phase),
            batch=options["bsz"],
            prefill_len=options["prefill_len"],
            decode_len=options["decode_len"],
            speculative=options["spec_dec"],
            element_bytes=ELEMENT_BYTES[options["dtype"]],
            layers=tuple(parse_layers(options["layers"], model)),
            phase=phase,
            simplified=bool(options["simplified_decode"]),
            counts=read_counts(options["expert_counts"], model) if options["expert_counts"] else None,
            seed=options["seed"],
        )
        for phase in _phases(options)
    ]
    if options["expert_counts"] and (options["routing"] or all(job.system.routing != COUNTED for job in jobs)):
        expected = f"expert_workload_model: {COUNTED}, and no --routing"
        raise InputError.at("--expert_counts", "nothing is drawn by these counts", expected=expected)
    if not options["routing"]:
        return jobs
    every = [structs.replace(job, simplified=False) for job in jobs]
    positions = {step.name: step.queries for job in every for step in steps(job)}
    given = read_routing(options["routing"], model, options["bsz"], positions)
    return [structs.replace(job, routing=given) for job in every]


def is_specification(path: Path) -> bool:
    """Whether a YAML file says `generator: wse`."""
    if path.suffix not in {".yaml", ".yml"} or not path.is_file():
        return False
    root = read(path, Problems())
    return "generator" in root and root["generator"].value == "wse"


def specification(path: Path) -> dict[str, Any]:
    """The options of a file {generator: wse, options: {..}}, files beside it, all nodes; InputError with all places."""
    with Problems() as problems:
        root = read(path, problems)
        root.keys(required=("generator", "options"))
        options = DEFAULTS | dict.fromkeys(FILES)
        if "options" in root:
            given = root["options"]
            given.keys(required=NEEDED, optional=tuple(name for name in options if name != "nodes"))
            options |= {name: _value(name, node, path) for name, node in given.mapping() if name in options}
    return options


def _value(name: str, node: Node, path: Path) -> Any:
    """One option; a file's name counts from the folder of the specification, a shipped model is none."""
    if name in FILES and str(node.value) not in SHIPPED:
        return str(path.parent / str(node.value))
    if name == "dtype":
        return node.choice(list(ELEMENT_BYTES))
    kind = type(DEFAULTS[name])
    if kind is bool or name in {"only_decode", "only_prefill", "simplified_decode"}:
        return bool(node.value) if node.value in (0, 1) else node.flag()
    return str(node.value) if kind is str else node.integer(MINIMUM[name])
