"""What every verb shares: options in groups, one way to print, to warn and to write."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from simcore import files, library
from simcore.cli.kinds import Target, place
from simcore.cli.progress import Aside, progress
from simcore.documents import Node, placed, tell_at_options
from simcore.errors import InputError, Location, Problem, Problems, closest, printable, wrong

EXIT_CODES = "Exit codes: 0 done, 1 the run failed, 2 bad input, 3 outside a tolerance, 130 interrupted."
CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "token_normalize_func": lambda name: name.replace("_", "-"),
}
ASSIGNMENT = re.compile(r"[a-z_]+=[\w-]+")


class Option(click.Option):
    """An option with the group of the help that it stands in; a `greedy` one takes all words NAME=VALUE behind it.

    It `needs` one of the parameters "a|b" to have an effect, or "!a" that this one is not given.
    """

    def __init__(self, *arguments: Any, group: str = "", greedy: bool = False, needs: str = "", **more: Any):
        super().__init__(*arguments, **more)
        self.group, self.greedy, self.needs = group, greedy, needs

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """What is given; InputError for an empty value, which would count as none (--system "$UNSET")."""
        value, source = super().consume_value(ctx, opts)
        if source == ParameterSource.COMMANDLINE and "" in (value if self.multiple or self.nargs > 1 else (value,)):
            raise wrong(place(self), "a value that is not empty", "")
        return value, source


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
    """A verb. Its options stand in groups, and all verbs have -q -v --json, and --force if they write files.

    Options of an `abbreviated` one are also taken by a unique beginning.
    """

    def __init__(self, *arguments: Any, abbreviated: bool = False, **more: Any):
        super().__init__(*arguments, **{**more, "context_settings": CONTEXT})
        self.abbreviated = abbreviated
        self.params += _common(writes=any(isinstance(parameter.type, Target) for parameter in self.params))

    def invoke(self, ctx: click.Context) -> Any:
        """Do the work, then name what was written."""
        with files.session() as account, _shown(ctx):
            self._keep_inputs(ctx, account)
            self._refuse_idle(ctx)
            try:
                status = super().invoke(ctx)
            except InputError as error:
                error.problems[:] = placed(error, [*_configured(ctx)]).problems
                tell_at_options(error, _typed(ctx))
                raise
        if ctx.meta.get("simcore.verbose"):
            for path in account.read.values():
                click.echo(printable(f"read: {path}"), err=True)
        for warning in account.told:
            warn(warning)
        written = list(account.written)
        if ctx.meta.get("simcore.json") and not ctx.meta.get("simcore.emitted"):
            emit({"schema": "simcore.written/1", "written": [str(path) for path in written]}, "")
        for line in _told(written):
            note(line)
        for line in _left(written) if ctx.meta.get("simcore.force") else ():
            warn(line)
        return status

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, with beginnings spelled out and a greedy option before each word that it takes."""
        known = {name: str(parameter.name) for parameter in self.params for name in parameter.opts}
        greedy = [name for each in self.params if getattr(each, "greedy", False) for name in each.opts]
        words: list[str] = []
        for arg in args:
            word = _spelled(arg, known) if self.abbreviated else arg
            follows = len(words) > 1 and words[-2] in greedy and ASSIGNMENT.fullmatch(word) and not Path(word).exists()
            words += [words[-2], word] if follows else [word]
        try:
            return super().parse_args(ctx, words)
        except click.UsageError as error:
            error.ctx = ctx  # some have none
            raise

    def _refuse_idle(self, context: click.Context) -> None:
        """InputError for every option that was typed and has no effect without another, or beside it."""
        with Problems() as problems:
            for one in self.params:
                needs = getattr(one, "needs", "")
                names = needs.removeprefix("!").split("|") if needs and _is_typed(context, one) else []
                if names and any(context.params.get(name) for name in names) == needs.startswith("!"):
                    others = " or ".join(place(each) for each in self.params if each.name in names)
                    expected = f"no {others}" if needs.startswith("!") else f"{others}, too"
                    problems.add(Problem(Location(place(one)), "has no effect here", expected))

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


def refuse_idle(takes: Collection[str], options: Collection[str], what: str) -> None:
    """InputError for every typed one of these `options` that is not among those that `what` is given takes."""
    context = click.get_current_context()
    with Problems() as problems:
        for one in context.command.params:
            if _is_typed(context, one) and one.name in options and one.name not in takes:
                problems.add(Problem(Location(place(one)), f"has no effect on {what}"))


def _is_typed(context: click.Context, parameter: click.Parameter) -> bool:
    return context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE


def _spelled(word: str, known: Mapping[str, str]) -> str:
    """The declared form of an option; `known` tells which parameter each sets; what begins none or several stays."""
    name, equals, value = word.partition("=")
    if not name.startswith("--") or len(name) < 4:
        return word
    plain = "--" + name[2:].replace("-", "_")
    matches = [plain] if plain in known else [name for name in known if name.startswith(plain)]
    one = len({known[name] for name in matches}) == 1
    return matches[0] + equals + value if one else word


