"""Stores whose own triggers and rules change what is written there, or keep it from being written."""

from __future__ import annotations

import pytest

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.sources.write_back import write_source
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import SOURCE, consolidate
from consolidation_pipeline_tests.service.sources.stores import FACTS, USERS, Store, row_id, word

GROUPS = len(FACTS) * len(USERS)
TRIGGER = """
    CREATE FUNCTION react() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN {body} END $body$;
    CREATE TRIGGER react {when} ON {table} FOR EACH ROW EXECUTE FUNCTION react()
"""
MARK = "UPDATE mem0 SET payload = jsonb_set(payload, ARRAY['gone'], 'true') WHERE id = OLD.id;"
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
    build = "The parser tests need the fixture folder mounted read-only"
    mem0_store.add([("bob", f"{build} and a fresh cache to pass on the build machine")])
    mem0_store.add([("bob", f"{build} to pass on the build machine and on laptops")])
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
