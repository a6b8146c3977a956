"""``consolidation demo --break``: a bad policy, and the memory tests that refuse what it would break."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from consolidation_pipeline.cli.error_report import FAILED
from consolidation_pipeline.cli.output import format_value, make_console, print_json, shorten, show_progress
from consolidation_pipeline.cli.run import run_and_describe

if TYPE_CHECKING:
    from consolidation_pipeline.service.memory_tests.evaluation import MemoryTestResult
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine

TESTS_FILE = "memory_tests.yaml"
_SLUG = "sample-break"
# Forget whatever was not used ten times within a month, however much that is.
_BAD_POLICY: dict[str, Any] = {"archive_stale_days": 30, "archive_min_reuse": 10, "archive_max_share": 1.0}
_WIDTH = 100


def run_bad_policy(engine: Engine, settings: Settings, folder: Path, *, as_json: bool) -> None:
    """Import the sample and its memory tests into a new project, run a bad policy on it, and show what was refused.

    ``folder``: with the sample and the file of its tests.
    """
    from consolidation_pipeline.core.memory_tests.tests_file import read_test_file
    from consolidation_pipeline.errors import NotFoundError
    from consolidation_pipeline.service.admin.projects import delete_project
    from consolidation_pipeline.service.intake.importer import ensure_project, import_memories
    from consolidation_pipeline.service.memory_tests.evaluation import run_memory_tests
    from consolidation_pipeline.service.memory_tests.registry import add_memory_tests

    with show_progress(f"importing the sample into {_SLUG}", as_json=as_json):
        with suppress(NotFoundError):
            delete_project(engine, _SLUG, confirmed=True)
        ensure_project(engine, _SLUG, {"scope": "project", **_BAD_POLICY})
        import_memories(engine, _SLUG, str(folder / "memories.jsonl"), format="jsonl")
        tests = read_test_file((folder / TESTS_FILE).read_text("utf-8"), TESTS_FILE).tests
        add_memory_tests(engine, _SLUG, tests, source="yaml")
    run = run_and_describe(engine, _SLUG, {}, as_json=as_json)
    results = run_memory_tests(engine, _SLUG, settings=settings)
    if as_json:
        found = [{"name": one.test.name, "passed": one.passed, "reason": one.reason or None} for one in results]
        print_json({"project": _SLUG, "policy": _BAD_POLICY, "run": run, "tests": found})
    else:
        _print(engine, run, results)
    if run["status"] != "completed" or not run["refused_by_tests"]:
        raise typer.Exit(FAILED)


def _print(engine: Engine, run: dict[str, Any], results: list[MemoryTestResult]) -> None:
    from uuid import UUID

    from consolidation_pipeline.service.memory_tests.registry import load_refused_texts

    out, refused = make_console(), run["refused_by_tests"]
    policy = format_value([f"{name}={value}" for name, value in _BAD_POLICY.items()])
    out.print(f"A bad policy: forget whatever was not used ten times within a month ({policy}).", style="bold")
    if run["status"] != "completed":
        out.print(f"The run ended as {run['status']}: {run['error']}\n", soft_wrap=True)
    texts = load_refused_texts(engine, [UUID(id_) for one in refused for id_ in one["memories"]])
    out.print(f"It archived {run['memories_archived']} memories. {len(refused)} changes were refused:\n")
    for one in refused:
        for name, reason in one["tests"].items():
            out.print(f"REFUSED  test {name!r} would have failed: {reason}", soft_wrap=True)
        for id_ in one["memories"]:
            text = texts.get(UUID(id_))
            what = (
                f"not written: {id_} ({one['phase']})" if text is None else f"stays as it is: {shorten(text, _WIDTH)}"
            )
            out.print(f"         {what}", soft_wrap=True)
    passed = sum(one.passed for one in results)
    out.print(f"\n{passed} of {len(results)} memory tests pass after the run: consolidation test {_SLUG}")
    out.print(f"Undo the run:  {run['undo']}")
    out.print(f"Remove it:     consolidation projects delete {_SLUG} --yes")
