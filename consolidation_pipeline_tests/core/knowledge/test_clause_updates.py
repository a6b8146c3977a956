"""Updates of clauses: a later sentence that tells of one part of an older one, in its own words."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.core.knowledge.sequences import find_status


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        (
            "The courier desk is called swift and listens on port 7001 in Oslo.",
            "swift now listens on port 7050; 7001 is used by the archive.",
            "The archive now listens on port 7050.",
        ),
        (
            "Parking permits are handed out at the desk and cost 20 francs a month.",
            "Parking permits cost 25 francs a month now.",
            "Parking fines cost 25 francs now.",
        ),
        (
            "The lab cluster runs Slurm 22 and is patched on Mondays.",
            "The lab cluster was upgraded to Slurm 24 yesterday.",
            "The field cluster was upgraded to Slurm 24 yesterday.",
        ),
        (
            "The team archive is kept in the bucket team-files in Paris.",
            "The team archive moved to Borgbase, repository main.",
            "The photo archive moved to Borgbase, repository main.",
        ),
        (
            "The stock app is built with Cordova 9.",
            "We moved the stock app to Flutter; the Cordova code is archived.",
            "We moved the sales app to Flutter.",
        ),
        (
            "The door scanner firmware is 4.1.",
            "We rolled out firmware 4.6 on all door scanners.",
            "We rolled out firmware 4.6 on the scales.",
        ),
        (
            "Room Elm has a projector and seats 8.",
            "After the renovation, Elm seats 12.",
            "After the renovation, Oak seats 12.",
        ),
        (
            "The dashboard refreshes every 5 minutes.",
            "I set the refresh of the dashboard to 1 minute.",
            "I set the timeout of the dashboard to 1 minute.",
        ),
        (
            "Der Importer heißt falke und lauscht auf Port 7001.",
            "falke lauscht jetzt auf Port 7050; 7001 ist gesperrt.",
            "Der Testserver lauscht jetzt auf Port 7050.",
        ),
        (
            "Le serveur s'appelle hibou et écoute sur le port 9000.",
            "hibou écoute maintenant sur le port 9100.",
            "Le serveur de test écoute maintenant sur le port 9100.",
        ),
        (
            "El servidor de correo es mx1.acme.example y usa el puerto 25.",
            "El servidor de correo cambió a mx3.acme.example.",
            "El servidor web cambió a web3.acme.example.",
        ),
    ],
)
def test_new_value_of_a_part_is_a_candidate(older: str, newer: str, other: str) -> None:
    assert find_status(older, newer) == "candidate"
    assert find_status(older, other) is None


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        (
            "Dr. Okafor heads the radiology ward and signs all reports.",
            "The radiology ward is now led by Dr. Lindgren.",
            "The surgery ward is now led by Dr. Lindgren.",
        ),
        (
            "Olu Ade signs off purchase orders above 2,000 pounds.",
            "Purchase orders above 2,000 pounds are signed off by Grace Tan these days.",
            "Travel claims are signed off by Grace Tan these days.",
        ),
        (
            "Amira Haddad is our safety officer and answers requests.",
            "Our new safety officer is Jon Sayle.",
            "Our new press officer is Jon Sayle.",
        ),
        (
            "Tomasz feeds the fish on weekends.",
            "Tomasz moved away, Beata feeds the fish on weekends.",
            "Tomasz moved away, Beata feeds the cat.",
        ),
        (
            "Lucía dirige el equipo de ventas y aprueba los descuentos.",
            "Ahora Marcos dirige el equipo de ventas.",
            "Ahora Marcos dirige el equipo de soporte.",
        ),
    ],
)
def test_new_holder_of_a_part_is_a_candidate(older: str, newer: str, other: str) -> None:
    assert find_status(older, newer) == "candidate"
    assert find_status(older, other) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The importer is called falcon and listens on port 7001.", "falcon now keeps its logs for 14 days."),
        ("The cache holds 200 tiles in memory and evicts by age.", "On tablets, the cache now holds 500 tiles."),
        ("The museum is free on Sunday and closes at 6.", "The museum is now free on Wednesday as well."),
        ("Alerts are sent to Slack.", "Alerts are now sent by SMS too."),
        ("The projector in Elm has 3000 lumens.", "The projector in Elm is now serviced by Beam AG."),
        ("CI runs on Jenkins.", "CI now takes 7 minutes."),
        ("The gate listens on port 8080.", "stamp talks to the printers over IPP (port 631) since the update."),
        ("The cache limit is 300 entries.", "The retry limit was 3, now it is 5."),
        ("The nightly load needs about 90 minutes.", "sales_daily was rewritten in dbt and needs 20 minutes now."),
        ("The search team lead uses Vim.", "Hugo owns the search service now."),
        ("La reunión es el martes.", "Ahora Marcos dirige el equipo de ventas."),
        ("Der Testserver hat 16 GB Speicher.", "Der Testserver lauscht jetzt auf Port 7050."),
        ("The team stand-up is led by Ruth.", "The on-call lead is now Jan."),
        ("Joon takes the minutes.", "Joon no longer takes sugar."),
        ("The garden is watered every evening.", "In winter the garden is no longer watered."),
        ("Support is done by Ivo.", "Support is now done by phone."),
        ("Tests run in Docker on Linux.", "Tests now run in parallel."),
        ("夜班由王强负责。", "早班现在由李娜负责。"),
        ("Ann Lee lives in Lund and heads the ward.", "The ward of Ann Lee is now in Malmö."),
        ("The wiki pages are stored in Paris.", "Invoices are now stored in Oslo and no longer in Paris."),
    ],
)
def test_other_part_case_and_addition_change_nothing(older: str, newer: str) -> None:
    assert find_status(older, newer) is None


def test_former_value_is_told_in_another_language() -> None:
    older = "The pricing service is called swift and listens on port 8081."
    assert find_status(older, "El puerto de swift cambió de 8081 a 8090.") == "candidate"
    assert find_status(older, "El puerto de falcon cambió de 8081 a 8090.") is None
    assert find_status(older, "El puerto de swift cambió de 8082 a 8090.") is None


def test_note_corrects_an_older_one() -> None:
    older = "The search index uses the analyzer icu; synonyms are in synonyms.txt."
    newer = "I was wrong about the synonyms: they are in the table search_synonyms, not in synonyms.txt."
    assert find_status(older, newer) == "candidate"
    assert find_status("The search index is in synonyms.txt.", newer) is None
