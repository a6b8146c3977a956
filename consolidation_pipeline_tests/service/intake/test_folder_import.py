"""Imports of memory folders: repeated, after edits of files and of memories, and from another folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from consolidation_pipeline.service.intake.importer import ImportResult, import_memories
from consolidation_pipeline.service.intake.readers.rows import Remark
from consolidation_pipeline.service.lifecycle.memory_deletion import delete_memories
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_tables

TEXT = "---\nname: cache\ndescription: size of the cache\ntype: project\n---\nThe cache holds 512 entries.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "memory"
    path.mkdir()
    (path / "cache.md").write_text(TEXT)
    (path / "MEMORY.md").write_text("- [Cache](cache.md)\n")
    (path / "rules.md").write_text("- Use tabs.\n- Write tests.\n")
    return path


def import_folder(pipeline: Pipeline, folder: Path, source: str | None = None) -> ImportResult:
    return import_memories(pipeline.engine, SLUG, str(folder), format="claude-code", source=source)


def load_notes(pipeline: Pipeline) -> dict[str, str]:
    rows = pipeline.value("SELECT jsonb_object_agg(external_id, execution_summary) FROM {s}.task_memories")
    notes: dict[str, str] = rows if isinstance(rows, dict) else json.loads(rows)
    return notes


def find_id(pipeline: Pipeline) -> UUID:
    return UUID(str(pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = 'cache.md'")))


def test_importing_folder_twice_changes_nothing(pipeline: Pipeline, folder: Path) -> None:
    first = import_folder(pipeline, folder)
    before = dump_tables(pipeline)
    second = import_folder(pipeline, folder)
    assert (first.added, first.unchanged, first.bad) == (3, 0, [])
    assert first.remarks == second.remarks == [Remark("MEMORY.md", "an index: a list of links")]
    assert (second.added, second.unchanged, second.revised, second.bad) == (0, 3, 0, [])
    assert dump_tables(pipeline) == before


def test_edited_note_revises_its_memory(pipeline: Pipeline, folder: Path) -> None:
    import_folder(pipeline, folder)
    (folder / "cache.md").write_text(TEXT.replace("512", "1,024"))
    done = import_folder(pipeline, folder)
    assert (done.added, done.revised, done.unchanged, done.bad) == (0, 1, 2, [])
    assert load_notes(pipeline)["cache.md"] == "The cache holds 1,024 entries."
    again = import_folder(pipeline, folder)
    assert (again.added, again.revised, again.unchanged) == (0, 0, 3)


def test_edited_rule_is_a_new_memory(pipeline: Pipeline, folder: Path) -> None:
    import_folder(pipeline, folder)
    (folder / "rules.md").write_text("- Use blanks.\n- Write tests.\n")
    done = import_folder(pipeline, folder)
    assert (done.added, done.revised, done.unchanged) == (1, 0, 2)
    assert {"Use tabs.", "Use blanks."} <= set(load_notes(pipeline).values())


def test_memory_edited_here_is_left_alone(pipeline: Pipeline, folder: Path) -> None:
    import_folder(pipeline, folder)
    edit_memory(pipeline.engine, find_id(pipeline), {"content": "The cache is large."}, changed_by="ada")
    done = import_folder(pipeline, folder)
    assert (done.added, done.revised, done.unchanged, done.bad) == (0, 0, 3, [])
    assert load_notes(pipeline)["cache.md"] == "The cache is large."


def test_deleted_memory_stays_deleted(pipeline: Pipeline, folder: Path) -> None:
    import_folder(pipeline, folder)
    delete_memories(pipeline.engine, [find_id(pipeline)], changed_by="ada")
    (folder / "cache.md").write_text(TEXT.replace("512", "1,024"))
    done = import_folder(pipeline, folder)
    assert (done.added, done.revised, done.bad) == (0, 0, [])
    assert Remark("cache.md", "edited since, but its memory was archived or deleted here") in done.remarks
    assert pipeline.value("SELECT is_archived FROM {s}.task_memories WHERE external_id = 'cache.md'")


def test_folder_of_same_name_does_not_overwrite(pipeline: Pipeline, folder: Path, tmp_path: Path) -> None:
    first, second = (tmp_path / name / "shop" / "memory" for name in "ab")
    for copy in (first, second):
        shutil.copytree(folder, copy)
    import_folder(pipeline, first)
    (second / "cache.md").write_text(TEXT.replace("512", "64"))
    refused = import_folder(pipeline, second)
    assert (refused.source, refused.added, refused.revised) == ("claude-code:shop/memory", 0, 0)
    reason = f"stored before with another text, from the folder {first}; give this folder a name of its own by --source"
    assert [reason in row.reason for row in refused.bad] == [True]
    assert load_notes(pipeline)["cache.md"] == "The cache holds 512 entries."
    named = import_folder(pipeline, second, source=refused.source)
    assert (named.added, named.revised, named.bad) == (0, 1, [])
