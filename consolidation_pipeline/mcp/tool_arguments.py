"""Argument types that several tools share, with their descriptions for agents.

Optional texts are ``str`` with an empty default, never ``str | None``. The SDK parses text for any other type as JSON
first, so a note such as ``[1]`` would arrive as a list.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field
from pydantic.config import JsonDict

from consolidation_pipeline.core.memories.memories import LEVELS, MEMORY_TYPES

Project = Annotated[
    str,
    Field(
        description="Slug or id of the project. May be left out if the connection or the key is bound to one project."
    ),
]
Reason = Annotated[str, Field(description="Reason, in one sentence; recorded in the ledger.", max_length=1000)]
SessionId = Annotated[
    str, Field(description="Your session, if you connect as an admin: each counts apart.", max_length=200)
]
Levels = Annotated[
    list[int] | None,
    Field(
        description="Only these levels: 0 raw, 1 merged, 2 pattern and summary, 3 principle and profile.",
        # Only for clients: the service rejects other values, with a message that names these.
        json_schema_extra={"items": {"enum": sorted(set(LEVELS.values()))}},
    ),
]
Types = Annotated[list[str] | None, Field(description="Only these memory types.")]
Kinds = Annotated[list[str] | None, Field(description=f"Only these kinds: {', '.join(LEVELS)}.")]
Tags = Annotated[list[str] | None, Field(description="Only memories with at least one of these tags.")]
Since = Annotated[
    datetime | None,
    Field(description="Learned at this time or later: ISO 8601, UTC if no zone is given. A date means its start."),
]
Scope = Annotated[
    str,
    Field(
        description="Key of a scope, usually the id of the user you work for: only memories of it and of no scope in "
        "particular. Leave it out to read all scopes."
    ),
]
AsOf = Annotated[
    str,
    Field(description="What was known then: a day (to its end) or an ISO 8601 time, not in the future. Counts no use."),
]
Until = Annotated[datetime | None, Field(description="Learned at this time or earlier. A date means its start.")]
MemoryType = Annotated[
    str,
    Field(
        description=f"Type of the lesson: {', '.join(MEMORY_TYPES)}.",
        json_schema_extra={"enum": list(MEMORY_TYPES)},
    ),
]
# Whole, or as a context tells it. Only for clients: the service rejects others, and says what is right.
_ID_PATTERN: JsonDict = {"pattern": r"^[0-9A-Fa-f-]{8,36}$"}
MemoryId = Annotated[
    str,
    Field(
        description="Id of a memory or playbook entry, as a search or context returned it, or at least its first 8 "
        "digits.",
        json_schema_extra=_ID_PATTERN,
    ),
]
MemoryIds = Annotated[
    list[Annotated[str, Field(json_schema_extra=_ID_PATTERN)]],
    Field(
        description="Ids of memories and playbook entries from search or context, or at least their first 8 digits.",
        min_length=1,
        max_length=100,
    ),
]
