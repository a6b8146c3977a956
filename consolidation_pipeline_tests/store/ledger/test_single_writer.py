"""Every change of knowledge goes through the ledger: a trigger rejects any other change at commit.

The trigger is active while all public functions of the store are called, and during a pipeline run and its rollback.
New functions are called too; the test fails if it has no value for one of their arguments.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from consolidation_pipeline import store
from consolidation_pipeline.core.lifecycle.associations import CONTRADICTS, describe_rule
from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.core.memory_tests.memory_test import build_test
from consolidation_pipeline.service.intake.importer import import_memories
from consolidation_pipeline.service.knowledge.merged_memories import merge_clusters
from consolidation_pipeline.service.knowledge.patterns import derive_patterns
from consolidation_pipeline.service.knowledge.principles import derive_principles
from consolidation_pipeline.service.knowledge.profiles import update_profiles
from consolidation_pipeline.service.knowledge.summaries import summarize_memories
from consolidation_pipeline.service.lifecycle.decay import score_relevance
from consolidation_pipeline.service.playbook.entries import update_playbook
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.service.shadow.promotion import promote
from consolidation_pipeline.service.shadow.shadows import drop, run_shadow
from consolidation_pipeline.service.similarity.clusters import form_clusters
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.service.similarity.similarity_graph import update_similarity_graph
from consolidation_pipeline.service.undo.rollback import roll_back
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.admin.project_browser import KnowledgeFilter
from consolidation_pipeline.store.checks.merged_memories import NO_LITERAL_IS_LOST
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SCHEMA, playbook_entries, task_memories
from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.jobs.jobs import NewJob, append_job
from consolidation_pipeline.store.knowledge.abstractions import load_existing_rows
from consolidation_pipeline.store.knowledge.merged_memories import (
    DerivedMemory,
    LineageEdge,
    MergedMemory,
    load_sources,
    write_derived,
    write_merged,
)
from consolidation_pipeline.store.knowledge.playbook import EntryChange
from consolidation_pipeline.store.knowledge.quarantine import Quarantine, SuspectMemory, WriterFilter
from consolidation_pipeline.store.knowledge.relations import NewRelation, append_relations, load_relations
from consolidation_pipeline.store.knowledge.supersession_answers import SupersessionAnswer
from consolidation_pipeline.store.knowledge.supersessions import DatedScope, SupersessionChange
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED, Change, update_rows
from consolidation_pipeline.store.memories.archive import MemoryUpdate
from consolidation_pipeline.store.memories.embeddings import save_embeddings
from consolidation_pipeline.store.memories.listing import ListFilter
from consolidation_pipeline.store.memories.memories import encode_memory
from consolidation_pipeline.store.review.review_queue import lock_review_items
from consolidation_pipeline.store.review.suggestions import NewSuggestion, append_suggestions, lock_suggestion
from consolidation_pipeline.store.search.keyword_matches import KeywordMatches, read_keyword_matches
from consolidation_pipeline.store.search.retrievers import Reads, SearchFilters, SemanticMatch, read_nearest
from consolidation_pipeline.store.search.search_hits import RankedMemory
from consolidation_pipeline.store.search.word_indexes import WordIndex
from consolidation_pipeline.store.similarity.calibrations import Calibration
from consolidation_pipeline.store.similarity.clusters import ClusterMember, TierGroups
from consolidation_pipeline.store.similarity.scope_walls import MisplacedMemory
from consolidation_pipeline.store.similarity.similarity_graph import TOPIC, Neighbors
from consolidation_pipeline_tests.store.sample_rows import (
    MODEL,
    NOW,
    add_memories,
    add_project,
    author,
    merged_values,
    new_memory,
    newest_change,
    unit_vector,
)

# Columns that may change without the ledger, and computed columns.
BOOKKEEPING = {
    "task_memories": "embedding embedding_model embedding_dim reused_count "
    "last_accessed_at is_consolidated is_archived content_tsv",
    "consolidated_memories": "embedding embedding_model embedding_dim reuse_count last_accessed_at content_tsv",
    "playbook_entries": "embedding embedding_model embedding_dim",
    "memory_relations": "",
    "consolidation_suggestions": "",
}
TRIGGER_FUNCTIONS = f"""
CREATE FUNCTION {SCHEMA}.prove_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := to_jsonb(OLD);
    after jsonb := to_jsonb(NEW);
    row_id uuid := coalesce(after, before) ->> 'id';
    changed text[] := ARRAY(SELECT key FROM jsonb_object_keys(coalesce(after, before)) key
        WHERE after -> key IS DISTINCT FROM before -> key AND key <> ALL (string_to_array(TG_ARGV[0], ' ')));
