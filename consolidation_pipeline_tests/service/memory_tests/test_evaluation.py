"""Results of memory tests on a project, proposals, and what an erase removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from consolidation_pipeline.core.memory_tests.memory_test import MemoryTest, build_test
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.lifecycle.manual_actions import pin_memories
from consolidation_pipeline.service.memory_tests import registry
from consolidation_pipeline.service.memory_tests.evaluation import find_newly_failing, run_memory_tests
from consolidation_pipeline.service.memory_tests.proposals import propose_memory_tests
from consolidation_pipeline_tests.service.corpus import LESSONS, UNRELATED, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id

REWORDED = f"Note to self: {LESSONS[0]}"


@pytest.fixture
def merged(pipeline: Pipeline) -> Pipeline:
    """Project in which two wordings of the first lesson were merged."""
    pipeline.configure_new(t_merge=0.5, t_suggest=0.5, t_pattern=0.5)
    texts = [LESSONS[0], REWORDED, LESSONS[1], *UNRELATED]
    pipeline.add([note(f"note-{at}", text) for at, text in enumerate(texts)])
    assert pipeline.run().merging.created == 1
    return pipeline


def evaluate(pipeline: Pipeline, *tests: MemoryTest) -> list[tuple[bool, str]]:
    results = run_memory_tests(pipeline.engine, SLUG, settings=pipeline.settings, tests=tests)
    return [(one.passed, one.reason) for one in results]


def test_tests_of_each_kind_pass_and_fail(merged: Pipeline) -> None:
    assert evaluate(
        merged,
        build_test("must_find", {"query": "when to run migrations", "says": LESSONS[0], "within": 3}),
        build_test("must_find", {"query": "dark theme", "says": LESSONS[1], "within": 1}),
        build_test("must_merge", [LESSONS[0], str(note_id("note-1"))]),
        build_test("must_merge", [LESSONS[0], LESSONS[1]]),
        build_test("must_not_merge", [LESSONS[0], LESSONS[1]]),
        build_test("must_remember", LESSONS[1]),
        build_test("must_remember", "The moon is made of green cheese."),
        build_test("must_not_say", "The moon is made of green cheese."),
        build_test("must_not_say", LESSONS[1]),
        build_test("playbook_has", LESSONS[0]),
    ) == [
        (True, ""),
        (False, "not among the first 1: none of the first 50 says it"),
        (True, ""),
        (False, "they are not in one merged memory"),
        (True, ""),
        (True, ""),
        (False, "none of the 20 active memories that a search for it finds says it"),
        (True, ""),
        (False, "an active memory says it: place 1 of a search for it"),
        (False, "none of the 0 active entries says it"),
    ]
    [(passed, reason)] = evaluate(merged, build_test("must_not_merge", [LESSONS[0], REWORDED]))
    assert not passed
    assert reason.startswith("both are in merged memory ")
    assert evaluate(merged, build_test("must_not_merge", ["Nobody said this.", REWORDED])) == [
        (True, "no raw memory has the text or id of a")
    ]


def test_results_are_stored_and_told(merged: Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "tests.yaml"
    path.write_text(f"tests:\n- name: one\n  must_remember: {LESSONS[1]!r}\n- name: two\n  must_remember: Nothing.\n")
    registry.import_memory_tests(merged.engine, SLUG, path)
    run_memory_tests(merged.engine, SLUG, settings=merged.settings)
    listed = [registry.describe_memory_test(one) for one in registry.list_memory_tests(merged.engine, SLUG)]
    assert [(one["name"], one["passed"], one["source"]) for one in listed] == [
        ("one", True, "yaml"),
        ("two", False, "yaml"),
    ]
    registry.import_memory_tests(merged.engine, SLUG, path)
    assert registry.list_memory_tests(merged.engine, SLUG)[0].checked_at is not None
    registry.switch_memory_test(merged.engine, SLUG, "two", enabled=False)
    assert [one.test.name for one in run_memory_tests(merged.engine, SLUG, settings=merged.settings)] == ["one"]
    registry.remove_memory_test(merged.engine, SLUG, "two")
    with pytest.raises(NotFoundError, match="has no memory test 'two'"):
        registry.remove_memory_test(merged.engine, SLUG, "two")
    path.write_text(registry.export_memory_tests(merged.engine, SLUG).replace(SLUG, "shop"))
    with pytest.raises(UsageError, match=f"is for project shop, not for {SLUG}"):
        registry.import_memory_tests(merged.engine, SLUG, path)


def test_check_lists_tests_that_passed_before(merged: Pipeline) -> None:
    registry.add_memory_tests(merged.engine, SLUG, [build_test("must_remember", LESSONS[1], "told")], source="cli")
    with merged.engine.connect() as connection:
        assert find_newly_failing(connection, merged.project().id) == []
    run_memory_tests(merged.engine, SLUG, settings=merged.settings)
    merged.write('UPDATE {s}.memory_tests SET body = \'{"text": "The moon is made of cheese."}\'')
    with merged.engine.connect() as connection:
        [found] = find_newly_failing(connection, merged.project().id)
    assert found == f"must_remember, test 1 of `consolidation test {SLUG} --list`"


def test_decisions_and_pins_are_proposed(merged: Pipeline) -> None:
    merged.write(
        "INSERT INTO {s}.labelled_pairs (project_id, a, b, same, labelled_by) "
        "VALUES (:p, least(CAST(:a AS uuid), :b), greatest(CAST(:a AS uuid), :b), false, 'me')",
        p=merged.project().id,
        a=note_id("note-0"),
        b=note_id("note-2"),
    )
    pin_memories(merged.engine, [note_id("note-2")], pinned=True, changed_by="me")
    found = propose_memory_tests(merged.engine, SLUG, settings=merged.settings)
    assert {(one.test.kind, one.why) for one in found} == {
        ("must_not_merge", "a person said that they are different"),
        ("must_remember", "pinned"),
    }
    registry.add_memory_tests(merged.engine, SLUG, [one.test for one in found], source="cli")
    assert propose_memory_tests(merged.engine, SLUG, settings=merged.settings) == []


def test_erase_removes_tests_that_quote(merged: Pipeline) -> None:
    tests = [
        build_test("must_remember", LESSONS[1], "quotes it"),
        build_test("must_not_merge", [str(note_id("note-2")), LESSONS[0]], "names it"),
        build_test("must_remember", LESSONS[0], "another"),
    ]
    registry.add_memory_tests(merged.engine, SLUG, tests, source="cli")
    merged.write("UPDATE {s}.consolidation_jobs SET metrics = metrics || '{\"refused_by_tests\": [1]}'")
    erase_memories(merged.engine, [note_id("note-2")], changed_by="me")
    assert [one.test.name for one in registry.list_memory_tests(merged.engine, SLUG)] == ["another"]
    assert merged.value("SELECT count(*) FROM {s}.consolidation_jobs WHERE metrics ? 'refused_by_tests'") == 0
