"""``consolidation projects``: list, create, configure, delete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import (
    JsonFlag,
    format_value,
    make_console,
    make_table,
    print_json,
    print_note,
)
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.options import ConsolidationOptions
    from consolidation_pipeline.store.projects import Project as StoredProject

app = typer.Typer(no_args_is_help=True, help="List, create, configure and delete projects.")

_ENABLED = "consolidation_enabled"
Assignments = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Options to set; KEY= resets one to its default.")
]


@app.command(name="list")
def list_(as_json: JsonFlag = False) -> None:
    """List all projects with their active and new memories."""
    from consolidation_pipeline.service.admin.projects import list_projects

    engine, _ = open_store()
    found = list_projects(engine)
    if as_json:
        print_json({"projects": [_describe(backlog) for backlog in found]})
        return
    table = make_table("project", "enabled", "active in all", "merged", "new", "last run", "options")
    for backlog in found:
        row = _describe(backlog)
        last = format_value(row["last_run_at"]) if row["last_run_at"] else "never"
        enabled = "yes" if row["enabled"] else "no"
        counts = (str(row[name]) for name in ("units", "merged", "new"))
        table.add_row(row["project"], enabled, *counts, last, format_value(row["config"]))
    make_console().print(table if found else "no projects yet: `consolidation import` and `projects create` make one")


def _describe(backlog: Any) -> dict[str, Any]:
    return {
        "project": backlog.slug,
        "enabled": backlog.consolidation_enabled,
        "units": backlog.units,
        "active": backlog.active,
        "new": backlog.new,
        "merged": backlog.merged,
        "last_run_at": backlog.last_job_at,
        "config": backlog.config,
    }


@app.command()
def create(project: Project, assignments: Assignments = None, as_json: JsonFlag = False) -> None:
    """Create a project, optionally with options."""
    from consolidation_pipeline.service.admin.projects import configure_project, create_project

    engine, settings = open_store()
    config, resets = parse_assignments(assignments or [])
    enabled = _take_enabled(config, resets)
    created = create_project(engine, project, config, settings=settings)
    _warn_of_models(created.config, config)
    if enabled is False:
        configure_project(engine, project, settings=settings, config={}, enabled=enabled)
    if as_json:
        print_json({"project": created.slug, "project_id": created.id, "config": created.config})
    else:
        print(f"project {created.slug} created")


@app.command()
def configure(
    project: Project,
    assignments: Assignments = None,
    enable: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Enable or disable runs of the project.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Set options of a project and print all options with their values. Without KEY=VALUE, only print them.

    consolidation_enabled=false is --disable.
    """
    from consolidation_pipeline.service.admin.projects import configure_project, get_configuration

    engine, settings = open_store()
    config, resets = parse_assignments(assignments or [])
    assigned = _take_enabled(config, resets)
    if None not in (enable, assigned):
        raise UsageError(f"{_ENABLED} and --enable or --disable say the same: give one of them")
    enabled = enable if assigned is None else assigned
    if config or resets or enabled is not None:
        configured = configure_project(
            engine, project, settings=settings, config=config, resets=resets, enabled=enabled
        )
        _warn_of_models(configured.config, config)
    _show(*get_configuration(engine, project, settings=settings), as_json=as_json)


def _warn_of_models(stored: Mapping[str, Any], assigned: Mapping[str, Any]) -> None:
    """Tell what is wrong with the models that were assigned, as far as their names tell it."""
    from consolidation_pipeline.service.admin.model_check import MODEL_OPTIONS, find_model_problems

    for name in MODEL_OPTIONS:
        if stored.get(name) in assigned.values():
            for problem in find_model_problems(name, stored.get(name)):
                print_note(f"warning: {problem}")


def parse_assignments(assignments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return options to set and options to reset; values that are JSON are parsed. Raise UsageError if one is wrong."""
    config: dict[str, Any] = {}
    resets = []
    for assignment in assignments:
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not key:
            raise UsageError(f"{assignment!r} is not an option: write KEY=VALUE, or KEY= for its default")
        if key in config or key in resets:
            raise UsageError(f"{key} is given twice: give it once")
        if value:
            config[key] = _parse_value(value)
        else:
            resets.append(key)
    return config, resets


def _take_enabled(config: dict[str, Any], resets: list[str]) -> bool | None:
    """Remove the assignment of ``consolidation_enabled``, which is no option but a column, and return its value."""
    if _ENABLED in resets:
        resets.remove(_ENABLED)
        return True
    enabled = config.pop(_ENABLED, None)
    if enabled is not None and not isinstance(enabled, bool):
        raise UsageError(f"{_ENABLED} is true or false, not {enabled!r}")
    return enabled


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _show(project: StoredProject, options: ConsolidationOptions, *, as_json: bool) -> None:
    effective = options.model_dump(mode="json")
    if as_json:
        enabled = project.consolidation_enabled
        print_json({"project": project.slug, "enabled": enabled, "config": project.config, "effective": effective})
        return
    state = "enabled" if project.consolidation_enabled else "disabled"
    table = make_table("option", "value", "what it does", title=f"{project.slug} ({state})")
    for name, field in type(options).model_fields.items():
        table.add_row(name, f"{effective[name]}{'  (set)' if name in project.config else ''}", field.description)
    make_console().print(table)


@app.command()
def delete(
    project: Project,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm the deletion; there is no undo.")] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave rows hidden in connected stores; `source restore` shows them again.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Delete a project with all its data except the ledger. There is no undo.

    Refused while rows are hidden in a connected store: `source disconnect --restore` shows them again.
    """
    from consolidation_pipeline.service.admin.projects import delete_project

    engine, _ = open_store()
    deleted, counts, stores = delete_project(engine, project, confirmed=yes, keep=keep)
    for store in stores:
        if store.restore is not None:
            print_note(
                f"note: what was made and hidden in the store of {store.name} is there still: {store.restore} undoes it"
            )
    if as_json:
        print_json({"project": deleted.slug, "project_id": deleted.id, "memories": counts.memories})
    else:
        print(
            f"project {deleted.slug} deleted with {counted(counts.memories, 'memory')}; "
            f"its ledger stays under {deleted.id}"
        )
