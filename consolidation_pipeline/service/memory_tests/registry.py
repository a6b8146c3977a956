"""The memory tests of a project: add, import, list, enable and remove them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.memory_tests.memory_test import MAX_TESTS, MemoryTest
from consolidation_pipeline.core.memory_tests.tests_file import format_test_file, read_test_file
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.knowledge.merged_memories import load_consolidated_texts
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.memory_tests import (
    StoredTest,
    delete_memory_test,
    enable_memory_test,
    load_memory_tests,
    save_memory_tests,
)


def list_memory_tests(engine: Engine, slug: str) -> list[StoredTest]:
    """Return the tests of a project with their last results, the oldest first. Raise NotFoundError without project."""
    with engine.connect() as connection:
        return load_memory_tests(connection, get_project(connection, slug).id)


def add_memory_tests(engine: Engine, slug: str, tests: Sequence[MemoryTest], *, source: str) -> None:
    """Store tests; each replaces the one of its name.

    Raises:
        NotFoundError: There is no such project.
        UsageError: It would have more than ``MAX_TESTS``.
    """
    with engine.begin() as connection:
        project = get_project(connection, slug)
        names = {one.test.name for one in load_memory_tests(connection, project.id)} | {test.name for test in tests}
        if len(names) > MAX_TESTS:
            raise UsageError(f"{slug} would have {len(names):,} memory tests; {MAX_TESTS:,} are allowed")
        save_memory_tests(connection, project.id, tests, source=source)


def import_memory_tests(engine: Engine, slug: str, path: Path) -> list[MemoryTest]:
    """Store the tests of a YAML file, and return them.

    Raises:
        NotFoundError: There is no such project.
        UsageError: The file cannot be read, is wrong, or is for another project.
    """
    tests = load_test_file(path, slug)
    add_memory_tests(engine, slug, tests, source="yaml")
    return tests


def load_test_file(path: Path, slug: str) -> list[MemoryTest]:
    """Return the tests of a YAML file that is for the project ``slug``, or does not say for which."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    found = read_test_file(text, str(path))
    if found.project not in (None, slug):
        raise UsageError(f"{path} is for project {found.project}, not for {slug}")
    return list(found.tests)


def export_memory_tests(engine: Engine, slug: str) -> str:
    """Return the tests of a project as YAML, which ``import_memory_tests`` reads back."""
    return format_test_file(slug, [one.test for one in list_memory_tests(engine, slug)])


def remove_memory_test(engine: Engine, slug: str, name: str) -> None:
    """Remove a test. Raise NotFoundError if the project or the test does not exist."""
    with engine.begin() as connection:
        if not delete_memory_test(connection, get_project(connection, slug).id, name):
            raise NotFoundError(f"project {slug} has no memory test {name!r}")


def switch_memory_test(engine: Engine, slug: str, name: str, *, enabled: bool) -> None:
    """Enable or disable a test. Raise NotFoundError if the project or the test does not exist."""
    with engine.begin() as connection:
        if not enable_memory_test(connection, get_project(connection, slug).id, name, enabled=enabled):
            raise NotFoundError(f"project {slug} has no memory test {name!r}")


def describe_memory_test(stored: StoredTest) -> dict[str, Any]:
    """Return a stored test as JSON. ``passed``: None = it was not run yet."""
    return {
        "name": stored.test.name,
        "kind": stored.test.kind,
        "body": dict(stored.test.body),
        "source": stored.source,
        "enabled": stored.enabled,
        "created_at": stored.created_at,
        "checked_at": stored.checked_at,
        "passed": None if stored.checked_at is None else stored.failure is None,
        "failure": stored.failure,
    }


def load_refused_texts(engine: Engine, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the texts of memories that a refused change was about, by id; others have none."""
    with engine.connect() as connection:
        return {**load_texts(connection, ids), **load_consolidated_texts(connection, ids)}
