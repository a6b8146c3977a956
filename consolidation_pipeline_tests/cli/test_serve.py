"""`serve` as a process: it answers, and ends on SIGTERM."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import pytest

from consolidation_pipeline.settings import Settings
from consolidation_pipeline_tests.cli.conftest import Cli


@pytest.mark.slow
def test_server_runs_until_terminated(settings: Settings) -> None:
    del settings  # sets the database in the environment of the process
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = "from consolidation_pipeline.cli.app import main; main()"
    command = [sys.executable, "-c", start, "serve", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        assert _wait_until_ready(f"http://127.0.0.1:{port}/health/ready")
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert lines == [
        f"http://127.0.0.1:{port}/docs\n",
        f"http://127.0.0.1:{port}/review for people\n",
        "there is no key yet: consolidation keys create --role admin\n",
    ]
    assert "method=GET path=/health/ready status=200" in rest


def _wait_until_ready(url: str) -> bool:
    for _ in range(300):
        try:
            with urlopen(url) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(0.1)
    return False


def test_serve_without_keys_requires_loopback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_API_AUTH", "off")
    refused = cli("serve", "--host", "0.0.0.0")
    assert refused.code == 2
    assert "CONSOLIDATION_API_AUTH=off needs a loopback host such as 127.0.0.1, not 0.0.0.0" in refused.err
