"""What happened to a project: its jobs, and the changes in its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import OPERATIONS
from consolidation_pipeline.store.ledger import ledger_reader
from consolidation_pipeline.store.ledger.ledger_reader import LedgerFilter
from consolidation_pipeline.store.projects import Project, get_project

_PAGE = 500  # changes of a stream that are read at once; one with its images may take many kilobytes


def list_ledger(engine: Engine, slug: str, *, limit: int, offset: int = 0, **chosen: Any) -> dict[str, Any]:
    """The project's changes newest first, images included, and how many there are without the limit.

    ``chosen``: fields of ``LedgerFilter``, such as ``operation``, ``job_id`` or ``since``.

    Raises:
        NotFoundError: no such project. UsageError: no such operation.
    """
    some = _choose(**chosen)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = ledger_reader.list_changes(connection, project.id, limit=limit, offset=offset, where=some)
        total, _ = ledger_reader.count_changes(connection, project.id, where=some)
    return {"project": slug, "total": total, "changes": [dict(row._mapping) for row in rows]}


def stream_ledger(
    engine: Engine, slug: str, *, most: int | None = None, offset: int = 0, **chosen: Any
) -> Iterator[dict[str, Any]]:
    """As ``list_ledger``, change by change, the ``most`` newest but ``offset``; between pages no connection is held.

    The ledger is append-only and is read from the newest change at the start, so this is one state of it.

    Raises:
        NotFoundError, UsageError: at once, not when the first change is asked for.
    """
    some = _choose(**chosen)
    with engine.connect() as connection:
        project = get_project(connection, slug)
    return _pages(engine, project, some, most=most, offset=offset)


def _pages(
    engine: Engine, project: Project, chosen: LedgerFilter, *, most: int | None, offset: int
) -> Iterator[dict[str, Any]]:
    left = most
    while left is None or left > 0:
        limit = _PAGE if left is None else min(_PAGE, left)
        with engine.connect() as connection:
            rows = ledger_reader.list_changes(connection, project.id, limit=limit, offset=offset, where=chosen)
        yield from (dict(row._mapping) for row in rows)
        if len(rows) < limit:
            return
        chosen, offset = replace(chosen, before=rows[-1].seq), 0
        left = None if left is None else left - len(rows)


def count_change_groups(engine: Engine, slug: str, **chosen: Any) -> int:
    """How many groups ``list_change_groups`` has without a limit. Raises like ``list_ledger``."""
    some = _choose(**chosen)
    with engine.connect() as connection:
        return ledger_reader.count_changes(connection, get_project(connection, slug).id, where=some)[1]


def list_change_groups(
    engine: Engine, slug: str, *, limit: int, offset: int = 0, **chosen: Any
) -> list[dict[str, Any]]:
    """The project's groups of changes, newest first. ``chosen`` and what it raises: as for ``list_ledger``."""
    some = _choose(**chosen)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = ledger_reader.list_groups(connection, project.id, limit=limit, offset=offset, where=some)
    return [dict(row._mapping) for row in rows]


def _choose(**chosen: Any) -> LedgerFilter:
    some = LedgerFilter(**chosen)
    if some.operation is not None and some.operation not in OPERATIONS:
        raise UsageError(f"operation {some.operation!r} does not exist; the operations are {', '.join(OPERATIONS)}")
    return some