BEGIN
    IF changed = '{{}}' OR NOT EXISTS (SELECT 1 FROM {SCHEMA}.projects
        WHERE id = (coalesce(after, before) ->> 'project_id')::uuid) THEN
        RETURN NULL;  -- bookkeeping, or the project itself was deleted
    END IF;
    IF TG_OP = 'INSERT' AND TG_TABLE_NAME = 'task_memories' AND after ->> 'version' = '1' THEN
        RETURN NULL;  -- an agent's memory comes in
    END IF;
    PERFORM FROM {SCHEMA}.consolidation_changes c
        WHERE c.entity_type = TG_TABLE_NAME AND c.entity_id = row_id AND c.changed_at = transaction_timestamp()
            AND c.version_before IS NOT DISTINCT FROM (before ->> 'version')::integer
            AND c.version_after IS NOT DISTINCT FROM (after ->> 'version')::integer
            AND NOT EXISTS (SELECT 1 FROM unnest(changed) AS k(name) WHERE name <> 'version' AND (
                c.previous_state -> name IS DISTINCT FROM before -> name
                OR c.new_state -> name IS DISTINCT FROM after -> name));
    IF NOT FOUND THEN
        RAISE EXCEPTION 'not in the ledger: % of % %: %', TG_OP, TG_TABLE_NAME, row_id, changed;
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION {SCHEMA}.prove_part() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    part jsonb := coalesce(to_jsonb(NEW), to_jsonb(OLD));
    owner uuid := part ->> TG_ARGV[0];
BEGIN
    PERFORM FROM {SCHEMA}.consolidation_changes WHERE entity_id = owner AND changed_at = transaction_timestamp()
        UNION ALL SELECT FROM {SCHEMA}.task_memories WHERE id = owner AND created_at = transaction_timestamp();
    IF NOT FOUND AND EXISTS (SELECT 1 FROM {SCHEMA}.projects WHERE id = (part ->> 'project_id')::uuid) THEN
        RAISE EXCEPTION 'not in the ledger: % of % of %', TG_OP, TG_TABLE_NAME, owner;
    END IF;
    RETURN NULL;
