"""`archive`, `restore` and `pin`."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.core.memories.memories import memory_id
from consolidation_pipeline_tests.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("consolidated")

ALONE, HIDDEN = memory_id("notes", "test", "n5"), memory_id("notes", "test", "n0")


def merged_into(cli: Cli, memory: UUID) -> str:
    (derived,) = cli("lineage", memory, "--json").json["derived"]
    return str(derived["id"])


def counts(cli: Cli) -> tuple[int, int, int]:
    answer = cli("metrics", "notes", "--json").json
    return answer["active"], answer["consolidated"], answer["archived"]


def test_memories_are_archived_and_restored(cli: Cli) -> None:
    merged = merged_into(cli, HIDDEN)
    active, hidden, _ = counts(cli)
    done = cli("archive", ALONE, merged, "--reason", "out of date", "--json")
    assert done.code == 0
    memories: list[dict[str, Any]] = done.json["archived"]
    assert [(m["id"], m["project"], m["kind"]) for m in memories] == [
        (str(ALONE), "notes", "raw"),
        (merged, "notes", "merged"),
    ]
    assert counts(cli) == (active - 1, 0, hidden + 1)
    assert cli("history", "notes", "--operation", "archive", "--json").json["changes"][0]["reason"] == "out of date"
    restored = cli("restore", merged, ALONE, "--json")
    assert [m["id"] for m in restored.json["restored"]] == [merged, str(ALONE)]
    assert counts(cli) == (active, hidden, 0)


def test_archive_output_names_undo_command(cli: Cli) -> None:
    answer = cli("archive", ALONE)
    assert answer.code == 0
    assert f"raw {ALONE}" in answer.out
    undo = answer.out.split("consolidation rollback ")[1].split()[0]
    assert cli("rollback", undo).code == 0
    assert counts(cli)[2] == 0


def test_pin_is_set_and_removed(cli: Cli) -> None:
    assert [m["id"] for m in cli("pin", ALONE, "--json").json["pinned"]] == [str(ALONE)]
    refused = cli("archive", ALONE, "--json")
    assert (refused.code, refused.json["error"], refused.json["conflicts"]) == (3, "conflict", [str(ALONE)])
    assert "unpin it first" in refused.err
    assert cli("pin", ALONE).code == 3
    assert [m["id"] for m in cli("pin", ALONE, "--off", "--json").json["unpinned"]] == [str(ALONE)]
    assert cli("archive", ALONE).code == 0


def test_refused_archive_changes_nothing(cli: Cli) -> None:
    before = counts(cli)
    unknown = uuid4()
    missing = cli("archive", ALONE, unknown, "--json")
    assert (missing.code, missing.json["error"]) == (2, "not_found")
    assert str(unknown) in missing.err
    hidden = cli("archive", ALONE, HIDDEN)
    assert hidden.code == 3
    assert merged_into(cli, HIDDEN) in hidden.err
    assert cli("restore", ALONE).code == 3
    assert cli("archive", ALONE, "--reason", "forgotten").code == 2
    assert cli("archive", "no-id").code == 2
    assert cli("archive").code == 2
    assert counts(cli) == before
