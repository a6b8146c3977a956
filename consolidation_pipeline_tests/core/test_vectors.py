"""Vectors: normalization, centering, unusable rows and positions of ids."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from consolidation_pipeline.core import vectors
from consolidation_pipeline.core.vectors import center, find_positions, find_unusable, normalize, select_highest

numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
matrices = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6), elements=numbers)


@settings(deadline=None)
@given(matrices)
def test_normalize_keeps_direction_with_unit_length(x):
    unit = normalize(x)
    assert unit.dtype == np.float32
    assert unit.shape == x.shape
    lengths = np.linalg.norm(unit.astype(np.float64), axis=1)
    assert np.allclose(lengths, x.any(axis=1), atol=1e-6)
    for row, original in zip(unit, x, strict=True):
        scaled = original / np.abs(original).max(initial=1e-300)
        assert row @ scaled >= (1.0 - 1e-6) * np.linalg.norm(scaled)


@settings(deadline=None)
@given(matrices)
def test_normalize_is_idempotent_up_to_rounding(x):
    assert np.allclose(normalize(normalize(x)), normalize(x), atol=2e-7)


@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1e30, 1e300])
def test_normalize_survives_extreme_magnitudes(scale):
    assert np.allclose(normalize(np.array([[scale, scale], [0.0, -scale]])), [[0.70710678, 0.70710678], [0.0, -1.0]])


def test_normalize_copies_input_and_accepts_no_rows():
    x = np.array([[3.0, 4.0]])
    normalize(x)
    assert x.tolist() == [[3.0, 4.0]]
    assert normalize(np.empty((0, 3))).shape == (0, 3)
    assert normalize(np.empty((2, 0))).shape == (2, 0)


def test_normalize_names_first_bad_row():
    x = np.ones((5000, 2))
    x[4321, 1] = np.nan
    with pytest.raises(ValueError, match="row 4321 of x holds NaN"):
        normalize(x)


@pytest.mark.parametrize("bad", [[1.0, 2.0], [[["a"]]], [["a", "b"]], [[1 + 2j]]])
def test_normalize_rejects_invalid_matrix(bad):
    with pytest.raises(ValueError, match=r"x has (shape|dtype)"):
        normalize(bad)


def test_center_returns_unit_directions_from_mean():
    x = np.array([[1.0, 1.0], [1.0, -1.0], [4.0, 0.0]])
    assert np.allclose(center(x, [1.0, 0.0]), [[0.0, 1.0], [0.0, -1.0], [1.0, 0.0]])


def test_center_in_blocks_equals_center_at_once(monkeypatch):
    x, mean = np.random.default_rng(3).standard_normal((7, 4)), [0.5, 0.0, -0.5, 0.1]
    at_once = center(x, mean)
    monkeypatch.setattr(vectors, "CACHED", 9)
    assert (center(x, mean) == at_once).all()
    with pytest.raises(ValueError, match="row 6 "):
        center(np.vstack([x[:6], [[1.0, 2.0, np.nan, 3.0]]]), mean)


def test_threads_name_the_first_bad_row_of_many(monkeypatch):
    monkeypatch.setattr(vectors, "CACHED", 2)
    x = np.random.default_rng(3).standard_normal((100, 2)).astype(np.float32)
    assert np.array_equal(normalize(x), np.concatenate([normalize(row[None]) for row in x]))
    x[[40, 90]] = np.nan
    with pytest.raises(ValueError, match="row 40 of x"):
        normalize(x)


def test_row_equal_to_mean_has_no_direction():
    row = normalize(np.random.default_rng(1).standard_normal((1, 64)))
    mean = row[0].astype(np.float64) * (1.0 + 1e-8)
    assert not center(row, mean).any()


def test_center_survives_overflowing_difference():
    assert np.allclose(center(np.array([[1e308, 0.0]]), [-1e308, 0.0]), [[1.0, 0.0]])


@pytest.mark.parametrize("mean", [[1.0], [[1.0, 2.0]], [1.0, math.nan]])
def test_center_rejects_invalid_mean(mean):
    with pytest.raises(ValueError, match=r"it must be finite and of shape \(2,\)"):
        center(np.ones((3, 2)), mean)


def test_find_unusable_lists_nan_infinite_and_zero_rows():
    x = np.array([[1.0, 0.0], [0.0, 0.0], [np.nan, 1.0], [1e-300, 0.0], [np.inf, 0.0], [-0.0, 0.0]])
    assert find_unusable(x).tolist() == [1, 2, 4, 5]
    assert find_unusable(np.empty((0, 2))).tolist() == []


@settings(deadline=None)
@given(arrays(np.float32, (4, 3), elements=st.floats(width=32)))
def test_usable_rows_normalize_to_unit_length(x):
    usable = np.delete(x, find_unusable(x), axis=0)
    assert np.allclose(np.linalg.norm(normalize(usable).astype(np.float64), axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("shift", [64, 0])
def test_find_positions_compares_both_id_halves(shift):
    ordered = np.array([(number << shift).to_bytes(16, "big") for number in (0, 1, 256, 1 << 60)], dtype="S16")
    wanted = np.array([(number << shift).to_bytes(16, "big") for number in (256, 2, 0, 1 << 61)], dtype="S16")
    assert find_positions(ordered, wanted).tolist() == [2, -1, 0, -1]
    assert find_positions(ordered, wanted[:0]).tolist() == []
    assert find_positions(ordered[:0], wanted).tolist() == [-1] * 4


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 700), st.integers(0, 30), st.sampled_from([1, 5, 1000]))
def test_highest_values_are_selected(seed: int, columns: int, size: int, distinct: int) -> None:
    values = np.random.default_rng(seed).integers(0, distinct, (3, columns)).astype(np.float32)
    values[0] = np.sort(values[0])
    values[1, ::16] = -np.inf
    size = min(size, columns)
    found = select_highest(values, size)
    assert found.shape == (3, size)
    for row, chosen in zip(values, found, strict=True):
        assert len({*chosen.tolist()}) == size
        assert sorted(row[chosen].tolist()) == np.sort(row)[columns - size :].tolist()
