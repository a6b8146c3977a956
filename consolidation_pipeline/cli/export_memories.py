"""``consolidation export``: raw memories as JSON Lines, CSV or Parquet."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, print_json, print_note, show_progress
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import UsageError


def export(
    project: Project,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; - for standard output.")],
    format: Annotated[
        Literal["jsonl", "csv", "parquet"], typer.Option(help="JSON Lines, CSV, or Parquet, which needs pyarrow.")
    ] = "jsonl",
    with_derived: Annotated[
        bool, typer.Option("--with-derived", help="Write merged memories and other derived knowledge as well.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a project's raw memories to a file.

    An import from JSON Lines or CSV into a project of the same name gives them the same ids. Vectors and results of
    runs are left out; a run makes them again. Rows of --with-derived name their kind and sources, and an import
    refuses them.
    """
    from consolidation_pipeline.service.intake.exporter import export_memories

    if as_json and file == "-":
        raise UsageError("--json and - both write to standard output: name a file, or leave --json out")
    engine, _ = open_store()
    with show_progress(f"exporting {project}", as_json=as_json) as update:
        done = export_memories(
            engine,
            project,
            file,
            format=format,
            with_derived=with_derived,
            progress=lambda so_far: update(counted(so_far.memories, "memory")),
        )
    if as_json:
        print_json(vars(done))
    else:
        print_note(f"{project}: {counted(done.memories, 'memory')} and {done.derived} derived rows written to {file}")
