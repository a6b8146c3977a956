"""Files with plans, which people read, shorten and give back."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from consolidation_pipeline.errors import UsageError

Document = TypeVar("Document", bound=BaseModel)


def save_plan(plan: BaseModel, path: Path) -> None:
    """Write a plan to a JSON file. Raise UsageError if that fails."""
    write_file(f"{plan.model_dump_json(indent=1)}\n".encode(), path)


def write_file(data: bytes, path: Path) -> None:
    """Write a file. Raise UsageError if that fails."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def load_plan(kind: type[Document], path: Path, *, made_by: str) -> Document:
    """Read a plan from its file.

    Args:
        made_by: Command that makes such files, for the message.

    Raises:
        UsageError: The file cannot be read, or is no such plan.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}." for part in first["loc"]).rstrip(".")
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise UsageError(f"{path} is not a plan of `{made_by}`: {reason}") from None
