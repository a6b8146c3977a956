"""Stores with row-level security: what is told of rows that are not seen or may not be changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consolidation_pipeline.service.sources.connections import connect_source, probe_source
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE
from consolidation_pipeline_tests.service.sources.stores import FACTS, WORDINGS, Store
from consolidation_pipeline_tests.service.sources.test_connections import CONFIG
from consolidation_pipeline_tests.service.sources.test_connections import reader_env as reader_env

TOLD = "row-level security of mem0 applies to user reader; to grant all rows: "
GRANT = "CREATE POLICY consolidation ON mem0 TO reader USING (true)"
OF_ALICE = "payload ->> 'user_id' = 'alice'"


@pytest.fixture
def secured(reader_env: str, mem0_store: Store, pipeline: Pipeline) -> Iterator[Store]:
    """Collection of which the connected user sees all rows, and may change those of alice."""
    store = mem0_store.connection
    store.execute("GRANT INSERT, UPDATE, DELETE ON mem0, mem0_entities TO reader")
    store.execute(f"GRANT CREATE ON DATABASE {store.info.dbname} TO reader")
    store.execute("ALTER TABLE mem0 ENABLE ROW LEVEL SECURITY")
    store.execute("CREATE POLICY seen ON mem0 FOR SELECT TO reader USING (true)")
    store.execute(f"CREATE POLICY changed ON mem0 TO reader USING ({OF_ALICE})")
    config = {**CONFIG, "url_env": reader_env}
    assert [one for one in probe_source(config).warnings if one.endswith(TOLD + GRANT)]
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="review")
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    yield mem0_store
    store.execute("DROP SCHEMA IF EXISTS consolidation_sidecar CASCADE")


def test_rows_that_may_not_be_changed_are_told(secured: Store, pipeline: Pipeline) -> None:
    done = write_source(pipeline.engine, SOURCE, everything=True)
    assert (done.written, len(done.refused)) == (len(FACTS), len(FACTS))
    assert set(done.refused.values()) == {
        f"{WORDINGS} of its {WORDINGS} rows may not be changed by this user: {TOLD}{GRANT}"
    }
    secured.connection.execute(GRANT)
    done = write_source(pipeline.engine, SOURCE, everything=True)
    assert (done.written, done.refused) == (len(FACTS), {})


def test_rows_that_are_not_seen_are_told(secured: Store, pipeline: Pipeline) -> None:
    assert write_source(pipeline.engine, SOURCE, everything=True).written == len(FACTS)
    secured.connection.execute(f"ALTER POLICY seen ON mem0 USING (NOT ({OF_ALICE}))")
    secured.connection.execute(f"ALTER POLICY changed ON mem0 USING (NOT ({OF_ALICE}))")
    conflicts = [one for found in undo_writes(pipeline.engine, SOURCE).values() for one in found]
    assert {one.reason for one in conflicts} == {f"the kept row was deleted, or hidden from this user: {TOLD}{GRANT}"}
    secured.connection.execute(f"ALTER POLICY seen ON mem0 USING ({OF_ALICE})")
    secured.connection.execute(f"ALTER POLICY changed ON mem0 USING ({OF_ALICE})")
    synced = sync_source(pipeline.engine, SOURCE)
    gone = len(FACTS) * WORDINGS
    assert synced.notes[-1] == f"{gone} rows are gone, or hidden from this user: {TOLD}{GRANT}"
