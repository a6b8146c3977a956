"""Clauses that changed sides and say the same: around "and", and around "after" in place of "before"."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.reading import Cue, Reading, sort_as_written
from consolidation_pipeline.core.differences.verb_times import tell_time

# Markers of which one stands for the other if the clauses around it are exchanged.
_TURNED = {"before": "after", "after": "before"}
# Governors of words that may be in a clause behind such a marker.
_FREE = frozenset(("", "before", "after"))
# Categories of the cues of a verb.
_OF_VERBS = frozenset(("tense", "modality"))


def are_joined_anew(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> bool:
    """Return True if two statements joined by "and" changed sides: "the fan is red and the pump is blue".

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if not len(places) == len(a.tokens) == len(b.tokens) or any(token.clause for token in (*a.tokens, *b.tokens)):
        return False
    if any(sum(str(entry).startswith("other") for entry in one.frame) != 1 for one in (a, b)):
        return False  # "it" beside "and"
    halves, halves_there = ([token.conjunct for token in one.tokens] for one in (a, b))
    return _are_exchanged(a, halves, b, halves_there, places, language)


def is_turned_in_time(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> bool:
    """Return True if a text tells after what another thing holds, and the other text before what.

    "The site is built after the package is out", "the package is out before the site is built"; or with one verb: "the
    site is built after the docs", "the docs are built before the site".

    Args:
        places: as in ``are_joined_anew``.
    """
    markers, markers_there = ([cue for cue in one.cues if cue.category == "marker"] for one in (a, b))
    if len(markers) != 1 or len(markers_there) != 1 or _TURNED.get(markers[0].pole) != markers_there[0].pole:
        return False
    if not len(places) == len(a.tokens) == len(b.tokens) or len(a.sentences) + len(b.sentences) > 2:
        return False
    if _share_verb(a, markers[0], b, markers_there[0]):
        return True
    governors = ((a.tokens[at].governor, b.tokens[there].governor) for at, there in places.items())
    words, words_there = (Counter(entry for entry in one.frame if _is_light(entry)) for one in (a, b))
    if words != words_there or any(one != other and not {one, other} <= _FREE for one, other in governors):
        return False
    halves, halves_there = _find_halves(a, markers[0].start), _find_halves(b, markers_there[0].start)
    return _are_exchanged(a, halves, b, halves_there, places, language)


def _share_verb(a: Reading, marker: Cue, b: Reading, marker_there: Cue) -> bool:
    """Return True if two things changed sides around one verb and a marker: "Ann comes before Bob"."""
    cues, cues_there = (
        Counter((cue.category, cue.pole) for cue in one.cues if cue.pole not in _TURNED) for one in (a, b)
    )
    if cues != cues_there or not {category for category, _ in cues} <= _OF_VERBS:
        return False
    found, found_there = _split(a, marker), _split(b, marker_there)
    if found is None or found_there is None:
        return False
    (verb, named, behind), (verb_there, named_there, behind_there) = found, found_there
    return verb == verb_there and named == behind_there and named_there == behind


def _split(reading: Reading, marker: Cue) -> tuple[tuple[int, str], list[str], list[str]] | None:
    """Return the verb, with 0 if it is a command, and the keys of the things before and behind a marker.

    None if there is more: a phrase, a value or another verb.
    """
    written = [reading.tokens[at] for at in sort_as_written(reading.tokens)]
    if any(token.governor not in _FREE or token.kind == "value" for token in written):
        return None
    keys = [token.key for token in written if token.start < marker.start]
    verb = 0 if reading.frame[:1] == (written[0].place,) and "determiner  " in reading.frame[1:2] else len(keys) - 1
    if len(keys) < 2 or written[verb].kind != "word" or sum(cue.category == "tense" for cue in reading.cues) > 1:
        return None
    return (min(verb, 1), keys.pop(verb)), keys, [token.key for token in written if token.start > marker.start]


def _is_light(entry: int | str) -> bool:
    """Return True for the frame entry of a word that is neither a token nor a marker of a clause."""
    return isinstance(entry, str) and not entry.startswith("clause")


def _find_halves(reading: Reading, marker: int) -> list[int]:
    """Return 1 for each token of the clause that a marker at an offset opens, 0 for the others."""
    is_first = all(token.start > marker for token in reading.tokens)
    return [int(token.clause == 0 if is_first else token.start > marker) for token in reading.tokens]


def _are_exchanged(
    a: Reading,
    halves: Sequence[int],
    b: Reading,
    halves_there: Sequence[int],
    places: Mapping[int, int],
    language: Language,
) -> bool:
    """Return True if each half of a text is the other one of the other text: a statement with its words in order.

    No pronoun or word such as "then" refers from one to the other, and no cue but those of tenses changes a claim.
    """
    if {*halves} != {0, 1} or any(halves[at] == halves_there[there] for at, there in places.items()):
        return False
    references = language.subjects.keys() | language.objects.keys() | language.sequence_words
    if not references.isdisjoint(a.words | b.words):
        return False
    for half in (0, 1):
        there = [b.tokens[places[at]].place for at in sort_as_written(a.tokens) if halves[at] == half]
        is_stated = _has_verb(a, halves, half, language) and _has_verb(b, halves_there, half, language)
        if not is_stated or there != sorted(there):
            return False
    if any(cue.category != "tense" and cue.pole not in _TURNED for cue in (*a.cues, *b.cues)):
        return False
    return Counter(_list_times(a, halves)) == Counter((pole, 1 - half) for pole, half in _list_times(b, halves_there))


def _has_verb(reading: Reading, halves: Sequence[int], half: int, language: Language) -> bool:
    """Return True if a half has a verb that tells what is or was, and is not its first word."""
    written = [at for at in sort_as_written(reading.tokens) if halves[at] == half]
    first, last = (reading.tokens[at].place for at in (written[0], written[-1]))
    is_told = any(cue.category == "tense" and first < cue.place <= last for cue in reading.cues)
    return is_told or any(tell_time(reading, reading.tokens[at], language) in ("past", "present") for at in written[1:])


def _list_times(reading: Reading, halves: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield the pole and the half of each cue of a tense."""
    written = sort_as_written(reading.tokens)
    for cue in reading.cues:
        if cue.category == "tense":
            yield cue.pole, halves[written[min(cue.place, len(written) - 1)]]
