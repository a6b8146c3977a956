"""Overview of a connected store: what was read, what would be written, and what was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import parse_scope
from consolidation_pipeline.service.sources.connections import describe_table
from consolidation_pipeline.service.sources.write_plan import PlannedWrite, plan_writes
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.sources.source_overview import (
    ListedWrite,
    count_rows,
    count_scopes,
    count_writes,
    list_last_writes,
)
from consolidation_pipeline.store.sources.sources import Source


@dataclass(frozen=True)
class ListedScope:
    """Rows of one scope of a store. ``name``: its values in words."""

    name: str
    shown: int
    hidden: int


@dataclass(frozen=True)
class SourceOverview:
    """A connected store in numbers and lists.

    ``rows``: number by state. ``scopes``: the largest of ``scope_count``. ``waiting``: groups that can be written now.
    ``writes``: number by status. ``refused``: the last refusals, with the figures of the recall gate.
    """

    source: Source
    table: str
    rows: Mapping[str, int]
    scope_count: int
    scopes: Sequence[ListedScope]
    waiting: Sequence[PlannedWrite]
    writes: Mapping[str, int]
    last_writes: Sequence[ListedWrite]
    refused: Sequence[ListedWrite]


def describe_source(engine: Engine, source: Source, *, limit: int) -> SourceOverview:
    """Return the overview of a connected store, with up to ``limit`` entries in each list. The store is not read."""
    with engine.connect() as connection:
        option = parse_options(get_project(connection, source.project).config).scope
        count, scopes = count_scopes(connection, source.id, scope=option, limit=limit)
        return SourceOverview(
            source,
            describe_table(source),
            count_rows(connection, source.id),
            count,
            [ListedScope(_name_scope(one.key, option), one.shown, one.hidden) for one in scopes],
            plan_writes(engine, source.name),
            count_writes(connection, source.id),
            list_last_writes(connection, source.id, ["written"], limit=limit),
            list_last_writes(connection, source.id, ["refused"], limit=limit),
        )


def _name_scope(key: str | None, option: str) -> str:
    """Return a scope key as ``user_id alice, agent_id planner``."""
    fields = parse_scope(option)
    if not fields or key is None:
        return "the whole project"
    values = [key] if len(fields) == 1 else [part.replace("~1", "/").replace("~0", "~") for part in key.split("/")]
    named = [
        f"{field.removeprefix('metadata.')} {value}" for field, value in zip(fields, values, strict=False) if value
    ]
    return ", ".join(named) or "no scope"
