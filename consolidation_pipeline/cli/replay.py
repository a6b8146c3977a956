"""``consolidation replay``: the decisions of a job, made again on a copy and compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.error_report import FAILED
from consolidation_pipeline.cli.output import (
    JsonFlag,
    fact_table,
    make_console,
    print_json,
    print_note,
    shorten,
    show_progress,
)
from consolidation_pipeline.core.text.counted_nouns import counted

if TYPE_CHECKING:
    from consolidation_pipeline.service.shadow.replay import DifferenceInDecision

_TEXT_WIDTH = 110
_SHOWN = 6


def replay(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Id of a job or its first 8 digits, or a project for its newest.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Make the decisions of a job again, on a copy and without network, and compare the hashes of its changes.

    Exit code 1 if they differ: the first decision that differs is printed, and why.
    """
    from consolidation_pipeline.service.jobs.job_status import find_job
    from consolidation_pipeline.service.shadow.replay import replay_job

    engine, settings = open_store()
    job_id, project = find_job(engine, job)
    with show_progress(f"replaying job {job_id} of {project.slug}", as_json=as_json):
        done = replay_job(engine, job_id, settings=settings)
    if as_json:
        first = None if done.first is None else vars(done.first)
        print_json({**vars(done), "first": first, "same": done.is_same})
    else:
        rows = {
            "as of": done.as_of,
            "decisions": f"{done.decisions}, {counted(done.changes, 'change')}",
            "recorded": done.recorded,
            "replayed": done.replayed,
            "differing": f"{done.differing} decisions" if done.differing else None,
        }
        result = "the same" if done.is_same else "differs"
        make_console().print(fact_table(f"{done.project}: job {job_id} replayed: {result}", rows))
        if done.first is not None:
            for line in _describe_first(done.first):
                make_console().print(line, soft_wrap=True)
        else:
            for note in done.notes:
                print_note(note)
    if not done.is_same:
        raise typer.Exit(FAILED)


def _describe_first(first: DifferenceInDecision) -> Iterator[str]:
    yield f"first decision that differs: {first.operation} of {', '.join(first.rows[:_SHOWN])}"
    for side, changes in (("recorded", first.recorded), ("replayed", first.replayed)):
        if changes is None:
            yield f"  {side}: not made"
            continue
        for change in changes[:_SHOWN]:
            after = change["after"] or {}
            told = after.get("content") or after.get("suggested_content") or change["reason"] or ""
            yield f"  {side}: {change['table']} {change['id']}: {shorten(told, _TEXT_WIDTH)}"
    if first.columns:
        yield f"  columns: {', '.join(first.columns[:_SHOWN])}"
    for number, cause in enumerate(first.causes):
        yield f"{'why' if number == 0 else 'also'}: {cause}"