END $$;
"""
CREATE_TRIGGER = """
CREATE CONSTRAINT TRIGGER proof AFTER INSERT OR UPDATE OR DELETE ON {} DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION {}
"""
SCRATCH_TABLE = f"{SCHEMA}.scratch"
JOB: dict[str, Any] = {"trigger_type": "manual", "triggered_by": "test", "options": {}}
NO_GROUPS = TierGroups(
    "merge", (), (), *(np.empty(0, kind) for kind in (np.int64, "S16", np.bool_, np.float32, np.bool_))
)


@pytest.fixture
def guarded_engine(engine: Engine) -> Engine:
    with engine.begin() as connection:
        cursor: Any = connection.connection.cursor()
        cursor.execute(TRIGGER_FUNCTIONS)
        for name, ignored in BOOKKEEPING.items():
            connection.execute(text(CREATE_TRIGGER.format(LEDGERED[name], f"{SCHEMA}.prove_row('{ignored}')")))
        for name, owner in (("memory_files", "owner_id"), ("memory_lineage", "child_id")):
            connection.execute(text(CREATE_TRIGGER.format(f"{SCHEMA}.{name}", f"{SCHEMA}.prove_part('{owner}')")))
    return engine


class StoreArguments:
    """Project with rows in every table, and arguments for the store's functions."""

    def __init__(self, connection: Connection) -> None:
        self.project = add_project(connection)
        self.raw = add_memories(connection, self.project, [new_memory(key, files=("a.py",)) for key in "abcdefgh"])
        vectors = np.stack([unit_vector(n) for n in range(8)])
        save_embeddings(connection, "task_memories", to_ids(self.raw), vectors, MODEL)
        others = add_memories(connection, self.project, [new_memory(key) for key in "yz"])
        proposed = [self.suggestion(others), self.suggestion([uuid4()])]  # the second references a missing memory
        suggested = append_suggestions(connection, author(self.project), proposed, now=NOW)[0]
        further = add_memories(connection, self.project, [new_memory(key) for key in "uvwx"])
        pairs = [self.suggestion(further[:2]), self.suggestion(further[2:])]
        outranked, reworded = append_suggestions(connection, author(self.project), pairs, now=NOW)
        relation = self.relation(self.raw[3], self.raw[4])
        append_relations(connection, author(self.project), [relation], now=NOW)
        write_merged(connection, author(self.project), [self.merged(connection, self.raw[:2])], now=NOW)
        patterns = [self.pattern(self.raw[3:6]) for _ in range(6)]
        write_derived(connection, author(self.project), patterns, operation="pattern", now=NOW)
        archive = [Change(self.raw[2], uuid4(), {"archived_at": NOW, "files": []}, 1)]
        update_rows(connection, author(self.project), task_memories, archive, operation="archive")
        self.job = append_job(connection, self.project.id, **JOB)
        connection.execute(text(f"CREATE TABLE {SCRATCH_TABLE} (id uuid, embedding vector)"))
        self.by_parameter: dict[str, Any] = JOB | {
            "project": self.project,
            "project_id": self.project.id,
            "source_id": uuid4(),
            "statuses": ["written"],
            "project_ids": [self.project.id],
            "slug": self.project.slug,
            "author": author(self.project),
            "model": MODEL,
            "dimension": 3,
            "threshold": 0.1,
            "has_model": True,
            "tier": "merge",
            "limit": 5,
            "depth": 3,
            "ids": self.raw,
            "uses": dict.fromkeys(self.raw, 1),
            "hashes": ["0" * 64],
            "memory_id": self.raw[0],
            "memory_type": None,
            "min_similarity": None,
            "differ_only_in": None,
            "since": None,
            "checked": None,
            "jobs": [],
            "scope_option": "user_id",
            "suggestion_id": suggested,
            "root": self.raw[0],
            "version": 1,
            "as_of": NOW,
            "now": NOW,
            "first": UUID(int=0),
            "last": UUID(int=2**128 - 1),
            "target": self.raw[0],
            "changes": [1],
            "job_id": self.job,
            "run_id": "run",
            "phase": "clusters",
            "asset": "patterns",
            "prompt_hash": "hash",
            "planned": 3,
            "error": "broke",
            "status": "completed",
            "metrics": {"n": 1},
            "counters": {"memories_merged": 1},
            "check": NO_LITERAL_IS_LOST,
            "statement": "SELECT id FROM consolidation.task_memories WHERE project_id = :project /* changed */",
            "kind": "event",
            "kinds": ["value"],
            "purpose": "pattern",
            "payload": {},
            "payloads": [{}],
            "wait_seconds": 0.0,
            "name": "test",
            "config": {},
            "consolidation_enabled": True,
            "parameters": {},
            "vectors": vectors,
            "scores": np.ones(8),
            "relevance": np.ones(8),
            "table": "task_memories",
            "group_id": uuid4(),
            "reason": "test",
            "operation": "edit",
            "voter": "key:1",
            "query_hash": "",
            "vector": unit_vector(1),
            "day": NOW.date(),
            "helpful": True,
            "patterns": self.raw,
            "reference": self.project.slug,
            "scope": "user_id",
            "knowledge": KnowledgeFilter("raw"),
            "job_ids": [self.job],
            "group_ids": [uuid4()],
        }
        superseded, successor, retired, reviewed, dissolved, moved = (pattern.id for pattern in patterns)
        existing = {row.id: row for row in load_existing_rows(connection, self.project.id, "pattern", scope="user_id")}
        pair_ids = to_ids([min(self.raw)]), to_ids([max(self.raw)])
        pair = Neighbors(*pair_ids, np.array([0.9], np.float32), np.array([TOPIC], np.int16))
        instruction = {"content": "Do.", "content_hash": "h", "supporting_memory_ids": self.raw}
        labelled = dict(zip("ab", sorted(self.raw[:2]), strict=True))
        self.by_function: dict[str, dict[str, Any]] = {
            "archive_rows": {"updates": [MemoryUpdate(self.raw[6], 1, uuid4(), "test", "staleness")], "at": NOW},
            "append_calibration": {"snapshot": Calibration(1, unit_vector(1), {"t_merge": 0.9}, 8)},
            "list_candidates": {"cross_type": False, "most": 5},
            "load_profiled": {"summaries": [[self.raw[0]]], "most": 5},
            "list_changed_rows": {"column": "id", "jobs": [self.job]},
            "list_suspects": {"where": WriterFilter(ids=self.raw[7:])},
            "list_affected": {"suspects": self.raw[7:]},
            "list_kept": {"changed": self.raw[7:]},
            "list_dated_scopes": {"code": "1"},
            "load_dated_memories": {"scopes": ["s"]},
            "load_known_claims": {"scopes": ["s"], "code": "1"},
            "list_unjudged": {"judge": "j"},
            "mark_judged": {"judge": "j"},
            "load_answered": {"judge": "j", "newer": self.raw},
            "store_answers": {
                "judge": "j",
                "answers": [SupersessionAnswer(self.raw[1], self.raw[0], "h", "h", "It is so.", "It is not.")],
            },
            "mark_scopes_compared": {"scopes": [DatedScope("s", 1, "h", False)], "code": "1", "known": {"s": b""}},
            "list_hidden": {"affected": [], "suspects": []},
            "write_quarantine": {"rows": Quarantine([SuspectMemory(self.raw[7], 1, "Do.", None, None)], [])},
            "write_derived_out_of_use": {"rows": Quarantine([], [])},
            "write_revisions": {"rows": Quarantine([], []), "values": {}},
            "list_memories": {"where": ListFilter()},
            "scan_database": {"canaries": ["a text that is nowhere"]},
            "locate": {"canary": "a text that is nowhere"},
            "write_supersessions": {
                "changes": [SupersessionChange(uuid4(), self.raw[4], self.raw[5], "candidate", 0.6, "dates")]
            },
            "count_candidates": {"indexes": [], "nearest": 40},
            "save_memory_tests": {"tests": [build_test("must_remember", "Do.")], "source": "cli"},
            "delete_memory_test": {"name": "a test"},
            "enable_memory_test": {"name": "a test", "enabled": True},
            "record_test_results": {"failures": {"a test": None}},
            "find_named_memories": {"hashes": ["h"], "ids": self.raw},
            "list_proposals": {"most": 5},
            "delete_memory_tests": {"ids": self.raw, "texts": ["Do."]},
            "load_scopes": {"option": "user_id"},
            "has_scope": {"option": "user_id", "scope": "ada"},
            "find_complete": {"indexes": []},
            "find_scope_indexes": {"option": "user_id", "scope": "ada"},
            "find_sources_of": {"external_ids": ["a"], "texts": ["Do."]},
            "append_label": labelled | {"same": True, "labelled_by": "test"},
            "find_label": labelled,
            "delete_label": labelled,
            "load_labels": {"most": 5},
            "load_answers": {"judge": "j"},
            "set_verdict": {"pairs": pair, "verdict": TOPIC},
            "load_compared_sentences": {"ids": self.raw[:1], "asked_by": "1"},
            "replace_compared_sentences": {"asked_by": "1", "pairs": {self.raw[0]: b""}},
            "load_recall_answers": {"asked_by": "1"},
            "load_settled": {"asked_by": "1"},
            "replace_recall_answers": {"asked_by": "1", "answers": b"", "settled": None},
            "append_answers": {"judge": "j", "answers": {"0" * 64: "same"}},
            "hold_lock": {"name": "a lock"},
            "is_lock_held": {"name": "a lock"},
            "delete_delivered_messages": {"older_than": timedelta(days=1)},
            "append_key": {"key_hash": "hash", "role": "reader", "name": "test"},
            "append_job": {"project_id": add_project(connection, "other").id},
            "append_idle_jobs": {"wanted": [NewJob(self.project.id, "manual", "test", {})]},
            "append_neighbors": {"found": [pair], "new": None},
            "delete_neighbors": {"ids": self.raw[:1], "model": None},
            "append_suggestions": {"suggestions": [self.suggestion(self.raw[4:6])]},
            "append_relations": {"relations": [self.relation(self.raw[3], self.raw[5])]},
            "append_encoded": {"rows": [encode_memory(self.project.slug, 1, new_memory("newer", files=("n.py",)))]},
            "append_memories": {"rows": [(1, new_memory("new", files=("n.py",)))]},
            "carry_out_changes": {"fill": lambda: None},
            "list_sample": {"length": 10},
            "load_queries": {"length": 10},
            "check_constraints_at_end": {"noun": "row"},
            "copy_columns": {"target": f"{SCRATCH_TABLE} (id)", "columns": {"id": to_ids(self.raw)}},
            "copy_rows": {"target": f"{SCRATCH_TABLE} (id)", "rows": [[id_] for id_ in self.raw]},
            "pass_vectors": {"query": "SELECT NULL::uuid, NULL::bytea", "target": f"{SCRATCH_TABLE} (id, embedding)"},
            "copy_vectors": {"target": f"{SCRATCH_TABLE} (id, embedding)", "ids": to_ids(self.raw)},
            "count_entities": {"entity_type": "playbook_entries"},
            "count_cannot_links": {"rollback_id": uuid4()},
            "create_project": {"slug": "new"},
            "decide_relations": {
                "relations": list(load_relations(connection, [relation.id]).values()),
                "status": "confirmed",
            },
            "decide_suggestion": {
                "suggestion": lock_suggestion(connection, suggested),
                "decision": {"status": "rejected"},
            },
            "supersede_suggestions": {"rows": [lock_suggestion(connection, outranked)]},
            "parse_words": {"texts": ["A note.", ""], "languages": ["english", "simple"]},
            "update_texts": {"texts": [(lock_suggestion(connection, reworded), {"worth": 2.0})]},
            "write_review_decisions": {
                "rows": list(lock_review_items(connection, [reviewed]).values()),
                "approved": True,
            },
            "fetch_rows": {"query": "SELECT 1", "bound": {}},
            "find_changed_groups": {"tiers": [NO_GROUPS], "without": to_ids([])},
            "replace_grouped_scopes": {"scopes": {uuid4(): "hash"}},
            "replace_discarded": {"groups": {"key": "hash"}},
            "load_group_keys": {"ids": self.raw},
            "mark_groups_merged": {"keys": ["key"]},
            "find_key": {"key_hash": "hash"},
            "count_words": {"index": WordIndex("task_memories", self.project.id)},
            "execute_plain": {"statements": "SET LOCAL work_mem = '4MB'"},
            "run_reads": {"reads": self.read_matches()},
            "run_both": {"nearest": self.read_near(), "matches": self.read_matches()},
            "forget_compared_sources": {"merged_ids": [pattern.id for pattern in patterns]},
            "find_origin": {"seq": 1},
            "get_key": {"key_id": uuid4()},
            "load_usefulness": {"query": (MODEL, unit_vector(1))},
            "load_query_facts": {"query": "merged", "own": "english"},
            "list_scopes": {"prefixes": ["ada/"], "option": "user_id,agent_id"},
            "load_staged_similarities": {"ids": [str(self.raw[0])], "vector": unit_vector(1)},
            "save_staged": {"ids": to_ids(self.raw), "hashes": ["h"] * 8},
            "load_similarities": {"ids": [str(self.raw[0])], "vector": unit_vector(1)},
            "load_hits": {"ranked": [RankedMemory(self.raw[0], 0.9, 0.5, None, None, None)]},
            "insert_rows": {"table": playbook_entries, "changes": [Change(uuid4(), uuid4(), instruction)]},
            "load_columns": {"query": f"SELECT id FROM {task_memories}", "kinds": {"id": "S16"}},
            "load_packed_columns": {"query": "SELECT uuid_send(gen_random_uuid())", "kinds": {"id": "S16"}},
            "load_columns_and_vectors": {
                "query": f"SELECT id, embedding FROM {task_memories} WHERE embedding_dim = 3",
                "kinds": {"id": "S16"},
            },
            "load_labelled_columns": {"query": "SELECT 'm', uuid_send(gen_random_uuid())", "kinds": {"id": "S16"}},
            "load_vectors": {"query": f"SELECT id, embedding FROM {task_memories} WHERE embedding_dim = 3"},
            "load_entry_vectors": {"candidates": self.raw},
            "load_confirmed_at": {"memories": self.raw},
            "list_failing_jobs": {"phases": {"decay": ["decay_scores"]}},
            "list_jobs_to_check": {"run_id": "run", "phases": []},
            "list_ended_runs": {"runs": ["run"], "died": "died"},
            "list_cancelled_before_start": {"since": NOW},
            "load_archive_candidates": {"restored_since": NOW},
            "load_pairs": {"at_least": 0.5},
            "load_replies": {"prompt_hashes": ["hash"]},
            "mark_compared": {"ids": to_ids(self.raw)},
            "restore_rows": {"updates": [MemoryUpdate(self.raw[6], 2, uuid4(), "test")]},
            "lock_rows": {"condition": "true"},
            "reject_summarized_twice": {"written": f"SELECT id FROM {SCHEMA}.consolidated_memories"},
            "record_attempt": {"event_id": uuid4()},
            "reject_dangling": {"changed": f"{SCHEMA}.consolidation_changes"},
            "remove_events": {"before": NOW},
            "load_totals": {"bounds": [1.0]},
            "remove_changes": {"before": NOW, "days": 90, "changed_by": "test"},
            "reject_selected": {"query": f"SELECT id FROM {task_memories} WHERE false", "what": "is not there"},
            "replace_grouping_vectors": {"text_hashes": {self.raw[0]: "h"}, "computed": {"h": 0}},
            "replace_details": {"tiers": [NO_GROUPS]},
            "replace_clusters": {"members": [ClusterMember("merge", "key", self.raw[0], "raw", 1.0, True, {})]},
            "revoke_key": {"key_id": uuid4()},
            "revert_changes": {"changes": [newest_change(connection)]},
            "save_embeddings": {"ids": to_ids(self.raw)},
            "save_relevance": {"ids": to_ids(self.raw)},
            "stream_changes": {"since": None, "images": True},
            "stream_costs": {"since": None},
            "stream_memories": {"vectors": True},
            "supersede_rows": {"superseded": [(existing[superseded], successor)]},
            "retire_replaced": {"rows": [existing[retired]]},
            "dissolve_memories": {"rows": [MisplacedMemory(dissolved, 1, "pattern", "Text.", 2, "ada")]},
            "set_scope_keys": {"rows": [MisplacedMemory(moved, 1, "pattern", "Text.", 1, "ada")]},
            "touch_key": {"key_id": uuid4()},
            "update_rows": {"table": task_memories, "changes": [Change(self.raw[3], uuid4(), {"tags": ["x"]}, 1)]},
            "edit_rows": {"updates": [MemoryUpdate(self.raw[7], 2, uuid4(), "test")], "values": {"pinned": True}},
            "write_derived": {"rows": [self.pattern(self.raw[3:6])]},
            "write_entries": {"changes": [EntryChange(uuid4(), None, uuid4(), instruction, "test", None)]},
            "write_merged": {"merged": [self.merged(connection, self.raw[4:6])]},
        }

    def relation(self, a: UUID, b: UUID) -> NewRelation:
        """Return a new relation between two memories."""
        return NewRelation(uuid4(), a, b, describe_rule(CONTRADICTS, 0.1), 0.1, "candidate")

    def read_near(self) -> Reads[list[SemanticMatch]]:
        """Return the read of the memories nearest to a vector."""
        how: dict[str, Any] = {"model": "m", "vector": unit_vector(1), "min_similarity": 0.0, "limit": 9}
        return read_nearest(self.project.id, SearchFilters(LEVELS), indexed={}, **how)

    def read_matches(self) -> Reads[list[KeywordMatches]]:
        """Return the read of the memories that share a word with a query."""
        how: dict[str, Any] = {"lexemes": {"english": ["merged"]}, "indexes": {}, "frequencies": None, "least": 9}
        return read_keyword_matches(self.project.id, SearchFilters(LEVELS), **how)

    def suggestion(self, originals: list[UUID]) -> NewSuggestion:
        """Return a new suggestion to merge these memories."""
        return NewSuggestion("key", [(id_, 1) for id_ in originals], str(uuid4()), "Text.", None, [], 0.9, "alike")

    def pattern(self, sources: list[UUID]) -> DerivedMemory:
        """Return a new pattern of these memories."""
        fields = {"kind": "pattern", "abstraction_level": 2, "confidence_score": 0.7}
        return DerivedMemory(**self.derived("pattern", sources, **fields))

    def merged(self, connection: Connection, sources: list[UUID]) -> MergedMemory:
        """Return a new merged memory of these memories."""
        loaded = load_sources(connection, sources, scope="user_id")
        values = self.derived(f"merged {uuid4()}", sources, confidence_score=0.95)
        return MergedMemory(**values, absorbed=[loaded[id_] for id_ in sources])

    def derived(self, content: str, sources: list[UUID], **fields: Any) -> dict[str, Any]:
        """Return the fields of a new derived memory."""
        others = {"source_memory_ids", "source_count", "embedding", "embedding_model", "embedding_dim", "lineage"}
        values = merged_values(content, files=["a.py"], **fields)
        return {
            "id": uuid4(),
            "version": None,
            "group_id": uuid4(),
            "values": {name: value for name, value in values.items() if name not in others},
            "vector": unit_vector(9),
            "model": MODEL,
            "source_ids": sources,
            "lineage": [LineageEdge(id_, "raw", 0.9) for id_ in sources],
            "reason": "alike",
        }

    def of(self, function: Callable[..., Any], **open_: object) -> dict[str, Any]:
        """Return a value for every required parameter."""
        known = self.by_parameter | self.by_function.get(function.__name__, {}) | open_
        parameters = inspect.signature(function).parameters.values()
        needed = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
        unknown = needed - known.keys()
        where = f"{function.__module__}.{function.__name__}"
        assert not unknown, f"no value for {unknown} of {where}: add it to StoreArguments"
        return {name: known[name] for name in needed}


