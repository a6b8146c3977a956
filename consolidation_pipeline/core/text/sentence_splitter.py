"""Sentence splitter: the sentences of a text in any of the known languages, with the white space between them."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import accumulate, islice, pairwise

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.language import LANGUAGES
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.literals.literal_patterns import BLANK, CODE, QUOTED

BULLET = re.compile(r"(?:(?:[>•*+–—-]|#{1,6}|\d{1,3}[.)]|\[[ xX]\])\s+)+")
# A sentence and the white space between it and the one before.
Piece = tuple[str, str]

# A fenced code block is one unit; it ends with the text if it is not closed. Outside of blocks, each line is a unit.
_UNIT = re.compile(
    r"^[^\S\n]*(?P<fence>`{3,}|~{3,})[^`\n]*$(?:.*?(?P<closing>^[^\S\n]*(?P=fence)[`~]*[^\S\n]*$)|.*)|(?P<line>[^\n]+)",
    re.MULTILINE | re.DOTALL,
)
_FENCES = ("```", "~~~")
_CLOSERS = "\"'“”‘’»)]*_`"
_FULL_STOPS = "。！？｡"
# A class of signs comes first: ``re`` then looks at nothing else of a text.
_STOP = re.compile(
    rf"[.!?…{_FULL_STOPS}](?:(?<=[.!?…])(?<![.!?…].)[.!?…]*[{re.escape(_CLOSERS)}]*(?:{BLANK}»)?(?=\s)"
    rf"|(?<=[{_FULL_STOPS}])[{_FULL_STOPS}]*[”’」』）]*)"
)
# Not cut. Brackets are short, so that a row of open ones takes linear time. One of the signs begins each of these.
_WRAPPING = re.compile("[`\"“‘«„'「『（(]")
_WRAPPED = re.compile(rf"{CODE}|{QUOTED}|「[^「」\n]+」|『[^『』\n]+』|（[^（）\n]+）|\([^()\n]{{1,400}}\)")
# Start of a sentence inside a line, but not of a list item or code block. The arrows begin the signs and emojis.
_START = re.compile(r"\s+(?!\d{1,3}[.)](?:\s|$)|`{3})(?:[^\W_a-z]|[\"“‘«„¿¡(\[{`*_#$@</–—•←-⯿\U0001f300-\U0001faff-])")
_FIRST_WORD = re.compile(r"\s+[\"“‘«„¿¡(\[*_]*(?P<word>[^\W\d_]*)")
_HIRAGANA = re.compile(r"[\u3041-\u309f]")
_ITEM_NUMBER = re.compile(r"(?:^|[.!?…:]\s+)(?:\d{1,3}|[A-Za-z])[.)]$")
# "SELECT ... FROM" and "(...)" leave something out, and the sentence goes on.
_ELISION = re.compile(r"(?:^|[\s(\[{,])(?:\.{2,}|…+)$")
_LONG_WORD = 7
_BEFORE = r"(?:^|[\s(\[„“\"'’/])"
# These never end a sentence: a word follows.
_TITLE = ignore_case(
    rf"{_BEFORE}(?:e\.?g|i\.?e|vs|cf|ca|approx|resp|incl|excl|al|viz|dr|mrs?|ms|prof|st|ph\.?d|"
    r"bzw|ggf|evtl|inkl|exkl|zzgl|vgl|bspw|sog|hr|dipl|ing|sra?|srta|dra|uds?|vds?|aprox|ej|p\.ej|ex|p\.ex|fr|mm?e|mlle)\.$",
)
# These end one only if the next word is one that often begins a sentence.
_ABBREVIATION = re.compile(
    rf"{_BEFORE}(?:etc|inc|ltd|co|jr|dept|est|corp|usw|u\.a|ee|uu|(?:[^\W\d_]\.)+[^\W\d_]?)\.?$", re.I
)
# These end one unless a number follows: "no. 5", "Jan. 3".
_COUNTED = re.compile(
    rf"{_BEFORE}(?:no|nr|n[ºo°]|núm|fig|abb|sec|ch|chap|cap|vol|pp?|págs?|art|abs|ed|min|max|avg|mind|ver?|rev|tel|bd|"
    r"jan|feb|mar|apr|jun|jul|aug|sept?|oct|okt|nov|dec|dez)\.$",
    re.IGNORECASE,
)
# "am 3. Oktober", "im 2. Schritt", "mit der Bahn, 1. Klasse": a German ordinal, not one of several numbers.
_ORDINAL = re.compile(
    r"(?:^|\s|(?P<comma>[^\W\d],\s+))(?:(?:de[rmns]|die|das|[aiv]m|vom|zu[mr]|beim|(?:ein|dies|jed)e[rmns]?)\s+)?"
    r"(?P<number>\d{1,3})\.$",
    re.I,
)
# Units that look like an initial or an abbreviation. A capital after a number is a name: "in 2019 J. Smith".
_QUANTITY = re.compile(rf"\d{BLANK}+(?:[bdghlmswx]|min|ms|sec)\.$")

# Lines of a hard-wrapped text, most of them full. The widths are those that editors and git wrap at.
_WRAPPED_LINES, _WRAPPED_WIDTHS = 3, range(40, 101)
# Shorter lines in lower case are more often a list.
_MIN_WIDTH = 30
_BLOCK_START = re.compile(
    r"\s*(?:[>•*+–—-]\s|#{1,6}\s|\||\*\*|`{3}|~{3}|\d{1,3}[.)](?:\s|$)|\d{2,4}[-:/]\d|\d{1,2}\.\d{1,2}\.\d|"
    r"[\w.-]+(?:[:=]|\s=)(?:\s|$)|at\s\S+\s?\()"
)
# Headings, tables, and frames of a stack trace, which source lines follow.
_NO_PROSE = re.compile(r"\s*(?:[#|]|File \"[^\"]+\", line \d)")
_GOES_ON = re.compile(
    r"(?:,|\b(?:e\.g\.|i\.e\.|etc\.|the|an?|of|to|in|on|at|by|and|or|for|from|with|that|which|is|are|was|its|when|if|as))\s*$"
)
_OPEN_END = re.compile(r"[^\s.!?…:;。！？|]\s*$")
_FINAL_STOP = re.compile(rf"[.!?…{_FULL_STOPS}][{re.escape(_CLOSERS)}]*\s*$")
_LOWER_START = re.compile(r"\s*[a-zß-öø-ÿ(]")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of ``text`` in order, stripped; each non-blank part is in exactly one.

    A line break ends a sentence, but in a hard-wrapped paragraph it is a blank. A fenced code block is one sentence.
    Versions, paths, decimals, abbreviations, inline code, quotations, brackets and ``SELECT ... FROM`` are not cut;
    ``takes 20 s. Then`` is.
    """
    return [sentence for _, sentence in split_pieces(text)]


