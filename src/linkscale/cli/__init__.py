"""The command line: one thin module a verb, which parses, calls and renders."""

from linkscale.cli.app import main

__all__ = ["main"]
