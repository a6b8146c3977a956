"""``consolidation context``: knowledge of a project for a task."""

from __future__ import annotations

from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import AS_OF_HELP, SCOPE_HELP, Project, check_texts, open_store
from consolidation_pipeline.cli.output import JsonFlag, print_json, print_note


def context(
    project: Project,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task, in a sentence or two.")],
    tokens: Annotated[int, typer.Option(help="Maximum tokens, estimated at three bytes each.")] = 2000,
    scope: Annotated[str | None, typer.Option(help=SCOPE_HELP)] = None,
    as_of: Annotated[str | None, typer.Option(help=AS_OF_HELP)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print what an agent should know before a task.

    Instructions, what is known, what is disputed, and where to look for more, each with the id of its
    memory. Printed memories count as used, which slows their decay.
    """
    from consolidation_pipeline.service.search.as_of import parse_as_of
    from consolidation_pipeline.service.search.context import build_context, to_document
    from consolidation_pipeline.service.search.typed_scopes import resolve_scope

    check_texts(task=task, scope=scope)
    engine, settings = open_store()
    when, key = parse_as_of(as_of), resolve_scope(engine, project, scope)
    found = build_context(engine, project, task, settings=settings, token_budget=tokens, scope=key, as_of=when)
    if as_json:
        print_json(vars(found))
        return
    print(to_document(found), end="")
    print_note(f"{found.tokens} of {found.token_budget} tokens")
