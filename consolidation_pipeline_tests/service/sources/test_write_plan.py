"""Plans of writes: tried without a trace, written as they are, or refused whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, StoreError, UsageError
from consolidation_pipeline.service.runs.plan_file import load_plan, save_plan
from consolidation_pipeline.service.sources.connections import set_mode
from consolidation_pipeline.service.sources.rehearsal import rehearse_writes
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import PlannedWrite, WritePlan, describe_left_out, plan_writes
from consolidation_pipeline_tests.database_pool import temporary_database
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import FOREIGN_VECTOR, SOURCE, consolidate, count_writes
from consolidation_pipeline_tests.service.sources.stores import FACTS, NOTES, USERS, WORDINGS, Kind, Store

GROUPS = len(FACTS) * len(USERS)


def plan_all(pipeline: Pipeline, store: Store, mode: str = "review") -> list[PlannedWrite]:
    consolidate(pipeline, store, mode)
    return plan_writes(pipeline.engine, SOURCE)


def test_plan_is_written_without_removed_groups(mem0_store: Store, pipeline: Pipeline, tmp_path: Path) -> None:
    before = mem0_store.checksum()
    planned = plan_all(pipeline, mem0_store)
    save_plan(WritePlan(source=SOURCE, groups=planned[1:]), tmp_path / "plan.json")
    plan = load_plan(WritePlan, tmp_path / "plan.json", made_by="source diff --out")
    assert write_source(pipeline.engine, SOURCE, plan=plan).written == GROUPS - 1
    assert [left.id for left in plan_writes(pipeline.engine, SOURCE)] == [planned[0].id]
    for group in reversed(plan.groups):
        pipeline.roll_back(group.id)
    assert mem0_store.checksum() == before
    assert count_writes(pipeline) == {"undone": GROUPS - 1}


def test_groups_that_the_store_cannot_take_are_counted(make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    store = make_store(NOTES)
    text = "The parser tests need the fixture folder mounted read-only"
    ends = ("and a fresh cache to pass on the build machine", "to pass on the build machine and on laptops")
    store.add([("alice", f"{text} {end}") for end in ends])
    assert len(plan_all(pipeline, store)) == GROUPS
    assert describe_left_out(pipeline.engine, SOURCE) == [
        "1 merged memory is left out: no row says everything, and none is added to this store"
    ]


def test_interrupted_plan_goes_on(mem0_store: Store, pipeline: Pipeline) -> None:
    planned = plan_all(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, memory_ids=[planned[2].id])
    plan = WritePlan(source=SOURCE, groups=planned)
    assert write_source(pipeline.engine, SOURCE, plan=plan).written == GROUPS - 1
    assert write_source(pipeline.engine, SOURCE, plan=plan).written == 0
    assert undo_writes(pipeline.engine, SOURCE, [planned[2].id]) == {}
    assert count_writes(pipeline) == {"written": GROUPS - 1, "undone": 1}


def test_changed_row_refuses_the_whole_plan(mem0_store: Store, pipeline: Pipeline) -> None:
    plan = WritePlan(source=SOURCE, groups=plan_all(pipeline, mem0_store))
    changed = plan.groups[1]
    key = changed.hidden[0]
    mem0_store.connection.execute(
        """UPDATE mem0 SET payload = payload || '{"data": "Edited meanwhile"}' WHERE id = %s""", [key]
    )
    with pytest.raises(ConflictError, match=f"nothing was written: group {changed.id}: rows {key} changed") as refused:
        write_source(pipeline.engine, SOURCE, plan=plan)
    assert refused.value.conflicts == (str(changed.id),)
    sync_source(pipeline.engine, SOURCE)
    with pytest.raises(ConflictError, match="changed since the plan was made"):
        write_source(pipeline.engine, SOURCE, plan=plan)
    assert count_writes(pipeline) == {}


def test_dissolved_group_refuses_the_whole_plan(mem0_store: Store, pipeline: Pipeline) -> None:
    plan = WritePlan(source=SOURCE, groups=plan_all(pipeline, mem0_store))
    pipeline.roll_back(plan.groups[0].id)
    with pytest.raises(ConflictError, match="it would not be written now"):
        write_source(pipeline.engine, SOURCE, plan=plan)
    with pytest.raises(UsageError, match="the plan is for source other, not for shop"):
        write_source(pipeline.engine, SOURCE, plan=plan.model_copy(update={"source": "other"}))
    with pytest.raises(NotFoundError, match="there is no source 'other'"):
        write_source(pipeline.engine, "other", plan=plan)


@pytest.mark.parametrize("mode", ["mirror", "review"])
def test_rehearsal_tells_refusals_and_leaves_no_trace(mem0_store: Store, pipeline: Pipeline, mode: str) -> None:
    planned = plan_all(pipeline, mem0_store, mode)
    lost = planned[0]
    mem0_store.connection.execute(f"UPDATE mem0 SET vector = {FOREIGN_VECTOR} WHERE id = %s", [lost.keep])
    if mode == "review":
        sync_source(pipeline.engine, SOURCE)
    before = mem0_store.checksum()
    outcomes = rehearse_writes(pipeline.engine, SOURCE, planned)
    assert "finds the successor worse" in (outcomes[lost.memory_id].refusal or "")
    passed = [outcome for id_, outcome in outcomes.items() if id_ != lost.memory_id]
    assert {outcome.refusal for outcome in passed} == {None}
    assert passed[0].found == f"found at place 1 or better for {WORDINGS} texts"
    assert passed[0].links == 1
    assert mem0_store.checksum() == before
    assert count_writes(pipeline) == {}
    schemas = mem0_store.connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'consolidation_sidecar'")
    assert len(schemas.fetchall()) == (mode == "review")
    if mode == "review":
        left = mem0_store.connection.execute(
            "SELECT count(*) FROM consolidation_sidecar.images UNION ALL SELECT count(*) "
            "FROM consolidation_sidecar.outbox"
        )
        assert left.fetchall() == [(0,), (0,)]


def test_rehearsal_can_use_a_copy(
    mem0_store: Store, pipeline: Pipeline, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_all(pipeline, mem0_store, "mirror")
    with temporary_database(server) as url:
        monkeypatch.setenv("COPY_URL", url)
        with pytest.raises(UsageError, match="table mem0 does not exist in this database"):
            rehearse_writes(pipeline.engine, SOURCE, planned, copy_url_env="COPY_URL")
    monkeypatch.setenv("COPY_URL", "postgresql://nobody:secret@127.0.0.1:1/copy")
    with pytest.raises(StoreError, match="the database of COPY_URL cannot be reached"):
        rehearse_writes(pipeline.engine, SOURCE, planned, copy_url_env="COPY_URL")


def test_group_that_the_store_forbids_is_refused(mem0_store: Store, pipeline: Pipeline) -> None:
    planned = plan_all(pipeline, mem0_store)
    mem0_store.connection.execute("CREATE TABLE pins (memory uuid REFERENCES mem0)")
    mem0_store.connection.execute("INSERT INTO pins VALUES (%s)", [planned[0].hidden[0]])
    set_mode(pipeline.engine, SOURCE, "write")
    result = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    assert result.written == GROUPS - 1
    assert "the store forbids the change: " in result.refused[str(planned[0].id)]
    assert "violates foreign key constraint" in result.refused[str(planned[0].id)]


def test_undo_tells_conflicts_by_the_named_id(mem0_store: Store, pipeline: Pipeline) -> None:
    planned = plan_all(pipeline, mem0_store)
    write_source(pipeline.engine, SOURCE, memory_ids=[plan.id for plan in planned[:2]])
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [planned[0].keep])
    conflicts = undo_writes(pipeline.engine, SOURCE, [planned[0].id, planned[1].memory_id])
    assert list(conflicts) == [planned[0].id]
    with pytest.raises(NotFoundError, match=f"nothing was written to {SOURCE} for {planned[2].id}"):
        undo_writes(pipeline.engine, SOURCE, [planned[2].id])
