"""Relations ``supersedes``: the memories to compare, and the stored relations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from consolidation_pipeline.core.knowledge.supersession import Writer
from consolidation_pipeline.core.knowledge.supersession_search import DatedMemory
from consolidation_pipeline.core.lifecycle.archive_policies import FORGOTTEN, STALENESS
from consolidation_pipeline.store.database.schema import memory_relations
from consolidation_pipeline.store.database.scope_keys import raw_scope_key
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows

# Sources of memories that agents write as they learn them, so that the time of storing is that of learning.
_LIVE_SOURCES = ("api", "mcp")

# SQL that is true for raw memories of which it is known when they were learned: an import without a date stores the
# memory with its own time. Merged and stale ones are among them, so that the result does not depend on what was done
# with them; those that a person archived are not.
IS_DATED = compose(
    """t.project_id = :project AND (t.archive_reason IS NULL OR t.archive_reason IN (/* stale */))
        AND (t.learned_at <> t.created_at OR t.writer IS NOT NULL OR t.source IN (/* live */))""",
    stale=f"'{STALENESS}', '{FORGOTTEN}'",
    live=", ".join(f"'{source}'" for source in _LIVE_SOURCES),
)
SCOPE = "md5(coalesce(/* scope_key */, ''))"
_COUNT_SCOPES = """
    WITH dated AS (
        SELECT /* scope */ AS scope, count(*) AS count, md5(concat(CAST(:code AS text), count(*), sum(hashtextextended(
            concat_ws('|', t.id, t.content_hash, t.learned_at, t.user_id, t.agent_id, t.session_id, t.writer), 0))))
            AS memories
        FROM consolidation.task_memories t WHERE /* is_dated */ GROUP BY 1),
    related AS (/* relations */)
    SELECT scope, coalesce(dated.count, 0) AS count, coalesce(dated.memories, '') AS memories,
        coalesce(dated.memories = c.memories AND coalesce(related.relations, '') = c.relations, false) AS is_compared
    FROM dated FULL JOIN related USING (scope)
        LEFT JOIN (SELECT * FROM consolidation.compared_scopes WHERE project_id = :project) c USING (scope)
    ORDER BY scope
"""
_HASH_RELATIONS = """
    SELECT /* scope */ AS scope, md5(concat(count(*), sum(hashtextextended(
        concat_ws('|', r.id, r.status, r.reason, r.confidence), 0)))) AS relations
    FROM consolidation.memory_relations r JOIN consolidation.task_memories t ON t.id = r.a_id
    WHERE r.project_id = :project AND r.relation_type = 'supersedes' GROUP BY 1
"""


class DatedScope(NamedTuple):
    """A scope with ``size`` dated memories, of which ``memories`` is a hash.

    ``scope``: hash of its key. ``is_compared``: neither they nor their relations have changed since they were compared.
    """

    scope: str
    size: int
    memories: str
    is_compared: bool


def list_dated_scopes(connection: Connection, project_id: UUID, *, scope: str, code: str) -> list[DatedScope]:
    """Return the scopes of a project. ``scope``: the project's option; ``code``: version of what compares them."""
    key = compose(SCOPE, scope_key=raw_scope_key(scope))
    relations = compose(_HASH_RELATIONS, scope=key)
    statement = compose(_COUNT_SCOPES, scope=key, is_dated=IS_DATED, relations=relations)
    return [DatedScope(*row) for row in connection.execute(text(statement), {"project": project_id, "code": code})]


_FORGET_SCOPES = """
    DELETE FROM consolidation.compared_scopes WHERE project_id = :project AND scope <> ALL(CAST(:unchanged AS text[]))
"""
_MARK_SCOPES_COMPARED = """
    INSERT INTO consolidation.compared_scopes (project_id, scope, memories, relations, code, known_claims)
    SELECT :project, scope, memories, coalesce(relations, ''), :code, known_claims
    FROM unnest(CAST(:scopes AS text[]), CAST(:memories AS text[]), CAST(:known AS bytea[]))
            AS compared(scope, memories, known_claims)
        LEFT JOIN (/* relations */) related USING (scope)
"""


