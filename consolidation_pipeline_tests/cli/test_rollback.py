"""`rollback`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from consolidation_pipeline_tests.cli.conftest import LESSONS, Cli

pytestmark = pytest.mark.usefixtures("consolidated")


def test_a_job_is_undone_and_redone(cli: Cli, consolidated: dict[str, Any]) -> None:
    undone = cli("rollback", consolidated["job_id"], "--json")
    assert undone.code == 0
    assert (undone.json["scope"], undone.json["changes"]) == ("job", 4)
    assert (undone.json["memories_restored"], undone.json["memories_deleted"]) == (3, 1)
    assert cli("metrics", "notes", "--json").json["merged"] == 0
    redone = cli("rollback", undone.json["rollback_id"])
    assert redone.code == 0
    assert "rolled back" in redone.out
    assert cli("metrics", "notes", "--json").json["merged"] == 1


def test_undoing_twice_is_a_conflict(cli: Cli, consolidated: dict[str, Any]) -> None:
    assert cli("rollback", consolidated["job_id"]).code == 0
    again = cli("rollback", consolidated["job_id"], "--json")
    assert (again.code, again.json["error"]) == (3, "conflict")
    assert "rolled back before" in again.err


def test_what_was_built_on_is_undone_only_with_cascade(
    cli: Cli, consolidated: dict[str, Any], write: Callable[..., Path]
) -> None:
    row = {"id": "n9", "content": LESSONS[1], "created_at": "2026-02-01"}
    cli("import", write(row), "--project", "notes", "--source", "test")
    later = cli("run", "notes", "--json").json
    assert later["merged_extended"] == 1
    refused = cli("rollback", consolidated["job_id"], "--json")
    assert (refused.code, refused.json["error"]) == (3, "conflict")
    assert refused.json["conflicts"]
    assert "--cascade" in refused.err
    assert cli("metrics", "notes", "--json").json["consolidated"] == 4
    assert cli("rollback", consolidated["job_id"], "--cascade").code == 0
    assert cli("metrics", "notes", "--json").json["consolidated"] == 0


def test_an_unknown_id_is_a_usage_error(cli: Cli) -> None:
    answer = cli("rollback", uuid4(), "--json")
    assert (answer.code, answer.json["error"]) == (2, "not_found")
