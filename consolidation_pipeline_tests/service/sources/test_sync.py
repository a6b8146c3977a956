"""Copies of connected stores, and what changes in them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from consolidation_pipeline.connect.watch import Outbox, read_outbox
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.intake.agent_memories import add_memories
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.sources import sync, synced_vectors
from consolidation_pipeline.service.sources.connections import connect_source, disconnect_source
from consolidation_pipeline.service.sources.recovery import hold_source
from consolidation_pipeline.service.sources.store_vectors import StoreEmbedder
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import plan_restores, plan_writes
from consolidation_pipeline.store.checks.sources import EVERY_ROW_HAS_A_MEMORY
from consolidation_pipeline.store.memories.memories import append_memories
from consolidation_pipeline.store.sources.sources import get_source
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import (
    PROJECT,
    SOURCE,
    URL_ENV,
    connect,
    consolidate,
    load_texts,
)
from consolidation_pipeline_tests.service.sources.stores import (
    FACTS,
    USERS,
    WORDINGS,
    Store,
    all_wordings,
    row_id,
    word,
)

ROWS = len(all_wordings())
# Two rows that may be merged, each with a detail of its own: a new row unites them.
PARTIAL = (
    ("alice", "The parser tests need the fixture folder mounted read-only and a fresh cache to pass on the machine"),
    ("alice", "The parser tests need the fixture folder mounted read-only to pass on the machine and on laptops"),
)


def edit(store: Store, key: str, body: str) -> None:
    store.connection.execute(
        "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', to_jsonb(%s::text)) WHERE id = %s", [body, key]
    )


def test_rows_become_memories_of_their_scopes(any_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, any_store)
    assert load_texts(pipeline) == sorted(body for _, body in all_wordings())
    key = "coalesce(user_id, metadata ->> 'project_id', metadata ->> 'archive_id')"
    assert pipeline.value(f"SELECT count(DISTINCT {key}) FROM {{s}}.task_memories") == 2
    vectors = pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE embedding IS NOT NULL")
    assert vectors == (0 if "embedding_model" not in any_store.kind.config else ROWS)
    pipeline.run(PROJECT)
    mixed = pipeline.value(
        f"SELECT count(*) FROM {{s}}.consolidated_memories m WHERE kind = 'merged' AND (SELECT count(DISTINCT {key}) "
        "FROM {s}.task_memories t WHERE t.id = ANY (m.source_memory_ids)) > 1"
    )
    assert mixed == 0


def test_vectors_are_saved_in_several_transactions(
    mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synced_vectors, "_FEWEST_SAVED", 1)
    connect(pipeline, mem0_store)
    saved = "SELECT count(*), count(DISTINCT m.xmin::text) FROM {s}.task_memories m WHERE embedding IS NOT NULL"
    assert [tuple(row) for row in pipeline.rows(saved)] == [(ROWS, 2)]
    theirs = dict(mem0_store.connection.execute("SELECT payload ->> 'data', vector::text FROM mem0").fetchall())
    ours = pipeline.rows("SELECT execution_summary, embedding::text FROM {s}.task_memories")
    cosine = "SELECT 1 - (CAST(:a AS vector) <=> CAST(:b AS vector))"
    assert all(pipeline.value(cosine, a=theirs[body], b=vector) > 0.9999 for body, vector in ours)


def test_rows_that_say_the_same_need_no_model(
    mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of the vectors is looked for only if some are to be taken along."""
    connect(pipeline, mem0_store)
    mem0_store.connection.execute('UPDATE mem0 SET payload = payload || \'{"updated_at": "2027-01-01"}\'')
    monkeypatch.setattr(StoreEmbedder, "check", lambda *_: pytest.fail("rows were embedded"))
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.read, result.unchanged) == (ROWS, ROWS)


def test_rows_of_an_earlier_connection_are_told(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    disconnect_source(pipeline.engine, SOURCE, restore=True)
    config = {**mem0_store.kind.config, "url_env": URL_ENV}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.unchanged) == (0, ROWS)