def mark_scopes_compared(
    connection: Connection,
    project_id: UUID,
    scopes: Sequence[DatedScope],
    *,
    scope: str,
    code: str,
    known: Mapping[str, bytes],
) -> None:
    """Note that the relations of these scopes, all of a project, follow from their memories.

    ``code``: version of the program; ``known``: what it knows of the texts of the scopes that it compared.
    """
    relations = compose(_HASH_RELATIONS, scope=compose(SCOPE, scope_key=raw_scope_key(scope)))
    unchanged = [one.scope for one in scopes if one.is_compared]
    connection.execute(text(_FORGET_SCOPES), {"project": project_id, "unchanged": unchanged})
    changed = [one for one in scopes if not one.is_compared]
    bound = {
        "project": project_id,
        "code": code,
        "scopes": [one.scope for one in changed],
        "memories": [one.memories for one in changed],
        "known": [known.get(one.scope, b"") for one in changed],
    }
    connection.execute(text(compose(_MARK_SCOPES_COMPARED, relations=relations)), bound)


_LOAD_DATED_MEMORIES = """
    SELECT t.id, t.learned_at, t.user_id, t.agent_id, t.session_id, t.writer, /* scope */ AS scope, t.content_hash,
        t.normalized_hash
    FROM consolidation.task_memories t WHERE /* is_dated */ AND /* scope */ = ANY(:scopes) ORDER BY t.id
"""


def load_dated_memories(
    connection: Connection, project_id: UUID, scopes: Collection[str], *, scope: str
) -> list[DatedMemory]:
    """Return the raw memories of some scopes of which it is known when they were learned, by id.

    ``scopes``: hashes of their keys, as the scope of a memory is. ``scope``: the project's option.
    """
    named = compose(SCOPE, scope_key=raw_scope_key(scope))
    statement = compose(_LOAD_DATED_MEMORIES, is_dated=IS_DATED, scope=named)
    found = connection.execute(text(statement), {"project": project_id, "scopes": list(scopes)})
    return [
        DatedMemory(id_, content, normal, learned_at, Writer(user, agent, session, key), name)
        for id_, learned_at, user, agent, session, key, name, content, normal in found
    ]


_LOAD_KNOWN_CLAIMS = """
    SELECT scope, coalesce(known_claims, '') FROM consolidation.compared_scopes
    WHERE project_id = :project AND code = :code AND scope = ANY(:scopes)
"""


def load_known_claims(
    connection: Connection, project_id: UUID, scopes: Collection[str], *, code: str
) -> dict[str, bytes]:
    """Return what the version ``code`` of the program found about the texts of some scopes, by the scope's hash."""
    bound = {"project": project_id, "code": code, "scopes": list(scopes)}
    return {scope: bytes(claims) for scope, claims in connection.execute(text(_LOAD_KNOWN_CLAIMS), bound)}


@dataclass(frozen=True)
class StoredSupersession:
    """A stored relation ``supersedes``.

    ``scope``: hash of the scope key of the newer memory. ``is_manual``: a person decided on it last, or undid it.
    """

    id: UUID
    scope: str
    status: str
    reason: str
    confidence: float
    version: int
    is_manual: bool


_LOAD_STORED = """
    SELECT r.id, /* scope */ AS scope, r.status, coalesce(r.reason, '') AS reason, r.confidence, r.version, coalesce((
        SELECT c.job_id IS NULL AND coalesce(c.reverts_scope, 'group') = 'group'
        FROM consolidation.consolidation_changes c WHERE c.entity_id = r.id ORDER BY c.seq DESC LIMIT 1), true)
        AS is_manual
    FROM consolidation.memory_relations r JOIN consolidation.task_memories t ON t.id = r.a_id
    WHERE r.project_id = :project AND r.relation_type = 'supersedes' ORDER BY r.id
"""


