"""Configuration of a connected folder of notes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from consolidation_pipeline.connect.store import StoreConfig

FOLDER = "folder"
# File that a coding agent reads first: a list of links to its notes.
INDEX = "MEMORY.md"

_PART = re.compile(r".+#[0-9a-f]{32}")


class FolderConfig(BaseModel):
    """Configuration of a connected folder.

    Attributes:
        path: The folder, without links.
        format: Its format, as an import takes it.
        memory_type: Type of its memories, for notes that name none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str = FOLDER
    path: str
    format: str
    memory_type: str = "learning"

    @property
    def embedding_model(self) -> None:
        """None: notes have no vectors."""

    @property
    def place(self) -> str:
        """Path of the folder."""
        return self.path

    @property
    def address(self) -> str:
        """Option by which commands find the folder."""
        return f"--path {self.path}"

    @property
    def scope_names(self) -> tuple[str, ...]:
        """The folder of a note separates it: that of the nearest index above it, or the connected one."""
        return ("metadata.folder",)

    @property
    def can_insert(self) -> bool:
        """True: new notes are written."""
        return True

    @property
    def reuses_keys(self) -> bool:
        """True: a new file may have the name of one that is gone."""
        return True

    def overlaps(self, other: StoreConfig) -> bool:
        """Return True if one folder is the other, or inside of it."""
        if not isinstance(other, FolderConfig):
            return False
        mine, theirs = Path(self.path), Path(other.path)
        return mine.is_relative_to(theirs) or theirs.is_relative_to(mine)

    def may_hide(self, key: str) -> bool:
        """Return True if the note is a file of its own, and no index."""
        return is_whole(key)

    def dump(self) -> dict[str, Any]:
        """Return all fields."""
        return self.model_dump()


def is_whole(key: str) -> bool:
    """Return True if a key is that of a file which is one note and no index; False for a part of a file."""
    return not _PART.fullmatch(key) and key.rpartition("/")[2] != INDEX
