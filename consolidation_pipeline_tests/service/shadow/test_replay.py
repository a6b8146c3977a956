"""A job is replayed on a copy: it decides the same again, or the replay says what differs and why."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.core.memory_tests.memory_test import build_test
from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.memory_tests.registry import add_memory_tests
from consolidation_pipeline.service.shadow.replay import Replay, replay_job
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.engine import connect_engine, with_driver
from consolidation_pipeline.store.shadow.databases import drop_shadows, list_shadows
from consolidation_pipeline_tests.database_pool import DatabasePool
from consolidation_pipeline_tests.openai_server import client_environment, openai_server, reply_with_embeddings
from consolidation_pipeline_tests.service.corpus import LESSONS, MIGRATIONS, WEBHOOKS, corpus, note, topic_notes
from consolidation_pipeline_tests.service.model_replies import reply_to_any
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.shadow.shadow_helpers import make_shadow, promote_shadow
from consolidation_pipeline_tests.service.table_dumps import compute_checksums

SAMPLE = PROJECT_ROOT / "examples" / "memories.jsonl"


WORDS = sorted({word.strip(".,;").lower() for lesson in LESSONS for word in lesson.split() if len(word) > 4})


def replay(pipeline: Pipeline, job_id: UUID) -> Replay:
    return replay_job(pipeline.engine, job_id, settings=pipeline.settings)


def notes() -> list[dict[str, Any]]:
    """Return notes to merge, topics, and notes to archive."""
    return [*corpus(), *topic_notes("hooks", WEBHOOKS), *topic_notes("migrations", MIGRATIONS)]


def tamper(pipeline: Pipeline, statement: str, **parameters: Any) -> None:
    """Change rows behind the ledger's back."""
    with pipeline.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql(statement.replace("{s}", "consolidation"), parameters)


def first_merge(pipeline: Pipeline, job_id: UUID) -> UUID:
    """Return the group of a merge of the job."""
    query = "SELECT group_id FROM {s}.consolidation_changes WHERE job_id = :job AND operation = 'merge' LIMIT 1"
    group: UUID = pipeline.value(query, job=job_id)
    return group


