"""What a shell offers after --workload and --topology: shipped names, else files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    import click


def shipped(
    shelf: Literal["topologies", "workloads"],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Names on a shelf of the library that begin with what is typed; the shell's own files where none does."""

    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        from simcore import library

        found = [CompletionItem(name) for name in library.names(shelf) if name.startswith(typed)]
        return found or [CompletionItem(typed, type="file")]

    return complete
