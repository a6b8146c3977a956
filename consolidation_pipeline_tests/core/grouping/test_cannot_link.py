"""Cannot-link pairs: memories in different parts of an undone merge."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.cannot_link import CannotLink
from consolidation_pipeline_tests.hypothesis_examples import examples

NAMES = [bytes([7] * 15 + [n]) for n in range(8)]

# Merges as maps from memory to part.
MERGES = st.lists(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1), max_size=4)
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=12)


def build_cannot_link(merges: list[dict[bytes, int]]) -> CannotLink:
    rows = [(id_, number, part) for number, merge in enumerate(merges) for id_, part in merge.items()]
    ids, numbers, parts = zip(*rows, strict=True) if rows else ((), (), ())
    return CannotLink(np.array(ids, "S16"), np.array(numbers, np.int32), np.array(parts, np.int32))


@settings(deadline=None, max_examples=examples(200))
@given(merges=MERGES, pairs=PAIRS)
def test_cannot_link_separates_parts_of_undone_merge(
    merges: list[dict[bytes, int]], pairs: list[tuple[bytes, bytes]]
) -> None:
    a, b = (np.array([pair[side] for pair in pairs], "S16") for side in (0, 1))
    expected = [any(x in m and y in m and m[x] != m[y] for m in merges) for x, y in pairs]
    cannot_link = build_cannot_link(merges)
    assert cannot_link.forbids(a, b).tolist() == expected
    assert cannot_link.forbids(b, a).tolist() == expected


def test_no_undone_merge_forbids_nothing() -> None:
    cannot_link = build_cannot_link([])
    ids = np.array(NAMES[:2], "S16")
    assert len(cannot_link) == 0
    assert cannot_link.forbids(ids, ids[::-1]).tolist() == [False, False]
    assert build_cannot_link([{NAMES[0]: 0}]).forbids(ids[:0], ids[:0]).tolist() == []
