"""Redaction of API keys in stored and displayed texts."""

import pytest

from consolidation_pipeline.llm.redaction import redact


def test_redact_removes_known_and_likely_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "from-the-environment")
    text = f"given-key from-the-environment sk-abcdefghijklmnop1234 cnsl_{'A' * 43} Bearer xyz.123"
    assert redact(text, ["given-key"]) == "[redacted] [redacted] [redacted] [redacted] Bearer [redacted]"


def test_redact_keeps_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_TOKEN", "on")
    assert redact("sk-learn is on, use key-value stores") == "sk-learn is on, use key-value stores"
