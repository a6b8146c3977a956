"""``consolidation import``: memories from files, notes and git histories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.error_report import FAILED
from consolidation_pipeline.cli.output import JsonFlag, print_json, print_note, show_progress

if TYPE_CHECKING:
    from consolidation_pipeline.service.intake.importer import ImportResult

_SHOWN_BAD = 20
# Lines of a file that are bad for one reason.
_SHOWN_LINES = 5
_LISTED_BAD = 1000  # in JSON; the rejects file has all of them


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A file, a git repository, a folder of memories or notes, or - for standard input."
        ),
    ],
    project: Annotated[str, typer.Option("--project", "-p", help="Project to import into; created if missing.")],
    format: Annotated[
        str | None,
        typer.Option(
            help="jsonl, csv, markdown, git, claude-code, codex, cursor, openclaw or notes; default: by FILE."
        ),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Name of the source; ids are unique within a source.")] = None,
    memory_type: Annotated[str, typer.Option("--type", help="Memory type of rows without one.")] = "learning",
    scope: Annotated[
        str | None,
        typer.Option(
            help="What keeps memories of a new project apart: user_id (the default), agent_id, session_id, "
            "metadata.KEY, several of them with commas, or project: nothing, as a team shares all."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Import memories. Importing again adds nothing; an edited note gets its new text.

    Valid rows are imported. Bad rows are listed and written to a file, and the exit code is 1.
    """
    from consolidation_pipeline.service.intake.importer import import_memories
    from consolidation_pipeline.service.intake.readers.folder_formats import FOLDER_FORMATS
    from consolidation_pipeline.service.intake.readers.formats import find_other_formats, guess_format

    chosen = format or guess_format(file)
    if format is None:
        if chosen in FOLDER_FORMATS:
            print_note(f"recognised: {FOLDER_FORMATS[chosen].title}")
        for other in find_other_formats(file, chosen):
            print_note(f"it also holds a {FOLDER_FORMATS[other].title}: import it with --format {other}")
    engine, settings = open_store()
    with show_progress(f"importing into {project}", as_json=as_json) as update:
        done = import_memories(
            engine,
            project,
            file,
            format=chosen,
            source=source,
            default_type=memory_type,
            scope=scope,
            rejects_dir=settings.data_dir / "rejects",
            settings=settings,
            progress=lambda so_far: update(f"{so_far.added} added, {so_far.unchanged} there before"),
        )
    if as_json:
        print_json(summarize_import(done) | {"format": chosen})
    else:
        revised = f"{done.revised} revised, " if done.revised else ""
        print(f"{project}: {done.added} added, {revised}{done.unchanged} there before, {len(done.bad)} bad")
        _print_remarks(done)
        for line in _describe_scopes(done):
            print_note(line)
    if done.bad:
        _print_bad_rows(done)
        if done.left_empty:
            delete = f"consolidation projects delete {project}"
            print_note(f"nothing was imported: project {project} was created and is empty; `{delete}` removes it")
        raise typer.Exit(FAILED)


def summarize_import(done: ImportResult) -> dict[str, object]:
    """Return the result of an import as JSON values."""
    return {
        "project": done.project,
        "source": done.source,
        "added": done.added,
        "unchanged": done.unchanged,
        "revised": done.revised,
        "bad": len(done.bad),
        "scope": done.scope,
        "scopes": done.scopes,
        "repeats_apart": done.repeats_apart,
        "bad_rows": [{"line": row.line, "reason": row.reason} for row in done.bad[:_LISTED_BAD]],
        "remarks": [asdict(remark) for remark in done.remarks[:_LISTED_BAD]],
        "rejects_file": done.rejects,
        "left_empty": done.left_empty,
    }


def _describe_scopes(done: ImportResult) -> Iterator[str]:
    """Yield what keeps the memories of several scopes apart, and how to share them."""
    if done.scopes > 1:
        apart = f"; {done.repeats_apart:,} exact repeats stay apart" if done.repeats_apart else ""
        scopes = f"{done.scopes:,} scopes ({done.scope})"
        yield f"{scopes}: their memories are never compared or merged with each other{apart}"
        yield f"a team that shares its lessons: consolidation projects configure {done.project} scope=project"


def _print_remarks(done: ImportResult) -> None:
    skipped = sum(remark.is_skipped for remark in done.remarks)
    if skipped:
        print_note(f"skipped {skipped} file{'s' if skipped > 1 else ''}:")
    for remark in sorted(done.remarks, key=lambda one: not one.is_skipped)[:_SHOWN_BAD]:
        print_note(f"  {remark.file}: {remark.text}")
    more = len(done.remarks) - _SHOWN_BAD
    if more > 0:
        print_note(f"  and {more} more, in --json")


def _print_bad_rows(done: ImportResult) -> None:
    lines = defaultdict[str, list[int]](list)
    for row in done.bad:
        lines[row.reason].append(row.line)
    for reason, found in [*lines.items()][:_SHOWN_BAD]:
        others = len(found) - _SHOWN_LINES
        listed = ", ".join(map(str, found[:_SHOWN_LINES])) + (f" and {others} more" if others > 0 else "")
        print_note(f"line{'s' if len(found) > 1 else ''} {listed}: {reason}")
    more = len(lines) - _SHOWN_BAD
    where = f"{f'and {more} more reasons; ' if more > 0 else ''}all of them are in {done.rejects}"
    print_note(f"error: {len(done.bad)} bad rows were left out, the good ones are kept ({where})")
