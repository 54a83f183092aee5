"""Files that may be compressed or an archive of several: their documents, one after the other."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from simcore.errors import InputError
from simcore.files import in_order, read_bytes, tell

GZIP = b"\x1f\x8b"
LEAST_LIMIT_BYTES, MOST_GROWTH = 1 << 26, 200
"""Real traces shrink to a twentieth; a gzip bomb grows a thousandfold. Small files may grow to 64 MiB."""
PIECE_BYTES = 1 << 24
SUFFIXES = (".json", ".json.gz")
PACKED_OTHERWISE = (".json.zst", ".json.bz2", ".json.xz")


def _is_trace(name: str, suffixes: tuple[str, ...] = SUFFIXES) -> bool:
    """Whether a file's name says that it may be a trace; macOS puts its own notes into archives as `._NAME`."""
    return name.endswith(suffixes) and not Path(name).name.startswith("._")


def _left_out(names: Iterable[str]) -> str:
    """What to do about files whose names say that they may be traces, packed as nothing here unpacks; "": no such."""
    found = sorted((name for name in names if _is_trace(name, PACKED_OTHERWISE)), key=in_order)
    more = f" and {len(found) - 1} more" if found[1:] else ""
    return f"unpack {found[0]}{more}, or pack with gzip" if found else ""


def documents(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of a file, of every JSON member of a tar archive, or of every trace in a folder, by name;
    InputError when the file is not there, is not readable, or its compression is broken.
    """
    folder = Path(path)
    if folder.is_dir():
        files = sorted((one for one in folder.iterdir() if _is_trace(one.name)), key=lambda one: in_order(one.name))
        left_out = _left_out(one.name for one in folder.iterdir())
        if not files:
            inside = sorted({file.parent for file in folder.glob("*/*") if _is_trace(file.name)})
            hint, expected = f"there are some in {inside[0]}" if inside else left_out, "files named *.json or *.json.gz"
            raise InputError.at(str(path), "no trace in this folder", expected=expected, hint=hint)
        if left_out:
            tell(f"{path}: not all is read: {left_out}")
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
            left_out = _left_out(archive.getnames())
            members = sorted((m for m in archive if m.isfile() and _is_trace(m.name)), key=lambda m: in_order(m.name))
            if members and left_out:
                tell(f"{file}: not all is read: {left_out}")
            _check_growth(sum(member.size for member in members), most_bytes, file)  # one with holes says any size
            for member in members:
                data, name = archive.extractfile(member), f"{file}/{member.name}"
                yield name, unpacked(data.read() if data else b"", name, most_bytes)
    except tarfile.TarError as error:
        raise InputError.at(file, "the archive is broken", expected="a tar file", found=str(error)) from error
    if not members:
        expected = "members named *.json or *.json.gz"
        raise InputError.at(file, "no trace in this archive", expected=expected, hint=left_out)
