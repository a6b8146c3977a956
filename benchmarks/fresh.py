"""What every benchmark starts with: a folder and an embedded server of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def start_fresh() -> Path:
    """Have this process work in a folder that goes when it ends; the server there starts when it is first asked."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # runs after the embedded server has stopped
    os.environ.update(CONSOLIDATION_DATA_DIR=folder)
    os.environ.pop("CONSOLIDATION_DATABASE_URL", None)
    return Path(folder)
