"""The arguments that several tools take, with what agents are told of them.

Texts that may be left out are ``str`` with an empty default, never ``str | None``: the SDK reads text for any other
type as JSON first, and a note such as ``[1]`` would arrive as a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.core.memories.memories import LEVELS, MEMORY_TYPES


def _enum_schema(values: Iterable[Any]) -> dict[str, Any]:
    """The legal values, for the schema; the service refuses others and names these."""
    return {"items": {"enum": sorted(set(values))}}


Project = Annotated[
    str, Field(description="Slug of the project. Leave it out where the connection or the key is for one project.")
]
Reason = Annotated[str, Field(description="Why, in a sentence; it stands in the ledger.", max_length=1000)]
Levels = Annotated[
    list[int] | None,
    Field(
        description="Only these: 0 raw, 1 merged, 2 patterns and summaries, 3 principles and profiles.",
        json_schema_extra=_enum_schema(LEVELS.values()),
    ),
]
Types = Annotated[list[str] | None, Field(description="Only these memory types.")]
Kinds = Annotated[list[str] | None, Field(description=f"Only these kinds, of {', '.join(LEVELS)}.")]
Tags = Annotated[list[str] | None, Field(description="Only memories with any of these tags.")]
Since = Annotated[
    datetime | None,
    Field(description="Learned then or later: ISO 8601, UTC unless it has a zone; a day is its start."),
]
Until = Annotated[datetime | None, Field(description="Learned then or earlier; a day is its start.")]
MemoryType = Annotated[
    str,
    Field(
        description=f"What sort of lesson it is, one of {', '.join(MEMORY_TYPES)}.",
        json_schema_extra={"enum": list(MEMORY_TYPES)},
    ),
]
MemoryId = Annotated[UUID, Field(description="Its id, as a search returned it.")]
