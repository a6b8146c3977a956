"""Erasure: memories and everything made of them, removed from every table, the ledger's images included.

``erased`` is a temporary table of the rows that go, each with a pseudonym: ledger rows about them stay, without content
and under the pseudonym, so that the history still tells that something happened, and undo refuses to bring it back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.store.database.schema import consolidated_memories, playbook_entries, task_memories
from consolidation_pipeline.store.database.scope_keys import DELETED
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.knowledge.quarantine import reduce_entry
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, copy_rows, update_rows
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns
from consolidation_pipeline.store.search.word_indexes import count_words, find_word_indexes
from consolidation_pipeline.store.similarity.similarity_graph import delete_neighbors

_SUCCESSOR_ERASED = f"{DELETED}what took its place was erased"

_FIND_OF_USER = "SELECT id FROM consolidation.task_memories WHERE project_id = :project AND user_id = :user ORDER BY id"


def find_memories_of_user(connection: Connection, project_id: UUID, user_id: str) -> list[UUID]:
    """Return the raw memories of a user, by id."""
    return list(connection.scalars(text(_FIND_OF_USER), {"project": project_id, "user": user_id}))


# --- what goes -----------------------------------------------------------------------------------------------------

# Rows that had one of the memories among their sources at any time: an older image may still hold its words.
_FIND_MADE_OF = """
    SELECT id FROM consolidation.consolidated_memories
    WHERE project_id = :project AND (source_memory_ids && CAST(:ids AS uuid[]) OR user_id = :user)
    UNION
    SELECT child_id FROM consolidation.memory_lineage WHERE parent_id = ANY(:ids)
    UNION
    SELECT c.entity_id FROM consolidation.consolidation_changes c
    WHERE c.project_id = :project AND c.entity_type = 'consolidated_memories' AND (
        coalesce(c.new_state -> 'source_memory_ids' ?| :texts, false)
        OR coalesce(c.new_state -> 'source_memory_ids' -> 'only' ?| :texts, false)
        OR coalesce(c.previous_state -> 'source_memory_ids' ?| :texts, false)
        OR coalesce(c.previous_state -> 'source_memory_ids' -> 'only' ?| :texts, false)
        OR coalesce(c.new_state ->> 'user_id' = :user, false))
"""
# Every edge between two consolidated memories that there is or was.
_LIST_DERIVED_EDGES = """
    SELECT child_id, parent_id FROM consolidation.memory_lineage WHERE project_id = :project AND parent_kind <> 'raw'
    UNION
    SELECT c.entity_id, e.parent_id
    FROM consolidation.consolidation_changes c,
        LATERAL (SELECT c.previous_state -> 'lineage' AS lineage UNION ALL SELECT c.new_state -> 'lineage') i,
        jsonb_to_recordset(CASE jsonb_typeof(i.lineage) WHEN 'array' THEN i.lineage END)
            AS e(parent_id uuid, parent_kind text)
    WHERE c.project_id = :project AND c.entity_type = 'consolidated_memories' AND e.parent_kind <> 'raw'
"""
# What points to a row of `erased`, or did: a column of a table, or of an image.
_FIND_REFERRING = """
    SELECT id FROM /* table */ WHERE project_id = :project AND (/* now */)
    UNION
    SELECT c.entity_id FROM consolidation.consolidation_changes c
        CROSS JOIN LATERAL (SELECT c.previous_state AS state UNION ALL SELECT c.new_state) i
    WHERE c.project_id = :project AND c.entity_type = '/* name */' AND (/* then */)
