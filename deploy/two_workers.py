"""Two workers share the runs of several projects through a queue in Postgres, and one of them is killed in the middle.

    python deploy/two_workers.py [PROJECTS [SECONDS]]

Starts what docs/deploy.md describes, each part a process of its own on an embedded Postgres in a folder of its own: a
code server, the daemon, two workers. A third of the projects has a language model, which this process plays. Says what
happened and ends with 1 where a claim does not hold, or when SECONDS (170) are over.
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
from consolidation_pipeline.store.admin import invariants
from consolidation_pipeline.store.admin.project_counts import count_raw
from consolidation_pipeline.store.database.engine import Engine, open_engine
from consolidation_pipeline.store.jobs.jobs import list_jobs
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline_tests.openai_server import Request, chatting, openai_server

ROOT = Path(__file__).resolve().parent.parent
INSTANCE = ROOT / "deploy" / "distributed"
BIN = Path(sys.executable).parent
DEADLINE = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 170)
PLACES = 1  # in the pool `llm`
MEMORIES = 60  # more than a summary waits for
KILLED = Event()
BLOCK = re.compile(r"\[(\w+) memory (\d+) begins\]\n(.*?)\n\[\1 memory \2 ends\]", re.DOTALL)
BEGAN = time.monotonic()


def tell(what: str) -> None:
    """A line of the report, with the seconds since the beginning."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}", flush=True)


def claim(what: str, holds: bool) -> None:
    """Say that something holds. Raises SystemExit where it does not."""
    tell(f"{'ok' if holds else 'FAILED'}: {what}")
    if not holds:
        sys.exit(1)


