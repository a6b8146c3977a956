"""One project as pandas DataFrames, for notebooks and pipelines. docs/frames.md describes each column.

    from consolidation_pipeline import frames

    memories = frames.memories("shop")

Every function takes ``engine``: the URL of a Postgres, a SQLAlchemy engine, or None = the store of the environment, as
for the command line. It raises NotFoundError for an unknown project. It makes one query in a read-only transaction.

The dtype of a column does not depend on the data. Ids are text (UUIDs, as ``lineage`` and ``rollback`` take them),
times are ``datetime64[us, UTC]``, closed sets of words are categories, columns that may have missing values are
nullable, and columns of lists or mappings are ``object``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
from pydantic import SecretStr

from consolidation_pipeline.core.memories.memories import LEVELS, MEMORY_TYPES
from consolidation_pipeline.settings import IS_INSTALLED, PROJECT_ROOT, Settings
from consolidation_pipeline.store.admin import frames as store
from consolidation_pipeline.store.database.engine import Connection, Engine, connect, open_engine
from consolidation_pipeline.store.database.schema import METHODS, OPERATIONS, PATTERN_TYPES, SUGGESTION_STATUSES, TIERS
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED
from consolidation_pipeline.store.ledger.lineage import MEMORY_STATUSES
from consolidation_pipeline.store.projects import get_project

__all__ = ["changes", "costs", "groups", "memories", "pairs", "suggestions"]

Dtypes = Mapping[str, Any]


def _one_of(words: Iterable[str], *, ordered: bool = False) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(list(words), ordered=ordered)


# Not Arrow's strings: they would copy an id for each of its pairs, and not every environment has them.
_TEXT = pd.StringDtype("python")
_TIME = pd.DatetimeTZDtype("us", "UTC")
# In the order of the graph's codes TOPIC, ASK and MERGE.
_VERDICTS = ("topic", "ask", "merge")
_ENTITY_TYPES = (*LEDGERED, "consolidation_changes")

MEMORIES: Dtypes = {
    "id": _TEXT,
    "kind": _one_of(LEVELS),
    "level": "int64",
    "status": _one_of(MEMORY_STATUSES),
    "memory_type": _one_of(MEMORY_TYPES),
    "pattern_type": _one_of(PATTERN_TYPES),
    "content": _TEXT,
    "goal": _TEXT,
    "result": _TEXT,
    "lessons_learned": _TEXT,
    "feedback": _TEXT,
    "tags": "object",
    "source": _TEXT,
    "external_id": _TEXT,
    "task_id": _TEXT,
    "user_id": _TEXT,
    "agent_id": _TEXT,
    "session_id": _TEXT,
    "success": "boolean",
    "importance": "float64",
    "pinned": "bool",
    "relevance_score": "Float64",
    "confidence_score": "Float64",
    "consolidation_method": _one_of(METHODS),
    "needs_review": "bool",
    "reuse_count": "int64",
    "source_count": "Int64",
    "source_ids": "object",
    "successor_id": _TEXT,
    "summary_id": _TEXT,
    "archive_reason": _TEXT,
    "learned_at": _TIME,
    "created_at": _TIME,
    "last_accessed_at": _TIME,
    "retired_at": _TIME,
    "language": _TEXT,
    "embedding_model": _TEXT,
    "version": "int64",
}
_VECTOR: Dtypes = {"vector": "object"}

PAIRS: Dtypes = {
    "a": _TEXT,
    "b": _TEXT,
    "similarity": "float32",
    "verdict": _one_of(_VERDICTS, ordered=True),
    "embedding_model": _TEXT,
}

GROUPS: Dtypes = {
    "tier": _one_of(TIERS),
    "key": _TEXT,
    "size": "int64",
    "merged_members": "int64",
    "representative_id": _TEXT,
    "member_ids": "object",
    "cohesion_mean": "Float64",
    "cohesion_min": "Float64",
    "asked_pairs": "object",
    "job_id": _TEXT,
}

SUGGESTIONS: Dtypes = {
    "id": _TEXT,
    "key": _TEXT,
    "status": _one_of(SUGGESTION_STATUSES),
    "memory_ids": "object",
    "similarity": "Float64",
    "content": _TEXT,
    "rationale": _TEXT,
    "reviewed_by": _TEXT,
    "review_note": _TEXT,
    "result_id": _TEXT,
    "created_at": _TIME,
    "reviewed_at": _TIME,
}

CHANGES: Dtypes = {
    "seq": "int64",
    "id": _TEXT,
    "group_id": _TEXT,
    "job_id": _TEXT,
    "operation": _one_of(OPERATIONS),
    "entity_type": _one_of(_ENTITY_TYPES),
    "entity_id": _TEXT,
    "version_before": "Int64",
    "version_after": "Int64",
    "reason": _TEXT,
    "confidence": "Float64",
    "changed_by": _TEXT,
    "changed_at": _TIME,
    "reverts_change_id": _TEXT,
    "undone": "bool",
}
_IMAGES: Dtypes = {"previous_state": "object", "new_state": "object"}

COSTS: Dtypes = {
    "day": _TIME,
    "model": _TEXT,
    "purpose": _TEXT,
    "calls": "int64",
    "failed": "int64",
    "cached": "int64",
    "reserved": "int64",
    "tokens": "int64",
    "cost_usd": "float64",
    "reserved_usd": "float64",
}


def memories(project: str, *, engine: Engine | str | None = None, vectors: bool = False) -> pd.DataFrame:
    """Return all raw and consolidated memories, lowest level first, each level oldest first.

    Args:
        vectors: Add the column ``vector``: a float32 array (d,) of length 1, or None. ``np.stack`` makes a matrix of
            the arrays of one ``embedding_model``.
    """
    with _opened(engine, project) as (connection, id_):
        found = store.stream_memories(connection, id_, vectors=vectors)
        return _frame(found, {**MEMORIES, **(_VECTOR if vectors else {})})


def pairs(project: str, *, engine: Engine | str | None = None, at_least: float = -1.0) -> pd.DataFrame:
    """Return the pairs of the similarity graph, the most similar first.

    A pair is two raw memories, ``a`` < ``b``, with a cosine of at least the pattern threshold and ``at_least``. One of
    several exact repeats represents all. ``verdict`` is ``merge``, ``ask`` (a person decides) or ``topic`` (on one
    topic). Of two memory types, only pairs to ``ask`` about are stored unless ``cross_type`` is on.
    """
    with _opened(engine, project) as (connection, id_):
        found = store.load_pairs(connection, id_, at_least=at_least)
    # All pairs of an id share its text.
    ids = pd.array(found.ids, dtype=_TEXT)
    return pd.DataFrame(
        {
            "a": ids.take(found.a),
            "b": ids.take(found.b),
            "similarity": found.similarity,
            "verdict": pd.Categorical.from_codes(found.verdict, dtype=PAIRS["verdict"]),
            "embedding_model": pd.array(found.model, dtype=_TEXT),
        }
    )


def groups(project: str, *, engine: Engine | str | None = None) -> pd.DataFrame:
    """Return the groups that the newest run formed, tier by tier, the largest first.

    ``member_ids`` begins with the representative. ``asked_pairs``: the most similar pairs of a group that a
    person decides on.
    """
    with _opened(engine, project) as (connection, id_):
        return _frame(store.stream_groups(connection, id_), GROUPS)


def suggestions(project: str, *, engine: Engine | str | None = None) -> pd.DataFrame:
    """Return the proposed merges with the decisions on them, oldest first."""
    with _opened(engine, project) as (connection, id_):
        return _frame(store.stream_suggestions(connection, id_), SUGGESTIONS)


def changes(
    project: str, *, engine: Engine | str | None = None, since: datetime | None = None, images: bool = False
) -> pd.DataFrame:
    """Return the ledger, oldest change first.

    Args:
        since: Leave out older changes.
        images: Add the columns ``previous_state`` and ``new_state``: mappings of the changed columns, or of the whole
            row without its vector if it was created or deleted; None = did not exist.
    """
    with _opened(engine, project) as (connection, id_):
        found = store.stream_changes(connection, id_, since=since, images=images)
        return _frame(found, {**CHANGES, **(_IMAGES if images else {})})


def costs(project: str, *, engine: Engine | str | None = None, since: date | None = None) -> pd.DataFrame:
    """Return the costs of models, a row for each day (UTC), model and purpose. ``since``: leave out earlier days."""
    with _opened(engine, project) as (connection, id_):
        return _frame(store.stream_costs(connection, id_, since=since), COSTS)


@contextmanager
def _opened(engine: Engine | str | None, slug: str) -> Iterator[tuple[Connection, UUID]]:
    if not isinstance(engine, Engine):
        # As for the command line: a checkout also has settings in `.env`.
        env_file = None if IS_INSTALLED else PROJECT_ROOT / ".env"
        given: dict[str, Any] = {} if engine is None else {"database_url": SecretStr(engine)}
        engine = open_engine(Settings(_env_file=env_file, **given))
    with connect(engine.execution_options(postgresql_readonly=True)) as connection:
        yield connection, get_project(connection, slug).id


def _frame(batches: Iterable[store.Columns], dtypes: Dtypes) -> pd.DataFrame:
    # Batches are converted one by one, so that the driver's objects can be freed.
    parts = [_typed(batch, dtypes) for batch in batches] or [_typed({}, dtypes)]
    return pd.concat(parts, ignore_index=True)


def _typed(batch: store.Columns, dtypes: Dtypes) -> pd.DataFrame:
    return pd.DataFrame({name: _column(batch.get(name, ()), dtype) for name, dtype in dtypes.items()})


def _column(values: Sequence[Any], dtype: Any) -> pd.Series[Any] | pd.DatetimeIndex:
    if dtype == _TIME:
        # NumPy holds all dates of Postgres. pandas 2 would convert through nanoseconds, which end in 2262.
        return pd.DatetimeIndex(np.array(values, dtype="datetime64[us]")).tz_localize("UTC")
    column: pd.Series[Any] = pd.Series(list(values), dtype=dtype)
    return column
