"""Rendering of the web pages: Jinja templates with autoescaping, labels and number formats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from itertools import count
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from consolidation_pipeline.core.knowledge.difference_words import DIFFERENCE_LABELS
from consolidation_pipeline.core.text.counted_nouns import counted, plural, plural_of
from consolidation_pipeline.core.text.truncation import truncate_at_word

KIND_LABELS = {
    "raw": "memory",
    "merged": "merged memory",
    "pattern": "pattern",
    "summary": "summary",
    "principle": "principle",
    "procedural": "profile",
    "playbook": "playbook entry",
}
# Operations of the ledger in words that need no knowledge of it.
OPERATION_WORDS = {
    "merge": "Merged near-duplicates",
    "summarize": "Summarized",
    "pattern": "Found a pattern",
    "principle": "Found a principle",
    "promote": "Added to the playbook",
    "archive": "Archived",
    "restore": "Restored",
    "associate": "Linked two memories",
    "edit": "Edited",
    "review": "Review",
    "rollback": "Rolled back",
    "retention": "Removed old history",
    "erase": "Erased for good",
}
# What a review did, or a run to a playbook entry, by its outcome.
OUTCOME_WORDS = {
    "proposed": "Proposed a merge",
    "rewritten": "Rewrote a proposed merge",
    "superseded": "Proposed merge outdated",
    "validated": "Approved a merge",
    "rejected": "Rejected",
    "kept": "Kept as variants",
    "expired": "Withdrew a proposed merge",
    "confirmed": "Confirmed",
    "active": "Approved",
    "proposed entry": "Proposed a playbook entry",
    "changed entry": "Changed a playbook entry",
    "retired": "Dismissed",
}
# Outcomes that are nobody's decision, although the ledger names who made room for them or asked for the run.
PROGRAM_OUTCOMES = ("proposed", "rewritten", "superseded")
STATUS_LABELS = {
    "pending": "waiting",
    "validated": "approved",
    "rejected": "rejected",
    "kept": "kept as variants",
    "superseded": "outdated",
    "expired": "expired",
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}


def format_day(when: datetime | None) -> str:
    """Return a date as ``21 Nov 2026``, empty for None."""
    return "" if when is None else f"{when.astimezone(UTC).day} {when.astimezone(UTC):%b %Y}"


def format_time(when: datetime | None) -> str:
    """Return a time as ``21 Nov 2026, 14:05 UTC``, empty for None."""
    return "" if when is None else f"{format_day(when)}, {when.astimezone(UTC):%H:%M} UTC"


def format_tenths(share: float | None) -> str:
    """Return a share as ``29.9 %``, rounded as on the command line."""
    return "–" if share is None else f"{share:.1%}".replace("%", " %")


def format_percent(share: float | None) -> str:
    """Return a fraction from 0 to 1 as ``97 %``, rounded down: 100 % means exactly 1."""
    if share is None:
        return "–"
    return f"{int(100 * share + 1e-6) if share < 1 else 100} %"


def person_name(name: str | None) -> str:
    """Return a name from the ledger without the interface, such as ``anna`` for ``web:anna``."""
    return (name or "").rpartition(":")[2] or "unknown"


def difference_name(kind: str) -> str:
    """Return a kind of difference in words: ``different values, as in “to 1.2”`` for ``value: to #.#``."""
    name, _, form = kind.partition(": ")
    numbers = count(1)
    example = re.sub("#", lambda _: str(next(numbers)), form)
    return DIFFERENCE_LABELS.get(name, name) + (f", as in “{example}”" if form else "")


def spaced(word: str) -> str:
    """Replace underscores by spaces: ``error fix`` for ``error_fix``."""
    return word.replace("_", " ")


def one_line(text: str, most: int = 160) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else truncate_at_word(line, most - 1) + "…"


def excerpt(text: str, most: int = 320) -> str:
    """Return the beginning of a text with its line breaks."""
    return text if len(text) <= most else truncate_at_word(text, most - 1) + "…"


def query_string(params: Iterable[tuple[str, Any]] | dict[str, Any], **other: Any) -> str:
    """Return ``?a=1&b=2`` of the parameters that are not empty, with the values of ``other`` for some."""
    merged = {**dict(params), **other}
    filled = {name: value for name, value in merged.items() if value not in (None, "", 0)}
    return f"?{urlencode(filled)}" if filled else "?"


@cache
def _create_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("consolidation_pipeline.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (format_day, format_time, format_percent, format_tenths)
    filters = (*formats, difference_name, person_name, spaced, one_line, excerpt, plural, plural_of)
    environment.filters |= {function.__name__: function for function in filters}
    environment.globals |= {
        "counted": counted,
        "query_string": query_string,
        "kind_labels": KIND_LABELS,
        "operation_labels": OPERATION_WORDS,
        "outcome_labels": OUTCOME_WORDS,
        "program_outcomes": PROGRAM_OUTCOMES,
        "status_labels": STATUS_LABELS,
    }
    return environment


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page from a template, which also gets the visitor, the form token and the path."""
    visitor = getattr(request.state, "visitor", None)
    common = {"visitor": visitor, "form_token": visitor.form_token if visitor else "", "path": request.url.path}
    return HTMLResponse(_create_environment().get_template(template).render({**common, **values}), status)
