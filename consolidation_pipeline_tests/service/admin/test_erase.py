"""Erase: nothing of a memory is left anywhere, nothing else is different, and no undo brings it back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from consolidation_pipeline.errors import ConflictError, NotFoundError, StoreError, UsageError
from consolidation_pipeline.service.admin import erase
from consolidation_pipeline.service.admin.erase import Certificate, erase_memories, format_certificate, preview_erasure
from consolidation_pipeline.service.intake.agent_memories import give_feedback
from consolidation_pipeline.service.intake.memory_uses import report_used
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.review.pair_labels import label_pair
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.service.undo.history import list_change_groups, list_ledger
from consolidation_pipeline.store.admin import canary_scan
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline_tests.openai_server import OpenAIServer, Request, reply_with_json
from consolidation_pipeline_tests.service.corpus import LESSONS, MIGRATIONS, WEBHOOKS, reworded_notes, topic_notes
from consolidation_pipeline_tests.service.model_replies import pattern_reply, reply_by_schema, shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.playbook.test_entries import OPTIONS
from consolidation_pipeline_tests.service.table_dumps import TABLES, compute_checksums

CANARY = "Zebrafinch quokka ferries agree."


def quote_canary(request: Request) -> dict[str, Any]:
    """Return a valid reply, with the canary's memory as the pattern if the prompt shows it."""
    reply = reply_by_schema(request)
    quoted = next((text for text in shown_memories(request).values() if CANARY in text), None)
    return {key: quoted if quoted and key == "pattern" else value for key, value in reply.items()}


