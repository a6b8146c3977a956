"""Account of the embedded server under root: no other user of the machine gets in, and no private folder is opened."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database import server_account
from consolidation_pipeline.store.database.server_account import (
    ServerAccount,
    find_account,
    place_cluster,
    place_socket,
)
from consolidation_pipeline_tests.store.database.test_embedded_server import folder as folder

pytestmark = pytest.mark.database
under_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root")

NOBODY = 65534
# Prints the server's process id, then runs until its standard input ends.
PROGRAM = """
import sys
from pathlib import Path
from consolidation_pipeline.store.database.embedded_server import start_server
server = start_server(Path(sys.argv[1]))
print(server.folder, server.socket_dir, sep="\\n", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shared_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that stands for ``/var/lib/consolidation-pipeline``."""
    shared = folder / "shared"
    monkeypatch.setattr(server_account, "_SHARED_FOLDER", shared)
    return shared


@pytest.fixture
def running(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Cluster and socket folder of a running server whose starter has a key in its environment."""
    data_dir = folder / "data"
    data_dir.mkdir()
    environment = {**os.environ, "OPENAI_API_KEY": "sk-secret"}
    command = [sys.executable, "-c", PROGRAM, str(data_dir)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        yield Path(process.stdout.readline().strip()), Path(process.stdout.readline().strip())


def connect_as_nobody(socket_dir: Path) -> str:
    """Connect as superuser from a process of user ``nobody``; return the error, or nothing."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with psycopg.connect(f"postgresql://postgres:@/postgres?host={socket_dir}"):
                os.write(write, b"")
        except BaseException as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as stream:
        return stream.read()


@pytest.mark.slow
@under_root
def test_other_users_cannot_connect(running: tuple[Path, Path]) -> None:
    cluster, socket_dir = running
    assert "Permission denied" in connect_as_nobody(socket_dir)
    cluster.chmod(0o711)  # The server itself refuses, too.
    assert "Peer authentication failed" in connect_as_nobody(socket_dir)


@pytest.mark.slow
@under_root
def test_server_has_no_rights_and_no_keys_of_root(running: tuple[Path, Path]) -> None:
    pid = (running[0] / "postmaster.pid").read_text().splitlines()[0]
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    assert "0" not in status["Uid"] + status["Gid"]
    assert status["Groups"] == []
    assert b"sk-secret" not in Path(f"/proc/{pid}/environ").read_bytes()


@under_root
def test_closed_folders_stay_closed(folder: Path, shared_folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    data_dir = private / "data"
    data_dir.mkdir()
    account = find_account()
    placed = place_cluster(data_dir / "postgres", account)
    assert placed.parent == shared_folder
    assert place_cluster(data_dir / "postgres", account) == placed
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert account.may_enter(placed.parent)


@under_root
def test_folder_closed_after_start_is_named(folder: Path) -> None:
    cluster = folder / "private" / "data" / "postgres"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("18\n")
    cluster.parent.parent.chmod(0o700)
    with pytest.raises(StoreError, match="pgserver may not enter a folder above it"):
        place_cluster(cluster, find_account())


@under_root
@pytest.mark.usefixtures("shared_folder")
def test_cluster_stays_elsewhere_once_placed(folder: Path) -> None:
    private = folder / "private"
    cluster = private / "data" / "postgres"
    cluster.parent.mkdir(parents=True)
    private.chmod(0o700)
    placed = place_cluster(cluster, find_account())
    placed.mkdir()
    (placed / "PG_VERSION").write_text("18\n")
    private.chmod(0o755)
    assert place_cluster(cluster, find_account()) == placed


@under_root
def test_own_data_folder_is_opened_for_server_only(folder: Path) -> None:
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o700)
    account = find_account()
    assert place_cluster(data_dir / "postgres", account) == data_dir / "postgres"
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o710
    assert data_dir.stat().st_gid == account.gid


@pytest.mark.slow
@under_root
def test_programs_in_closed_folder_are_copied(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = find_account()
    monkeypatch.setattr(ServerAccount, "may_enter", lambda *_: False)
    binaries = server_account.find_binaries(account)
    assert binaries.is_relative_to(shared_folder)
    assert server_account.find_binaries(account) == binaries
    monkeypatch.undo()
    assert account.may_enter(binaries)
    done = subprocess.run([binaries / "postgres", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.startswith("postgres (PostgreSQL) 18.")


def test_socket_of_long_path_is_in_closed_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    account = find_account()
    placed = place_socket(folder / ("long" * 30), account)
    try:
        assert (stat.S_IMODE(placed.stat().st_mode), placed.stat().st_uid) == (0o700, account.uid)
        assert place_socket(folder / ("long" * 30), account) == placed
        placed.chmod(0o755)
        with pytest.raises(StoreError, match="must be a folder that only"):
            place_socket(folder / ("long" * 30), account)
    finally:
        shutil.rmtree(placed)


def test_files_are_not_written_through_links(folder: Path) -> None:
    (folder / "outside").write_text("kept")
    (folder / "pg_hba.conf").symlink_to(folder / "outside")
    with pytest.raises(OSError, match=r"pg_hba\.conf"):
        find_account().write(folder / "pg_hba.conf", "local all all trust\n")
    assert (folder / "outside").read_text() == "kept"
