"""Database constraints on suggestions: one pending suggestion per memory, one per fingerprint."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SCHEMA, consolidation_suggestions
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.review.suggestions import NewSuggestion, append_suggestions
from consolidation_pipeline_tests.store.sample_rows import NOW, add_project, author, update_row

A, B, C = (UUID(int=n) for n in (1, 2, 3))


def append(connection: Connection, project: Project, ids: Sequence[UUID], fingerprint: str) -> UUID:
    suggestion = NewSuggestion("key", [(id_, 1) for id_ in ids], fingerprint, "Text.", None, [], 0.9, "alike")
    return append_suggestions(connection, author(project), [suggestion], now=NOW)[0]


def set_status(connection: Connection, project: Project, id_: UUID, status: str, version: int = 1) -> None:
    update_row(connection, project, consolidation_suggestions, id_, version, status=status)


def test_pending_suggestions_never_share_memory(connection: Connection, project: Project) -> None:
    first = append(connection, project, [A, B], "one")
    with pytest.raises(ConflictError, match="another suggestion is in the way"):
        append(connection, project, [B, C], "two")
    set_status(connection, project, first, "rejected")
    append(connection, project, [B, C], "two")
    reserved = connection.scalars(text(f"SELECT memory_id FROM {SCHEMA}.suggestion_originals ORDER BY 1")).all()
    assert list(reserved) == [B, C]


def test_suggestion_repeats_only_after_superseded(connection: Connection, project: Project) -> None:
    first = append(connection, project, [A, B], "one")
    set_status(connection, project, first, "rejected")
    with pytest.raises(ConflictError, match="fingerprint"):
        append(connection, project, [A, B], "one")
    set_status(connection, project, first, "superseded", version=2)
    append(connection, project, [A, B], "one")


def test_concurrent_suggestions_for_memory_admit_one(engine: Engine) -> None:
    with engine.begin() as connection:
        project = add_project(connection)
    barrier, outcomes = threading.Barrier(2), list[str]()

    def propose(ids: Sequence[UUID], name: str) -> None:
        try:
            with engine.begin() as connection:
                barrier.wait()
                append(connection, project, ids, name)
            outcomes.append("made")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=propose, args=one) for one in (([A, B], "one"), ([B, C], "two"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "refused"]
