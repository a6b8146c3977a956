"""Connection of stores: what is found, and what is refused in words."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.watch import is_watched
from consolidation_pipeline.errors import (
    ConflictError,
    InvalidMemoryError,
    InvalidOptionError,
    NotFoundError,
    StoreError,
    UsageError,
)
from consolidation_pipeline.service.admin.projects import configure_project
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.shadow.shadows import run_shadow
from consolidation_pipeline.service.sources.connections import (
    connect_source,
    disconnect_source,
    ensure_connected,
    forget_source,
    list_connected,
    probe_source,
    restore_store,
    set_mode,
)
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import plan_writes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV, connect, consolidate
from consolidation_pipeline_tests.service.sources.stores import LANGGRAPH, NOTES, Kind, Store, all_wordings, row_id

CONFIG = {"kind": "mem0", "url_env": URL_ENV}
NOTES_CONFIG = {**NOTES.config, "url_env": URL_ENV}


@pytest.fixture
def reader_env(store_url: str, mem0_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Variable with the URL of a user who may only read the collection."""
    store = mem0_store.connection
    store.execute("CREATE ROLE reader LOGIN PASSWORD 'reads'")
    store.execute("GRANT SELECT ON mem0, mem0_entities TO reader")
    url = make_url(store_url).set(username="reader", password="reads", drivername="postgresql")
    monkeypatch.setenv("READER_URL", url.render_as_string(hide_password=False))
    yield "READER_URL"
    store.execute("DROP OWNED BY reader")
    store.execute("DROP ROLE reader")


def test_probe_tells_what_is_there(any_store: Store) -> None:
    found = probe_source({**any_store.kind.config, "url_env": URL_ENV})
    assert (found.kind, found.memories, found.scopes) == (any_store.kind.name, len(all_wordings()), 2)
    assert found.dimension == {"agno": None, "claude_mem": None, "letta": 4096}.get(found.kind, 256)
    assert found.rights.write
    assert sidecar.find_version(any_store.connection) is None


def test_keys_with_a_meaning_are_no_memories(make_store: Callable[[Kind], Store]) -> None:
    store = make_store(LANGGRAPH)
    store.connection.execute(
        "INSERT INTO store (prefix, key, value) VALUES ('memories.alice', 'profile', '{\"content\": \"x\"}')"
    )
    found = probe_source({**LANGGRAPH.config, "url_env": URL_ENV})
    assert (found.memories, found.skipped) == (len(all_wordings()), 1)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "mem1", "url_env": URL_ENV}, "there is no kind of store 'mem1'; kinds: mem0,"),
        ({"kind": "notes", "path": "/notes"}, "there is no kind of store 'notes'; kinds: mem0,"),
        ({"kind": "mem0", "url_env": "postgresql://a:b@c/d"}, "url_env is not the name of an environment variable"),
        ({"kind": "mem0", "url_env": "NO_SUCH_URL"}, "the variable NO_SUCH_URL is not set"),
        ({"kind": "mem0", "url_env": URL_ENV, "color": "red"}, "color of the source"),
        ({**CONFIG, "path": "/notes"}, "path does not apply to mem0: give it with the kind folder"),
        ({**CONFIG, "table": "memoirs"}, "table memoirs does not exist"),
        ({**CONFIG, "table": '"Mem0"'}, "not see it; there is mem0: give names as they are, without quotes"),
        ({**CONFIG, "vector": "v"}, "vector is known for mem0"),
        ({**CONFIG, "text": "v"}, "text is known for mem0"),
        ({**CONFIG, "scope": {"team": "x"}}, "mem0 has no scope team"),
        ({"kind": "table", "url_env": URL_ENV, "table": "mem0"}, "key is missing"),
        ({**NOTES_CONFIG, "table": "mem0"}, "table mem0 has no column body, tenant, at: it has id, vector, payload"),
        ({**CONFIG, "kind": "table", "table": "mem0", "key": ["id"], "text": ""}, "text is missing"),
        ({**CONFIG, "kind": "table", "table": "mem0", "key": ["id"], "text": "a..b"}, "cannot be read"),
        ({**CONFIG, "kind": "table", "table": "mem0", "key": ["id"], "text": "payload.none"}, "none of the 24 rows"),
        (
            {**CONFIG, "kind": "table", "table": "mem0", "key": ["id"], "text": "payload.data", "vector": "payload"},
            "mem0.payload is of type jsonb",
        ),
        (
            {**CONFIG, "kind": "table", "table": "mem0", "key": ["id"], "text": "payload.data", "scope": {"x": "id"}},
            "scope 'x' is not one of user_id",
        ),
    ],
)
def test_wrong_configurations_are_refused(mem0_store: Store, config: dict[str, Any], words: str) -> None:
    before = mem0_store.checksum()
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        probe_source(config)
    assert mem0_store.checksum() == before


