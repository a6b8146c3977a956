"""Comparison of two sentences: do they claim different things of one matter, and which words tell the difference?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.language import load_language, split_words
from consolidation_pipeline.core.differences.reading import Reading
from consolidation_pipeline.core.memories.memories import normalize_text

# Sentences with a smaller share of tokens and cues in common are about different matters, whatever the verdict on them.
_ALIGNED = 0.6
# Literals that name something, by the beginning of their key; other literals are values.
_NAMES = ("path:", "url:", "identifier:", "error_code:", "quoted:")
# Differences of these kinds stand in both sentences.
_UNLIKE = ("value", "name", "opposite", "word")
# Largest share of words of one sentence alone where two sentences differ in a cue.
_ADDED = 1 / 3
# Quoted words beyond this length are cut.
_MAX_QUOTE = 160
_SENTENCE_END = re.compile(r"[\s.!?…。！？]*\Z")
# The rest of a word, and marks that close what it stands in.
_WORD_END = re.compile(r"(?:[A-Za-z0-9_-]|[./:](?=[A-Za-z0-9_]))*[`\"'”’»)\]*]*")

# Cues that stand at the verb of a clause.
_VERB_CUES = ("modality", "polarity")

Relation = Literal["agrees", "replaces", "renames", "elsewhere"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Quote:
    """Words of a sentence that tell how it differs. ``end``: offset behind them, where more can be told."""

    text: str
    end: int


@dataclass(frozen=True)
class Comparison:
    """How a sentence relates to the first one on its matter.

    Attributes:
        relation: ``agrees``; ``replaces``: another value of the same thing, or the opposite; ``renames``: another name
            or code, and both may hold; ``elsewhere``: the same said of another thing.
        thing: What it is said of; empty if of the same thing as the first sentence.
        claim: What is said. Equal claims on one thing agree.
        first, other: The words of both sentences that differ; None if the sentences agree.
    """

    relation: Relation
    thing: str = ""
    claim: str = ""
    first: Quote | None = None
    other: Quote | None = None


AGREES = Comparison("agrees")


def compare_sentences(first: Reading, other: Reading) -> Comparison | None:
    """Return how ``other`` relates to ``first``; None if they are about different matters."""
    found = explain_readings(first, other)
    if found.may_merge:
        return AGREES
    kinds = {one.kind for one in found.differences}
    # Two sentences that differ in their order and in more are different sentences.
    if found.verdict != "contradicts" or ("order" in kinds and len(kinds) > 1):
        return None
    sides = (
        _Side(first, [(one.kind, span) for one in found.differences for span in one.spans_a]),
        _Side(other, [(one.kind, span) for one in found.differences for span in one.spans_b]),
    )
    claimed = next((kind for kind in ("value", "name") if all(side.spans[kind] for side in sides)), None)
    if claimed is None:
        return _compare_statements(sides)
    if any(side.count(*_UNLIKE) > (1 - _ALIGNED) * side.size for side in sides):
        return None
    for side in sides:
        side.narrow(claimed)
    things = [kind for kind in ("name", "word", "opposite", "addition") if kind != claimed]
    is_elsewhere = any(side.spans[kind] for side in sides for kind in things)
    if claimed == "name" and not is_elsewhere and _is_qualified(*(side.join("name") for side in sides)):
        return AGREES
    claim = sides[1].join(claimed)
    if not is_elsewhere and any(side.speaks_of(claimed) for side in sides):
        is_elsewhere, things, claim = True, [claimed], ""
    return Comparison(
        "elsewhere" if is_elsewhere else "replaces" if claimed == "value" else "renames",
        (sides[1].join(*things) or "-") if is_elsewhere else "",
        claim,
        *(side.quote(claimed, *things) for side in sides),
    )


def _compare_statements(sides: tuple[_Side, _Side]) -> Comparison | None:
    """Compare sentences that differ in a negation, an opposite or another cue, or in their order alone."""
    if any(side.spans["word"] or side.count("addition") > _ADDED * side.size for side in sides):
        return None
    first, other = (side.reading.text for side in sides)
    return Comparison("replaces", "", normalize_text(other), _quote_sentence(first), _quote_sentence(other))


def _is_qualified(one: str, other: str) -> bool:
    """Return True if one name is the other with more before it: ``hmac.compare_digest``, ``src/a.py``."""
    short, long = sorted((one, other), key=len)
    return long.endswith(tuple(sign + short for sign in "./:"))


class _Side:
    """The words of one sentence that the other one lacks, by kind of difference. ``size``: of its tokens and cues."""

    def __init__(self, reading: Reading, found: Iterable[tuple[str, Span]]) -> None:
        self.reading = reading
        self.tokens = {token.start: token for token in reading.tokens}
        self.size = len(reading.tokens) + len(reading.cues)
        self.spans = defaultdict[str, list[Span]](list)
        for kind, span in found:
            token = self.tokens.get(span[0])
            is_name = kind == "code" or (kind == "value" and token is not None and token.key.startswith(_NAMES))
            self.spans["name" if is_name else kind].append(span)
        self.spans["word"] = [span for span in self.spans["word"] if span not in self.spans["opposite"]]

    def count(self, *kinds: str) -> int:
        """Return the number of words of these kinds."""
        return sum(len(self.spans[kind]) for kind in kinds)

    def join(self, *kinds: str) -> str:
        """Return the words of these kinds, in their order."""
        spans = sorted(span for kind in kinds for span in self.spans[kind])
        return normalize_text(" ".join(self.reading.text[start:end] for start, end in spans))

    def narrow(self, claimed: str) -> None:
        """Drop added detail that is not in the clause of the claim.

        What stands beside a value tells where it holds: "port 5433 in a second checkout".
        """
        begin, end = self.find_clause(claimed)
        self.spans["addition"] = [span for span in self.spans["addition"] if begin <= span[0] < end]

    def find_clause(self, claimed: str) -> Span:
        """Return where the tokens of the clause of the claim begin and end."""
        token = self.tokens[self.spans[claimed][0][0]]
        inside = [one for one in self.reading.tokens if one.clause == token.clause]
        return min(one.start for one in inside), max(one.start + len(one.text) for one in inside)

    def speaks_of(self, claimed: str) -> bool:
        """Return True if the claim names what the clause speaks of, rather than what it says.

        A name does, if no verb is known to stand before it: "renamed a.py". A number after a name does, if the first
        known verb comes after it: "status 404 must not be retried". Known verbs are auxiliaries, modals and negations.
        """
        start, end = self.spans[claimed][0]
        token, reading = self.tokens[start], self.reading
        words = load_language(reading.language or "en")
        begin, last = self.find_clause(claimed)
        cues = [cue.start for cue in reading.cues if cue.clause == token.clause and cue.category in _VERB_CUES]
        before, after = split_words(reading.text[begin:start]), split_words(reading.text[end:last])
        is_after = any(cue < start for cue in cues) or not words.passive_auxiliaries.isdisjoint(before)
        is_before = any(cue > start for cue in cues) or not words.passive_auxiliaries.isdisjoint(after)
        if is_before or is_after:
            is_numbered = any(one.start < start and one.phrase == token.phrase for one in reading.tokens)
            return is_before and not is_after and (claimed == "name" or is_numbered)
        opening = split_words(reading.text)[:1]
        return claimed == "name" and words.determiners.isdisjoint(opening)

    def quote(self, claimed: str, *kinds: str) -> Quote:
        """Return the words from the first to the last of these kinds in the clause of the claim."""
        text, (begin, last) = self.reading.text, self.find_clause(claimed)
        spans = [span for kind in (claimed, *kinds) for span in self.spans[kind] if begin <= span[0] < last]
        start, end = min(start for start, _ in spans), max(end for _, end in spans)
        rest = _WORD_END.match(text, end)
        return Quote(_shorten(" ".join(text[start:end].split())), rest.end() if rest else end)


def _quote_sentence(text: str) -> Quote:
    found = _SENTENCE_END.search(text)
    end = found.start() if found else len(text)
    return Quote(f"“{_shorten(' '.join(text[:end].split()))}”", end)


def _shorten(words: str) -> str:
    return words if len(words) <= _MAX_QUOTE else words[: _MAX_QUOTE - 2].rsplit(maxsplit=1)[0] + " …"
