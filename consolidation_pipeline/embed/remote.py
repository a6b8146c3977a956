"""Embedding models behind an API, through litellm: batched, concurrent, retried, and every billed token reported."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from consolidation_pipeline.embed.provider import Usage, Vectors, checked, describe, refuse_unembeddable
from consolidation_pipeline.errors import EmbeddingError

CONCURRENCY = 4
MAX_RETRIES = 3
LONGEST_WAIT = 60.0  # seconds: also the most that a server's Retry-After can make us wait

# A batch is one request. OpenAI takes at most 300,000 tokens in one; even text of one token per character fits.
BATCH_TEXTS = 128
BATCH_CHARACTERS = 200_000


@dataclass(frozen=True)
class _Batch:
    first: int
    texts: list[str]

    def __str__(self) -> str:
        # A provider does not say which text it refuses; most often it is the longest one, beyond the model's limit.
        index, longest = max(enumerate(self.texts, start=self.first), key=lambda pair: len(pair[1]))
        last = self.first + len(self.texts) - 1
        return f"texts {self.first} to {last} (longest: {describe(index, longest)}, {len(longest)} characters)"


class LiteLLMEmbedder:
    """An embedding model by its litellm name, e.g. ``openai/text-embedding-3-large``.

    ``dimension``: the expected length of vectors (None: that of the first reply). ``api_base``, ``api_key``: None is
    what litellm reads from the environment (``OPENAI_API_BASE``, ``OPENAI_API_KEY``, ..). ``timeout``: seconds, per
    attempt. ``on_usage`` is told what an answered request is billed, as soon as it is answered; it is called from
    worker threads, but never twice at once. ``sleep`` waits between attempts.
    """

    def __init__(
        self,
        name: str,
        *,
        dimension: int | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        on_usage: Callable[[Usage], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._dimension = dimension
        self._request = {"model": name, "api_base": api_base, "api_key": api_key, "timeout": timeout}
        self._on_usage = on_usage
        self._sleep = sleep
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, d), L2-normalised, row i for text i; nothing is truncated here.

        429, 5xx, timeouts and lost connections are retried ``MAX_RETRIES`` times, other errors never. EmbeddingError:
        a text is blank or not valid Unicode, the model cannot be reached or refuses, or a vector is unusable (NaN,
        infinite, zero, missing, of another dimension); the message names the text. Requests not yet sent are dropped.
        """
        refuse_unembeddable(texts)
        if not texts:
            return np.empty((0, self._dimension or 0), dtype=np.float32)
        _load_litellm()  # here, so that the threads do not import it against each other
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="embed") as pool:
            return np.concatenate(list(pool.map(self._embed_batch, _batches(texts))))

    def estimate(self, texts: Sequence[str]) -> Usage:
        """Return the tokens and price of embedding these texts, counted locally with OpenAI's tokenizer.

        Exact for OpenAI's models, near for others.
        """
        litellm = _load_litellm()
        return self._usage(sum(litellm.token_counter(model=self.name, text=text) for text in texts))

    def _embed_batch(self, batch: _Batch) -> Vectors:
        reply = self._ask(batch)
        with self._lock:
            self._on_usage(self._usage(reply.usage.prompt_tokens))
            rows = self._in_order(reply.data or [], batch)
            vectors = checked(rows, batch.texts, dimension=self._dimension, first=batch.first)
            self._dimension = vectors.shape[1]
        return vectors

    def _in_order(self, rows: Sequence[Any], batch: _Batch) -> list[list[float]]:
        by_index = {row["index"]: row["embedding"] or [] for row in rows}
        expected = range(len(batch.texts))
        if len(rows) != len(expected) or by_index.keys() != set(expected):
            given = f"{len(rows)} vectors for {len(expected)} texts"
            raise EmbeddingError(f"{self.name} gave {given}, {batch}: each text needs one vector with its own index")
        return [by_index[index] for index in expected]

    def _ask(self, batch: _Batch) -> Any:
        attempt = 0
        while True:
            try:
                # Attempts are counted here alone: retries of litellm and of the SDK below it would multiply them.
                return _load_litellm().embedding(input=batch.texts, num_retries=0, max_retries=0, **self._request)
            except Exception as error:  # a reply that litellm cannot read escapes from it as a bare TypeError
                attempt += 1
                if attempt > MAX_RETRIES or not _is_transient(error):
                    reason = f"attempt {attempt} for {batch} failed: {error}"
                    raise EmbeddingError(f"{self.name} gave no vectors, {reason}") from error
                wait = _wait(attempt, error)
            self._sleep(wait)

    def _usage(self, tokens: int) -> Usage:
        prices = _load_litellm().model_cost
        model = prices.get(self.name) or prices.get(self.name.partition("/")[2]) or {}
        price = model.get("input_cost_per_token")
        return Usage(tokens=tokens, cost_usd=None if price is None else tokens * price)


def _batches(texts: Sequence[str]) -> Iterator[_Batch]:
    first, size = 0, 0
    for index, text in enumerate(texts):
        full = index - first == BATCH_TEXTS or size + len(text) > BATCH_CHARACTERS
        if full and index > first:
            yield _Batch(first, list(texts[first:index]))
            first, size = index, 0
        size += len(text)
    if first < len(texts):
        yield _Batch(first, list(texts[first:]))


def _is_transient(error: Exception) -> bool:
    # litellm gives timeouts the status 408, and lost connections and replies cut short the status 500.
    status = getattr(error, "status_code", None)
    return isinstance(status, int) and (status in (408, 429) or status >= 500)


def _wait(attempt: int, error: Exception) -> float:
    """Seconds after a failed attempt (1, 2, ..): 1, 2, 4 or what the server asks for, spread by half of itself.

    The spread keeps the workers from coming back in step.
    """
    asked = (getattr(error, "litellm_response_headers", None) or {}).get("retry-after", "")
    seconds = float(asked) if asked.replace(".", "", 1).isdecimal() else 0.0
    return min(LONGEST_WAIT, max(seconds, 2.0 ** (attempt - 1)) * random.uniform(1.0, 1.5))


@cache
def _load_litellm() -> Any:
    # Without this, the import itself fetches a price list from the internet.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.telemetry = False
    litellm.disable_hf_tokenizer_download = True  # counting tokens must not download a tokenizer either
    litellm.suppress_debug_info = True  # else hints are printed on standard output, where --json writes
    litellm.DEFAULT_MAX_RETRIES = 0  # taken where max_retries=0 is read as "not given", as for OpenAI
    return litellm
