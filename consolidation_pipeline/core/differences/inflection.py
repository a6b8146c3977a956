"""Forms of Japanese verbs: the stems to which endings are added, which are light words: 運ば, 運び, 運ん of 運ぶ."""

import re

# Last kana of a verb = those of its stems.
_STEMS = {
    "う": "わいっえ",
    "く": "かきいけ",
    "ぐ": "がぎいげ",
    "す": "さしせ",
    "つ": "たちって",
    "ぬ": "なにんね",
    "ぶ": "ばびんべ",
    "む": "まみんめ",
    "る": "らりっれ",
}
# Kana before る of a verb with one stem: 集める, 借りる.
_BEFORE_RU = frozenset("えけげせぜてでねべめれいきぎしじちにびみり")
# Kanji that are such a stem: 見る. One sign is a part of too many other words.
_SHORT_STEMS = frozenset("見得寝着煮似出診観経居来")
_SHORTEST = 2
_FIRST_KANJI = "\u4e00"
_PASSIVE = re.compile("[されかわたまらばが]れ(?:る|て|た|ま)")


def list_stems(word: str) -> list[str]:
    """Return the stems of a verb in its dictionary form, none for other words and verbs with a stem of one sign."""
    head, last = word[:-1], word[-1]
    if last not in _STEMS or len(word) < _SHORTEST + (word[0] < _FIRST_KANJI):
        return []
    if last == "る" and head[-1] in _SHORT_STEMS:
        return []
    if last == "る" and head[-1] in _BEFORE_RU:
        return [head]
    return [head + kana for kana in _STEMS[last]]


def name_passive(word: str) -> str:
    """Return the passive stem of a verb of several stems, which is a word apart: 頼まれ; empty for other words."""
    stems = list_stems(word)
    return f"{stems[0]}れ" if len(stems) > 1 else ""


def has_passive(text: str) -> bool:
    """Return True if a verb of a text is in the passive: 作成された."""
    return _PASSIVE.search(text) is not None
