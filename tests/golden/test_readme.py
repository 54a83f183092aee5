"""Every command of the README runs, and says what the README says it does."""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

import simcore
from simcore.cli import main

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"`(simcore [^`]*)`", README) + re.findall(r"^(simcore .*)$", README, re.MULTILINE)
RUNNABLE = [
    command
    for command in COMMANDS
    if "..." not in command and not re.search(r"study|jobs\.yaml|trace\.json|A B", command)
]


def test_the_readme_shows_commands():
    assert len(RUNNABLE) >= 6


@pytest.mark.parametrize("command", sorted(set(RUNNABLE) - {"simcore validate"}))
def test_a_command_of_the_readme_runs(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out


def test_the_first_answer_is_the_one_printed_in_the_readme(capsys):
    assert main(["run", "--workload", "dlrm", "--topology", "torus_4x4x4", "--iterations", "2"]) == 0
    first = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
    assert first in " ".join(README.split())


def test_the_python_of_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(code, {})  # noqa: S102 - our own document
    assert capsys.readouterr().out.split()[0].isdigit()


def test_links_of_the_readme_lead_somewhere_and_are_absolute_once_the_project_has_a_home():
    """A package index shows the README without the files beside it."""
    home = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls")
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") if home else (ROOT / target).exists(), target
    assert bool(home) == ("repository-code:" in (ROOT / "CITATION.cff").read_text())


def test_the_version_is_the_packages(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "simcore/__init__.py"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"simcore {simcore.__version__}\n"


def test_ci_calls_the_readmes_test_command():
    assert shutil.which("bash")
    command = re.search(r"^pytest.*$", README, re.MULTILINE)[0]
    assert any(line.endswith(f" {command}") for line in (ROOT / ".ci" / "run").read_text().splitlines())
