"""Test of two workers that share the runs of several projects through a queue in Postgres. One of them is killed.

    python deploy/two_workers.py [PROJECTS [SECONDS]]        default: 5 170

Starts the processes of docs/deploy.md on a temporary embedded Postgres: a code server, the daemon and two workers.
Every third project has a language model, which this process simulates. Exits with 1 if a claim is false, or after
SECONDS.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import combinations
from pathlib import Path
from threading import Event
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.llm_pool import LLM_POOL, SLOT_FREED, SLOT_TAKEN
from consolidation_pipeline.service.admin.projects import create_project
from consolidation_pipeline.service.intake.importer import import_memories
from consolidation_pipeline.service.jobs.job_requests import request_job
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import count_raw_memories
from consolidation_pipeline.store.checks.catalogue import CHECKS
from consolidation_pipeline.store.database.engine import Engine, open_engine
from consolidation_pipeline.store.jobs.jobs import list_jobs
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline_tests.openai_server import Request, openai_server, reply_with_json

ROOT = Path(__file__).resolve().parent.parent
INSTANCE = ROOT / "deploy" / "distributed"
BIN = Path(sys.executable).parent
DEADLINE = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 170)
POOL_SLOTS = 1  # of the pool `consolidation_llm`
MEMORIES = 60  # enough for a summary
IS_KILLED = Event()
BLOCK = re.compile(r"\[(\w+) memory (\d+) begins\]\n(.*?)\n\[\1 memory \2 ends\]", re.DOTALL)
BEGAN = time.monotonic()


def report(line: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {line}", flush=True)


def check_claim(claim: str, holds: bool) -> None:
    """Report if a claim holds; exit with 1 if it does not."""
    report(f"{'ok' if holds else 'FAILED'}: {claim}")
    if not holds:
        sys.exit(1)


def wait_for(what: str, find: Callable[[], Any]) -> Any:
    """Poll ``find`` until it returns something, and return that; exit with 1 at the deadline."""
    while time.monotonic() < DEADLINE:
        found = find()
        if found:
            return found
        time.sleep(0.5)
    sys.exit(f"waited too long for {what}")


def find_free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def set_environment(folder: Path, model: str) -> None:
    """Set the environment of all processes, without other settings of this machine."""
    for name in [name for name in os.environ if name.startswith(("CONSOLIDATION_", "DAGSTER_"))]:
        del os.environ[name]
    os.environ |= {
        "CONSOLIDATION_DATA_DIR": str(folder),
        "DAGSTER_HOME": str(INSTANCE),
        "CONSOLIDATION_CODE_HOST": "127.0.0.1",
        "CONSOLIDATION_CODE_PORT": str(find_free_port()),
        "OPENAI_API_BASE": model,
        "OPENAI_BASE_URL": model,
        "OPENAI_API_KEY": "sk-none",
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def start_process(folder: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command that logs to ``name``.log. Kill it and its children at the end."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [BIN / command[0], *command[1:]], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        kill(process, signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            kill(process, signal.SIGKILL)


def kill(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and its children, as if their machine went down."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def start_all(stack: ExitStack, folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    """Start the code server, the daemon and the workers; return the workers by name."""
    host, port = os.environ["CONSOLIDATION_CODE_HOST"], os.environ["CONSOLIDATION_CODE_PORT"]
    served = ("-m", "consolidation_pipeline.definitions", "-h", host, "-p", port)
    stack.enter_context(start_process(folder, "code", "dagster", "api", "grpc", *served))
    worker = ("celery", "-A", "consolidation_pipeline.workers", "worker", "--concurrency", "1", "--hostname")
    workers = {name: stack.enter_context(start_process(folder, name, *worker, f"{name}@%h")) for name in ("one", "two")}
    wait_for("the code server", lambda: is_open(host, int(port)))
    workspace = str(INSTANCE / "workspace.yaml")
    stack.enter_context(start_process(folder, "daemon", "dagster-daemon", "run", "-w", workspace))
    start = [BIN / "dagster", "sensor", "start", "consolidation_requested_jobs_sensor", "-w", workspace]
    subprocess.run(start, cwd=ROOT, check=True, capture_output=True)
    return workers


def is_open(host: str, port: int) -> bool:
    """Return True if a process listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def reply_as_model(request: Request) -> dict[str, Any]:
    """Return a valid reply with the text of the first memory. Replies wait until the worker is killed."""
    IS_KILLED.wait(timeout=90)
    time.sleep(0.3)
    messages, schema = request.body["messages"], request.body["response_format"]["json_schema"]["name"]
    memories = {int(number): text for _, number, text in BLOCK.findall(messages[1]["content"])}
    if schema == "SummaryReply":
        return {"summary": memories[1]}
    if schema == "ProfileReply":
        parts = ("communication_preferences", "technical_preferences", "work_patterns", "context")
        return {"profile": memories[1], **{part: [memories[1]] for part in parts}}
    if schema == "SuggestionReply":
        return {"content": max(memories.values(), key=len), "lessons_learned": "", "keywords": []}
    return {
        schema.removesuffix("Reply").lower(): memories[1],
        "pattern_type": "workflow",
        "confidence": 0.9,
        "summary": memories[1],
        "best_practices": [memories[1]],
        "gotchas": [],
        "evidence": [{"unit": number, "quote": text[:30]} for number, text in memories.items()],
    }


