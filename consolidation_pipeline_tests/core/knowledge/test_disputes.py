"""Disputes: which sentences claim different things of one matter, and the text that tells them."""

from __future__ import annotations

import random
from datetime import date

import pytest

from consolidation_pipeline.core.differences.reading import Reading
from consolidation_pipeline.core.knowledge import disputes
from consolidation_pipeline.core.knowledge.disputes import (
    Dispute,
    Statement,
    find_disputes,
    list_overruled,
    list_statements,
)
from consolidation_pipeline.core.knowledge.rival_claims import Comparison, compare_sentences

JANUARY, MARCH, MAY = date(2026, 1, 7), date(2026, 3, 9), date(2026, 5, 12)


def find(*texts: str, days: tuple[date | None, ...] = ()) -> list[Dispute]:
    given = days or (None,) * len(texts)
    return find_disputes([Statement(text, at, day) for at, (text, day) in enumerate(zip(texts, given, strict=True))])


@pytest.mark.parametrize(
    ("older", "newer", "told"),
    [
        ("The job needs Node 20.", "The job needs Node 22.", "The job needs Node 22 (noted 12 May 2026; was 20)."),
        ("Files over 2 GB fail.", "Files over 3 GB fail.", "Files over 3 GB (noted 12 May 2026; was 2 GB) fail."),
        ("The image is a:3.11-slim.", "The image is a:3.12-slim.", "The image is a:3.12-slim ({noted}; was 3.11)."),
        ("Always restart workers.", "Never restart workers.", "Never restart workers ({noted}; was “{older}”)."),
        ("Enable the proxy cache.", "Disable the proxy cache.", "Disable the proxy cache ({noted}; was “{older}”)."),
        ("Stop it before a deploy.", "Stop it after a deploy.", "Stop it after a deploy ({noted}; was “{older}”)."),
        ("Run it with the cache.", "Run it without the cache.", "Run it without the cache ({noted}; was “{older}”)."),
        (
            "The west kiln is used by the potters in winter.",
            "The west kiln is not used by the potters in winter.",
            "The west kiln is not used by the potters in winter ({noted}; was “{older}”).",
        ),
        # A reason is no case of its own.
        (
            "Füttere die alten Ziegen im Stall nachts, damit sie schlafen.",
            "Füttere die alten Ziegen im Stall nicht nachts.",
            "Füttere die alten Ziegen im Stall nicht nachts ({notiert}; vorher “{older}”).",
        ),
        (
            "Er trinkt ihn ohne Milch.",
            "Er trinkt ihn mit Milch.",
            "Er trinkt ihn mit Milch ({notiert}; vorher “{older}”).",
        ),
        ("Bebo el café con leche.", "Bebo el café sin leche.", "Bebo el café sin leche ({anotado}; antes “{older}”)."),
        (
            "The fair was moved to 4 May.",
            "The fair was moved to 9 May.",
            "The fair was moved to 9 May ({noted}; was 4 May).",
        ),
        ("The Rome trip is on 4 May.", "The Rome trip is on 9 May.", "The Rome trip is on 9 May ({noted}; was 4 May)."),
        (
            "Run a check before any sale, also for old clients.",
            "Run a check before any sale, except for old clients.",
            "Run a check before any sale, except for old clients ({noted}; was “{older}”).",
        ),
        (
            "Prüfung vor Annahme der Ware, auch bei Stammkunden.",
            "Prüfung vor Annahme der Ware, außer bei Stammkunden.",
            "Prüfung vor Annahme der Ware, außer bei Stammkunden ({notiert}; vorher “{older}”).",
        ),
        (
            "Drain the node before upgrading the kernel.",
            "Upgrade the kernel before draining the node.",
            "Upgrade the kernel before draining the node ({noted}; was “{older}”).",
        ),
        ("The shop calls billing.", "Billing calls the shop.", "Billing calls the shop ({noted}; was “{older}”)."),
        (
            "The key belongs to Alice.",
            "The key belongs to Bob.",
            "The key belongs to Bob (12 May 2026; before: Alice).",
        ),
        (
            "Der Test läuft 5 Minuten lang.",
            "Der Test läuft 9 Minuten lang.",
            "Der Test läuft 9 Minuten ({notiert}; vorher 5 Minuten) lang.",
        ),
    ],
)
def test_newer_claim_is_rule_with_date(older: str, newer: str, told: str) -> None:
    told = told.format(
        noted="noted 12 May 2026", notiert="notiert 2026-05-12", anotado="anotado 2026-05-12", older=older.rstrip(".")
    )
    (found,) = find(older, newer, days=(JANUARY, MAY))
    assert found == Dispute(1, told, (0,), (0,), True)
    (mirrored,) = find(newer, older, days=(MAY, JANUARY))
    assert mirrored == Dispute(0, told, (1,), (1,), True)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (
            ["The retry limit of the payouts queue is 5.", "The retry limit of the refunds queue is 3."],
            "The retry limit of the payouts queue is 5 (also “The retry limit of the refunds queue is 3”).",
        ),
        (
            [
                "The page size limit is 200 for /v1/entries in the API.",
                "The page size limit is 50 for /v1/orders in the API.",
            ],
            "The page size limit is 200 for /v1/entries (also 50 for /v1/orders) in the API.",
        ),
        (
            ["The proxy listens on port 5432.", "The proxy listens on port 5433 in a checkout."],
            "The proxy listens on port 5432 (also 5433 in a checkout).",
        ),
        # What differs stands in several places.
        (
            [
                "Alarm `HighTide` rings when the tide level is above 90 cm for 10 minutes.",
                "Alarm `HighTide` resets when the tide level is below 20 cm for 10 minutes.",
            ],
            "Alarm `HighTide` rings when the tide level is above 90 cm for 10 minutes "
            "(also “Alarm `HighTide` resets when the tide level is below 20 cm for 10 minutes”).",
        ),
        (
            [
                "The limit of the oak pile is 40 logs; the rest waits.",
                "The limit of the ash pile is 60 logs; the rest waits.",
            ],
            "The limit of the oak pile is 40 logs (also “The limit of the ash pile is 60 logs”); the rest waits.",
        ),
        (
            [
                "Der Mietschein von Nordhaus muss innerhalb von 24 Stunden unterschrieben werden.",
                "Mietscheine von Südhaus müssen innerhalb von 48 Stunden unterschrieben werden.",
            ],
            "Der Mietschein von Nordhaus muss innerhalb von 24 Stunden unterschrieben werden "
            "(auch “Mietscheine von Südhaus müssen innerhalb von 48 Stunden unterschrieben werden”).",
        ),
        # Numbers of a heading are of two things.
        (
            ["Sand of 10 kg: the price is 4 euros a bag.", "Sand of 20 kg: the price is 4 euros a bag."],
            "Sand of 10 kg (also 20 kg): the price is 4 euros a bag.",
        ),
        # Labels of things, opposite bounds, and opposites in a condition.
        (
            ["Room 12: the heating did not start.", "Room 14: the heating did not start."],
            "Room 12 (also 14): the heating did not start.",
        ),
        (
            ["Parcels above 20 kg go by ship.", "Parcels below 20 kg go by ship."],
            "Parcels above 20 kg go by ship (also “Parcels below 20 kg go by ship”).",
        ),
        (
            ["Call the porter when the gate is open.", "Call the porter when the gate is closed."],
            "Call the porter when the gate is open (also “Call the porter when the gate is closed”).",
        ),
        (
            ["Status 404 must not be retried by clients.", "Status 410 must not be retried by clients."],
            "Status 404 (also 410) must not be retried by clients.",
        ),
        (
            ["Renamed the module core/a.py plainly.", "Renamed the module core/b.py plainly."],
            "Renamed the module core/a.py (also core/b.py) plainly.",
        ),
    ],
)
def test_claims_on_other_things_are_told_beside(texts: list[str], told: str) -> None:
    (found,) = find(*texts)
    assert (found.rule, found.told, found.others, found.overruled) == (0, told, (1,), ())
    (dated,) = find(*texts, days=(JANUARY, MAY))
    assert (dated.told, dated.overruled) == (told, ())


