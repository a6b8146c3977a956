"""How long does a night over many small projects take?

    python benchmarks/nightly.py [PROJECTS] [CHANGED ...]        default: 1000 10 100

PROJECTS of 10 to 5,000 memories (log-normal, most have 10 to 200) are consolidated, by the phases without Dagster. Then
`dagster dev` runs as it would for months, and for each night 5 memories come to CHANGED projects: the tick of
`nightly_consolidation` is evaluated, its runs go to the instance's queue, and the clock stops when no job is pending or
running. Nights come each minute here, by the projects' `schedule`. At the end comes a morning: the tick of
`daily_decay`, which is due in every project.

CPU seconds are those of Dagster and its runs, and of the database. Peak memory is the largest of one run's process.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
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
from fresh import start_fresh
from pipeline import draw_notes
from rich.progress import track

MEDIAN, SIGMA, FEWEST, MOST = 30, 1.2, 10, 5000
NEW = 5
ROOT = Path(__file__).resolve().parent.parent


def size_of(number: int) -> int:
    """Memories of a project."""
    return int(min(MOST, max(FEWEST, random.Random(number).lognormvariate(0, SIGMA) * MEDIAN)))


def add(engine: Any, number: int, first: int, count: int) -> None:
    """Memories ``first`` to ``first + count`` of a project."""
    from consolidation_pipeline.core.memories.memories import NewMemory
    from consolidation_pipeline.store.memories.memories import append_memories
    from consolidation_pipeline.store.projects import get_project

    slug = f"project-{number:04}"
    notes = islice(draw_notes(random.Random(number)), first, first + count)
    given = [
        NewMemory(source="benchmark", external_id=str(at), memory_type=lesson.kind, execution_summary=text)
        for at, (lesson, text) in enumerate(notes, first)
    ]
    with engine.begin() as connection:
        append_memories(connection, get_project(connection, slug).id, slug, enumerate(given, 1))


def consolidate(number: int) -> int:
    """Make a project and run all phases in it; its memories."""
    from consolidation_pipeline.service.admin.projects import create_project
    from consolidation_pipeline.service.runs.run_lifecycle import open_run
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine
    from consolidation_pipeline_tests.service.pipeline_runner import run_phases

    engine = open_engine(Settings())
    create_project(engine, slug := f"project-{number:04}", {"schedule": "* * * * *"}, settings=Settings())
    add(engine, number, 0, size := size_of(number))
    with open_run(engine, slug, settings=Settings()) as run:
        run_phases(run)
    return size


def wait_for_disk(engine: Any, setting: str) -> None:
    """Have commits wait for the disk, or not: making the projects takes long enough."""
    from sqlalchemy import text

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"ALTER SYSTEM SET synchronous_commit = {setting}"))
        connection.execute(text("SELECT pg_reload_conf()"))


@contextmanager
def dagster() -> Iterator[tuple[Any, psutil.Process]]:
    """`dagster dev` in processes of its own: a client, and the process."""
    from dagster_graphql import DagsterGraphQLClient

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "--port", str(port)]
    log = (Path(os.environ["DAGSTER_HOME"]) / "dagster.log").open("w")
    process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.5)
        yield DagsterGraphQLClient("127.0.0.1", port_number=port), psutil.Process(process.pid)
    finally:
        # It waits for its own children, which do not all end when it is asked to.
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            with suppress(psutil.Error):
                child.kill()
        process.wait()


class Meter:
    """CPU seconds and peak memory of processes that come and go."""

    def __init__(self, *roots: psutil.Process) -> None:
        self._roots, self._cpu, self._began, self.peak = roots, {}, {}, 0
        self.look()
        self._began = dict(self._cpu)

    def look(self) -> None:
        """Read all processes; twice a second misses little."""
        for root in self._roots:
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    self._cpu[process.pid, process.create_time()] = times.user + times.system
                    if (process.pid, process.create_time()) not in self._began and root is self._roots[0]:
                        self.peak = max(self.peak, process.memory_info().rss)

    @property
    def seconds(self) -> float:
        """CPU seconds since the beginning."""
        return sum(cpu - self._began.get(process, 0.0) for process, cpu in self._cpu.items())


def live_jobs(engine: Any) -> int:
    """Jobs that are pending or running."""
    from consolidation_pipeline.store.jobs.jobs import list_live_jobs

    with engine.connect() as connection:
        return len(list_live_jobs(connection))


def measure(name: str, schedule: Any, engine: Any, client: Any, meter: Meter) -> None:
    """Evaluate a tick, launch what it asks for, wait until it is done, print a row."""
    import dagster as dg

    began = time.perf_counter()
    with dg.DagsterInstance.get() as instance:
        requests = schedule(dg.build_schedule_context(instance=instance, resources={"store": engine}))
    requests = requests if isinstance(requests, list) else []
    ticked, jobs = time.perf_counter() - began, live_jobs(engine)
    for request in requests:
        client.submit_job_execution(request.job_name, run_config=request.run_config, tags=dict(request.tags))
    while live_jobs(engine):
        meter.look()
        time.sleep(0.5)
    took = time.perf_counter() - began
    meter.look()
    cost = f"{meter.seconds:.0f} | {meter.seconds / max(jobs, 1):.2f} | {meter.peak / 2**20:.0f} MB"
    print(
        f"| {name} | {jobs} | {len(requests)} | {ticked:.2f} s | {took:.0f} s | {60 * jobs / took:.0f} | {cost} |",
        flush=True,
    )


def main() -> None:
    """Make the projects, then measure nights and a morning."""
    count, *nights = [int(argument) for argument in sys.argv[1:]] or [1000]
    folder = start_fresh()
    shutil.copy(ROOT / "dagster.yaml", folder)
    os.environ.update(DAGSTER_HOME=str(folder))
    from consolidation_pipeline.defs.schedules import daily_decay, nightly_consolidation
    from consolidation_pipeline.launch import register_projects
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    began = time.perf_counter()
    wait_for_disk(engine, "off")
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        made = pool.map(consolidate, range(count), chunksize=4)
        sizes = dict(enumerate(track(made, "consolidating", total=count)))
    register_projects()
    wait_for_disk(engine, "on")
    took = time.perf_counter() - began
    print(f"{count:,} projects, {sum(sizes.values()):,} memories, the largest {max(sizes.values()):,}; {took:.0f} s\n")
    print("| tick | jobs | runs launched | tick | all done after | jobs a minute | CPU s | per job | peak |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    postmaster = int((next(folder.glob("postgres/**/postmaster.pid"))).read_text().split()[0])
    with dagster() as (client, process):
        roots = process, psutil.Process(postmaster)
        for number in (changed := nights or [10, 100]):
            for project in range(number):
                add(engine, project, sizes[project], NEW)
                sizes[project] += NEW
            time.sleep(61 - time.time() % 60)  # until the next night
            name = f"night, {number} changed, {count - number} not"
            measure(name, nightly_consolidation, engine, client, Meter(*roots))
        measure(f"morning, after {len(changed)} nights", daily_decay, engine, client, Meter(*roots))


if __name__ == "__main__":
    main()
