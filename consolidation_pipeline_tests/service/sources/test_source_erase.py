"""Erasure of memories that came from a connected store."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.service.admin.erase import erase_memories, preview_erasure
from consolidation_pipeline.service.sources.connections import connect_source, disconnect_source, set_mode
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import write_source
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV, connect, consolidate
from consolidation_pipeline_tests.service.sources.stores import Store

# Two wordings of one fact: one of them is erased after they were merged.
CANARY = "The quarterly audit of the warehouse robots starts in the northern aisle before the night shift"
OTHER = f"Note: {CANARY[0].lower()}{CANARY[1:]}"


def find_memory(pipeline: Pipeline, body: str) -> UUID:
    found: UUID = pipeline.value("SELECT id FROM {s}.task_memories WHERE execution_summary = :body", body=body)
    return found


def search_everything(store: Store, words: str) -> list[str]:
    """Return the tables of the store's database in which a row has these words."""
    names = store.connection.execute(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname !~ '^(pg_|information_schema)'"
    ).fetchall()
    found = []
    for (name,) in names:
        row: Any = store.connection.execute(
            f"SELECT count(*) FROM {name} t WHERE strpos(lower(t::text), %s) > 0", [words.lower()]
        ).fetchone()
        if row[0]:
            found.append(name)
    return found


def test_erased_memory_leaves_store_and_sidecar(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add([("alice", CANARY), ("alice", OTHER), ("alice", "Robots rest on Sundays")])
    consolidate(pipeline, mem0_store)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).refused == {}
    memories = [find_memory(pipeline, body) for body in (CANARY, OTHER)]
    before = mem0_store.checksum()
    found = preview_erasure(pipeline.engine, memories)
    assert mem0_store.checksum() == before
    done = erase_memories(pipeline.engine, memories, changed_by="tester")
    assert found.rows[f"{SOURCE} (source)"] == 2
    assert done.is_clean
    assert done.rows[f"{SOURCE} (source)"] == 2
    assert search_everything(mem0_store, "warehouse robots") == []
    assert pipeline.value("SELECT count(*) FROM {s}.source_writes WHERE plan::text LIKE '%warehouse%'") == 0
    assert "Robots rest on Sundays" in mem0_store.texts()
    again = sync_source(pipeline.engine, SOURCE)
    assert (again.added, again.revised, again.gone) == (0, 0, 0)


@pytest.mark.slow
def test_other_rows_of_the_group_are_shown_again(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add([("alice", CANARY), ("alice", OTHER)])
    consolidate(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    erase_memories(pipeline.engine, [find_memory(pipeline, CANARY)], changed_by="tester")
    texts = mem0_store.texts()
    assert OTHER in texts
    assert CANARY not in texts
    assert sync_source(pipeline.engine, SOURCE).gone == 0


def test_mirrored_row_stays_and_is_not_copied_again(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add([("alice", CANARY)])
    connect(pipeline, mem0_store, "mirror")
    before = mem0_store.checksum()
    assert preview_erasure(pipeline.engine, [find_memory(pipeline, CANARY)]).left_in_sources == {SOURCE: 1}
    done = erase_memories(pipeline.engine, [find_memory(pipeline, CANARY)], changed_by="tester")
    assert done.left_in_sources == {SOURCE: 1}
    assert mem0_store.checksum() == before
    assert sync_source(pipeline.engine, SOURCE).added == 0
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE execution_summary = :body", body=CANARY) == 0


def test_erased_row_is_no_reason_to_compare_all(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add([("alice", CANARY)])
    connect(pipeline, mem0_store, "mirror")
    erase_memories(pipeline.engine, [find_memory(pipeline, CANARY)], changed_by="tester")
    set_mode(pipeline.engine, SOURCE, "review")
    sync_source(pipeline.engine, SOURCE)
    for _ in range(2):
        result = sync_source(pipeline.engine, SOURCE)
        assert (result.read, result.notes) == (0, ())
        mem0_store.connection.execute("DELETE FROM mem0 WHERE payload ->> 'data' = %s", [CANARY])


def test_erased_row_is_not_copied_by_another_connection(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add([("alice", CANARY)])
    connect(pipeline, mem0_store, "mirror")
    erase_memories(pipeline.engine, [find_memory(pipeline, CANARY)], changed_by="tester")
    disconnect_source(pipeline.engine, SOURCE, restore=False)
    mem0_store.connection.execute("DELETE FROM mem0 WHERE payload ->> 'data' <> %s", (CANARY,))
    config = {**mem0_store.kind.config, "url_env": URL_ENV, "table": "public.mem0"}
    connect_source(pipeline.engine, "again", project=PROJECT, config=config)
    result = sync_source(pipeline.engine, "again")
    assert (result.erased, result.notes) == (
        1,
        ("1 rows are not copied: their memories were erased from this project",),
    )
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE execution_summary = :body", body=CANARY) == 0
    assert sync_source(pipeline.engine, "again").erased == 0
