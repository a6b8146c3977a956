"""Checks of rewritten texts: lost denials, reversals, kept share and length."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.rewrite_checks import (
    compute_kept_share,
    find_lost_denials,
    find_reversals,
    max_rewrite_chars,
)

HOOK = "Do not parse a webhook before its signature was checked."


@pytest.mark.parametrize(
    ("source", "text", "lost"),
    [
        (HOOK, HOOK, 0),
        (HOOK, f"Note: {HOOK} Always.", 0),
        (HOOK, "Parse a webhook before its signature was checked.", 1),
        (HOOK, "Webhooks have signatures, which are not secret.", 1),
        ("Do not restart the worker.", "Do not restart the worker or the server.", 0),
        ("Do not restart the worker. Never restart the queue.", "Do not restart the worker.", 1),
        ("Not only the worker restarts.", "The worker restarts.", 0),
        ("The worker restarts.", "Nothing.", 0),
        ("The job does not open files and closes sockets.", "The job opens files and does not close sockets.", 1),
        ("Der Dienst startet nicht neu.", "Der Dienst startet neu.", 1),
        ("Der Dienst startet nicht neu.", "Er ist klein, und der Dienst startet nicht neu.", 0),
    ],
)
def test_lost_denials_are_found_by_topic(source: str, text: str, lost: int) -> None:
    assert len(find_lost_denials(source, text)) == lost


def test_lost_denial_quotes_its_source() -> None:
    assert find_lost_denials(f"Webhooks come in.\n{HOOK}", "Webhooks come in.") == [HOOK.rstrip(".")]


@pytest.mark.parametrize(
    ("source", "text", "reversed_"),
    [
        ("The export works with batched writes.", "The export does not work with batched writes.", True),
        ("Enable the cache of the export worker.", "Disable the cache of the export worker.", True),
        ("The export works with batched writes.", "With batched writes the export works.", False),
        ("All exports are written in batches.", "Some exports are written in batches.", True),
        ("The export was written in batches.", "The export is written in batches.", False),
    ],
)
def test_reversed_statements_are_found(source: str, text: str, reversed_: bool) -> None:
    assert bool(find_reversals(source, text)) is reversed_


def test_kept_share_ignores_function_words_and_endings() -> None:
    assert compute_kept_share("The workers are restarting", "restart a worker") == 1.0
    assert compute_kept_share("restart the worker", "Restarted.") == 0.5
    assert compute_kept_share("and then", "nothing") == 1.0


@pytest.mark.parametrize(("chars", "longest"), [(100, 140), (1000, 1100), (4000, 4200)])
def test_rewrite_limit_is_union_plus_margin_below_cap(chars: int, longest: int) -> None:
    assert max_rewrite_chars(["x" * chars], max_chars=4200) == longest
