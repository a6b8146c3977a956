"""What went wrong in a phase that went on nevertheless, under its stable names."""

from collections.abc import Sequence
from typing import Any

_SHOWN = 10


def describe_troubles(failures: Sequence[tuple[str, str]], stopped: str | None) -> dict[str, Any]:
    """Why parts failed, the first ten of them, and why the phase ended before its time; each only where it did."""
    told = {"failures": [": ".join(failure) for failure in failures[:_SHOWN]]} if failures else {}
    return {**told, **({"stopped": stopped} if stopped else {})}
