"""Search for supersessions: all memories at once, in any order, and with what is known of their texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge import claim_table
from consolidation_pipeline.core.knowledge.change_words import Change, find_changes
from consolidation_pipeline.core.knowledge.claim_table import KnownClaims, join_tables, read_claims
from consolidation_pipeline.core.knowledge.supersession import Revision, Writer, revise_sentence
from consolidation_pipeline_tests.core.knowledge.dated_notes import DatedNote, find
from consolidation_pipeline_tests.core.knowledge.sequences import load_sequences
from consolidation_pipeline_tests.hypothesis_examples import examples

DAY = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = load_sequences()


def memory(number: int, text: str, day: float, *, scope: str = "", session: str | None = None) -> DatedNote:
    return DatedNote.of(UUID(int=number), text, DAY + timedelta(days=day), Writer(session=session), scope)


def pairs(memories: list[DatedNote]) -> list[tuple[int, int]]:
    return [(one.newer_id.int, one.older_id.int) for one in find(memories)[0]]


def test_scopes_of_one_instant_are_not_compared() -> None:
    """Of memories that were learned at once, as by an import without dates, none supersedes another."""
    memories = [
        memory(2 * n + days, f"The invoice limit is {n * 100} euros.", n * days, scope=scope)
        for scope, days in (("at once", 0), ("one by one", 1))
        for n in (1, 2)
    ]
    found, known = find(memories)
    assert [(one.newer_id.int, one.older_id.int) for one in found] == [(5, 3)]
    assert list(known) == ["one by one"]


def test_each_version_supersedes_the_one_before() -> None:
    limits = [memory(n, f"The invoice limit is {n * 100} euros.", n) for n in (1, 2, 3)]
    assert pairs(limits) == [(2, 1), (3, 2)]
    assert pairs([*limits, memory(4, "The invoice limit is 100 euros.", 2.5)]) == [(2, 1), (3, 4), (4, 2)]


def test_many_values_are_a_series() -> None:
    assert pairs([memory(n, f"The queue holds {n} jobs.", n) for n in range(1, 7)]) == []
    assert len(pairs([memory(n, f"The queue holds {n} jobs.", n) for n in range(1, 6)])) == 4


def test_exact_repeats_supersede_nothing() -> None:
    assert pairs([memory(n, "The invoice limit is 100 euros.", n) for n in range(3)]) == []


def test_memories_of_other_scopes_stay() -> None:
    one, other = "The invoice limit is 100 euros.", "The invoice limit is 200 euros."
    assert pairs([memory(1, one, 1, scope="ann"), memory(2, other, 2, scope="ben")]) == []
    assert pairs([memory(1, one, 1, scope="ann"), memory(2, other, 2, scope="ann")]) == [(2, 1)]


def test_long_memories_are_compared_by_sentence() -> None:
    older = "The release train leaves weekly. Every change needs a ticket. Reports go to the archive on Monday."
    newer = "Two rules changed this spring. Reports no longer go to the archive on Monday. Lunch is at noon."
    assert pairs([memory(1, older, 1), memory(2, newer, 2)]) == [(2, 1)]


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_what_is_known_changes_no_supersession(seed: int) -> None:
    random = Random(seed)
    texts = [text for row in random.sample(ROWS, 7) for text in (row["older"], row["newer"])]
    memories = [memory(n, text, random.randint(1, 9), session=random.choice("ab")) for n, text in enumerate(texts)]
    _, known = find(random.sample(memories, 9))
    whole = find(memories)
    assert find(memories, known=known) == whole
    assert find(memories, known=whole[1]) == whole


def test_known_texts_and_pairs_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [memory(n, f"The invoice limit is {n * 100} euros.", n) for n in (1, 2, 3)]
    _, known = find(limits)
    read: list[tuple[str, ...]] = []

    def note_pair(was: str, now: str) -> Revision | None:
        read.append((was, now))
        return revise_sentence(was, now)

    def note_text(text: str, language: str) -> tuple[Change, ...]:
        read.append((text,))
        return find_changes(text, language)

    monkeypatch.setattr(claim_table, "revise_sentence", note_pair)
    monkeypatch.setattr(claim_table, "find_changes", note_text)
    assert len(find(limits, known=known)[0]) == 2
    assert read == []
    new = "The invoice limit is 400 euros."
    assert len(find([*limits, memory(4, new, 4)], known=known)[0]) == 3
    assert sorted(read) == [*((limit.text, new) for limit in limits), (new,)]


def test_long_text_is_known() -> None:
    text = " ".join(f"Rule {n} no longer holds for team {n}." for n in range(300))
    table, _ = read_claims([(7, text)])
    assert table.texts.tolist() == [(7, 300)]
    assert table.claims["is_change"].all()
    known = KnownClaims.from_bytes(KnownClaims(table, KnownClaims.from_bytes(b"").pairs).to_bytes())
    assert all(map(np.array_equal, known.table, table))


def test_claims_of_texts_do_not_depend_on_their_order() -> None:
    texts = [(n, f"{row['older']} {row['newer']}") for n, row in enumerate(ROWS[:20])]
    whole, _ = read_claims(texts)
    parts = join_tables(read_claims(part)[0] for part in (texts[12:], texts[5:15], texts[:12][::-1]))
    assert all(map(np.array_equal, parts, whole))


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_supersessions_do_not_depend_on_order(seed: int) -> None:
    random = Random(seed)
    texts = [text for row in ROWS[:40] for text in (row["older"], row["newer"])]
    memories = [
        memory(n, text, random.randint(1, 9), scope=random.choice(["", "ann"]), session=random.choice("ab"))
        for n, text in enumerate(random.sample(texts, 14))
    ]
    expected = find(memories)
    random.shuffle(memories)
    assert find(memories) == expected