def create_projects(engine: Engine, folder: Path, count: int) -> list[Project]:
    """Create projects with ``MEMORIES`` sample memories each. Every third has a model."""
    rows = (ROOT / "examples" / "memories.jsonl").read_text().splitlines()[:MEMORIES]
    (folder / "memories.jsonl").write_text("\n".join(rows))
    for at in range(count):
        slug, config = f"p{at}", {"scope": "project"} | ({"llm_model": "openai/gpt-4o-mini"} if at % 3 == 0 else {})
        create_project(engine, slug, config, settings=Settings())
        import_memories(engine, slug, str(folder / "memories.jsonl"), format="jsonl")
    with engine.connect() as connection:
        return [get_project(connection, f"p{at}") for at in range(count)]


class Records:
    """Runs so far, as recorded by Dagster and by the table of jobs."""

    def __init__(self, engine: Engine, instance: dg.DagsterInstance) -> None:
        self.engine, self.instance = engine, instance

    def find_newest_jobs(self, projects: list[Project]) -> dict[str, Any]:
        """Return the newest job of each project, by slug."""
        with self.engine.connect() as connection:
            return {project.slug: list_jobs(connection, project.id, limit=1)[0] for project in projects}

    def find_events(self, run_id: str, part: str) -> list[tuple[float, str]]:
        """Return time and text of the events of a run with ``part`` in their text."""
        return [(log.timestamp, log.message) for log in self.instance.all_logs(run_id) if part in log.message]

    def find_worker(self, run_id: str) -> str | None:
        """Return the short name of the worker that executed a run."""
        events = self.find_events(run_id, "in worker ")
        return events[0][1].partition("in worker ")[2].partition("@")[0] if events else None

    def list_runs(self) -> list[dg.RunRecord]:
        """Return all runs, with their times of start and end."""
        return list(self.instance.get_run_records())

    def list_pool_spans(self) -> list[tuple[float, float, str]]:
        """Return start, end and run id of each use of a pool slot. A killed run held its slot until it was ended."""
        spans = []
        for record in self.list_runs():
            run_id = record.dagster_run.run_id
            freed = [at for at, _ in self.find_events(run_id, SLOT_FREED)] + [record.end_time or time.time()]
            spans += [
                (at, min(end for end in freed if end >= at), run_id) for at, _ in self.find_events(run_id, SLOT_TAKEN)
            ]
        return spans


def find_slot_holder(records: Records, projects: list[Project]) -> tuple[str, Any, str] | None:
    """Return a project whose running job holds a pool slot, with the job and its worker; None if there is none."""
    for slug, job in records.find_newest_jobs(projects).items():
        if job.status == "running" and job.phases_completed:
            taken, freed = (len(records.find_events(job.dagster_run_id, part)) for part in (SLOT_TAKEN, SLOT_FREED))
            if taken > freed:
                return slug, job, str(records.find_worker(job.dagster_run_id))
    return None


def count_most_at_once(spans: list[tuple[float, float, str]]) -> int:
    """Return the largest number of different owners whose spans overlap at one time."""
    return max((len({who for a, b, who in spans if a <= at < b}) for at, _, _ in spans), default=0)


