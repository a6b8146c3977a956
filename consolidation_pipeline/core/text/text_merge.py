"""Merged texts: one wording of several texts plus the details of each, up to a length, and a check for lost facts."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import literals, stands_in
from consolidation_pipeline.core.text.sentence_splitter import (
    BULLET,
    Piece,
    close_code_block,
    has_code_block,
    split_pieces,
    split_sentences,
    unwrap,
)
from consolidation_pipeline.core.text.text_coverage import Statement, as_statement

# A sentence of fewer words, such as "USE UTC", may be names alone.
_FEWEST_WORDS = 3
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_END = re.compile(r"[.!?…。！？:;][\"'”’»)\]*_`」』]*\s*$")


@dataclass(frozen=True)
class MergedText:
    """A merged text, and the sentences that did not fit, in order."""

    content: str
    dropped: tuple[str, ...]


def merge_texts(texts: Iterable[str], *, keep_first: bool = False) -> str:
    """Return one text that says all that the texts say, in as few of their sentences as possible.

    If one text says all, it is the result, verbatim: the first if it does, else the shortest. Otherwise the result is
    the first text, in which a longer sentence of another text replaces one that it covers, and then the sentences that
    nothing covers yet, a paragraph for each text. A sentence covers another if every difference of the two is plain
    detail that it adds, and it has all its literals.

    A sentence in capitals, or in lower case without an end, gives way to one that says the same in better form.

    Blank texts are skipped; no text gives "". The order of the texts after the first counts for nothing.

    Args:
        keep_first: The first text stays as it is.
    """
    return _merge(texts, keep_first=keep_first).content


def merge_capped(texts: Iterable[str], *, max_chars: int, keep_first: bool = False) -> MergedText:
    """Return :func:`merge_texts` in at most ``max_chars`` characters of whole sentences.

    A sentence that does not fit ends its text, so that no text has gaps; later texts are still tried. The very first
    sentence is kept even if it exceeds ``max_chars``.
    """
    whole = _merge(texts, keep_first=keep_first)
    if len(whole.content) <= max_chars:
        return MergedText(whole.content, ())
    kept: list[Sequence[Piece]] = []
    dropped: list[str] = []
    for pieces in whole.paragraphs:
        fitting = _count_fitting(kept, pieces, max_chars)
        kept.append(pieces[:fitting])
        dropped.extend(sentence for _, sentence in pieces[fitting:])
    return MergedText(_render(kept), tuple(dropped))


def find_missing_literals(sources: Iterable[str], merged: str) -> frozenset[Literal]:
    """Return the literals of the sources that ``merged`` lacks; empty if no fact was lost."""
    wanted = frozenset().union(*(literals(unwrap(source)) for source in sources))
    joined = unwrap(merged)
    return frozenset(literal for literal in wanted if not stands_in(literal, joined))


@dataclass(frozen=True)
class _Merge:
    """A merged text, and its pieces without hard line breaks."""

    content: str
    paragraphs: Sequence[Sequence[Piece]]


class _Source:
    """One of the texts: its sentences, with the white space before each.

    ``wholes``: the text as one statement, and other texts that its sentences cover.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.whole = Statement(unwrap(text).strip())
        self.wholes = [self.whole]
        self.pieces = list(split_pieces(text))
        self.sentences = [as_statement(sentence) for _, sentence in self.pieces]

    @property
    def wrapped(self) -> list[Piece]:
        """The text as it is, as one piece."""
        return [("", self.text[: sum(len(gap) + len(sentence) for gap, sentence in self.pieces)])]

    def covers(self, other: "_Source") -> bool:
        """Return True if this text equals the other, or covers each of its sentences."""
        return self.whole.equals(other.whole) or all(map(self.covers_sentence, other.sentences))

    def covers_sentence(self, sentence: Statement) -> bool:
        """Return True if a sentence of this text covers the other, or a whole text that it covers equals it."""
        return any(whole.equals(sentence) for whole in self.wholes) or _is_covered(sentence, self.sentences)


def _is_covered(statement: Statement, others: Iterable[Statement]) -> bool:
    return any(other.covers(statement) for other in others)


def _merge(texts: Iterable[str], *, keep_first: bool) -> _Merge:
    given = [text for text in texts if text.strip()]
    if not given:
        return _Merge("", ())
    given = [*given[:keep_first], *_improve_form(given[keep_first:], given)]
    first = _Source(given[0])
    sources = [_Source(text) for text in sorted(set(given[1:]), key=lambda text: (-len(text), text))]
    others = _drop_repeats(first, sources)
    enough = _find_covering(first, others, keep_first=keep_first)
    if enough is not None:
        return _Merge(enough.text, [enough.pieces])
    details = _select_details(first, others)
    opening = first.pieces if keep_first else _replace_covered(first, details, sources)
    added = [_join_kept(one, details) for one in others]
    content = _render([first.wrapped if opening == first.pieces else opening, *added])
    return _Merge(content, [opening, *added])