# The texts of a user are searched for boilerplate, and then read.
@lru_cache(maxsize=1 << 12)
def split_pieces(text: str) -> tuple[Piece, ...]:
    """Return the sentences of ``text``, each with the white space before it. White space at the end is left out."""
    joined, end = unwrap(text), 0
    pieces = []
    for start, stop in _spans(joined):
        sentence = joined[start:stop].strip()
        if sentence:
            start = joined.index(sentence, start)
            pieces.append((joined[end:start], sentence))
            end = start + len(sentence)
    return tuple(pieces)


def has_code_block(text: str) -> bool:
    """Return True if ``text`` holds a fenced code block."""
    return any(fence in text for fence in _FENCES) and any(unit["fence"] for unit in _UNIT.finditer(text))


def close_code_block(text: str) -> str:
    """Return ``text`` with its last code block closed: an open block would contain what follows."""
    if not any(fence in text for fence in _FENCES):
        return text
    *_, last = _UNIT.finditer(text)
    return f"{text}\n{last['fence']}" if last["fence"] and not last["closing"] else text


def unwrap(text: str) -> str:
    """Return ``text`` with the line breaks inside sentences as blanks; its length is the same."""
    if "\n" not in text.strip():
        return text
    chars = list(text)
    for start, lines in _paragraphs(text):
        ends = accumulate((len(line) + 1 for line in lines), initial=start - 1)
        width = max(len(line.rstrip()) for line in lines)
        for at, end in enumerate(islice(ends, 1, len(lines))):
            if _is_wrapped(lines, at, width):
                chars[end] = " "
    return "".join(chars)


