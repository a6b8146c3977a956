"""Supersession: which newer memory takes the place of what an older one says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.differences.language import LANGUAGES
from consolidation_pipeline.core.knowledge import judged_claims
from consolidation_pipeline.core.knowledge.change_words import Change, find_changes, is_plan
from consolidation_pipeline.core.knowledge.judged_claims import JudgedClaims
from consolidation_pipeline.core.knowledge.supersession import (
    DatedText,
    Revision,
    Supersession,
    Writer,
    find_supersession,
    revise_sentence,
    split_claims,
)
from consolidation_pipeline.core.knowledge.supersession_search import (
    ComparedScope,
    DatedMemory,
    ScopeResult,
    find_supersessions,
)
from consolidation_pipeline_tests.core.knowledge.sequences import judge_sequence, load_sequences
from consolidation_pipeline_tests.hypothesis_examples import examples

DAY = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = load_sequences()


def compare(older: str, newer: str, *, days: float = 1, same_writer: bool = True) -> Supersession | None:
    ann, ben = Writer(session="one"), Writer(session="two")
    later = DatedText(newer, DAY + timedelta(days=days), ann if same_writer else ben)
    return find_supersession(DatedText(older, DAY, ann), later)


def test_supersession_meets_development_sequences() -> None:
    assert len(ROWS) >= 60
    assert {row["language"] for row in ROWS} == set(LANGUAGES)
    found = [judge_sequence(row) for row in ROWS]
    wrong = [(row, one) for row, one in zip(ROWS, found, strict=True) if one and not row["expect"]]
    missed = [row for row, one in zip(ROWS, found, strict=True) if (one.status if one else None) != row["expect"]]
    assert not wrong
    assert len(missed) <= 0.05 * len(ROWS)


def test_change_words_confirm_what_others_wrote() -> None:
    found = compare("Mail goes out at 6:00.", "Mail no longer goes out at 6:00.", same_writer=False)
    assert found == Supersession(
        "confirmed", "change words", "Mail goes out at 6:00.", "Mail no longer goes out at 6:00."
    )
    assert found.confidence == 0.9


@pytest.mark.parametrize(
    ("same_writer", "status", "rule"), [(True, "confirmed", "same writer"), (False, "candidate", "dates")]
)
def test_same_writer_confirms_new_value(same_writer: bool, status: str, rule: str) -> None:
    found = compare("The backup runs at 02:00.", "The backup runs at 05:00.", same_writer=same_writer)
    assert found is not None
    assert (found.status, found.rule) == (status, rule)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The sync is slow in production.", "The sync is slow in staging."),
        ("Der Abgleich ist am Morgen langsam.", "Der Abgleich ist am Abend langsam."),
    ],
)
def test_opposite_places_and_times_may_both_hold(older: str, newer: str) -> None:
    assert compare(older, newer) is None


def test_date_of_a_change_is_no_other_value() -> None:
    older = "The wiki pages are stored in Paris."
    found = compare(older, "Since 12 March the wiki pages are stored in Oslo and no longer in Paris.")
    assert found is not None
    assert found.rule == "change words"
    assert compare("The meeting on 3 March is in Paris.", "The meeting on 5 March is no longer in Paris.") is None


def test_new_value_beside_the_former_one() -> None:
    older = "The wiki pages are stored in eu-west-1."
    found = compare(older, "Since 2026-03-12 the wiki pages are stored in us-east-2 and no longer in eu-west-1.")
    assert found is not None
    assert found.rule == "change words"
    assert compare(older, "The wiki pages in us-east-2 are no longer slow.") is None
    assert compare(older, "The wiki pages of us-east-2 are no longer stored in eu-west-1 and eu-west-2.") is None


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        (
            "Die Wiki-Seiten liegen in eu-west-1.",
            "Seit dem 12. März liegen die Wiki-Seiten in us-east-2 und nicht mehr in eu-west-1.",
            "Seit dem 12. März liegen die Rechnungen in us-east-2 und nicht mehr in eu-west-1.",
        ),
        (
            "Les pages du wiki sont stockées à Paris.",
            "Depuis le 12 mars, les pages du wiki sont stockées à Oslo et plus à Paris.",
            "Depuis le 12 mars, les factures sont stockées à Oslo et plus à Paris.",
        ),
        (
            "维基页面存放在 eu-west-1。",
            "自 2026-03-12 起，维基页面存放在 us-east-2，不再放在 eu-west-1。",
            "自 2026-03-12 起，发票存放在 us-east-2，不再存放在 eu-west-1。",
        ),
        (
            "ウィキのページはパリに保存されています。",
            "3月12日以降、ウィキのページはオスロに保存されており、パリにはもうありません。",
            "3月12日以降、請求書はオスロに送られており、パリにはもうありません。",
        ),
        (
            "Das Büro ist in Kiel.",
            "Das Büro ist nicht mehr in Kiel, sondern in Bremen.",
            "Das Lager ist nicht mehr in Kiel, sondern in Bremen.",
        ),
    ],
)
def test_here_and_no_longer_there(older: str, newer: str, other: str) -> None:
    found = compare(older, newer)
    assert found is not None
    assert found.rule == "change words"
    assert compare(newer, older) is None or compare(newer, older).rule != "change words"  # type: ignore[union-attr]
    found = compare(older, other)
    assert found is None or found.rule != "change words"


def test_now_moves_a_fact_to_another_place() -> None:
    found = compare("The sync runs in production.", "The sync now runs in staging.")
    assert found is not None
    assert found.rule == "change words"


@pytest.mark.parametrize("days", [0, -3])
def test_no_supersession_without_later_date(days: int) -> None:
    assert compare("The backup runs at 02:00.", "The backup no longer runs at 02:00.", days=days) is None


def test_no_supersession_without_date_or_scope() -> None:
    older = DatedText("The backup runs at 02:00.", DAY, Writer(user="ann"))
    newer = DatedText("The backup no longer runs at 02:00.", DAY + timedelta(days=1), Writer(user="ann"))
    assert find_supersession(older, newer)
    assert not find_supersession(replace(older, created_at=None), newer)
    assert not find_supersession(older, replace(newer, created_at=None))
    assert not find_supersession(older, replace(newer, writer=Writer(user="ben")))
    assert find_supersession(replace(older, scope=""), replace(newer, writer=Writer(user="ben"), scope=""))


def test_writers_are_same_by_session_agent_or_user() -> None:
    assert Writer(user="ann", agent="a").is_same(Writer(user="ann", agent="b"))
    assert Writer(agent="a", session="1").is_same(Writer(agent="a", session="2"))
    assert not Writer(user="ann", agent="a").is_same(Writer(user="ben", agent="a"))
    assert not Writer().is_same(Writer())
    assert not Writer(agent="a", key="key:1").is_same(Writer(agent="a", key="key:2"))
    assert not Writer(agent="a").is_same(Writer(agent="a", key="key:2"))


@pytest.mark.parametrize(
    ("sentence", "was", "now"),
    [
        ("We switched the chat from Slack to Zulip.", "Slack", "Zulip"),
        ("Kafka was replaced by Pulsar.", "Kafka", "Pulsar"),
        ("The fee was 5 euros, now it is 7 euros.", "5 euros", "7 euros"),
        ("Use pnpm instead of npm.", "npm", None),
    ],
)
def test_change_words_name_former_value(sentence: str, was: str, now: str | None) -> None:
    change = find_changes(sentence, "en")[0]
    assert change.was is not None
    assert sentence[slice(*change.was)] == was
    assert (sentence[slice(*change.now)] if change.now else None) == now


@pytest.mark.parametrize("sentence", ["The chat was not moved from Slack to Zulip.", "The fee is 7 euros."])
def test_sentence_without_change_has_none(sentence: str) -> None:
    assert find_changes(sentence, "en") == ()


def test_plans_are_told_from_facts() -> None:
    assert is_plan("We may move to Lisbon.", "en")
    assert not is_plan("Since May the office is in Lisbon.", "en")
    assert is_plan("Wir planen einen Umzug.", "de")


def memory(number: int, text: str, day: float, *, scope: str = "", session: str | None = None) -> DatedMemory:
    return DatedMemory(UUID(int=number), text, DAY + timedelta(days=day), Writer(session=session), scope)


def pairs(memories: list[DatedMemory]) -> list[tuple[int, int]]:
    return [(one.newer_id.int, one.older_id.int) for one in find_supersessions(memories)[0]]


def test_scopes_of_one_instant_are_not_compared() -> None:
    """Of memories that were learned at once, as by an import without dates, none supersedes another."""
    compared: list[str] = []

    def note_scopes(
        find: Callable[[ComparedScope], ScopeResult], scopes: Iterable[ComparedScope]
    ) -> Iterator[ScopeResult]:
        for scope in scopes:
            compared.append(scope.memories[0].scope)
            yield find(scope)

    memories = [
        memory(n, f"The invoice limit is {n * 100} euros.", n * days, scope=scope)
        for scope, days in (("at once", 0), ("one by one", 1))
        for n in (1, 2)
    ]
    assert len(find_supersessions(memories, apply=note_scopes)[0]) == 1
    assert compared == ["one by one"]


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
    _, judged = find_supersessions(random.sample(memories, 9))
    whole = find_supersessions(memories)
    assert find_supersessions(memories, judged=judged) == whole
    assert find_supersessions(memories, judged=whole[1]) == whole


def test_known_texts_and_pairs_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [memory(n, f"The invoice limit is {n * 100} euros.", n) for n in (1, 2, 3)]
    _, judged = find_supersessions(limits)
    read: list[tuple[str, ...]] = []

    def note_pair(was: str, now: str) -> Revision | None:
        read.append((was, now))
        return revise_sentence(was, now)

    def note_text(text: str, language: str) -> tuple[Change, ...]:
        read.append((text,))
        return find_changes(text, language)

    monkeypatch.setattr(judged_claims, "revise_sentence", note_pair)
    monkeypatch.setattr(judged_claims, "find_changes", note_text)
    assert len(find_supersessions(limits, judged=judged)[0]) == 2
    assert read == []
    new = "The invoice limit is 400 euros."
    assert len(find_supersessions([*limits, memory(4, new, 4)], judged=judged)[0]) == 3
    assert sorted(read) == [*((limit.text, new) for limit in limits), (new,)]


def test_long_text_is_read_again() -> None:
    text = " ".join(f"Rule {n} no longer holds for team {n}." for n in range(70))
    claims = split_claims(text)
    judged = JudgedClaims()
    changes = judged.tell_changes(text, claims)
    assert len(changes) == len(claims) == 70
    assert all(changes)
    assert JudgedClaims(judged.to_bytes()).tell_changes(text, claims) == changes


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_supersessions_do_not_depend_on_order(seed: int) -> None:
    random = Random(seed)
    texts = [text for row in ROWS[:40] for text in (row["older"], row["newer"])]
    memories = [
        memory(n, text, random.randint(1, 9), scope=random.choice(["", "ann"]), session=random.choice("ab"))
        for n, text in enumerate(random.sample(texts, 14))
    ]
    expected = find_supersessions(memories)
    random.shuffle(memories)
    assert find_supersessions(memories) == expected
