"""Stores as the real libraries fill and read them: mem0, LangGraph with LangMem, Agno, LlamaIndex."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from consolidation_pipeline.service.sources.connections import connect_source
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import write_source
from consolidation_pipeline_tests.openai_server import Reply, Request, json_response, openai_server
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV
from consolidation_pipeline_tests.service.sources.local_vectors import repeat_vectors, reply_with_local_vectors
from consolidation_pipeline_tests.service.sources.stores import DIMENSION, FACTS, USERS, WORDINGS, all_wordings

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

GROUPS = len(FACTS) * len(USERS)


Query = tuple[str, str]


@dataclass(frozen=True)
class Library:
    """A library with its store.

    ``search`` returns the texts that it finds for a user's query, best first; ``search_async`` those of several, by its
    asynchronous interface.
    """

    config: dict[str, Any]
    tables: Sequence[str]
    add: Callable[[str, str], Any]
    search: Callable[[str, str], list[str]]
    search_async: Callable[[Sequence[Query]], Coroutine[Any, Any, list[list[str]]]]


@pytest.fixture
def mem0_library(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Memory of mem0 in a collection of pgvector."""
    monkeypatch.setenv("MEM0_TELEMETRY", "False")
    monkeypatch.setenv("MEM0_DIR", str(tmp_path / "mem0"))
    from mem0 import AsyncMemory, Memory

    with openai_server(reply_with_local_vectors(DIMENSION)) as server:
        model = {"model": "local", "openai_base_url": server.api_base, "api_key": "none"}
        store = {"connection_string": store_url, "collection_name": "memories", "embedding_model_dims": DIMENSION}
        config = {
            "vector_store": {"provider": "pgvector", "config": {**store, "hnsw": True}},
            "embedder": {"provider": "openai", "config": {**model, "embedding_dims": DIMENSION}},
            "llm": {"provider": "openai", "config": model},
            "history_db_path": str(tmp_path / "history.db"),
        }
        memory = Memory.from_config(config)

        async def search_async(queries: Sequence[Query]) -> list[list[str]]:
            other = AsyncMemory.from_config(config)
            try:
                found = [await other.search(text, filters={"user_id": user}, top_k=WORDINGS) for user, text in queries]
            finally:
                other.vector_store.connection_pool.close()
            return [[hit["memory"] for hit in each["results"]] for each in found]

        yield Library(
            {"kind": "mem0", "table": "memories", "embedding_model": "local"},
            ["memories"],
            lambda user, text: memory.add(text, user_id=user, infer=False),
            lambda user, query: [
                hit["memory"] for hit in memory.search(query, filters={"user_id": user}, top_k=WORDINGS)["results"]
            ],
            search_async,
        )
        memory.vector_store.connection_pool.close()


@pytest.fixture
def langgraph_library(store_url: str) -> Iterator[Library]:
    """Store of LangGraph, filled by the memory tool of LangMem."""
    from langgraph.store.postgres import PostgresStore
    from langgraph.store.postgres.aio import AsyncPostgresStore
    from langmem import create_manage_memory_tool

    index: Any = {
        "dims": DIMENSION,
        "embed": lambda texts: repeat_vectors(texts, DIMENSION).tolist(),
        "fields": ["content"],
    }
    with PostgresStore.from_conn_string(store_url, index=index) as store:
        store.setup()

        def add(user: str, text: str) -> None:
            tool = create_manage_memory_tool(namespace=("memories", user), store=store)
            tool.invoke({"content": text, "action": "create"})

        async def search_async(queries: Sequence[Query]) -> list[list[str]]:
            async with AsyncPostgresStore.from_conn_string(store_url, index=index) as other:
                found = [await other.asearch(("memories", user), query=text, limit=WORDINGS) for user, text in queries]
            return [[item.value["content"] for item in each] for each in found]

        yield Library(
            {"kind": "langgraph", "embedding_model": "local"},
            ["store", "store_vectors"],
            add,
            lambda user, query: [
                item.value["content"] for item in store.search(("memories", user), query=query, limit=WORDINGS)
            ],
            search_async,
        )


