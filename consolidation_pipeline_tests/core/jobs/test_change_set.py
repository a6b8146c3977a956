"""The change set of a job is the same wherever it decides alike, and tells the first decision that is not."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4, uuid5

from consolidation_pipeline.core.jobs.change_set import ChangeSet, LedgerChange, build_change_set, find_differing

_NAMES = UUID(int=7)


def row_id(name: str) -> UUID:
    return uuid5(_NAMES, name)


def merge(name: str, content: str = "said twice", **columns: Any) -> list[LedgerChange]:
    """Return the changes of a merge of two memories, made at some moment in some project."""
    group = uuid4()
    state: Mapping[str, Any] = {
        "id": str(row_id(name)),
        "content": content,
        "project_id": str(uuid4()),
        "created_at": f"2026-01-{random.randint(10, 28)}T00:00:00Z",
        "retired_at": None,
        "confidence_score": 0.95 + random.random() / 1e6,
        "lineage": [{"parent_id": "a", "parent_kind": "raw", "similarity": random.random(), "job_id": str(uuid4())}],
        **columns,
    }
    hidden = LedgerChange(
        group, "merge", "task_memories", row_id(f"raw {name}"), {"into": None}, {"into": str(row_id(name))}, None
    )
    reason = f"alike (similarity {random.random():.2f})"
    return [LedgerChange(group, "merge", "consolidated_memories", row_id(name), None, state, reason), hidden]


def archive(name: str) -> list[LedgerChange]:
    states = {"archived_at": None}, {"archived_at": f"2026-02-0{random.randint(1, 9)}T00:00:00Z"}
    return [LedgerChange(uuid4(), "archive", "task_memories", row_id(name), *states, "not used for 400 days")]


def build(*groups: list[LedgerChange]) -> ChangeSet:
    return build_change_set(change for group in groups for change in group)


def test_digest_ignores_clocks_ids_and_order() -> None:
    one = build(merge("x"), merge("y"), archive("z"))
    other = build(archive("z"), merge("y")[::-1], merge("x"))
    assert one.digest == other.digest
    assert one.digest.startswith("sha256:")
    assert one.changes == 5
    assert find_differing(one, other) == []


def test_digest_tells_what_was_decided() -> None:
    digests = {
        build(merge("x")).digest,
        build(merge("x"), merge("x")).digest,
        build(merge("x", content="said thrice")).digest,
        build(merge("x", retired_at="2026-01-01T00:00:00Z")).digest,
        build(merge("x", importance=0.6)).digest,
        build(merge("x"), archive("z")).digest,
        build(archive("z")).digest,
        build().digest,
    }
    assert len(digests) == 8


def test_differing_decisions_come_by_phase() -> None:
    recorded = build(archive("z"), merge("x"), merge("y", content="here"))
    replayed = build(merge("y", content="there"), archive("w"), merge("x"))
    changed, *archived = find_differing(recorded, replayed)
    assert (changed.operation, changed.rows) == ("merge", sorted(map(str, (row_id("y"), row_id("raw y")))))
    assert [side is not None and side.changes for side in changed] == [2, 2]
    sides = {pair.rows[0]: (pair.recorded is not None, pair.replayed is not None) for pair in archived}
    assert sides == {str(row_id("z")): (True, False), str(row_id("w")): (False, True)}