def find_overlapping(records: Records) -> list[str]:
    """Return the projects with two runs at the same time."""
    spans = [(r.start_time, r.end_time, r.dagster_run.tags["dagster/partition"]) for r in records.list_runs()]
    pairs = combinations([span for span in spans if span[0] is not None], 2)
    return [a[2] for a, b in pairs if a[2] == b[2] and a[0] < b[1] and b[0] < a[1]]


def find_violations(engine: Engine, projects: list[Project]) -> list[str]:
    """Return the rows that break a check of the store."""
    with engine.connect() as connection:
        return [found for project in projects for check in CHECKS for found in check.find(connection, project.id)]


def request_jobs(engine: Engine, projects: list[Project]) -> None:
    """Request a job of each project, as the HTTP API does."""
    for project in projects:
        request_job(engine, project.slug, triggered_by="two_workers")


def run_test(folder: Path, count: int) -> None:
    """Run the whole test, from empty databases to the last claim."""
    engine = open_engine(Settings())
    projects = create_projects(engine, folder, count)
    report(f"{count} projects of {MEMORIES} memories, every third with a model; logs in {folder}")
    with ExitStack() as stack:
        instance = stack.enter_context(dg.DagsterInstance.get())
        instance.event_log_storage.set_concurrency_slots(LLM_POOL, POOL_SLOTS)
        records = Records(engine, instance)
        workers = start_all(stack, folder)
        report("code server, daemon and workers one and two are up")
        request_jobs(engine, projects)
        slug, lost, victim = wait_for("a run that uses the model", lambda: find_slot_holder(records, projects))
        kill(workers[victim], signal.SIGKILL)
        IS_KILLED.set()
        report(f"killed worker {victim} in its run of {slug}, after {', '.join(lost.phases_completed)}")
        wait_for("the job to be marked as failed", lambda: records.find_newest_jobs(projects)[slug].status == "failed")
        report(f"{slug}: its job is marked failed; requested again")
        request_jobs(engine, [project for project in projects if project.slug == slug])
        wait_for(
            "all jobs", lambda: {job.status for job in records.find_newest_jobs(projects).values()} == {"completed"}
        )
        report_runs(records)
        check_claims(records, projects, slug, victim)


def report_runs(records: Records) -> None:
    """Report the worker, status and duration of each run."""
    for record in sorted(records.list_runs(), key=lambda record: record.start_time or 0.0):
        run = record.dagster_run
        seconds = (record.end_time or 0.0) - (record.start_time or 0.0)
        report(
            f"{run.tags['dagster/partition']}  {run.status.value:8} {seconds:5.1f} s  {records.find_worker(run.run_id)}"
        )


def check_claims(records: Records, projects: list[Project], slug: str, victim: str) -> None:
    """Check all claims."""
    took = {records.find_worker(record.dagster_run.run_id) for record in records.list_runs()}
    check_claim("both workers executed runs", {"one", "two"} <= took)
    jobs = records.find_newest_jobs(projects)
    finisher = records.find_worker(jobs[slug].dagster_run_id)
    check_claim("the other worker finished the lost job", finisher not in (None, victim))
    check_claim("every project is consolidated", {job.status for job in jobs.values()} == {"completed"})
    with records.engine.connect() as connection:
        counts = {count_raw_memories(connection, project.id).memories for project in projects}
    check_claim(f"every project has its {MEMORIES} memories", counts == {MEMORIES})
    check_claim("every rule of the store holds", find_violations(records.engine, projects) == [])
    check_claim("no two runs of a project at the same time", find_overlapping(records) == [])
    spans = records.list_pool_spans()
    check_claim(
        f"{len(spans)} phases held a slot of the pool, at most {POOL_SLOTS} at a time",
        count_most_at_once(spans) == POOL_SLOTS,
    )


def main() -> None:
    """Run the test in a temporary folder. It is deleted after success; otherwise, its logs are kept."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder, is_done = Path(tempfile.mkdtemp(prefix="two_workers_")), Event()
    # Registered before the server's own exit handler, so it runs after that.
    atexit.register(lambda: shutil.rmtree(folder) if is_done.is_set() else None)
    with openai_server(reply_with_json(reply_as_model)) as model:
        set_environment(folder, model.api_base)
        run_test(folder, int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    is_done.set()


if __name__ == "__main__":
    main()