@pytest.mark.parametrize("mode", ["mirror", "write"])
def test_second_sync_changes_nothing(mem0_store: Store, pipeline: Pipeline, mode: str) -> None:
    connect(pipeline, mem0_store, mode)
    assert pipeline.value("SELECT (last_sync ->> 'read')::int FROM {s}.sources") == ROWS
    again = sync_source(pipeline.engine, SOURCE)
    assert (again.added, again.revised, again.gone) == (0, 0, 0)
    assert again.read == (ROWS if mode == "mirror" else 0)


@pytest.mark.parametrize("mode", ["mirror", "write"])
def test_changes_of_the_program_arrive(mem0_store: Store, pipeline: Pipeline, mode: str) -> None:
    connect(pipeline, mem0_store, mode)
    edited, deleted = (row_id("alice", word(FACTS[0], at)) for at in (0, 1))
    edit(mem0_store, edited, "The billing service has no migrations any more")
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [deleted])
    mem0_store.add([("bob", "Lunch is at noon")])
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.revised, result.gone) == (1, 1, 1)
    texts = load_texts(pipeline)
    assert len(texts) == ROWS
    assert {"The billing service has no migrations any more", "Lunch is at noon"} <= set(texts)


def test_late_commit_is_not_missed(mem0_store: Store, store_url: str, pipeline: Pipeline) -> None:
    """A transaction that began before a sync and commits after it."""
    import psycopg

    connect(pipeline, mem0_store)
    with psycopg.connect(store_url) as late:
        late.execute(
            'INSERT INTO mem0 SELECT gen_random_uuid(), vector, payload || \'{"data": "late"}\' FROM mem0 LIMIT 1'
        )
        mem0_store.add([("bob", "early")])
        sync_source(pipeline.engine, SOURCE)
        late.commit()
    sync_source(pipeline.engine, SOURCE)
    assert {"late", "early"} <= set(load_texts(pipeline))


def test_memory_with_the_id_of_a_row_is_not_taken_for_it(mem0_store: Store, pipeline: Pipeline) -> None:
    ours, theirs, stale = (row_id("alice", word(FACTS[0], at)) for at in range(3))
    project = ensure_project(pipeline.engine, PROJECT, {"scope": "user_id,agent_id,session_id"})
    rows = [
        (ours, {"content": word(FACTS[0], 0), "user_id": "alice"}),
        (theirs, {"content": "Planted by bob", "user_id": "bob"}),
        (stale, {"content": "An older text", "user_id": "alice"}),
    ]
    memories = [(line, parse_memory({"id": key, **row}, source=SOURCE)) for line, (key, row) in enumerate(rows)]
    with pipeline.engine.begin() as connection:
        append_memories(connection, project.id, PROJECT, memories)
    connect(pipeline, mem0_store)
    assert load_texts(pipeline) == sorted([*(body for _, body in all_wordings()), "Planted by bob"])
    planted = pipeline.value(
        "SELECT id FROM {s}.task_memories WHERE user_id = 'bob' AND external_id = :key", key=theirs
    )
    assert pipeline.value("SELECT count(*) FROM {s}.source_rows WHERE memory_id = :id", id=planted) == 0
    assert pipeline.value("SELECT count(*) FROM {s}.source_rows") == ROWS