def test_unknown_memory_type_is_refused(mem0_store: Store) -> None:
    del mem0_store
    with pytest.raises(InvalidMemoryError, match="memory_type is 'poem'"):
        probe_source({**CONFIG, "memory_type": "poem"})


def test_empty_table_is_refused(mem0_store: Store) -> None:
    mem0_store.connection.execute("TRUNCATE mem0")
    with pytest.raises(UsageError, match="table mem0 is empty"):
        probe_source(CONFIG)


def test_unreachable_database_is_named_without_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_ENV, "postgresql://me:secret@127.0.0.1:1/x")
    with pytest.raises(StoreError, match=f"the database of {URL_ENV} cannot be reached") as error:
        probe_source(CONFIG)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "value",
    ["sk-hidden", "http://me:hidden@host/x", "postgresql://me:%hidden@host/x", "postgresql://host/x?hidden=1"]
    + [f"postgresql://me:{password}@127.0.0.1:1/x" for password in ("a@hidden", "a/hidden", "1/hidden@x")],
)
def test_variable_without_url_is_not_repeated(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(URL_ENV, value)
    with pytest.raises(UsageError, match=URL_ENV) as error:
        probe_source(CONFIG)
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize("name", ["postgresql://me:hidden@host/x", "host=h password=hidden"])
def test_url_in_place_of_a_variable_is_not_repeated(name: str) -> None:
    for refused in (lambda: probe_source({**CONFIG, "url_env": name}), lambda: restore_store(name)):
        with pytest.raises(UsageError, match="is not the name of an environment variable") as error:
            refused()
        assert "hidden" not in str(error.value)


def test_empty_variable_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_ENV, "")
    with pytest.raises(UsageError, match=f"the variable {URL_ENV} is empty"):
        probe_source(CONFIG)


