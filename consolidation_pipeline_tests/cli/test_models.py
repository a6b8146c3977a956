"""Warnings about models in `projects configure`, and the check of `doctor`."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.cli.conftest import Cli
from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_error, reply_with_json, reply_with_text
from consolidation_pipeline_tests.service.conftest import provider as provider


def find_check(cli: Cli, *options: str) -> list[tuple[str, str]]:
    """Return status and message of the findings of `doctor` on language models."""
    checks = cli("doctor", *options, "--json").json["checks"]
    return [(one["status"], one["message"]) for one in checks if one["check"] == "language model"]


def test_configure_tells_of_unknown_models(cli: Cli, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("projects", "create", "p").code == 0
    known = cli("projects", "configure", "p", "llm_model=openai/gpt-4o-mini")
    assert (known.code, known.err) == (0, "")
    unknown = cli("projects", "configure", "p", "llm_model=openai/gpt-9-nonsense")
    assert unknown.code == 0
    assert "warning: openai/gpt-9-nonsense is in no price list: check its name; a model of your own" in unknown.err
    refused = cli("projects", "configure", "p", "llm_model=gpt-9-nonsense")
    assert refused.code == 2
    assert "llm_model = gpt-9-nonsense names no provider that litellm knows: write PROVIDER/MODEL" in refused.err
    monkeypatch.delenv("OPENAI_API_KEY")
    without_key = cli("projects", "create", "q", "llm_model=openai/gpt-4o-mini")
    assert (without_key.code, "OPENAI_API_KEY is not set here" in without_key.err) == (0, True)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    blank_key = cli("projects", "create", "r", "llm_model=openai/gpt-4o-mini")
    assert (blank_key.code, "OPENAI_API_KEY is not set here" in blank_key.err) == (0, True)
    assert provider.requests == []


@pytest.mark.slow
def test_doctor_checks_and_asks_models(cli: Cli, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_check(cli) == [("ok", "none is configured: texts are extracted, which costs nothing")]
    assert cli("projects", "create", "p", "llm_model=openai/gpt-4o-mini").code == 0
    [(status, message)] = find_check(cli)
    assert (status, "`consolidation doctor --ask-models` does" in message, provider.requests) == ("ok", True, [])
    provider.behaviour = reply_with_json(lambda _: {"answer": "yes"})
    assert find_check(cli, "--ask-models") == [("ok", "openai/gpt-4o-mini answers; that cost $0.000027")]
    provider.behaviour = reply_with_text("Lorem ipsum.")
    [(status, message)] = find_check(cli, "--ask-models")
    assert (status, "unusable replies" in message) == ("problem", True)
    provider.behaviour = reply_with_error(401)
    [(status, message)] = find_check(cli, "--ask-models")
    assert (status, "test error with status 401" in message, "phase" in message) == ("problem", True, False)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert [status for status, _ in find_check(cli)] == ["warning"]
