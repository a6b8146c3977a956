"""Sentences of a text for quoting: unwrapped, without bullets and code, each with a readability score."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from consolidation_pipeline.core.text.sentence_splitter import BULLET, split_pieces

# About three lines on a screen. A longer sentence is cut at the end of a clause, or of a word if there is no clause.
MAX_SENTENCE_CHARS = 400
# A longer sentence is hard to read.
_LONG_CHARS = 260
_MIN_WORDS = 4

_MARKUP = re.compile(r"^\s*(?:#{1,6}\s|[|<]|`{3}|~{3}|[-=_*]{3,}\s*$|https?://\S+$)")
_FENCE = re.compile(r"^\s*(?:`{3}|~{3})")
_FENCE_LINE = re.compile(r"(?m)^\s*(?:`{3}|~{3}).*$")
_SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’»)\]*_`」』]*$")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff]")
_CLAUSE_END = re.compile(r"[;:,–—](?=\s)|[；：，、]")

_PRONOUNS = frozenset("it its it's this these those they them their he she him her his hers".split())
# First words of a sentence that refer to the sentence before.
_REFERRING = _PRONOUNS | frozenset(
    """
    that that's such so but and or also then thus hence therefore however otherwise instead both either neither nor else
    additionally moreover furthermore again there same former latter another afterwards meanwhile similarly likewise
    consequently still too only
    """.split()
)
_FIRST_PERSON = frozenset(
    "i we me us my our ours mine i'm i've i'd i'll we're we've we'd we'll myself ourselves".split()
)
_TEMPORARY = frozenset(
    "today yesterday tomorrow tonight temporarily temporary currently ongoing soon wip todo tbd somebody".split()
)
# Tasks to find something out, rather than findings.
_INQUIRY = re.compile(
    r"\s*(?:(?:find out|figure out|look into|investigate|diagnose|debug|clarify)\b|understand wh|why )",
    re.IGNORECASE,
)
# Words of past events, rather than of lasting facts.
_PAST_TENSE = frozenset("was were had did wasn't weren't hadn't didn't".split())


@dataclass(frozen=True)
class Sentence:
    """A sentence: ``text`` with single blanks, ``quote`` as in the source, ``whole`` uncut and with its bullet."""

    text: str
    quote: str
    whole: str

    @cached_property
    def line(self) -> str:
        """The quote with single blanks, also where ``text`` was changed to tell more."""
        return " ".join(self.quote.split())

    @cached_property
    def readability(self) -> float:
        """Score of the sentence as a quotation on its own, in (0, 1]; 1 reads best."""
        return _score_readability(self.whole)


def extract_sentences(text: str) -> list[Sentence]:
    """Return the sentences of ``text`` in order, without bullets, heading signs and code blocks.

    Wrapped lines are joined. A text of code alone gives its lines. The list is empty only for a blank text. A sentence
    longer than ``MAX_SENTENCE_CHARS`` is cut at the end of a clause or word. A ``quote`` is a substring of ``text``.
    """
    return list(_extract(text))


@lru_cache(maxsize=1 << 13)
def _extract(text: str) -> tuple[Sentence, ...]:
    spans = list(_spans(text))
    prose = [span for span in spans if not _FENCE.match(text[slice(*span)])]
    if not prose:
        # Blanks in place of the fence keep the offsets.
        bare = _FENCE_LINE.sub(lambda line: " " * len(line[0]), text)
        prose = [(m.start(), m.end()) for m in re.finditer(r"[^\n]*\S[^\n]*", bare)] or spans
    return tuple(_sentence(text, *span) for span in prose)


def is_context_dependent(sentence: str) -> bool:
    """Return True if it opens with a reference to the sentence before: "This", "It", "Without it", "However"."""
    opening = [word.lower().replace("’", "'") for word in _WORD.findall(sentence[:60])]
    return not _REFERRING.isdisjoint(opening[:1]) or not _PRONOUNS.isdisjoint(opening[1:2])


def _spans(text: str) -> Iterator[tuple[int, int]]:
    end = 0
    for gap, sentence in split_pieces(text):
        start = end + len(gap)
        end = start + len(sentence)
        yield start, end


def _sentence(text: str, start: int, end: int) -> Sentence:
    whole = text[start:end].strip()
    bullet = BULLET.match(whole)
    bare = whole[bullet.end() :] if bullet and bullet.end() < len(whole) else whole
    quote = _shorten(bare)
    return Sentence(" ".join(quote.split()), quote, whole)


def _shorten(sentence: str) -> str:
    if len(sentence) <= MAX_SENTENCE_CHARS:
        return sentence
    head = sentence[: MAX_SENTENCE_CHARS + 1]
    clauses = [match.start() for match in _CLAUSE_END.finditer(head) if match.start() >= MAX_SENTENCE_CHARS // 2]
    words = [match.start() for match in re.finditer(r"\s", head)]
    return head[: (clauses or words or [MAX_SENTENCE_CHARS])[-1]].rstrip() or head[:MAX_SENTENCE_CHARS]


def _score_readability(sentence: str) -> float:
    """Return the product of the factors that apply. They are estimates; only the order of the scores matters."""
    words = [word.lower().replace("’", "'") for word in _WORD.findall(sentence)]
    length = len(words) + len(_UNSPACED.findall(sentence)) // 2
    factors = (
        (0.1, _MARKUP.search(sentence) is not None),
        (0.4, length < _MIN_WORDS),
        (0.8 if sentence[-1:] not in ":,;-" else 0.4, not _SENTENCE_END.search(sentence)),
        (0.6, is_context_dependent(sentence)),
        (0.6, sentence.endswith(("?", "？", "...", "…"))),
        (0.4, _INQUIRY.match(sentence) is not None),
        (0.7, _is_unbalanced(sentence)),
        (0.7, len(sentence) > _LONG_CHARS),
        (0.4, len(sentence) > MAX_SENTENCE_CHARS),
        (0.85, not _FIRST_PERSON.isdisjoint(words)),
        (0.7, not _TEMPORARY.isdisjoint(words)),
        (0.85, not _PAST_TENSE.isdisjoint(words) or (words or [""])[0].endswith("ed")),
    )
    return math.prod((factor for factor, applies in factors if applies), start=1.0)


def _is_unbalanced(sentence: str) -> bool:
    """Return True if brackets, quotation marks or code marks are not in pairs, or it holds bold text."""
    odd = any(sentence.count(sign) % 2 for sign in '`"')
    return odd or "**" in sentence or sentence.count("(") != sentence.count(")")
