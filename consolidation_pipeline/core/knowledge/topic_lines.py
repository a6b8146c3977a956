"""Lines of a summary: the statements of a topic's memories that a reader understands alone, below its title."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from consolidation_pipeline.core.knowledge.lesson_sentences import SENTENCE_END, is_change, is_personal, read_lesson
from consolidation_pipeline.core.knowledge.pattern_group import LaterSentence, PatternGroup
from consolidation_pipeline.core.knowledge.pattern_sentences import (
    Candidate,
    excludes,
    is_disputed,
    opposes,
    repeats,
    shorten_example,
)
from consolidation_pipeline.core.knowledge.pattern_titles import (
    MAX_TITLE_CHARS,
    capitalize,
    names_told,
    strip_verb,
    write_title,
)
from consolidation_pipeline.core.knowledge.pattern_units import Unit
from consolidation_pipeline.core.knowledge.sentence_ranking import SentenceRanking
from consolidation_pipeline.core.knowledge.statement_markup import strip_commit_prefix, strip_markup
from consolidation_pipeline.core.knowledge.summary_frames import FRAMES, Frames
from consolidation_pipeline.core.knowledge.topic_names import TITLE_SHARE, is_thing, name_by_terms
from consolidation_pipeline.core.knowledge.weak_sentences import (
    contests,
    is_balanced,
    names_cause,
    names_goal_alone,
    names_remedy,
    names_symptom_alone,
    names_wish_alone,
    tells_status,
)
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.key_terms import extract_terms
from consolidation_pipeline.core.text.sentence_cues import is_failure
from consolidation_pipeline.core.text.word_overlap import extract_content_words, shares_words

# A sentence of lower readability is a heading, a fragment or markup, told only if it is as frequent.
READABLE, _FREQUENT = 0.35, 3
# Share of questions from which examples are what was asked.
_ASKING = 0.5
# A longer statement is told only if there is no other.
_SENTENCE_CHARS = 260
# Fewest words of a statement; longest one without an end.
_FEWEST_WORDS, _UNFINISHED_CHARS = 4, 100
# Statements of a topic, and the candidates for them.
MAX_STATEMENTS = 3
_MAX_CANDIDATES = 16
_MAX_EXAMPLES = 3
# A statement that shares this part of its content words with another repeats it; a remedy names what it mends.
_REPEATED, _REPEATED_REMEDY = 0.5, 0.8
# Share of the words of a title that the examples below it have; those of lessons have all.
_TITLE_TOLD = 0.5
# A title that no more texts hold tells something of them.
_FEW_HOLDING = 4
# News of a statement shares this part of the content words of the shorter one.
_NEWS = 0.6
# Key terms of a topic of which a statement holds one.
_ABOUT = 6
# Factors of the score of a statement: of a fact that begins or ends with what was named before, and of a long one.
_DEFINITE, _DANGLING, _LONG = 0.5, 0.3, 0.3
# Factor of one that holds no word of the title or, without a title, no key term.
_OFF = 0.5
# A further example has this cosine with the first, or this share of that of the nearest one.
_EXAMPLE_NEAR, _EXAMPLE_SHARE = 0.5, 0.5
# A further statement has this cosine with the first: of the same memory, and of another one. Words that most matters
# share, such as "verify" and "file", give less.
_RELATED, _RELATED_OTHER = 0.12, 0.2
# An instruction of another attempt with this cosine mends a failure, or is on the matter of another instruction.
_MENDS = 0.45
# Factor of a failure without a remedy.
_UNMENDED = 0.3
# Statements with this cosine say much the same.
_ALIKE = 0.3
# A score of this share of the best is worth a line.
_WORTH = 0.15
_ENDS_OPEN = re.compile(
    r"\b(?:them|it|this|these|those|all three|any one)\W*$|\b(?:any|either|neither|each) one\b", re.I
)
_OPENS_DEFINITE = re.compile(r"^(?:The|This|Its|Their)\s")
# Fewest letters and blanks among the characters of a statement.
_LETTERS = 0.8
# Log lines, addresses, markup and ends of numbered steps.
_NOISE = re.compile(r"-->|https?://|<\w|>\s*>|\b\d\.\s*$|:\s*$|(?:\.\.\.|…)\W*$|\(\s*$")
_END = re.compile(r"[.!?…。！？:]([\"'”’»)\]*_`」』]*)$")
# Single quotation marks, and where a quotation begins.
_OPENS, _CLOSES = re.compile(r"(?<=\s)'(?=\S)"), re.compile(r"(?<=\S)'(?!\w)")
_QUOTATION = re.compile(r"(?<=\s)['\"`]")
# The last word of a sentence that goes on: of a text that was cut.
_CUT = re.compile(
    r"\b(?:a|an|the|and|or|of|to|in|on|for|with|by|from|not|is|are|that|which|when|if|as|its|their)\W*$", re.I
)


@dataclass(frozen=True)
class TopicLine:
    """Line of a topic.

    ``lead``: its first statement, if there is no title. ``is_lesson``: it says what to do or what is so. ``texts``:
    positions of the texts that it tells something of; ``said``: of those that say one of its lessons, as far as their
    words prove it.
    """

    title: str
    text: str
    is_lesson: bool
    texts: frozenset[int]
    lead: str = ""
    said: frozenset[int] = frozenset()


def tells_lesson(text: str, sentences: Sequence[str]) -> bool:
    """Return True for a rule, a warning or a fact that a reader understands alone.

    Args:
        text: One of the sentences of a memory.
        sentences: All of them, in order.
    """
    is_title = len(sentences) > 1 and text == sentences[0]
    lesson = read_lesson(text, is_opening=is_title)
    if lesson.role == "report":
        return names_cause(text) and not is_personal(text) and _is_whole(text, sentences)
    return (
        lesson.role in ("rule", "warning", "fact")
        and (lesson.role != "fact" or not is_title or SENTENCE_END.search(text) is not None)
        and not (lesson.role == "fact" and is_personal(lesson.text))
        and _is_whole(lesson.text, sentences)
    )


def _is_whole(text: str, sentences: Sequence[str]) -> bool:
    """Return True for a sentence that says something, and was not cut."""
    if tells_status(text) or _NOISE.search(text) or not is_balanced(text):
        return False
    plain = sum(map(str.isalpha, text)) + text.count(" ")
    if plain < _LETTERS * len(text) or (len(text.split()) < _FEWEST_WORDS and text.isascii()):
        return False
    if SENTENCE_END.search(text):
        return not (names_goal_alone(text) or names_wish_alone(text) or names_symptom_alone(text))
    # Without an end, after sentences that have one, it was cut.
    ended = any(SENTENCE_END.search(other) for other in sentences if other != text)
    return not ended and len(text) <= _UNFINISHED_CHARS and not _CUT.search(text)


class TopicGroup(PatternGroup):
    """The memories of one topic."""

    def __init__(
        self,
        units: Sequence[Unit],
        ranking: SentenceRanking,
        terms: tuple[str, ...],
        frames: Frames = FRAMES["en"],
    ) -> None:
        super().__init__(units, ranking, terms)
        self.frames = frames
        self._later: dict[int, LaterSentence | None] = {}
        self.lessons = self._list_lessons()

    def tell_topic(
        self,
        room: int,
        *,
        told: Collection[str] = (),
        titles: Collection[str] = (),
        is_named: bool = True,
        has_lessons: bool = True,
    ) -> TopicLine:
        """Return the line of the topic in about ``room`` characters; at least one statement or example is told.

        Args:
            told: Statements of other topics, which are not told again.
            titles: Titles of other topics, which this one does not get.
            is_named: It has a title, and tells only what is about its key terms.
            has_lessons: Its memories may teach something; else only examples of them are told.
        """
        texts = list(self.texts.values())
        phrase = strip_verb(write_title(texts, self.terms, share=TITLE_SHARE)) if is_named else ""
        phrase = phrase if is_thing(phrase, texts) else ""
        chosen = self._choose_lessons(phrase, room, told, is_named=is_named) if has_lessons else []
        if not chosen:
            title = self._specify(phrase, ())
            return self._tell_examples("" if title in titles else title, room)
        statements = [self.finish(one) for one in chosen]
        quoted = frozenset[int]().union(*map(self._list_quoted, chosen))
        said = frozenset[int]().union(*map(self._list_said, chosen))
        if not is_named:
            return TopicLine("", "".join(f"\n- {one}" for one in statements), True, quoted, said=said)
        title = self._specify(phrase, statements)
        # Else the lessons are about something else than most of the memories.
        is_title = names_told(title, " ".join(statements), share=1.0) and not self._is_statement(title)
        title = title if is_title and title not in titles else ""
        lead = "" if title else statements.pop(0)
        return TopicLine(title, " ".join(statements), True, quoted | self._list_holders(title), lead, said)

    def _is_statement(self, title: str) -> bool:
        """Return True if a title is a whole sentence of a memory: it would be told twice, or as it was before."""
        folded = normalize_text(title)
        return any(
            normalize_text(text) == folded and (SENTENCE_END.search(text) or len(found) == 1)
            for found in self.sentences.values()
            for text in found
        )

    def finish(self, one: Candidate) -> str:
        """Return a statement as it is told, with the one that excludes it."""
        rival = self._find_rival(one)
        alone = self._finish_alone(one)
        return f"{alone} {self.frames.others} {self._finish(rival.lesson.text, rival)}" if rival else alone

    def _finish_alone(self, one: Candidate) -> str:
        """Return a statement with a full stop, without bold and the prefix of a commit, and with its count."""
        return self._finish(self._tell_current(one), one)

    def _tell_current(self, one: Candidate) -> str:
        """Return a statement with what a newer memory says of it."""
        later = self._find_later_once(one)
        text = self.tell_with(one, later) if later else self.tell(one)
        if later is None or later.is_revision:
            return text
        news, is_all = self.tell_news(one, later)
        return news if is_all else f"{finish_statement(news)} {text}"

    def _find_later_once(self, one: Candidate) -> LaterSentence | None:
        """Return what takes the place of a statement by a newer memory, or is on the same matter for the most part."""
        row = one.ranked.row
        if row not in self._later:
            later = self.find_later(one)
            told = extract_content_words(later.ranked.sentence.text) if later else frozenset[str]()
            own = extract_content_words(one.ranked.sentence.text)
            is_near = later is not None and (later.is_revision or shares_words(told, own, _NEWS))
            self._later[row] = later if is_near else None
        return self._later[row]

    def _finish(self, text: str, one: Candidate) -> str:
        count = self._count(one)
        return finish_statement(text, self.frames.times.format(count) if count > 1 else "")

    def _find_rival(self, one: Candidate) -> Candidate | None:
        """Return the best instruction of another attempt that excludes a guess, None if there is none."""
        if not (self.has_attempts and _is_advice(one)):
            return None
        rivals = (
            other
            for other in self.lessons
            if _is_advice(other)
            and other.ranked.text != one.ranked.text
            and self.measure_cosine(other, one) >= _MENDS
            and excludes(one, other)
        )
        return min(rivals, key=lambda other: (-round(other.score, 9), other.lesson.text), default=None)

    def _list_quoted(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that a statement, as it is told, quotes or was made of."""
        rival, later = self._find_rival(one), self._find_later_once(one)
        quoted = self._list_repeating(one) | (self._list_repeating(rival) if rival else set())
        quoted |= {later.ranked.text} if later else set()
        return quoted | self.list_telling(one) if is_disputed(one.ranked) else quoted

    def _list_said(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that say a statement, also in words of their own, or what it tells too."""
        return self._list_quoted(one) | self.list_telling(one)

    def _list_holders(self, title: str) -> set[int]:
        return find_few_holders([title], self.texts)

    def _list_repeating(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that have this very sentence."""
        return {other.text for other in self.ranking.sentences if other.sentence.text == one.ranked.sentence.text}

    def _count(self, one: Candidate) -> int:
        """Return how many memories have this very sentence."""
        return round(sum(self.units[at].weight for at in self._list_repeating(one)))

    def _list_lessons(self) -> list[Candidate]:
        """Return the sentences that a reader understands alone, with their score in a summary."""
        found = []
        for one in self.candidates:
            is_clear = self._is_clear(one)
            source = one.ranked.sentence.text
            if is_disputed(one.ranked):
                # Guesses on failures differ by nature.
                if one.lesson.role in ("rule", "warning", "fact") and not (self.has_attempts or is_personal(source)):
                    found.append(one)
                continue
            is_usable = is_clear and one.ranked.text not in self.bug_reports
            if is_usable and tells_lesson(source, self.sentences[one.ranked.text]):
                is_plain = one.lesson.role in ("fact", "report")
                factor = _DEFINITE if is_plain and _OPENS_DEFINITE.match(one.lesson.text) else 1.0
                factor *= _DANGLING if is_plain and _ENDS_OPEN.search(one.lesson.text) else 1.0
                factor *= _LONG if len(one.lesson.text) > _SENTENCE_CHARS else 1.0
                found.append(Candidate(one.ranked, one.lesson, one.score * factor))
        advice = [one for one in found if _is_advice(one)]
        return [
            replace(one, score=_UNMENDED * one.score)
            if self._is_unmended(one) and not any(self._mends(other, one) for other in advice)
            else one
            for one in found
        ]

    def _is_clear(self, one: Candidate) -> bool:
        """Return True if the sentence is no heading, fragment or markup, or is said again and again."""
        return one.ranked.sentence.readability >= READABLE or self._count(one) >= _FREQUENT

    def _choose_lessons(self, phrase: str, room: int, told: Collection[str], *, is_named: bool) -> list[Candidate]:
        """Return the best lessons that fit, on the topic, none of which repeats or contradicts another."""
        about = {term.stem for term in extract_terms(phrase or " ".join(self.terms[:_ABOUT]))}
        known = [extract_content_words(text) for text in told]
        fitting = [
            one
            if any(term.stem in about for term in extract_terms(one.lesson.text))
            else replace(one, score=_OFF * one.score)
            for one in self.lessons
        ]
        best = max((one.score for one in fitting), default=0.0)
        chosen: list[Candidate] = []
        left = room
        most = MAX_STATEMENTS if is_named else _MAX_CANDIDATES
        ordered = self.choose(fitting, most=_MAX_CANDIDATES, max_chars=_MAX_CANDIDATES * _SENTENCE_CHARS)
        if is_named and ordered and self._is_unmended(ordered[0]):
            first = ordered[0]
            remedies = [one for one in fitting if self._is_remedy(one, first)]
            remedies.sort(key=lambda one: one.ranked.text != first.ranked.text)
            ordered = [first, *remedies, *(one for one in ordered[1:] if one not in remedies)]
        for one in ordered:
            words = extract_content_words(one.lesson.text)
            is_remedy = is_named and bool(chosen) and self._is_remedy(one, chosen[0])
            share = _REPEATED_REMEDY if is_remedy else _REPEATED
            is_said = any(shares_words(words, other, share) for other in known)
            length = len(self._finish(self.tell(one), one)) + 1
            # A failure without its remedy helps nobody, so both are told whatever their length.
            is_first = is_named and (not chosen or (is_remedy and len(chosen) == 1))
            is_said |= not is_named and any(one.ranked.text == other.ranked.text for other in chosen)
            if is_said or len(chosen) == most or one.score < _WORTH * best or (length > left and not is_first):
                continue
            if self.is_contested(one):
                continue
            is_off = is_named and bool(chosen) and not self._goes_on(one, chosen[0])
            # Several guesses on one failure exclude each other.
            is_off |= is_named and self.has_attempts and any(one.lesson.role == other.lesson.role for other in chosen)
            is_like = not is_remedy and any(self.measure_cosine(one, other) >= _ALIKE for other in chosen)
            if not is_off and not is_like and not any(repeats(one, other) or opposes(one, other) for other in chosen):
                chosen.append(one)
                known.append(words)
                left -= len(self.finish(one)) + 1
        return chosen

    def _is_unmended(self, one: Candidate) -> bool:
        """Return True for a failure that does not say what is right."""
        is_told = one.lesson.is_verdict or (one.lesson.role in ("fact", "report") and is_failure(one.lesson.text))
        return is_told and not names_remedy(one.lesson.text)

    def _is_remedy(self, one: Candidate, failure: Candidate) -> bool:
        """Return True for an instruction of the memory that tells of this failure, or of a like attempt."""
        return _is_advice(one) and self._is_unmended(failure) and self._mends(one, failure)

    def _mends(self, advice: Candidate, failure: Candidate) -> bool:
        if advice.ranked.text != failure.ranked.text:
            is_near = self.has_attempts and self.measure_cosine(advice, failure) >= _MENDS
            if not is_near or contests(advice.lesson.text, failure.ranked.sentence.text):
                return False
        return not opposes(advice, failure)

    def _goes_on(self, one: Candidate, first: Candidate) -> bool:
        """Return True if a statement is on the matter of the first."""
        if self._is_remedy(one, first):
            return True
        least = _RELATED if one.ranked.text == first.ranked.text else _RELATED_OTHER
        return self.measure_cosine(one, first) >= least

    def _choose_examples(self, room: int) -> list[Candidate]:
        """Return the most central openings of memories that differ, the further ones near to the first."""
        openings = [one for one in self.candidates if one.ranked.sentence.text == self.sentences[one.ranked.text][0]]
        near = [
            Candidate(one.ranked, one.lesson, one.ranked.score / one.ranked.sentence.readability)
            for one in openings or self.candidates
        ]
        first, *others = self.choose(near, most=_MAX_CANDIDATES, max_chars=_MAX_CANDIDATES * _SENTENCE_CHARS)
        rest = [one for one in near if one.ranked.text != first.ranked.text]
        nearest = max((self.measure_cosine(one, first) for one in rest), default=0.0)
        least = min(_EXAMPLE_NEAR, _EXAMPLE_SHARE * nearest)
        chosen, left = [first], room - len(shorten_example(first.ranked.sentence.text))
        for one in others:
            length = len(shorten_example(one.ranked.sentence.text))
            is_near = self.measure_cosine(one, first) >= least
            if (
                len(chosen) < _MAX_EXAMPLES
                and length <= left
                and is_near
                and not any(repeats(one, other) for other in chosen)
            ):
                chosen.append(one)
                left -= len(self.finish(one)) + 1
        return chosen

    def _tell_examples(self, title: str, room: int) -> TopicLine:
        """Return the line of the most central openings of memories that differ; without a title, a short one is it."""
        chosen = self._choose_examples(room)
        told = [capitalize(shorten_example(one.ranked.sentence.text)) for one in chosen]
        is_asked = self.measure_asking() >= _ASKING
        label = self.frames.asked if is_asked else self.frames.examples
        name = next((at for at, text in enumerate(told) if len(text) <= MAX_TITLE_CHARS), 0)
        is_name = len(told[name]) <= MAX_TITLE_CHARS and not is_change(chosen[name].ranked.sentence.text)
        title = title if names_told(title, told[0], share=_TITLE_TOLD) else ""
        # What most of them ask names questions better than a phrase.
        if (is_asked and is_name) or (not title and (is_name or len(self.texts) == 1)):
            title, label = told.pop(name), self.frames.asked_too if is_asked else self.frames.further
        text = finish_statement(f"{label}: {'; '.join(told)}") if told else ""
        quoted = frozenset[int]().union(*map(self._list_quoted, chosen))
        return TopicLine(title, text, False, quoted | self._list_holders(title))

    def _specify(self, phrase: str, statements: Sequence[str]) -> str:
        """Return the title: a phrase of most memories, or else one of the key terms; empty if there is only a word."""
        if " " in phrase:
            return phrase
        name = name_by_terms(list(self.texts.values()), self.terms, statements)
        is_word = phrase.replace("-", "").isalpha() and (phrase[1:].islower() or phrase.isupper())
        return name if not phrase or is_word or phrase.lower() in name.lower() else phrase


def find_few_holders(titles: Collection[str], texts: Mapping[int, str]) -> set[int]:
    """Return the keys of the texts with all words of a title that few texts have: it tells something of them."""
    stems_of = {at: {term.stem for term in extract_terms(text)} for at, text in texts.items()} if any(titles) else {}
    found: set[int] = set()
    for title in filter(None, titles):
        stems = {term.stem for term in extract_terms(title)}
        holders = [at for at, own in stems_of.items() if stems <= own]
        found.update(holders if len(holders) <= _FEW_HOLDING else ())
    return found


def _is_advice(one: Candidate) -> bool:
    return one.lesson.role in ("rule", "warning") and not one.lesson.is_verdict


def drop_open_quotation(text: str) -> str:
    """Return a text that was cut inside a quotation without it: "Failed: 'the total is" gives "Failed"."""
    is_open = any(text.count(sign) % 2 for sign in '"`') or len(_OPENS.findall(text)) > len(_CLOSES.findall(text))
    start = _QUOTATION.search(text)
    return (start and text[: start.start()].rstrip(" :,(-")) or text if is_open else text


def finish_statement(text: str, times: str = "") -> str:
    """Return a statement with a full stop, without bold and the prefix of a commit, and how many times it is said."""
    bare = strip_markup(strip_commit_prefix(text))
    first = bare.split(maxsplit=1)[0]
    bare = bare[:1].upper() + bare[1:] if first.isalpha() and first.islower() else bare
    times = times and f" ({times})"
    if bare.endswith(".") and not bare.endswith("..."):
        return f"{bare.rstrip('.')}{times}."
    return f"{bare}{times}" if _END.search(bare) else f"{bare}{times}."
