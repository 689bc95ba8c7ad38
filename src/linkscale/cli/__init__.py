"""The command line: one thin module a verb, which parses, calls and renders."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code; Ctrl-C while modules load is one line as well."""
    try:
        from linkscale.cli.app import main as run
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        raise SystemExit(130) from None
    run(argv)


__all__ = ["main"]
