"""Backup and restore of a database: exact, undoable afterwards, all of it or nothing."""

from __future__ import annotations

import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from consolidation_pipeline.errors import ConflictError, ConsolidationError, ProjectBusyError, StoreError, UsageError
from consolidation_pipeline.service.admin.backup import Manifest, check_backup, create_backup, restore_backup
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.backup import connection_options, find_programs, read_state
from consolidation_pipeline.store.database.engine import connect_engine, downgrade, upgrade, with_driver
from consolidation_pipeline_tests.service.corpus import corpus
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge, dump_tables


def ignore(status: str) -> None:
    del status


def create(pipeline: Pipeline, *, replace: bool = False) -> Path:
    path = pipeline.folder / "shop.backup"
    create_backup(pipeline.settings, path, replace=replace, progress=ignore)
    return path


@pytest.fixture
def empty(pipeline: Pipeline, empty_database_url: str) -> Pipeline:
    """A second database without our schema."""
    settings = Settings(database_url=SecretStr(empty_database_url), data_dir=pipeline.folder)
    return Pipeline(connect_engine(with_driver(empty_database_url, "psycopg")), settings, pipeline.folder)


def restore(into: Pipeline, path: Path, *, replace: bool = False) -> tuple[Manifest, str | None]:
    return restore_backup(into.settings, path, replace=replace, progress=ignore)


def tables(pipeline: Pipeline) -> int:
    with pipeline.engine.connect() as connection:
        return len(read_state(connection).rows)


@pytest.mark.slow
def test_restored_run_is_undone_exactly(pipeline: Pipeline, empty: Pipeline) -> None:
    pipeline.add(corpus())
    before = dump_knowledge(pipeline)
    done = pipeline.run()
    path = create(pipeline)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = check_backup(path, progress=ignore)
    assert (found.rows["projects"], found.rows["task_memories"]) == (1, len(corpus()))
    manifest, revision = restore(empty, path)
    assert (manifest, revision) == (found, found.revision)
    assert dump_tables(empty) == dump_tables(pipeline)
    empty.roll_back(done.job_id)
    assert dump_knowledge(empty) == before
    assert find_broken_rules(empty) == []
    again = empty.run()
    assert again.job_id != done.job_id
    assert find_broken_rules(empty) == []


def test_restore_replaces_rows_only_on_request(pipeline: Pipeline, empty: Pipeline) -> None:
    upgrade(empty.engine)
    empty.add(corpus()[:3], "other")
    pipeline.add(corpus()[:2])
    path = create(pipeline)
    with pytest.raises(ConflictError, match=r"not empty \(.*1 projects, 3 task_memories\).*--replace"):
        restore(empty, path)
    assert empty.value("SELECT count(*) FROM {s}.task_memories") == 3
    with hold_project(empty.engine, empty.project("other")), pytest.raises(ProjectBusyError, match="holds other"):
        restore(empty, path, replace=True)
    restore(empty, path, replace=True)
    assert empty.value("SELECT slug FROM {s}.projects") == SLUG
    assert dump_tables(empty) == dump_tables(pipeline)


@pytest.mark.slow
def test_restore_uses_a_database_without_rows(pipeline: Pipeline, empty: Pipeline) -> None:
    upgrade(empty.engine)
    pipeline.add(corpus()[:2])
    restore(empty, create(pipeline))
    assert empty.value("SELECT count(*) FROM {s}.task_memories") == 2


def test_restore_migrates_an_older_schema(pipeline: Pipeline, empty: Pipeline) -> None:
    upgrade(empty.engine)
    downgrade(empty.engine, "-1")
    path = create(empty)
    old = check_backup(path, progress=ignore).revision
    with pipeline.engine.connect() as connection:
        head = read_state(connection).revision
    _, revision = restore(pipeline, path)
    assert old != head == revision


def rewrite(path: Path, change: Callable[[bytearray], object] = bytes, **manifest: object) -> Path:
    """Write a backup with a changed dump or manifest, whose archive is sound."""
    with zipfile.ZipFile(path) as archive:
        dump = bytearray(archive.read("consolidation.dump"))
        content = json.loads(archive.read("manifest.json")) | manifest
    change(dump)
    other = path.with_name("other.backup")
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("consolidation.dump", bytes(dump))
        archive.writestr("manifest.json", json.dumps(content))
    return other


