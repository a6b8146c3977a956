"""Notes of a connected folder, by the readers of the import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from consolidation_pipeline.connect.folder_config import INDEX, FolderConfig
from consolidation_pipeline.connect.folder_files import Folder
from consolidation_pipeline.connect.store import SourceRow
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.folder_formats import (
    FOLDER_FORMATS,
    Part,
    find_part,
    list_files,
    name_file,
    recognize_folder,
)
from consolidation_pipeline.service.intake.readers.folder_notes import MAX_FILE_BYTES, read_note
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

# A longer path is no id of a memory.
_MAX_PATH_CHARS = 400
_FIELDS = ("tags", "memory_type", "session_id", "goal")


def read_folder_config(values: Mapping[str, Any]) -> FolderConfig:
    """Return the configuration of a folder; a format that is not named is recognised by its files.

    Raises:
        UsageError: A field is unknown or missing, there is no such folder, or its format is not known.
    """
    given = dict(values)
    if "path" not in given:
        raise UsageError("path is missing: a source of kind folder needs the path of a folder")
    root = Path(str(given["path"])).expanduser().resolve()
    given["path"] = str(root)
    if "format" not in given:
        if not root.is_dir():
            raise UsageError(f"{root} is no folder")
        formats = recognize_folder(root)
        if not formats:
            raise UsageError(f"{root} has the marks of no format: give --format, one of {', '.join(FOLDER_FORMATS)}")
        given["format"] = formats[0]
    if given["format"] not in FOLDER_FORMATS:
        raise UsageError(f"there is no format {given['format']!r} of folders: {', '.join(FOLDER_FORMATS)}")
    unknown = sorted(set(given) - set(FolderConfig.model_fields))
    if unknown:
        raise UsageError(f"{unknown[0]} does not apply to a folder: give path, format and memory_type")
    return FolderConfig.model_validate(given)


class FolderReader:
    """Reader of the notes of a folder that is open."""

    def __init__(self, folder: Folder, format: str) -> None:
        self._folder, self._format = folder, format

    @property
    def title(self) -> str:
        """Name of the format, for people."""
        return FOLDER_FORMATS[self._format].title

    def list_names(self) -> list[str]:
        """Return the paths of the files that may hold notes, sorted. Links are left out."""
        root = self._folder.root
        return sorted(path.relative_to(root).as_posix() for path in list_files(root) if not path.is_symlink())

    def read(self, name: str) -> list[SourceRow]:
        """Return the memories of a file; none if it is not there or holds none.

        A file that is one note is a memory by its path. Of others each section or item of a list is one.
        """
        path = self._folder.root / name
        part = find_part(self._format, path, self._folder.root)
        status = self._folder.find(name) if isinstance(part, Part) else None
        if status is None or not isinstance(part, Part):
            return []
        changed = datetime.fromtimestamp(status.st_mtime, UTC).isoformat()
        try:
            name_file(path, self._folder.root)
            if len(name) > _MAX_PATH_CHARS:
                raise UsageError(f"the path has more than {_MAX_PATH_CHARS} characters")
            if status.st_size > MAX_FILE_BYTES:
                raise UsageError(f"{status.st_size / 1e6:.1f} MB is no note: at most {MAX_FILE_BYTES / 1e6:.0f} MB")
            data = self._folder.read(name)
        except (UsageError, OSError) as error:
            reason = str(error) if isinstance(error, UsageError) else str(error.strerror)
            return [self._refuse(ascii(name)[1:-1][:_MAX_PATH_CHARS], reason)]
        items = list(read_note(self._folder.root, name, part, data, format=self._format))
        found = {str(item.fields["id"]): item for item in items if isinstance(item, Row)}
        if list(found) == [name] or (part is Part.NOTE and len(items) == 1 and found):
            fields = next(iter(found.values())).fields
            return [self._make_row(name, name, fields, changed, stamp=sha256(data).hexdigest())]
        problems = [item.reason for item in items if isinstance(item, BadRow)]
        rows = [self._make_row(id_, name, item.fields, changed) for id_, item in sorted(found.items())]
        return [*rows, *([self._refuse(name, "; ".join(problems))] if problems else [])]

    def _make_row(
        self, key: str, name: str, given: Mapping[str, Any], changed: str, *, stamp: str | None = None
    ) -> SourceRow:
        metadata = {**given["metadata"], "path": name}
        fields = {field: given[field] for field in _FIELDS if given.get(field)}
        if stamp is None:
            # An edit elsewhere in the file does not change a part of it.
            metadata.pop("sha256", None)
            stamp = sha256(json.dumps([given["content"], fields], sort_keys=True).encode()).hexdigest()
        return SourceRow(
            key=key,
            stamp=stamp,
            text=str(given["content"]),
            scope={"metadata.folder": str(self._folder.root / self._find_wall(name))},
            created=given.get("created_at"),
            updated=changed,
            metadata=metadata,
            fields=fields,
        )

    def _refuse(self, key: str, problem: str) -> SourceRow:
        stamp = sha256(problem.encode()).hexdigest()
        return SourceRow(key, stamp, "", {"metadata.folder": ""}, None, None, {}, problem=problem)

    def _find_wall(self, name: str) -> str:
        """Return the nearest folder above a file that has an index; "." if none has."""
        parents = [str(parent) for parent in PurePosixPath(name).parents]
        return next((parent for parent in parents if parent in self._indexed), ".")

    @cached_property
    def _indexed(self) -> set[str]:
        return {str(PurePosixPath(name).parent) for name in self.list_names() if PurePosixPath(name).name == INDEX}
