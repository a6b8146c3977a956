"""Trigger on a store's table: it never hinders the store's program, and a sync finds what it does not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.watch import is_watched
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.sources.connections import connect_source, disconnect_source, probe_source
from consolidation_pipeline.service.sources.sync import SyncResult, sync_source
from consolidation_pipeline.service.sources.write_back import write_source
from consolidation_pipeline.service.sources.write_plan import plan_writes
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV, connect, consolidate
from consolidation_pipeline_tests.service.sources.stores import LLAMAINDEX, NOTES, Kind, Store, all_wordings

ROWS = len(all_wordings())
# Function and triggers of version 1 of the sidecar, for the collection of mem0.
_FIRST_VERSION = """
    DROP FUNCTION consolidation_sidecar.{name}() CASCADE;
    CREATE FUNCTION consolidation_sidecar.{name}() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog AS $body$
    BEGIN
        INSERT INTO consolidation_sidecar.outbox (table_name, key) SELECT 'mem0', t.id::text FROM (SELECT NEW.*) t;
        RETURN NULL;
    END $body$;
    CREATE TRIGGER {name} AFTER INSERT OR UPDATE OR DELETE ON mem0
    FOR EACH ROW EXECUTE FUNCTION consolidation_sidecar.{name}();
    ALTER TABLE consolidation_sidecar.outbox ALTER COLUMN key SET NOT NULL, DROP COLUMN reason;
    DROP TABLE consolidation_sidecar.watched;
    UPDATE consolidation_sidecar.sidecar SET version = 1;
"""


@pytest.fixture
def tasks(store_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Session of the program of a table without constraints, in the database of a store."""
    with psycopg.connect(store_url, autocommit=True) as store:
        store.execute("CREATE TABLE tasks (number int, said text)")
        store.execute("INSERT INTO tasks SELECT n, 'Task ' || n FROM generate_series(1, 6) n")
        yield store


def connect_table(pipeline: Pipeline, table: str, key: Sequence[str], text: str, mode: str = "review") -> None:
    """Connect a table and copy its memories."""
    config = {"kind": "table", "url_env": URL_ENV, "table": table, "key": list(key), "text": text}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode=mode)
    sync_source(pipeline.engine, SOURCE)


def count(result: SyncResult) -> tuple[int, int, int]:
    """Return the numbers of rows that a sync added, revised and deleted."""
    return result.added, result.revised, result.gone


def test_rows_without_a_key_are_no_matter(tasks: psycopg.Connection[Any], pipeline: Pipeline) -> None:
    connect_table(pipeline, "tasks", ["number"], "said")
    tasks.execute("INSERT INTO tasks VALUES (NULL, 'Draft'), (7, 'Task 7')")
    tasks.execute("UPDATE tasks SET number = 8, said = 'Task 8' WHERE said = 'Draft'")
    tasks.execute("UPDATE tasks SET number = NULL WHERE number = 1")
    result = sync_source(pipeline.engine, SOURCE)
    assert count(result) == (2, 0, 1)
    assert result.notes == ()
    tasks.execute("DELETE FROM tasks WHERE number IS NULL")
    assert sync_source(pipeline.engine, SOURCE).read == 0


@pytest.mark.parametrize("key", [["number"], ["number", "said"]])
def test_rows_without_a_key_are_left_out(tasks: psycopg.Connection[Any], pipeline: Pipeline, key: list[str]) -> None:
    tasks.execute("INSERT INTO tasks VALUES (NULL, 'Draft'), (NULL, 'Draft'), (9, 'Task 9')")
    config = {"kind": "table", "url_env": URL_ENV, "table": "tasks", "key": key, "text": "said"}
    told = f"2 rows have no value at {', '.join(key)}: neither copied nor written"
    found = probe_source(config)
    assert told in found.warnings
    assert found.skipped == 2
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    result = sync_source(pipeline.engine, SOURCE)
    assert result.added == found.memories
    assert told in result.notes
    pipeline.run(PROJECT)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert tasks.execute("SELECT count(*) FROM tasks WHERE said = 'Draft'").fetchone() == (2,)


