"""Base models and shared parameter types: strict, finite numbers, only text that Postgres can store."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Query
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, model_validator

# Longer than any slug or id, so that a wrong one gets a helpful message.
MAX_REFERENCE_CHARS = 100


def check_text(text: str) -> str:
    """Return the text. Raise ValueError if Postgres cannot store it: a NUL or half of a surrogate pair."""
    if "\0" in text:
        raise ValueError("must not contain NUL (U+0000)")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode: it contains half of a surrogate pair") from None
    return text


def _check_values(value: Any) -> None:
    """Check all texts and numbers in a body, at any depth: options and metadata are free-form."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            check_text(one)
        elif isinstance(one, float) and not math.isfinite(one):
            raise ValueError("numbers must be finite")
        elif isinstance(one, dict):
            stack += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            stack += one


class Body(BaseModel):
    """Base of request bodies. Rejects unknown fields and text that cannot be stored."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_everything(cls, data: Any) -> Any:
        _check_values(data)
        return data


class Reply(BaseModel):
    """Base of response bodies. Fields of the service's result that the model lacks are dropped."""

    model_config = ConfigDict(from_attributes=True)


Text = Annotated[str, AfterValidator(check_text)]
Reason = Annotated[str | None, Field(max_length=1000, description="Reason, recorded in the ledger.")]
# ``project_id`` is an older name.
ProjectReference = Annotated[
    Text,
    Field(
        validation_alias=AliasChoices("project", "project_id"),
        min_length=1,
        max_length=MAX_REFERENCE_CHARS,
        description="Slug or id of the project.",
        examples=["notes"],
    ),
]
ProjectPath = Annotated[
    Text,
    Path(alias="project", min_length=1, max_length=MAX_REFERENCE_CHARS, description="Slug or id of the project."),
]
Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
ListLimit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1, description="Number of items to skip.")]
IdList = Annotated[list[UUID], Field(min_length=1, max_length=1000, description="At most 1000.")]


def with_examples(*examples: Any) -> ConfigDict:
    """Return a model configuration with examples for OpenAPI."""
    return ConfigDict(json_schema_extra={"examples": list(examples)})


def enum_schema(values: Iterable[str]) -> dict[str, Any]:
    """Return the JSON schema of a text with these values. Only for clients: the service rejects other values."""
    return {"enum": list(values)}
