"""What a command works with: the settings of this process, the store, and who is at the keyboard."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING

from consolidation_pipeline.errors import UsageError

if TYPE_CHECKING:
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import Engine


def read_settings() -> Settings:
    """Settings from the environment. Raises UsageError naming the variable that is wrong."""
    from pydantic import ValidationError

    from consolidation_pipeline.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        wrong = "; ".join(f"CONSOLIDATION_{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors())
        raise UsageError(f"the environment is wrong: {wrong}") from None


def open_store() -> tuple[Engine, Settings]:
    """The store, ready to use, and the settings it was found by. Raises StoreError."""
    from consolidation_pipeline.store.database.engine import open_engine

    settings = read_settings()
    return open_engine(settings), settings


def get_actor() -> str:
    """The name that stands in the ledger for what is done here."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"  # a container's user need not have a name
