"""Ledger of calls to models: reply cache and budgets. A call reserves its highest cost first and is settled later.

If the process dies in between, the reservation stays and counts as spent: nobody can tell any more if the provider
billed the call. Replies are cached within one project only, as they repeat its private text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.core.jobs.spending import Bill, Budgets, Call, Spent
from consolidation_pipeline.errors import AttemptsExhaustedError, BudgetExhaustedError, ConflictError
from consolidation_pipeline.store.database.engine import lock_until_commit
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.jobs.prompt_claims import hold_prompt

# SQL of sums over calls. An open call counts as reserved: `reserved_usd` is the part of `cost_usd` that is not settled.
COST_SUMS = """
    count(*) FILTER (WHERE status <> 'cached') AS calls, count(*) FILTER (WHERE status = 'failed') AS failed,
    count(*) FILTER (WHERE status = 'cached') AS cached, count(*) FILTER (WHERE status = 'reserved') AS reserved,
    coalesce(sum(prompt_tokens::bigint + completion_tokens), 0)::bigint AS tokens,
    coalesce(sum(coalesce(cost_usd, reserved_usd)), 0) AS cost_usd,
    coalesce(sum(reserved_usd) FILTER (WHERE status = 'reserved'), 0) AS reserved_usd
"""


@dataclass(frozen=True)
class EarlierReplies:
    """Earlier replies to a prompt.

    ``accepted``: the accepted reply, if any. ``refused``: text and fault of each reply that this job refused, or a job
    before it that did not complete, oldest first.
    """

    accepted: Any = None
    refused: tuple[tuple[str, str], ...] = ()


# A job continues the work of those before it, back to the last one that completed. What a
# completed job was refused is asked again. A plan has no job: it is made for the next one.
_LOAD_REPLIES = """
    WITH this AS (SELECT coalesce(
        (SELECT started_at FROM consolidation.consolidation_jobs WHERE id = :job), 'infinity') AS start),
    completed AS (
        SELECT max(started_at) AS start FROM consolidation.consolidation_jobs
        WHERE project_id = :project AND status = 'completed' AND started_at < (SELECT start FROM this)),
    continued AS (
        SELECT j.id FROM this, completed, consolidation.consolidation_jobs j
        WHERE j.project_id = :project AND j.status <> 'completed' AND j.started_at < this.start
            AND j.started_at > coalesce(completed.start, '-infinity'))
    SELECT prompt_hash, status, response, error_message FROM consolidation.llm_calls
    WHERE project_id = :project AND prompt_hash = ANY(:hashes) AND response IS NOT NULL
        AND (status = 'settled' OR (status = 'failed' AND (job_id = :job OR job_id IN (SELECT id FROM continued))))
    ORDER BY settled_at, id
"""


def load_replies(
    connection: Connection, project_id: UUID, job_id: UUID, prompt_hashes: Sequence[str]
) -> dict[str, EarlierReplies]:
    """Return earlier replies by prompt hash; prompts without any are left out."""
    parameters = {"project": project_id, "job": job_id, "hashes": list(prompt_hashes)}
    found: dict[str, EarlierReplies] = {}
    for row in connection.execute(text(_LOAD_REPLIES), parameters):
        earlier = found.get(row.prompt_hash, EarlierReplies())
        if row.status == "settled":
            found[row.prompt_hash] = EarlierReplies(row.response, earlier.refused)
        else:
            refused = (*earlier.refused, (row.response, row.error_message))
            found[row.prompt_hash] = EarlierReplies(earlier.accepted, refused)
    return found


# Calls of a project that show how bills compare with reservations.
_RECENT_CALLS = 500

# A model may be billed for more than was reserved, as tokens are counted by another tokenizer. Then open calls and the
# next ones count as many times their reservation as the worst of the recent bills.
_LOAD_SPENT = """
    WITH today AS (SELECT date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS midnight),
    recent AS (
        SELECT model, cost_usd / nullif(reserved_usd, 0) AS ratio FROM consolidation.llm_calls
        WHERE project_id = :project ORDER BY created_at DESC LIMIT :recent),
    margins AS (SELECT model, greatest(1, max(ratio)) AS margin FROM recent GROUP BY model),
    calls AS (
        SELECT job_id = :job AS in_run, created_at >= midnight AS in_day,
            coalesce(cost_usd, reserved_usd * coalesce(margin, 1)) AS usd,
            (prompt_tokens::bigint + completion_tokens)
                * CASE WHEN cost_usd IS NULL THEN coalesce(margin, 1) ELSE 1 END AS tokens
        FROM today, consolidation.llm_calls LEFT JOIN margins USING (model)
        WHERE project_id = :project AND (job_id = :job OR created_at >= midnight))
    SELECT coalesce(sum(usd) FILTER (WHERE in_run), 0) AS run, coalesce(sum(usd) FILTER (WHERE in_day), 0) AS day,
        ceil(coalesce(sum(tokens) FILTER (WHERE in_run), 0)) AS tokens,
        coalesce((SELECT margin FROM margins WHERE model = :model), 1) AS margin
    FROM calls