"""
_REFERENCES = {
    "playbook_entries": ("source_id = ANY(:ids)", "i.state ->> 'source_id' = ANY(:texts)"),
    "consolidation_suggestions": (
        "original_memory_ids && CAST(:ids AS uuid[]) OR result_memory_id = ANY(:ids)",
        "i.state -> 'original_memory_ids' ?| :texts OR i.state ->> 'result_memory_id' = ANY(:texts)",
    ),
    "memory_relations": (
        "a_id = ANY(:ids) OR b_id = ANY(:ids)",
        "i.state ->> 'a_id' = ANY(:texts) OR i.state ->> 'b_id' = ANY(:texts)",
    ),
}


def find_erased(
    connection: Connection, project_id: UUID, ids: Sequence[UUID], *, user_id: str | None
) -> dict[str, list[UUID]]:
    """Return the rows that go if raw memories are erased, by table: these, and all that was ever made of them.

    ``user_id``: profiles and summaries of this user go too. A row that was made of them once and is not any more goes
    as well: the next run makes it again.
    """
    bound = _bind(project_id, ids)
    derived = set(connection.scalars(text(_FIND_MADE_OF), {**bound, "user": user_id}))
    children = defaultdict(list)
    for child, parent in connection.execute(text(_LIST_DERIVED_EDGES), {"project": project_id}).tuples():
        children[parent].append(child)
    waiting = list(derived)
    while waiting:
        new = set(children[waiting.pop()]) - derived
        derived |= new
        waiting += new
    found = {"task_memories": sorted(ids), "consolidated_memories": sorted(derived)}
    bound = _bind(project_id, [*ids, *derived])
    for table, (now, then) in _REFERENCES.items():
        statement = compose(_FIND_REFERRING, table=f"consolidation.{table}", name=table, now=now, then=then)
        found[table] = sorted(connection.scalars(text(statement), bound))
    return found


def _bind(project_id: UUID, ids: Iterable[UUID]) -> dict[str, Any]:
    listed = list(ids)
    return {"project": project_id, "ids": listed, "texts": [str(id_) for id_ in listed]}


# --- what stays is set free ----------------------------------------------------------------------------------------

_CREATE_ERASED = """
    CREATE TEMP TABLE erased (id uuid PRIMARY KEY, in_table text, pseudonym uuid) ON COMMIT DROP
"""
# Merged memories whose place an erased one took, at any distance.
_LIST_PREDECESSORS = """
    WITH RECURSIVE before AS (
        SELECT c.id, c.version, true AS direct FROM consolidation.consolidated_memories c
            JOIN erased e ON e.id = c.superseded_by_id WHERE c.id NOT IN (SELECT id FROM erased)
        UNION
        SELECT c.id, c.version, false FROM consolidation.consolidated_memories c
            JOIN before b ON c.superseded_by_id = b.id WHERE c.id NOT IN (SELECT id FROM erased))
    SELECT id, version, bool_or(direct) AS direct FROM before GROUP BY id, version ORDER BY id
"""
_LIST_FREED = """
    SELECT id, version FROM consolidation.task_memories
    WHERE (consolidated_into_id IN (SELECT id FROM erased) OR consolidated_into_id = ANY(:before))
        AND id NOT IN (SELECT id FROM erased) ORDER BY id FOR UPDATE
"""
_LIST_SUPPORTED = """
    SELECT id, version, status, ARRAY(
        SELECT s FROM unnest(supporting_memory_ids) s WHERE s NOT IN (SELECT id FROM erased) ORDER BY s) AS evidence
    FROM consolidation.playbook_entries
    WHERE project_id = :project AND id NOT IN (SELECT id FROM erased)
        AND EXISTS (SELECT 1 FROM unnest(supporting_memory_ids) s JOIN erased e ON e.id = s)
    ORDER BY id FOR UPDATE
"""


def stage_erased(connection: Connection, found: Mapping[str, Sequence[UUID]], pseudonyms: Mapping[UUID, UUID]) -> None:
    """Fill the temporary table ``erased``."""
    connection.execute(text(_CREATE_ERASED))
    rows = [(id_, table, pseudonyms[id_]) for table, ids in found.items() for id_ in ids]
    copy_rows(connection, "erased", rows)
    connection.execute(text("ANALYZE erased"))


_FIND_FIRST_INSTANT = """
    SELECT min(at) FROM (
        SELECT id, created_at AS at FROM consolidation.task_memories
        UNION ALL SELECT id, created_at FROM consolidation.consolidated_memories
        UNION ALL SELECT id, created_at FROM consolidation.playbook_entries
        UNION ALL SELECT id, created_at FROM consolidation.consolidation_suggestions
        UNION ALL SELECT id, created_at FROM consolidation.memory_relations
        UNION ALL SELECT entity_id, changed_at FROM consolidation.consolidation_changes WHERE project_id = :project
    ) known JOIN erased USING (id)
