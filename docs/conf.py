"""Sphinx: `sphinx-build -W -b html docs docs/_build`."""

import sys
from pathlib import Path

import click
from docutils import nodes
from docutils.parsers.rst import Directive

sys.path.insert(0, str(Path(__file__).parent.parent))

import simcore
from simcore.cli import cli

project = "simcore"
author = "the simcore authors"
version = release = simcore.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
html_theme = "alabaster"
html_theme_options = {"description": simcore.__doc__.splitlines()[0].removeprefix("simcore: "), "page_width": "72rem"}
highlight_language = "none"
exclude_patterns = ["_build", "search.md"]  # Sphinx writes a search.html of its own: searching.md includes ours
autodoc_typehints = "none"  # numpydoc's sections say types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
suppress_warnings = ["misc.highlighting_failure"]  # outputs in console blocks


class Commands(Directive):
    """The help of every command, each under its name."""

    def run(self):
        """One section a command."""
        return [self.entry(path, command) for path, command in leaves(cli, ("simcore",))]

    def entry(self, path, command):
        """The section of a command."""
        name = " ".join(path)
        entry = nodes.section(ids=[nodes.make_id(name)], names=[nodes.fully_normalize_name(name)])
        with click.Context(command, info_name=name, terminal_width=100) as context:
            text = command.get_help(context)
        entry += [nodes.title(name, name), nodes.literal_block(text, text, language="none")]
        return entry


def leaves(command, path):
    """Names and commands below a group of them."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command, info_name=path[-1])
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), (*path, name))


def setup(app):
    """Console blocks hold commands without a prompt."""
    from pygments.lexers.shell import BashLexer

    app.add_lexer("console", BashLexer)
    app.add_directive("commands", Commands)
