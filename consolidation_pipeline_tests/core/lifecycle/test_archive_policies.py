"""Archive policies: stale and forgettable memories, the plan of a run, and its review limit."""

import math
from dataclasses import fields
from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.lifecycle.archive_policies import (
    ArchivePolicies,
    ArchiveUnits,
    exceeds_share,
    explain_archives,
    forecast_staleness,
    is_forgettable,
    is_stale,
    merge_units,
    plan_archives,
)
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.errors import InvalidMemoryError

BELOW_90 = math.nextafter(90.0, 0.0)
FORGETTABLE = {"importance": 0.3, "idle_days": 400.0, "memory_type": "learning", "relevance": 0.001, "pinned": False}

# Values on and beside every boundary, and some others.
days = st.one_of(st.sampled_from([0.0, BELOW_90, 90.0, 91.5]), st.floats(0.0, 800.0))
importances = st.one_of(st.sampled_from([0.0, math.nextafter(0.7, 0.0), 0.7, 1.0]), st.floats(0.0, 2.0))
scores = st.one_of(st.sampled_from([0.001, math.nextafter(0.01, 0.0), 0.01, math.inf]), st.floats(0.0, 1.0))
units = st.lists(
    st.tuples(days, st.integers(0, 5), st.booleans(), importances, st.sampled_from(MEMORY_TYPES), scores),
    max_size=20,
)


def make_units(rows):
    columns = zip(*((*row, 1) for row in rows), strict=True) if rows else [()] * len(fields(ArchiveUnits))
    kinds = (np.float64, np.int64, bool, np.float64, np.array(MEMORY_TYPES).dtype, np.float64, np.int64)
    return ArchiveUnits(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))


@pytest.mark.parametrize(
    ("idle_days", "reused_count", "pinned", "stale"),
    [
        (90, 2, False, True),
        (BELOW_90, 2, False, False),
        (90, 3, False, False),
        (4000.0, 0, False, True),
        (4000.0, 0, True, False),
        (0.0, 0, False, False),
    ],
)
def test_staleness_needs_90_idle_days_and_few_reuses(idle_days, reused_count, pinned, stale):
    assert is_stale(idle_days, reused_count, pinned) == stale
    assert is_stale(idle_days=idle_days, reused_count=reused_count, pinned=pinned) == stale


def test_staleness_limits_are_configurable():
    assert is_stale(30, 0, False, stale_days=30)
    assert not is_stale(29.9, 0, False, stale_days=30)
    assert is_stale(400, 9, False, min_reuse=10)
    assert not is_stale(400, 0, False, min_reuse=0)


@pytest.mark.parametrize(
    ("changes", "forgettable"),
    [
        ({}, True),
        ({"importance": 0.7}, False),
        ({"importance": math.nextafter(0.7, 0.0)}, True),
        ({"importance": 1.5}, False),
        ({"idle_days": BELOW_90}, False),
        ({"idle_days": 90}, True),
        ({"relevance": 0.01}, False),
        ({"relevance": math.nextafter(0.01, 0.0)}, True),
        ({"relevance": 0.0}, True),
        ({"relevance": math.inf}, False),
        ({"pinned": True}, False),
        *(({"memory_type": name}, name not in ("decision", "discovery")) for name in MEMORY_TYPES),
    ],
)
def test_each_protection_keeps_memory(changes, forgettable):
    assert is_forgettable(**FORGETTABLE | changes) == forgettable


def test_relevance_at_threshold_keeps_memory():
    assert is_forgettable(**FORGETTABLE | {"relevance": 0.9}, threshold=1.0)
    assert not is_forgettable(**FORGETTABLE | {"relevance": 1.0}, threshold=1.0)
    assert not is_forgettable(**FORGETTABLE | {"relevance": 0.0}, threshold=0.0)


@settings(deadline=None)
@given(importances, days, st.sampled_from(MEMORY_TYPES), scores, st.booleans())
def test_forgettable_follows_all_protections(importance, age, kind, score, pinned):
    """INV-001 to INV-004: decisions, discoveries, and young, important or relevant memories are never forgotten."""
    expected = not (importance >= 0.7 or age < 90 or kind in ("decision", "discovery") or pinned) and score < 0.01
    assert is_forgettable(importance, age, kind, score, pinned) == expected


@pytest.mark.parametrize("wrong", [math.nan, -1, -0.001])
@pytest.mark.parametrize("name", ["importance", "idle_days", "relevance"])
def test_forgettable_rejects_invalid_numbers_by_name(name, wrong):
    with pytest.raises(ValueError, match=f"{name} holds {wrong}"):
        is_forgettable(**FORGETTABLE | {name: wrong})


@pytest.mark.parametrize("wrong", [math.nan, -1])
@pytest.mark.parametrize("name", ["idle_days", "reused_count"])
def test_staleness_rejects_invalid_numbers_by_name(name, wrong):
    with pytest.raises(ValueError, match=f"{name} holds"):
        is_stale(**{"idle_days": [1.0, 2.0], "reused_count": [0.0, 0.0], "pinned": False} | {name: [0.0, wrong]})


def test_forgettable_rejects_unknown_memory_type():
    with pytest.raises(InvalidMemoryError, match=r"'Decision'.*error_fix, discovery"):
        is_forgettable(**FORGETTABLE | {"memory_type": np.array(["learning", "Decision"])})


