"""Which of many pairs of texts conflict: what :func:`literals.conflicts` says, for millions of pairs.

Every text is read once, into arrays of numbers, which compiled code compares. Only pairs that differ in nothing but
paths, quotations and the like are looked at as texts: what one marks up may stand in the other as plain words.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.conflicts.literals import EXACT_KINDS, conflicts, stands_otherwise
from consolidation_pipeline.core.conflicts.readings import BARE, BITS, Reader, Readings
from consolidation_pipeline.core.memories.memories import normalize_text

# Below this many pairs, loading the compiled code takes longer than the work; compiling it takes ten seconds, once.
_FEW = 5000
_NAMES = {bit: kind for kind, bit in BITS.items()}
_EXACT = sum(BITS[kind] for kind in EXACT_KINDS) | BARE


def find_conflicting(texts: Sequence[str], i: ArrayLike, j: ArrayLike) -> NDArray[np.bool_]:
    """Whether ``conflicts(texts[i[k]], texts[j[k]])`` finds anything, for each of the m pairs: bool (m,).

    ``i``, ``j``: int (m,), positions in ``texts``. Texts that are in no pair are not read. ValueError: ``i`` and ``j``
    are not of one shape (m,), or a position is outside of ``texts``.
    """
    pairs = np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
    if pairs[0].ndim != 1 or pairs[0].shape != pairs[1].shape:
        raise ValueError(f"i and j have the shapes {pairs[0].shape} and {pairs[1].shape}; both must be (m,)")
    used, places = np.unique(np.concatenate(pairs), return_inverse=True)
    if used.size and not 0 <= used[0] <= used[-1] < len(texts):
        raise ValueError(f"positions reach from {used[0]} to {used[-1]}; there are {len(texts)} texts")
    chosen = [texts[at] for at in used.tolist()]
    one, other = places.reshape(2, -1).astype(np.int64)
    if len(one) >= _FEW:
        return _screen(chosen, one, other)
    few = (bool(conflicts(chosen[a], chosen[b])) for a, b in zip(one.tolist(), other.tolist(), strict=True))
    return np.fromiter(few, dtype=np.bool_, count=len(one))


def _screen(texts: Sequence[str], i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.bool_]:
    from consolidation_pipeline.core.conflicts.verdicts import CONFLICT, UNSURE, clash, judge

    reader = Reader(texts)
    found: NDArray[np.bool_] = clash(i, j, reader.literals)
    rest = np.flatnonzero(~found)
    needed = np.zeros(len(texts), dtype=np.bool_)
    needed[i[rest]] = needed[j[rest]] = True
    readings = reader.read_clauses_of(needed)
    verdicts = judge(i[rest], j[rest], readings)
    found[rest] = verdicts == CONFLICT
    unsure = rest[verdicts == UNSURE]
    looked_at = _Looked(texts, readings, list(reader.values))
    for at, a, b in zip(unsure.tolist(), i[unsure].tolist(), j[unsure].tolist(), strict=True):
        found[at] = looked_at.conflict(a, b)
    return found


class _Looked:
    """Texts whose literals are looked for in each other's words."""

    def __init__(self, texts: Sequence[str], readings: Readings, values: list[str]) -> None:
        self.readings, self.values = readings, values
        # Pairs come with one side the same for a while.
        self.normalized = lru_cache(maxsize=4096)(lambda at: normalize_text(texts[at]))
        self.literals = lru_cache(maxsize=4096)(self._literals)

    def conflict(self, a: int, b: int) -> bool:
        """Whether each of the two texts has a literal of one kind that does not stand in the other."""
        ours = self._lacking(a, b, ~_EXACT)
        return bool(ours and self._lacking(b, a, ours))

    def _literals(self, at: int) -> dict[str, list[int]]:
        """Literal values of a text, and of which kinds each is."""
        part = slice(*self.readings.value_starts[at : at + 2].tolist())
        kinds: dict[str, list[int]] = {}
        for value, kind in zip(self.readings.values[part].tolist(), self.readings.kinds[part].tolist(), strict=True):
            kinds.setdefault(self.values[value], []).append(kind)
        return kinds

    def _lacking(self, a: int, b: int, wanted: int) -> int:
        """Which of the wanted kinds text ``a`` has a literal of that does not stand in ``b``."""
        known, lacking = self.literals(b), 0
        for value, kinds in self.literals(a).items():
            for kind in kinds if value not in known else ():
                if kind & wanted & ~lacking and not stands_otherwise(_NAMES[kind], value, known, self.normalized(b)):
                    lacking |= kind
        return lacking
