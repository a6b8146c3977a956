"""Summaries and profiles stay in use when memories change of which they tell nothing, until too many have changed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.service.lifecycle.memory_deletion import delete_memories
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_tables

TABLES = ("task_memories", "consolidated_memories", "memory_lineage", "memory_relations")
MATTERS = ("billing", "search", "mail", "login", "export", "report", "upload", "quota", "theme", "audit")
REMARKS = (
    "The {} page loads its fonts from the main host.",
    "Restart the {} worker after a change of its queue, or it keeps the old one.",
    "The {} team meets on Tuesday in room {}.",
    "A slow {} query was due to a missing index on column c{}.",
    "Never run the {} job by hand while the nightly one is on.",
    "Root cause of the {} fault: the client read the clock of host {}.",
)
NEW_TEXT = "Zebrafinch caches are warmed by the night watch, and by nobody else."


def build_summary(pipeline: Pipeline) -> None:
    pipeline.configure_new()
    texts = [remark.format(matter, at) for at, matter in enumerate(MATTERS) for remark in REMARKS]
    pipeline.add([note(f"n-{at:02}", text) for at, text in enumerate(texts)])
    summarize(pipeline)


def summarize(pipeline: Pipeline) -> Any:
    phases = JOB_PHASES["summarize"]
    return pipeline.run_phases(phases, job="summarize", planned=phases)["semantic_summaries"]


@pytest.fixture
def summarized(pipeline: Pipeline) -> Pipeline:
    """Project of 60 memories with a summary and a profile."""
    pipeline.start_from(build_summary)
    return pipeline


def load_row(pipeline: Pipeline, kind: str) -> Any:
    (row,) = pipeline.rows("SELECT * FROM {s}.consolidated_memories WHERE kind = :kind", kind=kind)
    return row


def split_told(pipeline: Pipeline) -> tuple[list[UUID], list[UUID]]:
    """Return the memories that the summary tells something of, and the others."""
    row = load_row(pipeline, "summary")
    told = [UUID(id_) for id_ in row.details["told"]]
    return told, sorted(set(row.source_memory_ids) - set(told))


def edit(pipeline: Pipeline, id_: UUID, text: str = NEW_TEXT) -> Any:
    return edit_memory(pipeline.engine, id_, {"content": text}, changed_by="tester")


def test_summary_knows_what_it_tells_of(summarized: Pipeline) -> None:
    told, untold = split_told(summarized)
    content = load_row(summarized, "summary").content
    texts = dict(summarized.rows("SELECT id, execution_summary FROM {s}.task_memories"))
    assert told
    assert untold
    assert not [texts[id_] for id_ in untold if texts[id_].rstrip(".") in content]
    assert [texts[id_] for id_ in told if texts[id_].rstrip(".") in content]


def test_edit_of_untold_memory_keeps_summary_and_profile(summarized: Pipeline) -> None:
    _, untold = split_told(summarized)
    before = load_row(summarized, "summary")
    done = edit(summarized, untold[0])
    assert not {"summary", "procedural"} & done.derived.keys()
    for kind in ("summary", "procedural"):
        row = load_row(summarized, kind)
        assert (row.retired_at, row.details["changed"]) == (None, 1)
    assert summarize(summarized).created == 0
    assert load_row(summarized, "summary").content == before.content


def test_edit_of_told_memory_renews_summary(summarized: Pipeline) -> None:
    told, _ = split_told(summarized)
    done = edit(summarized, told[0])
    assert done.derived["summary"] == 1
    assert load_row(summarized, "summary").retired_at is not None
    assert summarize(summarized).created == 1
    row = load_row(summarized, "summary")
    assert row.retired_at is None
    assert "changed" not in row.details


def supersede_oldest(pipeline: Pipeline, ids: list[UUID]) -> None:
    """Confirm that the newest memory of the project replaces the whole text of the oldest of ``ids``."""
    pipeline.write(
        "INSERT INTO {s}.memory_relations (project_id, a_id, b_id, relation_type, confidence, status, reason) "
        "SELECT project_id, (SELECT id FROM {s}.task_memories ORDER BY learned_at DESC, id LIMIT 1), id, 'supersedes', "
        "1, 'confirmed', execution_summary FROM {s}.task_memories WHERE id = ANY(:ids) ORDER BY learned_at LIMIT 1",
        ids=ids,
    )


def test_supersession_of_untold_memory_keeps_summary(summarized: Pipeline) -> None:
    told, untold = split_told(summarized)
    before = load_row(summarized, "summary")
    supersede_oldest(summarized, untold)
    assert summarize(summarized).rewritten == 0
    assert load_row(summarized, "summary").content == before.content
    supersede_oldest(summarized, told)
    assert summarize(summarized).rewritten == 1
    assert len(load_row(summarized, "summary").details["superseded"]) == 2
    assert summarize(summarized).rewritten == 0


def test_deletion_of_untold_memory_keeps_summary(summarized: Pipeline) -> None:
    _, untold = split_told(summarized)
    done = delete_memories(summarized.engine, untold[:1], changed_by="tester")
    assert not {"summary", "procedural"} & done.derived.keys()
    assert load_row(summarized, "summary").details["changed"] == 1


def test_many_changes_renew_summary(summarized: Pipeline) -> None:
    _, untold = split_told(summarized)
    for at, id_ in enumerate(untold[:3]):
        assert "summary" not in edit(summarized, id_, f"{NEW_TEXT} {at}").derived
    done = edit(summarized, untold[3])
    assert done.derived["summary"] == 1
    assert summarize(summarized).created == 1
    assert load_row(summarized, "summary").retired_at is None


def test_three_changes_renew_profile(summarized: Pipeline) -> None:
    _, untold = split_told(summarized)
    assert "procedural" not in edit(summarized, untold[0]).derived
    assert "procedural" not in edit(summarized, untold[1], f"{NEW_TEXT} Always.").derived
    assert edit(summarized, untold[2], f"{NEW_TEXT} Twice.").derived["procedural"] == 1
    summarize(summarized)
    row = load_row(summarized, "procedural")
    assert row.retired_at is None
    assert "changed" not in row.details


def test_rollback_of_edit_restores_kept_summary(summarized: Pipeline) -> None:
    _, untold = split_told(summarized)
    before = dump_tables(summarized, tables=TABLES)
    done = edit(summarized, untold[0])
    assert done.group_id is not None
    summarized.roll_back(done.group_id)
    assert dump_tables(summarized, tables=TABLES) == before
