"""``consolidation init``, ``doctor`` and ``dev``: the schema, the diagnosis and the Dagster UI."""

from __future__ import annotations

import os
import sys
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
    from consolidation_pipeline.launch import register_projects
    from consolidation_pipeline.settings import RESOURCE_DIR, use_dagster_home

    home = use_dagster_home()
    os.environ["CONSOLIDATION_AUTOMATION"] = "running"
    read_settings()
    register_projects()
    print(f"Dagster UI: http://{host}:{port} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    os.chdir(home)
    workspace = str(RESOURCE_DIR / "workspace.yaml")
    command = [sys.executable, "-m", "dagster", "dev", "-w", workspace, "--host", host, "--port", str(port)]
    os.execv(sys.executable, command)