def load_supersessions(connection: Connection, project_id: UUID, *, scope: str) -> list[StoredSupersession]:
    """Return the stored relations of a project, by id. ``scope``: the project's option."""
    statement = compose(_LOAD_STORED, scope=compose(SCOPE, scope_key=raw_scope_key(scope)))
    return [StoredSupersession(**row._mapping) for row in connection.execute(text(statement), {"project": project_id})]


class Replacement(NamedTuple):
    """A confirmed relation to a memory of which a newer one replaced something. ``reason``: with both sentences."""

    id: UUID
    newer_id: UUID
    reason: str


# Replacements by the id of the older memory.
Replacements = Mapping[UUID, Sequence[Replacement]]
_LOAD_REPLACEMENTS = """
    SELECT b_id, id, a_id, coalesce(reason, '') FROM consolidation.memory_relations
    WHERE project_id = :project AND relation_type = 'supersedes' AND status = 'confirmed' ORDER BY b_id, id
"""


def load_replacements(connection: Connection, project_id: UUID) -> dict[UUID, list[Replacement]]:
    """Return the replacements of a project by the id of the older memory, each list by id."""
    found: dict[UUID, list[Replacement]] = {}
    for older_id, *replacement in connection.execute(text(_LOAD_REPLACEMENTS), {"project": project_id}):
        found.setdefault(older_id, []).append(Replacement(*replacement))
    return found


_LOAD_CONFIRMED_AT = """
    SELECT r.id, greatest(r.created_at, (
        SELECT max(changed_at) FROM consolidation.consolidation_changes c WHERE c.entity_id = r.id))
    FROM consolidation.memory_relations r
    WHERE r.project_id = :project AND r.relation_type = 'supersedes' AND r.status = 'confirmed'
        AND r.b_id = ANY(:memories)
"""


def load_confirmed_at(connection: Connection, project_id: UUID, memories: Collection[UUID]) -> dict[UUID, datetime]:
    """Return when the relations that replaced something in ``memories`` were confirmed, by relation id."""
    bound = {"project": project_id, "memories": list(memories)}
    return dict(connection.execute(text(_LOAD_CONFIRMED_AT), bound).tuples().all())


_LOAD_UNDONE = """
    SELECT entity_id FROM (
        SELECT DISTINCT ON (entity_id) entity_id, new_state, reverts_scope FROM consolidation.consolidation_changes
        WHERE entity_id = ANY(:ids) ORDER BY entity_id, seq DESC) newest
    WHERE new_state IS NULL AND reverts_scope = 'group'
"""


def load_undone(connection: Connection, ids: Collection[UUID]) -> set[UUID]:
    """Return those of ``ids`` that a person undid one by one; they do not come back."""
    return set(connection.scalars(text(_LOAD_UNDONE), {"ids": list(ids)}))


@dataclass(frozen=True)
class SupersessionChange:
    """Relation to write. ``version``: the stored version; None for a new one."""

    id: UUID
    newer_id: UUID
    older_id: UUID
    status: str
    confidence: float
    reason: str
    version: int | None = None


def write_supersessions(
    connection: Connection, author: Author, changes: Sequence[SupersessionChange], *, now: datetime
) -> None:
    """Write new and changed relations, each as a group of its own in the ledger.

    Raises:
        ConflictError: One of the new ones exists, or a stored one changed since it was read.
    """
    new = [_to_change(one, {**_ends(one), "created_at": now}) for one in changes if one.version is None]
    insert_rows(connection, author, memory_relations, new, operation="associate")
    changed = [_to_change(one, {}) for one in changes if one.version is not None]
    update_rows(connection, author, memory_relations, changed, operation="associate")


def _ends(change: SupersessionChange) -> dict[str, object]:
    return {"a_id": change.newer_id, "b_id": change.older_id, "relation_type": "supersedes", "similarity": None}


def _to_change(change: SupersessionChange, more: dict[str, object]) -> Change:
    values = {"status": change.status, "confidence": change.confidence, "reason": change.reason, **more}
    words = f"supersedes: {change.reason}"
    return Change(change.id, uuid4(), values, change.version, words, change.confidence)
