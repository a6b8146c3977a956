"""Keys do not stand in what is stored or shown."""

import pytest

from consolidation_pipeline.llm.redaction import redact


def test_given_keys_those_of_the_environment_and_what_looks_like_one_are_taken_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "from-the-environment")
    text = f"given-key from-the-environment sk-abcdefghijklmnop1234 cnsl_{'A' * 43} Bearer xyz.123"
    assert redact(text, ["given-key"]) == "[redacted] [redacted] [redacted] [redacted] Bearer [redacted]"


def test_other_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHORT_TOKEN", "on")
    assert redact("sk-learn is on, use key-value stores") == "sk-learn is on, use key-value stores"
