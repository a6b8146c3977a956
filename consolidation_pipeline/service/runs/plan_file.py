"""Files with plans, which people read, shorten and give back."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from consolidation_pipeline.core.invalid_values import describe_errors
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


def load_plan(kind: type[Document], path: Path, *, made_by: str, told: Collection[str] = ()) -> Document:
    """Read a plan from its file.

    Args:
        made_by: Command that makes such files, for the message.
        told: Fields that its JSON on the command line or over HTTP has besides, as counts; they are left out.

    Raises:
        UsageError: The file cannot be read, or is no such plan.
    """
    try:
        return kind.model_validate_json(_leave_out(told, path.read_bytes()))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        reason = describe_errors(error.errors()[:1])
        raise UsageError(f"{path} is not a plan of `{made_by}`: {reason}") from None


def _leave_out(names: Collection[str], data: bytes) -> bytes:
    """Return a JSON object without these fields; anything else as it is."""
    with suppress(ValueError):
        document = json.loads(data)
        if isinstance(document, dict):
            return json.dumps({name: value for name, value in document.items() if name not in names}).encode()
    return data
