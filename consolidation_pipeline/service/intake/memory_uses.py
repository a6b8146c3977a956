"""Memories and playbook entries that an agent reports as used: votes by which search and the playbook rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.memories.votes import add_uses_as_votes, find_unknown

# More ids than a context of 8,000 tokens has.
MAX_USED = 100


@dataclass(frozen=True)
class UsesReport:
    """Number of ids whose use was recorded, and of those on which the voter had a vote that day already."""

    recorded: int
    repeated: int


def report_used(engine: Engine, ids: Sequence[UUID], *, voter: str) -> UsesReport:
    """Record that memories or playbook entries helped a voter. It counts once a day for each.

    Args:
        ids: Ids as search and context return them, of any status.
        voter: Who used them, see ``Principal.identify_voter``.

    Raises:
        NotFoundError: An id is neither a memory nor a playbook entry. Nothing is recorded.
        UsageError: There are no ids, or more than ``MAX_USED``.
    """
    distinct = list(dict.fromkeys(ids))
    if not 1 <= len(distinct) <= MAX_USED:
        raise UsageError(f"{len(distinct)} ids are given; give 1 to {MAX_USED} ids of memories or playbook entries")
    with engine.begin() as connection:
        if unknown := find_unknown(connection, distinct):
            raise NotFoundError(f"there is no memory or playbook entry {min(unknown)}")
        recorded = add_uses_as_votes(connection, distinct, voter=voter, day=datetime.now(UTC).date())
    return UsesReport(len(recorded), len(distinct) - len(recorded))
