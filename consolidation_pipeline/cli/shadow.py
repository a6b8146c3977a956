"""``consolidation shadow``: another policy on a copy of a project, its report, and its promotion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import Project, get_actor, open_store
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    make_console,
    print_json,
    print_note,
    shorten,
    show_progress,
)
from consolidation_pipeline.cli.projects import parse_assignments
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.shadow.report import ComparedMerge, ShadowReport
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine

_TEXT_WIDTH = 110


def shadow(
    project: Project,
    options: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,..", help="Options that differ from the project's, such as t_merge=0.9."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the shadow; a project may have several.")] = "next",
    promote: Annotated[
        bool, typer.Option("--promote", help="Make its changes and options the project's, in one job.")
    ] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Drop it with all it holds.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Maximum differences of each kind; --json has all.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Run another policy on a copy of a project and report what differs. No live memory changes.

    Without --options, print the report of a shadow again.
    """
    if sum((bool(options), promote, drop)) > 1:
        raise UsageError("--options runs a shadow, --promote and --drop end one: give one of them")
    engine, settings = open_store()
    if drop:
        _drop(engine, project, name, as_json=as_json)
    elif promote:
        _promote(engine, project, name, settings, as_json=as_json)
    else:
        report = _run(engine, project, options, name, settings, as_json=as_json) if options else None
        _print_report(engine, project, name, report, limit=limit, as_json=as_json)


def _run(
    engine: Engine, project: str, options: list[str], name: str, settings: Settings, *, as_json: bool
) -> ShadowReport:
    from consolidation_pipeline.service.shadow.shadows import run_shadow

    config, resets = parse_assignments([part for given in options for part in given.split(",") if part.strip()])
    if resets:
        raise UsageError(f"{', '.join(resets)}: give the value that the shadow is to have")
    with show_progress(f"running shadow {name} of {project}", as_json=as_json):
        return run_shadow(engine, project, config, name=name, settings=settings, triggered_by=get_actor())


def _drop(engine: Engine, project: str, name: str, *, as_json: bool) -> None:
    from consolidation_pipeline.service.shadow.shadows import drop

    drop(engine, project, name)
    if as_json:
        print_json({"project": project, "name": name, "dropped": True})
    else:
        print(f"dropped shadow {name} of {project}")


def _promote(engine: Engine, project: str, name: str, settings: Settings, *, as_json: bool) -> None:
    from consolidation_pipeline.service.shadow.promotion import promote

    done = promote(engine, project, name, settings=settings, promoted_by=get_actor())
    undo = f"consolidation rollback {done.job_id}"
    if as_json:
        print_json({**vars(done), "undo": undo})
        return
    rows = {
        "changes": done.changes,
        "options now": ", ".join(f"{key}={value}" for key, value in done.options.items()),
        "memories since": f"{done.new_memories}, for the next run" if done.new_memories else None,
        "job": done.job_id,
        "undo": undo,
    }
    make_console().print(fact_table(f"{project}: shadow {name} promoted", rows))


def _print_report(
    engine: Engine, project: str, name: str, report: ShadowReport | None, *, limit: int, as_json: bool
) -> None:
    from consolidation_pipeline.service.shadow.shadows import list_reports, read_report

    if report is None:
        report = read_report(engine, project, name)
    if as_json:
        print_json(report.model_dump(mode="json"))
        return
    for line in _list_differences(report, limit):
        make_console().print(line, soft_wrap=True)
    make_console().print(fact_table(f"{project}: shadow {name}", _summarize(report)))
    others = [other for other in list_reports(engine, project) if other != name]
    if others:
        print_note(f"other shadows of {project}: {', '.join(others)}")


