"""Undo of all that is written in a store: nothing stays hidden without being told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.watch import is_watched
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.admin.backup import create_backup, restore_backup
from consolidation_pipeline.service.sources.connections import (
    connect_source,
    disconnect_source,
    forget_source,
    list_connected,
    restore_store,
    set_mode,
)
from consolidation_pipeline.service.sources.source_checks import check_store
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.undo_all import undo_everything
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import PlannedWrite, plan_writes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV, connect, consolidate
from consolidation_pipeline_tests.service.sources.stores import FACTS, LANGGRAPH, MEM0, USERS, Kind, Store, row_id

GROUPS = len(FACTS) * len(USERS)


def write(pipeline: Pipeline, store: Store) -> list[PlannedWrite]:
    """Connect and consolidate a store, write all groups; return them."""
    consolidate(pipeline, store)
    planned = plan_writes(pipeline.engine, SOURCE)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).written == GROUPS
    return planned


def config_of(store: Store, **changes: Any) -> dict[str, Any]:
    return {**store.kind.config, "url_env": URL_ENV, **changes}


def count_triggers(store: Store) -> int:
    (row,) = store.connection.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal").fetchall()
    return int(row[0])


@pytest.mark.parametrize("end", ["keep", "forget"])
@pytest.mark.parametrize("table", ["mem0", "public.mem0"])
def test_store_with_hidden_rows_is_not_connected_anew(
    mem0_store: Store, pipeline: Pipeline, end: str, table: str
) -> None:
    before = mem0_store.checksum()
    write(pipeline, mem0_store)
    if end == "keep":
        disconnect_source(pipeline.engine, SOURCE, restore=False)
    else:
        forget_source(pipeline.engine, SOURCE)
    config = config_of(mem0_store, table=table)
    with pytest.raises(
        ConflictError, match=f"{GROUPS} groups of an earlier connection of {table} .* --url-env {URL_ENV}"
    ):
        connect_source(pipeline.engine, SOURCE, project="other", config=config, mode="review")
    assert list_connected(pipeline.engine) == []
    assert restore_store(URL_ENV) == {}
    assert mem0_store.checksum() == before
    connect_source(pipeline.engine, SOURCE, project="other", config=config, mode="review")


def test_name_of_hidden_rows_is_not_given_to_another_table(mem0_store: Store, pipeline: Pipeline) -> None:
    write(pipeline, mem0_store)
    forget_source(pipeline.engine, SOURCE)
    mem0_store.connection.execute("CREATE TABLE fresh AS SELECT * FROM mem0")
    with pytest.raises(ConflictError, match="or by the name shop hide rows there"):
        connect_source(
            pipeline.engine, SOURCE, project=PROJECT, config=config_of(mem0_store, table="fresh"), mode="write"
        )


def test_mirror_becomes_no_writer_over_hidden_rows(mem0_store: Store, pipeline: Pipeline) -> None:
    before = mem0_store.checksum()
    write(pipeline, mem0_store)
    forget_source(pipeline.engine, SOURCE)
    connect(pipeline, mem0_store, "mirror")
    with pytest.raises(ConflictError, match="of an earlier connection"):
        set_mode(pipeline.engine, SOURCE, "write")
    assert disconnect_source(pipeline.engine, SOURCE, restore=True) == {}
    assert mem0_store.checksum() == before
    assert sidecar.find_version(mem0_store.connection) is None


@pytest.mark.parametrize("table", ["mem0", "public.mem0"])
def test_earlier_connection_without_configuration_is_undone(mem0_store: Store, pipeline: Pipeline, table: str) -> None:
    """As versions before this one left it, which removed the configuration although rows were hidden."""
    before = mem0_store.checksum()
    write(pipeline, mem0_store)
    forget_source(pipeline.engine, SOURCE)
    mem0_store.connection.execute("DELETE FROM consolidation_sidecar.sources")
    conflicts = restore_store(URL_ENV)
    assert len(conflicts) == GROUPS
    reasons = {each.reason for found in conflicts.values() for each in found}
    assert len(reasons) == 1
    assert "no configuration of source shop" in reasons.pop()
    assert sum(len(found[0].hidden) for found in conflicts.values()) == len(FACTS) * len(USERS) * 2
    connect_source(pipeline.engine, "later", project="other", config=config_of(mem0_store, table=table))
    assert disconnect_source(pipeline.engine, "later", restore=True) == {}
    assert mem0_store.checksum() == before
    assert sidecar.find_version(mem0_store.connection) is None


def test_hidden_rows_of_a_deleted_row_are_told(mem0_store: Store, pipeline: Pipeline) -> None:
    planned = write(pipeline, mem0_store)
    one = next(each for each in planned if each.keep is not None)
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [one.keep])
    sync_source(pipeline.engine, SOURCE)
    for undo in (
        lambda: undo_everything(pipeline.engine, SOURCE),
        lambda: disconnect_source(pipeline.engine, SOURCE, restore=True),
        lambda: restore_store(URL_ENV),
    ):
        ((conflict,),) = undo().values()
        assert conflict.reason == "the kept row was deleted"
        assert set(conflict.hidden) == set(one.hidden)
    assert [source.name for source in list_connected(pipeline.engine)] == [SOURCE]
    assert len(mem0_store.texts()) == (GROUPS - 1) * 3
    images = "SELECT count(*) FROM consolidation_sidecar.images WHERE action = 'deleted' AND key = ANY(%s)"
    assert mem0_store.connection.execute(images, [list(one.hidden)]).fetchone() == (2,)
    assert disconnect_source(pipeline.engine, SOURCE, restore=False) == {}


def test_restore_leaves_no_trace(mem0_store: Store, pipeline: Pipeline) -> None:
    before = mem0_store.checksum()
    write(pipeline, mem0_store)
    forget_source(pipeline.engine, SOURCE)
    assert restore_store(URL_ENV) == {}
    assert mem0_store.checksum() == before
    assert sidecar.find_version(mem0_store.connection) is None
    assert count_triggers(mem0_store) == 0
    with pytest.raises(UsageError, match="has no schema consolidation_sidecar"):
        restore_store(URL_ENV)


def test_restore_removes_triggers_of_tables_that_changed(mem0_store: Store, pipeline: Pipeline) -> None:
    planned = write(pipeline, mem0_store)
    forget_source(pipeline.engine, SOURCE)
    mem0_store.connection.execute("ALTER TABLE mem0 RENAME id TO number")
    conflicts = restore_store(URL_ENV)
    assert {each.reason for found in conflicts.values() for each in found} == {
        "table mem0 has no column id: it has number, vector, payload"
    }
    assert {key for found in conflicts.values() for each in found for key in each.hidden} == {
        key for one in planned for key in one.hidden
    }
    assert count_triggers(mem0_store) == 0
    mem0_store.connection.execute("ALTER TABLE mem0 RENAME number TO id")
    assert restore_store(URL_ENV) == {}


def test_source_goes_on_after_a_restore(mem0_store: Store, pipeline: Pipeline) -> None:
    """Somebody restores a store without its database, where it is connected still."""
    before = mem0_store.checksum()
    write(pipeline, mem0_store)
    assert restore_store(URL_ENV) == {}
    result = sync_source(pipeline.engine, SOURCE)
    assert (result.added, result.revised, result.gone) == (0, 0, 0)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).written == GROUPS
    sync_source(pipeline.engine, SOURCE)
    assert is_watched(mem0_store.connection, "mem0")
    assert disconnect_source(pipeline.engine, SOURCE, restore=True) == {}
    assert mem0_store.checksum() == before
    assert count_triggers(mem0_store) == 0


def test_mirror_of_a_written_table_undoes_nothing(
    mem0_store: Store, store_url: str, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(pipeline, mem0_store)
    monkeypatch.setenv("SAME_DATABASE_URL", store_url)
    config = config_of(mem0_store, url_env="SAME_DATABASE_URL")
    connect_source(pipeline.engine, "twin", project="other", config=config)
    assert disconnect_source(pipeline.engine, "twin", restore=True) == {}
    assert len(mem0_store.texts()) == GROUPS
    assert is_watched(mem0_store.connection, "mem0")


def edit(store: Store, key: str) -> None:
    store.connection.execute(
        "UPDATE mem0 SET payload = jsonb_set(payload, '{data}', '\"Trains leave at six\"') WHERE id = %s", [key]
    )


def test_writes_that_an_older_backup_lacks_are_told(mem0_store: Store, pipeline: Pipeline) -> None:
    """Rows that they hide are not taken for deleted ones."""
    before = mem0_store.checksum()
    consolidate(pipeline, mem0_store)
    path = pipeline.folder / "shop.backup"
    create_backup(pipeline.settings, path, replace=False, progress=lambda _: None)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).written == GROUPS
    restore_backup(pipeline.settings, path, replace=True, progress=lambda _: None)
    with pytest.raises(ConflictError, match="16 rows of mem0 are hidden by writes that are not recorded") as told:
        sync_source(pipeline.engine, SOURCE)
    assert f"`consolidation source restore --url-env {URL_ENV}` shows" in str(told.value)
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE archived_at IS NULL") == 24
    assert restore_store(URL_ENV) == {}
    assert mem0_store.checksum() == before
    assert sync_source(pipeline.engine, SOURCE).is_change is False
    assert len(plan_writes(pipeline.engine, SOURCE)) == GROUPS


def test_changes_that_were_synced_after_a_backup_are_read_again(mem0_store: Store, pipeline: Pipeline) -> None:
    connect(pipeline, mem0_store)
    path = pipeline.folder / "shop.backup"
    create_backup(pipeline.settings, path, replace=False, progress=lambda _: None)
    edit(mem0_store, row_id("alice", FACTS[0]))
    assert sync_source(pipeline.engine, SOURCE).revised == 1
    restore_backup(pipeline.settings, path, replace=True, progress=lambda _: None)
    assert sync_source(pipeline.engine, SOURCE).revised == 1


@pytest.mark.parametrize("kind", [MEM0, LANGGRAPH], ids=lambda kind: kind.name)
def test_lost_image_is_told(make_store: Callable[[Kind], Store], pipeline: Pipeline, kind: Kind) -> None:
    store = make_store(kind)
    before = store.checksum()
    planned = write(pipeline, store)
    assert not any(check_store(pipeline.engine, SOURCE).values())
    key = planned[0].hidden[0]
    store.connection.execute("CREATE TABLE copied AS SELECT * FROM consolidation_sidecar.images WHERE key = %s", [key])
    store.connection.execute(
        "DELETE FROM consolidation_sidecar.images WHERE key = %s AND table_name = %s", [key, kind.tables[0]]
    )
    told = [f"row {key} is hidden, and the store has no image of it"]
    assert check_store(pipeline.engine, SOURCE)["hidden_rows_have_images"] == told
    ((conflict,),) = undo_writes(pipeline.engine, SOURCE).values()
    assert (conflict.key, conflict.reason) == (key, "the image of a hidden row is gone")
    store.connection.execute(
        "INSERT INTO consolidation_sidecar.images SELECT * FROM copied WHERE table_name = %s", [kind.tables[0]]
    )
    assert not any(check_store(pipeline.engine, SOURCE).values())
    assert undo_writes(pipeline.engine, SOURCE) == {}
    assert store.checksum() == before


def test_stand_in_may_be_hidden_by_a_later_write(mem0_store: Store, pipeline: Pipeline) -> None:
    planned = write(pipeline, mem0_store)
    mem0_store.connection.execute(
        "INSERT INTO mem0 SELECT '00000000-0000-0000-0000-000000000001', vector, payload FROM mem0 WHERE id = %s",
        [planned[0].keep],
    )
    sync_source(pipeline.engine, SOURCE)
    pipeline.run(PROJECT)
    (later,) = plan_writes(pipeline.engine, SOURCE)
    assert later.hidden == [planned[0].keep]
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).written == 1
    assert not any(check_store(pipeline.engine, SOURCE).values())


def test_hidden_rows_of_a_deleted_row_have_images(mem0_store: Store, pipeline: Pipeline) -> None:
    planned = write(pipeline, mem0_store)
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = %s", [planned[0].keep])
    assert [name for name, wrong in check_store(pipeline.engine, SOURCE).items() if wrong] == ["successors_are_found"]
    assert sync_source(pipeline.engine, SOURCE).gone == 1
    assert not any(check_store(pipeline.engine, SOURCE).values())
