"""Templates into pages, with everything escaped, and the words that pages use for what the store holds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

KIND_LABELS = {
    "raw": "memory",
    "merged": "merged memory",
    "pattern": "pattern",
    "summary": "summary",
    "principle": "principle",
    "procedural": "profile",
    "playbook": "playbook entry",
}
PLURALS = {
    "memory": "memories",
    "merged memory": "merged memories",
    "summary": "summaries",
    "playbook entry": "playbook entries",
    "entry": "entries",
    "is": "are",
    "waits": "wait",
}
# What a phase of the ledger did, told to somebody who never saw its name.
OPERATION_LABELS = {
    "merge": "Merged near-duplicates",
    "summarize": "Summarised",
    "pattern": "Found a pattern",
    "principle": "Found a principle",
    "promote": "Put into the playbook",
    "archive": "Archived",
    "restore": "Brought back",
    "associate": "Related two memories",
    "edit": "Changed",
    "review": "A person decided",
    "rollback": "Undid",
    "retention": "Removed old history",
}
CONFLICT_LABELS = {
    "number": "different numbers",
    "version": "different versions",
    "date": "different dates",
    "path": "different paths",
    "url": "different addresses",
    "identifier": "different names in code",
    "error_code": "different error codes",
    "quoted": "different quotations",
    "polarity": "one says the opposite",
    "length": "too short to be sure",
}
STATUS_LABELS = {
    "pending": "waiting",
    "validated": "approved",
    "rejected": "rejected",
    "superseded": "overtaken",
    "expired": "expired",
    "running": "running",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}


def count(number: int, noun: str) -> str:
    """``1 memory``, ``2,000 memories``."""
    return f"{number:,} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """``memory`` or ``memories``."""
    return noun if number == 1 else plural_of(noun)


def plural_of(noun: str) -> str:
    """``memories``."""
    return PLURALS.get(noun, noun + "s")


def day(when: datetime | None) -> str:
    """``21 Nov 2026``."""
    return "" if when is None else f"{when.astimezone(UTC).day} {when.astimezone(UTC):%b %Y}"


def moment(when: datetime | None) -> str:
    """``21 Nov 2026, 14:05 UTC``."""
    return "" if when is None else f"{day(when)}, {when.astimezone(UTC):%H:%M} UTC"


def percent(share: float | None) -> str:
    """``97 %``; never 100 % of what is not whole."""
    if share is None:
        return "–"
    return f"{int(100 * share + 1e-6) if share < 1 else 100} %"


def person(name: str | None) -> str:
    """A name without the door it came through."""
    return (name or "").rpartition(":")[2] or "somebody"


def spaced(word: str) -> str:
    """``error fix`` for ``error_fix``."""
    return word.replace("_", " ")


def brief(text: str, most: int = 160) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rsplit(" ", 1)[0] + "…"


def opening(text: str, most: int = 320) -> str:
    """The beginning of a text, line by line."""
    return text if len(text) <= most else text[: most - 1].rsplit(None, 1)[0] + "…"


def query(given: Iterable[tuple[str, Any]] | dict[str, Any], **other: Any) -> str:
    """``?a=1&b=2`` of what is not empty, with other values for some."""
    chosen = {**dict(given), **other}
    parts = {name: value for name, value in chosen.items() if value not in (None, "", 0)}
    return f"?{urlencode(parts)}" if parts else "?"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("consolidation_pipeline.api.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (day, moment, percent, person, spaced, brief, opening, plural, plural_of)
    made.filters |= {function.__name__: function for function in filters}
    made.globals |= {"count": count, "query": query}
    made.globals |= {
        "kind_labels": KIND_LABELS,
        "operation_labels": OPERATION_LABELS,
        "conflict_labels": CONFLICT_LABELS,
        "status_labels": STATUS_LABELS,
    }
    return made


def render(request: Request, template: str, *, status: int = 200, **shown: Any) -> HTMLResponse:
    """A page. It knows the visitor, if there is one, and the token that its forms carry."""
    visitor = getattr(request.state, "visitor", None)
    known = {"visitor": visitor, "form_token": visitor.form_token if visitor else "", "path": request.url.path}
    return HTMLResponse(_environment().get_template(template).render({**known, **shown}), status)