"""

_HAS_BILL = """
    SELECT EXISTS (SELECT 1 FROM (
        SELECT model, cost_usd FROM consolidation.llm_calls
        WHERE project_id = :project ORDER BY created_at DESC LIMIT :recent) recent
    WHERE model = :model AND cost_usd > 0)
"""


def load_spent(connection: Connection, project_id: UUID, job_id: UUID, model: str = "") -> Spent:
    """Return what the job and, since midnight UTC, the project spent; open calls count as reserved.

    ``model``: the one that is to be called next, for the margin of its bill.
    """
    parameters = {"project": project_id, "job": job_id, "model": model, "recent": _RECENT_CALLS}
    row = connection.execute(text(_LOAD_SPENT), parameters).one()
    return Spent(row.run, row.day, int(row.tokens), row.margin)


@dataclass(frozen=True)
class JobSpending:
    """Costs of a job: US dollars, tokens, calls made, and replies taken from the cache (``cached``)."""

    usd: Decimal
    tokens: int
    calls: int
    cached: int

    def __sub__(self, before: JobSpending) -> JobSpending:
        """Return what was spent since ``before``."""
        return JobSpending(
            self.usd - before.usd, self.tokens - before.tokens, self.calls - before.calls, self.cached - before.cached
        )


_SUM_JOB_SPENDING = compose(
    "SELECT /* cost_sums */ FROM consolidation.llm_calls WHERE job_id = :job", cost_sums=COST_SUMS
)


def sum_job_spending(connection: Connection, job_id: UUID) -> JobSpending:
    """Return what a job spent so far, refused replies included; open calls count as reserved."""
    row = connection.execute(text(_SUM_JOB_SPENDING), {"job": job_id}).one()
    return JobSpending(Decimal(row.cost_usd), int(row.tokens), row.calls, row.cached)


_APPEND_CACHED_CALLS = """
    INSERT INTO consolidation.llm_calls
        (project_id, job_id, purpose, model, prompt_hash, status, cost_usd, settled_at)
    SELECT DISTINCT ON (prompt_hash)
        project_id, CAST(:job AS uuid), purpose, model, prompt_hash, 'cached', 0, now()
    FROM consolidation.llm_calls
    WHERE project_id = :project AND prompt_hash = ANY(:hashes) AND status = 'settled'
"""

# A call that was settled without a reply to keep, as of an embedding model, is no attempt: it may be repeated.
_LOAD_ATTEMPTS = """
    SELECT count(*) FILTER (
            WHERE job_id = :job AND status <> 'cached' AND NOT (status = 'settled' AND response IS NULL)) AS attempts,
        coalesce(bool_or(status = 'settled' AND response IS NOT NULL), false) AS accepted,
        (array_agg(error_message ORDER BY created_at DESC) FILTER (WHERE job_id = :job))[1] AS last_error
    FROM consolidation.llm_calls WHERE project_id = :project AND prompt_hash = :hash
"""

# Not now(): if the call waited for the lock past midnight, it belongs to the day whose budget was checked.
_RESERVE_CALL = """
    INSERT INTO consolidation.llm_calls (
        project_id, job_id, purpose, model, prompt_hash, status, attempt,
        prompt_tokens, completion_tokens, reserved_usd, created_at)
    VALUES (:project, :job, :purpose, :model, :hash, 'reserved', :attempt, :sent, :received, :usd, clock_timestamp())
    RETURNING id
"""

_END_CALL = """
    UPDATE consolidation.llm_calls
    SET status = :status, settled_at = clock_timestamp(), response = CAST(:response AS jsonb), error_message = :error,
        cost_usd = coalesce(CAST(:usd AS numeric), reserved_usd),
        prompt_tokens = coalesce(CAST(:sent AS integer), prompt_tokens),
        completion_tokens = coalesce(CAST(:received AS integer), completion_tokens)
    WHERE id = :call AND status = 'reserved'
