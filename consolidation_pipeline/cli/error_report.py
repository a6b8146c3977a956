"""How an error is told: one line for people, one object for programs, an exit code for scripts."""

from __future__ import annotations

import sys

import typer

from consolidation_pipeline.cli.output import print_json
from consolidation_pipeline.errors import ConflictError, ConsolidationError, error_kind

FAILED = 1
INTERRUPTED = 130

_SHOWN_CONFLICTS = 5


def report_error(error: Exception, *, as_json: bool) -> int:
    """Tell ``error`` on standard error and, with ``as_json``, on standard output; returns the exit code."""
    print(describe_error(error), file=sys.stderr)
    if as_json:
        conflicts = {"conflicts": list(error.conflicts)} if isinstance(error, ConflictError) else {}
        print_json({"error": error_name(error), "message": error_message(error), **conflicts})
    return error.exit_code if isinstance(error, ConsolidationError | typer.TyperException) else FAILED


def error_name(error: Exception) -> str:
    """The class in snake case without its ending: ``NotFoundError`` is ``not_found``. All of typer's are ``usage``."""
    if isinstance(error, typer.TyperException):
        return "usage"
    return error_kind(error)


def describe_error(error: Exception) -> str:
    """The line for people: the message and what is in conflict. Called without arguments, a command shows its help."""
    message = error_message(error)
    if isinstance(error, typer.TyperException) and "\n" in message:
        return message
    if isinstance(error, ConflictError) and error.conflicts and error.conflicts[0] not in message:
        more = len(error.conflicts) - _SHOWN_CONFLICTS
        message += f" ({', '.join(error.conflicts[:_SHOWN_CONFLICTS])}{f' and {more} more' if more > 0 else ''})"
    return f"error: {' '.join(message.split())}"


def error_message(error: Exception) -> str:
    """What the error says; of an unforeseen one the first line, and how to learn more."""
    if isinstance(error, typer.TyperException):
        return error.format_message()
    if isinstance(error, ConsolidationError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"unexpected {type(error).__name__}: {first} (--debug shows where; `consolidation doctor` checks the set-up)"