def test_difference_of_a_declared_source_is_named(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    config = {**CONFIG, "embedding_model": "local", "memory_type": "user_preference", "table": "mem0_old"}
    words = "with table = default, not mem0_old; memory_type = default, not user_preference: disconnect it"
    with pytest.raises(ConflictError, match=words):
        ensure_connected(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="mirror")
    with pytest.raises(ConflictError, match=f"with project = {PROJECT}, not other: disconnect it"):
        ensure_connected(
            pipeline.engine, SOURCE, project="other", config={**CONFIG, "embedding_model": "local"}, mode="mirror"
        )


def test_vectors_of_two_models_are_told(mem0_store: Store) -> None:
    mem0_store.connection.execute("DROP INDEX mem0_vector_idx; ALTER TABLE mem0 ALTER COLUMN vector TYPE vector")
    mem0_store.connection.execute(
        "UPDATE mem0 SET vector = '[1,2,3]' WHERE id = (SELECT id FROM mem0 ORDER BY id LIMIT 1)"
    )
    (warning,) = probe_source(CONFIG).warnings
    assert "vectors of several lengths (23 of 256, 1 of 3)" in warning


def test_blank_texts_are_no_memories(make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    store = make_store(NOTES)
    store.connection.execute("INSERT INTO app.notes (tenant, body) VALUES ('a', ''), ('a', '  '), ('a', E'\\r\\n \\t')")
    config = {**NOTES.config, "url_env": URL_ENV}
    assert probe_source(config).skipped == 3
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    assert sync_source(pipeline.engine, SOURCE).refused == 0


def test_text_and_metadata_of_other_types_are_told(mem0_store: Store) -> None:
    mem0_store.connection.execute(
        'CREATE SCHEMA "App"; CREATE TABLE "App"."Memo" (id int PRIMARY KEY, body jsonb, more text)'
    )
    mem0_store.connection.execute("""INSERT INTO "App"."Memo" VALUES (1, '"words"'), (2, '{"a": 1}'), (3, '["b"]')""")
    config = {"kind": "table", "url_env": URL_ENV, "key": ["id"], "text": "body", "metadata": "more"}
    with pytest.raises(UsageError, match=r"there is App\.Memo: give names as they are"):
        probe_source({**config, "table": "memo"})
    warnings = probe_source({**config, "table": "App.Memo"}).warnings
    assert "2 of 3 rows have JSON at body and no text" in warnings
    assert "more is of type text, not JSON: no metadata is copied" in warnings


def test_place_of_the_text_is_advised(make_store: Callable[[Kind], Store]) -> None:
    """In typed memories of LangMem the text lies deeper than in others."""
    store = make_store(LANGGRAPH)
    config = {**LANGGRAPH.config, "url_env": URL_ENV}
    with pytest.raises(UsageError, match="--text is the path inside of value, such as content"):
        probe_source({**config, "text": "value.content"})
    store.connection.execute(
        "UPDATE store SET value = jsonb_build_object('kind', 'Memory', 'content', value || '{\"at\": \"noon\"}')"
    )
    told = "JSON at value.content and no text: name the key of it that holds one, such as --text content.content"
    with pytest.raises(UsageError, match=told):
        probe_source(config)
    assert probe_source({**config, "text": "content.content"}).memories == 24
    table = {"kind": "table", "table": "store", "key": ["prefix", "key"], "text": "value", "url_env": URL_ENV}
    with pytest.raises(UsageError, match=r"such as --text value\.kind"):
        probe_source(table)


def test_rows_without_scope_are_told(mem0_store: Store) -> None:
    mem0_store.connection.execute("UPDATE mem0 SET payload = payload - 'user_id' WHERE payload ->> 'user_id' = 'bob'")
    (warning,) = probe_source(CONFIG).warnings
    assert warning.startswith("12 memories have none of payload.user_id")
    mem0_store.connection.execute(
        """UPDATE mem0 SET payload = payload || '{"user_id": " "}' WHERE id = (SELECT min(id::text)::uuid FROM mem0)"""
    )
    assert any(
        told.startswith("1 memory has an empty value at payload.user_id, payload.agent_id, payload.run_id: here it")
        for told in probe_source(CONFIG).warnings
    )


def test_reader_may_mirror_and_not_write(reader_env: str, pipeline: Pipeline) -> None:
    config = {"kind": "mem0", "url_env": reader_env}
    found = probe_source(config)
    assert not found.rights.write
    assert any("only mode mirror works" in warning for warning in found.warnings)
    with pytest.raises(UsageError, match="mode write needs more rights"):
        connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    assert list_connected(pipeline.engine) == []
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    assert sync_source(pipeline.engine, SOURCE).added == len(all_wordings())


@pytest.mark.parametrize(
    ("right", "words"),
    [("DELETE", "may not change these tables"), ("CREATE", "may not create schema consolidation_sidecar")],
)
def test_missing_right_is_named_before_anything_is_made(
    reader_env: str, mem0_store: Store, pipeline: Pipeline, right: str, words: str
) -> None:
    store = mem0_store.connection
    given = ["INSERT", "UPDATE"] if right == "DELETE" else ["INSERT", "UPDATE", "DELETE"]
    store.execute(f"GRANT {', '.join(given)} ON mem0, mem0_entities TO reader")
    if right != "CREATE":
        store.execute(f"GRANT CREATE ON DATABASE {store.info.dbname} TO reader")
    with pytest.raises(UsageError, match=words):
        connect_source(pipeline.engine, SOURCE, project=PROJECT, config={**CONFIG, "url_env": reader_env}, mode="write")
    assert list_connected(pipeline.engine) == []
    assert store.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'consolidation_sidecar'").fetchall() == []


def test_right_that_is_lost_later_is_named(reader_env: str, mem0_store: Store, pipeline: Pipeline) -> None:
    store = mem0_store.connection
    store.execute("GRANT INSERT, UPDATE, DELETE ON mem0, mem0_entities TO reader")
    store.execute(f"GRANT CREATE ON DATABASE {store.info.dbname} TO reader")
    config = {**CONFIG, "url_env": reader_env, "embedding_model": "local"}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    before = mem0_store.checksum()
    store.execute("REVOKE DELETE ON mem0 FROM reader")
    with pytest.raises(StoreError, match="refused or broke off: permission denied for table mem0"):
        write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert mem0_store.checksum() == before
    store.execute("GRANT DELETE ON mem0 TO reader")
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).refused == {}


def test_trigger_needs_no_ownership(reader_env: str, mem0_store: Store, pipeline: Pipeline) -> None:
    store = mem0_store.connection
    store.execute("GRANT INSERT, UPDATE, DELETE, TRIGGER ON mem0, mem0_entities TO reader")
    store.execute(f"GRANT CREATE ON DATABASE {store.info.dbname} TO reader")
    config = {**CONFIG, "url_env": reader_env}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="review")
    sync_source(pipeline.engine, SOURCE)
    store.execute("DELETE FROM mem0 WHERE id IN (SELECT id FROM mem0 LIMIT 2)")
    assert (sync_source(pipeline.engine, SOURCE).gone, is_watched(store, "mem0")) == (2, True)
    assert disconnect_source(pipeline.engine, SOURCE, restore=True) == {}
    assert store.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone() == (0,)


