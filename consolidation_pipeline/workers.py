"""Runs on several machines: a queue of runs in Postgres, and Celery workers that each execute whole runs from it.

``deploy/distributed/dagster.yaml`` names the launcher, ``celery -A consolidation_pipeline.workers worker`` starts a
worker. The queue has no way back to a worker, and a task of a killed one is "started" for ever. So a worker holds a
lock of its run, by which the daemon sees that it lives, and asks now and then whether the run is still wanted.
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

# The launcher's class makes its task anew for each run.
warnings.filterwarnings("ignore", message="Task name '(execute|resume)_job' is already registered")
logger = logging.getLogger(__name__)

QUEUE = "dagster"
CELERY_CONFIG: Mapping[str, Any] = {
    # A worker takes no run beyond those it executes, so that none waits behind a long one, or is lost with it.
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    # A fresh process now and then gives back what libraries keep.
    "worker_max_tasks_per_child": 100,
    "broker_connection_retry_on_startup": True,
    "broker_transport_options": {"pool_pre_ping": True},
}
_STOPPED = {dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE}
_POLL_SECONDS = 3.0
_KEEP_DELIVERED = timedelta(days=1)  # what workers took stays so long in the queue, for whoever looks for a lost run


def broker_url(settings: Settings) -> str:
    """Where runs wait: ``CONSOLIDATION_BROKER_URL``, else the Postgres of Dagster's own storage."""
    if settings.broker_url is not None:
        return settings.broker_url.get_secret_value()
    return f"sqla+{dagster_url(settings)}"


def _connect_storage() -> Engine:
    return connect_engine(dagster_url(Settings()))


def _lock_name(run_id: str) -> str:
    return f"run:{run_id}"


def create_queue(celery: Celery) -> None:
    """Make the queue where it is missing: kombu's own way of making it fails when two processes do so at once."""
    with hold_lock(_connect_storage(), "queue"), celery.connection_for_write() as connection:
        connection.default_channel.queue_declare(QUEUE)


class WorkerRunLauncher(CeleryRunLauncher):  # type: ignore[misc]
    """Puts runs into the queue; takes no configuration."""

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
        """Mark the run; its worker asks within seconds, and interrupts it."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> Any:
        """Whether the worker of a started run lives. A run that was not launched here is its own process's affair."""
        if DAGSTER_CELERY_TASK_ID_TAG not in run.tags or is_lock_held(_connect_storage(), _lock_name(run.run_id)):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, "the worker that executed it died")

    def get_run_worker_debug_info(self, run: dg.DagsterRun, include_container_logs: bool | None = True) -> None:
        """There is nothing more to tell: which worker took the run stands in its events."""
        del run, include_container_logs


class RunTask(Task):  # type: ignore[misc]
    """A run as a task: its worker is seen to be at work on it, and hears when it is cancelled."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run_id = unpack_value(kwargs["execute_job_args_packed"]).run_id
        with dg.DagsterInstance.get() as instance:
            run = instance.get_run_by_id(run_id)
            instance.report_engine_event(f"Executing the run in worker {self.request.hostname}", run)
        with watch_run(run_id):
            return super().__call__(*args, **kwargs)


@contextmanager
def watch_run(run_id: str) -> Iterator[None]:
    """Hold the run's lock, and interrupt this process when the run is not wanted any more."""
    held, over = Event(), Event()
    watch = Thread(target=_hold_and_poll, args=(run_id, held, over), name=f"watch-{run_id}", daemon=True)
    watch.start()
    held.wait(timeout=30)
    try:
        yield
    finally:
        over.set()
        watch.join()


def _hold_and_poll(run_id: str, held: Event, over: Event) -> None:
    while not over.is_set():
        try:
            with hold_lock(_connect_storage(), _lock_name(run_id)) as connection, dg.DagsterInstance.get() as instance:
                held.set()
                while not over.wait(_POLL_SECONDS):
                    connection.exec_driver_sql("SELECT 1")
                    run = instance.get_run_by_id(run_id)
                    if run is None or run.status in _STOPPED:
                        os.kill(os.getpid(), signal.SIGINT)
        except Exception:  # the database went away; the lock is taken again when it is back
            logger.warning("run %s cannot be watched, trying again", run_id, exc_info=True)
            over.wait(_POLL_SECONDS)


app = make_app({})
app.add_defaults(lambda: {"broker_url": broker_url(Settings()), "task_default_queue": QUEUE, **CELERY_CONFIG})
execute_job = create_execute_job_task(app, base=RunTask)
worker_init.connect(lambda **_: create_queue(app), weak=False)
