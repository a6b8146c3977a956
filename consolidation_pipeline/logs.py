"""Logging: text or JSON lines with structured fields such as project, job and request.

Each command calls ``configure`` once. Dagster's own processes keep Dagster's handlers. ``dagster.yaml`` sends the logs
of this package to the event log of the run.
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
_CONTEXT: ContextVar[Mapping[str, Any] | None] = ContextVar("log_context", default=None)


@contextmanager
def log_context(fields: dict[str, Any]) -> Iterator[None]:
    """Add ``fields`` such as ``project`` and ``job``, and later changes of them, to all lines logged in the block.

    This includes threads that run in a copy of this context, as threads of requests do.
    """
    token = _CONTEXT.set(ChainMap(fields, dict(_CONTEXT.get() or {})))
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def configure() -> None:
    """Log warnings to standard error, in the format of ``CONSOLIDATION_LOG_FORMAT`` (see ``settings.py``)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if os.environ.get(FORMAT_VARIABLE) == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _collect_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a line: those of ``extra={"fields": ..}``, of the context and of the current span."""
    return {**getattr(record, "fields", {}), **(_CONTEXT.get() or {}), **get_trace_ids()}


class TextFormatter(logging.Formatter):
    """Text lines, ``LEVEL logger: message name=value ..``. Values are quoted: they cannot forge fields or lines."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, without its traceback."""
        fields = (f"{name}={quote(str(value), safe='/:.,')}" for name, value in _collect_fields(record).items())
        return " ".join([super().formatMessage(record), *fields])


class JsonFormatter(logging.Formatter):
    """JSON lines: ``time`` (UTC), ``level``, ``logger``, ``message``, the fields, and ``error`` (a traceback)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_collect_fields(record),
        }
        error = {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(fields | error, default=str, ensure_ascii=False)
