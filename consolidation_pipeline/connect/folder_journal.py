"""Journal of a folder's transaction: every step is written down before it is done, so that it can be taken back.

The sidecar is the folder ``.consolidated``. Steps and what they need are in ``tx`` while a transaction is open. Its
commit is one rename of ``tx``; if that did not happen, the next transaction takes back the steps.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from consolidation_pipeline.connect.folder_files import Folder
from consolidation_pipeline.errors import ConflictError, UsageError

SIDECAR = ".consolidated"
# Seconds that another process is waited for.
_LOCK_SECONDS = 10.0
_TX, _DONE = f"{SIDECAR}/tx", f"{SIDECAR}/done"
_STEPS = f"{_TX}/steps"


class Journal:
    """Steps of the transaction that is open in a folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._count = 0
        self.is_open = False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the folder's lock, take back what was cut off, and do all steps or none. Inside of one: part of it."""
        if self.is_open:
            yield
            return
        with self._folder.open_lock(f"{SIDECAR}/lock") as descriptor:
            self._wait(descriptor)
            self._recover()
            self._count, self.is_open = 0, True
            try:
                yield
            except BaseException:
                self._recover()
                raise
            else:
                self._end()
            finally:
                self.is_open = False

    def move(self, path: str, to: str) -> None:
        """Give a file another path."""
        self._note({"move": path, "to": to})
        self._folder.move(path, to)

    def create(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """Make a new file."""
        staged = self._stage(data, mode)
        self.move(staged, path)

    def replace(self, path: str, data: bytes, *, mode: int | None = None, mtime_ns: int | None = None) -> None:
        """Give a file other content at once. ``mode`` and ``mtime_ns``: None = the file's mode, the time now."""
        status = self._folder.find(path)
        if status is None:
            raise ConflictError(f"{path} is gone", (path,))
        old = self._stage(self._folder.read(path), status.st_mode & 0o7777, status.st_mtime_ns)
        new = self._stage(data, status.st_mode & 0o7777 if mode is None else mode, mtime_ns)
        self._note({"replace": path, "old": old, "sha256": sha256(data).hexdigest()})
        self._folder.move(new, path, replace=True)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._count += 1
        self.move(path, f"{_TX}/{self._count}")

    def _stage(self, data: bytes, mode: int, mtime_ns: int | None = None) -> str:
        self._count += 1
        staged = f"{_TX}/{self._count}"
        self._folder.write(staged, data, mode=mode, mtime_ns=mtime_ns)
        return staged

    def _note(self, step: dict[str, str]) -> None:
        if not self.is_open:
            raise UsageError("a folder is changed within a transaction only")
        self._folder.append(_STEPS, json.dumps(step))

    def _end(self) -> None:
        if self._folder.find(_TX) is not None:
            self._folder.move(_TX, _DONE)
        self._folder.remove(_DONE)

    def _recover(self) -> None:
        """Take back the steps of a transaction that was not committed, last one first."""
        folder = self._folder
        folder.remove(_DONE)
        if folder.find(_STEPS) is not None:
            # A step is done after its line is complete.
            lines = folder.read(_STEPS).decode().split("\n")[:-1]
            for step in map(json.loads, reversed(lines)):
                if "replace" in step:
                    self._take_back(step["replace"], step["old"], step["sha256"])
                elif folder.find(step["to"]) is not None and folder.find(step["move"]) is None:
                    folder.move(step["to"], step["move"])
        self._end()

    def _take_back(self, path: str, old: str, stamp: str) -> None:
        """Put the old content back, unless somebody has written another one since."""
        folder = self._folder
        if folder.find(old) and folder.find(path) and sha256(folder.read(path)).hexdigest() == stamp:
            folder.move(old, path, replace=True)

    def _wait(self, descriptor: int) -> None:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConflictError(
                        f"another process writes to {self._folder.root}: try again when it is done",
                        (os.fspath(self._folder.root),),
                    ) from None
                time.sleep(0.05)
