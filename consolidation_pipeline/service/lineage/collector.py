"""The OpenLineage collector: found in the environment, as the library reads it, and sent to in bounded time."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.webhooks.event_delivery import Receiver
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.event_outbox import OpenEvent, queue_lineage_events

if TYPE_CHECKING:
    from openlineage.client import event_v2

# Limit of an attempt in seconds, all retries of the library's transport included.
TRY_SECONDS = 15.0
_DEFAULT_NAMESPACE = "consolidation"
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE", "OPENLINEAGE__TRANSPORT")
# The library would name the repository of the folder in which the process happens to run.
_NO_SOURCE_CODE = {"facets": {"source_code_location": {"disabled": True}}}


def is_configured(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if the environment names a collector: OPENLINEAGE_URL, _CONFIG or __TRANSPORT__TYPE.

    An ``openlineage.yml`` that only lies in the current folder or the home folder is not enough, so that nothing is
    sent that nobody asked for.
    """
    is_disabled = environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"
    return not is_disabled and any(environment.get(name) for name in _VARIABLES)


def read_namespace() -> str:
    """Return the namespace of jobs: OPENLINEAGE_NAMESPACE, as other integrations read it."""
    return os.environ.get("OPENLINEAGE_NAMESPACE") or _DEFAULT_NAMESPACE


def list_event_lines(engine: Engine, job_id: UUID) -> list[str]:
    """Return the events of a job, each as a line of JSON.

    Raises:
        NotFoundError: There is no such job, or it never began to run.
        UsageError: The library is not installed.
    """
    _require_library()
    from consolidation_pipeline.service.lineage.run_events import build_events, load_job_record, to_json

    return [to_json(event) for event in build_events(load_job_record(engine, job_id, namespace=read_namespace()))]


def find_receivers(engine: Engine) -> list[Receiver]:
    """Return the collector as a receiver of events; none if it is not configured.

    Its events are queued when they are delivered, from the begins and ends of jobs that are in the outbox anyhow. So a
    run neither knows of the collector nor waits for it.
    """
    if not is_configured():
        return []
    return [Receiver("openlineage", partial(_send_event, engine), queue_lineage_events)]


def _send_event(engine: Engine, event: OpenEvent) -> str | None:
    """Try once to send the begin or end of a job; return None, or why the collector did not take it."""
    try:
        _require_library()
        from consolidation_pipeline.service.lineage.run_events import build_events, load_job_record

        events = build_events(load_job_record(engine, UUID(event.payload["job_id"]), namespace=read_namespace()))
    except UsageError as error:
        return str(error)
    return _emit(events[0] if event.type == "openlineage.start" else events[-1])


def _emit(event: event_v2.RunEvent) -> str | None:
    failures: list[str] = []

    def emit() -> None:
        from openlineage.client import OpenLineageClient

        try:
            client = OpenLineageClient(config=_NO_SOURCE_CODE)
            client.emit(event)
            if not client.close(TRY_SECONDS):
                failures.append("the transport could not send all in time")
        except Exception as error:
            failures.append(_describe(error))

    # The transport's own limits are per read and retry. The thread is left behind if it hangs; it ends with those.
    sender = threading.Thread(target=emit, name="openlineage", daemon=True)
    sender.start()
    sender.join(TRY_SECONDS)
    if sender.is_alive():
        return f"no answer within {TRY_SECONDS:g} s"
    return failures[0] if failures else None


def _describe(error: Exception) -> str:
    """Return what went wrong, without the URL, as it may hold a secret."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the collector answered {response.status_code}"
    if isinstance(error, OSError):
        return f"no connection to the collector: {type(error).__name__}"
    url = os.environ.get("OPENLINEAGE_URL")
    message = str(error).replace(url, "(the URL)") if url else str(error)
    return f"the configuration of OpenLineage is wrong: {type(error).__name__}: {message}"


def _require_library() -> None:
    try:
        import openlineage.client  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("openlineage"):
            raise
        raise UsageError("openlineage-python is not installed: install consolidation-pipeline[openlineage]") from None
