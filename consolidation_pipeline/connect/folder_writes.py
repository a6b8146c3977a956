"""Writing of a group into a folder, its exact inverse, and erasure, as steps of the journal.

Hidden notes are moved to ``.consolidated/files``, under names that no loader of notes reads. A record of each write in
``.consolidated/writes`` has all that undo needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any, Protocol
from uuid import UUID

from consolidation_pipeline.connect.folder_config import INDEX, is_whole
from consolidation_pipeline.connect.folder_files import Folder
from consolidation_pipeline.connect.folder_journal import SIDECAR, Journal
from consolidation_pipeline.connect.folder_links import find_links, merge_lines, relink
from consolidation_pipeline.connect.store import Conflict, GroupWrite, Receipt, SourceRow, check_stamps
from consolidation_pipeline.errors import ConflictError, UsageError

_WRITES = f"{SIDECAR}/writes"


class Notes(Protocol):
    """Reader of the notes of a folder."""

    @property
    def title(self) -> str:
        """Name of the format, for people."""

    def list_names(self) -> list[str]:
        """Return the paths of the files that may hold notes, sorted."""

    def read(self, name: str) -> list[SourceRow]:
        """Return the memories of a file; none if it is not there or holds none."""


@dataclass(frozen=True)
class NewNote:
    """Path, content and text of a note that is to be written."""

    path: str
    data: bytes
    text: str


@dataclass(frozen=True)
class NoteChange:
    """Files that a write changes: hidden notes, the new note, indexes with their text before and after."""

    hidden: Sequence[SourceRow]
    new: NewNote | None
    indexes: Mapping[str, tuple[str, str]]

    @property
    def paths(self) -> list[str]:
        """Paths of all files, those of the sidecar left out."""
        return [row.key for row in self.hidden] + list(self.indexes) + ([self.new.path] if self.new else [])


class FolderWrites:
    """Writes of a folder."""

    def __init__(self, folder: Folder, notes: Notes, journal: Journal) -> None:
        self._folder, self._notes, self._journal = folder, notes, journal

    def read_rows(self, keys: Iterable[str]) -> list[SourceRow]:
        """Return the memories with these keys, as their files are now."""
        wanted = set(keys)
        files = sorted({key if is_whole(key) else key.rpartition("#")[0] or key for key in wanted})
        return [row for name in files for row in self._notes.read(name) if row.key in wanted]

    def plan(self, group: GroupWrite, texts: Mapping[str, str] | None = None) -> NoteChange:
        """Return the files that a write would change.

        Args:
            texts: Texts of indexes that other writes of the same patch change before.

        Raises:
            ConflictError: A note changed or is gone since the merge was decided.
            UsageError: A note cannot be moved, or the new one cannot be made.
        """
        rows = {row.key: row for row in self.read_rows(group.stamps)}
        check_stamps(group, {key: row.stamp for key, row in rows.items() if row.problem is None})
        hidden = [row for key, row in sorted(rows.items()) if key != group.keep]
        fixed = [row.key for row in hidden if not is_whole(row.key)]
        if fixed:
            raise UsageError(f"{fixed[0]} is a part of a file, and parts are not moved")
        new = None if group.keep is not None else self._make_note(rows.values(), group.text or "")
        successor = new.path if new is not None else group.keep or ""
        target = successor if is_whole(successor) else successor.rpartition("#")[0]
        gone = {row.key for row in hidden}
        indexes = {}
        for index in self.list_indexes(gone):
            before = (texts or {}).get(index) or self._read_text(index)
            after = before if before is None else relink(before, index, gone, target)
            if before is not None and after is not None and after != before:
                indexes[index] = (before, after)
        return NoteChange(hidden, new, indexes)

    def _make_note(self, rows: Iterable[SourceRow], text: str) -> NewNote:
        """Return a new note: the front matter of the oldest one, and the united text without the title in that."""
        oldest = min((row for row in rows if is_whole(row.key)), key=lambda row: (row.created or "", row.key))
        whole = (self._read_text(oldest.key) or "").replace("\r\n", "\n").rstrip()
        if not whole.endswith(oldest.text):
            raise UsageError(f"no note can be made like {oldest.key}: its text does not end the file")
        path = PurePosixPath(oldest.key)
        name, number = path.with_stem(f"{path.stem}-merged"), 1
        while self._folder.find(str(name)) is not None:
            number += 1
            name = path.with_stem(f"{path.stem}-merged-{number}")
        head = whole[: len(whole) - len(oldest.text)]
        # A note of Claude Code repeats its file's name.
        head = re.sub(rf"(?m)^name: {re.escape(path.stem)}$", f"name: {name.stem}", head)
        title = str(oldest.fields.get("goal", "")).strip()
        text = "\n".join(line for line in text.strip().split("\n") if line.strip() != title).strip()
        return NewNote(str(name), f"{head}{text}\n".encode(), text)

    def list_indexes(self, paths: Iterable[str]) -> list[str]:
        """Return the indexes in the folders of ``paths`` and above them."""
        folders = {folder for path in paths for folder in PurePosixPath(path).parents}
        names = sorted(str(folder / INDEX) for folder in folders)
        return [name for name in names if self._folder.find(name) is not None]

    def _read_text(self, path: str) -> str | None:
        """Return the text of a file; None if it is no UTF-8."""
        try:
            return self._folder.read(path).decode()
        except UnicodeDecodeError:
            return None

    def write(self, source: str, group: GroupWrite, change: NoteChange, *, committed: Sequence[str]) -> Receipt:
        """Do what was planned.

        Args:
            committed: Files that will be committed to git.

        Raises:
            ConflictError: A file changed meanwhile; the transaction has to be rolled back.
            UsageError: The new note would not be read as one memory with this text.
        """
        successor = group.keep if change.new is None else change.new.path
        assert successor is not None
        hidden = [row.key for row in change.hidden]
        indexes: list[dict[str, Any]] = []
        for path, (before, after) in change.indexes.items():
            status = self._folder.find(path)
            if status is None or self._read_text(path) != before:
                raise ConflictError(f"{path} changed while it was read: try again", (path,))
            indexes.append(
                {"path": path, "before": before, "after": after}
                | {"mode": status.st_mode & 0o7777, "mtime_ns": status.st_mtime_ns}
            )
        for row in change.hidden:
            self._journal.move(row.key, _hidden_path(group.write_id, row.key))
            if self._digest(_hidden_path(group.write_id, row.key)) != row.stamp:
                raise ConflictError(f"{row.key} changed while it was read: try again", (row.key,))
        if change.new is not None:
            self._add(change.new)
        for index in indexes:
            self._journal.replace(index["path"], index["after"].encode())
        receipt = {
            "successor": successor,
            "inserted": change.new is not None,
            "hidden": hidden,
            "links": len(indexes),
        }
        record = {
            "source": source,
            "group_id": group.group_id,
            "number": self._next_number(),
            "undone": False,
            "committed": list(committed),
            "receipt": receipt,
            "stamps": {row.key: row.stamp for row in change.hidden},
            "new": sha256(change.new.data).hexdigest() if change.new is not None else None,
            "indexes": indexes,
        }
        self._journal.create(_record_path(group.write_id), _to_json(record))
        return Receipt(group.write_id, successor, change.new is not None, hidden, len(indexes))

    def _add(self, note: NewNote) -> None:
        self._journal.create(note.path, note.data, mode=0o644)
        rows = self._notes.read(note.path)
        if [(row.key, row.text) for row in rows] != [(note.path, note.text)]:
            raise UsageError(f"the new note {note.path} would not be read as one memory with the united text")

    def _digest(self, path: str) -> str:
        return sha256(self._folder.read(path)).hexdigest()

    def list_records(self) -> list[tuple[UUID, dict[str, Any]]]:
        """Return the records of all writes, newest first."""
        names = self._folder.list(_WRITES)
        found = [(UUID(name.removesuffix(".json")), self.load(UUID(name.removesuffix(".json")))) for name in names]
        return sorted(((id_, each) for id_, each in found if each), key=lambda item: -item[1]["number"])

    def load(self, write_id: UUID) -> dict[str, Any] | None:
        """Return the record of a write; None if there is none."""
        if self._folder.find(_record_path(write_id)) is None:
            return None
        record: dict[str, Any] = json.loads(self._folder.read(_record_path(write_id)))
        return record

    def has_image(self, write_id: UUID, path: str) -> bool:
        """Return True if the image of a hidden note of a write is there."""
        return self._folder.find(_hidden_path(write_id, path)) is not None

    def undo(self, write_id: UUID, record: Mapping[str, Any]) -> list[Conflict]:
        """Put back what a write changed. Return what stands in the way; then nothing was changed."""
        conflicts = self._find_conflicts(write_id, record)
        if conflicts:
            return conflicts
        receipt = record["receipt"]
        if receipt["inserted"]:
            self._journal.remove(receipt["successor"])
        for path in receipt["hidden"]:
            self._journal.move(_hidden_path(write_id, path), path)
        for index in record["indexes"]:
            self._restore_index(index)
        self._journal.replace(_record_path(write_id), _to_json({**record, "undone": True, "indexes": []}))
        for path in receipt["hidden"]:
            self._folder.remove_empty(str(PurePosixPath(_hidden_path(write_id, path)).parent))
        return []

    def set_apart(self, write_id: UUID, apart: UUID, keys: Sequence[str]) -> None:
        """Make a new write of the hidden notes ``keys`` of a write. It has no successor."""
        record = self.load(write_id)
        assert record is not None
        receipt, chosen = record["receipt"], set(keys)
        for path in sorted(chosen):
            self._journal.move(_hidden_path(write_id, path), _hidden_path(apart, path))
        own = {"successor": None, "inserted": False, "hidden": sorted(chosen), "links": 0}
        left = {**receipt, "hidden": [path for path in receipt["hidden"] if path not in chosen]}
        new = {**record, "receipt": own, "number": self._next_number(), "new": None, "indexes": []}
        old = {**record, "receipt": left}
        for each in (new, old):
            hidden = set(each["receipt"]["hidden"])
            each["stamps"] = {path: stamp for path, stamp in record["stamps"].items() if path in hidden}
            gone = set(receipt["hidden"]) - hidden
            each["committed"] = [path for path in record["committed"] if path not in gone]
        self._journal.create(_record_path(apart), _to_json(new))
        self._journal.replace(_record_path(write_id), _to_json(old))

    def _next_number(self) -> int:
        return 1 + max((each["number"] for _, each in self.list_records()), default=0)

    def _find_conflicts(self, write_id: UUID, record: Mapping[str, Any]) -> list[Conflict]:
        receipt, place = record["receipt"], str(self._folder.root)
        conflicts = []
        for path in receipt["hidden"]:
            image = _hidden_path(write_id, path)
            if self._folder.find(path) is not None:
                conflicts.append(Conflict(place, path, "a hidden note was written again", is_taken=True))
            elif self._folder.find(image) is None or self._digest(image) != record["stamps"][path]:
                conflicts.append(Conflict(place, path, "the image of a hidden note was changed or is gone"))
        successor = receipt["successor"]
        if successor is None:
            return conflicts
        file = successor if is_whole(successor) else successor.rpartition("#")[0]
        if self._folder.find(file) is None:
            reason = "the new note is gone" if receipt["inserted"] else "the kept note was deleted"
            conflicts.append(Conflict(place, successor, reason))
        elif receipt["inserted"] and self._digest(successor) != record["new"]:
            conflicts.append(Conflict(place, successor, "the new note was changed"))
        return conflicts

    def _restore_index(self, index: Mapping[str, Any]) -> None:
        """Put an index back: as it was, or, if it was changed since, the lines that were changed here."""
        path = index["path"]
        present = self._read_text(path) if self._folder.find(path) is not None else None
        if present is None:  # Somebody removed it, with all that it linked, or it is no text any more.
            return
        if present == index["after"]:
            self._journal.replace(path, index["before"].encode(), mode=index["mode"], mtime_ns=index["mtime_ns"])
        else:
            self._journal.replace(path, merge_lines(present, index["after"], index["before"]).encode())

    def erase(self, keys: Sequence[str]) -> int:
        """Remove notes, links to them and records of them; return the number of notes."""
        present = [key for key in keys if self._folder.find(key) is not None]
        indexes = self.list_indexes(keys)
        for path in present:
            self._journal.remove(path)
        for index in indexes:
            text = self._read_text(index)
            if text is not None and find_links(text, index, keys):
                self._journal.replace(index, relink(text, index, keys, None).encode())
        for write_id, record in self.list_records():
            receipt = record["receipt"]
            if {*receipt["hidden"], receipt["successor"]} & set(keys):
                self._journal.remove(_record_path(write_id))
                for path in receipt["hidden"]:
                    if self._folder.find(_hidden_path(write_id, path)) is not None:
                        self._journal.remove(_hidden_path(write_id, path))
                continue
            for index in record["indexes"]:
                index |= {side: relink(index[side], index["path"], keys, None) for side in ("before", "after")}
            if record["indexes"]:
                self._journal.replace(_record_path(write_id), _to_json(record))
        return len(present)


def _record_path(write_id: UUID) -> str:
    return f"{_WRITES}/{write_id}.json"


def _hidden_path(write_id: UUID, path: str) -> str:
    return f"{SIDECAR}/files/{write_id}/{path}.hidden"


def _to_json(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, indent=1).encode()
