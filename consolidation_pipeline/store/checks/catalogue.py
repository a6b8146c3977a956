"""All checks of the rows of a project."""

from __future__ import annotations

from consolidation_pipeline.store.checks import (
    archives,
    groups,
    knowledge,
    memories,
    merged_memories,
    relations,
    sources,
)
from consolidation_pipeline.store.checks.check import Check

CHECKS: tuple[Check, ...] = tuple(
    found
    for module in (memories, groups, merged_memories, relations, archives, knowledge, sources)
    for found in vars(module).values()
    if isinstance(found, Check)
)
