"""Migrations up and down, and connection errors that hide the password."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, Connection, create_engine, event, text

from consolidation_pipeline.errors import SchemaOutOfDateError, StoreError
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import (
    Engine,
    check_schema,
    connect_engine,
    dagster_url,
    database_url,
    downgrade,
    knows_revision,
    open_engine,
    upgrade,
    with_driver,
)
from consolidation_pipeline.store.database.schema import SCHEMA, metadata
from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.memories.relevance import save_relevance
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.labelled_pairs import append_label, count_labels
from consolidation_pipeline.store.similarity.calibrations import Calibration, append_calibration, load_calibration
from consolidation_pipeline.store.similarity.similarity_graph import (
    Neighbors,
    append_neighbors,
    load_neighbors,
    load_nodes,
    mark_compared,
)
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    NOW,
    add_memories,
    add_merged,
    add_project,
    contents,
    new_memory,
    save_unit_vectors,
    unit_vector,
)

UPGRADE = """
import sys
from consolidation_pipeline.store.database.engine import connect_engine, upgrade, with_driver
upgrade(connect_engine(with_driver(sys.argv[1], "psycopg")))
"""
# Every object in schema public that belongs to no extension.
FOREIGN_OBJECTS = """
    SELECT o.class::regclass::text, o.oid FROM (
        SELECT 'pg_class'::regclass AS class, oid FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT 'pg_proc'::regclass, oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL SELECT 'pg_type'::regclass, oid FROM pg_type WHERE typnamespace = 'public'::regnamespace) o
    WHERE NOT EXISTS (SELECT 1 FROM pg_depend d
        WHERE d.classid = o.class AND d.objid = o.oid AND d.deptype IN ('e', 'i'))
