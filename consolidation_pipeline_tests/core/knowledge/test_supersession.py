"""Supersession: which newer memory takes the place of what an older one says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from consolidation_pipeline.core.differences.language import LANGUAGES
from consolidation_pipeline.core.knowledge.change_words import find_changes, is_plan
from consolidation_pipeline.core.knowledge.supersession import (
    Supersession,
    Writer,
    describe_supersession,
    drop_superseded,
)
from consolidation_pipeline_tests.core.knowledge.dated_notes import DatedNote, find, find_between
from consolidation_pipeline_tests.core.knowledge.sequences import find_status, judge_sequence, load_sequences

DAY = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = load_sequences()


def compare(older: str, newer: str, *, days: float = 1, same_writer: bool = True) -> Supersession | None:
    ann, ben = Writer(session="one"), Writer(session="two")
    later = DatedNote.of(UUID(int=2), newer, DAY + timedelta(days=days), ann if same_writer else ben)
    return find_between(DatedNote.of(UUID(int=1), older, DAY, ann), later)


def test_supersession_meets_development_sequences() -> None:
    assert len(ROWS) >= 60
    assert {row["language"] for row in ROWS} == set(LANGUAGES)
    found = [judge_sequence(row) for row in ROWS]
    wrong = [(row, one) for row, one in zip(ROWS, found, strict=True) if one and not row["expect"]]
    missed = [row for row, one in zip(ROWS, found, strict=True) if (one.status if one else None) != row["expect"]]
    assert not wrong
    # Of those in free words, only a reader can relate some.
    free = [row for row in ROWS if row["cls"] == "free words"]
    assert sum(row in free for row in missed) <= 0.25 * len(free)
    assert sum(row not in free for row in missed) <= 0.05 * (len(ROWS) - len(free))


LONG = f"The report lists {', '.join(f'region {at}' for at in range(40))} and the total."


@pytest.mark.parametrize(
    ("text", "was", "left"),
    [
        ("CI runs on Jenkins. Logs go to Loki.", "CI runs on Jenkins.", "Logs go to Loki."),
        ("- CI runs on Jenkins.\n- Logs go to Loki.", "CI runs on Jenkins.", "- Logs go to Loki."),
        (f"Logs go to Loki. {LONG}", LONG, "Logs go to Loki."),
        ("CI runs on Jenkins.", "CI runs on Jenkins.", ""),
        ("CI runs on Jenkins and Buildkite.", "CI runs on Jenkins", "CI runs on Jenkins and Buildkite."),
        ("Logs go to Loki.", "CI runs on Jenkins.", "Logs go to Loki."),
    ],
)
def test_superseded_sentence_is_dropped(text: str, was: str, left: str) -> None:
    reason = describe_supersession(Supersession("confirmed", "change words", was, "CI runs on -> GitHub: now."))
    assert drop_superseded(text, [reason]) == left


def test_change_words_confirm_what_others_wrote() -> None:
    found = compare("Mail goes out at 6:00.", "Mail no longer goes out at 6:00.", same_writer=False)
    assert found == Supersession(
        "confirmed", "change words", "Mail goes out at 6:00.", "Mail no longer goes out at 6:00."
    )
    assert found.confidence == 0.9


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Logs are kept for 14 days in Loki.", "Logs are no longer kept for 14 days but for 30 days in Loki."),
        ("Contoso is on the enterprise plan with 100 seats.", "Contoso is on the enterprise plan with 150 seats."),
        ("Litware is on the team plan with 20 seats.", "Litware now is on the team plan with 30 seats."),
        ("Memcached has 4 GB of memory.", "Memcached has 8 GB of memory."),
        ("Der Tarif Enterprise-Plan hat 100 Plätze.", "Der Tarif Enterprise-Plan hat 150 Plätze."),
    ],
)
def test_newer_value_supersedes(older: str, newer: str) -> None:
    assert compare(older, newer) is not None


def test_noun_is_no_plan() -> None:
    assert not is_plan("Litware is on the team plan with 20 seats.", "en")
    for plan in ("We plan to move it.", "The plan is to move it.", "He plans on moving it.", "A move is planned."):
        assert is_plan(plan, "en")


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


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The fix was casting the column before ordering.", "We now rely on casting the column before ordering."),
        ("The answer was pinning the version of numpy.", "We now recommend pinning the version of numpy."),
        ("La solución fue reiniciar el servicio cada noche.", "Ahora confiamos en reiniciar el servicio cada noche."),
    ],
)
def test_what_was_done_and_is_relied_on_agree(older: str, newer: str) -> None:
    assert compare(older, newer) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Bob is the on-call lead.", "The on-call lead is now Ann."),
        ("MySQL is our main database.", "Our main database is now Postgres."),
        ("Monday is the deploy day.", "Tuesday is now the deploy day."),
    ],
)
def test_subject_and_its_predicate_change_places(older: str, newer: str) -> None:
    assert compare(older, newer) is not None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The cache has a TTL of 300 seconds.", "The TTL of the cache was lowered from 300 to 60 seconds."),
        ("The session timeout is 60 minutes.", "The session timeout is 30 minutes (was 60)."),
        ("The upload limit is 2 GB.", "The upload limit was raised from 2 to 4 GB."),
        ("Mara Lindqvist leads the booking team.", "Jonas Weber leads the booking team now."),
        ("Ann Lee maintains the wiki.", "Ben Ode now maintains the wiki."),
        (
            "Support can cancel a trip up to 24 hours before.",
            "Support may cancel a trip until 12 hours before (was 24).",
        ),
    ],
)
def test_former_number_has_the_unit_and_a_holder_a_full_name(older: str, newer: str) -> None:
    found = compare(older, newer)
    assert found is not None
    assert found.rule == "change words"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The cache has a TTL of 300 seconds.", "The TTL of the cache was lowered from 200 to 60 seconds."),
        ("The cache keeps 300 entries.", "The TTL of the cache was lowered from 300 to 60 seconds."),
        ("Ann Lee leads the booking team.", "Ben Ode now leads the search team."),
        ("Carl Poe likes the new desk.", "Dan Roe likes the new desk now."),
        ("The limit is 5 requests.", "The limit may be raised from 5 to 10 requests."),
        (
            "Run the seed first, otherwise the list is empty and 14 tests fail.",
            "A production deploy now takes 9 minutes.",
        ),
    ],
)
def test_other_number_or_holder_and_plan_change_nothing(older: str, newer: str) -> None:
    assert compare(older, newer) is None


def test_reason_of_a_change_is_of_something_else() -> None:
    newer = "Staging is now rebuilt every night at 04:00 UTC, since the backup runs at 02:00."
    found = compare("Staging is rebuilt every night at 02:00 UTC.", newer)
    assert found is not None
    assert found.rule == "change words"
    assert compare("The backup runs at 02:00.", newer) is None
    assert compare("The backup runs at 05:00.", newer) is None


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


def test_no_supersession_of_another_scope() -> None:
    older = DatedNote.of(UUID(int=1), "The backup runs at 02:00.", DAY, Writer(user="ann"))
    later = DAY + timedelta(days=1)
    newer = DatedNote.of(UUID(int=2), "The backup no longer runs at 02:00.", later, Writer(user="ben"))
    assert find_between(older, newer)
    assert not find_between(older, replace(newer, scope="ben"))


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


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        (
            "Parcels of guests may have at most 4 kg.",
            "Parcels of guests may have at most 9 kg.",
            "Parcels of staff may have at most 9 kg.",
        ),
        (
            "Staging runs Redis 6.",
            "Staging was upgraded to Redis 7 on 4 May.",
            "Staging was upgraded to Django 5 on 4 May.",
        ),
        (
            "There are 4 workers of mail-api.",
            "There are 9 workers of mail-api since the trade fair began.",
            "There are 9 workers of push-api since the trade fair began.",
        ),
        (
            "Der Umzug nach Ulm ist am 3. Mai.",
            "Der Umzug nach Ulm verschiebt sich vom 3. Mai auf den 7. Juni.",
            "Der Umzug nach Bonn verschiebt sich vom 3. Mai auf den 7. Juni.",
        ),
        (
            "Der Kiosk ist montags bis 18 Uhr offen.",
            "Der Kiosk ist montags nur noch bis 12 Uhr offen.",
            "Das Bad ist montags nur noch bis 12 Uhr offen.",
        ),
        (
            "El quiosco abre los lunes hasta las 20.",
            "El quiosco abre los lunes ya solo hasta las 14.",
            "El bar abre los martes ya solo hasta las 14.",
        ),
        (
            "La mudanza de la oficina es el 3 de mayo.",
            "La mudanza de la oficina se aplaza del 3 de mayo al 7 de junio.",
            "La mudanza del almacén se aplaza del 3 de mayo al 7 de junio.",
        ),
    ],
)
def test_plain_changes_of_one_thing_are_confirmed(older: str, newer: str, other: str) -> None:
    assert find_status(older, newer) == "confirmed"
    assert find_status(older, other) is None


@pytest.mark.parametrize("newer", ["We might have 9 seats.", "We may get up to 9 seats."])
def test_possibility_changes_nothing(newer: str) -> None:
    assert find_status("We have 4 seats.", newer) is None


def test_negation_in_another_clause_denies_no_former_value() -> None:
    older = "api is built with Go 1.21; Go 1.19 is no longer supported."
    assert find_status(older, "We moved api from Go 1.21 to Go 1.23.") == "candidate"
    assert find_status(older, "We moved api from Go 1.19 to Go 1.23.") is None
    assert find_status(older, "We moved docs from Go 1.21 to Go 1.23.") is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "Alert threshold for queue lag raised to 2,000 messages.",
            "Alert threshold for queue lag is 3,000 messages now.",
        ),
        ("The netcode rolls back up to 6 frames.", "The netcode no longer rolls back at all."),
    ],
)
def test_value_after_a_change_is_revised_too(older: str, newer: str) -> None:
    assert find_status(older, newer) == "confirmed"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "El pastor José lleva las ovejas a la parcela 5 los lunes.",
            "El pastor José lleva las ovejas a la parcela 5 los martes.",
        ),
        ("The export runs every Thursday.", "The export runs every Tuesday."),
    ],
)
def test_another_day_of_a_routine_is_a_candidate(older: str, newer: str) -> None:
    found = compare(older, newer)
    assert found is not None
    assert found.status == "candidate"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "Elective admissions are cancelled when fewer than 4 ICU beds are free.",
            "Elective admissions are cancelled when fewer than 4 HDU beds are free.",
        ),
        (
            "Do not schedule a contrast MRI without a creatinine value from the last 3 months.",
            "Do not schedule a contrast CT without a creatinine value from the last 3 months.",
        ),
        (
            "Das Landgericht Kassel verlangt Anlagen als einzelne PDF-Dateien.",
            "Das Landgericht Fulda verlangt Anlagen als einzelne PDF-Dateien.",
        ),
        (
            "The mailer was slow because of missing rights on parcels. The alert fired at 29 errors.",
            "The stock-sync was slow because of missing rights on returns. The alert fired at 15 errors.",
        ),
    ],
)
def test_claims_on_two_things_both_hold(older: str, newer: str) -> None:
    assert compare(older, newer) is None


def test_sentence_of_the_same_subject_is_revised() -> None:
    older = "The mailer was slow because of missing rights on parcels. The alert fires at 29 errors."
    assert compare(older, "The mailer was slow again because of missing rights. The alert fires at 15 errors.")
    assert compare("The alert fires at 29 errors.", "The alert fires at 15 errors.")


@pytest.mark.parametrize(
    ("older", "newer", "status"),
    [
        (
            "La traite du matin commence à 5 h 30.",
            "La traite du matin commence à 6 h depuis le changement de tournée.",
            "confirmed",
        ),
        (
            "La traite du soir commence à 17 h.",
            "La traite du matin commence à 6 h depuis le changement de tournée.",
            None,
        ),
        ("ユーザーの会議は毎週水曜日の10時。", "ユーザーの会議は毎週木曜日の10時に変わった。", "confirmed"),
        ("ユーザーの会議は毎週水曜日の10時。", "ユーザーの会議は毎週水曜日の10時に変わった。", None),
        ("用户每月预算是三千元。", "用户每月预算提高到五千元。", "confirmed"),
        ("用户每年预算是三千元。", "团队每月预算提高到五千元。", None),
        (
            "Der Drucker-Dienst läuft auf srv-09.",
            "srv-09 ist tot, der Drucker-Dienst läuft auf srv-12.",
            "confirmed",
        ),
        (
            "Mobile phones are banned in the dialysis unit.",
            "The ban on mobile phones in the dialysis unit was lifted.",
            "candidate",
        ),
        (
            "Mobile phones are kept in the dialysis unit.",
            "The ban on mobile phones in the dialysis unit was lifted.",
            None,
        ),
        (
            "Mobile phones are banned in the radiology unit.",
            "The ban on mobile phones in the dialysis unit was lifted.",
            None,
        ),
        ("L'accès au grenier est interdit.", "L'interdiction d'accès au grenier est levée.", "candidate"),
        (
            "Élodie gère les stocks de foin.",
            "Bastien a repris la gestion des stocks de foin à la place d'Élodie.",
            "confirmed",
        ),
        (
            "Élodie gère les factures.",
            "Bastien a repris la gestion des stocks de foin à la place d'Élodie.",
            None,
        ),
        ("Ward 6 is closed to visitors.", "Ward 6 is open to visitors again.", "confirmed"),
        ("Ward 5 is closed to visitors.", "Ward 6 is open to visitors again.", None),
        ("User lives in Leeds and works night shifts.", "User moved to Bristol last week.", "candidate"),
        ("User studies in Leeds and works night shifts.", "User moved to Bristol last week.", None),
    ],
)
def test_words_of_change_in_several_languages(older: str, newer: str, status: str | None) -> None:
    found = compare(older, newer)
    assert (found.status if found else None) == status


@pytest.mark.parametrize(
    ("older", "newer", "status"),
    [
        ("The wiki starts at 08:00.", "The wiki now starts at 09:15 because the restore got longer.", "confirmed"),
        ("La sala tiene 80 plazas.", "La sala tiene ahora 60 plazas por decisión de la dirección.", "confirmed"),
        ("The queue server has 8 GB of memory.", "The queue server was scaled up to 16 GB of memory.", "confirmed"),
        ("The fee for guests is 12 euros.", "The fee for guests was raised: 15 euros.", "confirmed"),
        ("Keys are kept in Safe Keeper.", "Keys moved from Safe Keeper to Lockbox.", "confirmed"),
        ("Dumps are in Depot under `prod/dump/`.", "Dumps moved from Depot to Attic, path `kv/dump/`.", "confirmed"),
        ("Visitors may park in the yard.", "Visitors may not park in the yard.", "confirmed"),
        ("Trainees may not drive the van.", "Trainees may drive the van now.", "confirmed"),
        ("Trainees may not drive the van.", "Guests may drive the van now.", None),
        ("Les membres ont 20 % de remise.", "Les membres n'ont plus que 10 % de remise.", "confirmed"),
        ("Der Trainer ist Dr. Boll.", "Der neue Trainer ist Dr. Sand.", "candidate"),
        ("Smoking is forbidden on the roof.", "Smoking is allowed on the roof again.", "candidate"),
        ("Smoking is forbidden on the roof.", "Smoking is allowed on the balcony again.", None),
        ("Never smoke on a Friday: no guard.", "Smoking on Friday is allowed since guards can stay.", "candidate"),
        ("Never smoke on a Friday.", "Smoking on Monday is allowed since the guard can stay.", None),
        ("Hunde sind im Garten verboten.", "Hunde sind im Garten jetzt erlaubt.", "candidate"),
        ("Les chiens sont interdits au jardin.", "Les chiens sont désormais autorisés au jardin.", "confirmed"),
        ("Los perros están prohibidos en el jardín.", "Los perros ahora están permitidos en el jardín.", "candidate"),
        ("Never run a full rebuild of sales.", "A full rebuild of sales is allowed on Sundays now.", "candidate"),
        ("Do not use `--all` on sales.", "`--all` on sales is allowed on Sundays now.", "candidate"),
        ("Omar has left the company.", "Omar has returned to the company.", "confirmed"),
        ("Omar has left the company.", "Lena has returned to the company.", None),
        ("Eva ist in Elternzeit.", "Eva ist aus der Elternzeit zurück.", "confirmed"),
        ("Lena is responsible for the kiln.", "Omar is responsible for the kiln again.", "candidate"),
        ("Lena is responsible for the kiln.", "Omar is responsible for the oven again.", None),
        ("Ben is the treasurer of the club.", "Mia succeeds Ben as treasurer of the club.", "confirmed"),
        ("Ben is the treasurer of the club.", "Mia succeeds Ben as captain of the team.", None),
        ("Carla es la tesorera del club.", "Elena releva a Carla como tesorera del club.", "confirmed"),
        ("Ben ist Kassenwart des Vereins.", "Mia löst Ben als Kassenwart des Vereins ab.", "confirmed"),
    ],
)
def test_more_words_of_change(older: str, newer: str, status: str | None) -> None:
    assert find_status(older, newer) == status


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "The pump stalls after ten minutes because the inlet has no filter.",
            "The pump no longer stalls: a filter was fitted.",
        ),
        ("The kettle leaks.", "The kettle no longer leaks."),
        ("The gate is stuck at night: the hinge rusts.", "The gate is no longer stuck since the hinge is oiled."),
        (
            "Die Pumpe fällt nachts aus, weil der Filter verstopft ist.",
            "Die Pumpe fällt nicht mehr aus: der Filter wurde ersetzt.",
        ),
        ("La caldera pierde agua porque la junta está rota.", "La caldera ya no pierde agua: la junta fue cambiada."),
    ],
)
def test_claim_ends_with_its_reason(older: str, newer: str) -> None:
    found = compare(older, newer, same_writer=False)
    assert found is not None
    assert (found.status, found.rule, found.was, found.now) == ("confirmed", "change words", older, newer)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The wiki lists people and teams.", "The wiki no longer lists: tickets, pages and files."),
        ("The door sticks because the frame is wet.", "The frame is no longer wet: the roof was repaired."),
        (
            "The lift stops at floor 3 because a sensor is dirty.",
            "The lift no longer stops at floor 4: a sensor was cleaned.",
        ),
        (
            "The mill pump stalls because the inlet is blocked.",
            "The yard pump no longer stalls: the inlet was cleaned.",
        ),
        ("他早上只吃面包,不吃米饭。", "他早上不吃米饭,只吃面包。"),
    ],
)
def test_claim_outlives_end_of_another_one(older: str, newer: str) -> None:
    assert compare(older, newer) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "Die Miete beträgt 2.400 Euro und wird am 3. abgebucht.",
            "Die Miete beträgt 2.650 Euro und wird am 3. abgebucht.",
        ),
        ("The fee amounts to 40 euros and is paid monthly.", "The fee amounts to 45 euros and is paid monthly."),
        ("The filter costs 30 euros and must be ordered.", "The filter costs 35 euros and must be ordered."),
    ],
)
def test_value_before_second_verb_is_revised(older: str, newer: str) -> None:
    found = compare(older, newer)
    assert found is not None
    assert (found.status, found.rule) == ("confirmed", "same writer")


def test_all_that_says_the_same_is_superseded() -> None:
    texts = [
        "The kiln is fired every Friday at 14:00.",
        "Every Friday at 14:00 the kiln is fired.",
        "The kiln is now fired every Monday at 10:00, no longer on Fridays.",
    ]
    notes = [DatedNote.of(UUID(int=at), text, DAY + timedelta(days=at), Writer()) for at, text in enumerate(texts)]
    found, _ = find(notes)
    assert {(one.older_id.int, one.found.status) for one in found if one.newer_id.int == 2} == {
        (0, "confirmed"),
        (1, "confirmed"),
    }


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Wigs are washed at 30 °C.", "Synthetic wigs are washed cold, not at 30 °C."),
        ("Perücken werden bei 30 °C gewaschen.", "Synthetische Perücken werden kalt gewaschen, nicht bei 30 °C."),
        ("Perücken werden bei 30 °C gewaschen.", "Kunsthaarperücken werden kalt gewaschen, nicht bei 30 °C."),
        ("Las pelucas se lavan a 30 °C.", "Las pelucas sintéticas se lavan en frío, no a 30 °C."),
        ("Les perruques se lavent à 30 °C.", "Les perruques synthétiques se lavent à froid, pas à 30 °C."),
        ("Wash the wigs at 30 degrees Celsius.", "Synthetic wigs are washed cold, not at 30 °C."),
        ("Tickets cost 20 euros.", "Student tickets now cost 12 euros instead of 20."),
        ("Reports are due on Friday.", "Monthly reports are due on Tuesday, not on Friday."),
        ("Das Tor schließt um 18 Uhr.", "Das Tor schließt jetzt um 20 Uhr, wenn ein Konzert ist."),
        ("The gate closes at 18:00.", "The gate closes at 20:00 instead of 18:00 during the festival."),
    ],
)
def test_rule_for_some_things_or_cases_waits_for_a_person(older: str, newer: str) -> None:
    assert find_status(older, newer) == "candidate"


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        ("The lift may carry 6 tonnes.", "The lift may carry 9 tonnes again.", "The lift may carry 6 tonnes again."),
        ("The lift may carry 9 tonnes.", "The lift may only carry 6 tonnes.", "On Sundays it may only carry 6 tonnes."),
        (
            "Die Bühne darf 0,8 m/s fahren.",
            "Die Bühne darf nur 0,5 m/s fahren.",
            "Nur die neue Bühne darf 0,9 m/s fahren.",
        ),
        ("The bell rings for 5 seconds.", "The bell rings for 2 seconds.", "The bell rings again for 2 seconds."),
        ("The piano is at 440 Hz.", "The piano is at 442 Hz again.", "The organ is at 442 Hz again."),
        ("Der Aufzug trägt 6 t.", "Der Aufzug trägt wieder 9 t.", "Der Aufzug trägt wieder 6 t."),
        ("The steamer no longer leaks.", "The steamer leaks again.", "The kettle leaks again."),
        ("The kettle no longer leaks: the seal was replaced.", "The kettle is leaking again.", "It leaks again."),
        ("The shop opens at 9:00.", "The shop opens at 10:00.", "The shop opens again at 14:00."),
        ("Mi tren sale a las 7:40.", "Mi tren sale a las 7.45 h.", "Mi tren sale a las 7.40 h."),
    ],
)
def test_former_amount_and_state_may_hold_again(older: str, newer: str, other: str) -> None:
    assert [one and one.status for one in (compare(older, newer), compare(older, other))] == ["confirmed", None]
