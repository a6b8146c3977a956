"""Order of phrases in scripts without blanks: the object of 把, the agent of 被, times, and phrases with a particle."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from consolidation_pipeline.core.differences.inflection import has_passive
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token

# Categories of cues that tell when.
TIMES = frozenset(("dayname", "frequency", "weekday", "daytime"))
_ENDINGS = frozenset("polarity modality need stance tense".split())
_AGENTS = frozenset("被由")
_TEMPORAL = re.compile("(?:完成|完)?(?:之?后|以后|时|之?前|的时候|的话)")
_PERSON = re.compile("[我你您他她们人者员户师生客王李张刘陈猫狗妈爸妻夫儿女]|孩子|公司|团队")
_STOP = re.compile(r"[。.!?！？;；\n]")
_COMMA = re.compile(r"[,，、]")
# Longest part that may change places.
_MOST_MOVED = 6
_PARTICLE = re.compile(
    "(?:さん|様|たち|など|等)?(によって|により|には|では|とは|へは|からは|までに|から|まで|より|だけ|のみ|が|を|に|で|へ|と|は|も|の)"
)
# Particles of one meaning.
_SAME_PARTICLES = {"には": "に", "では": "で", "へ": "に", "へは": "に", "からは": "から", "により": "によって"}
_CORE = frozenset("がをはも")
_INFLECTION = re.compile("[ぁ-ん]")
_VERB = re.compile("[るたうくすつぬぶむぐだてで]$")


class _Item(NamedTuple):
    """A token or cue of a text. ``name`` is equal for those of two texts that say the same.

    ``is_ending``: A cue such as a denial, which ends a verb.
    """

    name: str
    start: int
    end: int
    is_time: bool
    is_ending: bool = False


class _Phrase(NamedTuple):
    """Names of the items of a phrase, and the particle behind it; empty behind a verb or time."""

    names: tuple[str, ...]
    particle: str


def is_rearranged(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> bool:
    """Return True if two texts have the same words, in another order of phrases that changes nothing they claim.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if language.stemmer or not len(a.tokens) == len(b.tokens) == len(places):
        return False
    names = {place: at for at, place in places.items()}
    items = _list_items(a, {at: at for at in places}, language)
    items_there = _list_items(b, names, language)
    if Counter(item.name for item in items) != Counter(item.name for item in items_there):
        return False
    if [item.name for item in items] == [item.name for item in items_there]:
        return False
    if language.has_late_focus:
        return _have_same_phrases(a, items, b, items_there)
    return _have_turned(a, items, b, items_there, language)


def _list_items(reading: Reading, names: Mapping[int, int], language: Language) -> list[_Item]:
    """Return the tokens and cues of a text as written, but for markers, the voice and what may be missing."""
    found = [_read_token(token, names[at], language) for at, token in enumerate(reading.tokens)]
    found += [
        _Item(
            f"{cue.category} {cue.pole}",
            cue.start,
            cue.start + len(cue.text),
            cue.category in TIMES,
            cue.category in _ENDINGS,
        )
        for cue in reading.cues
        if cue.category not in ("marker", "voice") and (cue.category, cue.pole) not in language.neutral
    ]
    return sorted(found, key=lambda item: item.start)


def _read_token(token: Token, name: int, language: Language) -> _Item:
    is_time = token.key.startswith(("date:", "days-")) or token.text in language.time_adverbs
    return _Item(str(name), token.start, token.start + len(token.text), is_time)


def _have_turned(a: Reading, items: Sequence[_Item], b: Reading, there: Sequence[_Item], language: Language) -> bool:
    """Return True if two neighbouring parts changed places that may: object and verb, agent and object, or a time."""
    first = next(at for at, (one, other) in enumerate(zip(items, there, strict=True)) if one.name != other.name)
    last = next(
        len(items) - at
        for at, (one, other) in enumerate(zip(items[::-1], there[::-1], strict=True))
        if one.name != other.name
    )
    part, part_there = items[first:last], there[first:last]
    names, names_there = [item.name for item in part], [item.name for item in part_there]
    if len(part) > 2 * _MOST_MOVED:
        return False
    for size in range(1, len(part)):
        if names_there != names[size:] + names[:size]:
            continue
        rest = len(part) - size
        if _may_turn(a, part[:size], part[size:], b, language) or _may_turn(
            b, part_there[:rest], part_there[rest:], a, language
        ):
            return True
    return False


