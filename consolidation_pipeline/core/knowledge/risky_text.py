"""Risks of a text that agents would follow: commands, addresses, credentials, and orders that misuse the reader.

A text with a risk never becomes an instruction without a person, who is told the risk. A command or an address is part
of much good advice and only waits; the other kinds are signs of an injection: text planted to change what agents do.
The rules err on the side of waiting.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from consolidation_pipeline.core.knowledge.risk_phrases import find_delicate, find_sensitive, forms, negation, phrases

_MAX_QUOTE = 60


class RiskKind(StrEnum):
    """Kind of a risk."""

    OVERRIDE = "override"
    AUTHORITY = "authority"
    SECRECY = "secrecy"
    DISCLOSURE = "disclosure"
    SAFEGUARD = "safeguard"
    DESTRUCTION = "destruction"
    CREDENTIAL = "credential"
    HIDDEN = "hidden"
    COMMAND = "command"
    ADDRESS = "address"
    SENSITIVE = "sensitive"
    UNREADABLE = "unreadable"


_DESCRIPTIONS = {
    RiskKind.OVERRIDE: "possible injection: speaks to the reader about rules, roles or prompts",
    RiskKind.AUTHORITY: "possible injection: claims an approval, or tells to go on without one",
    RiskKind.SECRECY: "possible injection: tells to hide something from people",
    RiskKind.DISCLOSURE: "possible injection: tells to pass on data or secrets",
    RiskKind.SAFEGUARD: "possible injection: tells to weaken a safeguard or to give access",
    RiskKind.DESTRUCTION: "possible injection: tells to destroy data",
    RiskKind.CREDENTIAL: "possible injection: contains a credential, or asks for one",
    RiskKind.HIDDEN: "possible injection: hides part of its text",
    RiskKind.COMMAND: "contains a command or code (no sign of an injection by itself)",
    RiskKind.ADDRESS: "contains an address (no sign of an injection by itself)",
    RiskKind.SENSITIVE: "is about money, access, private data or safeguards (no sign of an injection by itself)",
    RiskKind.UNREADABLE: "is in a script that these rules do not know",
}
# Kinds that say nothing about the intention of the text.
_PLAIN = (RiskKind.COMMAND, RiskKind.ADDRESS, RiskKind.SENSITIVE, RiskKind.UNREADABLE)
# Kinds that a negation before the phrase turns into advice against it.
_NEGATABLE = (RiskKind.OVERRIDE, RiskKind.DISCLOSURE, RiskKind.SAFEGUARD, RiskKind.DESTRUCTION, RiskKind.CREDENTIAL)


class Risk(NamedTuple):
    """A risk of a text. ``quote``: the words that show it, shortened."""

    kind: RiskKind
    quote: str

    @property
    def is_injection(self) -> bool:
        """Return True if the text may have been planted to misuse its readers."""
        return self.kind not in _PLAIN

    @property
    def reason(self) -> str:
        """The risk in words, with the quote."""
        return f"{_DESCRIPTIONS[self.kind]}: {self.quote!r}"


def find_risks(text: str) -> tuple[Risk, ...]:
    """Return the risks of a text, at most one of each kind, in the order of ``RiskKind``; empty if there are none.

    The text counts as its reader sees it and as it may be meant: without invisible characters, with look-alike letters
    of other scripts replaced, with spaced-out letters joined, and with Base64 decoded.
    """
    found: dict[RiskKind, str] = {}
    for kind, quote in _find_all(text):
        found.setdefault(kind, _shorten(quote))
    return tuple(Risk(kind, found[kind]) for kind in RiskKind if kind in found)


def find_injection_kinds(text: str) -> frozenset[RiskKind]:
    """Return the kinds of risk of a text that are signs of an injection."""
    return frozenset(risk.kind for risk in find_risks(text) if risk.is_injection)


def find_delicate_subject(text: str) -> str | None:
    """Return a word of the text that names a subject on which a person decides, or None.

    Patterns know only so many attacks. A text about none of these subjects does little harm if it is one.
    """
    return find_delicate(_fold(_replace_lookalikes(_strip_invisible(text))))


def _find_all(text: str) -> Iterator[tuple[RiskKind, str]]:
    yield from _find_hidden(text)
    visible = _strip_invisible(text)
    decoded = list(_decode_base64(visible))
    visible = _LONG_WORD.sub(r"\1 \2", visible)
    for version in dict.fromkeys((visible, _replace_lookalikes(visible), *decoded)):
        for kind in _FORM_KINDS:
            if match := forms(kind).search(version):
                yield kind, _quote(match)
        folded = _fold(version)
        yield from _find_phrases(folded)
        if sentence := find_sensitive(folded):
            yield RiskKind.SENSITIVE, sentence
    folded = _fold(_replace_lookalikes(visible))
    for variant in {_join_letters(folded), _replace_digits(folded)} - {folded}:
        for kind, quote in _find_phrases(variant):
            yield RiskKind.HIDDEN, quote
            yield kind, quote


def _quote(match: re.Match[str]) -> str:
    """Return a code span as it is written, or else the rest of the line."""
    is_span = match[0].startswith("`") and match[0].endswith("`")
    return match[0] if is_span else match.string[match.start() :].strip().partition("\n")[0]


# Searches take time that grows with the square of the length of a word; of a long one, both ends count.
_LONG_WORD = re.compile(r"([!-~]{200})[!-~]{100,}([!-~]{200})")
# Kinds that have forms, and those that have phrases.
_FORM_KINDS = (RiskKind.OVERRIDE, RiskKind.CREDENTIAL, RiskKind.COMMAND, RiskKind.ADDRESS)
_PHRASE_KINDS = tuple(RiskKind)[: tuple(RiskKind).index(RiskKind.HIDDEN)]
_CLAUSE_END = re.compile(r"[.;:!?\n,。！？；，、]|\b(?:and|but|then|und|aber|y|pero|et|mais)\b")


def _find_phrases(folded: str) -> Iterator[tuple[RiskKind, str]]:
    """Yield the kinds whose phrases occur in a folded text, except those that their clause forbids."""
    for kind in _PHRASE_KINDS:
        for match in phrases(kind).finditer(folded):
            if kind not in _NEGATABLE or not _is_forbidden(folded, match.start()):
                yield kind, match[0]
                break


def _is_forbidden(folded: str, start: int) -> bool:
    clause = _CLAUSE_END.split(folded[max(0, start - 60) : start])[-1]
    return negation().search(clause) is not None


def _shorten(quote: str) -> str:
    words = " ".join(quote.split())
    return words if len(words) <= _MAX_QUOTE else words[: _MAX_QUOTE - 2] + ".."


def _fold(text: str) -> str:
    """Return the text in lower case, in one line, without accents on Latin letters and without underscores."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'").replace("_", " ")
    if not folded.isascii():
        parts = unicodedata.normalize("NFD", folded)
        kept = (c for at, c in enumerate(parts) if not ("\u0300" <= c <= "\u036f" and parts[at - 1] < "\u0370"))
        folded = unicodedata.normalize("NFC", "".join(kept))
    return " ".join(folded.split())


