"""The compiled comparison of texts that were read into arrays: what ``conflicts`` and ``polarity.differ`` say of them.

Importing this takes a second: it is imported where it is used. ``test_screening`` holds it to the uncompiled code.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consolidation_pipeline.core.conflicts.clauses import Mood
from consolidation_pipeline.core.conflicts.polarity import SAME_TOPIC
from consolidation_pipeline.core.conflicts.readings import (
    BARE,
    BEFORE,
    BITS,
    FAULT,
    HIGH,
    LEFT,
    LOW,
    LiteralReadings,
    Readings,
)

NONE, CONFLICT, UNSURE = 0, 1, 2

_VERSION = BITS["version"]
_EXACT = BITS["number"] | _VERSION
_F = TypeVar("_F", bound=Callable[..., object])
_REPORTED, _WISHED, _ASKED = int(Mood.REPORTED), int(Mood.WISHED), int(Mood.ASKED)


def _compiled(function: _F) -> _F:
    compiled: _F = njit(cache=True)(function)
    return compiled


@_compiled
def clash(i: NDArray[np.int64], j: NDArray[np.int64], r: LiteralReadings) -> NDArray[np.bool_]:
    """Which pairs of texts conflict whatever their clauses say: by literals that must be the same."""
    found = np.zeros(len(i), dtype=np.bool_)
    for at in range(len(i)):
        found[at] = _clashes(_lacking(i[at], j[at], r), _lacking(j[at], i[at], r))
    return found


@_compiled
def _clashes(ours: int, theirs: int) -> bool:
    marked = ((ours & _VERSION) * (theirs & BARE)) | ((ours & BARE) * (theirs & _VERSION))
    return (ours & theirs & _EXACT) != 0 or marked != 0


@_compiled
def judge(i: NDArray[np.int64], j: NDArray[np.int64], r: Readings) -> NDArray[np.int8]:
    """For each pair of texts: no conflict, a conflict, or none unless a literal is missing from the other's words."""
    verdicts = np.zeros(len(i), dtype=np.int8)
    for at in range(len(i)):
        a, b = i[at], j[at]
        ours, theirs = _lacking(a, b, r), _lacking(b, a, r)
        if _clashes(ours, theirs) or _dispute(a, b, r):
            verdicts[at] = CONFLICT
        elif ours & theirs & ~BARE:
            verdicts[at] = UNSURE
    return verdicts


@_compiled
def _lacking(a: int, b: int, r: LiteralReadings | Readings) -> int:
    """The kinds of which ``a`` has a value that ``b`` has not."""
    kinds = 0
    y, end = r.value_starts[b], r.value_starts[b + 1]
    for x in range(r.value_starts[a], r.value_starts[a + 1]):
        while y < end and r.values[y] < r.values[x]:
            y += 1
        if y == end or r.values[y] != r.values[x]:
            kinds |= r.kinds[x]
    return kinds


@_compiled
def _dispute(a: int, b: int, r: Readings) -> bool:
    """``polarity.disputes``: whether clauses that differ are nearer to each other than to any with which they agree."""
    words, starts, charged = r.words, r.word_starts, r.charged
    ours, theirs = (r.clause_starts[a], r.clause_starts[a + 1]), (r.clause_starts[b], r.clause_starts[b + 1])
    enough = min(r.vocabulary[a], r.vocabulary[b])
    for x in range(ours[0], ours[1]):
        for y in range(theirs[0], theirs[1]):
            if not (charged[x] or charged[y]):
                continue
            overlap = _overlap(x, y, words, starts, enough)
            if (
                overlap >= SAME_TOPIC
                and _differ(x, y, r)
                and not _agrees_nearer(x, y, ours, theirs, overlap, enough, r)
            ):
                return True
    return False


@_compiled
def _agrees_nearer(
    x: int, y: int, ours: tuple[int, int], theirs: tuple[int, int], overlap: float, enough: int, r: Readings
) -> bool:
    """Whether either clause agrees with one of the other text that is no farther than ``overlap``."""
    for other in range(theirs[0], theirs[1]):
        if _overlap(x, other, r.words, r.word_starts, enough) >= overlap and not _differ(x, other, r):
            return True
    for other in range(ours[0], ours[1]):
        if _overlap(other, y, r.words, r.word_starts, enough) >= overlap and not _differ(other, y, r):
            return True
    return False


