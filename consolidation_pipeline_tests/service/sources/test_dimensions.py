"""Stores with vectors of the lengths that people use, also of half precision."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from consolidation_pipeline.connect.config import read_config
from consolidation_pipeline.connect.source_table import SourceTable
from consolidation_pipeline.service.sources.connections import connect_source
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import write_source
from consolidation_pipeline_tests.openai_server import openai_server
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV
from consolidation_pipeline_tests.service.sources.local_vectors import repeat_vectors, reply_with_local_vectors
from consolidation_pipeline_tests.service.sources.stores import FACTS, MEM0, USERS, Kind, Store, all_wordings
from consolidation_pipeline_tests.service.sources.test_write_back import PARTIAL

MODEL = "openai/repeated"
# Wide enough for the pair that needs a new row.
THRESHOLDS = {"t_merge": 0.7, "t_suggest": 0.65}
TYPES = ("vector(384)", pytest.param("vector(1536)", marks=pytest.mark.slow), "halfvec(3072)")


@pytest.fixture(params=TYPES)
def sized_store(request: pytest.FixtureRequest, make_store: Callable[[Kind], Store], store_url: str) -> Iterator[Store]:
    """Collection of mem0 with vectors of this type, and a server of the model that makes them."""
    if request.param.startswith("halfvec") and not has_halfvec(store_url):
        pytest.skip("this pgvector has no halfvec: 0.7 or newer has")
    type_, dimension = request.param, int(request.param.strip(")").partition("(")[2])

    def insert(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
        del vector
        MEM0.insert(store, user, text, json.dumps(repeat_vectors([text], dimension)[0].tolist()))

    create = MEM0.create.replace("vector(256)", type_).replace("vector_cosine", f"{type_.partition('(')[0]}_cosine")
    config = {**MEM0.config, "embedding_model": MODEL}
    with openai_server(reply_with_local_vectors(dimension)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_BASE", server.api_base)
        patch.setenv("OPENAI_API_KEY", "none")
        yield make_store(replace(MEM0, create=create, insert=insert, config=config))


def test_vectors_of_this_length_are_written_and_undone(sized_store: Store, pipeline: Pipeline) -> None:
    sized_store.add(PARTIAL)
    before = sized_store.checksum()
    pipeline.configure_new(PROJECT, embedding_model=MODEL, scope="user_id,agent_id,session_id", **THRESHOLDS)
    config = {**sized_store.kind.config, "url_env": URL_ENV}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    assert sync_source(pipeline.engine, SOURCE).with_vectors == len(all_wordings()) + len(PARTIAL)
    outcome = pipeline.run(PROJECT)
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert (result.written, result.inserted, result.refused) == (len(FACTS) * len(USERS) + 1, 1, {})
    (united,) = [text for text in sized_store.texts() if "laptops" in text]
    assert find_first(sized_store, united, "alice") == united
    for user in USERS:
        assert all(fact[5:] in find_first(sized_store, fact, user) for fact in FACTS)
    pipeline.roll_back(outcome.job_id)
    assert sized_store.checksum() == before


def test_changed_row_brings_its_new_vector(sized_store: Store, pipeline: Pipeline) -> None:
    pipeline.configure_new(PROJECT, embedding_model=MODEL, scope="user_id,agent_id,session_id", **THRESHOLDS)
    config = {**sized_store.kind.config, "url_env": URL_ENV}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)
    sync_source(pipeline.engine, SOURCE)
    store = sized_store.connection
    ((dimension,),) = store.execute("SELECT cardinality(vector::real[]) FROM mem0 LIMIT 1").fetchall()
    (edited,), (half_edited,) = store.execute("SELECT id FROM mem0 ORDER BY id LIMIT 2").fetchall()
    new, half_new = "The invoices of the shop are printed in Riga.", "The parrot of the office speaks Latvian."
    change = "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', to_jsonb(%s::text))"
    vector = json.dumps(repeat_vectors([new], dimension)[0].tolist())
    store.execute(f"{change}, vector = %s WHERE id = %s", [new, vector, edited])
    store.execute(f"{change} WHERE id = %s", [half_new, half_edited])
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.revised, result.with_vectors) == (2, 1)
    found = dict(pipeline.rows("SELECT execution_summary, embedding IS NOT NULL FROM {s}.task_memories"))
    assert (found[new], found[half_new]) == (True, False)


def has_halfvec(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT to_regtype('halfvec') IS NOT NULL").fetchone() == (True,)


def find_first(store: Store, text: str, user: str) -> str:
    """Return the text of the row that the store's own search finds first."""
    table = SourceTable(store.connection, read_config({**store.kind.config, "url_env": URL_ENV}).mapping)
    dimension = int(table.columns["vector"].type.strip(")").partition("(")[2])
    vector = json.dumps(repeat_vectors([text], dimension)[0].tolist())
    (key,) = table.find_nearest(store.connection, vector, {"user_id": user}, 1)
    row = store.connection.execute("SELECT payload ->> 'data' FROM mem0 WHERE id = %s", [key]).fetchone()
    return "" if row is None else str(row[0])