"""


def find_first_instant(connection: Connection, project_id: UUID) -> datetime:
    """Return since when there is any of the rows of ``erased``; jobs that ended before have read none of them."""
    found: datetime = connection.execute(text(_FIND_FIRST_INSTANT), {"project": project_id}).scalar_one()
    return found


def free_survivors(
    connection: Connection, author: Author, *, group_id: UUID, reason: str | None, now: datetime
) -> dict[str, int]:
    """Release what stays from what goes, through the ledger; return the number of rows by effect.

    Raw memories behind an erased merged memory are active again. A consolidated memory whose successor goes is
    dissolved. Playbook entries lose the evidence.
    """
    before = connection.execute(text(_LIST_PREDECESSORS)).all()
    freed = connection.execute(text(_LIST_FREED), {"before": [row.id for row in before]}).all()
    supported = connection.execute(text(_LIST_SUPPORTED), {"project": author.project_id}).all()

    def change(row: Any, **values: Any) -> Change:
        return Change(row.id, group_id, values, row.version, reason)

    dissolved = {"superseded_by_id": None, "archive_reason": _SUCCESSOR_ERASED}
    for table, changes in (
        (task_memories, [change(row, consolidated_into_id=None) for row in freed]),
        (consolidated_memories, [change(row, **dissolved) for row in before if row.direct]),
        (playbook_entries, [change(row, **reduce_entry(row.status, row.evidence, now)) for row in supported]),
    ):
        update_rows(connection, author, table, changes, operation="erase")
    return {"active again": len(freed), "dissolved": sum(row.direct for row in before), "less evidence": len(supported)}


# --- removal -------------------------------------------------------------------------------------------------------

# Table -> condition of the rows to delete. What refers to a row goes before it.
_DELETED = {
    "memory_files": "owner_id IN (SELECT id FROM erased)",
    "memory_lineage": "child_id IN (SELECT id FROM erased) OR parent_id IN (SELECT id FROM erased)",
    "memory_clusters": """project_id = :project AND cluster_key IN (
        SELECT m.cluster_key FROM consolidation.memory_clusters m JOIN erased e ON e.id = m.member_id)""",
    "grouping_embeddings": "project_id = :project AND memory_id IN (SELECT id FROM erased)",
    "staged_embeddings": "project_id = :project AND memory_id IN (SELECT id FROM erased)",
    "pending_uses": "project_id = :project AND memory_id IN (SELECT id FROM erased)",
    "recall_answers": "project_id = :project",
    "compared_sentences": "project_id = :project",
    "compared_memories": "project_id = :project AND memory_id IN (SELECT id FROM erased)",
    "relevance_scores": "project_id = :project AND memory_id IN (SELECT id FROM erased)",
    "labelled_pairs": "a IN (SELECT id FROM erased) OR b IN (SELECT id FROM erased)",
    "pair_judgements": "project_id = :project AND question_hash = ANY(:questions)",
    "supersession_answers": "newer_id IN (SELECT id FROM erased) OR older_id IN (SELECT id FROM erased)",
    "vote_queries": """project_id = :project
        AND query_hash IN (SELECT v.query_hash FROM consolidation.memory_votes v JOIN erased e ON e.id = v.memory_id)
        AND query_hash NOT IN (
            SELECT v.query_hash FROM consolidation.memory_votes v
            WHERE v.project_id = :project AND v.memory_id NOT IN (SELECT id FROM erased))""",
    "memory_votes": "memory_id IN (SELECT id FROM erased)",
    "memory_relations": "id IN (SELECT id FROM erased)",
    "consolidation_suggestions": "id IN (SELECT id FROM erased)",
    "playbook_entries": "id IN (SELECT id FROM erased)",
    "consolidated_memories": "id IN (SELECT id FROM erased)",
    "task_memories": "id IN (SELECT id FROM erased)",
}
# Which reply repeats which memory is not recorded. So all replies go that were given since the oldest was stored.
_DROP_REPLIES = """
    UPDATE consolidation.llm_calls SET response = NULL, error_message = NULL
    WHERE project_id = :project AND created_at >= :since AND (response IS NOT NULL OR error_message IS NOT NULL)
