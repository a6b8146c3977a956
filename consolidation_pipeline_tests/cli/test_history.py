"""`history --json` answers, for whatever was done: who, what, when, why, and how sure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from consolidation_pipeline.service.undo.ledger_retention import remove_expired_changes
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import OPERATIONS, SCHEMA, task_memories
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, update_rows
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("consolidated")

# What the rest of the pipeline does; merge, rollback and retention are done for real.
BY_HAND = [name for name in OPERATIONS if name not in {"merge", "rollback", "retention"}]


@pytest.fixture
def everything(cli: Cli, engine: Engine, settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Changes of every operation there is, as history tells them."""
    merge = cli("history", "notes", "--json").json["changes"][0]["group_id"]
    with engine.begin() as connection:
        author = Author(get_project(connection, "notes").id, uuid4(), "ann")
        free = f"SELECT id, version FROM {SCHEMA}.task_memories WHERE NOT is_consolidated ORDER BY id LIMIT 1"
        id_, version = connection.execute(text(free)).one()
        for at, operation in enumerate(BY_HAND):
            change = Change(id_, uuid4(), {"tags": [operation]}, version + at, f"because of {operation}", 0.8)
            update_rows(connection, author, task_memories, [change], operation=operation)
    with engine.begin() as connection:  # one of them long ago, so that there is something to remove
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        old = {"by": timedelta(days=200), "job": author.job_id, "own": uuid4()}
        connection.execute(
            text(
                f"UPDATE {SCHEMA}.consolidation_changes SET changed_at = changed_at - :by, job_id = :own "
                "WHERE job_id = :job AND operation = 'archive'"
            ),
            old,
        )
    assert remove_expired_changes(engine, settings=settings, now=datetime.now(UTC)).changes == 1
    cli("rollback", merge)
    found: dict[str, list[dict[str, Any]]] = {}
    for change in cli("history", "notes", "--limit", 1000, "--json").json["changes"]:
        found.setdefault(change["operation"], []).append(change)
    return found


def test_every_operation_tells_who_what_when_why_and_how_sure(everything: dict[str, list[dict[str, Any]]]) -> None:
    assert set(everything) == set(OPERATIONS) - {"archive"}
    for operation, changes in everything.items():
        for change in changes:
            assert change["changed_by"], operation
            assert UUID(change["id"])
            assert UUID(change["entity_id"])
            assert UUID(change["group_id"])
            assert change["entity_type"], operation
            assert change["previous_state"] is not None or change["new_state"] is not None, operation
            assert datetime.fromisoformat(change["changed_at"]).tzinfo is not None
            assert change["reason"], operation
            sure = change["confidence"]
            assert (sure is None) == (operation == "retention"), operation
            assert sure is None or 0 <= sure <= 1


def test_a_rollback_names_what_it_undid(everything: dict[str, list[dict[str, Any]]]) -> None:
    merged = {change["id"]: change for change in everything["merge"]}
    for change in everything["rollback"]:
        undone = merged[change["reverts_change_id"]]
        assert (change["previous_state"], change["new_state"]) == (undone["new_state"], undone["previous_state"])
        assert change["reverts_scope"] == "group"
        assert change["reason"] == f"undoes group {undone['group_id']}"


def test_a_removal_is_told_in_words(cli: Cli, everything: dict[str, list[dict[str, Any]]]) -> None:
    (removal,) = everything["retention"]
    assert removal["previous_state"]["operations"] == {"archive": 1}
    shown = cli("history", "notes").out
    assert "retention" in shown
    assert "removed 1 changes of " in shown