def test_store_without_read_right_is_refused(reader_env: str, mem0_store: Store) -> None:
    mem0_store.connection.execute("REVOKE SELECT ON mem0 FROM reader")
    with pytest.raises(UsageError, match="this user may not read mem0"):
        probe_source({"kind": "mem0", "url_env": reader_env})


def test_reader_may_mirror_beside_a_sidecar(reader_env: str, mem0_store: Store, pipeline: Pipeline) -> None:
    sidecar.install(mem0_store.connection)
    config = {"kind": "mem0", "url_env": reader_env}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    assert sync_source(pipeline.engine, SOURCE).added == len(all_wordings())


def test_view_is_only_mirrored(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.connection.execute("CREATE VIEW seen AS SELECT * FROM mem0")
    config = {**CONFIG, "table": "seen"}
    found = probe_source(config)
    assert (found.rights.read, found.rights.write, found.rights.watch) == (True, False, False)
    assert "seen is no table: all of it is read at each sync, and only mode mirror works" in found.warnings
    with pytest.raises(UsageError, match="mode write needs a table, and seen is none"):
        probe_source(config, mode="write")
    with pytest.raises(UsageError, match="mode write needs a table, and seen is none"):
        connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    assert list_connected(pipeline.engine) == []
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)


def test_key_that_rows_share_is_refused(mem0_store: Store) -> None:
    mem0_store.connection.execute("CREATE TABLE bare AS SELECT 'same' AS id, 'Text' AS body FROM generate_series(1, 2)")
    config = {"kind": "table", "url_env": URL_ENV, "table": "bare", "key": ["id"], "text": "body"}
    with pytest.raises(UsageError, match="id is no key of bare: 2 rows have 'same'"):
        probe_source(config)


def test_options_that_would_mix_scopes_are_refused(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, mode="mirror")
    change = partial(configure_project, pipeline.engine, PROJECT, settings=pipeline.settings)
    refused = "would mix memories that source shop keeps apart by"
    with pytest.raises(InvalidOptionError, match=f"scope = project {refused} user_id, agent_id, session_id"):
        change(config={"scope": "project"})
    with pytest.raises(InvalidOptionError, match=f"scope = user_id {refused} agent_id, session_id"):
        run_shadow(pipeline.engine, PROJECT, {"scope": "user_id"}, settings=pipeline.settings, triggered_by="tester")
    change(config={"scope": "user_id,agent_id,session_id,metadata.team", "t_merge": 0.9})
    disconnect_source(pipeline.engine, SOURCE, restore=True)
    change(config={"scope": "project"})


def test_project_that_would_mix_scopes_is_refused(mem0_store: Store, pipeline: Pipeline) -> None:
    del mem0_store
    ensure_project(pipeline.engine, PROJECT)
    with pytest.raises(
        UsageError,
        match="scope = user_id, which would mix memories that the store keeps apart by agent_id",
    ):
        connect_source(pipeline.engine, SOURCE, project=PROJECT, config=CONFIG)
    assert list_connected(pipeline.engine) == []