def _paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the runs of at least two lines outside of code blocks: offset and lines."""
    start, lines, end = 0, list[str](), -1
    for unit in _UNIT.finditer(text):
        is_next = unit["line"] is not None and not unit["line"].isspace() and unit.start() == end + 1
        if lines and not is_next:
            yield start, lines
            lines = []
        if unit["line"] is not None and not unit["line"].isspace():
            start = start if lines else unit.start()
            lines.append(unit["line"])
        end = unit.end()
    if lines:
        yield start, lines


def _is_wrapped(lines: list[str], at: int, width: int) -> bool:
    """Return True if a line of a paragraph, whose longest one has this ``width``, goes on in the next one.

    The first word of the next line must be too long for this line. If that is so in the whole paragraph, and it is as
    wide as editors wrap, it is enough. Else the next line begins in lower case, or this one ends where no sentence can.
    """
    line, following = lines[at], lines[at + 1]
    if _NO_PROSE.match(line) or _BLOCK_START.match(following):
        return False
    if not _is_full(line, following, width):
        return False
    if _GOES_ON.search(line) or (width >= _MIN_WIDTH and _OPEN_END.search(line) and _LOWER_START.match(following)):
        return True
    end = len(line.rstrip())
    if _FINAL_STOP.search(line) and _is_sentence_end(line[:end][-40:], f"{line[:end]} {following.lstrip()}", end):
        return False
    is_block = len(lines) >= _WRAPPED_LINES and width in _WRAPPED_WIDTHS
    return is_block and all(_BLOCK_START.match(b) or _is_full(a, b, width) for a, b in pairwise(lines))


def _is_full(line: str, following: str, width: int) -> bool:
    return len(line.rstrip()) + 1 + len(following.split(maxsplit=1)[0]) > width


def _spans(text: str) -> Iterator[tuple[int, int]]:
    for unit in _UNIT.finditer(text):
        if unit["line"] is None:
            yield unit.span()
        else:
            yield from _line_spans(text, *unit.span())


def _line_spans(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    line = text[start:stop]
    # A line that begins like a code block is not cut: its first part would open a block.
    opens = line.lstrip().startswith(_FENCES)
    stops = [] if opens else [match.end() for match in _STOP.finditer(line)]
    wrapped = [match.span() for match in _WRAPPED.finditer(line)] if stops and _WRAPPING.search(line) else []
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
    if tail.rstrip(_CLOSERS + "」』）")[-1:] in _FULL_STOPS:
        # 「はい。」と言った goes on after the quotation.
        return not (tail[-1] in "」』）" and _HIRAGANA.match(line, end))
    start = _START.match(line, end)
    if not start or start[0][-1].islower():
        return False
    bare = tail.lstrip().rstrip(_CLOSERS).rstrip()
    # What follows is about numbers, and words of at most six letters.
    if len(bare) > _LONG_WORD and bare[-_LONG_WORD - 1 : -1].isalpha():
        return True
    if _QUANTITY.search(bare):
        # "2 min. 30 s." is one quantity.
        return not start[0][-1].isdigit()
    item = _ITEM_NUMBER.search(bare)
    is_item = item and not _COUNTED.search(bare[: item.start() + 1])  # "Jan. 3." is none
    if is_item or _TITLE.search(bare) or _ELISION.search(bare):
        return False
    if _COUNTED.search(bare):
        return not start[0][-1].isdigit()
    following = _FIRST_WORD.match(line, end)
    word = following["word"].lower() if following else ""
    if _ABBREVIATION.search(bare):
        return word in _openers()
    ordinal = _ORDINAL.search(bare)
    if ordinal and ordinal["comma"]:
        return word in _openers()
    return not (ordinal and (word in _months() or ordinal.start("number") > ordinal.start() + 1))


@cache
def _openers() -> frozenset[str]:
    """Return the words that often begin a sentence: the function words of all languages."""
    return frozenset().union(*(load_language(code).light for code in LANGUAGES))


@cache
def _months() -> frozenset[str]:
    return frozenset(word for word, key in load_language("de").calendar.items() if key.startswith("months"))
