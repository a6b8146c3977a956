"""The command ``consolidation``: its commands, and what becomes of their errors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from consolidation_pipeline import logs
from consolidation_pipeline.cli import (
    archive,
    calibration,
    context,
    cost,
    demo,
    events,
    export_memories,
    import_memories,
    keys,
    mcp,
    plan,
    playbook,
    projects,
    relations,
    review,
    rollback,
    run,
    search,
    serve,
    setup,
    status,
    suggestions,
)
from consolidation_pipeline.cli.error_report import INTERRUPTED, report_error
from consolidation_pipeline.errors import ConsolidationError

# Settings know the project's root too, but importing them takes longer than `--help` may.
ENV_FILE = Path(__file__).resolve().parents[2] / ".env"

# Rich help would take three times as long to show.
app = typer.Typer(name="consolidation", no_args_is_help=True, add_completion=False, rich_markup_mode=None)
for group in (
    setup,
    demo,
    import_memories,
    plan,
    run,
    calibration,
    status,
    search,
    context,
    playbook,
    cost,
    rollback,
    archive,
    export_memories,
    mcp,
    serve,
):
    for command in group.COMMANDS:
        app.command(name=command.__name__.removesuffix("_"))(command)
app.add_typer(events.app, name="events")
app.add_typer(projects.app, name="projects")
app.add_typer(keys.app, name="keys")
app.add_typer(relations.app, name="relations")
app.add_typer(review.app, name="review")
app.add_typer(suggestions.app, name="suggestions")


@app.callback()
def consolidation(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; fits any command.")] = False,
) -> None:
    """Dreaming for the agent memories you already keep in Postgres: consolidate, look, undo.

    Exit codes: 0 done, 1 failed, 2 usage, 3 conflict, 4 budget.
    """
    del debug  # taken out of the arguments by main(), so that it may stand anywhere


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run_command(list(sys.argv[1:] if arguments is None else arguments)))


def run_command(arguments: list[str]) -> int:
    """Run one command; returns its exit code. ``.env`` of the project's root fills in what the environment lacks."""
    debug = "--debug" in arguments
    given = [argument for argument in arguments if argument != "--debug"]
    _load_environment()
    logs.configure()
    try:
        code = typer.main.get_command(app).main(given, prog_name="consolidation", standalone_mode=False)
    except (ConsolidationError, typer.TyperException, typer.Abort) as error:
        if debug:
            logging.getLogger(__name__).error("--debug", exc_info=error)
        return report_error(error, as_json="--json" in given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if debug:
            raise
        return report_error(error, as_json="--json" in given)
    return code if isinstance(code, int) else 0


def _load_environment() -> None:
    if ENV_FILE.is_file():
        from dotenv import load_dotenv

        load_dotenv(ENV_FILE, override=False)