def test_table_is_connected_once(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    with pytest.raises(ConflictError, match=r"already.*first `consolidation source disconnect shop --restore`"):
        connect_source(pipeline.engine, "again", project="other", config=CONFIG)
    assert pipeline.value("SELECT count(*) FROM {s}.projects WHERE slug = 'other'") == 0
    disconnect_source(pipeline.engine, SOURCE, restore=True)
    connect_source(pipeline.engine, "again", project="other", config=CONFIG)


def test_rows_of_a_former_source_are_connected_by_its_name(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    sync_source(pipeline.engine, SOURCE)
    disconnect_source(pipeline.engine, SOURCE, restore=False)
    with pytest.raises(ConflictError, match="with the source shop: connect them by the name shop, or erase"):
        connect_source(pipeline.engine, "again", project=PROJECT, config=CONFIG)
    connect_source(pipeline.engine, "again", project="other", config=CONFIG)
    disconnect_source(pipeline.engine, "again", restore=False)
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=CONFIG)
    assert sync_source(pipeline.engine, SOURCE).added == 0


def test_name_is_given_once(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    config = {**NOTES_CONFIG, "table": "mem0", "text": "payload.data", "scope": {}, "created": None, "vector": None}
    other = {name: value for name, value in config.items() if value is not None}
    os.environ["OTHER_URL"] = os.environ[URL_ENV]
    try:
        with pytest.raises(ConflictError, match="a source is named shop already"):
            connect_source(pipeline.engine, SOURCE, project="other", config={**other, "url_env": "OTHER_URL"})
    finally:
        del os.environ["OTHER_URL"]


def test_unknown_source_is_named(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="there is no source 'none'; sources: none"):
        sync_source(pipeline.engine, "none")


def test_store_that_was_never_written_has_nothing_to_restore(mem0_store: Store) -> None:
    del mem0_store
    with pytest.raises(UsageError, match="has no schema consolidation_sidecar"):
        restore_store(URL_ENV)


def test_sidecar_of_another_version_is_refused(mem0_store: Store, pipeline: Pipeline) -> None:
    sidecar.install(mem0_store.connection)
    mem0_store.connection.execute("UPDATE consolidation_sidecar.sidecar SET version = 9")
    with pytest.raises(UsageError, match=f"is of version 9, this program writes {sidecar.VERSION}"):
        connect_source(pipeline.engine, SOURCE, project=PROJECT, config=CONFIG, mode="write")
    assert list_connected(pipeline.engine) == []
    assert pipeline.value("SELECT count(*) FROM {s}.projects") == 0


def test_sidecar_of_another_role_is_refused_by_its_name(reader_env: str, mem0_store: Store, pipeline: Pipeline) -> None:
    store = mem0_store.connection
    store.execute("GRANT INSERT, UPDATE, DELETE ON mem0, mem0_entities TO reader")
    store.execute(f"GRANT CREATE ON DATABASE {store.info.dbname} TO reader")
    config = {**CONFIG, "url_env": reader_env}
    assert probe_source(config).rights.create_schema
    sidecar.install(store)
    assert not probe_source(config).rights.create_schema
    reason = "schema consolidation_sidecar belongs to the role postgres, and this user may not write to it"
    with pytest.raises(UsageError, match=reason):
        connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="review")
    store.execute("GRANT USAGE, CREATE ON SCHEMA consolidation_sidecar TO reader")
    store.execute("GRANT ALL ON ALL TABLES IN SCHEMA consolidation_sidecar TO reader")
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="review")
    store.execute("REVOKE ALL ON SCHEMA consolidation_sidecar FROM reader")
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    plan = plan_writes(pipeline.engine, SOURCE)[0]
    refused = write_source(pipeline.engine, SOURCE, memory_ids=[plan.memory_id]).refused
    assert refused == {str(plan.id): f"{reason}: connect as postgres"}


def test_values_that_are_no_times_are_told(mem0_store: Store, pipeline: Pipeline) -> None:
    mem0_store.connection.execute(
        """
        CREATE TABLE diary (id int PRIMARY KEY, body text, written text, edited text);
        INSERT INTO diary VALUES (1, 'The tram is late', '2026-02-01', NULL), (2, 'Rain', 'last week', '2026-02-02'),
            (3, 'Sun', NULL, 'soon'), (4, 'Hail', 'infinity', NULL)
        """
    )
    config = {"kind": "table", "url_env": URL_ENV, "table": "diary", "key": ["id"], "text": "body"}
    assert not any("no time" in warning for warning in probe_source(config).warnings)
    timed = {**config, "created": "written", "updated": "edited"}
    told = [warning for warning in probe_source(timed).warnings if "no time" in warning]
    assert told == [
        "3 of 4 rows have no time at written, for example 'last week': that of the sync is taken",
        "1 of 4 rows has no time at edited, for example 'soon': that of the sync is taken",
    ]
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=timed)
    (note,) = [note for note in sync_source(pipeline.engine, SOURCE).notes if "time" in note]
    assert note == "3 rows have a time that cannot be read, for example 'last week': that of the sync is taken"


@pytest.mark.parametrize("type_", ["bytea", "vector(2)", "real[]"])
def test_column_that_holds_no_text_is_refused(mem0_store: Store, type_: str) -> None:
    mem0_store.connection.execute(f"CREATE TABLE odd (id int PRIMARY KEY, body {type_})")
    config = {"kind": "table", "url_env": URL_ENV, "table": "odd", "key": ["id"], "text": "body"}
    with pytest.raises(UsageError, match=re.escape(f"odd.body is of type {type_}, which holds no text")):
        probe_source(config)


