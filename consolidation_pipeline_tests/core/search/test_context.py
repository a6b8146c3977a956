"""Context for a task: each fact once, most abstract level first, within the token budget."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.search.context import (
    KINDS,
    ContextPiece,
    ContextSelection,
    find_conflicting_pieces,
    format_item,
    is_on_task,
    select_pieces,
)
from consolidation_pipeline.core.text.text_merge import split_sentences
from consolidation_pipeline.core.text.token_estimate import estimate_tokens
from consolidation_pipeline_tests.hypothesis_examples import examples

FACT = "Run the database migrations before deploying the web service, or the health check fails on the new column."
OTHER = "Invoices are rounded per line and not per total, otherwise the sum on the PDF differs."
UNLIMITED = 100_000


def piece(number: int, kind: str, text: str, sources: str = "", score: float = 0.5) -> ContextPiece:
    """Return a piece derived from ``sources`` (one letter per raw memory), or a raw memory if there are none."""
    raw_ids = frozenset(UUID(int=ord(letter)) for letter in sources) or frozenset((UUID(int=number),))
    return ContextPiece(UUID(int=number), kind, text, score, raw_ids, "general" if kind == "playbook" else None)


def list_texts(selection: ContextSelection) -> list[tuple[str, str]]:
    return [(one.piece.kind, one.text) for one in selection.selected]


def count_tokens(selection: ContextSelection) -> int:
    pieces = [(one.piece, one.text) for one in selection.selected]
    return estimate_tokens("".join(format_item(p.kind, p.category, p.id, text) for p, text in pieces))


def test_context_states_fact_once_at_top_level() -> None:
    pieces = [
        piece(1, "raw", f"Note to self: {FACT}", "a", score=0.9),
        piece(2, "merged", f"{FACT} Seen again today.", "ab", score=0.8),
        piece(3, "pattern", FACT, "abc"),
        piece(4, "principle", f"- {FACT}", "abcd"),
        piece(5, "playbook", FACT.upper(), "abcd"),
    ]
    assert list_texts(select_pieces(pieces, budget=UNLIMITED)) == [("playbook", FACT.upper())]
    assert list_texts(select_pieces(pieces[:4], budget=UNLIMITED)) == [("principle", f"- {FACT}")]
    assert list_texts(select_pieces(pieces[:2], budget=UNLIMITED)) == [("merged", f"{FACT} Seen again today.")]


def test_context_omits_paraphrased_sources() -> None:
    pattern, raw = (
        piece(1, "pattern", FACT, "ab"),
        piece(2, "raw", "Deploys go wrong on old schemas.", "a", score=0.9),
    )
    assert list_texts(select_pieces([pattern, raw], budget=UNLIMITED)) == [("pattern", FACT)]
    unrelated = piece(2, "raw", "Deploys go wrong on old schemas.", "z", score=0.9)
    assert len(select_pieces([pattern, unrelated], budget=UNLIMITED).selected) == 2


def test_context_adds_source_for_its_own_literal() -> None:
    own = "It took `make migrate` 40 minutes on the table `orders_2021`."
    pieces = [piece(1, "pattern", FACT, "ab"), piece(2, "raw", f"{FACT} {own}", "a", score=0.9)]
    assert list_texts(select_pieces(pieces, budget=UNLIMITED)) == [("pattern", FACT), ("raw", own)]
    twice = [*pieces, piece(3, "raw", f"{own} Really.", "b")]
    assert list_texts(select_pieces(twice, budget=UNLIMITED)) == [("pattern", FACT), ("raw", own)]


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
    assert [text for _, text in list_texts(select_pieces(pieces, budget=UNLIMITED))] == [one, other]


def test_context_names_conflicting_pieces() -> None:
    texts = ("The gateway closes connections after 30 s.", "The gateway closes connections after 60 s.", OTHER)
    selection = select_pieces([piece(at, "raw", text) for at, text in enumerate(texts)], budget=UNLIMITED)
    assert find_conflicting_pieces(selection.selected) == [(UUID(int=0), UUID(int=1), "number: 30 s / 60 s")]


def test_context_skips_piece_over_budget() -> None:
    long = piece(1, "principle", " ".join(f"Sentence number {n} says {n * 7} things." for n in range(200)), "abc", 0.9)
    selection = select_pieces([long, piece(2, "pattern", FACT, "ab")], budget=120)
    assert (list_texts(selection), selection.left_out) == ([("pattern", FACT)], [long])


def test_context_omits_sentence_contained_in_longer() -> None:
    short = "Invoices are rounded per line."
    pieces = [piece(1, "raw", short, score=0.9), piece(2, "raw", OTHER)]
    assert list_texts(select_pieces(pieces, budget=UNLIMITED)) == [("raw", OTHER)]


@pytest.mark.parametrize(
    ("task", "text", "is_about"),
    [
        ("write a haiku about cats", "Write a changelog entry.", False),
        ("why did ERR_7731 come up again", "The gateway answers ERR_7731 when it is idle.", True),
        ("round the invoices", OTHER, True),
        ("make the order table scroll faster", "The lock on the order table.", False),
    ],
)
def test_one_shared_word_is_not_on_task(task: str, text: str, is_about: bool) -> None:
    assert is_on_task(task, text) is is_about


SENTENCES = st.sampled_from(
    [FACT, OTHER, FACT.lower(), f"- {OTHER}", "Use port 8080.", "Use port 9090.", "Never log card numbers.", "Ok."]
    + [f"Topic {word} has words of its own." for word in ("apple", "pear", "plum", "fig", "quince")]
)
PIECES = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.lists(SENTENCES, min_size=1, max_size=5),
        st.text("abcdef", min_size=1, max_size=4),
        st.floats(0, 1),
    ),
    max_size=12,
)


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
    ranks = [one.piece.kind_rank for one in selection.selected]
    assert ranks == sorted(ranks)


@given(st.lists(st.text()))
def test_token_estimate_is_subadditive(parts: list[str]) -> None:
    assert estimate_tokens("".join(parts)) <= sum(map(estimate_tokens, parts))