def wait_for(what: str, find: Callable[[], Any]) -> Any:
    """Ask until there is an answer. Raises SystemExit at the deadline."""
    while time.monotonic() < DEADLINE:
        found = find()
        if found:
            return found
        time.sleep(0.5)
    sys.exit(f"waited too long for {what}")


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def set_environment(folder: Path, model: str) -> None:
    """What every process is told; nothing of this machine's own set-up."""
    for name in [name for name in os.environ if name.startswith(("CONSOLIDATION_", "DAGSTER_"))]:
        del os.environ[name]
    os.environ |= {
        "CONSOLIDATION_DATA_DIR": str(folder),
        "DAGSTER_HOME": str(INSTANCE),
        "CONSOLIDATION_CODE_HOST": "127.0.0.1",
        "CONSOLIDATION_CODE_PORT": str(free_port()),
        "OPENAI_API_BASE": model,
        "OPENAI_BASE_URL": model,
        "OPENAI_API_KEY": "sk-none",
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def started(folder: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its children, all killed at the end; its log is ``name``.log."""
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
    """End a process and its children, as when its machine goes."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def start_all(stack: ExitStack, folder: Path) -> dict[str, subprocess.Popen[bytes]]:
    """The code server, the daemon and the workers; returns the workers by name."""
    host, port = os.environ["CONSOLIDATION_CODE_HOST"], os.environ["CONSOLIDATION_CODE_PORT"]
    served = ("-m", "consolidation_pipeline.definitions", "-h", host, "-p", port)
    stack.enter_context(started(folder, "code", "dagster", "api", "grpc", *served))
    worker = ("celery", "-A", "consolidation_pipeline.workers", "worker", "--concurrency", "1", "--hostname")
    workers = {name: stack.enter_context(started(folder, name, *worker, f"{name}@%h")) for name in ("one", "two")}
    wait_for("the code server", lambda: is_open(host, int(port)))
    workspace = str(INSTANCE / "workspace.yaml")
    stack.enter_context(started(folder, "daemon", "dagster-daemon", "run", "-w", workspace))
    start = [BIN / "dagster", "sensor", "start", "requested_jobs_sensor", "-w", workspace]
    subprocess.run(start, cwd=ROOT, check=True, capture_output=True)
    return workers


def is_open(host: str, port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def answer(request: Request) -> dict[str, Any]:
    """A sound model: it says of everything what its first memory says; nothing until the worker is killed."""
    KILLED.wait(timeout=90)
    time.sleep(0.3)
    told, asked = request.body["messages"], request.body["response_format"]["json_schema"]["name"]
    shown = {int(number): text for _, number, text in BLOCK.findall(told[1]["content"])}
    if asked == "SummaryReply":
        return {"summary": shown[1]}
    if asked == "ProfileReply":
        parts = ("communication_preferences", "technical_preferences", "work_patterns", "context")
        return {"profile": shown[1], **{part: [shown[1]] for part in parts}}
    if asked == "SuggestionReply":
        return {"content": max(shown.values(), key=len), "lessons_learned": "", "keywords": []}
    return {
        asked.removesuffix("Reply").lower(): shown[1],
        "pattern_type": "workflow",
        "confidence": 0.9,
        "summary": shown[1],
        "best_practices": [shown[1]],
        "gotchas": [],
        "evidence": [{"unit": number, "quote": text[:30]} for number, text in shown.items()],
    }


def fill(engine: Engine, folder: Path, count: int) -> list[Project]:
    """Projects of ``MEMORIES`` sample memories each; every third has a model."""
    rows = (ROOT / "examples" / "memories.jsonl").read_text().splitlines()[:MEMORIES]
    (folder / "memories.jsonl").write_text("\n".join(rows))
    for at in range(count):
        slug, config = f"p{at}", {"llm_model": "openai/gpt-4o-mini"} if at % 3 == 0 else {}
        create_project(engine, slug, config, settings=Settings())
        import_memories(engine, slug, str(folder / "memories.jsonl"), format="jsonl")
    with engine.connect() as connection:
        return [get_project(connection, f"p{at}") for at in range(count)]


class Records:
    """What Dagster and the job rows say of the runs so far."""

    def __init__(self, engine: Engine, instance: dg.DagsterInstance) -> None:
        self.engine, self.instance = engine, instance

    def newest_jobs(self, projects: list[Project]) -> dict[str, Any]:
        """The newest job of each project, by slug."""
        with self.engine.connect() as connection:
            return {project.slug: list_jobs(connection, project.id, limit=1)[0] for project in projects}

    def events(self, run_id: str, part: str) -> list[tuple[float, str]]:
        """Instant and text of the events of a run that have ``part`` in their text."""
        return [(log.timestamp, log.message) for log in self.instance.all_logs(run_id) if part in log.message]

    def worker_of(self, run_id: str) -> str | None:
        """The worker that took a run, by its short name."""
        told = self.events(run_id, "in worker ")
        return told[0][1].partition("in worker ")[2].partition("@")[0] if told else None

    def runs(self) -> list[dg.RunRecord]:
        """All runs, with the instants of their beginning and end."""
        return list(self.instance.get_run_records())

    def places(self) -> list[tuple[float, float, str]]:
        """When a run had a place in the pool, from, to; one that was killed had it until its run was marked."""
        held = []
        for record in self.runs():
            run_id = record.dagster_run.run_id
            freed = [at for at, _ in self.events(run_id, SLOT_FREED)] + [record.end_time or time.time()]
            held += [(at, min(end for end in freed if end >= at), run_id) for at, _ in self.events(run_id, SLOT_TAKEN)]
        return held


def holder(records: Records, projects: list[Project]) -> tuple[str, Any, str] | None:
    """A project whose running job has a place in the pool, that job and its worker."""
    for slug, job in records.newest_jobs(projects).items():
        if job.status == "running" and job.phases_completed:
            taken, freed = (len(records.events(job.dagster_run_id, part)) for part in (SLOT_TAKEN, SLOT_FREED))
            if taken > freed:
                return slug, job, str(records.worker_of(job.dagster_run_id))
    return None


def most_at_once(spans: list[tuple[float, float, str]]) -> int:
    """The most spans of different owners that share an instant."""
    return max((len({who for a, b, who in spans if a <= at < b}) for at, _, _ in spans), default=0)


def overlapping(records: Records) -> list[str]:
    """Projects of which two runs were under way at one instant."""
    spans = [(r.start_time, r.end_time, r.dagster_run.tags["dagster/partition"]) for r in records.runs()]
    pairs = combinations([span for span in spans if span[0] is not None], 2)
    return [a[2] for a, b in pairs if a[2] == b[2] and a[0] < b[1] and b[0] < a[1]]


def broken(engine: Engine, projects: list[Project]) -> list[str]:
    """What breaks a rule of the store."""
    rules = [rule for name, rule in vars(invariants).items() if name.startswith("find_")]
    with engine.connect() as connection:
        return [found for project in projects for rule in rules for found in rule(connection, project.id)]


def ask(engine: Engine, projects: list[Project]) -> None:
    """Ask for a run of each, as the HTTP API does."""
    for project in projects:
        request_job(engine, project.slug, triggered_by="two_workers")


def prove(folder: Path, count: int) -> None:
    """The story, from empty databases to the last claim."""
    engine = open_engine(Settings())
    projects = fill(engine, folder, count)
    tell(f"{count} projects of {MEMORIES} memories, every third with a model; logs in {folder}")
    with ExitStack() as stack:
        instance = stack.enter_context(dg.DagsterInstance.get())
        instance.event_log_storage.set_concurrency_slots(LLM_POOL, PLACES)
        records = Records(engine, instance)
        workers = start_all(stack, folder)
        tell("code server, daemon and workers one and two are up")
        ask(engine, projects)
        slug, lost, victim = wait_for("a run that asks the model", lambda: holder(records, projects))
        kill(workers[victim], signal.SIGKILL)
        KILLED.set()
        tell(f"killed worker {victim} in its run of {slug}, after {', '.join(lost.phases_completed)}")
        wait_for("the job to be marked", lambda: records.newest_jobs(projects)[slug].status == "failed")
        tell(f"{slug}: its job is marked failed; asked for again")
        ask(engine, [project for project in projects if project.slug == slug])
        wait_for("all jobs", lambda: {job.status for job in records.newest_jobs(projects).values()} == {"completed"})
        show(records)
        check(records, projects, slug, victim)


def show(records: Records) -> None:
    """Which worker did which run."""
    for record in sorted(records.runs(), key=lambda record: record.start_time or 0.0):
        run = record.dagster_run
        seconds = (record.end_time or 0.0) - (record.start_time or 0.0)
        tell(f"{run.tags['dagster/partition']}  {run.status.value:8} {seconds:5.1f} s  {records.worker_of(run.run_id)}")


def check(records: Records, projects: list[Project], slug: str, victim: str) -> None:
    """Everything that is claimed."""
    took = {records.worker_of(record.dagster_run.run_id) for record in records.runs()}
    claim("both workers took runs", {"one", "two"} <= took)
    jobs = records.newest_jobs(projects)
    finisher = records.worker_of(jobs[slug].dagster_run_id)
    claim("the other worker finished what was lost", finisher not in (None, victim))
    claim("every project is consolidated", {job.status for job in jobs.values()} == {"completed"})
    with records.engine.connect() as connection:
        counts = {count_raw(connection, project.id).memories for project in projects}
    claim(f"every project has its {MEMORIES} memories", counts == {MEMORIES})
    claim("every rule of the store holds", broken(records.engine, projects) == [])
    claim("never two runs of one project at once", overlapping(records) == [])
    places = records.places()
    claim(
        f"{len(places)} phases took a place in the pool, never more than {PLACES} at once",
        most_at_once(places) == PLACES,
    )


def main() -> None:
    """Everything in a folder that is removed, after the server in it has stopped, when all went well."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder, done = Path(tempfile.mkdtemp(prefix="two_workers_")), Event()
    # Registered before the server's own end, so called after it.
    atexit.register(lambda: shutil.rmtree(folder) if done.is_set() else None)
    with openai_server(chatting(answer)) as model:
        set_environment(folder, model.api_base)
        prove(folder, int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    done.set()


if __name__ == "__main__":
    main()
