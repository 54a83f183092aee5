"""Readers of files hold: what is right is read, what is not is refused with its place, whatever it would cost."""

import gzip
import io
import json
import sys
import tarfile
import zipfile

import pytest

from simcore.cli import main
from simcore.errors import InputError
from simcore.workload.archives import documents
from tests.laws import campaign
from tests.laws.inputs import FLEXFLOW, HOST, NETWORK, SPECIFICATION, WAFER, text
from tests.laws.mutations import Seed
from tests.laws.readers import CORE, LLAMA, ROUTING, ROWS, readers

FILES = 30
DIGITS = "9" * 5000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readers")


@pytest.fixture(scope="module")
def every(folder):
    return readers(folder)


def refused(reader, folder, content):
    """The error of a reader."""
    path = folder / reader.file
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(content if isinstance(content, bytes) else text(content))
    try:
        with pytest.raises(InputError) as caught:
            reader.read(path)
    finally:  # as it was: what is read beside another file need not be there by itself
        path.unlink() if before is None else path.write_bytes(before)
    return str(caught.value)


def test_every_reader_reads_what_is_right_and_refuses_the_rest_clearly(every, folder, capsys):
    for reader in every.values():
        reader.read(folder / reader.file) if (folder / reader.file).exists() else None
        seed = Seed(reader.content, binary=reader.binary)
        for number in range(FILES):
            data = campaign.changed(reader, seed, number, 0)
            _, finding = campaign.wrong(reader, folder / reader.file, reader.pack(data))
            assert not finding, f"{reader.file}, file {number}: {data!r}"
        (folder / reader.file).write_bytes(reader.pack(reader.content))


def test_the_same_seed_makes_the_same_files(every):
    for reader in every.values():
        one, other = (Seed(reader.content, binary=reader.binary) for _ in range(2))
        files = [campaign.changed(reader, one, number, 3) for number in range(20)]
        assert files == [campaign.changed(reader, other, number, 3) for number in range(20)]
        assert len(set(files)) > 10


