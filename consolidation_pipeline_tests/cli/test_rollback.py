"""`rollback`."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline_tests.cli.conftest import LESSONS, Cli, Write

pytestmark = pytest.mark.usefixtures("consolidated")


def test_job_is_undone_and_redone(cli: Cli, consolidated: dict[str, Any]) -> None:
    undone = cli("rollback", consolidated["job_id"], "--json")
    assert undone.code == 0
    assert (undone.json["scope"], undone.json["changes"]) == ("job", 4)
    assert (undone.json["memories_restored"], undone.json["memories_deleted"]) == (3, 1)
    assert cli("metrics", "notes", "--json").json["merged"] == 0
    redone = cli("rollback", undone.json["rollback_id"])
    assert redone.code == 0
    assert "rolled back" in redone.out
    assert cli("metrics", "notes", "--json").json["merged"] == 1


def test_change_is_undone_with_its_group(cli: Cli) -> None:
    changes = cli("history", "notes", "--json").json["changes"]
    undone = cli("rollback", changes[0]["id"], "--json").json
    assert (undone["scope"], undone["changes"], undone["kept_apart"], undone["redone"]) == ("group", 4, 1, False)
    assert cli("metrics", "notes", "--json").json["consolidated"] == 0


def test_first_digits_of_an_id_are_enough(cli: Cli, consolidated: dict[str, Any]) -> None:
    change = cli("history", "notes", "--json").json["changes"][0]
    undone = cli("rollback", change["group_id"][:8], "--json").json
    assert (undone["scope"], undone["target"]) == ("group", change["group_id"])
    assert cli("rollback", undone["rollback_id"].upper()[:13]).code == 0
    assert f"job {consolidated['job_id']}: rolled back" in cli("rollback", consolidated["job_id"][:8]).out
    assert "no change, group or job" in cli("rollback", "00000000").err
    for wrong in (change["group_id"][:7], "notes", ""):
        answer = cli("rollback", wrong)
        assert (answer.code, "is no id: `consolidation history PROJECT` lists" in answer.err) == (2, True)


def test_rollback_note_names_kept_apart_merges(cli: Cli, consolidated: dict[str, Any]) -> None:
    group = cli("history", "notes", "--json").json["changes"][0]["group_id"]
    of_job = cli("rollback", consolidated["job_id"], "--json").json
    redo = cli("rollback", of_job["rollback_id"])
    assert "later runs" not in redo.out
    assert "next run" not in redo.out
    assert "undo" in redo.out
    of_group = cli("rollback", group)
    assert "later runs keep the memories of 1 merge apart" in of_group.out
    assert "next run" not in of_group.out


def test_rollback_note_of_job_announces_repetition(cli: Cli, consolidated: dict[str, Any]) -> None:
    output = cli("rollback", consolidated["job_id"]).out
    assert "the next run would do the same again" in output
    assert "apart" not in output


def test_rollback_of_manual_change_announces_nothing(cli: Cli, consolidated: dict[str, Any]) -> None:
    memory = cli("memories", "list", "notes", "--kind", "raw", "--json").json["memories"][0]["id"]
    target = cli("memories", "delete", memory, "--json").json["group_id"]
    for _ in range(3):  # undone, redone and undone again
        answer = cli("rollback", target)
        assert (answer.code, "next run" in answer.out) == (0, False)
        target = answer.out.partition("consolidation rollback ")[2].split()[0]
    of_run = consolidated["job_id"]
    for announces in (True, False, True):
        answer = cli("rollback", of_run)
        assert (answer.code, "next run" in answer.out) == (0, announces)
        of_run = answer.out.partition("consolidation rollback ")[2].split()[0]


def test_second_rollback_is_conflict_naming_first(cli: Cli, consolidated: dict[str, Any]) -> None:
    first = cli("rollback", consolidated["job_id"], "--json").json["rollback_id"]
    again = cli("rollback", consolidated["job_id"], "--json")
    assert (again.code, again.json["error"], again.json["conflicts"]) == (3, "conflict", [first])
    assert "rolled back before" in again.err
    assert f"`consolidation rollback {first}` redoes it" in again.err


@pytest.mark.slow
def test_rollback_of_extended_job_needs_cascade(cli: Cli, consolidated: dict[str, Any], write: Write) -> None:
    row = {"id": "n9", "content": LESSONS[1]}
    cli("import", write(row), "--project", "notes", "--source", "test")
    later = cli("run", "notes", "--json").json
    assert later["merged_extended"] == 1
    refused = cli("rollback", consolidated["job_id"], "--json")
    assert (refused.code, refused.json["error"]) == (3, "conflict")
    changes = cli("history", "notes", "--job", later["job_id"], "--json").json["changes"]
    assert set(refused.json["conflicts"]) == {change["id"] for change in changes}
    assert "--cascade" in refused.err
    lines = refused.err.splitlines()
    assert lines[0].endswith(" --cascade` undoes it with them, or roll these groups back first:")
    assert lines[1].endswith(f", group {changes[0]['group_id']}")
    assert changes[0]["id"] not in refused.err
    assert cli("metrics", "notes", "--json").json["consolidated"] == 4
    assert cli("rollback", consolidated["job_id"], "--cascade").code == 0
    assert cli("metrics", "notes", "--json").json["consolidated"] == 0
