"""Memories and playbook entries that an agent reports as used: votes by which search and the playbook rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.core.memories.row_fields import check_characters
from consolidation_pipeline.embed import is_local, load_embedder
from consolidation_pipeline.errors import EmbeddingError, NotFoundError, UsageError
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.memories.votes import add_uses_as_votes, find_unknown, save_vote_query
from consolidation_pipeline.store.projects import find_project, load_project_ids

# More ids than a context of 8,000 tokens has.
MAX_USED = 100
MAX_USE_CHARS = 10_000


@dataclass(frozen=True)
class UsesReport:
    """Number of ids whose use was recorded, and of those on which the voter had the same vote that day already."""

    recorded: int
    repeated: int


def report_used(
    engine: Engine, ids: Sequence[UUID], *, voter: str, query: str = "", settings: Settings | None = None
) -> UsesReport:
    """Record that memories or playbook entries helped a voter. It counts once a day for each.

    Args:
        ids: Ids as search and context return them, of any status.
        voter: Who used them, see ``Principal.identify_voter``.
        query: What the voter asked or was doing. The votes then count for similar queries only, if the project's
            embedding model is free; its text is not stored. Empty = not known.
        settings: Settings that select the embedding model; None = the query counts as not known.

    Raises:
        NotFoundError: An id is neither a memory nor a playbook entry. Nothing is recorded.
        UsageError: There are no ids, or more than ``MAX_USED``, or the query is too long.
    """
    distinct = list(dict.fromkeys(ids))
    if not 1 <= len(distinct) <= MAX_USED:
        raise UsageError(f"{len(distinct)} ids are given; give 1 to {MAX_USED} ids of memories or playbook entries")
    if len(query) > MAX_USE_CHARS:
        raise UsageError(f"the query has {len(query):,} characters; {MAX_USE_CHARS:,} are allowed")
    check_characters("query", query)
    today = datetime.now(UTC).date()
    with engine.begin() as connection:
        if unknown := find_unknown(connection, distinct):
            raise NotFoundError(f"there is no memory or playbook entry {min(unknown)}")
        recorded = 0
        for project_id, own in _group_by_project(connection, distinct).items():
            query_hash = _save_query(connection, project_id, query.strip(), today, settings)
            recorded += len(add_uses_as_votes(connection, own, voter=voter, day=today, query_hash=query_hash))
    return UsesReport(recorded, len(distinct) - recorded)


def _group_by_project(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, list[UUID]]:
    found: dict[UUID, list[UUID]] = defaultdict(list)
    for id_, project_id in load_project_ids(connection, ids).items():
        found[project_id].append(id_)
    return found


def _save_query(connection: Connection, project_id: UUID, query: str, day: date, settings: Settings | None) -> str:
    """Save the vector of the query; return its hash, or an empty text without a vector."""
    if not query or settings is None:
        return ""
    model = effective_options(find_project(connection, str(project_id)), settings).embedding_model
    if not is_local(model):
        return ""
    try:
        embedder = load_embedder(model)
        (vector,) = embedder.embed([query])
    except EmbeddingError:
        return ""  # The votes count, as if the query was not known.
    hashed = content_hash(query)
    save_vote_query(connection, project_id, hashed, model=embedder.name, vector=vector, day=day)
    return hashed
