"""kill -9 at any point of a rollback leaves the state before it or the one after it, and the project free."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.jobs.project_lock import is_project_busy
from consolidation_pipeline_tests.service.corpus import corpus
from consolidation_pipeline_tests.service.crash_helpers import kill, roll_back_and_die
from consolidation_pipeline_tests.service.knowledge.test_merged_memories import find_broken_rules
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge

# Points among the statements of a rollback, as shares of their number, and both sides of its commit.
SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
POINTS: list[tuple[float | None, str]] = [*((share, "before") for share in SHARES), (None, "before"), (None, "after")]


@contextmanager
def counted(pipeline: Pipeline) -> Iterator[list[str]]:
    """The statements that are sent inside the block."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(pipeline.engine, "before_cursor_execute", note)
    yield sent
    event.remove(pipeline.engine, "before_cursor_execute", note)


def wait_until_free(pipeline: Pipeline) -> None:
    """The server notices within moments that a client is gone."""
    project = pipeline.project().id
    for _ in range(200):
        with pipeline.engine.connect() as connection:
            if not is_project_busy(connection, project):
                return
        time.sleep(0.05)
    raise AssertionError("the project is held although the process that held it is dead")


@pytest.fixture(scope="module")
def statements(shared: Pipeline) -> int:
    """Count the statements that a rollback of the corpus sends."""
    shared.clear()
    shared.add(corpus())
    job = shared.run().job_id
    with counted(shared) as sent:
        shared.roll_back(job)
    return len(sent)


# One point in five in `make test`, all of them in `make test-all`.
SAMPLED = [p if at % 5 == 0 else pytest.param(*p, marks=pytest.mark.slow) for at, p in enumerate(POINTS)]


@pytest.mark.parametrize(("share", "when"), SAMPLED)
def test_killed_rollback_is_complete_or_absent(
    shared: Pipeline, statements: int, share: float | None, when: str
) -> None:
    shared.clear()
    shared.add(corpus())
    old = dump_knowledge(shared)
    job: UUID = shared.run().job_id
    merged = dump_knowledge(shared)
    # The last statement lets go of the project, after the commit.
    kill(shared, roll_back_and_die, job, None if share is None else round(share * (statements - 1)), when)
    wait_until_free(shared)
    assert find_broken_rules(shared) == []
    if when == "after":
        assert dump_knowledge(shared) == old
        with pytest.raises(ConflictError, match="rolled back before"):
            shared.roll_back(job)
        return
    assert dump_knowledge(shared) == merged
    assert shared.value("SELECT count(*) FROM {s}.consolidation_changes WHERE operation = 'rollback'") == 0
    shared.roll_back(job)
    assert dump_knowledge(shared) == old
