"""History of a project: the changes in its ledger, one by one and by group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.runs.stale_jobs import fail_dead_job
from consolidation_pipeline.store.admin import activity
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.database.schema import OPERATIONS
from consolidation_pipeline.store.database.scope_keys import DELETED, QUARANTINED
from consolidation_pipeline.store.ledger import ledger_reader
from consolidation_pipeline.store.ledger.ledger_reader import LedgerFilter
from consolidation_pipeline.store.memories.memories import FEEDBACK_PREFIX
from consolidation_pipeline.store.projects import Project, get_project

# Changes of a stream that are read at once. One change with its images may take many kilobytes.
_PAGE = 500
# Actions of people and agents that share an operation with others, by the words that open their reasons.
_ACTIONS = {DELETED: "delete", QUARANTINED: "quarantine", FEEDBACK_PREFIX: "feedback"}
_PINNING = {"true": "pin", "false": "unpin"}
# Most phases that the name of a run tells.
_NAMED_PHASES = 3


def list_ledger(engine: Engine, slug: str, *, limit: int, offset: int = 0, **filters: Any) -> dict[str, Any]:
    """Return the changes of a project, newest first, images included, and their number without the limit.

    Args:
        limit: Most changes to return.
        offset: Newest changes to skip.
        **filters: Fields of ``LedgerFilter``, such as ``operation``, ``job_id`` or ``since``.

    Raises:
        NotFoundError: There is no such project.
        UsageError: There is no such operation.
    """
    where = _parse_filters(**filters)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = ledger_reader.list_changes(connection, project.id, limit=limit, offset=offset, where=where)
        total, _ = ledger_reader.count_changes(connection, project.id, where=where)
    return {"project": slug, "total": total, "changes": [dict(row._mapping) for row in rows]}


def stream_ledger(
    engine: Engine, slug: str, *, limit: int | None = None, offset: int = 0, **filters: Any
) -> Iterator[dict[str, Any]]:
    """Yield the changes that ``list_ledger`` returns, and hold no connection between pages. None as limit = all.

    The ledger is append-only and is read from the newest change on, so that changes made meanwhile are not included.
    The errors of ``list_ledger`` are raised at once, not with the first change.
    """
    where = _parse_filters(**filters)
    with engine.connect() as connection:
        project = get_project(connection, slug)
    return _read_pages(engine, project, where, limit=limit, offset=offset)


def _read_pages(
    engine: Engine, project: Project, where: LedgerFilter, *, limit: int | None, offset: int
) -> Iterator[dict[str, Any]]:
    left = limit
    while left is None or left > 0:
        page = _PAGE if left is None else min(_PAGE, left)
        with engine.connect() as connection:
            rows = ledger_reader.list_changes(connection, project.id, limit=page, offset=offset, where=where)
        yield from (dict(row._mapping) for row in rows)
        if len(rows) < page:
            return
        where, offset = replace(where, before=rows[-1].seq), 0
        left = None if left is None else left - len(rows)


def count_change_groups(engine: Engine, slug: str, **filters: Any) -> int:
    """Return the number of groups that ``list_change_groups`` would return without a limit."""
    where = _parse_filters(**filters)
    with engine.connect() as connection:
        return ledger_reader.count_changes(connection, get_project(connection, slug).id, where=where)[1]


def list_change_groups(
    engine: Engine, slug: str, *, limit: int, offset: int = 0, **filters: Any
) -> list[dict[str, Any]]:
    """Return the change groups of a project, newest first; filters and errors are those of ``list_ledger``."""
    where = _parse_filters(**filters)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = ledger_reader.list_groups(connection, project.id, limit=limit, offset=offset, where=where)
    return [dict(row._mapping) for row in rows]


def list_activity(engine: Engine, slug: str, *, limit: int) -> list[dict[str, Any]]:
    """Return the jobs of a project and the changes that no job made, newest first, one row for each.

    A job whose process died is marked failed first. The fields are those of ``store.admin.activity.list_activity``,
    and ``action``: what was done, more exactly than ``kind``.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
    fail_dead_job(engine, project)
    with engine.connect() as connection:
        rows = activity.list_activity(connection, project.id, limit=limit)
    return [{**row._mapping, "action": _name_action(row)} for row in rows]


def _name_action(row: Row[Any]) -> str:
    if row.phases:
        named = ", ".join(row.phases) if len(row.phases) <= _NAMED_PHASES else f"{len(row.phases)} phases of {row.kind}"
        return f"{named} only"
    if row.is_run or row.pinned:
        return _PINNING.get(row.pinned, str(row.kind))
    reason = row.reason or ""
    return next((action for words, action in _ACTIONS.items() if reason.startswith(words)), str(row.kind))


def _parse_filters(**filters: Any) -> LedgerFilter:
    where = LedgerFilter(**filters)
    if where.operation is not None and where.operation not in OPERATIONS:
        raise UsageError(f"operation {where.operation!r} does not exist; the operations are {', '.join(OPERATIONS)}")
    return where
