"""``consolidation archive``, ``restore`` and ``pin``: manual actions on memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import Reason, find_ids, get_actor, open_store
from consolidation_pipeline.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    from consolidation_pipeline.service.lifecycle.manual_actions import ManualChange

Memories = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of memories of any kind and project.")]


def archive(ids: Memories, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Archive memories. They are hidden, and `restore` brings them back.

    All are archived or, with exit code 3, none.
    """
    from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually

    engine, _ = open_store()
    _print_result(
        "archived",
        archive_manually(engine, find_ids(engine, ids), reason=reason, changed_by=get_actor()),
        as_json=as_json,
    )


def restore(ids: Memories, reason: Reason = None, as_json: JsonFlag = False) -> None:
    """Restore archived memories as they were.

    All are restored or, with exit code 3, none.
    """
    from consolidation_pipeline.service.lifecycle.manual_actions import restore_memories

    engine, _ = open_store()
    _print_result(
        "restored",
        restore_memories(engine, find_ids(engine, ids), reason=reason, changed_by=get_actor()),
        as_json=as_json,
    )


def pin(
    ids: Memories,
    off: Annotated[bool, typer.Option("--off", help="Unpin instead.")] = False,
    reason: Reason = None,
    as_json: JsonFlag = False,
) -> None:
    """Pin memories, so that no policy archives them.

    All are pinned or, with exit code 3, none.
    """
    from consolidation_pipeline.service.lifecycle.manual_actions import pin_memories

    engine, _ = open_store()
    done = pin_memories(engine, find_ids(engine, ids), pinned=not off, reason=reason, changed_by=get_actor())
    _print_result("unpinned" if off else "pinned", done, as_json=as_json)


def _print_result(action: str, memories: Sequence[ManualChange], *, as_json: bool) -> None:
    if as_json:
        print_json({action: [vars(memory) for memory in memories]})
        return
    print(f"{action}: {len(memories)}")
    for memory in memories:
        print(f"  {memory.kind} {memory.id}\n    undo: consolidation rollback {memory.group_id}")
