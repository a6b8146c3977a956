"""SQL of the writer of a raw memory, by which evidence is counted.

An agent may claim any user, agent and session, so what one key wrote is of one writer. The fields of imports and
operators are trusted: sessions are writers, or else agents, or else users. Memories about which nothing is known count
as one writer together.
"""

from __future__ import annotations


def writer_key(row: str = "t") -> str:
    """Return SQL of the writer of the raw memory ``row``: equal for memories that are not independent evidence."""
    names = ", ".join(f"'{kind} ' || nullif({row}.{kind}_id, '')" for kind in ("session", "agent", "user"))
    return f"coalesce({row}.writer, {names}, '')"
