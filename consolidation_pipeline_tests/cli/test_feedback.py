"""`used` and `feedback`."""

from __future__ import annotations

from uuid import uuid4

import pytest

from consolidation_pipeline.core.memories.memories import memory_id
from consolidation_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("consolidated")

ALONE = memory_id("notes", "test", "n5")


def test_used_counts_once_for_each_session(cli: Cli) -> None:
    assert cli("used", ALONE, "--json").json == {"recorded": 1, "repeated": 0}
    assert "recorded: 0, counted today already: 1" in cli("used", ALONE).out
    assert cli("used", ALONE, "--session", "s1", "--json").json == {"recorded": 1, "repeated": 0}
    unknown = cli("used", uuid4(), "--json")
    assert (unknown.code, unknown.json["error"]) == (2, "not_found")


def test_feedback_moves_importance_and_is_undone(cli: Cli) -> None:
    given = cli("feedback", ALONE, "--misleading", "--note", "outdated", "--json").json
    assert given["importance"] == pytest.approx(given["importance_before"] - 0.1)
    assert cli("rollback", given["group_id"]).code == 0
    assert "undo: consolidation rollback" in cli("feedback", ALONE, "--helpful").out
    assert cli("feedback", ALONE).code == 2
