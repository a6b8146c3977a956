"""`suggestions list`, `show`, `approve` and `reject`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.suggestions import NewSuggestion, append_suggestions
from consolidation_pipeline_tests.cli.conftest import Cli


@pytest.fixture
def waiting(consolidated: dict[str, Any], engine: Engine) -> list[str]:
    """Ids of two suggestions of two memories each, the more similar first."""
    del consolidated
    with engine.begin() as connection:
        project = get_project(connection, "notes")
        query = "SELECT id FROM consolidation.task_memories WHERE NOT is_consolidated ORDER BY id LIMIT 4"
        ids: list[UUID] = list(connection.scalars(text(query)))
        new = [
            NewSuggestion("key", [(id_, 1) for id_ in pair], f"f{at}", f"Text {at}.", "Look.", ["k"], similar, "alike")
            for at, (pair, similar) in enumerate(((ids[:2], 0.97), (ids[2:], 0.91)))
        ]
        made = append_suggestions(connection, Author(project.id, None, "test"), new, now=datetime.now(UTC))
    return list(map(str, made))


def test_suggestions_are_shown_with_originals(cli: Cli, waiting: list[str]) -> None:
    listed = cli("suggestions", "list", "notes")
    assert listed.code == 0
    assert "notes: 2 pending" in listed.out
    assert listed.out.index(waiting[0]) < listed.out.index(waiting[1])
    assert "= Text 0." in listed.out
    assert re.search(r"^  1\. \d{4}-\d\d-\d\d \w", listed.out, re.MULTILINE)
    assert "approve ID..." in listed.err
    assert "keep ID..." in listed.err
    answer = cli("suggestions", "list", "--min-similarity", "0.95", "--json").json
    assert answer["total"] == 1
    assert answer["suggestions"][0]["id"] == waiting[0]
    assert len(answer["suggestions"][0]["originals"]) == 2
    shown = cli("suggestions", "show", waiting[1][:8])
    assert "pending" in shown.out
    assert "similarity 0.91" in shown.out
    assert "Look." in shown.out
    assert cli("suggestions", "show", waiting[1], "--json").json["content"] == "Text 1."
    assert "no suggestion is rejected" in cli("suggestions", "list", "notes", "--status", "rejected").out


@pytest.mark.usefixtures("consolidated")
def test_suggestion_list_names_groups_that_wait(cli: Cli) -> None:
    empty = cli("suggestions", "list", "notes")
    assert "notes: no suggestion is pending" in empty.out
    assert "1 more group waits; review_limit=0 proposes none" in empty.out
    assert cli("suggestions", "list", "notes", "--json").json["beyond_limit"] == {"notes": 1}
    cli("projects", "configure", "notes", "review_limit=5")
    assert "the next run proposes them" in cli("suggestions", "list", "notes").out


def test_variants_are_kept_by_rule_and_undone(cli: Cli, engine: Engine, waiting: list[str]) -> None:
    kinds = "UPDATE consolidation.consolidation_suggestions SET difference_kinds = '{value: build #}'"
    with engine.begin() as connection:
        connection.execute(text(kinds))
    assert "2 differ only in value: build #" in cli("suggestions", "list", "notes").out
    kept = cli("suggestions", "keep", "--project", "notes", "--differ-only-in", "value: build #", "--json").json
    assert [one["suggestion_id"] for one in kept["decided"]] == waiting
    assert cli("rollback", kept["decided"][0]["group_id"]).code == 0
    again = cli("suggestions", "keep", waiting[0])
    assert "kept as variants; undo: consolidation rollback" in again.out
    assert cli("suggestions", "list", "--status", "kept", "--json").json["total"] == 2


def test_suggestion_decision_names_undo_command(cli: Cli, waiting: list[str]) -> None:
    done = cli("suggestions", "approve", waiting[0], "--content", "My words.", "--note", "fine", "--json").json
    (decided,) = done["decided"]
    assert (decided["status"], done["refused"]) == ("validated", [])
    again = cli("suggestions", "reject", waiting[0])
    assert again.code == 3
    assert "not decided: suggestion" in again.out
    assert "approved by cli" in again.out
    shown = cli("suggestions", "show", waiting[0])
    assert f"undo: consolidation rollback {decided['group_id']}" in shown.out
    assert cli("rollback", decided["group_id"]).code == 0
    rejected = cli("suggestions", "reject", *(id_[:8] for id_ in waiting))
    assert (rejected.code, rejected.out.count("rejected; undo: consolidation rollback")) == (0, 2)


def test_originals_are_left_out_by_number_or_id(cli: Cli, waiting: list[str]) -> None:
    first = cli("suggestions", "show", waiting[0], "--json").json["originals"][0]["id"]
    for given in ("1", first, first[:8]):
        assert (
            "originals are left out, and a merge needs two"
            in cli("suggestions", "approve", waiting[0], "--leave-out", given).err
        )
    assert "no original" in cli("suggestions", "approve", waiting[0], "--leave-out", "99").err
    assert "give its id" in cli("suggestions", "approve", *waiting, "--leave-out", "1").err


def test_approve_takes_only_the_text_that_was_read(cli: Cli, engine: Engine, waiting: list[str]) -> None:
    read = cli("suggestions", "show", waiting[0], "--json").json["text_hash"]
    assert f"(text {read})" in cli("suggestions", "show", waiting[0]).out
    assert f"text {read})" in cli("suggestions", "list").out
    with engine.begin() as connection:
        query = "UPDATE consolidation.consolidation_suggestions SET suggested_content = 'Anew.' WHERE id = :id"
        connection.execute(text(query), {"id": waiting[0]})
    refused = cli("suggestions", "approve", waiting[0], "--expect", read)
    assert (refused.code, f"not {read}: it was written anew since you read it" in refused.out) == (3, True)
    assert "give its id" in cli("suggestions", "approve", *waiting, "--expect", read).err
    now = cli("suggestions", "show", waiting[0], "--json").json
    assert now["status"] == "pending"
    assert cli("suggestions", "approve", waiting[0], "--expect", now["text_hash"]).code == 0


def test_rule_decides_all_matching_suggestions(cli: Cli, engine: Engine, waiting: list[str]) -> None:
    original = cli("suggestions", "show", waiting[0], "--json").json["originals"][0]["id"]
    archive_manually(engine, [UUID(original)], changed_by="test")
    answer = cli("suggestions", "approve", "--project", "notes", "--min-similarity", "0.9", "--json")
    assert answer.code == 3
    assert [one["suggestion_id"] for one in answer.json["decided"]] == waiting[1:]
    assert [one["id"] for one in answer.json["refused"]] == waiting[:1]
    none = cli("suggestions", "reject", "--project", "notes", "--limit", "5")
    assert (none.code, none.out) == (0, "no pending suggestion matches the rule\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "ids of suggestions, or --project"),
        (("--project", "notes"), "--project needs a rule"),
        (("--min-similarity", "0.9"), "ids of suggestions, or --project"),
        (("--project", "notes", "--limit", "1", "--content", "x"), "are for one suggestion"),
        (("00000000-0000-0000-0000-000000000001", "--type", "warning"), "and not both"),
    ],
)
def test_suggestion_command_requires_targets(command: Cli, arguments: tuple[str, ...], message: str) -> None:
    answer = command("suggestions", "approve", *arguments)
    assert answer.code == 2
    assert message in answer.err
