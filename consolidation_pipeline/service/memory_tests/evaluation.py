"""Run memory tests on a project, by the search that agents use and the engine that explains differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.id_prefixes import read_id
from consolidation_pipeline.core.memories.memories import normalized_hash
from consolidation_pipeline.core.memory_tests.memory_test import MAX_WITHIN, MemoryTest
from consolidation_pipeline.core.memory_tests.statements import says
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search_within
from consolidation_pipeline.service.search.query_vectors import embed_query
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.projects import Project, find_project, get_project
from consolidation_pipeline.store.review.memory_tests import (
    NamedMemory,
    find_named_memories,
    list_active_entries,
    load_memory_tests,
    record_test_results,
)

# Memories that a search for a text lists: one that says it is among the nearest by words and meaning.
SEARCHED = 20

# Returns model and vector (d,) of a query, None if the model gives none.
EmbedQuery = Callable[[str], tuple[str, Vectors] | None]


@dataclass(frozen=True)
class MemoryTestResult:
    """Result of a test. ``reason``: why it failed, or a remark on why it passed; quotes no memory."""

    test: MemoryTest
    passed: bool
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON. ``reason``: None if there is nothing to say."""
        return {"name": self.test.name, "kind": self.test.kind, "passed": self.passed, "reason": self.reason or None}


def run_memory_tests(
    engine: Engine,
    slug: str,
    *,
    settings: Settings,
    tests: Sequence[MemoryTest] | None = None,
    names: Iterable[str] = (),
    store: bool = True,
) -> list[MemoryTestResult]:
    """Return the results of a project's enabled tests, or of ``tests``; nothing of the memories is changed.

    ``names``: only these of the project's tests, also disabled ones. ``store``: keep them as the last results.

    Raises:
        NotFoundError: There is no such project.
    """
    wanted = set(names)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        if tests is None:
            stored = load_memory_tests(connection, project.id)
            tests = [one.test for one in stored if (one.test.name in wanted if wanted else one.enabled)]
        else:
            store = False
    options = effective_options(project, settings)
    embed = create_query_embedder(engine, project, options)
    with engine.connect() as connection:
        results = evaluate(connection, project, tests, options=options, embed=embed)
    if store and results:
        with engine.begin() as connection:
            record_results(connection, project.id, results, now=datetime.now(UTC))
    return results


def record_results(
    connection: Connection, project_id: UUID, results: Iterable[MemoryTestResult], *, now: datetime
) -> None:
    """Store the last results of tests."""
    failures = {one.test.name: None if one.passed else one.reason for one in results}
    record_test_results(connection, project_id, failures, now=now)


def create_query_embedder(
    engine: Engine, project: Project, options: ConsolidationOptions, embedder: Embedder | None = None
) -> EmbedQuery:
    """Return a function that embeds queries and keeps their vectors, or that there is none.

    ``embedder``: None = that of the options.
    """
    known: dict[str, tuple[str, Vectors] | None] = {}

    def embed(query: str) -> tuple[str, Vectors] | None:
        if query not in known:
            model, vector, _ = embed_query(engine, project, options, query, embedder)
            known[query] = None if vector is None else (model, vector)
        return known[query]

    return embed


def evaluate(
    connection: Connection,
    project: Project,
    tests: Sequence[MemoryTest],
    *,
    options: ConsolidationOptions,
    embed: EmbedQuery,
) -> list[MemoryTestResult]:
    """Return the results of tests on what ``connection`` sees, uncommitted rows of its own included."""
    kinds = {test.kind for test in tests}
    view = _View(
        connection,
        project,
        options,
        embed,
        entries=list_active_entries(connection, project.id) if kinds & {"playbook_has", "must_not_say"} else (),
        named=_find_named(connection, project.id, tests) if kinds & {"must_merge", "must_not_merge"} else {},
    )
    return [_CHECKS[test.kind](view, test) for test in tests]


def name_memory(given: str) -> str:
    """Return the key by which a test names memories: an id, or the hash of a text."""
    id_ = read_id(given)
    return normalized_hash(given) if id_ is None else str(id_)


@dataclass(frozen=True)
class _View:
    """The project as tests see it.

    ``entries``: texts of the playbook. ``named``: key of ``name_memory`` -> raw memories.
    """

    connection: Connection
    project: Project
    options: ConsolidationOptions
    embed: EmbedQuery
    entries: Sequence[str]
    named: Mapping[str, Sequence[NamedMemory]]

    def find_place(self, query: str, claim: str, *, limit: int, in_full: bool = True) -> int | None:
        """Return the place of the first memory that says ``claim`` in a search for ``query``; None if none does.

        ``in_full``: as in ``says``.
        """
        vector = self.embed(query)
        asked = SearchQuery(query, limit=limit)
        hits = search_within(self.connection, self.project, asked, options=self.options, vector=vector)
        return next((place for place, hit in enumerate(hits, 1) if says(hit.content, claim, in_full=in_full)), None)


