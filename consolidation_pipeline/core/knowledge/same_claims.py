"""Sameness of claims: which memories say what a headline says, and which newer ones say something else of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise

from consolidation_pipeline.core.differences.explanation import PROOFS, Difference, explain_readings
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Reading, Token, sort_as_written
from consolidation_pipeline.core.knowledge.change_words import find_changes
from consolidation_pipeline.core.knowledge.claim_slots import measure
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.compared_sentences import ask_once
from consolidation_pipeline.core.knowledge.disputes import read_sentence
from consolidation_pipeline.core.knowledge.lesson_sentences import SENTENCE_END, read_lesson
from consolidation_pipeline.core.knowledge.named_things import NAMES, is_name
from consolidation_pipeline.core.knowledge.reported_events import are_events
from consolidation_pipeline.core.knowledge.rival_claims import compare_sentences, except_said
from consolidation_pipeline.core.knowledge.supersession import revise_sentence
from consolidation_pipeline.core.text.sentence_cues import is_command
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# A memory that says a claim has this share of its content words. One with so many of those of a long claim says it, if
# it has no other value, name or negation: in long sentences "each" and "so" come and go.
_SAYS, _SAYS_LONG, _LONG_WORDS = 0.65, 0.85, 10
# A newer sentence that has this share of its content words in common with a claim is on its matter; if they share a
# name or value, the second share is enough.
_ON_MATTER, _ON_MATTER_BY_NAME, _FEWEST_SHARED = 0.5, 0.4, 2
# News of a claim has this share of its words in common with it; with the second share it says the same.
_NEWS, _REPEATED = 1 / 3, 0.75
# With this share, so many words, one of them a name or value, and words of its own, it tells what became of the matter.
_MOSTLY, _TOLD_WORDS = 0.6, 3
# A change of a long claim has this share of its words in common with it, besides function words.
_CHANGED = 0.5
# Differences that make another claim of a sentence, and those that do so in a short one: "is the owner", "took over".
_OTHER = frozenset(("value", "name", "code", "exchange", "polarity", "language"))
_OTHER_IF_SHORT = frozenset(("opposite", "exception", "added cue", "moved cue", "word"))
# Differences by which a sentence is of another thing, if it has this share of the words of the claim.
_OTHER_THINGS, _LIKE = frozenset(("value", "name", "code", "opposite", "exchange")), 0.4

Run = tuple[Token, ...]

# Keys of values that name no matter: two things may expire on one day.
_DATES = ("months-", "days-", "date:")


class SameClaim:
    """A claim, and what other memories say of it.

    Args:
        text: A sentence of a memory.
        language: Of the memories that are compared; None if it is not known.
    """

    def __init__(self, text: str, language: str | None) -> None:
        self.text = text
        self.language = language
        self.words = extract_content_words(text)

    @cached_property
    def reading(self) -> Reading:
        """The claim as it was read."""
        return read_sentence(self.text, self.language)

    def is_said_in(self, sentences: Sequence[str]) -> bool:
        """Return True if a memory says the claim in one sentence, or in two that follow each other.

        It says it by the words, with the same values, names, negations and conditions.
        """
        pairs = (f"{one} {other}" for one, other in pairwise(sentences))
        near = [text for text in (*sentences, *pairs) if self._measure_share(text) >= _SAYS]
        return any(map(self._says_same, near))

    def find_rival(self, sentences: Sequence[str]) -> str | None:
        """Return the sentence of a newer memory that says something else of the matter; None if there is none.

        It has another value, or tells of a change. Of a long claim, other words are no sign of that: only words of a
        change are.
        """
        # A title beside sentences says nothing of the matter.
        told = [text for text in sentences if len(sentences) == 1 or SENTENCE_END.search(text)]
        near = [text for text in told if self._is_on_matter(text)]
        tells = self._is_changed_in if len(self.words) >= _LONG_WORDS else self._is_rival
        return max(filter(tells, near), key=self._measure_share, default=None)

    def find_revision(self, sentences: Sequence[str]) -> str | None:
        """Return the sentence of a newer memory that says that the claim is so no longer; None if there is none."""
        near = (text for text in sentences if len(self.words & extract_content_words(text)) >= _FEWEST_SHARED)
        return next(filter(self._is_revised_by, near), None)

    def find_news(self, sentences: Sequence[str]) -> str | None:
        """Return the sentence of a newer memory that may say what became of the matter; None if there is none.

        It says something else of it (``find_rival``), or tells a change or an addition in a few words of the claim, or
        in hardly any other words what is no longer "still" so. Both it and the claim may hold. A further event is no
        news of an event, or of a rule.
        """
        rival = self.find_rival(sentences)
        if rival and self._is_of_same(rival):
            return rival
        found = (
            text
            for text in sentences
            if self._may_be_news(text) or self._has_other_value(text) or self._ends_interim(text)
        )
        return max(found, key=self._measure_share, default=None)

    def is_said_of_other(self, text: str) -> bool:
        """Return True if a sentence says the claim of another thing, or for another reason."""
        return self._ask("of other", text, self._is_of_other)

    def _is_of_other(self, text: str) -> bool:
        return says_of_other(self.reading, read_sentence(text, self.language))

    def tells_outcome_of(self, older: str) -> bool:
        """Return True if the claim, by words of a change, may tell what became of an older sentence."""
        return self._ask("outcome", older, self._is_outcome_of)

    def _is_outcome_of(self, older: str) -> bool:
        if self.language is None or self.is_said_in([older]):
            return False
        earlier, claim = SameClaim(older, self.language), Claim.of(self.text, self.language)
        if earlier.find_revision([self.text]):
            return True
        return _changes(claim) and earlier.find_news([self.text]) is not None

    def repeats(self, text: str) -> bool:
        """Return True if the text of a claim has all words of a sentence but a few, and the same values and names.

        They stand in the same order: "left is now 6, right 4" does not repeat "left is 4, right 6".
        """
        if self._measure_own(text) < _REPEATED:
            return False
        told, own = (
            [one.tokens[at].key for at in sort_as_written(one.tokens) if one.tokens[at].kind in VALUE_KINDS]
            for one in (read_sentence(text, self.language), self.reading)
        )
        return {*told} <= {*own} and [key for key in own if key in told] == told

    def is_told_in(self, text: str) -> bool:
        """Return True if a sentence has all words of the claim, so that it tells all that the claim does."""
        return self.reading.key_set <= read_sentence(text, self.language).key_set

    def _is_revised_by(self, text: str) -> bool:
        return self._ask("revised", text, self._find_revised)

    def _find_revised(self, text: str) -> bool:
        if revise_sentence(self.text, text):
            return True
        comparison = compare_sentences(self.reading, read_sentence(text, self.language))
        return comparison is not None and comparison.relation == "replaces"

    def _may_be_news(self, text: str) -> bool:
        shared = len(self.words & extract_content_words(text))
        if self.language is None or shared < _FEWEST_SHARED:
            return False
        if shared < _TOLD_WORDS and not self._list_shared_names(text):
            return False
        if not _NEWS <= self._measure_own(text) <= _REPEATED:
            return False
        later = Claim.of(text, self.language)
        # "Ben may enter too"
        is_plan = later.is_plan and not later.is_addition
        return _changes(later) and self._is_of_same(text) and not (is_plan or later.asks or self.is_said_in([text]))

    @cached_property
    def is_interim(self) -> bool:
        """True if it tells what is "still" so, and thus was expected to change."""
        return any((cue.category, cue.pole) == ("tense", "still") for cue in self.reading.cues)

    def _ends_interim(self, text: str) -> bool:
        return self.is_interim and self.repeats(text) and self._is_of_same(text) and not self.is_said_in([text])

    def _has_other_value(self, text: str) -> bool:
        """Return True if a sentence has half of the words of the claim, and another value in the same unit."""
        if self.language is None or self._measure_share(text) < _ON_MATTER:
            return False
        claim, other = (Claim.of(one, self.language) for one in (self.text, text))
        if len(self.words & extract_content_words(text)) < _TOLD_WORDS or other.is_plan or other.asks:
            return False
        own, values = ({measure(t): t.key for t in one.tokens if " " in t.key} for one in (claim, other))
        is_other = any(unit in values and values[unit] != key for unit, key in own.items())
        return is_other and self._is_of_same(text) and not self.is_said_in([text])

    def _is_of_same(self, text: str) -> bool:
        """Return True unless a sentence is of another numbered or named thing, or tells a further event."""
        language = self.language or "en"
        claim, other = Claim.of(self.text, language), Claim.of(text, language)
        numbers = _list_numbered(claim), _list_numbered(other)
        if any(numbers[0][word].isdisjoint(numbers[1][word]) for word in numbers[0].keys() & numbers[1].keys()):
            return False
        if not other.is_addition:
            named, names = ({t.key for t in one.tokens if t.key.startswith(NAMES)} for one in (claim, other))
            if named - names and names - named:
                return False
        is_lasting = any(change.form != "contrast" for change in other.changes) or not _is_report(other)
        return is_lasting or not (_is_report(claim) or read_lesson(self.text).role in ("rule", "warning"))

    def _measure_share(self, text: str) -> float:
        """Return the share of the content words of the claim that a text has."""
        return len(self.words & extract_content_words(text)) / max(1, len(self.words))

    def _is_on_matter(self, text: str) -> bool:
        words = extract_content_words(text)
        shared = len(self.words & words)
        least = _ON_MATTER_BY_NAME if self._list_shared_names(text) or self._is_left_by(text) else _ON_MATTER
        # On which day something changed is no matter of its own.
        days = (token.text for token in read_sentence(text, self.language).tokens if token.key.startswith("date:"))
        own = words - frozenset[str]().union(*map(extract_content_words, days)) | self.words & words
        return shared >= max(_FEWEST_SHARED, least * len(own))

    def _list_shared_names(self, text: str) -> set[str]:
        """Return the keys of the names and values, but for dates, that the claim and a text have."""
        keys = read_sentence(text, self.language).key_set
        named = {token.key for token in self.reading.tokens if token.kind in VALUE_KINDS and token.key in keys}
        return {key for key in named if not key.startswith(_DATES)}

    def _is_left_by(self, text: str) -> bool:
        """Return True if a text tells that something of the claim is no more: "Ada took the key over from Ben"."""
        found = find_changes(text, self.language) if self.language else ()
        return any(change.was and extract_content_words(text[slice(*change.was)]) <= self.words for change in found)

    def _measure_own(self, text: str) -> float:
        """Return the share of the content words of a text that the claim has."""
        words = extract_content_words(text)
        return len(self.words & words) / max(1, len(words))

    def _says_same(self, text: str) -> bool:
        return self._ask("same", text, self._is_same)

    def _ask(self, question: str, text: str, find: Callable[[str], bool]) -> bool:
        """Return ``find(text)``; what is known of the claim and the text is not asked for again."""
        return ask_once(question, self.language or "", self.text, text, find=partial(find, text))

    def _is_same(self, text: str) -> bool:
        other = read_sentence(text, self.language)
        if self.reading.normalized == other.normalized:
            return True
        named = {token.key for token in self.reading.tokens if token.kind in VALUE_KINDS}
        if not named <= other.key_set or _list_replaced(self.reading, other):
            return False
        is_long = len(self.words) >= _LONG_WORDS and self._measure_share(text) >= _SAYS_LONG
        found = explain_readings(self.reading, other).differences
        return not any(_makes_other(one, self.reading, is_long=is_long) for one in found)

    def _is_changed_in(self, text: str) -> bool:
        """Return True if a text tells a change that the claim does not tell, and half of it is of the claim."""
        other = read_sentence(text, self.language)
        if _CHANGED * len(other.key_set) > len(other.key_set & self.reading.key_set):
            return False
        if not _tells_change(other) or _tells_change(self.reading) or are_events(self.reading, other):
            return False
        found = explain_readings(self.reading, other, is_brief=True)
        return not found.may_merge and not any(_names_another(one, self.reading, other) for one in found.differences)

    def _is_rival(self, text: str) -> bool:
        other, language = read_sentence(text, self.language), self.reading.language or "en"
        explanation = explain_readings(self.reading, other, is_brief=True)
        found = explanation.differences
        if (
            explanation.may_merge
            or are_events(self.reading, other)
            or any(_names_another(one, self.reading, other) for one in found)
        ):
            return False
        if _tells_change(other) and not _tells_change(self.reading):
            return True
        if except_said(explanation, self.reading, other):
            return True
        # "With sugar", "without sugar".
        if self.reading.key_set == other.key_set and any(one.kind in ("polarity", "added cue") for one in found):
            return True
        replaced = _list_replaced(self.reading, other)
        if any(_is_timed(run, language) and _is_timed(new, language) for run, new in replaced):
            return True
        # "Ann owes Ben 20 dollars", "Ben gave the 20 dollars back": a report in other words, not the same turned.
        is_other = any(one.kind == "word" or PROOFS[one.kind] == "contradicts" for one in found)
        is_told = is_other and not any(read_lesson(one).role in ("rule", "warning") for one in (self.text, text))
        is_told &= (
            _MOSTLY <= self._measure_own(text) < 1 and len(self.words & extract_content_words(text)) >= _TOLD_WORDS
        )
        if is_told and self._list_shared_names(text):
            return True
        return not replaced and any(one.kind == "value" for one in found)


def _changes(claim: Claim) -> bool:
    """Return True if a sentence tells a change, an addition, or what was done."""
    return claim.is_addition or claim.is_reported or any(change.form != "contrast" for change in claim.changes)


def _list_numbered(claim: Claim) -> dict[str, set[str]]:
    """Return the numbers that stand behind each word: "room 4"."""
    numbers: dict[str, set[str]] = defaultdict(set)
    for word, token in pairwise(claim.tokens):
        number, _, unit = token.key.partition(" ")
        # "Room 4's door"
        is_bare = number.startswith("number:") and (not unit or token.text.endswith(("'s", "’s")))
        if is_bare and token.gap == "tight" and word.kind == "word":
            numbers[word.key].add(number)
    return numbers


def _is_report(claim: Claim) -> bool:
    """Return True if a sentence tells what happened."""
    return claim.is_event or read_lesson(claim.text).role == "report"


def says_of_other(claim: Reading, other: Reading) -> bool:
    """Return True if a sentence says what a claim says of another thing, or for another reason.

    "The fridge must stay below 8 °C", "the freezer must stay below -18 °C"; "dry hip wounds", "dry knee wounds".
    """
    differences = explain_readings(claim, other).differences
    found = [one for one in differences if one.a and one.b]
    if any(one.kind in _OTHER_THINGS for one in found):
        return _LIKE * min(len(claim.key_set), len(other.key_set)) <= len(claim.key_set & other.key_set)
    if not found or any(one.kind not in ("word", "order", "addition") for one in differences):
        return False
    sides = [(reading, _list_words(reading, found, at)) for reading, at in ((claim, "spans_a"), (other, "spans_b"))]
    if any(not words for _, words in sides):
        return False
    # The verb of an instruction has many synonyms.
    if any(words[0].start == 0 and is_command(reading.text) for reading, words in sides):
        return False
    if all(_is_behind_reason(reading, words) for reading, words in sides):
        return True
    return all(len(words) == 1 for _, words in sides) or any(t.kind == "value" for _, words in sides for t in words)


def _list_words(reading: Reading, found: Sequence[Difference], spans: str) -> list[Token]:
    """Return the tokens that differ in a word, as written. ``spans``: name of the side."""
    starts = {start for one in found if one.kind == "word" for start, _ in getattr(one, spans)}
    tokens = (reading.tokens[at] for at in sort_as_written(reading.tokens))
    return [token for token in tokens if token.start in starts]


def _is_behind_reason(reading: Reading, words: Sequence[Token]) -> bool:
    """Return True if words are all that stands behind a marker of a reason."""
    reasons = [cue.start for cue in reading.cues if (cue.category, cue.pole) == ("marker", "because")]
    return bool(reasons) and {token.start for token in reading.tokens if token.start > reasons[0]} == {
        token.start for token in words
    }


def _makes_other(difference: Difference, claim: Reading, *, is_long: bool) -> bool:
    """Return True for a difference by which a sentence does not say the claim."""
    if difference.kind == "cue":
        start = difference.spans_a[0][0]
        return any(cue.category != "tense" for cue in claim.cues if cue.start == start)
    if difference.kind == "order" and not is_long:
        # One word elsewhere is style: "two days before fees are due", "of fees two days before they are due".
        return difference.a != difference.b or " " in difference.a
    return difference.kind in _OTHER or (not is_long and difference.kind in _OTHER_IF_SHORT)


def _tells_change(reading: Reading) -> bool:
    found = find_changes(reading.text, reading.language) if reading.language else ()
    return any(change.form not in ("contrast", "present") for change in found)


def _names_another(difference: Difference, claim: Reading, other: Reading) -> bool:
    """Return True if names or identifiers stand in the place of others: the other sentence is of another thing."""
    sides = (claim, other, difference.spans_a), (other, claim, difference.spans_b)
    return all(
        any(
            is_name(token) and token.key not in opposite.key_set and token.start in {start for start, _ in spans}
            for token in reading.tokens
        )
        for reading, opposite, spans in sides
    )


def _is_timed(run: Run, language: str) -> bool:
    """Return True for words with a value or a time: "two days", "a week"."""
    times = load_language(language).times
    return any(token.kind == "value" or token.key in times for token in run)


def _list_replaced(claim: Reading, other: Reading) -> list[tuple[Run, Run]]:
    """Return the runs of words that stand between the same words: "Ann's passport expires", "Ann's visa expires".

    A word may stand for another one of the same meaning.
    """
    shared = claim.key_set & other.key_set
    own, others = _list_slots(claim, shared), _list_slots(other, shared)
    language = load_language(claim.language or "en")
    return [
        (run, others[slot])
        for slot, run in own.items()
        if slot in others
        and not (len(run) == len(others[slot]) == 1 and language.may_replace(run[0].key, others[slot][0].key))
    ]


def _list_slots(reading: Reading, shared: frozenset[str]) -> dict[tuple[str, str], Run]:
    """Return the runs of words that the other text lacks, by the words of both texts before and behind them."""
    slots: dict[tuple[str, str], Run] = {}
    before, run = "", list[Token]()
    for at in sort_as_written(reading.tokens):
        token = reading.tokens[at]
        if token.key not in shared:
            run.append(token)
            continue
        if run:
            slots[before, token.key] = tuple(run)
        before, run = token.key, []
    if run:
        slots[before, ""] = tuple(run)
    return slots
