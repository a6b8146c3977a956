"""Findings of the diagnosis of an installation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_MAX_LISTED = 10

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis."""

    check: str
    status: Status
    message: str


def list_finding(check: str, found: Sequence[str], *, what: str, fine: str, status: Status = "warning") -> Finding:
    """Return a finding that lists at most ten items of ``found``, followed by ``what``; or ``fine`` if it is empty."""
    if not found:
        return Finding(check, "ok", fine)
    more = f" and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
    return Finding(check, status, f"{', '.join(found[:_MAX_LISTED])}{more} {what}".rstrip())
