"""The command ``consolidation``: registers its commands and turns errors into exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from consolidation_pipeline import logs
from consolidation_pipeline.cli import (
    archive,
    backup,
    calibration,
    connect,
    context,
    cost,
    demo,
    embeddings,
    erase,
    events,
    export_memories,
    feedback,
    history,
    import_memories,
    keys,
    mcp,
    memories,
    memory_tests,
    plan,
    playbook,
    projects,
    prune,
    quarantine,
    relations,
    replay,
    report,
    review,
    rollback,
    run,
    search,
    serve,
    setup,
    shadow,
    source,
    status,
    suggestions,
)
from consolidation_pipeline.cli.command_group import CommandGroup
from consolidation_pipeline.cli.error_report import INTERRUPTED, report_error
from consolidation_pipeline.errors import ConsolidationError

# settings.py knows the project's root too, but importing it is too slow for `--help`.
ENV_FILE = Path(__file__).resolve().parents[2] / ".env"

# Commands, and modules with a group of commands, under the headings of `--help`.
_COMMANDS: dict[str, tuple[Callable[..., Any] | ModuleType, ...]] = {
    "Start": (demo.demo, setup.init, setup.doctor, projects),
    "Memories": (
        connect.connect,
        source,
        memories.add,
        memories,
        import_memories.import_,
        export_memories.export,
        feedback.used,
        feedback.feedback,
    ),
    "Runs": (
        plan.plan,
        run.run,
        shadow.shadow,
        embeddings.embeddings,
        run.cancel,
        memory_tests.test,
        status.status,
        status.metrics,
        report.report,
        cost.cost,
        calibration.calibrate,
    ),
    "Read": (search.search, context.context, playbook.playbook, history.lineage),
    "Decide": (review, suggestions, relations),
    "Change and undo": (
        history.history,
        replay.replay,
        rollback.rollback,
        archive.archive,
        archive.restore,
        archive.pin,
        quarantine.blast_radius,
        quarantine.quarantine,
        erase.erase,
    ),
    "Serve and operate": (setup.dev, serve.serve, mcp.mcp, keys, events, backup, prune.prune),
}


class _Root(CommandGroup):
    headings = tuple(_COMMANDS)


# Without Rich markup `--help` is three times as fast.
app = typer.Typer(name="consolidation", cls=_Root, no_args_is_help=True, rich_markup_mode=None)
for heading, commands in _COMMANDS.items():
    for command in commands:
        if isinstance(command, ModuleType):
            name = command.__name__.rpartition(".")[2]
            app.add_typer(command.app, name=name, cls=CommandGroup, rich_help_panel=heading)
        else:
            app.command(name=command.__name__.removesuffix("_").replace("_", "-"), rich_help_panel=heading)(command)


def _print_version(given: bool) -> None:
    if given:
        from importlib.metadata import version

        print(f"consolidation {version('consolidation-pipeline')}")
        raise typer.Exit


@app.callback()
def consolidation(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works with every command.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Dreaming for the agent memories you already keep in Postgres: plan, apply, undo.

    Exit codes: 0 done, 1 failed or cancelled, 2 usage, 3 conflict, 4 budget, 5 done, but a model failed,
    130 interrupted.
    """
    del version, debug  # run_command() removes it from the arguments, so that it may stand anywhere


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
        code = _read_commands().main(given, prog_name="consolidation", standalone_mode=False)
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


@cache
def _read_commands() -> Any:
    """Return the commands with their parameters. Typer reads those of all commands, which takes 0.06 s."""
    return typer.main.get_command(app)


def _load_environment() -> None:
    if ENV_FILE.is_file():
        from dotenv import load_dotenv

        load_dotenv(ENV_FILE, override=False)
