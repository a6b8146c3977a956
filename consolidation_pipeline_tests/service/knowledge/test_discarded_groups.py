"""Discarded groups: they are read again only if one of their units, the model or the program changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consolidation_pipeline.core.knowledge.extractive_patterns import PortionToWrite
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern
from consolidation_pipeline.service.knowledge import discarded_groups
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline_tests.service.corpus import WEBHOOKS
from consolidation_pipeline_tests.service.knowledge.test_patterns import topics as topics
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the groups that are read; each of them is discarded."""
    found: list[int] = []
    write = PortionToWrite.write

    def discard(portion: PortionToWrite) -> list[ExtractedPattern]:
        found.extend(len(group.units) for group in portion.groups)
        return [replace(text, is_shared=False) for text in write(portion)]

    monkeypatch.setattr(PortionToWrite, "write", discard)
    return found


def test_discarded_groups_are_not_read_again(topics: Pipeline, read: list[int]) -> None:
    first = topics.run()
    assert (first.patterns.discarded, first.patterns.created, sorted(read)) == (2, 0, [3, 4])
    before = dump_knowledge(topics)
    read.clear()
    again = topics.run()
    assert (again.patterns.groups, again.patterns.covered, again.patterns.discarded, read) == (2, 0, 2, [])
    assert topics.plan().count_totals()["patterns"] == 0
    assert read == []
    assert dump_knowledge(topics) == before


def test_group_with_a_changed_unit_is_read_again(topics: Pipeline, read: list[int]) -> None:
    topics.run()
    read.clear()
    edit_memory(topics.engine, note_id("hook-0"), {"content": f"{WEBHOOKS[0]} Always."}, changed_by="tester")
    topics.run()
    assert read == [4]


def test_new_version_of_the_program_reads_again(
    topics: Pipeline, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.run()
    read.clear()
    monkeypatch.setattr(discarded_groups, "describe_code", lambda: {"digest": "another"})
    topics.run()
    assert sorted(read) == [3, 4]


def test_groups_that_are_gone_are_forgotten(topics: Pipeline, read: list[int]) -> None:
    topics.run()
    assert len(read) == topics.value("SELECT count(*) FROM {s}.discarded_groups") == 2
    topics.write(
        "UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'old' WHERE external_id LIKE 'hook%'"
    )
    topics.run()
    assert topics.value("SELECT count(*) FROM {s}.discarded_groups") == 1
