"""Names of things, and numbers that name one: "ticket 4512", "release 2.3"."""

from __future__ import annotations

from collections.abc import Sequence

from consolidation_pipeline.core.differences.reading import Token

# Literals that name something, by the beginning of their key; other literals are values.
NAMES = ("path:", "url:", "identifier:", "error_code:", "quoted:")
# What numbers name rather than measure.
_LABELS = frozenset(
    """
    step phase issue ticket pr chapter section page paper part episode lesson case week day sprint round run attempt
    level item rule question task room line row column table figure node shard replica server worker slot group team
    unit module block id number nr no schritt ticketnummer kapitel abschnitt seite teil aufgabe zeile woche tag
    knoten gruppe paso fase capítulo página tarea línea grupo semana étape chapitre tâche ligne groupe semaine nœud
    build job iteration version-id
    """.split()
)


def is_name(token: Token) -> bool:
    """Return True for a name, a path, an address or an identifier; False for a value and a word."""
    return token.kind == "name" or token.key.startswith(NAMES)


def is_label(tokens: Sequence[Token], at: int, text: str, *, may_open: bool = False) -> bool:
    """Return True if a number names a thing: "ticket 4512".

    Args:
        tokens: As they are written in ``text``.
        at: Position of the number.
        may_open: Any word that opens the sentence may be such a thing: "gate 4 opens".
    """
    token = tokens[at]
    if at == 0 or not token.key.startswith("number:") or " " in token.key or token.gap != "tight":
        return False
    word = tokens[at - 1]
    if ":" in text[word.start : token.start]:
        return False  # "Limit: 5"
    if word.kind == "name" and word.text.istitle() and at > 1:
        return False  # "runs on Node 20"
    return word.text.lower() in _LABELS or (may_open and at == 1 and len(tokens) > 2)


def numbers_thing(tokens: Sequence[Token], at: int, text: str) -> bool:
    """Return True for a number beside the name of what it numbers, and a version: "incident 4", "release 2.3"."""
    token = tokens[at]
    return is_label(tokens, at, text, may_open=True) or (token.key.startswith("number:") and token.text[0].isalpha())
