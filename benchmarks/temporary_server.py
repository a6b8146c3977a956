"""Temporary embedded server, and ports of processes, for the benchmarks."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path


def use_temporary_server(kept: Path | None = None) -> Path:
    """Point this process at an embedded server of its own; return its folder.

    The server starts on the first connection. It is new and its folder is deleted when the process ends, unless it is
    ``kept`` in a folder.
    """
    folder = kept.resolve() if kept else Path(tempfile.mkdtemp())
    if not kept:
        # Registered before the server's own exit handler, so it runs after the server has stopped.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.update(CONSOLIDATION_DATA_DIR=str(folder))
    os.environ.pop("CONSOLIDATION_DATABASE_URL", None)
    return folder


def find_free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_for_port(port: int, seconds: float = 120.0) -> None:
    """Wait until a process listens on the port.

    Raises:
        SystemExit: None does after ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"no process listens on port {port} after {seconds:.0f} s")
