"""Lines of summaries: which sentences a reader understands alone, and what names a topic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pytest

from consolidation_pipeline.core.knowledge.pattern_units import Unit
from consolidation_pipeline.core.knowledge.sentence_ranking import rank_sentences
from consolidation_pipeline.core.knowledge.topic_lines import TopicGroup, drop_open_quotation, tells_lesson
from consolidation_pipeline.core.knowledge.topic_names import name_topic
from consolidation_pipeline.core.text.key_terms import find_key_terms


def build_group(*texts: str, days: Sequence[date | None] = ()) -> TopicGroup:
    known = days or [None] * len(texts)
    units = [
        Unit(id=f"{at}", text=text, memory_type="learning", day=day)
        for at, (text, day) in enumerate(zip(texts, known, strict=True))
    ]
    return TopicGroup(units, rank_sentences([texts])[0], find_key_terms([texts])[0])


@pytest.mark.parametrize(
    "text",
    [
        "Always clear the cart cache after a price changes.",
        "The cart page reads prices from the cache for a day.",
        "Reports are read from the replica",
        "Never log the body of a webhook.",
        "Prices were old because the page read the cache.",
        "Restart all three after a sale: worker, gateway and cart cache.",
    ],
)
def test_rule_or_fact_is_a_lesson(text: str) -> None:
    assert tells_lesson(text, [text])


@pytest.mark.parametrize(
    "text",
    [
        "fix(cart): clear the cache",
        "All 37 cart tests pass.",
        "All fixed and deployed.",
        "This breaks the cart.",
        "Is the cart cached?",
        "Use the (cart.",
        "Clear it.",
        "I was stuck on the cart page.",
        "See https://example.com for the cart.",
        "Restart all three after a sale.",
        "How long does a cart stay open",
        "Need to know how carts expire.",
        "Coats needed to be put into the cart twice.",
    ],
)
def test_what_needs_its_context_is_no_lesson(text: str) -> None:
    assert not tells_lesson(text, ["The cart is slow.", text])


def test_sentence_that_was_cut_is_no_lesson() -> None:
    assert not tells_lesson("Validate the page with pnpm --dir cloud/da", ["Check the page.", "Validate the page with"])


def test_title_is_a_phrase_of_most_memories() -> None:
    line = build_group(
        "Clear the cart cache after a price changes.",
        "The cart cache keeps prices for a day.",
        "Warm the cart cache before a sale.",
    ).tell_topic(400)
    assert line.title == "Cart cache"
    assert line.is_lesson


def test_statement_of_another_topic_is_not_told_again() -> None:
    rule = "Clear the cart cache after a price changes."
    line = build_group(rule, "The cart cache keeps prices for a day.").tell_topic(400, told=[rule])
    assert rule not in line.text
    assert "keeps prices for a day" in line.text


def test_examples_stand_for_memories_without_a_lesson() -> None:
    line = build_group("feat(cart): add coats page", "feat(cart): add shoes page").tell_topic(400)
    assert not line.is_lesson
    assert line.text.startswith("For example: Cart: add ")


def test_short_question_is_the_title_of_questions() -> None:
    line = build_group(
        "How do I empty my cart?", "Can I take out all coats at once?", "Why is my cart full?"
    ).tell_topic(400)
    assert line.title == "How do I empty my cart?"
    assert line.text.startswith("Also asked: ")


def test_failure_is_told_with_its_remedy() -> None:
    line = build_group(
        "The cart lost its coupons after each login. Copy the coupons of a cart to the new session.",
        "After each login, the cart lost its coupons.",
        "The cart lost coupons after a login of a guest.",
    ).tell_topic(400)
    assert "lost its coupons" not in line.text + line.lead or "Copy the coupons" in line.text + line.lead


def test_statement_on_another_matter_is_left_out() -> None:
    line = build_group(
        "Always clear the cart cache after a price changes.",
        "The cart cache is cleared at night too, after each price change.",
        "Verify the fonts of the cart on small screens.",
    ).tell_topic(400)
    assert "cache" in line.text + line.lead
    assert "fonts" not in line.text + line.lead


def test_title_names_what_is_told() -> None:
    line = build_group(
        "Gift vouchers, part one", "Gift vouchers, part two", "Clear the cart cache after a price changes."
    ).tell_topic(400)
    assert (line.title, line.lead) == ("", "Clear the cart cache after a price changes.")


def test_title_of_another_topic_is_not_used_again() -> None:
    group = build_group("Clear the cart cache after a price changes.", "The cart cache keeps prices for a day.")
    assert group.tell_topic(400).title == "Cart cache"
    assert group.tell_topic(400, titles=["Cart cache"]).title == ""


def test_guess_that_other_attempts_contest_is_not_told() -> None:
    guess = "The implementation is wrong because it only adds open rows of the bill."
    line = build_group(guess, f"{guess} It skips the closed rows.").tell_topic(400)
    assert "only adds open rows of the bill" in line.text + line.lead
    line = build_group(
        guess,
        "The implementation is wrong because it adds closed rows too. The code should only add open rows of the bill.",
    ).tell_topic(400)
    assert "only add" not in line.text + line.lead


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Weakness found: 'the test checks `Value", "Weakness found"),
        ("Look at `cart` and 'coats", "Look at"),
        ("Don't cut the users' carts", "Don't cut the users' carts"),
        ("Keep 'this' and \"that\"", "Keep 'this' and \"that\""),
    ],
)
def test_open_quotation_of_cut_text_is_dropped(text: str, told: str) -> None:
    assert drop_open_quotation(text) == told


def test_examples_are_on_the_matter_of_the_first() -> None:
    line = build_group(
        "How do I send back a coat?",
        "May I send back a coat that is torn?",
        "Send back a coat for me?",
        "Who embroiders initials on a coat?",
    ).tell_topic(400)
    assert "send back" in line.title
    assert "send back" in line.text
    assert "embroiders" not in line.text


def test_failure_is_told_with_its_remedy_in_a_short_line() -> None:
    failure = "The implementation is wrong because it adds the closed rows of the bill to the total of the month."
    remedy = "The function should add the rows of the bill that are open at the end of the month."
    line = build_group(f"{failure} {remedy}", failure, failure).tell_topic(120)
    assert "Tried, failed: an implementation that adds the closed rows" in line.text + line.lead
    assert "To try: The function should add the rows" in line.text


def test_failure_with_a_remedy_comes_before_one_without() -> None:
    bare = "The implementation is wrong because it rounds the rows of the bill of the month."
    mended = "The implementation is wrong because it prints the rows of a bill instead of the total of it."
    line = build_group(bare, f"{bare} Rows differ.", f"{bare} Rows of the bill.", mended).tell_topic(150)
    assert "instead of the total" in line.text + line.lead


def test_guess_is_told_with_the_one_that_excludes_it() -> None:
    failed = "The implementation is wrong because it prints the bill twice."
    keep = "The function should filter out the closed rows of the bill before it adds them."
    drop = "The function should not filter out the closed rows of the bill before it adds them."
    line = build_group(f"{failed} {keep}", f"{failed} {keep}", f"{failed} {drop}").tell_topic(600)
    told = f"{line.lead} {line.text}"
    assert f"To try: {keep.removesuffix('.')}" in told
    assert f"Others: {drop}" in told


@pytest.mark.parametrize(
    ("texts", "terms", "name"),
    [
        (["Activate my coupon", "Please activate the new one"], ["activate"], ""),
        (["I'm not sure about it", "Be sure of it"], ["sure", "parcel"], ""),
        (["an additional fee", "another additional one"], ["additional"], ""),
        (["Where is the parcel", "My parcel is late", "The parcel was wet"], ["late", "parcel"], "Parcel"),
        (["fix(billing): wait", "chore(billing): sort"], ["billing"], "Billing"),
        (["why did you deny it", "app deny my coupon", "app deny my order"], ["deny", "app"], ""),
    ],
)
def test_topic_is_named_by_a_thing(texts: list[str], terms: list[str], name: str) -> None:
    assert name_topic(texts, terms) == name


def test_statement_stands_behind_what_a_newer_memory_says() -> None:
    texts = [f"Pump `{name}` of the mill has size MEDIUM." for name in ("WEST_2", "EAST_2")]
    days = [date(2026, 1, 7), date(2026, 1, 7), date(2026, 5, 12)]
    line = build_group(*texts, "Pump `WEST_2` of the mill has been resized to LARGE.", days=days).tell_topic(400)
    assert line.text == (
        "Pump `WEST_2` of the mill has been resized to LARGE "
        "(12 May 2026; before: “Pump `WEST_2` of the mill has size MEDIUM”)."
    )
    assert line.said >= {0, 1, 2}


def test_title_is_in_the_lessons_told() -> None:
    texts = [
        "The mill wheel is greased from the store of the yard every Monday.",
        "Paint for the gate in the yard is kept by Ida, never by the guard.",
        "Never open the gate in the yard at night; it wakes the geese.",
    ]
    line = build_group(*texts).tell_topic(80)
    assert all(word in f"{line.lead} {line.text}".lower() for word in line.title.lower().split())
