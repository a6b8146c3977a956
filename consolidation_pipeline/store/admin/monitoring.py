"""Numbers for monitoring, over all projects: work that waits, totals, memories by state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.schema import LIVE_JOB_STATUSES
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.jobs.event_outbox import count_waiting_events

# A table of memories of up to this size is counted, which takes some 20 ms. A larger one is estimated from statistics.
MAX_COUNTED_BYTES = 32_000_000


@dataclass(frozen=True)
class WaitingWork:
    """Live jobs by status, age of the oldest pending job (0 without any), and events that wait for delivery."""

    jobs: Mapping[str, int]
    oldest_pending_seconds: float
    events: int


_LOAD_LIVE_JOBS = """
    SELECT status, count(*) AS jobs, extract(epoch FROM now() - min(created_at))::float8 AS oldest
    FROM consolidation.consolidation_jobs WHERE status IN ('pending', 'running') GROUP BY 1
"""


def load_waiting_work(connection: Connection) -> WaitingWork:
    """Return the work that waits now, read from indexes of live jobs and undelivered events."""
    rows = {row.status: row for row in connection.execute(text(_LOAD_LIVE_JOBS))}
    jobs = dict.fromkeys(LIVE_JOB_STATUSES, 0) | {status: row.jobs for status, row in rows.items()}
    oldest = float(rows["pending"].oldest) if "pending" in rows else 0.0
    return WaitingWork(jobs, oldest, count_waiting_events(connection))


@dataclass(frozen=True)
class WorkTotals:
    """Totals over all jobs and model calls, and the number of pending suggestions.

    ``ended``: jobs by final status. ``run_seconds``: total duration of the completed jobs. ``runs_within``: number of
    completed jobs that took at most as long as each bound. ``calls``: ended model calls by status. ``usd``,
    ``tokens_sent``, ``tokens_received``: of paid calls. ``usd_reserved``: of calls that are live or lost.
    """

    ended: Mapping[str, int]
    run_seconds: float
    runs_within: Sequence[int]
    calls: Mapping[str, int]
    usd: float
    tokens_sent: int
    tokens_received: int
    usd_reserved: float
    suggestions: int


_LOAD_JOB_TOTALS = """
    SELECT count(*) FILTER (WHERE status = 'completed') AS completed,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
        coalesce(sum(duration_seconds) FILTER (WHERE status = 'completed'), 0) AS run_seconds /* runs_within */
    FROM consolidation.consolidation_jobs
"""
_LOAD_CALL_TOTALS = """
    SELECT status, count(*) AS calls, coalesce(sum(cost_usd), 0) AS usd, sum(reserved_usd) AS reserved,
        sum(prompt_tokens::bigint) AS sent, sum(completion_tokens::bigint) AS received
    FROM consolidation.llm_calls GROUP BY status
"""
_COUNT_SUGGESTIONS = "SELECT count(*) FROM consolidation.consolidation_suggestions WHERE status = 'pending'"


def load_totals(connection: Connection, bounds: Sequence[float]) -> WorkTotals:
    """Return the totals; reads every job and every model call. Costs of deleted projects stay included.

    ``bounds``: upper bounds of run durations in seconds, for ``runs_within``.
    """
    within = [f", count(*) FILTER (WHERE status = 'completed' AND duration_seconds <= {float(b)})" for b in bounds]
    statement = text(compose(_LOAD_JOB_TOTALS, runs_within="".join(within)))
    completed, failed, cancelled, run_seconds, *runs_within = connection.execute(statement).one()
    calls = {row.status: row for row in connection.execute(text(_LOAD_CALL_TOTALS))}
    paid = [row for status, row in calls.items() if status in ("settled", "failed")]
    return WorkTotals(
        ended={"completed": completed, "failed": failed, "cancelled": cancelled},
        run_seconds=run_seconds,
        runs_within=runs_within,
        calls={status: calls[status].calls if status in calls else 0 for status in ("settled", "failed", "cached")},
        usd=sum(float(row.usd) for row in paid),
        tokens_sent=sum(int(row.sent) for row in paid),
        tokens_received=sum(int(row.received) for row in paid),
        usd_reserved=float(calls["reserved"].reserved) if "reserved" in calls else 0.0,
        suggestions=int(connection.execute(text(_COUNT_SUGGESTIONS)).scalar_one()),
    )


_MEMORY_TABLE_BYTES = "SELECT pg_relation_size('consolidation.task_memories')"
_COUNT_MEMORIES = """
    SELECT count(*) FILTER (WHERE NOT is_archived AND NOT is_consolidated),
        count(*) FILTER (WHERE is_consolidated AND NOT is_archived), count(*) FILTER (WHERE is_archived)
    FROM consolidation.task_memories
"""
# ``most_common_freqs`` has the share of rows in which the column is true, as ANALYZE found it.
_ESTIMATE_MEMORIES = """
    SELECT greatest(active.reltuples, 0),
        greatest(memories.reltuples, 0) * coalesce((
            SELECT s.most_common_freqs[array_position(s.most_common_vals::text::text[], 't')] FROM pg_stats s
            WHERE s.schemaname = 'consolidation' AND s.tablename = 'task_memories'
                AND s.attname = 'is_consolidated'), 0),
        greatest(memories.reltuples, 0) * coalesce((
            SELECT s.most_common_freqs[array_position(s.most_common_vals::text::text[], 't')] FROM pg_stats s
            WHERE s.schemaname = 'consolidation' AND s.tablename = 'task_memories'
                AND s.attname = 'is_archived'), 0)
    FROM pg_class memories, pg_class active
    WHERE memories.oid = 'consolidation.task_memories'::regclass
        AND active.oid = 'consolidation.task_memories_active_idx'::regclass
"""


def estimate_memories(connection: Connection) -> dict[str, int]:
    """Return the number of active, consolidated and archived raw memories.

    A small table is counted. A large one is estimated from the statistics of the last (auto)vacuum or analyze, which
    costs nothing and is a few per cent off.
    """
    size = connection.execute(text(_MEMORY_TABLE_BYTES)).scalar_one()
    statement = _COUNT_MEMORIES if size < MAX_COUNTED_BYTES else _ESTIMATE_MEMORIES
    active, consolidated, archived = connection.execute(text(statement)).one()
    return {"active": int(active), "consolidated": int(consolidated), "archived": int(archived)}
