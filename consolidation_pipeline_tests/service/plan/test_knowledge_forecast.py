"""Forecast of patterns, principles and playbook entries: equal to the run, executed exactly."""

from __future__ import annotations

import json
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.plan.plan_document import Plan
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.openai_server import OpenAIServer
from consolidation_pipeline_tests.service.corpus import (
    FIFTH,
    LESSONS,
    MIGRATIONS,
    REPEATED,
    WEBHOOKS,
    note,
    reworded_notes,
    topic_notes,
)
from consolidation_pipeline_tests.service.model_replies import shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline
from consolidation_pipeline_tests.service.plan.test_plan import dump_database, execute_plan
from consolidation_pipeline_tests.service.playbook.test_entries import OPTIONS

MODEL = "openai/gpt-4o-mini"

Knowledge = dict[UUID, tuple[str, str, frozenset[UUID]]]


def sample() -> list[dict[str, Any]]:
    lines = (PROJECT_ROOT / "examples" / "memories.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def load_planned_knowledge(made: Plan) -> tuple[Knowledge, set[UUID]]:
    """Return the rows that a plan would write, by id, and those that it would retire."""
    written = [item for item in made.knowledge if item.action != "retire"]
    retired = {item.id for item in made.knowledge if item.action == "retire"}
    return {item.id: (item.kind, item.text or "", frozenset(item.sources)) for item in written}, retired


def load_written_knowledge(pipeline: Pipeline, outcome: Outcome) -> tuple[Knowledge, set[UUID]]:
    """Return the same for a run."""
    rows = pipeline.rows(
        """
        SELECT c.id, c.kind, c.content, c.source_memory_ids AS sources FROM {s}.consolidated_memories c
        WHERE c.kind IN ('pattern', 'principle') AND EXISTS (SELECT 1 FROM {s}.consolidation_changes l
            WHERE l.entity_id = c.id AND l.job_id = :job AND l.new_state ? 'content')
        UNION ALL
        SELECT e.id, 'playbook', e.content, e.supporting_memory_ids FROM {s}.playbook_entries e
        WHERE EXISTS (SELECT 1 FROM {s}.consolidation_changes l WHERE l.entity_id = e.id AND l.job_id = :job)
        """,
        job=outcome.job_id,
    )
    retired = pipeline.rows(
        "SELECT entity_id FROM {s}.consolidation_changes WHERE job_id = :job AND reason LIKE 'its group is no more%'",
        job=outcome.job_id,
    )
    written = {row.id: (row.kind, row.content, frozenset(row.sources)) for row in rows}
    return written, {row.entity_id for row in retired}


def count_kinds(made: Plan) -> dict[str, int]:
    return {kind: sum(item.kind == kind for item in made.knowledge) for kind in ("pattern", "principle", "playbook")}


@pytest.mark.slow
def test_run_on_sample_matches_knowledge_forecast(pipeline: Pipeline) -> None:
    pipeline.configure_new(scope="project")
    pipeline.add(sample())
    before = dump_database(pipeline)
    made = pipeline.plan()
    assert dump_database(pipeline) == before
    assert all(count_kinds(made).values())
    assert all(item.needs_review for item in made.knowledge if item.kind != "pattern")
    assert load_planned_knowledge(made) == load_written_knowledge(pipeline, pipeline.run())
    # What the first run archived was a rival of its merges, so the second run groups a few memories anew.
    made = pipeline.plan()
    assert load_planned_knowledge(made) == load_written_knowledge(pipeline, pipeline.run())
    assert pipeline.plan().knowledge == []
    # Principles follow the texts of their patterns.
    changed = "SET content = regexp_replace(content, '[.]?$', ' at all times.') WHERE kind = 'pattern'"
    pipeline.write(f"UPDATE {{s}}.consolidated_memories {changed}")
    made = pipeline.plan()
    assert count_kinds(made)["principle"]
    assert load_planned_knowledge(made) == load_written_knowledge(pipeline, pipeline.run())
    assert not count_kinds(pipeline.plan())["principle"]


@pytest.mark.slow
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 10**6), nights=st.integers(1, 3), size=st.sampled_from([2, 3]))
def test_random_runs_match_knowledge_forecast(shared: Pipeline, seed: int, nights: int, size: int) -> None:
    shared.clear()
    shared.configure_new(**OPTIONS, min_pattern_size=size)
    draw = random.Random(seed)
    hooks, moves = topic_notes("hook", (*WEBHOOKS, FIFTH, REPEATED)), topic_notes("move", MIGRATIONS)
    rows = [*hooks, *moves, *reworded_notes(LESSONS[:2], 2)]
    draw.shuffle(rows)
    share = -(-len(rows) // nights)
    for night in range(nights):
        shared.add(rows[night * share : (night + 1) * share])
        if night:
            shared.configure(**OPTIONS | {"t_pattern": draw.choice([0.5, 0.55, 0.6])}, min_pattern_size=size)
        made = shared.plan()
        assert load_planned_knowledge(made) == load_written_knowledge(shared, shared.run())


@pytest.fixture
def topics(pipeline: Pipeline) -> Pipeline:
    """Project with two topics; one note of the first topic is repeated."""
    pipeline.configure_new(**OPTIONS)
    pipeline.add([*topic_notes("hook", (*WEBHOOKS, REPEATED)), *topic_notes("move", MIGRATIONS)])
    return pipeline


def test_planned_patterns_are_written_exactly(topics: Pipeline) -> None:
    made = topics.plan()
    assert count_kinds(made)["pattern"] == 2
    execute_plan(topics, made)
    written, _ = load_planned_knowledge(made)
    rows = topics.rows("SELECT id, content FROM {s}.consolidated_memories WHERE kind = 'pattern'")
    expected = {id_: text for id_, (kind, text, _) in written.items() if kind == "pattern"}
    assert {row.id: row.content for row in rows} == expected
    execute_plan(topics, made)  # a plan that is done already is no conflict
    assert topics.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'pattern'") == 2


def test_run_skips_knowledge_removed_from_plan(topics: Pipeline) -> None:
    made = topics.plan()
    assert len(made.merges) == 1
    [hooks] = [i for i in made.knowledge if made.merges[0].id in i.rests_on and i.kind == "pattern"]
    without_merge = made.model_copy(update={"merges": []})
    execute_plan(topics, without_merge)
    rows = topics.rows("SELECT id, kind FROM {s}.consolidated_memories")
    assert [row.kind for row in rows] == ["pattern"]
    assert rows[0].id != hooks.id
    execute_plan(topics, topics.plan().model_copy(update={"knowledge": []}))
    assert topics.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'pattern'") == 1


def test_plan_with_changed_pattern_is_refused(topics: Pipeline) -> None:
    made = topics.plan()
    topics.add([note("fifth", FIFTH)])
    with pytest.raises(ConflictError, match=r"knowledge .* would not be made now"):
        execute_plan(topics, made)
    assert topics.value("SELECT count(*) FROM {s}.consolidated_memories") == 0


def test_plan_prices_llm_patterns_without_writing_them(topics: Pipeline, provider: OpenAIServer) -> None:
    topics.configure(**OPTIONS, llm_model=MODEL)
    made = topics.plan()
    assert provider.requests == []
    assert count_kinds(made) == {"pattern": 2, "principle": 0, "playbook": 0}
    assert {item.text for item in made.knowledge} == {None}
    assert made.costs.completion_calls == 2
    assert made.costs.completion_tokens > 0
    assert made.costs.cost_usd
    one = made.model_copy(update={"knowledge": made.knowledge[:1]})
    execute_plan(topics, one)
    assert len(provider.requests) == 1
    assert len(shown_memories(provider.requests[0])) == len(
        topics.rows("SELECT parent_id FROM {s}.memory_lineage WHERE child_id = :id", id=one.knowledge[0].id)
    )
    rest = topics.plan()
    assert (rest.costs.completion_calls, len(rest.knowledge)) == (1, 2)  # one pattern and one playbook entry
    spent = topics.value("SELECT sum(cost_usd) FROM {s}.llm_calls")
    assert spent < made.costs.cost_usd
