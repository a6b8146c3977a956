"""Projects: valid slugs, configuration, and deletion."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SCHEMA, metadata, playbook_entries
from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.jobs.jobs import append_job
from consolidation_pipeline.store.projects import (
    configure_project,
    create_project,
    delete_project,
    get_project,
    list_projects,
)
from consolidation_pipeline.store.similarity.similarity_graph import TOPIC, Neighbors, append_neighbors, load_neighbors
from consolidation_pipeline.store.sources.sources import SourceRowState, create_source, save_row_states
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    add_memories,
    add_merged,
    add_project,
    hide_sources,
    insert_row,
    new_memory,
)

VALID_SLUGS = ["a", "0", "a.b_c-d", "9-", "a" * 63, "project.2024_v1-x"]
INVALID_SLUGS = ["", "A", "-a", ".a", "_a", "a" * 64, "a b", "a/b", "ä", "a\n", "a\nb", "٣", "a,b", "a'b", " a", "a "]


@pytest.mark.parametrize("slug", VALID_SLUGS)
def test_valid_slug_is_accepted(connection: Connection, slug: str) -> None:
    assert create_project(connection, slug, {"merge": False}).slug == slug
    assert get_project(connection, slug).config == {"merge": False}


@pytest.mark.parametrize("slug", INVALID_SLUGS)
def test_invalid_slug_is_rejected_by_code_and_database(connection: Connection, slug: str) -> None:
    with pytest.raises(UsageError, match="1 to 63"):
        create_project(connection, slug)
    with pytest.raises(IntegrityError, match="slug"):
        connection.execute(text(f"INSERT INTO {SCHEMA}.projects (slug) VALUES (:slug)"), {"slug": slug})


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(slug=st.text(st.sampled_from("ab09.-_A \nä\x7f"), max_size=5))
@example("a\n")
def test_code_and_database_agree_on_slugs(connection: Connection, slug: str) -> None:
    rule = f"SELECT CAST(:slug AS text) ~ '{'^[a-z0-9][a-z0-9._-]{0,62}$'}'"
    is_valid = connection.execute(text(rule), {"slug": slug}).scalar_one()
    with connection.begin_nested() as transaction:
        try:
            create_project(connection, slug)
        except UsageError:
            assert not is_valid
        else:
            assert is_valid
        transaction.rollback()


def test_duplicate_slug_keeps_transaction_usable(engine: Engine) -> None:
    with engine.begin() as connection:
        create_project(connection, "garden")
        with pytest.raises(ConflictError, match="garden"):
            create_project(connection, "garden")
        create_project(connection, "another")
        assert [project.slug for project in list_projects(connection)] == ["another", "garden"]


def test_unknown_project_error_lists_projects(engine: Engine) -> None:
    with engine.begin() as connection:
        with pytest.raises(NotFoundError, match="none"):
            get_project(connection, "gardn")
        create_project(connection, "garden")
        with pytest.raises(NotFoundError, match=r"gardn.*garden"):
            configure_project(connection, "gardn", config={}, consolidation_enabled=True)


def test_configure_project_replaces_config(engine: Engine) -> None:
    with engine.begin() as connection:
        create_project(connection, "garden", {"merge": False, "center": False})
        changed = configure_project(connection, "garden", config={"merge": True}, consolidation_enabled=False)
        assert changed == get_project(connection, "garden")
        assert (changed.config, changed.consolidation_enabled) == ({"merge": True}, False)


def test_delete_project_keeps_ledger(engine: Engine) -> None:
    with engine.begin() as connection:
        kept = add_project(connection, "kept")
        add_memories(connection, kept, [new_memory("stays", files=("a.py",))])
        deleted = add_project(connection, "deleted")
        raw = add_memories(connection, deleted, [new_memory(key, files=("a.py",)) for key in "ab"])
        merged = add_merged(connection, deleted, "ab", raw, files=["a.py"])
        hide_sources(connection, deleted, raw, merged)
        insert_row(connection, deleted, playbook_entries, content="Do.", content_hash="h")
        append_job(connection, deleted.id, trigger_type="manual", triggered_by="test", options={})
        append_event(connection, deleted.id, "test.event", {})
        columns = "project_id, purpose, model, prompt_hash, status"
        call = f"INSERT INTO {SCHEMA}.llm_calls ({columns}) VALUES (:project, '', '', '', 'failed')"
        connection.execute(text(call), {"project": deleted.id})
        source = create_source(connection, deleted.id, "store", config={"kind": "mem0"}, mode="mirror")
        save_row_states(connection, source.id, [SourceRowState("key", raw[0], "stamp", "mirrored")])
        low, high = (to_ids([id_]) for id_ in sorted(raw))
        pair = Neighbors(low, high, np.array([0.9], np.float32), np.array([TOPIC], np.int16))
        for project in (kept, deleted):
            append_neighbors(connection, project.id, MODEL, [pair])
    with engine.begin() as connection:
        delete_project(connection, deleted)
    with engine.connect() as connection:
        row_counts = {}
        for table in metadata.sorted_tables:
            owner = "id" if table.name == "projects" else "project_id"
            query = f"SELECT count(*) FROM {table} WHERE {owner} = :project"
            row_counts[table.name] = connection.execute(text(query), {"project": deleted.id}).scalar_one()
        filled = {name for name, rows in row_counts.items() if rows}
        assert filled == {"consolidation_changes", "consolidation_events", "llm_calls"}
        assert row_counts["consolidation_changes"] == 4
        assert [project.slug for project in list_projects(connection)] == ["kept"]
        assert len(load_neighbors(connection, kept.id, MODEL, 0.0)) == 1
        assert connection.execute(text(f"SELECT count(*) FROM {SCHEMA}.memory_files")).scalar_one() == 1
