"""Observation: what a counted profile reads of a memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A memory as a profile counts it. ``success``: None where it is not known; ``agent``, ``session``: too."""

    text: str
    memory_type: str
    success: bool | None
    tags: tuple[str, ...]
    files: tuple[str, ...]
    language: str
    learned_at: datetime
    agent: str | None = None
    session: str | None = None