"""
_LIST_ERASED = "SELECT id FROM erased"
_FIND_FIRST_STORED = "SELECT min(created_at) FROM consolidation.task_memories WHERE id IN (SELECT id FROM erased)"


def delete_erased(connection: Connection, project_id: UUID, questions: Sequence[str]) -> dict[str, int]:
    """Delete the rows of ``erased`` and all rows about them; return the number of rows by table.

    ``questions``: hashes of the questions about them that pair judges were asked.
    """
    since = connection.execute(text(_FIND_FIRST_STORED)).scalar_one()
    counts = {}
    replies = connection.execute(text(_DROP_REPLIES), {"project": project_id, "since": since}).rowcount
    gone = connection.scalars(text(_LIST_ERASED)).all()
    counts["memory_neighbors"] = delete_neighbors(connection, project_id, gone)
    for table, condition in _DELETED.items():
        statement = f"DELETE FROM consolidation.{table} WHERE {condition}"
        bound = {"project": project_id, "questions": list(questions)}
        names = {name: value for name, value in bound.items() if f":{name}" in condition}
        counts[table] = connection.execute(text(statement), names).rowcount
    return counts | {"llm_calls": replies}


# --- the ledger ----------------------------------------------------------------------------------------------------

# Of a merged memory the sources that stay are kept: memories whose merge a person undid stay apart.
_SCRUB = """CASE WHEN /* state */ IS NULL THEN NULL ELSE jsonb_strip_nulls(jsonb_build_object(
        'erased', true, 'kind', /* state */ -> 'kind', 'source_memory_ids', (
            SELECT jsonb_agg(s) FROM jsonb_array_elements_text(
                coalesce(/* state */ -> 'source_memory_ids' -> 'only', /* state */ -> 'source_memory_ids')) s
            WHERE s::uuid NOT IN (SELECT id FROM erased)))) END"""
_SCRUB_ENTITIES = compose(
    """
    UPDATE consolidation.consolidation_changes c
    SET entity_id = e.pseudonym, reason = NULL, previous_state = /* previous */, new_state = /* new */
    FROM erased e WHERE c.entity_id = e.id AND c.project_id = :project
    """,
    previous=_SCRUB.replace("/* state */", "c.previous_state"),
    new=_SCRUB.replace("/* state */", "c.new_state"),
)
_LIST_SURVIVING_IMAGES = """
    SELECT c.seq, c.previous_state, c.new_state FROM consolidation.consolidation_changes c
    WHERE c.project_id = :project AND c.entity_type = '/* name */' AND EXISTS (
        SELECT 1 FROM (SELECT c.previous_state AS state UNION ALL SELECT c.new_state) i WHERE /* then */)
"""
# References of rows that stay, in images: entity type -> condition on an image.
_IMAGE_REFERENCES = {
    "task_memories": "i.state ->> 'consolidated_into_id' = ANY(:texts)",
    "consolidated_memories": "i.state ->> 'superseded_by_id' = ANY(:texts)",
    "playbook_entries": "i.state -> 'supporting_memory_ids' ?| :texts",
}
_REPLACE_IMAGES = """
    UPDATE consolidation.consolidation_changes
    SET previous_state = CAST(:previous AS jsonb), new_state = CAST(:new AS jsonb) WHERE seq = :seq
"""
# A reason may quote the memory, as that of the decision on a suggestion.
_DROP_REASONS = """
    UPDATE consolidation.consolidation_changes SET reason = NULL
    WHERE project_id = :project AND reason IS NOT NULL AND operation <> 'erase' AND group_id IN (
        SELECT c.group_id FROM consolidation.consolidation_changes c JOIN erased e ON e.pseudonym = c.entity_id)
"""


def scrub_ledger(connection: Connection, project_id: UUID, pseudonyms: Mapping[UUID, UUID]) -> dict[str, int]:
    """Empty the images of erased rows, and put pseudonyms for their ids everywhere; return the number of changes."""
    bound = {"project": project_id, "texts": [str(id_) for id_ in pseudonyms]}
    connection.execute(text("SET LOCAL consolidation.erase = 'on'"))
    scrubbed = connection.execute(text(_SCRUB_ENTITIES), {"project": project_id}).rowcount
    connection.execute(text(_DROP_REASONS), {"project": project_id})
    renamed = 0
    for name, condition in _IMAGE_REFERENCES.items():
        statement = compose(_LIST_SURVIVING_IMAGES, name=name, then=condition)
        for seq, previous, new in connection.execute(text(statement), bound).tuples().all():
            images = {"previous": _rename(previous, pseudonyms), "new": _rename(new, pseudonyms)}
            encoded = {key: None if image is None else json.dumps(image) for key, image in images.items()}
            connection.execute(text(_REPLACE_IMAGES), {"seq": seq, **encoded})
            renamed += 1
    connection.execute(text("SET LOCAL consolidation.erase = 'off'"))
    return {"ledger images emptied": scrubbed, "ledger images renamed": renamed}


def _rename(value: Any, pseudonyms: Mapping[UUID, UUID]) -> Any:
    """Return a JSON value with pseudonyms in place of the ids that are values, keys or parts of texts in it."""
    if value is None:
        return None
    words = json.dumps(value)
    for id_, pseudonym in pseudonyms.items():
        if (old := str(id_)) in words:
            words = words.replace(old, str(pseudonym))
    return json.loads(words)


# --- notes about runs and events -----------------------------------------------------------------------------------

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_LIST_MENTIONS = f"""
    SELECT t.id, to_jsonb(t./* column */) AS value FROM consolidation./* table */ t
    WHERE t.project_id = :project AND EXISTS (
        SELECT 1 FROM regexp_matches(t./* column */::text, '{_UUID}', 'g') m JOIN erased e ON e.id = m[1]::uuid)
