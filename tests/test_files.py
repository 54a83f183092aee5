"""Files are written whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simcore import files
from simcore.cli import main
from simcore.errors import InputError
from tests.laws.inputs import inputs

WRITERS = {
    "run": "run --workload {0}/w.txt --topology {0}/net.yml -o {1} --timeline {1}/t.svg --force -q",
    "links": "run --workload {0}/w.txt --topology {0}/wafer.yml --links {1}/l.png -q --force",
    "topology": "topology show {0}/net.yml -o {1}/net.png --force",
    "convert": "convert {0}/w.txt {1}/t --npus 2 --force",
    "collective": "generate collective --kind all_reduce -o {1}/c.et --force",
    "schedule": "generate schedule --kind all_reduce --topology {0}/net.yml -o {1}/s.yaml --force",
    "obfuscate": "trace obfuscate {0}/t.0.et {1}/o --force",
    "graph": "trace graph {0}/t.0.et -o {1}/g.dot --force",
    "timeline": "trace timeline {0}/log.txt -o {1}/log.json --force",
    "summary": "trace summary {0}/w.txt -o {1}/s.html --force",
    "replay": "replay {0}/profile.json -o {1} --force",
    "sweep report": "sweep {0}/sweep.yaml -o {1} --jobs 1 -q",
    "search": "search {0}/study.yaml --plot {1}/p.svg --force",
    "validate": "validate --data {0}/measured.json --plot {1}/v.svg --force",
    "wafer": "generate wse nodes --bsz 8 --model_config {0}/model.json --system_config {0}/phases.json -o {1} --force",
}
APPENDED = {"results.jsonl"}  # rows are added; what is torn off at the end is cut


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    made = tmp_path_factory.mktemp("given")
    inputs(made)
    return made


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_that_fails_or_is_interrupted_leaves_the_old_files(name, given, tmp_path, monkeypatch, capsys):
    for place in ("agg.FigureCanvasAgg.print_png", "svg.FigureCanvasSVG.print_svg"):  # what is drawn is not the point
        monkeypatch.setattr(f"matplotlib.backends.backend_{place}", lambda _, out, **__: out.write(b"<svg/>"))
    words = WRITERS[name].format(given, tmp_path).split()
    assert main(words) in {0, 3}, capsys.readouterr().err
    before = contents(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in APPENDED:
            path.write_bytes(b"old")
    old = contents(tmp_path)
    assert before
    assert before.keys() == old.keys()

    for error, status in ((OSError(28, "No space left on device"), 2), (KeyboardInterrupt(), 130)):

        def replace(*_, error=error):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            patch.setattr(os, "replace", replace)
            assert main(words) == status
        assert contents(tmp_path) == old

    assert main(words) in {0, 3}
    assert contents(tmp_path).keys() == before.keys()


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    killed(f"from simcore.files import write_bytes; write_bytes({str(path)!r}, b'new')")
    assert path.read_bytes() == b"old"
    assert [each.read_bytes() for each in tmp_path.glob(".a.bin.*.part")] == [b"new"]


def test_a_folder_that_is_killed_half_way_holds_the_files_of_one_run(tmp_path):
    words = f"run -q --workload micro_all_reduce --topology ring8 -o {tmp_path}/out --force"
    assert main(words.split()) == 0
    before = contents(tmp_path)
    killed(f"from simcore.cli import main; main({words.replace('ring8', 'ring64').split()})")
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) == 2 * len(before)


KILLING = """\
import os, pathlib
def replace(path, target):
    os.replace(path, target) if pathlib.Path(target).parent.suffix == ".part" else os.kill(os.getpid(), 9)
pathlib.Path.replace = replace
"""


def killed(code):
    """Run Python in a process that is killed when it has written all and is about to give the first file its name."""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    assert subprocess.run([sys.executable, "-c", KILLING + code], env=environment).returncode == -9


def test_a_folder_in_the_place_of_a_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        files.write_bytes(tmp_path, b"x")


@pytest.mark.parametrize(
    "words", ["convert {0}/w.txt {1}/t --npus 3", "run --workload {0}/w.txt --topology {0}/net.yml -o {1}/o"]
)
def test_files_of_a_set_are_written_all_or_none_and_the_message_names_one_by_its_own_name(
    words, given, tmp_path, monkeypatch, capsys
):
    write, count = Path.write_bytes, iter(range(9))

    def full(path, data):
        if next(count) == 1:
            write(path, data[:1])
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(words.format(given, tmp_path).split()) == 2
    named = capsys.readouterr().err.partition(": error: cannot be written")[0].rpartition("\n")[2]
    assert named in {f"{tmp_path}/t.1.et", f"{tmp_path}/o/events.npz"}
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_stood_before_stands_after_a_failure(tmp_path):
    kept, made = tmp_path / "kept", tmp_path / "made"
    kept.mkdir()
    for target in (kept, made):
        with pytest.raises(InputError, match="cannot be written"), files.folder(target):
            raise OSError(28, "No space left on device")
    assert [*tmp_path.rglob("*")] == [kept]


def test_the_files_of_a_folder_are_told_as_people_count(tmp_path):
    with files.session() as account, files.folder(tmp_path / "made") as stage:
        files.write_all({stage / f"step.{rank}.et": b"" for rank in range(101)})
    assert [path.name for path in account.written] == [f"step.{rank}.et" for rank in range(101)]