def test_jobs_replay_whatever_came_later(pipeline: Pipeline) -> None:
    rows = notes()
    pipeline.add(rows[: len(rows) // 2])
    first = pipeline.run().job_id
    pipeline.roll_back(first_merge(pipeline, first), cascade=True)
    edit_memory(pipeline.engine, note_id("lesson-5-0"), {"content": "Reviews moved."}, changed_by="tester")
    pipeline.add(rows)
    pipeline.configure(t_merge=0.97)
    second = pipeline.run().job_id
    archive_manually(pipeline.engine, [note_id("alone-1")], changed_by="tester")
    pipeline.add([note("late", LESSONS[0])])
    pipeline.roll_back(pipeline.run().job_id)
    pipeline.configure(t_merge=0.9)
    before = compute_checksums(pipeline)
    for job in (first, second):
        done = replay(pipeline, job)
        assert done.is_same, done.first
        assert (done.differing, done.first, done.notes) == (0, None, [])
        assert done.changes > 20
    assert compute_checksums(pipeline) == before
    assert list_shadows(pipeline.engine, pipeline.project().id) == {}


@contextmanager
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve all models in the block; after it there is neither a server nor a key."""
    with openai_server(reply_to_any) as server:
        names = client_environment(server.api_base)
        for name, value in names.items():
            monkeypatch.setenv(name, value)
        yield
    for name in names:
        monkeypatch.delenv(name)


def test_replay_takes_stored_replies(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(llm_model="openai/gpt-4o-mini", merge_style="rewrite")
    pipeline.add(notes())
    with models(monkeypatch):
        job = pipeline.run().job_id
    replies = "SELECT count(*), count(DISTINCT purpose) FROM {s}.llm_calls WHERE response IS NOT NULL"
    assert pipeline.rows(replies) >= [(8, 3)]
    done = replay(pipeline, job)
    assert done.is_same, done.first
    assert done.notes == []
    tamper(pipeline, "UPDATE {s}.llm_calls SET response = NULL WHERE purpose = 'pattern'")
    first = replay(pipeline, job).first
    assert first is not None
    assert first.operation == "pattern"
    assert "reply not stored: prompt" in first.causes[0]
    assert "of pattern to openai/gpt-4o-mini" in first.causes[0]


def test_replay_sends_no_query_of_memory_tests(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(embedding_model="openai/text-embedding-3-small")
    pipeline.add([note(f"n{at}-{side}", f"Lesson {at} about topic {at}.") for at in range(4) for side in "ab"])
    found = build_test("must_find", {"query": "what does lesson 2 say", "says": "topic 2"})
    add_memory_tests(pipeline.engine, SLUG, [found], source="cli")
    with openai_server(reply_with_embeddings(dimension=16)) as server:
        for name, value in client_environment(server.api_base).items():
            monkeypatch.setenv(name, value)
        job = pipeline.run().job_id
        asked = len(server.requests)
        assert replay(pipeline, job).is_same
        assert len(server.requests) == asked >= 2


def test_replay_takes_stored_vectors(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(embedding_model="openai/text-embedding-3-small")
    repeated = [note(f"n{at}-{side}", f"Lesson {at} about topic {at}.") for at in range(4) for side in "ab"]
    pipeline.add([*repeated, note("alone", "Said once.")])
    with models(monkeypatch):
        job = pipeline.run().job_id
    done = replay(pipeline, job)
    assert done.is_same, done.first
    assert done.changes >= 12
    # The others' texts are those of merged memories too.
    tamper(pipeline, "UPDATE {s}.task_memories SET embedding = NULL, embedding_model = NULL, embedding_dim = NULL")
    first = replay(pipeline, job).first
    assert first is not None
    assert first.causes[0].startswith("the replay stopped: no vector of openai/text-embedding-3-small is stored for")


def test_tampered_text_is_named(pipeline: Pipeline) -> None:
    job = pipeline.consolidate(notes()).job_id
    changed = note_id("lesson-0-0")
    statement = "UPDATE {s}.task_memories SET execution_summary = 'Something else.' WHERE id = %(id)s"
    tamper(pipeline, statement, id=changed)
    done = replay(pipeline, job)
    assert not done.is_same
    assert done.recorded != done.replayed
    assert done.first is not None
    assert (done.first.operation, str(changed) in done.first.rows) == ("merge", True)
    assert done.first.causes[0] == f"input differs: the text of memory {changed} was changed outside of the ledger"
    assert "inputs differ: memories" in done.first.causes


def test_tampered_vector_is_named(pipeline: Pipeline) -> None:
    job = pipeline.consolidate(notes()).job_id
    changed, other = note_id("lesson-0-1"), note_id("alone-2")
    vector = "(SELECT embedding FROM {s}.task_memories WHERE id = %(other)s)"
    tamper(pipeline, f"UPDATE {{s}}.task_memories SET embedding = {vector} WHERE id = %(id)s", id=changed, other=other)
    done = replay(pipeline, job)
    assert done.first is not None
    assert done.first.causes == [
        f"embedding differs: the vector of memory {changed} is not the one that local gives its text"
    ]


def test_other_options_and_code_are_named(pipeline: Pipeline) -> None:
    job = pipeline.consolidate(notes()).job_id
    tamper(pipeline, 'UPDATE {s}.consolidation_jobs SET options = options || \'{"t_merge": 0.999, "gone": 1}\'')
    tamper(pipeline, "UPDATE {s}.consolidation_jobs SET metrics = metrics || %(code)s", code='{"code": null}')
    done = replay(pipeline, job)
    assert done.first is not None
    assert done.first.operation == "merge"
    assert "option differs: gone = 1 is no option of this version" in done.first.causes
    assert "the job recorded no version of the program, as an older version ran it" in done.first.causes


def test_use_of_memories_since_is_told(pipeline: Pipeline) -> None:
    job = pipeline.consolidate(notes()).job_id
    tamper(pipeline, "UPDATE {s}.task_memories SET last_accessed_at = now(), reused_count = reused_count + 1")
    done = replay(pipeline, job)
    told = done.notes if done.first is None else done.first.causes
    assert "inputs differ: uses" in told
    assert any("memories were used since, and earlier counts are not kept" in line for line in told)


def test_promoted_shadow_replays(pipeline: Pipeline) -> None:
    pipeline.add(notes())
    make_shadow(pipeline)
    pipeline.add([note("late", LESSONS[0])])
    job = promote_shadow(pipeline).job_id
    drop_shadows(pipeline.engine, pipeline.project().id)
    done = replay(pipeline, job)
    assert done.is_same, done.first
    assert done.changes > 0


def test_jobs_that_cannot_be_replayed_are_refused(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="there is no job"):
        replay(pipeline, uuid4())
    pipeline.add(notes())
    job = pipeline.run().job_id
    tamper(pipeline, "UPDATE {s}.consolidation_jobs SET status = 'failed'")
    with pytest.raises(ConflictError, match="is failed: only completed jobs can be replayed"):
        replay(pipeline, job)
    tamper(pipeline, "UPDATE {s}.consolidation_jobs SET status = 'completed'")
    erase_memories(pipeline.engine, [note_id("lesson-0-0")], changed_by="tester")
    with pytest.raises(ConflictError, match=r"cannot be replayed: \d+ rows were erased on"):
        replay(pipeline, job)


def test_replay_needs_no_memories_erased_that_came_later(pipeline: Pipeline) -> None:
    rows = notes()
    pipeline.add(rows)
    first = pipeline.run().job_id
    pipeline.add([note(f"late-{at}", f"The fleet of vans was sold in March{mark}") for at, mark in enumerate(".!?")])
    pipeline.add([note("repeat", LESSONS[0])])
    second = pipeline.run().job_id
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_changes WHERE job_id = :job", job=second) > 2
    erase_memories(pipeline.engine, [note_id("late-1")], changed_by="tester")
    pipeline.run()
    before = compute_checksums(pipeline)
    done = replay(pipeline, first)
    assert done.is_same, (done.first, done.notes)
    assert done.notes == []
    with pytest.raises(ConflictError, match=r"cannot be replayed: \d+ rows were erased on"):
        replay(pipeline, second)
    assert compute_checksums(pipeline) == before
    erase_memories(pipeline.engine, [note_id("repeat")], changed_by="tester")  # With a merged memory of the first job.
    with pytest.raises(ConflictError, match=r"cannot be replayed: \d+ rows were erased on"):
        replay(pipeline, first)


def test_removed_changes_are_told(pipeline: Pipeline) -> None:
    job = pipeline.consolidate(notes()).job_id
    values = "project_id, gen_random_uuid(), 'retention', 'consolidation_changes', project_id"
    tamper(
        pipeline,
        "INSERT INTO {s}.consolidation_changes (project_id, group_id, operation, entity_type, entity_id, "
        f"previous_state) SELECT {values}, jsonb_build_object('changes', 7, 'until', now()) "
        "FROM {s}.consolidation_jobs",
    )
    with pytest.raises(ConflictError, match="audit retention removed 7 changes on"):
        replay(pipeline, job)


def run_elsewhere(databases: DatabasePool, path: Path, *, threads: int, instant: datetime) -> tuple[str, bool]:
    """Import and run a file in a new database and process; return the hash, and if its replay here has the same."""
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    with databases.database() as url:
        program = [sys.executable, "-m", "consolidation_pipeline_tests.service.shadow.run_project", url, str(path)]
        program += [instant.isoformat()]
        environment = {**os.environ, **dict.fromkeys(counts, str(threads))}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        job_id, digest = done.stdout.split()
        pipeline = Pipeline(connect_engine(with_driver(url, "psycopg")), Settings(), path.parent)
        return digest, replay(pipeline, UUID(job_id)).replayed == digest


@pytest.mark.slow
def test_sample_decides_alike_in_another_order(databases: DatabasePool, tmp_path: Path) -> None:
    assert_decides_alike(databases, tmp_path, SAMPLE.read_text().splitlines())


@pytest.mark.slow
def test_many_notes_decide_alike_in_another_order(databases: DatabasePool, tmp_path: Path) -> None:
    draw = random.Random(7)
    subjects, faults = ([f"{word}-{draw.choice(WORDS)}" for word in WORDS] for _ in range(2))
    rows = []
    while len(rows) < 1_500:
        lesson = f"the {draw.choice(subjects)} {draw.choice(WORDS)} {draw.choice(faults)} in {draw.choice(WORDS)}"
        text = f"{lesson}, seen by {draw.choice(WORDS)} in src/{draw.choice(WORDS)}{draw.randrange(400)}.py"
        rows += [note(f"n{len(rows) + at}", f"{text}{'.' * at}") for at in range(draw.choice((1, 1, 1, 2, 3)))]
    assert_decides_alike(databases, tmp_path, [json.dumps(row) for row in rows])


def assert_decides_alike(databases: DatabasePool, folder: Path, lines: list[str]) -> None:
    """Assert that two databases, import orders and numbers of threads lead to one hash, and the replays to it too.

    Both runs are of one instant after their imports: every few minutes, another memory is unused for one day more.
    """
    found, instant = [], datetime.now(UTC) + timedelta(hours=1)
    for threads in (1, 2):
        path = folder / f"{threads}.jsonl"
        path.write_text("\n".join(lines))
        found.append(run_elsewhere(databases, path, threads=threads, instant=instant))
        random.Random(threads).shuffle(lines)
    assert found == [(found[0][0], True)] * 2
