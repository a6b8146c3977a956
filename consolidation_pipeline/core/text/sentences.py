"""Sentences of a text that can stand alone: unwrapped, without bullets and code, and how well each one reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from consolidation_pipeline.core.text.text_merge import split_sentences

# About three lines on a screen; what is longer is cut at the end of a clause or, failing that, of a word.
MAX_SENTENCE_CHARS = 400
# Beyond this a sentence is hard to take in at once.
_LONG = 260
_FEWEST_WORDS = 4

_BLOCK_START = r"[#>|`~*+•–—-]|\d{1,3}[.)]\s"
# A line that goes on in the next one: that begins in lower case, or this one ends where no sentence can.
_WRAP = re.compile(
    r"(?m)^(?!\s*[#|]).*?(?:[^\s.!?…:;。！？|]|\b(?:e\.g|i\.e|etc)\.)(?P<soft>\n)(?=[^\S\n]*[a-zß-öø-ÿ(])"
    r"|^(?!\s*[#|]).*?(?:,|\b(?:the|an?|of|to|in|on|at|by|and|or|for|from|with|that|which|is|are|was|its|when|if|as))"
    rf"(?P<hard>\n)(?=[^\S\n]*\S)(?![^\S\n]*(?:{_BLOCK_START}))"
)
_BULLET = re.compile(r"(?:(?:[>•*+–—-]|#{1,6}|\d{1,3}[.)]|\[[ xX]\])\s+)+")
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s|[|<]|`{3}|~{3}|[-=_*]{3,}\s*$|https?://\S+$)")
_FENCE = re.compile(r"^\s*(?:`{3}|~{3})")
_FENCE_LINE = re.compile(r"(?m)^\s*(?:`{3}|~{3}).*$")
_STOPPED = re.compile(r"[.!?…。！？][\"'”’»)\]*_`」』]*$")
# "ALTER TABLE ... ADD COLUMN" leaves something out, and goes on.
_ELISION = re.compile(r"\s(?:\.\.\.|…)\Z")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff]")
_CLAUSE_END = re.compile(r"[;:,–—](?=\s)|[；：，、]")

_PRONOUNS = frozenset("it its it's this these those they them their he she him her his hers".split())
# Words that lean on the sentence before when they open one.
_LEANING = _PRONOUNS | frozenset(
    """
    that that's such so but and or also then thus hence therefore however otherwise instead both either neither nor else
    additionally moreover furthermore again there same former latter another afterwards meanwhile similarly likewise
    consequently still too only
    """.split()
)
_SELF = frozenset("i we me us my our ours mine i'm i've i'd i'll we're we've we'd we'll myself ourselves".split())
_PASSING = frozenset(
    "today yesterday tomorrow tonight temporarily temporary currently ongoing soon wip todo tbd somebody".split()
)
# What was to be found out, not what was found.
_INQUIRY = re.compile(
    r"\s*(?:(?:find out|figure out|look into|investigate|diagnose|debug|clarify)\b|understand wh|why )",
    re.IGNORECASE,
)
# What happened once, rather than what holds.
_TOLD = frozenset("was were had did wasn't weren't hadn't didn't".split())


@dataclass(frozen=True)
class Sentence:
    """``text`` with single blanks, ``quote`` as it stands in the source, ``whole``: the same with its bullet, uncut."""

    text: str
    quote: str
    whole: str

    @cached_property
    def worth(self) -> float:
        """How well it reads, in (0, 1]."""
        return _worth(self.whole)


def read_sentences(text: str) -> list[Sentence]:
    """The sentences of ``text`` in order, without bullets, heading signs and blocks of code.

    Lines that were wrapped are joined. A text of nothing but code gives its lines. Never empty unless the text is
    blank; a sentence beyond ``MAX_SENTENCE_CHARS`` is cut where a clause or a word ends. Every ``quote`` is a part of
    ``text``, character by character.
    """
    spans = list(_spans(text))
    prose = [span for span in spans if not _FENCE.match(text[slice(*span)])]
    if not prose:
        # Same length, so that offsets stay: the signs of the fence are no line of the code.
        bare = _FENCE_LINE.sub(lambda line: " " * len(line[0]), text)
        prose = [(m.start(), m.end()) for m in re.finditer(r"[^\n]*\S[^\n]*", bare)] or spans
    return [_sentence(text, *span) for span in prose]


def is_dangling(sentence: str) -> bool:
    """Whether it opens with a word that leans on what stood before: "This", "It", "Without it", "However"."""
    opening = [word.lower().replace("’", "'") for word in _WORD.findall(sentence[:60])[:3]]
    if not opening:
        return False
    return opening[0] in _LEANING or any(word in _PRONOUNS for word in opening[1:2])


def _spans(text: str) -> Iterator[tuple[int, int]]:
    joined = _unwrapped(text)
    begin = end = 0
    for sentence in split_sentences(joined):
        start = joined.index(sentence, end)
        # The tail alone: a look at all of it would make a row of elisions quadratic.
        goes_on = _ELISION.search(joined, max(begin, end - 4), end) and "\n" not in joined[end:start]
        if end and not goes_on:
            yield begin, end
        begin, end = begin if goes_on else start, start + len(sentence)
    if end:
        yield begin, end


def _unwrapped(text: str) -> str:
    """``text`` with line breaks inside sentences as blanks; of the same length, code blocks untouched."""
    if "\n" not in text or _FENCE_LINE.search(text):
        return text
    chars = list(text)
    for match in _WRAP.finditer(text):
        if match.lastgroup:
            chars[match.start(match.lastgroup)] = " "
    return "".join(chars)


def _sentence(text: str, start: int, end: int) -> Sentence:
    whole = text[start:end].strip()
    bullet = _BULLET.match(whole)
    bare = whole[bullet.end() :] if bullet and bullet.end() < len(whole) else whole
    quote = _shortened(bare)
    return Sentence(" ".join(quote.split()), quote, whole)


def _shortened(sentence: str) -> str:
    if len(sentence) <= MAX_SENTENCE_CHARS:
        return sentence
    head = sentence[: MAX_SENTENCE_CHARS + 1]
    clauses = [match.start() for match in _CLAUSE_END.finditer(head) if match.start() >= MAX_SENTENCE_CHARS // 2]
    words = [match.start() for match in re.finditer(r"\s", head)]
    return head[: (clauses or words or [MAX_SENTENCE_CHARS])[-1]].rstrip() or head[:MAX_SENTENCE_CHARS]


def _worth(sentence: str) -> float:
    """The product of what speaks against quoting a sentence alone; estimates, of which only the order matters."""
    words = [word.lower().replace("’", "'") for word in _WORD.findall(sentence)]
    length = len(words) + len(_UNSPACED.findall(sentence)) // 2
    against = (
        (0.1, _MARKUP.search(sentence) is not None),
        (0.4, length < _FEWEST_WORDS),
        (0.8 if sentence[-1:] not in ":,;-" else 0.4, not _STOPPED.search(sentence)),
        (0.6, is_dangling(sentence)),
        (0.6, sentence.endswith(("?", "？", "...", "…"))),
        (0.4, _INQUIRY.match(sentence) is not None),
        (0.7, _is_torn(sentence)),
        (0.7, len(sentence) > _LONG),
        (0.4, len(sentence) > MAX_SENTENCE_CHARS),
        (0.85, not _SELF.isdisjoint(words)),
        (0.7, not _PASSING.isdisjoint(words)),
        (0.85, not _TOLD.isdisjoint(words) or (words or [""])[0].endswith("ed")),
    )
    worth = 1.0
    for factor, applies in against:
        worth *= factor if applies else 1.0
    return worth


def _is_torn(sentence: str) -> bool:
    """Whether it opens a bracket, a quotation or inline code that it does not close, or holds a lead-in in bold."""
    odd = any(sentence.count(sign) % 2 for sign in '`"')
    return odd or "**" in sentence or sentence.count("(") != sentence.count(")")
