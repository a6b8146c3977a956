"""Lexer: the pieces of a text, which are its words, literals, code and punctuation."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from consolidation_pipeline.core.differences.language import UNSPACED, WORD, Language, split_parts
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.literals.literal_scanner import Literal, scan

# Signs of one meaning, each one character, so that offsets stay.
_SIGNS = str.maketrans(
    "\u2019\u2018\u201c\u201d\u201e\u300c\u300d\u300e\u300f\u2010\u2011\u2013\u2014\u2212\u3001\uff0c\u3002\uff01\uff1f\uff1b\uff1a\uff08\uff09\u3000\uff05\uff0f\u301c\uff5e\u2103",
    '\'\'"""""""-----,,.!?;:() %/~~\u5ea6',
)
_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_BEFORE_DOT = re.compile(r"(\w+) \d{1,2}$")
_FULL_STOP = re.compile(r"\.(?=\s|$|\"|[^\x00-\x7f])")
_SENTENCE_END = re.compile(r"\.(?=\s+[A-Z]|$)")  # also the dot of "on 14 March. Then .."
_NEGATED = re.compile(r"(?<![^\s(,=])![a-z_(]")  # !ready, but not "attention !Ne pas"
_GRADE = re.compile(r"(?<!\w)[A-Z]{1,2}\Z")  # AB+, O-
# Task boxes, markers of list items and emphasis, outside of code.
_BOX = re.compile(r"(?m)^([^\S\n]*(?:(?:[-*+\u2022]|\d+[.)])[^\S\n]+)?)\[([ xX])\](?=\s)")
_OPEN, _DONE = "\u2610", "\u2611"
_BULLET = re.compile(r"(?m)^([^\S\n]*)[*+\u2022](?=\s)")
_MINUS = re.compile(r"(?:マイナス|零下)(?=\d)")
_EMPHASIS = re.compile(
    rf"{_CODE.pattern}|(?<![^\s(\"':\-])(\*{{1,3}})(?=[\w\"`(])([^\n*]*[^\s*])\1(?![\w*/])", re.DOTALL
)
# "SHA-256" is read as "sha256" and "SHA 256" are.
_NUMBERED = re.compile(r"([A-Za-z]{2,})-([1-9]\d*)")
_PIECE = re.compile(
    rf"(?P<code>{_CODE.pattern})|(?P<word>(?:{WORD.pattern})(?:#|\+\+)?)|(?P<sign>!=+|[<>=+*/&|%^~]+)|(?P<stop>[.!?;\n])|(?P<comma>[,:()\-])",
    re.DOTALL,
)
# A longer sentence says more than a remark.
_MOST_REMARK_WORDS = 6
# Words from the first to the second part of a negation.
_LONGEST_NEGATION = 4
# Words of a tool: "use the staging copy of the table to test it" has more.
_LONGEST_TOOL = 4
# Markers that a noun phrase follows; a clause with a subject of its own follows the others.
PHRASE_MARKERS = frozenset("to from by than through between above below against during without".split())
# "1. Open the valve": the numbers of a list with at least this many items say nothing.
_LIST_ITEM = re.compile(r"^[^\S\n]*\d{1,2}[.)](?=\s)", re.MULTILINE)
_FEWEST_ITEMS = 2
_DECIMAL_COMMA = re.compile(r"(?<![\w.,])(\d+),(?=\d{1,2}(?![\w.,]*\d)|\d{4,}(?![\w.,]*\d))")
# An amount of money has no three decimals, in whatever language.
_CURRENCIES = ("$", "€", "£", "¥")
_THOUSANDS = re.compile(r"(?<![\d.])[1-9]\d{0,2}(?:\.\d{3})+(?!\d)")
_BLANKS = re.compile(r"\s+")


class Piece(NamedTuple):
    """A piece of a text.

    Attributes:
        kind: word, literal, code, sign, stop (end of a sentence) or comma (end of a clause).
        text: As written.
        lower: In lower case, with contractions spelled out.
        key: Literals and code are equal by it.
        start: Offset in the text.
    """

    kind: str
    text: str
    lower: str
    key: str
    start: int


def blank_closings(text: str, language: Language) -> str:
    """Return a text with blanks in place of ends of sentences that say nothing: ことがわかった."""
    if not language.closings:
        return text
    return _compile_closings(language.closings).sub(lambda match: " " * len(match[0]), text)


@cache
def _compile_closings(closings: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"(?:{'|'.join(sorted(closings))})(?=\s*(?:[。．.!?！？]|$))", re.MULTILINE)


def drop_remarks(pieces: Sequence[Piece], language: Language) -> list[Piece]:
    """Return the pieces without openings and sentences about the note itself: "Note to self:", "Seen again today."

    If nothing else is left, all are returned.
    """
    kept: list[Piece] = []
    start, is_opening = 0, True
    for at, piece in enumerate(pieces):
        is_colon = piece.kind == "comma" and piece.text == ":"
        if piece.kind != "stop" and not (is_colon and is_opening) and at < len(pieces) - 1:
            continue
        part = pieces[start : at + 1]
        words = [one.lower for one in part if one.kind not in ("stop", "comma")]
        is_remark = 0 < len(words) <= _MOST_REMARK_WORDS and language.remarks.issuperset(words)
        is_opening = piece.kind == "stop"
        if is_colon and not is_remark and at < len(pieces) - 1:
            continue  # "set retries: true"
        kept += [] if is_remark else part
        start = at + 1
    return kept if any(piece.kind not in ("stop", "comma") for piece in kept) else list(pieces)


def join_negations(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with the word that a negation in two parts means: "ne .. plus" is no longer, not more."""
    for at, first in enumerate(pieces):
        seconds = language.split_negations.get(first.lower, {}) if first.kind == "word" else {}
        for place in range(at + 1, min(at + 1 + _LONGEST_NEGATION, len(pieces))) if seconds else ():
            second = pieces[place]
            if second.kind != "word" or second.lower in language.coordinators:
                break
            if meaning := seconds.get(second.lower):
                if _parts_verbs(first, language):  # "no abras nunca" is "nunca abras"
                    pieces[at] = first._replace(lower=meaning)
                    return [*pieces[:place], *join_negations(pieces[place + 1 :], language)]
                pieces[place] = second._replace(lower=meaning)
                break
    return pieces


