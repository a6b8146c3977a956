"""Joins that prune dimensions, and the planner that chooses the form of a join."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.jit import COMPILING, LOADING, STARTING
from consolidation_pipeline.core.similarity import join_planner
from consolidation_pipeline.core.similarity.dimension_pruning import leading_directions, sample_positions, shorten_rows
from consolidation_pipeline.core.similarity.join_planner import FORMS, Plan, choose_plan
from consolidation_pipeline.core.similarity.quantization import quantize, rotate_basis
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.core.similarity.test_similarity_join import (
    KINDS,
    assert_bounded_blocks,
    assert_exact,
    brute_force,
    given_joins,
    make_join,
    make_rows,
)
from consolidation_pipeline_tests.hypothesis_examples import examples


@settings(deadline=None, max_examples=examples(60))
@given_joins(max_rows=40)
def test_pruned_join_matches_brute_force(kind, n, d, seed, threshold, data):
    known = data.draw(st.integers(0, n))
    assert_exact(make_rows(kind, n, d, seed), threshold, known, forms=["pruned"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [0, 1500, 2299])
def test_pruned_join_matches_brute_force_over_blocks(kind, known):
    assert_exact(make_rows(kind, 2300, 150, 7), 0.8, known, forms=["pruned"])


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 40), st.integers(1, 200), st.integers(1, 140), st.integers(0, 99))
def test_short_products_bound_cosines_from_above(kind, n, d, k, seed):
    x = make_rows(kind, n, d, seed)
    short = shorten_rows(x, np.linalg.norm(x.astype(np.float64), axis=1), leading_directions(x, k))
    products = short.vectors.astype(np.float64) @ short.vectors.T.astype(np.float64)
    off_diagonal = ~np.eye(n, dtype=bool)
    assert (products + short.margin >= brute_force(x))[off_diagonal].all()


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 40), st.integers(1, 200), st.floats(-1.5, 1.5), st.integers(0, 99))
def test_quantized_products_reach_every_cut_pair(kind, n, d, cut, seed):
    x = make_rows(kind, n, d, seed)
    basis = rotate_basis(leading_directions(x, 31))
    short = shorten_rows(x, np.linalg.norm(x.astype(np.float64), axis=1), basis).vectors
    bytes_ = quantize(short, cut, sample_positions(n))
    integers = bytes_.bytes.astype(np.int64)
    reached = integers @ integers.T + bytes_.levels[:, None] + bytes_.levels >= bytes_.least
    products = short.astype(np.float64) @ short.T.astype(np.float64)
    assert reached[products >= cut].all()


def test_leading_directions_are_orthonormal():
    rows = make_rows("random", 5, 9, 0)
    for x in (np.zeros_like(rows), rows[:1].repeat(5, axis=0), rows):
        basis = leading_directions(x, 7).astype(np.float64)
        assert np.allclose(basis.T @ basis, np.eye(7), atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 500, 1024, 1025, 70_000])
def test_row_sample_is_ascending_and_unique(n):
    rows = sample_positions(n)
    assert (np.diff(rows) > 0).all()
    assert 0 <= rows.min() <= rows.max() < n
    assert len(rows) >= min(n, 1024) * 0.6


@pytest.mark.parametrize(
    ("pays", "forms", "chosen"),
    [
        (True, FORMS, "compiled"),
        (False, FORMS, "pruned"),
        (False, ["compiled"], "compiled"),
        (True, ["plain", "pruned"], "pruned"),
    ],
)
def test_kernel_is_chosen_only_where_it_pays(monkeypatch, pays, forms, chosen):
    savings = []
    expected = {"plain": 20.0, "pruned": 10.0, "compiled": 1.0}
    plans = [Plan(form, expected[form], 0.0, lambda: None) for form in forms]
    monkeypatch.setattr(join_planner, "_make_plans", lambda *_: plans)
    monkeypatch.setattr(join_planner, "find_kernel_problem", lambda: None)
    monkeypatch.setattr(join_planner.KERNEL, "pays", lambda seconds: savings.append(seconds) or pays)
    assert choose_plan(make_join(make_rows("random", 12_000, 64, 0), 0.9), 2, forms=forms).form == chosen
    assert savings == ([9.0] if tuple(forms) == FORMS else [])


def test_planner_skips_kernel_if_not_cheapest(monkeypatch):
    plans = [Plan("pruned", 1.0, 0.0, lambda: None), Plan("compiled", 2.0, 0.0, lambda: None)]
    monkeypatch.setattr(join_planner, "_make_plans", lambda *_: plans)
    monkeypatch.setattr(join_planner.KERNEL, "pays", lambda _: pytest.fail("the cost of numba was estimated"))
    assert choose_plan(make_join(make_rows("random", 12_000, 64, 0), 0.9), 2).form == "pruned"


def test_planner_uses_numpy_without_kernel(monkeypatch):
    monkeypatch.setattr(join_planner, "find_kernel_problem", lambda: "a reason")
    join = make_join(make_rows("anisotropic", 3000, 64, 0), 0.9)
    monkeypatch.setattr(join_planner.KERNEL, "pays", lambda _: True)
    assert choose_plan(join, 2).form in ("plain", "pruned")
    assert choose_plan(join, 2, forms=["compiled"]).form == "pruned"


@pytest.mark.parametrize(("n", "pays"), [(20_000, False), (400_000, True)])
def test_kernel_saves_more_on_larger_joins(monkeypatch, n, pays):
    savings = []
    monkeypatch.setattr(join_planner.KERNEL, "pays", lambda seconds: savings.append(seconds) or False)
    choose_plan(make_join(make_rows("clustered", n, 32, 0), 0.9), 2)
    assert (savings[0] > STARTING + LOADING + COMPILING) == pays


def test_small_or_dense_joins_are_not_pruned():
    assert choose_plan(make_join(make_rows("random", 500, 64, 0), 0.9), 2).form == "plain"
    assert choose_plan(make_join(make_rows("random", 4000, 600, 0), -0.5), 2, forms=["plain", "pruned"]).form == "plain"


def test_pruning_needs_decaying_spectrum():
    noise = np.random.default_rng(0).standard_normal((6000, 512))
    decaying, flat = np.arange(1, 513) ** -1.0, np.ones(512)
    for scale, threshold, form in ((decaying, 0.9, "pruned"), (flat, 0.4, "plain")):
        assert choose_plan(make_join(normalize(noise * scale), threshold), 2, forms=["plain", "pruned"]).form == form


@pytest.mark.slow
@pytest.mark.parametrize("form", [form for form in FORMS if form != "compiled"])
def test_join_bounds_and_orders_blocks(form):
    assert_bounded_blocks(form)
