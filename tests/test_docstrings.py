"""Examples in docstrings give what they show, and what the API page names is explained."""

import doctest
import inspect
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITH_EXAMPLES = [path for path in sorted(ROOT.glob("simcore/**/*.py")) if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_of_a_module_give_what_they_show(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    found = doctest.testmod(import_module(name))
    assert found.attempted
    assert not found.failed


PUBLIC = re.findall(r"auto(?:function|class):: (\S+)", (ROOT / "docs/api.md").read_text())


def unexplained(noun: object, names: list[str]) -> list[str]:
    """Names that a docstring does not speak of: as `name`, or as an entry of its list of parameters."""
    said = inspect.getdoc(noun) or ""
    listed = re.findall(r"^([\w, ]+) : ", said, re.MULTILINE)
    return [name for name in names if not re.search(rf"`{name}\b", said) and name not in ", ".join(listed).split(", ")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_and_field_of_a_public_noun_is_explained(name):
    module, _, last = name.rpartition(".")
    noun = getattr(import_module(module), last)
    if not inspect.isclass(noun):
        given = inspect.signature(noun).parameters.values()
        own = [each.name for each in given if each.kind in (each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL)]
        assert not unexplained(noun, own)
        return
    if is_dataclass(noun):
        assert not unexplained(noun, [each.name for each in fields(noun) if not each.metadata.get("help")])
    for method in (one for key, one in vars(noun).items() if inspect.isfunction(one) and key[0] != "_"):
        of_all = ["self", "depends", "on", "name"] if "depends" in (noun.__doc__ or "") else ["self"]
        assert not unexplained(method, [each for each in inspect.signature(method).parameters if each not in of_all])
