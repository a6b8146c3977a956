"""Runs in processes of their own that may kill themselves, and know the provider by its address alone.

Such a process is forked from one that has everything imported that a run needs: that takes longer than the run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from consolidation_pipeline.llm import retrying
from consolidation_pipeline.llm.litellm_loading import load_litellm
from consolidation_pipeline.service import asking
from consolidation_pipeline.service.runs import PHASES, open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.engine import connect_engine
from consolidation_pipeline_tests.service.dying import _die_at
from consolidation_pipeline_tests.service.running import SLUG, Pipeline, run_phases

# Everything that asks a model.
ASKING = PHASES[: PHASES.index("principles") + 1]
# Small enough that three groups are asked about in several batches.
ASKING_BATCH = 2


@dataclass(frozen=True)
class Nursery:
    """The process from which others are forked."""

    process: subprocess.Popen[str]

    def run(self, pipeline: Pipeline, commit: int, when: str) -> bool:
        """``run_until`` in a process of its own; whether it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        url = pipeline.engine.url.render_as_string(hide_password=False)
        self.process.stdin.write(json.dumps([url, commit, when]) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        assert code in (0, -signal.SIGKILL)
        return code != 0


@contextmanager
def open_nursery() -> Iterator[Nursery]:
    """A nursery whose children reach the provider that this process' environment names."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()


def run_until(url: str, commit: int, when: str) -> None:
    """Run until just before or after the ``commit``-th commit since merging began, or to the end if that is earlier."""
    engine = connect_engine(url)
    with open_run(engine, SLUG, settings=Settings(), planned=ASKING) as run:
        before = ASKING.index("merged_memories")
        run_phases(run, ASKING[:before])
        _die_at(engine, commit, when)
        run_phases(run, ASKING[before:])


def _run_forked(arguments: list[Any]) -> int:
    child = os.fork()
    if child == 0:
        run_until(*arguments)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _main() -> None:
    load_litellm()
    retrying._wait = lambda *_: 0.0
    asking.BATCH = ASKING_BATCH
    for line in sys.stdin:
        print(_run_forked(json.loads(line)), flush=True)


if __name__ == "__main__":
    _main()
