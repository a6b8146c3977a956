"""Tests of the sameness of claims."""

import pytest

from consolidation_pipeline.core.knowledge.same_claims import SameClaim


@pytest.mark.parametrize(
    ("claim", "memory"),
    [
        ("Water Ada's plants twice a week.", ["Ada's plants: water them twice a week."]),
        ("Water Ada's plants twice a week.", ["Ada travels.", "water Ada's plants twice a week"]),
        # In two sentences.
        (
            "If the printer jams, open tray 2 and pull the sheet.",
            ["Open tray 2 if the printer jams.", "Pull the sheet."],
        ),
        # One word elsewhere, and another word for the same.
        ("Remind Noor of fees two days before they are due.", ["Remind Noor two days before fees are due."]),
        ("The press needs 40 kPa.", ["The press requires 40 kPa."]),
        ("Der Ofen braucht 20 Minuten.", ["Der große Ofen braucht 20 Minuten."]),
    ],
)
def test_claim_is_said_in_like_words(claim: str, memory: list[str]) -> None:
    language = "de" if "Ofen" in claim else "en"
    assert SameClaim(claim, language).is_said_in(memory)


@pytest.mark.parametrize(
    ("claim", "other", "language"),
    [
        ("The press needs 40 kPa.", "The press needs 60 kPa.", "en"),
        ("Noor's visa expires on 2027-01-31.", "Noor's lease expires on 2027-01-31.", "en"),
        ("Noor is allergic to nuts.", "Ada is allergic to nuts.", "en"),
        ("Noor sends Ada 20 euros.", "Ada sends Noor 20 euros.", "en"),
        ("Noor is allergic to nuts.", "Noor is not allergic to nuts.", "en"),
        ("For rides under 3 km Ada takes the bike.", "For rides over 3 km Ada takes the bike.", "en"),
        ("The hall may be booked by guests.", "The hall is booked by guests.", "en"),
        ("Ada rents a bike from Noor.", "Ada gave the bike back to Noor.", "en"),
        ("Ben says that Ada pays the rent.", "Ada pays the rent.", "en"),
        ("Ana bebe el té sin leche.", "Ana bebe el té con leche.", "es"),
        # Other words in the place of the claim's.
        ("Noor is the owner of the kiln.", "Ada took over the kiln from Noor.", "en"),
        ("Never paint the doors in the hall of Lot 4.", "The doors in the hall of Lot 4 never need oil.", "en"),
        ("Der Vertrag mit Holz Lübeck endet im Mai.", "Der Vertrag mit Holz Bremen endet im Mai.", "de"),
    ],
)
def test_other_claim_is_not_the_same(claim: str, other: str, language: str) -> None:
    assert not SameClaim(claim, language).is_said_in([other])


@pytest.mark.parametrize(
    ("claim", "newer", "language"),
    [
        ("The dance class of Ben is on Friday.", "The dance class of Ben was cancelled.", "en"),
        ("Ada rents a bike from Noor.", "Ada gave the bike back to Noor.", "en"),
        ("Water the plants two days before the visit.", "Water the plants a week before the visit.", "en"),
        ("Noor is the owner of the kiln.", "Ada took over the kiln from Noor.", "en"),
        ("The office uses Excel 15.", "The office was upgraded to Excel 16 on 26 September.", "en"),
        ("The night choir of the school is in the barn.", "The night choir of the school went back to the hall.", "en"),
        ("Die Proben des Chors sind im Saal.", "Die Proben des Chors sind zurückgekehrt.", "de"),
        ("Orders above 200 EUR need a signature.", "A signature is needed for orders above 900 EUR.", "en"),
        ("Ana bebe el té sin leche.", "Ana bebe el té con leche.", "es"),
    ],
)
def test_newer_sentence_on_the_matter_is_a_rival(claim: str, newer: str, language: str) -> None:
    assert SameClaim(claim, language).find_rival(["Unrelated.", newer]) == newer


@pytest.mark.parametrize(
    ("claim", "newer"),
    [
        # Of another thing.
        ("The dance class of Ben is on Friday.", "The dance class of Ada is on Monday."),
        # Of another occasion.
        (
            "Release 2.3 of the portal was rolled back for a leak.",
            "Release 2.6 of the portal was rolled back for a flag.",
        ),
        ("Noor's visa expires in May.", "Noor's lease expires in May."),
        ("Error Q104 means that the tray is empty.", "Error Q140 means that the tray is full."),
        # The same, turned or asked for in other words.
        ("Lock the gate of Lot 4 before the alarm.", "Order at the gate of Lot 4: lock first, then the alarm."),
        ("Wrap the vase of Noor in `felt`.", "Use `felt` around the vase of Noor."),
        ("Set the kiln to 40 kPa.", "The kiln at 40 kPa stays quiet."),
        # On another matter, or no news.
        ("The dance class of Ben is on Friday.", "Ben was promoted."),
        ("Starting the press with 40 kPa ended the jams.", "40 kPa ended the jams."),
    ],
)
def test_sentence_of_another_matter_is_no_rival(claim: str, newer: str) -> None:
    assert SameClaim(claim, "en").find_rival([newer]) is None


def test_title_of_a_memory_is_no_rival() -> None:
    claim = SameClaim("The slow test check_gate failed in CI on the first of a month.", "en")
    assert claim.find_rival(["Fix the slow door test in CI", "The door waits for the bell now."]) is None


def test_change_of_something_else_is_no_rival_of_a_long_claim() -> None:
    claim = SameClaim("Am OLG ist Saal 241 für die Verhandlung Wiesner vorgesehen.", "de")
    moved = "Die Verhandlung Wiesner ist vom 9. Juni auf den 23. Juni verlegt worden."
    assert claim.find_rival([moved]) is None
