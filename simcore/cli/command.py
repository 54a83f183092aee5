"""What every verb shares: options in groups, one way to print, to warn and to write."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from simcore import files
from simcore.cli.progress import Aside, progress
from simcore.errors import InputError, closest, printable

EXIT_CODES = "Exit codes: 0 done, 1 the run failed, 2 bad input, 3 outside a tolerance, 130 interrupted."
CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "token_normalize_func": lambda name: name.replace("_", "-"),
}
OPENED_WITH = {
    ".html": "in a browser",
    ".pftrace": "at https://ui.perfetto.dev",
    ".pftrace.gz": "at https://ui.perfetto.dev",
    ".tar": "with simcore replay",
    ".tar.gz": "with simcore replay",
    "events.npz": "with simcore compare",
}
"""How people open a file, by the end of its name; pictures and tables need no word."""


class Option(click.Option):
    """An option with the group of the help that it stands in."""

    def __init__(self, *arguments: Any, group: str = "", **more: Any):
        super().__init__(*arguments, **more)
        self.group = group

    def get_help_extra(self, ctx: click.Context) -> click.types.OptionHelpExtra:
        """Without ranges: what is out of them is told when it is typed."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra

    def make_metavar(self, ctx: click.Context) -> str:
        """A letter for a number: what it may be is told when it is not."""
        short = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}.get(self.type.name)
        return short if short and not self.metavar else super().make_metavar(ctx)


class Named(click.ParamType):  # type: ignore[type-arg]  # generic in new versions only
    """One of some names, which are looked up when one is given, not for the help."""

    name = "name"

    def __init__(self, names: Callable[[], Collection[str]]):
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; a usage error tells the nearest."""
        known = self._names()
        if value not in known:
            self.fail(f"no such name '{value}'; {closest(str(value), known)}", param, ctx)
        return str(value)


class Target(click.ParamType):  # type: ignore[type-arg]
    """A file to write: refused before any work where it could not be, or would overwrite something.

    `suffixes` are what its name may end with, or a function that is asked when a file is named, where these come from
    modules that help need not import. A `folder` holds several files; of a `prefix` the names are known, and checked,
    when there is something to write.
    """

    name = "file"

    def __init__(
        self,
        suffixes: Collection[str] | Callable[[], Collection[str]] = (),
        *,
        folder: bool = False,
        prefix: bool = False,
    ):
        self._suffixes, self.folder, self.prefix = suffixes, folder, prefix

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it was given."""
        if self.prefix:
            return str(value)
        path, spelling = Path(value), param.opts[-1] if param else "--output"
        known = tuple(self._suffixes() if callable(self._suffixes) else self._suffixes)
        if known and not path.name.lower().endswith(known):
            found = "".join(path.suffixes[-2:]) or path.name
            message, expected = f"{spelling} writes no file of this kind", closest(found, known)
            raise InputError.at(str(value), message, expected=expected, found=repr(found), field=spelling)
        if self.folder:
            if path.exists() and not path.is_dir():
                raise InputError.at(str(value), "this is a file", expected="a new or empty folder", found=spelling)
            if path.exists() and files.occupied(path) and not forced():
                hint = "--force overwrites files"
                raise InputError.at(str(value), "the folder is not empty", expected="a new or empty one", hint=hint)
            return str(value)
        if not path.parent.is_dir():
            expected = "a folder that exists"
            raise InputError.at(str(value), "the folder does not exist", expected=expected, found=str(path.parent))
        if path.exists() and not forced():
            raise InputError.at(str(value), "the file exists", expected="a new file", hint="--force overwrites it")
        return str(value)


