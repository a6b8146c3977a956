"""``consolidation backup``: create, check, restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import read_settings
from consolidation_pipeline.cli.output import JsonFlag, format_value, print_json, print_note, show_progress
from consolidation_pipeline.core.text.counted_nouns import counted

if TYPE_CHECKING:
    from consolidation_pipeline.service.admin.backup import Manifest

app = typer.Typer(no_args_is_help=True, help="Back up the database of memories, check a backup, restore it.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


@app.command()
def create(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace the file if it exists.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write all projects, with jobs, ledger and keys, to one file.

    Nobody has to stop: it is the state of one moment. Dagster's records are not in it.
    """
    from consolidation_pipeline.service.admin.backup import create_backup

    with show_progress(f"writing {file}", as_json=as_json) as update:
        made = create_backup(read_settings(), file, replace=replace, progress=update)
    _print_backup("written", file, made, as_json=as_json)


@app.command()
def check(file: File, as_json: JsonFlag = False) -> None:
    """Read a backup to its end and show what it holds. No database is needed."""
    from consolidation_pipeline.service.admin.backup import check_backup

    with show_progress(f"reading {file}", as_json=as_json) as update:
        found = check_backup(file, progress=update)
    _print_backup("complete", file, found, as_json=as_json)


@app.command()
def restore(
    file: File,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete what the database holds. Without it, only an empty one is used.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Restore a backup into the database of the settings, in one transaction: all of it or nothing.

    Restart servers and daemons of that database afterwards. Restore only files that you trust: they are run as SQL.
    """
    from consolidation_pipeline.service.admin.backup import restore_backup
    from consolidation_pipeline.service.admin.database_checks import describe_database

    settings = read_settings()
    with show_progress(f"restoring {file}", as_json=as_json) as update:
        restored, revision = restore_backup(settings, file, replace=replace, progress=update)
    _print_backup("restored", file, restored, as_json=as_json, revision=revision)
    if not as_json:
        print_note(f"into {describe_database(settings)}, schema revision {revision}")


def _print_backup(state: str, file: Path, found: Manifest, *, as_json: bool, revision: str | None = None) -> None:
    if as_json:
        restored = {} if revision is None else {"restored_revision": revision}
        print_json({"file": str(file), "state": state, **found.model_dump(), **restored})
        return
    print(
        f"{file} is {state}: {counted(found.rows.get('projects', 0), 'project')}, "
        f"{found.rows.get('task_memories', 0):,} raw memories, "
        f"{found.rows.get('consolidated_memories', 0):,} consolidated, "
        f"{found.rows.get('consolidation_changes', 0):,} changes in the ledger; {found.bytes / 1e6:.1f} MB"
    )
    print_note(
        f"made at {format_value(found.created_at)} by program {found.program} from Postgres {found.postgres}, schema "
        f"revision {found.revision}"
    )