def _find_named(connection: Connection, project_id: UUID, tests: Iterable[MemoryTest]) -> dict[str, list[NamedMemory]]:
    given = {one for test in tests if "a" in test.body for one in test.texts}
    ids = [id_ for id_ in map(read_id, given) if id_ is not None]
    hashes = [normalized_hash(one) for one in given if read_id(one) is None]
    found: dict[str, list[NamedMemory]] = {}
    for memory in find_named_memories(connection, project_id, hashes, ids):
        found.setdefault(str(memory.id), []).append(memory)
        found.setdefault(memory.text_hash, []).append(memory)
    return found


def _check_find(view: _View, test: MemoryTest) -> MemoryTestResult:
    query, claim, within = test.body["query"], test.body["says"], test.body["within"]
    if view.find_place(query, claim, limit=within) is not None:
        return MemoryTestResult(test, True)
    place = view.find_place(query, claim, limit=MAX_WITHIN) if within < MAX_WITHIN else None
    where = (
        f"none of the first {MAX_WITHIN} says it" if place is None else f"the first that says it is at place {place}"
    )
    return MemoryTestResult(test, False, f"not among the first {within}: {where}")


def _check_remember(view: _View, test: MemoryTest) -> MemoryTestResult:
    passed = view.find_place(test.body["text"], test.body["text"], limit=SEARCHED) is not None
    reason = "" if passed else f"none of the {SEARCHED} active memories that a search for it finds says it"
    return MemoryTestResult(test, passed, reason)


def _check_not_say(view: _View, test: MemoryTest) -> MemoryTestResult:
    claim = test.body["text"]
    if any(says(entry, claim, in_full=False) for entry in view.entries):
        return MemoryTestResult(test, False, "an active playbook entry says it")
    place = view.find_place(claim, claim, limit=SEARCHED, in_full=False)
    reason = "" if place is None else f"an active memory says it: place {place} of a search for it"
    return MemoryTestResult(test, place is None, reason)


def _check_playbook(view: _View, test: MemoryTest) -> MemoryTestResult:
    passed = any(says(entry, test.body["text"]) for entry in view.entries)
    return MemoryTestResult(test, passed, "" if passed else f"none of the {len(view.entries)} active entries says it")


def _tell_absent(named: Mapping[str, Sequence[NamedMemory]], test: MemoryTest) -> str:
    missing = [side for side in "ab" if not named.get(name_memory(test.body[side]))]
    return f"no raw memory has the text or id of {' and '.join(missing)}" if missing else ""


def tell_absent(engine: Engine, slug: str, tests: Iterable[MemoryTest]) -> dict[str, str]:
    """Return by name of a test on a pair that it names memories which do not exist; others are left out."""
    pairs = [test for test in tests if "a" in test.body]
    with engine.connect() as connection:
        named = _find_named(connection, get_project(connection, slug).id, pairs)
    return {test.name: absent for test in pairs if (absent := _tell_absent(named, test))}


def _check_pair(view: _View, test: MemoryTest) -> MemoryTestResult:
    sides = [view.named.get(name_memory(test.body[side]), ()) for side in "ab"]
    one, other = ({memory.merged_into for memory in side} - {None} for side in sides)
    common = one & other
    absent = _tell_absent(view.named, test)
    if test.kind == "must_merge":
        return MemoryTestResult(test, bool(common), absent or ("" if common else "they are not in one merged memory"))
    return MemoryTestResult(test, not common, f"both are in merged memory {min(common, key=str)}" if common else absent)


_CHECKS: Mapping[str, Callable[[_View, MemoryTest], MemoryTestResult]] = {
    "must_find": _check_find,
    "must_remember": _check_remember,
    "must_not_say": _check_not_say,
    "playbook_has": _check_playbook,
    "must_merge": _check_pair,
    "must_not_merge": _check_pair,
}


def find_newly_failing(connection: Connection, project_id: UUID) -> list[str]:
    """Return the tests that fail now and passed when they were run last, which a run does before its first change.

    They are told by kind and place in the list of tests, as their names and texts would outlive an erase elsewhere.
    """
    stored = load_memory_tests(connection, project_id)
    passed = {one.test.name for one in stored if one.enabled and one.checked_at is not None and one.failure is None}
    if not passed:
        return []
    project = find_project(connection, str(project_id))
    options = effective_options(project, Settings())
    embed = create_query_embedder(connection.engine, project, options)
    tests = [one.test for one in stored if one.test.name in passed]
    failing = {
        one.test.name for one in evaluate(connection, project, tests, options=options, embed=embed) if not one.passed
    }
    return [
        f"{one.test.kind}, test {number} of `consolidation test {project.slug} --list`"
        for number, one in enumerate(stored, 1)
        if one.test.name in failing
    ]
