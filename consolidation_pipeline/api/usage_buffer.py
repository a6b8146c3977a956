"""Buffer of memory uses by HTTP searches, written in batches: many searches share one wait for the database."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from threading import Lock
from uuid import UUID

import anyio
from fastapi.concurrency import run_in_threadpool

from consolidation_pipeline.core.search.results import SearchHit
from consolidation_pipeline.service.search.hybrid_search import count_uses
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.raw_connections import autocommit_connection

logger = logging.getLogger("consolidation_pipeline.api")

# Uses are written with this delay; a killed process loses the uses of this interval.
_FLUSH_SECONDS = 0.1


class UsageBuffer:
    """Search hits whose use is not counted yet. Threads may share it."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock = engine, Lock()
        self._pending = defaultdict[UUID, list[SearchHit]](list)
        self._is_running = False

    def add(self, project_id: UUID, hits: Sequence[SearchHit]) -> None:
        """Count one use of each hit in a project: soon, while ``run`` is entered, otherwise at once."""
        with self._lock:
            self._pending[project_id] += hits
        if not self._is_running:
            self.flush()

    def flush(self) -> None:
        """Count the buffered uses."""
        with self._lock:
            pending, self._pending = self._pending, defaultdict(list)
        with autocommit_connection(self._engine) as connection:
            for project_id, hits in pending.items():
                count_uses(connection, project_id, hits)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Count buffered uses periodically, and the rest on exit."""
        async with anyio.create_task_group() as tasks:
            self._is_running = True
            tasks.start_soon(self._flush_periodically)
            yield
            self._is_running = False
            tasks.cancel_scope.cancel()
        await run_in_threadpool(self._try_to_flush)

    async def _flush_periodically(self) -> None:
        while True:
            await anyio.sleep(_FLUSH_SECONDS)
            if self._pending:
                await run_in_threadpool(self._try_to_flush)

    def _try_to_flush(self) -> None:
        try:
            self.flush()
        except Exception as error:  # the searches are answered already; only these uses are lost
            logger.error("uses of memories could not be counted", exc_info=error)