@pytest.fixture
def notes(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Consolidated project, with a canary in a merged memory, in a pattern, and in what a model said about it."""
    provider.behaviour = reply_with_json(quote_canary)
    pipeline.start_from(consolidate_notes)
    return pipeline


def consolidate_notes(pipeline: Pipeline) -> None:
    lower = {"t_merge": 0.7, "t_suggest": 0.65, "scope": "project"}
    pipeline.configure_new(**{**OPTIONS, **lower}, playbook_approval="automatic", llm_model="openai/gpt-4o-mini")
    merging = reworded_notes(LESSONS[:1])[:3]
    merging[0]["content"] += f" {CANARY}"
    hooks = topic_notes("hook", WEBHOOKS)
    hooks[0]["content"] = f"{WEBHOOKS[0]} {CANARY}"
    hooks[0]["user_id"] = merging[0]["user_id"] = "ada"
    pipeline.add([*merging, *hooks, *topic_notes("move", MIGRATIONS)])
    pipeline.run()


def find_canaries(pipeline: Pipeline) -> list[UUID]:
    query = "SELECT id FROM {s}.task_memories WHERE strpos(execution_summary, :canary) > 0 ORDER BY id"
    return [row.id for row in pipeline.rows(query, canary=CANARY)]


def erase_all(pipeline: Pipeline, *ids: UUID, **how: Any) -> Certificate:
    return erase_memories(pipeline.engine, ids, changed_by="tester", **how)


def list_places(pipeline: Pipeline, words: str) -> dict[str, int]:
    with pipeline.engine.connect() as connection:
        return canary_scan.locate(connection, words)


def dump_other_rows(pipeline: Pipeline, words: list[str]) -> dict[str, set[str]]:
    """Return the rows of each table that say none of ``words``, as JSON without what a next run makes again."""
    caches = {"memory_clusters", "consolidation_jobs", "consolidation_changes", "projects", "llm_calls"}
    found = {}
    # A row of the graph holds pairs of several memories.
    for table in (*TABLES, "memory_pairs"):
        if table not in {*caches, "memory_neighbors"}:
            rows = [
                json.dumps(row[0], sort_keys=True)
                for row in pipeline.rows(f"SELECT to_jsonb(t) FROM {SCHEMA}.{table} t")
            ]
            found[table] = {row for row in rows if not any(word in row for word in words)}
    return found


def test_nothing_of_erased_memories_is_left(notes: Pipeline) -> None:
    first, second = find_canaries(notes)
    give_feedback(notes.engine, first, helpful=True, note=f"yes: {CANARY}", changed_by="tester")
    report_used(notes.engine, [second], voter="tester", query="ferries", settings=notes.settings)
    label_pair(notes.engine, "notes", first, second, same=False, labelled_by="tester")
    edit_memory(notes.engine, second, {"goal": "Another goal"}, changed_by="tester")
    notes.run()
    notes.write("UPDATE {s}.llm_calls SET response = to_jsonb(CAST(:words AS text))", words=CANARY)
    search(notes.engine, "notes", SearchQuery(CANARY), settings=notes.settings)
    assert notes.value("SELECT count(*) FROM {s}.pending_uses") > 0
    before = list_places(notes, "Zebrafinch")
    assert {"consolidated_memories.content", "consolidation_changes.new_state", "llm_calls.response"} <= before.keys()
    done = erase_all(notes, first, second, reason="asked for")
    assert done.is_clean
    assert (done.scan["method"], done.scan["found"]) == ("pg_dump", 0)
    assert done.scan["texts"] >= 1
    assert list_places(notes, "Zebrafinch") == {}
    made_of = (
        "SELECT count(*) FROM {s}.pending_uses WHERE memory_id NOT IN (SELECT id FROM {s}.task_memories UNION "
        "SELECT id FROM {s}.consolidated_memories)"
    )
    assert notes.value(made_of) == 0
    for id_ in (first, second):
        assert list_places(notes, str(id_)) == {}
    notes.run()
    assert list_places(notes, "Zebrafinch") == {}


def test_statistics_quote_no_erased_memory(notes: Pipeline) -> None:
    notes.write("ANALYZE")
    quoted = (
        "SELECT count(*) FROM pg_stats WHERE schemaname = 'consolidation' AND strpos(pg_stats::text, 'Zebrafinch') > 0"
    )
    assert notes.value(quoted) > 0
    erase_all(notes, *find_canaries(notes))
    assert notes.value(quoted) == 0


def test_certificate_has_no_content(notes: Pipeline) -> None:
    memories = find_canaries(notes)
    done = erase_all(notes, *memories)
    words = format_certificate(done)
    content = json.loads(words)
    assert "Zebrafinch" not in words
    assert not any(str(id_) in words for id_ in memories)
    assert content["memories"] == [erase._hash_id(content["salt"], id_) for id_ in memories]
    assert (content["is_clean"], content["rows"]["task_memories"]) == (True, 2)
    assert list_places(notes, content["salt"]) == {}
    (record,) = [
        row for row in list_ledger(notes.engine, "notes", limit=5)["changes"] if row["entity_type"] == "erasure"
    ]
    assert (record["operation"], record["previous_state"]["memories"]) == ("erase", content["memories"])


def test_everything_else_stays_as_it_was(notes: Pipeline) -> None:
    memories = find_canaries(notes)
    found = preview_erasure(notes.engine, memories)
    gone = [str(row.id) for row in notes.rows("SELECT id FROM {s}.consolidated_memories")]
    kept = notes.rows(
        "SELECT id FROM {s}.consolidated_memories WHERE NOT source_memory_ids && CAST(:ids AS uuid[])", ids=memories
    )
    gone = [id_ for id_ in gone if UUID(id_) not in {row.id for row in kept}] + [str(id_) for id_ in memories]
    before = dump_other_rows(notes, [*gone, "Zebrafinch"])
    erase_all(notes, *memories)
    after = dump_other_rows(notes, [])
    assert found.rows["consolidated_memories"] == len(gone) - 2
    free = {
        json.dumps(row[0], sort_keys=True)
        for row in notes.rows("SELECT to_jsonb(t) FROM {s}.task_memories t WHERE t.version > 1 AND NOT is_consolidated")
    }
    for table, rows in before.items():
        assert rows <= after[table], table
        if table != "playbook_entries":
            assert after[table] - rows <= free, table


def test_preview_lists_what_the_erasure_lists(notes: Pipeline) -> None:
    memories = find_canaries(notes)
    label_pair(notes.engine, "notes", *memories, same=False, labelled_by="tester")
    before = dump_other_rows(notes, [])
    found = preview_erasure(notes.engine, memories)
    assert dump_other_rows(notes, []) == before
    assert "erase" not in {row["operation"] for row in list_ledger(notes.engine, "notes", limit=5)["changes"]}
    done = erase_all(notes, *memories)
    assert (found.rows, found.survivors) == (done.rows, done.survivors)
    assert {"memory_neighbors", "labelled_pairs", "ledger images emptied"} <= found.rows.keys()


def test_erasure_by_user_takes_only_that_user(notes: Pipeline) -> None:
    memories = find_canaries(notes)
    assert preview_erasure(notes.engine, project="notes", user_id="ada").memories == memories
    done = erase_all(notes, project="notes", user_id="ada")
    assert (len(done.memories), done.is_clean) == (2, True)
    with pytest.raises(NotFoundError, match="has no memories of user 'ada'"):
        erase_all(notes, project="notes", user_id="ada")


def test_survivors_are_derived_again(notes: Pipeline, provider: OpenAIServer) -> None:
    memories = find_canaries(notes)
    erase_all(notes, *memories)
    assert notes.value("SELECT count(*) FROM {s}.task_memories WHERE is_consolidated") == 0
    provider.behaviour = reply_with_json(pattern_reply(0.9))
    notes.run()
    merged = notes.rows("SELECT * FROM {s}.consolidated_memories WHERE kind = 'merged' AND retired_at IS NULL")
    assert [(row.source_count, "Zebrafinch" in row.content) for row in merged] == [(2, False)]
    found = search(notes.engine, "notes", SearchQuery("Zebrafinch ferry", limit=50), settings=notes.settings)
    assert not any("Zebrafinch" in hit.content for hit in found.results)


def test_no_undo_brings_erased_memories_back(notes: Pipeline) -> None:
    jobs = [row.id for row in notes.rows("SELECT id FROM {s}.consolidation_jobs")]
    merge = notes.value("SELECT group_id FROM {s}.consolidation_changes WHERE operation = 'merge' LIMIT 1")
    done = erase_all(notes, *find_canaries(notes))
    for target in (merge, done.erasure_id):
        for cascade in (False, True):
            with pytest.raises(ConflictError, match="memories were erased for good"):
                notes.roll_back(target, cascade=cascade)
    assert list_places(notes, "Zebrafinch") == {}
    notes.roll_back(jobs[0], cascade=True)
    assert list_places(notes, "Zebrafinch") == {}
    assert list_change_groups(notes.engine, "notes", limit=100)


def test_undone_merge_keeps_survivors_apart(notes: Pipeline) -> None:
    merge = notes.value("SELECT group_id FROM {s}.consolidation_changes WHERE operation = 'merge' LIMIT 1")
    undone = notes.roll_back(merge, cascade=True)
    assert undone.kept_apart == 1
    erase_all(notes, *find_canaries(notes))
    assert list_places(notes, "Zebrafinch") == {}
    notes.run()
    assert notes.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'merged'") == 0
    with pytest.raises(ConflictError, match="memories were erased for good"):
        notes.roll_back(undone.rollback_id, cascade=True)


def test_same_memory_can_be_imported_again(notes: Pipeline) -> None:
    memories = find_canaries(notes)
    erase_all(notes, *memories)
    notes.add([{"id": "hook-0", "content": "Another text for the same id."}])
    assert note_id("hook-0") in memories
    assert notes.value("SELECT version FROM {s}.task_memories WHERE id = :id", id=note_id("hook-0")) == 1
    notes.run()
    assert list_places(notes, "Zebrafinch") == {}


def test_erase_refuses_wrong_input(notes: Pipeline) -> None:
    merged = notes.value("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged'")
    for how, message in (
        ({}, "name what to erase"),
        ({"user_id": "ada"}, "in one project: name both"),
        ({"user_id": " ", "project": "notes"}, "in one project: name both"),
        ({"ids": [merged]}, "is of kind merged, made from other memories"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            preview_erasure(notes.engine, **how)
    with pytest.raises(NotFoundError):
        erase_all(notes, uuid4())
    assert notes.value("SELECT count(*) FROM {s}.consolidation_changes WHERE operation = 'erase'") == 0


@pytest.mark.breaks_rules
def test_scan_finds_what_is_left(notes: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    memories = find_canaries(notes)
    monkeypatch.setattr(erase, "delete_erased", lambda *_: {})
    for function in ("scrub_ledger", "remove_boilerplate", "rename_mentions"):
        monkeypatch.setattr(erase, function, lambda *_: {})
    done = erase_all(notes, *memories)
    assert not done.is_clean
    assert done.scan["places"]["task_memories.id"] == 2


def test_scan_without_program_reads_every_column(notes: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise StoreError("none is found")

    monkeypatch.setattr(canary_scan, "find_programs", fail)
    found = canary_scan.scan_database(notes.engine, [CANARY, "a text that is nowhere in the database"])
    assert (found.method, found.found) == ("sql", {CANARY})
    assert erase_all(notes, *find_canaries(notes)).scan["method"] == "sql"


def test_failed_erasure_changes_nothing(notes: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {table: notes.value(f"SELECT count(*) FROM {SCHEMA}.{table}") for table in TABLES}

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("killed")

    monkeypatch.setattr(erase, "record_erasure", fail)
    with pytest.raises(RuntimeError):
        erase_all(notes, *find_canaries(notes))
    assert {table: notes.value(f"SELECT count(*) FROM {SCHEMA}.{table}") for table in TABLES} == before
    assert list_places(notes, "Zebrafinch")["task_memories.execution_summary"] == 2


KILLED = """
import sys
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.store.database.engine import connect_engine
erase_memories(connect_engine(sys.argv[1]), project="notes", user_id="ada", changed_by="tester")
"""


@pytest.mark.slow
def test_killed_erasure_leaves_everything(notes: Pipeline) -> None:
    before = compute_checksums(notes)
    url = notes.engine.url.render_as_string(hide_password=False)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%memory_votes%'"
    with notes.engine.begin() as connection:
        connection.execute(text(f"LOCK TABLE {SCHEMA}.memory_votes IN ACCESS EXCLUSIVE MODE"))
        process = subprocess.Popen([sys.executable, "-c", KILLED, url])
        while not notes.value(waiting):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
    while notes.value(waiting):
        time.sleep(0.05)
    assert compute_checksums(notes) == before
    assert erase_all(notes, project="notes", user_id="ada").is_clean
