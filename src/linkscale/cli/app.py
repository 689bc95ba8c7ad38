"""The ``linkscale`` command: registers the verbs and turns every failure into one line and an exit code.

Exit codes: 0 done; 1 the answer is no (nothing fits, a check failed); 2 bad input or usage; 70 a defect of
Linkscale; 130 interrupted. Verb modules import heavy rooms inside their functions, so that help stays quick.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer
from typer.main import get_command

from linkscale import __version__
from linkscale.base.errors import LinkscaleError

VERBS = ("predict", "plan", "model", "catalog", "validate")
"""Modules of this room, each with ``register(app)``; help lists them in this order."""

DEFECT = 70
INTERRUPTED = 130

_UsageError = typer.BadParameter.__mro__[1]
_ShownError = typer.BadParameter.__mro__[2]


def build_app() -> typer.Typer:
    """Return the command with all its verbs."""
    # Plain help: it loads no terminal library, and the reference pages show it as it is.
    app = typer.Typer(
        name="linkscale",
        help="Predict, plan and explain large-model training on NVLink clusters.",
        epilog="LINKSCALE_DEBUG=1 shows the traceback of an unexpected error; NO_COLOR=1 turns colour off.",
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in VERBS:
        import_module(f"linkscale.cli.{verb}").register(app)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"linkscale {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Predict, plan and explain large-model training on NVLink clusters."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    if hasattr(signal, "SIGPIPE") and argv is None:
        # `linkscale ... | head` ends quietly, as other Unix tools do.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.stdout is None:  # closed by the caller (`>&-`): nothing to print on, still an answer by exit code
        sys.stdout = io.StringIO()
    args = list(sys.argv[1:] if argv is None else argv)
    sys.exit(run(args))


def run(args: list[str]) -> int:
    """Run the command line and return its exit code; prints one line on standard error when it fails."""
    try:
        code = get_command(build_app())(args or ["--help"], prog_name="linkscale", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one place where no traceback may pass
        return _fail(error)
    if code == INTERRUPTED:
        return _say("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(error: BaseException) -> int:
    """Say in one line what went wrong and return the exit code."""
    if os.environ.get("LINKSCALE_DEBUG"):
        import traceback

        traceback.print_exception(error)
    match error:
        case LinkscaleError():
            return _say(str(error), error.exit_code)
        case KeyboardInterrupt() | typer.Abort():
            return _say("interrupted", INTERRUPTED)
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return _say(f"{place}{error.strerror or error}", 2)
        case MemoryError():
            return _say("out of memory; ask for less at once (fewer GPUs, a smaller search space)", 2)
        case _ if isinstance(error, _ShownError):
            return _usage(error)
        case _:
            text = f"unexpected {type(error).__name__}: {error}; LINKSCALE_DEBUG=1 shows the traceback"
            return _say(text, DEFECT)


def _usage(error: BaseException) -> int:
    """Report a wrong flag or argument, and where its help is."""
    message = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "linkscale"
    text = message if message.endswith("?") else f"{message.rstrip('.')};"
    return _say(f"{text} see `{command} --help`", 2)


def _say(message: str, code: int) -> int:
    typer.echo("error: " + " ".join(message.split()), err=True)
    return code
