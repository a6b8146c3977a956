"""Passages of a text: sentences that are told together or not at all, as one of them misleads without the others.

Steps, lists, tables and code with their opening are one passage, and so are a sentence and those that refer back to it.
A passage is told with the headings above it. Of a derived memory, the title and the line on when it was seen are told
with each passage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from textwrap import shorten

from consolidation_pipeline.core.knowledge.pattern_layout import is_seen_line, strip_part_label
from consolidation_pipeline.core.search.novelty import Sentence, as_sentence
from consolidation_pipeline.core.text.sentence_splitter import BULLET, Piece, split_pieces
from consolidation_pipeline.core.text.sentences import is_context_dependent

_HEADING = re.compile(r"(?P<signs>#{1,6})\s|(?:\*\*|__)[^*_\n]+(?:\*\*|__):?$")
# Levels of a title, which is above all headings, and of a heading in bold type.
_TITLE_LEVEL, _BOLD_LEVEL = 0, 7
# A longer title says something itself.
_MOST_TITLE_WORDS = 6
_MARKED = re.compile(rf"{BULLET.pattern}|\||`{{3}}|~{{3}}")
_NUMBERED = re.compile(r"\d{1,3}[.)]\s")
_OPENING = re.compile(r"[:：][*_]*$")
_STOPPED = re.compile(r"[.!?…;,。！？；，][\"'”’»)\]*_`」』]*$")
# "Ticket 4711: the login failed.": the rest of the line is about that ticket.
_LABELLED = re.compile(r"[^.!?:：\n]{1,60}(?::\s|：)")
# Words that refer back: at the end of a sentence, and at its beginning in other languages than English.
_REFERS_BACK = re.compile(
    r"\b(?:earlier|later|sooner|before|afterwards|beforehand|instead|either|too|then|there|otherwise|else|again|"
    r"it|them|this|that|so)\W*$"
    r"|^\W*(?:(?:dann|danach|deshalb|daher|deswegen|dadurch|sonst|andernfalls|dies(?:e[rsmn]?)?|er|sie|es|ihre?|dort|"
    r"dabei|damit|dafür|davor|aber|ensuite|puis|alors|sinon|cela|ça|ce(?:ci|tte|t|s)?|ils?|elles?|donc|mais|"
    r"luego|después|entonces|est[aeo]s?|es[aeo]s?|él|ellas?|ellos|pero)(?!\w)|c['’]est|si no\b|por eso\b"
    r"|然后|否则|它|这|那|他|她|因此|所以|但|その|それ|これ|この|次に|そして|でも|しかし|だから|彼)",
    re.IGNORECASE,
)
# Words that join a sentence to the one before, and leave it whole.
_JOINS = re.compile(
    r"^\W*(?:additionally|also|and|but|consequently|furthermore|hence|however|likewise|moreover|similarly|so|still|"
    r"therefore|thus|too)\b[\s,]*",
    re.IGNORECASE,
)
# What comes of the sentence before, which is as true without it.
_CONSEQUENCE = re.compile(
    r"(?:this|that|these|those) (?:(?:will|can|may|could|would|might|also|often|then) )*"
    r"(?:causes?|leads?|results?|means|makes?|prevents?|allows?|ensures?|helps?|avoids?|indicates?|suggests?)\b",
    re.IGNORECASE,
)
# A sentence that was told already is quoted with so many characters before those that refer back to it.
_MAX_QUOTE = 40
# The splitter takes dots behind these for something that is left out of the sentence.
_OPEN_SIGNS = " ,;:.…([{"


@dataclass(frozen=True)
class Passage:
    """Sentences of a text that are told together.

    ``frame``, ``body``: their positions in the text; those of the frame are told with other passages too. ``text``: the
    headings and the body. ``sentences``: what the body says. ``key``: of two passages that say the same in the same
    order, under the same headings. ``is_prose``: its first sentences hold without the last ones. ``quoted``: sentences
    that are cut, as they were told already.
    """

    frame: tuple[int, ...]
    body: tuple[int, ...]
    text: str
    sentences: tuple[Sentence, ...]
    key: tuple[str, ...]
    is_prose: bool
    quoted: frozenset[str] = frozenset()

    def drop_consequences(self, told: Container[Sentence]) -> Passage:
        """Return the passage without the consequences at its end that were told, if of something else."""
        last = self.sentences[-1]
        if not (self.is_prose and len(self.sentences) > 1 and _CONSEQUENCE.match(last.text) and last in told):
            return self
        text = self.text[: self.text.rindex(last.text)].rstrip()
        sentences, key, body = self.sentences[:-1], self.key[:-1], self.body[:-1]
        return replace(self, body=body, text=text, sentences=sentences, key=key).drop_consequences(told)

    def quote(self, keys: Collection[tuple[str, ...]]) -> Passage:
        """Return the passage with its first sentences cut if these were told. ``keys``: of what was told."""
        ends = [end for end in range(2, len(self.key)) if self.is_prose and not self.key[0] and self.key[:end] in keys]
        if not ends:
            return self
        quoted = [one.text for one in self.sentences[: ends[-1] - 1]]
        text = self.text
        for one in quoted:
            text = text.replace(one, _cut(one), 1)
        return replace(self, text=text, quoted=frozenset(quoted))

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """Normal forms of its numbered items in their order."""
        return tuple(one.normal_form for one in self.sentences if _NUMBERED.match(one.text))


@dataclass(frozen=True)
class _Line:
    """Positions of the sentences of a line. ``level``: of a heading. ``is_apart``: a blank line stands before it."""

    start: int
    end: int
    level: int | None
    is_apart: bool
    is_indented: bool
    is_marked: bool
    is_stopped: bool
    is_opening: bool
    refers_back: bool

    @property
    def is_item(self) -> bool:
        """True for a line of a list, a table, code or a trace."""
        return self.is_marked or self.is_indented


@lru_cache(maxsize=1 << 12)
def split_passages(text: str, *, is_derived: bool = False) -> tuple[Passage, ...]:
    """Return the passages of a text that say something, in order.

    A heading with nothing below it is a passage. ``is_derived``: of a derived memory, whose lines are read one by one.
    """
    pieces = split_pieces(text)
    lines = list(_read_lines(pieces, is_derived=is_derived))
    seen = tuple(one.start for one in lines[1:][-1:] if is_derived and is_seen_line(pieces[one.start][1]))
    groups: list[tuple[tuple[int, ...], list[_Line]]] = []
    headings: list[_Line] = []
    for line in lines:
        if line.start in seen:
            continue
        if line.level is not None:
            headings = [one for one in headings if (one.level or 0) < line.level]
        frame = tuple(one.start for one in headings)
        if line.level is None and not is_derived and groups and _goes_on(groups[-1], frame, line):
            groups[-1][1].append(line)
        else:
            groups.append((frame, [line]))
        if line.level is not None:
            headings.append(line)
    used = {at for frame, _ in groups for at in frame}
    groups = [(frame, group) for frame, group in groups if group[0].start not in used]
    bodies = ((frame, *body) for frame, group in groups for body in _split_group(pieces, group))
    found = (_build(pieces, frame, body, is_prose, seen, is_derived) for frame, body, is_prose in bodies)
    return tuple(one for one in found if one.sentences)


def keep_passages(text: str, passages: Iterable[Passage]) -> str:
    """Return a text without the sentences that are in none of the passages; the others stay on their lines."""
    passages = list(passages)
    positions = {at for one in passages for at in (*one.frame, *one.body)}
    quoted = frozenset[str]().union(*(one.quoted for one in passages))
    kept, gap = list[str](), ""
    for at, (space, sentence) in enumerate(split_pieces(text)):
        # The first sentence of a line may be left out.
        gap = max(space, gap, key=lambda blank: blank.count("\n"))
        if at in positions:
            kept += [gap, _cut(sentence) if sentence in quoted else sentence]
            gap = ""
    return "".join(kept).strip()


def _read_lines(pieces: Sequence[Piece], *, is_derived: bool) -> Iterator[_Line]:
    starts = [at for at, (space, _) in enumerate(pieces) if not at or "\n" in space]
    for start, end in zip(starts, [*starts[1:], len(pieces)], strict=True):
        (space, first), last = pieces[start], pieces[end - 1][1]
        heading = _HEADING.match(first) if end == start + 1 else None
        is_marked, is_stopped = _MARKED.match(first) is not None, _STOPPED.search(last) is not None
        is_opening = _OPENING.search(last) is not None
        level = None
        if heading:
            level = len(heading["signs"]) if heading["signs"] else _BOLD_LEVEL
        elif not start and end == 1 < len(starts) and not (is_marked or is_stopped):
            is_short = not is_opening and len(first.split()) <= _MOST_TITLE_WORDS
            level = _TITLE_LEVEL if is_derived or is_short else None
        yield _Line(
            start=start,
            end=end,
            level=level,
            is_apart=space.count("\n") > 1,
            is_indented=bool(start and space.rpartition("\n")[2]),
            is_marked=is_marked,
            is_stopped=is_stopped,
            is_opening=is_opening,
            refers_back=_refers_back(first),
        )


def _goes_on(group: tuple[tuple[int, ...], list[_Line]], frame: tuple[int, ...], line: _Line) -> bool:
    """Return True if a line belongs to what a group of lines below the same headings says."""
    first, last = group[1][0], group[1][-1]
    if group[0] != frame or last.level is not None:
        return False
    if line.refers_back or last.is_opening or (last.is_item and line.is_item):
        return True
    if line.is_apart:
        return False
    return (
        line.is_indented
        or last.is_item
        or first.is_opening
        or (not last.is_stopped and (line.is_marked or not line.is_stopped))
    )


def _split_group(pieces: Sequence[Piece], lines: Sequence[_Line]) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Yield the positions of each passage of lines that belong together, and if it is prose."""
    start, end = lines[0].start, lines[-1].end
    if len(lines) > 1 or _LABELLED.match(pieces[start][1]):
        yield tuple(range(start, end)), len(lines) == 1
        return
    begin = start
    for at in range(start + 1, end):
        sentence = pieces[at][1]
        if not _refers_back(sentence) and not _OPENING.search(pieces[at - 1][1]) and _says_something(sentence):
            yield tuple(range(begin, at)), True
            begin = at
    yield tuple(range(begin, end)), True


