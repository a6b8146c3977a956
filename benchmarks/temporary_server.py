"""Temporary folder and embedded server, used by every benchmark."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def use_temporary_server() -> Path:
    """Point this process at a new embedded server; return its folder.

    The server starts on the first connection. The folder is deleted when the process ends.
    """
    folder = tempfile.mkdtemp()
    # Registered before the server's own exit handler, so it runs after the server has stopped.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.update(CONSOLIDATION_DATA_DIR=folder)
    os.environ.pop("CONSOLIDATION_DATABASE_URL", None)
    return Path(folder)
