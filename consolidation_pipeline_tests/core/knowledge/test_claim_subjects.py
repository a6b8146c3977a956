"""Subjects of claims: what a newer memory says of another thing, another case or in other words supersedes nothing."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.core.knowledge.sequences import find_status, judge_sequence


@pytest.mark.parametrize(
    ("older", "same", "other"),
    [
        ("Nils' aunt lives in Bergen.", "Nils' aunt moved from Bergen to Oslo.", "Nils moved from Bergen to Oslo."),
        ("Rosa's uncle plays golf.", "Rosa's uncle no longer plays golf.", "Rosa no longer plays golf."),
        ("Rosa plays golf.", "Rosa no longer plays golf.", "Rosa's uncle no longer plays golf."),
        ("The tutor of Nils smokes pipes.", "The tutor of Nils stopped smoking pipes.", "Nils stopped smoking pipes."),
        (
            "The relay job runs on Solaris.",
            "The relay job no longer runs on Solaris.",
            "The relay job of the archive no longer runs on Solaris.",
        ),
        (
            "The freight team lead uses Emacs.",
            "The freight team lead no longer uses Emacs.",
            "The freight team no longer uses Emacs.",
        ),
        ("Jans Tante spielt Golf.", "Jans Tante spielt nicht mehr Golf.", "Jan spielt nicht mehr Golf."),
        (
            "Der Onkel von Rosa malt Bilder.",
            "Der Onkel von Rosa malt keine Bilder mehr.",
            "Rosa malt keine Bilder mehr.",
        ),
        ("El primo de Rosa vive en Vigo.", "El primo de Rosa ya no vive en Vigo.", "Rosa ya no vive en Vigo."),
        ("La voisine de Luc habite à Brest.", "La voisine de Luc n'habite plus à Brest.", "Luc n'habite plus à Brest."),
        ("李明的姐姐住在广州。", "李明的姐姐不再住在广州。", "李明不再住在广州。"),
    ],
)
def test_change_of_the_owner_is_none_of_what_it_owns(older: str, same: str, other: str) -> None:
    assert find_status(older, same) == "confirmed"
    assert find_status(older, other) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The user's editor is Nano.", "The user switched from Nano to Emacs."),
        ("The version of the engine is 3.2.", "The engine was upgraded from 3.2 to 3.4."),
        ("The end of the lease is on 4 May.", "The lease was extended from 4 May to 9 June."),
        ("My editor is Nano.", "I switched from Nano to Emacs."),
        ("Die Größe des Lagers ist 8.", "Das Lager wurde von 8 auf 16 erhöht."),
    ],
)
def test_change_of_what_the_owner_has_may_name_the_owner(older: str, newer: str) -> None:
    assert find_status(older, newer) == "confirmed"


def test_care_of_a_thing_is_no_part_of_it() -> None:
    older = "El turno de noche lo hace Rosa."
    assert find_status(older, "Iker se hizo cargo del turno de noche en lugar de Rosa.") == "confirmed"


@pytest.mark.parametrize(
    ("older", "same", "other"),
    [
        ("The depot uses Slack.", "The depot no longer uses Slack.", "The depot no longer uses Slack for alarms."),
        (
            "We answer letters by fax.",
            "We no longer answer letters by fax.",
            "We no longer answer letters by fax on Fridays.",
        ),
        (
            "The clinic uses Skype.",
            "The clinic switched from Skype to Zoom.",
            "The clinic switched from Skype to Zoom for interviews.",
        ),
        ("Der Hort nutzt Slack.", "Der Hort nutzt Slack nicht mehr.", "Der Hort nutzt Slack nicht mehr für Alarme."),
        ("Iker usa Skype.", "Iker ya no usa Skype.", "Iker ya no usa Skype para las entrevistas."),
    ],
)
def test_change_in_one_case_ends_no_general_claim(older: str, same: str, other: str) -> None:
    assert find_status(older, same) == "confirmed"
    assert find_status(older, other) is None


def test_what_is_so_now_and_for_how_long_is_no_case() -> None:
    assert find_status("Parcels go by rail.", "Parcels no longer go by rail but by road.") == "confirmed"
    assert find_status("The choir meeting is at 8.", "The choir meeting was cancelled for good.") == "confirmed"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The scanner supports batches.", "We dropped support for Windows Vista."),
        ("The proxy caches fonts.", "We dropped the cache for invoices."),
        ("The depot uses Slack.", "We dropped Slack for urgent calls."),
    ],
)
def test_what_is_dropped_for_a_case_is_not_replaced(older: str, newer: str) -> None:
    assert find_status(older, newer) is None


def test_name_may_be_dropped_for_another() -> None:
    assert find_status("The build runs on Jenkins.", "We dropped Jenkins for Buildkite.") == "confirmed"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The Kiel branch uses Excel.", "Since June the Bonn branch uses Sheets."),
        ("The Kiel branch uses Excel.", "The Bonn branch now uses Excel."),
        ("Bags under 8 kg fly for free.", "Bags over 8 kg fly for free."),
        ("Bags under 8 kg fly for free.", "Bags over 8 kg do not fly for free."),
        ("Bags under 8 kg fly for free.", "Bags over 8 kg now fly for free."),
        ("The pump runs at least 3 hours.", "The pump runs at most 3 hours."),
        ("Trams before 6 are empty.", "Trams after 6 are not empty."),
        ("The nephew of Rosa's dentist is a judge.", "The dentist of Rosa's nephew is a judge."),
    ],
)
def test_what_holds_side_by_side_is_no_change(older: str, newer: str) -> None:
    assert find_status(older, newer) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The gate is closed at night.", "The gate is not open at night."),
        ("Rosa is gluten intolerant.", "Rosa can't have gluten; she is intolerant."),
        ("Das Tor ist nachts geschlossen.", "Das Tor ist nachts nicht offen."),
    ],
)
def test_other_words_for_one_fact_are_no_change(older: str, newer: str) -> None:
    assert find_status(older, newer) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Rosa owes Iker money.", "Iker owes Rosa money."),
        ("Milch trinkt Rosa kalt, Kakao aber warm.", "Rosa trinkt Milch kalt, aber Kakao warm."),
        ("The drill is before the lecture.", "The drill is after the lecture."),
        ("The supplier uses Lotus Notes.", "We no longer use Lotus Notes."),
        ("My aunt lives in Bergen.", "I moved from Bergen to Oslo."),
    ],
)
def test_order_alone_and_pronouns_wait_for_a_person(older: str, newer: str) -> None:
    assert find_status(older, newer) == "candidate"


def test_sentences_of_function_words_alone_tell_no_change() -> None:
    for older, newer in (("It is so.", "Now it is not."), ("We are.", "Since May we are not.")):
        assert find_status(older, newer) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Petra maintains lexer-core and all about parsing.", "Ivo took over billing from Petra."),
        ("Petra approves refunds of pay-api.", "Ivo took over billing from Petra."),
        ("Petra likes jazz more than pop.", "Ivo took over billing from Petra."),
        ("Petra approves the releases of the shop.", "Ivo took over the release notes of the blog from Petra."),
        ("Petra maintains the parser.", "Petra handed over the lexer to Ivo."),
        ("Petra leads the mobile team.", "Petra handed over the lexer to the mobile team."),
        ("The wiki runs on Hetzner.", "We moved the shop from Hetzner to OVH."),
        ("CI deploys with Jenkins.", "We migrated the nightly builds from Jenkins to Buildkite."),
        ("Billing runs on Redis.", "The shop's Redis was replaced by Valkey."),
        ("Das Lager läuft mit SAP.", "Die Buchhaltung wurde von SAP auf Datev umgestellt."),
        ("El almacén usa SAP.", "Migramos la contabilidad de SAP a Odoo."),
        ("Le stock utilise SAP.", "Nous avons migré la comptabilité de SAP vers Odoo."),
        ("仓库使用SAP。", "会计从SAP迁移到Odoo。"),
        ("倉庫はSAPを使う。", "会計はSAPからOdooに移行した。"),
    ],
)
def test_change_of_one_thing_is_none_of_another(older: str, newer: str) -> None:
    assert find_status(older, newer) is None


@pytest.mark.parametrize(
    "older",
    ["Petra is the owner of billing.", "The owner of billing is Petra.", "Petra owns billing.", "Billing is Petra's."],
)
def test_hand_over_names_the_former_owner(older: str) -> None:
    assert find_status(older, "Ivo took over billing from Petra.") == "confirmed"


def test_hand_over_may_tell_the_kind_of_a_thing() -> None:
    assert find_status("Petra owns billing.", "Ivo took over the billing service from Petra.") == "confirmed"
    assert find_status("Petra approves hotfixes.", "Petra handed over the hotfixes to Ivo.") == "candidate"


def test_who_is_replaced_keeps_what_no_part_is() -> None:
    assert find_status("Petra likes jazz.", "Petra was replaced by Ivo.") == "candidate"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The kiosk is open until 6 pm on Mondays.", "The kiosk is now open until 2 pm on Fridays."),
        ("Der Kiosk ist montags bis 18 Uhr offen.", "Der Kiosk ist freitags nur noch bis 12 Uhr offen."),
        ("Der Kiosk ist freitags ab 8 Uhr offen.", "Der Kiosk ist freitags nur noch bis 12 Uhr offen."),
        ("El quiosco abre los lunes hasta las 20.", "El quiosco abre los sábados ya solo hasta las 14."),
        ("Le kiosque est ouvert le lundi jusqu'à 18 h.", "Le kiosque est maintenant ouvert le vendredi jusqu'à 12 h."),
        ("图书馆周一开到18点。", "图书馆周五现在只开到12点。"),
        ("図書館は月曜日に18時まで開いている。", "図書館は金曜日に今は12時まで開いている。"),
    ],
)
def test_hours_of_other_days_hold_side_by_side(older: str, newer: str) -> None:
    assert find_status(older, newer) is None


@pytest.mark.parametrize(
    ("older", "newer", "status"),
    [
        ("There are 4 cooks in the canteen.", "There are 9 tables in the canteen since the fair began.", None),
        ("Die Fähre fährt alle 10 Minuten.", "Die Fähre fährt abends nur noch alle 30 Minuten.", "candidate"),
        ("Leads are in Hubspot.", "Sales switched the leads from Hubspot to Attio.", "confirmed"),
        ("Letters are sent through Post24.", "We switched the letter provider from Post24 to Brief8.", "confirmed"),
        ("Jan Roth ist Trainer im Klub Nord.", "Mia Falk hat die Kasse im Klub Nord von Jan Roth übernommen.", None),
        ("Jan Roth leitet die Kasse im Klub.", "Mia Falk hat die Kasse im Klub von Jan Roth übernommen.", "confirmed"),
        ("The visit to Ulm is on 3 May.", "The visit to Bonn was postponed from 3 May to 7 June.", None),
        ("Jan Roth lobt die Kasse im Klub.", "Mia Falk hat die Kasse im Klub von Jan Roth übernommen.", "candidate"),
        ("Leiter im Klub Nord ist Jan Roth.", "Mia Falk übernahm die Leitung im Klub Süd von Jan Roth.", None),
        ("Die Farben stehen in Figma.", "Wir haben die Farben von Figma übernommen.", None),
    ],
)
def test_change_is_of_the_thing_that_it_names(older: str, newer: str, status: str | None) -> None:
    assert find_status(older, newer) == status


@pytest.mark.parametrize(
    ("older", "newer", "status"),
    [
        ("Our courier for blood samples is Rapid.", "We switched the letter courier from Rapid to Quick.", None),
        ("Our courier for letters is Rapid.", "We switched the letter courier from Rapid to Quick.", "confirmed"),
        ("The insurer of the van is Alba.", "We switched the house insurer from Alba to Corda.", None),
        ("Alba is our insurer for vans.", "Alba was replaced by Corda as house insurer.", None),
        ("Notre fournisseur de masques est Tarax.", "Nous avons changé le fournisseur de gants de Tarax à Velo.", None),
        ("Tram 8 leaves before tram 9.", "Tram 8 leaves before tram 4 since the strike.", None),
        ("Tram 4 leaves before tram 8.", "Tram 8 leaves before tram 4 since the strike.", "confirmed"),
        ("Nadia waters the roses and the lilies.", "Nadia no longer waters the lilies.", "candidate"),
        ("We use Kafka and Redis.", "Redis was removed.", "candidate"),
        ("Karl betreut Kunde A und Kunde B.", "Karl betreut Kunde B nicht mehr.", "candidate"),
        ("La tienda abre a las 9:00 los sábados.", "Desde junio la tienda abre a las 11:00 los domingos.", None),
        ("La tienda abre a las 9:00 los sábados.", "Desde junio la tienda abre a las 11:00 los sábados.", "confirmed"),
        ("Mme Roux est responsable des lumières.", "M. Blin est responsable du son à la place de Mme Roux.", None),
        (
            "Olga manages the shop in Bari.",
            "Since May, Rui manages the shop in Lecce; Olga is on parental leave.",
            None,
        ),
        ("Der Schlüssel für Halle 1 liegt bei Uwe.", "Der Schlüssel für Halle 2 liegt bei Uwe.", None),
        ("Carl handed the drill to Dana.", "Dana handed the drill to Carl.", None),
    ],
)
def test_change_of_another_thing_is_none(older: str, newer: str, status: str | None) -> None:
    assert find_status(older, newer) == status


@pytest.mark.parametrize(("by", "status"), [("user", "candidate"), ("other", None)])
def test_somebody_else_may_tell_what_is_so_on_another_day(by: str, status: str | None) -> None:
    row = {"older": "The sauna is closed on Tuesdays.", "newer": "The sauna is closed on Thursdays.", "by": by}
    found = judge_sequence(row)
    assert (found and found.status) == status


def test_the_column_of_another_error_is_another_one() -> None:
    older = "`make` failed with unknown column 'A_TS' in orders.sql. The column was renamed to `A_AT`."
    other = "`make` failed with unknown column 'B_TS' in users.sql: the column was renamed to `B_AT`."
    assert find_status(older, other) is None
    older = "The mailer runs on host m1. The port is 3000."
    assert find_status(older, "The planner runs on host p1. The port is now 4000.") is None
    assert find_status(older, "The mailer was updated. The port is now 4000.") == "confirmed"
