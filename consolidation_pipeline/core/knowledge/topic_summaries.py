"""Summaries without a model: a line for each topic with its title, count, dates and most central statements."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import zip_longest

from consolidation_pipeline.core.knowledge.disputes import Statement, find_disputes
from consolidation_pipeline.core.knowledge.lesson_sentences import read_lesson
from consolidation_pipeline.core.knowledge.pattern_titles import capitalize, write_title
from consolidation_pipeline.core.knowledge.sentence_ranking import RankedSentence, SentenceRanking, rank_sentences
from consolidation_pipeline.core.knowledge.statement_markup import strip_commit_prefix, strip_markup
from consolidation_pipeline.core.knowledge.summary_batches import TARGET_RATIO
from consolidation_pipeline.core.knowledge.topics import MIN_SIZE, find_topics
from consolidation_pipeline.core.knowledge.weak_sentences import names_cause, names_symptom_alone, names_wish_alone
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.boilerplate import strip_repeats
from consolidation_pipeline.core.text.key_terms import find_key_terms
from consolidation_pipeline.core.text.sentences import is_context_dependent
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Most characters of a summary, about 1,500 tokens: what stands for ten thousand memories can still be read.
MAX_CHARS = 6000
# Fewest characters: room for one statement, however short the memories are.
MIN_CHARS = 240
# Average length of a line; sets the number of topics.
_LINE_CHARS = 280
# A longer sentence is told only if there is no other.
_SENTENCE_CHARS = 260
# A sentence of lower readability is a heading, a fragment or markup, told only if it is frequent or there is no other.
_READABLE = 0.35
# Texts of a topic whose sentences are ranked, the most central first. It bounds the time.
_MAX_RANKED = 100
# Sentences of a topic, the best first, that are searched for what changed.
_MAX_COMPARED = 64
# Most statements of a topic, and the candidates for them.
_MAX_STATEMENTS = 3
_MAX_CANDIDATES = 12
# A statement that shares this part of its content words with another repeats it.
_REPEATED = 0.6
# A text that occurs as often, and in this share of the memories, is a topic alone.
_FEWEST_REPEATS, _REPEATED_SHARE = 5, 0.02
# Characters of the count and days of a line, and of the line above the topics.
_WHEN_CHARS = 50
_HEAD_CHARS = 60
# Fewest characters of a line; where less is left, the memories are only counted.
_LEAST_CHARS = 120
_OTHER_TERMS = 8
# The title of a topic is in this share of its texts.
_TITLE_SHARE = 0.4
# A sentence in more topics than this says nothing of a single one.
_MOST_TOPICS = 2
# Fewest letters and blanks among the characters of a statement; log lines and addresses have fewer.
_LETTERS = 0.8
# Factors of the score of a sentence by its role; of the first of a text; of a form field, a log line or address, a long
# one, one of many topics.
_ROLES = {"rule": 1.5, "warning": 1.5, "fact": 1.2, "subject": 1.0, "report": 0.9, "fragment": 0.1}
_OTHER_ROLE, _NO_CAUSE = 0.4, 0.4
_OPENING, _FIELD, _NOISE, _LONG, _EVERYWHERE = 1.2, 0.4, 0.2, 0.3, 0.1
_MARKS = re.compile(r"-->|https?://|<\w|>\s*>|\b\d\.\s*$|:\s*$|(?:\.\.\.|…)\W*$")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SLOTS = ("{n}", "{m}", "{k}")
# Fields of a form that is filled in again and again: "Expected results:".
_FIELDS = re.compile(r"(?:^|(?<=\s))[A-Z][\w/-]*(?: [\w/-]+){0,2}:(?=\s)")
# A field is in this many memories and in this share of them.
_FIELD_TEXTS, _FIELD_SHARE = 5, 0.05
# Words that make no title: kinds of commits, and verbs of any change.
_NO_TITLE = frozenset(
    """
    feat feature features fix fixed fixes chore docs refactor ci wip add added adding set call calls called use used
    using existing missing make makes implement implemented change changes changed resolve resolved true false issue
    issues problem value values need needs key insight include included correct correctly various new
    """.split()
)
_END = re.compile(r"[.!?…。！？:]([\"'”’»)\]*_`」』]*)$")


@dataclass(frozen=True)
class TopicSummary:
    """A summary by topics. ``topics``: number of its topics; ``source_chars``: characters of its memories."""

    content: str
    topics: int
    source_chars: int


@dataclass(frozen=True)
class _Form:
    """Memories that are the same but for numbers. ``text``: has slots for the numbers that differ. ``days``: sorted."""

    text: str
    days: tuple[date, ...]


def summarize_topics(texts: Sequence[str], days: Sequence[date], *, boilerplate: Collection[str] = ()) -> TopicSummary:
    """Return a summary of memories with a line for each topic, the oldest topic first.

    It has an eighth of the characters of the memories (``TARGET_RATIO``), at least ``MIN_CHARS`` and at most
    ``MAX_CHARS``: what has no room is counted in the last line. A line has the title of the topic, the number of its
    memories, its first and last day, what changed (``disputes.find_disputes``), and its most central statements with
    the number of memories that say the same. The order of the memories does not matter.

    Args:
        texts: The memories.
        days: On which each was learned.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to leave out of memories that hold anything else.

    Raises:
        ValueError: All texts are blank.
    """
    own = strip_repeats(texts, boilerplate)
    fields = _find_fields(own)
    forms = _find_forms(own, days)
    if not forms:
        raise ValueError(f"{len(texts)} texts given, none with a word; a summary needs at least one sentence")
    source_chars = sum(map(len, texts))
    room = int(min(MAX_CHARS, max(MIN_CHARS, source_chars / TARGET_RATIO)))
    bare = [_FIELDS.sub(lambda match: " " if match[0] in fields else match[0], form.text) for form in forms]
    topics = _find_topics(forms, bare, room)
    in_topic = {at for topic in topics for at in topic}
    others = [at for at in range(len(forms)) if at not in in_topic]
    if not topics:
        topics, others = [others], []
    lines = _Writer(forms, bare, fields).write(topics, others, room)
    if len(lines) > 1:
        lines = [
            f"{_count(len(texts))}, {_span(sorted(days))}, on {len(topics)} topic{'s' if len(topics) > 1 else ''}:",
            *lines,
        ]
    return TopicSummary("\n".join(lines), len(topics), source_chars)


def _is_noise(text: str) -> bool:
    """Return True for log lines, addresses, markup and ends of numbered steps."""
    plain = sum(map(str.isalpha, text)) + text.count(" ")
    return plain < _LETTERS * len(text) or _MARKS.search(text) is not None


def _find_fields(texts: Sequence[str]) -> frozenset[str]:
    """Return the fields, with their colon, that many of the texts have."""
    # Repeats of one text make no form.
    counts = Counter(label for text in {*texts} for label in {*_FIELDS.findall(text)})
    fewest = max(_FIELD_TEXTS, _FIELD_SHARE * len(texts))
    return frozenset(label for label, count in counts.items() if count >= fewest)


def _find_forms(texts: Sequence[str], days: Sequence[date]) -> list[_Form]:
    """Return the distinct texts with the days of each, sorted; texts that differ only in numbers are one."""
    found = defaultdict[str, list[tuple[str, date]]](list)
    for text, day in zip(texts, days, strict=True):
        if text:
            found[_NUMBER.sub("0", normalize_text(text))].append((text, day))
    forms = [
        _Form(_mark_slots([text for text, _ in same]), tuple(sorted(day for _, day in same))) for same in found.values()
    ]
    return sorted(forms, key=lambda form: (form.text, form.days))


def _mark_slots(texts: Sequence[str]) -> str:
    """Return the most frequent of texts that differ in numbers and case only, with slots for numbers that differ."""
    counted = Counter(texts)
    text = min(counted, key=lambda one: (-counted[one], one))
    numbers = [_NUMBER.findall(one) for one in counted]
    if len(texts) < MIN_SIZE or len(counted) < 2 or len({len(one) for one in numbers}) > 1:
        return text
    slots = iter(_SLOTS)
    filled = [one[0] if len({*one}) == 1 else next(slots, _SLOTS[-1]) for one in zip(*numbers, strict=True)]
    parts = _NUMBER.split(text)
    return "".join(part + number for part, number in zip_longest(parts, filled, fillvalue=""))


def _find_topics(forms: Sequence[_Form], bare: Sequence[str], room: int) -> list[list[int]]:
    """Return the positions of the forms of each topic, the largest first; what is repeated often is a topic alone."""
    counts = [len(form.days) for form in forms]
    fewest = max(_FEWEST_REPEATS, _REPEATED_SHARE * sum(counts))
    repeated: list[int] = []
    left = room
    for at in sorted(range(len(forms)), key=lambda at: (-counts[at], at)):
        length = min(len(forms[at].text), _SENTENCE_CHARS) + _WHEN_CHARS
        if counts[at] < fewest or length > left:
            break
        repeated.append(at)
        left -= length
    alone = {*repeated}
    rest = [at for at in range(len(forms)) if at not in alone]
    most = max(round(left / _LINE_CHARS), 0 if repeated else 1)
    found = find_topics([bare[at] for at in rest], [counts[at] for at in rest], most=most)
    topics = [*([at] for at in repeated), *([rest[at] for at in topic] for topic in found)]
    return sorted(topics, key=lambda topic: (-sum(counts[at] for at in topic), topic[0]))


@dataclass(frozen=True)
class _Writer:
    """Writes the lines of a summary.

    ``bare``: the texts of the forms without ``fields``. ``spread``: in how many topics each sentence is.
    """

    forms: Sequence[_Form]
    bare: Sequence[str]
    fields: frozenset[str]
    spread: Counter[str] = field(default_factory=Counter)

    def write(self, topics: Sequence[Sequence[int]], others: Sequence[int], room: int) -> list[str]:
        """Return a line for each topic, sorted by its first and last day, and one for what is in none."""
        near = [topic[:_MAX_RANKED] for topic in [*topics, others]]
        rankings = rank_sentences(
            [[self._separate_fields(self.forms[at].text) for at in topic] for topic in near],
            [[float(len(self.forms[at].days)) for at in topic] for topic in near],
        )
        for ranking in rankings[: len(topics)]:
            self.spread.update({normalize_text(one.sentence.text) for one in ranking.sentences})
        groups = [[self.bare[at] for at in topic] for topic in near]
        terms = find_key_terms(groups, count=_OTHER_TERMS)
        lines: list[tuple[date, date, int, str]] = []
        left, untold = room - _HEAD_CHARS, [*others]
        parts = zip(topics, near, rankings, groups, terms, strict=False)
        for number, (topic, used, ranking, texts, own) in enumerate(parts):
            if lines and left < _LEAST_CHARS:
                untold += topic
                continue
            days = self._list_days(topic)
            when = f"({_count(len(days))}, {_span(days)})"
            forms = [self.forms[at] for at in used]
            head = f"{_write_title(texts, _list_words(own))} {when}:" if len(forms) > 1 else f" {when}."
            said = self._tell(forms, ranking, left // (len(topics) - number + bool(others)) - len(head))
            line = f"{head} {said}" if len(forms) > 1 else said.removesuffix(".") + head
            lines.append((days[0], days[-1], -len(days), line))
            left -= len(line) + 1
        tail = [self._tell_others(untold, near[-1], rankings[-1], left)] if untold else []
        return [*(line for *_, line in sorted(lines)), *tail]

    def _separate_fields(self, text: str) -> str:
        """Return the text with a paragraph for each field, as fields begin a sentence."""
        return _FIELDS.sub(lambda match: f"\n\n{match[0]}" if match[0] in self.fields else match[0], text)

    def _list_days(self, positions: Sequence[int]) -> list[date]:
        return sorted(day for at in positions for day in self.forms[at].days)

    def _tell(self, forms: Sequence[_Form], ranking: SentenceRanking, room: int) -> str:
        """Return what changed in a topic, and its most central statements."""
        counts = _count_sentences(forms, ranking)
        weighed = self._weigh(ranking, counts)
        plain = sorted((one for one in weighed if not _is_noise(one.sentence.text)), key=lambda one: one.order)
        statements = [Statement(one.sentence.text, one.text, forms[one.text].days[-1]) for one in plain[:_MAX_COMPARED]]
        changes = [one.told for one in find_disputes(statements) if one.overruled and one.is_decided]
        told = [_finish(change, 1) for change in changes if len(change) <= _SENTENCE_CHARS][:1]
        known = [extract_content_words(text) for text in told]
        chosen = ranking.choose(weighed, most=_MAX_CANDIDATES, max_chars=MAX_CHARS)
        times = [counts[normalize_text(one.sentence.text)] if len(forms) > 1 else 1 for one in chosen]
        finished = [_finish(_word(one.sentence.text), count) for one, count in zip(chosen, times, strict=True)]
        if not told and all(len(text) > room for text in finished[:_MAX_STATEMENTS]):
            return min(finished[:_MAX_STATEMENTS], key=len)
        for one, text in zip(chosen, finished, strict=True):
            words = extract_content_words(one.sentence.text)
            is_said = any(len(words & other) >= _REPEATED * len(words) for other in known)
            is_usable = not told or not (is_said or _is_noise(one.sentence.text))
            if is_usable and sum(map(len, told)) + len(text) <= room:
                told.append(text)
                known.append(words)
            if len(told) == _MAX_STATEMENTS:
                break
        return " ".join(told)

    def _weigh(self, ranking: SentenceRanking, counts: Counter[str]) -> list[RankedSentence]:
        """Return the sentences that may be told, scored for a summary: rules, facts and what was written often."""
        opening: dict[int, int] = {}
        for one in ranking.sentences:
            opening[one.text] = min(one.row, opening.get(one.text, one.row))
        weighed: list[tuple[bool, bool, RankedSentence]] = []
        for one in ranking.sentences:
            text, count = one.sentence.text, counts[normalize_text(one.sentence.text)]
            is_opening = one.row == opening[one.text]
            label = _FIELDS.match(text)
            factors = (
                1.0 if is_context_dependent(text) else 1 + math.log2(count),
                _EVERYWHERE if self.spread[normalize_text(text)] > _MOST_TOPICS else 1.0,
                _weigh_role(text, is_opening=is_opening),
                _OPENING if is_opening else 1.0,
                _FIELD if label and label[0] in self.fields else 1.0,
                _NOISE if _is_noise(text) else 1.0,
                _LONG if len(text) > _SENTENCE_CHARS else 1.0,
            )
            is_clear = one.sentence.readability >= _READABLE or count >= MIN_SIZE
            is_telling = is_clear and _tells_something(text, is_opening=is_opening)
            weighed.append((is_telling, is_clear, replace(one, score=one.score * math.prod(factors))))
        # What is done again and again is told beside lessons; other titles, verdicts and references only without any.
        told = [one for is_telling, _, one in weighed if is_telling]
        clear = [one for _, is_clear, one in weighed if is_clear]
        often = [one for one in clear if one not in told and counts[normalize_text(one.sentence.text)] >= MIN_SIZE]
        return [*told, *often] if told else clear or [one for *_, one in weighed]

    def _tell_others(self, positions: Sequence[int], near: Sequence[int], ranking: SentenceRanking, room: int) -> str:
        """Return the line for memories without a line of a topic. ``near``: those of the ranking."""
        days = self._list_days(positions)
        head = f"Other matters ({_count(len(days))}, {_span(days)})"
        if not near or room < _LEAST_CHARS:
            return f"{head}."
        return f"{head}: {self._tell([self.forms[at] for at in near], ranking, room - len(head))}"


def _tells_something(text: str, *, is_opening: bool) -> bool:
    """Return True for a rule, a fact, or a report that names a cause."""
    role = read_lesson(text, is_opening=is_opening).role
    if names_wish_alone(text) or names_symptom_alone(text):
        return False
    return role in ("rule", "warning", "fact") or (role == "report" and names_cause(text))


def _weigh_role(text: str, *, is_opening: bool) -> float:
    """Return the factor of a sentence for what it is; of a report, for whether it names a cause."""
    role = read_lesson(text, is_opening=is_opening).role
    return _ROLES.get(role, _OTHER_ROLE) * (_NO_CAUSE if role == "report" and not names_cause(text) else 1.0)


def _count_sentences(forms: Sequence[_Form], ranking: SentenceRanking) -> Counter[str]:
    """Return in how many memories each sentence is, by its normal form."""
    counts = Counter[str]()
    for text, normal in {(one.text, normalize_text(one.sentence.text)) for one in ranking.sentences}:
        counts[normal] += len(forms[text].days)
    return counts


def _word(text: str) -> str:
    """Return an instruction without "I will" before it, a verdict as a warning, and anything else unchanged."""
    lesson = read_lesson(text)
    return lesson.text if lesson.role in ("rule", "warning") else text


def _finish(text: str, count: int) -> str:
    """Return a statement with a full stop, without bold and the prefix of a commit, and with its count."""
    bare = strip_markup(strip_commit_prefix(text))
    first = bare.split(maxsplit=1)[0]
    bare = bare[:1].upper() + bare[1:] if first.isalpha() and first.islower() else bare
    times = f" ({count} times)" if count > 1 else ""
    if bare.endswith(".") and not bare.endswith("..."):
        return f"{bare.rstrip('.')}{times}."
    return f"{bare}{times}" if _END.search(bare) else f"{bare}{times}."


def _write_title(texts: Sequence[str], words: Sequence[str]) -> str:
    """Return the phrase that most texts of a topic share; without one, the word that tells them from the others."""
    return write_title(texts, words, share=_TITLE_SHARE) or (capitalize(words[0]) if words else "Various")


def _list_words(terms: Sequence[str]) -> list[str]:
    """Return the terms that consist of letters and say something."""
    return [one for one in terms if sum(map(str.isalpha, one)) > _LETTERS * len(one) and one.lower() not in _NO_TITLE]


def _count(memories: int) -> str:
    return "1 memory" if memories == 1 else f"{memories} memories"


def _span(days: Sequence[date]) -> str:
    return days[0].isoformat() if days[0] == days[-1] else f"{days[0].isoformat()} to {days[-1].isoformat()}"