@pytest.mark.parametrize(
    "texts",
    [
        ["Keep event ids for 30 days.", "Answer a webhook within 10 seconds."],
        ["Verify the signature of a webhook.", "Verify the signed timestamp of a webhook too."],
        ["Verify it with hmac.compare_digest here.", "Verify it with compare_digest here."],
        ["Fix the flaky worker tests.", "Fix the flaky toast tests."],
        ["The limit is 5.", "the limit is 5"],
        ["Redis in staging has 4 GB of memory.", "Redis in production has 4 GB of memory."],
        ["Set the limit of the export job to 2 GiB.", "Set the limit of the import job to 2 GiB."],
        ["Der Server in Staging läuft nachts.", "Der Server in Produktion läuft nachts."],
        ["Deployments are forbidden on Fridays.", "No deployments on Fridays."],
        [
            "No boat rides in the spring frost (1 May to 3 June).",
            "Spring frost: no rides of the boat from 1 May to 3 June.",
        ],
        # Each report is of another occasion.
        [
            "Incident 12 October: checkout was down for 14 minutes as the disk of pay-02 was full.",
            "Incident 2 November: checkout was down for 8 minutes as the disk of pay-03 was full.",
        ],
        ["Release 2.3 of the portal was rolled back.", "Release 2.4 of the portal was rolled back."],
        ["Am 12. Mai war die Kasse 14 Minuten weg.", "Am 3. Juni war die Kasse 20 Minuten weg."],
        # Reports that differ in no value or name.
        ["The crate came from the harbour.", "The crate came to the harbour."],
        ["House 4's oven stays between 20 °C and 24 °C.", "The oven in house 4 stays between 20 and 24 °C."],
        ["The limit is 30 s.", "The limit is half a minute, that is 30 seconds."],
        [],
    ],
)
def test_other_matters_and_agreement_are_no_dispute(texts: list[str]) -> None:
    assert find(*texts, days=(JANUARY, MAY)[: len(texts)]) == []


