"""The spend ledger and reply cache: what a call may cost is reserved before it is made and settled after it.

A process that dies in between leaves its reservation behind, and that counts as spent for good: whether the provider
billed the call nobody can say any more. Replies are shared within one project only, as they repeat its private text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.core.jobs.spending import Bill, Budgets, Call, Spent
from consolidation_pipeline.errors import AttemptsExhaustedError, BudgetExhaustedError, ConflictError
from consolidation_pipeline.store.database.engine import hold_until_commit

_TODAY = "date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"


@dataclass(frozen=True)
class EarlierReplies:
    """What a prompt was answered before: the accepted reply, if any, and the refused ones of this job, oldest first.

    A refused one is the text of the reply and what was wrong with it.
    """

    accepted: Any = None
    refused: tuple[tuple[str, str], ...] = ()


def load_replies(
    connection: Connection, project_id: UUID, job_id: UUID, prompt_hashes: Sequence[str]
) -> dict[str, EarlierReplies]:
    """Earlier replies by prompt hash; prompts without any are left out."""
    rows = connection.execute(
        text(
            "SELECT prompt_hash, status, response, error_message FROM consolidation.llm_calls "
            "WHERE project_id = :project AND prompt_hash = ANY(:hashes) AND response IS NOT NULL "
            "AND (status = 'settled' OR (status = 'failed' AND job_id = :job)) ORDER BY settled_at, id"
        ),
        {"project": project_id, "job": job_id, "hashes": list(prompt_hashes)},
    )
    found: dict[str, EarlierReplies] = {}
    for row in rows:
        earlier = found.get(row.prompt_hash, EarlierReplies())
        if row.status == "settled":
            found[row.prompt_hash] = EarlierReplies(row.response, earlier.refused)
        else:
            refused = (*earlier.refused, (row.response, row.error_message))
            found[row.prompt_hash] = EarlierReplies(earlier.accepted, refused)
    return found


def append_cached(connection: Connection, project_id: UUID, job_id: UUID, prompt_hashes: Sequence[str]) -> None:
    """Note that the replies to these prompts were taken from the cache: rows that cost nothing."""
    connection.execute(
        text(
            "INSERT INTO consolidation.llm_calls (project_id, job_id, purpose, model, prompt_hash, status, cost_usd, settled_at) "
            "SELECT DISTINCT ON (prompt_hash) project_id, CAST(:job AS uuid), purpose, model, prompt_hash, 'cached', "
            "0, now() FROM consolidation.llm_calls "
            "WHERE project_id = :project AND prompt_hash = ANY(:hashes) AND status = 'settled'"
        ),
        {"project": project_id, "job": job_id, "hashes": list(prompt_hashes)},
    )


def reserve_call(
    connection: Connection,
    project_id: UUID,
    job_id: UUID,
    *,
    call: Call,
    budgets: Budgets,
    max_attempts: int,
    again: bool = False,
) -> UUID | None:
    """Reserve the most that a call may cost, and count the attempt; returns the call's id.

    None: the prompt has an accepted reply by now, so there is nothing to pay for (``again``: ask nevertheless). To hold
    across processes, the transaction must be committed before the call is made.

    Raises:
        BudgetExhaustedError: the call might exceed a budget; the message names it, what is spent and what the call may
        cost. AttemptsExhaustedError: this job sent the prompt ``max_attempts`` times already.
    """
    # One reservation of a project at a time: what is read below is still so when the row is written.
    hold_until_commit(connection, f"spending:{project_id}")
    tried = _load_attempts(connection, project_id, job_id, call.prompt_hash)
    if tried.accepted and not again:
        return None
    if tried.attempts >= max_attempts:
        raise AttemptsExhaustedError(
            f"prompt {call.purpose} ({call.prompt_hash[:12]}) was sent to {call.model} {tried.attempts} times by this "
            f"job, {max_attempts} are allowed; the last time: {tried.last_error or 'the process died'}"
        )
    exceeded = budgets.find_exceeded(sum_spending(connection, project_id, job_id), call.most)
    if exceeded is not None:
        raise BudgetExhaustedError(f"{call.purpose} was not sent to {call.model}: {exceeded}")
    return _insert(connection, project_id, job_id, call, tried.attempts + 1)


def _load_attempts(connection: Connection, project_id: UUID, job_id: UUID, prompt_hash: str) -> Any:
    """Calls of the job for the prompt, the newest one's error, and whether the project has an accepted reply.

    A call that was settled without a reply to keep, as those of embedding models are, may be made again.
    """
    query = """
        SELECT count(*) FILTER (WHERE job_id = :job AND status <> 'cached'
                AND NOT (status = 'settled' AND response IS NULL)) AS attempts,
            coalesce(bool_or(status = 'settled' AND response IS NOT NULL), false) AS accepted,
            (array_agg(error_message ORDER BY created_at DESC) FILTER (WHERE job_id = :job))[1] AS last_error
        FROM consolidation.llm_calls WHERE project_id = :project AND prompt_hash = :hash
    """
    return connection.execute(text(query), {"project": project_id, "job": job_id, "hash": prompt_hash}).one()


def _insert(connection: Connection, project_id: UUID, job_id: UUID, call: Call, attempt: int) -> UUID:
    call_id: UUID = connection.execute(
        text(
            "INSERT INTO consolidation.llm_calls (project_id, job_id, purpose, model, prompt_hash, status, attempt, prompt_tokens, "
            "completion_tokens, reserved_usd, created_at) VALUES (:project, :job, :purpose, :model, :hash, 'reserved', "
            # Not now(): the day of a call that waited for the lock over midnight is the one whose budget was looked at.
            ":attempt, :sent, :received, :usd, clock_timestamp()) RETURNING id"
        ),
        {
            "project": project_id,
            "job": job_id,
            "purpose": call.purpose,
            "model": call.model,
            "hash": call.prompt_hash,
            "attempt": attempt,
            "sent": call.most.prompt_tokens,
            "received": call.most.completion_tokens,
            "usd": call.most.usd,
        },
    ).scalar_one()
    return call_id


def sum_spending(connection: Connection, project_id: UUID, job_id: UUID) -> Spent:
    """What the job and, since midnight UTC, the project spent; calls that are not settled count as reserved."""
    query = f"""
        SELECT coalesce(sum(coalesce(cost_usd, reserved_usd)) FILTER (WHERE job_id = :job), 0) AS run,
            coalesce(sum(coalesce(cost_usd, reserved_usd)) FILTER (WHERE created_at >= {_TODAY}), 0) AS day,
            coalesce(sum(prompt_tokens::bigint + completion_tokens) FILTER (WHERE job_id = :job), 0) AS tokens
        FROM consolidation.llm_calls WHERE project_id = :project AND (job_id = :job OR created_at >= {_TODAY})
    """
    row = connection.execute(text(query), {"project": project_id, "job": job_id}).one()
    return Spent(row.run, row.day, int(row.tokens))


@dataclass(frozen=True)
class JobSpending:
    """What a job spent: US dollars, tokens, calls made, and replies ``cached``, which were taken from the cache."""

    usd: Decimal
    tokens: int
    calls: int
    cached: int

    def __sub__(self, before: JobSpending) -> JobSpending:
        """What was spent since ``before``."""
        return JobSpending(
            self.usd - before.usd, self.tokens - before.tokens, self.calls - before.calls, self.cached - before.cached
        )


def sum_job(connection: Connection, job_id: UUID) -> JobSpending:
    """What a job spent so far, refused replies included; calls that are not settled count as reserved."""
    query = """
        SELECT coalesce(sum(coalesce(cost_usd, reserved_usd)), 0) AS usd,
            coalesce(sum(prompt_tokens::bigint + completion_tokens), 0) AS tokens,
            count(*) FILTER (WHERE status <> 'cached') AS calls, count(*) FILTER (WHERE status = 'cached') AS cached
        FROM consolidation.llm_calls WHERE job_id = :job
    """
    row = connection.execute(text(query), {"job": job_id}).one()
    return JobSpending(Decimal(row.usd), int(row.tokens), row.calls, row.cached)


def settle_call(connection: Connection, call_id: UUID, *, bill: Bill | None, response: Any) -> None:
    """Record an accepted reply and what it cost; ``bill`` None = not known, the reservation stands.

    ``response``: the reply as JSON values, for the cache; None = one that is not kept.

    Raises:
        ConflictError: the call is not reserved any more.
    """
    _end(connection, call_id, "settled", bill=bill, response=response)


def fail_call(
    connection: Connection, call_id: UUID, *, bill: Bill | None, error: str, response: str | None = None
) -> None:
    """Record why a call failed, what it cost (None = not known, the reservation stands) and the refused reply, if any.

    Raises:
        ConflictError: the call is not reserved any more.
    """
    _end(connection, call_id, "failed", bill=bill, response=response, error=error)


def _end(
    connection: Connection, call_id: UUID, status: str, *, bill: Bill | None, response: Any, error: str | None = None
) -> None:
    billed = bill and {"sent": bill.prompt_tokens, "received": bill.completion_tokens, "usd": bill.usd}
    done = connection.execute(
        text(
            "UPDATE consolidation.llm_calls SET status = :status, settled_at = clock_timestamp(), "
            "response = CAST(:response AS jsonb), error_message = :error, "
            "cost_usd = coalesce(CAST(:usd AS numeric), reserved_usd), "
            "prompt_tokens = coalesce(CAST(:sent AS integer), prompt_tokens), "
            "completion_tokens = coalesce(CAST(:received AS integer), completion_tokens) "
            "WHERE id = :call AND status = 'reserved'"
        ),
        {
            "call": call_id,
            "status": status,
            "response": None if response is None else json.dumps(response),
            "error": None if error is None else error.replace("\0", ""),
            **(billed or {"sent": None, "received": None, "usd": None}),
        },
    ).rowcount
    if not done:
        raise ConflictError(f"call {call_id} cannot be {status}: it is not reserved; each call ends once")


@dataclass(frozen=True)
class SpendLedger:
    """The ledger of one job, as the gateway uses it: every method is a transaction of its own."""

    engine: Engine
    project_id: UUID
    job_id: UUID
    budgets: Budgets

    def load(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """See :func:`load_replies`; what is in the cache is noted as taken from there."""
        with self.engine.begin() as connection:
            found = load_replies(connection, self.project_id, self.job_id, prompt_hashes)
            cached = [key for key, earlier in found.items() if earlier.accepted is not None]
            if cached:
                append_cached(connection, self.project_id, self.job_id, cached)
        return found

    def reserve(self, call: Call, *, max_attempts: int, again: bool = False) -> UUID | None:
        """See :func:`reserve_call`."""
        with self.engine.begin() as connection:
            return reserve_call(
                connection,
                self.project_id,
                self.job_id,
                call=call,
                budgets=self.budgets,
                max_attempts=max_attempts,
                again=again,
            )

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        """See :func:`settle_call`."""
        with self.engine.begin() as connection:
            settle_call(connection, call_id, bill=bill, response=response)

    def fail(self, call_id: UUID, bill: Bill | None, error: str, response: str | None = None) -> None:
        """See :func:`fail_call`."""
        with self.engine.begin() as connection:
            fail_call(connection, call_id, bill=bill, error=error, response=response)