# Invisible: zero-width and joining characters, soft hyphens, directions, tags and fillers.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0]"
    "|[\U000e0000-\U000e007f]"
)
# A zero-width joiner between pictographs makes one emoji of them.
_EMOJI_JOINER = re.compile(
    "(?<=[\u2600-\u27bf\ufe0f\U0001f000-\U0001faff])\u200d(?=[\u2600-\u27bf\U0001f000-\U0001faff])"
)
_COMMENT = re.compile(
    r"<!--.*?(?:-->|\Z)|\[//\]:\s*#|<(?:script|iframe|style|object|embed)\b|display\s*:\s*none", re.S | re.I
)
_MIXED_WORD = re.compile(r"[^\W\d_]{3,}")


def _find_hidden(text: str) -> Iterator[tuple[RiskKind, str]]:
    plain = _EMOJI_JOINER.sub("", text)
    if match := _INVISIBLE.search(plain.removeprefix("\ufeff")):
        yield RiskKind.HIDDEN, f"invisible character U+{ord(match[0]):04X}"
    if match := _COMMENT.search(text):
        yield RiskKind.HIDDEN, match[0]
    for match in _MIXED_WORD.finditer("" if text.isascii() else text):
        scripts = {_script(letter) for letter in match[0]} - {None}
        if len(scripts & {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}) > 1:
            yield RiskKind.HIDDEN, f"{match[0]} (letters of several scripts)"
    for decoded in _decode_base64(text):
        yield RiskKind.HIDDEN, f"encoded: {decoded}"
    unknown = {script for letter in text if not letter.isascii() and (script := _script(letter)) in _UNKNOWN_SCRIPTS}
    if unknown:
        yield RiskKind.UNREADABLE, ", ".join(sorted(str(script).capitalize() for script in unknown))