@pytest.mark.parametrize(
    ("index", "is_told"),
    [("UNIQUE INDEX ON", False), ("INDEX ON", True), ("UNIQUE INDEX ON", True)],
    ids=["unique", "plain", "partial"],
)
def test_key_that_rows_may_come_to_share_is_told(mem0_store: Store, index: str, is_told: bool) -> None:
    where = "WHERE id > 1" if is_told else ""
    mem0_store.connection.execute(
        f"CREATE TABLE loose AS SELECT 1 AS id, 'Text' AS body; CREATE {index} loose (id) {where}"
    )
    config = {"kind": "table", "url_env": URL_ENV, "table": "loose", "key": ["id"], "text": "body"}
    assert any("no unique index keeps two rows of loose" in each for each in probe_source(config).warnings) == is_told


def test_column_that_vanishes_later_is_named(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    mem0_store.connection.execute("ALTER TABLE mem0 RENAME COLUMN payload TO content")
    with pytest.raises(UsageError, match="table mem0 has no column payload"):
        sync_source(pipeline.engine, SOURCE)


def test_odd_names_are_quoted(store_url: str, pipeline: Pipeline) -> None:
    table = 'My "odd" table'
    with psycopg.connect(store_url, autocommit=True) as store:
        store.execute('CREATE TABLE "My ""odd"" table" ("the id" text PRIMARY KEY, "the; text" text)')
        store.execute("""INSERT INTO "My ""odd"" table" VALUES ('a''b', 'Lunch is at noon')""")
    config = {"kind": "table", "url_env": URL_ENV, "table": table, "key": ["the id"], "text": "the; text"}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    assert sync_source(pipeline.engine, SOURCE).added == 1


def test_mode_of_a_source_can_be_changed(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store, "mirror")
    set_mode(pipeline.engine, SOURCE, "review")
    plan = plan_writes(pipeline.engine, SOURCE)[0]
    assert write_source(pipeline.engine, SOURCE, memory_ids=[plan.memory_id]).written == 1
    with pytest.raises(ConflictError, match="has groups that are written in the store: undo them first"):
        set_mode(pipeline.engine, SOURCE, "mirror")
    assert undo_writes(pipeline.engine, SOURCE) == {}
    set_mode(pipeline.engine, SOURCE, "mirror")
    assert [source.mode for source in list_connected(pipeline.engine)] == ["mirror"]
    assert sidecar.find_version(mem0_store.connection) is None


def test_trigger_waits_without_holding_up_the_program(mem0_store: Store, store_url: str, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    with psycopg.connect(store_url) as slow, ThreadPoolExecutor(1) as pool:
        slow.execute("UPDATE mem0 SET payload = payload")
        change = pool.submit(set_mode, pipeline.engine, SOURCE, "write")
        # Postgres queues writers behind a session that waits for the lock of a table.
        mem0_store.connection.execute("SET lock_timeout = '1s'")
        for at in range(20):
            mem0_store.connection.execute("INSERT INTO mem0 VALUES (%s)", [row_id("alice", f"late {at}")])
            time.sleep(0.05)
        slow.commit()
        change.result()
    assert is_watched(mem0_store.connection, "mem0")


def test_unknown_mode_is_refused(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "mirror")
    with pytest.raises(UsageError, match="mode is 'both': expected one of mirror, review, write"):
        set_mode(pipeline.engine, SOURCE, "both")


def test_two_sources_never_write_one_table(
    mem0_store: Store, store_url: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(pipeline, mem0_store)
    monkeypatch.setenv("SAME_DATABASE_URL", store_url)
    twin = {"kind": "mem0", "url_env": "SAME_DATABASE_URL", "table": "public.mem0"}
    for config in (CONFIG, twin):
        told = f"mem0 is connected as {SOURCE} for project {PROJECT} already; .* source disconnect {SOURCE} --restore"
        with pytest.raises(ConflictError, match=told):
            connect_source(pipeline.engine, "twin", project="other", config=config, mode="write")
    assert [source.name for source in list_connected(pipeline.engine)] == [SOURCE]
    connect_source(pipeline.engine, "twin", project="other", config=twin)
    disconnect_source(pipeline.engine, "twin", restore=False)
    forget_source(pipeline.engine, SOURCE)
    with pytest.raises(ConflictError, match=rf"is connected as {SOURCE} there: use that name \(--name {SOURCE}\)"):
        connect_source(pipeline.engine, "twin", project="other", config=twin, mode="write")
