"""Tables of other programs, as these make them, filled with facts in several wordings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any
from uuid import UUID, uuid5

import psycopg
from psycopg import sql

from consolidation_pipeline.embed import load_embedder

FACTS = (
    "The deploy of the billing service must run its migrations before the containers restart",
    "Alice prefers window seats on long flights and aisle seats on short ones",
    "The nightly backup of the orders database takes about forty minutes",
    "Use port 8443 for the staging gateway, as 443 belongs to the load balancer",
)
WORDINGS = 3
USERS = ("alice", "bob")
DIMENSION = 256
_NAMESPACE = UUID("00000000-0000-0000-0000-00000000abcd")


def word(fact: str, at: int) -> str:
    """Return a fact in one of its wordings, which say the same."""
    return (fact, f"{fact}.", f"Note: {fact[0].lower()}{fact[1:]}.")[at]


def all_wordings() -> list[tuple[str, str]]:
    """Return user and text of every fact in every wording for every user."""
    return [(user, word(fact, at)) for user in USERS for fact in FACTS for at in range(WORDINGS)]


def embed(texts: Sequence[str]) -> list[str]:
    """Return vectors as Postgres writes them."""
    return [json.dumps([float(value) for value in vector]) for vector in load_embedder("local").embed(list(texts))]


def row_id(user: str, text: str) -> str:
    """Return the id of the row with this text."""
    return str(uuid5(_NAMESPACE, f"{user}/{text}"))


@dataclass(frozen=True)
class Kind:
    """A kind of store. ``tables``: those that a write may touch."""

    name: str
    tables: tuple[str, ...]
    create: str
    insert: Callable[[psycopg.Connection[Any], str, str, str], None]
    config: dict[str, Any]
    text_column: str


def _insert_mem0(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
    id_ = row_id(user, text)
    payload = {
        "data": text,
        "hash": md5(text.encode(), usedforsecurity=False).hexdigest(),
        "user_id": user,
        "created_at": "2026-01-05T10:00:00+00:00",
        "text_lemmatized": text.lower(),
        "color": "blue",
    }
    store.execute("INSERT INTO mem0 VALUES (%s, %s, %s)", [id_, vector, json.dumps(payload)])
    entity = {"data": user, "user_id": user, "linked_memory_ids": [id_]}
    store.execute(
        "INSERT INTO mem0_entities VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET payload = jsonb_set("
        "mem0_entities.payload, '{linked_memory_ids}', mem0_entities.payload -> 'linked_memory_ids' || %s::jsonb)",
        [str(uuid5(_NAMESPACE, user)), vector, json.dumps(entity), json.dumps([id_])],
    )


def _insert_langgraph(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
    id_ = row_id(user, text)
    store.execute(
        "INSERT INTO store (prefix, key, value) VALUES (%s, %s, %s)",
        [f"memories.{user}", id_, json.dumps({"content": text})],
    )
    store.execute(
        "INSERT INTO store_vectors (prefix, key, field_name, embedding) VALUES (%s, %s, 'content', %s)",
        [f"memories.{user}", id_, vector],
    )


def _insert_agno(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
    del vector
    store.execute(
        "INSERT INTO ai.agno_memories (memory_id, memory, user_id, topics, created_at, updated_at) "
        "VALUES (%s, %s, %s, '[\"work\"]', 1767600000, 1767600000)",
        [row_id(user, text), json.dumps(text), user],
    )


def _insert_claude_mem(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
    del vector
    id_ = row_id(user, text)
    store.execute(
        "INSERT INTO observations (id, project_id, team_id, content, generation_key, created_at, updated_at) "
        "VALUES (%s, %s, 'team', %s, %s, '2026-01-05', '2026-01-05')",
        [id_, user, text, id_],
    )
    store.execute("INSERT INTO observation_sources VALUES (%s, %s, 'manual', %s)", [f"s{id_}", id_, id_])


def _insert_letta(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
    id_ = f"passage-{row_id(user, text)}"
    padded = [*json.loads(vector), *[0.0] * (4096 - DIMENSION)]
    store.execute(
        "INSERT INTO archival_passages (id, text, metadata_, tags, embedding, organization_id, archive_id, created_at, "
        "updated_at) VALUES (%s, %s, '{}', '[\"work\"]', %s, 'org', %s, '2026-01-05', '2026-01-05')",
        [id_, text, json.dumps(padded), user],
    )
    store.execute("INSERT INTO passage_tags VALUES (%s, 'work', %s, %s)", [f"tag-{id_}", id_, user])


def _insert_llamaindex(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
    metadata = {"user_id": user, "_node_content": json.dumps({"text": text})}
    store.execute(
        "INSERT INTO data_memory (text, metadata_, node_id, embedding) VALUES (%s, %s, %s, %s)",
        [text, json.dumps(metadata), row_id(user, text), vector],
    )


def _insert_notes(store: psycopg.Connection[Any], user: str, text: str, vector: str) -> None:
    store.execute("INSERT INTO app.notes (tenant, body, embedding) VALUES (%s, %s, %s)", [user, text, vector])


MEM0 = Kind(
    "mem0",
    ("mem0", "mem0_entities"),
    """
    CREATE TABLE mem0 (id uuid PRIMARY KEY, vector vector(256), payload jsonb);
    CREATE INDEX ON mem0 USING hnsw (vector vector_cosine_ops);
    CREATE TABLE mem0_entities (id uuid PRIMARY KEY, vector vector(256), payload jsonb);
    """,
    _insert_mem0,
    {"kind": "mem0", "embedding_model": "local"},
    "payload -> 'data'",
)
LANGGRAPH = Kind(
    "langgraph",
    ("store", "store_vectors"),
    """
    CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value jsonb NOT NULL,
        created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now(), expires_at timestamptz,
        ttl_minutes int, PRIMARY KEY (prefix, key));
    CREATE TABLE store_vectors (prefix text NOT NULL, key text NOT NULL, field_name text NOT NULL,
        embedding vector(256), created_at timestamptz DEFAULT now(), updated_at timestamptz DEFAULT now(),
        PRIMARY KEY (prefix, key, field_name),
        FOREIGN KEY (prefix, key) REFERENCES store (prefix, key) ON DELETE CASCADE);
    """,
    _insert_langgraph,
    {"kind": "langgraph", "embedding_model": "local"},
    "value -> 'content'",
)
AGNO = Kind(
    "agno",
    ("ai.agno_memories",),
    """
    CREATE SCHEMA ai;
    CREATE TABLE ai.agno_memories (memory_id varchar PRIMARY KEY, memory jsonb NOT NULL, feedback text, input text,
        agent_id varchar, team_id varchar, user_id varchar, topics jsonb, created_at bigint NOT NULL,
        updated_at bigint);
    """,
    _insert_agno,
    {"kind": "agno"},
    "memory",
)
NOTES = Kind(
    "table",
    ("app.notes",),
    """
    CREATE SCHEMA app;
    CREATE TABLE app.notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant text, body text NOT NULL,
        body_length int GENERATED ALWAYS AS (length(body)) STORED, embedding vector(256), at timestamptz DEFAULT now());
    """,
    _insert_notes,
    {
        "kind": "table",
        "table": "app.notes",
        "key": ["id"],
        "text": "body",
        "scope": {"user_id": "tenant"},
        "created": "at",
        "vector": "embedding",
        "embedding_model": "local",
    },
    "to_jsonb(body)",
)
CLAUDE_MEM = Kind(
    "claude_mem",
    ("observations", "observation_sources"),
    """
    CREATE TABLE observations (id text PRIMARY KEY, project_id text NOT NULL, team_id text NOT NULL,
        kind text NOT NULL DEFAULT 'observation', content text NOT NULL,
        content_search tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED, generation_key text,
        metadata jsonb NOT NULL DEFAULT '{}', embedding jsonb, created_at timestamptz NOT NULL DEFAULT now(),
        updated_at timestamptz NOT NULL DEFAULT now());
    CREATE UNIQUE INDEX ON observations (team_id, project_id, generation_key) WHERE generation_key IS NOT NULL;
    CREATE TABLE observation_sources (id text PRIMARY KEY,
        observation_id text NOT NULL REFERENCES observations (id) ON DELETE CASCADE, source_type text NOT NULL,
        source_id text NOT NULL, UNIQUE (observation_id, source_type, source_id));
    """,
    _insert_claude_mem,
    {"kind": "claude_mem"},
    "to_jsonb(content)",
)
LETTA = Kind(
    "letta",
    ("archival_passages", "passage_tags"),
    """
    CREATE TYPE vectordbprovider AS ENUM ('NATIVE', 'TPUF', 'PINECONE');
    CREATE TABLE archives (id text PRIMARY KEY, vector_db_provider vectordbprovider NOT NULL);
    INSERT INTO archives VALUES ('alice', 'NATIVE'), ('bob', 'NATIVE'), ('far', 'TPUF');
    CREATE TABLE archival_passages (id text PRIMARY KEY, text text NOT NULL, embedding_config json,
        metadata_ json NOT NULL, tags json, embedding vector(4096), organization_id text NOT NULL,
        archive_id text NOT NULL REFERENCES archives (id), created_at timestamptz DEFAULT now(),
        updated_at timestamptz DEFAULT now(), is_deleted boolean NOT NULL DEFAULT false);
    CREATE TABLE passage_tags (id text PRIMARY KEY, tag text NOT NULL,
        passage_id text NOT NULL REFERENCES archival_passages (id) ON DELETE CASCADE, archive_id text NOT NULL,
        UNIQUE (passage_id, tag));
    """,
    _insert_letta,
    {"kind": "letta"},
    "to_jsonb(text)",
)
LLAMAINDEX = Kind(
    "llamaindex",
    ("data_memory",),
    """
    CREATE TABLE data_memory (id bigserial PRIMARY KEY, text varchar NOT NULL, metadata_ json, node_id varchar,
        embedding vector(256), text_search_tsv tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED);
    """,
    _insert_llamaindex,
    {"kind": "llamaindex", "embedding_model": "local"},
    "to_jsonb(text)",
)
KINDS = (MEM0, LANGGRAPH, AGNO, CLAUDE_MEM, LETTA, LLAMAINDEX, NOTES)


@dataclass(frozen=True)
class Store:
    """A store in a database of its own."""

    kind: Kind
    connection: psycopg.Connection[Any]

    def add(self, rows: Iterable[tuple[str, str]]) -> None:
        """Write memories as the store's program does."""
        given = list(rows)
        for (user, text), vector in zip(given, embed([text for _, text in given]), strict=True):
            self.kind.insert(self.connection, user, text, vector)

    def checksum(self) -> list[str]:
        """Return a checksum of all rows of each table."""
        return [self._value(name, "md5(string_agg(t::text, E'\\n' ORDER BY t::text))") for name in self.kind.tables]

    def texts(self) -> list[str]:
        """Return the texts of all rows, sorted."""
        query = sql.SQL("SELECT ({} #>> '{{}}') AS body FROM {} ORDER BY 1").format(
            sql.SQL(self.kind.text_column),
            sql.SQL(self.kind.tables[0]),
        )
        return [body for (body,) in self.connection.execute(query)]

    def _value(self, table: str, expression: str) -> Any:
        row = self.connection.execute(f"SELECT {expression} FROM {table} t").fetchone()
        return None if row is None else row[0]
