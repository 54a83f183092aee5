"""Whatever stands in a file or after an option: an answer or an error with its place, never a traceback.

A few files of every command; ``SIMCORE_FUZZ=1000 pytest tests/laws/test_fuzz.py`` tries that many. Readers alone, and
many more files, are the campaign's: ``python -m tests.laws.campaign``. `tests/laws/inputs.py` says which command reads
which file.
"""

import gzip
import os
import re

import pytest

from tests.laws.commands import attempt, check
from tests.laws.inputs import NETWORK, inputs, text

EXAMPLES = int(os.environ.get("SIMCORE_FUZZ", "12"))
NAMES = (
    *("workload.txt", "dlrm.txt", "simai.txt", "closed.txt", "network.yml", "wafer.yml", "shown.yml", "dragonfly.yml"),
    *("tree.yml", "first.json", "links.json", "links.graphml", "system.json", "native.json", "system.txt"),
    *("groups.json", "memory.json", "trace.et", "trace.json", "trace.et.gz", "info.et", "profile.json"),
    *("profile.json.gz", "profile.tar.gz", "run.yaml", "report.json", "spec.yaml", "study.yaml", "model.json"),
    *("phases.json", "times.txt", "bandwidths.yaml", "log.txt", "tasks.graph", "convert.txt"),
    *("old.eg", "host.json", "linked.json", "measured.json", "events.npz", "sweep.yaml", "schedule.yaml", "nodes.yaml"),
    *("param.json", "twisted.yml"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(scope="module")
def right(folder):
    return inputs(folder)


def test_every_input_is_named_here(right):
    assert set(right) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_takes_what_is_right_and_refuses_the_rest_with_its_place(name, right, folder):
    path = folder / name
    command = right[name].command.format(path, folder).split()
    path.write_bytes(right[name].content)
    status, error = check(command)
    assert status in {0, 3}, error

    attempt(right[name], folder, range(EXAMPLES))


@pytest.mark.parametrize("content", [b"", b"\0" * 99, b"\xef\xbb\xbf", b"[" * 5000, b'{"a":' * 5000, b"\x1f\x8b\x08"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"trace.et", "info.et", "trace.et.gz"}])
def test_a_file_of_another_kind_is_refused_by_name(name, content, right, folder):
    path = folder / name
    path.write_bytes(content)
    status, error = check(right[name].command.format(path, folder).split())
    path.write_bytes(right[name].content)
    assert status == 2 or name == "log.txt"
    assert status == 0 or name in error or "--comp_filepath" in error


def test_aliases_cannot_grow_without_bound(folder):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    for content, place in (("\n".join(lines), "aliases.yml:7:45"), ("topology: &a [*a, *a]", "aliases.yml:1:15")):
        (folder / "aliases.yml").write_text(content)
        status, error = check(["topology", "show", str(folder / "aliases.yml")])
        assert status == 2
        assert place in error


@pytest.mark.parametrize("name", ["trace.et.gz", "profile.json.gz", "profile.tar.gz"])
def test_what_unpacks_to_a_thousand_times_its_size_is_refused(name, right, folder):
    path = folder / name
    path.write_bytes(128 * gzip.compress(bytes(1 << 20)))
    status, error = check(right[name].command.format(path, folder).split())
    path.write_bytes(right[name].content)
    assert status == 2
    assert "unpacks to more than" in error


@pytest.mark.parametrize("network", ["congested", "congestion-free"])
@pytest.mark.parametrize(
    ("npus", "column", "algorithm", "message"),
    [
        (6, "ALLREDUCE", "halvingDoubling", "power of two"),
        (6, "ALLREDUCE", "doubleBinaryTree", "power of two"),
        (4, "ALLTOALL", "halvingDoubling", "all-to-all"),
        (6, "ALLREDUCE", "recursiveDoubling", "power of two"),
    ],
)
def test_an_algorithm_that_cannot_is_named_where_it_was_chosen(npus, column, algorithm, message, network, folder):
    row = f"fc -1 10 NONE 0 10 NONE 0 10 {column} 1024 1"
    kind = {"ALLREDUCE": "all-reduce", "ALLTOALL": "all-to-all"}[column]
    system = {f"{kind}-implementation": [algorithm]}
    files = {"w6.txt": f"DATA\n1\n{row}\n", "n6.yml": NETWORK.replace("4", str(npus), 1), "s6.json": system}
    for name, content in files.items():
        (folder / name).write_bytes(text(content))
    words = ["--workload", f"{folder}/w6.txt", "--topology", f"{folder}/n6.yml", "--system", f"{folder}/s6.json"]
    status, error = check(["run", *words, "--network", network, "--json"])
    assert status == 2
    assert re.search(r"s6\.json:\d+:\d+: error", error)
    assert message in error


@pytest.mark.parametrize("profile", ["native", "astra-sim-1.0", "astra-sim-2"])
@pytest.mark.parametrize("policy", ["roundRobin", "themis", "themisFlex"])
@pytest.mark.parametrize("algorithm", ["ring", "oneDirect"])
@pytest.mark.parametrize("kind", ["Ring", "FullyConnected"])
@pytest.mark.usefixtures("right")
def test_dimensions_of_one_npu_are_passed_over(profile, policy, algorithm, kind, folder):
    lists = {f"all-{kind}-implementation": [algorithm] for kind in ("reduce", "gather", "to-all")}
    network = f"topology: [{kind}, Switch]\nnpus_count: [1, 2]\nbandwidth: [50.0, 5.0]\nlatency: [500.0, 0]\n"
    files = {"n12.yml": network}
    files |= {"s1.json": lists | {"inter-dimension-scheduling": policy}}
    for name, content in files.items():
        (folder / name).write_bytes(text(content))
    words = ["--workload", f"{folder}/w.txt", "--topology", f"{folder}/n12.yml", "--system", f"{folder}/s1.json"]
    status, error = check(["run", *words, "--profile", profile, "--json"])
    assert status == 0, error


def test_a_specification_names_the_key_at_fault(right, folder):
    content = right["spec.yaml"].content.replace(b"global_batch: 4", b"global_batch: 5")
    (folder / "spec5.yaml").write_bytes(content)
    status, error = check(["run", "--workload", f"{folder}/spec5.yaml", "--topology", f"{folder}/net.yml"])
    assert status == 2
    assert "spec5.yaml:8:17" in error


def test_a_configuration_names_the_key_at_fault(right, folder):
    for key, value in (("iterations", "[]"), ("no_fold", "9"), ("queues_per_dim", ".inf"), ("compute_scale", "x")):
        content = re.sub(
            rb"(?m)^  " + key.encode() + rb": .*$", f"  {key}: {value}".encode(), right["run.yaml"].content
        )
        (folder / "run2.yaml").write_bytes(content)
        status, error = check(["run", "--config", f"{folder}/run2.yaml"])
        assert status == 2
        assert re.search(r"run2\.yaml:\d+:\d+", error)


OPTIONS = [
    *[
        (option, value)
        for option in ("iterations", "queues-per-dim")
        for value in ("0", "-1", "1.5", "x", "", "9" * 30)
    ],
    *[
        (f"{option}-scale", v)
        for option in ("compute", "comm", "injection")
        for v in ("0", "-1", "nan", "inf", "x", "")
    ],
    *[
        ("straggler", v)
        for v in ("", "x", "1", "=2", "1=", "1=0", "1=-2", "1=nan", "1=inf", "9=2", "3-1=2", "-1=2", "1=x")
    ],
    *[("ranks", value) for value in ("x", "3-1", "-1", "1,,2", "9" * 30)],
    *[("window", value) for value in ("x", "5", "5:1", "a:b", "1ms:nan")],
    *[("iteration", value) for value in ("-1", "x", "1.5")],
    *[("network", value) for value in ("x", "é")],
    *[("profile", value) for value in ("x", "native ")],
    *[("dialect", value) for value in ("x", "")],
]


@pytest.mark.parametrize(("option", "value"), OPTIONS)
def test_a_wrong_value_of_run_names_the_option(option, value, right, folder):
    words = ["--workload", f"{folder}/w.txt", "--topology", f"{folder}/net.yml", "--json", f"--{option}={value}"]
    status, error = check(["run", *words, f"--timeline={folder}/t.json", "--force"])
    assert status == 2
    assert f"--{option}" in error
