"""Retries of requests to providers, and the wait before each attempt."""

import random
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import TypeVar

from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.llm.provider_errors import is_timeout, is_transient

MAX_RETRIES = 3
MAX_TIMEOUT_RETRIES = 1  # of a language model, whose requests may take minutes
MAX_WAIT = 60.0  # seconds; also the longest Retry-After that is honoured

T = TypeVar("T")


class GivenUpError(Exception):
    """The last attempt, number ``attempts``, failed with ``reason``."""

    def __init__(self, attempts: int, reason: Exception) -> None:
        super().__init__(f"attempt {attempts} failed: {reason}")
        self.attempts = attempts
        self.reason = reason


def with_retries(
    attempt: Callable[[], T],
    *,
    retries: int = MAX_RETRIES,
    timeout_retries: int = MAX_RETRIES,
    sleep: Callable[[float], None],
) -> T:
    """Call ``attempt``, and again up to ``retries`` times after errors that may pass (see ``is_transient``).

    ``timeout_retries``: most of them after timeouts. Errors of this project are passed on, also those of ``sleep``.

    Raises:
        GivenUpError: The error is of another kind, or the last attempt failed too.
    """
    made = timeouts = 0
    while True:
        made += 1
        try:
            return attempt()
        except ConsolidationError:
            raise
        except Exception as error:  # a reply that litellm cannot parse escapes from it as a bare TypeError
            timeouts += is_timeout(error)
            if made > retries or timeouts > timeout_retries or not is_transient(error):
                raise GivenUpError(made, error) from error
            wait = _compute_wait(made, error)
        sleep(wait)


def _compute_wait(attempt: int, error: Exception) -> float:
    """Return the seconds to wait after attempt 1, 2, ..: 1, 2, 4 or Retry-After, plus up to half of it at random.

    The random part keeps workers from retrying in step.
    """
    headers = getattr(error, "litellm_response_headers", None) or {}
    asked = _parse_retry_after(str(headers.get("retry-after", "")))
    return min(MAX_WAIT, max(asked, 2.0 ** (attempt - 1)) * random.uniform(1.0, 1.5))


def _parse_retry_after(value: str) -> float:
    """Return the seconds of a Retry-After header: a number of seconds or a date (RFC 9110); 0 if it is neither."""
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except ValueError:
        return 0.0