# Modules that write tables or databases of their own only; the backup, which restores rows with their ledger; the
# erasure, which removes rows and empties the ledger about them; and the promotion of shadows, which has a test below.
_EXEMPT = {"migrations", "engine", "embedded_server", "backup", "erasure", "sources", "source_writes"}
_EXEMPT |= {"databases", "snapshot", "promotion", "rewind"}
# Functions for copies of projects, whose ledger is cut.
_EXEMPT_FUNCTIONS = {"rewind_changes"}


def _public_functions() -> list[Callable[..., Any]]:
    """Return all public functions of the store with a connection or engine; ``delete_project`` comes last."""
    found = []
    for module in pkgutil.walk_packages(store.__path__, f"{store.__name__}."):
        if module.name.rpartition(".")[2] in _EXEMPT or module.ispkg:
            continue
        members = vars(importlib.import_module(module.name)).values()
        found += [f for f in members if inspect.isfunction(f) and f.__module__ == module.name]
    public = [f for f in found if not f.__name__.startswith("_") and f.__name__ not in _EXEMPT_FUNCTIONS]
    selected = [f for f in public if {"connection", "engine"} & inspect.signature(f).parameters.keys()]
    return sorted(selected, key=lambda f: f.__name__ == "delete_project")


def _finish(result: Any) -> None:
    if isinstance(result, AbstractContextManager):
        with result:
            pass
    elif isinstance(result, Iterator):
        list(result)