@_compiled
def _overlap(x: int, y: int, words: NDArray[np.int32], starts: NDArray[np.int64], enough: int) -> float:
    """Dice overlap of two clauses, 0 if they share too little. Their words are sorted."""
    a, a_end, b, b_end = starts[x], starts[x + 1], starts[y], starts[y + 1]
    total = a_end - a + b_end - b
    if 2 * min(a_end - a, b_end - b) < SAME_TOPIC * total:
        return 0.0
    shared = 0
    while a < a_end and b < b_end:
        ours, theirs = words[a], words[b]
        shared += ours == theirs
        a += ours <= theirs
        b += theirs <= ours
    return 2 * shared / total if shared >= enough else 0.0


@_compiled
def _place(word: int, clause: int, words: NDArray[np.int32], starts: NDArray[np.int64]) -> int:
    """Where the word stands among those of the clause, which are sorted; -1 if it does not."""
    low, high = starts[clause], starts[clause + 1]
    # Nearly all clauses are short, and there a plain search is faster.
    while high - low > 16:
        middle = (low + high) // 2
        if words[middle] <= word:
            low = middle
        else:
            high = middle
    for at in range(low, high):
        if words[at] == word:
            return at
    return -1


@_compiled
def _differ(x: int, y: int, r: Readings) -> bool:
    """``polarity.differ``."""
    low, high = min(r.moods[x], r.moods[y]), max(r.moods[x], r.moods[y])
    if low == _REPORTED and high >= _WISHED:
        return False
    opposite, same, crossed = 0, 0, 0
    for at in range(r.word_starts[x], r.word_starts[x + 1]):
        place = _place(r.words[at], y, r.words, r.word_starts)
        if place >= 0:
            ours, theirs = r.flags[at], r.flags[place]
            opposite += ((ours & LOW) * (theirs & HIGH) | (ours & HIGH) * (theirs & LOW)) != 0
            crossed += (ours ^ theirs) & LEFT != 0
            same += (ours ^ theirs) & LEFT == 0 and (ours & LEFT != 0 or ours & BEFORE == 0)
    if crossed > same and _has(x, LEFT, r) and _has(y, LEFT, r):
        opposite += 1
    if (low < _ASKED) == (high < _ASKED):
        opposite += _denials(x, y, r)
    return opposite % 2 == 1


@_compiled
def _denials(x: int, y: int, r: Readings) -> int:
    ours, theirs = _counted(x, y, r), _counted(y, x, r)
    our_number, their_number = r.denial_starts[x + 1] - r.denial_starts[x], r.denial_starts[y + 1] - r.denial_starts[y]
    if our_number and their_number and (ours < our_number or theirs < their_number):
        return 0
    if (ours and _has_fault(y, x, r)) or (theirs and _has_fault(x, y, r)):
        return 0
    return ours + theirs


@_compiled
def _counted(x: int, y: int, r: Readings) -> int:
    """How many denials of ``x`` are about what ``y`` speaks of too."""
    count = 0
    for at in range(r.denial_starts[x], r.denial_starts[x + 1]):
        count += (
            _place(r.denied[at], y, r.words, r.word_starts) >= 0 and _place(r.leads[at], y, r.words, r.word_starts) >= 0
        )
    return count


@_compiled
def _has(clause: int, flag: int, r: Readings) -> bool:
    found = False
    for at in range(r.word_starts[clause], r.word_starts[clause + 1]):
        found |= r.flags[at] & flag != 0
    return found


@_compiled
def _has_fault(x: int, y: int, r: Readings) -> bool:
    """Whether ``x`` says that something is wrong of which ``y`` does not speak."""
    for at in range(r.word_starts[x], r.word_starts[x + 1]):
        if r.flags[at] & FAULT and _place(r.words[at], y, r.words, r.word_starts) < 0:
            return True
    return False
