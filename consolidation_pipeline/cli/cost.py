"""``consolidation cost``: spending on models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, make_console, make_table, print_json

if TYPE_CHECKING:
    from rich.table import Table

_LISTS = {"by_day": "day", "by_model": "model", "by_purpose": "purpose", "jobs": "job_id"}


def cost(
    project: Project,
    days: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Only the last DAYS days, including today.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show spending on models and the rest of today's budget."""
    from consolidation_pipeline.service.admin.costs import describe_costs

    engine, settings = open_store()
    found = describe_costs(engine, project, settings=settings, days=days)
    if as_json:
        print_json(found)
        return
    print(_describe_spending(found))
    for name, column in _LISTS.items():
        if found[name]:
            make_console().print(_make_spending_table(column, found[name]))


def _describe_spending(found: Mapping[str, Any]) -> str:
    total, today = found["total"], found["today"]
    since = f" since {found['since']}" if found["since"] else ""
    reserved = (
        f", {_format_dollars(total['reserved_usd'])} of it reserved by {total['reserved']} calls that did not end"
    )
    return (
        f"{found['project']}: {_format_dollars(total['cost_usd'])} spent on models{since}, {total['tokens']} tokens in "
        f"{total['calls']} calls ({total['failed']} failed), {total['cached']} replies from the cache"
        f"{reserved if total['reserved'] else ''}\n"
        f"today (UTC): {_format_dollars(today['left_usd'])} left of {_format_dollars(today['budget_usd'])}"
    )


def _make_spending_table(column: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    title = column.removesuffix("_id")
    table = make_table(title, title=f"by {title}")
    for name in ("US dollars", "tokens", "calls", "failed", "cached", "not settled"):
        table.add_column(name, justify="right")
    for row in rows:
        # Manual work such as a calibration has an id, and no row in the table of jobs.
        status = f" ({row['status'] or 'manual'})" if "status" in row else ""
        numbers = (row["tokens"], row["calls"], row["failed"], row["cached"], row["reserved"])
        table.add_row(f"{row[column]}{status}", _format_dollars(row["cost_usd"]), *map(str, numbers))
    return table


def _format_dollars(amount: Any) -> str:
    return f"${amount:.4f}"
