"""``consolidation embeddings``: another embedding model for a project, without a moment in which search finds less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.cli.cli_context import Project, open_store
from consolidation_pipeline.cli.output import JsonFlag, fact_table, make_console, print_json, print_note, show_progress
from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.service.admin.embedding_change import EmbeddingStatus, ModelVectors
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine


def embeddings(
    project: Project,
    model: Annotated[
        str | None, typer.Option(help="Stage vectors of this embedding model; searches and runs go on meanwhile.")
    ] = None,
    switch: Annotated[
        bool, typer.Option("--switch", help="Use the other staged model from the next search on; again: switch back.")
    ] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Delete the staged vectors; no switch back after that.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Change the embedding model of a project while it is searched: stage its vectors, then switch.

    Without options, tell which models the project has vectors of.
    """
    if sum((model is not None, switch, drop)) > 1:
        raise UsageError("--model stages vectors, --switch uses them, --drop deletes them: give one of them")
    engine, settings = open_store()
    if switch:
        _switch(engine, project, settings, as_json=as_json)
    elif drop:
        _drop(engine, project, settings, as_json=as_json)
    elif model is not None:
        _stage(engine, project, model, settings, as_json=as_json)
    else:
        _print_status(engine, project, settings, as_json=as_json)


def _stage(engine: Engine, project: str, model: str, settings: Settings, *, as_json: bool) -> None:
    from dataclasses import asdict

    from consolidation_pipeline.service.admin.embedding_change import stage_embeddings

    with show_progress(f"staging vectors of {model} for {project}", as_json=as_json):
        done = stage_embeddings(engine, project, model, settings=settings)
    if as_json:
        print_json(asdict(done))
        return
    rows = {"computed": done.computed, "reused": done.reused, **_describe(done.status)}
    make_console().print(fact_table(f"{project}: vectors of {model} staged", rows))
    print_note(f"use them with `consolidation embeddings {project} --switch`")


def _switch(engine: Engine, project: str, settings: Settings, *, as_json: bool) -> None:
    from consolidation_pipeline.service.admin.embedding_change import switch_model

    with show_progress(f"switching the embedding model of {project}", as_json=as_json):
        done = switch_model(engine, project, settings=settings)
    if as_json:
        print_json(vars(done))
        return
    rows = {
        "before": done.before,
        "now": done.after,
        "computed": f"{done.computed} vectors of memories since the staging" if done.computed else None,
        "switched in": f"{done.seconds:.3f} s",
        "next": f"consolidation run {project} --job reembed",
        "undo": f"consolidation embeddings {project} --switch",
    }
    make_console().print(fact_table(f"{project}: embedding model switched", rows))


def _drop(engine: Engine, project: str, settings: Settings, *, as_json: bool) -> None:
    from consolidation_pipeline.service.admin.embedding_change import drop_staged

    dropped = drop_staged(engine, project, settings=settings)
    if as_json:
        print_json({"project": project, "dropped": dropped})
    else:
        print(f"dropped {dropped} staged vectors of {project}")


def _print_status(engine: Engine, project: str, settings: Settings, *, as_json: bool) -> None:
    from dataclasses import asdict

    from consolidation_pipeline.service.admin.embedding_change import read_status

    status = read_status(engine, project, settings=settings)
    if as_json:
        print_json(asdict(status))
    else:
        make_console().print(fact_table(f"{project}: embedding models", _describe(status)))


def _describe(status: EmbeddingStatus) -> dict[str, object]:
    return {one.model: _describe_model(one, is_current=one.model == status.current) for one in status.models}


def _describe_model(vectors: ModelVectors, *, is_current: bool) -> str:
    return (
        f"{'in use; ' if is_current else ''}{vectors.dimension} dimensions, {vectors.own} vectors in rows, "
        f"{vectors.staged} staged, {vectors.missing} missing"
    )
