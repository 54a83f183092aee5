"""Files that may be compressed or an archive of several: their documents, one after the other."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from simcore.errors import InputError

__all__ = ["documents", "unpacked"]

GZIP = b"\x1f\x8b"
LEAST_LIMIT_BYTES, MOST_GROWTH = 1 << 26, 200
"""Real traces shrink to a twentieth; a gzip bomb grows a thousandfold. Small files may grow to 64 MiB."""
SUFFIXES = (".json", ".json.gz")


def documents(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of a file, of every JSON member of a tar archive, or of every trace in a folder, by name.

    Raises
    ------
    InputError
        When the file is not there, is not readable, or its compression is broken.
    """
    folder = Path(path)
    if folder.is_dir():
        files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES))
        if not files:
            raise InputError.at(str(path), "no trace in this folder", expected="files named *.json or *.json.gz")
        for file in files:
            yield from documents(file)
        return
    content = _unpacked(_content(path), str(path))
    if content[257:262] == b"ustar":
        yield from _members(content, str(path))
    else:
        yield str(path), content


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError.at(str(path), f"cannot read: {error.strerror or error}", hint="check the path") from error


def _unpacked(content: bytes, file: str) -> bytes:
    if not content.startswith(GZIP):
        return content
    try:
        return unpacked(content, file)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError.at(
            file, "the compressed data is broken", expected="a whole gzip file", found=str(error)
        ) from error


def unpacked(content: bytes, file: str) -> bytes:
    """Gzip's content; InputError when it grows beyond all reason, gzip's own errors when it is broken."""
    limit = max(LEAST_LIMIT_BYTES, MOST_GROWTH * len(content))
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
        data = packed.read(limit + 1)
    if len(data) > limit:
        raise InputError.at(
            file, f"unpacks to more than {limit:,} bytes", expected=f"at most {MOST_GROWTH} times its size"
        )
    return data


def _members(content: bytes, file: str) -> Iterator[tuple[str, bytes]]:
    """The JSON files in an archive; nothing is written to disk, so no member can lead out of a folder."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = sorted((m for m in archive if m.isfile() and m.name.endswith(SUFFIXES)), key=lambda m: m.name)
            for member in members:
                data = archive.extractfile(member)
                yield f"{file}/{member.name}", _unpacked(data.read() if data else b"", f"{file}/{member.name}")
    except tarfile.TarError as error:
        raise InputError.at(file, "the archive is broken", expected="a tar file", found=str(error)) from error
    if not members:
        raise InputError.at(file, "no trace in this archive", expected="members named *.json or *.json.gz")
