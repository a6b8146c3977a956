"""Invalid values of models: pydantic's errors in the words of this project."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

_MOST_SHOWN = 80
# Parts of a path that name a branch of a union, not a field.
_BRANCHES = {"str", "int", "float"}
# What is expected, by the type of the error, else by the part of it before the first underscore.
_EXPECTED = {
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "less_than": "a number < {lt}",
    "less_than_equal": "a number <= {le}",
    "literal_error": "{expected}",
    "string_too_long": "at most {max_length:,} characters",
    "string_too_short": "{min_length:,} or more characters",
    "string_unicode": "valid Unicode",
    "too_long": "at most {max_length:,} items",
    "too_short": "{min_length:,} or more items",
    "bool": "true or false",
    "date": "a day such as 2026-01-31",
    "datetime": "an ISO 8601 time",
    "dict": "an object",
    "finite": "a finite number",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "an object",
    "string": "text",
    "uuid": "an id (UUID)",
}


def shorten_value(value: object) -> str:
    """Return a value as it is shown in a message."""
    try:
        shown = repr(value)
    except ValueError:  # a number with more digits than Python converts
        shown = "..."
    return shown if len(shown) <= _MOST_SHOWN else shown[: _MOST_SHOWN - 3] + "..."


def describe_errors(errors: Iterable[Mapping[str, Any]], known: Collection[str] = ()) -> str:
    """Return the problems of ``explain_errors`` as one text."""
    explained = explain_errors(errors, known)
    return "; ".join(f"{path}: {problem}" if path else problem for path, problem in explained.items())


def explain_errors(errors: Iterable[Mapping[str, Any]], known: Collection[str] = ()) -> dict[str, str]:
    """Return the problem of each invalid field by its path: the value, shortened, and what would be right.

    Args:
        errors: As ``ValidationError.errors()`` returns them.
        known: Names of the fields, told where there is another one.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for error in errors:
        path = ".".join(str(part) for part in error["loc"] if part not in _BRANCHES)
        found.setdefault(path, []).append(error)
    return {path: _explain(branches, known) for path, branches in found.items()}


def _explain(branches: Sequence[Mapping[str, Any]], known: Collection[str]) -> str:
    """Return the problem of one field, which has an error for each branch of its union."""
    first = branches[0]
    kind = first.get("type")
    if kind == "missing":
        return "it is missing"
    if kind == "extra_forbidden":
        return "unknown field" + (f"; known are {', '.join(sorted(known))}" if known else "")
    if kind == "json_invalid":
        return f"it is no JSON: {first['ctx']['error']}"
    expected = [_describe_expected(error) for error in branches]
    if not all(expected):
        return str(first["msg"]).removeprefix("Value error, ")
    return f"expected {' or '.join(dict.fromkeys(expected))}, not {_describe_input(first)}"


def _describe_expected(error: Mapping[str, Any]) -> str:
    kind = error.get("type", "")
    return _EXPECTED.get(kind, _EXPECTED.get(kind.partition("_")[0], "")).format(**error.get("ctx", {}))


def _describe_input(error: Mapping[str, Any]) -> str:
    """Return the value, or the length of one that is too long or too short."""
    if error["type"] == "string_too_long":
        return f"{len(error['input']):,}"
    if error["type"] in ("too_long", "too_short"):
        return f"{error['ctx']['actual_length']:,}"
    return "null" if error["input"] is None else shorten_value(error["input"])
