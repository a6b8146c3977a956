"""The command ``consolidation``: registers its commands and turns errors into exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

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
    feedback,
    history,
    import_memories,
    keys,
    mcp,
    plan,
    playbook,
    projects,
    quarantine,
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

# settings.py knows the project's root too, but importing it is too slow for `--help`.
ENV_FILE = Path(__file__).resolve().parents[2] / ".env"

_COMMANDS: tuple[Callable[..., Any], ...] = (
    setup.init,
    setup.doctor,
    setup.dev,
    demo.demo,
    import_memories.import_,
    plan.plan,
    run.run,
    run.cancel,
    calibration.calibrate,
    status.status,
    status.metrics,
    history.history,
    history.lineage,
    search.search,
    context.context,
    playbook.playbook,
    cost.cost,
    rollback.rollback,
    archive.archive,
    archive.restore,
    archive.pin,
    quarantine.blast_radius,
    quarantine.quarantine,
    feedback.used,
    feedback.feedback,
    export_memories.export,
    mcp.mcp,
    serve.serve,
)

# Without Rich markup `--help` is three times as fast.
app = typer.Typer(name="consolidation", no_args_is_help=True, add_completion=False, rich_markup_mode=None)
for command in _COMMANDS:
    app.command(name=command.__name__.removesuffix("_").replace("_", "-"))(command)
for group in (events, projects, keys, relations, review, suggestions):
    app.add_typer(group.app, name=group.__name__.rpartition(".")[2])


@app.callback()
def consolidation(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works with every command.")
    ] = False,
) -> None:
    """Dreaming for the agent memories you already keep in Postgres: plan, apply, undo.

    Exit codes: 0 done, 1 failed, 2 usage, 3 conflict, 4 budget.
    """
    del debug  # run_command() removes it from the arguments, so that it may stand anywhere


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its exit code."""
    sys.exit(run_command(list(sys.argv[1:] if arguments is None else arguments)))


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code. Variables missing in the environment are read from ``.env``."""
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
