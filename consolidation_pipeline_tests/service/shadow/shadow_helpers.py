"""Calls of shadows with the arguments of the tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from consolidation_pipeline.core.memory_tests.memory_test import MemoryTest
from consolidation_pipeline.service.memory_tests.registry import add_memory_tests
from consolidation_pipeline.service.shadow.promotion import Promotion, promote
from consolidation_pipeline.service.shadow.report import ShadowReport
from consolidation_pipeline.service.shadow.shadows import run_shadow
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline.store.shadow.databases import list_shadows, open_shadow
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_tables

# Stricter and wider than the defaults: fewer merges, more on one topic.
OPTIONS: dict[str, Any] = {"t_merge": 0.97, "recall_gate": False}

# Tables whose rows the ledger records, with what belongs to them.
LEDGERED_TABLES = (
    *("task_memories", "consolidated_memories", "memory_files", "memory_lineage", "memory_relations"),
    *("playbook_entries", "consolidation_suggestions", "suggestion_originals"),
)
_VECTORS = {"embedding", "embedding_model", "embedding_dim"}


def make_shadow(pipeline: Pipeline, name: str = "next", **options: Any) -> ShadowReport:
    """Run a shadow of the project with ``OPTIONS`` or others."""
    return run_shadow(
        pipeline.engine, SLUG, options or OPTIONS, name=name, settings=pipeline.settings, triggered_by="tester"
    )


def promote_shadow(pipeline: Pipeline, name: str = "next") -> Promotion:
    """Promote a shadow of the project."""
    return promote(pipeline.engine, SLUG, name, settings=pipeline.settings, promoted_by="tester")


def add_tests(pipeline: Pipeline, *tests: MemoryTest) -> None:
    """Give the project memory tests."""
    add_memory_tests(pipeline.engine, SLUG, tests, source="cli")


def open_shadow_pipeline(pipeline: Pipeline, name: str = "next") -> Pipeline:
    """Return a pipeline on the database of a shadow."""
    database = list_shadows(pipeline.engine, pipeline.project().id)[name]
    return Pipeline(open_shadow(pipeline.engine, database), pipeline.settings, pipeline.folder)


def dump_ledgered(pipeline: Pipeline) -> dict[str, list[str]]:
    """Dump all ledgered rows in full, but for what the next run computes again."""
    return dump_tables(pipeline, tables=LEDGERED_TABLES, without={"task_memories": _VECTORS})


def run_and_die(url: str, statement: int) -> None:
    """Run a shadow until before its ``statement``-th statement, on whatever database."""
    _die_at_statement(statement)
    run_shadow(connect_engine(url), SLUG, OPTIONS, settings=Settings(), triggered_by="tester")


def promote_and_die(url: str, statement: int) -> None:
    """Promote a shadow until before its ``statement``-th statement."""
    _die_at_statement(statement)
    promote(connect_engine(url), SLUG, settings=Settings(), promoted_by="tester")


@contextmanager
def count_statements() -> Iterator[Callable[[], int]]:
    """Count the statements that this process sends to any database."""
    sent = 0

    def count(*_: Any) -> None:
        nonlocal sent
        sent += 1

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield lambda: sent
    finally:
        event.remove(Engine, "before_cursor_execute", count)


def _die_at_statement(statement: int) -> None:
    sent = 0

    def count(*_: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
