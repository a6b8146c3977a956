"""Word lists of languages, and the language of texts."""

from __future__ import annotations

import tomllib
from collections import Counter
from importlib.resources import files

import pytest

from consolidation_pipeline.core.differences.language import LANGUAGES, detect_language, load_language, split_words

TEXTS = {
    "en": "The service is restarted at night, and its logs are kept for a week.",
    "de": "Der Dienst wird nachts neu gestartet, und seine Protokolle werden eine Woche lang aufbewahrt.",
    "es": "El servicio se reinicia por la noche y sus registros se guardan durante una semana.",
    "fr": "Le service est redémarré la nuit et ses journaux sont gardés pendant une semaine.",
    "zh": "服务在夜间重启，日志保留一周。",
    "ja": "サービスは夜間に再起動され、ログは一週間保存されます。",
}


@pytest.mark.parametrize("code", TEXTS)
def test_language_is_detected(code: str) -> None:
    assert detect_language(TEXTS[code]) == (code if code in LANGUAGES else None)


@pytest.mark.parametrize(
    "text", ["Сервис перезапускается ночью.", "서비스는 밤에 다시 시작됩니다.", "zorbel quandrix vantelope melkor"]
)
def test_unknown_language_is_none(text: str) -> None:
    assert detect_language(text) is None


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_word_has_two_meanings(code: str) -> None:
    raw = tomllib.loads(
        (files("consolidation_pipeline.core.differences") / "languages" / f"{code}.toml").read_text("utf-8")
    )
    entries = [("light", entry) for entry in raw["light"]]
    entries += [(f"marker {key}", entry) for key, words in raw["markers"].items() for entry in words]
    entries += [
        (f"{category} {pole}", entry)
        for category, poles in raw["cues"].items()
        for pole, words in poles.items()
        for entry in words
    ]
    meanings = Counter(entry for _, entry in set(entries))
    assert [entry for entry, count in meanings.items() if count > 1] == []


@pytest.mark.parametrize("code", LANGUAGES)
def test_synonyms_are_no_antonyms(code: str) -> None:
    language = load_language(code)
    for pair in language.antonyms:
        representatives = {language.synonyms.get(word, word) for word in pair}
        assert len(pair) == len(representatives) == 2, pair


@pytest.mark.parametrize("code", LANGUAGES)
def test_neutral_poles_exist(code: str) -> None:
    language = load_language(code)
    poles = {(phrase.key, phrase.pole) for phrase in language.phrases.values() if phrase.role == "cue"}
    assert language.neutral <= poles


def test_words_of_all_scripts_are_split() -> None:
    assert split_words("Don’t restart サーバー 没有") == ("don't", "restart", "サーバー", "没", "有")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Peter doesn't eat meat.", "en"),
        ("Restart worker, delete folder, verify backup.", "en"),
        ("Ordner löschen, Sicherung prüfen", "de"),
        ("Le service n'arrête plus la file.", "fr"),
    ],
)
def test_short_note_has_a_language(text: str, code: str) -> None:
    assert detect_language(text) == code
