"""`serve` as a process: it answers, and ends on SIGTERM."""

from __future__ import annotations

import signal
import socket
from urllib.request import urlopen

import pytest

from consolidation_pipeline.settings import Settings
from consolidation_pipeline_tests.cli.conftest import Cli, serve_process


@pytest.mark.slow
def test_server_runs_until_terminated(settings: Settings) -> None:
    del settings  # sets the database in the environment of the process
    with serve_process() as (process, port):
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(4)]
        with urlopen(f"http://127.0.0.1:{port}/health/ready") as answer:  # it listens once it says so
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 0, rest
    assert lines == [
        f"listening on http://127.0.0.1:{port} (Ctrl-C stops it)\n",
        f"http://127.0.0.1:{port}/docs for programs\n",
        f"http://127.0.0.1:{port}/review for people\n",
        "there is no key yet: consolidation keys create --role admin\n",
    ]
    assert "method=GET path=/health/ready status=200" in rest


def test_used_port_is_one_sentence_with_exit_code_1(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        answer = cli("serve", "--port", port)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err == (
        f"error: 127.0.0.1:{port} cannot be listened on: another program uses it; stop that program, or choose a port "
        "with --port\n"
    )


def test_foreign_address_is_refused_in_words(cli: Cli) -> None:
    answer = cli("serve", "--host", "192.0.2.1")
    assert (answer.code, "this machine has no such address; choose one with --host" in answer.err) == (1, True)


def test_serve_without_keys_requires_loopback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_API_AUTH", "off")
    refused = cli("serve", "--host", "0.0.0.0")
    assert refused.code == 2
    assert "CONSOLIDATION_API_AUTH=off needs a loopback host such as 127.0.0.1, not 0.0.0.0" in refused.err