def _keep(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[f"simcore.{parameter.name}"] = value


def _common(*, writes: bool) -> Iterator[Option]:
    made = partial(Option, is_flag=True, expose_value=False, is_eager=True, callback=_keep, group="Output")
    yield made(["--json"], help="Print one JSON document.")
    if writes:
        yield made(["--force"], help="Overwrite what is there; inputs never are.")
    yield made(["-q", "--quiet"], help="No progress, no warnings, no notes.")
    yield made(["-v", "--verbose"], help="Name every file that is read.")


class Command(click.Command):
    """A verb. Its options stand in groups, and all verbs have -q -v --json, and --force if they write files."""

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.context_settings = {**CONTEXT, **self.context_settings}
        self.params += _common(writes=any(isinstance(parameter.type, Target) for parameter in self.params))

    def invoke(self, ctx: click.Context) -> Any:
        """Do the work, then name what was written."""
        with files.session() as account, _shown(ctx):
            self._keep_inputs(ctx, account)
            status = super().invoke(ctx)
        if ctx.meta.get("simcore.verbose"):
            for path in account.read.values():
                click.echo(printable(f"read: {path}"), err=True)
        written = list(account.written)
        if ctx.meta.get("simcore.json") and not ctx.meta.get("simcore.emitted"):
            emit({"schema": "simcore.written/1", "written": [str(path) for path in written]}, "")
        for line in _told(written):
            note(line)
        return status

    def _keep_inputs(self, context: click.Context, account: files.Session) -> None:
        """What other options name is an input: no target may be one, not even before it is read."""
        given = [(parameter, _words(context.params.get(str(parameter.name)))) for parameter in self.params]
        for parameter, words in given:
            for word in words if not isinstance(parameter.type, Target) else ():
                account.keep(word)
        targets = [Path(word) for parameter, words in given for word in words if isinstance(parameter.type, Target)]
        for at, target in enumerate(targets):
            account.check(target)
            if target.absolute() in [other.absolute() for other in targets[:at]]:
                raise InputError.at(str(target), "two outputs have this name", expected="a name for each")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by group, in the order in which groups are first named."""
        groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and isinstance(parameter, click.Option):
                groups["Output" if "--help" in parameter.opts else getattr(parameter, "group", "")].append(record)
        for name in sorted(groups, key=lambda name: (name == "Output", name == "")):
            with formatter.section(name or "Options"):
                formatter.write_dl(groups[name])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the exit status says."""
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(EXIT_CODES)


class Group(click.Group):
    """Verbs of a verb."""

    command_class = Command

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.context_settings = {**CONTEXT, **self.context_settings}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words; of none the help, which is no error."""
        if not args:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


@contextmanager
def _shown(context: click.Context) -> Iterator[None]:
    """Show how far the command is: on a terminal, with -v as lines elsewhere, never with -q."""
    lines = not sys.stderr.isatty()
    if context.meta.get("simcore.quiet") or (lines and not context.meta.get("simcore.verbose")):
        yield
        return
    with progress(context.command_path, lines=lines) as aside:
        context.meta["simcore.aside"] = aside
        yield


def _aside(context: click.Context) -> AbstractContextManager[None]:
    """Where something is printed beside the progress."""
    aside: Aside = context.meta.get("simcore.aside", nullcontext)
    return aside()


def _words(value: object) -> tuple[str, ...]:
    """The words that were given for a parameter."""
    return tuple(one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, str))


class Lazy(Group):
    """Verbs that are imported when they are called, so that help stays quick: name -> (what it does, where it is)."""

    def __init__(self, *arguments: Any, table: Mapping[str, tuple[str, str]], **more: Any):
        super().__init__(*arguments, **more)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return [*self.table]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command that MODULE:NAME says, None when there is none."""
        if cmd_name not in self.table:
            return None
        module, _, name = self.table[cmd_name][1].partition(":")
        command: click.Command = getattr(import_module(f"simcore.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with a hint at the nearest name."""
        if args and not args[0].startswith("-") and args[0] not in self.table:
            raise click.UsageError(f"no such command '{args[0]}'; {closest(args[0], self.table)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in self.table.items()])


def _pictures() -> Collection[str]:
    from simcore.report.plots import KINDS

    return KINDS


def _summaries() -> Collection[str]:
    from simcore.report.workload import SUMMARIES

    return SUMMARIES


def _timelines() -> Collection[str]:
    from simcore.report.artefacts import TIMELINES

    return TIMELINES


PICTURE, SUMMARY, TIMELINE = Target(_pictures), Target(_summaries), Target(_timelines)
verb = partial(click.command, cls=Command)
option = partial(click.option, cls=Option)


_MANY = 4  # files of one folder: the first and the last are named


def _told(written: list[Path]) -> Iterator[str]:
    """Where the files are and how to open them."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in written:
        folders[path.parent].append(path)
    for paths in folders.values():
        more = "".join(f", {path.name}" for path in paths[1:])
        yield f"written: {paths[0]}" + (more if len(paths) < _MANY else f" to {paths[-1].name}, {len(paths)} files")
    for suffix, how in OPENED_WITH.items():
        if found := [path for path in written if path.name.endswith(suffix)]:
            yield f"open {found[0]} {how}"


def emit(document: Mapping[str, object], shown: str | Callable[[], str]) -> None:
    """Print the answer: the document with --json, else the text (or what makes it)."""
    context = click.get_current_context()
    context.meta["simcore.emitted"] = True
    if context.meta.get("simcore.json"):
        from simcore.report.document import encode

        with _aside(context):
            click.echo(encode(document), nl=False)
        return
    made = shown if isinstance(shown, str) else shown()
    if made:
        with _aside(context):
            click.echo(made, nl=not made.endswith("\n"))


def warn(message: str) -> None:
    """A warning on stderr."""
    note(f"warning: {message}")


def note(message: str) -> None:
    """A line on stderr, unless -q was given."""
    if not is_quiet():
        with _aside(click.get_current_context()):
            click.echo(printable(message), err=True)


def option_of(name: str) -> str:
    """The option, as it is spelled, that sets a parameter of the command that runs."""
    options = {parameter.name: parameter.opts[0] for parameter in click.get_current_context().command.params}
    return options[name]


def is_quiet() -> bool:
    """Whether -q was given."""
    return bool(click.get_current_context().meta.get("simcore.quiet"))


def forced() -> bool:
    """Whether --force was given."""
    return bool(click.get_current_context().meta.get("simcore.force"))


def terminal_width() -> int:
    """Columns that a text may take."""
    from simcore.report.text import terminal_width as columns

    return columns(sys.stdout)
