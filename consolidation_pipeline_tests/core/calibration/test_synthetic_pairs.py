"""Synthetic pairs: paraphrases keep all facts, near-misses change one, and the seed decides."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration.rewrite_rules import negate, replace_opposite, replace_synonyms, respell
from consolidation_pipeline.core.calibration.synthetic_pairs import MAX_TEXT_CHARS, SyntheticPair, make_synthetic_pairs
from consolidation_pipeline.core.literals.literals import conflicts, literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline_tests.hypothesis_examples import examples

TOPICS = "parser router scheduler exporter indexer notifier importer".split()
PLACES = "staging production Frankfurt laptops browsers containers".split()


def make_lesson(at: int) -> str:
    """Return a lesson with facts that differ from those of other numbers."""
    topic, other, place = TOPICS[at % 7], TOPICS[(at + 3) % 7], PLACES[at % 6]
    return (
        f"The {topic} is slow on {place} because the {topic} waits {at + 5} seconds for the {other}. "
        f"Set `{topic}.timeout_{at}` to {at * 3 + 10} ms before you start the {other} with version 2.{at}.1. "
        f"It always returns an error, because nobody should use the {topic} without a queue. Check the {place} log."
    )


TEXTS = [make_lesson(at) for at in range(60)]
# No blends: all these lessons have the same ending.
NEAR_MISSES = {"number", "name", "negation", "opposite", "subject"}
PARAPHRASES = {"reordered", "shortened", "respelled", "reworded", "extended", "retold"}


@pytest.fixture(scope="module")
def all_pairs() -> list[SyntheticPair]:
    return make_synthetic_pairs(TEXTS, seed=1, per_kind=20)


def test_synthetic_pairs_cover_every_kind_within_limit(all_pairs: list[SyntheticPair]) -> None:
    same = {pair.kind for pair in all_pairs if pair.same}
    other = {pair.kind for pair in all_pairs if not pair.same}
    assert (same, other) == (PARAPHRASES, NEAR_MISSES)
    assert all(sum(pair.kind == kind for pair in all_pairs) <= 20 for kind in same | other)


def test_synthetic_pairs_are_distinct_and_nonblank(all_pairs: list[SyntheticPair]) -> None:
    assert all(normalize_text(pair.a) != normalize_text(pair.b) for pair in all_pairs)
    assert all(pair.a.strip() and pair.b.strip() for pair in all_pairs)


def test_synthetic_paraphrases_keep_every_literal(all_pairs: list[SyntheticPair]) -> None:
    for pair in all_pairs:
        if pair.same:
            kept = {literal for literal in literals(pair.a) if literal.kind != "negation"}
            assert kept <= literals(pair.b), pair


def test_number_and_name_near_misses_change_literals(all_pairs: list[SyntheticPair]) -> None:
    for pair in all_pairs:
        if pair.kind in ("number", "name"):
            assert literals(pair.a) != literals(pair.b), pair
    changed = [pair for pair in all_pairs if pair.kind in ("number", "name")]
    assert sum(bool(conflicts(pair.a, pair.b)) for pair in changed) > 0.9 * len(changed)


def test_blends_share_first_half_only() -> None:
    rng = random.Random(3)
    texts = [" ".join("".join(rng.choices("abcdefghijklmnop", k=7)) for _ in range(12)) for _ in range(30)]
    blends = [pair for pair in make_synthetic_pairs(texts, seed=0, per_kind=10) if pair.kind == "blend"]
    assert len(blends) == 10
    for pair in blends:
        assert pair.a.split()[:6] == pair.b.split()[:6]
        assert not set(pair.a.split()[6:]) & set(pair.b.split()[6:])


def test_subject_swap_replaces_every_repeated_word(all_pairs: list[SyntheticPair]) -> None:
    pairs = [pair for pair in all_pairs if pair.kind == "subject"]
    assert pairs
    assert all(len(pair.a.split()) == len(pair.b.split()) for pair in pairs)
    repeated = [topic for pair in pairs for topic in TOPICS if pair.a.count(topic) > 1 and f" {topic} " in pair.b]
    assert repeated == []


@settings(deadline=None, max_examples=10)
@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_synthetic_pairs_ignore_text_order(rng: random.Random, seed: int) -> None:
    shuffled = TEXTS[:20]
    rng.shuffle(shuffled)
    straight = make_synthetic_pairs(TEXTS[:20], seed=seed, per_kind=4)
    assert make_synthetic_pairs(shuffled, seed=seed, per_kind=4) == straight


def test_synthetic_pairs_differ_between_seeds() -> None:
    assert make_synthetic_pairs(TEXTS, seed=1, per_kind=5) != make_synthetic_pairs(TEXTS, seed=2, per_kind=5)


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.text(max_size=60), max_size=6))
def test_synthetic_pairs_accept_any_text(texts: list[str]) -> None:
    for pair in make_synthetic_pairs(texts, seed=0, per_kind=2):
        assert normalize_text(pair.a) != normalize_text(pair.b)


def test_synthetic_pairs_skip_very_long_texts() -> None:
    assert make_synthetic_pairs(["word is here. " * MAX_TEXT_CHARS], seed=0) == []


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("The cache is warm.", "The cache is not warm."),
        ("It works with v2.", "It does not work with v2."),
        ("It is not warm.", "It is warm."),
        ("Nothing to see", None),
    ],
)
def test_negate_inverts_statement_or_denial(text: str, denied: str | None) -> None:
    assert negate(text) == denied


def test_rewrite_rules_change_known_words_only() -> None:
    assert replace_opposite("Enable it before the run, enable it.") == "Disable it before the run, enable it."
    assert replace_synonyms("Check that errors show.") == "Verify that failures display."
    assert respell("The job does not wait 30 seconds!") == "The job doesn't wait 30 s"
    assert (replace_opposite("cat"), replace_synonyms("cat"), respell("cat")) == (None, None, None)
