"""What a diagnosis is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_SHOWN = 10

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis."""

    check: str
    status: Status
    message: str


def listed(check: str, found: Sequence[str], *, what: str, fine: str, status: Status = "warning") -> Finding:
    """A finding that lists what was found, at most ten, or says ``fine``."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        Finding(check, status, f"{', '.join(found[:_SHOWN])}{more} {what}".rstrip())
        if found
        else Finding(check, "ok", fine)
    )
