"""The same words make the same bytes, whatever Python's hash seed is and however many processes work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simcore.sweep.sweep import RESULTS
from tests.laws.inputs import MEASURED, NETWORK, PROGRAM, ROWS, STUDY, text
from tests.profiles_of_steps import recorded

SWEEP = (
    'run: {workload: w.txt, topology: net.yml}\ngrid: {"topology.bandwidth[0]": [50, 100, 200], iterations: [1, 2]}\n'
)
FILES = {
    "w.txt": "DATA\n" + ROWS,
    "net.yml": NETWORK,
    "sweep.yaml": SWEEP,
    "study.yaml": STUDY,
    "rows.json": MEASURED,
    "profile.json": recorded(PROGRAM).content(),
}


END = "=====\n{}"
COMMANDS = {
    "run": "run --workload dlrm --topology ring8 --straggler 5=1.5 -o out --timeline t.svg --json",
    "sweep": "sweep sweep.yaml -o out --jobs {jobs} -q && sweep report out",
    "search": "search study.yaml --plot s.png --json",
    "validate": "validate --data rows.json --plot v.pdf --json",
    "replay": "replay profile.json -o out --json",
}


def made(home, seed):
    """By command: what it prints, and all files in its folder. One process of its own does them all."""
    lines = ["import os", "from simcore.cli import main", "if __name__ == '__main__':"]  # its workers begin it again
    for name, command in COMMANDS.items():
        (home / name).mkdir()
        for file, content in FILES.items():
            (home / name / file).write_bytes(text(content) if isinstance(content, (str, dict)) else content)
        lines += [f"    os.chdir({str(home / name)!r})", f"    print({END.format(name)!r}, flush=True)"]
        every = command.format(jobs=1 + int(seed) % 2).split(" && ")
        lines += [f"    assert main({words.split()}) in (0, 3)" for words in every]
    (home / "all.py").write_text("\n".join(lines))
    environment = {"PYTHONPATH": str(Path.cwd()), **os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, home / "all.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: (done.stdout.split(END.format(name))[1].split(END[:4])[0], files(home / name)) for name in COMMANDS}


def files(folder):
    """Path -> bytes."""
    found = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if rows := found.get(Path("out") / RESULTS):  # a journal: runs in the order in which they ended
        found[Path("out") / RESULTS] = b"".join(sorted(rows.splitlines(keepends=True)))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return [made(tmp_path_factory.mktemp(f"seed{seed}"), seed) for seed in ("1", "2")]


@pytest.mark.parametrize("name", COMMANDS)
def test_neither_the_hash_seed_nor_the_number_of_workers_changes_a_byte(name, both):
    (one, files), (other, others) = (found[name] for found in both)
    assert one == other
    assert one or name == "sweep"
    assert len(files) >= len(FILES)
    assert files.keys() == others.keys()
    assert [path for path in files if files[path] != others[path]] == []
