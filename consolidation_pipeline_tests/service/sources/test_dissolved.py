"""Writes whose merges are dissolved: their rows are shown again when a write is asked for, and told before."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.sources import dissolved, write_back
from consolidation_pipeline.service.sources.connections import disconnect_source
from consolidation_pipeline.service.sources.source_checks import check_store
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.undo_all import undo_everything
from consolidation_pipeline.service.sources.write_back import WriteResult, undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import (
    PlannedWrite,
    WritePlan,
    describe_taken,
    plan_restores,
    plan_writes,
)
from consolidation_pipeline.service.sources.write_selection import find_groups
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import SOURCE, consolidate
from consolidation_pipeline_tests.service.sources.stores import FACTS, LANGGRAPH, USERS, WORDINGS, Kind, Store

GROUPS = len(FACTS) * len(USERS)
ELSE = "The canteen closes at three on Fridays"


def write_all(pipeline: Pipeline) -> WriteResult:
    return write_source(pipeline.engine, SOURCE, everything=True)


def write_and_dissolve(pipeline: Pipeline, store: Store) -> PlannedWrite:
    """Write all groups in mode review; the program edits the kept row of one, which is returned."""
    consolidate(pipeline, store, "review")
    plan = next(one for one in plan_writes(pipeline.engine, SOURCE) if one.keep is not None)
    assert write_all(pipeline).written == GROUPS
    store.connection.execute(
        "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', to_jsonb(%s::text)) WHERE id = %s", [ELSE, plan.keep]
    )
    assert sync_source(pipeline.engine, SOURCE).revised == 1
    return plan


def test_nothing_is_written_unless_it_is_asked_for(mem0_store: Store, pipeline: Pipeline) -> None:
    plan = write_and_dissolve(pipeline, mem0_store)
    before = mem0_store.checksum()
    (restore,) = plan_restores(pipeline.engine, SOURCE)
    assert restore.id == plan.id
    assert restore.texts == {key: plan.texts[key] for key in plan.hidden}
    assert restore.removed is None
    result = write_source(pipeline.engine, SOURCE)
    assert (result.written, result.restored) == (0, 0)
    with pytest.raises(NotFoundError, match="nothing is to be written to shop for"):
        write_source(pipeline.engine, SOURCE, memory_ids=[plan.id, uuid4()])
    other = next(one for one in plan_restores(pipeline.engine, SOURCE))
    stale = WritePlan(source=SOURCE, groups=[], restores=[other.model_copy(update={"texts": {}})])
    with pytest.raises(ConflictError, match=f"nothing was written: group {plan.id}: its rows would not be shown again"):
        write_source(pipeline.engine, SOURCE, plan=stale)
    with pytest.raises(ConflictError, match="it would not be written now"):
        write_source(pipeline.engine, SOURCE, plan=WritePlan(source=SOURCE, groups=[plan_other(plan)]))
    assert mem0_store.checksum() == before


def plan_other(plan: PlannedWrite) -> PlannedWrite:
    """Return a planned write of a memory that is not there, of the row that is kept."""
    return plan.model_copy(update={"memory_id": uuid4(), "stamps": {}})


@pytest.mark.parametrize("way", ["named", "plan", "all"])
def test_rows_are_shown_again_on_demand(mem0_store: Store, pipeline: Pipeline, way: str) -> None:
    plan = write_and_dissolve(pipeline, mem0_store)
    restores = plan_restores(pipeline.engine, SOURCE)
    document = WritePlan(source=SOURCE, groups=[], restores=restores)
    if way == "named":
        result = write_source(pipeline.engine, SOURCE, memory_ids=[plan.id])
    elif way == "plan":
        result = write_source(pipeline.engine, SOURCE, plan=document)
        assert write_source(pipeline.engine, SOURCE, plan=document).restored == 0
    else:
        result = write_all(pipeline)
    assert (result.written, result.restored, result.notes) == (0, 1, [])
    assert {plan.texts[key] for key in plan.hidden} < set(mem0_store.texts())
    assert plan_restores(pipeline.engine, SOURCE) == []


def test_groups_of_a_plan_are_written_without_its_restores(mem0_store: Store, pipeline: Pipeline) -> None:
    plan = write_and_dissolve(pipeline, mem0_store)
    assert write_source(pipeline.engine, SOURCE, plan=WritePlan(source=SOURCE, groups=[])).restored == 0
    assert len(mem0_store.texts()) == GROUPS
    assert [one.id for one in plan_restores(pipeline.engine, SOURCE)] == [plan.id]


def test_group_that_is_written_is_told_so(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store, "review")
    plan = plan_writes(pipeline.engine, SOURCE)[0]
    write_source(pipeline.engine, SOURCE, memory_ids=[plan.id])
    with pytest.raises(ConflictError, match=f"{plan.id} is written to {SOURCE} already"):
        write_source(pipeline.engine, SOURCE, memory_ids=[plan.id])


def test_groups_are_found_by_their_first_digits(mem0_store: Store, pipeline: Pipeline) -> None:
    consolidate(pipeline, mem0_store, "review")
    first, second, *_ = plan_writes(pipeline.engine, SOURCE)
    given = [first.id.hex[:9], str(second.memory_id)[:10].upper(), str(first.memory_id)]
    assert find_groups(pipeline.engine, SOURCE, given) == [first.id, second.memory_id, first.memory_id]
    assert write_source(pipeline.engine, SOURCE, memory_ids=[first.id]).written == 1
    assert find_groups(pipeline.engine, SOURCE, [str(first.id)[:8]]) == [first.id]
    with pytest.raises(UsageError, match="'deploy' is not the id of a group: give the id that `source diff` shows"):
        find_groups(pipeline.engine, SOURCE, ["deploy"])
    with pytest.raises(NotFoundError, match="no group of shop has an id that begins with 0123456789"):
        find_groups(pipeline.engine, SOURCE, ["0123456789"])


def test_all_is_decided_after_what_was_cut_off(
    mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    consolidate(pipeline, mem0_store, "review")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(write_back, "record_write", stop)
        with pytest.raises(KeyboardInterrupt):
            write_all(pipeline)
    result = write_all(pipeline)
    assert (result.written, result.refused) == (GROUPS - 1, {})
    assert len(mem0_store.texts()) == GROUPS


def take_key(pipeline: Pipeline, store: Store) -> tuple[PlannedWrite, str]:
    """Write all groups, then the program adds a row under the key of a hidden one; return its group and the key."""
    consolidate(pipeline, store, "review")
    plan = next(one for one in plan_writes(pipeline.engine, SOURCE) if one.keep is not None)
    assert write_all(pipeline).written == GROUPS
    key = plan.hidden[0]
    store.connection.execute(
        "INSERT INTO mem0 SELECT %s, vector, jsonb_set(payload, '{data}', to_jsonb(%s::text)) FROM mem0 WHERE id = %s",
        [key, ELSE, plan.keep],
    )
    return plan, key


def test_hidden_row_whose_key_is_taken_is_told(mem0_store: Store, pipeline: Pipeline) -> None:
    plan, key = take_key(pipeline, mem0_store)
    synced = sync_source(pipeline.engine, SOURCE)
    assert synced.revised == 1
    assert any(
        f"1 hidden row cannot be shown again, as new rows have their keys, for example {key}" in note
        for note in synced.notes
    )
    (told,) = describe_taken(pipeline.engine, SOURCE)
    assert told.startswith(f"row {key} of group {plan.id} stays hidden, as a new row has its key: delete the new row")
    result = write_all(pipeline)
    assert (result.restored, result.notes) == (1, [told])
    shown = [plan.texts[each] for each in plan.hidden if each != key]
    assert len(shown) == WORDINGS - 2
    assert {*shown, ELSE} < set(mem0_store.texts())
    assert plan.texts[key] not in mem0_store.texts()
    assert write_all(pipeline).restored == 0
    assert not any(check_store(pipeline.engine, SOURCE).values())


def test_rows_shown_by_undo_are_told_as_rows_again(mem0_store: Store, pipeline: Pipeline) -> None:
    before = mem0_store.checksum()
    consolidate(pipeline, mem0_store, "review")
    plan = next(one for one in plan_writes(pipeline.engine, SOURCE) if one.keep is not None)
    write_all(pipeline)
    mem0_store.connection.execute("CREATE TABLE aside AS SELECT * FROM mem0 WHERE id = %s", [plan.keep])
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [plan.keep])
    assert sync_source(pipeline.engine, SOURCE).gone == 1
    mem0_store.connection.execute("INSERT INTO mem0 SELECT * FROM aside")
    assert sync_source(pipeline.engine, SOURCE).added == 1
    assert undo_everything(pipeline.engine, SOURCE) == {}
    assert mem0_store.checksum() == before
    synced = sync_source(pipeline.engine, SOURCE)
    assert synced.added == len(plan.hidden)
    assert not any("cannot be shown again" in note for note in synced.notes)


def test_hidden_row_comes_back_when_its_key_is_free(mem0_store: Store, pipeline: Pipeline) -> None:
    before = mem0_store.checksum()
    plan, key = take_key(pipeline, mem0_store)
    sync_source(pipeline.engine, SOURCE)
    write_all(pipeline)
    conflicts = undo_writes(pipeline.engine, SOURCE, [plan.id])
    assert [one.key for one in conflicts[plan.id]] == [key]
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [key])
    sync_source(pipeline.engine, SOURCE)
    assert describe_taken(pipeline.engine, SOURCE) == []
    assert undo_writes(pipeline.engine, SOURCE, [plan.id]) == {}
    assert plan.texts[key] in mem0_store.texts()
    assert disconnect_source(pipeline.engine, SOURCE, restore=True) == {}
    assert mem0_store.checksum() == before


@pytest.mark.parametrize("cut", ["end_write", "_undo"])
def test_rows_that_were_being_set_apart_are_completed(
    mem0_store: Store, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    plan, key = take_key(pipeline, mem0_store)
    sync_source(pipeline.engine, SOURCE)
    calls: list[object] = []
    whole = getattr(dissolved, cut)

    def stop(*arguments: object) -> object:
        calls.append(arguments)
        if cut == "end_write" or len(calls) > 1:
            raise KeyboardInterrupt
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(dissolved, cut, stop)
        with pytest.raises(KeyboardInterrupt):
            write_all(pipeline)
    assert write_all(pipeline).restored == 1
    assert {plan.texts[each] for each in plan.hidden if each != key} < set(mem0_store.texts())
    assert pipeline.value("SELECT count(*) FROM {s}.source_writes WHERE status = 'intended'") == 0
    assert len(describe_taken(pipeline.engine, SOURCE)) == 1


def test_rows_with_parts_are_set_apart(make_store: Callable[[Kind], Store], pipeline: Pipeline) -> None:
    store = make_store(LANGGRAPH)
    consolidate(pipeline, store, "review")
    plan = next(one for one in plan_writes(pipeline.engine, SOURCE) if one.keep is not None)
    before = store.checksum()
    write_all(pipeline)
    key = plan.hidden[0]
    new = "INSERT INTO store (prefix, key, value) VALUES (%s, %s, jsonb_build_object('content', %s::text))"
    store.connection.execute(new, [*json.loads(key), ELSE])
    sync_source(pipeline.engine, SOURCE)
    assert write_all(pipeline).restored == 1
    store.connection.execute("DELETE FROM store WHERE value ->> 'content' = %s", [ELSE])
    assert undo_writes(pipeline.engine, SOURCE) == {}
    assert store.checksum() == before
