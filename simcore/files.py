"""Files read whole, and files written whole or not at all: under a temporary name beside the target, then renamed."""

from __future__ import annotations

import gzip
import io
import os
import stat
from pathlib import Path

from simcore.errors import InputError

__all__ = ["make_folder", "read_bytes", "write_bytes", "write_text"]


def read_bytes(path: str | os.PathLike[str], most_bytes: int = 1 << 38) -> bytes:
    """A whole file.

    Raises
    ------
    InputError
        If it is not there, cannot be read, is larger than `most_bytes`, or is a device, which may never end.
    """
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISCHR(status.st_mode):
                raise InputError.at(str(path), "cannot read: this is a device", expected="a file")
            regular = stat.S_ISREG(status.st_mode)
            data = file.read() if regular and status.st_size <= most_bytes else file.read(most_bytes + 1)
    except OSError as error:
        raise InputError.at(str(path), f"cannot read: {error.strerror or error}", hint="check the path") from error
    except ValueError as error:
        raise InputError.at(ascii(str(path)), "no file can have this name", expected="the path of a file") from error
    if len(data) > most_bytes:
        raise InputError.at(str(path), f"the file is larger than {most_bytes >> 20:,} MiB")
    return data


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file; compressed with gzip where its name ends in `.gz`, with the same bytes for the same content.

    Raises
    ------
    InputError
        If the file cannot be written; an older file of that name stays as it was.
    """
    target = Path(path)
    data = _gzipped(content) if target.suffix == ".gz" else content
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except BaseException as error:  # the user's Ctrl-C, too, leaves nothing behind
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise


def _gzipped(content: bytes) -> bytes:
    """Compressed, with a header that no version of Python changes (`gzip.compress` names the system in 3.11 only)."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as file:
        file.write(content)
    return packed.getvalue()


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write a text file in UTF-8; as `write_bytes`."""
    write_bytes(path, content.encode())


def make_folder(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Make a folder for results.

    Raises
    ------
    InputError
        If it holds files already and `force` is not set, or it cannot be made.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise _unwritable(folder, error) from error
    if occupied and not force:
        raise InputError.at(
            str(folder), "the folder is not empty", expected="a new or an empty folder", hint="--force overwrites files"
        )
    return folder


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError.at(
        str(path), "cannot be written", expected="a place to write", found=error.strerror or str(error)
    )
