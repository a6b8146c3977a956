"""`history` and `lineage`."""

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
from consolidation_pipeline_tests.cli.conftest import LESSONS, Cli

pytestmark = pytest.mark.usefixtures("consolidated")

# Operations inserted by the fixture; merge, rollback and retention come from real calls.
BY_HAND = [name for name in OPERATIONS if name not in {"merge", "rollback", "retention"}]


@pytest.fixture
def everything(cli: Cli, engine: Engine, settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Changes of every operation as `history` returns them."""
    merge = cli("history", "notes", "--json").json["changes"][0]["group_id"]
    with engine.begin() as connection:
        author = Author(get_project(connection, "notes").id, uuid4(), "ann")
        free = f"SELECT id, version FROM {SCHEMA}.task_memories WHERE NOT is_consolidated ORDER BY id LIMIT 1"
        id_, version = connection.execute(text(free)).one()
        for at, operation in enumerate(BY_HAND):
            change = Change(id_, uuid4(), {"tags": [operation]}, version + at, f"because of {operation}", 0.8)
            update_rows(connection, author, task_memories, [change], operation=operation)
    with engine.begin() as connection:  # one old change, for retention to remove
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


def test_history_has_complete_fields_per_operation(everything: dict[str, list[dict[str, Any]]]) -> None:
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


def test_rollback_change_names_reverted_change(everything: dict[str, list[dict[str, Any]]]) -> None:
    merged = {change["id"]: change for change in everything["merge"]}
    for change in everything["rollback"]:
        undone = merged[change["reverts_change_id"]]
        assert (change["previous_state"], change["new_state"]) == (undone["new_state"], undone["previous_state"])
        assert change["reverts_scope"] == "group"
        assert change["reason"] == f"undoes group {undone['group_id']}"


def test_retention_is_shown_in_history(cli: Cli, everything: dict[str, list[dict[str, Any]]]) -> None:
    (removal,) = everything["retention"]
    assert removal["previous_state"]["operations"] == {"archive": 1}
    shown = cli("history", "notes", "--changes").out
    assert "retention" in shown
    assert "removed 1 changes of " in shown


def test_history_lists_changes_newest_first(cli: Cli, consolidated: dict[str, Any]) -> None:
    found = cli("history", "notes", "--json").json
    assert (found["project"], found["total"], len(found["changes"])) == ("notes", 4, 4)
    seqs = [change["seq"] for change in found["changes"]]
    assert seqs == sorted(seqs, reverse=True)
    assert {change["job_id"] for change in found["changes"]} == {consolidated["job_id"]}
    assert len({change["group_id"] for change in found["changes"]}) == 1
    first = found["changes"][-1]
    assert (first["operation"], first["entity_type"]) == ("merge", "consolidated_memories")
    assert first["previous_state"] is None
    assert "migrations" in first["new_state"]["content"]
    assert first["changed_by"].startswith("cli")
    keys = "seq id job_id group_id operation entity_type entity_id reason confidence changed_by changed_at"
    assert set(keys.split()) | {"reverts_change_id", "previous_state", "new_state"} <= set(first)


def test_history_filters_keep_total(cli: Cli, consolidated: dict[str, Any]) -> None:
    group = cli("history", "notes", "--json").json["changes"][0]["group_id"]
    cli("rollback", group, "--reason", "wrong merge")
    assert cli("history", "notes", "--json").json["total"] == 8
    undone = cli("history", "notes", "--operation", "rollback", "--limit", "1", "--json").json
    assert (undone["total"], len(undone["changes"])) == (4, 1)
    assert undone["changes"][0]["reason"] == "wrong merge"
    of_job = cli("history", "notes", "--job", consolidated["job_id"], "--json").json
    assert (of_job["total"], {change["operation"] for change in of_job["changes"]}) == (4, {"merge"})
    assert cli("history", "notes", "--job", uuid4(), "--json").json == {"project": "notes", "total": 0, "changes": []}
    shown = cli("history", "notes", "--changes").out
    assert "rolled back; near-duplicates" in shown
    assert group in shown


def test_history_has_a_line_for_each_run_and_change(cli: Cli, consolidated: dict[str, Any]) -> None:
    memory = cli("search", "notes", "colour tokens", "--json").json["results"][0]["id"]
    cli("archive", memory, "--reason", "no longer so")
    group = next(one["group_id"] for one in cli("history", "notes", "--json").json["changes"] if one["job_id"])
    cli("rollback", group)
    header, undo, archive, run = cli("history", "notes").out.splitlines()
    assert header.split() == ["id", "created", "(UTC)", "status", "what"]
    assert run.startswith(consolidated["job_id"])
    assert "undone" in run
    assert "consolidate by cli" in run
    assert "4 changes: merge 1" in run
    assert "archive by cli" in archive
    assert archive.rstrip().endswith("1 change: no longer so")
    assert "rollback by cli" in undo
    activity = cli("history", "notes", "--json").json["activity"]
    assert [line["is_run"] for line in activity] == [False, False, True]
    assert [line["undone"] for line in activity] == [0, 0, 4]
    assert len(cli("history", "notes", "--limit", 1).out.splitlines()) == 2
    cli("projects", "create", "quiet")
    assert cli("history", "quiet").out == "quiet has no history yet\n"


@pytest.mark.slow
@pytest.mark.usefixtures("consolidated")
def test_history_names_what_was_done(cli: Cli) -> None:
    first, second = (one["id"] for one in cli("search", "notes", "search client", "--json").json["results"][:2])
    cli("pin", first)
    cli("pin", first, "--off")
    cli("feedback", first, "--helpful")
    cli("memories", "delete", second)
    cli("quarantine", first)
    cli("run", "notes", "--phases", "patterns")
    cli("run", "notes", "--phases", "embedding_matrix,similarity_graph,clusters,patterns")
    activity = cli("history", "notes", "--json").json["activity"]
    assert [line["action"] for line in activity] == [
        "4 phases of consolidate only",
        "patterns only",
        "quarantine",
        "delete",
        "feedback",
        "unpin",
        "pin",
        "consolidate",
    ]
    shown = cli("history", "notes").out
    assert "patterns only by cli" in shown
    assert "unpin by cli" in shown


@pytest.fixture
def merged_id(cli: Cli) -> str:
    changes = cli("history", "notes", "--json").json["changes"]
    return str(next(change["entity_id"] for change in changes if change["entity_type"] == "consolidated_memories"))


def test_lineage_of_merged_memory_lists_sources(cli: Cli, merged_id: str) -> None:
    found = cli("lineage", merged_id, "--json").json
    assert (found["kind"], found["level"], found["status"], found["derived"]) == ("merged", 1, "active", [])
    assert sorted(source["content"] for source in found["sources"]) == sorted(LESSONS[:3])
    assert {source["kind"] for source in found["sources"]} == {"raw"}
    assert all(0.8 < source["similarity"] <= 1.000001 for source in found["sources"])
    shown = cli("lineage", merged_id).out
    assert all(source["id"] in shown for source in found["sources"])


def test_lineage_of_raw_memory_lists_derived(cli: Cli, merged_id: str) -> None:
    source = cli("lineage", merged_id, "--json").json["sources"][0]
    found = cli("lineage", source["id"], "--json").json
    assert (found["kind"], found["level"], found["status"], found["sources"]) == ("raw", 0, "merged", [])
    assert [(row["id"], row["kind"]) for row in found["derived"]] == [(merged_id, "merged")]
    assert found["derived"][0]["similarity"] == pytest.approx(source["similarity"])
    assert f"went into merged {merged_id}" in cli("lineage", source["id"]).out


def test_lineage_accepts_id_prefix(cli: Cli, merged_id: str) -> None:
    whole = cli("lineage", merged_id, "--json").json
    for part in (merged_id[:8], merged_id[:13], merged_id.replace("-", "")[:10], merged_id.upper()):
        assert cli("lineage", part, "--json").json == whole


@pytest.mark.breaks_rules
def test_lineage_refuses_ambiguous_prefix(cli: Cli, engine: Engine) -> None:
    with engine.begin() as connection:
        copied = connection.scalars(text("SELECT id FROM consolidation.task_memories ORDER BY id LIMIT 2")).all()
        for last, copy in zip("ab", copied, strict=True):
            connection.execute(
                text("UPDATE consolidation.task_memories SET id = :new WHERE id = :old"),
                {"old": copy, "new": f"aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaa{last}"},
            )
    answer = cli("lineage", "aaaaaaaa")
    assert (answer.code, "several ids begin with" in answer.err) == (2, True)
    assert cli("lineage", "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaab", "--json").json["kind"] == "raw"