def _build(
    pieces: Sequence[Piece],
    frame: tuple[int, ...],
    body: tuple[int, ...],
    is_prose: bool,
    seen: tuple[int, ...],
    is_derived: bool,
) -> Passage:
    told = "".join(space + sentence for space, sentence in pieces[body[0] : body[-1] + 1]).strip()
    if is_derived:
        sentences = tuple(as_sentence(strip_part_label(pieces[at][1])) for at in body if _says_something(pieces[at][1]))
        key = ("", *(one.normal_form for one in sentences))
        return Passage((*frame, *seen), body, told, sentences, key, is_prose)
    sentences = tuple(as_sentence(pieces[at][1]) for at in body if _says_something(pieces[at][1]))
    headings = [pieces[at][1] for at in frame]
    key = (*(as_sentence(one).normal_form for one in headings), "", *(one.normal_form for one in sentences))
    return Passage(frame, body, "\n".join([*headings, told]), sentences, key, is_prose)


def _cut(sentence: str) -> str:
    words = shorten(sentence, _MAX_QUOTE, placeholder="")
    return sentence if words == sentence else f"{words.rstrip(_OPEN_SIGNS)}…"


def _refers_back(sentence: str) -> bool:
    return is_context_dependent(_JOINS.sub("", sentence)) or _REFERS_BACK.search(sentence) is not None


def _says_something(text: str) -> bool:
    sentence = as_sentence(text)
    return bool(sentence.content_words or sentence.literals)