def test_a_finding_is_made_smaller_and_ends_the_campaign_with_1(monkeypatch, capsys, folder, every):
    def read(path):
        if b"9" in path.read_bytes():
            raise ZeroDivisionError("a fault")

    def chosen(folder):
        return {"log.txt": campaign.Reader("log.txt", every["log.txt"].content, read)}

    monkeypatch.setattr(campaign, "readers", chosen)
    assert campaign.run(["--inputs", "50", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert "1 findings" in shown
    assert "ZeroDivisionError: a fault\nb'9'" in shown


def test_a_reader_that_hangs_or_takes_all_memory_is_a_finding(monkeypatch, capsys, every):
    def hang(path):
        while True:
            pass

    def fill(path):
        return bytearray(1 << (40 if sys.platform == "linux" else 60))  # elsewhere memory is promised without a limit

    def made(folder):
        return {name: campaign.Reader(name, b"x", read) for name, read in (("hang", hang), ("fill", fill))}

    monkeypatch.setattr(campaign, "readers", made)
    monkeypatch.setattr(campaign, "LIMIT_S", 0.1)
    assert campaign.run(["--inputs", "1", "--jobs", "2"]) == 1
    shown = capsys.readouterr().out
    assert "LateError" in shown
    assert "MemoryError" in shown


ABOUT = b"\x93NUMPY\x01\x00v\x00{'descr': '|u1', 'fortran_order': False, 'shape': (628,), ~" + b" " * 58 + b"\n"
GRAPHML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed"/></graphml>'
SPARE = WAFER + "wafer: {dead_links: [[0, 1]]}\n"
NESTED = "[" * 100_000
FOUND = [
    ("network.yml", NETWORK.replace("500.0", "9" * 400), "network.yml:4:11: error: latency[0]"),
    ("wafer.yml", SPARE.replace("[2, 2]", "[4294967296, 2]"), "at most 1,048,576 NPUs"),
    ("links.graphml", GRAPHML, "the graph has no NPU"),
    ("links.graphml", '<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "b">]>' + GRAPHML, "links.graphml:2:13:"),
    ("trace.json", '{"meta": {}, "nodes": [{"id": 1e400}]}', "trace.json:1:31: error: nodes[0].id: "),
    ("trace.json", '{"meta": {}, "nodes":' + '{"nodes":' * 9999, "not well-formed"),
    ("profile.json", '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1e308}]}', "beyond all clocks"),
    ("kineto.json", '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 1e308}]}', "beyond"),
    ("spec.yaml", SPECIFICATION.replace("heads: 4", "heads: 0"), "spec.yaml:5:24: error: the value must be 1"),
    ("spec.yaml", SPECIFICATION.replace("size: 64", "size: 0b1"), "spec.yaml:4:16: error: 4 attention"),
    ("spec.yaml", SPECIFICATION.replace("batch: 4", "batch: 4294967296"), "layers of micro-batches are too many"),
    ("spec.yaml", SPECIFICATION.replace("layers: 2", "layers: 100000"), "at most 8,192"),
    ("spec.yaml", SPECIFICATION.replace("layers: 2", "layers: 99999999999"), "4,294,967,296 or less"),
    ("times.txt", f"attention_forward:\n  time_gpu_avg: {DIGITS}\n", "'attention_forward' is too long"),
    ("tasks.graph", FLEXFLOW.replace("node0 ->", f"node{DIGITS} ->"), "neither a task nor an edge"),
    ("tasks.graph", FLEXFLOW.replace("device_id=0", "device_id=999999999", 1), "devices 0 to 65535"),
    ("tasks.graph", FLEXFLOW.replace("=0.02", "=-0.02"), "not between 0 and 2^63 - 1"),
    ("config.json", LLAMA | {"model_type": []}, "config.json:2:16: error: models of"),
    ("about.npz", ABOUT, "not an event table"),
    ("routing.json", json.dumps(ROUTING).replace("0]", f"{10**19}]", 1), "more than 64 bits"),
    ("counts.json", [[10**18] * 16] * 3, "more tokens than can be counted"),
    ("rows.csv", text(ROWS) + b"\xff\n", "rows.csv:5:1: error: not a row of a node"),
    ("rows.csv", ROWS.replace("[2, 3]", NESTED, 1), "rows.csv:2:1: error: not a row of a node"),
    ("core.csv", CORE.replace("[0]", f"[{DIGITS}]"), "core.csv:2:1: error: an instruction has numbers"),
    ("core.csv", CORE.replace("GEMM 4", f"GEMM {DIGITS}"), "core.csv:2:1: error: an instruction has numbers"),
    ("results.jsonl", NESTED + "\n", "results.jsonl:1:1: error: this line is not a result"),
    ("results.jsonl", '{"key": []}\n', "results.jsonl:1:1: error: this line is not a result"),
    ("log.txt", f"issue,npu_id=0,tick={DIGITS},node_id=0,node_name=C\n", "log.txt:1:1: error: no event"),
    ("workload.txt", "DATA\n999999999999\nfc -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "announces 999999999999 layers but 1"),
    ("simai.txt", "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 999999999 1\n1\n", "few"),
    ("trace.et", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7fx", "the file ends inside a message"),
    ("host.json", HOST | {"nodes": [{"id": 10**400}]}, "nodes[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), FOUND)
def test_what_a_campaign_found_is_refused_at_its_place(name, content, message, every, folder):
    content = every[name].pack(content) if isinstance(content, bytes) else content
    assert message in refused(every[name], folder, content)


def test_a_text_that_is_no_utf_8_is_found_in_attributes_that_nobody_reads(every, folder):
    content = every["info.et"].content.replace(b"is_cpu_op", b"is_\x83pu_op")
    assert "info.et: error: message 1 at byte " in refused(every["info.et"], folder, content)


# --- what would grow


def tar(*members, kind=tarfile.REGTYPE):
    """A tar file of (name, content, size that its header tells)."""
    made = io.BytesIO()
    for name, content, size in members:
        head = tarfile.TarInfo(name)
        head.size, head.type = size, kind
        made.write(head.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512))
    return made.getvalue() + bytes(1024)


BOMB = 128 * gzip.compress(bytes(1 << 20))
BOMBS = {
    "one": BOMB,
    "one inside the other": gzip.compress(BOMB) + 64 * gzip.compress(bytes(1 << 20)),
    "one in an archive": gzip.compress(tar(("trace.json", BOMB, len(BOMB)))),
    "a member that tells another size": tar(("trace.json", b"{}", 1 << 33)),
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_an_archive_that_grows_beyond_reason_is_refused(content, every, folder):
    error = refused(every["profile.json"], folder, content)
    assert "unpacks to more than 67,108,864 bytes" in error or "the archive is broken" in error


def test_a_zip_file_that_grows_beyond_reason_is_refused(every, folder):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("about.npy", bytes(1 << 27))
    assert "bytes when unpacked" in refused(every["events.npz"], folder, made.getvalue())


def test_an_encrypted_archive_is_refused(every, folder):
    content = bytearray(every["events.npz"].content)
    content[content.index(b"PK\x01\x02") + 8] |= 1
    assert "is encrypted" in refused(every["events.npz"], folder, bytes(content))


def test_an_array_of_more_numbers_than_there_is_memory_is_refused(every, folder):
    head = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000000,), }"
    content = b"\x93NUMPY\x01\x00v\x00" + head + b" " * (117 - len(head)) + b"\n"
    assert "not an event table" in refused(every["about.npz"], folder, every["about.npz"].pack(content))


@pytest.mark.parametrize("name", ["../../out.json", "/out.json", "a/../../out.json"])
def test_a_member_that_would_lead_out_of_a_folder_is_read_where_it_is(name, every, tmp_path):
    content = every["profile.json"].content
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.tar"
    path.write_bytes(tar((name, content, len(content))))
    assert [data for _, data in documents(path)] == [content]
    assert [file.name for file in tmp_path.rglob("*")] == ["in", "a.tar"]


def test_a_link_in_an_archive_is_not_followed(every, folder):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as packed:
        link = tarfile.TarInfo("trace.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)
    assert "no trace in this archive" in refused(every["profile.json"], folder, made.getvalue())


@pytest.mark.parametrize(
    "option", ["--workload", "--topology", "--system", "--comm-groups", "--remote-memory", "--config"]
)
def test_a_device_is_no_file(option, capsys, folder, every):
    words = {"--workload": f"{folder}/workload.txt", "--topology": f"{folder}/network.yml", option: "/dev/zero"}
    assert main(["run", *(word for pair in words.items() for word in pair)]) == 2
    assert "/dev/zero: error: " in capsys.readouterr().err


def test_a_text_larger_than_any_document_is_refused_before_it_is_read(folder, every):
    with (folder / "large.yml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="larger than 64 MiB"):
        every["network.yml"].read(folder / "large.yml")
