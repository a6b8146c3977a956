"""`quarantine` and `blast-radius`."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("consolidated")


def test_quarantine_command_follows_blast_radius(cli: Cli, engine: Engine) -> None:
    with engine.connect() as connection:
        id_ = connection.scalar(text("SELECT id FROM consolidation.task_memories WHERE is_consolidated LIMIT 1"))
    shown = cli("blast-radius", str(id_)[:8])
    assert (shown.code, "notes: 1 memory out of use" in shown.out) == (0, True), shown
    assert "merged" in shown.out
    done = cli("quarantine", id_, "--reason", "planted")
    assert done.out.startswith(shown.out)
    group = done.out.splitlines()[-1].removeprefix("release: consolidation rollback ")
    twice = cli("quarantine", id_)
    assert (twice.code, "in quarantine already" in twice.err) == (3, True)
    assert cli("rollback", group).code == 0
    again = cli("blast-radius", id_, "--json").json
    assert (again["memories"], again["totals"]["merged"]) == ([str(id_)], 1)


def test_quarantine_command_needs_a_filter_and_project(cli: Cli) -> None:
    for arguments, message in (
        ((), "name what to take out of use"),
        (("--agent", "x"), "name the project"),
        (("--session", " ", "--project", "notes"), "must not be blank"),
    ):
        answer = cli("quarantine", *arguments)
        assert (answer.code, message in answer.err) == (2, True), answer
