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
from types import SimpleNamespace

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.embedded_server import _list_settings, start_server

pytestmark = pytest.mark.database

# Program that opens the server, prints its URL, and runs until its standard input ends.
PROGRAM = """
import sys
from pathlib import Path
from consolidation_pipeline.store.database.embedded_server import server_url
print(server_url(Path(sys.argv[1]), "memories"), flush=True)
sys.stdin.read()
"""
THREADED_PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from consolidation_pipeline.store.database.embedded_server import server_url
with ThreadPoolExecutor(4) as pool:
    print(set(pool.map(lambda _: server_url(Path(sys.argv[1]), "memories"), range(4))).pop(), flush=True)
sys.stdin.read()
"""
# As PROGRAM, but the folder holds no database at first.
RETRYING_PROGRAM = (
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
    + PROGRAM
)


def _start_process(data_dir: Path, program: str = PROGRAM) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, str(data_dir)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _read_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url, process.communicate()[1]
    return url


@contextmanager
def _server_process(data_dir: Path, program: str = PROGRAM) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Process that uses the server until the block ends, then exits cleanly."""
    process = _start_process(data_dir, program)
    try:
        yield process, _read_url(process)
    finally:
        _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -9), errors


def _postmaster_pid(data_dir: Path) -> int | None:
    """Return the server's process id, or None if it was stopped."""
    file = data_dir / "postgres" / "postmaster.pid"
    return int(file.read_text().splitlines()[0]) if file.exists() else None


def _is_alive(pid: int | None) -> bool:
    # Without an init process, as in many containers, an ended process stays as a zombie.
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def _accepts_queries(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT 1").fetchone() == (1,)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Folder outside pytest's own: under root the server runs as another user, who cannot enter those."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    """Folder shared by the tests that stop the server at their end."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_two_processes_share_one_server(data_dir: Path) -> None:
    with _server_process(data_dir) as (_, first):
        server = _postmaster_pid(data_dir)
        with _server_process(data_dir) as (_, second):
            assert second == first
            assert _postmaster_pid(data_dir) == server
        assert _accepts_queries(first)
    assert _postmaster_pid(data_dir) is None
    assert not _is_alive(server)


def test_killed_process_does_not_stop_shared_server(data_dir: Path) -> None:
    with _server_process(data_dir) as (_, url):
        with _server_process(data_dir) as (other, _):
            other.kill()
        assert _accepts_queries(url)
    assert _postmaster_pid(data_dir) is None


@pytest.mark.slow
def test_last_process_stops_restarted_server(data_dir: Path) -> None:
    with _server_process(data_dir):
        crashed = psutil.Process(_postmaster_pid(data_dir))
        parts = crashed.children()
        crashed.kill()
        psutil.wait_procs([crashed, *parts], timeout=30)
        with _server_process(data_dir) as (_, url):
            assert _accepts_queries(url)
        restarted = _postmaster_pid(data_dir)
        assert restarted != crashed.pid
    assert _postmaster_pid(data_dir) is None
    assert not _is_alive(restarted)


def test_next_process_adopts_orphaned_server(data_dir: Path) -> None:
    with _server_process(data_dir) as (process, _):
        process.kill()
    orphan = _postmaster_pid(data_dir)
    assert orphan is not None
    with _server_process(data_dir) as (_, url):
        assert _postmaster_pid(data_dir) == orphan
        assert _accepts_queries(url)
    assert _postmaster_pid(data_dir) is None


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 - 1], ids=["taken by another process", "of nobody"])
@pytest.mark.parametrize("lines", [8, 3], ids=["complete", "cut off"])
def test_stale_postmaster_pid_is_ignored(data_dir: Path, pid: int, lines: int) -> None:
    cluster = data_dir / "postgres"
    if not cluster.exists():
        with _server_process(data_dir):
            pass
    lines_of_file = [str(pid), str(cluster), "1700000000", "5432", str(cluster), "", "  1234567   12", "ready   "]
    (cluster / "postmaster.pid").write_text("\n".join(lines_of_file[:lines]) + "\n")
    with _server_process(data_dir) as (_, url):
        assert _postmaster_pid(data_dir) != pid
        assert _accepts_queries(url)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "program"), [("four threads", THREADED_PROGRAM), ("my data", PROGRAM)])
def test_threads_start_server_in_folder_with_space(folder: Path, name: str, program: str) -> None:
    with _server_process(folder / name, program) as (_, url):
        assert _accepts_queries(url)
    assert _postmaster_pid(folder / name) is None


@pytest.mark.slow
def test_four_processes_start_one_server(folder: Path) -> None:
    processes = [_start_process(folder) for _ in range(4)]
    try:
        urls = {_read_url(process) for process in processes}
        assert len(urls) == 1
        assert _accepts_queries(urls.pop())
    finally:
        with ThreadPoolExecutor(4) as pool:  # all exit at the same time, too
            list(pool.map(lambda process: process.communicate(timeout=60), processes))
    assert [process.returncode for process in processes] == [0] * 4
    assert _postmaster_pid(folder) is None


@pytest.mark.slow
def test_long_data_folder_with_spaces_works(folder: Path) -> None:
    data_dir = folder / "my data & more; 100%20 ü" / ("long " * 25).strip()
    assert len(str(data_dir)) > 107
    with _server_process(data_dir) as (_, url):
        assert _accepts_queries(url)
        with _server_process(data_dir) as (_, again):
            assert again == url
    assert _postmaster_pid(data_dir) is None


def test_file_as_data_folder_is_named(folder: Path) -> None:
    (folder / "data").write_text("")
    with pytest.raises(StoreError, match=str(folder / "data")):
        start_server(folder / "data")


@pytest.mark.slow
def test_failed_start_can_be_retried(folder: Path) -> None:
    (folder / "postgres").mkdir()
    (folder / "postgres" / "PG_VERSION").write_text("18\n")  # an incomplete database
    with _server_process(folder, RETRYING_PROGRAM) as (_, url):
        assert _accepts_queries(url)
    assert _postmaster_pid(folder) is None


@pytest.mark.parametrize(
    ("machine", "buffers", "expected"), [(512, 128, 256), (4_096, 512, 2_048), (65_536, 1_024, 32_768)]
)
def test_server_memory_follows_the_machine(
    monkeypatch: pytest.MonkeyPatch, machine: int, buffers: int, expected: int
) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=machine * 1024**2))
    assert _list_settings()[1:4:2] == [f"shared_buffers={buffers}MB", f"effective_cache_size={expected}MB"]
