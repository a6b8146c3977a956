"""Ids that people give whole or by their first digits."""

import re
from collections.abc import Sequence
from uuid import UUID

from consolidation_pipeline.errors import NotFoundError, UsageError

SHORTEST_PREFIX = 8
_PREFIX = re.compile(rf"[0-9a-f]{{{SHORTEST_PREFIX},32}}")


def read_id(given: str) -> UUID | None:
    """Return the id that is given whole, None if ``given`` is something else."""
    try:
        return UUID(given)
    except ValueError:
        return None


def find_bounds(reference: str, problem: str) -> tuple[UUID, UUID]:
    """Return the lowest and the highest id that a reference may mean: both are the id if it is a whole one.

    Args:
        reference: An id, or at least its first ``SHORTEST_PREFIX`` hexadecimal digits.
        problem: What is wrong with anything else, and what to give: the end of the message.

    Raises:
        UsageError: The reference is neither.
    """
    if id_ := read_id(reference):
        return id_, id_
    digits = reference.lower().replace("-", "")
    if not _PREFIX.fullmatch(digits):
        raise UsageError(f"{reference!r} {problem} its first {SHORTEST_PREFIX} or more digits")
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def may_be_id(reference: str) -> bool:
    """Return True if a reference is a whole id, or may be the first digits of one."""
    try:
        find_bounds(reference, "is no id: give")
    except UsageError:
        return False
    return True


def choose_id(reference: str, found: Sequence[UUID], missing: str) -> UUID:
    """Return the one id that was found for a reference.

    Raises:
        NotFoundError: There is none, with the message ``missing``.
        UsageError: There are several.
    """
    if not found:
        raise NotFoundError(missing)
    if len(found) > 1:
        raise UsageError(f"several ids begin with {reference}, such as {found[0]} and {found[1]}")
    return found[0]