def test_rows_without_a_key_stand_in_no_ones_way(make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    store = make_store(NOTES).connection
    store.execute("CREATE TABLE bare AS SELECT id, tenant, body, embedding, at FROM app.notes")
    store.execute("INSERT INTO bare SELECT NULL, tenant, body, embedding, at FROM app.notes")
    config = {**NOTES.config, "url_env": URL_ENV, "table": "bare"}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert (len(result.refused), result.hidden > 0) == (0, True)
    assert store.execute("SELECT count(*) FROM bare WHERE id IS NULL").fetchone() == (ROWS,)
    rows = store.execute("SELECT count(*) FROM bare WHERE id IS NOT NULL").fetchone()
    assert rows == (ROWS - result.hidden,)


def test_keys_that_rows_share_are_told_beside_null(tasks: psycopg.Connection[Any]) -> None:
    config = {"kind": "table", "url_env": URL_ENV, "table": "tasks", "key": ["number"], "text": "said"}
    tasks.execute("INSERT INTO tasks VALUES (NULL, 'Draft'), (7, 'Task 7'), (7, 'Task seven')")
    with pytest.raises(UsageError, match="number is no key of tasks: 2 rows have '7'"):
        probe_source(config)
    tasks.execute("UPDATE tasks SET number = NULL")
    with pytest.raises(UsageError, match=r"tasks has no memories: .* rows have no value at number: neither"):
        probe_source(config)


def test_weak_keys_are_told(tasks: psycopg.Connection[Any]) -> None:
    config = {"kind": "table", "url_env": URL_ENV, "table": "tasks", "key": ["number"], "text": "said"}
    nullable, shared = probe_source(config).warnings[-2:]
    assert nullable == "number may be null: rows without a key are neither copied nor written"
    assert shared == "no unique index keeps two rows of tasks from having the same number: such rows are not copied"
    tasks.execute("CREATE UNIQUE INDEX ON tasks (number) WHERE number > 3")
    assert shared in probe_source(config).warnings
    tasks.execute("ALTER TABLE tasks ADD PRIMARY KEY (number)")
    assert not {nullable, shared} & set(probe_source(config).warnings)
    assert not {nullable, shared} & set(probe_source({**config, "key": ["number", "said"]}).warnings[:-1])


@pytest.mark.parametrize("change", ["RENAME number TO no", "DROP number"])
@pytest.mark.parametrize("restore", [False, True])
def test_lost_key_column_hinders_nobody(
    tasks: psycopg.Connection[Any], pipeline: Pipeline, change: str, restore: bool
) -> None:
    connect_table(pipeline, "tasks", ["number"], "said")
    tasks.execute(f"ALTER TABLE tasks {change}")
    tasks.execute("INSERT INTO tasks (said) VALUES ('New')")
    tasks.execute("UPDATE tasks SET said = said || '!'")
    tasks.execute("DELETE FROM tasks WHERE said = 'Task 2!'")
    with pytest.raises(UsageError, match="table tasks has no column number"):
        sync_source(pipeline.engine, SOURCE)
    assert disconnect_source(pipeline.engine, SOURCE, restore=restore) == {}
    assert tasks.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone() == (0,)


def test_key_column_that_comes_back_is_compared(tasks: psycopg.Connection[Any], pipeline: Pipeline) -> None:
    connect_table(pipeline, "tasks", ["number"], "said")
    tasks.execute("ALTER TABLE tasks RENAME number TO no")
    tasks.execute("UPDATE tasks SET said = 'Changed' WHERE no = 4")
    tasks.execute("ALTER TABLE tasks RENAME no TO number")
    result = sync_source(pipeline.engine, SOURCE)
    assert count(result) == (0, 1, 0)
    assert result.notes == ("all rows were compared: column t.number does not exist",)
    assert sync_source(pipeline.engine, SOURCE).read == 0


def test_lost_outbox_hinders_nobody(tasks: psycopg.Connection[Any], pipeline: Pipeline) -> None:
    connect_table(pipeline, "tasks", ["number"], "said")
    tasks.execute("DROP TABLE consolidation_sidecar.outbox")
    told: list[str | None] = []
    tasks.add_notice_handler(lambda diagnostic: told.append(diagnostic.message_primary))
    tasks.execute("INSERT INTO tasks VALUES (7, 'Task 7')")
    tasks.execute("TRUNCATE tasks")
    words = 'a change of table tasks cannot be told: relation "consolidation_sidecar.outbox" does not exist'
    assert told == [words, words]


def test_columns_of_every_type_can_be_updated(make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    """The type json has no operator that tells whether a row changed."""
    store = make_store(LLAMAINDEX)
    connect(pipeline, store)
    store.connection.execute("UPDATE data_memory SET node_id = 'other' WHERE id = 3")
    assert sync_source(pipeline.engine, SOURCE).read == 1
    store.connection.execute("UPDATE data_memory SET node_id = 'other' WHERE id = 3")
    assert sync_source(pipeline.engine, SOURCE).read == 0


def test_trigger_is_removed_wherever_it_is(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "review")
    mem0_store.connection.execute("CREATE TABLE fresh (LIKE mem0 INCLUDING ALL)")
    mem0_store.connection.execute("ALTER TABLE mem0 RENAME TO former; ALTER TABLE fresh RENAME TO mem0")
    assert disconnect_source(pipeline.engine, SOURCE, restore=False) == {}
    assert mem0_store.connection.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone() == (0,)


def test_triggers_are_removed_by_sql_alone(mem0_store: Store, pipeline: Pipeline) -> None:
    """The statement of docs/connect.md."""
    connect(pipeline, mem0_store, "review")
    page = (PROJECT_ROOT / "docs" / "connect.md").read_text()
    (statement,) = (block for block in page.split("```") if "DROP FUNCTION" in block)
    mem0_store.connection.execute(statement.removeprefix("sql"))
    assert mem0_store.connection.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchone() == (0,)
    mem0_store.add([("bob", "Lunch is at noon")])
    assert sync_source(pipeline.engine, SOURCE).added == 1


def test_swapped_table_is_watched_again(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "review")
    mem0_store.connection.execute("CREATE TABLE fresh (LIKE mem0 INCLUDING ALL)")
    mem0_store.connection.execute("INSERT INTO fresh SELECT * FROM mem0 OFFSET 4")
    mem0_store.connection.execute("ALTER TABLE mem0 RENAME TO former; ALTER TABLE fresh RENAME TO mem0")
    assert count(sync_source(pipeline.engine, SOURCE)) == (0, 0, 4)
    assert is_watched(mem0_store.connection, "mem0")
    assert not is_watched(mem0_store.connection, "former")


@pytest.mark.parametrize(
    ("key", "session"),
    [
        (["at"], {"TimeZone": "Asia/Tokyo"}),
        (["at"], {"DateStyle": "German"}),
        (["place"], {"extra_float_digits": "-4"}),
        (["at", "place", "mark", "took"], {"TimeZone": "America/Lima", "bytea_output": "escape"}),
        (["at", "took"], {"IntervalStyle": "iso_8601"}),
    ],
)
def test_keys_do_not_depend_on_the_session(
    tasks: psycopg.Connection[Any], pipeline: Pipeline, key: list[str], session: Mapping[str, str]
) -> None:
    tasks.execute(
        "CREATE TABLE log (at timestamptz, place float8, mark bytea, took interval, said text, "
        f"PRIMARY KEY ({', '.join(key)}))"
    )
    add = "INSERT INTO log SELECT timestamptz '2026-03-02 09:00Z' + n * interval '1 h', n / 3.0, '\\x00ff', "
    tasks.execute(f"{add} '1 day 2 h', 'Entry ' || n FROM generate_series(1, 6) n")
    connect_table(pipeline, "log", key, "said")
    for name, value in session.items():
        tasks.execute("SELECT set_config(%s, %s, false)", [name, value])
    tasks.execute("DELETE FROM log WHERE said = 'Entry 2'")
    tasks.execute("UPDATE log SET said = 'Other' WHERE said = 'Entry 3'")
    tasks.execute(f"{add} '3 h', 'Late' FROM generate_series(8, 8) n")
    result = sync_source(pipeline.engine, SOURCE)
    assert (count(result), result.notes, result.read) == ((1, 1, 1), (), 2)


def make_first_version(store: Store) -> None:
    """Put sidecar and trigger of the first version in the place of these."""
    name = store.connection.execute("SELECT proname FROM pg_proc WHERE proname LIKE 'watch_%'").fetchone()
    assert name is not None
    store.connection.execute(_FIRST_VERSION.format(name=name[0]))


def test_trigger_of_the_first_version_is_replaced(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "review")
    store = mem0_store.connection
    make_first_version(mem0_store)
    mem0_store.add([("bob", "Lunch is at noon")])
    assert count(sync_source(pipeline.engine, SOURCE)) == (1, 0, 0)
    assert sidecar.find_version(store) == sidecar.VERSION
    assert is_watched(store, "mem0")
    store.execute("TRUNCATE mem0")
    assert count(sync_source(pipeline.engine, SOURCE)) == (0, 0, ROWS + 1)


def test_first_trigger_is_replaced_without_its_key(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store, "review")
    make_first_version(mem0_store)
    mem0_store.connection.execute("ALTER TABLE mem0 RENAME id TO number")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        mem0_store.connection.execute("UPDATE mem0 SET payload = payload")
    with pytest.raises(UsageError, match="table mem0 has no column id"):
        sync_source(pipeline.engine, SOURCE)
    mem0_store.connection.execute("UPDATE mem0 SET payload = payload || '{}'")


def test_truncation_is_found(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    mem0_store.connection.execute("TRUNCATE mem0")
    mem0_store.add([("ann", "Lunch is at noon")])
    result = sync_source(pipeline.engine, SOURCE)
    assert count(result) == (1, 0, len(plan_keys(pipeline)))
    assert result.notes == ("all rows were compared: the table was truncated",)
    assert sync_source(pipeline.engine, SOURCE).read == 0


def plan_keys(pipeline: Pipeline) -> list[str]:
    """Return the keys of the rows that a write left in the store."""
    return [row.keep for row in pipeline.rows("SELECT plan ->> 'keep' AS keep FROM {s}.source_writes")]


@pytest.fixture
def events(tasks: psycopg.Connection[Any], pipeline: Pipeline) -> psycopg.Connection[Any]:
    """Session of the program of a partitioned table that is connected."""
    tasks.execute(
        "CREATE TABLE events (id int, region text, said text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);"
        "CREATE TABLE events_us PARTITION OF events FOR VALUES IN ('us');"
        "CREATE TABLE events_eu PARTITION OF events FOR VALUES IN ('eu');"
        "CREATE TABLE events_asia (LIKE events INCLUDING ALL)"
    )
    for region, first in (("us", 0), ("eu", 10)):
        tasks.execute(
            f"INSERT INTO events SELECT n, '{region}', 'Event ' || n FROM generate_series({first}, {first} + 4) n"
        )
    tasks.execute("INSERT INTO events_asia SELECT n, 'asia', 'Event ' || n FROM generate_series(20, 24) n")
    connect_table(pipeline, "events", ["id", "region"], "said")
    return tasks


ATTACH = "ALTER TABLE events ATTACH PARTITION events_asia FOR VALUES IN ('asia');"
DETACH = "ALTER TABLE events DETACH PARTITION events_us;"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (ATTACH, (5, 0, 0)),
        (DETACH, (0, 0, 5)),
        (ATTACH + DETACH, (5, 0, 5)),
        ("TRUNCATE events_us", (0, 0, 5)),
        ("INSERT INTO events_eu VALUES (15, 'eu', 'Event 15')", (1, 0, 0)),
        (ATTACH + "DELETE FROM events_asia WHERE id = 21", (4, 0, 0)),
    ],
)
def test_changes_of_partitions_are_found(
    events: psycopg.Connection[Any], pipeline: Pipeline, change: str, expected: tuple[int, int, int]
) -> None:
    events.execute(change)
    assert count(sync_source(pipeline.engine, SOURCE)) == expected
    assert sync_source(pipeline.engine, SOURCE).read == 0


def test_changes_of_a_replica_are_found(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    mem0_store.connection.execute("SET session_replication_role = replica")
    mem0_store.connection.execute("""UPDATE mem0 SET payload = payload || '{"data": "Edited"}' WHERE id = (
        SELECT id FROM mem0 ORDER BY id LIMIT 1)""")
    result = sync_source(pipeline.engine, SOURCE)
    assert (count(result), result.read) == ((0, 1, 0), 1)


def test_changes_without_triggers_are_found(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    store = mem0_store.connection
    store.execute("ALTER TABLE mem0 DISABLE TRIGGER ALL")
    store.execute("DELETE FROM mem0 WHERE id IN (SELECT id FROM mem0 ORDER BY id LIMIT 3)")
    store.execute("ALTER TABLE mem0 ENABLE TRIGGER ALL")
    store.execute('UPDATE mem0 SET payload = payload || \'{"data": "Edited"}\'')
    result = sync_source(pipeline.engine, SOURCE)
    assert count(result) == (0, ROWS - 3, 3)
    assert result.notes[-1] == "all rows were compared: 3 other memories were known, and 0 are there"


def test_all_rows_are_compared_once_a_day(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    store = mem0_store.connection
    store.execute("ALTER TABLE mem0 DISABLE TRIGGER ALL")
    store.execute('UPDATE mem0 SET payload = payload || \'{"data": "Edited"}\'')
    store.execute("ALTER TABLE mem0 ENABLE TRIGGER ALL")
    assert count(sync_source(pipeline.engine, SOURCE)) == (0, 0, 0)
    store.execute("UPDATE consolidation_sidecar.watched SET compared_at = compared_at - interval '25 hours'")
    assert count(sync_source(pipeline.engine, SOURCE)) == (0, ROWS, 0)
    assert sync_source(pipeline.engine, SOURCE).read == 0


def test_rows_of_a_refused_group_are_compared(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store)
    plan = plan_writes(pipeline.engine, SOURCE)[0]
    store = mem0_store.connection
    store.execute("ALTER TABLE mem0 DISABLE TRIGGER ALL")
    store.execute('UPDATE mem0 SET payload = payload || \'{"data": "Edited"}\' WHERE id = %s', [plan.hidden[0]])
    store.execute("ALTER TABLE mem0 ENABLE TRIGGER ALL")
    assert write_source(pipeline.engine, SOURCE, memory_ids=[plan.memory_id]).refused
    result = sync_source(pipeline.engine, SOURCE)
    assert (count(result), result.read) == ((0, 1, 0), len(plan.stamps))
    assert sync_source(pipeline.engine, SOURCE).read == 0


def test_uncommitted_changes_are_no_difference(mem0_store: Store, store_url: str, pipeline: Pipeline) -> None:
    """An older transaction keeps the entries of later ones from being read, and their rows are there already."""
    connect(pipeline, mem0_store)
    with psycopg.connect(store_url) as late:
        late.execute('UPDATE mem0 SET payload = payload || \'{"color": "red"}\'')
        mem0_store.add([("bob", "early")])
        result = sync_source(pipeline.engine, SOURCE)
        assert (result.read, result.notes) == (0, ())
        late.commit()
    assert sync_source(pipeline.engine, SOURCE).added == 1


def test_mirror_leaves_the_changes_to_the_writer(
    mem0_store: Store, store_url: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(pipeline, mem0_store)
    monkeypatch.setenv("SAME_DATABASE_URL", store_url)
    twin = {"kind": "mem0", "url_env": "SAME_DATABASE_URL"}
    connect_source(pipeline.engine, "twin", project="other", config=twin)
    sync_source(pipeline.engine, "twin")
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id IN (SELECT id FROM mem0 LIMIT 2)")
    assert sync_source(pipeline.engine, "twin").gone == 2
    assert sync_source(pipeline.engine, SOURCE).gone == 2
