"""What other simulators' files and options are called here: those that cannot be read say what to write instead."""

from __future__ import annotations

import re

from simcore.errors import InputError, Location

FOREIGN = (
    (
        re.compile(r"\s*(#.*\n\s*)*(ENABLE_QCN|USE_DYNAMIC_PFC_THRESHOLD|ENABLE_TRACE|TOPOLOGY_FILE|FLOW_FILE)\s"),
        "the settings of ns-3's switches (SimAI.conf, HPCC's config.txt)",
        "keys of the topology (buffer, flow_control, ecn, ..) and --network queued; the list of links is --topology",
    ),
    (
        re.compile(r"\s*(#.*\n\s*)*Nodes\s+[0-9]+\s*\n\s*Tiers\s+[0-9]+", re.IGNORECASE),
        "htsim's fat tree",
        "a topology [FatTree] with npus_count, bandwidth, latency, routers (its leaves) and oversubscription",
    ),
    (
        re.compile(r"\s*(#.*\n\s*)*Nodes\s+[0-9]+\s*\n\s*Connections\s+[0-9]+", re.IGNORECASE),
        "htsim's list of connections",
        "a workload of collectives: simcore generate collective, or execution traces with sends",
    ),
    (
        re.compile(r'\s*\{\s*"(version|status)"[^{]*"(server_list|server_count|group_list)"'),
        "a rank table",
        "groups follow from the workload's header; --comm-groups takes a JSON of name: [ranks]",
    ),
    (
        re.compile(r'\s*\{.{0,2000}?"traceEvents"', re.DOTALL),
        "a profiler's timeline (Chrome trace)",
        "simcore replay FILE plays it, with --export-chakra DIR it becomes a workload",
    ),
)
OPTIONS = {
    "-w": "--workload",
    "-g": "--gpus",
    "-g-p-s": "--gpus-per-server",
    "-nv": "--nvlink-bw",
    "-nic": "--nic-bw",
    "-n-p-s": "--nics-per-server",
    "-r": "-o",
    "-busbw": "--busbw",
    "-n": "--topology",
    "-c": "--system",
    "--num-passes": "--iterations",
    "--num-queues-per-dim": "--queues-per-dim",
    "--workload-configuration": "--workload",
    "--network-configuration": "--topology",
    "--system-configuration": "--system",
    "--remote-memory-configuration": "--remote-memory",
    "--comm-group-configuration": "--comm-groups",
    "--rendezvous-protocol": "--rendezvous",
}
"""ASTRA-sim's and SimAI's options."""


def refuse_foreign(text: str, file: str) -> None:
    """InputError for a file that another simulator reads and simcore does not: what it is, what to write instead."""
    for pattern, what, instead in FOREIGN:
        if found := pattern.match(text):
            line = text.count("\n", 0, found.end() - 1) + 1
            raise InputError.at(Location(file, line, 1), f"this is {what}", expected="a file of simcore", hint=instead)


def option_here(name: str) -> str:
    """What ASTRA-sim's and SimAI's option is called here; empty where it is none of theirs."""
    return OPTIONS.get(name.replace("_", "-"), "")
