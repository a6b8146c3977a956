"""Number of model calls for a thousand memories: one for each new group, none in a second run."""

from __future__ import annotations

from collections import Counter

import pytest

from consolidation_pipeline.llm import gateway
from consolidation_pipeline.llm.gateway import CircuitBreaker
from consolidation_pipeline_tests.openai_server import OpenAIServer
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.model_replies import shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

PARTS = (
    "the payment worker|the order importer|the session cache|the invoice renderer|the search indexer|"
    "the webhook sender|the mail queue|the report builder|the login form|the price service|the stock ledger|"
    "the audit log|the image resizer|the rate limiter|the feature flag client|the migration runner|"
    "the backup job|the metrics exporter|the chat gateway|the address validator"
).split("|")
FAULTS = (
    "dropped messages after a reconnect|kept a stale handle to the database|ran out of file descriptors|"
    "doubled every entry after a retry|ignored the time zone of the customer|leaked memory on every upload|"
    "lost updates when two workers raced|accepted an expired token|rounded amounts twice|sorted numbers as text"
).split("|")
# The first two merge, and each has a detail that the other lacks: a model words their merge.
WORDINGS = (
    "A dashboard shows it. Found that {0} {1}, which nobody had seen in the tests of the release for the shops.",
    "Found that {0} {1}, which nobody had seen in the tests of the release for the shops. Support wrote mails.",
    "Today we found that {0} {1}; a test now covers it, and the alarm for it rings after a minute.",
    "We found today that {0} {1}; a test now covers it, and the alarm for it rings after a minute.",
    "It turned out that {0} {1} because two settings contradicted each other in production.",
)
MODEL = {"llm_model": "openai/gpt-4o-mini", "budget_usd_per_run": 100, "budget_usd_per_day": 100}


def count_calls_by_schema(provider: OpenAIServer) -> Counter[str]:
    return Counter(request.body["response_format"]["json_schema"]["name"] for request in provider.requests)


@pytest.mark.slow
def test_thousand_memories_take_one_call_per_group(
    pipeline: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One of five texts of suggestions is refused: by chance, so many in a row that the model is not asked for more.
    monkeypatch.setattr(gateway, "CircuitBreaker", lambda model, _: CircuitBreaker(model, limit=1000))
    pipeline.configure_new(**MODEL, merge_style="rewrite")
    texts = [wording.format(part, fault) for part in PARTS for fault in FAULTS for wording in WORDINGS]
    assert len(texts) == 1000
    pipeline.add(note(f"n{at:04}", text, user_id="ann") for at, text in enumerate(texts))
    done = pipeline.run()
    calls = count_calls_by_schema(provider)
    merge_groups, new_patterns = done.clusters.groups["merge"], done.patterns.created + done.patterns.discarded
    assert done.merging.created == merge_groups > 50
    assert 0 < calls["MergeReply"] <= merge_groups
    assert calls["PatternReply"] == new_patterns == done.patterns.groups > 5
    assert calls["PrincipleReply"] == done.principles.groups
    # A refused text is asked for once more.
    assert calls["SuggestionReply"] == done.suggestions.created + done.suggestions.refused > 5
    # 50 chunks of 20, reduced in 3 and in 1; then one profile of one summary.
    assert (calls["SummaryReply"], calls["ProfileReply"]) == (54, 1)
    assert all(shown_memories(request) for request in provider.requests)
    assert pipeline.value("SELECT count(*) FROM {s}.llm_calls WHERE status <> 'reserved'") == calls.total()
    again = pipeline.run()
    assert (again.patterns.created, again.merging.created) == (0, 0)
    assert count_calls_by_schema(provider) == calls
