"""The command line: one file per verb, imported only when its verb is called."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence

import click

from simcore import __version__
from simcore.cli.command import Lazy
from simcore.errors import InputError, Location, Problem, SimcoreError, printable
from simcore.files import session
from simcore.memory import Watch, watched
from simcore.peers import option_here

__all__ = ["main"]

# Verb -> what it does, in the order of the help. The module simcore.cli.VERB defines `command`.
VERBS = {
    "run": "Simulate a workload on a topology.",
    "list": "List what there is: topologies, workloads, models, accelerators, collectives.",
    "topology": "Show a topology: figures and a picture.",
    "generate": "Make a workload from a model's shape.",
    "convert": "Convert workloads and traces to Chakra, JSON and back.",
    "trace": "Look into a trace: info, graph, timeline, obfuscate.",
    "replay": "Replay real profiler traces against their measured steps.",
    "data": "Measured kernel times: list them, add your own, predict.",
    "cost": "Cost of a whole training run.",
    "predict": "Predict a training step: time, memory, what it consists of.",
    "validate": "Predict published measurements and report the error.",
    "search": "Find the best parallelisation of a model on a cluster.",
    "sweep": "Run a study of many configurations.",
    "compare": "Compare two reports or timelines.",
    "schema": "JSON Schemas of what commands print with --json.",
}


TABLE = {name: (text, f"{name}:command") for name, text in VERBS.items()}


@click.group(cls=Lazy, table=TABLE)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show Python's own traceback of an error.")
def cli(debug: bool) -> None:
    """Simulate distributed training steps and explain where the time goes.

    \b
    simcore run --workload dlrm --topology ring64
    simcore list workloads

    \b
    Completion in your shell:
    eval "$(_SIMCORE_COMPLETE=bash_source simcore)"          # bash; zsh: zsh_source
    _SIMCORE_COMPLETE=fish_source simcore | source           # fish
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status: 0 done, 1 failed, 2 bad input, 3 outside a tolerance, 130 interrupted."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]  # `list` is a module here once that verb is loaded
    if arguments is None:  # a process of its own, which makes many objects and hardly any that refer to each other
        gc.set_threshold(100_000)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    with watched() as memory, session():
        return _status(words, debug, memory)


def _status(words: list[str], debug: bool, memory: Watch) -> int:
    """Run a command and turn every error into its message and exit status."""
    try:
        status = cli.main(words, prog_name="simcore", standalone_mode=False)
    except click.ClickException as error:
        return _failure(_usage(error, words), words)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except (click.Abort, KeyboardInterrupt) as error:  # Abort is an Exception, too
        if memory.used_bytes and memory.ended(error):
            return _failure(_out_of_memory(words[0], memory), words)
        click.echo("interrupted", err=True)
        return 130
    except Exception as error:
        known = _known(error, words[0], memory)
        if debug or known is None:
            raise
        return _failure(known, words)
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
    click.echo(printable(text if "error:" in text else f"error: {text}"), err=True)
    if "--json" in words:
        problems = error.problems if isinstance(error, InputError) else [Problem(Location(""), text)]
        click.echo(json.dumps({"error": [problem.to_dict() for problem in problems]}, sort_keys=True, indent=1))
    return error.exit_status


def _usage(error: click.ClickException, words: Sequence[str]) -> InputError:
    """A wrong use of the command line as one of our errors."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context else f"simcore {words[0]}"
    option = getattr(error, "option_name", None) or getattr(getattr(error, "param", None), "opts", [where])[0]
    here = option_here(str(option)) if isinstance(error, click.NoSuchOption) else ""
    hint = f"it is called {here} here" if here else f"try '{where} --help'"
    own = isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter)
    message = error.message if own else error.format_message()
    return InputError(Problem(Location(str(option)), message, hint=hint))
