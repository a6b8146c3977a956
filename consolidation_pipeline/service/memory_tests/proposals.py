"""Proposals of memory tests: from decisions of people, pinned memories, what helped readers, and the playbook."""

from __future__ import annotations

from dataclasses import dataclass

from consolidation_pipeline.core.memory_tests.memory_test import MAX_TEXT_CHARS, MemoryTest, build_test
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.memory_tests.evaluation import run_memory_tests
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review.memory_tests import list_proposals, load_memory_tests

MAX_PROPOSALS = 50


@dataclass(frozen=True)
class ProposedTest:
    """A test that passes now and is not among the project's yet, and what speaks for it."""

    test: MemoryTest
    why: str


_REASONS = {
    "must_merge": "a person said that they are the same",
    "must_not_merge": "a person said that they are different",
    "pinned": "pinned",
    "helped": "helped its readers",
    "playbook_has": "an active playbook entry",
}


def propose_memory_tests(engine: Engine, slug: str, *, settings: Settings) -> list[ProposedTest]:
    """Return up to ``MAX_PROPOSALS`` tests that a project could have. Nothing is stored.

    Raises:
        NotFoundError: There is no such project.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
        known = {(one.test.kind, *one.test.texts) for one in load_memory_tests(connection, project.id)}
        listed = list_proposals(connection, project.id, most=10 * MAX_PROPOSALS)
        texts = load_texts(connection, [id_ for _, a, b, _ in listed for id_ in (a, b) if id_ is not None])
    proposed: dict[str, ProposedTest] = {}
    for source, a, b, content in listed:
        kind = source if source in ("must_merge", "must_not_merge", "playbook_has") else "must_remember"
        named = [content or texts.get(a, "")] if b is None else [texts.get(a, ""), texts.get(b, "")]
        if not all(named) or any(len(text) > MAX_TEXT_CHARS for text in named):
            continue
        try:
            test = build_test(kind, named[0] if b is None else named)
        except UsageError:  # two memories of one text
            continue
        if (test.kind, *test.texts) not in known:
            proposed.setdefault(test.name, ProposedTest(test, _REASONS[source]))
    tests = [one.test for one in proposed.values()]
    results = run_memory_tests(engine, slug, settings=settings, tests=tests)
    passing = {one.test.name for one in results if one.passed and not one.reason}
    return [one for name, one in proposed.items() if name in passing][:MAX_PROPOSALS]
