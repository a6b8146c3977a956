"""Join of similar rows: exact against brute force, thresholds, known rows and invalid input."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from consolidation_pipeline.core.similarity.join_planner import find_pairs
from consolidation_pipeline.core.similarity.matrix_products import Join
from consolidation_pipeline.core.similarity.similarity_join import (
    SLACK,
    SimilarPairs,
    iter_similar_pairs,
    reaches,
    similarity_join,
)
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.hypothesis_examples import examples

KINDS = ("random", "clustered", "anisotropic", "degenerate")


def given_joins(max_rows: int) -> Callable[..., Any]:
    """Give a test the kind, rows, columns and seed of a matrix, a threshold, and data for the known rows."""
    sizes = (st.integers(1, max_rows), st.integers(1, 300), st.integers(0, 999))
    thresholds = st.sampled_from([-1.0, -0.2, 0.0, 0.3, 0.85, 0.99, 1.0])
    return given(st.sampled_from(KINDS), *sizes, thresholds, st.data())


def make_rows(kind: str, n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n, d))
    if kind == "clustered":
        noise = rng.standard_normal((max(1, n // 5), d))[rng.integers(0, max(1, n // 5), n)] + 0.3 * noise
    if kind == "anisotropic":
        noise = 3.0 * rng.standard_normal(d) + noise * np.exp(-np.arange(d))
    if kind == "degenerate":  # repeated, opposite and zero rows
        noise = rng.choice([-1.0, 0.0, 1.0], (n, d))
    return normalize(noise)


def brute_force(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1)
    wide /= np.where(lengths == 0.0, 1.0, lengths)[:, None]
    return np.clip(wide @ wide.T, -1.0, 1.0)


def to_set(pairs: SimilarPairs) -> set[tuple[int, int, float]]:
    return set(zip(pairs.i.tolist(), pairs.j.tolist(), pairs.similarity.tolist(), strict=True))


def make_join(x: np.ndarray, threshold: float, known: int = 0) -> Join:
    return Join(x, np.linalg.norm(x.astype(np.float64), axis=1), threshold - SLACK, known)


def run_join(x: np.ndarray, threshold: float, known: int, forms: Sequence[str]) -> SimilarPairs:
    blocks = find_pairs(make_join(x, threshold, known), forms=forms)
    return SimilarPairs(*map(np.concatenate, zip(*blocks, strict=True)))


def assert_bounded_blocks(form: str) -> None:
    """Assert that a join of equal rows yields ordered blocks of at most 2**21 pairs, and every pair."""
    x = np.repeat(make_rows("random", 1, 16, 0), 6000, axis=0)
    total, last = 0, -1
    for i, _, similarity in find_pairs(make_join(x, 0.99), forms=[form]):
        assert len(i) <= 1 << 21
        assert i[0] > last
        assert (similarity == 1.0).all()
        total, last = total + len(i), int(i[-1])
    assert total == 6000 * 5999 // 2


def assert_exact(x: np.ndarray, threshold: float, known: int = 0, *, forms: Sequence[str] = ()) -> None:
    pairs = run_join(x, threshold, known, forms) if forms else similarity_join(x, threshold, known=known)
    truth = brute_force(x)
    i, j = np.triu_indices(len(x), 1)
    i, j = i[j >= known], j[j >= known]
    wanted = truth[i, j] - (threshold - SLACK)
    found = np.isin(i * len(x) + j, pairs.i.astype(np.int64) * len(x) + pairs.j)
    assert found.sum() == len(pairs)
    assert found[wanted > 1e-7].all()
    assert not found[wanted < -1e-7].any()
    assert np.allclose(pairs.similarity, truth[pairs.i, pairs.j], atol=1e-7)


@settings(deadline=None, max_examples=examples(150))
@given(
    st.sampled_from(KINDS),
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(0, 999),
    st.sampled_from([-1.0, -0.2, 0.0, 0.3, 0.5, 0.85, 0.99, 1.0]),
)
def test_join_matches_brute_force(kind, n, d, seed, threshold):
    assert_exact(make_rows(kind, n, d, seed), threshold)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [0, 1500, 2299])
def test_join_matches_brute_force_over_blocks(kind, known):
    assert_exact(make_rows(kind, 2300, 8, 7), 0.8, known)


@pytest.mark.parametrize("kind", KINDS)
def test_join_pairs_are_sorted_and_typed(kind):
    pairs = similarity_join(make_rows(kind, 2300, 6, 3), 0.9)
    assert (pairs.i.dtype, pairs.j.dtype, pairs.similarity.dtype) == (np.int32, np.int32, np.float32)
    assert (pairs.i < pairs.j).all()
    keys = pairs.i.astype(np.int64) * 2300 + pairs.j
    assert (np.diff(keys) > 0).all()


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 40), st.integers(0, 99), st.data())
def test_known_excludes_pairs_of_known_rows(kind, n, seed, data):
    known = data.draw(st.integers(0, n))
    x = make_rows(kind, n, 5, seed)
    whole = similarity_join(x, 0.4)
    assert to_set(similarity_join(x, 0.4, known=known)) == to_set(whole.select(whole.j >= known))


@pytest.mark.slow
@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 40), st.integers(0, 99))
def test_known_and_new_pairs_form_full_graph(kind, n, seed):
    x, known = make_rows(kind, n, 5, seed), n // 2
    old, new = similarity_join(x[:known], 0.4), similarity_join(x, 0.4, known=known)
    assert to_set(old) | to_set(new) == to_set(similarity_join(x, 0.4))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_join_ignores_row_order(kind):
    x = make_rows(kind, 1400, 48, 11)
    order = np.random.default_rng(5).permutation(len(x))
    straight, shuffled = similarity_join(x, 0.5), similarity_join(x[order], 0.5)
    a, b = order[shuffled.i], order[shuffled.j]
    moved = SimilarPairs(np.minimum(a, b), np.maximum(a, b), shuffled.similarity)
    assert to_set(moved) == to_set(straight)


def test_pair_blocks_concatenate_to_join():
    x = make_rows("clustered", 2500, 16, 4)
    blocks, whole = list(iter_similar_pairs(x, 0.3, known=700)), similarity_join(x, 0.3, known=700)
    assert len(blocks) > 1
    for name in ("i", "j", "similarity"):
        assert np.array_equal(np.concatenate([getattr(block, name) for block in blocks]), getattr(whole, name))


def test_pair_iterator_checks_arguments_at_call():
    blocks = iter_similar_pairs(make_rows("random", 3000, 8, 0), 0.5)
    assert len(next(blocks))
    del blocks
    with pytest.raises(ValueError, match="known is -1"):
        iter_similar_pairs(make_rows("random", 3, 8, 0), 0.5, known=-1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_join_ignores_and_restores_thread_count(threads):
    x = make_rows("clustered", 2500, 48, 6)
    with threadpool_limits(threads, user_api="blas"):
        before = threadpool_info()
        assert to_set(similarity_join(x, 0.5)) == to_set(run_join(x, 0.5, 0, ["pruned"]))
        assert threadpool_info() == before


@pytest.mark.parametrize(("n", "threshold"), [(0, -1.0), (1, -1.0), (3, 1.1)])
def test_join_needs_two_rows_and_threshold_below_one(n, threshold):
    assert len(similarity_join(np.ones((n, 1), dtype=np.float32), threshold)) == 0


def test_rows_without_columns_have_cosine_zero():
    x = np.empty((3, 0), dtype=np.float32)
    assert len(similarity_join(x, 0.1)) == 0
    assert similarity_join(x, 0.0).similarity.tolist() == [0.0, 0.0, 0.0]


def test_identical_rows_pair_at_exactly_one():
    x = np.repeat(make_rows("random", 1, 300, 0), 60, axis=0)
    pairs = similarity_join(x, 1.0)
    assert len(pairs) == 60 * 59 // 2
    assert (pairs.similarity == 1.0).all()


def test_one_dimension_gives_equal_or_opposite():
    x = np.array([[1.0], [-1.0], [1.0]], dtype=np.float32)
    assert to_set(similarity_join(x, 0.5)) == {(0, 2, 1.0)}
    assert to_set(similarity_join(x, -1.0)) == {(0, 1, -1.0), (0, 2, 1.0), (1, 2, -1.0)}


def test_zero_rows_pair_only_at_threshold_zero():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=np.float32)
    assert len(similarity_join(x, 1e-3)) == 0
    assert to_set(similarity_join(x, 0.0)) == {(0, 1, 0.0), (0, 2, 0.0), (1, 2, 0.0)}


@pytest.mark.parametrize(("cosine", "expected"), [(0.9 + 1e-4, 1), (0.9, 1), (0.9 - 5e-7, 1), (0.9 - 2e-6, 0)])
def test_join_threshold_is_inclusive_with_slack(cosine, expected):
    x = np.array([[1.0, 0.0], [cosine, np.sqrt(1.0 - cosine**2)]], dtype=np.float32)
    assert len(similarity_join(x, 0.9)) == expected


def test_join_accepts_other_float_precisions():
    x = make_rows("clustered", 50, 32, 1)
    pairs = to_set(similarity_join(x, 0.7))
    assert to_set(similarity_join(x.astype(np.float64), 0.7)) == pairs
    assert len(similarity_join(x.astype(np.float16), 0.7)) == pytest.approx(len(pairs), abs=2)


def test_join_ignores_memory_order():
    x = make_rows("clustered", 50, 32, 2)
    assert to_set(similarity_join(np.asfortranarray(x), 0.7)) == to_set(similarity_join(x, 0.7))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(3, dtype=np.float32), r"x has shape \(3,\)"),
        (np.ones((2, 2, 2), dtype=np.float32), r"x has shape \(2, 2, 2\)"),
        (np.eye(3, dtype=np.int64), "x has dtype int64"),
        (np.eye(2, dtype=np.complex64), "x has dtype complex64"),
        (np.array([[1.0, 0.0], [np.nan, 0.0]], dtype=np.float32), "row 1 of x has length nan"),
        (np.array([[np.inf, 0.0]], dtype=np.float32), "row 0 of x has length inf"),
        (np.array([[1.0, 0.0], [3.0, 4.0]], dtype=np.float32), "row 1 of x has length 5"),
    ],
)
def test_join_rejects_unusable_rows_by_name(x, message):
    with pytest.raises(ValueError, match=message):
        similarity_join(x, 0.5)


@pytest.mark.parametrize("threshold", [np.nan, np.inf, -np.inf])
def test_join_rejects_non_finite_threshold(threshold):
    with pytest.raises(ValueError, match="threshold is"):
        similarity_join(np.ones((2, 1), dtype=np.float32), threshold)


@pytest.mark.parametrize("known", [-1, 3])
def test_join_rejects_invalid_known_count(known):
    with pytest.raises(ValueError, match=f"known is {known}"):
        similarity_join(np.ones((2, 1), dtype=np.float32), 0.5, known=known)


def test_pairs_select_by_mask_position_and_threshold():
    pairs = similarity_join(np.array([[1.0], [-1.0], [1.0]], dtype=np.float32), -1.0)
    assert len(pairs) == 3
    assert to_set(pairs.select(pairs.j == 1)) == {(0, 1, -1.0)}
    assert to_set(pairs.select(np.array([1]))) == to_set(pairs.at_least(1.0)) == {(0, 2, 1.0)}


def test_pairs_need_arrays_of_equal_length():
    with pytest.raises(ValueError, match="they must be equal"):
        SimilarPairs(np.zeros(1, np.int32), np.zeros(2, np.int32), np.zeros(1, np.float32))


def test_reaches_compares_float32_in_float64():
    values = np.array([0.95, 0.95 - 9e-7, 0.95 - 1.1e-6], dtype=np.float32)
    assert reaches(values, 0.95).tolist() == [True, True, False]