def test_rows_get_the_language_of_their_text(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.connection.execute(
        "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', to_jsonb('Die Rechnung kam am Montag.'::text)) "
        "WHERE id = (SELECT id FROM mem0 ORDER BY id LIMIT 1)"
    )
    connect(pipeline, mem0_store)
    found = pipeline.rows("SELECT language::text, count(*) FROM {s}.task_memories GROUP BY 1 ORDER BY 1")
    assert found == [("english", ROWS - 1), ("german", 1)]


def test_source_name_is_reserved_for_its_sync(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    rows = [{"content": "Planted", "source": SOURCE, "user_id": "alice"}, {"content": "Mine", "user_id": "alice"}]
    added = add_memories(pipeline.engine, PROJECT, rows, source="api", changed_by="bot", writer="bot")
    assert len(added.added) == 1
    assert [(at, f"source is '{SOURCE}'" in reason) for at, reason in added.errors] == [(0, True)]
    other = ensure_project(pipeline.engine, "elsewhere").slug
    assert not add_memories(pipeline.engine, other, rows, source="api", changed_by="bot").errors


def test_source_of_single_memories_is_no_store(mem0_store: Store, pipeline: Pipeline) -> None:
    config = {**mem0_store.kind.config, "url_env": URL_ENV}
    with pytest.raises(UsageError, match="cannot be named api"):
        connect_source(pipeline.engine, "api", project=PROJECT, config=config)


def test_row_that_comes_back_is_a_new_memory(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    body = word(FACTS[0], 0)
    for _ in range(3):
        mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [row_id("alice", body)])
        sync_source(pipeline.engine, SOURCE)
        mem0_store.add([("alice", body)])
        assert sync_source(pipeline.engine, SOURCE).added == 1
    assert load_texts(pipeline).count(body) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_row_that_came_back_is_mirrored_after_a_new_connection(
    mem0_store: Store, pipeline: Pipeline, times: int
) -> None:
    connect(pipeline, mem0_store, "mirror")
    body, other = word(FACTS[0], 0), word(FACTS[1], 0)
    for _ in range(times):
        mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [row_id("alice", body)])
        sync_source(pipeline.engine, SOURCE)
        mem0_store.add([("alice", body)])
        sync_source(pipeline.engine, SOURCE)
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [row_id("bob", other)])
    sync_source(pipeline.engine, SOURCE)
    disconnect_source(pipeline.engine, SOURCE, restore=False)
    mem0_store.add([("bob", other)])
    connect(pipeline, mem0_store, "mirror")
    assert len(load_texts(pipeline)) == ROWS
    query = (
        "SELECT count(*) FROM {s}.source_rows r JOIN {s}.task_memories t ON t.id = r.memory_id "
        "WHERE r.state = 'mirrored' AND t.archived_at IS NULL"
    )
    assert pipeline.value(query) == ROWS


