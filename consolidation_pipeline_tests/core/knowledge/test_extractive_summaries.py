"""Extractive summaries and profiles: sentences of their sources."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge.extractive_summaries import extract_profile, extract_summary
from consolidation_pipeline_tests.hypothesis_examples import examples

BATCH = [
    "The order service moved to UUIDv7. I was tired today.",
    "Order ids are UUIDv7 in every table.",
    "The front end needs Node 22 in CI.",
    "CI builds the front end with Node 22.",
    "Never log a card token.",
    "Card tokens stay in the vault.",
    "Reports run on the replica.",
    "The replica serves all reports.",
]
TEXTS = st.lists(
    st.sampled_from([*BATCH, "x", "# Title", "値を確認する。", "🙂", "word " * 200, "```\na = 1\n```"])
    | st.text(min_size=1, max_size=60).filter(str.strip),
    min_size=1,
    max_size=12,
)


def test_summary_covers_batch_in_its_order() -> None:
    lines = extract_summary(BATCH).split("\n")
    assert len(lines) == 2
    places = [next(at for at, text in enumerate(BATCH) if line in text) for line in lines]
    assert places == sorted(places)
    assert extract_summary(BATCH * 3).count("\n") == 4
    assert "tired" not in extract_summary(BATCH * 3)


def test_chunk_summaries_reduce_by_same_rule() -> None:
    chunks = [extract_summary(BATCH[:4]), extract_summary(BATCH[4:])]
    assert set(extract_summary(chunks).split("\n")) <= {line for part in chunks for line in part.split("\n")}
    assert extract_summary(chunks).count("\n") == 1
    assert extract_summary(chunks, memories=16).count("\n") == 3


def test_single_sentence_is_its_own_summary() -> None:
    assert extract_summary(["Reports run on the replica."]) == "Reports run on the replica."
    for empty in ([], ["", " \n"]):
        with pytest.raises(ValueError, match="a summary needs"):
            extract_summary(empty)
        with pytest.raises(ValueError, match="a profile needs"):
            extract_profile(empty)


def test_profile_groups_sentences_by_kind() -> None:
    found = extract_profile(
        [
            "Plain SQL is used instead of an ORM.\nAlways set a timeout on calls.",
            "Never log a card token.\nThe nightly job fails without a lock.\nThe API runs on ECS.",
        ]
    )
    assert found.preferences == ("Plain SQL is used instead of an ORM.",)
    assert found.practices == ("Always set a timeout on calls.",)
    assert set(found.pitfalls) == {"Never log a card token.", "The nightly job fails without a lock."}
    assert found.facts == ("The API runs on ECS.",)
    assert found.content.count("\n") == 4


@settings(deadline=None, max_examples=examples(80))
@given(TEXTS)
def test_summaries_and_profiles_quote_whole_sentences(texts: list[str]) -> None:
    sources = [" ".join(text.split()) for text in texts]
    summary, profile = extract_summary(texts), extract_profile(texts)
    for line in [*summary.split("\n"), *profile.content.split("\n")]:
        assert line
        assert any(line in source for source in sources)
    assert summary.count("\n") <= 4


@settings(deadline=None, max_examples=examples(40))
@given(TEXTS, st.randoms())
def test_profile_ignores_order_of_summaries(texts: list[str], random: object) -> None:
    shuffled = list(texts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert extract_profile(shuffled) == extract_profile(texts)
