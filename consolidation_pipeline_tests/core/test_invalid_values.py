"""Words for invalid values: the value, shortened, and what would be right."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from consolidation_pipeline.core.invalid_values import describe_errors, shorten_value


def _refuse(value: str) -> str:
    raise ValueError(f"{value} is not allowed: use another")


class Form(BaseModel):
    """A field of each kind that the models of this project have."""

    model_config = ConfigDict(extra="forbid")

    flag: bool = True
    text: Annotated[str, Field(min_length=1, max_length=1000)] = "x"
    count: Annotated[int, Field(ge=1, le=10)] = 1
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    id: UUID | None = None
    name: str | int | None = None
    time: datetime | None = None
    day: date | None = None
    names: Annotated[list[str], Field(min_length=1, max_length=2)] = ["x"]
    values: dict[str, Any] | None = None
    kind: Literal["raw", "merged"] = "raw"
    other: Annotated[str, AfterValidator(_refuse)] = ""
    form: Form | None = None


def describe(given: object) -> str:
    with pytest.raises(ValidationError) as refused:
        Form.model_validate(given)
    return describe_errors(refused.value.errors(), ["text", "count"])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"flag": "maybe"}, "flag: expected true or false, not 'maybe'"),
        ({"text": 5}, "text: expected text, not 5"),
        ({"text": None}, "text: expected text, not null"),
        ({"text": ""}, "text: expected 1 or more characters, not ''"),
        ({"text": "x" * 1001}, "text: expected at most 1,000 characters, not 1,001"),
        ({"text": "\udcff"}, "text: expected valid Unicode, not '\\udcff'"),
        ({"count": "many"}, "count: expected a whole number, not 'many'"),
        ({"count": 1.5}, "count: expected a whole number, not 1.5"),
        ({"count": 0}, "count: expected a number >= 1, not 0"),
        ({"count": 11}, "count: expected a number <= 10, not 11"),
        ({"count": 10**5000}, "count: expected a number <= 10, not ..."),
        ({"share": "x" * 99}, f"share: expected a number, not '{'x' * 76}..."),
        ({"share": float("nan")}, "share: expected a finite number, not nan"),
        ({"share": 0}, "share: expected a number > 0.0, not 0"),
        ({"share": 1}, "share: expected a number < 1.0, not 1"),
        ({"id": "xyz"}, "id: expected an id (UUID), not 'xyz'"),
        ({"name": [1]}, "name: expected text or a whole number, not [1]"),
        ({"time": "soon"}, "time: expected an ISO 8601 time, not 'soon'"),
        ({"day": "soon"}, "day: expected a day such as 2026-01-31, not 'soon'"),
        ({"names": "x"}, "names: expected a list, not 'x'"),
        ({"names": []}, "names: expected 1 or more items, not 0"),
        ({"names": ["a", "b", "c"]}, "names: expected at most 2 items, not 3"),
        ({"names": ["a", 2]}, "names.1: expected text, not 2"),
        ({"values": 3}, "values: expected an object, not 3"),
        ({"kind": "pdf"}, "kind: expected 'raw' or 'merged', not 'pdf'"),
        ({"other": "x"}, "other: x is not allowed: use another"),
        ({"form": 3}, "form: expected an object, not 3"),
        (
            {"form": {"count": 0}, "flag": 3},
            "flag: expected true or false, not 3; form.count: expected a number >= 1, not 0",
        ),
        ({"texts": "x"}, "texts: unknown field; known are count, text"),
        (3, "expected an object, not 3"),
    ],
)
def test_invalid_value_is_told_in_own_words(given: object, problem: str) -> None:
    assert describe(given) == problem


def test_missing_field_and_broken_json_are_told() -> None:
    class Needed(BaseModel):
        text: str

    for json, problem in (("{}", "text: it is missing"), ("{", "it is no JSON: EOF while parsing an object at line 1")):
        with pytest.raises(ValidationError) as refused:
            Needed.model_validate_json(json)
        assert describe_errors(refused.value.errors()).startswith(problem)


def test_shown_value_is_short() -> None:
    assert shorten_value("x" * 1000) == f"'{'x' * 76}..."
    assert shorten_value(10**5000) == "..."
