"""The retry policy of completions and embeddings."""

import time
from email.utils import formatdate

import pytest

from consolidation_pipeline.errors import BudgetExhaustedError
from consolidation_pipeline.llm.provider_errors import is_transient
from consolidation_pipeline.llm.retries import GivenUpError, with_retries


class ProviderError(Exception):
    def __init__(self, status_code: int, retry_after: str = "") -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code
        self.litellm_response_headers = {"retry-after": retry_after}


def retry(*errors: Exception) -> tuple[int, list[float]]:
    """Retry until the errors are used up; return the number of attempts and the waits in seconds."""
    left, attempts = list(errors), 0
    waits: list[float] = []

    def attempt() -> int:
        nonlocal attempts
        attempts += 1
        if left:
            raise left.pop(0)
        return attempts

    return with_retries(attempt, sleep=waits.append), waits


def test_retry_waits_grow_and_honor_retry_after() -> None:
    attempts, (first, second, third) = retry(ProviderError(500), ProviderError(429, "7"), ProviderError(503, "3600"))
    assert attempts == 4
    assert 1 <= first <= 1.5
    assert 7 <= second <= 10.5
    assert third == 60


def test_retry_after_accepts_http_date() -> None:
    _, (wait,) = retry(ProviderError(429, formatdate(time.time() + 3000, usegmt=True)))
    assert wait == 60
    _, (wait,) = retry(ProviderError(429, formatdate(0, usegmt=True)))
    assert 1 <= wait <= 1.5
    _, (wait,) = retry(ProviderError(429, "soon"))
    assert 1 <= wait <= 1.5


def test_retries_stop_after_four_attempts() -> None:
    with pytest.raises(GivenUpError, match="attempt 4 failed: status 500"):
        retry(*[ProviderError(500)] * 4)


def test_timeouts_have_limit_of_their_own() -> None:
    errors = [ProviderError(500), ProviderError(408), ProviderError(408)]

    def attempt() -> None:
        raise errors.pop(0)

    with pytest.raises(GivenUpError, match="attempt 3 failed: status 408"):
        with_retries(attempt, timeout_retries=1, sleep=lambda _: None)


@pytest.mark.parametrize("error", [ProviderError(400), ProviderError(404), TypeError("a bug")])
def test_permanent_errors_are_not_transient(error: Exception) -> None:
    assert not is_transient(error)
    with pytest.raises(GivenUpError, match="attempt 1 failed"):
        retry(error)


def test_package_errors_pass_through_retries() -> None:
    with pytest.raises(BudgetExhaustedError):
        retry(BudgetExhaustedError("no money"))