def _improve_form(texts: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the texts with sentences of a given text in place of those that say the same in worse form."""
    poor = {text for text in texts if any(_rate_form(sentence) for _, sentence in split_pieces(text))}
    if not poor or len(set(given)) < 2:
        return list(texts)
    known = {sentence for text in given for _, sentence in split_pieces(text)}
    rated = sorted((_rate_form(sentence), sentence) for sentence in known)
    return [_replace_poor(text, rated) if text in poor else text for text in texts]


def _replace_poor(text: str, rated: Sequence[tuple[int, str]]) -> str:
    """Return the text with better sentences where there are any. ``rated``: sentences by their form, best first."""
    pieces = []
    is_changed = False
    for gap, sentence in split_pieces(text):
        rate, poor = _rate_form(sentence), as_statement(sentence)
        better = (as_statement(other) for found, other in rated if found < rate)
        chosen = next((other for other in better if other.covers(poor) and poor.covers(other)), None)
        pieces.append((gap, sentence if chosen is None else _take_bullet(sentence, chosen.text)))
        is_changed |= chosen is not None
    return _render([pieces]) if is_changed else text


def _rate_form(sentence: str) -> int:
    """Return 2 for a sentence in capitals, 1 for one in lower case without an end, 0 for any other and for code."""
    words = _LETTERS.findall(sentence)
    if len(words) < _FEWEST_WORDS or has_code_block(sentence):
        return 0
    if sentence.isupper():
        return 2
    return int(sentence.islower() and _END.search(sentence) is None)


def _drop_repeats(first: _Source, others: Iterable[_Source]) -> list[_Source]:
    """Return the texts that neither the first one covers nor an earlier one equals."""
    covered: list[_Source] = []
    new: list[_Source] = []
    for other in others:
        (covered if first.covers(other) else new).append(other)
    first.wholes += [other.whole for other in covered]
    return [
        other
        for at, other in enumerate(new)
        # Equal texts may be split differently: "open it. close it" does not show where the second sentence starts.
        if not any(earlier.whole.equals(other.whole) for earlier in (*covered, *new[:at]))
    ]


def _find_covering(first: _Source, others: Sequence[_Source], *, keep_first: bool) -> _Source | None:
    """Return the text that covers all: the first if it does, else the shortest; None if there is none."""
    candidates = [first] if keep_first else [first, *reversed(others)]
    return next((one for one in candidates if all(o is one or one.covers(o) for o in (first, *others))), None)


def _select_details(first: _Source, others: Sequence[_Source]) -> list[Statement]:
    """Return the fewest sentences that cover all of ``others`` together with ``first``, in order."""
    new = [
        sentence
        for other in others
        for sentence in dict.fromkeys(other.sentences)
        if not first.covers_sentence(sentence)
    ]
    kept: list[Statement] = []
    for sentence in sorted(dict.fromkeys(new), key=lambda sentence: (-len(sentence.words), -len(sentence.text))):
        if not _is_covered(sentence, kept):
            kept.append(sentence)
    return [sentence for sentence in dict.fromkeys(new) if sentence in kept]


def _replace_covered(first: _Source, details: list[Statement], sources: Sequence[_Source]) -> list[Piece]:
    """Return the first text with details in place of the sentences that they cover; these details are removed.

    A detail also has to cover what such a sentence covers of ``sources``: coverage is not transitive.
    """
    given = {sentence for source in sources for sentence in source.sentences}

    def can_replace(detail: Statement, old: Statement) -> bool:
        return detail.covers(old) and all(detail.covers(one) for one in given if old.covers(one))

    pieces: list[Piece | None] = list(first.pieces)
    changed: set[int] = set()
    for detail in list(details):
        covered = [at for at, one in enumerate(first.sentences) if at not in changed and can_replace(detail, one)]
        if covered:
            gap, old = first.pieces[covered[0]]
            changed.update(covered)
            pieces[covered[0]] = gap, _take_bullet(old, detail.text)
            for at in covered[1:]:
                pieces[at] = None
            details.remove(detail)
    if not changed:
        return first.pieces
    loose = {at for at in range(len(pieces)) if {at - 1, at} & changed}
    return _separate([piece for piece in pieces if piece], [at in loose for at, piece in enumerate(pieces) if piece])


def _take_bullet(old: str, new: str) -> str:
    """Return the sentence ``new`` with the bullet of ``old``; as it is if its own holds a number that is a fact."""
    bullet, own = BULLET.match(old), BULLET.match(new)
    bare = new[own.end() :] if own else new
    return new if find_missing_literals([new], bare) else (bullet[0] if bullet else "") + bare


def _join_kept(source: _Source, details: list[Statement]) -> list[Piece]:
    """Return the sentences of ``source`` that are in ``details``; they are removed.

    They are separated by a blank, or by a line break if they were on separate lines.
    """
    kept: list[Piece] = []
    between = ""
    for (gap, text), sentence in zip(source.pieces, source.sentences, strict=True):
        between += gap
        if sentence in details:
            details.remove(sentence)
            kept.append(("" if not kept else "\n" if "\n" in between else " ", text))
            between = ""
    return _separate(kept, [True] * len(kept))


def _separate(pieces: Sequence[Piece], loose: Sequence[bool]) -> list[Piece]:
    """Return the pieces; with blank lines at loose gaps and line breaks if sentences would run into each other."""
    if split_sentences(_render([pieces])) == [sentence for _, sentence in pieces]:
        return list(pieces)
    return [
        ("\n\n" if at and (is_loose or "\n" in gap) else gap, sentence)
        for at, ((gap, sentence), is_loose) in enumerate(zip(pieces, loose, strict=True))
    ]


def _count_fitting(kept: Sequence[Sequence[Piece]], pieces: Sequence[Piece], max_chars: int) -> int:
    """Return the number of pieces that fit after the kept ones; at least 1 if nothing is kept yet."""
    count = 0 if kept else 1
    while count < len(pieces) and len(_render([*kept, pieces[: count + 1]])) <= max_chars:
        count += 1
    return count


def _render(paragraphs: Sequence[Sequence[Piece]]) -> str:
    texts = ["".join(gap + sentence for gap, sentence in pieces) for pieces in paragraphs if pieces]
    return "\n\n".join((*map(close_code_block, texts[:-1]), *texts[-1:]))
