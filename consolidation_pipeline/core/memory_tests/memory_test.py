"""One memory test: its kinds, its checks and its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.errors import UsageError

# Kind -> what it says of a project, in words.
KINDS = {
    "must_find": "a search finds a memory that says it, among the first",
    "must_not_merge": "two memories are never in one merged memory",
    "must_merge": "two memories are in one merged memory",
    "must_remember": "an active memory says it",
    "must_not_say": "no active memory and no playbook entry says it",
    "playbook_has": "an active playbook entry says it",
}
_PAIR_KINDS = ("must_merge", "must_not_merge")
# Places of a search that `must_find` looks at unless it says how many, and at most.
DEFAULT_WITHIN, MAX_WITHIN = 5, 50
MAX_TEXT_CHARS = 4_000
MAX_NAME_CHARS = 120
# Tests of one project, and of a file: a run searches for each of them several times.
MAX_TESTS = 1_000


@dataclass(frozen=True)
class MemoryTest:
    """A test of a project's memories.

    ``body``: ``query``, ``says`` and ``within`` of must_find; ``a`` and ``b``, texts or ids of raw memories, of
    must_merge and must_not_merge; ``text`` of the other kinds.
    """

    name: str
    kind: str
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        """All texts of the test."""
        return [value for value in self.body.values() if isinstance(value, str)]


def build_test(kind: str, value: Any, name: str | None = None) -> MemoryTest:
    """Return the test that ``kind: value`` of a file stands for; without a ``name`` it is named by its first text.

    Raises:
        UsageError: There is no such kind, or the value does not fit it.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is no kind of memory test; the kinds are {', '.join(KINDS)}")
    if kind == "must_find":
        body = _read_find(value)
    elif kind in _PAIR_KINDS:
        body = _read_pair(kind, value)
    else:
        body = {"text": _read_text(kind, value)}
    if name is not None and not name.strip():
        raise UsageError(f"the name of {kind} is blank: leave it out, or give one")
    if name is not None and len(name.strip()) > MAX_NAME_CHARS:
        raise UsageError(f"the name {name.strip()[:40]!r}.. has more than {MAX_NAME_CHARS} characters")
    return MemoryTest(" ".join(name.split()) if name else _name(kind, body), kind, body)


def to_value(test: MemoryTest) -> Any:
    """Return the value that a file has under the kind of a test."""
    if test.kind in _PAIR_KINDS:
        return [test.body["a"], test.body["b"]]
    return dict(test.body) if test.kind == "must_find" else test.body["text"]


def _read_find(value: Any) -> dict[str, Any]:
    example = "must_find needs {query: TEXT, says: TEXT, within: 5}"
    if not isinstance(value, Mapping):
        raise UsageError(f"{example}, not {value!r}")
    unknown = sorted(set(map(str, value)) - {"query", "says", "within"})
    if unknown or not {"query", "says"} <= value.keys():
        raise UsageError(f"{example}; " + (f"{unknown[0]!r} is not known" if unknown else "query or says is missing"))
    within = value.get("within", DEFAULT_WITHIN)
    if isinstance(within, bool) or not isinstance(within, int) or not 1 <= within <= MAX_WITHIN:
        raise UsageError(f"within is {within!r}; it must be a whole number from 1 to {MAX_WITHIN}")
    return {
        "query": _read_text("query of must_find", value["query"]),
        "says": _read_text("says of must_find", value["says"]),
        "within": within,
    }


def _read_pair(kind: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise UsageError(f"{kind} needs two texts or ids of memories, [a, b], not {value!r}")
    a, b = (_read_text(kind, one) for one in value)
    if normalize_text(a) == normalize_text(b):
        raise UsageError(f"{kind} needs two different memories; both are {a!r}")
    return {"a": a, "b": b}


def _read_text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{what} needs a text, not {value!r}; put it in quotation marks")
    if len(value) > MAX_TEXT_CHARS:
        raise UsageError(f"{what} has {len(value):,} characters; {MAX_TEXT_CHARS:,} are allowed")
    return value.replace("\0", " ").strip()


def _name(kind: str, body: Mapping[str, Any]) -> str:
    first = next(iter(body.values()))
    both = (
        f"{shorten(body['a'], 45, placeholder='..')} / {shorten(body['b'], 45, placeholder='..')}"
        if "a" in body
        else ""
    )
    return f"{kind}: {both or shorten(first, MAX_NAME_CHARS - len(kind) - 2, placeholder='..')}"
