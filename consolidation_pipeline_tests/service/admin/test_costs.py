"""Costs by phase, job and project, in one ledger for completions and embeddings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from consolidation_pipeline.core.jobs.spending import NOTHING, Bill, Call
from consolidation_pipeline.errors import BudgetExhaustedError, NotFoundError
from consolidation_pipeline.service.admin.costs import MAX_JOBS, describe_costs
from consolidation_pipeline.service.runs.model_access import open_spend_ledger
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.similarity.calibration import calibrate_project
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline_tests.openai_server import OpenAIServer
from consolidation_pipeline_tests.service.corpus import corpus, note, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

PAID: dict[str, Any] = {
    "embedding_model": "openai/text-embedding-3-small",
    "llm_model": "openai/gpt-4o-mini",
    "merge_style": "rewrite",
    "t_merge": 0.95,
    "t_suggest": 0.9,
    "t_pattern": 0.5,
    "archive": False,
}


@pytest.fixture
def paid_project(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    del provider
    pipeline.configure_new(**PAID)
    return pipeline


def newest_job(pipeline: Pipeline) -> Any:
    return pipeline.rows("SELECT * FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1")[0]


def total(pipeline: Pipeline) -> tuple[float, int]:
    sums = "sum(coalesce(cost_usd, reserved_usd))::float8, sum(prompt_tokens + completion_tokens)"
    return tuple(pipeline.rows(f"SELECT {sums} FROM {{s}}.llm_calls")[0])


def test_phase_costs_add_up_to_job_costs(paid_project: Pipeline, provider: OpenAIServer) -> None:
    paid_project.add([note(f"n{at}-{side}", f"Lesson {at} about topic {at}.") for at in range(4) for side in "ab"])
    report = paid_project.run().report.metrics
    job = newest_job(paid_project)
    phases = [job.metrics[name] for name in PHASES]
    usd, tokens = total(paid_project)
    assert job.metrics["cost_usd"] == pytest.approx(usd) == pytest.approx(sum(p["llm/cost_usd"] for p in phases))
    assert job.metrics["tokens"] == tokens == sum(p["llm/tokens"] for p in phases)
    assert job.metrics["calls"] == len(provider.requests) == sum(p["llm/calls"] for p in phases)
    assert job.metrics["embedding_matrix"]["llm/calls"] == 1
    assert job.metrics["decay_scores"]["llm/calls"] == 0
    assert report["llm/run_cost_usd"] == pytest.approx(usd) == pytest.approx(report["cost_usd"])
    requests = len(provider.requests)
    again = paid_project.run().report.metrics
    assert len(provider.requests) == requests
    assert newest_job(paid_project).metrics["cost_usd"] == again["llm/run_cost_usd"] == 0
    assert again["cost_usd"] == pytest.approx(usd)


def test_run_without_paid_model_reports_zero_costs(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "One thing."), note("b", "Another matter.")])
    pipeline.run()
    metrics = newest_job(pipeline).metrics
    assert not [name for phase in metrics.values() if isinstance(phase, dict) for name in phase if "llm/" in name]
    assert (metrics["cost_usd"], metrics["tokens"], metrics["calls"]) == (0, 0, 0)


def test_embedding_stops_at_budget_and_resumes(paid_project: Pipeline, provider: OpenAIServer) -> None:
    texts = [f"Memory number {at} of the many that there are here." for at in range(600)]
    paid_project.add([note(f"n{at}", text) for at, text in enumerate(texts)])
    paid_project.configure(**PAID, budget_tokens_per_run=5_000)
    with pytest.raises(BudgetExhaustedError, match=r"embedding was not sent to .* budget_tokens_per_run is 5000"):
        paid_project.run()
    job = newest_job(paid_project)
    assert (job.status, job.phases_failed, job.phases_completed) == ("failed", ["embedding_matrix"], [])
    assert [(stop["purpose"], stop["by"]) for stop in job.metrics["stopped"]] == [("embedding_matrix", "budget")]
    assert 0 < job.metrics["tokens"] <= 5_000
    assert job.metrics["calls"] == len(provider.requests)
    kept = paid_project.value("SELECT count(*) FROM {s}.task_memories WHERE embedding IS NOT NULL")
    assert kept == sum(len(request.body["input"]) for request in provider.requests)
    paid_project.configure(**PAID)
    with paid_project.open(planned=("embedding_matrix",)) as run, run.phase("embedding_matrix"):
        assert embed_memories(run).computed == 600 - kept
    sent = [text for request in provider.requests for text in request.body["input"]]
    assert len(sent) == len(set(sent)) == 600


def test_manual_calibration_is_billed_under_own_job_id(paid_project: Pipeline, provider: OpenAIServer) -> None:
    paid_project.add(
        [*corpus(), *(note(f"more-{at}", f"A lesson about matter {at} of the release.") for at in range(30))]
    )
    with paid_project.open(planned=("embedding_matrix",)) as run, run.phase("embedding_matrix"):
        embed_memories(run)
    before = len(provider.requests)
    calibrate_project(paid_project.engine, "notes", settings=paid_project.settings, apply=False)
    by_hand = paid_project.rows(
        "SELECT status, purpose FROM {s}.llm_calls WHERE job_id <> :job", job=newest_job(paid_project).id
    )
    assert [tuple(row) for row in by_hand] == [("settled", "embedding")] * (len(provider.requests) - before)
    assert by_hand
    paid_project.configure(**PAID, budget_usd_per_day=0.0)
    with pytest.raises(BudgetExhaustedError, match="budget_usd_per_day"):
        calibrate_project(paid_project.engine, "notes", settings=paid_project.settings, apply=False)


def record_calls(
    pipeline: Pipeline, purpose: str, usd: str, *, end: str = "settle", model: str = "m", times: int = 1
) -> Any:
    """Record calls of a new job, each reserved at twice its cost."""
    options = {"budget_usd_per_run": 100.0, "budget_usd_per_day": 100.0}
    job = uuid4()
    with pipeline.open() as run:
        ledger = open_spend_ledger(run.engine, run.project, run.options.model_copy(update=options), job)
    for at in range(times):
        most = Bill(100, 100, 2 * Decimal(usd))
        call = ledger.reserve(Call(purpose, model, f"{job}-{at}", most), max_attempts=9)
        assert call is not None
        if end == "settle":
            ledger.settle(call, Bill(100, 50, Decimal(usd)), {"a": 1})
        elif end == "fail":
            ledger.fail(call, NOTHING, "broke")
    return ledger


def test_costs_are_grouped_four_ways(pipeline: Pipeline) -> None:
    pipeline.configure_new(budget_usd_per_day=1.0)
    record_calls(pipeline, "pattern", "0.10", times=2)
    pipeline.write("UPDATE {s}.llm_calls SET created_at = created_at - interval '1 day'")
    ledger = record_calls(pipeline, "merge", "0.05", model="other")
    ledger.load([f"{ledger.job_id}-0"])
    record_calls(pipeline, "embedding", "0.20", end="die")
    record_calls(pipeline, "embedding", "0.20", end="fail")
    found = describe_costs(pipeline.engine, "notes", settings=pipeline.settings)
    total = found["total"]
    assert (total["calls"], total["failed"], total["cached"], total["reserved"]) == (5, 1, 1, 1)
    assert (total["cost_usd"], total["reserved_usd"], total["tokens"]) == (Decimal("0.65"), Decimal("0.40"), 650)
    assert [(row["model"], row["cost_usd"]) for row in found["by_model"]] == [
        ("m", Decimal("0.60")),
        ("other", Decimal("0.05")),
    ]
    assert [(row["purpose"], row["calls"]) for row in found["by_purpose"]] == [
        ("embedding", 2),
        ("merge", 1),
        ("pattern", 2),
    ]
    assert [row["cost_usd"] for row in found["by_day"]] == [Decimal("0.20"), Decimal("0.45")]
    assert [row["cost_usd"] for row in found["jobs"]] == [0, Decimal("0.40"), Decimal("0.05"), Decimal("0.20")]
    assert found["today"] == {"spent_usd": Decimal("0.45"), "budget_usd": Decimal("1.0"), "left_usd": Decimal("0.55")}
    today = describe_costs(pipeline.engine, "notes", settings=pipeline.settings, days=1)
    assert (len(today["by_day"]), today["total"]["cost_usd"]) == (1, Decimal("0.45"))
    later = datetime.now(UTC) + timedelta(days=40)
    none = describe_costs(pipeline.engine, "notes", settings=pipeline.settings, days=30, now=later)
    assert (none["total"]["calls"], none["by_day"], none["jobs"]) == (0, [], [])


def test_costs_list_only_newest_jobs(pipeline: Pipeline) -> None:
    pipeline.configure_new()
    for _ in range(MAX_JOBS + 2):
        record_calls(pipeline, "pattern", "0.01")
    assert len(describe_costs(pipeline.engine, "notes", settings=pipeline.settings)["jobs"]) == MAX_JOBS


def test_costs_of_unknown_project_are_refused(pipeline: Pipeline) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        describe_costs(pipeline.engine, "nowhere", settings=pipeline.settings)


def test_dead_job_is_ended_with_its_costs(pipeline: Pipeline) -> None:
    pipeline.add(reworded_notes()[:2])
    ledger = record_calls(pipeline, "pattern", "0.25", end="die")
    insert = """
        INSERT INTO {s}.consolidation_jobs (id, project_id, status, trigger_type, triggered_by, started_at)
        VALUES (:id, :project, 'running', 'manual', 'test', now())
    """
    pipeline.write(insert, id=ledger.job_id, project=ledger.project_id)
    pipeline.run()
    query = "SELECT status, metrics FROM {s}.consolidation_jobs WHERE id = :id"
    (dead,) = pipeline.rows(query, id=ledger.job_id)
    assert (dead.status, dead.metrics) == ("failed", {"cost_usd": 0.5, "tokens": 200, "calls": 1})