"""
PASSWORD = "hunter2secret"


@pytest.fixture
def empty(empty_database_url: str) -> Engine:
    return connect_engine(with_driver(empty_database_url, "psycopg"))


def _relations(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        query = f"SELECT relname FROM pg_class WHERE relnamespace = '{SCHEMA}'::regnamespace AND relkind IN ('r', 'v')"
        return set(connection.execute(text(query)).scalars())


def test_upgrade_creates_every_table(empty: Engine) -> None:
    upgrade(empty)
    check_schema(empty)
    views = {"playbook_changes", "memory_pairs"}
    assert _relations(empty) == {t.name for t in metadata.sorted_tables} | views | {"alembic_version"}


def test_repeated_upgrade_changes_nothing(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO {SCHEMA}.projects (slug) VALUES ('kept')"))
    upgrade(engine)
    upgrade(engine, "0001")
    with engine.connect() as connection:
        assert connection.execute(text(f"SELECT slug FROM {SCHEMA}.projects")).scalar_one() == "kept"


@pytest.mark.slow
def test_concurrent_upgrades_succeed(empty: Engine, empty_database_url: str) -> None:
    command = [sys.executable, "-c", UPGRADE, empty_database_url]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    check_schema(empty)


def test_known_revisions_are_those_of_alembic() -> None:
    config = Config()
    config.set_main_option("script_location", "consolidation_pipeline:store/migrations")
    scripts = ScriptDirectory.from_config(config)
    assert all(knows_revision(script.revision) for script in scripts.walk_revisions())
    assert not knows_revision("9999")
    assert not knows_revision("")


def test_newer_schema_asks_for_newer_program(empty: Engine) -> None:
    upgrade(empty)
    with empty.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.alembic_version SET version_num = '9999'"))
    for open_schema in (check_schema, upgrade):
        with pytest.raises(SchemaOutOfDateError, match=r"newer than this program.* 9999, .*upgrade the program"):
            open_schema(empty)


def test_downgrade_to_base_is_reversible(engine: Engine) -> None:
    before = _relations(engine)
    downgrade(engine, "base")
    assert _relations(engine) == {"alembic_version"}
    with engine.connect() as connection:
        functions = "SELECT count(*) FROM pg_proc WHERE pronamespace = CAST(:schema AS regnamespace)"
        assert connection.execute(text(functions), {"schema": SCHEMA}).scalar_one() == 0
    with pytest.raises(SchemaOutOfDateError):
        check_schema(engine)
    upgrade(engine)
    assert _relations(engine) == before


INSERT_PAIR = (
    f"INSERT INTO {SCHEMA}.memory_neighbors (project_id, embedding_model, a, b, similarity{{}}) "
    f"SELECT project_id, embedding_model, min(id::text)::uuid, max(id::text)::uuid, 0.9{{}} "
    f"FROM {SCHEMA}.task_memories WHERE embedding_model IS NOT NULL GROUP BY 1, 2"
)


def _add_sample_graph(connection: Connection) -> None:
    """Insert two embedded and compared memories, their merged memory and a calibration."""
    project = add_project(connection)
    raw = add_memories(connection, project, [new_memory(key) for key in "ab"])
    save_unit_vectors(connection, raw)
    add_merged(connection, project, "ab", raw)
    append_calibration(connection, project.id, MODEL, Calibration(1, unit_vector(1), {"t_merge": 0.9}, 2))
    ids = to_ids(sorted(raw))
    mark_compared(connection, ids, 1)
    pair = Neighbors(ids[:1], ids[1:], np.array([0.9], np.float32), np.array([2], np.int16))
    append_neighbors(connection, project.id, MODEL, [pair])


def test_downgrade_clears_graph_only(engine: Engine) -> None:
    with engine.begin() as connection:
        _add_sample_graph(connection)
        before = contents(connection)
    downgrade(engine, "0001")
    with engine.begin() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM {SCHEMA}.memory_neighbors")).scalar_one() == 0
        compared = "SELECT count(*) FROM {}.{} WHERE graph_version IS NOT NULL"
        for table in ("task_memories", "consolidated_memories"):
            assert connection.execute(text(compared.format(SCHEMA, table))).scalar_one() == 0
            connection.execute(text(f"UPDATE {SCHEMA}.{table} SET graph_version = 1"))
        connection.execute(text(INSERT_PAIR.format("", "")))
    with pytest.raises(SchemaOutOfDateError):
        check_schema(engine)
    upgrade(engine)
    check_schema(engine)
    with engine.connect() as connection:
        project = get_project(connection, "garden")
        assert contents(connection) == before
        assert len(load_neighbors(connection, project.id, MODEL, 0.0)) == 0
        nodes = load_nodes(connection, project.id, MODEL, scope=NO_WALLS)
        calibration = load_calibration(connection, project.id, MODEL)
    assert len(nodes) == 2
    assert calibration is not None
    # The options differ, so the next run makes a new calibration, and all memories count as not compared.
    assert (calibration.version, calibration.options, calibration.report) == (1, {}, {})


def test_pairs_migrate_down_and_up(engine: Engine) -> None:
    pairs = text(f"SELECT * FROM {SCHEMA}.memory_pairs")
    with engine.begin() as connection:
        _add_sample_graph(connection)
        before = connection.execute(pairs).all()
    assert len(before) == 1
    downgrade(engine, "0024")
    with engine.begin() as connection:
        assert connection.scalars(text(f"SELECT verdict FROM {SCHEMA}.memory_neighbors")).all() == [2]
        # A pair across types, which is not kept.
        connection.execute(
            text(
                f"INSERT INTO {SCHEMA}.memory_neighbors SELECT project_id, embedding_model, a, "
                f"'ffffffff-ffff-ffff-ffff-ffffffffffff', 0.9, -1 FROM {SCHEMA}.memory_neighbors"
            )
        )
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.execute(pairs).all() == before


def test_asked_pairs_migrate_down_and_up(engine: Engine) -> None:
    details = text(f"SELECT details FROM {SCHEMA}.memory_clusters")
    below = "no difference: a similarity below t_merge"
    pairs = [{"a": "1", "b": "2", "similarity": 0.9}, {"a": "1", "b": "3", "similarity": 0.8, "judged": "same"}]
    with engine.begin() as connection:
        insert = text(
            f"INSERT INTO {SCHEMA}.memory_clusters (project_id, tier, cluster_key, member_id, member_kind, "
            "is_representative, details) VALUES (:project, 'suggest', 'k', :project, 'raw', true, :details)"
        )
        listed = [{**pair, "if_same": below} for pair in pairs]
        values = {
            "project": add_project(connection).id,
            "details": json.dumps({"asked_pairs": listed, "cohesion_min": 0.8}),
        }
        connection.execute(insert, values)
        before = connection.scalar(details)
    downgrade(engine, "0047")
    with engine.begin() as connection:
        expected = {"asked_pairs": [{**pair, "differences": [below]} for pair in pairs], "cohesion_min": 0.8}
        assert connection.scalar(details) == expected
        expected["asked_pairs"][0]["differences"] = ["value: 5 / 6", "name: Ann / Bob"]
        update = text(f"UPDATE {SCHEMA}.memory_clusters SET details = :details")
        connection.execute(update, {"details": json.dumps({**expected, "calibration": 3})})
    upgrade(engine)
    with engine.connect() as connection:
        assert connection.scalar(details) == before


def test_caches_migrate_down_and_up(engine: Engine) -> None:
    def dump(connection: Connection) -> list[Any]:
        tables = ("compared_memories", "relevance_scores")
        return [connection.execute(text(f"SELECT * FROM {SCHEMA}.{name} ORDER BY memory_id")).all() for name in tables]

    with engine.begin() as connection:
        _add_sample_graph(connection)
        for table in ("task_memories", "consolidated_memories"):
            first = connection.scalars(text(f"SELECT id FROM {SCHEMA}.{table} ORDER BY id LIMIT 1")).all()
            save_relevance(connection, table, to_ids(first), np.array([0.3]), NOW)
        before = dump(connection)
    assert [len(rows) for rows in before] == [2, 2]
    downgrade(engine, "0033")
    with engine.connect() as connection:
        query = f"SELECT graph_version, relevance_score, relevance_at FROM {SCHEMA}.task_memories ORDER BY id"
        assert connection.execute(text(query)).all() == [(1, 0.3, NOW), (1, None, None)]
    upgrade(engine)
    with engine.connect() as connection:
        assert dump(connection) == before


def test_vectors_of_images_migrate_down_as_text(engine: Engine) -> None:
    with engine.begin() as connection:
        project = add_project(connection)
        merged = add_merged(connection, project, "x", add_memories(connection, project, [new_memory("a")]))
    downgrade(engine, "0031")
    query = f"""
        SELECT new_state ->> 'embedding', embedding::text FROM {SCHEMA}.consolidation_changes
            JOIN {SCHEMA}.consolidated_memories t ON t.id = entity_id WHERE t.id = :id"""
    with engine.connect() as connection:
        image, vector = connection.execute(text(query), {"id": merged}).one()
    assert image == vector


def test_migration_supersedes_overlapping_suggestions(engine: Engine) -> None:
    suggestion = f"""
        INSERT INTO {SCHEMA}.consolidation_suggestions
            (project_id, group_id, suggested_content, original_memory_ids, original_versions, fingerprint, created_at)
        SELECT id, 'g', 'x', CAST(:ids AS uuid[]), ARRAY[1, 1], :name, now() + :later * interval '1 second'
        FROM {SCHEMA}.projects
    """
    a, b, c = (uuid.uuid4() for _ in range(3))
    downgrade(engine, "0004")
    with engine.begin() as connection:
        add_project(connection)
        for later, ids in enumerate(([a, b], [b, c])):
            connection.execute(text(suggestion), {"ids": ids, "name": str(later), "later": later})
    upgrade(engine)
    with engine.begin() as connection:
        query = f"SELECT status FROM {SCHEMA}.consolidation_suggestions ORDER BY created_at"
        assert list(connection.scalars(text(query))) == ["pending", "superseded"]
        reserved = connection.scalars(text(f"SELECT memory_id FROM {SCHEMA}.suggestion_originals")).all()
        assert set(reserved) == {a, b}
        # A superseded suggestion that is made again: the older unique key does not allow it.
        superseded = f"UPDATE {SCHEMA}.consolidation_suggestions SET status = 'superseded' WHERE fingerprint = '0'"
        connection.execute(text(superseded))
        connection.execute(text(suggestion), {"ids": [a, b], "name": "0", "later": 9})
    downgrade(engine, "0004")
    upgrade(engine)
    with engine.connect() as connection:
        assert sorted(connection.scalars(text(query))) == ["pending", "superseded", "superseded"]


def test_labels_migrate_down_and_up(engine: Engine) -> None:
    with engine.begin() as connection:
        project = add_project(connection)
        raw = add_memories(connection, project, [new_memory(key) for key in "ab"])
        append_label(connection, project.id, *raw, same=True, labelled_by="anna")
        before = contents(connection)
    downgrade(engine, "0013")
    assert "labelled_pairs" not in _relations(engine)
    upgrade(engine)
    with engine.connect() as connection:
        assert count_labels(connection, project.id) == (0, 0, 0)
        assert contents(connection) == before


def test_project_delete_cascades_after_downgrade(engine: Engine) -> None:
    with engine.begin() as connection:
        _add_sample_graph(connection)
    downgrade(engine, "0001")
    with engine.begin() as connection:
        connection.execute(text(INSERT_PAIR.format("", "")))
        connection.execute(text(f"DELETE FROM {SCHEMA}.projects"))
        assert connection.execute(text(f"SELECT count(*) FROM {SCHEMA}.memory_neighbors")).scalar_one() == 0


def test_migrated_schema_matches_metadata(engine: Engine) -> None:
    options = {
        "include_schemas": True,
        "include_name": lambda name, kind, _: kind != "schema" or name == SCHEMA,
        "version_table_schema": SCHEMA,
        "compare_type": True,
        "compare_server_default": True,
    }
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    assert differences == []


def test_check_constraints_match_metadata(engine: Engine) -> None:
    declared = {
        str(constraint.name)
        for table in metadata.sorted_tables
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }
    query = f"SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = '{SCHEMA}'::regnamespace"
    with engine.connect() as connection:
        assert set(connection.execute(text(query)).scalars()) == declared


def test_every_table_and_column_has_comment(engine: Engine) -> None:
    query = f"""
        SELECT c.relname, a.attname FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped AND a.attnum > 0
        WHERE c.relnamespace = '{SCHEMA}'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
            AND (col_description(c.oid, a.attnum) IS NULL OR obj_description(c.oid, 'pg_class') IS NULL)
    """
    with engine.connect() as connection:
        assert connection.execute(text(query)).all() == []


def test_public_schema_holds_extension_only(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.execute(text(FOREIGN_OBJECTS)).all() == []
        assert connection.execute(text("SELECT '[1,2]'::vector::text")).scalar_one() == "[1,2]"


def test_external_database_without_schema_is_rejected(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", empty_database_url)
    with pytest.raises(SchemaOutOfDateError, match="consolidation init"):
        open_engine(Settings())


def test_pooler_without_sessions_is_refused(engine: Engine) -> None:
    # As through PgBouncer with ignore_startup_parameters = options.
    pooled = create_engine(engine.url)
    with pytest.raises(StoreError, match=r"PgBouncer .* set CONSOLIDATION_DATABASE_URL to Postgres itself"):
        check_schema(pooled)
    pooled.dispose()


def test_external_database_with_schema_is_opened(settings: Settings) -> None:
    with open_engine(settings).connect() as connection:
        assert connection.execute(text("SHOW timezone")).scalar_one() == "UTC"


@pytest.fixture
def unprivileged(empty: Engine) -> Iterator[Engine]:
    """Engine of a user with no privilege but to connect."""
    role = f"unprivileged_{uuid.uuid4().hex[:8]}"
    with empty.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role}"))
    empty.dispose()

    def take_role(connection: object, _: object) -> None:
        connection.cursor().execute(f"SET ROLE {role}")  # type: ignore[attr-defined]
        connection.commit()  # type: ignore[attr-defined]

    event.listen(empty, "connect", take_role)
    yield empty
    event.remove(empty, "connect", take_role)
    empty.dispose()
    with empty.begin() as connection:
        connection.execute(text(f"DROP ROLE {role}"))


def test_missing_create_privilege_is_reported(unprivileged: Engine) -> None:
    with pytest.raises(StoreError, match="may not create schema `consolidation`"):
        upgrade(unprivileged)


def test_owner_is_told_who_creates_the_extension(unprivileged: Engine) -> None:
    with unprivileged.begin() as connection:
        role, database = connection.execute(text("SELECT current_user, current_database()")).one()
        connection.execute(text(f'RESET ROLE; GRANT CREATE ON DATABASE "{database}" TO {role}'))
    unprivileged.dispose()
    with pytest.raises(StoreError, match="let a superuser run `CREATE EXTENSION vector` in this database once"):
        upgrade(unprivileged)
    with unprivileged.begin() as connection:
        connection.execute(text(f'RESET ROLE; REVOKE CREATE ON DATABASE "{database}" FROM {role}'))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://agent:{PASSWORD}@127.0.0.1:1/memories",
        f"postgresql:///memories?host=/nowhere&user=agent&password={PASSWORD}",
        f"postgresql://agent:{PASSWORD}@no-such-host.invalid/memories",
        f"postgresql://agent:{PASSWORD}@127.0.0.1:port/memories",
        f"postgresql://agent:{PASSWORD}@127.0.0.1/memories?no_such_option=1",
        f"mysql://agent:{PASSWORD}@127.0.0.1/memories",
    ],
    ids=["refused", "password in the query", "unknown host", "bad port", "unknown option", "not Postgres"],
)
def test_database_error_hides_password(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        upgrade(connect_engine(with_driver(url, "psycopg")))
    assert PASSWORD not in str(caught.value)
    assert "database" in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
def test_database_url_names_driver(scheme: str) -> None:
    url = f"{scheme}://u:p%40@h:5/d?sslmode=require"
    assert with_driver(url, "psycopg2") == "postgresql+psycopg2://u:p%40@h:5/d?sslmode=require"


def test_database_urls_come_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "postgres://h/memories")
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://h/runs")
    assert database_url(Settings()) == "postgresql+psycopg://h/memories"
    assert dagster_url(Settings()) == "postgresql+psycopg2://h/runs"


def test_upgrade_stores_the_user_of_consolidated_memories(engine: Engine) -> None:
    with engine.begin() as connection:
        project = add_project(connection)
        users = {"a": "ada", "b": "ada", "c": "bob", "d": None}
        raw = add_memories(connection, project, [new_memory(key, user_id=user) for key, user in users.items()])
        for sources in (raw[:2], raw[1:3], raw[3:]):
            add_merged(connection, project, f"of {len(sources)} from {raw.index(sources[0])}", sources)
    downgrade(engine, "0010")
    upgrade(engine)
    with engine.connect() as connection:
        query = f"SELECT content, scope_key FROM {SCHEMA}.consolidated_memories ORDER BY content"
        found = [tuple(row) for row in connection.execute(text(query))]
    assert found == [("of 1 from 3", ""), ("of 2 from 0", "ada"), ("of 2 from 1", None)]
