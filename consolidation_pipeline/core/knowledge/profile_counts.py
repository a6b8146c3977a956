"""Profiles without a model: how a project or user works, counted over the memories; no sentence of them is quoted."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from consolidation_pipeline.core.differences.language import NAMES
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.lesson_sentences import is_question
from consolidation_pipeline.core.knowledge.observation import Observation
from consolidation_pipeline.core.knowledge.phrases import load_phrases
from consolidation_pipeline.core.knowledge.repeated_advice import find_repeated_advice
from consolidation_pipeline.core.knowledge.summary_frames import find_common_language
from consolidation_pipeline.core.knowledge.technology_names import find_languages, find_tools
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.boilerplate import strip_repeats
from consolidation_pipeline.core.text.key_terms import extract_terms, find_key_terms, is_unspaced
from consolidation_pipeline.core.text.sentences import extract_sentences

# The keys of the lines in ``details``, which are those of a model's reply, and of their headings.
HEADINGS = {
    "communication_preferences": "communication",
    "technical_preferences": "techniques",
    "work_patterns": "habits",
    "context": "context",
}
# What fewer memories have is told in no list. Shares are told from this many memories on.
_FEWEST = 3
_FEWEST_FOR_SHARE = 10
# An instruction is a habit if one in so many memories has it.
_ROWS_PER_REPEAT = 50
# An opening of so many words is told from this share of the memories on.
_OPENING, _OPENING_SHARE = 3, 0.2
# A smaller share is not told.
_SHARE = 0.05
_MOST_LISTED = 8
_MOST_FILES = 6
_MOST_ADVICE = 6
# With fewer tags, the subjects are told by terms too.
_FEW_TAGS = 4
# Success rates of tags are told if they differ from the mean by this much, with this many rated memories.
_RATE_DIFFERENCE = 0.1
_FEWEST_RATED = 10
# The last part of the memories is compared with what came before, if it has enough for shares to tell something.
_LATE_SHARE = 0.25
_LATE_LIFT = 2.0
_FEWEST_LATE = 20
# Standard deviations from which a share of the last part is no chance.
_DEVIATIONS = 1.96
# Days and hours are told if memories were written on so many days, hours if times of day are known for half of them.
_FEWEST_DAYS = 5
# The hours with this share of the memories, if they are no more than so many.
_WORK_SHARE = 0.8
_MOST_HOURS = 16
# Weekends are two sevenths of the time. Told over three weeks, if memories are clearly rarer or more frequent on them.
_SATURDAY = 5
_FEWEST_DAYS_OF_WEEKS = 21
_LOW, _HIGH = 0.15, 0.45
# Names of the languages that are found in texts, and their text search configurations.
_FOUND_IN_TEXTS = frozenset(("simple", *(name.lower() for name in NAMES.values())))
_LIST = re.compile(r"(?m)^\s*(?:[-*•]|\d+[.)])\s")
_CODE = re.compile(r"```|`[^`]+`|\{code")
_FIRST_PERSON = re.compile(r"\b(?:I|I['’]\w+|my|we|our|ich|wir|je|nous|yo|nosotros)\b")
_POLITE = frozenset(("please", "thanks", "thank", "hello"))
# Names of things: with a capital inside, all capitals, or joined by signs. The first look passes over plain words.
_NAME = re.compile(
    r"(?<![\w./-])(?=\w[a-z]*[^\Wa-z])"
    r"(?:[A-Z]{2,}[A-Z0-9]*|[a-zA-Z]+[a-z][A-Z]\w*|[a-z]+(?:_[a-z]+)+|[A-Z]\w*\d\w*)(?![\w/])"
)
_NOT_NAMES = frozenset(
    "TODO FIXME NOTE OK NOT AND OR MUST NEVER ALWAYS DO NO IF THE ERROR INFO WARN FAILURE ID IDS TBD WIP".split()
)
# The busiest day has this many times the notes of an average one.
_BUSY = 2
# Roman numbers, zones of time and methods of HTTP name nothing that the notes are about.
_NO_NAME = re.compile(r"[IVX]+|UTC|GMT|[ECMPW][ES]T|CEST|BST|JST|GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|TRACE|CONNECT")

_PHRASES = load_phrases("profile_phrases.toml", dict[str, str])


@dataclass(frozen=True)
class CountedProfile:
    """Lines of a profile by heading (keys of ``HEADINGS``); a heading without evidence has none.

    ``language``: of its words, a table of ``profile_phrases.toml``.
    """

    parts: dict[str, list[str]] = field(default_factory=dict)
    language: str = "en"

    @property
    def content(self) -> str:
        """The headings that have lines, each with its lines."""
        blocks = (
            [f"{_PHRASES[self.language][name]}:", *(f"- {line}" for line in self.parts[key])]
            for key, name in HEADINGS.items()
            if self.parts[key]
        )
        return "\n".join(line for block in blocks for line in block)


def count_profile(observations: Sequence[Observation], *, boilerplate: Collection[str] = ()) -> CountedProfile:
    """Return the profile of memories, which tells only counts, shares, names and phrases that several memories share.

    Communication: language, length and form of the texts. Techniques: languages, tools and files. Habits: kinds of
    memories, success, days and hours, advice that is repeated. Context: period, subjects, names, what is new of late.
    The order of the memories does not matter.

    Args:
        observations: The memories; of none, the profile has no lines.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to leave out of memories that hold anything else.
    """
    if not observations:
        return CountedProfile({key: [] for key in HEADINGS})
    ordered = sorted(observations, key=lambda one: (one.learned_at, one.text))
    language = find_common_language([one.text for one in ordered])
    counted = _Counter(ordered, strip_repeats([one.text for one in ordered], boilerplate), language)
    return CountedProfile(
        {
            "communication_preferences": counted.tell_communication(),
            "technical_preferences": counted.tell_techniques(),
            "work_patterns": counted.tell_habits(),
            "context": counted.tell_context(),
        },
        language,
    )


@dataclass(frozen=True)
class _Counter:
    """Counts over memories, oldest first. ``texts``: theirs, without boilerplate. ``language``: of the words."""

    rows: Sequence[Observation]
    texts: Sequence[str]
    language: str

    @property
    def phrases(self) -> Mapping[str, str]:
        """Words of the language, by their key."""
        return _PHRASES[self.language]

    def tell_communication(self) -> list[str]:
        """Return lines on language, length and form of the texts."""
        lines = self._tell_languages()
        words = sorted(len(one.text.split()) for one in self.rows)
        if len(words) >= _FEWEST_FOR_SHARE and self._count(is_unspaced) < _SHARE * len(words):
            half, most = words[(len(words) - 1) // 2], words[int(0.9 * (len(words) - 1))]
            size = self.phrases["line_long" if half <= 20 else "short" if half <= 60 else "long"]
            lines.append(self._say("words", size=size, half=half, most=most))
        forms = (
            ("titles", self._count(_has_title)),
            ("lists", self._count(lambda text: _LIST.search(text) is not None)),
            ("code", self._count(lambda text: _CODE.search(text) is not None)),
            ("first_person", self._count(lambda text: _FIRST_PERSON.search(text) is not None)),
            ("questions", self._count_saying(is_question)),
        )
        told = [f"{_percent(n, len(self.rows))} {self.phrases[name]}" for name, n in forms if self._is_told(n)]
        stripped = sum(text.split() != one.text.split() for one, text in zip(self.rows, self.texts, strict=True))
        filled = self._say("filled", share=_percent(stripped, len(self.rows)))
        return [
            *lines,
            *([self._say("forms", told=", ".join(told))] if told else []),
            *self._tell_opening(),
            *([filled] if self._is_told(stripped) else []),
        ]

    def _tell_languages(self) -> list[str]:
        """Return a line on the languages of the texts, if most of them are known."""
        found = Counter(filter(None, map(_find_language, self.rows)))
        # Other languages have their own names there: "français, español".
        shown = [self.language] if self.language == "en" else [*_PHRASES]
        own = {NAMES[language]: _PHRASES[language]["own_name"] for language in shown}
        languages = [(own.get(name, name), n) for name, n in _rank(found, 1) if n >= _SHARE * found.total()][:3]
        if 2 * found.total() < max(len(self.rows), _FEWEST):
            return []
        if len(languages) == 1:
            return [self._say("languages", names=languages[0][0])]
        told = [f"{name} {_percent(n, found.total())}" for name, n in languages]
        return [self._say("languages", names=", ".join(told))]

    def tell_techniques(self) -> list[str]:
        """Return lines on languages, tools and files."""
        languages = Counter(name for found in self._languages for name in found)
        tools = Counter(name for found in self._tools for name in found)
        files = Counter(file for one in self.rows for file in set(one.files))
        folders = Counter(folder for one in self.rows for folder in {_folder(file) for file in one.files} if folder)
        return [
            *_tell_list(self.phrases["formats"], _rank(languages)),
            *_tell_list(self.phrases["tools"], _rank(tools)),
            *_tell_list(self.phrases["files"], _rank(files)[:_MOST_FILES]),
            *_tell_list(self.phrases["folders"], _rank(folders)[:_MOST_FILES]),
        ]

    def tell_habits(self) -> list[str]:
        """Return lines on kinds of memories, success, days and hours, and repeated advice."""
        kinds = Counter(one.memory_type.replace("_", " ") for one in self.rows)
        told = [f"{name} {_percent(n, len(self.rows))}" for name, n in _rank(kinds, 1) if self._is_told(n)]
        # Notes that came without a kind are all of this one.
        told = [] if [*kinds] == ["learning"] else told
        kind = [self._say("one_kind", kind=told[0].rpartition(" ")[0])] if len(kinds) == 1 and told else []
        lines = kind or ([self._say("kinds", told=", ".join(told))] if told else [])
        fewest = max(_FEWEST, len(self.rows) // _ROWS_PER_REPEAT)
        advice = find_repeated_advice(self.texts, fewest=fewest, most=_MOST_ADVICE)
        quoted = ", ".join(f'"{phrase}" ({n})' for phrase, n in advice)
        return [
            *lines,
            *self._tell_success(),
            *self._tell_repeats(),
            *self._tell_times(),
            *([self._say("advice", quoted=quoted)] if advice else []),
        ]

    def tell_context(self) -> list[str]:
        """Return lines on the period, the subjects, and what is new of late."""
        first, last = self.rows[0].learned_at.date(), self.rows[-1].learned_at.date()
        days = len({one.learned_at.date() for one in self.rows})
        notes = self.phrases["note"] if len(self.rows) == 1 else self._say("notes", count=len(self.rows))
        period = (
            self._say("on_day", notes=notes, day=first.isoformat())
            if first == last
            else self._say("on_days", notes=notes, first=first.isoformat(), last=last.isoformat(), days=days)
        )
        sources = [
            self._say(name, count=len(found))
            for name, found in (
                ("sessions", {one.session for one in self.rows} - {None}),
                ("agents", {one.agent for one in self.rows} - {None}),
            )
            if len(found) > 1
        ]
        tags = Counter(tag for one in self.rows for tag in set(one.tags) if any(map(str.isalpha, tag)))
        found = find_key_terms([self.texts], count=_MOST_LISTED + len(_POLITE))[0] if len(tags) < _FEW_TAGS else ()
        # Where no spaces part them, terms are pieces of words.
        terms = [term for term in found if term not in _POLITE and not is_unspaced(term)][:_MOST_LISTED]
        origin = self.phrases["and"].join(sources)
        return [
            self._say("with_sources", told=period[:-1], sources=origin) if sources else period,
            *_tell_list(self.phrases["tags"], _rank(tags)),
            *([self._say("terms", terms=", ".join(terms))] if terms else []),
            *_tell_list(self.phrases["names"], _rank(self._count_names())),
            *self._tell_news(),
        ]

    def _tell_success(self) -> list[str]:
        rated = [one for one in self.rows if one.success is not None]
        if len(rated) < _FEWEST_FOR_SHARE:
            return []
        succeeded = sum(bool(one.success) for one in rated)
        rate = succeeded / len(rated)
        of_tag = Counter(tag for one in rated for tag in set(one.tags))
        wins = Counter(tag for one in rated for tag in set(one.tags) if one.success)
        told = []
        for phrase, sign in (("more_success", 1), ("less_success", -1)):
            gains = {tag: sign * (wins[tag] / n - rate) for tag, n in of_tag.items() if _FEWEST_RATED <= n < len(rated)}
            # What differs much counts more if it was rated often (the standard score of a share).
            differing = sorted(
                (tag for tag, gain in gains.items() if gain >= _RATE_DIFFERENCE),
                key=lambda tag: (-round(gains[tag] * of_tag[tag] ** 0.5, 9), tag),
            )
            shares = [
                self._say("of", tag=tag, share=_percent(wins[tag], of_tag[tag]), count=of_tag[tag])
                for tag in differing[:2]
            ]
            told += [self._say(phrase, tags=", ".join(shares))] if shares else []
        return [f"{'; '.join([self._say('success', rate=f'{rate:.0%}', count=len(rated)), *told])}."]

    def _tell_repeats(self) -> list[str]:
        distinct = len(set(map(normalize_text, self.texts)))
        repeats = len(self.texts) - distinct
        if not self._is_told(repeats):
            return []
        return [self._say("repeats", repeats=repeats, all=len(self.texts), distinct=distinct)]

    def _tell_times(self) -> list[str]:
        """Return lines on the days and the hours on which most memories were written."""
        days = Counter(one.learned_at.date() for one in self.rows)
        if len(days) < _FEWEST_DAYS or len(self.rows) < 2 * _FEWEST_FOR_SHARE:
            return []
        busiest = max(days, key=lambda day: (days[day], day))
        told = []
        if days[busiest] >= max(_FEWEST, _BUSY * len(self.rows) / len(days)):
            told.append(self._say("busiest", count=days[busiest], day=busiest.isoformat()))
        at_weekends = sum(one.learned_at.weekday() >= _SATURDAY for one in self.rows) / len(self.rows)
        if (max(days) - min(days)).days >= _FEWEST_DAYS_OF_WEEKS and not _LOW <= at_weekends <= _HIGH:
            told.append(self._say("weekends", week=f"{1 - at_weekends:.0%}", weekend=f"{at_weekends:.0%}"))
        # Without a time of day, a date was imported as midnight.
        timed = [one.learned_at for one in self.rows if one.learned_at.timestamp() % 3600]
        hours = Counter(moment.hour for moment in timed)
        busy = _find_busy([hours[hour] for hour in range(24)])
        if 2 * len(timed) >= len(self.rows) and len(busy) <= _MOST_HOURS:
            share = _percent(sum(hours[hour] for hour in busy), len(timed))
            told.append(self._say("hours", share=share, start=busy[0], end=(busy[-1] + 1) % 24))
        told[:1] = [line[:1].upper() + line[1:] for line in told[:1]]
        return [f"{'; '.join(told)}."] if told else []

    def _tell_news(self) -> list[str]:
        """Return the tags and tools that are more, or less, frequent in the last part of the memories."""
        before = round(len(self.rows) * (1 - _LATE_SHARE))
        since = self.rows[min(before, len(self.rows) - 1)].learned_at.date()
        if len(self.rows) - before < _FEWEST_LATE or self.rows[0].learned_at.date() == since:
            return []
        early, late = Counter[str](), Counter[str]()
        for at, (one, tools) in enumerate(zip(self.rows, self._tools, strict=True)):
            subjects = {name.lower(): name for name in [*sorted(tools), *sorted(one.tags)]}
            (early if at < before else late).update(subjects.values())
        sizes = before, len(self.rows) - before
        told = []
        for word, many, few in (("more", late, early), ("less", early, late)):
            own, rest = sizes if many is early else sizes[::-1]
            shifted = [
                name
                for name, n in _rank(many, 2 * _FEWEST)
                if n / own >= _LATE_LIFT * (few[name] + 0.5) / (rest + 0.5)
                and _stands_out(n, n + few[name], own / (own + rest))
            ]
            for name in shifted[:3]:
                counts = {"late": late[name], "new": sizes[1], "early": early[name], "old": sizes[0]}
                told.append(self._say(word, name=name, **counts))
        return [self._say("news", day=since.isoformat(), told=", ".join(told))] if told else []

    def _say(self, phrase: str, **words: object) -> str:
        return self.phrases[phrase].format(**words)

    def _count_names(self) -> Counter[str]:
        """Return how many memories have each name that is no language or tool."""
        known = {name.lower() for found in (*self._languages, *self._tools) for name in found}
        names = Counter(name for text in self.texts for name in set(_NAME.findall(text)) if _is_name(name))
        return Counter({name: n for name, n in names.items() if name.lower() not in known})

    def _tell_opening(self) -> list[str]:
        """Return the words with which many memories open."""
        openings = Counter(" ".join(words[:_OPENING]) for text in self.texts if len(words := text.split()) > _OPENING)
        opening, count = min(openings.items(), key=lambda one: (-one[1], one[0]), default=("", 0))
        if count < _OPENING_SHARE * len(self.rows) or not self._is_told(count):
            return []
        return [self._say("opening", share=_percent(count, len(self.rows)), opening=opening)]

    @cached_property
    def _languages(self) -> list[set[str]]:
        """Return the languages and formats of each memory."""
        rows = zip(self.rows, self.texts, strict=True)
        return [find_languages(text, one.tags, one.files) for one, text in rows]

    @cached_property
    def _tools(self) -> list[set[str]]:
        """Return the tools of each memory."""
        return [find_tools(text, one.tags) for one, text in zip(self.rows, self.texts, strict=True)]

    def _count_saying(self, cue: Callable[[str], bool]) -> int:
        """Return the number of memories with a sentence that has the cue."""
        return sum(any(map(cue, sentences)) for sentences in self._sentences)

    @cached_property
    def _sentences(self) -> list[list[str]]:
        return [[one.text for one in extract_sentences(text)] for text in self.texts]

    def _count(self, holds: Callable[[str], bool]) -> int:
        return sum(map(holds, self.texts))

    def _is_told(self, count: int) -> bool:
        return len(self.rows) >= _FEWEST_FOR_SHARE and count >= max(_FEWEST, _SHARE * len(self.rows))


def _find_language(one: Observation) -> str:
    """Return the name of the language of a text; empty if it is not known.

    The language of the row is that of the project unless the source names one, so it tells only of languages that
    texts are not searched for.
    """
    stored = one.language.rpartition(".")[2]
    return stored.title() if stored not in _FOUND_IN_TEXTS else NAMES.get(detect_language(one.text) or "", "")


def _has_title(text: str) -> bool:
    first, _, rest = text.partition("\n")
    return bool(rest.strip()) and first.strip()[-1:].isalnum()


def _is_name(written: str) -> bool:
    """Return True if it is not a plain word in capitals."""
    if written in _NOT_NAMES or _NO_NAME.fullmatch(written):
        return False
    return next(iter(extract_terms(written)), None) is not None


def _folder(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[0]


def _rank(counts: Counter[Any], fewest: int = _FEWEST) -> list[tuple[Any, int]]:
    return sorted(((name, n) for name, n in counts.items() if n >= fewest), key=lambda item: (-item[1], str(item[0])))


def _tell_list(name: str, ranked: Sequence[tuple[str, int]]) -> list[str]:
    shown = ", ".join(f"{one} ({n})" for one, n in ranked[:_MOST_LISTED])
    return [f"{name}: {shown}."] if shown else []


def _percent(count: int, total: int) -> str:
    return f"{count / total:.0%}"


def _stands_out(count: int, total: int, share: float) -> bool:
    """Return True if ``count`` of ``total`` are more than chance puts into a part of all with this ``share``."""
    return count - total * share >= _DEVIATIONS * math.sqrt(total * share * (1 - share))


def _find_busy(counts: Sequence[int]) -> list[int]:
    """Return the shortest run of neighbours, of which the last is beside the first, with four fifths of the counts."""
    total, size = sum(counts), len(counts)
    runs: Iterable[list[int]] = (
        [(start + step) % size for step in range(length)] for length in range(1, size + 1) for start in range(size)
    )
    return next(run for run in runs if sum(counts[at] for at in run) >= _WORK_SHARE * total)
