"""``consolidation rollback``: undoes a job or a group of changes."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from consolidation_pipeline.cli.cli_context import Reason, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, fact_table, make_console, print_json
from consolidation_pipeline.errors import UsageError


def rollback(
    target: Annotated[str, typer.Argument(metavar="ID", help="Id of a job, a group of changes, or a change.")],
    reason: Reason = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also undo later changes that depend on it.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Undo a job or a group of changes exactly. A change is undone with its group.

    Refused with exit code 3 if a row has changed since.
    """
    from consolidation_pipeline.service.undo.rollback import roll_back

    id_ = _read_id(target)
    engine, settings = open_store()
    done = roll_back(engine, id_, settings=settings, changed_by=get_actor(), reason=reason, cascade=cascade)
    if as_json:
        print_json({"target": target, **vars(done)})
        return
    rows = {
        "changes undone": done.changes,
        "rows restored": done.memories_restored,
        "rows deleted": done.memories_deleted,
        "rows brought back": done.memories_recreated or None,
        "undo" if done.redone else "redo": f"consolidation rollback {done.rollback_id}",
        "note": "; ".join(done.notes) or None,
    }
    make_console().print(fact_table(f"{done.scope} {target}: rolled back", rows))


def _read_id(given: str) -> UUID:
    try:
        return UUID(given)
    except ValueError:
        raise UsageError(
            f"{given!r} is no id: `consolidation history PROJECT` lists those of runs and groups"
        ) from None
