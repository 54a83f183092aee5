"""Sphinx: `sphinx-build -W -b html docs docs/_build`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import simcore

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


def setup(app):
    """Console blocks hold commands without a prompt."""
    from pygments.lexers.shell import BashLexer

    app.add_lexer("console", BashLexer)
