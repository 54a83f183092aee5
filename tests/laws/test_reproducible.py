"""The same words make the same bytes, whatever Python's hash seed is and however many processes work."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

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


def made(command, folder, seed):
    """What a command prints and all files in its folder."""
    jobs = 1 + int(seed) % 2
    environment = {"PYTHONPATH": str(Path.cwd()), **os.environ, "PYTHONHASHSEED": seed}
    words = [each.split() for each in command.format(jobs=jobs).split(" && ")]
    code = f"from simcore.cli import main\nfor words in {words}:\n    assert main(words) in (0, 3)\n"
    script = folder.with_suffix(".py")  # a process of its own, which its workers can begin again
    script.write_text(f"if __name__ == '__main__':\n{indent(code, '    ')}")
    done = subprocess.run([sys.executable, script], env=environment, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr
    files = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if rows := files.get(Path("out") / RESULTS):  # a journal: runs in the order in which they ended
        files[Path("out") / RESULTS] = b"".join(sorted(rows.splitlines(keepends=True)))
    return done.stdout, files


COMMANDS = {
    "run": "run --workload dlrm --topology torus_4x4x4 --straggler 5=1.5 -o out --timeline t.svg --json",
    "sweep": "sweep sweep.yaml -o out --jobs {jobs} -q && sweep report out",
    "search": "search study.yaml --plot s.png --json && search study.yaml --plot s.svg",
    "validate": "validate --data rows.json --plot v.pdf --rows && validate --data rows.json --plot v.svg --json",
    "replay": "replay profile.json -o out --json",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_neither_the_hash_seed_nor_the_number_of_workers_changes_a_byte(name, tmp_path):
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        for file, content in FILES.items():
            (folder / file).write_bytes(text(content) if isinstance(content, (str, dict)) else content)
        found.append(made(COMMANDS[name], folder, seed))
    (one, files), (other, others) = found
    assert one == other
    assert files.keys() == others.keys()
    assert [path for path in files if files[path] != others[path]] == []
