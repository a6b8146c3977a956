"""What a rewritten text must keep of what it stands in place of."""

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
    ],
)
def test_a_denial_is_lost_unless_something_on_its_topic_denies_the_same(source: str, text: str, lost: int) -> None:
    assert len(find_lost_denials(source, text)) == lost


def test_a_lost_denial_is_told_in_the_words_of_its_source() -> None:
    assert find_lost_denials(f"Webhooks come in.\n{HOOK}", "Webhooks come in.") == [HOOK.rstrip(".")]


@pytest.mark.parametrize(
    ("source", "text", "reversed_"),
    [
        ("The export works with batched writes.", "The export does not work with batched writes.", True),
        ("Enable the cache of the export worker.", "Disable the cache of the export worker.", True),
        ("The export works with batched writes.", "With batched writes the export works.", False),
    ],
)
def test_the_opposite_of_a_source_is_found(source: str, text: str, reversed_: bool) -> None:
    assert bool(find_reversals(source, text)) is reversed_


def test_function_words_and_endings_do_not_count_as_kept_or_lost() -> None:
    assert compute_kept_share("The workers are restarting", "restart a worker") == 1.0
    assert compute_kept_share("restart the worker", "Restarted.") == 0.5
    assert compute_kept_share("and then", "nothing") == 1.0


@pytest.mark.parametrize(("chars", "longest"), [(100, 140), (1000, 1100), (4000, 4200)])
def test_a_rewrite_may_be_a_little_longer_than_the_union_and_never_beyond_the_cap(chars: int, longest: int) -> None:
    assert max_rewrite_chars(["x" * chars], max_chars=4200) == longest
