"""Files that may be compressed or an archive of several: their documents, one after the other."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from simcore.errors import InputError
from simcore.files import in_order, read_bytes

GZIP = b"\x1f\x8b"
LEAST_LIMIT_BYTES, MOST_GROWTH = 1 << 26, 200
"""Real traces shrink to a twentieth; a gzip bomb grows a thousandfold. Small files may grow to 64 MiB."""
PIECE_BYTES = 1 << 24
SUFFIXES = (".json", ".json.gz")


def _is_trace(name: str) -> bool:
    """Whether a file's name says that it may be a trace; macOS puts its own notes into archives as `._NAME`."""
    return name.endswith(SUFFIXES) and not Path(name).name.startswith("._")


def documents(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of a file, of every JSON member of a tar archive, or of every trace in a folder, by name;
    InputError when the file is not there, is not readable, or its compression is broken.
    """
    folder = Path(path)
    if folder.is_dir():
        files = sorted((one for one in folder.iterdir() if _is_trace(one.name)), key=lambda one: in_order(one.name))
        if not files:
            inside = sorted({file.parent for file in folder.glob("*/*") if _is_trace(file.name)})
            hint, expected = f"there are some in {inside[0]}" if inside else "", "files named *.json or *.json.gz"
            raise InputError.at(str(path), "no trace in this folder", expected=expected, hint=hint)
        for file in files:
            yield from documents(file)
        return
    packed = read_bytes(path)
    most_bytes = _most_bytes(packed)
    content = unpacked(packed, str(path), most_bytes)
    if content[257:262] == b"ustar":
        yield from _members(content, str(path), most_bytes)
    else:
        yield str(path), content


def _most_bytes(content: bytes) -> int:
    """What a file may grow to, all layers of packing together."""
    return max(LEAST_LIMIT_BYTES, MOST_GROWTH * len(content))


def unpacked(content: bytes, file: str, most_bytes: int = 0) -> bytes:
    """The content without gzip's packing, if it has one; InputError when it is broken or grows beyond all reason."""
    if not content.startswith(GZIP):
        return content
    limit, packed, pieces, size = most_bytes or _most_bytes(content), io.BytesIO(content), [], 0
    try:
        with gzip.GzipFile(fileobj=packed) as unpacking:
            while piece := unpacking.read(PIECE_BYTES):
                pieces.append(piece)
                size += len(piece)
                _check_growth(size, min(limit, max(LEAST_LIMIT_BYTES, MOST_GROWTH * packed.tell())), file)
    except (OSError, EOFError, zlib.error) as error:
        what = "the compressed data is broken"
        raise InputError.at(file, what, expected="a whole gzip file", found=str(error)) from error
    return b"".join(pieces)


def _check_growth(size: int, most_bytes: int, file: str) -> None:
    if size > most_bytes:
        text = f"unpacks to more than {most_bytes:,} bytes"
        raise InputError.at(file, text, expected=f"at most {MOST_GROWTH} times its size")


def _members(content: bytes, file: str, most_bytes: int) -> Iterator[tuple[str, bytes]]:
    """The JSON files in an archive; nothing is written to disk, so no member can lead out of a folder."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = sorted((m for m in archive if m.isfile() and _is_trace(m.name)), key=lambda m: in_order(m.name))
            _check_growth(sum(member.size for member in members), most_bytes, file)  # one with holes says any size
            for member in members:
                data, name = archive.extractfile(member), f"{file}/{member.name}"
                yield name, unpacked(data.read() if data else b"", name, most_bytes)
    except tarfile.TarError as error:
        raise InputError.at(file, "the archive is broken", expected="a tar file", found=str(error)) from error
    if not members:
        raise InputError.at(file, "no trace in this archive", expected="members named *.json or *.json.gz")
