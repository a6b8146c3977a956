"""Sequences of an older and a newer memory, with the supersession that is expected.

A row of a file: ``older``, ``newer``, ``by`` (who wrote the newer one: the same ``user``, ``agent`` or ``session``, an
``other`` user in one scope, or one of another ``scope``), ``gap`` in days (1 by default), and ``expect``: confirmed,
candidate or null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.knowledge.supersession import Supersession, Writer
from consolidation_pipeline_tests.core.knowledge.dated_notes import DatedNote, find_between

SEQUENCES = Path(__file__).parents[3] / "benchmarks" / "sequences" / "development.jsonl"
_DAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
_WRITERS = {
    "user": (Writer(user="ann"), Writer(user="ann")),
    "agent": (Writer(agent="a1"), Writer(agent="a1", session="s2")),
    "session": (Writer(agent="a1", session="s1"), Writer(agent="a2", session="s1")),
    "other": (Writer(user="ann"), Writer(user="ben")),
    "scope": (Writer(user="ann"), Writer(user="ben")),
}


def load_sequences(path: Path = SEQUENCES) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def judge_sequence(row: Mapping[str, Any]) -> Supersession | None:
    """Return the supersession that is found."""
    later = _DAY + timedelta(days=row.get("gap", 1))
    one, two = _WRITERS[row["by"]]
    scopes = (one.user or "", two.user or "") if row["by"] == "scope" else ("", "")
    older = DatedNote.of(UUID(int=1), row["older"], _DAY, one, scopes[0])
    return find_between(older, DatedNote.of(UUID(int=2), row["newer"], later, two, scopes[1]))


def find_status(older: str, newer: str) -> str | None:
    """Return the status of the supersession by the same writer, who is believed most."""
    found = judge_sequence({"older": older, "newer": newer, "by": "user"})
    return found.status if found else None
