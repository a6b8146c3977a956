"""Prometheus metrics and the alert rules that use them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from consolidation_pipeline.api.metrics import PrometheusMetrics
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline.store.admin import monitoring
from consolidation_pipeline_tests.api.conftest import ApiContext
from consolidation_pipeline_tests.service.pipeline_runner import SLUG

AGE_JOBS = "UPDATE {s}.consolidation_jobs SET created_at = now() - interval '1 hour', duration_seconds = 42"


def read_samples(metrics: PrometheusMetrics) -> dict[str, float]:
    """Return each sample by its name and label values."""
    families = text_string_to_metric_families(metrics.read().decode())
    samples = [sample for family in families for sample in family.samples]
    return {"".join([sample.name, *sorted(sample.labels.values())]): sample.value for sample in samples}


def add_llm_call(api: ApiContext, status: str, usd: float | None, tokens: int) -> None:
    insert = (
        "INSERT INTO {s}.llm_calls (project_id, purpose, model, prompt_hash, status, prompt_tokens, "
        "completion_tokens, reserved_usd, cost_usd) VALUES (:of, 'pattern', 'm', 'h', :status, :sent, 7, 0.5, :usd)"
    )
    api.pipeline.write(insert, of=api.pipeline.project().id, status=status, sent=tokens, usd=usd)


@pytest.fixture
def api_with_jobs(api: ApiContext) -> ApiContext:
    """A job that ran for 42 s, one pending for an hour, and three LLM calls, one of them unsettled."""
    api.pipeline.write("DELETE FROM {s}.llm_calls")
    api.client("admin").post("/api/v1/jobs", json={"project": SLUG})
    api.pipeline.write(AGE_JOBS)
    for status, usd, tokens in (("settled", 0.25, 100), ("failed", 0.05, 10), ("reserved", None, 1000)):
        add_llm_call(api, status, usd, tokens)
    return api


def test_prometheus_metrics_equal_row_counts(api_with_jobs: ApiContext) -> None:
    samples = read_samples(PrometheusMetrics(api_with_jobs.pipeline.engine))
    assert 3600 <= samples["consolidation_pending_job_oldest_seconds"] < 4200
    assert (samples["consolidation_jobspending"], samples["consolidation_jobscompleted"]) == (1, 1)
    assert (samples["consolidation_run_seconds_count"], samples["consolidation_run_seconds_sum"]) == (1, 42)
    assert (samples["consolidation_run_seconds_bucket30.0"], samples["consolidation_run_seconds_bucket60.0"]) == (0, 1)
    assert samples["consolidation_llm_cost_dollars_total"] == pytest.approx(0.3)
    assert samples["consolidation_llm_reserved_dollars"] == 0.5
    tokens = [samples[f"consolidation_llm_tokens_total{direction}"] for direction in ("sent", "received")]
    assert tokens == [110, 14]
    assert (samples["consolidation_llm_calls_totalsettled"], samples["consolidation_llm_calls_totalcached"]) == (1, 0)
    assert samples["consolidation_suggestions_waiting"] == 0


def test_metric_counters_are_cached_and_never_fall(api_with_jobs: ApiContext) -> None:
    metrics = PrometheusMetrics(api_with_jobs.pipeline.engine)
    first = read_samples(metrics)
    write = api_with_jobs.pipeline.write
    write("UPDATE {s}.llm_calls SET status = 'settled', cost_usd = 0.1 WHERE status = 'reserved'")
    write("UPDATE {s}.consolidation_jobs SET status = 'cancelled' WHERE status = 'pending'")
    then, other = read_samples(metrics), read_samples(PrometheusMetrics(api_with_jobs.pipeline.engine))
    assert then["consolidation_llm_cost_dollars_total"] == first["consolidation_llm_cost_dollars_total"]
    assert (then["consolidation_jobspending"], then["consolidation_pending_job_oldest_seconds"]) == (0, 0)
    assert other["consolidation_llm_cost_dollars_total"] == pytest.approx(0.4)


def test_large_memory_tables_are_estimated(api: ApiContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with api.pipeline.engine.connect() as connection:
        counted = monitoring.estimate_memories(connection)
        monkeypatch.setattr(monitoring, "MAX_COUNTED_BYTES", 0)
        api.pipeline.write("ANALYZE {s}.task_memories")
        assert monitoring.estimate_memories(connection) == pytest.approx(counted, abs=1)
    assert counted["active"] > 1 < counted["consolidated"]


def test_alert_rules_name_existing_metrics(api: ApiContext) -> None:
    samples = yaml.safe_load((PROJECT_ROOT / "deploy" / "prometheus-alerts.yml").read_text())
    rules: list[dict[str, Any]] = [rule for group in samples["groups"] for rule in group["rules"]]
    assert len(rules) > 5
    assert all({"alert", "expr", "labels", "annotations"} <= rule.keys() for rule in rules)
    metrics = PrometheusMetrics(api.pipeline.engine)
    metrics.count("GET", "/", 200, 0.1)
    known = set(re.findall(r"^(\w+)", metrics.read().decode(), flags=re.MULTILINE))
    assert {name for rule in rules for name in re.findall(r"consolidation_\w+", rule["expr"])} <= known
