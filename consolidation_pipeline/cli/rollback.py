"""``consolidation rollback``: undoes a job or a group of changes."""

from __future__ import annotations

from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import Reason, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, fact_table, make_console, print_json


def rollback(
    target: Annotated[
        str, typer.Argument(metavar="ID", help="Id of a job, a group of changes, or a change, or its first 8 digits.")
    ],
    reason: Reason = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="Also undo later changes that depend on it.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Undo a job or a group of changes exactly. A change is undone with its group.

    Refused with exit code 3 if a row has changed since.
    """
    from consolidation_pipeline.service.undo.rollback import find_target_id, roll_back

    engine, settings = open_store()
    id_ = find_target_id(engine, target)
    done = roll_back(engine, id_, settings=settings, changed_by=get_actor(), reason=reason, cascade=cascade)
    if as_json:
        print_json({"target": id_, **vars(done)})
        return
    rows = {
        "changes undone": done.changes,
        "rows restored": done.memories_restored,
        "rows deleted": done.memories_deleted,
        "rows brought back": done.memories_recreated or None,
        "undo" if done.redone else "redo": f"consolidation rollback {done.rollback_id}",
        "note": "; ".join(done.warnings) or None,
    }
    make_console().print(fact_table(f"{done.scope} {id_}: rolled back", rows))
