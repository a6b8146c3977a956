"""Query parameters of the pages. An empty choice in a form means no filter."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import Query
from pydantic import AfterValidator, BeforeValidator, Field

from consolidation_pipeline.api.models.base import MAX_REFERENCE_CHARS, check_text
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.store.database.schema import OPERATIONS


def _empty_to_none(value: object) -> object:
    return None if value == "" else value


def _check_choice(values: Collection[str], value: str) -> str:
    if value and value not in values:
        raise ValueError(f"must be one of {', '.join(values)}")
    return value


ProjectChoice = Annotated[str, AfterValidator(check_text), Query(max_length=MAX_REFERENCE_CHARS)]
TypeChoice = Annotated[str, AfterValidator(partial(_check_choice, MEMORY_TYPES)), Query(max_length=MAX_REFERENCE_CHARS)]
OperationChoice = Annotated[
    str, AfterValidator(partial(_check_choice, OPERATIONS)), Query(max_length=MAX_REFERENCE_CHARS)
]
DifferenceChoice = Annotated[str, AfterValidator(check_text), Query(max_length=200)]
QueuePosition = Annotated[int, Query(ge=0, le=2**31 - 1)]
PageNumber = Annotated[int, Query(ge=1, le=10**7)]
MinScore = Annotated[Annotated[float, Field(ge=0, le=1)] | None, BeforeValidator(_empty_to_none), Query()]
DayChoice = Annotated[date | None, BeforeValidator(_empty_to_none), Query()]


def start_of_day(day: date | None) -> datetime | None:
    """Return the first moment of a day, UTC."""
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


def end_of_day(day: date | None) -> datetime | None:
    """Return the first moment after a day, UTC; None for the last possible date."""
    if day is None or day == date.max:
        return None
    return start_of_day(day + timedelta(days=1))


def resolve_local_path(path: str, *, default: str = "") -> str:
    """Return the path if it is on this site, else ``default``: ``//elsewhere`` and ``/\\elsewhere`` are not."""
    is_local = path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()
    return path if is_local else default
