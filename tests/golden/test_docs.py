"""Every command and every Python block of the documentation runs, page by page, in order."""

import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import pytest

from simcore.cli import main
from simcore.network.topology.kinds import FABRICS
from simcore.profiles import profiles
from simcore.system.chunks.scheduler import GANG_ORDERS
from simcore.system.collectives import algorithms
from simcore.workload.headers import LOOPS
from simcore.workload.loops import loops
from tests.documents import Block, blocks

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if any(blocks(page.read_text()))]


class Reader:
    """A reader who does what a page says, in a folder of their own."""

    def __init__(self, capture):
        self.capture = capture
        self.names = {"__name__": "page"}
        self.said = ""

    def follow(self, block: Block) -> None:
        if block.kind == "file":
            Path(block.name).write_text(block.text)
        elif block.kind == "output":
            assert " ".join(block.text.split()) in " ".join(self.said.split())
        elif block.kind == "python":
            exec(compile(block.text, "page", "exec"), self.names)  # noqa: S102 - our own documents
            self.said = self.capture.readouterr().out
        elif block.text.startswith("mkdir "):
            Path(block.text.removeprefix("mkdir ")).mkdir()
        else:
            status = main(shlex.split(block.text, comments=True)[1:])
            self.said, errors = self.capture.readouterr()
            assert status == 0, f"{block.text}\n{errors}"


@pytest.fixture
def registries(monkeypatch, tmp_path):
    """What a page registers is gone after it."""
    for registry in (algorithms, FABRICS, loops, profiles):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    modules = set(sys.modules)
    with mock.patch.dict(LOOPS), mock.patch.dict(GANG_ORDERS):
        yield
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_says_can_be_done(page, tmp_path, monkeypatch, capsys, registries):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SIMCORE_TABLES", str(tmp_path / "tables"))
    for folder in ("docs", "workloads", "topologies"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    reader = Reader(capsys)
    for block in blocks(page.read_text()):
        reader.follow(block)


def test_links_between_pages_lead_somewhere():
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert (DOCS / target).exists(), f"{page.name}: {target}"


def test_modules_that_pages_name_are_there():
    """`replay.whatif.retiming`, and `replay.run.reordered` where the last word is a name of the module."""
    here = Path("simcore")
    folders = {path.name for path in here.iterdir() if path.is_dir()}
    for page in ("docs/design.md", "docs/glossary.md", "docs/extending.md", "CONTRIBUTING.md"):
        for name in re.findall(r"`([a-z_]+(?:\.[A-Za-z_]+)+)`", Path(page).read_text()):
            first, *rest = name.removeprefix("simcore.").split(".")
            path = here.joinpath(first, *rest)
            if rest and first in folders and not path.exists() and not path.with_suffix(".py").exists():
                module = path.parent.with_suffix(".py")
                module = module if module.exists() else path.parent / "__init__.py"
                assert re.search(rf"\b{rest[-1]}\b", module.read_text()), f"{page}: {name}"


def test_commands_are_found_however_they_are_written():
    page = (
        "<!-- not run: slow -->\n```console\nsimcore a\n```\n\n    simcore b \\\n      --c\n\n```python\nx = 1\n```\n"
    )
    assert [(block.kind, block.text.split()[0]) for block in blocks(page)] == [("console", "simcore"), ("python", "x")]
