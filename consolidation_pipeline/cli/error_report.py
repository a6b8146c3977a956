"""Error output: one line on standard error, one JSON object for programs, and an exit code."""

from __future__ import annotations

import sys

import typer

from consolidation_pipeline.cli.output import print_json
from consolidation_pipeline.core.invalid_values import describe_errors
from consolidation_pipeline.errors import ConflictError, ConsolidationError, error_kind

FAILED = 1
INTERRUPTED = 130

_SHOWN_CONFLICTS = 5


def report_error(error: Exception, *, as_json: bool) -> int:
    """Print ``error`` to standard error and, with ``as_json``, to standard output. Return the exit code."""
    print(describe_error(error), file=sys.stderr)
    if as_json:
        conflicts = {"conflicts": list(error.conflicts)} if isinstance(error, ConflictError) else {}
        print_json({"error": error_name(error), "message": error_message(error), **conflicts})
    return error.exit_code if isinstance(error, ConsolidationError | typer.TyperException) else FAILED


def error_name(error: Exception) -> str:
    """Return the name of an error for programs, see ``errors.error_kind``. All errors of typer are ``usage``."""
    if isinstance(error, typer.TyperException):
        return "usage"
    return error_kind(error)


def describe_error(error: Exception) -> str:
    """Return an error as one line for people, with its conflicts. A list of these and the help have more lines."""
    message = error_message(error)
    if isinstance(error, ConflictError) and error.listed:
        return "\n  ".join([f"error: {error.headline}", *error.listed])
    if isinstance(error, typer.TyperException) and "\n" in message:
        return message
    if isinstance(error, ConflictError) and error.conflicts and error.conflicts[0] not in message:
        more = len(error.conflicts) - _SHOWN_CONFLICTS
        message += f" ({', '.join(error.conflicts[:_SHOWN_CONFLICTS])}{f' and {more} more' if more > 0 else ''})"
    return f"error: {' '.join(message.split())}"


def error_message(error: Exception) -> str:
    """Return the message; of an error of the database or an unexpected one its first line and a hint."""
    if isinstance(error, typer.TyperException):
        return _translate(error).format_message()
    if isinstance(error, ConsolidationError):
        return str(error)
    if isinstance(error, typer.Abort):
        return "not confirmed, nothing was done (--yes does not ask)"
    first = next(iter(str(error).splitlines()), "")
    hint = "--debug shows the traceback; `consolidation doctor` checks the set-up"
    if _is_unavailable(error):
        return f"the database went away or cannot go on: {first}; what was committed is kept, try again ({hint})"
    return f"unexpected {type(error).__name__}: {first} ({hint})"


def _is_unavailable(error: Exception) -> bool:
    from consolidation_pipeline.store.database.engine import is_unavailable

    return is_unavailable(error)


def _translate(error: typer.TyperException) -> typer.TyperException:
    """Return an error of typer in which pydantic's words are ours."""
    from pydantic import ValidationError

    if isinstance(error.__cause__, ValidationError):
        error.message = describe_errors(error.__cause__.errors()[:1])
    return error
