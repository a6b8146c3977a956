"""Mappings of known stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from consolidation_pipeline.connect.mapping import Field, Fill, Lifetime, Links, Part, TableMapping, Vector

_MEM0_KNOWN = ("data", "hash", "created_at", "updated_at", "text_lemmatized", "user_id", "agent_id", "run_id")


def mem0(table: str = "mem0") -> TableMapping:
    """Return the mapping of a collection of mem0. ``table``: its name."""
    return TableMapping(
        kind="mem0",
        table=table,
        key=("id",),
        text=Field.parse("payload.data"),
        scope={
            "user_id": Field.parse("payload.user_id"),
            "agent_id": Field.parse("payload.agent_id"),
            "session_id": Field.parse("payload.run_id"),
        },
        created=Field.parse("payload.created_at"),
        updated=Field.parse("payload.updated_at"),
        metadata=Field("payload"),
        metadata_without=_MEM0_KNOWN,
        vector=Vector("vector"),
        links=(Links(f"{table}_entities", ("id",), Field.parse("payload.linked_memory_ids")),),
        fills=(
            Fill(Field.parse("payload.hash"), "md5"),
            Fill(Field.parse("payload.updated_at"), "now"),
            Fill(Field.parse("payload.text_lemmatized"), "words"),
        ),
    )


def langgraph(table: str = "store", *, text: str = "content") -> TableMapping:
    """Return the mapping of a store of LangGraph, whose values have their text at ``text``.

    Keys that are no UUID have a meaning for the program that wrote them, so they are no memories.
    """
    schema = table.rpartition(".")[0]
    vectors = f"{schema}.store_vectors" if schema else "store_vectors"
    return TableMapping(
        kind="langgraph",
        table=table,
        key=("prefix", "key"),
        text=Field.parse(f"value.{text}"),
        scope={"user_id": Field("prefix")},
        created=Field("created_at"),
        updated=Field("updated_at"),
        metadata=Field("value"),
        metadata_without=(text.partition(".")[0],),
        vector=Vector("embedding", vectors, field=("field_name", text)),
        parts=(Part(vectors, ("prefix", "key"), bookkeeping=(Field("updated_at"),)),),
        where="t.key ~ '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$'",
        fills=(Fill(Field("updated_at"), "now"),),
        bookkeeping=(Field("expires_at"),),  # Each read puts it off, if the store has a ttl.
        lifetime=Lifetime("ttl_minutes", "expires_at"),
    )


def agno(table: str = "ai.agno_memories") -> TableMapping:
    """Return the mapping of the memories of Agno."""
    return TableMapping(
        kind="agno",
        table=table,
        key=("memory_id",),
        text=Field("memory"),
        scope={
            "user_id": Field("user_id"),
            "agent_id": Field("agent_id"),
            "metadata.team_id": Field("team_id"),
        },
        created=Field("created_at"),
        updated=Field("updated_at"),
        fills=(Fill(Field("updated_at"), "now_seconds"),),
    )


def llamaindex(table: str = "data_memory") -> TableMapping:
    """Return the mapping of a vector table of LlamaIndex. ``table``: ``data_`` and the name given to the store."""
    return TableMapping(
        kind="llamaindex",
        table=table,
        key=("id",),
        text=Field("text"),
        scope={"user_id": Field.parse("metadata_.user_id"), "session_id": Field.parse("metadata_.session_id")},
        metadata=Field("metadata_"),
        metadata_without=("_node_content",),
        vector=Vector("embedding"),
        can_insert=False,  # The node's text is once more in JSON inside of JSON.
    )


def claude_mem(table: str = "observations") -> TableMapping:
    """Return the mapping of the observations of a claude-mem server on Postgres."""
    schema = table.rpartition(".")[0]
    return TableMapping(
        kind="claude_mem",
        table=table,
        key=("id",),
        text=Field("content"),
        scope={"metadata.project_id": Field("project_id"), "metadata.team_id": Field("team_id")},
        created=Field("created_at"),
        updated=Field("updated_at"),
        metadata=Field("metadata"),
        parts=(Part(f"{schema}.observation_sources" if schema else "observation_sources", ("observation_id",)),),
        fills=(Fill(Field("updated_at"), "now"),),
    )


def letta(table: str = "archival_passages") -> TableMapping:
    """Return the mapping of the archival passages of a Letta server; those of another vector database are left out."""
    schema = f"{table.rpartition('.')[0]}." if "." in table else ""
    return TableMapping(
        kind="letta",
        table=table,
        key=("id",),
        text=Field("text"),
        scope={"metadata.organization_id": Field("organization_id"), "metadata.archive_id": Field("archive_id")},
        created=Field("created_at"),
        updated=Field("updated_at"),
        metadata=Field("metadata_"),
        vector=Vector("embedding"),
        parts=(Part(f"{schema}passage_tags", ("passage_id",)),),
        where=f"NOT t.is_deleted AND EXISTS (SELECT FROM {schema}archives a WHERE a.id = t.archive_id "
        "AND lower(a.vector_db_provider::text) = 'native')",
        can_insert=False,  # Its vectors are padded to a length of Letta's own.
    )


PRESETS: Mapping[str, Callable[..., TableMapping]] = {
    "mem0": mem0,
    "langgraph": langgraph,
    "agno": agno,
    "llamaindex": llamaindex,
    "claude_mem": claude_mem,
    "letta": letta,
}
