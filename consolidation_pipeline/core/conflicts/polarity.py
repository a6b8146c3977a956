"""Clauses in which two texts say the opposite of each other."""

from collections.abc import Iterator, Sequence

from consolidation_pipeline.core.conflicts.clauses import Clause, Mood

# Dice overlap from which two clauses speak of the same: near-misses share nearly all, other clauses about a half.
SAME_TOPIC = 0.65
# One shared word says little, except about texts that have no more.
_ENOUGH = 2

# At the low end of these scales something is wrong: "leads to incorrect counts" agrees with "does not count".
_FAULTS = frozenset(("work", "correct", "valid"))
_OPEN = (Mood.ASKED, Mood.SUPPOSED)


def disputes(ours: Sequence[Clause], theirs: Sequence[Clause]) -> Iterator[tuple[Clause, Clause]]:
    """Yield the pairs of clauses, one of each text, of which one denies what the other says.

    Two clauses speak of the same thing if their Dice overlap is at least 0.65. A pair does not count if one of its
    clauses agrees with a clause of the other text that is as near or nearer.
    """
    charged = {id(clause) for clause in (*ours, *theirs) if clause.is_charged}
    if not charged:
        return
    enough = min(_ENOUGH, *(len(frozenset().union(*(clause.words for clause in side))) for side in (ours, theirs)))
    for x in ours:
        for y in theirs if id(x) in charged else [y for y in theirs if id(y) in charged]:
            overlap = _overlap(x, y, enough)
            if overlap < SAME_TOPIC or not _differ(x, y):
                continue
            others = [(x, other) for other in theirs] + [(other, y) for other in ours]
            if not any(_overlap(*pair, enough) >= overlap and not _differ(*pair) for pair in others):
                yield x, y


def _overlap(a: Clause, b: Clause, enough: int) -> float:
    shared = len(a.words & b.words)
    return 2 * shared / (len(a.words) + len(b.words)) if shared >= enough else 0.0


def _differ(a: Clause, b: Clause) -> bool:
    """Return True if negations, opposites and the order around ``before`` and ``after`` add up to a contradiction.

    A negation counts only if both speak of what it denies. What happened does not contradict what should have; a
    question or a condition says nothing that a negation could contradict, least of all what happened.
    """
    shared = a.words & b.words
    moods = {a.mood, b.mood}
    if Mood.REPORTED in moods and moods & {Mood.WISHED, *_OPEN}:
        return False
    opposite = len(a.low & b.high) + len(a.high & b.low) + _is_swapped(a, b)
    are_alike = (a.mood in _OPEN) is (b.mood in _OPEN)
    return (opposite + (_denials(a, b, shared) if are_alike else 0)) % 2 == 1


def _denials(a: Clause, b: Clause, shared: frozenset[str]) -> int:
    """Count the negations of both that matter; 0 if both deny something, and not the same."""
    counted = [sum(word in shared and lead in shared for word, lead in clause.denied) for clause in (a, b)]
    if a.denied and b.denied and counted != [len(a.denied), len(b.denied)]:
        return 0
    faulted = (counted[0] and (b.low - shared) & _FAULTS) or (counted[1] and (a.low - shared) & _FAULTS)
    return 0 if faulted else sum(counted)


def _is_swapped(a: Clause, b: Clause) -> bool:
    """Return True if what stands before "before" or "after" in one clause stands behind it in the other."""
    if not (a.left and b.left):
        return False
    crossed = len(a.left & b.words - b.left) + len(b.left & a.words - a.left)
    return crossed > len(a.left & b.left) + len((a.words - a.left) & (b.words - b.left) - {"before"})
