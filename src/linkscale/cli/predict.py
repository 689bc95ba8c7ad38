"""``linkscale predict``: step time, memory and communication of one strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from linkscale.cli.options import (
    TRAINING,
    Catalog,
    GlobalBatch,
    Json,
    ScaleOut,
    ScaleUp,
    SeqLen,
    model_names,
    with_strategy,
)

if TYPE_CHECKING:
    from linkscale.api import Job
    from linkscale.estimate import Estimate
    from linkscale.plan.plan import Plan
    from linkscale.plan.strategy import Strategy

DEGREES = ("tp", "cp", "pp")


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(name="predict")(predict)


@with_strategy
def predict(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL|PLAN.yaml",
            help="Packaged name, config.json, or plan.",
            show_default=False,
            autocompletion=model_names,
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Argument(metavar="CLUSTER", help="SYSTEM:GPUS, as dgx-h100:16384.", show_default=False)
    ] = None,
    global_batch: GlobalBatch = None,
    seq: SeqLen = None,
    from_megatron: Annotated[
        str | None,
        typer.Option("--from-megatron", metavar="FILE", help="Read Megatron-LM arguments; give CLUSTER."),
    ] = None,
    scaleup: ScaleUp = None,
    scaleout: ScaleOut = None,
    catalog: Catalog = None,
    as_json: Json = False,
    *,
    stated: dict[str, Any],
    training: dict[str, Any],
) -> None:
    """Predict step time, memory and communication of one strategy.

    Give MODEL and CLUSTER with --global-batch and --seq, or a file that `linkscale plan -o` wrote; options replace
    what the file says. What nobody states is filled in as the stack usually runs.
    """
    import msgspec

    from linkscale import api

    given = _from_megatron(from_megatron, model, cluster, catalog) if from_megatron else _given(model, cluster)
    given.job.update(_present(global_batch=global_batch, seq_len=seq, scaleup=scaleup, scaleout=scaleout))
    given.job.update(training)
    fields = _merged(given, stated)
    asked = api.job(**_whole(given.job), catalog=catalog)
    strategy = api.strategy_of(asked, fields)
    estimate = api.estimate(asked, strategy, fields)
    if given.assumptions:
        estimate = msgspec.structs.replace(estimate, assumptions=(*given.assumptions, *estimate.assumptions))
    _print(asked, strategy, estimate, as_json=as_json)


class Given(NamedTuple):
    """What the arguments or a file say: the job as arguments of ``api.job``, and fields of the strategy."""

    job: dict[str, Any]
    strategy: dict[str, Any]
    assumptions: tuple[str, ...] = ()


def _given(model: str | None, cluster: str | None) -> Given:
    """Read MODEL or PLAN.yaml, and CLUSTER."""
    if model is None or not model.lower().endswith((".yaml", ".yml")):
        return Given(_present(model=model, cluster=cluster), {})
    from linkscale.plan.plan_file import read_plan

    plan, stated = read_plan(model)
    return _from_plan(plan, stated, cluster)


def _from_megatron(path: str, cluster: str | None, more: str | None, catalog: str | None) -> Given:
    """Read a launch script; the only argument beside it is the cluster, whose GPUs give dp."""
    from linkscale.base.errors import InputError
    from linkscale.plan.megatron import plan_from_megatron
    from linkscale.topology import parse_cluster

    if more is not None:
        raise InputError(f"--from-megatron reads the model itself; give CLUSTER alone, not {cluster!r} {more!r}")
    gpus = None if cluster is None else parse_cluster(cluster, catalog=catalog).gpus
    plan = plan_from_megatron(path, gpus)
    return _from_plan(plan, None, cluster)


def _from_plan(plan: Plan, stated: frozenset[str] | None, cluster: str | None) -> Given:
    """Take a plan apart; a cluster given beside it replaces the plan's, and dp then follows from its GPUs."""
    job = _present(model=plan.model, global_batch=plan.global_batch, seq_len=plan.seq_len)
    job |= _present(**{flag.field: getattr(plan, flag.field) for flag in TRAINING})
    if cluster is None:
        job |= _present(cluster=plan.cluster, scaleup=plan.scaleup, scaleout=plan.scaleout)
    else:
        job["cluster"] = cluster
    names = plan.strategy.__struct_fields__ if stated is None else stated
    fields = {name: getattr(plan.strategy, name) for name in names}
    if cluster is not None or plan.cluster is None:
        fields.pop("dp", None)
    return Given(job, fields, plan.assumptions)


def _merged(given: Given, stated: dict[str, Any]) -> dict[str, Any]:
    """Let options replace the fields of a plan; changed degrees leave another dp."""
    fields = dict(given.strategy)
    if any(name in stated for name in DEGREES):
        fields.pop("dp", None)
    return {**fields, **stated}


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _whole(job: dict[str, Any]) -> dict[str, Any]:
    """Return the job, or say which of its parts is missing."""
    from linkscale.base.errors import InputError

    names = {"model": "MODEL", "cluster": "CLUSTER", "global_batch": "--global-batch", "seq_len": "--seq"}
    missing = [shown for name, shown in names.items() if name not in job]
    if missing:
        example = "linkscale predict llama-3.1-8b dgx-h100:8 --global-batch 32 --seq 8192"
        raise InputError(f"{', '.join(missing)} missing; for example `{example}`")
    return job


def _print(asked: Job, strategy: Strategy, estimate: Estimate, *, as_json: bool) -> None:
    """Print the page or the document; without a page nothing of the terminal library is loaded."""
    from linkscale.cli.shown import described
    from linkscale.report.context import AskedStrategy

    job = described(asked)
    if as_json:
        from linkscale.report.json_document import encode, predict_document

        typer.echo(encode(predict_document(estimate, job, strategy)), nl=False)
        return
    from linkscale.report.console import show
    from linkscale.report.predict_page import estimate_page

    show(estimate_page(estimate, AskedStrategy(job, strategy)))
