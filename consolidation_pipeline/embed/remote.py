"""Embedding models behind an API, through litellm: batched, concurrent, retried, and every billed token reported."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from consolidation_pipeline.embed.provider import Usage, Vectors, checked, describe, refuse_unembeddable
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.llm.litellm_loading import load_litellm
from consolidation_pipeline.llm.retrying import GivenUpError, with_retries

CONCURRENCY = 4

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

        429, 5xx, timeouts and lost connections are retried (see ``llm.retrying``), other errors never. EmbeddingError:
        a text is blank or not valid Unicode, the model cannot be reached or refuses, or a vector is unusable (NaN,
        infinite, zero, missing, of another dimension); the message names the text. Requests not yet sent are dropped.
        """
        refuse_unembeddable(texts)
        if not texts:
            return np.empty((0, self._dimension or 0), dtype=np.float32)
        load_litellm()  # here, so that the threads do not import it against each other
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="embed") as pool:
            return np.concatenate(list(pool.map(self._embed_batch, _batches(texts))))

    def estimate(self, texts: Sequence[str]) -> Usage:
        """Return the tokens and price of embedding these texts, counted locally with OpenAI's tokenizer.

        Exact for OpenAI's models, near for others.
        """
        litellm = load_litellm()
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
        embed = load_litellm().embedding
        # Attempts are counted on our ladder alone: retries of litellm and of the SDK below it would multiply them.
        request = self._request | {"input": batch.texts, "num_retries": 0, "max_retries": 0}
        try:
            return with_retries(lambda: embed(**request), sleep=self._sleep)
        except GivenUpError as given_up:
            reason = f"attempt {given_up.attempts} for {batch} failed: {given_up.reason}"
            raise EmbeddingError(f"{self.name} gave no vectors, {reason}") from given_up.reason

    def _usage(self, tokens: int) -> Usage:
        prices = load_litellm().model_cost
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
