"""Association rules: types, limits and confidence, and the weekly sample of memories."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.lifecycle.associations import (
    NO_RULE,
    PARALLEL,
    Association,
    classify_types,
    describe_rule,
    iter_dissimilar_pairs,
    match_rules,
    sample_weekly,
)
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.relation_types import ASSOCIATION_TYPES
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.hypothesis_examples import examples

INSIGHTS, WORK = {"discovery", "bugfix", "error_fix"}, {"refactor", "feature", "codebase_knowledge"}

types = st.sampled_from(MEMORY_TYPES)
limits = [limit + step for limit in (0.3, 0.4, 0.5, 0.7) for step in (-1e-9, 0.0, 1e-9)]
similarities = st.one_of(st.sampled_from(limits), st.floats(-1.0, 1.0))
gaps = st.one_of(st.sampled_from([7.0, -7.0, math.nextafter(7.0, 8.0)]), st.floats(-400.0, 400.0))


def associate(one: str, other: str, similarity: float, gap: float) -> Association | None:
    rule = int(match_rules(*classify_types((one, other)), similarity, gap))
    return describe_rule(rule, similarity) if rule else None


def apply_reference_rules(one: str, other: str, similarity: float, gap: float) -> tuple[str, float] | None:
    if one == other == "decision" and similarity < 0.3:
        return "contradicts", 0.6
    if ((one in INSIGHTS and other in WORK) or (other in INSIGHTS and one in WORK)) and similarity > 0.5:
        return "explains", 0.7
    if similarity > 0.7:
        return "shares_theme", similarity
    if abs(gap) <= 7 and similarity < 0.4:
        return "parallel_context", 0.5
    return None


def find_relation(one: str, other: str, similarity: float, gap: float) -> str | None:
    association = associate(one, other, similarity, gap)
    return None if association is None else association.relation_type


@settings(deadline=None, max_examples=examples(300))
@given(types, types, similarities, gaps)
def test_associate_matches_reference_rules(one, other, similarity, gap):
    association = associate(one, other, similarity, gap)
    relation = None if association is None else (association.relation_type, association.confidence)
    assert relation == apply_reference_rules(one, other, similarity, gap)


@settings(deadline=None)
@given(types, types, similarities, gaps)
def test_associate_is_symmetric(one, other, similarity, gap):
    assert associate(one, other, similarity, gap) == associate(other, one, similarity, -gap)


@settings(deadline=None)
@given(st.lists(st.tuples(types, types, similarities, gaps), min_size=0, max_size=30))
def test_batch_rules_match_single_pairs(pairs):
    ones, others, similarity, gap = (list(column) for column in zip(*pairs, strict=True)) if pairs else ([],) * 4
    rules = match_rules(classify_types(ones), classify_types(others), np.array(similarity, float), np.array(gap, float))
    assert rules.dtype == np.int8
    together = [describe_rule(rule, s) if rule else None for rule, s in zip(rules.tolist(), similarity, strict=True)]
    assert together == [associate(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("one", "other", "similarity", "gap", "expected"),
    [
        ("decision", "decision", 0.299, 0.0, "contradicts"),
        ("decision", "decision", 0.3, 100.0, None),
        ("decision", "decision", 0.3, 0.0, "parallel_context"),
        ("decision", "learning", 0.1, 100.0, None),
        ("discovery", "refactor", 0.501, 100.0, "explains"),
        ("discovery", "refactor", 0.5, 100.0, None),
        ("discovery", "refactor", 0.9, 0.0, "explains"),
        ("discovery", "bugfix", 0.6, 0.0, None),
        ("discovery", "bugfix", 0.9, 0.0, "shares_theme"),
        ("learning", "change", 0.701, 100.0, "shares_theme"),
        ("learning", "change", 0.7, 0.0, None),
        ("learning", "change", 0.399, 7.0, "parallel_context"),
        ("learning", "change", 0.399, math.nextafter(7.0, 8.0), None),
        ("learning", "change", 0.4, 0.0, None),
        ("discovery", "refactor", 0.399, 7.0, "parallel_context"),
    ],
)
def test_association_limits_are_strict(one, other, similarity, gap, expected):
    assert find_relation(one, other, similarity, gap) == expected


def test_association_limits_hold_for_float32():
    assert find_relation("decision", "decision", np.float32(0.3), 99.0) is None
    assert find_relation("learning", "change", np.float32(0.7), 99.0) is None


def test_association_states_its_reason():
    reason = "two decisions with a similarity below 0.3"
    assert associate("decision", "decision", 0.1, 3.0) == Association("contradicts", 0.6, reason)
    assert all(describe_rule(rule, 0.5).relation_type == name for rule, name in enumerate(ASSOCIATION_TYPES, 1))
    assert describe_rule(PARALLEL, 0.1).reason == "learned at most 7 days apart, with a similarity below 0.4"


def test_association_confidence_is_capped_at_one():
    association = associate("learning", "learning", 1.0000001, 0.0)
    assert association is not None
    assert association.confidence == 1.0


def test_association_rules_ignore_nan():
    assert associate("decision", "decision", math.nan, 0.0) is None
    assert associate("learning", "learning", 0.1, math.nan) is None
    assert match_rules(0, 0, 0.5, 0.0) == NO_RULE


MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def test_weekly_sample_changes_each_week():
    first = sample_weekly(100, 20, name="shop", now=MONDAY)
    assert len(set(first.tolist())) == 20
    assert first.tolist() == sorted(first.tolist())
    assert (first >= 0).all()
    assert (first < 100).all()
    sunday = MONDAY + timedelta(days=6, hours=23)
    assert sample_weekly(100, 20, name="shop", now=sunday).tolist() == first.tolist()
    assert sample_weekly(100, 20, name="shop", now=MONDAY + timedelta(days=7)).tolist() != first.tolist()
    assert sample_weekly(100, 20, name="garden", now=MONDAY).tolist() != first.tolist()


@pytest.mark.parametrize("count", [0, 1, 19, 20])
def test_weekly_sample_takes_all_when_few(count):
    assert sample_weekly(count, 20, name="shop", now=MONDAY).tolist() == list(range(count))


@settings(deadline=None, max_examples=examples(30))
@given(st.integers(0, 40), st.integers(0, 5), st.sampled_from([-0.5, 0.0, 0.3, 1.5]))
def test_dissimilar_pairs_match_brute_force(count, seed, limit):
    x = normalize(np.random.default_rng(seed).standard_normal((count, 3)))
    blocks = list(iter_dissimilar_pairs(x, limit))
    found = [pair for block in blocks for pair in zip(block.i.tolist(), block.j.tolist(), strict=True)]
    wide = x.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1)
    cosines = (wide @ wide.T / np.outer(lengths, lengths)).astype(np.float32)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    assert found == [(i, j) for i, j in pairs if cosines[i, j] < limit]


def test_dissimilar_pairs_ignore_block_size(monkeypatch):
    x = normalize(np.random.default_rng(1).standard_normal((30, 4)))
    (whole,) = iter_dissimilar_pairs(x, 0.2)
    monkeypatch.setattr("consolidation_pipeline.core.lifecycle.associations._BLOCK_SIZE", 70)
    parts = list(iter_dissimilar_pairs(x, 0.2))
    assert len(parts) > 10
    assert np.concatenate([part.i for part in parts]).tolist() == whole.i.tolist()
    assert np.concatenate([part.j for part in parts]).tolist() == whole.j.tolist()
