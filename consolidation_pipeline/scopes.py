"""Scopes: groups of memories that are never compared, merged or summarized together.

The option ``scope`` of a project names the fields of a memory that its scope key is made of.
"""

import re
from collections.abc import Mapping

# The option's value for a project without walls: all of its memories are of one scope.
NO_WALLS = "project"
COLUMNS = ("user_id", "agent_id", "session_id")
EXPECTED = (
    "project (no walls), or any of user_id, agent_id, session_id and metadata.KEY, separated by commas; "
    "KEY is made of letters, digits, '_' and '-'"
)

_METADATA = re.compile(r"metadata\.([A-Za-z0-9_-]{1,63})")


def parse_scope(option: str) -> tuple[str, ...]:
    """Return the fields that a scope key is made of, columns first; empty for ``NO_WALLS``.

    Raises:
        ValueError: The option is not as ``EXPECTED``.
    """
    fields = {field.strip() for field in option.split(",")}
    if fields == {NO_WALLS}:
        return ()
    if not all(field in COLUMNS or _METADATA.fullmatch(field) for field in fields):
        raise ValueError(f"expected {EXPECTED}")
    return (*(name for name in COLUMNS if name in fields), *sorted(fields - set(COLUMNS)))


def normalize_scope(option: str) -> str:
    """Return the option with its fields in one order. Raise ValueError as ``parse_scope``."""
    return ",".join(parse_scope(option)) or NO_WALLS


def metadata_key(field: str) -> str | None:
    """Return KEY of the field ``metadata.KEY``; None for a column."""
    found = _METADATA.fullmatch(field)
    return None if found is None else found[1]


def make_scope_key(values: Mapping[str, str | None], option: str) -> str:
    """Return the scope key of a memory; empty if it has a value in none of the fields.

    The key of one field is its value. Several values are joined by ``/``; in each, ``~`` and ``/`` are written ``~0``
    and ``~1``, as in a JSON pointer.

    Args:
        values: Value by field; a missing or blank one is none.
    """
    found = [values.get(field) or "" for field in parse_scope(option)]
    if len(found) <= 1 or not any(found):
        return "".join(found)
    return "/".join(map(_escape, found))


def list_prefixes(typed: str, option: str) -> tuple[str, ...]:
    """Return how scope keys begin that a person may mean by ``typed``: their first values, such as a user id alone.

    The id may be written as in a key or as it is. Empty if ``typed`` is a whole key, or no key of this option.
    """
    if not typed or typed.count("/") >= len(parse_scope(option)) - 1:
        return ()
    return tuple(dict.fromkeys((f"{typed}/", f"{_escape(typed)}/")))


def complete_scope(typed: str, option: str) -> str:
    """Return the scope key that has the values ``typed`` and no others: ``ada//`` for ``ada``."""
    missing = len(parse_scope(option)) - 1 - typed.count("/")
    return typed + "/" * missing if typed else typed


def _escape(value: str) -> str:
    return value.replace("~", "~0").replace("/", "~1")
