"""What the gateway needs of a spend ledger, and one process' way of using it from several threads."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from consolidation_pipeline.core.jobs.spending import Bill, Call
from consolidation_pipeline.errors import BudgetExhaustedError


class EarlierReplies(Protocol):
    """What a prompt was answered before."""

    @property
    def accepted(self) -> Any:
        """The accepted reply as JSON values, None = there is none."""
        ...

    @property
    def refused(self) -> tuple[tuple[str, str], ...]:
        """The refused replies of this job, oldest first: text, and what was wrong with it, a line each."""
        ...


class CallLedger(Protocol):
    """Where spending is written down before and after; each method is a transaction of its own."""

    def load(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """Earlier replies by prompt hash; prompts without any are left out."""
        ...

    def reserve(self, call: Call, *, max_attempts: int, again: bool = False) -> UUID | None:
        """Reserve a call; None = an accepted reply has come meanwhile (``again``: ask nevertheless).

        Raises BudgetExhaustedError or AttemptsExhaustedError.
        """
        ...

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        """Write down an accepted reply, None = one that is not kept; ``bill`` None = the reservation stands."""
        ...

    def fail(self, call_id: UUID, bill: Bill | None, error: str, response: str | None = None) -> None:
        """Write down a failure and the refused reply, if any; ``bill`` None = the reservation stands."""
        ...


class BudgetGate:
    """A ledger as several threads use it: what does not fit for now waits until calls under way have ended.

    Calls reserve the most they can cost, mostly more than they do; so a budget may have room again in a moment.
    """

    def __init__(self, ledger: CallLedger, *, max_attempts: int) -> None:
        self._ledger = ledger
        self._max_attempts = max_attempts
        self._under_way = 0
        self._turn = threading.Condition()

    def reserve(self, call: Call, *, again: bool = False) -> UUID | None:
        """As the ledger's; BudgetExhaustedError only when no call of this process is under way."""
        with self._turn:
            while True:
                try:
                    call_id = self._ledger.reserve(call, max_attempts=self._max_attempts, again=again)
                except BudgetExhaustedError:
                    if not self._under_way:
                        raise
                    self._turn.wait()
                else:
                    self._under_way += call_id is not None
                    return call_id

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        """As the ledger's."""
        try:
            self._ledger.settle(call_id, bill, response)
        finally:
            self._end()

    def fail(self, call_id: UUID, bill: Bill | None, error: str, response: str | None = None) -> None:
        """As the ledger's."""
        try:
            self._ledger.fail(call_id, bill, error, response)
        finally:
            self._end()

    def _end(self) -> None:
        with self._turn:
            self._under_way -= 1
            self._turn.notify_all()