"""
_MENTIONING = {
    "consolidation_events": ("payload",),
    "consolidation_jobs": ("scope", "metrics", "options"),
}
_SET_VALUE = "UPDATE consolidation./* table */ SET /* column */ = CAST(:value AS jsonb) WHERE id = :id"


def rename_mentions(connection: Connection, project_id: UUID, pseudonyms: Mapping[UUID, UUID]) -> dict[str, int]:
    """Put pseudonyms for erased ids into events and jobs; return the number of rows by table."""
    counts = {}
    for table, columns in _MENTIONING.items():
        counts[table] = 0
        for column in columns:
            listed = compose(_LIST_MENTIONS, table=table, column=column)
            rows = connection.execute(text(listed), {"project": project_id}).all()
            for id_, value in rows:
                statement = compose(_SET_VALUE, table=table, column=column)
                renamed = json.dumps(_rename(value, pseudonyms))
                connection.execute(text(statement), {"id": id_, "value": renamed})
            counts[table] += len(rows)
    return counts


# --- sentences of the calibration ----------------------------------------------------------------------------------

_LOAD_BOILERPLATE = """
    SELECT DISTINCT unnest(boilerplate) FROM consolidation.similarity_calibrations WHERE project_id = :project
"""
_LOAD_TEXTS = f"""
    SELECT id, {", ".join(TEXT_COLUMNS)} FROM consolidation.task_memories WHERE project_id = :project
"""
_REMOVE_BOILERPLATE = """
    UPDATE consolidation.similarity_calibrations
    SET boilerplate = ARRAY(SELECT b FROM unnest(boilerplate) WITH ORDINALITY AS s(b, n)
        WHERE b <> ALL(CAST(:gone AS text[])) ORDER BY n)
    WHERE project_id = :project AND boilerplate && CAST(:gone AS text[])
"""
_DELETE_CALIBRATIONS = """
    DELETE FROM consolidation.similarity_calibrations k WHERE project_id = :project
        AND NOT EXISTS (SELECT 1 FROM consolidation.task_memories t WHERE t.project_id = :project)
"""


def remove_boilerplate(connection: Connection, project_id: UUID, texts: Sequence[str]) -> dict[str, int]:
    """Remove from calibrations the sentences of erased ``texts`` that no other memory says; call it after deletion.

    If the project has no memory left, its calibrations, with the mean of their vectors, go too.
    """
    bound = {"project": project_id}
    known = connection.scalars(text(_LOAD_BOILERPLATE), bound).all()
    erased = [normalize_text(one) for one in texts]
    gone = {sentence for sentence in known if any(sentence in one for one in erased)}
    if gone:
        for row in connection.execute(text(_LOAD_TEXTS), bound):
            said = normalize_text(join_text_columns(row[1:]))
            gone -= {sentence for sentence in gone if sentence in said}
            if not gone:
                break
    changed = connection.execute(text(_REMOVE_BOILERPLATE), {**bound, "gone": sorted(gone)}).rowcount
    return {"similarity_calibrations": changed + connection.execute(text(_DELETE_CALIBRATIONS), bound).rowcount}


# A test that names an erased memory, or quotes what it said: of two texts one has the other in it. Short texts are
# words that anybody may use. What a job tells of refused changes has the names of tests, which may quote texts.
_DELETE_TESTS = """
    DELETE FROM consolidation.memory_tests t WHERE project_id = :project AND EXISTS (
        SELECT 1 FROM jsonb_each_text(t.body || jsonb_build_object('name', t.name)) AS given(key, value)
        WHERE given.value = ANY(:ids) OR EXISTS (
            SELECT 1 FROM unnest(CAST(:texts AS text[])) AS said(text)
            WHERE (length(given.value) >= :least AND position(lower(given.value) IN said.text) > 0)
                OR (length(said.text) >= :least AND position(said.text IN lower(given.value)) > 0)))
