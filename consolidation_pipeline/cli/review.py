"""``consolidation review``: list, approve, dismiss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Project, Reason, find_ids, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, print_json, print_note, shorten
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import UsageError

app = typer.Typer(no_args_is_help=True, help="List, approve and dismiss knowledge in review.")

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids shown by `review list`, or their first 8 digits.")]

_TEXT_WIDTH = 100
_QUOTE_WIDTH = 80
_LISTED = 2
_QUOTED = 3


@app.command(name="list")
def list_(
    project: Project,
    kind: Annotated[str | None, typer.Option(help="Only this kind: pattern, principle or playbook.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List patterns, principles and playbook entries that wait for a decision, surest first."""
    from consolidation_pipeline.service.review.review_queue import list_review

    engine, _ = open_store()
    found = list_review(engine, project, kind=kind, limit=limit)
    if as_json:
        print_json(found)
        return
    out = make_console()
    if found["supersessions"]:
        command = f"consolidation relations list {project} --type supersedes --status candidate"
        print_note(f"{counted(found['supersessions'], 'memory')} may take the place of older ones: {command}")
    if not found["waiting"]:
        out.print(f"{project}: nothing waits for review" + (f" of kind {kind}" if kind else ""))
        return
    out.print(f"{project}: {format_value(found['totals'])}")
    for waiting in found["waiting"]:
        out.print("\n".join(_format_row(waiting)), soft_wrap=True)
    print_note("consolidation review approve ID... | consolidation review dismiss ID...")


def _format_row(row: Mapping[str, Any]) -> Iterator[str]:
    kind = row["kind"] + (f", {row['pattern_type']}" if row["pattern_type"] else "")
    confidence = "unknown" if row["confidence"] is None else f"{row['confidence']:.2f}"
    yield f"\n{row['id']} ({kind}, confidence {confidence}, evidence {row['evidence_count']}, text {row['text_hash']})"
    yield f"  waits because {row['why']}"
    yield from (f"  careful: {risk}" for risk in row["risks"])
    yield from (f"  {line}" for line in row["content"].splitlines())
    yield from (f"    do: {shorten(text, _TEXT_WIDTH)}" for text in row["best_practices"][:_LISTED])
    yield from (f"    beware: {shorten(text, _TEXT_WIDTH)}" for text in row["gotchas"][:_LISTED])
    yield from (f'    "{shorten(one["quote"], _QUOTE_WIDTH)}" ({one["unit"]})' for one in row["evidence"][:_QUOTED])


@app.command()
def approve(
    ids: Ids,
    reason: Reason = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HASH",
            help="Hash of the text that you read, as `review list` shows it; one for each id. Refused if it changed.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Approve rows: entries become active, the next run promotes patterns and principles. All or none."""
    if expect and len(expect) != len(ids):
        raise UsageError(f"--expect is given {len(expect)} times for {len(ids)} ids: give it once for each")
    _decide(ids, reason, approved=True, expect=expect or (), as_json=as_json)


@app.command()
def dismiss(ids: Ids, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Dismiss waiting or active rows. They are retired and not made again from the same memories. All or none."""
    _decide(ids, reason, approved=False, expect=(), as_json=as_json)


def _decide(references: list[str], reason: str | None, *, approved: bool, expect: Sequence[str], as_json: bool) -> None:
    from consolidation_pipeline.service.review.review_queue import decide_review

    engine, _ = open_store()
    ids = find_ids(engine, references)
    expected = dict(zip(ids, expect, strict=False))
    decided = decide_review(engine, ids, approved=approved, changed_by=get_actor(), reason=reason, expected=expected)
    decision = "approved" if approved else "dismissed"
    if as_json:
        print_json({decision: [vars(one) for one in decided]})
        return
    for one in decided:
        print(f"{one.kind} {one.id} {decision}; undo: consolidation rollback {one.group_id}")
