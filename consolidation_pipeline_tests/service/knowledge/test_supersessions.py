"""Supersessions: found in any order of arrival, decided once, withdrawn when they no longer follow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consolidation_pipeline.service.knowledge import supersessions
from consolidation_pipeline.service.knowledge.supersessions import WITHDRAWN, SupersessionResult
from consolidation_pipeline.service.lifecycle.relations import decide_relations, list_relations
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id


def dated(name: str, text: str, day: int | None, **fields: Any) -> dict[str, Any]:
    """Return a note that was learned on a day of March; undated if None."""
    return note(name, text, created_at=None if day is None else f"2026-03-{day:02d}T12:00:00Z", **fields)


PORTS = [
    dated("first", "The gateway listens on port 8080.", 1),
    dated("second", "The gateway moved from port 8080 to port 9090.", 5),
    dated("third", "The gateway no longer listens on port 9090, it listens on port 7070.", 9),
    dated("again", "The gateway listens on port 8080.", 3),
    dated("staging", "The staging gateway listens on port 6060.", 7),
    dated("limit", "The upload limit is 20 MB.", 2, user_id="ann"),
    dated("limit of ben", "The upload limit is 50 MB.", 4, user_id="ben"),
    dated("new limit", "The upload limit is 80 MB.", 8, user_id="ann"),
    dated("plan", "We plan to move the gateway from port 8080 to port 5050.", 6),
    dated("undated", "The gateway moved from port 8080 to port 4040.", None),
]
EXPECTED = {
    ("second", "again", "confirmed"),
    ("third", "second", "confirmed"),
    ("new limit", "limit", "confirmed"),
}


def record(pipeline: Pipeline, slug: str = SLUG) -> SupersessionResult:
    """Run only the phase."""
    result: SupersessionResult = pipeline.run_phases(["supersessions"], slug)["supersessions"]
    return result


def load(pipeline: Pipeline, slug: str = SLUG) -> dict[tuple[str, str], Any]:
    """Return the relations by the names of the newer and the older note."""
    names = {note_id(row["id"], slug): row["id"] for row in PORTS}
    rows = pipeline.rows("SELECT * FROM {s}.memory_relations WHERE relation_type = 'supersedes'")
    return {(names[row.a_id], names[row.b_id]): row for row in rows}


def statuses(pipeline: Pipeline) -> set[tuple[str, str, str]]:
    return {(*pair, row.status) for pair, row in load(pipeline).items() if row.status != "rejected"}


def relation_of(pipeline: Pipeline, newer: str, older: str) -> UUID:
    found: UUID = load(pipeline)[newer, older].id
    return found


def test_supersessions_of_changed_facts_are_found(pipeline: Pipeline) -> None:
    pipeline.add(PORTS)
    result = record(pipeline)
    assert statuses(pipeline) == EXPECTED
    assert (result.memories, result.found, result.confirmed, result.added) == (len(PORTS) - 1, 3, 3, 3)
    assert load(pipeline)["second", "again"].reason.startswith("change words: The gateway listens on port 8080.")


def test_second_run_writes_no_supersession(pipeline: Pipeline) -> None:
    pipeline.add(PORTS)
    record(pipeline)
    again = record(pipeline)
    assert (again.memories, again.compared) == (len(PORTS) - 1, 0)
    assert (again.added, again.changed, again.withdrawn) == (0, 0, 0)
    assert statuses(pipeline) == EXPECTED


def test_only_changed_scopes_are_compared_again(pipeline: Pipeline) -> None:
    by_user = [{**row, "user_id": row.get("user_id", "carl")} for row in PORTS]
    pipeline.add(by_user)
    assert record(pipeline).compared == len(PORTS) - 1
    pipeline.add([dated("limit again", "The upload limit is 90 MB.", 10, user_id="ann")])
    result = record(pipeline)
    assert (result.compared, result.added, result.withdrawn) == (3, 1, 0)
    assert record(pipeline).compared == 0
    # Two scopes have become one.
    pipeline.configure(scope="project")
    assert record(pipeline).compared == len(PORTS)
    assert pipeline.value("SELECT count(*) FROM {s}.compared_scopes") == 1


def test_claims_of_another_version_are_judged_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[bool] = []
    find = supersessions.find_supersessions

    def note(*what: Any, **how: Any) -> Any:
        known.append(bool(how["known"]))
        return find(*what, **how)

    monkeypatch.setattr(supersessions, "find_supersessions", note)
    pipeline.add(PORTS[:5])
    record(pipeline)
    pipeline.add(PORTS[5:])
    record(pipeline)
    pipeline.write("UPDATE {s}.compared_scopes SET code = 'older', memories = ''")
    record(pipeline)
    assert known == [False, True, False]
    assert statuses(pipeline) == EXPECTED


def test_other_projects_do_not_hide_a_changed_scope(pipeline: Pipeline) -> None:
    pipeline.add(PORTS)
    pipeline.add(PORTS, "other")
    assert record(pipeline).compared == record(pipeline, "other").compared == len(PORTS) - 1
    assert record(pipeline).compared == record(pipeline, "other").compared == 0


def test_scope_with_changed_relations_is_compared_again(pipeline: Pipeline) -> None:
    pipeline.add(PORTS)
    record(pipeline)
    pipeline.write("UPDATE {s}.memory_relations SET status = 'rejected', reason = 'lost' WHERE status = 'confirmed'")
    # All but the one memory of ben, which has no relation.
    assert record(pipeline).compared == len(PORTS) - 2
    assert statuses(pipeline) == EXPECTED


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.permutations(PORTS), cuts=st.sets(st.integers(1, len(PORTS) - 1), max_size=3))
def test_order_of_arrival_changes_no_supersession(
    pipeline: Pipeline, rows: Sequence[dict[str, Any]], cuts: set[int]
) -> None:
    pipeline.clear()
    bounds = [0, *sorted(cuts), len(rows)]
    for start, end in pairwise(bounds):
        pipeline.add(rows[start:end])
        record(pipeline)
    assert statuses(pipeline) == EXPECTED


def test_whole_run_keeps_superseded_memories(pipeline: Pipeline) -> None:
    pipeline.add(PORTS)
    pipeline.run()
    assert statuses(pipeline) == EXPECTED


def test_older_memory_that_arrives_late_is_superseded(pipeline: Pipeline) -> None:
    by_name = {row["id"]: row for row in PORTS}
    pipeline.add([by_name["second"], by_name["first"]])
    record(pipeline)
    assert statuses(pipeline) == {("second", "first", "confirmed")}
    pipeline.add([by_name["again"]])
    result = record(pipeline)
    assert (result.added, result.withdrawn) == (1, 1)
    assert statuses(pipeline) == {("second", "again", "confirmed")}
    assert load(pipeline)["second", "first"].reason.startswith(WITHDRAWN)


@pytest.mark.parametrize("status", ["confirmed", "rejected"])
def test_decision_on_supersession_stays(pipeline: Pipeline, status: str) -> None:
    pipeline.add([dated("first", "The retry limit is 3.", 1), dated("second", "The retry limit is 5.", 2)])
    record(pipeline)
    (relation,) = list_relations(pipeline.engine, SLUG, limit=9)["relations"]
    assert (relation["relation_type"], relation["status"]) == ("supersedes", "candidate")
    decide_relations(pipeline.engine, [relation["id"]], status, changed_by="tester")
    record(pipeline)
    assert load(pipeline)["second", "first"].status == status


def test_undone_supersession_does_not_come_back(pipeline: Pipeline) -> None:
    pipeline.add(PORTS)
    record(pipeline)
    undone = pipeline.roll_back(pipeline.last_group(entity=relation_of(pipeline, "second", "again")))
    assert record(pipeline).added == 0
    assert ("second", "again") not in load(pipeline)
    pipeline.roll_back(undone.rollback_id)
    assert statuses(pipeline) == EXPECTED


def test_memory_that_a_person_archived_is_left_out(pipeline: Pipeline) -> None:
    pipeline.add(PORTS)
    record(pipeline)
    archived = note_id("third")
    pipeline.write(
        "UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'wrong' WHERE id = :id", id=archived
    )
    assert record(pipeline).withdrawn == 1
    pipeline.write("UPDATE {s}.task_memories SET archived_at = NULL, archive_reason = NULL WHERE id = :id", id=archived)
    assert record(pipeline).changed == 1
    assert statuses(pipeline) == EXPECTED


def test_other_key_of_an_agent_is_another_writer(pipeline: Pipeline) -> None:
    first, second = "The retry limit is 3.", "The retry limit is 5."
    pipeline.add([dated("first", first, 1, agent_id="bot"), dated("second", second, 2, agent_id="bot")])
    record(pipeline)
    assert statuses(pipeline) == {("second", "first", "confirmed")}
    pipeline.write("UPDATE {s}.task_memories SET writer = 'key:1' WHERE id = :id", id=note_id("second"))
    assert record(pipeline).changed == 1
    assert statuses(pipeline) == {("second", "first", "candidate")}
