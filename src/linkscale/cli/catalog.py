"""``linkscale catalog``: the hardware and models that the package knows, every fact with its source."""

from __future__ import annotations

from typing import Annotated

import typer

from linkscale.cli.options import Catalog, Json

KINDS = ("gpus", "systems", "nics", "switches", "nvswitches", "models")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(name="catalog", short_help="List hardware and models, every fact with its source.")(catalog)


def _kinds() -> list[str]:
    return list(KINDS)


def catalog(
    kind: Annotated[
        str,
        typer.Argument(metavar="|".join(KINDS), help="What to list.", autocompletion=_kinds, show_default=False),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show all facts of this one.", show_default=False)
    ] = None,
    catalog: Catalog = None,
    as_json: Json = False,
) -> None:
    """List GPUs, systems, NICs, switches and models; with NAME, every fact with its source.

    Peaks are dense; bandwidths are per direction unless their name says both directions.
    """
    from linkscale.hardware.catalogue import load_catalogue
    from linkscale.report.catalog import catalog_document, known_kind, listing

    found = listing(known_kind(kind), name, load_catalogue(catalog))
    if as_json:
        from linkscale.report.json_document import encode

        typer.echo(encode(catalog_document(found)), nl=False)
        return
    from linkscale.report.catalog_page import entry_page, listing_page
    from linkscale.report.console import show

    show(entry_page(found.entries[0]) if name is not None else listing_page(found))
