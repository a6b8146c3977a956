"""``consolidation used`` and ``feedback``: which memories helped."""

from __future__ import annotations

from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import find_id, find_ids, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, print_json

Session = Annotated[str, typer.Option(help="Session that used them; each counts apart. Default: the user.")]


def used(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of memories and playbook entries.")],
    query: Annotated[str, typer.Option(help="Query or task for which they helped: they rise for similar ones.")] = "",
    session: Session = "",
    as_json: JsonFlag = False,
) -> None:
    """Report memories and playbook entries as used. Search and the playbook rank by it.

    It counts once a day for each id, query and session, and less for what the session itself wrote.
    """
    from consolidation_pipeline.service.intake.memory_uses import report_used

    engine, settings = open_store()
    done = report_used(engine, find_ids(engine, ids), voter=_identify_voter(session), query=query, settings=settings)
    if as_json:
        print_json(vars(done))
        return
    print(f"recorded: {done.recorded}" + (f", counted today already: {done.repeated}" if done.repeated else ""))


def feedback(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of a memory.")],
    helpful: Annotated[bool | None, typer.Option("--helpful/--misleading", help="Whether it helped.")] = None,
    note: Annotated[str, typer.Option(help="Reason, kept in the ledger.")] = "",
    session: Session = "",
    as_json: JsonFlag = False,
) -> None:
    """Say that a memory helped or misled. Its importance rises or falls by 0.1, and search ranks it by the votes."""
    from consolidation_pipeline.service.intake.agent_memories import give_feedback

    engine, _ = open_store()
    voter = _identify_voter(session)
    memory_id = find_id(engine, id_)
    done = give_feedback(engine, memory_id, helpful=helpful, note=note or None, changed_by=get_actor(), voter=voter)
    if as_json:
        print_json(done)
        return
    print(f"importance: {done['importance_before']:g} -> {done['importance']:g}")
    print(f"  undo: consolidation rollback {done['group_id']}")


def _identify_voter(session: str) -> str:
    return f"session {session}" if session else get_actor()
