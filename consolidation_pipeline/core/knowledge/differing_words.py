"""Words of a sentence that another one lacks: what they claim, what they speak of, and their quotation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import Reading, sort_as_written
from consolidation_pipeline.core.knowledge.named_things import NAMES, is_label, is_name
from consolidation_pipeline.core.knowledge.reported_events import find_past_of
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.truncation import truncate_at_word

# Quoted words beyond this length are cut.
_MAX_QUOTE = 160
_SENTENCE_END = re.compile(r"[\s.!?…。！？]*\Z")
# The rest of a word, and marks that close what it stands in.
_WORD_END = re.compile(r"(?:[A-Za-z0-9_-]|[./:](?=[A-Za-z0-9_])|\([^()\s]*\))*[`\"'”’»)\]*]*")
_HEADING_BEHIND = re.compile(r"[^.!?:]* ?:\s")
_NUMBER_BEHIND = re.compile(r"\s\d")
# The rest of a unit: "6 mg/kg".
_UNIT = re.compile(r"/[^\W\d_]+\b(?![./])")
# An operator before or after a value that is part of a formula: "2 * x", "n / 2".
_OPERATOR_BEFORE, _OPERATOR_AFTER = re.compile(r"[*/^]\s*$|[\w)]\s+\+\s+$"), re.compile(r"\s*[*^]|\s+[/+]\s")
# Markers of reasons.
_REASONS = frozenset(("because", "result"))
# Cues that stand at the verb of a clause.
_VERB_CUES = ("modality", "polarity")
Span = tuple[int, int]


@dataclass(frozen=True)
class Quote:
    """Words of a sentence that tell how it differs. ``end``: offset behind them, where more can be told."""

    text: str
    end: int


class DifferingWords:
    """The words of one sentence that the other one lacks, by kind of difference. ``size``: of its tokens and cues."""

    def __init__(self, reading: Reading, found: Iterable[tuple[str, Sequence[Span]]]) -> None:
        self.reading = reading
        self.tokens = {token.start: token for token in reading.tokens}
        self.size = len(reading.tokens) + len(reading.cues)
        self.spans = defaultdict[str, list[Span]](list)
        for kind, spans in found:
            for span in spans:
                self.spans[self._find_kind(kind, span)].append(span)
        self.spans["word"] = [span for span in self.spans["word"] if span not in self.spans["opposite"]]

    def _find_kind(self, kind: str, span: Span) -> str:
        """Return the kind of a word: a path is a name, and so is code unless it is a sign."""
        token = self.tokens.get(span[0])
        if kind == "value" and token and token.key.startswith(NAMES):
            return "name"
        return "name" if kind == "code" and any(map(str.isalnum, self.reading.text[slice(*span)])) else kind

    @property
    def is_heading(self) -> bool:
        """True if most words are written as names: "Incident Detection and Response"."""
        return 2 * sum(token.kind == "name" for token in self.reading.tokens) > len(self.tokens)

    def count(self, *kinds: str) -> int:
        """Return the number of words of these kinds."""
        return sum(len(self.spans[kind]) for kind in kinds)

    def join(self, *kinds: str) -> str:
        """Return the words of these kinds, in their order."""
        spans = sorted(span for kind in kinds for span in self.spans[kind])
        return normalize_text(" ".join(self.reading.text[start:end] for start, end in spans))

    def claims_labels(self) -> bool:
        """Return True if the values name what the sentence speaks of."""
        tokens = [self.reading.tokens[at] for at in sort_as_written(self.reading.tokens)]
        claimed = {start for start, _ in self.spans["value"]}
        return all(is_label(tokens, at, self.reading.text) for at, one in enumerate(tokens) if one.start in claimed)

    def narrow(self, claimed: str) -> None:
        """Drop added detail that is not in the clause of the claim.

        What stands beside a value tells where it holds: "port 5433 in a second checkout".
        """
        begin, end = self.find_clause(claimed)
        for kind in ("addition", "modifier"):
            self.spans[kind] = [span for span in self.spans[kind] if begin <= span[0] < end]

    def drop_reasons(self) -> None:
        """Drop what is added in clauses of its own that are no cases: "so that it stays dry", not "if it is dry".

        Behind a reason, nothing else of its clause follows.
        """
        reasons = [cue for cue in self.reading.cues if cue.category == "marker" and cue.pole in _REASONS and cue.start]
        begins = {cue.clause: cue.start for cue in reversed(reasons)}
        self.spans["addition"] = [
            span
            for span in self.spans["addition"]
            if span[0] < begins.get(self.tokens[span[0]].clause, len(self.reading.text))
        ]
        added = {start for start, _ in self.spans["addition"]}
        shared = {token.clause for token in self.reading.tokens if token.start not in added or token.governor}
        shared |= {cue.clause for cue in self.reading.cues if cue.category == "marker" and cue.pole not in _REASONS}
        self.spans["addition"] = [span for span in self.spans["addition"] if self.tokens[span[0]].clause in shared]

    def find_clause(self, claimed: str) -> Span:
        """Return where the tokens of the clause of the claim begin and end."""
        token = self.tokens[self.spans[claimed][0][0]]
        inside = [one for one in self.reading.tokens if one.clause == token.clause]
        return min(one.start for one in inside), max(one.start + len(one.text) for one in inside)

    def speaks_of(self, claimed: str) -> bool:
        """Return True if the claim names what the clause speaks of, rather than what it says.

        A name does, if no verb is known to stand before it: "renamed a.py". A number after a name does, if the first
        known verb comes after it: "status 404 must not be retried". Known verbs are auxiliaries, modals and negations.
        What stands in a heading is of what the sentence speaks of: "Sand of 10 kg: the price is 4 euros".
        """
        start, end = self.spans[claimed][0]
        token, reading = self.tokens[start], self.reading
        if claimed == "value" and self._opens_heading(end):
            return True
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

    def _opens_heading(self, end: int) -> bool:
        """Return True if a heading ends behind a value that ends here, and another value follows; not for a report."""
        heading = _HEADING_BEHIND.match(self.reading.text, end)
        if heading is None or find_past_of(self.reading) is not None:
            return False
        behind = (token for token in self.reading.tokens if token.start >= heading.end())
        return any(token.kind == "value" and not is_name(token) for token in behind)

    def is_in_formula(self) -> bool:
        """Return True if a claim is one part of a formula, which says nothing without the rest."""
        text = self.reading.text
        return any(
            _OPERATOR_BEFORE.search(text[:start]) is not None or _OPERATOR_AFTER.match(text, end) is not None
            for start, end in self.spans["value"]
        )

    def goes_on(self, claimed: str, *kinds: str) -> bool:
        """Return True if words of both sentences stand between words of these kinds and the claim, or several behind.

        "Sheds over 40 m² need a permit of the mayor": the quotation would end in the middle of "over 90 m² .. and Ada".
        So too if another clause has a value, name or opposite of its own: a quotation of one clause would leave it out.
        """
        begin, last = self.find_clause(claimed)
        own = {start for kind in (claimed, *kinds) for start, _ in self.spans[kind]}
        unlike = {start for kind in (claimed, "value", "name", "opposite") for start, _ in self.spans[kind]}
        if any(not begin <= start < last for start in unlike):
            return True
        # "18 h 30"
        if any(_NUMBER_BEHIND.match(self.reading.text, end) for _, end in self.spans[claimed]):
            return True
        inside = [start for start in own if begin <= start < last]
        first, claim = min(inside), self.spans[claimed][-1][0]
        shared = [token.start for token in self.reading.tokens if first < token.start < max(inside)]
        shared = [start for start in shared if start not in own]
        verbs = (cue.start for cue in self.reading.cues if cue.category in _VERB_CUES)
        return any(start < claim for start in (*shared, *(at for at in verbs if first < at))) or len(shared) > 1

    def quote_whole(self, claimed: str) -> Quote:
        """Return the sentence in quotation marks, or the clause that opens it if all that differs stands in that."""
        text, (begin, last) = self.reading.text, self.find_clause(claimed)
        spans = [span for found in self.spans.values() for span in found]
        starts = [token.start for token in self.reading.tokens]
        is_alone = min(starts) >= begin and max(starts) < last
        if is_alone or min(starts) < begin or any(start >= last for start, _ in spans):
            return quote_sentence(text)
        rest = _WORD_END.match(text, last)
        end = min(rest.end() if rest else last, quote_sentence(text).end)
        return Quote(f"“{_shorten(' '.join(text[:end].split()))}”", end)

    def quote(self, claimed: str, *kinds: str) -> Quote:
        """Return the words from the first to the last of these kinds in the clause of the claim."""
        text, (begin, last) = self.reading.text, self.find_clause(claimed)
        spans = [span for kind in (claimed, *kinds) for span in self.spans[kind] if begin <= span[0] < last]
        # The stop behind "9 May." ends the sentence.
        start, end = min(start for start, _ in spans), min(max(end for _, end in spans), quote_sentence(text).end)
        rest = _WORD_END.match(text, end)
        unit = _UNIT.match(text, end)
        words = text[start : unit.end() if unit else end]
        return Quote(_shorten(" ".join(words.split())), rest.end() if rest else end)


def quote_sentence(text: str) -> Quote:
    """Return a sentence in quotation marks."""
    found = _SENTENCE_END.search(text)
    end = found.start() if found else len(text)
    return Quote(f"“{_shorten(' '.join(text[:end].split()))}”", end)


def _shorten(words: str) -> str:
    return words if len(words) <= _MAX_QUOTE else truncate_at_word(words, _MAX_QUOTE - 2) + " …"
