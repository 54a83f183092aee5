"""Files read whole, and files written whole or not at all: under a temporary name beside the target, then renamed.

A `Session` (one command) knows what it read and wrote: it never overwrites what it has read.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from simcore.errors import InputError, closest

PIECE_BYTES = 1 << 24
PART = ".part"  # ends the name of what is not finished


@dataclass(frozen=True, slots=True)
class Session:
    """What a command has read, device and number of the file -> its path, and what it has written, in order.

    `told`: what readers warn of.
    """

    read: dict[tuple[int, int], str] = field(default_factory=dict)
    written: dict[Path, None] = field(default_factory=dict)
    told: dict[str, None] = field(default_factory=dict)

    def keep(self, path: str) -> None:
        """Note a file that will be read, if it is one."""
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return
        if stat.S_ISREG(status.st_mode):
            self.read[status.st_dev, status.st_ino] = path

    def check(self, target: Path) -> None:
        """InputError when a file to be written is one that was read."""
        if not self.read or not target.exists():
            return
        status = target.stat()
        if (status.st_dev, status.st_ino) in self.read:
            raise InputError.at(str(target), "this file is an input: it is never overwritten", expected="another name")


_SESSION: ContextVar[Session | None] = ContextVar("session", default=None)


@contextmanager
def session() -> Iterator[Session]:
    """Keep an account of files as long as the block lasts; inside another session, that one's."""
    account = _SESSION.get() or Session()
    token = _SESSION.set(account)
    try:
        yield account
    finally:
        _SESSION.reset(token)


def tell(warning: str) -> None:
    """Warn of what stands in a file, once, where a command reads it."""
    if account := _SESSION.get():
        account.told[warning] = None


def read_bytes(path: str | os.PathLike[str], most_bytes: int = 1 << 38) -> bytes:
    """A whole file; InputError if it is not there, cannot be read, is larger than `most_bytes`, or is a device."""
    try:
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISCHR(status.st_mode):  # it may never end
                raise InputError.at(str(path), "cannot read: this is a device", expected="a file")
            if account := _SESSION.get():
                account.keep(str(path))
            # What is there, or what shows that it is too long; in pieces, for a pipe does not say how long it is.
            pieces, left = [], most_bytes + 1
            while left > 0 and (piece := file.read(min(left, PIECE_BYTES))):
                pieces.append(piece)
                left -= len(piece)
    except IsADirectoryError as error:
        raise InputError.at(str(path), "this is a folder", expected="a file") from error
    except OSError as error:
        raise InputError.at(str(path), f"cannot read: {error.strerror or error}", hint="check the path") from error
    except ValueError as error:
        raise InputError.at(ascii(str(path)), "no file can have this name", expected="the path of a file") from error
    if not left:
        raise InputError.at(str(path), f"the file is larger than {most_bytes >> 20:,} MiB")
    return b"".join(pieces)


def sha256(*paths: str | os.PathLike[str]) -> str:
    """SHA-256, in hexadecimal, of files one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(read_bytes(path))
    return digest.hexdigest()


def in_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """What sorts names as people count: 10.json comes after 9.json."""
    return [(len(digits), digits or text) for digits, text in re.findall(r"0*([0-9]+)|([^0-9]+)", name)], name


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file; compressed with gzip where its name ends in `.gz`, with the same bytes for the same content.

    InputError if it cannot be written, or the command has read it; an older file of that name stays as it was.
    """
    write_all({Path(path): content})


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write several files, none of which gets its name before all are on disk; otherwise as `write_bytes`."""
    account, staged = _SESSION.get(), dict[Path, Path]()
    try:
        for target, content in contents.items():
            if account:
                account.check(target)
            staged[target] = target.with_name(f".{target.name}.{os.getpid()}{PART}")
            packed = io.BytesIO()
            if target.suffix == ".gz":  # with a header that no version of Python changes, as `gzip.compress` has not
                with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0) as file:
                    file.write(content)
            staged[target].write_bytes(packed.getvalue() or content)
        for target in [*staged]:
            staged[target].replace(target)
            del staged[target]
    except BaseException as error:  # the user's Ctrl-C, too, leaves nothing behind
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise
    if account:
        account.written.update(dict.fromkeys(target for target in contents if target.parent.suffix != PART))


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write a text file in UTF-8; as `write_bytes`."""
    write_bytes(path, content.encode())


def suffix_of(path: str | os.PathLike[str], known: Collection[str], what: str, option: str = "") -> str:
    """The end of a name that decides what the file is; InputError when it is none of those known."""
    name = Path(path).name.lower()
    for suffix in known:
        if name.endswith(suffix) and name != suffix:
            return suffix
    found = "".join(Path(name).suffixes[-2:]) or name
    raise InputError.at(
        str(path), f"no {what} of this kind", expected=closest(found, known), found=repr(found), field=option
    )


def make_folder(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Make a folder for results; InputError if it holds files already and `force` is not set, or it cannot be made."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        full = occupied(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    if full and not force:
        raise InputError.at(
            str(folder), "the folder is not empty", expected="a new or an empty folder", hint="--force overwrites files"
        )
    return folder


def occupied(folder: Path) -> bool:
    """Whether a folder holds anything but what a process that was killed left unfinished."""
    return any(path.suffix != PART for path in folder.iterdir())


@contextmanager
def folder(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """A place to write a folder's files to, which get their names together when the block ends well.

    InputError as of `make_folder`, and if a file would overwrite what the command has read.
    """
    ours, account = not Path(path).exists(), _SESSION.get()
    target = make_folder(path, force=force)
    stage = target / f".{os.getpid()}{PART}"
    try:
        stage.mkdir(exist_ok=True)
        yield stage
        names = (file.relative_to(stage) for file in stage.rglob("*") if file.is_file())
        made = sorted(names, key=lambda name: in_order(str(name)))
        for name in made:
            if account:
                account.check(target / name)
        for name in made:
            (target / name).parent.mkdir(exist_ok=True)
            (stage / name).replace(target / name)
            if account:
                account.written[target / name] = None
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if ours:
            with suppress(OSError):  # it holds files, as it should
                target.rmdir()


def _unwritable(path: Path, error: OSError) -> InputError:
    path = path.parent.parent / path.name if path.parent.suffix == PART else path  # by the name it would get
    expected = "a folder that exists" if isinstance(error, FileNotFoundError) else "a place to write"
    return InputError.at(str(path), "cannot be written", expected=expected, found=error.strerror or str(error))
