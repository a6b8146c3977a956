"""Merged memories in the stores that their sources came from, and the way back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from consolidation_pipeline.connect import database_store, sidecar
from consolidation_pipeline.errors import ConflictError, NotFoundError, StoreError, UsageError
from consolidation_pipeline.service.lifecycle import memory_edits
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.sources import recovery, write_back, write_plan
from consolidation_pipeline.service.sources.connections import disconnect_source, restore_store
from consolidation_pipeline.service.sources.rehearsal import rehearse_writes
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import WriteResult, undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import plan_writes
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline.store.sources.source_writes import list_writes
from consolidation_pipeline.store.sources.sources import get_source
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import (
    FOREIGN_VECTOR,
    PROJECT,
    SOURCE,
    URL_ENV,
    connect,
    consolidate,
    count_writes,
)
from consolidation_pipeline_tests.service.sources.stores import (
    AGNO,
    CLAUDE_MEM,
    FACTS,
    LANGGRAPH,
    MEM0,
    NOTES,
    USERS,
    WORDINGS,
    Kind,
    Store,
    embed,
    row_id,
    word,
)

GROUPS = len(FACTS) * len(USERS)
HIDDEN = GROUPS * (WORDINGS - 1)
# Two rows that may be merged, each with a detail of its own.
PARTIAL = (
    (
        "alice",
        "The parser tests need the fixture folder mounted read-only and a fresh cache to pass on the build machine",
    ),
    ("alice", "The parser tests need the fixture folder mounted read-only to pass on the build machine and on laptops"),
)
_INSERTED = "SELECT key FROM consolidation_sidecar.images WHERE action = 'inserted'"


def write_all(pipeline: Pipeline, **how: Any) -> WriteResult:
    return write_source(pipeline.engine, SOURCE, **{"quiet_seconds": 0, "max_share": 1, **how})


def test_one_row_is_kept_and_rollback_restores_all(any_store: Store, pipeline: Pipeline) -> None:
    before = any_store.checksum()
    outcome = consolidate(pipeline, any_store)
    result = write_all(pipeline)
    assert (result.written, result.hidden, result.inserted, result.refused) == (GROUPS, HIDDEN, 0, {})
    texts = any_store.texts()
    assert len(texts) == GROUPS
    assert {text.rstrip(".").removeprefix("Note: ")[1:] for text in texts} == {fact[1:] for fact in FACTS}
    assert sync_source(pipeline.engine, SOURCE).added == 0
    pipeline.roll_back(outcome.job_id)
    assert any_store.checksum() == before
    assert count_writes(pipeline) == {"undone": GROUPS}


def test_links_of_hidden_rows_lead_to_the_successor(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    write_all(pipeline)
    linked = mem0_store.connection.execute(
        "SELECT jsonb_array_elements_text(payload -> 'linked_memory_ids') FROM mem0_entities"
    ).fetchall()
    present = mem0_store.connection.execute("SELECT id::text FROM mem0").fetchall()
    assert sorted(linked) == sorted(present)


def test_one_group_is_undone_alone(mem0_store: Store, pipeline: Pipeline) -> None:
    outcome = consolidate(pipeline, mem0_store)
    write_all(pipeline)
    group = pipeline.value(
        "SELECT group_id FROM {s}.consolidation_changes WHERE operation = 'merge' AND job_id = :job LIMIT 1",
        job=outcome.job_id,
    )
    pipeline.roll_back(group)
    assert len(mem0_store.texts()) == GROUPS + WORDINGS - 1
    assert count_writes(pipeline) == {"undone": 1, "written": GROUPS - 1}


def test_new_row_unites_facts_of_several_rows(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    before = mem0_store.checksum()
    outcome = consolidate(pipeline, mem0_store)
    result = write_all(pipeline)
    assert result.inserted == 1
    (united,) = [text for text in mem0_store.texts() if "laptops" in text]
    assert "fresh cache" in united
    payload = mem0_store.connection.execute("SELECT payload FROM mem0 WHERE payload ->> 'data' = %s", [united])
    row: Mapping[str, Any] = payload.fetchone()[0]  # type: ignore[index]
    assert (row["user_id"], row["color"]) == ("alice", "blue")
    assert {"laptops", "fresh"} <= set(row["text_lemmatized"].split())
    assert sync_source(pipeline.engine, SOURCE).added == 0
    pipeline.roll_back(outcome.job_id)
    assert mem0_store.checksum() == before


def test_new_row_needs_the_model_of_the_vectors(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    mem0_store.connection.execute(f"UPDATE mem0 SET vector = {FOREIGN_VECTOR}")
    consolidate(pipeline, mem0_store)
    (reason,) = write_all(pipeline).refused.values()
    assert reason.startswith("a new row needs a vector, and wordllama/l2_supercat_256 did not make the vectors of the")


def test_changed_row_keeps_its_group_from_being_written(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    changed = row_id("alice", word(FACTS[0], 0))
    mem0_store.connection.execute(
        'UPDATE mem0 SET payload = payload || \'{"data": "Somebody edits this now"}\' WHERE id = %s', [changed]
    )
    result = write_all(pipeline)
    (reason,) = result.refused.values()
    assert "1 of its 3 rows changed or are gone in the store" in reason
    assert result.written == GROUPS - 1
    assert len(mem0_store.texts()) == GROUPS + WORDINGS - 1


@pytest.mark.parametrize("searched", ["listed", "scanned", "indexed"])
def test_group_that_search_would_lose_is_not_written(
    mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, searched: str
) -> None:
    """The vector of the row that would be kept belongs to another text."""
    if searched != "listed":
        monkeypatch.setattr(database_store, "_MAX_LISTED_ROWS", 1)
    if searched == "indexed":
        mem0_store.connection.execute("CREATE INDEX ON mem0 USING hnsw (vector vector_cosine_ops)")
    consolidate(pipeline, mem0_store)
    plan = next(plan for plan in plan_writes(pipeline.engine, SOURCE) if plan.keep is not None)
    mem0_store.connection.execute(f"UPDATE mem0 SET vector = {FOREIGN_VECTOR} WHERE id = %s", [plan.keep])
    result = write_all(pipeline)
    assert result.written == GROUPS - 1
    assert "the store's own search finds the successor worse" in result.refused[str(plan.id)]
    assert len(mem0_store.texts()) == GROUPS - 1 + WORDINGS


@pytest.mark.parametrize("after", ["intended", "committed"])
def test_write_that_was_cut_off_is_completed(
    mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    before = mem0_store.checksum()
    outcome = consolidate(pipeline, mem0_store)
    cut = "write_checked" if after == "intended" else "record_write"

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(write_back, cut, stop)
        with pytest.raises(KeyboardInterrupt):
            write_all(pipeline)
    assert count_writes(pipeline) == {"intended": 1}
    assert sync_source(pipeline.engine, SOURCE).gone == 0
    assert write_all(pipeline).refused == {}
    assert count_writes(pipeline)["written"] == GROUPS
    assert len(mem0_store.texts()) == GROUPS
    pipeline.roll_back(outcome.job_id)
    assert mem0_store.checksum() == before


def test_update_loads_no_settled_writes(mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    consolidate(pipeline, mem0_store)
    assert write_all(pipeline).written == GROUPS
    monkeypatch.setattr(recovery, "list_writes", lambda *_: pytest.fail("settled writes are loaded"))
    planned = []
    monkeypatch.setattr(write_plan, "list_writable", lambda *_: planned.append(1) or [])
    sync_source(pipeline.engine, SOURCE)
    write_source(pipeline.engine, SOURCE)
    assert len(planned) == 1


def test_rollback_needs_the_store(mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = consolidate(pipeline, mem0_store)
    write_all(pipeline)
    with monkeypatch.context() as patch:
        patch.setenv(URL_ENV, "postgresql://nobody:secret@127.0.0.1:1/none")
        with pytest.raises(StoreError, match=f"the database of {URL_ENV} cannot be reached") as error:
            pipeline.roll_back(outcome.job_id)
        assert "secret" not in str(error.value)
    assert count_writes(pipeline) == {"written": GROUPS}
    pipeline.roll_back(outcome.job_id)
    assert len(mem0_store.texts()) == GROUPS * WORDINGS


def test_row_written_again_by_its_program_is_a_conflict(mem0_store: Store, pipeline: Pipeline) -> None:
    outcome = consolidate(pipeline, mem0_store)
    hidden = next(iter(plan_writes(pipeline.engine, SOURCE))).hidden[0]
    row = mem0_store.connection.execute("SELECT vector, payload::text FROM mem0 WHERE id = %s", [hidden]).fetchone()
    assert row is not None
    write_all(pipeline)
    mem0_store.connection.execute("INSERT INTO mem0 VALUES (%s, %s, %s)", [hidden, *row])
    with pytest.raises(ConflictError, match="a hidden row was written again") as error:
        pipeline.roll_back(outcome.job_id)
    assert error.value.conflicts == (hidden,)
    assert count_writes(pipeline) == {"written": GROUPS}


def test_undo_keeps_a_column_that_was_added_since(mem0_store: Store, pipeline: Pipeline) -> None:
    listing = "SELECT id, vector::text, payload FROM mem0 ORDER BY id"
    before = mem0_store.connection.execute(listing).fetchall()
    outcome = consolidate(pipeline, mem0_store)
    write_all(pipeline)
    mem0_store.connection.execute("ALTER TABLE mem0 ADD COLUMN extra int NOT NULL DEFAULT 3")
    mem0_store.connection.execute("ALTER TABLE mem0_entities ADD COLUMN noted boolean")
    pipeline.roll_back(outcome.job_id)
    assert mem0_store.connection.execute(listing).fetchall() == before
    assert mem0_store.connection.execute("SELECT DISTINCT extra FROM mem0").fetchall() == [(3,)]


def test_new_row_goes_although_a_column_was_added(mem0_store: Store, pipeline: Pipeline) -> None:
    listing = "SELECT id, payload FROM mem0 ORDER BY id"
    mem0_store.add(PARTIAL)
    before = mem0_store.connection.execute(listing).fetchall()
    outcome = consolidate(pipeline, mem0_store)
    assert write_all(pipeline).inserted == 1
    mem0_store.connection.execute("ALTER TABLE mem0 ADD COLUMN extra int DEFAULT 3")
    pipeline.roll_back(outcome.job_id)
    assert mem0_store.connection.execute(listing).fetchall() == before


# By kind: the key of a row, what a library changes by itself, and an edit with its column.
_CHANGES: dict[str, tuple[str, list[str], str, str]] = {
    "mem0": (
        "id::text",
        [
            """UPDATE mem0 SET payload = payload || '{"updated_at": "2027-01-01", "hash": "1"}'""",
            """UPDATE mem0 SET payload = payload || '{"text_lemmatized": "other"}'""",
        ],
        """UPDATE mem0 SET payload = payload || '{"color": "red"}'""",
        "payload",
    ),
    "langgraph": (
        "jsonb_build_array(prefix, key)::text",
        ["UPDATE store SET updated_at = now(), expires_at = now()", "UPDATE store_vectors SET updated_at = now()"],
        "UPDATE store SET ttl_minutes = 3",
        "ttl_minutes",
    ),
    "agno": (
        "memory_id",
        ["UPDATE ai.agno_memories SET updated_at = updated_at + 1"],
        "UPDATE ai.agno_memories SET topics = '[]'",
        "topics",
    ),
    "claude_mem": (
        "id",
        ["UPDATE observations SET updated_at = now()"],
        "UPDATE observations SET kind = 'decision'",
        "kind",
    ),
}


def test_vectors_of_other_fields_stay_as_they_are(make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    store = make_store(LANGGRAPH)
    store.add(PARTIAL)
    store.connection.execute(
        "INSERT INTO store_vectors (prefix, key, field_name, embedding) SELECT prefix, key, 'author', "
        f"{FOREIGN_VECTOR.replace('vector::real', 'embedding::real')} FROM store_vectors"
    )
    before = store.checksum()
    outcome = consolidate(pipeline, store)
    assert pipeline.value("SELECT bool_and(embedding IS NOT NULL) FROM {s}.task_memories")
    result = write_all(pipeline)
    assert (result.inserted, result.refused) == (1, {})
    found = store.connection.execute(
        "SELECT field_name, embedding::text FROM store_vectors "
        f"WHERE jsonb_build_array(prefix, key)::text IN ({_INSERTED} AND table_name = 'store') ORDER BY 1"
    ).fetchall()
    assert [name for name, _ in found] == ["author", "content"]
    (united,) = [text for text in store.texts() if "laptops" in text]
    similar = "SELECT %s::vector <=> %s::vector < 0.001"
    ((is_of_text,),) = store.connection.execute(similar, [found[1][1], embed([united])[0]]).fetchall()
    assert is_of_text
    assert found[0][1] != found[1][1]
    pipeline.roll_back(outcome.job_id)
    assert store.checksum() == before


def test_no_row_stands_for_one_that_lives_longer(make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    store = make_store(LANGGRAPH)
    store.add(PARTIAL)
    consolidate(pipeline, store)
    planned = plan_writes(pipeline.engine, SOURCE)
    kept, other, *_ = (plan for plan in planned if plan.keep is not None)
    united = next(plan for plan in planned if plan.keep is None)
    live = (
        "UPDATE store SET ttl_minutes = %s, expires_at = now() + %s * interval '1 minute' "
        "WHERE jsonb_build_array(prefix, key)::text = ANY(%s)"
    )
    store.connection.execute(live, [60, 60, [kept.keep]])
    store.connection.execute(live, [60, 60, list(other.stamps)])
    store.connection.execute(live, [60, 60, list(united.stamps)[:1]])
    store.connection.execute(live, [90, 90, list(united.stamps)[1:]])
    result = write_all(pipeline)
    assert list(result.refused) == [str(kept.id)]
    assert "the row that stays has a shorter ttl_minutes than 2 rows" in result.refused[str(kept.id)]
    found = store.connection.execute(
        "SELECT ttl_minutes, expires_at > now() + interval '80 minutes' FROM store "
        f"WHERE jsonb_build_array(prefix, key)::text IN ({_INSERTED} AND table_name = 'store')"
    )
    assert found.fetchall() == [(90, True)]


@pytest.mark.parametrize("kind", [MEM0, LANGGRAPH, AGNO, CLAUDE_MEM], ids=lambda kind: kind.name)
def test_new_row_goes_if_its_library_touched_it(
    kind: Kind, make_store: Callable[[Kind], Store], pipeline: Pipeline
) -> None:
    store = make_store(kind)
    store.add(PARTIAL)
    before = store.checksum()
    outcome = consolidate(pipeline, store)
    assert write_all(pipeline).inserted == 1
    key, touches, _, _ = _CHANGES[kind.name]
    for statement in touches:
        assert store.connection.execute(f"{statement} WHERE {key} IN ({_INSERTED})").rowcount == 1
    pipeline.roll_back(outcome.job_id)
    assert store.checksum() == before


@pytest.mark.parametrize("kind", [MEM0, LANGGRAPH, AGNO, CLAUDE_MEM], ids=lambda kind: kind.name)
def test_new_row_that_was_edited_stays(kind: Kind, make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    store = make_store(kind)
    store.add(PARTIAL)
    outcome = consolidate(pipeline, store)
    assert write_all(pipeline).inserted == 1
    key, touches, edit, column = _CHANGES[kind.name]
    for statement in (*touches, edit):
        store.connection.execute(f"{statement} WHERE {key} IN ({_INSERTED})")
    edited = store.checksum()
    with pytest.raises(ConflictError, match=f"the new row was changed in {column}"):
        pipeline.roll_back(outcome.job_id)
    assert store.checksum() == edited


def test_rows_that_the_table_forbids_keep_no_other_hidden(
    make_store: Callable[[Kind], Store], pipeline: Pipeline
) -> None:
    store = make_store(NOTES)
    before = store.checksum()
    consolidate(pipeline, store)
    plan = plan_writes(pipeline.engine, SOURCE)[1]
    write_all(pipeline)
    forbid = f"ALTER TABLE app.notes ADD CONSTRAINT told CHECK (id <> {plan.hidden[0]})"
    store.connection.execute(forbid)
    conflicts = undo_writes(pipeline.engine, SOURCE)
    assert list(conflicts) == [plan.id]
    assert 'violates check constraint "told"' in conflicts[plan.id][0].reason
    assert len(store.texts()) == GROUPS * WORDINGS - len(plan.hidden)
    store.connection.execute("ALTER TABLE app.notes DROP CONSTRAINT told")
    assert undo_writes(pipeline.engine, SOURCE) == {}
    assert store.checksum() == before


def test_undo_is_refused_while_a_column_is_missing(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.connection.execute("ALTER TABLE mem0 ADD COLUMN title text")
    mem0_store.connection.execute("UPDATE mem0 SET title = 'Title of ' || id")
    count = len(mem0_store.texts())
    outcome = consolidate(pipeline, mem0_store)
    hidden = write_all(pipeline).hidden
    mem0_store.connection.execute("ALTER TABLE mem0 DROP COLUMN title, ADD COLUMN reviewer text")
    with pytest.raises(ConflictError, match="column title of type text was dropped: its rows cannot come back until"):
        pipeline.roll_back(outcome.job_id)
    assert len(mem0_store.texts()) == count - hidden
    mem0_store.connection.execute("ALTER TABLE mem0 ADD COLUMN title varchar(90)")
    words = r"title was of type text, and is of type character varying\(90\): its rows .* again, mem0; its program"
    with pytest.raises(ConflictError, match=words):
        pipeline.roll_back(outcome.job_id)
    mem0_store.connection.execute("ALTER TABLE mem0 ALTER COLUMN title TYPE text")
    pipeline.roll_back(outcome.job_id)
    assert len(mem0_store.texts()) == count
    told = "SELECT count(*), count(reviewer) FROM mem0 WHERE title = 'Title of ' || id"
    assert mem0_store.connection.execute(told).fetchone() == (hidden, 0)


def test_link_added_since_survives_the_undo(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    before = dict(mem0_store.connection.execute("SELECT id, payload FROM mem0_entities").fetchall())
    write_all(pipeline)
    mem0_store.connection.execute(
        "UPDATE mem0_entities SET payload = jsonb_set(payload, '{linked_memory_ids}', "
        "payload -> 'linked_memory_ids' || '[\"new\"]')"
    )
    assert undo_writes(pipeline.engine, SOURCE) == {}
    after = dict(mem0_store.connection.execute("SELECT id, payload FROM mem0_entities").fetchall())
    for id_, payload in after.items():
        assert sorted(payload["linked_memory_ids"]) == sorted([*before[id_]["linked_memory_ids"], "new"])


def test_links_have_their_order_after_any_undo(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    before = mem0_store.checksum()
    consolidate(pipeline, mem0_store)
    write_all(pipeline)
    with pipeline.engine.connect() as connection:
        source = get_source(connection, SOURCE)
        writes = list_writes(connection, source.id, ["written"])
    for write in reversed(writes):  # They are listed newest first.
        undo_writes(pipeline.engine, SOURCE, [write.memory_id])
    assert mem0_store.checksum() == before


@pytest.mark.parametrize("deletion", ["CASCADE", "SET NULL", "RESTRICT"])
def test_new_row_with_referring_rows_is_not_undone(mem0_store: Store, pipeline: Pipeline, deletion: str) -> None:
    mem0_store.add(PARTIAL)
    outcome = consolidate(pipeline, mem0_store)
    write_all(pipeline)
    written = mem0_store.checksum()
    mem0_store.connection.execute(f"CREATE TABLE likes (memory uuid REFERENCES mem0 (id) ON DELETE {deletion})")
    mem0_store.connection.execute("INSERT INTO likes SELECT id FROM mem0 WHERE payload ->> 'data' LIKE '%laptops%'")
    with pytest.raises(ConflictError, match="likes"):
        pipeline.roll_back(outcome.job_id)
    assert mem0_store.checksum() == written
    assert mem0_store.connection.execute("SELECT count(memory) FROM likes").fetchone() == (1,)
    mem0_store.connection.execute("DELETE FROM likes")
    pipeline.roll_back(outcome.job_id)


def test_automatic_write_leaves_most_of_a_scope(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    result = write_all(pipeline, max_share=0.2)
    assert (result.written, result.waiting) == (len(USERS), GROUPS - len(USERS))


def test_fresh_rows_are_left_alone(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    mem0_store.connection.execute(
        'UPDATE mem0 SET payload = payload || \'{"color": "red"}\' WHERE id = %s', [row_id("bob", word(FACTS[1], 0))]
    )
    assert sync_source(pipeline.engine, SOURCE).revised == 1
    pipeline.run(PROJECT)
    assert write_all(pipeline, quiet_seconds=600).written == GROUPS - 1
    assert write_all(pipeline, quiet_seconds=0).written == 1


def test_groups_with_fresh_rows_are_counted_as_waiting(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    mem0_store.connection.execute(
        'UPDATE mem0 SET payload = payload || \'{"color": "red"}\' WHERE id = %s', [row_id("bob", word(FACTS[1], 0))]
    )
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    assert write_all(pipeline, quiet_seconds=600).waiting == 1


def test_review_writes_named_groups_only(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, mode="review")
    pipeline.run(PROJECT)
    result = write_all(pipeline)
    assert (result.written, result.waiting) == (0, GROUPS)
    named = plan_writes(pipeline.engine, SOURCE)[0].memory_id
    assert write_all(pipeline, memory_ids=[named]).written == 1


def test_unknown_group_is_named(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    unknown = UUID("00000000-0000-0000-0000-000000000001")
    known = plan_writes(pipeline.engine, SOURCE)[0].memory_id
    with pytest.raises(NotFoundError, match=f"nothing is to be written to {SOURCE} for {unknown}"):
        write_all(pipeline, memory_ids=[known, unknown])
    assert count_writes(pipeline) == {}


@pytest.mark.slow
def test_locked_row_holds_up_its_group_only(mem0_store: Store, pipeline: Pipeline, store_url: str) -> None:
    consolidate(pipeline, mem0_store)
    plan = plan_writes(pipeline.engine, SOURCE)[0]
    with psycopg.connect(store_url) as other:
        other.execute("SELECT FROM mem0 WHERE id = %s FOR UPDATE", [plan.hidden[0]])
        result = write_all(pipeline)
    assert result.written == GROUPS - 1
    assert "another session" in result.refused[str(plan.id)]
    assert write_all(pipeline).written == 1


@pytest.mark.parametrize("deletion", ["CASCADE", "SET NULL"])
def test_rows_that_refer_to_a_memory_are_not_lost(mem0_store: Store, pipeline: Pipeline, deletion: str) -> None:
    mem0_store.connection.execute(f"CREATE TABLE likes (memory uuid REFERENCES mem0 (id) ON DELETE {deletion})")
    liked = [row_id("alice", word(FACTS[0], at)) for at in range(WORDINGS)]
    mem0_store.connection.execute("INSERT INTO likes SELECT unnest(%s::uuid[])", [liked])
    consolidate(pipeline, mem0_store)
    result = write_all(pipeline)
    assert (result.written, len(result.refused)) == (GROUPS - 1, 1)
    assert "rows of likes refer to its rows" in next(iter(result.refused.values()))
    assert mem0_store.connection.execute("SELECT count(memory) FROM likes").fetchone() == (WORDINGS,)


def test_wait_for_a_row_does_not_hold_up_the_program(mem0_store: Store, pipeline: Pipeline, store_url: str) -> None:
    consolidate(pipeline, mem0_store)
    plan = plan_writes(pipeline.engine, SOURCE)[0]
    first, *_, last = sorted(plan.stamps)
    with psycopg.connect(store_url) as slow, ThreadPoolExecutor(1) as pool:
        slow.execute("SELECT FROM mem0 WHERE id = %s FOR UPDATE", [last])
        writing = pool.submit(write_all, pipeline, memory_ids=[plan.memory_id])
        mem0_store.connection.execute("SET lock_timeout = '1s'")
        for _ in range(20):
            mem0_store.connection.execute("UPDATE mem0 SET payload = payload WHERE id = %s", [first])
            time.sleep(0.05)
        assert list(writing.result().refused) == [str(plan.id)]


def test_rows_come_back_if_the_rest_merges_again(mem0_store: Store, pipeline: Pipeline) -> None:
    """Their program edits the row that stood for two hidden ones, and a run merges these before the next write."""
    consolidate(pipeline, mem0_store)
    plan = next(each for each in plan_writes(pipeline.engine, SOURCE) if each.keep is not None)
    write_all(pipeline)
    mem0_store.connection.execute(
        'UPDATE mem0 SET payload = payload || \'{"data": "Something else entirely"}\' WHERE id = %s', [plan.keep]
    )
    assert sync_source(pipeline.engine, SOURCE).revised == 1
    pipeline.run(PROJECT)
    assert write_all(pipeline).restored == 1
    texts = mem0_store.texts()
    assert {plan.texts[key] for key in plan.hidden} & set(texts)
    assert "Something else entirely" in texts
    assert write_all(pipeline).restored == 0


def test_undo_without_images_is_a_conflict(mem0_store: Store, pipeline: Pipeline) -> None:
    outcome = consolidate(pipeline, mem0_store)
    write_all(pipeline)
    mem0_store.connection.execute("DELETE FROM consolidation_sidecar.writes")
    conflicts = undo_writes(pipeline.engine, SOURCE)
    assert len(conflicts) == GROUPS
    with pytest.raises(ConflictError, match="the images of a write are gone from the store"):
        pipeline.roll_back(outcome.job_id)
    assert disconnect_source(pipeline.engine, SOURCE, restore=False) == {}


def test_mirror_never_writes(mem0_store: Store, pipeline: Pipeline) -> None:
    before = mem0_store.checksum()
    connect(pipeline, mem0_store, mode="mirror")
    pipeline.run(PROJECT)
    with pytest.raises(UsageError, match="mode mirror"):
        write_all(pipeline)
    assert mem0_store.checksum() == before
    assert sidecar.find_version(mem0_store.connection) is None


def test_store_is_restored_without_our_database(any_store: Store, pipeline: Pipeline) -> None:
    before = any_store.checksum()
    consolidate(pipeline, any_store)
    write_all(pipeline)
    assert any_store.checksum() != before
    assert restore_store(URL_ENV) == {}
    assert any_store.checksum() == before
    assert sidecar.find_version(any_store.connection) is None


def restore_by_sql(store: Store) -> list[str]:
    """Execute the statement of docs/connect.md; return what it tells."""
    page = (PROJECT_ROOT / "docs" / "connect.md").read_text()
    told: list[str] = []

    def add(notice: psycopg.errors.Diagnostic) -> None:
        told.append(notice.message_primary or "")

    store.connection.add_notice_handler(add)
    store.connection.execute(page.partition("```sql\n")[2].partition("```")[0])
    store.connection.remove_notice_handler(add)
    return told


def test_rows_come_back_by_sql_alone(any_store: Store, pipeline: Pipeline) -> None:
    any_store.add(PARTIAL)
    before = any_store.checksum()
    consolidate(pipeline, any_store)
    write_all(pipeline)
    assert any_store.checksum() != before
    assert restore_by_sql(any_store) == []
    assert any_store.checksum() == before
    assert restore_by_sql(any_store) == []
    assert restore_store(URL_ENV) == {}
    assert sidecar.find_version(any_store.connection) is None


def test_row_is_not_hidden_for_an_edited_copy(
    make_store: Callable[[Kind], Store], pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(AGNO)
    store.add([("alice", "Lunch is at noon"), ("alice", "The printer on floor two is out of paper")])
    connect(pipeline, store)
    copy = pipeline.value("SELECT id FROM {s}.task_memories WHERE execution_summary LIKE 'The printer%'")
    edit = {"content": "Lunch is at noon!"}
    with pytest.raises(ConflictError, match=f"memory {copy} is the copy of row .* of source shop: change the row in"):
        edit_memory(pipeline.engine, copy, edit, changed_by="tester")
    assert edit_memory(pipeline.engine, copy, {"tags": ["office"]}, changed_by="tester").changed == ["tags"]
    with monkeypatch.context() as patch:  # As earlier versions allowed it.
        patch.setattr(memory_edits, "_reject_mirrored", lambda *_: None)
        group = edit_memory(pipeline.engine, copy, edit, changed_by="tester").group_id
    pipeline.run(PROJECT)
    (plan,) = [one for one in plan_writes(pipeline.engine, SOURCE) if "Lunch is at noon" in one.text]
    before = store.checksum()
    outcome = rehearse_writes(pipeline.engine, SOURCE, [plan])[plan.memory_id]
    result = write_all(pipeline, memory_ids=[plan.memory_id])
    assert (result.written, list(result.refused.values())) == (0, [outcome.refusal])
    assert outcome.refusal is not None
    assert "was edited here, and the store has another text: undo the edit" in outcome.refusal
    assert store.checksum() == before
    assert group is not None
    pipeline.roll_back(group, cascade=True)
    assert write_all(pipeline).refused == {}


@pytest.mark.parametrize("way", ["rollback", "sql"])
def test_settings_of_the_user_lose_no_digits(make_store: Callable[[Kind], Store], pipeline: Pipeline, way: str) -> None:
    store = make_store(NOTES)
    store.connection.execute(
        "ALTER TABLE app.notes ADD COLUMN worth float8 DEFAULT random() / 3, ADD COLUMN day date DEFAULT '2026-02-03'"
    )
    name = store.connection.info.dbname
    for setting in ("extra_float_digits = 0", "datestyle = 'SQL, DMY'", "intervalstyle = 'sql_standard'"):
        store.connection.execute(f"ALTER DATABASE {name} SET {setting}")
    before = store.checksum()
    outcome = consolidate(pipeline, store)
    assert write_all(pipeline).written == GROUPS
    if way == "rollback":
        pipeline.roll_back(outcome.job_id)
    else:
        restore_by_sql(store)
    assert store.checksum() == before


def test_sql_alone_leaves_changed_rows(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    consolidate(pipeline, mem0_store)
    assert write_all(pipeline).inserted == 1
    mem0_store.connection.execute(
        f"UPDATE mem0 SET payload = payload || '{{\"a\": 1}}' WHERE id::text IN ({_INSERTED})"
    )
    (told,) = restore_by_sql(mem0_store)
    assert told.endswith("of mem0 was changed since, and stays as it is")
    assert len(mem0_store.texts()) == GROUPS * WORDINGS + len(PARTIAL) + 1


def test_disconnect_removes_every_trace(mem0_store: Store, pipeline: Pipeline) -> None:
    before = mem0_store.checksum()
    consolidate(pipeline, mem0_store)
    write_all(pipeline)
    assert disconnect_source(pipeline.engine, SOURCE, restore=True) == {}
    assert mem0_store.checksum() == before
    assert sidecar.find_version(mem0_store.connection) is None
    triggers = mem0_store.connection.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone()
    assert triggers == (0,)


def test_store_without_vectors_keeps_rows_only(make_store: Any, pipeline: Pipeline) -> None:
    store = make_store(AGNO)
    store.add(PARTIAL)
    consolidate(pipeline, store)
    result = write_all(pipeline)
    assert (result.written, result.inserted) == (GROUPS + 1, 1)
