"""Files of a connected folder. No path leads out of it: every part is opened without following links."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from consolidation_pipeline.errors import ConflictError, StoreError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """An open folder. Paths are relative to it, with slashes.

    Raises:
        StoreError: There is no such folder, or this user may not read it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            self._fd = os.open(root, _DIRECTORY)
        except OSError as error:
            raise StoreError(f"the folder {root} cannot be opened: {error.strerror}") from error

    def close(self) -> None:
        """Close the folder."""
        os.close(self._fd)

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder that holds ``path``; yield its descriptor and the name in it."""
        *folders, name = PurePosixPath(path).parts
        if path.startswith("/") or ".." in (*folders, name):
            raise ConflictError(f"{path} leads out of the folder {self.root}", (path,))
        descriptor = os.dup(self._fd)
        try:
            for each in folders:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(each, 0o700, dir_fd=descriptor)
                inner = os.open(each, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor, name
        finally:
            os.close(descriptor)

    def find(self, path: str) -> os.stat_result | None:
        """Return the status of a regular file or folder; None if there is none at ``path``, or a link is in the way."""
        try:
            with self._parent(path) as (parent, name):
                found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, ConflictError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise
        return found if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None

    def list(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none if it is not there."""
        try:
            with self._parent(f"{path}/any") as (parent, _):
                return sorted(os.listdir(parent))
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes:
        """Return the content of a regular file. Raise OSError if there is none, or it is a link."""
        with self._parent(path) as (parent, name):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
            with os.fdopen(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(0, "no regular file", path)
                return stream.read()

    def write(self, path: str, data: bytes, *, mode: int = 0o600, mtime_ns: int | None = None) -> None:
        """Write a file that does not exist yet; its folders are made."""
        with self._parent(path, create=True) as (parent, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=parent), "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fchmod(stream.fileno(), mode)
                if mtime_ns is not None:
                    os.utime(stream.fileno(), ns=(mtime_ns, mtime_ns))
                os.fsync(stream.fileno())

    def append(self, path: str, line: str) -> None:
        """Append a line to a file, on disk when this returns."""
        with self._parent(path, create=True) as (parent, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=parent), "w", encoding="utf-8") as stream:
                stream.write(line + "\n")
                stream.flush()
                os.fsync(stream.fileno())

    def move(self, path: str, to: str, *, replace: bool = False) -> None:
        """Give a file or folder another path; its bytes, mode and times stay.

        Raises:
            FileExistsError: Something is at ``to``, and ``replace`` is False.
        """
        with self._parent(path) as (parent, name), self._parent(to, create=True) as (target, new):
            if not replace and os.access(new, os.F_OK, dir_fd=target, follow_symlinks=False):
                raise FileExistsError(17, "there is a file already", to)
            os.rename(name, new, src_dir_fd=parent, dst_dir_fd=target)
            os.fsync(target)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""
        with suppress(FileNotFoundError), self._parent(path) as (parent, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)

    def remove_empty(self, path: str) -> None:
        """Remove a folder and those above it as long as they are empty."""
        for each in (path, *(str(above) for above in PurePosixPath(path).parents)):
            try:
                with self._parent(each) as (parent, name):
                    os.rmdir(name, dir_fd=parent)
            except (OSError, ValueError):
                return

    @contextmanager
    def open_lock(self, path: str) -> Iterator[int]:
        """Open a file to lock it; it is made if it is missing."""
        with self._parent(path, create=True) as (parent, name):
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
