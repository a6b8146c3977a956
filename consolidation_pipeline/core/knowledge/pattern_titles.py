"""Titles of groups of texts: the phrase that tells a group from the other groups, as written in its texts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from consolidation_pipeline.core.knowledge.lesson_sentences import names_task
from consolidation_pipeline.core.text.key_terms import extract_terms, find_language
from consolidation_pipeline.core.text.sentence_cues import is_command

MAX_TITLE_CHARS = 64
_MAX_WORDS = 4
_FEWEST_LETTERS = 3
# A phrase must be in this many texts of a group of several.
_MIN_TEXTS = 2
# Value of each word of a phrase after the first: a phrase reads better than its words.
_PHRASE_BONUS = 0.35

_WORD = re.compile(r"[./$@~_]{0,2}\w(?:[\w+#]|[._/:@'’-]+(?=[^\W_]))*(?:\(\))?|[^\w\s]+|\n")
# Words that may stand inside a phrase.
LINKS = frozenset("of for in on with and & / de des du la le von und für der die y del el et".split())
# Words with which no phrase begins or ends: numbers, adverbs, and verbs in the past.
_NO_END = re.compile(
    r"\d{1,3}|.+ly|@.*|.*://.*|.{31,}|noformat|code|feat|chore|wip|based|related|"
    r"due|equal|lies?|fail(?:s|ed)?|cause|lead|producing|resulting|leading|causing|incorrect|correct|wrong|expires?|seems?|"
    r"rapid|proper|true|false|regardless|minus|plus|ago|couple|several|few|many|dozen|less|more|most|please|"
    r"different|various|certain|specific|entire|actual|multiple|according|\w+['’](?:ve|re|ll|d|m|t)"
)
# Words that a phrase may begin or go on with, but that say something of what stands before them: "letters present".
NO_TAIL = re.compile(
    r"present|absent|available|divisible|greater|less|lower|larger|smaller|higher|longer|shorter|ahead|apart|true|false|twice|"
    r"thrice|today|tomorrow|yesterday|matters?|mine|yours|real|new|empty|possible|missing|broken|able|unable|multiple|different|"
    r"non|own|urgently|please|regardless|minus|plus|ago|according|odd|even|anymore|sure|additional|afraid"
)
# Particles with which a phrase may end: "top up".
_PARTICLES = frozenset("up off out".split())
# Forms in the past, but those that describe a thing: "shared cache", "broken pipe", "lost updates".
_PAST = re.compile(
    r"(?!.*(?:need|feed|seed|speed|embed|shared|based)\b).{3,}ed|took|taken|gone|went|done|did|made|gave|got|gotten|came|began|begun|"
    r"brought|held|told|said|seen|saw|thought|became|knew|chose|wrote|ran|fell|felt|met|kept"
)
# Words for one of two that link nothing in a title.
_EITHER = frozenset("in/on and/or he/she his/her him/her either/or".split())
_THIRD_PERSON = re.compile(
    r"(?:accept|appear|ask|calculate|cause|consider|contain|equal|evaluate|exist|fail|happen|hinge|include|indicate|iterate|lead|listen|mean|need|"
    r"occur|own|pay|prefer|receive|remove|replace|require|return|say|send|show|skip|start|use|work)s|specif(?:y|ies)|has|does|is|are|can"
)
# Verbs of a clause behind its subject in the plural: "workers share", "retries create double". Words that are often
# nouns, such as "cache" and "report", are not among them.
_AFTER_PLURAL = re.compile(
    r"(?<=s) (?:appear|become|break|calculate|cause|contain|create|depend|exist|fail|get|go|happen|include|keep|lead|"
    r"let|lose|make|mean|need|occur|receive|remain|remove|require|say|send|share|stay|take|use)\b"
)
_VALUES = frozenset(("true", "false"))
# Verbs by their ending.
_TITLE_VERB = re.compile(r"\w+(?:[^\W\d_]i[sz]e|ify)", re.IGNORECASE)
# A phrase that may begin with a verb, such as "open invoices", counts less.
_VERB_FACTOR = 0.5
# So does one of two things, which may be cut in the second.
_LINK_FACTOR = 0.75
_LINKING = re.compile(r"\s(?:and|&|with|in|on|for|und|y|et)\s")
_AND_VERB = re.compile(
    r"\s(?:and|&)\s(?:add|append|calculat|comput|convert|ensur|remov|replac|return)(?:e|es|s)?\b", re.I
)
# Words in -ing that are no verbs.
_NOUN = re.compile(
    r"(?:.*th|str|k|r|spr|morn|even|build|log|pric|rout|cach|test|train|monitor|process|embedd|schedul)ing", re.I
)
# Words that name no matter: a phrase of them alone is no title.
_GENERIC = frozenset(
    """
    number numbers time times value values list lists function functions element elements case cases test tests result
    results output input problem statement error errors issue issues change changes fix fixes initial correct incorrect
    expected given current new various key insight content line lines word words item items code false true way ways
    couple thing things help
    second seconds minute minutes hour hours day days week weeks month months year years
    string strings character characters integer integers first last update updates full
    implementation condition logic step steps option options data file files type types feature features improvement
    improvements comprehensive want know kind work please happen dont following next previous record records
    insights feat
    """.split()
)
# A phrase of the first line counts more, as the first line is often a title.
_HEADING_BONUS = 0.5
_WORDLIKE = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*(?:[\s,]|$)")
# A word in lower case in this share of its uses is no name.
_LOWER_SHARE = 0.2


def write_title(texts: Sequence[str], key_terms: Sequence[str], *, share: float = 0.5) -> str:
    """Return the phrase that tells a group best of those in this share of its texts; empty if there is none.

    A phrase has two to four words besides those that link them, or is a name, and at most ``MAX_TITLE_CHARS``. It
    scores by the share of texts that hold it and by the rank of its words among the ``key_terms``, which come best
    first. Words that name no matter, such as "number of times", are no title.
    """
    language = find_language("\n".join(texts))
    ranks = {term.stem: at for at, word in enumerate(key_terms) for term in extract_terms(word, language)}
    values = {stem: 1.0 - at / (len(key_terms) + 2) for stem, at in ranks.items()}
    holding: dict[tuple[str, ...], set[int]] = defaultdict(set)
    heading: Counter[tuple[str, ...]] = Counter()
    written: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for at, text in enumerate(texts):
        first, *rest = (_list_phrases(line, language) for line in text.split("\n"))
        for stems, surface in chain(first, *rest):
            if not values.keys().isdisjoint(stems):
                holding[stems].add(at)
                written[stems][surface] += 1
        if rest:
            heading.update({stems for stems, _ in first})
    scores = {
        stems: (len(found) + _HEADING_BONUS * heading[stems])
        / len(texts)
        * sum(values.get(stem, 0.0) for stem in stems)
        * (1 + _PHRASE_BONUS * (len(stems) - 1))
        * (_VERB_FACTOR if _opens_with_verb(_spell(written[stems])) else 1.0)
        * (_LINK_FACTOR if _LINKING.search(_spell(written[stems])) else 1.0)
        for stems, found in holding.items()
        if len(found) >= max(share * len(texts), min(_MIN_TEXTS, len(texts))) and len(set(stems)) == len(stems)
    }
    for stems in sorted(scores, key=lambda stems: (-round(scores[stems], 9), -len(stems), stems)):
        phrase = _spell(written[stems])
        is_name = (len(stems) > 1 or not _is_plain_word(phrase)) and not is_generic(phrase)
        is_name &= not phrase.endswith(("'s", "’s"))
        is_name &= sum(map(str.isalpha, phrase)) >= _FEWEST_LETTERS or phrase.isalpha()
        if is_name and len(phrase) <= MAX_TITLE_CHARS and not _is_clause(phrase, language):
            return capitalize(phrase)
    return ""


def names_told(title: str, told: str, *, share: float) -> bool:
    """Return True if this share of the words of a title is in a text, so that it names the matter of the text."""
    stems, said = ({term.stem for term in extract_terms(text)} for text in (title, told))
    return len(stems & said) >= share * len(stems) and bool(stems & said)


def is_generic(phrase: str) -> bool:
    """Return True for words that name no matter, such as "number of times"."""
    return all(word in _GENERIC or word in LINKS for word in phrase.lower().split())


def strip_verb(title: str) -> str:
    """Return a title without the verb of a change or command that it opens with: "Add login page", not "Port 8080"."""
    first, _, rest = title.partition(" ")
    is_verb = names_task(title) or is_command(f"{first} it") or _TITLE_VERB.fullmatch(first) is not None
    is_title = (
        any(map(str.isalpha, rest))
        and is_verb
        and not is_generic(rest)
        and rest.split(maxsplit=1)[0].lower() not in LINKS
    )
    return capitalize(rest) if is_title else title


def _opens_with_verb(phrase: str) -> bool:
    """Return True for "open invoices" and "declaring recovery"."""
    first = phrase.split(maxsplit=1)[0]
    return is_command(f"{phrase} it") or (first.endswith("ing") and not _NOUN.fullmatch(first))


def _is_clause(phrase: str, language: str) -> bool:
    """Return True for words that no title consists of: with a verb, or a form in the past at an end."""
    if language == "de" and _has_german_verb(phrase.split()):
        return True
    words = phrase.lower().split()
    is_past = any(_PAST.fullmatch(word) for word in (words[0], words[-1]))
    # "Adds", not "retry", which may be a noun.
    is_verb = words[0].endswith("s") and is_command(f"{words[0].removesuffix('s')} it")
    is_verb = len(words) > 1 and (is_verb or words[-1].endswith("ing"))
    # "Tuple and return" goes on with what is done.
    is_verb |= _AND_VERB.search(phrase) is not None
    # "Lengths and false for odd" says what is returned.
    is_value = not _VALUES.isdisjoint(words)
    is_verb |= _AFTER_PLURAL.search(phrase.lower()) is not None
    return is_past or is_verb or is_value or any(_THIRD_PERSON.fullmatch(word) for word in words)


def _has_german_verb(words: Sequence[str]) -> bool:
    """Return True if a plain word in lower case stands behind a noun, or not before one: no adjective does."""
    plain = [word.isalpha() and word.islower() and word not in LINKS for word in words]
    behind_noun = any(one[:1].isupper() and is_plain for one, is_plain in zip(words, plain[1:], strict=False))
    before_link = any(
        is_plain and one in LINKS and one != "und" for is_plain, one in zip(plain, words[1:], strict=False)
    )
    return behind_noun or before_link or plain[-1]


def _is_plain_word(phrase: str) -> bool:
    return phrase.isalpha() and (phrase[1:].islower() or len(phrase) == 1)


def capitalize(title: str) -> str:
    """Return a title with a capital, unless it opens with an identifier."""
    first = title.split(maxsplit=1)[0] if title else ""
    return title[:1].upper() + title[1:] if first.islower() and _WORDLIKE.match(title) else title


class _Word(NamedTuple):
    """A word as written, with its term, and what it may do in a phrase."""

    text: str
    stem: str | None
    is_link: bool
    is_particle: bool
    is_end: bool
    is_tail: bool


# A topic without a phrase of most of its texts is named by one of a few of them.
@lru_cache(maxsize=1 << 9)
def _list_phrases(line: str, language: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Return the phrases of a line: the stems of their terms, and the words as written."""
    run: list[_Word] = []
    phrases: list[tuple[tuple[str, ...], str]] = []
    for token in _WORD.findall(line):
        if word := _read_word(token, language):
            run.append(word)
        elif run:
            phrases += _split_run(run)
            run = []
    return (*phrases, *_split_run(run))


