"""Processes that kill themselves at a chosen point of an import, a run or a rollback."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

from sqlalchemy import event

from consolidation_pipeline.service.intake import importer
from consolidation_pipeline.service.intake.importer import ImportResult, import_memories
from consolidation_pipeline.service.knowledge import merged_memories, summaries
from consolidation_pipeline.service.runs.phases import JOB_PHASES, PHASES
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.service.shadow.phase_runner import STEPS
from consolidation_pipeline.service.similarity import embedding, pair_answers
from consolidation_pipeline.service.undo.rollback import roll_back
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, connect_engine
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

# Small enough that a project of fifty memories takes several transactions.
EMBEDDING_BATCH, MERGING_BATCH, IMPORT_BATCH = 20, 3, 10


def kill(pipeline: Pipeline, target: Callable[..., None], *arguments: Any) -> None:
    """Call ``target`` with the database's URL and the arguments in a new process, which must kill itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    url = pipeline.engine.url.render_as_string(hide_password=False)
    child = context.Process(target=target, args=(url, *arguments))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def import_and_die(url: str, path: str, after: int) -> None:
    """Import until ``after`` rows are stored."""
    importer.BATCH_ROWS = IMPORT_BATCH

    def watch(done: ImportResult) -> None:
        if done.added == after:
            _die()

    import_memories(connect_engine(url), SLUG, path, format="jsonl", source="test", progress=watch)


def run_and_die(url: str, phase: str, commit: int, when: str) -> None:
    """Run until before or after the ``commit``-th commit since ``phase`` began; the last one records the phase."""
    embedding.BATCH, merged_memories.BATCH = EMBEDDING_BATCH, MERGING_BATCH
    engine = connect_engine(url)
    with open_run(engine, SLUG, settings=Settings()) as run:
        for name in PHASES:
            if name == phase:
                _die_at(engine, commit, when)
            with run.phase(name):
                STEPS[name](run)


def summarize_and_die(url: str, api_base: str) -> None:
    """Ask a model for summaries and die before they are written."""
    os.environ |= {"OPENAI_API_BASE": api_base, "OPENAI_BASE_URL": api_base, "OPENAI_API_KEY": "sk-test"}
    summaries.write_summary_rows = _die  # type: ignore[assignment]
    with open_run(connect_engine(url), SLUG, settings=Settings(), job="summarize") as run:
        for name in JOB_PHASES["summarize"]:
            with run.phase(name):
                STEPS[name](run)


def judge_and_die(url: str, api_base: str) -> None:
    """Ask a pair judge about the pairs of the graph and die before the second part of its answers is stored."""
    os.environ |= {"OPENAI_API_BASE": api_base, "OPENAI_BASE_URL": api_base, "OPENAI_API_KEY": "sk-test"}
    pair_answers.CHUNK = 2
    engine = connect_engine(url)
    with open_run(engine, SLUG, settings=Settings()) as run:
        for name in PHASES[:3]:
            if name == "similarity_graph":
                # Commits of the phase: its pairs, then the answers to each question of a chunk.
                _die_at(engine, 4, "before")
            with run.phase(name):
                STEPS[name](run)


def roll_back_and_die(url: str, target: UUID, statement: int | None, when: str) -> None:
    """Roll back until before the ``statement``-th statement, or if it is None until before or after the commit."""
    engine = connect_engine(url)
    sent = 0

    def count(*_: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == statement:
            _die()

    event.listen(engine, "before_cursor_execute", count)
    if statement is None:
        _die_at(engine, 2, when)  # the first commit belongs to the search for dead runs
    roll_back(engine, target, settings=Settings(), changed_by="tester")


def _die_at(engine: Engine, commit: int, when: str) -> None:
    """Die before or after a commit; the statement that records a phase commits itself, and counts too."""
    commits = 0

    def count(write: Callable[..., None]) -> Callable[..., None]:
        def write_and_count(*arguments: Any, **named: Any) -> None:
            nonlocal commits
            commits += 1
            at = commits
            if at == commit and when == "before":
                _die()
            write(*arguments, **named)
            if at == commit:
                _die()

        return write_and_count

    engine.dialect.do_commit = count(engine.dialect.do_commit)  # type: ignore[method-assign]
    jobs.record_phase = count(jobs.record_phase)


def _die(*_: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
