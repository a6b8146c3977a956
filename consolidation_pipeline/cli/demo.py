"""``consolidation demo``: imports real input, runs the whole pipeline and shows the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import get_actor, open_store
from consolidation_pipeline.cli.demo_break import TESTS_FILE, run_bad_policy
from consolidation_pipeline.cli.error_report import FAILED
from consolidation_pipeline.cli.import_memories import summarize_import
from consolidation_pipeline.cli.output import (
    JsonFlag,
    format_percent,
    format_value,
    make_console,
    print_json,
    print_note,
    shorten,
    show_progress,
)
from consolidation_pipeline.cli.run import describe_archived, run_and_describe
from consolidation_pipeline.core.text.counted_nouns import counted

if TYPE_CHECKING:
    from rich.table import Table

    from consolidation_pipeline.service.admin.demo_report import DemoReport
    from consolidation_pipeline.store.admin.samples import KnowledgeSample
    from consolidation_pipeline.store.database.engine import Engine

_TEXT_WIDTH = 110
_SHOWN_SOURCES = 4
_KINDS = {
    "pattern": "patterns",
    "principle": "principles",
    "playbook": "playbook",
    "summary": "summaries",
    "procedural": "profiles",
}


def demo(
    repo: Annotated[Path | None, typer.Option(help="Git repository to import; default: this project's own.")] = None,
    break_: Annotated[
        bool, typer.Option("--break", help="Run a bad policy in a project of its own; memory tests refuse its harm.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Consolidate sample data and show the results.

    Imports sample memories and a git history, runs the whole pipeline on both and approves the surest entries of the
    playbook. Running it again imports and approves nothing more.
    """
    from consolidation_pipeline.service.admin.demo_report import explain_unusable_repository
    from consolidation_pipeline.settings import PROJECT_ROOT, RESOURCE_DIR

    engine, settings = open_store()
    if break_:
        run_bad_policy(engine, settings, RESOURCE_DIR / "examples", as_json=as_json)
        return
    shown = [_run_demo(engine, "sample", RESOURCE_DIR / "examples" / "memories.jsonl", "jsonl", as_json=as_json)]
    repository = repo or PROJECT_ROOT
    if (obstacle := explain_unusable_repository(repository)) is None:
        shown.append(_run_demo(engine, "history", repository, "git", as_json=as_json))
    else:
        print_note(f"the project history is skipped: {obstacle}; use --repo for another repository")
    if as_json:
        skipped = [] if obstacle is None else [{"project": "history", "reason": obstacle}]
        print_json({"projects": shown, "skipped": skipped})
    else:
        for line in _next_steps(shown):
            make_console().print(line, soft_wrap=True)
    if any(demo_run["run"]["status"] not in ("completed", "unchanged") for demo_run in shown):
        raise typer.Exit(FAILED)


def _run_demo(engine: Engine, slug: str, path: Path, format: str, *, as_json: bool) -> dict[str, Any]:
    """Import, consolidate and show one project. Return its numbers."""
    from consolidation_pipeline.service.admin.demo_report import approve_first_entries, build_demo_report
    from consolidation_pipeline.service.intake.importer import ensure_project, import_memories
    from consolidation_pipeline.service.memory_tests.registry import import_memory_tests

    with show_progress(f"importing {path.name} into {slug}", as_json=as_json):
        # A team's log: its members share their lessons.
        ensure_project(engine, slug, {"scope": "project"})
        imported = import_memories(engine, slug, str(path), format=format)
        if (tests := path.with_name(TESTS_FILE)).is_file() and format == "jsonl":
            import_memory_tests(engine, slug, tests)
    run = run_and_describe(engine, slug, {}, as_json=as_json)
    approved = approve_first_entries(engine, slug, changed_by=get_actor())
    found = build_demo_report(engine, slug)
    if run["error"]:
        print_note(f"{slug}: error: {' '.join(run['error'].split())}")
    if not as_json:
        make_console().print(_make_report_table(found, run), "")
        if approved:
            ids = " ".join(map(str, approved))
            make_console().print(f"Entries wait for a person. Approved:  consolidation review approve {ids}\n")
    return {
        "project": slug,
        "imported": summarize_import(imported),
        "run": run,
        "approved": approved,
        **vars(found),
    }


def _make_report_table(found: DemoReport, run: dict[str, Any]) -> Table:
    from rich.table import Table

    counts = found.counts
    state = run["status"]
    if state == "unchanged":
        state = f"nothing changed since {format_value(run['completed_at'])}"
    table = Table(title=f"{found.project}: {state}", title_justify="left", title_style="bold", show_header=False)
    table.add_row("memories in", str(counts.memories))
    if run["status"] != "unchanged":
        table.add_row(
            "merged by this run",
            f"{counted(run['groups_merged'], 'group')}, {counted(run['memories_merged'], 'memory')}",
        )
        table.add_row("archived by this run", describe_archived(run))
    table.add_row("left to a person", counted(counts.suggest_groups, "group"))
    table.add_row("active now", f"{counted(counts.units, 'memory')}: {counts.active} raw, {counts.merged} merged")
    reduction = format_percent(counts.reduction) or "none"
    table.add_row("merged away", f"{counted(counts.consolidated, 'memory')}, reduction {reduction}")
    table.add_row("archived", counted(counts.archived, "memory"))
    for merged in found.merged:
        table.add_section()
        table.add_row("merged", shorten(merged.content, 2 * _TEXT_WIDTH))
        table.add_row("from", _format_list(merged.sources))
    for asked in found.asked_pairs:
        table.add_section()
        table.add_row("kept apart", _format_list((asked.a, asked.b)))
        table.add_row("because", f"{'; '.join(asked.differences)} (similarity {asked.similarity:.2f})")
    for learned in found.learned:
        table.add_section()
        table.add_row(_KINDS[learned.kind], _format_learned(learned))
        table.add_row("such as", shorten(learned.content.replace("\n", " · "), 2 * _TEXT_WIDTH))
    table.add_section()
    if found.relevance is not None:
        table.add_row("relevance", "min {:.4f}, median {:.4f}, max {:.4f}".format(*found.relevance))
    table.add_row("seconds", f"{run['seconds']:.1f}")
    table.add_row("undo", run["undo"] or "the last run changed nothing")
    return table


def _format_learned(learned: KnowledgeSample) -> str:
    waiting = f", {learned.waiting} wait for review" if learned.waiting else ""
    memories = counted(learned.sources, "memory")
    return f"{learned.count}{waiting}; the best supported has {memories} behind it ({learned.method})"


def _next_steps(shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    slug = shown[0]["project"]
    yield f"What waits for a decision:   consolidation review list {slug}"
    yield f"Instructions for agents:     consolidation playbook {slug} --format md"
    yield f"What must stay true:         consolidation test {slug}"
    yield "A bad policy that is refused: consolidation demo --break"
    yield "The Dagster UI:              consolidation dev"
    if all(learned.method == "heuristic" for demo_run in shown for learned in demo_run["learned"]):
        yield "No language model was used: every text consists of sentences of the memories. To let a model write them,"
        yield "set its name and key; a run costs at most budget_usd_per_run (1 US dollar):"
        yield f"  export OPENAI_API_KEY=..; consolidation projects configure {slug} llm_model=openai/gpt-4o-mini"


def _format_list(texts: Sequence[str]) -> str:
    lines = [f"- {shorten(text, _TEXT_WIDTH)}" for text in texts[:_SHOWN_SOURCES]]
    more = len(texts) - _SHOWN_SOURCES
    return "\n".join([*lines, f"and {more} more"] if more > 0 else lines)