@pytest.mark.parametrize("days", [(None, None), (MAY, MAY), (None, MAY), (MAY, None)])
def test_undated_claims_leave_dispute_open(days: tuple[date | None, ...]) -> None:
    (found,) = find("The limit is 5 tries.", "The limit is 8 tries.", days=days)
    assert found == Dispute(0, "The limit is 5 (others say 8) tries.", (1,), (1,), False)


def test_noted_day_is_first_one_after_older_claims() -> None:
    texts = [f"The job needs Node {version}." for version in (22, 20, 22, 18)]
    (found,) = find(*texts, days=(MAY, JANUARY, MARCH, date(2025, 1, 1)))
    assert found.told == "The job needs Node 22 (noted 9 March 2026; was 20, 18)."
    assert (found.others, found.overruled) == ((1, 3), (1, 3))
    (returned,) = find(*texts, days=(MAY, MARCH, JANUARY, JANUARY))
    assert returned.told == "The job needs Node 22 (noted 12 May 2026; was 20, 18)."


def test_older_claim_on_another_thing_is_overruled() -> None:
    limits = [("payouts", 5), ("refunds", 3), ("refunds", 4)]
    texts = [f"The retry limit of the {name} queue is {count}." for name, count in limits]
    (found,) = find(*texts, days=(MARCH, JANUARY, MAY))
    refunds = "“The retry limit of the refunds queue"
    assert found.told == f"The retry limit of the payouts queue is 5 (also {refunds} is 4”, was {refunds} is 3”)."
    assert (found.others, found.overruled, found.is_decided) == ((1, 2), (1,), True)


def test_value_of_another_sentence_is_told_whole() -> None:
    texts = [
        "Shelf `oak.v1` has 12 boxes and a limit of 7 kg.",
        "Shelf `oak.v1` has a limit of 3 kg now.",
        "Shelf `ash.v1` has 24 boxes and a limit of 7 kg.",
    ]
    (found,) = find(*texts, days=(JANUARY, MAY, JANUARY))
    assert found.told == f"{texts[1][:-1]} (12 May 2026; before: “{texts[0][:-1]}”; also “{texts[2][:-1]}”)."
    assert (found.rule, found.overruled) == (1, (0,))


def test_reason_of_a_newer_value_is_no_other_thing() -> None:
    bus = "The last night bus to the coast leaves the market at"
    (found,) = find(f"{bus} 02:00.", f"{bus} 03:30 because the depot is slower.", days=(JANUARY, MAY))
    assert found.told == f"{bus} 03:30 (noted 12 May 2026; was 02:00) because the depot is slower."