def test_store_functions_never_bypass_ledger(guarded_engine: Engine) -> None:
    with guarded_engine.begin() as connection:
        arguments = StoreArguments(connection)
    functions = _public_functions()
    assert len(functions) > 60
    for function in functions:
        with guarded_engine.begin() as connection:
            _finish(function(**arguments.of(function, connection=connection, engine=guarded_engine)))


@pytest.mark.slow
def test_run_and_rollback_never_bypass_ledger(guarded_engine: Engine, settings: Settings) -> None:
    import_memories(guarded_engine, "garden", str(PROJECT_ROOT / "examples" / "memories.jsonl"), format="jsonl")
    with open_run(guarded_engine, "garden", settings=settings, planned=()) as run:
        embed_memories(run)
        update_similarity_graph(run)
        form_clusters(run)
        assert merge_clusters(run).created > 0
        assert derive_patterns(run).created > 0
        derive_principles(run)
        assert update_playbook(run, {}).entries_proposed > 0
        assert summarize_memories(run).created > 0
        assert update_profiles(run).created > 0
        score_relevance(run)
    undone = roll_back(guarded_engine, run.job_id, settings=settings, changed_by="test")
    assert undone.memories_deleted > 0
    redone = roll_back(guarded_engine, undone.rollback_id, settings=settings, changed_by="test")
    assert redone.memories_recreated == undone.memories_deleted


