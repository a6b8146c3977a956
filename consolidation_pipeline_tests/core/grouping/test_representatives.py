"""Representatives of groups, and similarities to them."""

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.grouping.representatives import choose_representatives, compute_similarities
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.core.grouping.graphs import clustered_rows


def choose_one(reused, similar, ids):
    """Return the position of the representative of one group."""
    labels = np.zeros(len(ids), dtype=np.int64)
    return int(choose_representatives(labels, reused, similar, np.array([str(id_) for id_ in ids]))[0])


@pytest.mark.parametrize(
    ("reused", "similar", "ids", "expected"),
    [
        ([1, 3, 2], [0.9, 0.1, 0.9], ["a", "b", "c"], 1),
        ([3, 3, 1], [0.8, 0.9, 1.0], ["a", "b", "c"], 1),
        ([3, 3, 3], [0.9, 0.9, 0.8], ["z", "b", "a"], 1),
        ([0, 0], [0.9 + 1e-9, 0.9], ["b", "a"], 1),
        ([0], [np.nan], ["a"], 0),
    ],
)
def test_representative_prefers_reuse_then_similarity(reused, similar, ids, expected):
    assert choose_one(reused, similar, ids) == expected


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0.8, 0.9]), st.uuids()), min_size=1, unique_by=lambda m: m[2]
    )
)
def test_representative_ignores_member_order(members):
    def chosen(rows: list[tuple[int, float, UUID]]) -> UUID:
        reused, similar, ids = zip(*rows, strict=True)
        return ids[choose_one(reused, similar, ids)]

    assert chosen(members) == chosen(members[::-1]) == chosen(sorted(members))


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 6), st.integers(0, 999))
def test_representatives_match_single_choice(n, groups, seed):
    rng = np.random.default_rng(seed)
    labels = np.unique(np.r_[-1, rng.integers(-1, groups, n)], return_inverse=True)[1][1:] - 1
    reused, similar = rng.integers(0, 3, n), rng.choice([0.8, 0.9, np.nan], n)
    ids = rng.permutation(n)
    found = choose_representatives(labels, reused, similar, ids)
    expected = [
        min(members.tolist(), key=lambda row: (-reused[row], -np.nan_to_num(similar[row], nan=-1.0), ids[row]))
        for members in list_members(labels)
    ]
    assert found.tolist() == expected


def test_similarity_to_representative_of_each_row():
    x = clustered_rows(30, 6, 0)
    labels = np.arange(30) % 4 - 1
    found = compute_similarities(x, labels, np.array([1, 6, 11]))
    assert found.dtype == np.float32
    assert np.isnan(found[labels < 0]).all()
    for number, representative in enumerate([1, 6, 11]):
        members = np.flatnonzero(labels == number)
        assert found[members] == pytest.approx(x[members] @ x[representative], abs=1e-6)


def test_representative_similarity_stays_in_range():
    x = normalize([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    similarity = compute_similarities(x, np.zeros(3, dtype=np.int64), np.array([0]))
    assert similarity == pytest.approx([1.0, np.sqrt(0.5), -1.0])


def test_representatives_need_equal_length_columns():
    with pytest.raises(ValueError, match=r"have lengths \(2, 1, 2, 2\)"):
        choose_representatives(np.zeros(2, dtype=np.int64), [1], [0.5, 0.6], np.array(["a", "b"]))