def test_time_of_two_numbers_is_quoted_alone() -> None:
    (found,) = find("Le spectacle commence à 18 h 30.", "Le spectacle commence à 19 h 30.")
    assert found.told == "Le spectacle commence à 18 h 30 (d'autres disent 19 h 30)."


def test_unit_is_quoted_whole() -> None:
    (found,) = find("The tank takes 7 mg/kg a day.", "The tank takes 6 mg/kg a day.", days=(JANUARY, MAY))
    assert found.told == "The tank takes 6 mg/kg (noted 12 May 2026; was 7 mg/kg) a day."


def test_many_rivals_are_told_up_to_limit() -> None:
    texts = [f"The limit of the queue is {count} tries." for count in range(10, 30)]
    (found,) = find(*texts)
    assert found.told == "The limit of the queue is 10 (others say 11, 12, 13, 14, …) tries."
    assert len(found.overruled) == 19


def test_overruled_units_are_listed_once() -> None:
    texts = ["The limit is 5 tries. The port is 80 here.", "The limit is 8 tries.\n- The port is 81 here."]
    statements = list_statements(texts, [JANUARY, MAY])
    assert [statement.unit for statement in statements] == [0, 0, 1, 1]
    assert list_overruled(statements, find_disputes(statements)) == [0]


def test_comparisons_grow_with_sentences_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Reading] = []

    def compare(first: Reading, other: Reading) -> Comparison | None:
        compared.append(other)
        return compare_sentences(first, other)

    monkeypatch.setattr(disputes, "compare_sentences", compare)
    chance = random.Random(1)
    words = ["queue", "worker", "cache", "limit", "order", "index", "shard", "token"]
    texts = [f"The {' '.join(chance.sample(words, 4))} fails for case{at % 7}." for at in range(200)]
    find(*texts)
    assert 0 < len(compared) <= 2 * len(texts)


def test_claims_that_differ_twice_are_told_whole() -> None:
    texts = [
        "Sheds over 40 m² need a permit of the mayor.",
        "Sheds over 90 m² need a permit of the mayor and the fire brigade.",
    ]
    (found,) = find(*texts)
    assert found.told == f"{texts[0][:-1]} (also “{texts[1][:-1]}”)."


def test_words_are_in_the_language_of_the_group() -> None:
    (found, *_) = find(
        "Halle Nord: 40 kg.", "Halle Nord: 90 kg.", "Die Waage in der Küche ist neu.", days=(MAY, JANUARY, MAY)
    )
    assert found.told == "Halle Nord: 40 kg (notiert 2026-05-12; vorher 90 kg)."


def test_part_of_formula_is_no_rival_claim() -> None:
    texts = ["The letters move by a fixed value of 4.", "The letters move by a fixed value of 2 * n."]
    assert find_disputes([Statement(text, at) for at, text in enumerate(texts)]) == []


@pytest.mark.parametrize(
    ("openings", "count"),
    [
        # Of two things, of one thing, and of what is not named.
        (("Disk of `mail-a` was full.", "Disk of `mail-b` was full."), 0),
        (("Disk of `mail-a` was full.", "Disk of `mail-a` was full again."), 1),
        (("Disk of `mail-a` was full.", "A disk was full."), 1),
    ],
)
def test_sentence_before_tells_of_which_thing_a_claim_is(openings: tuple[str, str], count: int) -> None:
    texts = [f"{opening} Raised the quota to {size} GB." for opening, size in zip(openings, (20, 40), strict=True)]
    assert len(find_disputes(list_statements(texts, [JANUARY, MAY]))) == count


@pytest.mark.parametrize(("openings", "count"), [(("The mailer broke.", "The planner broke."), 0), (("A.", "A."), 1)])
def test_reference_is_compared_with_what_it_refers_to(openings: tuple[str, str], count: int) -> None:
    texts = [f"{opening} It took {found} minutes to find." for opening, found in zip(openings, (30, 12), strict=True)]
    assert len(find_disputes(list_statements(texts, [JANUARY, MAY]))) == count
