"""Stores whose own triggers and rules change what is written there, or keep it from being written."""

from __future__ import annotations

import pytest

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.sources.connections import disconnect_source
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import SOURCE, consolidate
from consolidation_pipeline_tests.service.sources.stores import FACTS, USERS, Store, row_id, word

GROUPS = len(FACTS) * len(USERS)
# Two rows that may be merged, each with a detail of its own.
PARTIAL = (
    (
        "bob",
        "The parser tests need the fixture folder mounted read-only and a fresh cache to pass on the build machine",
    ),
    ("bob", "The parser tests need the fixture folder mounted read-only to pass on the build machine and on laptops"),
)
TRIGGER = """
    CREATE FUNCTION react() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN {body} END $body$;
    CREATE TRIGGER react {when} ON {table} FOR EACH ROW EXECUTE FUNCTION react()
"""
MARK = "UPDATE mem0 SET payload = jsonb_set(payload, ARRAY['gone'], 'true') WHERE id = OLD.id;"
STAMP = "NEW.payload = jsonb_set(NEW.payload, ARRAY['seen_at'], to_jsonb(clock_timestamp())); RETURN NEW;"
# SQL that keeps rows of mem0 from going, and what is told of it.
KEEPERS = {
    "dropped": (
        TRIGGER.format(body=f"{MARK} RETURN NULL;", when="BEFORE DELETE", table="mem0"),
        "2 rows of mem0 would",
    ),
    "changed": (
        TRIGGER.format(body=f"{MARK} RETURN OLD;", when="BEFORE DELETE", table="mem0"),
        "the store forbids the change: tuple to be deleted was already modified",
    ),
    "added again": (
        TRIGGER.format(body="INSERT INTO mem0 SELECT OLD.*; RETURN NULL;", when="AFTER DELETE", table="mem0"),
        "2 rows of mem0 would stay: a trigger, rule or policy",
    ),
    "rule": (
        "CREATE RULE keep AS ON DELETE TO mem0 DO INSTEAD NOTHING",
        "the store forbids the change: cannot perform DELETE RETURNING",
    ),
    "unlinked": (
        TRIGGER.format(body="RETURN NULL;", when="BEFORE UPDATE", table="mem0_entities"),
        "1 row of mem0_entities would stay",
    ),
}


@pytest.mark.parametrize("keeper", KEEPERS)
def test_group_is_refused_if_its_rows_would_stay(mem0_store: Store, pipeline: Pipeline, keeper: str) -> None:
    statement, reason = KEEPERS[keeper]
    consolidate(pipeline, mem0_store)
    before = mem0_store.checksum()
    mem0_store.connection.execute(statement)
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert (result.written, len(result.refused)) == (0, GROUPS)
    assert all(reason in each for each in result.refused.values())
    assert mem0_store.checksum() == before
    left = mem0_store.connection.execute("SELECT count(*) FROM consolidation_sidecar.writes").fetchone()
    assert left == (0,)


def test_row_that_a_trigger_deletes_elsewhere_needs_an_image(mem0_store: Store, pipeline: Pipeline) -> None:
    body = "IF pg_trigger_depth() > 1 THEN RETURN OLD; END IF; DELETE FROM mem0 WHERE id = OLD.id; RETURN NULL;"
    consolidate(pipeline, mem0_store)
    before = mem0_store.checksum()
    mem0_store.connection.execute(TRIGGER.format(body=body, when="BEFORE DELETE", table="mem0"))
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert (result.written, len(result.refused)) == (0, GROUPS)
    assert mem0_store.checksum() == before


def test_new_row_that_a_trigger_drops_refuses_its_group(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    consolidate(pipeline, mem0_store)
    mem0_store.connection.execute(TRIGGER.format(body="RETURN NULL;", when="BEFORE INSERT", table="mem0"))
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert result.written == GROUPS
    assert list(result.refused.values()) == ["mem0 takes no new row: a trigger of it drops what is inserted"]


def test_erasure_is_refused_if_a_row_would_stay(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    mem0_store.connection.execute(TRIGGER.format(body="RETURN NULL;", when="BEFORE DELETE", table="mem0"))
    memory = pipeline.value(
        "SELECT memory_id FROM {s}.source_rows WHERE key = :key", key=row_id("alice", word(FACTS[2], 1))
    )
    with pytest.raises(ConflictError, match="1 row of mem0 would stay"):
        erase_memories(pipeline.engine, [memory], changed_by="tester")
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE id = :id", id=memory) == 1


def test_value_that_a_trigger_sets_for_new_rows_is_put_back(mem0_store: Store, pipeline: Pipeline) -> None:
    before = mem0_store.checksum()
    consolidate(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    mem0_store.connection.execute(TRIGGER.format(body=STAMP, when="BEFORE INSERT", table="mem0"))
    told: list[str] = []
    assert undo_writes(pipeline.engine, SOURCE, tell=told.append) == {}
    assert told == []
    assert mem0_store.checksum() == before


@pytest.mark.parametrize("way", ["undo", "rollback", "disconnect"])
def test_values_that_cannot_be_put_back_are_told(mem0_store: Store, pipeline: Pipeline, way: str) -> None:
    """A trigger stamps every change, and another column is computed in another way than before."""
    mem0_store.connection.execute(
        "ALTER TABLE mem0 ADD size int GENERATED ALWAYS AS (length(payload ->> 'data')) STORED"
    )
    outcome = consolidate(pipeline, mem0_store)
    hidden = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).hidden
    mem0_store.connection.execute("ALTER TABLE mem0 DROP size")
    mem0_store.connection.execute("ALTER TABLE mem0 ADD size int GENERATED ALWAYS AS (0) STORED")
    mem0_store.connection.execute(TRIGGER.format(body=STAMP, when="BEFORE INSERT OR UPDATE", table="mem0"))
    told: list[str] = []
    if way == "undo":
        assert undo_writes(pipeline.engine, SOURCE, tell=told.append) == {}
    elif way == "disconnect":
        assert disconnect_source(pipeline.engine, SOURCE, restore=True, tell=told.append) == {}
    else:
        told += pipeline.roll_back(outcome.job_id).store_notes
    words = "rows came back with another value in"
    assert [sentence.partition(",")[0] for sentence in told] == [
        f"mem0: {hidden} {words} payload",
        f"mem0: {hidden} {words} size",
    ]
    if way != "disconnect":
        reasons = pipeline.rows("SELECT DISTINCT reason FROM {s}.source_writes WHERE status = 'undone'")
        assert [words in row.reason for row in reasons] == [True]


@pytest.mark.parametrize(
    ("event", "reason"), [("INSERT", "keeps the row from coming back"), ("DELETE", "keeps the new row there")]
)
def test_group_that_a_trigger_keeps_as_written_is_not_undone(
    mem0_store: Store, pipeline: Pipeline, event: str, reason: str
) -> None:
    mem0_store.add(PARTIAL)
    outcome = consolidate(pipeline, mem0_store)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).inserted == 1
    written = mem0_store.checksum()
    mem0_store.connection.execute(TRIGGER.format(body="RETURN NULL;", when=f"BEFORE {event}", table="mem0"))
    with pytest.raises(ConflictError, match=reason):
        pipeline.roll_back(outcome.job_id)
    assert mem0_store.checksum() == written
    conflicts = undo_writes(pipeline.engine, SOURCE)
    assert len(conflicts) == (GROUPS + 1 if event == "INSERT" else 1)
    assert {one.reason.partition(" policy of the table ")[2] for found in conflicts.values() for one in found} == {
        reason
    }
    assert (mem0_store.checksum() == written) == (event == "INSERT")
