"""kill -9 at any point of a rollback leaves the state before or after it, and no lock."""

from __future__ import annotations

import time
from uuid import UUID

import pytest

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.jobs.project_lock import is_project_busy
from consolidation_pipeline_tests.service.corpus import corpus
from consolidation_pipeline_tests.service.crash_helpers import kill, roll_back_and_die
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge
from consolidation_pipeline_tests.store.sample_rows import record_statements

# Shares of the statements of a rollback, and both sides of its commit.
SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
POINTS: list[tuple[float | None, str]] = [*((share, "before") for share in SHARES), (None, "before"), (None, "after")]


def wait_until_free(pipeline: Pipeline) -> None:
    """Wait until the server has released the lock of a killed client."""
    project = pipeline.project().id
    for _ in range(200):
        with pipeline.engine.connect() as connection:
            if not is_project_busy(connection, project):
                return
        time.sleep(0.05)
    raise AssertionError("the project is held although the process that held it is dead")


@pytest.fixture(scope="module")
def statements(shared: Pipeline) -> int:
    """Number of statements that a rollback of the corpus sends."""
    shared.clear()
    shared.add(corpus())
    job = shared.run().job_id
    with record_statements(shared.engine) as sent:
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
    # The last statement releases the lock, after the commit.
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
