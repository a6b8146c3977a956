"""What bodies and parameters have in common: strict, finite, and free of what no database can hold."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

# As long as a slug or an id may be, with room for one that is wrong and is told so.
MAX_REFERENCE_CHARS = 100


def check_text(text: str) -> str:
    """The text, which Postgres can store. ValueError: it holds a NUL or half a surrogate pair."""
    if "\0" in text:
        raise ValueError("must not contain NUL (U+0000)")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode: it contains half a surrogate pair") from None
    return text


def _check_values(value: Any) -> None:
    """Check everything inside a body, however deep: options and metadata are free in form."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            check_text(one)
        elif isinstance(one, float) and not math.isfinite(one):
            raise ValueError("numbers must be finite")
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one


class Body(BaseModel):
    """The body of a request: unknown fields are refused, and so is text that cannot be stored."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_everything(cls, data: Any) -> Any:
        _check_values(data)
        return data


class Reply(BaseModel):
    """The body of a reply. Services may know more than the API promises: what is not named here is left out."""

    model_config = ConfigDict(from_attributes=True)


Text = Annotated[str, AfterValidator(check_text)]
Reason = Annotated[str | None, Field(max_length=1000, description="Why; stands in the ledger.")]
ProjectReference = Annotated[
    str,
    AfterValidator(check_text),
    Field(
        min_length=1, max_length=MAX_REFERENCE_CHARS, description="The project: its slug or its id.", examples=["notes"]
    ),
]
ProjectPath = Annotated[
    str,
    AfterValidator(check_text),
    Path(alias="project", min_length=1, max_length=MAX_REFERENCE_CHARS, description="The project: its slug or its id."),
]
Limit = Annotated[int, Query(ge=1, le=100, description="At most so many.")]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1, description="Leave out so many, the newest ones.")]
IdList = Annotated[list[UUID], Field(min_length=1, max_length=1000, description="At most 1000.")]


def with_examples(*examples: Any) -> ConfigDict:
    """A model's configuration with examples for OpenAPI."""
    return ConfigDict(json_schema_extra={"examples": list(examples)})


def enum_schema(values: Iterable[str]) -> dict[str, Any]:
    """Schema of a text that is one of these: told to clients, while the service does the refusing."""
    return {"enum": list(values)}
