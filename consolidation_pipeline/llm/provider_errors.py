"""Errors of providers: whether to try again, whether the request was billed, and a message that may be stored."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from consolidation_pipeline.core.jobs.spending import NOTHING, Bill
from consolidation_pipeline.llm.litellm_import import find_missing_keys
from consolidation_pipeline.llm.redaction import redact

# Unauthorized, payment required, forbidden, not found: every other request to the model is refused too.
_REFUSED_FOR_GOOD = (401, 402, 403, 404)
# What providers and litellm write into a 400 for a model that does not exist. OpenAI replies 404.
_UNKNOWN_MODEL = re.compile(
    r"LLM Provider NOT provided"
    r"|\bmodel\b[^\n]{0,80}\b(?:not (?:found|exist|available|supported)|does not exist|unknown)"
    r"|\b(?:unknown|invalid|unsupported|no such) model\b",
    re.IGNORECASE,
)
# litellm appends these to the provider's message.
_APPENDIX = re.compile(
    r"\s*(?:Traceback \(most recent call last\):|During handling of the above exception|"
    r"(?:Received|Available) Model Group|LiteLLM Retried:|Learn more: https://docs\.litellm).*",
    re.DOTALL,
)
# Names of classes, which say less than the message: `litellm.InternalServerError: OpenAIException - `.
_CLASS_NAMES = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception)(?:: | - ))+")
# A path of a file, but not of a URL: only its last part is kept.
_FOLDERS = re.compile(r"(?<![\w:/.~-])~?/(?:[\w.@+-]+/)+(?=[\w.@+-])")
_MAX_CHARS = 500  # some providers answer with whole pages


def describe_error(error: BaseException, secrets: Collection[str] = ()) -> str:
    """Return the provider's message in one line, without tracebacks, folders of files, keys and ``secrets``."""
    import httpx

    message = _CLASS_NAMES.sub("", _APPENDIX.sub("", str(error))).strip()
    # openai's client says no more than "Connection error."
    lost = [str(cause) for cause in _causes(error) if isinstance(cause, httpx.TransportError)]
    if lost and lost[0] and lost[0] not in message:
        message += f" {lost[0]}"
    message = " ".join(_FOLDERS.sub("", message).split())
    return redact(message or type(error).__name__, secrets)[:_MAX_CHARS]


def is_transient(error: BaseException) -> bool:
    """Return True if the same request may succeed later: 429, 5xx, timeouts, lost connections."""
    # litellm gives timeouts the status 408, and lost connections and truncated replies the status 500. It also gives
    # 500 to a request that it could not make.
    status = getattr(error, "status_code", None)
    may_pass = isinstance(status, int) and (status in (408, 429) or status >= 500)
    return may_pass and not _is_unmade(error) and "insufficient_quota" not in str(error)


def is_timeout(error: BaseException) -> bool:
    """Return True if no reply came in time."""
    return getattr(error, "status_code", None) == 408


def is_permanent(error: BaseException) -> bool:
    """Return True if every request to the model would fail: no key, a refused one, no credit, no such model."""
    status = getattr(error, "status_code", None)
    if status in _REFUSED_FOR_GOOD or _is_unmade(error) or "insufficient_quota" in str(error):
        return True
    return status == 400 and _UNKNOWN_MODEL.search(str(error)) is not None


def get_failure_bill(error: BaseException) -> Bill | None:
    """Return the bill of a request that raised ``error``: zero if rejected or never sent, else None (unknown)."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 400 <= status < 500 and status != 408:
        return NOTHING
    return NOTHING if _is_unmade(error) or any(map(_is_unbilled, _causes(error))) else None


def _is_unbilled(cause: BaseException) -> bool:
    import httpx

    if isinstance(cause, httpx.HTTPStatusError):
        # A proxy that lost its server or timed out does not know whether the server billed the request.
        return cause.response.status_code not in (408, 502, 504)
    return isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)


def _is_unmade(error: BaseException) -> bool:
    """Return True if no request was made, as a key, a package or a valid address is missing."""
    import httpx
    import openai

    # litellm's errors are subclasses of openai's, also where openai's client was not used.
    causes = [cause for cause in _causes(error) if not type(cause).__module__.startswith("litellm.")]
    unmade = (ImportError, httpx.UnsupportedProtocol, httpx.InvalidURL)
    if any(type(cause) is openai.OpenAIError or isinstance(cause, unmade) for cause in causes):
        return True
    if any(type(cause).__module__.startswith("google.auth") for cause in causes):
        return True
    # Some of litellm's clients raise a ValueError if there is no key. A reply that is no JSON is one too.
    is_sent = any(isinstance(cause, httpx.HTTPError | openai.APIError) for cause in causes)
    provider, model = getattr(error, "llm_provider", None), getattr(error, "model", None)
    if is_sent or not provider or not model or not any(type(cause) is ValueError for cause in causes):
        return False
    return bool(find_missing_keys(model if model.startswith(f"{provider}/") else f"{provider}/{model}"))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
