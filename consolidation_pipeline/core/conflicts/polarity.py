"""Where two texts say the opposite of each other."""

from collections.abc import Iterator, Sequence

from consolidation_pipeline.core.conflicts.clauses import Clause, Mood

# Dice overlap from which two clauses speak of the same: near-misses share nearly all, other clauses about a half.
SAME_TOPIC = 0.65
# One shared word says little, except about texts that have no more.
ENOUGH = 2

# At the low end of these scales something is wrong: "leads to incorrect counts" agrees with "does not count".
FAULTS = frozenset(("work", "correct", "valid"))
_OPEN = (Mood.ASKED, Mood.SUPPOSED)


def disputes(ours: Sequence[Clause], theirs: Sequence[Clause]) -> Iterator[tuple[Clause, Clause]]:
    """A clause of each text, where one denies what the other says, and neither has an equal or nearer one that agrees.

    Clauses speak of the same thing if their Dice overlap is at least 0.65.
    """
    enough = min(ENOUGH, *(len(frozenset().union(*(clause.words for clause in side))) for side in (ours, theirs)))
    if not any(clause.is_charged for clause in (*ours, *theirs)):
        return
    near = [(x, y, overlap) for x in ours for y in theirs if (overlap := _overlap(x, y, enough)) >= SAME_TOPIC]
    disputed: list[tuple[Clause, Clause, float]] = []
    # Of each text its own: the same clause may stand in both.
    agreed: tuple[dict[Clause, float], dict[Clause, float]] = {}, {}
    for x, y, overlap in near:
        if differ(x, y):
            disputed.append((x, y, overlap))
        else:
            agreed[0][x] = max(overlap, agreed[0].get(x, 0.0))
            agreed[1][y] = max(overlap, agreed[1].get(y, 0.0))
    yield from ((x, y) for x, y, overlap in disputed if overlap > max(agreed[0].get(x, 0.0), agreed[1].get(y, 0.0)))


def _overlap(a: Clause, b: Clause, enough: int) -> float:
    shared = len(a.words & b.words)
    return 2 * shared / (len(a.words) + len(b.words)) if shared >= enough else 0.0


def differ(a: Clause, b: Clause) -> bool:
    """Whether negations, opposites and the order about ``before`` and ``after`` add up to a contradiction.

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
    """How many negations of both count; none where both deny something, and not the same."""
    counted = [sum(word in shared and lead in shared for word, lead in clause.denied) for clause in (a, b)]
    if a.denied and b.denied and counted != [len(a.denied), len(b.denied)]:
        return 0
    faulted = (counted[0] and (b.low - shared) & FAULTS) or (counted[1] and (a.low - shared) & FAULTS)
    return 0 if faulted else sum(counted)


def _is_swapped(a: Clause, b: Clause) -> bool:
    """Whether what stands before "before" or "after" in one stands behind it in the other."""
    if not (a.left and b.left):
        return False
    crossed = len(a.left & b.words - b.left) + len(b.left & a.words - a.left)
    return crossed > len(a.left & b.left) + len((a.words - a.left) & (b.words - b.left) - {"before"})
