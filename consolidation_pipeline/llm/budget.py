"""Budget reservations: interface of the ledger of model calls, and its use by several threads."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import UUID

from consolidation_pipeline.core.jobs.spending import NOTHING, Bill, Call
from consolidation_pipeline.errors import BudgetExhaustedError


class EarlierReplies(Protocol):
    """Earlier replies to one prompt."""

    @property
    def accepted(self) -> Any:
        """The accepted reply as JSON values; None if there is none."""
        ...

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """The refused replies of this job and of those that it continues, oldest first: text, and problems by line."""
        ...


class CallLedger(Protocol):
    """Ledger of model calls. A call is recorded before it is sent and after. Each method is one transaction."""

    def find(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """Return earlier replies by prompt hash. Prompts without any are left out."""
        ...

    def load(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """Return earlier replies as ``find`` does, and record the use of accepted ones."""
        ...

    def claim(self, prompt_hash: str) -> AbstractContextManager[bool]:
        """Hold a prompt while it is asked, so that no other thread or process asks it; wait for one that does.

        Yields False if another one held it before: its reply may be stored by now.
        """
        ...

    def has_bill(self, model: str) -> bool:
        """Return True if a call of the model was billed lately, so that the margin of its bills is known."""
        ...

    def reserve(self, call: Call, *, max_attempts: int, again: bool = False) -> UUID | None:
        """Reserve the money for a call and return its id.

        Args:
            call: The call, with the most that it can cost.
            max_attempts: Requests that one job may make for one prompt.
            again: Reserve even if an accepted reply exists.

        Returns:
            None if an accepted reply was stored in the meantime and ``again`` is False.

        Raises:
            BudgetExhaustedError: The call could exceed a budget.
            AttemptsExhaustedError: The job made ``max_attempts`` requests for this prompt.
        """
        ...

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        """Record an accepted reply. ``response`` None: not stored. ``bill`` None: the reserved amount counts."""
        ...

    def fail(self, call_id: UUID, bill: Bill | None, error: str, response: str | None = None) -> None:
        """Record a failed call and its refused reply, if any. ``bill`` None: the reserved amount counts."""
        ...


class BudgetGate:
    """Ledger shared by threads. A call that exceeds the rest of the budget waits for the calls under way.

    A reservation is the most that a call can cost. Most calls cost less, so a part of it may be freed. A provider may
    also bill more than was reserved. Until a first bill shows that, calls are made one at a time.
    """

    def __init__(self, ledger: CallLedger, *, max_attempts: int) -> None:
        self._ledger = ledger
        self._max_attempts = max_attempts
        self._under_way = 0
        self._is_billed = False
        self._changed = threading.Condition()

    def reserve(self, call: Call, *, again: bool = False) -> UUID | None:
        """Reserve a call, see :class:`CallLedger`. Raise BudgetExhaustedError only if no call is under way."""
        with self._changed:
            self._is_billed = self._is_billed or self._ledger.has_bill(call.model)
            while True:
                if self._under_way and not self._is_billed:
                    self._changed.wait()
                    continue
                try:
                    call_id = self._ledger.reserve(call, max_attempts=self._max_attempts, again=again)
                except BudgetExhaustedError:
                    if not self._under_way:
                        raise
                    self._changed.wait()
                else:
                    self._under_way += call_id is not None
                    return call_id

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        """Record an accepted reply, see :class:`CallLedger`."""
        try:
            self._ledger.settle(call_id, bill, response)
        finally:
            self._end_call(bill)

    def fail(self, call_id: UUID, bill: Bill | None, error: str, response: str | None = None) -> None:
        """Record a failed call, see :class:`CallLedger`."""
        try:
            self._ledger.fail(call_id, bill, error, response)
        finally:
            self._end_call(bill)

    def _end_call(self, bill: Bill | None) -> None:
        with self._changed:
            self._under_way -= 1
            self._is_billed = self._is_billed or bill != NOTHING
            self._changed.notify_all()