def _list_differences(report: ShadowReport, limit: int) -> Iterator[str]:
    difference = report.difference
    sides = ("the project's options", "the shadow's options")
    for side, merges in zip(sides, (difference.merges_only_here, difference.merges_only_there), strict=True):
        for merge in merges[:limit]:
            yield from _describe_merge(side, merge)
    for reworded in difference.merges_reworded[:limit]:
        yield f"merged by both in other words ({reworded.id})"
        for side, text in zip(sides, (reworded.text_here, reworded.text_there), strict=True):
            yield f"  {side}: {shorten(text, 2 * _TEXT_WIDTH)}"
        yield ""
    for side, items in zip(sides, (difference.knowledge_only_here, difference.knowledge_only_there), strict=True):
        for item in items[:limit]:
            yield f"{item.kind} only by {side}: {shorten(item.text or 'written by the model', 2 * _TEXT_WIDTH)}"
    for side, texts in zip(sides, (difference.archived_only_here, difference.archived_only_there), strict=True):
        for text in list(texts.values())[:limit]:
            yield f"archived only by {side}: {shorten(text, _TEXT_WIDTH)}"
    for test, reason in report.memory_tests.broken.items():
        yield f"memory test that fails now: {test}: {reason}"
    for query in list(report.retrieval.lost.values())[:limit]:
        yield f"not found any more among the first {report.retrieval.within}: {shorten(query, _TEXT_WIDTH)}"


def _describe_merge(side: str, merge: ComparedMerge) -> Iterator[str]:
    yield f"merged only by {side} ({merge.id})"
    for text in merge.texts.values():
        yield f"  - {shorten(text, _TEXT_WIDTH)}"
    yield f"  = {shorten(merge.text or 'written by the model', 2 * _TEXT_WIDTH)}"
    yield ""


def _summarize(report: ShadowReport) -> dict[str, object]:
    difference, pairs, found = report.difference, report.labelled_pairs, report.retrieval
    tests = report.memory_tests
    refused = [sum(side.values()) for side in (tests.refused_here, tests.refused_there)]
    kinds = {item.kind for item in (*difference.knowledge_only_here, *difference.knowledge_only_there)}
    knowledge = {
        f"{kind} only": _count_sides(
            sum(item.kind == kind for item in difference.knowledge_only_here),
            sum(item.kind == kind for item in difference.knowledge_only_there),
        )
        for kind in sorted(kinds)
    }
    cost = report.cost
    return {
        "options": ", ".join(f"{key}={value}" for key, value in report.options.items()),
        "snapshot": report.snapshot_at,
        "memories": report.memories,
        "merges alike": difference.merges_same,
        "merges reworded": len(difference.merges_reworded) or None,
        "merges only": _count_sides(len(difference.merges_only_here), len(difference.merges_only_there)),
        "knowledge alike": difference.knowledge_same,
        **knowledge,
        "archived only": _count_sides(len(difference.archived_only_here), len(difference.archived_only_there)),
        "memory tests passed": (
            f"{tests.passed_before} -> {tests.passed_after} of {tests.tests}" if tests.tests else None
        ),
        "refused by tests": _count_sides(*refused) if any(refused) else None,
        "labelled pairs": (
            f"{pairs.pairs}; wrongly merged {pairs.wrong_merges_here} -> {pairs.wrong_merges_there}, "
            f"missed {pairs.missed_here} -> {pairs.missed_there}"
            if pairs.pairs
            else None
        ),
        f"found in first {found.within}": f"{found.found_before} -> {found.found_after} of {found.queries} memories"
        + (f", {found.archived} are archived" if found.archived else ""),
        "cost": f"${cost.usd:.4f}, {cost.tokens} tokens, {cost.calls} calls, {cost.cached} from the cache"
        + ("" if cost.usd_here is None else f"; at most ${cost.usd_here:.4f} by the project's options"),
        "stopped": "; ".join(report.stopped) or None,
        "changes": report.changes or "none: there is nothing to promote",
        **dict([report.next_step]),
    }


def _count_sides(here: int, there: int) -> str:
    return f"{here} by the project's options, {there} by the shadow's"
