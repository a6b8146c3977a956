"""kill -9 at any moment of a shadow or its promotion, and agents that write meanwhile."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Any

import pytest

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.shadow.shadows import drop
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.crash_helpers import kill
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.shadow.shadow_helpers import (
    count_statements,
    dump_ledgered,
    make_shadow,
    open_shadow_pipeline,
    promote_and_die,
    promote_shadow,
    run_and_die,
)
from consolidation_pipeline_tests.service.table_dumps import CACHED_COLUMNS, compute_checksums, dump_tables

SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 0.99)
# One moment in `make test`, all of them in `make test-all`.
SAMPLED = [share if at == 5 else pytest.param(share, marks=pytest.mark.slow) for at, share in enumerate(SHARES)]
# Tables that both runs must leave alike, but for when something was done.
TIMES = {"created_at", "updated_at", "retired_at", "archived_at"}
COMPARED = ("task_memories", "consolidated_memories", "memory_lineage", "playbook_entries", "consolidation_suggestions")


@pytest.mark.parametrize("share", SAMPLED)
def test_killed_shadow_goes_on_and_is_promoted(live: Pipeline, share: float) -> None:
    with count_statements() as sent:
        make_shadow(live, name="whole")
    expected, knowledge, before = (
        _dump(open_shadow_pipeline(live, "whole")),
        dump_ledgered(live),
        compute_checksums(live),
    )
    kill(live, run_and_die, round(share * sent()))
    assert compute_checksums(live) == before
    _retry(lambda: make_shadow(live))
    assert compute_checksums(live) == before
    assert _dump(open_shadow_pipeline(live)) == expected
    done = promote_shadow(live)
    assert _dump(live) == expected
    live.roll_back(done.job_id)
    assert dump_ledgered(live) == knowledge


def _dump(pipeline: Pipeline) -> dict[str, list[str]]:
    hidden = {"task_memories": CACHED_COLUMNS, "consolidated_memories": CACHED_COLUMNS, "memory_lineage": {"job_id"}}
    return dump_tables(pipeline, tables=COMPARED, without={name: TIMES | hidden.get(name, set()) for name in COMPARED})


def _retry(call: Any) -> None:
    """Call until the server has released the locks of a killed process."""
    for _ in range(100):
        try:
            call()
            return
        except ConflictError as error:
            if "another" not in str(error):
                raise
            time.sleep(0.1)
    raise AssertionError("the shadow is held although the process that held it is dead")


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_killed_promotion_leaves_the_project_as_it_was(live: Pipeline, share: float) -> None:
    make_shadow(live)
    before = dump_ledgered(live)
    with count_statements() as sent:
        done = promote_shadow(live)
    live.roll_back(done.job_id)
    drop(live.engine, "notes")
    make_shadow(live)
    kill(live, promote_and_die, round(share * sent()))
    assert dump_ledgered(live) == before
    _retry(lambda: promote_shadow(live))
    assert dump_ledgered(live) == dump_ledgered(open_shadow_pipeline(live))


def test_agents_write_while_a_shadow_runs(live: Pipeline) -> None:
    before = live.rows("SELECT t::text FROM {s}.task_memories t ORDER BY id")
    stop = threading.Event()

    def write() -> None:
        for number in count():
            live.add([note(f"agent-{number}", f"The agent noted item {number} of its list.")])
            if stop.wait(0.05):
                return

    agent = threading.Thread(target=write)
    agent.start()
    try:
        make_shadow(live)
    finally:
        stop.set()
        agent.join()
    old = "SELECT t::text FROM {s}.task_memories t WHERE external_id NOT LIKE 'agent-%' ORDER BY id"
    assert live.rows(old) == before
    assert promote_shadow(live).new_memories > 0
    job = live.value("SELECT id FROM {s}.consolidation_jobs WHERE scope ? 'shadow'")
    live.roll_back(job)
    make_shadow(live, name="second")
    edit_memory(live.engine, note_id("alone-0"), {"tags": ["edited"]}, changed_by="agent")
    with pytest.raises(ConflictError, match="changed since the snapshot") as refused:
        promote_shadow(live, "second")
    assert refused.value.conflicts == (str(note_id("alone-0")),)
