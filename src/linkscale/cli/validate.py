"""``linkscale validate``: predict published runs and show how far the predictions lie from what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from linkscale.fit.score import Validation
    from linkscale.plan.resolve import Case
    from linkscale.readers.runs import Runs


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(name="validate")(validate)


def validate(
    runs: Annotated[Path, typer.Argument(metavar="RUNS.csv", help="Published runs, one a row.")],
    by: Annotated[str, typer.Option("--by", help="Column by which errors are grouped.")] = "source_key",
    row: Annotated[str | None, typer.Option("--row", metavar="ID", help="Show this run alone.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="With --row: the prediction and every default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON there.")] = None,
) -> None:
    """Compare predictions with published runs.

    Every row is resolved to a model, a cluster and a strategy; what it leaves out comes from one table of product
    defaults. Rows that cannot be predicted are listed with the reason.
    """
    from linkscale.base.errors import InputError, unknown_name
    from linkscale.fit.predictor import Estimator
    from linkscale.fit.score import validate_runs
    from linkscale.readers.runs import RunRecord, read_runs

    if by not in RunRecord.__struct_fields__:
        raise unknown_name("column", by, RunRecord.__struct_fields__)
    if explain and row is None:
        raise InputError("--explain needs --row ID: one run is explained at a time")
    read = _only(read_runs(runs), row, runs)
    validation = validate_runs(read, Estimator(), by)
    if output is not None:
        _write(output, validation)
    if as_json:
        _json(validation)
    elif output is None:
        _page(validation, read, by, row, explain)
    for bad in read.bad:
        typer.echo(f"warning: {runs}:{bad.line}: {bad.reason}; row left out", err=True)
    if not validation.summary.predicted:
        raise typer.Exit(1)


def _only(runs: Runs, row: str | None, path: Path) -> Runs:
    """Return the runs, or the one that was asked for."""
    from linkscale.base.errors import unknown_name
    from linkscale.readers.runs import Runs

    if row is None:
        return runs
    found = tuple(record for record in runs.records if record.id == row)
    if not found:
        raise unknown_name(f"run in {path}", row, (record.id for record in runs.records))
    return Runs(records=found, bad=())


def _json(validation: Validation) -> None:
    from linkscale.report.json_document import encode
    from linkscale.report.validate import validate_document

    typer.echo(encode(validate_document(validation)), nl=False)


def _write(output: Path, validation: Validation) -> None:
    from linkscale.base.files import write_text
    from linkscale.report.json_document import encode
    from linkscale.report.validate import validate_document

    write_text(output, encode(validate_document(validation)))


def _page(validation: Validation, runs: Runs, by: str, row: str | None, explain: bool) -> None:
    from linkscale.report.console import show
    from linkscale.report.validate import run_page, validate_page

    if row is None:
        show(validate_page(validation, by))
        return
    case = _case(runs)
    show(run_page(validation.rows[0], case if explain else None))
    if explain and case is not None:
        _explain(case)


def _case(runs: Runs) -> Case | None:
    from linkscale.plan.resolve import Case, resolve

    found = resolve(runs.records[0])
    return found if isinstance(found, Case) else None


def _explain(case: Case) -> None:
    """Show the page of ``predict`` for the run."""
    from linkscale.estimate import estimate_step
    from linkscale.report.console import show
    from linkscale.report.context import Asked, AskedStrategy
    from linkscale.report.predict_page import estimate_page

    estimate = estimate_step(case.architecture, case.cluster, case.strategy, case.seq_len, case.global_batch)
    model = case.architecture
    job = Asked(model.name, case.cluster, case.seq_len, case.global_batch, training=model.training)
    show(estimate_page(estimate, AskedStrategy(job, case.strategy)))
