"""The shell of the command line: exit codes, one-line errors, quick start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer

from linkscale import __version__
from linkscale.base.errors import InputError, NothingFits
from linkscale.cli import app as shell

HEAVY = ("numpy", "rich", "yaml", "scipy", "torch", "transformers", "jsonschema")


def linkscale(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "linkscale.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80", **variables})


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_no_library_at_all():
    assert not {*HEAVY, "typer", "msgspec"} & modules_after("import linkscale")


def test_help_loads_no_heavy_library():
    code = "from linkscale.cli.app import run\nassert run(['--help']) == 0\nassert run(['plan', '--help']) in (0, 2)"
    assert not set(HEAVY) & modules_after(code)


def test_version_and_bare_call_print_to_standard_output():
    assert linkscale("--version").stdout == f"linkscale {__version__}\n"
    bare = linkscale()
    assert bare.returncode == 0
    assert bare.stdout.startswith("Usage: linkscale")


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("--nonsense",), ("catalog", "--nonsense"), ("-",), ("--version=3",)]
)
def test_usage_errors_are_one_line_and_exit_2(arguments):
    done = linkscale(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "--help" in done.stderr


def run_verb(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """Run the command line with a verb that raises ``error``."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(shell, "build_app", lambda: app)
    return shell.run(["--"])


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("tp = 0; it must be at least 1"), 2, "error: tp = 0; it must be at least 1\n"),
        (NothingFits("short of 3 GiB"), 1, "error: short of 3 GiB\n"),
        (InputError("two\nlines"), 2, "error: two lines\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (IsADirectoryError(21, "Is a directory", "plans"), 2, "error: plans: Is a directory\n"),
        (typer.BadParameter("not a number"), 2, None),
        (ZeroDivisionError("division by zero"), 70, None),
    ],
)
def test_every_failure_is_one_line_with_its_exit_code(monkeypatch, capsys, error, code, text):
    monkeypatch.delenv("LINKSCALE_DEBUG", raising=False)
    assert run_verb(monkeypatch, error) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    if text:
        assert shown.err == text


def test_a_defect_names_the_way_to_its_traceback(monkeypatch, capsys):
    monkeypatch.delenv("LINKSCALE_DEBUG", raising=False)
    run_verb(monkeypatch, KeyError("step"))
    assert "LINKSCALE_DEBUG=1" in capsys.readouterr().err
    monkeypatch.setenv("LINKSCALE_DEBUG", "1")
    run_verb(monkeypatch, KeyError("step"))
    assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_ends_quietly():
    command = f"{sys.executable} -m linkscale.cli --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.skipif(os.name != "posix", reason="needs a shell's >&-")
def test_a_closed_standard_output_is_no_defect():
    command = f"{sys.executable} -m linkscale.cli catalog nics >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_while_modules_load_is_one_line():
    code = (
        "import builtins, linkscale.cli\nload = builtins.__import__\n"
        "def stop(name, *rest):\n    if name == 'linkscale.cli.app':\n        raise KeyboardInterrupt\n"
        "    return load(name, *rest)\nbuiltins.__import__ = stop\nlinkscale.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "linkscale.cli", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "error: No space left on device\n"


def test_shell_completion_offers_the_verbs():
    done = linkscale(_LINKSCALE_COMPLETE="complete_bash", COMP_WORDS="linkscale ", COMP_CWORD="1")
    assert done.stdout.split() == list(shell.VERBS)
