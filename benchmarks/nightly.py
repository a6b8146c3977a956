"""Time of nightly consolidation and of daily decay over many small projects.

    python benchmarks/nightly.py [PROJECTS] [CHANGED ...]        default: 1000 10 100

First, PROJECTS of 10 to 5,000 memories (log-normal, mostly 10 to 200) are consolidated without Dagster. Then
`dagster dev` runs, and each night adds 5 memories to CHANGED projects. The tick of `nightly_consolidation` is
evaluated, its runs are queued, and the time ends when no job is pending or running. The option `schedule` makes a night
of each minute. The last measurement is a morning: the tick of `daily_decay`, which is due in every project.

CPU seconds are those of Dagster, its runs and the database. Peak memory is that of the largest process of a run.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
from pipeline import draw_notes
from rich.progress import track
from temporary_server import find_free_port, use_temporary_server, wait_for_port

MEDIAN_SIZE, SIZE_SIGMA, MIN_SIZE, MAX_SIZE = 30, 1.2, 10, 5000
NEW_MEMORIES = 5
ROOT = Path(__file__).resolve().parent.parent


def draw_size(number: int) -> int:
    """Return the number of memories of a project."""
    return int(min(MAX_SIZE, max(MIN_SIZE, random.Random(number).lognormvariate(0, SIZE_SIGMA) * MEDIAN_SIZE)))


def add_memories(engine: Any, number: int, first: int, count: int) -> None:
    """Add the notes ``first`` to ``first + count - 1`` of a project's sequence to it."""
    from consolidation_pipeline.core.memories.memories import NewMemory
    from consolidation_pipeline.store.memories.memories import append_memories
    from consolidation_pipeline.store.projects import get_project

    slug = f"project-{number:04}"
    notes = islice(draw_notes(random.Random(number)), first, first + count)
    memories = [
        NewMemory(source="benchmark", external_id=str(row), memory_type=lesson.kind, execution_summary=text)
        for row, (lesson, text) in enumerate(notes, first)
    ]
    with engine.begin() as connection:
        append_memories(connection, get_project(connection, slug).id, slug, enumerate(memories, 1))


def consolidate(number: int) -> int:
    """Create a project and run all phases in it; return its number of memories."""
    from consolidation_pipeline.service.admin.projects import create_project
    from consolidation_pipeline.service.runs.run_lifecycle import open_run
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine
    from consolidation_pipeline_tests.service.pipeline_runner import run_phases

    engine = open_engine(Settings())
    create_project(engine, slug := f"project-{number:04}", {"schedule": "* * * * *"}, settings=Settings())
    add_memories(engine, number, 0, size := draw_size(number))
    with open_run(engine, slug, settings=Settings()) as run:
        run_phases(run)
    return size


def set_synchronous_commit(engine: Any, setting: str) -> None:
    """Switch waiting of commits for the disk on or off. It is off while the projects are created, to save time."""
    from sqlalchemy import text

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"ALTER SYSTEM SET synchronous_commit = {setting}"))
        connection.execute(text("SELECT pg_reload_conf()"))


@contextmanager
def run_dagster() -> Iterator[tuple[Any, psutil.Process]]:
    """Run `dagster dev`; yield a client and its process."""
    from dagster_graphql import DagsterGraphQLClient

    port = find_free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "--port", str(port)]
    log = (Path(os.environ["DAGSTER_HOME"]) / "dagster.log").open("w")
    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_for_port(port)
        yield DagsterGraphQLClient("127.0.0.1", port_number=port), psutil.Process(process.pid)
    finally:
        # All are killed, because the process waits for its children and some do not end on request.
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            with suppress(psutil.Error):
                child.kill()
        process.wait()


class Meter:
    """CPU seconds of processes and their children since its creation, and peak memory of new children of the first."""

    def __init__(self, *roots: psutil.Process) -> None:
        self._roots, self._cpu, self._began, self.peak = roots, {}, {}, 0
        self.sample()
        self._began = dict(self._cpu)

    def sample(self) -> None:
        """Read all processes. Two samples a second miss little."""
        for root in self._roots:
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    self._cpu[process.pid, process.create_time()] = times.user + times.system
                    if (process.pid, process.create_time()) not in self._began and root is self._roots[0]:
                        self.peak = max(self.peak, process.memory_info().rss)

    @property
    def seconds(self) -> float:
        """CPU seconds since the meter was created."""
        return sum(cpu - self._began.get(process, 0.0) for process, cpu in self._cpu.items())


def count_live_jobs(engine: Any) -> int:
    """Return the number of jobs that are pending or running."""
    from consolidation_pipeline.store.jobs.jobs import list_live_jobs

    with engine.connect() as connection:
        return len(list_live_jobs(connection))


def measure(name: str, schedule: Any, engine: Any, client: Any, meter: Meter) -> None:
    """Evaluate a tick, launch its runs, wait until all jobs are done, and print a row."""
    import dagster as dg

    from consolidation_pipeline.defs.resources import ConsolidationResource

    began = time.perf_counter()
    with dg.DagsterInstance.get() as instance:
        resources = {"consolidation": ConsolidationResource()}
        requests = schedule(dg.build_schedule_context(instance=instance, resources=resources))
    requests = requests if isinstance(requests, list) else []
    ticked, jobs = time.perf_counter() - began, count_live_jobs(engine)
    for request in requests:
        client.submit_job_execution(request.job_name, run_config=request.run_config, tags=dict(request.tags))
    while count_live_jobs(engine):
        meter.sample()
        time.sleep(0.5)
    took = time.perf_counter() - began
    meter.sample()
    cost = f"{meter.seconds:.0f} | {meter.seconds / max(jobs, 1):.2f} | {meter.peak / 2**20:.0f} MB"
    print(
        f"| {name} | {jobs} | {len(requests)} | {ticked:.2f} s | {took:.0f} s | {60 * jobs / took:.0f} | {cost} |",
        flush=True,
    )


def main() -> None:
    """Create the projects, then measure nights and a morning."""
    count, *nights = [int(argument) for argument in sys.argv[1:]] or [1000]
    folder = use_temporary_server()
    shutil.copy(ROOT / "dagster.yaml", folder)
    os.environ.update(DAGSTER_HOME=str(folder))
    from consolidation_pipeline.defs.schedules import daily_decay, nightly_consolidation
    from consolidation_pipeline.launch import register_projects
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    began = time.perf_counter()
    set_synchronous_commit(engine, "off")
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        counts = pool.map(consolidate, range(count), chunksize=4)
        sizes = dict(enumerate(track(counts, "consolidating", total=count)))
    register_projects()
    set_synchronous_commit(engine, "on")
    took = time.perf_counter() - began
    print(f"{count:,} projects, {sum(sizes.values()):,} memories, the largest {max(sizes.values()):,}; {took:.0f} s\n")
    print("| tick | jobs | runs launched | tick | all done after | jobs a minute | CPU s | per job | peak |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    postmaster = int((next(folder.glob("postgres/**/postmaster.pid"))).read_text().split()[0])
    with run_dagster() as (client, process):
        roots = process, psutil.Process(postmaster)
        for number in (changed := nights or [10, 100]):
            for project in range(number):
                add_memories(engine, project, sizes[project], NEW_MEMORIES)
                sizes[project] += NEW_MEMORIES
            time.sleep(61 - time.time() % 60)  # until the next night
            name = f"night, {number} changed, {count - number} not"
            measure(name, nightly_consolidation, engine, client, Meter(*roots))
        measure(f"morning, after {len(changed)} nights", daily_decay, engine, client, Meter(*roots))


if __name__ == "__main__":
    main()
