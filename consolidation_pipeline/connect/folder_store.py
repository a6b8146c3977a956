"""A folder of notes as a store that is open."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from consolidation_pipeline.connect.folder_config import FOLDER, is_whole
from consolidation_pipeline.connect.folder_files import Folder
from consolidation_pipeline.connect.folder_git import WorkTree
from consolidation_pipeline.connect.folder_journal import SIDECAR, Journal
from consolidation_pipeline.connect.folder_links import find_links
from consolidation_pipeline.connect.folder_patch import FileChange, format_patch
from consolidation_pipeline.connect.folder_writes import FolderWrites, Notes
from consolidation_pipeline.connect.store import (
    MIRROR_ONLY,
    Changes,
    Conflict,
    GroupWrite,
    Receipt,
    Recognition,
    Rights,
    SourceRow,
    StoreConfig,
)
from consolidation_pipeline.errors import ConflictError, StoreError, UsageError

VERSION = 1
_SOURCES = f"{SIDECAR}/sources.json"
_UNCOMMITTED = f"{SIDECAR}/uncommitted"
# Subject of the commit of a command that wrote.
_CONSOLIDATE = "Consolidate notes"
_SHOWN = 5


class FolderStore:
    """A ``MemoryStore`` of files.

    Args:
        notes: Reader of its notes.
    """

    has_vectors = False

    def __init__(self, folder: Folder, notes: Notes) -> None:
        self._folder, self._notes = folder, notes
        self._journal = Journal(folder)
        self._writes = FolderWrites(folder, notes, self._journal)
        self._git = WorkTree(folder.root)

    def probe(self) -> Recognition:
        """Examine the folder. Raise UsageError if it holds no memories."""
        rows = list(self._iter_all())
        memories = [row for row in rows if row.problem is None]
        problems = [f"{row.key}: {row.problem}" for row in rows if row.problem is not None]
        if not memories:
            told = f" ({problems[0]})" if problems else ""
            raise UsageError(f"{self._folder.root} holds no memories of a {self._notes.title}{told}")
        can_write = os.access(self._folder.root, os.W_OK | os.X_OK)
        parts = sum(not is_whole(row.key) for row in memories)
        warnings = [f"not read: {problem}" for problem in problems[:_SHOWN]]
        if not can_write:
            warnings.append(f"this user may not change the folder: {MIRROR_ONLY}")
        if parts:
            warnings.append(f"{parts} memories are parts of files: they may be kept in a merge, and are never moved")
        return Recognition(
            kind=FOLDER,
            table=str(self._folder.root),
            server=self._notes.title + (", in a git work tree" if self._git.prefix is not None else ""),
            memories=len(memories),
            skipped=len(problems),
            scopes=len({row.scope["metadata.folder"] for row in memories}),
            dimension=None,
            rights=Rights(read=True, write=can_write, create_schema=can_write, watch=False),
            sidecar_name=f"folder {SIDECAR}",
            warnings=warnings,
        )

    def probe_sidecar(self) -> int | None:
        """Return the version of the sidecar; None if there is none."""
        return None if self._folder.find(_SOURCES) is None else VERSION

    def explain_keyless(self) -> str | None:
        """Return None: every note has a name."""
        return None

    def explain_hidden(self) -> str | None:
        """Return None: a note that cannot be read is told by name."""
        return None

    def _iter_all(self) -> Iterator[SourceRow]:
        for name in self._notes.list_names():
            yield from self._notes.read(name)

    def find_writer(self, name: str) -> str | None:
        """Return the name of another source that writes to the folder."""
        return next((other for other in sorted(self._load_sources()) if other != name), None)

    def _load_sources(self) -> dict[str, Any]:
        if self._folder.find(_SOURCES) is None:
            return {}
        found = json.loads(self._folder.read(_SOURCES))
        if found["version"] != VERSION:
            raise UsageError(
                f"{SIDECAR} in {self._folder.root} is of version {found['version']}, this program writes {VERSION}: "
                "use the other program"
            )
        sources: dict[str, Any] = found["sources"]
        return sources

    def prepare(self, name: str, config: StoreConfig) -> None:
        """Make the sidecar with the configuration of a source."""
        with self.transaction():
            self._save_sources({**self._load_sources(), name: config.dump()})

    def _save_sources(self, sources: Mapping[str, Any]) -> None:
        if self._folder.find(_SOURCES) is not None:
            self._journal.remove(_SOURCES)
        self._journal.create(_SOURCES, json.dumps({"version": VERSION, "sources": sources}, indent=1).encode())

    def release(self, name: str, *, forget: bool) -> None:
        """With ``forget`` remove the sidecar, if nothing is left to be undone."""
        if not forget or self._folder.find(_SOURCES) is None:
            return
        with self.transaction():
            left = {other: config for other, config in self._load_sources().items() if other != name}
            self._save_sources(left)
        if not left and all(record["undone"] for _, record in self._writes.list_records()):
            self._commit()
            self._folder.remove(SIDECAR)

    @contextmanager
    def transaction(self, *, discard: bool = False) -> Iterator[None]:
        """Do all that is changed or nothing. Raise UsageError for ``discard``: files would move under their readers."""
        if discard:
            raise UsageError("a folder is not changed to try it: `source diff --patch` shows what would be changed")
        with self._tell_errors():
            if self._folder.find(f"{SIDECAR}/.gitignore") is None:
                with suppress(FileExistsError):
                    self._folder.write(f"{SIDECAR}/.gitignore", b"*\n", mode=0o644)
            with self._journal.transaction():
                yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read while nobody writes. Without a sidecar nothing is changed in the folder."""
        if self._folder.find(_SOURCES) is None:
            with self._tell_errors():
                yield
        else:
            with self.transaction():
                yield

    @contextmanager
    def _tell_errors(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise ConflictError(f"{error.filename or self._folder.root}: {error.strerror}") from error
        except OSError as error:
            raise StoreError(f"the folder {self._folder.root}: {error.strerror}: {error.filename}") from error

    def read_changes(self, ignored: Sequence[str] = ()) -> Changes:
        """Return that all files are to be compared."""
        del ignored
        return Changes()

    def drop_changes(self, changes: Changes) -> None:
        """Do nothing: nothing tells of changes."""

    def iter_stamps(self) -> Iterator[tuple[str, str]]:
        """Yield key and stamp of every memory."""
        return ((row.key, row.stamp) for row in self.iter_rows())

    def iter_rows(self, keys: Sequence[str] | None = None, *, vectors: bool = False) -> Iterator[SourceRow]:
        """Yield the memories with ``keys``, or all.

        Raises:
            StoreError: There is none at all, as in a folder that is not mounted.
        """
        del vectors
        if keys is not None:
            yield from self._writes.read_rows(keys)
            return
        rows = list(self._iter_all())
        if not rows:
            raise StoreError(f"{self._folder.root} holds no notes: is it mounted? Nothing was taken for deleted")
        yield from rows

    def find_shared_keys(self, keys: Sequence[str] | None = None) -> dict[str, int]:
        """Return nothing: a path is of one file."""
        del keys
        return {}

    def sample_rows(self, count: int) -> list[SourceRow]:
        """Return nothing: no note has a vector."""
        del count
        return []

    def lock(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the stamps of the memories with ``keys``; what changes them meanwhile is found when they are moved."""
        return {row.key: row.stamp for row in self._writes.read_rows(keys)}

    def count_scopes(self) -> list[tuple[dict[str, str], int]]:
        """Return scope and number of memories of every scope."""
        counts = Counter(row.scope["metadata.folder"] for row in self._iter_all() if row.problem is None)
        return [({"metadata.folder": folder}, count) for folder, count in counts.most_common()]

    def find_places(self, rows: Sequence[SourceRow], keys: set[str], limit: int) -> dict[str, int | None]:
        """Return for each row where the loader of the notes finds the best of ``keys``.

        0 = by a link of an index, or in a file that it reads whole; 1 = in the folder; None = not at all.
        """
        del limit
        present = {row.key for row in self._writes.read_rows(keys)}
        indexes = {index: self._folder.read(index) for index in self._writes.list_indexes(keys)}
        linked = {key for index, text in indexes.items() for key in find_links(text.decode(), index, present)}
        at_once = any(key in linked or not is_whole(key) for key in present)
        place = 0 if at_once else 1 if present else None
        return {row.key: place for row in rows}

    def write_group(self, source: str, group: GroupWrite) -> Receipt:
        """Write a group in the transaction that is open."""
        change = self._writes.plan(group)
        new = [] if change.new is None else [change.new.path]
        return self._writes.write(source, group, change, committed=self._pend(change.paths, new=new))

    def make_patch(self, groups: Sequence[GroupWrite]) -> bytes:
        """Return what the writes of these groups would change as a patch. Groups that would be refused are left out."""
        texts: dict[str, str] = {}
        changes: dict[str, FileChange] = {}
        for group in groups:
            try:
                change = self._writes.plan(group, texts)
            except (ConflictError, UsageError):
                continue
            for row in change.hidden:
                status = self._folder.find(row.key)
                changes[row.key] = FileChange(self._folder.read(row.key), None, status.st_mode if status else 0o644)
            if change.new is not None:
                changes[change.new.path] = FileChange(None, change.new.data)
            for path, (before, after) in change.indexes.items():
                texts[path] = after
                first = changes[path].before if path in changes else before.encode()
                changes[path] = FileChange(first, after.encode())
        return format_patch(changes, self._git.prefix or "")

    def read_receipts(self, write_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return what committed writes did; a transaction that was cut off is taken back before."""
        if self._folder.find(SIDECAR) is None:
            return {}
        with self.transaction():
            found = {write_id: self._writes.load(write_id) for write_id in write_ids}
        return {id_: {**each["receipt"], "undone": each["undone"]} for id_, each in found.items() if each is not None}

    def find_undone(self, write_ids: Sequence[UUID]) -> list[UUID]:
        """Return those of committed writes that are undone."""
        return [id_ for id_, receipt in self.read_receipts(write_ids).items() if receipt["undone"]]

    def find_images(self, write_ids: Sequence[UUID]) -> set[str]:
        """Return the paths of the hidden notes of committed writes whose images are there."""
        hidden = {id_: receipt["hidden"] for id_, receipt in self.read_receipts(write_ids).items()}
        return {path for id_, paths in hidden.items() for path in paths if self._writes.has_image(id_, path)}

    def undo_write(self, write_id: UUID) -> list[Conflict]:
        """Put back what one write changed, in the transaction that is open."""
        record = self._writes.load(write_id)
        if record is None or record["undone"]:
            return []
        receipt = record["receipt"]
        added = [receipt["successor"]] if receipt["inserted"] else []
        paths = [*added, *(index["path"] for index in record["indexes"])]
        self._pend(paths, restored=record["committed"], subject="Undo the consolidation of notes")
        return self._writes.undo(write_id, record)

    def set_apart(self, write_id: UUID, apart: UUID, keys: Sequence[str]) -> None:
        """Make a new write of the hidden notes ``keys`` of a write, in the transaction that is open."""
        self._writes.set_apart(write_id, apart, keys)

    def list_open(self, name: str = "") -> list[UUID]:
        """Return the writes that are not undone, of any source, newest first."""
        del name
        if self.probe_sidecar() is None:
            return []
        with self.transaction():
            return [write_id for write_id, record in self._writes.list_records() if not record["undone"]]

    def undo_open(self, name: str = "") -> dict[UUID, list[Conflict]]:
        """Undo every write that is open, newest first; return the conflicts by write."""
        conflicts = {}
        for write_id in self.list_open(name):
            with self.transaction():
                record = self._writes.load(write_id)
                found = self.undo_write(write_id)
            if found:
                hidden = tuple(record["receipt"]["hidden"]) if record is not None else ()
                conflicts[write_id] = [replace(each, hidden=hidden) for each in found]
        return conflicts

    def erase_rows(self, keys: Sequence[str]) -> int:
        """Remove notes, links to them and their images, in the transaction that is open."""
        self._pend([*keys, *self._writes.list_indexes(keys)], subject="Erase notes")
        return self._writes.erase(keys)

    def _pend(
        self,
        paths: Sequence[str],
        *,
        new: Sequence[str] = (),
        restored: Sequence[str] = (),
        subject: str = _CONSOLIDATE,
    ) -> list[str]:
        """Note the files that git is to commit when the store is closed, and return them.

        Args:
            paths: Of these, the tracked ones without a change of somebody else.
            new: Files to be made, if one of ``paths`` is committed.
            restored: Files whose removal was committed; those that are back already are somebody else's.
            subject: Of the commit, if it has no other changes.
        """
        clean = self._git.select_clean(paths)
        pending = [
            *clean,
            *(new if clean else []),
            *(path for path in restored if self._folder.find(path) is None),
        ]
        if pending:
            self._folder.append(_UNCOMMITTED, f"{json.dumps(subject)}\n{json.dumps(pending)}")
        return pending

    def _commit(self) -> None:
        if self._folder.find(_UNCOMMITTED) is None:
            return
        noted = [json.loads(line) for line in self._folder.read(_UNCOMMITTED).decode().splitlines()]
        subjects = {each for each in noted if isinstance(each, str)}
        paths = sorted({path for each in noted if isinstance(each, list) for path in each})
        if self._git.commit(paths, subjects.pop() if len(subjects) == 1 else _CONSOLIDATE):
            self._folder.remove(_UNCOMMITTED)

    def close(self) -> None:
        """Commit to git what was written, and close the folder."""
        with suppress(OSError):
            self._commit()
        self._folder.close()


@contextmanager
def open_folder(root: Path, read_notes: Callable[[Folder], Notes]) -> Iterator[FolderStore]:
    """Open a folder of notes.

    Args:
        read_notes: Function that returns the reader of its notes.

    Raises:
        StoreError: There is no such folder, or this user may not read it.
    """
    folder = Folder(root)
    store = FolderStore(folder, read_notes(folder))
    try:
        yield store
    finally:
        store.close()
