"""Profiles from counts: lines by heading, thresholds, and independence of the order."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from consolidation_pipeline.core.differences.language import LANGUAGES
from consolidation_pipeline.core.knowledge.observation import Observation
from consolidation_pipeline.core.knowledge.profile_counts import _PHRASES, HEADINGS, count_profile

# A word that is filled in.
_FIELD = re.compile(r"\{\w+")
START = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)  # a Monday


def observe(at: int, **fields: object) -> Observation:
    """Return a memory of hour ``at`` of the working days, eight hours a day."""
    week, rest = divmod(at, 40)
    moment = START + timedelta(weeks=week, days=rest // 8, hours=rest % 8)
    made = Observation(
        text=f"Cart page {at} is slow.\nCheck the query plan of page {at} in Postgres.",
        memory_type="learning",
        success=None,
        tags=("cart",),
        files=("shop/cart.py",),
        language="english",
        learned_at=moment,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def tell(rows: list[Observation], heading: str) -> str:
    return "\n".join(count_profile(rows).parts[heading])


def test_profile_counts_files_tools_and_tags() -> None:
    rows = [observe(at) for at in range(20)]
    techniques = tell(rows, "technical_preferences")
    assert "Languages and formats: Python (20)." in techniques
    assert "Tools and services: Postgres (20)." in techniques
    assert "Files touched most: shop/cart.py (20)." in techniques
    assert "Subjects (tags): cart (20)." in tell(rows, "context")


def test_profile_tells_repeated_instruction_with_count() -> None:
    rows = [observe(at) for at in range(20)]
    assert '"check the query plan of page' in tell(rows, "work_patterns")


def test_repeats_are_those_that_are_one_content() -> None:
    rows = [observe(at, text=f"Note {at % 10} tells what the cart page does{'.' * (at // 10)}") for at in range(20)]
    assert "10 of the 20 notes repeat an earlier one word for word" in tell(rows, "work_patterns")


def test_profile_tells_share_of_questions() -> None:
    asked = [
        observe(at, text=f"How do I add card {at} to the app" if at % 4 else "The app is slow.") for at in range(20)
    ]
    assert "75% ask something" in tell(asked, "communication_preferences")


def test_profile_tells_of_text_that_repeats() -> None:
    filler = "This note was made by a template and may hold no lesson at all."
    rows = [observe(at, text=f"The cart page {at} is slow.\n{filler}") for at in range(20)]
    told = "\n".join(count_profile(rows, boilerplate=[filler]).parts["communication_preferences"])
    assert "100% have text that repeats in many notes; it is not counted below." in told
    assert "half of them have at most 20 words" in told
    plain = [observe(at) for at in range(20)]
    assert "repeats in many notes" not in tell(plain, "communication_preferences")


def test_profile_tells_how_many_notes_open() -> None:
    rows = [observe(at, text=f"{'The check failed on' if at % 2 else f'Page {at} of'} host {at}.") for at in range(20)]
    assert '50% open with "The check failed".' in tell(rows, "communication_preferences")


def test_profile_leaves_out_what_tells_nothing() -> None:
    rows = [observe(at, text=f"Please look at the parcel {at}, please.", tags=()) for at in range(20)]
    assert "kind learning" not in tell(rows, "work_patterns")
    assert "All notes are of the kind warning." in tell(
        [replace(row, memory_type="warning") for row in rows], "work_patterns"
    )
    assert "parcel" in tell(rows, "context")
    assert "please" not in tell(rows, "context")


def test_names_are_part_of_the_context() -> None:
    rows = [observe(at, text=f"The ATM kept card {at}.") for at in range(20)]
    assert "Names that come up most: ATM (20)." in tell(rows, "context")


def test_numbers_zones_and_methods_are_no_names() -> None:
    rows = [observe(at, text=f"At noon CET of day {at}, PATCH part IV of the page.") for at in range(20)]
    assert "Names" not in tell(rows, "context")


def test_busiest_day_is_told_only_if_it_stands_out() -> None:
    days = [replace(observe(at), learned_at=START + timedelta(days=7 * at)) for at in range(60)]
    assert "Most notes" not in tell(days, "work_patterns")
    assert "100% from Monday to Friday" in tell(days, "work_patterns")
    busy = [*days, *(replace(observe(at), learned_at=START) for at in range(60, 65))]
    assert "Most notes of one day: 6, on 2026-03-02; 100%" in tell(busy, "work_patterns")


def test_rare_instruction_is_no_habit() -> None:
    rows = [observe(at, text="Run the full test suite." if at < 4 else f"Page {at} is slow.") for at in range(500)]
    assert "full test suite" not in tell(rows, "work_patterns")
    assert "full test suite" in tell(rows[:100], "work_patterns")


def test_profile_tells_success_and_tags_that_differ() -> None:
    rows = [observe(at, success=at % 4 != 0, tags=("cart",) if at % 2 else ("login",)) for at in range(40)]
    habits = tell(rows, "work_patterns")
    assert "75% of 40 rated tasks succeeded; more with cart (100% of 20); less with login (50% of 20)." in habits
    assert "succeeded" not in tell([replace(row, success=None) for row in rows], "work_patterns")


def test_profile_tells_hours_and_weekdays_of_work() -> None:
    habits = tell([observe(at) for at in range(160)], "work_patterns")
    assert "100% from Monday to Friday, 0% at weekends" in habits
    assert "between 09:00 and 16:00 UTC" in habits
    midnight = [
        replace(observe(at), learned_at=START.replace(hour=0, minute=0) + timedelta(days=at)) for at in range(60)
    ]
    assert "UTC" not in tell(midnight, "work_patterns")


def test_profile_tells_what_is_new_of_late() -> None:
    rows = [observe(at, tags=("cart",) if at < 60 else ("login",)) for at in range(80)]
    context = tell(rows, "context")
    assert "more login (20 of 20, before 0 of 60)" in context
    assert "less cart (0 of 20, before 60 of 60)" in context


def test_rare_subject_of_before_is_no_news() -> None:
    rows = [observe(at, tags=("cart",) if at < 7 else ("till", "inn", "pier")) for at in range(80)]
    assert "less" not in tell(rows, "context")
    rows = [observe(at, tags=("cart",) if at < 15 else ("till", "inn", "pier")) for at in range(80)]
    assert "less cart (0 of 20, before 15 of 60)" in tell(rows, "context")


def test_profile_leaves_out_headings_without_evidence() -> None:
    bare = Observation(
        text="It rained.", memory_type="learning", success=None, tags=(), files=(), language="simple", learned_at=START
    )  # fmt: skip
    content = count_profile([bare]).content
    assert "Techniques" not in content
    assert "Communication" not in content
    assert "1 note on 2026-03-02." in content
    assert count_profile([]).content == ""


def test_profile_says_how_notes_are_written() -> None:
    german = "Die Seite des Warenkorbs ist langsam, weil der Index fehlt."
    rows = [observe(at, text=german) if at < 5 else observe(at) for at in range(20)]
    communication = tell(rows, "communication_preferences")
    assert "Notes are in English 75%, German 25%." in communication
    assert "100% open with a title line" not in communication  # the first line ends in a full stop
    assert "half of them have at most" in communication


def test_language_of_notes_is_told_from_their_texts() -> None:
    texts = [f"El horno número {at} tarda mucho en calentarse por la mañana." for at in range(12)]
    told = tell([observe(at, text=text) for at, text in enumerate(texts)], "communication_preferences")
    assert "Idioma de las notas: español." in told
    # Neither of two is English.
    texts[:4] = [f"Le four numéro {at} met longtemps à chauffer le matin." for at in range(4)]
    both = tell([observe(at, text=text) for at, text in enumerate(texts)], "communication_preferences")
    assert "Idioma de las notas: español 67%, français 33%." in both
    # The source names a language that texts are not searched for.
    dutch = [observe(at, text=f"De oven {at} wordt niet warm.", language="pg_catalog.dutch") for at in range(12)]
    assert "Notes are in Dutch." in tell(dutch, "communication_preferences")
    unknown = [observe(at, text=f"zzyx {at}") for at in range(12)]
    assert "Notes are in" not in tell(unknown, "communication_preferences")


def test_words_are_not_counted_in_scripts_without_spaces() -> None:
    foods = ("えび", "かに", "牛乳", "そば")
    rows = [observe(at, text=f"花子さんは{foods[at % 4]}のアレルギーがある。", tags=()) for at in range(12)]
    content = count_profile(rows).content
    assert "メモの言語：日本語。" in content
    assert "words" not in content.lower()


def test_profile_ignores_order_of_memories() -> None:
    rows = [observe(at, success=at % 3 == 0, session=f"s{at % 4}", agent="a") for at in range(50)]
    assert count_profile(rows) == count_profile(rows[::-1])
    assert "in 4 sessions" in tell(rows, "context")


def test_profile_headings_are_those_of_model() -> None:
    assert list(HEADINGS) == ["communication_preferences", "technical_preferences", "work_patterns", "context"]
    assert list(count_profile([observe(0)]).parts) == list(HEADINGS)


def test_profile_says_how_many_notes_repeat_another() -> None:
    rows = [observe(at, text=f"Cart page {at % 8} is slow.") for at in range(10)]
    assert "2 of the 10 notes repeat an earlier one word for word; without these repeats, 8 are left." not in tell(
        rows, "work_patterns"
    )
    rows += [observe(at, text="Cart page 1 is slow.") for at in range(10, 20)]
    assert "12 of the 20 notes repeat an earlier one word for word; without these repeats, 8 are left." in tell(
        rows, "work_patterns"
    )


def test_profile_is_in_the_language_of_its_notes() -> None:
    texts = [f"Der Schlüssel der Halle {at} hängt hinter der Tür am Hof." for at in range(12)]
    rows = [replace(observe(at), text=text) for at, text in enumerate(texts)]
    content = count_profile(rows).content
    assert "Sprache der Notizen: Deutsch." in content
    assert "12 Notizen vom" in content
    assert "notes" not in content.lower().split()


def test_each_language_has_all_phrases() -> None:
    fields = {
        language: {key: sorted(_FIELD.findall(phrase)) for key, phrase in _PHRASES[language].items()}
        for language in LANGUAGES
    }
    assert all(found == fields["en"] for found in fields.values())