def damage(path: Path) -> dict[str, Path]:
    raw = path.read_bytes()
    files = {
        "cut": raw[: len(raw) // 2],
        "flipped": bytes([*raw[:5000], raw[5000] ^ 255, *raw[5001:]]),
        "text": b"no archive",
    }
    for name, content in files.items():
        (path.parent / name).write_bytes(content)
    return {name: path.parent / name for name in files} | {
        "short dump": rewrite(path, lambda dump: dump.__delitem__(slice(-2000, None))),
        "missing": path.parent / "missing",
        "folder": path.parent,
    }


@pytest.mark.parametrize("kind", ["cut", "flipped", "text", "short dump", "missing", "folder"])
def test_damaged_backup_changes_nothing(pipeline: Pipeline, empty: Pipeline, kind: str) -> None:
    pipeline.add(corpus()[:6])
    path = damage(create(pipeline))[kind]
    with pytest.raises(ConsolidationError):
        check_backup(path, progress=ignore)
    with pytest.raises(ConsolidationError):
        restore(empty, path)
    assert tables(empty) == 0
    before = dump_tables(pipeline)
    with pytest.raises(ConsolidationError):
        restore(pipeline, path, replace=True)
    assert dump_tables(pipeline) == before


def test_backup_with_other_counts_is_refused(pipeline: Pipeline, empty: Pipeline) -> None:
    pipeline.add(corpus()[:2])
    path = create(pipeline)
    rows = dict(check_backup(path, progress=ignore).rows) | {"task_memories": 3}
    with pytest.raises(StoreError, match="nothing has changed: the backup is damaged: task_memories should have 3"):
        restore(empty, rewrite(path, rows=rows))
    assert tables(empty) == 0


@pytest.mark.parametrize(
    ("manifest", "message"),
    [({"revision": "9999"}, "newer program.*upgrade this program"), ({"format": 2}, "format 2, this program reads 1")],
)
def test_backup_of_newer_program_is_refused(
    pipeline: Pipeline, empty: Pipeline, manifest: dict[str, object], message: str
) -> None:
    path = rewrite(create(pipeline), **manifest)
    with pytest.raises(ConsolidationError, match=message):
        restore(empty, path)
    assert tables(empty) == 0


def test_interrupted_work_leaves_nothing_half(pipeline: Pipeline, empty: Pipeline) -> None:
    def interrupt(status: str) -> None:
        raise KeyboardInterrupt(status)

    pipeline.add(corpus()[:6])
    path = create(pipeline)
    kept = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        create_backup(pipeline.settings, path, replace=True, progress=interrupt)
    assert path.read_bytes() == kept
    assert not list(path.parent.glob("*.partial"))
    with pytest.raises(KeyboardInterrupt):
        restore_backup(empty.settings, path, replace=False, progress=interrupt)
    assert tables(empty) == 0


def test_existing_file_is_replaced_only_on_request(pipeline: Pipeline) -> None:
    path = create(pipeline)
    with pytest.raises(UsageError, match="exists: choose another name or --replace"):
        create(pipeline)
    path.with_name(f"{path.name}.partial").write_text("left by a killed process")
    pipeline.add(corpus()[:2])
    create(pipeline, replace=True)
    assert check_backup(path, progress=ignore).rows["task_memories"] == 2
    nowhere = pipeline.folder / "missing" / "shop.backup"
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        create_backup(pipeline.settings, nowhere, replace=False, progress=ignore)


def test_backup_without_schema_is_refused(empty: Pipeline) -> None:
    with pytest.raises(StoreError, match="nothing to back up"):
        create(empty)
    assert not list(empty.folder.glob("*.backup*"))


def test_missing_programs_are_named() -> None:
    with pytest.raises(StoreError, match=r"pg_dump of PostgreSQL 99 or newer are needed, the newest found is of \d+"):
        find_programs(["pg_dump"], 99)


def test_password_is_not_among_the_arguments(pipeline: Pipeline) -> None:
    url = pipeline.engine.url.set(password="hunter2")
    options, variables = connection_options(connect_engine(url.render_as_string(hide_password=False)))
    assert "hunter2" not in " ".join(options)
    assert variables["PGPASSWORD"] == "hunter2"
