"""``consolidation events``: deliver, list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Limit, Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, make_table, print_json
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.webhooks.event_delivery import DeliveryAttempt

app = typer.Typer(
    no_args_is_help=True, help="Deliver events to the webhook and the OpenLineage collector, and list them."
)

_MARKS = ("delivered", "waiting", "given_up", "unsent")


@app.command()
def deliver(
    once: Annotated[bool, typer.Option("--once", help="Send the events that are due now, then exit.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Send events to the webhook and the OpenLineage collector as they occur, until interrupted.

    With --once, exit code 1 if a delivery failed.
    """
    from consolidation_pipeline.service.lineage.collector import find_receivers
    from consolidation_pipeline.service.webhooks import event_delivery

    if as_json and not once:
        raise UsageError("--json needs --once: without it the command never ends")
    engine, settings = open_store()
    done = event_delivery.deliver_events(
        engine,
        settings,
        once=once,
        on_attempt=None if as_json else _print_attempt,
        others=find_receivers(engine),
    )
    if as_json:
        print_json(vars(done))
    else:
        print(f"{done.delivered} delivered, {done.failed} attempts failed, {done.waiting} waiting")
    raise typer.Exit(1 if done.failed else 0)


def _print_attempt(attempt: DeliveryAttempt) -> None:
    outcome = "delivered" if attempt.error is None else f"not delivered: {attempt.error}"
    print(f"{attempt.id} {attempt.type} of {attempt.project or 'a deleted project'}: {outcome}", flush=True)


@app.command(name="list")
def list_(
    project: Project,
    limit: Limit = 50,
    as_json: JsonFlag = False,
) -> None:
    """List the events of a project, newest first, with their deliveries."""
    from consolidation_pipeline.service.webhooks.event_delivery import list_events

    engine, _ = open_store()
    found = list_events(engine, project, limit=limit)
    if as_json:
        print_json(found)
        return
    totals = ", ".join(f"{found['totals'][name]} {name.replace('_', ' ')}" for name in _MARKS)
    table = make_table("id", "created", "type", "status", title=f"{project}: {totals}")
    for event in found["events"]:
        table.add_row(str(event["id"]), format_value(event["created_at"]), event["type"], _outcome(event))
    make_console().print(table if found["events"] else f"{project} has no events yet")


def _outcome(event: Mapping[str, Any]) -> str:
    status = str(event["status"]).replace("_", " ")
    return f"{status}, {event['attempts']} attempts: {event['last_error']}" if event["last_error"] else status