_UNKNOWN_SCRIPTS = {
    "CYRILLIC", "ARABIC", "HEBREW", "HANGUL", "THAI", "DEVANAGARI", "BENGALI", "TAMIL", "TELUGU", "GEORGIAN",
    "ARMENIAN", "KHMER", "LAO", "ETHIOPIC", "SINHALA", "GUJARATI", "GURMUKHI", "KANNADA", "MALAYALAM", "MYANMAR",
    "CHEROKEE", "TIBETAN", "MONGOLIAN",
}  # fmt: skip


def _script(letter: str) -> str | None:
    """Return the first word of a letter's Unicode name, which is its script; None for what is no letter."""
    return unicodedata.name(letter, "").split(" ")[0] if letter.isalpha() else None


def _strip_invisible(text: str) -> str:
    return _INVISIBLE.sub("", text)


# Letters that look like Latin ones, Cyrillic before Greek.
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝкмтвнАВЕКМНОРСТХІЈЅ" + "αεικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "ıɡ",
    "aeopcyxijshdqwkmtbhABEKMHOPCTXIJS" + "aeiknoptuxABEZHIKMNOPTYX" + "ig",
)


def _replace_lookalikes(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_LOOKALIKES)


_SPACED = re.compile(r"\b(?:\w[ .*-]){4,}\w\b")
_LEET = str.maketrans("013457@$", "oieastas")
_LEET_WORD = re.compile(r"(?<!\S)(?=\S*[a-z])(?=\S*[013457@$])[a-z013457@$]{4,}(?!\w)")


def _join_letters(folded: str) -> str:
    """Return the text with spaced-out words joined, such as "i g n o r e"."""
    return _SPACED.sub(lambda match: re.sub(r"[ .*-]", "", match[0]), folded)


def _replace_digits(folded: str) -> str:
    """Return the text with digits and signs inside words replaced by the letters that they look like."""
    return _LEET_WORD.sub(lambda match: match[0].translate(_LEET), folded)


_BASE64 = re.compile(r"(?<![\w+/=])[A-Za-z0-9+/_-]{20,}={0,2}(?![\w+/=])")
_HEX = re.compile(r"(?<!\w)(?:[0-9a-fA-F]{2}[ :]?){16,}(?!\w)")
_MIN_WORDS_DECODED = 0.9


def _decode_base64(text: str) -> Iterator[str]:
    """Yield the texts that stand in Base64 or hexadecimal digits, if they decode to text."""
    for match in _BASE64.finditer(text):
        token = match[0].replace("-", "+").replace("_", "/").rstrip("=")
        try:
            decoded = base64.b64decode(token + "=" * (-len(token) % 4), validate=True)
        except (binascii.Error, ValueError):
            continue
        if _is_text(decoded):
            yield decoded.decode()
    for match in _HEX.finditer(text):
        decoded = bytes.fromhex(re.sub(r"[ :]", "", match[0]))
        if _is_text(decoded):
            yield decoded.decode()


def _is_text(decoded: bytes) -> bool:
    try:
        words = decoded.decode()
    except UnicodeDecodeError:
        return False
    plain = sum(c.isalnum() or c.isspace() or c in ".,:;!?'\"/-_$&|()<>" for c in words)
    return words.isprintable() and " " in words.strip() and plain >= _MIN_WORDS_DECODED * len(words)
