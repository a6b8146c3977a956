"""Parsing of replies: JSON inside any text, and explained schema errors."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from consolidation_pipeline.llm.reply_parsing import parse_reply, repair_messages, schema_rule
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.openai_server import truncate_half, wrap_in_markdown, wrap_in_prose


class Lesson(BaseModel):
    text: str
    confidence: float = Field(ge=0, le=1)


VALID_REPLY = json.dumps({"text": "use JWT", "confidence": 0.9})


@pytest.mark.parametrize(
    "reply",
    [
        VALID_REPLY,
        f"  \n{VALID_REPLY}\n",
        wrap_in_markdown(VALID_REPLY),
        wrap_in_prose(VALID_REPLY),
        wrap_in_prose(wrap_in_markdown(VALID_REPLY)),
        f"I first thought of {{}} but: {VALID_REPLY}",
        f"{json.dumps({'draft': 1})}\n{VALID_REPLY}",
        f"{VALID_REPLY} {VALID_REPLY}",
        f"[{VALID_REPLY}]",
        "{" * 5000 + VALID_REPLY,
    ],
)
def test_reply_object_is_found_in_prose(reply: str) -> None:
    assert parse_reply(reply, Lesson).value == Lesson(text="use JWT", confidence=0.9)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("", "the reply is empty"),
        ("   ", "the reply is empty"),
        ("I cannot help with that.", "no complete JSON object"),
        ("[1, 2]", "no complete JSON object"),
        (truncate_half(VALID_REPLY), "no complete JSON object"),
        ('{"lessons": [' + VALID_REPLY, "no complete JSON object"),
        ('{"text": "a", "confidence": NaN}', "no complete JSON object"),
        ('{"text": "a", "confidence": 1e999}', "not finite"),
        ('{"text": "a\\u0000b", "confidence": 1}', "NUL"),
        ('{"text": "a\\ud800b", "confidence": 1}', "half a surrogate"),
        ('{"text": "a", "confidence": 7}', "confidence: Input should be less than or equal to 1"),
        ('{"confidence": 1}', "text: Field required"),
    ],
)
def test_parse_problems_are_named(reply: str, problem: str) -> None:
    reading = parse_reply(reply, Lesson)
    assert reading.value is None
    assert problem in "; ".join(reading.problems)


def test_escaped_backslash_is_not_nul() -> None:
    reply = json.dumps({"text": r"write \u0000", "confidence": 1})
    assert parse_reply(reply, Lesson).value == Lesson(text=r"write \u0000", confidence=1)


def test_parse_rejects_deep_nesting() -> None:
    assert parse_reply('{"a":' * 100_000, Lesson).problems
    assert parse_reply("[" * 100_000, Lesson).problems


@settings(deadline=None, max_examples=examples(60))
@given(st.text(), st.text(alphabet=st.characters(exclude_characters='{"')), st.text())
def test_parse_survives_any_surrounding_text(text: str, before: str, after: str) -> None:
    clean = text.replace("\0", "")
    reply = before + json.dumps({"text": clean, "confidence": 0.5}) + after
    assert parse_reply(reply, Lesson).value == Lesson(text=clean, confidence=0.5)


def test_repair_messages_show_reply_and_problems() -> None:
    assistant, user = repair_messages("nonsense", ["text: Field required"])
    assert assistant == {"role": "assistant", "content": "nonsense"}
    assert "- text: Field required\n" in user["content"]
    assert repair_messages("", ["the reply is empty"])[0]["content"] == "(empty)"


def test_schema_rule_contains_schema() -> None:
    assert json.dumps(Lesson.model_json_schema()) in schema_rule(Lesson)