Commands = Mapping[str, tuple[str, Callable[[], click.Command]]]
"""Name -> what it does, and what makes the command."""


class Group(click.Group):
    """Commands by name, with what each does; they are made when they are called. `usual` is the one left out."""

    def __init__(self, name: str | None, *, within: Commands, usual: str, **more: Any):
        super().__init__(name, **more, context_settings=CONTEXT)
        self._within, self._usual = within, usual

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return [*self._within]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, None when there is none."""
        return self._within[cmd_name][1]() if cmd_name in self._within else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What each does, without making any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in self._within.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words, the usual command put in; of none the help, which is no error (a shell completes the first)."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        if self._usual and args and args[0] not in {*self._within, *ctx.help_option_names}:
            args = [self._usual, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with a hint at the nearest name."""
        wrong = not args[0].startswith("-") and self.get_command(ctx, args[0]) is None
        if wrong and not ctx.resilient_parsing:  # as when a shell completes words
            known = self.list_commands(ctx)
            expected = closest(args[0], known)
            raise InputError.at(ctx.command_path, "no such command", expected=expected, found=repr(args[0]))
        return super().resolve_command(ctx, args)


@contextmanager
def _shown(context: click.Context) -> Iterator[None]:
    """Show how far the command is: on a terminal, with -v as lines elsewhere, never with -q."""
    lines = not (sys.stderr and sys.stderr.isatty())
    if context.meta.get("simcore.quiet") or (lines and not context.meta.get("simcore.verbose")):
        yield
        return
    with progress(context.command_path, lines=lines) as aside:
        context.meta["simcore.aside"] = aside
        yield


def _configured(context: click.Context) -> Iterator[Node]:
    """The entries of a file of options that the command line says nothing else of."""
    for entry in context.meta.get("simcore.config", ()):
        if context.get_parameter_source(entry.name) is ParameterSource.DEFAULT_MAP:
            yield entry


def _typed(context: click.Context) -> Iterator[tuple[str, str]]:
    """The options and each of their words."""
    for parameter in context.command.params:
        for word in _words(context.params.get(str(parameter.name))) if isinstance(parameter, Option) else ():
            yield place(parameter), word


def _aside(context: click.Context) -> AbstractContextManager[None]:
    """Where something is printed beside the progress."""
    aside: Aside = context.meta.get("simcore.aside", nullcontext)
    return aside()


def _words(value: object) -> tuple[str, ...]:
    """The words that were given for a parameter."""
    return tuple(one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, str))


_MANY = 4  # files of one folder: the first and the last are named


def _told(written: list[Path]) -> Iterator[str]:
    """Where the files are and how to open them."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in written:
        folders[path.parent].append(path)
    for paths in folders.values():
        yield f"written: {_named(paths)}"
    for suffix, how in library.table(__file__, "opened.txt") if written else ():
        if found := [path for path in written if path.name.endswith(suffix)]:
            yield f"open {found[0]} {how}"


def _named(paths: list[Path]) -> str:
    """Files of one folder."""
    more = "".join(f", {path.name}" for path in paths[1:])
    return f"{paths[0]}" + (more if len(paths) < _MANY else f" to {paths[-1].name}, {len(paths)} files")


def _left(written: list[Path]) -> Iterator[str]:
    """What an earlier set left beside the traces that replace it, where whoever reads them takes it for a part."""
    sets = {found: found[:2] for path in written if (found := _set_of(path))}
    for one, (folder, prefix) in sets.items():
        others = (path for path in folder.iterdir() if path not in written)
        left = [path for path in others if _set_of(path) == one or path.name == f"{prefix or ''}{library.GROUPS}"]
        if left:
            shown = _named(sorted(left, key=lambda path: files.in_order(path.name)))
            yield f"there before, and read as one set with what was written: {shown}"


def _set_of(path: Path) -> tuple[Path, str | None, str] | None:
    """Folder and name, but for the rank, of a trace of a set; None of another file."""
    found = library.RANK_FILE.fullmatch(path.name)
    return (path.parent, found["prefix"], found["suffix"]) if found else None


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
    if not click.get_current_context().meta.get("simcore.quiet"):
        with _aside(click.get_current_context()):
            click.echo(printable(message), err=True)


def option_of(name: str) -> str:
    """The option, as it is spelled, that sets a parameter of the command that runs."""
    options = {parameter.name: parameter.opts[0] for parameter in click.get_current_context().command.params}
    return options[name]


def terminal_width() -> int:
    """Columns that a text may take."""
    from simcore.report.text import terminal_width as columns

    return columns(sys.stdout)
