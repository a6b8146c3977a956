"""`add`, `memories` and `erase`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("consolidated")


def find_merged_note(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.scalar(text("SELECT id FROM consolidation.task_memories WHERE is_consolidated LIMIT 1")))


def test_add_list_show_and_edit_a_memory(cli: Cli) -> None:
    added = cli("add", "notes", "The marmot tunnel floods in May.", "--type", "warning", "--tag", "a", "--tag", "b")
    id_ = added.out.removeprefix("added: ").strip()
    assert added.code == 0
    again = cli("add", "notes", "The marmot tunnel floods in May.", "--type", "warning", "--tag", "a", "--tag", "b")
    assert again.out == f"stored before: {id_}\n"
    listed = cli("memories", "list", "notes", "--text", "MARMOT", "--json").json
    assert [(row["id"], row["tags"], row["status"]) for row in listed["memories"]] == [(id_, ["a", "b"], "active")]
    assert id_ in cli("memories", "list", "notes", "--text", "marmot").out
    assert "expected a number <= 1000, not '1001'" in cli("memories", "list", "notes", "--limit", "1001").err
    done = cli("memories", "edit", id_, "--content", "The marmot tunnel floods in June.", "--goal", "Safety")
    assert done.out.startswith("changed: content, goal\n")
    shown = cli("memories", "show", id_, "--json").json
    assert (shown["content"], shown["goal"]) == ("The marmot tunnel floods in June.", "Safety")
    assert "floods in June" in cli("memories", "show", id_).out
    assert cli("rollback", done.out.split()[-1]).code == 0
    assert cli("memories", "show", id_, "--json").json["content"] == "The marmot tunnel floods in May."


def test_list_refuses_filters_that_are_no_utf8(cli: Cli) -> None:
    for option, name in (("--text", "text"), ("--user", "user_id"), ("--session", "session_id")):
        answer = cli("memories", "list", "notes", option, "caf\udcff")
        assert (answer.code, f"{name} is 'caf\\udcff': expected valid Unicode" in answer.err) == (2, True)


def test_edit_command_empties_optional_fields_alone(cli: Cli) -> None:
    added = cli("add", "notes", "The lynx sleeps by day.", "--goal", "Safety", "--tag", "a", "--file", "lynx.md")
    id_ = added.out.removeprefix("added: ").strip()
    assert cli("memories", "edit", id_, "--goal", "", "--tag", "", "--file", "").out.startswith("changed: goal, tags, ")
    shown = cli("memories", "show", id_, "--json").json
    assert (shown["goal"], shown["tags"], shown["files"]) == (None, [], [])
    for option, name in (("--content", "content"), ("--type", "memory_type")):
        refused = cli("memories", "edit", id_, option, "")
        assert refused.err == f"error: {name} is '': expected a value: this field cannot be emptied\n"


def test_add_refuses_wrong_values(cli: Cli) -> None:
    for arguments, message in (
        (("notes", "x", "--type", "poem"), "memory_type is 'poem'"),
        (("notes", "  "), "content is"),
        (("nowhere", "x"), "there is no project 'nowhere'"),
    ):
        answer = cli("add", *arguments)
        assert (answer.code, message in answer.err) == (2, True), answer


def test_delete_command_tells_what_goes_and_undo(cli: Cli, engine: Engine) -> None:
    id_ = find_merged_note(engine)
    done = cli("memories", "delete", id_, "--reason", "wrong")
    assert done.out.startswith("deleted: 1; out of use until the next run: merged 1")
    assert cli("memories", "list", "notes", "--status", "deleted", "--json").json["memories"][0]["id"] == id_
    twice = cli("memories", "delete", id_)
    assert (twice.code, "is deleted or in quarantine already" in twice.err) == (3, True)
    text = cli("memories", "show", id_, "--json").json["content"]
    again = cli("add", "notes", text, "--id", "again")
    new = again.out.split()[-1]
    assert cli("add", "notes", text, "--id", "again").err == ""
    assert cli("memories", "delete", new).code == 0
    assert "it was deleted since, and stays hidden" in cli("add", "notes", text, "--id", "again").err
    assert cli("rollback", done.out.split()[-1]).code == 0


def test_erase_command_writes_certificate(cli: Cli, engine: Engine, tmp_path: Path) -> None:
    id_ = find_merged_note(engine)
    preview = cli("erase", id_[:8], "--dry-run")
    assert preview.out.startswith("notes: would erase 1 memory for good; rows: ")
    assert "task_memories 1" in preview.out
    unconfirmed = cli("erase", id_)
    assert (unconfirmed.code, "confirm with --yes" in unconfirmed.err) == (2, True)
    lost = cli("erase", id_, "--yes", "--certificate", str(tmp_path / "missing" / "certificate.json"))
    assert (lost.code, "No such file or directory; nothing was erased" in lost.err) == (2, True)
    file = tmp_path / "certificate.json"
    done = cli("erase", id_, "--yes", "--certificate", str(file), "--reason", "asked for")
    assert (done.code, "notes: erased 1 memory" in done.err) == (0, True), done
    content = json.loads(file.read_text())
    assert (content["is_clean"], content["reason"], id_ in file.read_text()) == (True, "asked for", False)
    assert file.stat().st_mode & 0o077 == 0
    assert cli("erase", id_, "--yes").code == 2
    unused = tmp_path / "unused.json"
    assert (cli("erase", id_, "--yes", "--certificate", str(unused)).code, unused.exists()) == (2, False)
    kept = cli("erase", id_, "--yes", "--certificate", str(file))
    assert (kept.code, file.read_text() == json.dumps(content, indent=2) + "\n") == (2, True)
