"""Processes for tests that kill them; they know the provider only by its address.

They are forked from a process that has imported all modules, because imports take longer than their work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from consolidation_pipeline.llm.litellm_import import load_litellm


@dataclass(frozen=True)
class ForkServer:
    """Process from which others are forked."""

    process: subprocess.Popen[str]

    def wait_until_ready(self) -> None:
        """Wait until everything is imported."""
        self._ask("ready")

    def spawn(self, target: Callable[..., None], *arguments: Any) -> int:
        """Call ``target`` with JSON arguments in a new process; return its pid."""
        return int(self._ask("spawn", target.__module__, target.__name__, arguments))

    def wait(self, pid: int, seconds: float = 300.0) -> int:
        """Return the exit status of a process: 0, or minus the signal that killed it. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while (code := self._ask("poll", pid)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {pid} did not end within {seconds:g} seconds")
            time.sleep(0.01)
        return int(code)

    def _ask(self, *order: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def start_fork_server(*modules: str) -> Iterator[ForkServer]:
    """Start a fork server that imports ``modules``; its children use the provider of this environment."""
    command = [sys.executable, "-m", __name__, *modules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield ForkServer(process)
        assert process.stdin is not None
        process.stdin.close()


def _spawn(module: str, name: str, arguments: list[Any]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints must not mix with answers
            getattr(import_module(module), name)(*arguments)
            code = 0
        finally:
            os._exit(code)
    return child


def _poll_exit_code(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


_ORDERS: dict[str, Callable[..., int | None]] = {"ready": lambda: None, "spawn": _spawn, "poll": _poll_exit_code}


def _main() -> None:
    load_litellm()
    for module in sys.argv[1:]:
        import_module(module)
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        print(json.dumps(_ORDERS[order](*arguments)), flush=True)


if __name__ == "__main__":
    _main()
