"""Runs on several machines: a queue of runs in Postgres, and Celery workers that execute whole runs from it.

``deploy/distributed/dagster.yaml`` names the launcher; ``celery -A consolidation_pipeline.workers worker`` starts a
worker. The task of a killed worker stays "started" for ever, so each worker holds a database lock for its run, by which
the daemon sees that it is alive. The queue cannot send messages to a worker, so it polls if its run was cancelled.
"""

from __future__ import annotations

import logging
import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import dagster as dg
from celery import Celery, Task
from celery.signals import worker_init
from dagster_celery.launcher import CeleryRunLauncher, CheckRunHealthResult, WorkerStatus
from dagster_celery.make_app import make_app
from dagster_celery.tags import DAGSTER_CELERY_TASK_ID_TAG
from dagster_celery.tasks import create_execute_job_task, unpack_value

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, connect_engine, dagster_url
from consolidation_pipeline.store.jobs.worker_heartbeat import delete_delivered_messages, hold_lock, is_lock_held

# The base class of the launcher registers its task again for each run.
warnings.filterwarnings("ignore", message="Task name '(execute|resume)_job' is already registered")
logger = logging.getLogger(__name__)

QUEUE = "dagster"
CELERY_CONFIG: Mapping[str, Any] = {
    # A worker takes only the run that it executes. No other run waits behind it or is lost with it.
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    # A new process after some runs frees the memory that libraries keep.
    "worker_max_tasks_per_child": 100,
    "broker_connection_retry_on_startup": True,
    "broker_transport_options": {"pool_pre_ping": True},
}
_STOPPED = {dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE}
_POLL_SECONDS = 3.0
_KEEP_DELIVERED = timedelta(days=1)  # delivered messages are kept this long, to find lost runs


def broker_url(settings: Settings) -> str:
    """Return the URL of the queue: ``CONSOLIDATION_BROKER_URL``, else the Postgres of Dagster's own storage."""
    if settings.broker_url is not None:
        return settings.broker_url.get_secret_value()
    return f"sqla+{dagster_url(settings)}"


def _connect_storage() -> Engine:
    return connect_engine(dagster_url(Settings()))


def _lock_name(run_id: str) -> str:
    return f"run:{run_id}"


def create_queue(celery: Celery) -> None:
    """Create the queue if it is missing, under a lock: kombu fails if two processes create it at the same time."""
    with hold_lock(_connect_storage(), "queue"), celery.connection_for_write() as connection:
        channel = connection.default_channel
        channel.queue_declare(QUEUE)
        if hasattr(channel, "session"):  # kombu leaves the session of a queue in Postgres open, in a transaction
            channel.session.close()
            channel.session.get_bind().dispose()


def prepare_worker(**_: Any) -> None:
    """Create the queue, and close all connections: the worker forks next.

    Of two processes with one connection, each may take the reply that the other waits for.
    """
    create_queue(app)
    _connect_storage().dispose()


class WorkerRunLauncher(CeleryRunLauncher):  # type: ignore[misc]
    """Launcher that puts runs into the queue. It takes no configuration."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Any) -> WorkerRunLauncher:
        del config_value
        return cls(QUEUE, broker=broker_url(Settings()), config_source=dict(CELERY_CONFIG), inst_data=inst_data)

    def launch_run(self, context: Any) -> None:
        create_queue(self.celery)
        super().launch_run(context)
        delete_delivered_messages(_connect_storage(), older_than=_KEEP_DELIVERED)

    def terminate(self, run_id: str) -> bool:
        """Mark the run as cancelling. Its worker sees that within seconds and interrupts the run."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        """Return the health of a started run's worker. Runs that were not queued count as running."""
        if DAGSTER_CELERY_TASK_ID_TAG not in run.tags or is_lock_held(_connect_storage(), _lock_name(run.run_id)):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, "the worker that executed it died")

    def get_run_worker_debug_info(self, run: dg.DagsterRun, include_container_logs: bool | None = True) -> None:
        """Return nothing: the events of a run name its worker."""
        del run, include_container_logs


class RunTask(Task):  # type: ignore[misc]
    """A run as a Celery task. Its worker holds the run's lock, and interrupts the run when it is cancelled."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run_id = unpack_value(kwargs["execute_job_args_packed"]).run_id
        with dg.DagsterInstance.get() as instance:
            run = instance.get_run_by_id(run_id)
            instance.report_engine_event(f"Executing the run in worker {self.request.hostname}", run)
        with watch_run(run_id):
            return super().__call__(*args, **kwargs)


@contextmanager
def watch_run(run_id: str) -> Iterator[None]:
    """Hold the run's lock in a thread, and interrupt this process when the run was cancelled or failed."""
    is_held, is_done = Event(), Event()
    thread = Thread(target=_hold_and_poll, args=(run_id, is_held, is_done), name=f"watch-{run_id}", daemon=True)
    thread.start()
    is_held.wait(timeout=30)
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def _hold_and_poll(run_id: str, is_held: Event, is_done: Event) -> None:
    while not is_done.is_set():
        try:
            with hold_lock(_connect_storage(), _lock_name(run_id)) as connection, dg.DagsterInstance.get() as instance:
                is_held.set()
                while not is_done.wait(_POLL_SECONDS):
                    connection.exec_driver_sql("SELECT 1")
                    run = instance.get_run_by_id(run_id)
                    if run is None or run.status in _STOPPED:
                        os.kill(os.getpid(), signal.SIGINT)
        except Exception:  # the database is gone; the lock is taken again when it is back
            logger.warning("run %s cannot be watched, trying again", run_id, exc_info=True)
            is_done.wait(_POLL_SECONDS)


app = make_app({})
app.add_defaults(lambda: {"broker_url": broker_url(Settings()), "task_default_queue": QUEUE, **CELERY_CONFIG})
execute_job = create_execute_job_task(app, base=RunTask)
worker_init.connect(prepare_worker)