@pytest.mark.slow
def test_promotion_of_shadow_never_bypasses_ledger(guarded_engine: Engine, settings: Settings) -> None:
    import_memories(guarded_engine, "garden", str(PROJECT_ROOT / "examples" / "memories.jsonl"), format="jsonl")
    options = {"t_merge": 0.97}
    report = run_shadow(guarded_engine, "garden", options, settings=settings, triggered_by="test")
    done = promote(guarded_engine, "garden", settings=settings, promoted_by="test")
    assert done.changes == sum(report.changes.values()) > 100
    assert roll_back(guarded_engine, done.job_id, settings=settings, changed_by="test").changes == done.changes
    drop(guarded_engine, "garden")


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE {SCHEMA}.task_memories SET pinned = true",
        f"UPDATE {SCHEMA}.task_memories SET version = version + 1",
        f"DELETE FROM {SCHEMA}.task_memories WHERE consolidated_into_id IS NULL",
        f"UPDATE {SCHEMA}.consolidated_memories SET content = 'other'",
        f"UPDATE {SCHEMA}.memory_files SET path = 'other.py'",
        f"DELETE FROM {SCHEMA}.memory_lineage",
        f"INSERT INTO {SCHEMA}.playbook_entries (project_id, content, content_hash) "
        f"SELECT id, 'x', 'h' FROM {SCHEMA}.projects",
    ],
)
def test_trigger_detects_unledgered_change(guarded_engine: Engine, statement: str) -> None:
    with guarded_engine.begin() as connection:
        StoreArguments(connection)
    with pytest.raises(DBAPIError, match="not in the ledger"), guarded_engine.begin() as connection:
        connection.execute(text(statement))


def test_trigger_detects_wrong_ledger_entry(guarded_engine: Engine) -> None:
    with guarded_engine.begin() as connection:
        arguments = StoreArguments(connection)
    with guarded_engine.connect() as connection:
        update_rows(**arguments.of(update_rows, connection=connection))
        connection.execute(
            text(f"UPDATE {task_memories} SET importance = 0.9 WHERE id = :id"), {"id": arguments.raw[3]}
        )
        with pytest.raises(DBAPIError, match="not in the ledger"):
            connection.commit()
