"""The command line: `commands.txt` says what there is, a module of each verb does it, imported when it is called."""

from __future__ import annotations

import gc
import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from simcore import __version__
from simcore.cli.kinds import place
from simcore.cli.table import command
from simcore.errors import InputError, Location, Problem, SimcoreError, printable
from simcore.files import session
from simcore.memory import Watch, watched
from simcore.peers import option_here

__all__ = ["main"]

VALUES = {1: "a value", 2: "two values"}  # of an option

cli = command("")
click.version_option(__version__, message="%(prog)s %(version)s")(cli)
cli.params.reverse()  # --debug is last


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status: 0 done, 1 failed, 2 bad input, 3 outside a tolerance, 130 interrupted."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]  # `list` is a module here once that verb is loaded
    if arguments is None:  # a process of its own, which makes many objects and hardly any that refer to each other
        gc.set_threshold(100_000)
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one for each core would wait in a loop
        os.environ["MPLBACKEND"] = "agg"  # no window is opened, and Matplotlib refuses names that it does not know
        if isinstance(sys.stdout, io.TextIOWrapper):  # on Windows a pipe may take the letters of one country only
            sys.stdout.reconfigure(errors="backslashreplace")
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    outcome: int | SimcoreError = 130
    try:
        with watched() as memory, session():
            outcome = _outcome(words, debug, memory)
    except (click.Abort, KeyboardInterrupt) as error:  # also when the end of memory is seen while an error is handled
        if memory.used_bytes and memory.ended(error):
            outcome = _out_of_memory(words[0], memory)
        else:
            click.echo("interrupted", err=True)
    status = outcome if isinstance(outcome, int) else _failure(outcome, words)  # nothing watches any more
    if arguments is None:  # Python would walk all objects once more when the process ends, and write what is left
        gc.freeze()
        _drop_unwritten()
    return status


def _drop_unwritten() -> None:
    """What a full disk did not take is not tried again: that would make an exit status of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream:  # None where it was closed
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _outcome(words: list[str], debug: bool, memory: Watch) -> int | SimcoreError:
    """Run a command: its exit status, or what was wrong."""
    try:
        status = cli.main(words, prog_name="simcore", standalone_mode=False)
    except click.ClickException as error:
        return _usage(error, words)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except click.Abort:  # an Exception, too
        raise
    except Exception as error:
        known = _known(error, words[0], memory)
        if debug or known is None:
            raise
        return known
    return status if isinstance(status, int) else 0


def _known(error: Exception, verb: str, memory: Watch) -> SimcoreError | None:
    """The error as one of ours; None where it is a defect of simcore."""
    if isinstance(error, SimcoreError):
        return error
    if isinstance(error, OSError):  # a name that is too long, a loop of links, a folder not to be entered, a full disk
        return InputError.at(str(error.filename or f"simcore {verb}"), error.strerror or str(error))
    if isinstance(error, OverflowError):
        return InputError.at(f"simcore {verb}", "a number of the input is too large", found=str(error))
    return _out_of_memory(verb, memory, str(error)) if memory.ended(error) else None


def _out_of_memory(verb: str, memory: Watch, asked: str = "") -> InputError:
    used = f"{memory.used_bytes >> 20:,} MB taken, and no more to be had" + f" ({asked})" * ("allocate" in asked)
    hint = "fewer NPUs, layers or iterations need less; NPUs of a symmetric network (no Mesh, no straggler) share one"
    return InputError.at(f"simcore {verb}", "this needs more memory than there is", found=used, hint=hint)


def _failure(error: SimcoreError, words: Sequence[str]) -> int:
    """Print an error of ours; its exit status."""
    text = str(error)
    with suppress(OSError):  # the output itself may be what fails
        click.echo(printable(text if "error:" in text else f"error: {text}"), err=True)
    if "--json" in words:
        problems = error.problems if isinstance(error, InputError) else [Problem(Location(""), text)]
        with suppress(OSError):
            click.echo(json.dumps({"error": [problem.to_dict() for problem in problems]}, sort_keys=True, indent=1))
    return error.exit_status


def _usage(error: click.ClickException, words: Sequence[str]) -> InputError:
    """A wrong use of the command line as one of our errors."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else f"simcore {words[0]}"
    hint = f"try '{where} --help'"
    if isinstance(error, click.NoSuchOption):
        params = context.command.params if context else ()
        name = _typed_name(error.option_name, words)
        here = option_here(name, [name for one in params for name in one.opts])
        near = f"{here}, as it is called here" if here else " or ".join(error.possibilities or ())
        return InputError.at(name, "there is no such option", expected=near, hint=hint)
    if isinstance(error, click.MissingParameter) and context:
        typed = {word.partition("=")[0].replace("_", "-") for word in words}
        needed = [one for one in context.command.params if one.required]
        options = (one for one in needed if place(one)[0] == "-")
        left = [one for one in options if typed.isdisjoint(name.replace("_", "-") for name in one.opts)]
        return InputError([_missing(one, context, hint) for one in needed if one in (*left, error.param)])
    if isinstance(error, click.BadOptionUsage) and context:
        plain = {name.replace("_", "-"): one for one in context.command.params for name in one.opts}
        one = plain[error.option_name.replace("_", "-")]
        message = "takes no value" if getattr(one, "is_flag", False) else f"needs {VALUES[one.nargs]}"
        return InputError.at(place(one), message, expected=_typed(one, context), hint=hint)
    message, _, extra = error.format_message().partition(" (")
    expected = " ".join([where, *context.command.collect_usage_pieces(context)]) if context else ""
    return InputError.at(where, message, expected=expected, found=extra.rstrip(")"), hint=hint)


def _typed_name(name: str, words: Sequence[str]) -> str:
    """An unknown option as it was typed: of `-nv`, as SimAI has options, click says `-n`."""
    return next((word.partition("=")[0] for word in words if word.startswith(name) and name[1:2] != "-"), name)


def _missing(one: click.Parameter, context: click.Context, hint: str) -> Problem:
    return Problem(Location(place(one)), f"the {one.param_type_name} is missing", _typed(one, context), hint=hint)


def _typed(one: click.Parameter, context: click.Context) -> str:
    """How a parameter is typed: an option with its value, an argument in its place."""
    if one.param_type_name == "option":
        return place(one) + f" {one.make_metavar(context)}" * (not getattr(one, "is_flag", False))
    return " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
