"""`projects list|create|configure|delete`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import text

from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli, Write


def test_projects_are_created_once_and_listed(cli: Cli) -> None:
    assert "no projects yet" in cli("projects", "list").out
    assert cli("projects", "create", "beta", "t_merge=0.9").code == 0
    assert cli("projects", "create", "alpha", "--json").json["project"] == "alpha"
    again = cli("projects", "create", "alpha", "--json")
    assert (again.code, again.json["error"]) == (3, "conflict")
    listed = cli("projects", "list", "--json").json["projects"]
    assert [row["project"] for row in listed] == ["alpha", "beta"]
    assert listed[1]["config"] == {"t_merge": 0.9}
    assert "beta" in cli("projects", "list").out


@pytest.mark.parametrize("slug", ["Upper", "-first", "with space", "x" * 64, ""])
def test_invalid_project_slug_is_refused(cli: Cli, slug: str) -> None:
    answer = cli("projects", "create", "--", slug)
    assert (answer.code, "is not allowed" in answer.err) == (2, True)
    assert cli("projects", "list", "--json").json["projects"] == []


def test_configure_sets_and_resets_options(cli: Cli) -> None:
    cli("projects", "create", "p", "new_threshold=50")
    changed = cli("projects", "configure", "p", "t_merge=0.9", "schedule=0 3 * * *", "merge=false", "--json").json
    assert changed["config"] == {"new_threshold": 50, "t_merge": 0.9, "schedule": "0 3 * * *", "merge": False}
    assert changed["effective"]["new_threshold"] == 50
    assert changed["effective"]["t_promote"] == 0.85
    reset = cli("projects", "configure", "p", "similarity_threshold=", "merge=", "schedule=", "--json").json
    assert reset["config"] == {"new_threshold": 50}
    assert reset["effective"]["t_merge"] == "auto"
    assert cli("projects", "configure", "p", "--json").json == reset
    assert re.search(r"new_threshold +50  \(set\) +Number of new memories", cli("projects", "configure", "p").out)


def test_option_alias_is_stored_under_own_name(cli: Cli) -> None:
    cli("projects", "create", "p")
    assert cli("projects", "configure", "p", "similarity_threshold=0.9", "--json").json["config"] == {"t_merge": 0.9}


def test_project_is_disabled_and_enabled(cli: Cli) -> None:
    cli("projects", "create", "p")
    assert cli("projects", "configure", "p", "--disable", "--json").json["enabled"] is False
    assert cli("projects", "configure", "p", "t_merge=0.9", "--json").json["enabled"] is False
    run = cli("run", "p", "--json")
    assert (run.code, run.json["error"]) == (2, "project_disabled")
    assert cli("projects", "configure", "p", "--enable", "--json").json["enabled"] is True


def test_project_is_disabled_by_assignment(cli: Cli) -> None:
    cli("projects", "create", "p", "consolidation_enabled=false", "t_merge=0.9")
    shown = cli("projects", "configure", "p", "--json").json
    assert (shown["enabled"], shown["config"]) == (False, {"t_merge": 0.9})
    assert cli("projects", "configure", "p", "consolidation_enabled=true", "--json").json["enabled"] is True
    assert cli("projects", "configure", "p", "consolidation_enabled=false", "--json").json["enabled"] is False
    assert cli("projects", "configure", "p", "consolidation_enabled=", "--json").json["enabled"] is True
    wrong = cli("projects", "configure", "p", "consolidation_enabled=perhaps")
    assert (wrong.code, wrong.err) == (2, "error: consolidation_enabled is true or false, not 'perhaps'\n")
    both = cli("projects", "configure", "p", "consolidation_enabled=true", "--disable")
    assert (both.code, "give one of them" in both.err) == (2, True)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["t_merge=2"], "t_merge = 2 is not allowed: expected 'auto' or a number from 0.5 to 0.999"),
        (["nonsense=1"], "nonsense is not an option; the options are merge"),
        (["nonsense="], "nonsense is not an option"),
        (["t_merge"], "write KEY=VALUE"),
        (["=1"], "write KEY=VALUE"),
        (["t_merge=0.9", "t_merge=0.8"], "t_merge is given twice"),
        (["t_merge=0.9", "similarity_threshold="], "t_merge is both set and reset"),
        (["t_merge=0.9", "similarity_threshold=0.8"], "t_merge is given twice"),
        (["t_merge=0.6", "t_suggest=0.7"], "t_merge = 0.6 must not be below t_suggest = 0.7"),
    ],
)
def test_invalid_options_change_nothing(cli: Cli, assignments: list[str], message: str) -> None:
    cli("projects", "create", "p", "new_threshold=50")
    answer = cli("projects", "configure", "p", "active_threshold=600", *assignments)
    assert (answer.code, message in answer.err) == (2, True), answer.err
    assert cli("projects", "configure", "p", "--json").json["config"] == {"new_threshold": 50}


def test_stored_option_of_another_version_is_set_anew(cli: Cli, engine: Engine) -> None:
    cli("projects", "create", "p", "scope=project", "new_threshold=50")
    with engine.begin() as connection:
        connection.execute(text("UPDATE consolidation.projects SET config = config || '{\"new_threshold\": 2}'"))
    assert "new_threshold = 2 is not allowed" in cli("projects", "configure", "p", "t_merge=0.9").err
    assert cli("projects", "configure", "p", "new_threshold=60").code == 0
    assert cli("projects", "configure", "p", "--json").json["config"] == {"scope": "project", "new_threshold": 60}


def test_unknown_project_error_lists_existing_projects(cli: Cli) -> None:
    cli("projects", "create", "known")
    for arguments in (("configure", "q", "t_merge=0.9"), ("configure", "q"), ("delete", "q", "--yes")):
        answer = cli("projects", *arguments)
        assert (answer.code, answer.err) == (2, "error: there is no project 'q'; projects: known\n")


def test_delete_requires_yes_and_keeps_ledger(cli: Cli, consolidated: dict[str, Any], engine: Engine) -> None:
    assert consolidated["memories_merged"] > 0
    refused = cli("projects", "delete", "notes")
    assert refused.code == 2
    assert "6 raw memories, 1 merged memories" in refused.err
    assert "--yes" in refused.err
    assert cli("metrics", "notes", "--json").json["memories"] == 6
    assert cli("projects", "delete", "notes", "--yes", "--json").json["memories"] == 6
    assert cli("metrics", "notes").code == 2
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM consolidation.consolidation_changes")) > 0


def test_project_is_not_deleted_during_run(cli: Cli, write: Write, engine: Engine, settings: Settings) -> None:
    cli("import", write({"content": "a"}), "--project", "p")
    with open_run(engine, "p", settings=settings):
        busy = cli("projects", "delete", "p", "--yes", "--json")
    assert (busy.code, busy.json["error"]) == (3, "project_busy")
    assert cli("metrics", "p").code == 0
