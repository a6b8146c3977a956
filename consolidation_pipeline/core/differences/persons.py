"""Persons of two texts: who does it, and to whom: "they trust us", "we trust them"."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.reading import Reading, sort_as_written

# Person of the pronouns for who writes, and of those that may stand for anybody under a modality: "you can restart it".
_SPEAKER, _ANYBODY = "we", "you"
_WORD = re.compile(r"\w+")
_SUBJECT, _OBJECT, _OPEN = "subject", "object", "open"


class _Person(NamedTuple):
    """A pronoun: its person, and its case, which is open where one form stands for both."""

    person: str
    case: str


def differ_in_person(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> bool:
    """Return True if other persons do it, or one is the subject of one text and the object of the other one.

    "We owe Ann", "Ann owes us"; "I am ill", "she is ill"; "you owe me", "I owe you". A passive and a wording without
    any person may tell the same of the same ones.
    """
    if not language.objects or a.has_agent or b.has_agent:
        return False
    if any(cue.category in ("request", "question", "voice") for cue in (*a.cues, *b.cues)):
        return False
    here, there = _list_persons(a, language), _list_persons(b, language)
    if not here or not there:
        return False
    is_same_length = abs(len(a.frame) - len(b.frame)) <= 1
    return (
        _are_others(a, b, here, there)
        or _have_turned(here, there)
        or (is_same_length and _are_other_objects(here, there))
        or (len(a.frame) == len(b.frame) and _has_new_case(a, b, here, there, places))
        or _have_new_order(a, b, here, there, places)
    )


def _are_others(a: Reading, b: Reading, here: Sequence[_Person], there: Sequence[_Person]) -> bool:
    """Return True if the texts have no person in common: "I am ill", "she is ill"."""
    persons, persons_there = ({one.person for one in side} for side in (here, there))
    is_general = all(any(cue.category == "modality" for cue in one.cues) for one in (a, b))
    if is_general and _ANYBODY in persons ^ persons_there:
        return False
    return persons.isdisjoint(persons_there)


def _have_turned(here: Sequence[_Person], there: Sequence[_Person]) -> bool:
    """Return True if a subject of one text is an object of the other one, and one of its objects the subject there."""
    for one, other in ((here, there), (there, here)):
        objects = {found.person for found in one if found.case != _SUBJECT}
        subjects = {found.person for found in other if found.case != _OBJECT}
        if any((objects & subjects) - {person} for person in _find_turned(one, other)):
            return True
    return False


def _find_turned(here: Sequence[_Person], there: Sequence[_Person]) -> set[str]:
    """Return the persons that are only subjects of one text and only objects of the other one."""
    return _select(here, _SUBJECT) & _select(there, _OBJECT)


def _select(persons: Sequence[_Person], case: str) -> set[str]:
    """Return the persons that have no other case than one."""
    return {one.person for one in persons} - {one.person for one in persons if one.case != case}


def _are_other_objects(here: Sequence[_Person], there: Sequence[_Person]) -> bool:
    """Return True if the speaker is the object of one text, and only others are the objects of the other one."""
    objects, objects_there = ({one.person for one in side if one.case == _OBJECT} for side in (here, there))
    return bool(objects and objects_there) and (_SPEAKER in objects) != (_SPEAKER in objects_there)


def _has_new_case(
    a: Reading, b: Reading, here: Sequence[_Person], there: Sequence[_Person], places: Mapping[int, int]
) -> bool:
    """Return True if a subject is an object in a clause that is made alike, or whose other words changed places.

    "Ihn hat die Behörde verklagt", "er hat die Behörde verklagt"; not "I was given a key", "they gave me a key".
    """
    turned = _find_turned(here, there) | _find_turned(there, here)
    is_alike = len(here) == len(there) and a.light_verbs == b.light_verbs
    return bool(turned) and (is_alike or not _stand_in_order(a, b, places))


def _have_new_order(
    a: Reading, b: Reading, here: Sequence[_Person], there: Sequence[_Person], places: Mapping[int, int]
) -> bool:
    """Return True if the same persons stand in another order, and their forms do not tell that the roles are the same.

    All other words stand in one order.
    """
    persons, persons_there = ([one.person for one in side] for side in (here, there))
    if persons == persons_there or Counter(persons) != Counter(persons_there):
        return False
    is_told = Counter(here) == Counter(there) and all(one.case != _OPEN for one in here)
    return not is_told and _stand_in_order(a, b, places)


def _stand_in_order(a: Reading, b: Reading, places: Mapping[int, int]) -> bool:
    """Return True if the words of both texts stand in one order."""
    there = [b.tokens[places[at]].place for at in sort_as_written(a.tokens) if at in places]
    return all(before < place for before, place in pairwise(there))


def _list_persons(reading: Reading, language: Language) -> list[_Person]:
    """Return the pronouns of a text for persons, as written. Those of a label before it, "we found that", are none."""
    first = min((token.start - reading.begin for token in reading.tokens), default=0)
    if language.nominatives:  # the subject of "ihn sah Ana" is read first
        labels = [word.end() for word in _WORD.finditer(reading.text, 0, first) if word[0] in language.complementizers]
        start = max(labels, default=0)
        return [_read(match, language) for match in _find_pronouns(reading, start, language)]
    light = next((at for at, entry in enumerate(reading.frame) if isinstance(entry, int)), 0)
    before = [word.start() for word in _WORD.finditer(reading.text, 0, first)]
    start = before[-light] if 0 < light < len(before) else first if not light else 0
    return [_read(match, language) for match in _find_pronouns(reading, start, language)]


def _find_pronouns(reading: Reading, start: int, language: Language) -> list[re.Match[str]]:
    pattern = _compile(frozenset((*language.subjects, *language.objects)), has_blanks=language.stemmer is not None)
    found = pattern.finditer(reading.text.replace("’", "'"), start)
    return [match for match in found if len(match[0]) == 1 or not match[0].isupper()]


def _read(match: re.Match[str], language: Language) -> _Person:
    word = match[0].lower()
    subject, other = language.subjects.get(word), language.objects.get(word)
    if language.stemmer is None and language.cases:  # 私が, 私を
        case = language.cases.get(match.string[match.end() : match.end() + 1], _OPEN)
        return _Person(subject or other or "", {"receiver": _OBJECT}.get(case, case))
    case = _OPEN if subject and other else _SUBJECT if subject else _OBJECT
    return _Person(subject or other or "", case)


@cache
def _compile(words: frozenset[str], *, has_blanks: bool) -> re.Pattern[str]:
    """Return the pattern of pronouns; ``has_blanks``: between words."""
    longest = sorted(words, key=lambda word: (-len(word), word))
    if not has_blanks:
        return re.compile("|".join(longest))
    whole, elided = ("|".join(w for w in longest if w.endswith("'") == is_elided) for is_elided in (False, True))
    return re.compile(rf"(?<!\w)(?:(?:{whole})(?!\w){f'|{elided}' if elided else ''})", re.IGNORECASE)
