"""Context for a task: the most relevant memories within the token budget, each sentence once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.differences.explanation import explain, explain_readings
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.knowledge.rival_claims import names_things
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.search import novelty
from consolidation_pipeline.core.search.context import ContextSelection, select_pieces
from consolidation_pipeline.core.search.context_days import are_of_one_day, find_day
from consolidation_pipeline.core.search.context_markdown import (
    DERIVED,
    format_contradiction,
    format_item,
    format_pointer,
    label_memory,
    leave_out_told,
)
from consolidation_pipeline.core.search.context_pieces import PLAYBOOK, ContextPiece
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline_tests.hypothesis_examples import examples

FACT = "Run the database migrations before deploying the web service, or the health check fails on the new column."
OTHER = "Invoices are rounded per line and not per total, otherwise the sum on the PDF differs."
NAMES = "billing search audit export invoice mail report ledger payout wiki".split()
UNLIMITED = 100_000
NEAR_MISSES = Path(__file__).parents[3] / "benchmarks" / "pairs" / "development.jsonl"


def piece(number: int, kind: str, text: str, sources: str = "", score: float = 0.5) -> ContextPiece:
    """Return a piece derived from ``sources`` (one letter per raw memory), or a raw memory if there are none.

    It was learned on the day ``number`` of May.
    """
    raw_ids = frozenset(UUID(int=ord(letter)) for letter in sources) or frozenset((UUID(int=number),))
    learned_at = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=number - 1)
    category = "general" if kind == "playbook" else None
    return ContextPiece(UUID(int=number), kind, text, score, raw_ids, learned_at, category)


def list_texts(selection: ContextSelection) -> list[tuple[str, str]]:
    return [(one.piece.kind, one.text) for one in selection.selected]


def list_sides(selection: ContextSelection) -> list[tuple[str, list[tuple[int, str]]]]:
    """Return the kind and the sides of each contradiction: day and differing words."""
    return [(one.kind, [(side.learned_at.day, side.words) for side in one.sides]) for one in selection.contradictions]


def count_tokens(selection: ContextSelection) -> int:
    """Return the tokens of the items, without headings."""
    told = selection.contradictions
    texts = [(one.piece, leave_out_told(one.piece.id, one.text, told)) for one in selection.selected]
    items = [format_item(piece.id, piece.label, text) for piece, text in texts if text]
    return estimate_tokens(
        "".join([*items, *map(format_contradiction, told), *map(format_pointer, selection.pointers)])
    )


def test_context_tells_repeated_sentence_once() -> None:
    pieces = [
        piece(1, "raw", f"* {FACT}", "a", score=0.7),
        piece(2, "merged", f"{FACT} Seen again today.", "ab", score=0.8),
        piece(3, "raw", f"- {FACT.upper()} {OTHER}", "c", score=0.9),
    ]
    told = list_texts(select_pieces(pieces, budget=UNLIMITED))
    assert told == [("raw", pieces[2].text), ("merged", "Seen again today.")]


def test_instructions_come_first() -> None:
    pieces = [piece(1, "raw", FACT, "a", score=0.9), piece(2, "playbook", FACT, "a"), piece(3, "raw", OTHER, score=0.1)]
    assert list_texts(select_pieces(pieces, budget=UNLIMITED)) == [("playbook", FACT), ("raw", OTHER)]
    many = [piece(at, "playbook", f"Always restart the {name} service.", "a") for at, name in enumerate(NAMES, 4)]
    selection = select_pieces([pieces[0], pieces[2], *many], budget=200)
    assert [kind for kind, _ in list_texts(selection)] == ["playbook", "playbook", "raw", "raw"]


def test_source_is_told_beside_its_pattern() -> None:
    text = "Deploys go wrong on old schemas."
    pieces = [piece(1, "pattern", FACT, "ab"), piece(2, "raw", text, "a", score=0.9)]
    assert list_texts(select_pieces(pieces, budget=UNLIMITED))[0] == ("raw", text)


def test_derived_memory_never_displaces_best_evidence() -> None:
    facts = [f"The {name} service keeps its state in the table {name}_state." for name in NAMES]
    memories = [piece(at, "raw", text, NAMES[at][0], score=0.9 - at / 100) for at, text in enumerate(facts)]
    alone = select_pieces(memories, budget=150)
    assert 2 < len(alone.selected) < len(memories)
    sources = "".join(name[0] for name in NAMES)
    general = "Services keep state in tables of their own names, one for each service, and never share these."
    joined = select_pieces([*memories, piece(99, "pattern", general, sources, score=0.95)], budget=150)
    kept = [one.piece.id for one in joined.selected]
    assert kept[: len(alone.selected) // 2] == [one.piece.id for one in alone.selected][: len(alone.selected) // 2]


def test_pattern_points_to_memories_without_room() -> None:
    things = "state log queue budget owner colour price limit".split()
    facts = [f"The {name} service keeps its {one} in {name}_{one}.txt." for one, name in product(things, NAMES)]
    memories = [piece(at, "raw", text, score=0.9 - at / 200) for at, text in enumerate(facts, 1)]
    general = replace(piece(99, "pattern", f"**State of services**\n{' '.join(facts)}", score=0.8), raw_ids=frozenset(
        one.id for one in memories))  # fmt: skip
    selection = select_pieces([*memories, general], budget=1800)
    assert [(one.id.int, one.kind, one.title, one.count) for one in selection.pointers] == [
        (99, "pattern", "State of services", len(facts))
    ]
    assert selection.left_out
    assert not select_pieces([*memories, general], budget=UNLIMITED).pointers
    topics = f"80 memories, on 2 topics:\n{OTHER}\nState (79 memories): {' '.join(facts)}"
    (pointer,) = select_pieces([*memories, replace(general, text=topics)], budget=1800).pointers
    assert pointer.title.startswith("State (79 memories): The billing service")


def test_derived_memory_fills_room_that_is_left() -> None:
    pieces = [piece(1, "raw", OTHER, "a", score=0.9), piece(2, "pattern", "Rounded sums differ.", "ab", 0.6)]
    assert list_texts(select_pieces(pieces, budget=UNLIMITED)) == [("raw", OTHER), ("pattern", pieces[1].text)]


def test_related_pieces_come_last() -> None:
    pieces = [replace(piece(1, "raw", FACT, score=0.9), is_related=True), piece(2, "raw", OTHER, score=0.1)]
    assert [one.piece.id.int for one in select_pieces(pieces, budget=UNLIMITED).selected] == [2, 1]


def test_newer_piece_comes_before_what_it_supersedes() -> None:
    old = replace(piece(1, "raw", "The cache has 4 GB.", score=0.9), newer_ids=(UUID(int=2),))
    new = piece(2, "raw", f"The cache has 8 GB now, as {OTHER}", score=0.8)
    selection = select_pieces([old, new], budget=UNLIMITED)
    assert [(one.piece.id.int, one.piece.label) for one in selection.selected] == [
        (2, ""),
        (1, "superseded by 000000000000"),
    ]


@pytest.mark.parametrize(
    ("newer_of_second", "disputes"), [([], 1), ([3], 0)], ids=["nothing newer", "third replaces both"]
)
def test_replaced_memories_are_no_dispute(newer_of_second: list[int], disputes: int) -> None:
    texts = [
        "The export stops after 30 minutes.",
        "The export stops after 45 minutes.",
        "The export runs to its end now.",
    ]
    first, second, third = (piece(at, "raw", text, score=0.9) for at, text in enumerate(texts, start=1))
    first = replace(first, newer_ids=(UUID(int=2),))
    second = replace(second, newer_ids=tuple(UUID(int=one) for one in newer_of_second))
    assert len(select_pieces([first, second, third], budget=1_000).contradictions) == disputes


@pytest.mark.parametrize("field", ["newer_ids", "rival_ids", "change_ids"])
def test_what_may_be_newer_comes_first_too(field: str) -> None:
    older = replace(piece(1, "raw", FACT, score=0.9), **{field: (UUID(int=2),)})
    assert [text for _, text in list_texts(select_pieces([older, piece(2, "raw", OTHER)], budget=UNLIMITED))] == [
        OTHER,
        FACT,
    ]


def test_heading_of_a_dispute_can_be_read() -> None:
    texts = [f"The cert of the gateway is renewed by hand for {at} days on host {at}." for at in (1, 3)]
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts, 1)], budget=UNLIMITED)
    (found,) = selection.contradictions
    assert found.sides[0].words == "3 days 3"
    assert format_contradiction(found).startswith("- Newest first\n")


def test_two_users_may_differ() -> None:
    texts = ["The user works in the office on Monday.", "The user works in the office on Friday."]
    for scopes, disputed in ((("ann", "ben"), 0), (("ann", "ann"), 1), (("ann", ""), 1)):
        pieces = [replace(piece(at, "raw", texts[at]), scope=scope) for at, scope in enumerate(scopes)]
        assert len(select_pieces(pieces, budget=UNLIMITED).contradictions) == disputed


def test_layout_stays_around_a_sentence_that_is_left_out() -> None:
    table = "| host | port |\n|---|---|\n| api | 8080 |\n\n  at handler (api.js:4)\n  at run (loop.js:9)"
    selection = select_pieces([piece(1, "raw", FACT, score=0.9), piece(2, "raw", f"{FACT}\n{table}")], budget=UNLIMITED)
    assert list_texts(selection) == [("raw", FACT), ("raw", table)]


STEPS = ("Stop the writers", "Wait for the replica", "Switch the name")


def number(steps: Iterable[str]) -> str:
    return "\n".join(f"{at}. {step}" for at, step in enumerate(steps, 1))


def test_steps_in_another_order_are_disputed_as_a_whole() -> None:
    texts = [f"Moving the ledger:\n{number(STEPS)}", f"How to move the ledger:\n{number(STEPS[::-1])}"]
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts, 1)], budget=UNLIMITED)
    (dispute,) = selection.contradictions
    assert [side.content for side in dispute.sides] == texts[::-1]
    assert format_contradiction(dispute).splitlines()[:3] == [
        "- Newest first",
        "  - 2026-05-02 [000000000000] How to move the ledger:",
        "    1. Switch the name",
    ]
    assert [leave_out_told(one.piece.id, one.text, [dispute]) for one in selection.selected] == ["", ""]


def test_list_is_told_whole_or_not_at_all() -> None:
    texts = [
        f"- {STEPS[0]}\n- {STEPS[1]}",
        f"- {STEPS[0]}\n- {STEPS[1]}\n- {STEPS[2]}",
        f"{FACT}\n\n- {STEPS[0]}\n- {STEPS[1]}",
    ]
    pieces = [piece(at, "raw", text, score=0.9 - at / 10) for at, text in enumerate(texts, 1)]
    told = [text for _, text in list_texts(select_pieces(pieces, budget=UNLIMITED))]
    assert told == [texts[0], texts[1], FACT]


def test_sentence_is_not_told_without_the_one_it_refers_to() -> None:
    first = "The export of the ledger for the tax office of the town starts at two in the morning."
    told = [first, f"{first} It needs the lock of the archive.", f"{first} It needs the lock of the archive. {OTHER}"]
    pieces = [piece(at, "raw", text, score=0.9 - at / 10) for at, text in enumerate(told, 1)]
    assert [text for _, text in list_texts(select_pieces(pieces, budget=UNLIMITED))] == [
        first,
        "The export of the ledger for the tax… It needs the lock of the archive.",
        OTHER,
    ]


def test_consequence_is_told_once() -> None:
    texts = [f"The {name} job keeps its files. This leads to a full disk." for name in ("mail", "audit")]
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts, 1)], budget=UNLIMITED)
    assert [text for _, text in list_texts(selection)] == [texts[0], "The audit job keeps its files."]


def test_pattern_whose_statement_was_told_is_left_out() -> None:
    pattern = piece(2, "pattern", f"Deploys\n{FACT}\n3 memories in 3 sessions, 2 May 2026.", "a", score=0.9)
    pieces = [piece(1, "raw", FACT, "a"), pattern]
    assert list_texts(select_pieces(pieces, budget=UNLIMITED)) == [("raw", FACT)]


@pytest.mark.parametrize("far", [{"is_related": True}, {"match": 0.3}])
def test_dispute_among_far_pieces_is_off_topic(far: dict[str, Any]) -> None:
    texts = ["The cache is on in staging.", "The cache is off in staging."]
    pieces = [replace(piece(at, "raw", text), **far) for at, text in enumerate(texts, 1)]
    selection = select_pieces(pieces, budget=UNLIMITED)
    assert (selection.contradictions, sorted(text for _, text in list_texts(selection))) == ([], sorted(texts))
    assert select_pieces([pieces[0], piece(2, "raw", texts[1])], budget=UNLIMITED).contradictions


def test_passage_is_in_one_dispute() -> None:
    texts = [
        "The release job runs on Node 18 in Oslo. The release job takes 5 minutes.",
        "The release job runs on Node 20 in Oslo. The release job takes 5 minutes.",
        "The release job runs on Node 18 in Rome. The release job takes 9 minutes.",
    ]
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts, 1)], budget=UNLIMITED)
    sides = [(side.id, side.content) for one in selection.contradictions for side in one.sides]
    assert len(sides) == len(set(sides)) > 2


def test_suspect_piece_is_marked() -> None:
    told = select_pieces([replace(piece(1, "merged", FACT, "ab"), is_suspect=True)], budget=UNLIMITED).selected
    assert [one.piece.label for one in told] == ["2 times, possible injection"]


def test_short_piece_ranks_above_longer_one() -> None:
    short, long = "Use port 8080.", f"Use port 8080. {FACT} {OTHER} {FACT}"
    for texts in ((short, long), (long, short)):
        first, second = (piece(at, "raw", text) for at, text in enumerate(texts, 1))
        assert min((first, second), key=lambda one: one.rank).text == short


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The gateway closes connections after 30 seconds.", "The gateway closes connections after 60 seconds."),
        ("The audit consumer works with batched acks.", "The audit consumer does not work with batched acks."),
        ("The payments worker must be restarted by hand.", "The search worker must be restarted by hand."),
    ],
)
def test_context_keeps_differing_texts(one: str, other: str) -> None:
    pieces = [piece(1, "raw", one, "a"), piece(2, "raw", other, "b")]
    assert {text for _, text in list_texts(select_pieces(pieces, budget=UNLIMITED))} == {one, other}


def test_context_tells_reversed_roles() -> None:
    calls = "The {} service calls the {} service for each order."
    texts = [calls.format("billing", "inventory"), calls.format("inventory", "billing")]
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts, 1)], budget=UNLIMITED)
    assert [text for _, text in list_texts(selection)] == texts


@pytest.mark.parametrize(
    ("older", "newer", "kind", "words"),
    [
        ("The cache is on in staging.", "The cache is off in staging.", "cue", ("is off", "is on")),
        (
            "The gateway closes idle calls after 30 s.",
            "The gateway closes idle calls after 60 s.",
            "value",
            ("60 s", "30 s"),
        ),
        ("Retries are enabled in tests.", "Retries are disabled in tests.", "opposite", ("disabled", "enabled")),
        ("Deploys need an approval.", "- Deploys do not need an approval.", "polarity", ("not need approval", "")),
        ("Der Dienst läuft auf Port 80.", "Der Dienst läuft auf Port 81.", "value", ("81", "80")),
    ],
)
def test_contradiction_has_both_sides(older: str, newer: str, kind: str, words: tuple[str, str]) -> None:
    pieces = [piece(2, "merged", older, "ab", score=0.9), piece(9, "raw", newer, "c"), piece(3, "raw", OTHER)]
    selection = select_pieces(pieces, budget=UNLIMITED)
    assert list_sides(selection) == [(kind, [(9, words[0]), (2, words[1])])]
    assert [side.content for side in selection.contradictions[0].sides] == [newer, older]
    assert list_texts(selection) == [("merged", older), ("raw", newer), ("raw", OTHER)]


def test_contradiction_unites_all_sides() -> None:
    texts = [f"The release job runs on Node {version}." for version in (18, 22, 20)]
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts, 1)], budget=UNLIMITED)
    assert list_sides(selection) == [("value", [(3, "20"), (2, "22"), (1, "18")])]
    assert format_contradiction(selection.contradictions[0]) == (
        "- 20 / 22 / 18 (newest first)\n"
        "  - 2026-05-03 [000000000000] The release job runs on Node 20.\n"
        "  - 2026-05-02 [000000000000] The release job runs on Node 22.\n"
        "  - 2026-05-01 [000000000000] The release job runs on Node 18.\n"
    )


def test_label_of_derived_memory_tells_its_sources() -> None:
    labels = [label_memory(kind, 3) for kind in ("raw", "merged", "pattern", "summary")]
    assert labels == ["", "3 times", "pattern of 3 memories", "summary of 3 memories"]


def test_label_tells_the_day_of_a_fact() -> None:
    assert label_memory("merged", 3, day=date(2026, 5, 2)) == "2026-05-02, 3 times"


@pytest.mark.parametrize(
    ("kind", "text", "is_told"),
    [
        ("raw", "Priya owns the pricing service.", True),
        ("merged", "The gateway listens on port 8080. Never restart it by hand.", True),
        ("raw", "We rolled back the connection between both services.", True),
        ("raw", "Never restart the gateway by hand.", False),
        ("raw", "Which port does the gateway listen on?", False),
        ("pattern", "Priya owns the pricing service.", False),
        ("summary", "Priya owns the pricing service.", False),
    ],
)
def test_day_is_told_of_what_is_or_was_so(kind: str, text: str, is_told: bool) -> None:
    learned_at = datetime(2026, 5, 2, 23, 30, tzinfo=timezone(timedelta(hours=-2)))
    assert find_day(kind, text, learned_at) == (date(2026, 5, 3) if is_told else None)


def test_memories_of_one_day_need_no_day() -> None:
    first = datetime(2026, 5, 2, 1, tzinfo=UTC)
    assert are_of_one_day([])
    assert are_of_one_day([first, first + timedelta(hours=20)])
    assert not are_of_one_day([first, first + timedelta(hours=23)])


def test_label_of_contradiction_has_words_of_all_sides_or_none() -> None:
    texts = ["Never run the migrations by hand.", "Run the migrations by hand."]
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts, 1)], budget=UNLIMITED)
    assert format_contradiction(selection.contradictions[0]).split("\n")[0] == "- Newest first"


def test_context_adds_source_that_contradicts() -> None:
    pattern, source = (
        piece(1, "pattern", "Deploys need an approval.", "ab", score=0.9),
        piece(2, "raw", "Deploys need no approval.", "a"),
    )
    selection = select_pieces([pattern, source], budget=UNLIMITED)
    assert [side.id for one in selection.contradictions for side in one.sides] == [source.id, pattern.id]


def test_disputed_sentences_are_told_once() -> None:
    pieces = [piece(1, "raw", "The cache is on in staging."), piece(2, "raw", f"The cache is off in staging. {OTHER}")]
    selection = select_pieces(pieces, budget=UNLIMITED)
    told = {one.piece.id.int: leave_out_told(one.piece.id, one.text, selection.contradictions) for one in
            selection.selected}  # fmt: skip
    assert told == {1: "", 2: OTHER}


def list_near_misses() -> list[tuple[str, str, bool]]:
    """Return the development pairs in which one thing that matters differs, and if that is all that differs."""
    rows = map(json.loads, NEAR_MISSES.read_text("utf-8").splitlines())
    return [(row["a"], row["b"], row["part"] == "near") for row in rows if row["part"].startswith("near")]


def test_near_misses_are_told_with_a_warning() -> None:
    questions = [(one, other, near) for a, b, near in list_near_misses() for one, other in ((a, b), (b, a))]
    assert len(questions) > 220
    for asked, other, is_near in questions:
        pieces = [piece(1, "raw", asked, score=0.9), piece(2, "raw", other, score=0.95)]
        selection = select_pieces(pieces, budget=2000)
        told = {sentence for one in selection.selected for sentence in split_sentences(one.text)}
        assert told >= {*split_sentences(asked), *split_sentences(other)}
        found = explain(asked, other)
        # What holds in staging contradicts nothing that holds in production, nor what one person wants what others do.
        holds_both = any(names_things(one, read(asked), read(other)) for one in found.differences)
        holds_both = holds_both or {one.kind for one in found.differences} == {"name"}
        if is_near and found.verdict == "contradicts" and not holds_both:
            assert {side.id.int for one in selection.contradictions for side in one.sides} == {1, 2}


def test_claims_on_two_things_are_no_contradiction() -> None:
    pieces = [
        piece(1, "raw", "Redis in staging has 4 GB of memory."),
        piece(2, "raw", "Redis in production has 4 GB of memory."),
        piece(3, "raw", "Redis in production has 8 GB of memory."),
    ]
    assert list_sides(select_pieces(pieces[:2], budget=UNLIMITED)) == []
    assert list_sides(select_pieces(pieces, budget=UNLIMITED)) == [("value", [(3, "8 GB"), (2, "4 GB")])]


def test_older_side_is_not_told_alone() -> None:
    older = piece(1, "raw", "The maintenance window is Sunday 02:00-04:00 CET.", score=0.9)
    newer = piece(2, "raw", "The maintenance window is Saturday 02:00-04:00 CET.", score=0.8)
    both = select_pieces([older, newer, piece(3, "raw", FACT, score=0.7)], budget=UNLIMITED)
    assert list_sides(both) == [("value", [(2, "Saturday"), (1, "Sunday")])]
    for budget in range(estimate_tokens(both.selected[0].text)):
        selection = select_pieces([older, newer], budget=budget)
        assert older.text not in {one.text for one in selection.selected} or selection.contradictions
    alone = select_pieces([older, newer], budget=30)
    assert (list_texts(alone), alone.left_out) == ([("raw", newer.text)], [older])


def test_number_of_comparisons_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(novelty, "explain_readings", lambda a, b: calls.append(a) or explain_readings(a, b))
    monkeypatch.setattr(novelty, "_MAX_PAIRS", 100)
    words = "red green blue black white brown grey pink gold silver".split()
    pairs = enumerate(product(words, words), 1)
    pieces = [
        piece(at, "raw", f"The {one} lamp of the {two} room shows the state of line {at}.") for at, (one, two) in pairs
    ]
    selection = select_pieces([*pieces, replace(pieces[0], id=UUID(int=999), score=0.1)], budget=UNLIMITED)
    assert len(selection.selected) == len(pieces)
    assert 0 < len(calls) <= 100


def test_context_skips_piece_over_budget() -> None:
    long = piece(1, "merged", " ".join(f"Sentence number {n} says {n * 7} things." for n in range(200)), "abc", 0.9)
    selection = select_pieces([long, piece(2, "raw", FACT, "ab")], budget=120)
    assert (list_texts(selection), selection.left_out) == ([("raw", FACT)], [long])


def test_sentence_with_more_detail_is_told_too() -> None:
    short, long = "Invoices are rounded per line.", "Invoices of the shop are rounded per line."
    told = list_texts(select_pieces([piece(1, "raw", short), piece(2, "raw", long)], budget=UNLIMITED))
    assert told == [("raw", short), ("raw", long)]


SENTENCES = st.sampled_from(
    [FACT, OTHER, FACT.lower(), f"- {OTHER}", "Use port 8080.", "Use port 9090.", "Never log card numbers.", "Ok."]
    + [f"Topic {word} has words of its own." for word in ("apple", "pear", "plum", "fig", "quince")]
)
PIECES = st.lists(
    st.tuples(
        st.sampled_from([PLAYBOOK, *DERIVED, "merged", "raw"]),
        st.lists(SENTENCES, min_size=1, max_size=5),
        st.text("abcdef", min_size=1, max_size=4),
        st.floats(0, 1),
    ),
    max_size=12,
)


def test_tokens_of_items_are_not_rounded_up_one_by_one() -> None:
    pieces = [piece(at, "raw", f"The {name} job writes a log.") for at, name in enumerate(NAMES, 1)]
    items = "".join(format_item(one.id, one.label, one.text) for one in pieces)
    needed = estimate_tokens(f"## Known\n{items}")
    assert needed < sum(estimate_tokens(format_item(one.id, one.label, one.text)) for one in pieces)
    assert len(select_pieces(pieces, budget=needed).selected) == len(pieces)
    assert len(select_pieces(pieces, budget=needed - 1).selected) == len(pieces) - 1


@settings(max_examples=examples(80), deadline=None)
@given(PIECES, st.integers(1, 400))
def test_context_fits_budget_without_repeats(drawn: list[tuple[str, list[str], str, float]], budget: int) -> None:
    pieces = [
        piece(at, kind, " ".join(texts), sources, score) for at, (kind, texts, sources, score) in enumerate(drawn)
    ]
    selection = select_pieces(pieces, budget=budget)
    assert count_tokens(selection) <= budget
    forms = [normalize_text(s).removeprefix("- ") for one in selection.selected for s in split_sentences(one.text)]
    assert len([form for form in forms if form != "ok"]) == len({form for form in forms if form != "ok"})
    assert select_pieces(pieces[::-1], budget=budget) == selection
    kinds = [one.piece.kind for one in selection.selected]
    assert kinds == sorted(kinds, key=lambda kind: kind != PLAYBOOK)


@given(st.lists(st.text()))
def test_token_estimate_is_subadditive(parts: list[str]) -> None:
    assert estimate_tokens("".join(parts)) <= sum(map(estimate_tokens, parts))
