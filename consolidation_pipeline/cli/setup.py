"""``consolidation init``, ``doctor`` and ``dev``: the schema, the diagnosis and the Dagster UI."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import read_settings
from consolidation_pipeline.cli.output import JsonFlag, make_console, print_json


def init(as_json: JsonFlag = False) -> None:
    """Create or update the database schema.

    Running it again changes nothing.
    """
    from consolidation_pipeline.service.admin.database_checks import describe_database, read_server
    from consolidation_pipeline.store.database.engine import connect_engine, database_url, upgrade

    settings = read_settings()
    engine = connect_engine(database_url(settings))
    upgrade(engine)
    server = read_server(engine)
    where = describe_database(settings)
    if as_json:
        print_json({"database": where, "embedded": settings.database_url is None, "revision": server.revision})
    else:
        print(f"memories live in: {where}\nschema: revision {server.revision}, up to date")


def doctor(
    ask_models: Annotated[
        bool, typer.Option("--ask-models", help="Send a small request to each paid model; it is billed.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check the set-up and report problems.

    Exit code 1 if there is a problem.
    """
    from consolidation_pipeline.service.admin.doctor import Automation, diagnose
    from consolidation_pipeline.service.admin.findings import Finding

    def ask_dagster() -> Automation:
        from consolidation_pipeline.launch import find_automation  # Dagster takes a second to import

        return find_automation()

    colors = {"ok": "green", "warning": "yellow", "problem": "bold red"}
    out = make_console()
    findings: list[Finding] = []
    for finding in diagnose(read_settings(), ask_dagster, ask_models=ask_models):
        findings.append(finding)
        if not as_json:
            out.print(f"{finding.status:8}", style=colors[finding.status], end="")
            out.print(f"{finding.check}: {finding.message}", soft_wrap=True)
    failed = any(finding.status == "problem" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "checks": findings})
    raise typer.Exit(1 if failed else 0)


def dev(
    host: Annotated[str, typer.Option(help="Address the UI listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port the UI listens on.")] = 3000,
) -> None:
    """Start the Dagster UI with sensors and schedules running."""
    from consolidation_pipeline.cli.serve import open_listeners
    from consolidation_pipeline.launch import register_projects
    from consolidation_pipeline.settings import use_dagster_home

    home = use_dagster_home()
    os.environ["CONSOLIDATION_AUTOMATION"] = "running"
    read_settings()
    for listener in open_listeners(host, port):
        listener.close()
    register_projects()
    print(f"Dagster UI: http://{host}:{port} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    os.chdir(home)
    os.execv(sys.executable, [sys.executable, "-m", *_make_dev_command(home), "--host", host, "--port", str(port)])


def _make_dev_command(home: Path) -> list[str]:
    """Return the Python module that starts the UI, and its arguments: ``dg``, or ``dagster`` where it is missing.

    In a checkout ``dg`` takes the project from pyproject.toml, elsewhere the workspace file of the package.
    """
    from consolidation_pipeline.settings import IS_INSTALLED, PROJECT_ROOT, RESOURCE_DIR

    workspace = ["--workspace", str(RESOURCE_DIR / "workspace.yaml")]
    if find_spec("dagster_dg_cli") is None:
        return ["dagster", "dev", *workspace]
    is_project = not IS_INSTALLED and home.resolve() == PROJECT_ROOT
    return ["dagster_dg_cli.cli", "dev", *(["--use-active-venv"] if is_project else workspace)]
