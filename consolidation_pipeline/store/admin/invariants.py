"""What must hold for every project at any time. Each function lists what breaks its rule, as text; none: it holds."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.conflicts.literals import literals, stands_in
from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE
from consolidation_pipeline.core.lifecycle.associations import CANDIDATE_TYPES
from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS

# Vectors are stored as float32: a norm is exact to about 1e-7, a similarity to about 1e-6.
_NORM_SLACK = 1e-3
_SIMILARITY_SLACK = 1e-4


def _ids(connection: Connection, project_id: UUID, query: str, **parameters: object) -> list[str]:
    rows = connection.execute(text(query), {"project": project_id, **parameters})
    return [" ".join(str(value) for value in row) for row in rows]


def find_future_memories(connection: Connection, project_id: UUID) -> list[str]:
    """Memories learned more than a day from now: a clock or a time zone is wrong somewhere."""
    return _ids(
        connection,
        project_id,
        "SELECT id, learned_at FROM consolidation.task_memories "
        "WHERE project_id = :project AND learned_at > now() + interval '1 day'",
    )


def find_unembedded(connection: Connection, project_id: UUID) -> list[str]:
    """Memories that are not archived and have no vector."""
    return _ids(
        connection,
        project_id,
        "SELECT id FROM consolidation.task_memories WHERE project_id = :project AND NOT is_archived AND embedding IS NULL",
    )


def find_mixed_models(connection: Connection, project_id: UUID) -> list[str]:
    """Embedding models beside the most used one: vectors of different models are never compared."""
    return _ids(
        connection,
        project_id,
        "SELECT embedding_model, count(*) FROM consolidation.task_memories WHERE project_id = :project AND NOT is_archived "
        "AND embedding IS NOT NULL GROUP BY 1 ORDER BY 2 DESC OFFSET 1",
    )


def find_denormalized(connection: Connection, project_id: UUID) -> list[str]:
    """Memories whose vector is not of length 1."""
    return _ids(
        connection,
        project_id,
        "SELECT id FROM consolidation.task_memories WHERE project_id = :project AND abs(vector_norm(embedding) - 1) > :slack",
        slack=_NORM_SLACK,
    )


def find_bad_pairs(connection: Connection, project_id: UUID) -> list[str]:
    """Neighbours whose similarity is no cosine, or that name a raw memory that does not exist."""
    query = """
        SELECT a, b, similarity FROM consolidation.memory_neighbors n
        LEFT JOIN consolidation.task_memories one ON one.id = n.a LEFT JOIN consolidation.task_memories other ON other.id = n.b
        WHERE n.project_id = :project AND (one.id IS NULL OR other.id IS NULL OR NOT similarity BETWEEN -1 AND 1)
    """
    return _ids(connection, project_id, query)


def find_chains(connection: Connection, project_id: UUID) -> list[str]:
    """Merge groups with a newcomer that is less similar to a member than the threshold in force allows."""
    return _ids(
        connection,
        project_id,
        "SELECT c.cluster_key, c.details ->> 'weakest_new_pair' FROM consolidation.memory_clusters c, LATERAL ("
        "SELECT (thresholds ->> 't_merge')::float8 AS t FROM consolidation.similarity_calibrations k "
        "WHERE k.project_id = c.project_id ORDER BY created_at DESC LIMIT 1) k "
        "WHERE c.project_id = :project AND c.tier = 'merge' AND c.is_representative "
        "AND (c.details ->> 'weakest_new_pair')::float8 < k.t - :slack",
        slack=_SIMILARITY_SLACK,
    )


def find_shared_members(connection: Connection, project_id: UUID) -> list[str]:
    """Memories in two merge groups."""
    return _ids(
        connection,
        project_id,
        "SELECT member_id, count(*) FROM consolidation.memory_clusters WHERE project_id = :project AND tier = 'merge' "
        "GROUP BY 1 HAVING count(*) > 1",
    )


def find_abandoned(connection: Connection, project_id: UUID) -> list[str]:
    """Consolidated memories without a successor that is active or archived, or superseded, at last, by such a one."""
    # Most stand behind what is active: only the rest is followed on.
    query = """
        WITH RECURSIVE carriers AS (
            SELECT m.id AS memory, c.id, c.retired_at, c.archive_reason, c.superseded_by_id
            FROM consolidation.task_memories m LEFT JOIN consolidation.consolidated_memories c ON c.id = m.consolidated_into_id
            WHERE m.project_id = :project AND m.is_consolidated
                AND (c.id IS NULL OR (c.retired_at IS NOT NULL AND c.archive_reason IS NULL))
            UNION
            SELECT r.memory, c.id, c.retired_at, c.archive_reason, c.superseded_by_id
            FROM carriers r JOIN consolidation.consolidated_memories c ON c.id = r.superseded_by_id
            WHERE r.retired_at IS NOT NULL)
        SELECT memory FROM carriers GROUP BY memory
        HAVING NOT bool_or(id IS NOT NULL AND (retired_at IS NULL OR archive_reason IS NOT NULL))
    """
    return _ids(connection, project_id, query)


def find_orphan_lineage(connection: Connection, project_id: UUID) -> list[str]:
    """Lineage edges one end of which does not exist."""
    return _ids(
        connection,
        project_id,
        "SELECT child_id, parent_id FROM consolidation.memory_lineage l "
        "LEFT JOIN consolidation.consolidated_memories c ON c.id = child_id "
        "LEFT JOIN consolidation.task_memories raw ON raw.id = parent_id "
        "LEFT JOIN consolidation.consolidated_memories made ON made.id = parent_id "
        "WHERE l.project_id = :project AND (c.id IS NULL OR (raw.id IS NULL AND made.id IS NULL))",
    )


def find_repeated_facts(connection: Connection, project_id: UUID) -> list[str]:
    """Active merged memories with the same text and type."""
    return _ids(
        connection,
        project_id,
        "SELECT min(id::text), count(*) FROM consolidation.consolidated_memories WHERE project_id = :project AND kind = 'merged' "
        "AND retired_at IS NULL GROUP BY memory_type, normalized_hash HAVING count(*) > 1",
    )


def find_lost_literals(connection: Connection, project_id: UUID, *, newest: int = 1000) -> list[str]:
    """Merged memories, of the ``newest``, that lack a literal of a source in their text and in what was dropped."""
    rows = connection.execute(
        text(
            "SELECT c.id, c.content || E'\\n' || coalesce((SELECT string_agg(d, E'\\n') "
            "FROM jsonb_array_elements_text(c.details -> 'dropped') d), '') AS kept, "
            f"{', '.join('m.' + n for n in TEXT_COLUMNS)} "
            "FROM (SELECT * FROM consolidation.consolidated_memories WHERE project_id = :project AND kind = 'merged' "
            "AND retired_at IS NULL ORDER BY updated_at DESC, id LIMIT :newest) c "
            "JOIN consolidation.task_memories m ON m.consolidated_into_id = c.id ORDER BY c.id"
        ),
        {"project": project_id, "newest": newest},
    )
    lost, kept = [], {}
    for row in rows:
        source = embedding_text(**{name: getattr(row, name) for name in TEXT_COLUMNS})
        if f"\n{source}\n" in f"\n{row.kept}\n":
            continue  # all of it stands there: at least the first source of most
        if row.id not in kept:
            kept[row.id] = literals(row.kept)
        # A rewritten text may mark up a literal in another way.
        missing = [literal for literal in literals(source) - kept[row.id] if not stands_in(literal, row.kept)]
        lost += [f"{row.id} {literal.kind} {literal.value}" for literal in missing]
    return lost


def find_unscored(connection: Connection, project_id: UUID) -> list[str]:
    """Active memories without a positive, finite relevance."""
    bad = "coalesce(relevance_score, 0) <= 0 OR relevance_score = 'NaN' OR relevance_score = 'Infinity'"
    return _ids(
        connection,
        project_id,
        "SELECT id FROM consolidation.task_memories WHERE project_id = :project AND NOT is_archived AND NOT is_consolidated "
        f"AND ({bad}) UNION ALL SELECT id FROM consolidation.consolidated_memories WHERE project_id = :project "
        f"AND retired_at IS NULL AND ({bad})",
    )


def find_unbalanced_ledger(connection: Connection, project_id: UUID) -> list[str]:
    """Consolidated memories whose newest version stands nowhere in the ledger, within the time the ledger is kept."""
    return _ids(
        connection,
        project_id,
        "SELECT c.id FROM consolidation.consolidated_memories c WHERE c.project_id = :project "
        "AND c.updated_at > now() - interval '90 days' AND NOT EXISTS ("
        "SELECT 1 FROM consolidation.consolidation_changes l WHERE l.entity_id = c.id AND l.version_after = c.version)",
    )


def find_miscounted(connection: Connection, project_id: UUID) -> list[str]:
    """Active merged memories whose source count is not the number of memories hidden behind them."""
    # Counted before the join: grouping afterwards would sort whole rows, texts and vectors with them.
    query = """
        SELECT id, source_count, coalesce(hidden, 0) FROM consolidation.consolidated_memories LEFT JOIN (
            SELECT consolidated_into_id AS id, count(*) AS hidden FROM consolidation.task_memories
            WHERE project_id = :project AND is_consolidated GROUP BY 1) h USING (id)
        WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL
            AND (source_count <> coalesce(hidden, 0) OR source_count <> cardinality(source_memory_ids))
    """
    return _ids(connection, project_id, query)


def find_dangling_relations(connection: Connection, project_id: UUID) -> list[str]:
    """Relations of a memory to itself, or with an end that the project does not have."""
    query = """
        SELECT r.id, ends.id FROM consolidation.memory_relations r, LATERAL (VALUES (r.a_id), (r.b_id)) AS ends(id)
        WHERE r.project_id = :project AND (r.a_id = r.b_id OR NOT EXISTS (
            SELECT 1 FROM consolidation.task_memories m WHERE m.id = ends.id AND m.project_id = :project UNION ALL
            SELECT 1 FROM consolidation.consolidated_memories m WHERE m.id = ends.id AND m.project_id = :project))
    """
    return _ids(connection, project_id, query)


def find_unreviewed_relations(connection: Connection, project_id: UUID) -> list[str]:
    """Relations that only a person may confirm, and that count without one, within the time the ledger is kept."""
    return _ids(
        connection,
        project_id,
        "SELECT id, relation_type FROM consolidation.memory_relations r WHERE project_id = :project AND status = 'confirmed' "
        "AND relation_type = ANY(:by_hand) AND created_at > now() - interval '90 days' AND NOT EXISTS ("
        "SELECT 1 FROM consolidation.consolidation_changes c WHERE c.entity_id = r.id AND c.operation = 'review' "
        "AND c.new_state ->> 'status' = 'confirmed')",
        by_hand=list(CANDIDATE_TYPES),
    )


# What is archived, raw or merged, as the row says now.
_ARCHIVED = """(
    SELECT id, memory_type, importance, pinned, relevance_score, relevance_at, learned_at, archived_at, archive_reason
    FROM consolidation.task_memories WHERE project_id = :project AND archived_at IS NOT NULL UNION ALL
    SELECT id, memory_type, importance, pinned, relevance_score, relevance_at, learned_at, retired_at, archive_reason
    FROM consolidation.consolidated_memories WHERE project_id = :project AND archive_reason IS NOT NULL) t"""
# How the ledger tells that row t was archived; nothing when that is longer ago than the ledger is kept.
_ARCHIVING = """
    SELECT a.seq, a.job_id FROM consolidation.consolidation_changes a WHERE a.entity_id = t.id AND a.operation = 'archive'
        AND a.new_state ->> 'archive_reason' = t.archive_reason ORDER BY a.seq DESC LIMIT 1"""
# The row's value is that of then: a person may change an archived memory, which breaks no rule.
_NOT_EDITED = f"""
    EXISTS (SELECT 1 FROM ({_ARCHIVING}) a WHERE NOT EXISTS (SELECT 1 FROM consolidation.consolidation_changes e
        WHERE e.entity_id = t.id AND e.seq > a.seq AND e.previous_state ? '%s'))"""


def find_forgotten_types(connection: Connection, project_id: UUID) -> list[str]:
    """Decisions and discoveries that were forgotten."""
    query = (
        f"SELECT id, memory_type FROM {_ARCHIVED} "
        "WHERE archive_reason = 'forgotten' AND memory_type IN ('decision', 'discovery')"
    )
    return _ids(connection, project_id, query)


def find_forgotten_young(connection: Connection, project_id: UUID) -> list[str]:
    """Memories that were forgotten before they were 90 days old."""
    query = (
        f"SELECT id, archived_at - learned_at FROM {_ARCHIVED} "
        "WHERE archive_reason = 'forgotten' AND archived_at - learned_at < interval '90 days'"
    )
    return _ids(connection, project_id, query)


def find_forgotten_important(connection: Connection, project_id: UUID) -> list[str]:
    """Memories that were forgotten although their importance was 0.7 or more."""
    query = (
        f"SELECT id, importance FROM {_ARCHIVED} "
        f"WHERE archive_reason = 'forgotten' AND importance >= 0.7 AND {_NOT_EDITED % 'importance'}"
    )
    return _ids(connection, project_id, query)


def find_forgotten_relevant(connection: Connection, project_id: UUID) -> list[str]:
    """Memories that were forgotten although their relevance was not below the threshold their job had."""
    # A score of later than that is of a time in which the memory was active again.
    query = (
        f"SELECT t.id, relevance_score, j.options ->> 'forget_threshold' FROM {_ARCHIVED}, "
        f"LATERAL ({_ARCHIVING}) a JOIN consolidation.consolidation_jobs j ON j.id = a.job_id "
        "WHERE archive_reason = 'forgotten' AND relevance_at <= archived_at "
        "AND relevance_score >= (j.options ->> 'forget_threshold')::float8"
    )
    return _ids(connection, project_id, query)


def find_archived_pinned(connection: Connection, project_id: UUID) -> list[str]:
    """Pinned memories that a policy archived."""
    query = (
        f"SELECT id, archive_reason FROM {_ARCHIVED} "
        f"WHERE archive_reason IN ('staleness', 'forgotten') AND pinned AND {_NOT_EDITED % 'pinned'}"
    )
    return _ids(connection, project_id, query)


def find_unexplained_archives(connection: Connection, project_id: UUID) -> list[str]:
    """Archived memories without a reason, and active ones that have one."""
    retired = "(retired_at IS NOT NULL AND superseded_by_id IS NULL)"
    query = (
        "SELECT id FROM consolidation.task_memories WHERE project_id = :project "
        "AND (archived_at IS NOT NULL OR archive_reason IS NOT NULL) AND is_archived = (archive_reason IS NULL) "
        "UNION ALL SELECT id FROM consolidation.consolidated_memories WHERE project_id = :project "
        f"AND ({retired} OR archive_reason IS NOT NULL) AND {retired} = (archive_reason IS NULL)"
    )
    return _ids(connection, project_id, query)


_IS_ABSTRACTION = "c.project_id = :project AND c.kind IN ('pattern', 'principle')"


def find_foreign_evidence(connection: Connection, project_id: UUID) -> list[str]:
    """Patterns and principles that quote something they were not made from."""
    query = f"""
        SELECT c.id, e ->> 'unit'
        FROM consolidation.consolidated_memories c, jsonb_array_elements(c.details -> 'evidence') AS e
        WHERE {_IS_ABSTRACTION} AND NOT EXISTS (SELECT 1 FROM consolidation.memory_lineage l
                WHERE l.child_id = c.id AND l.parent_id::text = e ->> 'unit')
    """
    return _ids(connection, project_id, query)


def find_repeated_patterns(connection: Connection, project_id: UUID) -> list[str]:
    """Groups that two active patterns, or two active principles, stand for."""
    query = f"""
        SELECT c.kind, c.cluster_key, count(*) FROM consolidation.consolidated_memories c
        WHERE {_IS_ABSTRACTION} AND c.retired_at IS NULL AND c.cluster_key IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1
    """
    return _ids(connection, project_id, query)


def find_unsupported_entries(connection: Connection, project_id: UUID) -> list[str]:
    """Active entries of the playbook that fewer than three memories bear out."""
    query = """
        SELECT id FROM consolidation.playbook_entries WHERE project_id = :project AND status = 'active'
            AND (SELECT count(DISTINCT e) FROM unnest(supporting_memory_ids) e) < :required
    """
    return _ids(connection, project_id, query, required=REQUIRED_EVIDENCE)


def find_foreign_support(connection: Connection, project_id: UUID) -> list[str]:
    """Evidence of entries that is no memory of the project."""
    query = """
        SELECT p.id, e.id FROM consolidation.playbook_entries p, unnest(p.supporting_memory_ids) AS e(id)
        WHERE p.project_id = :project AND NOT EXISTS (
            SELECT 1 FROM consolidation.task_memories m WHERE m.id = e.id AND m.project_id = :project UNION ALL
            SELECT 1 FROM consolidation.consolidated_memories m WHERE m.id = e.id AND m.project_id = :project)
    """
    return _ids(connection, project_id, query)


def find_low_priorities(connection: Connection, project_id: UUID) -> list[str]:
    """Entries that are less urgent than ``core.playbook.priority`` of their confidence and evidence."""
    query = """
        SELECT id, priority FROM consolidation.playbook_entries WHERE project_id = :project AND priority < CASE
            WHEN confidence IS NULL THEN 50
            ELSE least(100, 50 + trunc(50 * confidence) + greatest(0, cardinality(supporting_memory_ids) - :required))
            END
    """
    return _ids(connection, project_id, query, required=REQUIRED_EVIDENCE)


def find_repeated_entries(connection: Connection, project_id: UUID) -> list[str]:
    """Patterns and principles that two active entries stand for."""
    query = """
        SELECT source_id, count(*) FROM consolidation.playbook_entries WHERE project_id = :project AND status = 'active'
            AND source_id IS NOT NULL GROUP BY 1 HAVING count(*) > 1
    """
    return _ids(connection, project_id, query)


def find_misplaced_episodes(connection: Connection, project_id: UUID) -> list[str]:
    """Memories that say they are in a summary that does not name them, or are named by one and do not say so."""
    query = """
        SELECT coalesce(m.id, s.source), coalesce(m.summarized_into_id, s.id) FROM (
            SELECT id, unnest(source_memory_ids) AS source FROM consolidation.consolidated_memories
            WHERE project_id = :project AND kind = 'summary') s
        FULL JOIN (
            SELECT id, summarized_into_id FROM consolidation.task_memories
            WHERE project_id = :project AND summarized_into_id IS NOT NULL) m
        ON m.id = s.source AND m.summarized_into_id = s.id
        WHERE m.id IS NULL OR s.id IS NULL
    """
    return _ids(connection, project_id, query)


def find_unfounded_profiles(connection: Connection, project_id: UUID) -> list[str]:
    """Active profiles beside another one of the same user, and those not made of summaries of that user that exist."""
    query = """
        WITH profiles AS (
            SELECT id, coalesce(user_id, '') AS owner FROM consolidation.consolidated_memories
            WHERE project_id = :project AND kind = 'procedural' AND retired_at IS NULL),
        parents AS (
            SELECT p.id, s.kind = 'summary' AND coalesce(s.user_id, '') = p.owner AS is_own
            FROM profiles p LEFT JOIN consolidation.memory_lineage l ON l.child_id = p.id
                LEFT JOIN consolidation.consolidated_memories s ON s.id = l.parent_id)
        SELECT DISTINCT id FROM parents WHERE is_own IS NOT TRUE
        UNION SELECT min(id::text)::uuid FROM profiles GROUP BY owner HAVING count(*) > 1
    """
    return _ids(connection, project_id, query)


def find_misheld_originals(connection: Connection, project_id: UUID) -> list[str]:
    """Memories that two pending suggestions would merge."""
    query = """
        SELECT o.id, count(DISTINCT s.id) FROM consolidation.consolidation_suggestions s, unnest(s.original_memory_ids) AS o(id)
        WHERE s.project_id = :project AND s.status = 'pending' GROUP BY 1 HAVING count(DISTINCT s.id) > 1
    """
    return _ids(connection, project_id, query)


def find_unfounded_approvals(connection: Connection, project_id: UUID) -> list[str]:
    """Suggestions that name a merged memory which is none of the project's, or that were decided so and name none."""
    query = """
        SELECT s.id, s.result_memory_id FROM consolidation.consolidation_suggestions s WHERE s.project_id = :project
            AND (s.status = 'validated' OR s.result_memory_id IS NOT NULL)
            AND NOT EXISTS (SELECT 1 FROM consolidation.consolidated_memories c WHERE c.id = s.result_memory_id
                AND c.project_id = :project AND c.kind = 'merged' AND s.status = 'validated')
    """
    return _ids(connection, project_id, query)
