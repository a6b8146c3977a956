"""Merged texts: sentence splitting, lossless union of texts, union up to a length, check for lost literals."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.literals.literal_patterns import BLANK, CODE, QUOTED
from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import literals, stands_in
from consolidation_pipeline.core.memories.memories import normalize_text

# A sentence and the white space between it and the one before.
_Piece = tuple[str, str]

# A fenced code block is one unit; it ends with the text if it is not closed. Outside of blocks, each line is a unit.
_UNIT = re.compile(
    r"^[^\S\n]*(?P<fence>`{3,}|~{3,})[^`\n]*$(?:.*?(?P<closing>^[^\S\n]*(?P=fence)[`~]*[^\S\n]*$)|.*)|(?P<line>[^\n]+)",
    re.MULTILINE | re.DOTALL,
)
_CLOSING_FENCE = re.compile(r"\n[^\S\n]*(?:`{3,}|~{3,})[^\S\n]*\Z")
_CLOSERS = "\"'”’»)]*_`"
_STOP = re.compile(rf"(?<![.!?…])[.!?…]+[{re.escape(_CLOSERS)}]*(?=\s)|[。！？]+[”’」』）]*")
_WRAPPED = re.compile(f"{CODE}|{QUOTED}")
# Start of a sentence inside a line, but not of a list item or code block.
_START = re.compile(r"\s+(?!\d{1,3}[.)](?:\s|$)|`{3})(?:[^\W_a-z]|[\"“‘«„(\[{`*_#$@</–—•-])")
_ITEM_NUMBER = re.compile(r"(?:^|[.!?…:]\s+)(?:\d{1,3}|[A-Za-z])[.)]$")
_INITIALS = re.compile(r"(?:^|[\s(\[])(?:[^\W\d_]\.)+$")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[])(?:e\.?g|i\.?e|etc|vs|cf|ca|approx|resp|incl|excl|no|nr|fig|sec|ch|vol|pp?|ed|al|viz|dr|mrs?|ms|prof|st|"
    r"inc|ltd|co|jr|sr|dept|est|min|max|avg|ver?|rev)\.$",
    re.IGNORECASE,
)
# Units that look like an initial or an abbreviation. A capital after a number is a name: "in 2019 J. Smith".
_QUANTITY = re.compile(rf"\d{BLANK}+(?:[bdghlmswx]|min|ms|sec)\.$")


@dataclass(frozen=True)
class MergedText:
    """A merged text, and the sentences that did not fit, in order."""

    content: str
    dropped: tuple[str, ...]


def split_sentences(text: str) -> list[str]:
    """Return the sentences of ``text`` in order, stripped; each non-blank part is in exactly one.

    A line break ends a sentence. A fenced code block is one sentence. Versions, paths, decimals, abbreviations, inline
    code and quotations are not cut; ``takes 20 s. Then`` is. The end of a sentence depends only on it and on the start
    of the next one, so leaving out sentences does not change the others.
    """
    return [sentence for _, sentence in _pieces(text)]


def merge_texts(texts: Iterable[str]) -> str:
    """Return the lossless union: the first text verbatim, then each sentence of the others that is new.

    A sentence is not new if earlier ones with the same normal form have all its literals. Whole texts are compared in
    the same way, because equal texts may be split differently: ``open it. close it`` does not show where the second
    sentence starts.

    The new sentences of one text form a paragraph, after a blank line, on separate lines if they were. Blank texts are
    skipped; no text gives "". White space at the end of the first text is dropped if another paragraph follows.
    """
    given = [text for text in texts if text.strip()]
    paragraphs = _paragraphs(given)
    return given[0] if len(paragraphs) == 1 else _render(paragraphs)


def merge_capped(texts: Iterable[str], *, max_chars: int) -> MergedText:
    """Return :func:`merge_texts` in at most ``max_chars`` characters of whole sentences.

    A sentence that does not fit ends its text, so that no text has gaps; later texts are still tried. The very first
    sentence is kept even if it exceeds ``max_chars``.
    """
    given = [text for text in texts if text.strip()]
    whole = merge_texts(given)
    if len(whole) <= max_chars:
        return MergedText(whole, ())
    kept: list[list[_Piece]] = []
    dropped: list[str] = []
    for pieces in _paragraphs(given):
        fitting = _count_fitting(kept, pieces, max_chars)
        kept.append(pieces[:fitting])
        dropped.extend(sentence for _, sentence in pieces[fitting:])
    return MergedText(_render(kept), tuple(dropped))


def find_missing_literals(sources: Iterable[str], merged: str) -> frozenset[Literal]:
    """Return the literals of the sources that ``merged`` lacks; empty if no fact was lost."""
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
    # A line that begins like a code block is not cut: its first part would open a block.
    opens = line.lstrip().startswith(("```", "~~~"))
    stops = [] if opens else [match.end() for match in _STOP.finditer(line)]
    wrapped = [match.span() for match in _WRAPPED.finditer(line)] if stops else []
    begin = 0
    for end in stops:
        before = bisect_left(wrapped, (end, 0)) - 1
        inside = before >= 0 and end < wrapped[before][1]
        # No abbreviation is longer than 40. Looking back further would take quadratic time for many initials in a row.
        if not inside and _is_sentence_end(line[max(begin, end - 40) : end], line, end):
            yield start + begin, start + end
            begin = end
    yield start + begin, stop


def _is_sentence_end(tail: str, line: str, end: int) -> bool:
    """Return True if a sentence with this tail ends before ``line[end]``."""
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
    """Return the pieces of the first text, then the new pieces of each other text that has any."""
    known: dict[str, list[str]] = {}
    paragraphs: list[list[_Piece]] = []
    for text in texts:
        whole = text.strip()
        form = _normal_form(whole)
        pieces = [] if _is_known(whole, form, known) else list(_pieces(text))
        added = [_add_if_new(sentence, _normal_form(sentence), known) for _, sentence in pieces]
        # Also the whole text: an equal later text may be split differently.
        _add_if_new(whole, form, known)
        paragraph = _join_new(pieces, added) if paragraphs else pieces
        paragraphs.extend([paragraph] if paragraph else [])
    return paragraphs


def _add_if_new(text: str, form: str, known: dict[str, list[str]]) -> bool:
    """Return True if the sentence or whole text is new, and add it to ``known``."""
    is_new = not _is_known(text, form, known)
    if is_new:
        known.setdefault(form, []).append(text)
    return is_new


def _is_known(text: str, form: str, known: dict[str, list[str]]) -> bool:
    same = known.get(form, [])
    return text in same or (bool(same) and literals(text) <= frozenset().union(*map(literals, same)))


def _normal_form(text: str) -> str:
    # A code block is equal with or without its closing fence: _render adds a missing one.
    return normalize_text(_CLOSING_FENCE.sub("", text) if "\n" in text else text)


def _join_new(pieces: Sequence[_Piece], added: Sequence[bool]) -> list[_Piece]:
    """Return the new pieces, separated by a blank, or by a line break if they were on separate lines."""
    kept: list[_Piece] = []
    between = ""
    for (gap, sentence), is_new in zip(pieces, added, strict=True):
        between += gap
        if is_new:
            kept.append(("" if not kept else "\n" if "\n" in between else " ", sentence))
            between = ""
    return kept


def _count_fitting(kept: Sequence[list[_Piece]], pieces: Sequence[_Piece], max_chars: int) -> int:
    """Return the number of pieces that fit after the kept ones; at least 1 if nothing is kept yet."""
    count = 0 if kept else 1
    while count < len(pieces) and len(_render([*kept, list(pieces[: count + 1])])) <= max_chars:
        count += 1
    return count


def _render(paragraphs: Sequence[Sequence[_Piece]]) -> str:
    texts = ["".join(gap + sentence for gap, sentence in pieces) for pieces in paragraphs if pieces]
    return "\n\n".join((*map(_close_fence, texts[:-1]), *texts[-1:]))


def _close_fence(text: str) -> str:
    """Return ``text`` with its last code block closed: an open block would contain the next paragraph."""
    *_, last = _UNIT.finditer(text)
    return f"{text}\n{last['fence']}" if last["fence"] and not last["closing"] else text
