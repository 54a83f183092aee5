"""`simcore schema`: the JSON Schema of what a command prints with --json."""

from __future__ import annotations

import click

from simcore.cli.command import Named, emit, verb


def _names() -> list[str]:
    from simcore.cli.documents import DOCUMENTS

    return list(DOCUMENTS)


@verb(short_help="The JSON Schema of what commands print with --json.")
@click.argument("name", type=Named(_names), required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema of a document, for editors and other languages; without NAME what there is.

    \b
    simcore schema run
    """
    import msgspec

    from simcore.cli.documents import DOCUMENTS
    from simcore.report.document import encode

    if name is None:
        emit({"documents": list(DOCUMENTS)}, "\n".join(DOCUMENTS))
        return
    document = msgspec.json.schema(DOCUMENTS[name])
    emit(document, lambda: encode(document))
