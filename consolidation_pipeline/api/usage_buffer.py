"""Uses of memories by searches over HTTP, counted some at a time: many searches together wait for the database once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from threading import Lock

import anyio
from fastapi.concurrency import run_in_threadpool

from consolidation_pipeline.service.search.hybrid_search import Hit, count_hits
from consolidation_pipeline.store.database.engine import Engine

logger = logging.getLogger("consolidation_pipeline.api")

# So long uses are gathered; as late is what counts them, and as much is lost with a process that is killed.
_FLUSH_SECONDS = 0.1


class UsageBuffer:
    """What was handed out and is not counted yet. Threads may share it."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock = engine, Lock()
        self._waiting: list[Hit] = []
        self._gathers = False

    def add(self, hits: Sequence[Hit]) -> None:
        """Have one use of each hit counted: soon while ``run`` lasts, at once otherwise."""
        with self._lock:
            self._waiting += hits
        if not self._gathers:
            self.count()

    def count(self) -> None:
        """Count what waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        count_hits(self._engine, waiting)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Count what was gathered, again and again; in the end the rest."""
        async with anyio.create_task_group() as tasks:
            self._gathers = True
            tasks.start_soon(self._count_often)
            yield
            self._gathers = False
            tasks.cancel_scope.cancel()
        await run_in_threadpool(self._try_to_count)

    async def _count_often(self) -> None:
        while True:
            await anyio.sleep(_FLUSH_SECONDS)
            if self._waiting:
                await run_in_threadpool(self._try_to_count)

    def _try_to_count(self) -> None:
        try:
            self.count()
        except Exception as error:  # the searches were answered: their uses go uncounted, the next ones do not
            logger.error("uses of memories could not be counted", exc_info=error)
