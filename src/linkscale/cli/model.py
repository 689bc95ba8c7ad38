"""``linkscale model``: layers, parameters, FLOPs per token and activations of one model."""

from __future__ import annotations

from typing import Annotated

import typer

from linkscale.cli.options import Json


def _names() -> list[str]:
    from linkscale.workload import packaged_models

    return list(packaged_models())


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(name="model", short_help="Show the layers, exact parameters and FLOPs of a model.")(model)


def model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Packaged name, config.json, or a folder with one.",
            autocompletion=_names,
            show_default=False,
        ),
    ],
    seq: Annotated[
        int | None,
        typer.Option("--seq", metavar="N", help="Tokens in a sequence (default: 4096, or the longest it takes)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a model's layers, exact parameters, FLOPs per token and activation bytes.

    `linkscale catalog models` lists the packaged ones.
    """
    from linkscale.estimate.model import summarize
    from linkscale.workload import load_architecture

    summary = summarize(load_architecture(model), seq)
    if as_json:
        from linkscale.report.json_document import document, encode

        typer.echo(encode(document("model", summary)), nl=False)
        return
    from linkscale.report.console import show
    from linkscale.report.model_page import model_page

    show(model_page(summary))