"""


@dataclass(frozen=True)
class SpendLedger:
    """Ledger of one job, as the gateway uses it. Each method is a transaction of its own."""

    engine: Engine
    project_id: UUID
    job_id: UUID
    budgets: Budgets

    def find(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """Return earlier replies, see ``load_replies``."""
        with self.engine.connect() as connection:
            return load_replies(connection, self.project_id, self.job_id, prompt_hashes)

    def load(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """Return earlier replies, see ``load_replies``, and record accepted ones as calls that cost nothing."""
        with self.engine.begin() as connection:
            found = load_replies(connection, self.project_id, self.job_id, prompt_hashes)
            cached = [key for key, earlier in found.items() if earlier.accepted is not None]
            if cached:
                parameters = {"project": self.project_id, "job": self.job_id, "hashes": cached}
                connection.execute(text(_APPEND_CACHED_CALLS), parameters)
        return found

    def claim(self, prompt_hash: str) -> AbstractContextManager[bool]:
        """Hold a prompt of the project while it is asked, see ``hold_prompt``."""
        return hold_prompt(self.engine, self.project_id, prompt_hash)

    def has_bill(self, model: str) -> bool:
        """Return True if the project was billed for a call of the model, so that the margin of its bills is known."""
        parameters = {"project": self.project_id, "model": model, "recent": _RECENT_CALLS}
        with self.engine.connect() as connection:
            return bool(connection.execute(text(_HAS_BILL), parameters).scalar())

    def reserve(self, call: Call, *, max_attempts: int, again: bool = False) -> UUID | None:
        """Reserve the highest cost of a call and count the attempt, before the call is made.

        Args:
            call: Prompt, model and highest cost.
            max_attempts: How often one job may send a prompt.
            again: Reserve even if the prompt has an accepted reply.

        Returns:
            Id of the reserved call; None if the prompt has an accepted reply, so that there is nothing to pay for.

        Raises:
            BudgetExhaustedError: The call might exceed a budget; the message names the budget and both sums.
            AttemptsExhaustedError: This job sent the prompt ``max_attempts`` times already.
        """
        prompt = {"project": self.project_id, "job": self.job_id, "hash": call.prompt_hash}
        with self.engine.begin() as connection:
            # One reservation of a project at a time: the sums read below must still hold when the row is written.
            lock_until_commit(connection, f"spending:{self.project_id}")
            earlier = connection.execute(text(_LOAD_ATTEMPTS), prompt).one()
            if earlier.accepted and not again:
                return None
            if earlier.attempts >= max_attempts:
                raise AttemptsExhaustedError(
                    f"prompt {call.purpose} ({call.prompt_hash[:12]}) was sent to {call.model} "
                    f"{earlier.attempts} times by this job, {max_attempts} are allowed; "
                    f"the last time: {earlier.last_error or 'the process died'}"
                )
            spent = load_spent(connection, self.project_id, self.job_id, call.model)
            exceeded = self.budgets.find_exceeded(spent, call.max_bill)
            if exceeded is not None:
                raise BudgetExhaustedError(f"{call.purpose} was not sent to {call.model}: {exceeded}")
            reserved = {
                "purpose": call.purpose,
                "model": call.model,
                "attempt": earlier.attempts + 1,
                "sent": call.max_bill.prompt_tokens,
                "received": call.max_bill.completion_tokens,
                "usd": call.max_bill.usd,
            }
            call_id: UUID = connection.execute(text(_RESERVE_CALL), {**prompt, **reserved}).scalar_one()
            return call_id

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        """Record an accepted reply and its cost.

        Args:
            call_id: The reserved call.
            bill: Tokens and cost; None = unknown, the reservation counts.
            response: The reply as JSON values, for the cache; None = not kept.

        Raises:
            ConflictError: The call is no longer reserved.
        """
        self._end(call_id, "settled", bill, response, None)

    def fail(self, call_id: UUID, bill: Bill | None, error: str, response: str | None = None) -> None:
        """Record why a call failed, with the refused reply, if any. ``bill`` and errors are those of ``settle``."""
        self._end(call_id, "failed", bill, response, error.replace("\0", ""))

    def _end(self, call_id: UUID, status: str, bill: Bill | None, response: Any, error: str | None) -> None:
        parameters = {
            "call": call_id,
            "status": status,
            "response": None if response is None else json.dumps(response),
            "error": error,
            "sent": None if bill is None else bill.prompt_tokens,
            "received": None if bill is None else bill.completion_tokens,
            "usd": None if bill is None else bill.usd,
        }
        with self.engine.begin() as connection:
            if not connection.execute(text(_END_CALL), parameters).rowcount:
                raise ConflictError(f"call {call_id} cannot be {status}: it is not reserved; each call ends once")
