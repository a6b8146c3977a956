"""Differences of texts that have no other obstacle: what aligned words, in the same order, say of other things."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from consolidation_pipeline.core.differences.alignment import FEWEST_COMMON, Alignment
from consolidation_pipeline.core.differences.attachment import find_new_place
from consolidation_pipeline.core.differences.consequences import find_turned_consequence
from consolidation_pipeline.core.differences.counts import find_new_count, find_new_rate
from consolidation_pipeline.core.differences.cue_differences import Finding
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.modifiers import find_modifier, find_narrowing, find_new_head
from consolidation_pipeline.core.differences.order import Reordered, find_new_sequence, find_new_subject, find_replaced
from consolidation_pipeline.core.differences.particles import find_new_particle, find_turned_person
from consolidation_pipeline.core.differences.reading import VERB, Reading, Token
from consolidation_pipeline.core.differences.reports import find_new_frame
from consolidation_pipeline.core.differences.restrictions import find_restriction
from consolidation_pipeline.core.differences.roles import find_new_role, is_infinitive, read_before
from consolidation_pipeline.core.differences.steps import find_new_step
from consolidation_pipeline.core.differences.tenses import find_new_mood, find_new_time, find_wanted_state
from consolidation_pipeline.core.memories.memories import normalize_text

# Words between quotation marks.
_QUOTATION = re.compile(r"[\"“„«「]([^\"“”„«»「」]{1,80})[\"”“»」]")
# Returns words of two texts that tell of other things; None if there are none. It gets the position in the second text
# of each aligned position in the first.
Find = Callable[[Reading, Reading, Mapping[int, int], Language], Reordered | None]


def find_subtle(a: Reading, b: Reading, alignment: Alignment) -> Iterator[Finding]:
    """Yield the differences of two texts that differ in no word, cue or order that keeps them apart."""
    language, of_a, of_b = alignment.language, alignment.of_a, alignment.of_b
    if words := find_new_step(a, b, of_a) or find_new_sequence(a, b, language):
        yield "order", *words
    for kind, find in _OF_BOTH:
        if alignment.is_rearranged and find in _OF_ORDER:
            continue
        if words := find(a, b, of_a, language):
            yield kind, *words
    for kind, find in _OF_ONE:
        if words := find(a, b, of_a, language):
            yield kind, *words
        if words := find(b, a, of_b, language):
            yield kind, *words[::-1]
    if any(word.replace("-", "") in there for word, there in _list_hyphened(a, b, language)):
        yield "word", list(alignment.a), list(alignment.b)
    if undoing := [token for token in (*alignment.left_a, *alignment.left_b) if _undoes(token, alignment)]:
        yield "word", *((undoing, []) if undoing[0] in alignment.left_a else ([], undoing))
    if any(token.text.lower() in language.causatives for token in (*alignment.left_a, *alignment.left_b)):
        yield "word", alignment.left_a, alignment.left_b
    if any(
        _names_attempt(x, y, pairs, left, language)
        for x, y, pairs, left in ((a, b, of_a, alignment.left_a), (b, a, of_b, alignment.left_b))
    ):
        yield "word", alignment.left_a, alignment.left_b
    if language.infinitive_endings and _lets_do(a, language) != _lets_do(b, language):
        yield "word", list(alignment.a), list(alignment.b)
    if words := _find_new_quotation(a, b, alignment):
        yield "word", *words
    one, other = find_modifier(a, b, of_a, language), find_modifier(b, a, of_b, language)
    if not one and not other and len(of_a) < FEWEST_COMMON:
        one, other = find_narrowing(a, b, of_a, language), find_narrowing(b, a, of_b, language)
    if not one and not other:
        one, other = find_restriction(a, b, of_a, language), find_restriction(b, a, of_b, language)
    if one or other:
        yield "modifier", one, other


def _names_attempt(
    a: Reading, b: Reading, places: Mapping[int, int], left: Sequence[Token], language: Language
) -> bool:
    """Return True if one text alone has a verb before an infinitive of both: "wir planen, ihn umzuziehen"."""
    if not language.has_prefixes or not any(token.text[0].islower() and language.is_verb(token.text) for token in left):
        return False
    return any(
        is_infinitive(a.tokens[at], language) and not is_infinitive(b.tokens[there], language)
        for at, there in places.items()
    )


def _lets_do(reading: Reading, language: Language) -> bool:
    """Return True if others do it: "il fait réparer le toit"."""
    verbs = {f"{VERB}{language.read_word(word)}" for word in language.causatives}
    return any(
        str(before).split()[0] in verbs and reading.tokens[word].text.lower().endswith(language.infinitive_endings)
        for before, word in pairwise(reading.frame)
        if isinstance(word, int) and not isinstance(before, int) and not reading.whole
    )


def _list_hyphened(a: Reading, b: Reading, language: Language) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the words of one text alone that mean another thing without their hyphen, and the words of the other."""
    for one, other in ((a, b), (b, a)):
        yield from ((word, other.words) for word in (one.words - other.words) & language.hyphened)


def _undoes(token: Token, alignment: Alignment) -> bool:
    """Return True if one text adds that what both tell was undone: "rolled out and rolled back"."""
    is_alone = not alignment.left_b if token in alignment.left_a else not alignment.left_a
    if token.key in alignment.language.undoing and token.kind == "word" and is_alone:
        return True
    if token.gap != "and":
        return False
    keys = {one.key for one in (*alignment.a, *alignment.b)}
    return token.key in alignment.language.undoing or bool(alignment.language.opposites.get(token.key, set()) & keys)


def _find_new_article(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return an ordinal that counts one more in one text alone: "take a second replica", "take the second replica"."""
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        if one.key.startswith("ordinal:"):
            before, before_there = read_before(a, one), read_before(b, other)
            both = {before, before_there} <= language.determiners | language.articles
            if both and (before in language.articles) != (before_there in language.articles):
                return [one], [other]
    return None


def _find_new_quotation(a: Reading, b: Reading, alignment: Alignment) -> Reordered | None:
    """Return the words of two texts that quote others of them: delete all "tmp" folders, the "all tmp" folder."""
    quoted, quoted_there = (
        sorted(normalize_text(match[1]) for match in _QUOTATION.finditer(one.text)) for one in (a, b)
    )
    if len(quoted) != len(quoted_there) or quoted == quoted_there:
        return None
    is_part = all(
        x == y or f" {x} " in f" {y} " or f" {y} " in f" {x} " for x, y in zip(quoted, quoted_there, strict=True)
    )
    return (list(alignment.a), list(alignment.b)) if is_part else None


# Kind of difference -> what finds it, in two texts or in the first of two.
_OF_BOTH: tuple[tuple[str, Find], ...] = (
    ("order", find_replaced),
    ("order", find_new_place),
    ("word", find_new_role),
    ("word", find_new_count),
    ("added cue", find_new_time),
    ("added cue", find_new_mood),
    ("added cue", find_new_frame),
    ("word", _find_new_article),
    ("order", find_turned_consequence),
    ("word", find_new_particle),
    ("word", find_turned_person),
)
# What phrases in another order explain.
_OF_ORDER = (find_replaced, find_new_place, find_new_role, find_turned_person)
_OF_ONE: tuple[tuple[str, Find], ...] = (
    ("order", find_new_subject),
    ("word", find_new_rate),
    ("added cue", find_wanted_state),
    ("modifier", find_new_head),
)