def _may_turn(
    reading: Reading, left: Sequence[_Item], right: Sequence[_Item], other: Reading, language: Language
) -> bool:
    """Return True if the first part of a text may stand behind the second one in the other text."""
    between = reading.source[left[0].start : right[-1].end]
    if _STOP.search(between):
        return False
    if all(item.is_time for item in (*left, *right)):  # 从九点到五点
        return False
    if any(all(item.is_time for item in part) for part in (left, right)):
        genitives = tuple(language.genitives)
        times = left if all(item.is_time for item in left) else right
        written = reading.source[times[0].start : times[-1].end]
        is_attribute = any(f"{written}{genitive}" in one.source for one in (reading, other) for genitive in genitives)
        return not is_attribute and not any(genitive in between for genitive in genitives)
    if _COMMA.search(between):
        return False
    objects = [cue for cue in reading.cues if (cue.category, cue.pole) == ("marker", "object")]
    if any(cue.start < left[0].start and not _stands_between(reading, cue, left[0].start) for cue in objects):
        return True
    # 订单取消后, 取消订单后
    if len(right) == 1 and _TEMPORAL.match(reading.source, right[0].end) and not _PERSON.search(between):
        return True
    agents = [cue for cue in reading.cues if cue.text in _AGENTS and left[-1].start < cue.start < right[0].start]
    return bool(agents) and not any(cue.text in _AGENTS for cue in other.cues)


def _stands_between(reading: Reading, cue: Cue, end: int) -> bool:
    return any(cue.start < token.start < end for token in reading.tokens)


def _have_same_phrases(a: Reading, items: Sequence[_Item], b: Reading, there: Sequence[_Item]) -> bool:
    """Return True if two texts of one clause have the same phrases with the same particles before the same verb."""
    found, found_there = _split_phrases(a, items), _split_phrases(b, there)
    if not found or not found_there or found[-1].names != found_there[-1].names or len(found) != len(found_there):
        return False
    cores, cores_there = _read_cores(found, a), _read_cores(found_there, b)
    if cores.keys() != cores_there.keys() or (len(cores) > 1 and cores != cores_there):
        return False
    rest, rest_there = (
        Counter(one for one in phrases[:-1] if one.names not in cores) for phrases in (found, found_there)
    )
    return rest == rest_there and (len(cores) != 1 or _have_one_case(found, a, found_there, b))


def _have_one_case(found: Sequence[_Phrase], a: Reading, there: Sequence[_Phrase], b: Reading) -> bool:
    """Return True if the only subject or object of two texts is the same: が and は, or が of a passive and を."""
    particle, other = (next(one.particle for one in side if one.particle in _CORE) for side in (found, there))
    is_passive, is_passive_there = (has_passive(one.source) for one in (a, b))
    if is_passive == is_passive_there:
        return {particle, other} != {"が", "を"}
    return (other if is_passive else particle) == "を" and (particle if is_passive else other) != "を"


def _read_cores(phrases: Sequence[_Phrase], reading: Reading) -> dict[tuple[str, ...], str]:
    """Return subject and object, "が" and "を", by their names: は stands for the one that has no particle of its own.

    In the passive, who does it has によって.
    """
    has_subject, has_object = (any(one.particle == particle for one in phrases) for particle in "がを")
    by = any(one.particle == "によって" for one in phrases) and has_passive(reading.source)
    cores: dict[tuple[str, ...], str] = {}
    for one in phrases[:-1]:
        if by and one.particle == "によって":
            cores[one.names] = "が"
        elif one.particle in _CORE:
            particle = one.particle if one.particle in "がを" else "を" if has_subject else "が"
            particle = (
                f"{particle} {has_subject and has_object}"
                if one.particle in "はも" and has_object and has_subject
                else particle
            )
            cores[one.names] = "を" if by else particle
    return cores


def _split_phrases(reading: Reading, items: Sequence[_Item]) -> list[_Phrase]:
    """Return the phrases of a text of one clause, empty if it has a verb before the last one."""
    phrases: list[_Phrase] = []
    names: list[str] = []
    while items and items[-1].is_ending:
        items = items[:-1]
    source = reading.source
    for one, following in pairwise([*items, None]):
        if one is None:
            break
        names.append(one.name)
        end = following.start if following else len(source)
        rest = source[one.end : end]
        if _STOP.search(rest.rstrip("。.!！ \n")):
            return []
        if following is None:
            return [*phrases, _Phrase(tuple(names), "")]
        if _VERB.search(source, one.start, one.end):
            return []
        match = _PARTICLE.match(rest)
        particle = match[1] if match else source[one.end - 1] if not rest and source[one.end - 1] in "にで" else ""
        if particle == "の" and not _COMMA.search(rest):
            continue
        if not particle and not one.is_time:
            if _INFLECTION.search(source[one.end - 1] + rest.removeprefix("な").removesuffix("お").removesuffix("ご")):
                return []
            continue
        if match and _INFLECTION.search(rest[match.end() :].removesuffix("お").removesuffix("ご")):
            return []
        phrases.append(_Phrase(tuple(names), _SAME_PARTICLES.get(particle, particle)))
        names = []
    return phrases