@pytest.fixture
def langmem_library(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Store of LangGraph, filled by the memory manager of LangMem, whose model calls a tool for each memory."""
    from langchain_openai import ChatOpenAI
    from langgraph.store.postgres import PostgresStore
    from langgraph.store.postgres.aio import AsyncPostgresStore
    from langmem import create_memory_store_manager

    index: Any = {
        "dims": DIMENSION,
        "embed": lambda texts: repeat_vectors(texts, DIMENSION).tolist(),
        "fields": ["content.content"],
    }
    monkeypatch.setenv("LANGSMITH_TRACING", "false")

    def extract(request: Request) -> Reply:
        """Answer with one memory: what the conversation says."""
        (said,) = re.findall(r"I learned: (.*)", json.dumps(request.body["messages"], ensure_ascii=False))[-1:]
        arguments = json.dumps({"content": said.partition("<END>")[0]})
        call = {"id": "call-1", "type": "function", "function": {"name": "Memory", "arguments": arguments}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return json_response(
            {"id": "chat-1", "object": "chat.completion", "created": 1, "model": "local", "choices": [choice]}
        )

    with openai_server(extract) as server, PostgresStore.from_conn_string(store_url, index=index) as store:
        store.setup()
        model = ChatOpenAI(model="local", base_url=server.api_base, api_key="none")
        manager = create_memory_store_manager(model, namespace=("memories", "{user}"), store=store)

        def add(user: str, text: str) -> None:
            said = {"messages": [{"role": "user", "content": f"I learned: {text}<END>"}]}
            manager.invoke(said, config={"configurable": {"user": user}})

        async def search_async(queries: Sequence[Query]) -> list[list[str]]:
            async with AsyncPostgresStore.from_conn_string(store_url, index=index) as other:
                found = [await other.asearch(("memories", user), query=text, limit=WORDINGS) for user, text in queries]
            return [[item.value["content"]["content"] for item in each] for each in found]

        yield Library(
            {"kind": "langgraph", "embedding_model": "local", "text": "content.content"},
            ["store", "store_vectors"],
            add,
            lambda user, query: [
                item.value["content"]["content"]
                for item in store.search(("memories", user), query=query, limit=WORDINGS)
            ],
            search_async,
        )


@pytest.fixture
def agno_library(store_url: str) -> Iterator[Library]:
    """Memories of Agno, which are listed and not searched."""
    from agno.db.postgres import AsyncPostgresDb, PostgresDb
    from agno.db.schemas import UserMemory

    url = store_url.replace("postgresql://", "postgresql+psycopg://")
    database = PostgresDb(db_url=url, memory_table="agno_memories")

    def add(user: str, text: str) -> None:
        database.upsert_user_memory(UserMemory(memory=text, memory_id=str(uuid4()), user_id=user, topics=["work"]))

    def find(user: str, query: str) -> list[str]:
        found = [each.memory for each in database.get_user_memories(user_id=user)]
        return [text for text in found if query[5:20] in text]

    async def find_async(queries: Sequence[Query]) -> list[list[str]]:
        other = AsyncPostgresDb(db_url=url, memory_table="agno_memories")
        found = [(await other.get_user_memories(user_id=user), text) for user, text in queries]
        await other.db_engine.dispose()
        return [[each.memory for each in memories if text[5:20] in each.memory] for memories, text in found]

    yield Library({"kind": "agno"}, ["ai.agno_memories"], add, find, find_async)
    database.db_engine.dispose()


@pytest.fixture
def llamaindex_library(store_url: str) -> Iterator[Library]:
    """Vector table of LlamaIndex."""
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores import ExactMatchFilter, MetadataFilters, VectorStoreQuery
    from llama_index.vector_stores.postgres import PGVectorStore

    url = store_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url)

    def open_table() -> Any:
        return PGVectorStore(
            table_name="memory", embed_dim=DIMENSION, engine=engine, async_engine=create_async_engine(url)
        )

    def ask(user: str, text: str) -> Any:
        return VectorStoreQuery(
            query_embedding=repeat_vectors([text], DIMENSION)[0].tolist(),
            similarity_top_k=WORDINGS,
            filters=MetadataFilters(filters=[ExactMatchFilter(key="user_id", value=user)]),
        )

    table = open_table()

    def add(user: str, text: str) -> None:
        vector = repeat_vectors([text], DIMENSION)[0].tolist()
        table.add([TextNode(text=text, metadata={"user_id": user}, embedding=vector)])

    async def search_async(queries: Sequence[Query]) -> list[list[str]]:
        other = open_table()
        found = [await other.aquery(ask(*query)) for query in queries]
        await other.close()
        return [[node.get_content() for node in each.nodes] for each in found]

    yield Library(
        {"kind": "llamaindex", "embedding_model": "local"},
        ["data_memory"],
        add,
        lambda user, query: [node.get_content() for node in table.query(ask(user, query)).nodes],
        search_async,
    )
    engine.dispose()


@pytest.fixture(params=["mem0_library", "langgraph_library", "langmem_library", "agno_library", "llamaindex_library"])
def library(request: pytest.FixtureRequest) -> Library:
    """Each library in turn, with facts in several wordings."""
    chosen: Library = request.getfixturevalue(request.param)
    for user, text in all_wordings():
        chosen.add(user, text)
    return chosen


def test_library_finds_what_was_written_and_undone(library: Library, store_url: str, pipeline: Pipeline) -> None:
    def checksum() -> list[Any]:
        with psycopg.connect(store_url) as store:
            query = "SELECT md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM {} t"
            return [store.execute(query.format(name)).fetchone() for name in library.tables]

    before = checksum()
    found = {(user, fact): library.search(user, fact) for user in USERS for fact in FACTS}
    assert all(sum(fact[5:] in text for text in texts) == WORDINGS for (_, fact), texts in found.items())
    config = {**library.config, "url_env": URL_ENV}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config, mode="write")
    assert sync_source(pipeline.engine, SOURCE).added == len(all_wordings())
    outcome = pipeline.run(PROJECT)
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert (result.written, result.refused) == (GROUPS, {})
    for user, fact in found:
        assert sum(fact[5:] in text for text in library.search(user, fact)) == 1
        assert fact[5:] in library.search(user, fact)[0]
    shown = asyncio.run(library.search_async(list(found)))
    for (_, fact), texts in zip(found, shown, strict=True):
        assert sum(fact[5:] in text for text in texts) == 1
    library.add("alice", f"{FACTS[0]}!")
    assert sync_source(pipeline.engine, SOURCE).added == 1
    pipeline.run(PROJECT)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).written == 1
    pipeline.roll_back(outcome.job_id, cascade=True)
    with psycopg.connect(store_url, autocommit=True) as store:
        store.execute(f"DELETE FROM {library.tables[0]} t WHERE t::text LIKE '%restart!%'")
    assert checksum() == before
    assert {key: sorted(library.search(*key)) for key in found} == {key: sorted(texts) for key, texts in found.items()}
    shown = asyncio.run(library.search_async(list(found)))
    assert [sorted(texts) for texts in shown] == [sorted(texts) for texts in found.values()]


def test_demo_runs_and_undoes_everything() -> None:
    demo = Path(__file__).parents[3] / "examples" / "demo_mem0.py"
    done = subprocess.run([sys.executable, demo], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert "5 groups written, 10 rows hidden, 0 added" in done.stdout
    assert "checksum of the collection equals the one at the start" in done.stdout
