"""Lines of the log: each tells the project, job and request that it is about; text, or JSON for programs.

``configure`` is called once by each command. Dagster's own processes keep Dagster's handlers; ``dagster.yaml`` has it
take what this package logs into the event log of the run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from consolidation_pipeline.tracing import get_trace_ids

FORMAT_VARIABLE = "CONSOLIDATION_LOG_FORMAT"
_CONTEXT: ContextVar[Mapping[str, Any] | None] = ContextVar("about", default=None)


@contextmanager
def log_context(facts: dict[str, Any]) -> Iterator[None]:
    """Lines logged in the block tell ``facts`` too, such as ``project`` and ``job``; what is added to them later too.

    Threads that are handed the context, as those of requests are, tell them too.
    """
    token = _CONTEXT.set(ChainMap(facts, dict(_CONTEXT.get() or {})))
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def configure() -> None:
    """Log warnings to standard error, in the format that ``CONSOLIDATION_LOG_FORMAT`` names (``settings.py``)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if os.environ.get(FORMAT_VARIABLE) == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _collect_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a line tells beside its message: the ``facts`` it was logged with (``extra``), and what it is about."""
    return {**getattr(record, "facts", {}), **(_CONTEXT.get() or {}), **get_trace_ids()}


class TextFormatter(logging.Formatter):
    """``LEVEL logger: message name=value ..``; a value cannot forge another, or another line."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without the traceback that may follow it."""
        told = (f"{name}={quote(str(value), safe='/:.,')}" for name, value in _collect_fields(record).items())
        return " ".join([super().formatMessage(record), *told])


class JsonFormatter(logging.Formatter):
    """A JSON object a line: ``time`` (UTC), ``level``, ``logger``, ``message``, the facts, ``error``: a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_collect_fields(record),
        }
        error = {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(told | error, default=str, ensure_ascii=False)
