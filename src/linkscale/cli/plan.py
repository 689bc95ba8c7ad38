"""``linkscale plan``: the best strategies for a model on a cluster, and why they are the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from linkscale.cli.options import (
    Catalog,
    GlobalBatch,
    Json,
    ScaleOut,
    ScaleUp,
    SeqLen,
    model_names,
    parse_size,
    with_strategy,
)

if TYPE_CHECKING:
    from linkscale.api import Job
    from linkscale.search.result import PlanResult


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(name="plan")(plan)


@with_strategy
def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Packaged name or config.json.", show_default=False, autocompletion=model_names
        ),
    ],
    cluster: Annotated[
        str, typer.Argument(metavar="CLUSTER", help="SYSTEM:GPUS, as dgx-h100:16384.", show_default=False)
    ],
    global_batch: GlobalBatch = None,
    seq: SeqLen = None,
    top: Annotated[int, typer.Option("--top", metavar="N", help="Plans to show.")] = 10,
    max_memory: Annotated[
        str | None, typer.Option("--max-memory", metavar="SIZE", help="Memory of a GPU to use at most, as '72 GB'.")
    ] = None,
    gpus: Annotated[
        list[int] | None, typer.Option("--gpus", metavar="N", help="Try this many GPUs; may be repeated.")
    ] = None,
    why: Annotated[
        list[str] | None,
        typer.Option("--why", metavar="FIELDS", help="Say why not this layout, as tp=4,pp=8; may be repeated."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="FIELD=VALUES", help="Search these values, as schedule=1f1b,zb-v; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Save the best plan as YAML.")
    ] = None,
    scaleup: ScaleUp = None,
    scaleout: ScaleOut = None,
    catalog: Catalog = None,
    as_json: Json = False,
    *,
    stated: dict[str, Any],
    training: dict[str, Any],
) -> None:
    """Find the fastest strategies that fit, and say why they are.

    Options that name a field of the strategy hold it fixed; --vary lists the values of one; all others are searched.
    """
    from linkscale import api
    from linkscale.base.errors import InputError
    from linkscale.report.console import progress

    missing = [name for name, value in {"--global-batch": global_batch, "--seq": seq}.items() if value is None]
    if global_batch is None or seq is None:
        raise InputError(f"{', '.join(missing)} missing; for example `--global-batch 128 --seq 8192`")
    limit = None if max_memory is None else float(parse_size("--max-memory", max_memory))
    asked = api.job(model, cluster, global_batch=global_batch, seq_len=seq, scaleup=scaleup, scaleout=scaleout,
                    catalog=catalog, **training)  # fmt: skip
    with progress("searching") as advance:
        found = api.search(asked, stated, top=top, max_memory_bytes=limit, gpus=tuple(gpus or ()), progress=advance,
                           why=why or (), vary=vary or ())  # fmt: skip
    if output is not None:
        names = {"model": model, "cluster": cluster, "scaleup": scaleup, "scaleout": scaleout}
        _save(output, found, asked, {**names, **training})
    _print(asked, found, as_json=as_json)


def _save(output: Path, found: PlanResult, asked: Job, names: dict[str, Any]) -> None:
    """Write the best plan with the model and the cluster as they were named."""
    from linkscale.plan.plan import Plan

    best = found.plans[0]
    if best.strategy.gpus != asked.cluster.gpus:
        names = {**names, "cluster": f"{str(names['cluster']).rpartition(':')[0]}:{best.strategy.gpus}"}
    Plan(strategy=best.strategy, global_batch=asked.global_batch, seq_len=asked.seq_len, **names).save(output)
    typer.echo(f"saved the best plan as {output}; `linkscale predict {output}` shows it in full", err=True)


def _print(asked: Job, found: PlanResult, *, as_json: bool) -> None:
    from linkscale.cli.shown import described

    if as_json:
        from linkscale.report.json_document import encode, plan_document

        typer.echo(encode(plan_document(found, described(asked))), nl=False)
        return
    from linkscale.report.console import show
    from linkscale.report.plan_page import plan_page

    show(plan_page(found, described(asked)))
