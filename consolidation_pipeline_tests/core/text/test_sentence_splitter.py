"""Sentence splitter: boundaries in six languages, hard-wrapped text."""

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.text.sentence_splitter import close_code_block, split_pieces, split_sentences, unwrap
from consolidation_pipeline_tests.core.text.test_text_merge import BLOCK, blocks, sources
from consolidation_pipeline_tests.hypothesis_examples import examples


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\t", []),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Use v2.1 now. Then 3.5 GB are free.", ["Use v2.1 now.", "Then 3.5 GB are free."]),
        (
            "Some tools, e.g. Ruff, help. Others (i.e. Black) too.",
            ["Some tools, e.g. Ruff, help.", "Others (i.e. Black) too."],
        ),
        ("Open src/a.py. Edit file.ext. Save.", ["Open src/a.py.", "Edit file.ext.", "Save."]),
        ("It failed at 0.85. 3 retries helped.", ["It failed at 0.85.", "3 retries helped."]),
        ("1. First thing. Really.\n2. Second thing", ["1. First thing.", "Really.", "2. Second thing"]),
        ("Do this: 1. Open. 2. Close.", ["Do this: 1. Open. 2. Close."]),
        ("- one\n- two. Still two.\n\nA paragraph", ["- one", "- two.", "Still two.", "A paragraph"]),
        ('He said "Stop. Go." Then he left.', ['He said "Stop. Go."', "Then he left."]),
        ("Call `a. B` first. Then stop.", ["Call `a. B` first.", "Then stop."]),
        ("J. Smith wrote it. Dr. Who read it.", ["J. Smith wrote it.", "Dr. Who read it."]),
        ("Wait... and see. OK", ["Wait... and see.", "OK"]),
        ("See fig. 3 or no. 5 there. Done.", ["See fig. 3 or no. 5 there.", "Done."]),
        ("Set it to 12. Then go.", ["Set it to 12.", "Then go."]),
        ("It takes 20 s. The next one waits.", ["It takes 20 s.", "The next one waits."]),
        ("It costs 5 $. Then stop.", ["It costs 5 $.", "Then stop."]),
        ("It is 3 m. It works.", ["It is 3 m.", "It works."]),
        ("Wait (5 min.) `make` runs.", ["Wait (5 min.)", "`make` runs."]),
        ("It waits 20 ms. Or 3 sec. Then it fails.", ["It waits 20 ms.", "Or 3 sec.", "Then it fails."]),
        ("It takes 2 min. 30 s. Then go.", ["It takes 2 min. 30 s.", "Then go."]),
        ("It takes approx. 20 s. of it. Wait.", ["It takes approx. 20 s. of it.", "Wait."]),
        ("Some time, e.g. 5 s. for each.", ["Some time, e.g. 5 s. for each."]),
        ("In 2019 J. Smith wrote v. 2 of it.", ["In 2019 J. Smith wrote v. 2 of it."]),
        ("See Fig. 3 of vol. 12 there.", ["See Fig. 3 of vol. 12 there."]),
        ("The least is min. 5 of M. Moore.", ["The least is min. 5 of M. Moore."]),
        ("先缓存。再读取。", ["先缓存。", "再读取。"]),
        (f"Before.\n{BLOCK}\nAfter. End", ["Before.", BLOCK, "After.", "End"]),
        ("Text\n```\nopen. Ended\nnever", ["Text", "```\nopen. Ended\nnever"]),
        ("Inline ```x. Y``` stays. Next", ["Inline ```x. Y``` stays.", "Next"]),
        ("```x below. `code()` ends it.\nNext", ["```x below. `code()` ends it.", "Next"]),
        ("x\r\ny", ["x", "y"]),
    ],
)
def test_split_sentences_at_reader_boundaries(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@settings(deadline=None, max_examples=examples(200))
@given(st.one_of(sources, blocks, st.text(max_size=200)))
def test_split_sentences_keeps_every_character(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "Run SELECT ... FROM memories. | Then stop.",
        "ALTER TABLE ... ADD COLUMN locks the table. | It waits.",
        "The query SELECT a, (...) FROM t is slow. | Use an index.",
        "Wait... and see. | OK.",
        "Use Python 3.11.4. | It is faster than 3.10.",
        "Set the timeout to 0.5 s. | The default is 30 s.",
        "Edit src/a.py. | Then run ./build.sh.",
        "Run cd .. and then make. | Restart.",
        "Use option A. | The other one fails.",
        "We met at 5 p.m. | The job had failed.",
        "It ran at 5 p.m. Monday in the U.S. office. | It failed.",
        "Logs, metrics, etc. are kept. | Traces are not.",
        "It keeps logs, metrics, etc. | The rest is dropped.",
        "Ask Dr. Smith or Mr. J. Doe. | They know.",
        "Ask a Ph.D. student. | They know.",
        "See Fig. 3 and Sec. 4.2. | They show it.",
        "The answer is no. | Use a lock.",
        "It broke on Jan. 3 and Sept. 5. | We fixed it.",
        "Acme Inc. runs it. | Acme Ltd. | We do not.",
        "(It fails. Then it retries.) | We log it.",
        'He said "Stop. Go." | Then he left.',
        "Use e.g. Redis. | Or Memcached.",
        "Is it up? | Yes! | Good.",
        "Done. | ✅ Next step is the deploy.",
        "The versions v1.2. and v1.3. work. | Others fail.",
        "Compare A vs. B first. | Then choose.",
        "Use https://example.com/a.b?c=1. | It works.",
        "It costs $5. | That is a lot.",
        "Call `a.b(). C` first. | Then stop.",
        "The U.S. Government pays. | We wait.",
        "Das gilt z. B. für Redis. | Danach starten.",
        "Das gilt z.B. Dienstags. | Danach starten.",
        "Wir trafen uns am 3. Oktober 2024. | Der Dienst lief.",
        "Im 2. Schritt wird gebaut. | Danach wird getestet.",
        "Der 1. Versuch schlug fehl. | Der zweite nicht.",
        "Immer mit der Fähre, 2. Deck, Platz innen. | Danach weiter.",
        "Beim Umbau einer 3. Halle half Ada. | Es war laut.",
        "Open the ports 80, 443. | Restart the proxy.",
        "Der Zug kommt um acht, 9. | Die Fähre auch.",
        "Nutze Dateien bzw. Ordner. | Danach aufräumen.",
        "Der Dienst läuft ca. 5 Min. lang. | Danach stoppt er.",
        "Siehe Abs. 3 und Nr. 5. | Dort steht es.",
        "Die Kosten betragen 3.500 Euro. | Das ist viel.",
        "Setze den Wert auf 12. | Dann starte neu.",
        "Frage Hr. Müller oder Fr. Schmidt. | Sie wissen es.",
        "Logs, Metriken usw. werden gespeichert. | Der Rest nicht.",
        "Er sagte: „Stopp. Los.“ | Dann ging er.",
        "D. h. der Server fällt aus. | Bitte prüfen.",
        "Äpfel sind da. | Über Nacht nicht.",
        "¿Funciona? | ¡Sí! | Use la versión 2.0.",
        "El Sr. García lo sabe. | La Sra. López no.",
        "Use un caché, p. ej. Redis. | Luego reinicie.",
        "Vea la pág. 5 y el art. 3. | Ahí está.",
        "El servicio falló. | ¿Por qué?",
        "EE. UU. paga la factura. | Nosotros no.",
        "M. Dupont et Mme. Durand le savent. | Les autres non.",
        "Utilisez un cache, p. ex. Redis. | Ensuite, redémarrez.",
        "Voir p. 5 et chap. 3. | C'est là.",
        "Est-ce prêt ? | Oui ! | Alors déployez.",
        "Il dit « Stop. Allez. » | Puis il part.",
        "L'équipe a fini. | Élodie a testé. | À demain.",
        "Les journaux, les métriques, etc. sont gardés. | Le reste non.",
        "先缓存。|再读取。|完成！|好吗？",
        "他说：“好。停。”|然后走了。",
        "使用 v2.1 版本（不是 2.0。请注意）。|重启服务。",
        "超时为 0.5 秒。|默认值是 30 秒。",
        "値を確認する。|次に保存する。",
        "彼は「はい。わかりました。」と言った。|そして帰った。",
        "設定（例：a。b）を変更する。|再起動する。",
        "本当に？|はい！",
        "バージョン2.1を使う。|以前は1.9だった。",
    ],
)
def test_split_sentences_at_each_mark(text: str) -> None:
    sentences = [part.strip() for part in text.split("|")]
    assert split_sentences(text.replace(" | ", " ").replace("|", "")) == sentences


