"""Summaries by topics: lines, counts, dates, changes, size, and independence of the order."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge import topic_summaries
from consolidation_pipeline.core.knowledge.topic_summaries import MAX_CHARS, MIN_CHARS, TopicSummary, summarize_topics
from consolidation_pipeline.core.text.key_terms import extract_terms
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.hypothesis_examples import examples

DAY = date(2026, 3, 1)
SAMPLE = PROJECT_ROOT / "examples" / "memories.jsonl"
GOODS = "shoes hats coats gloves scarves socks belts ties vests robes skirts shirts".split()
PEOPLE = "admins guests partners clerks couriers auditors buyers sellers visitors testers authors editors".split()
CACHE = [
    f"Always clear the cart cache after the price of {what} changes. Shoppers saw old prices for {what}. "
    f"The cart page reads the prices of {what} from the cache for a day."
    for what in GOODS
]
LOGIN = [
    f"Login tokens expire early when {who} sign in twice. The session store keeps one token for {who}. "
    f"Ask {who} to sign in again after the session store restarts."
    for who in PEOPLE
]
TEXTS = st.lists(
    st.sampled_from([*CACHE, *LOGIN, "x", "# Title", "値を確認する。", "word " * 200, "```\na = 1\n```", "TODO: later"])
    | st.text(min_size=1, max_size=60).filter(str.strip),
    min_size=1,
    max_size=30,
)


def summarize(texts: list[str]) -> TopicSummary:
    return summarize_topics(texts, [DAY + timedelta(days=at) for at in range(len(texts))])


def test_summary_has_line_with_count_and_days_per_topic() -> None:
    found = summarize([*CACHE, *LOGIN])
    head, *lines = found.content.split("\n")
    assert head == "24 memories, 2026-03-01 to 2026-03-24, on 2 topics:"
    assert len(lines) == found.topics == 2
    assert "(12 memories, 2026-03-01 to 2026-03-12): " in lines[0]
    assert "cart cache" in lines[0]
    assert "(12 memories, 2026-03-13 to 2026-03-24): " in lines[1]
    assert "session store" in lines[1].lower()


def test_number_behind_a_title_is_of_memories_with_its_words() -> None:
    rows = [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()]
    titles = 0
    for user in sorted({row["user_id"] for row in rows}):
        own = [row for row in rows if row["user_id"] == user]
        days = [date.fromisoformat(row["created_at"][:10]) for row in own]
        stems = [{term.stem for term in extract_terms(row["content"])} for row in own]
        for line in summarize_topics([row["content"] for row in own], days).content.split("\n")[1:]:
            told = re.findall(r"^(.+?) \((?:(\d+) of )?(\d+) memories", line)
            told = [] if re.match(r"Other|Without|\d+ memories, ", line) else told
            for title, count, size in told:
                titles += 1
                holding = sum({term.stem for term in extract_terms(title)} <= known for known in stems)
                assert 2 <= int(count or size) <= min(holding, int(size)), line
    assert titles


def test_other_matters_are_counted_by_their_words() -> None:
    notes = [f"Wire the {form} of the parcel form in the export" for form in ("list", "sort", "page", "menu")]
    notes += ["Parcel export", "Wire the bell of the porch", "Paint the porch"]
    *_, tail = summarize([*CACHE, *LOGIN, *notes]).content.split("\n")
    for title, count in re.findall(r"(\w[\w ]+) \((\d+)\)", tail):
        words = set(title.lower().split())
        assert int(count) == sum(words <= set(text.lower().split()) for text in notes), title


def test_texts_that_differ_in_numbers_become_one_line() -> None:
    counts = [f"Investigate test count drop: {1000 + at} -> {at % 7}" for at in range(40)]
    found = summarize([*counts, *CACHE, *LOGIN])
    assert "Investigate test count drop: N -> M (40 memories, 2026-03-01 to 2026-04-09)." in found.content


def test_number_that_is_the_same_stays_in_template() -> None:
    found = summarize([f"Retry the upload 3 times, then wait {at} seconds." for at in range(10, 20)])
    assert found.content.startswith("Retry the upload 3 times, then wait N seconds (10 memories, ")


def test_summary_tells_what_changed_with_date() -> None:
    old = [f"The cart page keeps prices for 30 seconds. Clear the cart cache of {what} then." for what in GOODS]
    new = [f"The cart page keeps prices for 45 seconds. Clear the cart cache of {what} then." for what in PEOPLE]
    content = summarize([*old[:6], *new[:3], *LOGIN]).content
    assert "keeps prices for 45 seconds (noted 7 March 2026; was 30 seconds)" in content


def test_statement_of_all_memories_is_told_once_at_most() -> None:
    content = summarize([f"{text} Deploys wait for the lock." for text in [*CACHE, *LOGIN]]).content
    assert content.count("Deploys wait for the lock") <= 1


def test_summary_is_an_eighth_and_bounded() -> None:
    small, large = [*CACHE, *LOGIN], [f"{text} Case {at} of it." for at in range(40) for text in [*CACHE, *LOGIN]]
    assert len(summarize(small).content) <= max(MIN_CHARS, sum(map(len, small)) / 7)
    found = summarize(large)
    assert found.source_chars == sum(map(len, large))
    assert len(found.content) <= 1.05 * MAX_CHARS


def test_single_memory_is_told_as_it_is() -> None:
    assert summarize(["Reports run on the replica."]).content == "Reports run on the replica (1 memory, 2026-03-01)."


def test_memories_of_no_topic_are_counted() -> None:
    known = [f"{text} This holds for every shop and for every day of the year." for text in [*CACHE, *LOGIN]]
    content = summarize([*known, "Add a harbour page", "Water the plants of the office every Friday."]).content
    assert "\nOther lessons (1 memory, 2026-03-26):\n- Water the plants of the office every Friday.\n" in content
    assert content.endswith("\nWithout a lesson of their own (1 memory, 2026-03-25).")


def test_placeholders_and_commit_prefixes_are_left_out() -> None:
    texts = [f"feat(cart): add {what} to the cart page\nTODO: Add a rule." for what in ("shoes", "hats", "coats")]
    content = summarize(texts).content
    assert "TODO" not in content
    assert "feat(" not in content
    assert "Cart: add" in content


def test_field_of_a_form_is_no_topic() -> None:
    texts = [f"{text} Steps taken: none. Expected results: it works." for text in [*CACHE, *LOGIN]]
    titles = [line.split(" (")[0].lower() for line in summarize(texts).content.split("\n")[1:]]
    assert not any("expected" in title or "steps" in title for title in titles)


@pytest.mark.parametrize("texts", [[], ["", " \n"]])
def test_summary_of_blank_texts_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="a summary needs"):
        summarize(texts)


def test_summary_is_the_same_if_memories_are_read_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*CACHE, *LOGIN, *CACHE, "TODO: later"]
    days = [DAY + timedelta(days=at) for at in range(len(texts))]
    whole, sizes = summarize_topics(texts, days), []
    monkeypatch.setattr(topic_summaries, "_READ_FORMS", 2)

    def apply(function: Callable[[Any], Any], portions: Iterable[Any]) -> list[Any]:
        portions = list(portions)
        sizes.extend(map(len, portions))
        return [function(portion) for portion in portions]

    assert summarize_topics(texts, days, apply=apply) == whole
    assert len(sizes) > 2
    assert max(sizes) == 2


@settings(deadline=None, max_examples=examples(60))
@given(TEXTS, st.integers(0, 2**32))
def test_summary_ignores_order_of_memories(texts: list[str], seed: int) -> None:
    rows = [(text, DAY + timedelta(days=at % 5)) for at, text in enumerate(texts)]
    shuffled = random.Random(seed).sample(rows, len(rows))
    first, second = (summarize_topics(*map(list, zip(*part, strict=True))) for part in (rows, shuffled))
    assert replace(first, told=()) == replace(second, told=())
    assert sorted(rows[at] for at in first.told) == sorted(shuffled[at] for at in second.told)
    assert first.content.strip()


def test_commit_subjects_are_told_by_topic_and_count() -> None:
    subjects = [f"Add {what} to the export page" for what in GOODS[:6]]
    content = summarize([*CACHE, *LOGIN, *subjects]).content
    assert content.split("\n")[-1].startswith("Without a lesson of their own (6 memories, 2026-03-25 to 2026-03-30)")
    assert "Add shoes to the export page" not in content


def test_log_of_tasks_has_topics_with_examples() -> None:
    tasks = [f"Add {what} to the export page" for what in GOODS] + [f"Wire the login form of {who}" for who in PEOPLE]
    content = summarize(tasks).content
    assert "For example: Add " in content or "For example: Wire " in content


def test_statement_among_questions_is_no_lesson() -> None:
    asked = [f"How do I send back the {what}? Can I pay the {what} later?" for what in GOODS]
    told = summarize([*asked, "The shop does not open my parcels.", "My coupon is not on the bill."]).content
    assert "lesson" not in told
    assert "How do I send back the " in told


def test_rare_advice_among_questions_is_no_lesson() -> None:
    asked = [f"Where do {who} find the {what}?" for who in PEOPLE for what in GOODS]
    asked += [f"When do {who} wrap the {what}?" for who in PEOPLE for what in GOODS]
    things = "lamps bells gates boats ropes nets masts decks".split()
    advice = [f"Check the {what} of the harbour every night." for what in things]
    assert "lesson" not in summarize([*asked, *advice[:4]]).content
    assert "Check the " in summarize([*asked, *advice]).content


def test_statement_among_requests_is_no_lesson() -> None:
    asked = [f"Please wrap the {what} in paper for my sister" for what in GOODS]
    told = summarize([*asked, "The shop does not open parcels on Mondays.", "The coupon is not on the bill."]).content
    assert "lesson" not in told
    assert "Please wrap the " in told


def test_guesses_on_failures_are_told_as_guesses() -> None:
    texts = [
        f"The implementation of {what} is wrong because it rounds each row. The function should round the sum."
        for what in GOODS
    ]
    lines = summarize(texts).content.split("\n")
    assert any("Tried, failed: an implementation" in line or "To try: The function should" in line for line in lines)
    assert not any("Avoid" in line for line in lines)


def test_matter_in_no_topic_has_no_title_of_a_topic() -> None:
    tills = [
        f"Add a card payment of {what} to the page of the till and sort it by the name of the till" for what in GOODS
    ]
    inns = [f"Wire the card payment of {kind} inns" for kind in ("small", "remote", "coastal", "rural")]
    forms = [f"Wire the parcel form and the parcel list of {who} in the export of parcels" for who in PEOPLE]
    *lines, tail = summarize([*tills, *inns, *forms]).content.split("\n")
    assert any(line.startswith("Card payment (") for line in lines)
    assert tail.startswith("Other matters (16 memories, 2026-03-13 to 2026-03-28): ")
    assert "Card payment" not in tail


def test_spellings_of_a_matter_are_one() -> None:
    asked = [f"Card payment of {what} was refused, why?" for what in GOODS]
    asked += [f"Is a card payment possible at the {who} desk of the harbour inn?" for who in PEOPLE]
    asked += [f"Where is my parcel of {what}?" for what in GOODS]
    asked += [f"Top-up by {who} please?" for who in PEOPLE[:5]]
    asked += [f"How does a top up of {what} work?" for what in GOODS[:5]]
    asked += [f"Card payment {how}?" for how in ("late", "odd", "slow", "twice")]
    assert len(re.findall(r"top[ -]up \(", summarize(asked).content, re.IGNORECASE)) == 1


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["ユーザーは車を持っている。", "ユーザーは車を売った。"], "ユーザーは車を売った。"),
        (["用户每月预算是三千元。", "用户每月预算提高到五千元。"], "用户每月预算提高到五千元。"),
    ],
)
def test_statement_is_no_title_of_itself(texts: list[str], told: str) -> None:
    days = [DAY + timedelta(days=at) for at in range(len(texts))]
    _, _, line = summarize_topics(texts, days).content.partition(": ")
    assert line == told


def test_lines_without_title_count_the_memories_that_say_them() -> None:
    texts = [
        "Oak may not be swapped for ash without asking the joiner.",
        "Warn the office when the fire drill is over.",
        "Elm may not be swapped for fir without asking the joiner.",
    ]
    assert "\n1 of 2 memories, 2026-03-01 to 2026-03-03: Elm may not" in summarize(texts).content
    known = [f"{text} This holds for every shop and for every day of the year." for text in [*CACHE, *LOGIN]]
    rests = zip("lamp gate crane buoy tram".split(), "dims closes rests rings leaves".split(), strict=True)
    plain = [f"The {what} of the harbour {rest} at {at} in winter." for at, (what, rest) in enumerate(rests, start=4)]
    assert "\n3 of 5 memories, 2026-03-25 to 2026-03-29: The tram of" in summarize([*known, *plain]).content


def test_replaced_memories_are_counted_in_the_head() -> None:
    head, *_ = summarize([*CACHE, "", ""]).content.split("\n")
    assert head.startswith("14 memories, 2 of them replaced by newer ones, 2026-03-01 to 2026-03-12")
    assert summarize(["Never paint a wet hull.", ""]).content.startswith("2 memories, 1 of them replaced by newer ones")


def test_lesson_of_few_leads_no_topic() -> None:
    pumps = [
        "The pump of the mill is oiled by Ada.",
        "The pump of the dam runs on diesel.",
        "The pump of the lock was bought used.",
        "The pump of the pier leaks in frost.",
        "The pump of the barn has two valves.",
        "The pump of the yard stands in a shed.",
    ]
    head, others, *lessons, tail = summarize(pumps).content.split("\n")
    assert head == "6 memories, 2026-03-01 to 2026-03-06:"
    assert others == "Other lessons (3 of 5 memories, 2026-03-01 to 2026-03-06):"
    assert len(lessons) == 3
    assert tail == "Without a lesson of their own (1 memory, 2026-03-03)."
