"""`review list`, `approve` and `dismiss`."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from consolidation_pipeline.core.knowledge.playbook import compute_priority
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import playbook_entries
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.cli.conftest import Cli


@pytest.fixture
def entries(consolidated: dict[str, Any], engine: Engine) -> list[str]:
    """Ids of two playbook entries that wait for review, the one with higher confidence first."""
    del consolidated
    with engine.begin() as connection:
        project = get_project(connection, "notes")
        query = "SELECT id FROM consolidation.task_memories ORDER BY id LIMIT 3"
        evidence: list[UUID] = list(connection.scalars(text(query)))
        changes = [
            Change(
                uuid4(),
                uuid4(),
                {
                    "content": f"Instruction at {confidence}.",
                    "priority": compute_priority(confidence, 3),
                    "confidence": confidence,
                    "supporting_memory_ids": evidence,
                    "status": "review",
                    "content_hash": str(confidence),
                },
                reason=f"confidence {confidence}, below 0.85",
            )
            for confidence in (0.84, 0.81)
        ]
        insert_rows(connection, Author(project.id, None, "test"), playbook_entries, changes, operation="promote")
    return [str(change.entity_id) for change in changes]


def test_review_list_shows_reason_and_commands(cli: Cli, entries: list[str]) -> None:
    listed = cli("review", "list", "notes")
    assert listed.code == 0
    assert "notes: pattern 0, principle 0, playbook 2" in listed.out
    assert f"{entries[0]} (playbook, confidence 0.84, evidence 3, text " in listed.out
    assert "waits because confidence 0.84, below 0.85" in listed.out
    assert "Instruction at 0.81." in listed.out
    assert "review approve ID" in listed.err
    assert "review dismiss ID" in listed.err
    answer = cli("review", "list", "notes", "--kind", "playbook", "--limit", "1", "--json").json
    assert answer["totals"] == {"pattern": 0, "principle": 0, "playbook": 2}
    assert [row["id"] for row in answer["waiting"]] == entries[:1]
    assert {"content", "why", "best_practices", "gotchas", "evidence", "evidence_count"} <= answer["waiting"][0].keys()


@pytest.mark.usefixtures("consolidated")
def test_empty_review_queue_says_so(cli: Cli) -> None:
    assert "notes: nothing waits for review" in cli("review", "list", "notes").out


def test_entries_are_approved_dismissed_and_undone(cli: Cli, entries: list[str]) -> None:
    one, two = entries
    answer = cli("review", "approve", one, "--reason", "read it", "--json").json
    (approved,) = answer["approved"]
    assert (approved["id"], approved["project"], approved["kind"]) == (one, "notes", "playbook")
    dismissed = cli("review", "dismiss", two[:8])
    assert dismissed.code == 0
    assert f"playbook {two} dismissed; undo: consolidation rollback" in dismissed.out
    assert cli("review", "list", "notes", "--json").json["waiting"] == []
    assert cli("rollback", approved["group_id"]).code == 0
    assert [row["id"] for row in cli("review", "list", "notes", "--json").json["waiting"]] == [one]


def test_review_approves_only_the_text_that_was_read(cli: Cli, entries: list[str], engine: Engine) -> None:
    one, two = cli("review", "list", "notes", "--json").json["waiting"]
    with engine.begin() as connection:
        query = "UPDATE consolidation.playbook_entries SET content = 'Written anew.' WHERE id = :id"
        connection.execute(text(query), {"id": entries[1]})
    expected = ("--expect", one["text_hash"], "--expect", two["text_hash"])
    refused = cli("review", "approve", *entries, *expected, "--json")
    assert (refused.code, refused.json["error"], refused.json["conflicts"]) == (3, "conflict", [two["id"]])
    assert "was written anew since you read it" in refused.json["message"]
    assert "give it once for each" in cli("review", "approve", *entries, *expected[:2]).err
    assert cli("review", "approve", one["id"][:8], *expected[:2]).code == 0
    assert [row["id"] for row in cli("review", "list", "notes", "--json").json["waiting"]] == [two["id"]]


def test_refused_review_changes_nothing(cli: Cli, entries: list[str], engine: Engine) -> None:
    one, two = entries
    assert cli("review", "approve", one).code == 0
    again = cli("review", "approve", two, one, "--json")
    assert (again.code, again.json["error"], again.json["conflicts"]) == (3, "conflict", [one])
    unknown = cli("review", "dismiss", two, uuid4(), "--json")
    assert (unknown.code, unknown.json["error"]) == (2, "not_found")
    with engine.connect() as connection:
        raw = connection.execute(text("SELECT min(id::text) FROM consolidation.task_memories")).scalar_one()
    assert cli("review", "dismiss", two, raw, "--json").json["error"] == "usage"
    assert [row["id"] for row in cli("review", "list", "notes", "--json").json["waiting"]] == [two]
    assert cli("review", "list", "notes", "--kind", "merged").code == 2