@settings(deadline=None, max_examples=examples(200))
@given(st.one_of(sources, blocks, st.text(max_size=200)))
def test_pieces_are_the_unwrapped_text(text: str) -> None:
    assert "".join(gap + sentence for gap, sentence in split_pieces(text)).rstrip() == unwrap(text).rstrip()


PROSE = (
    "The export job opens one connection for each table, and closes none of them before the next run. When the pool "
    "is empty, e.g. at night, the queue waits for 30 s. Then it fails with error E1234 in src/pool/manager.py. "
    "Restart Postgres 16.2 and the worker. Nobody has to call the support, as Dr. Smith found in the log of May 3. "
    "`SELECT count(*) FROM jobs` shows how many are left; SELECT ... FROM memories is slow."
)


@pytest.mark.parametrize("width", [50, 60, 72, 80, 100])
def test_hard_wrapped_text_has_the_same_sentences(width: int) -> None:
    assert split_sentences(textwrap.fill(PROSE, width)) == split_sentences(PROSE)
    item = textwrap.fill(f"- {PROSE}", width, subsequent_indent="  ")
    assert [" ".join(one.split()) for one in split_sentences(item)] == split_sentences(f"- {PROSE}")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("The pool was\nexhausted by the\nexport. Close it.", ["The pool was exhausted by the export.", "Close it."]),
        ("Set the flag in the\nGitHub settings.", ["Set the flag in the GitHub settings."]),
        ("Goal without a stop\nSummary of it.", ["Goal without a stop", "Summary of it."]),
        ("Add a limit\nto the export of large tables", ["Add a limit", "to the export of large tables"]),
        ("close the pool of the export job at night\nonly", ["close the pool of the export job at night only"]),
        ("make build\nmake test", ["make build", "make test"]),
        ("- one\n- two\n- three", ["- one", "- two", "- three"]),
        ("name: pool\nport: 5432", ["name: pool", "port: 5432"]),
        ("# Pools of the\nThe pool waits.", ["# Pools of the", "The pool waits."]),
        ("| pools of the\n| jobs", ["| pools of the", "| jobs"]),
        ("First line of the\n\nnext one.", ["First line of the", "next one."]),
        (f"Run the\n{BLOCK}", ["Run the", BLOCK]),
        (
            'Traceback:\n  File "app/auth.py", line 88, in login\n    user = session["user"]\nKeyError: \'user\'',
            ["Traceback:", 'File "app/auth.py", line 88, in login', 'user = session["user"]', "KeyError: 'user'"],
        ),
        (
            "at Session.readAll (src/session.js:94:17)\nat Session.read (src/session.js:88:17)",
            ["at Session.readAll (src/session.js:94:17)", "at Session.read (src/session.js:88:17)"],
        ),
        (
            "session = open_session(request, timeout)\nname = session.user.name",
            ["session = open_session(request, timeout)", "name = session.user.name"],
        ),
    ],
)
def test_lines_are_joined_where_text_goes_on(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def test_code_block_is_closed_once() -> None:
    assert close_code_block("Run:\n~~~\nmake") == "Run:\n~~~\nmake\n~~~"
    assert close_code_block(BLOCK) == BLOCK
    assert close_code_block("Inline ```x```.") == "Inline ```x```."
