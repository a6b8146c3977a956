"""The one retry ladder: which failures of a provider are worth another attempt, and how long to wait for it."""

import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TypeVar

from consolidation_pipeline.errors import ConsolidationError

MAX_RETRIES = 3
LONGEST_WAIT = 60.0  # seconds: also the most that a server's Retry-After can make us wait

T = TypeVar("T")


class GivenUpError(Exception):
    """The last attempt failed with ``reason``; it was number ``attempts``."""

    def __init__(self, attempts: int, reason: Exception) -> None:
        super().__init__(f"attempt {attempts} failed: {reason}")
        self.attempts = attempts
        self.reason = reason


def with_retries(
    attempt: Callable[[], T], *, retries: int = MAX_RETRIES, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Call ``attempt`` until it succeeds: after 429, 5xx, timeouts and lost connections at most ``retries`` times more.

    ``sleep`` waits between attempts. Errors of this project pass through.

    Raises:
        GivenUpError: the error is of another kind, or the last attempt failed too.
    """
    made = 0
    while True:
        made += 1
        try:
            return attempt()
        except ConsolidationError:
            raise
        except Exception as error:  # a reply that litellm cannot read escapes from it as a bare TypeError
            if made > retries or not is_transient(error):
                raise GivenUpError(made, error) from error
            wait = _wait(made, error)
        sleep(wait)


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    # litellm gives timeouts the status 408, and lost connections and replies cut short the status 500.
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and (status in (408, 429) or status >= 500)


def _wait(attempt: int, error: Exception) -> float:
    """Seconds after a failed attempt (1, 2, ..): 1, 2, 4 or what the server asks for, spread by half of itself.

    The spread keeps the workers from coming back in step.
    """
    headers = getattr(error, "litellm_response_headers", None) or {}
    asked = _seconds(str(headers.get("retry-after", "")))
    return min(LONGEST_WAIT, max(asked, 2.0 ** (attempt - 1)) * random.uniform(1.0, 1.5))


def _seconds(retry_after: str) -> float:
    """A Retry-After header: seconds, or the date until when to wait (RFC 9110); 0 when it is neither."""
    if retry_after.replace(".", "", 1).isdecimal():
        return float(retry_after)
    try:
        return parsedate_to_datetime(retry_after).timestamp() - time.time()
    except ValueError:
        return 0.0
