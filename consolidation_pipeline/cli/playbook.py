"""``consolidation playbook``: instructions that agents read before they start work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from consolidation_pipeline.cli.cli_context import AS_OF_HELP, Limit, Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, print_json, print_note
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import UsageError


def playbook(
    project: Project,
    format: Annotated[
        Literal["table", "md", "json"], typer.Option(help="md = a document for the instructions of an agent.")
    ] = "table",
    status: Annotated[str, typer.Option(help="active, review (waiting for a person) or retired.")] = "active",
    category: Annotated[str | None, typer.Option(help="Only this category, such as gotchas or testing.")] = None,
    limit: Limit = 200,
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the playbook: instructions for agents, highest priority first."""
    from consolidation_pipeline.service.playbook.entries import read_playbook, to_markdown
    from consolidation_pipeline.service.search.as_of import parse_as_of

    if format == "md" and status != "active":
        raise UsageError(
            f"--format md has active entries only, because agents follow it; --status {status} needs --format table"
        )
    engine, _ = open_store()
    found = read_playbook(engine, project, limit=limit, status=status, category=category, as_of=parse_as_of(as_of))
    if as_json or format == "json":
        print_json(found)
    elif not found["entries"]:
        _print_no_entries(found, status, on_stderr=format == "md")
    elif format == "md":
        print(to_markdown(found), end="")
    else:
        _print_entries(found, status)


def _print_no_entries(found: Mapping[str, Any], status: str, *, on_stderr: bool) -> None:
    waiting, slug = found["totals"]["review"], found["project"]
    message = f"{slug} has no playbook entries of this kind ({status})"
    if status == "active" and found["empty_because"]:
        message += f": {found['empty_because']}"
    elif status != "review" and waiting:
        message += f"; {waiting} wait for review: consolidation review list {slug}"
    print_note(message) if on_stderr else print(message)


def _print_entries(found: Mapping[str, Any], status: str) -> None:
    print(f"{found['project']}: {format_value(found['totals'])}")
    for row in found["entries"]:
        confidence = "" if row["confidence"] is None else f", confidence {row['confidence']:.2f}"
        writers = "1 writer" if row["writers"] == 1 else f"{row['writers']} writers"
        evidence = f"{counted(row['evidence'], 'memory')} of {writers}"
        details = f"{row['category']}, priority {row['priority']}, {evidence}{confidence}"
        lines = [f"  {line}" for line in row["content"].splitlines() if line.strip()]
        lines += [f"  {row['seen']}"] if row["seen"] else []
        lines += [f"  careful: {risk}" for risk in row["risks"]]
        make_console().print("\n".join([f"{row['id']}  ({details})", *lines]), soft_wrap=True)
    if status == "review":
        print(f"decide: consolidation review approve ID, consolidation review dismiss ID ({found['project']})")
