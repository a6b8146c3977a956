"""Markup of quoted statements."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.statement_markup import strip_commit_prefix, strip_markup


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("**Rule** check *all* of it.", "Rule check all of it."),
        ("**Rule: cut off", "Rule: cut off"),
        ("## Heading", "Heading"),
        ("__Use this__ now", "Use this now"),
        ("The side is (2 * x - 1) * n.", "The side is (2 * x - 1) * n."),
        ("Use 2**3, a*b and f(**options).", "Use 2**3, a*b and f(**options)."),
        ("Match *.py and *.js, and call __init__.", "Match *.py and *.js, and call __init__."),
    ],
)
def test_emphasis_goes_and_arithmetic_stays(text: str, told: str) -> None:
    assert strip_markup(text) == told


def test_commit_prefix_becomes_its_scope() -> None:
    assert strip_commit_prefix("feat(api): add paging") == "Api: add paging"
    assert strip_commit_prefix("fix: close the socket") == "Close the socket"
    assert strip_commit_prefix("the socket is closed") == "the socket is closed"
