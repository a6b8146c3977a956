"""Summaries without a model: a line for each topic with its title, count, dates and most central statements."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from itertools import chain, zip_longest

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.chunks import Apply, split_chunks
from consolidation_pipeline.core.knowledge.compared_sentences import ask_once, knowing
from consolidation_pipeline.core.knowledge.lesson_sentences import TO_TRY, TRIED, is_bug_report, is_request, read_lesson
from consolidation_pipeline.core.knowledge.pattern_titles import names_told
from consolidation_pipeline.core.knowledge.pattern_units import Unit
from consolidation_pipeline.core.knowledge.sentence_ranking import rank_sentences
from consolidation_pipeline.core.knowledge.summary_batches import TARGET_RATIO
from consolidation_pipeline.core.knowledge.summary_frames import choose_frames
from consolidation_pipeline.core.knowledge.topic_lines import (
    READABLE,
    TopicGroup,
    TopicLine,
    drop_open_quotation,
    find_few_holders,
    finish_statement,
    tells_lesson,
)
from consolidation_pipeline.core.knowledge.topic_names import holds_title, name_topic
from consolidation_pipeline.core.knowledge.topics import MIN_SIZE, find_topics
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.boilerplate import strip_repeats
from consolidation_pipeline.core.text.key_terms import extract_terms, find_key_terms
from consolidation_pipeline.core.text.sentences import extract_sentences

# Most characters of a summary, about 1,500 tokens: what stands for ten thousand memories can still be read.
MAX_CHARS = 6000
# Fewest characters: room for one statement, however short the memories are.
MIN_CHARS = 240
# Average length of a line, and of one with examples; sets the number of topics.
_LINE_CHARS, _EXAMPLES_CHARS = 220, 185
# A text of which more is told as a topic alone is cut.
_SENTENCE_CHARS = 260
# Texts of a topic whose sentences are ranked, the most central first. It bounds the time.
_MAX_RANKED = 100
# A text that occurs as often, and in this share of the memories, is a topic alone.
_FEWEST_REPEATS, _REPEATED_SHARE = 5, 0.02
# Characters of the count and days of a line, and of the line above the topics.
_WHEN_CHARS = 50
_HEAD_CHARS = 60
# Fewest characters of a line; where less is left, the memories are only counted.
_LEAST_CHARS = 120
_TOPIC_TERMS = 12
# Share of the memories without a lesson that are in topics, from which the topics are told.
_TOLD_SHARE = 0.3
# A lesson that at most this share of the memories of a topic say does not stand for it.
_FEW_SHARE = 1 / 3
# Topics of memories without a lesson that are named in one line.
_NAMED = 10
# Share of the memories without a lesson from which they have topics of their own.
_MOSTLY = 0.9
# Share of questions from which a fact without advice tells of who asks, and of advice among them from which it is no
# badly told question.
_ASKED_SHARE, _ADVICE_SHARE = 0.5, 0.02
# Told from as many lines with what failed, or is to be tried.
_GUESSES = "What made attempts fail, and what to try, is as these memories suppose it"
_MANY_GUESSES = 3
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
# They stand for numbers that differ.
_SLOTS = ("N", "M", "K")
# Fewest memories with the words of a title that are counted behind it.
_FEWEST_COUNTED = 2
# Fields of a form that is filled in again and again: "Expected results:".
_FIELDS = re.compile(r"(?:^|(?<=\s))[A-Z][\w/-]*(?: [\w/-]+){0,2}:(?=\s)")
# A field is in this many memories and in this share of them.
_FIELD_TEXTS, _FIELD_SHARE = 5, 0.05
# What tells nothing of the matter of a text.
_ADDRESSES = ignore_case(r"https?://\S+|\(?mozilla/[^\n]*|user agent:?|build id:?|build identifier:?")
# Forms that are read at a time.
_READ_FORMS = 500


@dataclass(frozen=True)
class TopicSummary:
    """A summary by topics. ``topics``: number of its topics; ``source_chars``: characters of its memories.

    ``told``: positions of the memories that it tells something of; the others are only counted, and in its topics.
    ``compared``: its sentences that were read and compared, packed (``compared_sentences.ComparedPairs``).
    """

    content: str
    topics: int
    source_chars: int
    told: tuple[int, ...]
    compared: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True)
class _Form:
    """Memories that are the same but for numbers.

    ``text``: has slots for the numbers that differ. ``bare``: without fields and addresses. ``days``: sorted.
    ``memories``: their positions.
    ``is_lesson``: it has a sentence that a reader understands alone. ``asks``: it has a question,
    or is a request. ``advises``: it has a
    rule or warning that is no request.
    """

    text: str
    bare: str
    days: tuple[date, ...]
    memories: tuple[int, ...]
    is_lesson: bool
    asks: bool
    advises: bool


def summarize_topics(
    texts: Sequence[str],
    days: Sequence[date],
    *,
    boilerplate: Collection[str] = (),
    compared: bytes = b"",
    apply: Apply = map,
) -> TopicSummary:
    """Return a summary of memories with a line for each topic, the oldest topic first.

    It has an eighth of the characters of the memories (``TARGET_RATIO``), at least ``MIN_CHARS`` and at most
    ``MAX_CHARS``. A line has the title of the topic, the number of its memories, its first and last day, and its most
    central lessons, with what changed (``disputes.find_disputes``); a topic without a lesson has examples. Then comes
    what is in no topic or has no room, and the number of memories that only name a change, a task or a question, with
    their most frequent words. The order of the memories does not matter.

    Args:
        texts: The memories; one of which newer memories replaced everything is empty, and only counted.
        days: On which each was learned.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to leave out of memories that hold anything else.
        compared: ``TopicSummary.compared`` of the summary before, of any memories.
        apply: Reads the memories in portions, which are independent of each other.

    Raises:
        ValueError: All texts are blank.
    """
    own = strip_repeats(texts, boilerplate)
    source_chars = sum(map(len, texts))
    room = int(min(MAX_CHARS, max(MIN_CHARS, source_chars / TARGET_RATIO)))
    with knowing(compared) as pairs:
        forms = _find_forms(own, days, _find_fields(own), apply)
        if not forms:
            raise ValueError(f"{len(texts)} texts given, none with a word; a summary needs at least one sentence")
        replaced = sum(not text for text in texts)
        summary = _Summary(forms, room, sorted(day for form in forms for day in form.days), replaced)
        content = summary.write()
    told = tuple(sorted(memory for at in summary.told for memory in forms[at].memories))
    return TopicSummary(content, len(summary.topics) + len(summary.repeated), source_chars, told, pairs.pack())


def _find_fields(texts: Sequence[str]) -> frozenset[str]:
    """Return the fields, with their colon, that many of the texts have."""
    # Repeats of one text make no form.
    counts = Counter(label for text in {*texts} for label in {*_FIELDS.findall(text)})
    fewest = max(_FIELD_TEXTS, _FIELD_SHARE * len(texts))
    return frozenset(label for label, count in counts.items() if count >= fewest)


def _find_forms(texts: Sequence[str], days: Sequence[date], fields: frozenset[str], apply: Apply) -> list[_Form]:
    """Return the distinct texts with the days of each, sorted; texts that differ only in numbers are one."""
    found = defaultdict[str, list[int]](list)
    for at, text in enumerate(texts):
        if text:
            found[_NUMBER.sub("0", normalize_text(text))].append(at)
    groups = list(found.values())
    portions = ([[texts[at] for at in same] for same in part] for part in split_chunks(groups, size=_READ_FORMS))
    read = chain.from_iterable(apply(partial(_read_forms, fields=fields), portions))
    forms = [
        replace(form, days=tuple(sorted(days[at] for at in same)), memories=tuple(same))
        for same, form in zip(groups, read, strict=True)
    ]
    return sorted(forms, key=lambda form: (form.text, form.days))


def _read_forms(groups: Sequence[Sequence[str]], fields: frozenset[str]) -> list[_Form]:
    """Return the form of each group of texts that are the same but for numbers, without days and memories."""
    forms = []
    for same in groups:
        text = _mark_slots(same)
        # A field begins a sentence.
        text = _FIELDS.sub(lambda match: f"\n\n{match[0]}" if match[0] in fields else match[0], text)
        bare = _FIELDS.sub(lambda match: " " if match[0] in fields else match[0], _ADDRESSES.sub(" ", text))
        questions = (_has_lesson, _asks, _advises)
        is_lesson, asks, advises = (ask_once(one.__name__, text, find=partial(one, text)) for one in questions)
        forms.append(_Form(text, bare, (), (), is_lesson, asks, advises))
    return forms


def _has_lesson(text: str) -> bool:
    sentences = extract_sentences(text)
    texts = [one.text for one in sentences]
    has_lesson = any(one.readability >= READABLE and tells_lesson(one.text, texts) for one in sentences)
    return has_lesson and not is_bug_report(text)


def _asks(text: str) -> bool:
    lessons = [read_lesson(one.text) for one in extract_sentences(text)]
    has_question = any(lesson.role == "question" for lesson in lessons)
    return has_question or (len(lessons) == 1 and is_request(lessons[0].text))


def _advises(text: str) -> bool:
    lessons = (read_lesson(one.text) for one in extract_sentences(text))
    return any(lesson.role in ("rule", "warning") and not is_request(lesson.text) for lesson in lessons)


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


class _Summary:
    """The lines of a summary of some forms in about ``room`` characters.

    ``days``: of all memories of the forms, sorted. ``replaced``: number of further memories, which newer ones replaced.
    """

    def __init__(self, forms: Sequence[_Form], room: int, days: Sequence[date], replaced: int) -> None:
        self.forms = forms
        self.days = days
        self.frames = choose_frames([form.text for form in forms])
        self.replaced = self.frames.replaced.format(replaced) if replaced else ""
        self.count = len(days) + replaced
        self.room = room
        self.told: set[int] = set()
        self._stems: dict[int, set[str]] = {}
        self.counts = [len(form.days) for form in forms]
        asked = self._weigh([at for at, form in enumerate(forms) if form.asks])
        self.is_asked = asked >= _ASKED_SHARE * sum(self.counts)
        advising = sum(form.is_lesson and form.advises for form in forms)
        self.has_advice = advising >= max(MIN_SIZE, _ADVICE_SHARE * len(forms))
        self.repeated = self._find_repeated()
        left = [at for at in range(len(forms)) if at not in {*self.repeated}]
        lessons = [at for at in left if self._is_lesson(at)]
        named = [at for at in left if not self._is_lesson(at)]
        self.left = room - _HEAD_CHARS - sum(len(self._tell_repeated(at)) + 1 for at in self.repeated)
        self.left -= (_LEAST_CHARS if named else 0) + len(self.replaced)
        self.topics = self._find_topics(lessons, named)
        self.has_lessons = not any(at in {*named} for topic in self.topics for at in topic)
        in_topic = {at for topic in self.topics for at in topic}
        if not in_topic and not self.repeated:
            self.topics = [lessons or named]
            in_topic = {*self.topics[0]}
        self.other_lessons = [at for at in lessons if at not in in_topic]
        self.named = [at for at in named if at not in in_topic]

    def _is_lesson(self, at: int) -> bool:
        """Return True for a lesson; among questions, what is no advice, or hardly any, tells of who asks."""
        return self.forms[at].is_lesson and (not self.is_asked or (self.has_advice and self.forms[at].advises))

    def write(self) -> str:
        """Return a line above the topics, one for each topic by its first day, and those for what is in none.

        ``told`` then has the positions of the forms that these lines tell something of.
        """
        self.told |= {*self.repeated}
        lines = [(*self._order([at]), self._tell_repeated(at)) for at in self.repeated]
        told = self._tell_topics()
        untold = [at for topic, line in zip(self.topics, told, strict=True) if line is None for at in topic]
        lines += [
            (*self._order(topic), self._join(line, topic))
            for topic, line in zip(self.topics, told, strict=True)
            if line is not None
        ]
        rest = [*self.other_lessons, *self.named, *untold]
        if not lines:
            # However short the memories are, a lesson is told.
            self.left = max(self.left, MIN_CHARS - _HEAD_CHARS)
        others = [at for at in rest if self._is_lesson(at) and self.left >= _LEAST_CHARS]
        titles = {_fold_title(line.title) for line in told if line is not None}
        tail = [self._tell_others(others), self._tell_named([at for at in rest if at not in {*others}], titles)]
        written = [*(line for *_, line in sorted(lines)), *filter(None, tail)]
        if len(written) == 1 and not self.replaced:
            return written[0]
        topics = self.frames.topic if len(lines) == 1 else self.frames.topics.format(len(lines))
        guesses = sum(TRIED in line or TO_TRY in line for line in written)
        note = f". {_GUESSES}" if guesses >= _MANY_GUESSES else ""
        head = [self._tell_count(self.count), self.replaced, self._tell_span(self.days), topics if lines else ""]
        return "\n".join([f"{', '.join(filter(None, head))}{note}:", *written])

    def _find_repeated(self) -> list[int]:
        """Return the positions of the forms that are repeated so often that each is a topic alone."""
        fewest = max(_FEWEST_REPEATS, _REPEATED_SHARE * sum(self.counts)) if len(self.forms) > 1 else 1
        found: list[int] = []
        left = self.room
        for at in sorted(range(len(self.forms)), key=lambda at: (-self.counts[at], at)):
            left -= len(self._tell_repeated(at))
            if self.counts[at] < fewest or left < 0:
                break
            found.append(at)
        return found

    def _find_topics(self, lessons: Sequence[int], named: Sequence[int]) -> list[list[int]]:
        """Return the positions of the forms of each topic: of lessons, and of the others if they are most."""
        weights = [self._weigh(part) for part in (lessons, named)]
        share = weights[0] / max(1, sum(weights)) if weights[1] > _MOSTLY * sum(weights) else 1.0
        topics: list[list[int]] = []
        parts = (lessons, share * self.left, _LINE_CHARS), (named, (1 - share) * self.left, _EXAMPLES_CHARS)
        for part, room, chars in parts:
            most = max(round(room / chars), 0 if self.repeated or room <= 0 else 1)
            found = find_topics([self.forms[at].bare for at in part], [self.counts[at] for at in part], most=most)
            topics += [[part[at] for at in topic] for topic in found]
        return sorted(topics, key=lambda topic: (-self._weigh(topic), topic[0]))

    def _tell_topics(self) -> list[TopicLine | None]:
        """Return what is told of each topic, None for one without room or a lesson that stands for it."""
        groups = self._build_groups([*self.topics])
        told: list[TopicLine | None] = []
        statements: list[str] = []
        titles: set[str] = set()
        for number, group in enumerate(groups):
            if number and self.left < _LEAST_CHARS:
                told.append(None)
                continue
            room = self.left // (len(groups) - number + bool(self.other_lessons)) - _WHEN_CHARS
            has_lessons = any(self._is_lesson(at) for at in self.topics[number])
            line = group.tell_topic(room, told=statements, titles=titles, has_lessons=has_lessons)
            if self._is_of_few(line, self.topics[number]):
                told.append(None)
                continue
            told.append(line)
            self._mark_told(self.topics[number], line.texts)
            titles.add(line.title)
            statements += filter(None, (line.lead, line.text))
            self.left -= len(line.title) + len(line.lead) + len(line.text) + _WHEN_CHARS
        return told

    def _is_of_few(self, line: TopicLine, topic: Sequence[int]) -> bool:
        """Return True if a line without a title opens with a lesson that few memories of the topic say."""
        said = self._count_said(line, topic) if line.lead else None
        return said is not None and len(topic) > 1 and said <= _FEW_SHARE * self._weigh(topic)

    def _build_groups(self, topics: Sequence[Sequence[int]]) -> list[TopicGroup]:
        units = [[self._build_unit(at) for at in sorted(topic[:_MAX_RANKED])] for topic in topics]
        rankings = rank_sentences(
            [[one.text for one in own] for own in units], [[one.weight for one in own] for own in units]
        )
        return [TopicGroup(*one, self.frames) for one in zip(units, rankings, self._find_terms(topics), strict=True)]

    def _find_terms(self, topics: Sequence[Sequence[int]]) -> list[tuple[str, ...]]:
        texts = [[self.forms[at].bare for at in topic[:_MAX_RANKED]] for topic in topics]
        return find_key_terms(texts, count=_TOPIC_TERMS)

    def _build_unit(self, at: int) -> Unit:
        form = self.forms[at]
        return Unit(id=f"{at:09}", text=form.text, memory_type="learning", weight=len(form.days), day=form.days[-1])

    def _tell_others(self, positions: Sequence[int]) -> str:
        """Return the line of lessons that are in no topic."""
        if not positions:
            return ""
        head = f"{self.frames.other_lessons} {self._when(positions)}"
        near = sorted(positions, key=lambda at: (-self.counts[at], at))[:_MAX_RANKED]
        line = self._build_groups([near])[0].tell_topic(self.left - len(head), is_named=False)
        head = f"{self.frames.other_lessons} {self._when(positions, self._count_said(line, near))}"
        self.left -= len(head) + len(line.text)
        if not line.is_lesson:
            return f"{head}."
        self._mark_told(near, line.texts)
        return f"{head}:{line.text}"

    def _mark_told(self, positions: Sequence[int], places: Collection[int]) -> None:
        """Note the forms that a line tells something of. ``places``: among the units of its group."""
        units = sorted(positions[:_MAX_RANKED])
        self.told.update(units[place] for place in places)

    def _tell_named(self, positions: Sequence[int], titles: Collection[str]) -> str:
        """Return the line of memories that only name a change, a task or a question.

        Args:
            titles: Titles of topics; other matters with one of them are only counted.
        """
        if not positions:
            return ""
        is_alone = self.has_lessons and not any(self._is_lesson(at) for at in positions)
        texts = [self.forms[at].bare.lstrip().split("\n", 1)[0] for at in positions]
        found = find_topics(texts, [self.counts[at] for at in positions], most=_NAMED)
        topics = [[positions[at] for at in topic] for topic in found]
        counts = Counter[str]()
        for topic, terms in zip(topics, self._find_terms(topics), strict=True):
            named = [self.forms[at].text for at in topic[:_MAX_RANKED]]
            name = name_topic(named, terms)
            # "Top-up" and "Top up" are one.
            name = next((other for other in counts if _fold_title(other) == _fold_title(name)), name)
            counts[name if is_alone or _fold_title(name) not in titles else ""] += sum(self.counts[at] for at in topic)
        is_telling = counts.total() >= _TOLD_SHARE * self._weigh(positions)
        for title in sorted(counts, key=len):
            wider = [other for other in counts if title and other != title and names_told(title, other, share=1.0)]
            if wider:
                counts[min(wider, key=lambda other: (-counts[other], other))] += counts.pop(title)
        names = [title for title in counts if title and is_telling]
        self.told |= find_few_holders(names, {at: self.forms[at].text for at in positions})
        # Of a topic, some memories may be on something else.
        holding = {title: self._count_holders(title, positions) for title in names}
        ranked = sorted(((title, holding[title]) for title in names), key=lambda pair: (-pair[1], pair[0]))
        told = ", ".join(f"{title} ({count})" if count >= _FEWEST_COUNTED else title for title, count in ranked)
        label = self.frames.without_lesson if is_alone else self.frames.other_matters
        return f"{label} {self._when(positions)}{f': {told}' if told else ''}."

    def _tell_repeated(self, at: int) -> str:
        """Return the line of what is repeated: its opening, and what it teaches."""
        sentences = extract_sentences(self.forms[at].text)
        told = finish_statement(drop_open_quotation(sentences[0].text)).removesuffix(".")
        if len(sentences) == 1 or not self.forms[at].is_lesson:
            return f"{told} {self._when([at])}."
        unit = replace(self._build_unit(at), weight=1.0)
        ranking = rank_sentences([[unit.text]])[0]
        line = TopicGroup([unit], ranking, (), self.frames).tell_topic(_SENTENCE_CHARS, told=[told])
        lesson = f"{line.lead} {line.text}".strip()
        return f"{told} {self._when([at])}: {lesson}" if line.is_lesson else f"{told} {self._when([at])}."

    def _join(self, line: TopicLine, topic: Sequence[int]) -> str:
        """Return the line of a topic. A number behind its title is that of the memories with all words of the title."""
        holding = self._count_holders(line.title, topic) if line.title else 0
        if holding < _FEWEST_COUNTED:
            told = [": ".join(filter(None, (line.title, line.text)))] if line.title else [line.lead, line.text]
            said = self._count_said(line, topic) if line.lead else None
            return f"{self._when(topic, said).strip('()')}: {' '.join(filter(None, told))}"
        when = self._when(topic, holding)
        return f"{line.title} {when}: {line.text}" if line.text else f"{line.title.removesuffix('.')} {when}."

    def _count_said(self, line: TopicLine, positions: Sequence[int]) -> int | None:
        """Return the number of memories that say the lessons of a line; None if it has none."""
        units = sorted(positions[:_MAX_RANKED])
        return self._weigh([units[place] for place in line.said]) if line.said else None

    def _count_holders(self, title: str, positions: Sequence[int]) -> int:
        """Return the number of memories that have all words of a title."""
        stems = {term.stem for term in extract_terms(title)}
        return self._weigh(
            [at for at in positions if holds_title(title, stems, self.forms[at].text, self._list_stems(at))]
        )

    def _list_stems(self, at: int) -> set[str]:
        if at not in self._stems:
            self._stems[at] = {term.stem for term in extract_terms(self.forms[at].text)}
        return self._stems[at]

    def _order(self, positions: Sequence[int]) -> tuple[date, date, int]:
        days = self._list_days(positions)
        return days[0], days[-1], -len(days)

    def _weigh(self, positions: Sequence[int]) -> int:
        return sum(self.counts[at] for at in positions)

    def _list_days(self, positions: Sequence[int]) -> list[date]:
        return sorted(day for at in positions for day in self.forms[at].days)

    def _when(self, positions: Sequence[int], holding: int | None = None) -> str:
        """Return the number of memories and their days; without the day if that is the day of all.

        ``holding``: number of the memories that are meant; None = all.
        """
        days = self._list_days(positions)
        is_known = self.days[0] == self.days[-1] and len(days) < len(self.days)
        count = self._tell_count(len(days))
        count = count if holding in (None, len(days)) else self.frames.part.format(holding, count)
        return f"({count})" if is_known else f"({count}, {self._tell_span(days)})"

    def _tell_count(self, memories: int) -> str:
        return self.frames.memory if memories == 1 else self.frames.memories.format(memories)

    def _tell_span(self, days: Sequence[date]) -> str:
        first, last = days[0].isoformat(), days[-1].isoformat()
        return first if first == last else self.frames.span.format(first, last)


def _fold_title(title: str) -> str:
    return title.replace("-", " ").casefold()
