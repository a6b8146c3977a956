"""Changes among the memories of a context."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from consolidation_pipeline.core.search.context_changes import DatedText, link_changes


def dated(number: int, text: str) -> DatedText:
    return DatedText(UUID(int=number), text, datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=number))


@pytest.mark.parametrize(
    ("older", "newer", "is_linked"),
    [
        (
            "The scheduling line is extension 4410, and Mrs Pellworth answers it.",
            "Mrs Pellworth retired. Extension 4410 is answered by Tobias Wren.",
            True,
        ),
        ("Redis eviction policy on cache-a is allkeys-lru.", "Switched cache-a to volatile-ttl.", True),
        ("Redis eviction policy on cache-b is allkeys-lru.", "Switched cache-a to volatile-ttl.", False),
        ("User works night shifts, call after 4 pm.", "User now works day shifts. Call before 8 am.", True),
        ("Session tokens are stored in local storage.", "Store session tokens in cookies, not in local storage.", True),
        ("Guarda el token en config.ini.", "Guarda el token en vault.ini en lugar de config.ini.", True),
        (
            "It adds the even items at odd indices instead of the odd ones.",
            "It adds all items at odd indices instead of the even ones.",
            False,
        ),
        (
            "The loop adds the even items at odd indices.",
            "The loop is incorrect because it adds all items at odd indices instead of the even ones.",
            False,
        ),
        (
            "The loop adds the items of the list.",
            "The loop adds the items of the list with odd indices instead of even ones.",
            False,
        ),
        ("User is allergic to latex.", "User moved to Bristol last week.", False),
        ("Redis eviction policy on cache-a is allkeys-lru.", "We should switch cache-a to volatile-ttl.", False),
        ("Redis eviction policy on cache-a is allkeys-lru.", "Switched cache-a to volatile-ttl?", False),
        ("Redis eviction policy on cache-a is allkeys-lru.", "The memory of cache-a is 4 GB.", False),
    ],
)
def test_newer_memory_tells_a_change(older: str, newer: str, is_linked: bool) -> None:
    old, new = dated(1, older), dated(2, newer)
    assert link_changes([old], [old, new]) == ({old.id: (new.id,)} if is_linked else {})


def test_older_memory_tells_no_change() -> None:
    old, new = dated(2, "The memory of cache-a is 4 GB."), dated(1, "Switched cache-a to volatile-ttl.")
    assert link_changes([old], [old, new]) == {}
