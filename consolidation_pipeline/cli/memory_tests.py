"""``consolidation test``: run a project's memory tests, and add, import, list and propose them."""

# ruff: noqa: PT028 (a command, no test function)

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.error_report import FAILED
from consolidation_pipeline.cli.output import JsonFlag, format_value, make_console, make_table, print_json, print_note
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.memory_tests.evaluation import MemoryTestResult
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Only these tests; default: all enabled.")]


def test(
    project: Project,
    names: Names = None,
    file: Annotated[Path | None, typer.Option(help="Run the tests of this YAML file, and store nothing.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the results to this file as JUnit XML.")] = None,
    add: Annotated[
        list[str] | None, typer.Option(metavar="TEST", help="Add a test, such as 'must_remember: \"TEXT\"'.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the test that --add adds.")] = None,
    import_: Annotated[Path | None, typer.Option("--import", help="Add the tests of a YAML file.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the tests to a YAML file.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the tests and their last results.")] = False,
    remove: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Remove a test.")] = None,
    enable: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Run a test again.")] = None,
    disable: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Keep a test, but do not run it.")] = None,
    suggest: Annotated[bool, typer.Option("--suggest", help="Propose tests, as YAML. Stores nothing.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a project's memory tests; exit code 1 if one fails. A run commits nothing that makes one fail.

    Kinds: must_find, must_not_merge, must_merge, must_remember, must_not_say, playbook_has.
    """
    changes = {"add": add, "import": import_, "remove": remove, "enable": enable, "disable": disable}
    given = [
        f"--{word}" for word, value in {**changes, "export": export, "list": list_, "suggest": suggest}.items() if value
    ]
    if given and (names or file or junit):
        raise UsageError(f"{given[0]} runs no test: leave out names, --file and --junit")
    if name is not None and len(add or ()) != 1:
        raise UsageError("--name names the one test of --add")
    if both := sorted(set(enable or ()).intersection(disable or ())):
        raise UsageError(f"--enable and --disable of {both[0]!r} contradict each other: give one of them")
    engine, settings = open_store()
    if any(changes.values()):
        _change(engine, project, add or (), name, import_, remove or (), {True: enable or (), False: disable or ()})
    if suggest:
        _suggest(engine, project, settings, as_json=as_json)
    if export:
        from consolidation_pipeline.service.memory_tests.registry import export_memory_tests

        export.write_text(export_memory_tests(engine, project), "utf-8")
    if given:
        if not suggest:
            _list(engine, project, as_json=as_json)
        return
    from consolidation_pipeline.service.memory_tests.evaluation import run_memory_tests
    from consolidation_pipeline.service.memory_tests.registry import load_test_file

    tests = None if file is None else load_test_file(file, project)
    results = run_memory_tests(engine, project, settings=settings, tests=tests, names=names or ())
    unknown = sorted(set(names or ()) - {one.test.name for one in results})
    if unknown:
        raise UsageError(f"project {project} has no memory test {unknown[0]!r}; `consolidation test {project} --list`")
    if junit is not None:
        from consolidation_pipeline.core.memory_tests.junit import format_junit

        rows = [(one.test.kind, one.test.name, None if one.passed else one.reason) for one in results]
        junit.write_text(format_junit(project, rows), "utf-8")
    _print_results(project, results, as_json=as_json)
    if not all(one.passed for one in results):
        raise typer.Exit(FAILED)


def _change(
    engine: Engine,
    project: str,
    add: Sequence[str],
    name: str | None,
    path: Path | None,
    remove: Sequence[str],
    switch: dict[bool, Sequence[str]],
) -> None:
    from consolidation_pipeline.core.memory_tests.tests_file import read_one_test
    from consolidation_pipeline.service.memory_tests import registry
    from consolidation_pipeline.service.memory_tests.evaluation import tell_absent

    added = [read_one_test(text, name) for text in add]
    if added:
        registry.add_memory_tests(engine, project, added, source="cli")
    if path is not None:
        added += registry.import_memory_tests(engine, project, path)
    for test, absent in tell_absent(engine, project, added).items():
        print_note(f"warning: {test!r} tests nothing yet: {absent}")
    for one in remove:
        registry.remove_memory_test(engine, project, one)
    for enabled, chosen in switch.items():
        for one in chosen:
            registry.switch_memory_test(engine, project, one, enabled=enabled)


def _list(engine: Engine, project: str, *, as_json: bool) -> None:
    from consolidation_pipeline.service.memory_tests.registry import describe_memory_test, list_memory_tests

    tests = [describe_memory_test(one) for one in list_memory_tests(engine, project)]
    if as_json:
        print_json({"project": project, "tests": tests})
        return
    if not tests:
        print(f"{project} has no memory tests")
        print_note(f"proposals: consolidation test {project} --suggest")
        return
    table = make_table("name", "kind", "from", "last result", title=f"{project}: {len(tests)} memory tests")
    for one in tests:
        table.add_row(
            one["name"], one["kind"], one["source"], _describe_last(one), style=None if one["enabled"] else "dim"
        )
    make_console().print(table)


def _describe_last(one: dict[str, Any]) -> str:
    if not one["enabled"]:
        return "disabled"
    if one["checked_at"] is None:
        return "not run yet"
    return f"{'passed' if one['passed'] else 'FAILED'} {format_value(one['checked_at'])}"


def _suggest(engine: Engine, project: str, settings: Settings, *, as_json: bool) -> None:
    from consolidation_pipeline.core.memory_tests.tests_file import format_test_file
    from consolidation_pipeline.service.memory_tests.proposals import propose_memory_tests

    proposed = propose_memory_tests(engine, project, settings=settings)
    if as_json:
        tests = [
            {"name": one.test.name, "kind": one.test.kind, "body": one.test.body, "why": one.why} for one in proposed
        ]
        print_json({"project": project, "tests": tests})
        return
    if proposed:
        print(format_test_file(project, [one.test for one in proposed]), end="")
        print_note(
            f"{len(proposed)} tests that pass now; write them to a file, choose, and add them with --import FILE"
        )
    else:
        print_note(f"nothing to propose for {project}: pin memories, decide on suggestions or label pairs first")


def _print_results(project: str, results: Sequence[MemoryTestResult], *, as_json: bool) -> None:
    failed = sum(not one.passed for one in results)
    if as_json:
        found = [one.to_json() for one in results]
        print_json({"project": project, "passed": len(results) - failed, "failed": failed, "tests": found})
        return
    out = make_console()
    for one in results:
        style = None if one.passed else "bold red"
        out.print(f"{'ok    ' if one.passed else 'FAILED'}  {one.test.name}", style=style, soft_wrap=True)
        if one.reason:
            out.print(f"        {one.reason}", soft_wrap=True)
    out.print(
        f"{project}: {len(results) - failed} of {len(results)} memory tests pass"
        if results
        else f"{project} has no memory tests"
    )