@settings(deadline=None)
@given(units)
def test_archive_policies_match_scalars(rows):
    made = make_units(rows)
    stale = is_stale(made.idle_days, made.reused_count, made.pinned)
    forgettable = is_forgettable(made.importance, made.idle_days, made.memory_type, made.relevance, made.pinned)
    assert stale.dtype == forgettable.dtype == np.bool_
    assert stale.tolist() == [is_stale(idle, reused, pinned) for idle, reused, pinned, *_ in rows]
    assert forgettable.tolist() == [is_forgettable(w, idle, kind, r, p) for idle, _, p, w, kind, r in rows]


def test_archive_policies_broadcast_scalars():
    assert is_stale([89.0, 90.0], 0, False).tolist() == [False, True]
    assert is_forgettable(0.1, 100.0, np.array(["decision", "change"]), 0.001, False).tolist() == [False, True]


@pytest.mark.parametrize(
    ("archived", "of", "share", "exceeds"),
    [
        (50, 100, 0.5, False),
        (51, 100, 0.5, True),
        (19, 19, 0.5, False),
        (20, 20, 0.5, True),
        (100, 100, 1.0, False),
        (0, 100, 0.0, False),
        (1, 100, 0.0, True),
        (29, 100, 0.29, False),  # 0.29 * 100 is a little less than 29
        (30, 100, 0.29, True),
    ],
)
def test_large_share_of_archives_needs_review(archived, of, share, exceeds):
    assert exceeds_share(archived, of, max_share=share) is exceeds


OLD = (123.9, 1, False, 0.3, "learning", 0.001)


def test_archive_plan_explains_each_row():
    rows = [(1.0, 9, False, 0.3, "learning", 0.001), OLD, (90.0, 0, False, 0.9, "decision", 0.5)]
    plan = plan_archives(make_units(rows), ArchivePolicies())
    assert plan.rows.tolist() == [1, 2]
    assert plan.reasons.tolist() == ["staleness", "staleness"]
    reasons = explain_archives(make_units(rows), plan)
    assert reasons == ["not used for 123 days, 1 reuse", "not used for 90 days, 0 reuses"]


def test_forgetting_wins_over_staleness():
    plan = plan_archives(make_units([OLD]), ArchivePolicies(forgetting=True))
    assert plan.reasons.tolist() == ["forgotten"]
    assert explain_archives(make_units([OLD]), plan) == ["relevance 0.001 after 123 days without use, importance 0.3"]


def test_disabled_policy_archives_nothing():
    both = make_units([OLD, (100.0, 9, False, 0.3, "learning", 0.001)])
    assert plan_archives(both, ArchivePolicies(staleness=False)).rows.tolist() == []
    assert plan_archives(both, ArchivePolicies(staleness=False, forgetting=True)).rows.tolist() == [0, 1]
    assert plan_archives(both, ArchivePolicies(staleness=True, forgetting=True)).reasons.tolist() == ["forgotten"] * 2


def test_archive_plan_uses_configured_limits():
    limits = ArchivePolicies(True, True, stale_days=200, min_reuse=1, forget_threshold=0.0005)
    assert plan_archives(make_units([OLD]), limits).rows.tolist() == []


def test_forecast_counts_memories_by_due_date():
    rows = [
        (0.0, 0, False, 0.5, "learning", 0.5),
        (0.5, 2, False, 0.5, "learning", 0.5),
        (80.0, 0, False, 0.5, "decision", 0.5),
        (90.0, 0, False, 0.5, "learning", 0.5),  # stale now
        (80.0, 3, False, 0.5, "learning", 0.5),  # used often
        (80.0, 0, True, 0.5, "learning", 0.5),
    ]
    as_of = datetime(2026, 11, 23, 15, tzinfo=UTC)
    forecast = forecast_staleness(make_units(rows), ArchivePolicies(), as_of)
    assert list(forecast.items()) == [(date(2026, 12, 3), 1), (date(2027, 2, 21), 2)]
    assert forecast_staleness(make_units(rows), ArchivePolicies(staleness=False), as_of) == {}


@settings(deadline=None)
@given(units, st.booleans(), st.booleans())
def test_archive_plan_matches_policies(rows, staleness, forgetting):
    plan = plan_archives(make_units(rows), ArchivePolicies(staleness=staleness, forgetting=forgetting))
    expected = {}
    for at, (idle, reused, pinned, worth, kind, score) in enumerate(rows):
        if staleness and is_stale(idle, reused, pinned):
            expected[at] = "staleness"
        if forgetting and is_forgettable(worth, idle, kind, score, pinned):
            expected[at] = "forgotten"
    assert dict(zip(plan.rows.tolist(), plan.reasons.tolist(), strict=True)) == expected
    assert len(explain_archives(make_units(rows), plan)) == len(plan)


def test_merge_units_combines_fields_of_sources():
    rows = [
        (200.0, 1, False, 0.2, "learning", 0.5),
        (150.0, 1, False, 0.8, "change", 0.5),
        (95.0, 2, True, 0.1, "learning", 0.5),
        (100.0, 1, False, 0.4, "warning", 0.5),
    ]
    merged = merge_units(make_units(rows), np.array([0, 0, 1, 0]))
    assert merged.idle_days.tolist() == [100.0, 95.0]
    assert merged.reused_count.tolist() == [3, 2]
    assert merged.pinned.tolist() == [False, True]
    assert merged.importance.tolist() == [0.8, 0.1]
    assert merged.memory_type.tolist() == ["learning", "learning"]
    assert merged.relevance.tolist() == [math.inf, math.inf]
    assert merged.memories.tolist() == [3, 1]
    assert len(plan_archives(merged, ArchivePolicies(forgetting=True, min_reuse=4))) == 1
    assert len(merge_units(make_units([]), np.array([], dtype=np.int64))) == 0
