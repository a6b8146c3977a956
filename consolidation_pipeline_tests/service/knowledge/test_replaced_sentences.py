"""Replaced sentences: no pattern tells as current what a confirmed newer memory replaced."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.service.knowledge.replaced_sentences import leave_out_replaced, list_relations
from consolidation_pipeline.service.knowledge.supersessions import SupersessionResult
from consolidation_pipeline.service.lifecycle.manual_actions import pin_memories
from consolidation_pipeline.service.lifecycle.relations import decide_relations
from consolidation_pipeline.service.review.review_queue import decide_review
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.store.knowledge.abstractions import REPLACED_REASON, UnitRow
from consolidation_pipeline.store.knowledge.supersessions import Replacement, load_replacements
from consolidation_pipeline_tests.openai_server import OpenAIServer, Request, reply_with_json
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, note
from consolidation_pipeline_tests.service.knowledge.test_patterns import OPTIONS, list_patterns
from consolidation_pipeline_tests.service.model_replies import pattern_reply, shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.plan.test_knowledge_forecast import (
    load_planned_knowledge,
    load_written_knowledge,
)
from consolidation_pipeline_tests.service.plan.test_plan import execute_plan

LESSONS = [*MIGRATIONS, "Never run a database migration in the morning."]
LOCK_TIMEOUT = MIGRATIONS[0]
ANNOUNCE = "Announce every database migration that locks a table for longer than a minute."
REPLACED = "The lock timeout of database migrations was replaced by a queue."


def dated(name: str, text: str, day: int) -> dict[str, Any]:
    return note(name, text, created_at=f"2026-03-{day:02d}T12:00:00Z", session_id=name)


def lesson_notes() -> list[dict[str, Any]]:
    return [dated(f"lesson-{at}", text, at + 1) for at, text in enumerate(LESSONS)]


@pytest.fixture
def lessons(pipeline: Pipeline) -> Pipeline:
    """Project with one topic of four memories."""
    pipeline.configure_new(**OPTIONS)
    pipeline.add(lesson_notes())
    return pipeline


def load_relations(pipeline: Pipeline) -> list[UUID]:
    return [row.id for row in pipeline.rows("SELECT id FROM {s}.memory_relations WHERE status = 'confirmed'")]


def test_pattern_is_written_again_without_what_is_replaced(lessons: Pipeline) -> None:
    lessons.run()
    (first,) = list_patterns(lessons)
    assert LOCK_TIMEOUT in first.content
    lessons.add([dated("new", REPLACED, 9)])
    assert lessons.run().patterns.updated == 1
    (second,) = list_patterns(lessons)
    assert LOCK_TIMEOUT not in second.content
    assert second.details["superseded"] == list(map(str, load_relations(lessons)))
    assert lessons.run().patterns.updated == 0


def test_rejected_relation_gives_back_the_text(lessons: Pipeline) -> None:
    lessons.run()
    (first,) = list_patterns(lessons)
    # Of another memory type: it is in no group with them.
    lessons.add([{**dated("new", REPLACED, 9), "memory_type": "error_fix"}])
    assert lessons.run().patterns.updated == 1
    (second,) = list_patterns(lessons)
    assert (second.id, second.source_memory_ids) == (first.id, first.source_memory_ids)
    assert LOCK_TIMEOUT not in second.content
    decide_relations(lessons.engine, load_relations(lessons), "rejected", changed_by="tester")
    assert lessons.run().patterns.updated == 1
    (third,) = list_patterns(lessons)
    assert (third.content, third.details) == (first.content, first.details)


def test_pattern_that_nothing_is_left_of_is_retired(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([*lesson_notes()[:3], dated("announce", ANNOUNCE, 4)])
    pipeline.run()
    (first,) = list_patterns(pipeline)
    before = pipeline.plan()
    pipeline.add([{**dated("new", REPLACED, 9), "memory_type": "error_fix"}])
    (item,) = pipeline.plan().knowledge
    assert (before.knowledge, item.id, item.action) == ([], first.id, "retire")
    assert pipeline.run().patterns.superseded == 1
    assert (list_patterns(pipeline), pipeline.plan().knowledge) == ([], [])
    (retired,) = pipeline.rows("SELECT archive_reason FROM {s}.consolidated_memories WHERE kind = 'pattern'")
    assert retired.archive_reason == REPLACED_REASON == item.reason
    decide_relations(pipeline.engine, load_relations(pipeline), "rejected", changed_by="tester")
    pipeline.run()
    (again,) = list_patterns(pipeline)
    assert (again.id, again.content) == (first.id, first.content)


def test_pattern_whose_group_is_gone_is_retired_too(lessons: Pipeline) -> None:
    lessons.run()
    (first,) = list_patterns(lessons)
    lessons.configure(**{**OPTIONS, "t_pattern": 0.74})
    lessons.run()
    assert [row.id for row in list_patterns(lessons)] == [first.id]
    lessons.add([{**dated("new", REPLACED, 9), "memory_type": "error_fix"}])
    (item,) = lessons.plan().knowledge
    assert (item.id, item.action, item.reason) == (first.id, "retire", REPLACED_REASON)
    assert lessons.run().patterns.superseded == 1
    assert list_patterns(lessons) == []
    lessons.roll_back(lessons.last_group(entity=first.id))
    assert lessons.run().patterns.superseded == 0
    assert [row.id for row in list_patterns(lessons)] == [first.id]


STATUSES = "SELECT id, status, content FROM {s}.playbook_entries"


def approve_entry(pipeline: Pipeline) -> UUID:
    """Approve the only entry of the project, which waits, and return its id."""
    (entry,) = pipeline.rows(STATUSES)
    decide_review(pipeline.engine, [entry.id], approved=True, changed_by="tester")
    return UUID(str(entry.id))


@pytest.mark.parametrize(
    ("lessons", "is_rewritten"),
    [([*LESSONS[:3], ANNOUNCE], False), (LESSONS, True)],
    ids=["pattern is retired", "pattern is rewritten"],
)
def test_approved_entry_of_replaced_sentences_waits_again(
    pipeline: Pipeline, lessons: list[str], is_rewritten: bool
) -> None:
    pipeline.configure_new(**OPTIONS | {"promote": True})
    pipeline.add([dated(f"lesson-{at}", text, at + 1) for at, text in enumerate(lessons)])
    pipeline.run()
    entry = approve_entry(pipeline)
    (before,) = pipeline.rows(STATUSES)
    assert (LOCK_TIMEOUT in before.content) == is_rewritten
    assert pipeline.run().playbook.entries_active == 1
    pipeline.add([{**dated("new", REPLACED, 9), "memory_type": "error_fix"}])
    (item,) = [item for item in pipeline.plan().knowledge if item.kind == "playbook"]
    assert (item.id, item.action, item.needs_review) == (entry, "update", True)
    assert item.reason.startswith("waits for a person: newer memories replaced what it rests on")
    pipeline.run()
    (row,) = pipeline.rows(STATUSES)
    assert (row.status, row.content) == ("review", item.text)
    assert (row.content != before.content) == is_rewritten
    assert LOCK_TIMEOUT not in row.content
    approve_entry(pipeline)
    pipeline.run()
    assert [(row.status, row.content) for row in pipeline.rows(STATUSES)] == [("active", item.text)]
    assert pipeline.plan().knowledge == []


def test_pinned_pattern_keeps_its_text(lessons: Pipeline) -> None:
    lessons.run()
    (first,) = list_patterns(lessons)
    pin_memories(lessons.engine, [first.id], pinned=True, changed_by="tester")
    lessons.add([{**dated("new", REPLACED, 9), "memory_type": "error_fix"}])
    assert lessons.run().patterns.updated == 0
    assert list_patterns(lessons)[0].content == first.content


@pytest.mark.parametrize("seed", range(3))
def test_order_of_arrival_changes_no_pattern(pipeline: Pipeline, seed: int) -> None:
    notes = [*lesson_notes(), dated("new", REPLACED, 9)]
    pipeline.configure_new(**OPTIONS)
    pipeline.add(notes)
    pipeline.run()
    (whole,) = list_patterns(pipeline)
    pipeline.clear()
    pipeline.configure_new(**OPTIONS)
    for one in random.Random(seed).sample(notes, len(notes)):
        pipeline.add([one])
        pipeline.run()
    (grown,) = list_patterns(pipeline)
    assert (grown.content, grown.details) == (whole.content, whole.details)


def test_plan_tells_what_the_run_writes(lessons: Pipeline) -> None:
    lessons.run()
    lessons.add([{**dated("new", REPLACED, 9), "memory_type": "error_fix"}])
    planned = load_planned_knowledge(lessons.plan())
    assert planned[0]
    assert load_written_knowledge(lessons, lessons.run()) == planned
    # The relation is stored by now.
    assert load_planned_knowledge(lessons.plan()) == ({}, set())


def test_run_of_a_plan_leaves_relations_to_the_next_run(lessons: Pipeline) -> None:
    lessons.run()
    lessons.add([{**dated("new", REPLACED, 9), "memory_type": "error_fix"}])
    made = lessons.plan()
    found = execute_plan(lessons, made)["supersessions"]
    assert (found, load_relations(lessons)) == (SupersessionResult(), [])
    (pattern,) = list_patterns(lessons)
    assert [pattern.content] == [item.text for item in made.knowledge if item.kind == "pattern"]
    assert LOCK_TIMEOUT not in pattern.content
    after = lessons.run()
    assert after.supersessions.added > 0
    assert after.patterns.updated == 0
    assert pattern.details["superseded"] == list(map(str, load_relations(lessons)))


def test_model_is_not_shown_what_is_replaced(pipeline: Pipeline, provider: OpenAIServer) -> None:
    shown: list[str] = []

    def reply(request: Request) -> dict[str, Any]:
        shown.extend(shown_memories(request).values())
        return pattern_reply(0.9)(request)

    provider.behaviour = reply_with_json(reply)
    pipeline.configure_new(**OPTIONS, llm_model="openai/gpt-4o-mini")
    pipeline.add([*lesson_notes(), dated("new", REPLACED, 9)])
    pipeline.run_phases([*PHASES[: PHASES.index("principles")]])
    assert REPLACED in shown
    assert {LOCK_TIMEOUT, ""}.isdisjoint(shown)


def build_unit(number: int, text: str, day: int, raw: tuple[int, ...] = ()) -> UnitRow:
    return UnitRow(
        id=UUID(int=number),
        kind="merged" if raw else "raw",
        text=text,
        memory_type="learning",
        success=None,
        importance=0.5,
        tags=(),
        files=(),
        language="english",
        learned_at=datetime(2026, 3, day, tzinfo=UTC),
        raw_ids=tuple(UUID(int=one) for one in raw or (number,)),
        scope_key=None,
        pattern_type=None,
        title=None,
        last_accessed_at=None,
    )


def replace_by(older: int, newer: int, was: str, now: str) -> dict[UUID, list[Replacement]]:
    return {UUID(int=older): [Replacement(UUID(int=99), UUID(int=newer), f"change words: {was} -> {now}")]}


WAS, NOW = "Logs are kept for 30 days.", "Logs are kept for 14 days."


@pytest.mark.parametrize(
    ("units", "replacements", "texts"),
    [
        # The newer one is elsewhere.
        ([build_unit(1, WAS, 1), build_unit(2, "Ask Kim.", 2)], replace_by(1, 3, WAS, NOW), ["", "Ask Kim."]),
        # The newer one is in the group and disputes it: the text tells the former value.
        ([build_unit(1, WAS, 1), build_unit(2, NOW, 2)], replace_by(1, 2, WAS, NOW), [WAS, NOW]),
        # It is in the group, and says so in words that dispute nothing.
        (
            [build_unit(1, LOCK_TIMEOUT, 1), build_unit(2, REPLACED, 2)],
            replace_by(1, 2, LOCK_TIMEOUT, REPLACED),
            ["", REPLACED],
        ),
        # Of a merged memory, the sentence goes that one of its sources says.
        (
            [build_unit(1, f"{WAS} Ask Kim.", 1, raw=(5, 6)), build_unit(2, "Ask Lee.", 2)],
            replace_by(6, 3, WAS, NOW),
            ["Ask Kim.", "Ask Lee."],
        ),
        # Nothing else is left of the group.
        ([build_unit(1, WAS, 1), build_unit(2, WAS, 1)], replace_by(1, 3, WAS, NOW), ["", WAS]),
        ([build_unit(1, WAS, 1)], replace_by(1, 3, WAS, NOW), [WAS]),
        # The sentence is there no more.
        ([build_unit(1, NOW, 1)], replace_by(1, 3, WAS, NOW), [NOW]),
    ],
)
def test_replaced_sentences_are_left_out(
    units: list[UnitRow], replacements: dict[UUID, list[Replacement]], texts: list[str]
) -> None:
    told = leave_out_replaced(units, replacements)
    assert [unit.text for unit in told] == texts
    assert [unit.id for unit in told] == [unit.id for unit in units]


def test_relations_are_those_to_the_memories() -> None:
    found = replace_by(1, 3, WAS, NOW)
    assert list_relations([UUID(int=1), UUID(int=2)], found) == {UUID(int=99)}
    assert list_relations([UUID(int=2)], found) == frozenset()


def test_only_confirmed_relations_replace(pipeline: Pipeline) -> None:
    pipeline.add(
        [dated("old", WAS, 1), dated("other", NOW, 2), dated("timeout", LOCK_TIMEOUT, 3), dated("new", REPLACED, 4)]
    )
    pipeline.run_phases(["supersessions"])
    with pipeline.engine.connect() as connection:
        found = load_replacements(connection, pipeline.value("SELECT id FROM {s}.projects"))
    assert {older: [one.newer_id for one in ones] for older, ones in found.items()} == {
        note_id("timeout"): [note_id("new")]
    }
