"""A model that fails gives what no model gives; as soon as it works, its texts replace those."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.store.admin.asset_rows import find_model_failure
from consolidation_pipeline_tests.openai_server import Behaviour, OpenAIServer, reply_with_error, reply_with_text
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, NEAR_MISSES, WEBHOOKS, note, topic_notes
from consolidation_pipeline_tests.service.knowledge.test_merge_rewrites import MODEL, PAIRS
from consolidation_pipeline_tests.service.knowledge.test_summaries import hourly_notes
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline

OPTIONS: dict[str, Any] = {"t_merge": 0.8, "t_suggest": 0.72, "t_pattern": 0.5, "merge_style": "rewrite"}
ROWS = [
    *(note(f"{at}-{side}", text) for at, pair in enumerate(PAIRS) for side, text in enumerate(pair)),
    *(note(f"near-{at}-{side}", text) for at, pair in enumerate(NEAR_MISSES) for side, text in enumerate(pair)),
    *topic_notes("hook", WEBHOOKS),
    *topic_notes("move", MIGRATIONS),
    *hourly_notes(40, user_id="ann"),
]
BROKEN: dict[str, Behaviour | None] = {
    "nonsense": reply_with_text("Lorem ipsum dolor sit amet."),
    "wrong key": reply_with_error(401),
    "no such model": reply_with_error(404),
    "broken prompts": reply_with_error(400),
    "without a key": None,
}


def run_project(pipeline: Pipeline, **options: Any) -> Outcome:
    """Run a new project with these options, once."""
    pipeline.clear()
    pipeline.write("DELETE FROM {s}.llm_calls")
    pipeline.configure_new(**OPTIONS, **options)
    pipeline.add(ROWS)
    return pipeline.run()


def load_derived(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """Return what was derived, without the marks of texts that wait for a model, ids of jobs and times."""
    memories = """
        SELECT id, kind, content, details - 'rewrite_pending' AS details, consolidation_method, confidence_score,
            llm_confidence, needs_review, pattern_type, source_memory_ids, cluster_key, retired_at IS NULL AS active
        FROM {s}.consolidated_memories ORDER BY id
    """
    suggestions = (
        "SELECT suggested_content, method, original_memory_ids FROM {s}.consolidation_suggestions ORDER BY 3, 1"
    )
    entries = "SELECT content, status FROM {s}.playbook_entries ORDER BY 1"
    queries = {"memories": memories, "suggestions": suggestions, "entries": entries}
    return {name: [dict(row._mapping) for row in pipeline.rows(query)] for name, query in queries.items()}


@pytest.mark.parametrize(
    "behaviour",
    [
        pytest.param(behaviour, id=name, marks=[] if name == "no such model" else pytest.mark.slow)
        for name, behaviour in BROKEN.items()
    ],
)
def test_broken_model_gives_what_no_model_gives(
    pipeline: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour | None
) -> None:
    run_project(pipeline)
    expected = load_derived(pipeline)
    kinds = {row["kind"] for row in expected["memories"]}
    assert (kinds, len(expected["suggestions"]) > 0) == ({"merged", "pattern", "summary", "procedural"}, True)
    run_project(pipeline, llm_model=MODEL)
    by_model = load_derived(pipeline)
    assert by_model != expected
    working = provider.behaviour
    if behaviour is None:
        monkeypatch.delenv("OPENAI_API_KEY")
    else:
        provider.behaviour = behaviour
    run_project(pipeline, llm_model=MODEL)
    assert load_derived(pipeline) == expected
    job = pipeline.rows("SELECT status, metrics FROM {s}.consolidation_jobs")[0]
    purposes = [one["purpose"] for one in job.metrics["failing"]]
    assert (job.status, sorted(purposes)) == (
        "completed",
        ["merged_memories", "pattern", "profile", "suggestion", "summary"],
    )
    with pipeline.engine.connect() as connection:
        assert find_model_failure(connection, pipeline.project().id, "patterns")
    billed = pipeline.value("SELECT sum(cost_usd) FROM {s}.llm_calls")
    assert (billed > 0) == (behaviour is BROKEN["nonsense"])
    # A run with the broken model changes nothing, one with a working model replaces every text.
    pipeline.run()
    assert load_derived(pipeline) == expected
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    provider.behaviour = working
    pipeline.run()
    assert find_texts(load_derived(pipeline)) == find_texts(by_model)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories WHERE details ? 'rewrite_pending'") == 0
    done = pipeline.rows("SELECT metrics FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1")[0]
    assert ("failing" in done.metrics, "state" in done.metrics) == (False, True)
    with pipeline.engine.connect() as connection:
        assert find_model_failure(connection, pipeline.project().id, "patterns") == []


def find_texts(derived: dict[str, list[dict[str, Any]]]) -> set[tuple[Any, ...]]:
    """Return kind, text and method of each derived memory, and the texts of suggestions."""
    memories = {(row["kind"], row["content"], row["consolidation_method"]) for row in derived["memories"]}
    return memories | {("suggestion", row["suggested_content"], row["method"]) for row in derived["suggestions"]}
