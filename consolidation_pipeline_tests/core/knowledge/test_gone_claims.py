"""Gone claims: what is gone, who left, and what is no longer necessary."""

from __future__ import annotations

import pytest

from consolidation_pipeline_tests.core.knowledge.sequences import find_status


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        (
            "Invoices are archived in Paperless on the NAS; a scan takes about a minute.",
            "Paperless is no longer in use.",
            "The Paperless plugin for mail is no longer in use.",
        ),
        (
            "Payments are made with Stripe by the nightly job.",
            "We no longer use Stripe.",
            "We no longer use Stripe for donations.",
        ),
        (
            "The gateway is vpn1.acme.example and uses OpenVPN.",
            "The old gateway vpn1.acme.example has been shut down.",
            "vpn2.acme.example has been shut down.",
        ),
        (
            "Heating oil is delivered by Brandt in October.",
            "We ended the contract with Brandt.",
            "The invoice of Brandt was cancelled.",
        ),
        (
            "The parade boat is Heron 3, on channel 16.",
            "Heron 3 is out of service.",
            "Heron 5 is out of service.",
        ),
        (
            "Images are resized by the worker thumbgen, written in Go.",
            "thumbgen was replaced by imgproxy.",
            "The logo of thumbgen was replaced by a cat.",
        ),
        (
            "Between atlas and falcon we use gRPC; other services stay with REST.",
            "We rolled back the gRPC connection between atlas and falcon.",
            "We rolled back the gRPC docs.",
        ),
        (
            "The reading group of the school meets in Café Linde.",
            "Café Linde closed for good.",
            "The kitchen of Café Linde closed for good.",
        ),
        (
            "The app runs on Android 8 and on tablets.",
            "Support for Android 8 was dropped in version 6.",
            "Support for Android 9 was dropped in version 6.",
        ),
        (
            "El script de copias corre en el servidor roble.",
            "El servidor roble fue apagado; las copias corren en pino.",
            "El servidor olmo fue apagado.",
        ),
        (
            "Der Newsletter wird mit Mailchimp verschickt, jeden Dienstag.",
            "Mailchimp haben wir gekündigt.",
            "Die Seite über Mailchimp haben wir gelöscht.",
        ),
        (
            "Las copias de la web se guardan en Dropbox durante 30 días.",
            "Ya no usamos Dropbox.",
            "Ya no usamos Dropbox para las fotos.",
        ),
        (
            "Les factures de la boutique sont envoyées avec Sage le lundi.",
            "Nous n'utilisons plus Sage.",
            "Nous n'utilisons plus Sage pour la paie.",
        ),
        ("日志和备份保存在服务器 atlas 上，保留 30 天。", "atlas 已下线。", "atlas 的显示器已卖掉。"),
        (
            "ログは Elasticsearch に保存され、30 日間保持される。",
            "Elasticsearch は廃止された。",
            "Kibana は廃止された。",
        ),
    ],
)
def test_use_of_what_is_gone_is_a_candidate(older: str, newer: str, other: str) -> None:
    assert find_status(older, newer) == "candidate"
    assert find_status(older, other) is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The shop is tested in Firefox.", "The plugin dropped support for Firefox."),
        ("The Oslo data center stores photos.", "I moved from Oslo to Bergen."),
        ("Charts show the load of Grafana.", "Grafana was down on Tuesday."),
    ],
)
def test_what_is_left_or_dropped_by_another_is_not_gone(older: str, newer: str) -> None:
    assert find_status(older, newer) is None


def test_same_speaker_confirms_what_is_gone() -> None:
    assert find_status("We use Harvest.", "We got rid of Harvest.") == "confirmed"
    assert find_status("Our partner uses Harvest.", "We got rid of Harvest.") == "candidate"


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        ("Yara Boe leads the pottery class.", "Yara Boe left the studio.", "Yara Boe left the meeting early."),
        ("Yara Boe leads the pottery class.", "Yara Boe left the team.", "Yara Boe left the team meeting early."),
        ("Ben Ode maintains the build scripts.", "Ben Ode is on parental leave.", "Ben Ode is on the train."),
        ("Ben Ode maintains the build scripts.", "Ben Ode moved to the data team.", "Ben Ode moved to Berlin."),
        ("Frau Demir leitet die Kasse.", "Frau Demir hat die Firma verlassen.", "Frau Demir hat den Saal verlassen."),
        ("Mme Caron gère le planning.", "Mme Caron a pris sa retraite.", "Mme Caron est partie à midi."),
        ("Ben Ode collects stamps.", "Ann Lee left the company.", "Ben Ode left the company."),
    ],
)
def test_part_of_somebody_who_left_is_a_candidate(older: str, newer: str, other: str) -> None:
    expected = None if newer.startswith("Ann") else "candidate"
    assert find_status(older, newer) == expected
    assert find_status(older, other) is None


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        (
            "Use the flag --legacy-peers when you install the shop packages.",
            "The flag --legacy-peers is not needed any more for the shop: its packages were updated.",
            "The flag --force is not needed any more for the docs.",
        ),
        (
            "Restart the relay after a change of its templates.",
            "The relay reloads templates on change, a restart is no longer needed.",
            "A restart of the database is no longer necessary after a change of its users.",
        ),
        (
            "Nach jeder Änderung der Vorlagen muss lampe neu gestartet werden, sonst bleiben die alten Texte.",
            "Die Vorlagen von lampe werden bei jeder Änderung neu geladen; ein Neustart ist nicht mehr nötig.",
            "Bei jeder Änderung der Preise ist ein Neustart der Kasse nicht mehr nötig.",
        ),
        (
            "Vor dem Bauen muss der Ordner dist gelöscht werden, sonst bleiben alte Dateien.",
            "Der Ordner dist wird beim Bauen geleert; löschen ist nicht mehr nötig.",
            "Ein Passwort ist beim Bauen nicht mehr nötig.",
        ),
    ],
)
def test_demand_for_what_is_needless_is_a_candidate(older: str, newer: str, other: str) -> None:
    assert find_status(older, newer) == "candidate"
    assert find_status(older, other) is None


@pytest.mark.parametrize(
    ("older", "newer", "other"),
    [
        (
            "Do not sail on Mondays.",
            "The ban on Monday sails is lifted since we have radar.",
            "The ban on Friday sailing is lifted.",
        ),
        ("Never fish at the pier.", "Fishing at the pier is allowed again.", "Fishing at the dam is allowed again."),
        (
            "Never use drones at the pier.",
            "The use of drones at the pier is allowed again.",
            "The use of drones is allowed again at the dam.",
        ),
        (
            "Fotos im Archiv sind nicht gestattet.",
            "Das Verbot von Fotos im Archiv wurde aufgehoben.",
            "Das Verbot von Fotos im Hof wurde aufgehoben.",
        ),
        (
            "On ne doit pas pêcher dans le port.",
            "Pêcher dans le port est de nouveau autorisé.",
            "Pêcher dans le lac est de nouveau autorisé.",
        ),
        ("不要在周五发布。", "周五发布的禁令已解除。", "周五维护的禁令已解除。"),
    ],
)
def test_lifted_ban_ends_what_forbids_the_same(older: str, newer: str, other: str) -> None:
    assert find_status(older, newer) == "candidate"
    assert find_status(older, other) is None