@lru_cache(maxsize=1 << 14)
def _read_word(token: str, language: str) -> _Word | None:
    """Return a word that may stand in a phrase, None for other words and signs."""
    term = next(iter(extract_terms(token, language)), None) if token[-1:].isalnum() or token.endswith("()") else None
    lower = token.lower()
    is_link, is_particle = lower in LINKS, lower in _PARTICLES
    if lower in _EITHER or (term is None and not is_link and not is_particle):
        return None
    is_end = term is not None and not _NO_END.fullmatch(lower)
    is_tail = is_end and not NO_TAIL.fullmatch(lower)
    return _Word(token, term and term.stem, is_link, is_particle, is_end, is_tail)


def _split_run(run: Sequence[_Word]) -> Iterator[tuple[tuple[str, ...], str]]:
    for start, first in enumerate(run):
        if not first.is_end:
            continue
        stems: list[str] = []
        surface, size, follows_term = "", 0, False
        for word in run[start:]:
            size += not word.is_link
            if size > _MAX_WORDS:
                break
            surface = f"{surface} {word.text}" if surface else word.text
            if word.stem is not None:
                stems.append(word.stem)
            if word.is_particle:
                stems.append(word.text.lower())
            if word.is_tail or (word.is_particle and follows_term):
                yield tuple(stems), surface
            follows_term = word.stem is not None


def _spell(surfaces: Counter[str]) -> str:
    """Return the most frequent spelling, in lower case unless it is a name."""
    plain = Counter({surface: count for surface, count in surfaces.items() if surface.islower()})
    chosen = plain if plain.total() >= _LOWER_SHARE * surfaces.total() else surfaces
    return min(chosen, key=lambda surface: (-chosen[surface], len(surface), surface))
