"""`cost`, and exit codes of `run` with an exhausted budget."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.cli.run import _get_exit_code
from consolidation_pipeline.llm.gateway import CONCURRENCY
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline_tests.cli.conftest import RECENT, Cli, Write
from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_error, reply_with_json
from consolidation_pipeline_tests.service.conftest import provider as provider
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, WEBHOOKS
from consolidation_pipeline_tests.service.model_replies import reply_by_schema

OPTIONS = ("t_merge=0.8", "t_suggest=0.75", "t_pattern=0.5", "archive=false", "llm_model=openai/gpt-4o-mini")


def make(cli: Cli, write: Write, slug: str, *options: str) -> None:
    """Create a project of two topics."""
    rows = [{"id": f"n{at}", "content": t, "created_at": RECENT} for at, t in enumerate([*WEBHOOKS, *MIGRATIONS])]
    assert cli("import", write(*rows), "--project", slug).code == 0
    assert cli("projects", "configure", slug, *OPTIONS, *options).code == 0


@pytest.mark.slow
def test_run_stopped_by_budget_exits_with_4(cli: Cli, write: Write, provider: OpenAIServer) -> None:
    make(cli, write, "p", "budget_usd_per_run=0")
    answer = cli("run", "p")
    assert (answer.code, provider.requests) == (4, [])
    assert "p: completed" in answer.out
    (line,) = [line for line in answer.err.splitlines() if "budget" in line]
    assert line.startswith("p: pattern ended early: pattern was not sent to openai/gpt-4o-mini: ")
    assert "budget_usd_per_run is 0 USD: 0 USD are spent or reserved" in line
    assert line.endswith("raise it with `consolidation projects configure p budget_usd_per_run=..`")
    cli("projects", "configure", "p", "budget_usd_per_run=1")
    again = cli("run", "p", "--phases", "patterns", "--json")
    assert (again.code, again.json["stopped"], again.json["metrics"]["patterns"]["patterns_updated"]) == (0, [], 2)
    assert again.json["metrics"]["patterns"]["llm/calls"] == 2


@pytest.mark.slow
def test_run_with_failing_model_exits_with_5(cli: Cli, write: Write, provider: OpenAIServer) -> None:
    make(cli, write, "p")
    provider.behaviour = reply_with_error(401)
    answer = cli("run", "p")
    assert (answer.code, len(provider.requests) <= 4 * CONCURRENCY) == (5, True)
    (line,) = [line for line in answer.err.splitlines() if "pattern: 2 made without the model" in line]
    assert line.startswith("p: pattern: 2 made without the model, which failed: openai/gpt-4o-mini takes no requests")
    assert "without the model" in answer.out
    assert "2 (pattern)" in answer.out
    assert "p: $0.0000 spent on models, 0 tokens" in cli("cost", "p").out
    for command in ("status", "metrics"):
        assert "pattern: 2 made without the model" in " ".join(cli(command, "p").out.split())
    shown = cli("metrics", "p", "--json").json
    assert (shown["model_failures"][0]["groups"], shown["by_kind"]["pattern"]) == (2, 2)
    provider.behaviour = reply_with_json(reply_by_schema)
    again = cli("run", "p", "--json")
    assert (again.code, again.json["failing"]) == (0, [])
    assert cli("metrics", "p", "--json").json["model_failures"] == []


@pytest.mark.slow
def test_run_without_embedding_budget_fails_with_4(cli: Cli, write: Write, provider: OpenAIServer) -> None:
    make(cli, write, "p", "budget_tokens_per_run=0", "embedding_model=openai/text-embedding-3-small")
    answer = cli("run", "p", "--json")
    assert (answer.code, answer.json["status"], provider.requests) == (4, "failed", [])
    assert answer.json["phases_failed"] == ["embedding_matrix"]
    assert answer.json["stopped"][0]["by"] == "budget"
    assert "budget_tokens_per_run is 0" in answer.json["error"]
    assert "projects configure p budget_tokens_per_run=.." in answer.err


def outcome(
    status: str,
    *,
    failed: tuple[str, ...] = (),
    stopped: tuple[tuple[str, str], ...] = (),
    failing: tuple[str, ...] = (),
    **metrics: str,
) -> dict[str, Any]:
    stops = [{"purpose": purpose, "by": by, "reason": "why"} for purpose, by in stopped]
    without_model = [{"purpose": purpose, "groups": 1, "reason": "why"} for purpose in failing]
    phases = {"phases_failed": list(failed), "stopped": stops, "failing": without_model}
    return {"status": status, **phases, "metrics": dict(metrics)}


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (outcome("completed"), 0),
        (outcome("unchanged"), 0),
        (outcome("completed", failing=("pattern",)), 5),
        (outcome("completed", stopped=(("pattern", "model"),)), 5),
        (outcome("completed", stopped=(("pattern", "budget"),)), 4),
        (outcome("completed", stopped=(("pattern", "model"), ("merged_memories", "budget"))), 5),
        (outcome("failed", failed=("embedding_matrix",), stopped=(("embedding_matrix", "budget"),)), 4),
        (outcome("failed", failed=("clusters",), stopped=(("pattern", "budget"),)), 1),
        (outcome("failed", stopped=(("pattern", "budget"),)), 1),
        (outcome("failed", failed=("clusters",)), 1),
        (outcome("cancelled"), 130),
        (outcome("cancelled", cancelled_by="somebody"), 1),
    ],
)
def test_run_exit_code_follows_outcome(run: dict[str, Any], code: int) -> None:
    assert _get_exit_code(run) == code


@pytest.mark.slow
def test_costs_are_shown_by_day_model_purpose_and_job(cli: Cli, write: Write, provider: OpenAIServer) -> None:
    make(cli, write, "p")
    empty = cli("cost", "p")
    assert (empty.code, empty.out.splitlines()[0].startswith("p: $0.0000 spent on models, 0 tokens")) == (0, True)
    assert cli("run", "p", "--phases", ",".join(PHASES[: PHASES.index("patterns") + 1])).code == 0
    answer = cli("cost", "p", "--days", "7")
    assert (answer.code, answer.err) == (0, "")
    for title in ("by day", "by model", "by purpose", "by job"):
        assert title in answer.out
    assert "openai/gpt-4o-mini" in answer.out
    assert "(completed)" in answer.out
    assert "left of $5.0000" in answer.out
    found = cli("cost", "p", "--json").json
    assert (found["total"]["calls"], found["by_purpose"][0]["purpose"]) == (len(provider.requests), "pattern")
    assert found["today"]["left_usd"] == pytest.approx(5 - found["total"]["cost_usd"])
