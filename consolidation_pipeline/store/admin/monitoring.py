"""What is watched from outside: work that waits, and totals that only grow, over all projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.schema import JOB_STATUSES, LIVE_JOB_STATUSES, SCHEMA
from consolidation_pipeline.store.jobs.event_outbox import count_waiting_events

# Under so many bytes the table of memories is counted, which takes some 20 ms; beyond, the statistics have to do.
COUNTED_BYTES = 32_000_000


@dataclass(frozen=True)
class Waiting:
    """Jobs that did not end, by status; the age in seconds of the oldest that did not begin, 0 without any; events to
    be delivered. All of it is read from indexes of what waits.
    """

    jobs: Mapping[str, int]
    oldest_pending_seconds: float
    events: int


def read_waiting(connection: Connection) -> Waiting:
    """What waits now, in all projects."""
    query = """
        SELECT status, count(*) AS jobs, extract(epoch FROM now() - min(created_at))::float8 AS oldest
        FROM consolidation.consolidation_jobs WHERE status IN ('pending', 'running') GROUP BY 1
    """
    rows = {row.status: row for row in connection.execute(text(query))}
    jobs = dict.fromkeys(LIVE_JOB_STATUSES, 0) | {status: row.jobs for status, row in rows.items()}
    oldest = float(rows["pending"].oldest) if "pending" in rows else 0.0
    return Waiting(jobs, oldest, count_waiting_events(connection))


@dataclass(frozen=True)
class Totals:
    """Sums over all there ever was, and over what there is.

    ``ended``: jobs by how they ended; ``run_seconds``: of completed ones in all; ``runs_within``: how many of them took
    at most as many seconds as each of the bounds asked for. ``usd``, ``tokens_sent``, ``tokens_received``: of calls to
    models that ended, by ``calls``, how; ``usd_reserved``: of those under way or lost. ``suggestions``: that wait.
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


def sum_up(connection: Connection, bounds: Sequence[float]) -> Totals:
    """Sum up jobs and calls to models; reads each row of both. What was spent stays when a project is deleted."""
    within = ", ".join(f"count(*) FILTER (WHERE completed AND duration_seconds <= {float(bound)})" for bound in bounds)
    ended = ", ".join(f"count(*) FILTER (WHERE status = '{status}')" for status in _ENDED)
    jobs = connection.execute(
        text(
            f"SELECT {ended}, coalesce(sum(duration_seconds) FILTER (WHERE completed), 0), {within} "
            "FROM (SELECT *, status = 'completed' AS completed FROM consolidation.consolidation_jobs) jobs"
        )
    ).one()
    calls = {row.status: row for row in connection.execute(text(_CALLS))}
    paid = [row for status, row in calls.items() if status in ("settled", "failed")]
    waiting = "SELECT count(*) FROM consolidation.consolidation_suggestions WHERE status = 'pending'"
    return Totals(
        ended=dict(zip(_ENDED, jobs, strict=False)),
        run_seconds=jobs[len(_ENDED)],
        runs_within=jobs[len(_ENDED) + 1 :],
        calls={status: calls[status].calls if status in calls else 0 for status in ("settled", "failed", "cached")},
        usd=sum(float(row.usd) for row in paid),
        tokens_sent=sum(int(row.sent) for row in paid),
        tokens_received=sum(int(row.received) for row in paid),
        usd_reserved=float(calls["reserved"].reserved) if "reserved" in calls else 0.0,
        suggestions=int(connection.execute(text(waiting)).scalar_one()),
    )


_ENDED = tuple(status for status in JOB_STATUSES if status not in LIVE_JOB_STATUSES)
_CALLS = """
    SELECT status, count(*) AS calls, coalesce(sum(cost_usd), 0) AS usd, sum(reserved_usd) AS reserved,
        sum(prompt_tokens::bigint) AS sent, sum(completion_tokens::bigint) AS received
    FROM consolidation.llm_calls GROUP BY status
"""


def estimate_memories(connection: Connection) -> dict[str, int]:
    """Raw memories that are active, consolidated and archived: counted in a small table, else what Postgres estimates.

    An estimate is as of the last (auto)vacuum or analyze, a few per cent off, and costs nothing.
    """
    size = connection.execute(text("SELECT pg_relation_size('consolidation.task_memories')")).scalar_one()
    query = _COUNTED if size < COUNTED_BYTES else _ESTIMATED
    active, consolidated, archived = connection.execute(text(query), {"schema": SCHEMA}).one()
    return {"active": int(active), "consolidated": int(consolidated), "archived": int(archived)}


_COUNTED = """
    SELECT count(*) FILTER (WHERE NOT is_archived AND NOT is_consolidated),
        count(*) FILTER (WHERE is_consolidated AND NOT is_archived), count(*) FILTER (WHERE is_archived)
    FROM consolidation.task_memories
"""
# The share of rows for which a column is true, of the commonest values that ANALYZE found.
_SHARE = """coalesce((SELECT s.most_common_freqs[array_position(s.most_common_vals::text::text[], 't')]
    FROM pg_stats s WHERE s.schemaname = :schema AND s.tablename = 'task_memories' AND s.attname = '{}'), 0)"""
_ESTIMATED = f"""
    SELECT greatest(a.reltuples, 0), greatest(t.reltuples, 0) * {_SHARE.format("is_consolidated")},
        greatest(t.reltuples, 0) * {_SHARE.format("is_archived")}
    FROM pg_class t, pg_class a
    WHERE t.oid = 'consolidation.task_memories'::regclass AND a.oid = 'consolidation.task_memories_active_idx'::regclass
"""