def test_row_changed_while_disconnected_is_revised(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    disconnect_source(pipeline.engine, SOURCE, restore=False)
    edit(mem0_store, row_id("alice", word(FACTS[0], 0)), "The billing service has no migrations any more")
    connect(pipeline, mem0_store, "mirror")
    texts = load_texts(pipeline)
    assert (len(texts), "The billing service has no migrations any more" in texts) == (ROWS, True)


@pytest.mark.parametrize("mode", ["mirror", "review"])
def test_undone_revision_is_made_again(mem0_store: Store, pipeline: Pipeline, mode: str) -> None:
    connect(pipeline, mem0_store, mode)
    edit(mem0_store, row_id("alice", word(FACTS[0], 0)), "The billing service has no migrations any more")
    sync_source(pipeline.engine, SOURCE)
    group = pipeline.value("SELECT group_id FROM {s}.consolidation_changes WHERE operation = 'edit' LIMIT 1")
    pipeline.roll_back(group)
    assert "The billing service has no migrations any more" not in load_texts(pipeline)
    mem0_store.connection.execute("DELETE FROM consolidation_sidecar.watched" if mode == "review" else "SELECT 1")
    assert sync_source(pipeline.engine, SOURCE).revised == 1
    assert "The billing service has no migrations any more" in load_texts(pipeline)
    assert sync_source(pipeline.engine, SOURCE).revised == 0


def test_row_without_legal_text_is_refused_and_named(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add([("alice", "x" * 200_001)])
    connect(pipeline, mem0_store)
    row = pipeline.rows("SELECT key, reason FROM {s}.source_rows WHERE state = 'refused'")
    assert len(row) == 1
    assert "characters" in row[0].reason
    key = row[0].key
    edit(mem0_store, key, "Short enough")
    assert sync_source(pipeline.engine, SOURCE).added == 1
    assert "Short enough" in load_texts(pipeline)


def test_two_syncs_at_once_are_refused(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    with pipeline.engine.connect() as connection:
        source = get_source(connection, SOURCE)
    with (
        hold_source(pipeline.engine, source),
        pytest.raises(ConflictError, match="another sync, write or undo of source shop"),
    ):
        sync_source(pipeline.engine, SOURCE)


def test_sync_that_was_cut_off_is_completed(
    mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(pipeline, mem0_store)
    edit(mem0_store, row_id("alice", word(FACTS[0], 0)), "Edited")
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [row_id("bob", word(FACTS[0], 0))])

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for cut in ("save_row_states", "save_sync"):
        with monkeypatch.context() as patch:
            patch.setattr(sync, cut, stop)
            with pytest.raises(KeyboardInterrupt):
                sync_source(pipeline.engine, SOURCE)
    sync_source(pipeline.engine, SOURCE)
    assert "Edited" in load_texts(pipeline)
    assert len(load_texts(pipeline)) == ROWS - 1
    assert read_outbox(mem0_store.connection, "mem0") == Outbox([], [], [], None)


def test_deleted_stand_in_takes_its_group_along(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    plan = next(each for each in plan_writes(pipeline.engine, SOURCE) if each.keep is not None)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [plan.keep])
    assert sync_source(pipeline.engine, SOURCE).gone == 1
    active = pipeline.value(
        "SELECT count(*) FROM {s}.task_memories t JOIN {s}.source_rows r ON r.memory_id = t.id "
        "WHERE r.key = ANY(:keys) AND t.archived_at IS NULL",
        keys=list(plan.stamps),
    )
    assert active == 0
    assert len(mem0_store.texts()) == 7


@pytest.mark.parametrize("syncs", [1, 2])
@pytest.mark.parametrize("is_added", [False, True])
def test_deleted_stand_in_of_a_dissolved_merge(
    mem0_store: Store, pipeline: Pipeline, syncs: int, is_added: bool
) -> None:
    """A hidden key that is there again dissolves the merge; nothing may wait for the deleted row afterwards."""
    if is_added:
        mem0_store.add(PARTIAL)
    consolidate(pipeline, mem0_store)
    plans = plan_writes(pipeline.engine, SOURCE)
    plan = next(each for each in plans if (each.keep is None) == is_added)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    stand_in = plan.keep or pipeline.value("SELECT key FROM {s}.source_rows WHERE state = 'successor'")
    again, *others = [key for key in plan.stamps if key != plan.keep]
    mem0_store.connection.execute(
        "INSERT INTO mem0 SELECT %s, vector, jsonb_set(payload, '{data}', '\"Trains leave at six\"') FROM mem0 "
        "WHERE id = %s",
        [again, stand_in],
    )
    if syncs == 2:
        sync_source(pipeline.engine, SOURCE)
        assert len(plan_restores(pipeline.engine, SOURCE)) == 1
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [stand_in])
    assert sync_source(pipeline.engine, SOURCE).gone == 1
    assert plan_restores(pipeline.engine, SOURCE) == []
    assert "Trains leave at six" in load_texts(pipeline)
    active = "SELECT count(*) FROM {s}.task_memories t JOIN {s}.source_rows r ON r.memory_id = t.id "
    active += "WHERE r.key = ANY(:keys) AND t.archived_at IS NULL"
    assert pipeline.value(active, keys=[*others, plan.keep]) == 0
    assert sync_source(pipeline.engine, SOURCE).is_change is False


def test_deleted_stand_in_leaves_rows_that_are_shown(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    plans = plan_writes(pipeline.engine, SOURCE)
    plan = next(each for each in plans if FACTS[0] in each.texts.values())
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    mem0_store.add([(user, f"{FACTS[0]}!") for user in USERS])
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [plan.keep])
    assert sync_source(pipeline.engine, SOURCE).gone == 1
    assert load_texts(pipeline).count(f"{FACTS[0]}!") == len(USERS)
    assert len(load_texts(pipeline)) == ROWS + len(USERS) - WORDINGS


def test_edited_stand_in_brings_the_others_back(mem0_store: Store, pipeline: Pipeline) -> None:
    """The merged memory says what its program does not want any more, so its sources are separate again."""
    consolidate(pipeline, mem0_store)
    plan = next(each for each in plan_writes(pipeline.engine, SOURCE) if each.keep is not None)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert plan.keep is not None
    edit(mem0_store, plan.keep, "Something else entirely")
    assert sync_source(pipeline.engine, SOURCE).revised == 1
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    texts = mem0_store.texts()
    assert set(plan.texts.values()) - {plan.texts[plan.keep]} <= set(texts)
    assert "Something else entirely" in texts


def test_edited_new_row_is_a_memory_of_its_own(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    consolidate(pipeline, mem0_store)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).inserted == 1
    key = pipeline.value("SELECT key FROM {s}.source_rows WHERE state = 'successor'")
    edit(mem0_store, key, "Trains leave at six")
    assert sync_source(pipeline.engine, SOURCE).added == 1
    assert [text for text in load_texts(pipeline) if "parser" in text or "Trains" in text] == ["Trains leave at six"]
    assert sync_source(pipeline.engine, SOURCE).is_change is False


def test_new_row_and_a_hidden_one_change_before_one_sync(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    consolidate(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    key = pipeline.value("SELECT key FROM {s}.source_rows WHERE state = 'successor'")
    mem0_store.add(PARTIAL[:1])
    edit(mem0_store, row_id(*PARTIAL[0]), "Boats are blue")
    edit(mem0_store, key, "Trains leave at six")
    assert sync_source(pipeline.engine, SOURCE).added == 2
    assert {"Boats are blue", "Trains leave at six"} < set(load_texts(pipeline))
    assert sync_source(pipeline.engine, SOURCE).is_change is False


def test_new_row_may_be_hidden_by_a_later_write(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.add(PARTIAL)
    before = mem0_store.checksum()
    consolidate(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    state = "SELECT key FROM {s}.source_rows WHERE state = 'successor'"
    key, copy = pipeline.value(state), "00000000-0000-0000-0000-000000000001"
    mem0_store.connection.execute("INSERT INTO mem0 SELECT %s, vector, payload FROM mem0 WHERE id = %s", [copy, key])
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    assert [one.hidden for one in plan_writes(pipeline.engine, SOURCE)] == [[key]]
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    with pipeline.engine.connect() as connection:
        assert EVERY_ROW_HAS_A_MEMORY.find(connection, pipeline.project(PROJECT).id) == []
    assert undo_writes(pipeline.engine, SOURCE) == {}
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [copy])
    assert mem0_store.checksum() == before
    assert sync_source(pipeline.engine, SOURCE).gone == 1
    with pipeline.engine.connect() as connection:
        assert EVERY_ROW_HAS_A_MEMORY.find(connection, pipeline.project(PROJECT).id) == []


def test_restated_fact_is_absorbed(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    before = mem0_store.texts()
    restated = f"{FACTS[0]}!"
    mem0_store.add([("alice", restated)])
    assert sync_source(pipeline.engine, SOURCE).added == 1
    pipeline.run(PROJECT)
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert (result.written, result.hidden) == (1, 1)
    assert len(mem0_store.texts()) == len(before)


def test_source_is_deleted_with_its_project(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    with pipeline.engine.begin() as connection:
        connection.execute(text("DELETE FROM consolidation.projects"))
    assert pipeline.value("SELECT count(*) FROM {s}.source_rows") == 0


def test_why_vectors_are_left_out_is_told_once(mem0_store: Store, pipeline: Pipeline) -> None:
    config = {**mem0_store.kind.config, "url_env": URL_ENV, "embedding_model": None}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    (note,) = sync_source(pipeline.engine, SOURCE).notes
    assert "of a model that --embedding-model does not name, the project's of local" in note
    mem0_store.add([("ann", "Deploys need an approval.")])
    assert sync_source(pipeline.engine, SOURCE).notes == ()


@pytest.mark.parametrize("value", ["'[1,2,3]'", "(SELECT array_agg(-v)::vector FROM unnest(vector::real[]) v)"])
@pytest.mark.parametrize("share", ["", " WHERE payload ->> 'user_id' = 'alice'"])
def test_vectors_of_another_model_are_left_out(mem0_store: Store, pipeline: Pipeline, value: str, share: str) -> None:
    mem0_store.connection.execute("DROP INDEX mem0_vector_idx; ALTER TABLE mem0 ALTER COLUMN vector TYPE vector")
    mem0_store.connection.execute(f"UPDATE mem0 SET vector = {value}{share}")
    config = {**mem0_store.kind.config, "url_env": URL_ENV}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.with_vectors) == (len(all_wordings()), 0)
    (note,) = result.notes
    assert note.startswith(f"vectors of {result.added} rows are made anew, not taken along: wordllama")
    pipeline.run(PROJECT)
    assert len(plan_writes(pipeline.engine, SOURCE)) == len(FACTS) * len(USERS)


def test_vectors_are_left_out_when_the_model_changes(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    mem0_store.add([("ann", "Deploys need an approval."), ("ann", "Backups run at night.")])
    mem0_store.connection.execute(
        "UPDATE mem0 SET vector = (SELECT array_agg(-v)::vector FROM unnest(vector::real[]) v) "
        "WHERE payload ->> 'user_id' = 'ann'"
    )
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.with_vectors) == (2, 0)
    (note,) = result.notes
    assert note.startswith("vectors of 2 rows are made anew, not taken along: wordllama")
    mem0_store.add([("ben", "Invoices are printed in Riga.")])
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.with_vectors, result.notes) == (1, 1, ())


@pytest.mark.parametrize("mode", ["mirror", "review"])
def test_keys_that_rows_share_are_not_copied(mem0_store: Store, pipeline: Pipeline, mode: str) -> None:
    store = mem0_store.connection
    store.execute(
        "CREATE TABLE seats (id int, body text);"
        "INSERT INTO seats VALUES (1, 'Seat one is by the window'), (2, 'Seat two is by the door')"
    )
    config = {"kind": "table", "url_env": URL_ENV, "table": "seats", "key": ["id"], "text": "body"}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode=mode)
    assert sync_source(pipeline.engine, SOURCE).added == 2
    store.execute("INSERT INTO seats VALUES (2, 'Seat two was sold'), (3, 'Seat three is broken')")
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.revised, result.gone, result.refused) == (1, 0, 0, 2)
    (note,) = [note for note in result.notes if "key" in note]
    assert note.startswith("1 key is of several rows, for example 2 of 2: none of these rows is copied")
    texts = "SELECT execution_summary AS body FROM {s}.task_memories WHERE archived_at IS NULL"
    assert "Seat two is by the door" in {row.body for row in pipeline.rows(texts)}
    store.execute("DELETE FROM seats WHERE body = 'Seat two is by the door'")
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.revised, result.refused) == (1, 0)
    assert "Seat two was sold" in {row.body for row in pipeline.rows(texts)}


def test_shared_keys_are_not_copied_first(mem0_store: Store, pipeline: Pipeline) -> None:
    store = mem0_store.connection
    store.execute("CREATE TABLE seats AS SELECT 7 AS id, 'Seat seven squeaks' AS body")
    config = {"kind": "table", "url_env": URL_ENV, "table": "seats", "key": ["id"], "text": "body"}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    store.execute("INSERT INTO seats VALUES (7, 'Seat seven was oiled'), (8, 'Seat eight is new')")
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.refused) == (1, 2)
