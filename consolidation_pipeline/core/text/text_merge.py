"""One text in place of several, without losing a sentence: splitting, lossless union, capped union, no-loss check."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.conflicts.literal_patterns import BLANK, CODE, QUOTED
from consolidation_pipeline.core.conflicts.literal_scanner import Literal
from consolidation_pipeline.core.conflicts.literals import literals, stands_in
from consolidation_pipeline.core.memories.memories import normalize_text

# A sentence and the white space between it and the one before.
_Piece = tuple[str, str]

# A fenced block of code is one unit, to the end of the text if it is never closed; else each line is one.
_UNIT = re.compile(
    r"^[^\S\n]*(?P<fence>`{3,}|~{3,})[^`\n]*$(?:.*?(?P<closing>^[^\S\n]*(?P=fence)[`~]*[^\S\n]*$)|.*)|(?P<line>[^\n]+)",
    re.MULTILINE | re.DOTALL,
)
_CLOSING_FENCE = re.compile(r"\n[^\S\n]*(?:`{3,}|~{3,})[^\S\n]*\Z")
_CLOSERS = "\"'”’»)]*_`"
_STOP = re.compile(rf"(?<![.!?…])[.!?…]+[{re.escape(_CLOSERS)}]*(?=\s)|[。！？]+[”’」』）]*")
_WRAPPED = re.compile(f"{CODE}|{QUOTED}")
# What a sentence starts with inside a line: nothing that would be a list's item or a code block on its own line.
_START = re.compile(r"\s+(?!\d{1,3}[.)](?:\s|$)|`{3})(?:[^\W_a-z]|[\"“‘«„(\[{`*_#$@</–—•-])")
_ITEM_NUMBER = re.compile(r"(?:^|[.!?…:]\s+)(?:\d{1,3}|[A-Za-z])[.)]$")
_INITIALS = re.compile(r"(?:^|[\s(\[])(?:[^\W\d_]\.)+$")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:e\.?g|i\.?e|etc|vs|cf|ca|approx|resp|incl|excl|no|nr|fig|sec|ch|vol|pp?|ed|al|viz|dr|mrs?|ms|prof|st|"
    r"inc|ltd|co|jr|sr|dept|est|min|max|avg|ver?|rev)\.$",
    re.IGNORECASE,
)
# Units that look like an initial or an abbreviation. A capital after a number is rather a name: "in 2019 J. Smith".
_QUANTITY = re.compile(rf"\d{BLANK}+(?:[bdghlmswx]|min|ms|sec)\.$")


@dataclass(frozen=True)
class Merged:
    """A merged text and, in order, the sentences that did not fit."""

    content: str
    dropped: tuple[str, ...]


def split_sentences(text: str) -> list[str]:
    """The sentences of ``text`` in order, stripped; every non-blank part is in exactly one.

    A line break ends a sentence, except inside a fenced block of code, which is one sentence as a whole. Versions,
    paths, decimals, abbreviations, inline code and quotations are not cut; ``takes 20 s. Then`` is. Where a sentence
    ends depends on itself and on how the next one starts, so leaving sentences out does not change the others.
    """
    return [sentence for _, sentence in _pieces(text)]


def merge_texts(texts: Iterable[str]) -> str:
    """The lossless union: the first text verbatim, then of each other one every sentence that is not there yet.

    Sentences are the same by :func:`normalize_text`, unless one holds a literal that the other does not. So are whole
    texts, even if their sentences are not: in ``open it. close it`` nothing shows where the second one starts. The new
    sentences of one text form one paragraph, on separate lines if they were so; a blank line separates paragraphs.
    Blank texts do not count; no text gives "". White space at the end of the first is dropped where another follows.
    """
    given = [text for text in texts if text.strip()]
    paragraphs = _paragraphs(given)
    return given[0] if len(paragraphs) == 1 else _rendered(paragraphs)


def merge_capped(texts: Iterable[str], *, max_chars: int) -> Merged:
    """:func:`merge_texts` in at most ``max_chars`` characters of whole sentences.

    A sentence that does not fit ends its text, so that what is kept of a text has no holes; later texts are still
    tried. The very first sentence is always kept whole, even where it alone exceeds ``max_chars``.
    """
    given = [text for text in texts if text.strip()]
    whole = merge_texts(given)
    if len(whole) <= max_chars:
        return Merged(whole, ())
    kept: list[list[_Piece]] = []
    dropped: list[str] = []
    for pieces in _paragraphs(given):
        fitting = _fitting(kept, pieces, max_chars)
        kept.append(pieces[:fitting])
        dropped.extend(sentence for _, sentence in pieces[fitting:])
    return Merged(_rendered(kept), tuple(dropped))


def missing_literals(sources: Iterable[str], merged: str) -> frozenset[Literal]:
    """The literals of any source that do not stand in ``merged``; empty means that no fact was lost."""
    wanted = frozenset().union(*(literals(source) for source in sources))
    return frozenset(literal for literal in wanted if not stands_in(literal, merged))


def _pieces(text: str) -> Iterator[_Piece]:
    end = 0
    for start, stop in _spans(text):
        sentence = text[start:stop].strip()
        if sentence:
            start = text.index(sentence, start)
            yield text[end:start], sentence
            end = start + len(sentence)


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for unit in _UNIT.finditer(text):
        if unit["line"] is None:
            yield unit.span()
        else:
            yield from _line_spans(text, *unit.span())


def _line_spans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    line = text[start:stop]
    # Without its rest, a line that begins like a block of code would open one.
    opens = line.lstrip().startswith(("```", "~~~"))
    stops = [] if opens else [match.end() for match in _STOP.finditer(line)]
    wrapped = [match.span() for match in _WRAPPED.finditer(line)] if stops else []
    begin = 0
    for end in stops:
        before = bisect_left(wrapped, (end, 0)) - 1
        inside = before >= 0 and end < wrapped[before][1]
        # No abbreviation is longer than this; a longer look back would make a row of initials quadratic.
        if not inside and _is_end(line[max(begin, end - 40) : end], line, end):
            yield start + begin, start + end
            begin = end
    yield start + begin, stop


def _is_end(tail: str, line: str, end: int) -> bool:
    """Whether a sentence with this tail ends before ``line[end]``."""
    if tail.rstrip(_CLOSERS)[-1:] in "。！？":
        return True
    start = _START.match(line, end)
    if not start:
        return False
    bare = tail.lstrip().rstrip(_CLOSERS)
    if _QUANTITY.search(bare):
        # "2 min. 30 s." is one quantity.
        return not start[0][-1].isdigit()
    return not (_ITEM_NUMBER.search(bare) or _INITIALS.search(bare) or _ABBREVIATION.search(bare))


def _paragraphs(texts: Sequence[str]) -> list[list[_Piece]]:
    """The pieces of the first text, and for each other one the pieces that add something, where there are any."""
    known: dict[str, list[str]] = {}
    paragraphs: list[list[_Piece]] = []
    for text in texts:
        whole = text.strip()
        form = _form(whole)
        pieces = [] if _is_known(whole, form, known) else list(_pieces(text))
        added = [_learn(sentence, _form(sentence), known) for _, sentence in pieces]
        # As a whole too: a later text may say the same and be split elsewhere, or not at all.
        _learn(whole, form, known)
        paragraph = _joined(pieces, added) if paragraphs else pieces
        paragraphs.extend([paragraph] if paragraph else [])
    return paragraphs


def _learn(text: str, form: str, known: dict[str, list[str]]) -> bool:
    """Whether the sentence or whole text is new; remembers it if so."""
    is_new = not _is_known(text, form, known)
    if is_new:
        known.setdefault(form, []).append(text)
    return is_new


def _is_known(text: str, form: str, known: dict[str, list[str]]) -> bool:
    same = known.get(form, [])
    return text in same or (bool(same) and literals(text) <= frozenset().union(*map(literals, same)))


def _form(text: str) -> str:
    # A block of code is the same whether its end was written or not: _rendered writes it.
    return normalize_text(_CLOSING_FENCE.sub("", text) if "\n" in text else text)


def _joined(pieces: Sequence[_Piece], added: Sequence[bool]) -> list[_Piece]:
    """The added pieces with one blank between them, or a line break where they were on separate lines."""
    kept: list[_Piece] = []
    between = ""
    for (gap, sentence), is_new in zip(pieces, added, strict=True):
        between += gap
        if is_new:
            kept.append(("" if not kept else "\n" if "\n" in between else " ", sentence))
            between = ""
    return kept


def _fitting(kept: Sequence[list[_Piece]], pieces: Sequence[_Piece], max_chars: int) -> int:
    """How many of the pieces still fit behind what is kept; at least one if nothing is."""
    count = 0 if kept else 1
    while count < len(pieces) and len(_rendered([*kept, list(pieces[: count + 1])])) <= max_chars:
        count += 1
    return count


def _rendered(paragraphs: Sequence[Sequence[_Piece]]) -> str:
    texts = ["".join(gap + sentence for gap, sentence in pieces) for pieces in paragraphs if pieces]
    return "\n\n".join((*map(_closed, texts[:-1]), *texts[-1:]))


def _closed(text: str) -> str:
    """``text``, with the end of its last block of code if that is missing: it would swallow what follows."""
    *_, last = _UNIT.finditer(text)
    return f"{text}\n{last['fence']}" if last["fence"] and not last["closing"] else text