"""
_FORGET_REFUSED = """
    UPDATE consolidation.consolidation_jobs SET metrics = metrics - 'refused_by_tests'
    WHERE project_id = :project AND metrics ? 'refused_by_tests'
"""
_SHORTEST_QUOTATION = 12


def delete_memory_tests(
    connection: Connection, project_id: UUID, ids: Sequence[UUID], texts: Sequence[str]
) -> dict[str, int]:
    """Delete the memory tests that name or quote erased memories, and what jobs tell about tests; return how many."""
    said = [part.lower().strip() for text in texts for part in (text, *text.splitlines())]
    bound = {
        "project": project_id,
        "ids": [str(id_) for id_ in ids],
        "texts": [part for part in dict.fromkeys(said) if part],
        "least": _SHORTEST_QUOTATION,
    }
    deleted = connection.execute(text(_DELETE_TESTS), bound).rowcount
    if deleted:
        connection.execute(text(_FORGET_REFUSED), {"project": project_id})
    return {"memory_tests": deleted}


_LOAD_ERASED_TEXTS = f"""
    SELECT id, {", ".join(TEXT_COLUMNS)} FROM consolidation.task_memories WHERE id = ANY(:ids) ORDER BY id
"""


def load_erased_texts(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[str]]:
    """Return the texts of raw memories by id, column by column."""
    rows = connection.execute(text(_LOAD_ERASED_TEXTS), {"ids": list(ids)})
    return {row[0]: [value for value in row[1:] if value] for row in rows}


_LOAD_PAIR_TEXTS = f"""
    SELECT n.a, n.b, ARRAY[{", ".join(f"a.{name}" for name in TEXT_COLUMNS)}] AS a_texts,
        ARRAY[{", ".join(f"b.{name}" for name in TEXT_COLUMNS)}] AS b_texts
    FROM consolidation.memory_pairs n
        JOIN consolidation.task_memories a ON a.id = n.a JOIN consolidation.task_memories b ON b.id = n.b
    WHERE n.project_id = :project AND (n.a = ANY(:ids) OR n.b = ANY(:ids))
        AND EXISTS (SELECT 1 FROM consolidation.pair_judgements j WHERE j.project_id = :project)
"""


def load_judged_pairs(connection: Connection, project_id: UUID, ids: Sequence[UUID]) -> list[tuple[str, str]]:
    """Return the texts of the pairs of the similarity graph that raw memories are in; none if no judge was asked."""
    rows = connection.execute(text(_LOAD_PAIR_TEXTS), {"project": project_id, "ids": list(ids)})
    return [(join_text_columns(row.a_texts), join_text_columns(row.b_texts)) for row in rows]


_RECORD_ERASURE = """
    INSERT INTO consolidation.consolidation_changes (
        project_id, group_id, operation, entity_type, entity_id, previous_state, reason, changed_by)
    VALUES (:project, :group_id, 'erase', 'erasure', :project, CAST(:summary AS jsonb), :reason, :changed_by)
"""


def record_erasure(
    connection: Connection, author: Author, *, group_id: UUID, summary: Mapping[str, Any], reason: str | None
) -> None:
    """Record an erasure in the ledger. ``summary`` holds counts, hashed ids and an instant, and no content."""
    parameters = {
        "project": author.project_id,
        "group_id": group_id,
        "summary": json.dumps(dict(summary)),
        "reason": reason,
        "changed_by": author.changed_by,
    }
    connection.execute(text(_RECORD_ERASURE), parameters)


_LIST_ANALYZED = """
    SELECT DISTINCT format('%I.%I', schemaname, tablename) FROM pg_stats WHERE schemaname = 'consolidation' ORDER BY 1
"""


def renew_statistics(connection: Connection, project_id: UUID) -> None:
    """Renew the statistics of the query planner and of search: they quote values of rows, also of rows that are gone.

    Args:
        connection: In autocommit, as each table is locked against other maintenance until its transaction ends.
    """
    for table in connection.scalars(text(_LIST_ANALYZED)).all():
        connection.execute(text(f"ANALYZE {table}"))
    for index in find_word_indexes(connection, project_id).values():
        count_words(connection, index, again=True)
