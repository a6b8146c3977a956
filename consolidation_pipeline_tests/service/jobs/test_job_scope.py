"""Scope of a requested run: valid, wider than requested, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.errors import InvalidScopeError
from consolidation_pipeline.service.jobs.job_scope import check_scope


@pytest.mark.parametrize(
    ("scope", "wider"),
    [
        ({}, False),
        ({"unconsolidated_only": True}, False),
        ({"memory_types": list(MEMORY_TYPES)}, False),
        ({"memory_types": ["decision"]}, True),
        ({"date_range": {"start": "2026-01-01", "end": "2026-02-01T00:00:00Z"}}, True),
        ({"date_range": {"start": "2026-01-01"}}, True),
        ({"date_range": ["2026-01-01", "2026-02-01"]}, True),
    ],
)
def test_scope_by_type_or_date_is_wider_than_requested(scope: dict[str, Any], wider: bool) -> None:
    assert check_scope(scope) is wider


@pytest.mark.parametrize(
    "scope",
    [
        {"tags": ["x"]},
        {"unconsolidated_only": 1},
        {"memory_types": []},
        {"memory_types": "decision"},
        {"memory_types": ["dream"]},
        {"memory_types": [["decision"]]},
        {"date_range": "2026-01-01"},
        {"date_range": {}},
        {"date_range": {"start": 5}},
        {"date_range": ["2026-02-01", "2026-01-01"]},
        {"date_range": ["2026-02-01", "2026-01-01T00:00:00Z"]},
    ],
)
def test_invalid_scope_is_refused(scope: dict[str, Any]) -> None:
    with pytest.raises(InvalidScopeError, match=r"^Invalid scope: "):
        check_scope(scope)
