"""``consolidation context``: what an agent should know before a task."""

from __future__ import annotations

from typing import Annotated

import typer

from consolidation_pipeline.cli.cli_context import open_store
from consolidation_pipeline.cli.output import JsonFlag, print_json, print_note


def context(
    project: Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")],
    task: Annotated[str, typer.Argument(metavar="TASK", help="What is to be done, in a sentence or two.")],
    tokens: Annotated[int, typer.Option(help="At most so many, estimated at three bytes each.")] = 2000,
    as_json: JsonFlag = False,
) -> None:
    """Tell what to know before a task: playbook, principles, patterns, memories, each fact once.

    What is told counts as used, which keeps memories from fading.
    """
    from consolidation_pipeline.service.search.context import build_context, to_document

    engine, settings = open_store()
    told = build_context(engine, project, task, settings=settings, token_budget=tokens)
    if as_json:
        print_json(vars(told))
        return
    print(to_document(told), end="")
    print_note(f"{told.tokens} of {told.token_budget} tokens")


COMMANDS = (context,)