def read_copulas(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with the form of "be" that a clitic stands for: "the light's on", not "the light's switch"."""
    clitic, copula = language.copula_clitic
    for at, piece in enumerate(pieces[:-1]):
        if piece.lower == clitic and piece.text != piece.lower and pieces[at + 1].lower in language.after_copula:
            pieces[at] = piece._replace(lower=copula)
    return pieces


def open_conditions(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with the conjunction of a condition that opens with its verb: "wird er krank, .." is "wenn"."""
    for at, piece in enumerate(pieces[:-1]):
        conjunction = language.verb_first.get(piece.lower, "") if piece.text[0].isupper() else ""
        if not conjunction or (at and pieces[at - 1].kind != "stop"):
            continue
        stop = next((end for end in range(at, len(pieces)) if pieces[end].kind == "stop"), len(pieces))
        end = next((end for end in range(at, stop) if pieces[end].kind == "comma"), stop)
        is_question = stop < len(pieces) and pieces[stop].text == "?"
        if end == at + 1 or end + 1 >= stop or pieces[end].text != "," or is_question:
            continue
        rest = next((at for at in range(end + 1, stop) if pieces[at].kind == "comma"), stop)
        # "Wird er krank, hilft es, Ann zu rufen"; of a sentence with more clauses, the main clause is not plain.
        is_plain = rest == stop or any(piece.lower in language.infinitive_marks for piece in pieces[rest:stop])
        if not is_plain or not _may_be_verb(pieces[end + 1], language):
            continue
        words, verb = pieces[at + 1 : end], piece._replace(text=piece.text.lower())
        particle = words[-1] if words[-1].lower in language.particles else None
        if (piece.lower,) in language.phrases:
            words = [*words, verb]
        elif words[0].lower not in language.determiners:  # "Fällt Schnee" has the order of "roter Schnee"
            words = [verb, *words]
        elif particle:
            words = [*words[:-1], verb._replace(lower=particle.lower + verb.lower)]
        else:
            words = [*words, verb]
        condition = [piece._replace(lower=conjunction), *words]
        return [*pieces[:at], *condition, *open_conditions(pieces[end:], language)]
    return pieces


def _may_be_verb(piece: Piece, language: Language) -> bool:
    """Return True if a piece may be the verb behind a condition: "Wird er krank, hilft Ann"."""
    meaning = language.phrases.get((piece.lower,))
    others = language.relatives | language.complementizers | language.conjunctions
    is_other = piece.lower in others | language.determiners | language.prepositions
    return piece.text[0].islower() and not is_other and (meaning is None or meaning.role != "marker")


def join_particles(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with each particle at the end of a clause behind its verb, or in one word with it.

    "Switch the lamp off" is "switch off the lamp", "schaltet die Lampe aus" is "ausschaltet die Lampe".
    """
    kept: list[Piece] = []
    start = 0  # of the clause, in what is kept
    for at, piece in enumerate(pieces):
        kept.append(piece)
        if piece.kind in ("stop", "comma"):
            start = len(kept)
        elif piece.lower in language.particles and len(kept) - start > 1 and _ends_clause(pieces, at + 1, language):
            end = len(kept) - 1
            # "Take the pill and do not lie down", "sign it when they come in": beyond is another verb.
            other = (at for at in range(end - 1, start - 1, -1) if _parts_verbs(kept[at], language))
            start = next(other, start)
            verb = next((verb for verb in range(end - 1, start - 1, -1) if _is_verb(kept, verb, start, language)), -1)
            if verb < 0 and piece.lower in language.predicatives and _has_copula(kept[start:], language):
                kept[-1] = piece._replace(lower=language.predicatives[piece.lower])
            if verb < 0 or (verb == end - 1 and not language.has_prefixes):
                continue
            kept.pop()
            if language.has_prefixes:
                kept[verb] = kept[verb]._replace(lower=piece.lower + kept[verb].lower)
            else:
                kept.insert(verb + 1, piece)
    return kept


def _has_copula(pieces: Sequence[Piece], language: Language) -> bool:
    return any(piece.lower in language.copulas for piece in pieces)


def _parts_verbs(piece: Piece, language: Language) -> bool:
    """Return True for a negation, and for a marker that opens a clause."""
    phrase = language.phrases.get((piece.lower,)) if piece.kind == "word" else None
    if phrase is None:
        return False
    opens_clause = phrase.role == "marker" and phrase.key not in PHRASE_MARKERS
    is_negation = (phrase.key, phrase.pole) == ("polarity", "negative")
    return (opens_clause or is_negation) and not language.has_prefixes  # "er springt nach dem Start nicht an"


def _ends_clause(pieces: Sequence[Piece], at: int, language: Language) -> bool:
    """Return True if no noun phrase begins at a piece."""
    if at >= len(pieces) or pieces[at].kind in ("stop", "comma"):
        return True
    following, word = language.phrases.get((pieces[at].lower,)), pieces[at].lower
    if following is None or word in language.determiners:
        return False
    return word in language.coordinators if language.has_prefixes else following.role in ("light", "marker")


def _is_verb(kept: Sequence[Piece], at: int, start: int, language: Language) -> bool:
    """Return True if a piece is a verb to which the last one belongs. German writes nouns with a capital."""
    piece = kept[at]
    is_noun = language.has_prefixes and piece.text[0].isupper() and at > start
    return piece.kind == "word" and not is_noun and language.has_verb(piece.lower, kept[-1].lower)


def move_tools(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with each tool behind what it is used for: "use pip to install it", "install it using pip"."""
    for at in [at for at, piece in enumerate(pieces) if piece.lower in language.tools][::-1]:
        purpose = _find_purpose(pieces, at + 1, language)
        if purpose > 0:
            ends = (end for end in range(purpose + 1, len(pieces)) if _ends_purpose(pieces[end], language))
            end = next(ends, len(pieces))
            tool = [pieces[at]._replace(lower=language.tools[pieces[at].lower]), *pieces[at + 1 : purpose]]
            pieces = [*pieces[:at], *pieces[purpose + 1 : end], *tool, *pieces[end:]]
    return pieces


def _find_purpose(pieces: Sequence[Piece], start: int, language: Language) -> int:
    """Return the position of the "to" before the verb that a tool is used for, -1 if there is none."""
    for at in range(start, min(start + _LONGEST_TOOL + 1, len(pieces) - 1)):
        piece, following = pieces[at], pieces[at + 1]
        meaning = language.phrases.get((piece.lower,)) if piece.kind == "word" else None
        if meaning is not None and meaning.key == "to":
            is_verb = following.kind == "word" and (following.lower,) not in language.phrases
            return at if at > start and is_verb else -1
        is_part = meaning is None or piece.lower in language.determiners or _is_alternative(pieces, at, language)
        if piece.kind in ("stop", "comma") or not is_part:
            return -1
    return -1


def _is_alternative(pieces: Sequence[Piece], at: int, language: Language) -> bool:
    """Return True if a piece is of words such as "instead of", which name what a tool replaces."""
    pairs = [tuple(piece.lower for piece in pieces[start : start + 2]) for start in (at - 1, at)]
    return any((found := language.phrases.get(pair)) and found.key == "instead" for pair in pairs)


def _ends_purpose(piece: Piece, language: Language) -> bool:
    meaning = language.phrases.get((piece.lower,)) if piece.kind == "word" else None
    is_clause = meaning is not None and meaning.role == "marker" and meaning.key not in PHRASE_MARKERS
    return piece.kind in ("stop", "comma") or is_clause


def unify_signs(text: str) -> str:
    """Return a text of the same length with one kind of quotes, dashes, punctuation, list markers and task boxes.

    It has blanks in place of the signs of emphasis: **never**.
    """
    text = _MINUS.sub(lambda match: f"{' ' * (len(match[0]) - 1)}-", text.translate(_SIGNS))
    if "[" in text:
        text = _BOX.sub(lambda match: f"{match[1]}{_OPEN if match[2] == ' ' else _DONE}  ", text)
    text = _BULLET.sub(r"\1-", text)
    return _EMPHASIS.sub(_blank_emphasis, text) if "*" in text else text


def _blank_emphasis(match: re.Match[str]) -> str:
    width = len(match[1] or "")
    return f"{' ' * width}{match[2]}{' ' * width}" if width else match[0]


def split_pieces(text: str, language: Language) -> Iterator[Piece]:
    """Return the pieces of a text whose signs are unified."""
    if len(_LIST_ITEM.findall(text)) >= _FEWEST_ITEMS:
        text = _LIST_ITEM.sub(lambda match: " " * len(match[0]), text)
    if language.has_decimal_comma and "," in text:
        text = _DECIMAL_COMMA.sub(r"\1.", text)
    literals = _find_literals(text, language)
    is_bare = bool(language.bare) and language.respelled.keys().isdisjoint(text.lower())
    starts = iter([*sorted(literals), len(text)])
    following = next(starts)
    at, word = 0, ""
    while at < len(text):
        while following <= at < len(text):
            following = next(starts)
        literal = literals.get(at)
        if literal and (numbered := _NUMBERED.fullmatch(literal.text)):
            yield Piece("word", numbered[1], numbered[1].lower(), "", at)
            yield Piece("literal", numbered[2], numbered[2], f"number:{numbered[2]}", at + numbered.start(2))
            at, word = at + len(literal.text), ""
            continue
        if literal:
            kind = "number" if literal.kind == "version" else literal.kind
            yield Piece("literal", literal.text, literal.text.lower(), f"{kind}:{literal.value}", at)
            at += len(literal.text) - bool(_SENTENCE_END.match(text, at + len(literal.text) - 1))
            word = ""
            if clitic := _find_clitic(text, at, language):  # "2.14's bug" is none of 2.14 seconds
                yield Piece("word", clitic, language.clitics[clitic], "", at)
                at += len(clitic)
            continue
        if text[at] == " ":
            at += 1
            continue
        match = _PIECE.match(text, at)
        if not match:
            if unicodedata.category(text[at])[0] in "LNS":
                yield Piece("sign", text[at], text[at], text[at], at)
            at += 1
            continue
        kind, end = str(match.lastgroup), match.end()
        if kind == "word":
            end = min(end, following)
        written = text[at:end]
        last, word = word, written.lower() if kind == "word" else ""
        if kind == "word":
            yield from _split_word(written, at, language, is_bare)
        elif kind == "code":
            yield from _split_code(written, at, language)
        elif sign := _name_sign(text, at, end, language):
            yield Piece("word", written, sign, "", at)
        elif kind == "stop":
            is_end = _FULL_STOP.match(text, at) and last not in language.abbreviations
            if written != "." or (is_end and not (language.has_ordinal_dots and _is_ordinal(text, at, language))):
                yield Piece("stop", written, written, written, at)
        elif written in ("+", "-") and _GRADE.search(text, 0, at) and not text[end : end + 1].isalnum():
            yield Piece("sign", written, written, written, at)
        elif kind == "sign" or written != "-" or text[at - 1 : at].isspace():
            yield Piece("sign" if kind == "sign" else "comma", written, written, written, at)
        at = end


def _find_clitic(text: str, at: int, language: Language) -> str:
    """Return the clitic at an offset, behind a literal; empty if there is none."""
    found = (one for one in language.clitics if text.startswith(one, at))
    return next((one for one in found if not text[at + len(one) : at + len(one) + 1].isalnum()), "")


def _name_sign(text: str, at: int, end: int, language: Language) -> str:
    """Return the word that a sign at an offset stands for: "&", "3+", "!ready"; empty if there is none."""
    written = text[at:end]
    if written == "!" and _NEGATED.match(text, at):
        return language.signs.get("!x", "")
    if written == "+" and text[at - 1 : at].isdigit() and not text[end : end + 1].isalnum() and "9+" in language.signs:
        return language.signs["9+"]
    return language.signs.get(written, "")


def _is_ordinal(text: str, at: int, language: Language) -> bool:
    """Return True if the full stop at an offset belongs to an ordinal: "am 3. März", "im 2. Stock"."""
    number = _BEFORE_DOT.search(text, 0, at)
    following = WORD.match(text, at + 2)
    if not number or not following:
        return False
    return number[1].lower() in language.determiners or following[0].lower() in language.calendar


def _find_literals(text: str, language: Language) -> dict[int, Literal]:
    """Return the literals outside of code that no word list of the language reads, by their offset."""
    code = [match.span() for match in _CODE.finditer(text)] if "`" in text else []
    found: dict[int, Literal] = {}
    # An ideograph is no letter of the path beside it.
    for literal in scan(text if language.stemmer else UNSPACED.sub("\n", text)):
        is_word = (literal.kind == "number" and literal.text.isalpha()) or literal.text.lower() in language.calendar
        is_word = is_word or language.numbers.keys() >= {*literal.text.lower().split("-")}  # dix-huit
        if literal.kind == "quoted" or not literal.text or is_word:
            continue
        has_thousands = language.has_decimal_comma or literal.value.endswith(_CURRENCIES)
        is_number = literal.kind == "number" or (literal.kind == "version" and _THOUSANDS.fullmatch(literal.text))
        if is_number and has_thousands and _THOUSANDS.search(literal.text):
            literal = replace(literal, value=next(scan(literal.text.replace(".", ""))).value)
        if not any(start <= literal.start < end for start, end in code):
            found.setdefault(literal.start, literal)
    return found


def _split_word(text: str, start: int, language: Language, is_bare: bool = False) -> list[Piece]:
    """Return the words of a word as written; ``is_bare``: the text has none of the letters that may be spelled out."""
    return [
        Piece("word", part, language.bare.get(meaning, meaning) if is_bare else meaning, "", start + offset)
        for offset, part, meaning in _split_written(text, language.code)
    ]


@lru_cache(maxsize=50_000)
def _split_written(text: str, code: str) -> list[tuple[int, str, str]]:
    """Return the words of a contraction or of a word with hyphens, or the word: its offset, itself and its meaning."""
    language, lower = load_language(code), text.lower()
    if lower in language.contractions:
        return [(0, text, word) for word in language.contractions[lower].split()]
    for ending, meaning in language.clitics.items():
        cut = len(text) - len(ending)
        if lower.endswith(ending) and cut > 0:
            return [(0, text[:cut], lower[:cut]), (cut, text[cut:], meaning)]
    # A literal may follow the last hyphen: "all-NaN".
    return [(offset, part, part.lower()) for offset, part in split_parts(text, language.elisions) if part]


def _split_code(text: str, start: int, language: Language) -> Iterator[Piece]:
    """Return code as one piece, or the word or literal that is marked up as code."""
    inner = text.strip("`")
    if text.startswith("```"):
        inner = re.sub(r"^\w*\n", "", inner)
    bare = inner.strip()
    if WORD.fullmatch(bare):
        yield from _split_word(bare, start + text.index(bare), language)
        return
    literals = list(scan(bare))
    is_literal = len(literals) == 1 and literals[0].text == bare
    key = f"{literals[0].kind}:{literals[0].value}" if is_literal else f"code:{_BLANKS.sub('', inner)}"
    yield Piece("code", text, text, key, start)


def quote(text: str, words: Sequence[Piece]) -> str:
    """Return what is written from the first to the last of some pieces."""
    if len(words) == 1:
        return text[words[0].start : words[0].start + len(words[0].text)]
    return text[words[0].start : max(word.start + len(word.text) for word in words)]
