"""Extractive patterns and principles: sentences of their sources."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge import extractive_patterns
from consolidation_pipeline.core.knowledge.extractive_patterns import (
    PortionToWrite,
    extract_patterns,
    extract_principles,
)
from consolidation_pipeline.core.knowledge.lesson_sentences import read_lesson
from consolidation_pipeline.core.knowledge.pattern_layout import Sightings, read_statements
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern, Unit, sort_units
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.core.text.sentences import MAX_SENTENCE_CHARS
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline_tests.hypothesis_examples import examples

# What others say, in brackets.
NOTES = re.compile(r" \((?:noted|others say|also|\d+ [A-Z]\w+ \d+;)[^()]*\)")
SAMPLE = PROJECT_ROOT / "examples" / "memories.jsonl"

WEBHOOKS = [
    "Webhook signatures cover the raw body. This broke once.",
    "Verify the signature of a webhook before reading its body. Staging refused everything for a day.",
    "Never log the body of a webhook: its signature is a secret.",
    "A webhook with an old signature must be refused.",
]
LOCKS = ["A migration locks the table.", "Set lock_timeout to 3 s in a migration.", "The table lock blocks reads."]
PIECES = st.sampled_from(
    [
        "Use a lock for the job.",
        "Never retry a declined charge.",
        "It fails at night.",
        "The pool is exhausted",
        "# Heading",
        "- item of a list",
        "```\ncode = 1\n```",
        "Größe prüfen, dann löschen.",
        "値を確認する。",
        "🙂🙂🙂",
        "a" * 700,
        "long words " * 90,
        "\u200b",
        "e.g. this, v1.2.3 of it (see docs/a.md).",
        "The limit of the queue is 5.",
        "The limit of the queue is 8.",
        "The limit of the queue is not 8.",
        "The limit of the other queue is 8.",
    ]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=5).map("\n".join) | st.text(min_size=1, max_size=80).filter(str.strip)
TYPES = st.sampled_from(["warning", "decision", "learning", "change"])


def extract(groups: Sequence[Iterable[Unit]], **how: Any) -> list[ExtractedPattern]:
    return list(extract_patterns(groups, **how))


@st.composite
def unit_groups(draw: st.DrawFn) -> list[list[Unit]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    return [
        [
            Unit(
                id=f"{number}-{at}",
                text=draw(TEXTS),
                memory_type=draw(TYPES),
                success=draw(st.sampled_from([True, False, None])),
                weight=draw(st.sampled_from([1.0, 2.0, 0.1])),
                day=draw(st.sampled_from([None, date(2026, 1, 7), date(2026, 5, 12)])),
            )
            for at in range(size)
        ]
        for number, size in enumerate(sizes)
    ]


def make_units(texts: list[str], memory_type: str = "learning") -> list[Unit]:
    return [Unit(id=f"u{at}", text=text, memory_type=memory_type) for at, text in enumerate(texts)]


def extract_first(texts: list[str]) -> ExtractedPattern:
    return extract([make_units(texts), make_units(LOCKS)])[0]


def test_extracted_pattern_summarizes_its_group() -> None:
    found = extract_first(WEBHOOKS)
    headline, *_ = found.content.split("\n")
    assert (headline, found.title) == (found.summary, "")
    assert headline == "Verify the signature of a webhook before reading its body."
    assert found.seen == "4 memories."
    assert "This broke once." not in found.content
    assert set(found.key_terms[:2]) == {"signature", "webhook"}
    assert "Verify the signature of a webhook before reading its body." in found.best_practices
    # "Avoid: Never" would deny it twice.
    assert "Never log the body of a webhook: its signature is a secret." in found.content.split("\n")
    assert "Never log the body of a webhook: its signature is a secret." in found.gotchas
    assert {evidence.unit for evidence in found.evidence} == {1, 2, 3, 4}


def test_headline_keeps_what_most_units_say_around_it() -> None:
    cause = "The balancer reused connections that the server had closed, hence sporadic 502 answers."
    texts = [
        f"{cause} With a keep-alive of 75 s the 502 answers stopped. Lunch was late.",
        "Sporadic 502 answers: the balancer reused connections that the server had closed. They stopped with 75 s.",
        "The balancer reused connections just closed by the server. A keep-alive of 75 s: the 502 answers stopped.",
    ]
    (found, _) = extract([make_units(texts), make_units(LOCKS)])
    assert found.summary == f"{cause} With a keep-alive of 75 s the 502 answers stopped."
    assert found.content.split("\n")[-1] == found.summary


def test_reverse_of_headline_does_not_count_as_said() -> None:
    texts = [
        "Deploy the API before the web app.",
        "Deploy the web app before the API.",
        "Deploy the API before the web app, or orders return 404.",
    ]
    (found,) = extract([make_units(texts)])
    assert found.summary == "Deploy the API before the web app (others say “Deploy the web app before the API”)."
    assert found.seen == "Said alike in 2 of 3 memories."


def test_headline_says_nothing_twice() -> None:
    rule = "Keep the limit of a payout batch at 100, larger batches hold locks too long."
    (found,) = extract([make_units([f"{rule} {rule[:-1]} as said."] * 3)])
    assert found.summary.count("payout batch") == 1


def test_last_line_tells_sightings_and_days() -> None:
    seen = Sightings(126, 4, date(2026, 4, 30), date(2026, 5, 12))
    (found,) = extract([make_units(WEBHOOKS[1:2] * 3)], sightings=[seen])
    assert found.seen == "Seen 126 times in 4 sessions, 30 April to 12 May 2026."
    (principle,) = extract([make_units(WEBHOOKS)], sightings=[replace(seen, patterns=5)])
    assert principle.seen == "Seen in 5 patterns in 4 sessions, 30 April to 12 May 2026."
    # It is no lesson, so it is neither searched nor compared.
    assert not any("Seen" in one.content or "2026" in one.content for one in (found, principle))


def test_last_line_tells_how_few_say_the_headline() -> None:
    texts = [
        "Always print the freight label before the parcel is closed.",
        "Scan the freight label at the gate, not in the van.",
        "Keep the rolls of the freight label out of the sun.",
        "Buy the paper of the freight label in March.",
    ]
    (found,) = extract([make_units(texts)], sightings=[Sightings(4, None, date(2026, 5, 12), date(2026, 5, 12))])
    assert found.summary in texts
    assert found.seen == "4 memories, 12 May 2026."


def test_memories_without_headline_are_only_counted() -> None:
    texts = ["Why does my parcel wait?", "Where does the parcel wait for customs?", "How long does a parcel wait?"]
    (found,) = extract([make_units(texts)])
    assert found.seen == "3 memories."


def test_headline_tells_what_a_newer_memory_says() -> None:
    texts = [
        "Ada rents a bike from Noor for 20 euros.",
        "Ada rents a bike from Noor.",
        "Ada gave the bike back to Noor.",
    ]
    days = [date(2026, 1, 7), date(2026, 2, 1), date(2026, 5, 12)]
    units = [replace(unit, day=day) for unit, day in zip(make_units(texts), days, strict=True)]
    (found,) = extract([units])
    # Both are told: that one takes the place of the other is not proven.
    assert found.summary == (
        "Ada gave the bike back to Noor (as of 12 May 2026). Ada rents a bike from Noor (as of 1 February 2026)."
    )
    assert found.overruled == 0
    assert (3, texts[2]) in {(one.unit, one.quote) for one in found.evidence}
    # An older memory is no news, and neither is one of a day that is not known.
    for unknown in (date(2026, 1, 1), None):
        (found,) = extract([[*units[:2], replace(units[2], day=unknown)]])
        assert "gave" not in found.content


def date_units(texts: dict[str, date]) -> list[Unit]:
    return [replace(unit, day=day) for unit, day in zip(make_units([*texts]), texts.values(), strict=True)]


def test_few_units_on_two_topics_make_no_pattern() -> None:
    texts = [
        "Error taking the table lock: a second migration was running backfill at the same time. A timeout helps.",
        'backfill plan failed with "Error taking the table lock" as two migrations ran at once. Pass --timeout=3.',
        "CI of the shop fails at `pack sync --frozen` with STALE_LOCK_LIST when the manifest was changed without "
        "committing its lock list. Run `pack sync` and commit the list.",
        "STALE_LOCK_LIST in the shop pipeline: the manifest had been edited but its lock list was not committed. "
        "Run `pack sync` locally and commit it.",
    ]
    assert not extract_first(texts).is_shared
    assert extract_first([*texts[2:], f"{texts[2]} Again."]).is_shared


def test_examples_are_the_newest_of_most_units() -> None:
    units = date_units(
        {
            "The seats of the ferry desk in Lund: 20.": date(2026, 1, 7),
            "The harbour office in summer has 9 boats since the fair began.": date(2026, 5, 12),
            "The seats of the ferry desk in Ystad are 60.": date(2026, 1, 8),
            "The harbour office in summer has 6 boats.": date(2026, 2, 1),
        }
    )
    (found, _) = extract([units, make_units(LOCKS)])
    assert not found.is_shared
    assert "9 boats" in found.content
    assert "6 boats" not in found.content


def test_return_to_what_was_is_told_first() -> None:
    now = "The library went back to card indexes for its catalogue, since the scanner could not read old labels."
    was = "The catalogue of the library uses scanner labels instead of card indexes."
    units = date_units({was: date(2026, 2, 1), now: date(2026, 5, 12)})
    replaced = replace(units[0], id="u2", text="", day=date(2026, 1, 7))
    (found,) = extract([[*units, replaced]], sightings=[Sightings(3)])
    assert found.summary == f"{now[:-1]} (as of 12 May 2026). {was[:-1]} (as of 1 February 2026)."
    assert (found.seen, found.overruled) == ("3 memories.", 0)
    assert found.support < 0.7


def test_contradicted_rule_stands_beside_no_rule() -> None:
    rule = "Do not open the greenhouse windows at night"
    units = date_units(
        {
            "Open the greenhouse windows at night, so that it stays dry.": date(2026, 1, 7),
            f"{rule}. Use the fan; frost killed the seedlings.": date(2026, 5, 12),
            "The greenhouse windows do not need a lock at night.": date(2026, 3, 1),
        }
    )
    (found,) = extract([units])
    before = "Open the greenhouse windows at night, so that it stays dry"
    told = f"{rule} (noted 12 May 2026; was “{before}”)."
    assert told in found.content
    assert (found.seen, found.overruled) == ("3 memories, 7 January to 12 May 2026.", 1)
    assert not any(line.startswith("Open") for line in (*found.best_practices, *found.gotchas))


def test_name_of_a_change_is_no_lesson_of_all() -> None:
    texts = [
        "Use --fast in the freight build",
        *(f"Freight build: {what} changed" for what in ("cache", "image", "user")),
    ]
    assert extract_first(texts).summary != texts[0]


def test_intentions_become_instructions() -> None:
    texts = [
        "I failed, as I ran the migration before the backup. In the next run, I will check the backup first.",
        "My mistake was to forget the backup. I will check the backup first, then I will run the migration.",
        "I should have checked the backup. Next time, I will check the backup before I run the migration.",
    ]
    (found,) = extract([make_units(texts)])
    assert found.summary.startswith("Check the backup")
    assert not re.search(r"\bI will\b", found.content)
    assert found.pattern_type == "failure"


def test_titles_and_commit_subjects_are_no_headline() -> None:
    texts = [
        "Queue worker limits\nKeep the batch of a queue worker below 100 jobs.",
        "feat(queue): add worker limits\nThe queue worker was slow.",
        "Fix the queue worker",
    ]
    assert extract_first(texts).summary == "Keep the batch of a queue worker below 100 jobs."


def test_group_without_lesson_tells_topic_and_examples() -> None:
    texts = ["How do I track my parcel?", "Can you track my parcel for me?", "Where is my new parcel?"]
    found = extract_first(texts)
    assert "parcel" in found.title.lower()
    assert found.content.split("\n")[1].startswith("Questions, for example: ")
    assert (found.best_practices, found.gotchas, found.support, found.pattern_type) == ((), (), 0.0, None)


def test_steps_of_bug_reports_are_no_advice() -> None:
    texts = [
        f"Menu of {page} stays open\nSteps to reproduce the menu bug. Open the {page} menu. Expected result: it closes."
        for page in ("start", "search", "login")
    ]
    found = extract_first(texts)
    assert "Menu of start stays open" in found.summary
    assert found.best_practices == ()


def test_new_features_are_told_as_changes() -> None:
    texts = [
        "feat(invoices): add paging to the list of invoices",
        "Wire the list of invoices to the export",
        "Add a filter to the invoices of a custo...",
    ]
    (found,) = extract([make_units(texts, "bugfix")])
    assert "Changes, for example: " in found.content
    assert "Invoices: add paging to the list of invoices" in found.content
    assert "Add a filter to the invoices of a …" in found.content


def test_rule_without_its_condition_is_no_headline() -> None:
    texts = [
        "When a print job has its own tray, never set the tray in the driver. Always set the print tray by hand.",
        "Set the tray of a print job in the job, not in the driver.",
        "The driver ignores the tray of a print job.",
    ]
    assert extract_first(texts).summary != "Always set the print tray by hand."


def test_reason_that_blames_the_advice_is_left_out() -> None:
    texts = [
        "Change the invoice filter to keep invoices below the limit of the account.",
        "Set the invoice filter to keep invoices below the limit.",
        "The invoice filter is wrong because it must keep invoices, but it returns invoices below the limit.",
        "The invoice filter is wrong because it does not correctly filter invoices.",
    ]
    content = extract_first(texts).content
    assert "below the limit" in content
    assert "Because" not in content


def test_vague_claim_is_no_headline() -> None:
    texts = [
        "The issue lies in the logic for rounding invoices. Round the total of invoices once, after the sum.",
        "The issue lies in the logic for rounding invoices. The total of invoices must be rounded once.",
        "The issue lies in the logic for rounding invoices.",
    ]
    found = extract_first(texts)
    assert "once" in found.summary
    assert "lies in" not in found.content


def test_cry_for_help_is_no_pattern() -> None:
    assert not extract_first(["Help!", "help", "Help!!"]).is_shared
    assert extract_first(["Help with invoices!"] * 3).is_shared


def test_failed_attempt_is_told_with_what_is_right() -> None:
    texts = [
        "The implementation is wrong because it rounds each row of the freight invoice.",
        "The implementation is wrong because it rounds each row of the freight invoice, so cents are lost. "
        "The function should round the sum of the freight invoice instead.",
        "The implementation is wrong because it rounds each row of the freight invoice twice.",
    ]
    (found,) = extract([make_units(texts, "error_fix")])
    assert "Tried, failed: an implementation that rounds each row" in found.content
    assert "To try: The function should round the sum of the freight invoice instead." in found.content


def test_status_is_no_headline() -> None:
    texts = ["All 12 freight tests pass. Run the freight tests before a release.", *["All 12 freight tests pass."] * 2]
    assert extract_first(texts).summary != "All 12 freight tests pass."


def test_template_family_is_one_line() -> None:
    texts = [f"Queue of mails grew: {before} -> {after}" for before in range(1640, 1646) for after in (2100, 2900)]
    found = extract_first(texts)
    told = "Queue of mails grew: {1640 … 1645} -> {2100, 2900}"
    assert (found.content, found.seen, found.summary, found.title) == (told, "Seen 12 times.", told, "")


def test_labels_follow_language_of_texts() -> None:
    texts = [
        "Prüfe die Signatur des Webhooks, bevor du den Inhalt liest, weil sonst falsche Daten gespeichert werden.",
        "Vermeide es, den Inhalt des Webhooks zu protokollieren, denn die Signatur ist geheim.",
        "Die Signatur des Webhooks wird mit dem Schlüssel des Kunden geprüft.",
    ]
    found = extract_first(texts)
    assert (found.title, found.summary) == ("Signatur des Webhooks", texts[1])
    assert found.content.endswith(f"\nTun: {texts[0]}")
    assert found.seen == "3 Notizen."


def test_summary_avoids_context_dependent_opener() -> None:
    found = extract_first(["It holds the table lock of the queue.", "The worker holds the table lock of the queue."])
    assert found.summary == "The worker holds the table lock of the queue."


def test_pattern_excludes_headings_bullets_and_code() -> None:
    text = "# Queue workers\n- The queue worker takes one job at a time.\n```\nqueue.worker()\n```"
    found = extract_first([text, "The queue worker needs Redis."])
    assert "#" not in found.content
    assert "`" not in found.content
    assert "- The" not in found.content


def test_repeated_sentences_merge_unless_facts_differ() -> None:
    repeated = ["Restart the payout queue worker.", "restart the payout queue worker"] * 3
    found = extract_first(repeated)
    assert (found.content, found.seen) == ("Restart the payout queue worker.", "Seen 6 times.")
    limits = [f"Keep the retry limit of the {name} queue high." for name in ("payout", "refund")]
    assert set(extract_first(limits).best_practices) == set(limits)


def test_newer_value_is_told_with_what_was() -> None:
    limits = [(3, date(2026, 1, 7)), (5, date(2026, 5, 12)), (3, date(2026, 2, 1))]
    texts = [f"Always set the retry limit of the payout queue to {count}." for count, _ in limits]
    units = [replace(unit, day=day) for unit, (_, day) in zip(make_units(texts), limits, strict=True)]
    found = extract([units, make_units(LOCKS)])[0]
    told = "Always set the retry limit of the payout queue to 5 (noted 12 May 2026; was 3)."
    assert (found.summary, found.best_practices, found.overruled) == (told, (told,), 2)
    assert found.seen == "3 memories, 7 January to 12 May 2026."
    assert {(one.unit, one.quote) for one in found.evidence} == set(enumerate(texts, start=1))


@pytest.mark.parametrize("newest", range(3))
def test_newest_of_facts_in_other_words_comes_first(newest: int) -> None:
    texts = [
        "Priya owns the pricing service of the shop.",
        "The pricing service of the shop is with Kenji while Priya is away.",
        "Elif looks after the pricing service of the shop until Priya is back.",
    ]
    units = [replace(unit, day=date(2026, 3, 9 if at == newest else 2)) for at, unit in enumerate(make_units(texts))]
    (found,) = extract([units])
    assert found.content.split("\n")[-1].startswith(texts[newest].rstrip("."))


@pytest.mark.parametrize(
    ("days", "note"),
    [
        ((9, 2, 2), ""),
        ((2, 2, 9), " (as of 2 March 2026)"),
        ((2, 5, 9), " (as of 5 March 2026)"),
        ((2, 9, 9), ""),
        ((2, None, 9), ""),
    ],
)
def test_fact_is_told_with_its_last_day_if_others_are_newer(days: tuple[int | None, ...], note: str) -> None:
    fact = "Priya owns the pricing service of the shop"
    texts = [f"{fact}.", f"As we know, {fact}.", "The pricing service of the shop writes to Kafka."]
    units = [replace(unit, day=day and date(2026, 3, day)) for unit, day in zip(make_units(texts), days, strict=True)]
    (found,) = extract([units])
    assert found.content.split("\n")[-1].endswith(f"{fact}{note}.")


def test_newer_fact_takes_no_place_of_an_instruction() -> None:
    texts = ["Set the limit of the mail queue to 5.", "The mail queue of the shop was slow, as the limit of it is low."]
    told = [
        extract([[replace(u, day=day) for u, day in zip(make_units(texts), days, strict=True)]])[0].content
        for days in ([date(2026, 3, 1), date(2026, 3, 9)], [date(2026, 3, 9), date(2026, 3, 1)])
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("seed", range(3))
def test_examples_are_told_newest_first(seed: int) -> None:
    texts = ["gRPC between shop and bank.", "gRPC proxies of the mail service.", "gRPC streams for the search index."]
    days = random.Random(seed).sample([date(2026, 3, 1), date(2026, 3, 5), date(2026, 3, 9)], 3)
    (found,) = extract([[replace(u, day=d) for u, d in zip(make_units(texts), days, strict=True)]])
    newest_first = [text for _, text in sorted(zip(days, texts, strict=True), reverse=True)]
    told = [text.rstrip(".") for text in newest_first if text.rstrip(".") in found.content]
    assert len(told) > 1
    assert [found.content.index(text) for text in told] == sorted(found.content.index(text) for text in told)


def test_overruled_sentence_is_never_practice_or_gotcha() -> None:
    texts = ["Never restart the worker after a deploy.", "Always restart the worker after a deploy.", *LOCKS]
    days = [date(2026, 1, 7), date(2026, 5, 12), *[None] * len(LOCKS)]
    (found,) = extract([[replace(u, day=d) for u, d in zip(make_units(texts), days, strict=True)]])
    _, *told = found.content.split("\n")
    lines = [*told, *found.best_practices, *found.gotchas]
    assert {line for line in lines if "restart" in line} == {
        f"Always restart the worker after a deploy (noted 12 May 2026; was “{texts[0].rstrip('.')}”)."
    }


def read_sample(*ids: str) -> list[Unit]:
    rows = {row["id"]: row for row in map(json.loads, SAMPLE.read_text().splitlines())}
    return [
        Unit(
            id=id_,
            text=rows[id_]["content"],
            memory_type=rows[id_]["memory_type"],
            day=datetime.fromisoformat(rows[id_]["created_at"]).date(),
        )
        for id_ in ids
    ]


@pytest.mark.parametrize(
    ("ids", "told", "overruled"),
    [
        (("m-0017", "m-0300"), "needs Node 22 (noted 3 December 2025; was 20): web/.nvmrc", 1),
        (("m-0058", "m-0396"), "Pinned Terraform to 1.9.8 (noted 12 May 2026; was 1.7.5) in infra", 1),
        (("m-0137", "m-0140"), "port 5432 (also 5433 of Postgres in a second checkout) of Postgres itself", 0),
    ],
)
def test_sample_values_are_told_in_one_rule(ids: tuple[str, ...], told: str, overruled: int) -> None:
    for units in (read_sample(*ids), read_sample(*reversed(ids))):
        (found,) = extract([units])
        assert told in found.content
        assert found.content.count(told.split()[0]) == 1
        assert found.overruled == overruled


def test_identical_or_single_units_have_pattern() -> None:
    for texts in (["Restart the worker."] * 4, ["Restart the worker."], ["x"], ["…"]):
        found = extract_first(texts)
        assert found.summary == texts[0]
        assert found.content == texts[0]
        assert len(found.evidence) == len(texts)


def test_title_names_what_is_told() -> None:
    texts = [
        "Solo el equipo de compras puede abrir la caja fuerte.",
        "El equipo de compras puede abrir solo la caja fuerte.",
        "El almacén rechaza los paquetes de más de 20 kg; hay que enviarlos por barco.",
        "El almacén rechaza los paquetes mayores de 20 kg: envíalos por barco.",
    ]
    (found,) = extract([make_units(texts)])
    assert found.summary in texts[2:]
    assert "equipo" not in found.content


def test_advice_that_depends_on_another_sentence_is_none() -> None:
    texts = [
        "Harbour Inn pays its bills within 40 days. Never send it a reminder sooner.",
        "Harbour Inn pays its bills within 40 days. Do not call before that.",
        "Harbour Inn pays its bills within 40 days.",
    ]
    (found,) = extract([make_units(texts)])
    assert (found.content.split("\n")[-1], found.best_practices, found.gotchas) == (texts[2], (), ())


def test_evidence_units_are_numbered_by_id() -> None:
    given = make_units(WEBHOOKS)
    assert [unit.id for unit in sort_units(reversed(given))] == ["u0", "u1", "u2", "u3"]


def make_patterns(texts: Sequence[str]) -> list[Unit]:
    return [Unit(id=str(at), text=text, memory_type="warning", pattern_type="gotcha") for at, text in enumerate(texts)]


def test_principle_is_what_most_patterns_advise() -> None:
    title = "Lock, migration"
    shared = "Set lock_timeout before a migration takes a table lock."
    texts = [f"{shared}\nDo: Release the connection early.", shared, f"{shared}\nAvoid: Never rename a column."]
    units = [replace(unit, text=f"{title}\n{unit.text}", title=title) for unit in make_patterns(texts)]
    (found,) = extract_principles([units])
    assert found.is_shared
    assert (found.summary, found.support) == (shared, 1.0)
    assert (found.content, found.seen) == (shared, "Seen in 3 patterns.")
    assert (found.best_practices, found.pattern_type) == ((shared,), "gotcha")


def test_principle_lists_advice_on_one_matter() -> None:
    texts = [
        "Refuse webhook events whose timestamp is old.",
        "Check for a webhook event twice with one INSERT.",
        "Never answer webhook events after 10 seconds.",
        "Fetch the object when webhook events arrive out of order.",
    ]
    other = ["Rotate the keys of the vault each month.", "Renew the certificates of the proxy before May."]
    (found, _) = extract_principles([make_patterns(texts), make_patterns(other)])
    assert found.is_shared
    title, *advice = found.content.split("\n")
    assert title == "Webhook events"
    assert sorted(line.removeprefix("Do: ") for line in advice) == sorted(texts)
    assert [line for line in advice if not line.startswith("Do: ")] == [texts[2]]
    assert found.seen == "Seen in 4 patterns."


@pytest.mark.parametrize("last", ["", "\nSeen 4 times, 12 May 2026.", "\nEbenso gesagt in 2 von 4 Notizen."])
def test_statements_are_read_without_title_and_labels(last: str) -> None:
    content = f"Webhook events\nRefuse old events.\nDo: Store the event id.\nFor example: one; two{last}"
    assert read_statements(content, "Webhook events") == "Refuse old events.\nStore the event id."
    assert read_statements(f"Refuse old events.{last}", "") == "Refuse old events."


def test_one_pattern_makes_no_principle() -> None:
    texts = ["Set the pool of the database to 12.", "With a timeout of 75 the errors stopped.", "The cache is cleared."]
    (found,) = extract_principles([make_patterns(texts)])
    assert not found.is_shared


def test_principle_tells_both_sides_of_patterns() -> None:
    texts = ["Keep the events of a webhook for 30 days.", "Keep the events of a webhook for 90 days."]
    (found,) = extract_principles([make_patterns([*texts, texts[0]])])
    assert (found.summary, found.overruled) == ("Keep the events of a webhook for 30 days (others say 90 days).", 1)


def test_unit_weight_shifts_pattern() -> None:
    texts = ["Redis keeps the session of a shop.", "Redis evicts a cache key early.", "Postgres evicts no cache key."]
    heavy = [
        Unit(id=str(at), text=text, memory_type="learning", weight=50.0 if at == 0 else 1.0)
        for at, text in enumerate(texts)
    ]
    assert extract([heavy])[0].summary == "Redis keeps the session of a shop."


def test_empty_group_and_zero_weight_are_refused() -> None:
    with pytest.raises(ValueError, match="group 1 has 2 units and no text"):
        extract([make_units(LOCKS), make_units(["", " \n"])])
    with pytest.raises(ValueError, match="weight of unit a is 0"):
        Unit(id="a", text="b", memory_type="learning", weight=0.0)
    assert extract([]) == []


def test_blank_units_give_no_evidence() -> None:
    assert {evidence.unit for evidence in extract_first(["", "Restart the worker.", " "]).evidence} == {2}


@settings(deadline=None, max_examples=examples(60))
@given(unit_groups(), st.integers(0, 1000))
def test_extraction_ignores_order_of_units_and_groups(groups: list[list[Unit]], seed: int) -> None:
    chance = random.Random(seed)
    order = chance.sample(range(len(groups)), len(groups))
    shuffled = extract([chance.sample(groups[at], len(groups[at])) for at in order])
    assert [shuffled[order.index(at)] for at in range(len(groups))] == extract(groups)


@settings(deadline=None, max_examples=examples(100))
@given(unit_groups())
def test_extracted_sentences_quote_whole_words(groups: list[list[Unit]]) -> None:
    for group, found in zip(groups, extract(groups), strict=True):
        numbered = sort_units(group)
        quotes = {" ".join(evidence.quote.split()) for evidence in found.evidence}
        for evidence in found.evidence:
            text = numbered[evidence.unit - 1].text
            assert evidence.quote in text
            assert len(evidence.quote) >= MAX_SENTENCE_CHARS or _ends_whole(evidence.quote, text)
        told = {NOTES.sub("", line) for line in (*found.best_practices, *found.gotchas)}
        assert told <= quotes | {read_lesson(quote).text for quote in quotes}
        assert len(found.content) <= 6 * MAX_SENTENCE_CHARS
        assert {evidence.unit for evidence in found.evidence} == set(range(1, len(group) + 1))


def _ends_whole(quote: str, text: str) -> bool:
    after = text[text.index(quote) + len(quote) :][:1]
    return not (quote[-1:].isalnum() and after.isalnum()) or quote in split_sentences(text)


def test_boilerplate_is_excluded_unless_nothing_else() -> None:
    filler = "Review the full content for insights."
    texts = [f"{text}\n- {filler}" for text in LOCKS]
    (found,) = extract([make_units([*texts, filler])], boilerplate=("review the full content for insights",))
    assert filler not in found.content
    assert "insights" not in found.key_terms
    assert [evidence.quote for evidence in found.evidence if filler in evidence.quote] == [filler]


def test_only_context_and_group_itself_affect_its_text() -> None:
    locks, keys, hooks = (make_units(texts) for texts in (LOCKS, [f"{text} Keys." for text in LOCKS], WEBHOOKS))
    context = [locks, hooks]
    alone = [found for group in (locks, keys, hooks) for found in extract([group], context=context)]
    assert extract([locks, keys, hooks], context=context) == alone
    assert extract([hooks, keys], context=context[::-1]) == alone[:0:-1]
    assert extract([locks, hooks]) == [alone[0], alone[2]]


def test_groups_are_written_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [make_units(LOCKS), make_units(WEBHOOKS), make_units([f"{text} Later." for text in LOCKS])]
    sent: list[int] = []

    def send(
        function: Callable[[PortionToWrite], list[ExtractedPattern]], items: Iterable[PortionToWrite]
    ) -> Iterator[list[ExtractedPattern]]:
        for item in items:
            sent.append(len(item.groups))
            yield function(pickle.loads(pickle.dumps(item)))

    monkeypatch.setattr(extractive_patterns, "_PORTION", 2)
    assert extract(groups, compute=send) == extract(groups)
    assert sent == [2, 1]


def test_headline_of_one_unit_is_not_shared() -> None:
    texts = [
        "Check the seal of the pump before a start. The seal leaks.",
        "Order the paint of the fence in May. It is sold out in June.",
        "Count the chairs of the hall after an event. Two were lost.",
    ]
    assert not extract_first(texts).is_shared
    assert extract_first(WEBHOOKS).is_shared


def test_names_of_changes_are_no_pattern() -> None:
    texts = ["feat(pages): add paging", "Wire the pages to the api", "Add a filter to the pages", "fix(pages): title"]
    assert not extract_first(texts).is_shared


def test_questions_have_no_type_and_only_questions_as_examples() -> None:
    texts = [
        "Why did my parcel fail to arrive?",
        "My parcel was lost, where is it?",
        "My parcel is broken.",
        "When will my parcel arrive?",
    ]
    found = extract_first(texts)
    assert found.pattern_type is None
    assert "broken" not in found.content


def test_reason_comes_from_the_text_of_the_headline() -> None:
    texts = [
        "The report is incorrect because it sums rounded rows. The report should sum the rows before it rounds.",
        "The code is incorrect because it sums rounded rows. The report should sum the rows before it rounds.",
        "The implementation is incorrect because it reads the rows of the report twice, which doubles the sum.",
    ]
    found = extract_first(texts)
    assert "twice" not in found.content
    assert "Avoid: Avoid" not in found.content


def test_disputed_diagnosis_is_no_headline() -> None:
    texts = [
        "The solution is wrong because it starts the pages at 4 instead of 3.",
        "The solution is wrong because it starts the pages at 3 instead of 4.",
        "The solution is wrong because it starts the pages from 4 instead of 3, so a page is lost.",
        "The solution is wrong because it starts the pages from 3 instead of 4, so a page is doubled.",
    ]
    assert not extract_first(texts).is_shared


def test_cause_of_failed_attempts_is_told_as_supposed() -> None:
    texts = [
        "The implementation is incorrect because it rounds each row of the invoice instead of the sum.",
        "The implementation is incorrect because it rounds every row of the invoice instead of the total sum.",
        "The code is incorrect because it rounds the rows of the invoice instead of the sum.",
        "The implementation fails because it rounds all rows of the invoice instead of only the sum.",
    ]
    units = [Unit(id=str(at), text=text, memory_type="error_fix", success=False) for at, text in enumerate(texts)]
    (found,) = extract([units])
    assert "Tried, failed: an implementation that " in found.content
    assert found.seen == "Said alike in 2 of 4 memories; as the failed attempts suppose, not proven."
    assert "Tried, failed: " in read_statements(found.content, found.title)


@pytest.mark.parametrize(
    "texts",
    [
        [
            "Incident 12 October: checkout was down for 14 minutes because the certificate of pay-02 expired.",
            "Incident 19 October: checkout was down for 33 minutes because the disk of pay-02 was full.",
            "Incident 2 November: checkout was down for 8 minutes because the certificate of pay-03 expired.",
        ],
        [
            "Release 2.3 of the returns portal was rolled back because of a broken migration.",
            "Release 2.4 of the returns portal was rolled back because of a memory leak.",
            "Release 2.6 of the returns portal was rolled back because of a wrong feature flag.",
        ],
    ],
)
def test_reports_of_several_occasions_are_examples(texts: list[str]) -> None:
    (found,) = extract([date_units({text: date(2026, 10, 5 + 7 * at) for at, text in enumerate(texts)})])
    assert found.content.endswith("For example: " + "; ".join(text[:-1] for text in reversed(texts)))
    assert (found.overruled, found.best_practices) == (0, ())


def test_what_was_done_next_stands_behind_its_cause() -> None:
    faults = ["The export failed again.", "The export of the invoices failed at night.", "Export of orders failed."]
    pattern = extract_first([f"{fault} Piotr opened a ticket." for fault in faults])
    assert not pattern.content.startswith("Piotr")


def test_opinion_is_no_instruction() -> None:
    texts = {
        "We should switch from Wwise to FMOD. (Bela's opinion, no decision.)": date(2026, 2, 9),
        "Decision: we stay with Wwise. FMOD would cost six weeks.": date(2026, 2, 11),
        "We should switch from Wwise to FMOD soon. (A proposal.)": date(2026, 2, 13),
    }
    (found,) = extract([date_units(texts)])
    assert found.best_practices == ()
    assert "Switch" not in found.content


def test_brackets_are_not_quoted_in_brackets() -> None:
    texts = {
        "Deployments in the week need one approval of the lead.": date(2026, 1, 12),
        "Deployments in the week need two approvals of the lead.": date(2026, 2, 9),
        "Deployments in the week no longer need approvals of the lead, but a green build.": date(2026, 3, 2),
    }
    (found,) = extract([date_units(texts)])
    assert "no longer need" in found.content
    assert found.content.count("(") == 1


@pytest.mark.parametrize(
    ("notes", "headline"),
    [
        (
            [
                "El usuario vive en Sevilla y prefiere que le escriban por WhatsApp.",
                "Prefiere que le escriban por WhatsApp; la usuaria vive en Sevilla.",
                "La usuaria ya no quiere WhatsApp, prefiere correo.",
            ],
            "La usuaria ya no quiere WhatsApp, prefiere correo (",
        ),
        (
            [
                "Mandant Petrow möchte nur telefonisch kontaktiert werden, E-Mails liest er nicht.",
                "Petrow will nur telefonisch kontaktiert werden; er liest keine E-Mails.",
                "Petrow liest inzwischen auch E-Mails.",
            ],
            "Petrow liest inzwischen auch E-Mails (",
        ),
    ],
)
def test_change_leads_before_a_long_claim(notes: list[str], headline: str) -> None:
    (found,) = extract([date_units({text: date(2026, 2, 5 + at) for at, text in enumerate(notes)})])
    assert found.content.startswith(headline)


@pytest.mark.parametrize(
    ("texts", "headline"),
    [
        # Other cases and other things beside which the older claim holds.
        (
            [
                "Visitors of the archive may copy maps, except sealed or torn ones.",
                "Never copy sealed or torn maps.",
                "Copying is allowed for maps, except sealed or torn ones.",
            ],
            "Copying is allowed for maps, except sealed or torn ones.",
        ),
        (
            [
                "The first-aid box in the yard holds two splints.",
                "The first-aid box on floor 7 holds two splints.",
                "The first-aid box in the yard holds three splints since the check.",
            ],
            "The first-aid box in the yard holds three (noted 12 May 2026; was two) splints since the check.",
        ),
        (
            ["Bus alpha runs on Diesel 11.", "Bus beta runs on Diesel 11.", "Bus alpha was converted to Diesel 12."],
            "Bus alpha was converted to Diesel 12.",
        ),
        (
            ["Nadia is in charge of the kiln.", "Nadia is no longer ill and in charge of the kiln again."],
            "Nadia is no longer ill and in charge of the kiln again.",
        ),
        (
            [
                "The code of the side gate changes every 60 days; ask Bruno for it.",
                "Side gate: the code changes after 60 days. Bruno has it.",
                "Bruno left; Dora has the code of the side gate now.",
            ],
            "Bruno left; Dora has the code of the side gate now (as of 12 May 2026). "
            "The code of the side gate changes every 60 days; ask Bruno for it (as of 7 January 2026).",
        ),
        # A newer memory of the group may have changed a fact.
        (
            [
                "Pump `WEST_2` has size MEDIUM.",
                "Pump `EAST_2` has size MEDIUM.",
                "Pump `WEST_2` has been resized to LARGE.",
            ],
            "Pump `WEST_2` has been resized to LARGE (12 May 2026; before: “Pump `WEST_2` has size MEDIUM”).",
        ),
        # An addition is told beside the rule.
        (
            [
                "Plan sheets are blurred with the rule `BLUR_MAPS`; only rank `MAP_READER` sees them unblurred.",
                "Only the rank `MAP_READER` sees plan sheets unblurred; the rule of blurring is `BLUR_MAPS`.",
                "Rank `HARBOUR_READER` may see street names unblurred too, since the meeting of May.",
            ],
            "Rank `HARBOUR_READER` may see street names unblurred too, since the meeting of May (as of 12 May 2026). "
            "Plan sheets are blurred with the rule `BLUR_MAPS`; only rank `MAP_READER` sees them unblurred "
            "(as of 7 January 2026).",
        ),
        # Values that were replaced stand in no template.
        (
            [
                "Ida may buy seeds up to 300 euros.",
                "Olaf may buy seeds up to 300 euros.",
                "Ida may buy seeds up to 900 euros.",
            ],
            "Ida may buy seeds up to 900 euros (noted 12 May 2026; was 300 euros).",
        ),
    ],
)
def test_former_is_only_what_a_newer_memory_ends(texts: list[str], headline: str) -> None:
    days = [date(2026, 1, 7), date(2026, 2, 2), date(2026, 5, 12)]
    (found,) = extract([date_units(dict(zip(texts, [*days[: len(texts) - 1], days[-1]], strict=True)))])
    assert found.summary == headline


@pytest.mark.parametrize(
    ("texts", "leads"),
    [
        # Two of three of another thing, a case, a value, a cause.
        (
            [
                "Oak must be sanded with fine paper.",
                "Ash must be sanded with fine paper.",
                "Ash must be sanded with fine paper.",
            ],
            "Ash",
        ),
        (
            [
                "The cellar in house 16 must stay below 8 °C.",
                "The attic in house 14 must stay between 20 and 24 °C.",
                "The attic in house 16 must stay between 20 and 24 °C.",
                "House 14's attic has to stay between 20 °C and 24 °C.",
            ],
            "The attic",
        ),
        (
            [
                "The lift stopped because the motor was hot.",
                "The lift stopped because the belt was dry.",
                "The lift stopped because the belt was dry. Oil it.",
            ],
            "The lift stopped because the belt",
        ),
    ],
)
def test_sentence_of_few_does_not_lead(texts: list[str], leads: str) -> None:
    for units in (make_units(texts), make_units(texts[::-1])):
        (found,) = extract([units])
        assert found.summary.startswith(leads)


def test_like_of_several_things_is_told_as_examples() -> None:
    texts = ["Trips to the coast need one signature.", "Two signatures are needed for trips to the hills."]
    (found,) = extract([make_units(texts)])
    assert "For example: " in found.content
    assert all(text[:-1] in found.content for text in texts)
    assert found.support == 0.0


def test_advice_that_a_newer_memory_changed_stands_in_no_part() -> None:
    texts = {
        "Never wash the deck of the ferry with salt water; it takes hours to dry.": date(2026, 1, 7),
        "Do not wash the deck of the ferry with salt water: it takes hours to dry.": date(2026, 2, 2),
        "Washing the deck of the ferry with salt water is allowed on Sundays now, as it dries fast.": date(2026, 5, 12),
    }
    (found,) = extract([date_units(texts)])
    assert found.summary.startswith("Washing the deck of the ferry with salt water is allowed on Sundays now")
    *_, last = found.content.split("\n")
    assert last == found.summary


def test_exchanged_values_are_told_before_those_of_then() -> None:
    check = "Check the radio channel before each show: stage left is channel 4, stage right channel 6."
    swapped = "Radio channels have been swapped: stage left is now channel 6, stage right channel 4."
    texts = {
        check: date(2026, 4, 14),
        "Radio channels: stage left 4, stage right 6.": date(2026, 5, 14),
        swapped: date(2026, 9, 14),
    }
    (found,) = extract([date_units(texts)])
    assert found.summary.startswith(f"{swapped[:-1]} (as of 14 September 2026).")
    assert check not in found.best_practices


def test_opening_of_a_log_says_nothing() -> None:
    log = "Stack trace (innermost frame last):\n  in file pump.py, line {}\nCause: two pumps ran at once."
    (found,) = extract([make_units([log.format(line) for line in (4, 8, 15)])])
    assert "innermost" not in found.summary


def test_title_is_in_the_text() -> None:
    texts = {
        "Paint is dry after 24 hours in the hall.": date(2026, 1, 7),
        "Varnish is dry after 24 hours in the hall.": date(2026, 2, 2),
        "By the new leaflet, paint is dry after only 4 hours in the cold barn behind the mill at the river.": date(
            2026, 5, 12
        ),
    }
    (found,) = extract([date_units(texts)])
    assert "24 hours" not in found.title or "24 hours" in found.summary


def test_newer_memory_ends_what_is_still_so() -> None:
    notes = {
        "The mill runs on the pump mill-stage-2 with Oilgrade 15.": date(2026, 2, 3),
        "The dam uses Oilgrade 15 on mill-db-1, with a spare on mill-db-2.": date(2026, 2, 4),
        "The mill is on Oilgrade 16 now; the dam is still on 15.": date(2026, 5, 11),
        "The dam and the mill both run on Oilgrade 16.": date(2026, 8, 4),
    }
    (found,) = extract([date_units(notes)])
    assert found.content.startswith("The dam and the mill both run on Oilgrade 16 (as of 4 August 2026). The mill")


def test_statement_is_no_title_of_examples() -> None:
    turns = zip("Ada Ben Cleo Dora Emil".split(), "March April May June July".split(), strict=True)
    notes = {f"{who} is on call in {month}.": date(2026, at, 1) for at, (who, month) in enumerate(turns, start=3)}
    (found,) = extract([date_units(notes)])
    assert found.content.startswith("For example: Dora is on call in June; ")
    assert found.title == ""


def test_headline_is_in_the_language_of_the_group() -> None:
    notes = {
        "The limit of the gauge Nord is 20 m.": date(2026, 2, 16),
        "The gauge Nord has been at 20 m since May.": date(2026, 5, 13),
        "Das Limit der gauge Nord ist 20 m.": date(2026, 5, 14),
    }
    (found,) = extract([date_units(notes)])
    assert found.content == "The gauge Nord has been at 20 m since May (as of 13 May 2026)."


def test_two_memories_that_are_left_make_no_pattern_of_examples() -> None:
    notes = ["Ada rides to the mill pump on Mondays.", "Ben painted the mill pump in May."]
    gone = [replace(unit, text="") for unit in make_units(["The mill pump is blue."])]
    units = [replace(unit, id=f"{at}") for at, unit in enumerate([*make_units(notes), *gone])]
    (found,) = extract([units])
    assert found.title == "Mill pump"
    assert not found.is_shared
