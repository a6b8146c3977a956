"""Workers: health and cancellation of runs, the queue, and slots of the LLM pool."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import Any

import dagster as dg
import psycopg
import pytest
from sqlalchemy import text

from consolidation_pipeline.defs.llm_pool import LLM_POOL, SLOT_TAKEN, hold_pool_slot
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, connect_engine, dagster_url
from consolidation_pipeline.store.jobs.worker_heartbeat import delete_delivered_messages, hold_lock, is_lock_held
from consolidation_pipeline_tests.database_pool import LIST_OTHER_CLIENTS

TASK = {"dagster-celery/task_id": "t1"}


@pytest.fixture
def instance(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """Dagster instance with its storage in Postgres."""
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", database_url)
    storage = {"module": "consolidation_pipeline.defs.dagster_storage", "class": "ConsolidationPostgresStorage"}
    overrides = {"storage": {"custom": storage}, "telemetry": {"enabled": False}}
    with dg.instance_for_test(temp_dir=str(tmp_path), overrides=overrides) as instance:
        yield instance
    connect_engine(dagster_url(Settings())).dispose()


@pytest.fixture
def launcher(instance: dg.DagsterInstance) -> Iterator[Any]:
    workers = pytest.importorskip("consolidation_pipeline.workers", exc_type=ImportError)
    launcher = workers.WorkerRunLauncher.from_config_value(None, {})
    launcher.register_instance(instance)
    yield launcher
    from kombu.transport.sqlalchemy import Channel

    while Channel._engines:
        Channel._engines.popitem()[1][0].dispose()


def add_started_run(instance: dg.DagsterInstance, **tags: str) -> dg.DagsterRun:
    return instance.add_run(dg.DagsterRun(job_name="consolidate", status=dg.DagsterRunStatus.STARTED, tags=tags))


def test_run_is_healthy_while_its_worker_lives(instance: dg.DagsterInstance, launcher: Any, engine: Engine) -> None:
    run = add_started_run(instance, **TASK)
    with hold_lock(engine, f"run:{run.run_id}"):
        assert launcher.check_run_worker_health(run).status.name == "RUNNING"
    health = launcher.check_run_worker_health(run)
    assert (health.status.name, health.msg) == ("FAILED", "the worker that executed it died")
    untracked = add_started_run(instance)
    assert launcher.check_run_worker_health(untracked).status.name == "RUNNING"


def test_broker_defaults_to_dagster_database(launcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launcher.broker.startswith("sqla+postgresql+psycopg2://")
    monkeypatch.setenv("CONSOLIDATION_BROKER_URL", "redis://broker/0")
    assert type(launcher).from_config_value(None, {}).broker == "redis://broker/0"


def test_queue_is_created_without_leaving_connections(launcher: Any, database_url: str) -> None:
    from consolidation_pipeline.workers import create_queue

    create_queue(launcher.celery)
    connect_engine(dagster_url(Settings())).dispose()
    with psycopg.connect(database_url) as connection:
        assert connection.execute(LIST_OTHER_CLIENTS).fetchall() == []


def test_terminate_marks_run_as_canceling(instance: dg.DagsterInstance, launcher: Any) -> None:
    run = add_started_run(instance, **TASK)
    assert launcher.terminate(run.run_id)
    assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.CANCELING  # type: ignore[union-attr]
    instance.report_run_canceled(run)
    assert not launcher.terminate(run.run_id)
    assert not launcher.terminate("there is none")


def test_worker_stops_when_its_run_is_cancelled(
    instance: dg.DagsterInstance, launcher: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from consolidation_pipeline import workers

    monkeypatch.setattr(workers, "_POLL_SECONDS", 0.05)
    run = add_started_run(instance, **TASK)

    def work() -> None:
        with workers.watch_run(run.run_id):
            assert is_lock_held(engine, f"run:{run.run_id}")
            launcher.terminate(run.run_id)
            threading.Event().wait(60)

    # A process that a shell started in the background ignores the signal; a run of Dagster sets a handler as this does.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not is_lock_held(engine, f"run:{run.run_id}")


def test_lock_ends_with_its_connection(engine: Engine) -> None:
    with hold_lock(engine, "run:a") as connection:
        assert is_lock_held(engine, "run:a")
        assert not is_lock_held(engine, "run:b")
        connection.invalidate()
        assert not is_lock_held(engine, "run:a")


def test_delivered_messages_are_deleted_after_one_day(launcher: Any, engine: Engine) -> None:
    from consolidation_pipeline.workers import create_queue

    assert delete_delivered_messages(engine, older_than=timedelta(days=1)) == 0
    create_queue(launcher.celery)
    create_queue(launcher.celery)
    rows = "(1, true, NULL), (2, false, localtimestamp), (3, false, localtimestamp - interval '2 days')"
    with engine.begin() as connection:
        insert = "INSERT INTO kombu_message (id, visible, timestamp, payload, version, queue_id)"
        select = f"SELECT n, v, t, '', 1, (SELECT id FROM kombu_queue) FROM (VALUES {rows}) AS r (n, v, t)"
        connection.execute(text(f"{insert} {select}"))
    assert delete_delivered_messages(engine, older_than=timedelta(days=1)) == 1
    with engine.connect() as connection:
        assert set(connection.execute(text("SELECT id FROM kombu_message")).scalars()) == {1, 2}


@pytest.mark.slow
def test_phase_waits_for_pool_slot_only_with_limit(instance: dg.DagsterInstance) -> None:
    first, second = add_started_run(instance), add_started_run(instance)
    with hold_pool_slot(instance, first, "patterns"), hold_pool_slot(instance, second, "patterns"):
        pass  # without a limit both hold a slot
    instance.event_log_storage.set_concurrency_slots(LLM_POOL, 1)
    done: Queue[str] = Queue()

    def wait() -> None:
        with hold_pool_slot(instance, second, "patterns"):
            done.put("second")

    with hold_pool_slot(instance, first, "patterns"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        while len(instance.event_log_storage.get_concurrency_info(LLM_POOL).pending_steps) < 2:
            assert waiting.is_alive()
        done.put("first")
    waiting.join()
    assert [done.get(), done.get()] == ["first", "second"]
    assert sum(SLOT_TAKEN in log.message for log in instance.all_logs(second.run_id)) == 1


@pytest.mark.slow
def test_phase_takes_slot_freed_while_it_queued(instance: dg.DagsterInstance) -> None:
    run, storage = add_started_run(instance), instance.event_log_storage
    storage.set_concurrency_slots(LLM_POOL, 1)
    storage.add_pending_step(LLM_POOL, run.run_id, "patterns", should_assign=False)  # type: ignore[attr-defined]
    with hold_pool_slot(instance, run, "patterns"):
        assert [slot.run_id for slot in storage.get_concurrency_info(LLM_POOL).claimed_slots] == [run.run_id]


@pytest.mark.parametrize(
    ("options", "waiting_phases"),
    [
        ({}, set()),
        (
            {"llm_model": "openai/gpt-4o-mini"},
            {"patterns", "principles", "consolidation_suggestions", "semantic_summaries", "procedural_profile"},
        ),
        (
            {"embedding_model": "openai/text-embedding-3-large"},
            {*PHASES} - {"similarity_graph", "supersessions", "clusters", "consolidation_suggestions", "decay_scores"}
            - {"archived_memories", "consolidation_report"},
        ),
        ({"merge_style": "rewrite"}, set()),
        ({"pair_judge": "onnx:/models/judge.onnx"}, set()),
        (
            {"llm_model": "openai/gpt-4o-mini", "pair_judge": "llm", "merge_style": "rewrite"},
            {*PHASES} - {"embedding_matrix", "supersessions", "clusters", "playbook_entries", "decay_scores"}
            - {"archived_memories"}
            - {"consolidation_report"},
        ),
    ],
)  # fmt: skip
def test_only_paid_phases_take_pool_slot(options: dict[str, Any], waiting_phases: set[str]) -> None:
    run: Any = object.__new__(ProjectRun)
    run.options = parse_options(options)
    assert {phase for phase in PHASES if run.may_call_model(phase)} == waiting_phases
