"""Context of commands: settings, the store, the actor, and parameters that several commands share."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")]
AS_OF_HELP = "What was known then: a day (to its end) or an ISO 8601 time, UTC. Counts no use."
SCOPE_HELP = "Only memories of this scope, such as a user id, and of no scope in particular."
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")]
Reason = Annotated[str | None, typer.Option(help="Reason, stored in the ledger.")]


def read_settings() -> Settings:
    """Return the settings from the environment. Raise UsageError, which names the wrong variable."""
    from pydantic import ValidationError

    from consolidation_pipeline.core.invalid_values import explain_errors
    from consolidation_pipeline.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        explained = explain_errors(error.errors())
        wrong = "; ".join(f"CONSOLIDATION_{name.upper()}: {problem}" for name, problem in explained.items())
        raise UsageError(f"the environment is wrong: {wrong}") from None


def open_store() -> tuple[Engine, Settings]:
    """Return the store, ready to use, and the settings. Raise StoreError if it cannot be reached."""
    from consolidation_pipeline.store.database.engine import open_engine

    settings = read_settings()
    return open_engine(settings), settings


def find_id(engine: Engine, reference: str) -> UUID:
    """Return the id of a memory that was given whole or by its first digits, as a context tells it."""
    from consolidation_pipeline.service.undo.lineage import find_memory_id

    return find_memory_id(engine, reference)


def find_ids(engine: Engine, references: Sequence[str]) -> list[UUID]:
    """Return the ids of memories; see ``find_id``."""
    return [find_id(engine, reference) for reference in references]


def check_texts(**given: str | None) -> None:
    """Raise InvalidMemoryError if a text is no valid Unicode: the bytes of the argument are no UTF-8."""
    from consolidation_pipeline.core.memories.row_fields import check_characters

    for name, text in given.items():
        check_characters(name, text or "")


def get_actor() -> str:
    """Return the name that the ledger records for changes of the command line."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"  # the user of a container may have no name
