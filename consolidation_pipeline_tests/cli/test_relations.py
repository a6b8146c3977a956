"""`relations list`, `confirm` and `reject`."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest

from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli


@pytest.fixture
def found(consolidated: dict[str, Any], cli: Cli, engine: Engine, settings: Settings) -> list[dict[str, Any]]:
    """Relations of the project `notes`, as `relations list --json` returns them."""
    del consolidated
    with open_run(engine, "notes", settings=settings, planned=("associations",)) as run, run.phase("associations"):
        assert associate_memories(run).added > 2
    answer = cli("relations", "list", "notes", "--json")
    assert answer.code == 0
    rows: list[dict[str, Any]] = answer.json["relations"]
    return rows


def candidates(found: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in found if row["status"] == "candidate"]


def test_relations_are_listed_with_their_texts(cli: Cli, found: list[dict[str, Any]]) -> None:
    listed = cli("relations", "list", "notes", "--status", "candidate", "--limit", "1")
    assert listed.code == 0
    assert candidates(found)[0] in listed.out
    assert listed.out.splitlines()[1].split() == ["id", "type", "status", "confidence"]
    assert re.search(rf"{candidates(found)[0]} +parallel_context +candidate +0.50", listed.out)
    assert "learned at most 7 days apart" in listed.out
    assert "a: " in listed.out
    answer = cli("relations", "list", "notes", "--status", "candidate", "--json").json
    assert answer["totals"]["candidate"] == len(answer["relations"]) == len(candidates(found))
    assert {"id", "relation_type", "confidence", "similarity", "reason", "a_text", "b_text"} <= set(found[0])


def test_empty_relation_list_says_so(cli: Cli, found: list[dict[str, Any]]) -> None:
    del found
    assert "notes has no such relations" in cli("relations", "list", "notes", "--status", "rejected").out


def test_relations_are_confirmed_rejected_and_undone(cli: Cli, found: list[dict[str, Any]]) -> None:
    one, two, *_ = candidates(found)
    answer = cli("relations", "confirm", one, two, "--reason", "seen it", "--json")
    assert (answer.code, answer.json["status"]) == (0, "confirmed")
    groups = {row["id"]: row["group_id"] for row in answer.json["relations"]}
    assert list(groups) == [one, two]
    rejected = cli("relations", "reject", two[:8])
    assert rejected.code == 0
    assert f"relation {two} rejected; undo: consolidation rollback" in rejected.out
    assert cli("rollback", groups[one]).code == 0
    rows = cli("relations", "list", "notes", "--json").json["relations"]
    statuses = {row["id"]: row["status"] for row in rows}
    assert (statuses[one], statuses[two]) == ("candidate", "rejected")


def test_repeated_relation_decision_is_conflict(cli: Cli, found: list[dict[str, Any]]) -> None:
    one = candidates(found)[0]
    assert cli("relations", "reject", one).code == 0
    again = cli("relations", "reject", one, "--json")
    assert (again.code, again.json["error"], again.json["conflicts"]) == (3, "conflict", [one])


def test_unknown_relation_or_status_is_usage_error(cli: Cli, found: list[dict[str, Any]]) -> None:
    nobody = uuid4()
    answer = cli("relations", "confirm", candidates(found)[0], nobody, "--json")
    assert (answer.code, answer.json["error"]) == (2, "not_found")
    assert str(nobody) in answer.err
    assert candidates(found) == candidates(cli("relations", "list", "notes", "--json").json["relations"])
    wrong = cli("relations", "list", "notes", "--status", "maybe")
    assert wrong.code == 2
    assert "candidate, confirmed, rejected" in wrong.err
    assert cli("relations", "confirm", "not-an-id").code == 2
