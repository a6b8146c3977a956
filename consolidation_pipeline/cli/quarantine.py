"""``consolidation quarantine`` and ``blast-radius``: take memories out of use with all that was derived from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import Reason, find_ids, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, print_json, shorten
from consolidation_pipeline.core.text.counted_nouns import counted

if TYPE_CHECKING:
    from consolidation_pipeline.service.lifecycle.quarantine import BlastRadius, WriterFilter
    from consolidation_pipeline.store.database.engine import Engine

Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of raw memories, or their first 8 digits.")
]
Agent = Annotated[str | None, typer.Option(help="Memories that name this agent.")]
Session = Annotated[str | None, typer.Option(help="Memories of this session.")]
User = Annotated[str | None, typer.Option(help="Memories of this user.")]
Key = Annotated[
    str | None,
    typer.Option(help="Memories that the agent of this key wrote, by the id of the key or its first 8 digits."),
]
Project = Annotated[str | None, typer.Option(help="Project; may be left out with ids.")]

_LISTED = 50
_TEXT_WIDTH = 80


def blast_radius(
    ids: Ids = None,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    key: Key = None,
    project: Project = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what `quarantine` would take out of use. Nothing is changed."""
    from consolidation_pipeline.service.lifecycle.quarantine import find_blast_radius

    engine, _ = open_store()
    found = find_blast_radius(engine, _make_filter(engine, ids, agent, session, user, key), project=project)
    _print_radius(found, as_json=as_json)


def quarantine(
    ids: Ids = None,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    key: Key = None,
    project: Project = None,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Take memories out of use, with everything that was derived from them. `blast-radius` lists it first.

    All conditions must be met. It is one change: `rollback` releases it.
    """
    from consolidation_pipeline.service.lifecycle.quarantine import quarantine as take_out

    engine, _ = open_store()
    where = _make_filter(engine, ids, agent, session, user, key)
    done = take_out(engine, where, project=project, reason=reason, changed_by=get_actor())
    _print_radius(done, as_json=as_json)
    if not as_json:
        print(f"release: consolidation rollback {done.group_id}")


def _make_filter(
    engine: Engine, ids: list[str] | None, agent: str | None, session: str | None, user: str | None, key: str | None
) -> WriterFilter:
    from consolidation_pipeline.service.jobs.short_ids import KEYS, find_row_id
    from consolidation_pipeline.service.lifecycle.quarantine import WriterFilter

    chosen = list(dict.fromkeys(find_ids(engine, ids or ())))
    key_id = None if key is None else find_row_id(engine, KEYS, key)
    return WriterFilter(ids=chosen, agent_id=agent, session_id=session, user_id=user, key_id=key_id)


def _print_radius(found: BlastRadius, *, as_json: bool) -> None:
    if as_json:
        print_json({**vars(found), "affected": [vars(row) for row in found.affected]})
        return
    for line in _format(found):
        make_console().print(line, soft_wrap=True)


def _format(found: BlastRadius) -> Iterator[str]:
    memories = counted(len(found.memories), "memory")
    yield f"{found.project}: {memories} out of use; derived from them: {format_value(found.totals) or 'nothing'}"
    if found.shown_again:
        yield f"other memories that are active again: {found.shown_again:,}"
    for row in found.affected[:_LISTED]:
        yield f"  {row.kind} {row.id}  {row.effect}\n    {shorten(row.content, _TEXT_WIDTH)}"
    if len(found.affected) > _LISTED:
        yield f"  and {len(found.affected) - _LISTED:,} more; --json lists all"
