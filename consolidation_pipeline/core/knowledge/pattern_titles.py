"""Titles of groups of texts: the phrases that tell a group from the other groups, as written in its texts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from consolidation_pipeline.core.text.key_terms import Term, extract_terms

MAX_TITLE_CHARS = 64
_MAX_PHRASES = 3
_MAX_WORDS = 4
# A phrase must be in this many texts of a group of three or more, and in this share of those that hold the first one.
_MIN_TEXTS = 2
_MIN_SHARE = 0.3
# A further phrase must score this much of the first.
_MIN_SCORE = 0.4
# Value of each word of a phrase after the first: a phrase reads better than its words.
_PHRASE_BONUS = 0.35

_WORD = re.compile(r"[./$@~_]{0,2}\w(?:[\w+#]|[._/:@'’-]+(?=[^\W_]))*(?:\(\))?|[^\w\s]+|\n")
# Words that may stand inside a phrase.
_LINKS = frozenset("of for in on with and & / de des du la le von und für der die y del el et".split())
# Words with which no phrase begins or ends: numbers, adverbs, and verbs in the past.
_NO_END = re.compile(r"\d{1,3}|.+ly|@.*|.*://.*|.{31,}|noformat|code|feat|chore|wip")
# Particles with which a phrase may end: "top up".
_PARTICLES = frozenset("up off out".split())
_PAST = re.compile(r"(?!.*(?:need|feed|seed|speed|embed|shared|based)\b).{3,}ed")
_PAST_FACTOR = 0.5
# A phrase of the first line counts more, as the first line is often a title.
_HEADING_BONUS = 0.5
# A title names what is told, or what this share of the texts speaks of; without a headline, a smaller share.
_MOST, _MANY = 0.5, 1 / 3
_WORDLIKE = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*(?:[\s,]|$)")
# A word in lower case in this share of its uses is no name.
_LOWER_SHARE = 0.2


def write_title(texts: Sequence[str], key_terms: Sequence[str]) -> str:
    """Return up to three phrases of the texts in ``MAX_TITLE_CHARS``, the first with a capital; empty without terms.

    A phrase of up to four words scores by the share of texts that hold it and by the rank of its words among the
    ``key_terms``, which come best first.
    """
    ranks = {term.stem: at for at, word in enumerate(key_terms) for term in extract_terms(word)}
    if not ranks:
        return ""
    values = {stem: 1.0 - at / (len(key_terms) + 2) for stem, at in ranks.items()}
    holding: dict[tuple[str, ...], set[int]] = defaultdict(set)
    heading: Counter[tuple[str, ...]] = Counter()
    written: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for at, text in enumerate(texts):
        first, *rest = text.split("\n")
        in_heading = {stems for stems, _ in _list_phrases(first)} if rest else set()
        for stems, surface in _list_phrases(text):
            if any(stem in values for stem in stems):
                holding[stems].add(at)
                written[stems][surface] += 1
        heading.update(in_heading)
    most = max(map(len, holding.values()), default=0)
    fewest = max(min(_MIN_TEXTS, most), _MIN_SHARE * most)
    scores = {
        stems: (len(found) + _HEADING_BONUS * heading[stems])
        / len(texts)
        * sum(values.get(stem, 0.0) for stem in stems)
        * (1 + _PHRASE_BONUS * (len(stems) - 1))
        * (_PAST_FACTOR if _PAST.fullmatch(stems[-1]) or _PAST.fullmatch(_spell(written[stems]).split()[-1]) else 1.0)
        for stems, found in holding.items()
        if len(found) >= fewest and len(set(stems)) == len(stems)
    }
    ranked = sorted(scores, key=lambda stems: (-round(scores[stems], 9), -len(stems), stems))
    chosen: list[str] = []
    used: set[str] = set()
    for stems in ranked:
        words = _spell(written[stems])
        room = MAX_TITLE_CHARS - sum(len(word) + 2 for word in chosen)
        # One plain word alone, such as "Card", tells little.
        least = 0.0 if len(chosen) == 1 and _is_plain_word(chosen[0]) else _MIN_SCORE * scores[ranked[0]]
        if chosen and (scores[stems] < least or _overlaps(stems, used) or len(words) > room):
            continue
        chosen.append(words)
        used |= set(stems)
        if len(chosen) == _MAX_PHRASES:
            break
    return _capitalize(", ".join(chosen)[:MAX_TITLE_CHARS])


def fit_title(title: str, told: Sequence[str], texts: Sequence[str], key_terms: Sequence[str]) -> str:
    """Return the phrases of a title that are in what is told of a group, and those of several words in most texts.

    If they are none, or one plain word, the title is written from what is told. If nothing is told but examples,
    phrases of several words stay as they are, and words that many texts have; one plain word alone is no title.

    Args:
        told: Lines of the text that gets the title; of none, it has only examples.
        texts: The texts of the group.
        key_terms: As for ``write_title``.
    """
    said = _find_stems("\n".join(told))
    stems_of = [_find_stems(text) for text in texts]
    kept = []
    for phrase in title.split(", "):
        stems = _find_stems(phrase)
        in_most = sum(stems <= others for others in stems_of) > (_MOST if told else _MANY) * len(texts)
        # Of a headline, a single word that it lacks says nothing.
        if (stems <= said or (in_most and " " in phrase)) if told else (in_most or " " in phrase):
            kept.append(phrase)
    fitted = _capitalize(", ".join(kept))
    if fitted and not _is_plain_word(fitted):
        return fitted
    return (write_title(["\n".join(told)], key_terms) or fitted) if told else ""


def _find_stems(text: str) -> set[str]:
    return {term.stem for term in extract_terms(text)}


def _is_plain_word(title: str) -> bool:
    return title[1:].islower() and title.isalpha()


def _capitalize(title: str) -> str:
    return title[:1].upper() + title[1:] if _WORDLIKE.match(title) else title


def _list_phrases(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the phrases of a text: the stems of their terms, and the words as written."""
    run: list[tuple[str, Term | None]] = []
    for token in [*_WORD.findall(text), "\n"]:
        term = next(extract_terms(token), None) if token[-1:].isalnum() or token.endswith("()") else None
        if term is not None or token.lower() in _LINKS or token.lower() in _PARTICLES:
            run.append((token, term))
            continue
        yield from _split_run(run)
        run = []


def _split_run(run: Sequence[tuple[str, Term | None]]) -> Iterator[tuple[tuple[str, ...], str]]:
    is_end = [term is not None and not _NO_END.fullmatch(word.lower()) for word, term in run]
    is_particle = [word.lower() in _PARTICLES for word, _ in run]
    for start in range(len(run)):
        if not is_end[start]:
            continue
        stems: list[str] = []
        for end in range(start, min(len(run), start + _MAX_WORDS)):
            term = run[end][1]
            if term is not None:
                stems.append(term.stem)
            if is_particle[end]:
                stems.append(run[end][0].lower())
            if is_end[end] or (is_particle[end] and end > start and run[end - 1][1] is not None):
                yield tuple(stems), " ".join(word for word, _ in run[start : end + 1])


def _overlaps(stems: Sequence[str], used: Collection[str]) -> bool:
    lower = {stem.lower() for stem in used}
    return any(stem.lower() in lower for stem in stems)


def _spell(surfaces: Counter[str]) -> str:
    """Return the most frequent spelling, in lower case unless it is a name."""
    plain = Counter({surface: count for surface, count in surfaces.items() if surface.islower()})
    chosen = plain if plain.total() >= _LOWER_SHARE * surfaces.total() else surfaces
    return min(chosen, key=lambda surface: (-chosen[surface], len(surface), surface))
