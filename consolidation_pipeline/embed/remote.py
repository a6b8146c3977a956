"""Embedding models behind an API, through litellm, with batches, concurrency, retries and the budget."""

import math
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from consolidation_pipeline.core.jobs.spending import Bill, Call
from consolidation_pipeline.embed.embedder import Usage, Vectors, check_texts, check_vectors, describe_text
from consolidation_pipeline.errors import AttemptsExhaustedError, EmbeddingError
from consolidation_pipeline.llm.budget import BudgetGate, CallLedger
from consolidation_pipeline.llm.litellm_import import load_litellm
from consolidation_pipeline.llm.pricing import TOKEN_MARGIN, Price, Pricing
from consolidation_pipeline.llm.provider_errors import describe_error, get_failure_bill
from consolidation_pipeline.llm.retries import MAX_RETRIES, GivenUpError, with_retries
from consolidation_pipeline.llm.spans import call_span, record_reply

CONCURRENCY = 4
PURPOSE = "embedding"
# For models without a listed price: that of the most expensive common models.
FALLBACK_PRICE = Price(input=0.2, output=0.0)

# A batch is one request. OpenAI takes at most 300,000 tokens in one, so even one token per character fits.
BATCH_TEXTS = 128
BATCH_CHARACTERS = 200_000


@dataclass(frozen=True)
class _Batch:
    first: int
    texts: list[str]

    def __str__(self) -> str:
        # A provider does not name the text it refuses. Usually it is the longest one, which exceeds the model's limit.
        index, longest = max(enumerate(self.texts, start=self.first), key=lambda pair: len(pair[1]))
        last = self.first + len(self.texts) - 1
        return f"texts {self.first} to {last} (longest: {describe_text(index, longest)}, {len(longest)} characters)"


class LiteLLMEmbedder:
    """An embedding model by its litellm name, e.g. ``openai/text-embedding-3-large``.

    Args:
        name: Its litellm name.
        ledger: Reserves each request before it is sent and settles it after; None = nothing is recorded.
        dimension: Expected length of the vectors; None = length in the first reply.
        api_base: URL of the provider; None = from the environment (``OPENAI_API_BASE``, ..).
        api_key: Key of the provider; None = from the environment (``OPENAI_API_KEY``, ..).
        timeout: Seconds per attempt.
        retries: Attempts after the first one.
        sleep: Waits between attempts, in seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        ledger: CallLedger | None = None,
        dimension: int | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = MAX_RETRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self._gate = None if ledger is None else BudgetGate(ledger, max_attempts=MAX_RETRIES + 1)
        self._pricing = Pricing(name, FALLBACK_PRICE)
        self._dimension = dimension
        self._api_key = api_key
        self._options = {"model": name, "api_base": api_base, "api_key": api_key, "timeout": timeout}
        self._retries = retries
        self._sleep = sleep
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, d), L2-normalised, row i for text i. Nothing is truncated here.

        429, 5xx, timeouts and lost connections are retried (see ``llm.retries``), other errors are not. After an error
        the requests not yet sent are dropped.

        Raises:
            EmbeddingError: A text is blank or not valid Unicode, the model cannot be reached or refuses, or a vector
                is missing or unusable (see ``check_vectors``). The message names the text.
            BudgetExhaustedError: The next request could cost more than is left.
        """
        parts = [vectors for _, vectors in self.embed_batches(texts)]
        return np.concatenate(parts) if parts else np.empty((0, self._dimension or 0), dtype=np.float32)

    def embed_batches(self, texts: Sequence[str]) -> Iterator[tuple[int, Vectors]]:
        """Yield the vectors of each request as soon as they arrive: the index of its first text, and float32 (m, d).

        Raises the errors of ``embed``, after all vectors that were paid for have been yielded.
        """
        check_texts(texts)
        if not texts:
            return
        load_litellm()  # imported here, so that the threads do not import it at the same time
        with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="embed") as pool:
            requests = [
                (batch.first, pool.submit(copy_context().run, self._embed_batch, batch))
                for batch in _split_batches(texts)
            ]
            try:
                yield from _collect_results(requests)
            finally:
                _cancel(requests)

    def estimate(self, texts: Sequence[str]) -> Usage:
        """Return tokens and price of these texts, counted locally: exact for OpenAI's models, close for others."""
        tokens = self._count(texts)
        return Usage(tokens, float(self._pricing.bill(tokens, 0).usd) if self._pricing.is_listed else None)

    def _count(self, texts: Sequence[str]) -> int:
        litellm = load_litellm()
        return sum(litellm.token_counter(model=self.name, text=text) for text in texts)

    def _embed_batch(self, batch: _Batch) -> Vectors:
        call = None if self._gate is None else self._make_call(batch)
        try:
            with call_span("embeddings", self.name, {}):
                return with_retries(lambda: self._send(batch, call), retries=self._retries, sleep=self._sleep)
        except GivenUpError as given_up:
            reason = f"attempt {given_up.attempts} for {batch} failed: {self._describe(given_up.reason)}"
            raise EmbeddingError(f"{self.name} gave no vectors, {reason}") from given_up.reason
        except AttemptsExhaustedError as error:
            raise EmbeddingError(f"{self.name} gave no vectors for {batch}: {error}") from error

    def _make_call(self, batch: _Batch) -> Call:
        key = sha256("\0".join([self.name, *batch.texts]).encode()).hexdigest()
        return Call(PURPOSE, self.name, key, self._pricing.bill(math.ceil(self._count(batch.texts) * TOKEN_MARGIN), 0))

    def _send(self, batch: _Batch, call: Call | None) -> Vectors:
        """Send one request, reserved and settled, without retries."""
        if self._gate is None or call is None:
            return self._parse_reply(self._request(batch), batch)
        call_id = self._gate.reserve(call, again=True)
        assert call_id is not None  # again=True
        reply = None
        try:
            reply = self._request(batch)
            vectors = self._parse_reply(reply, batch)
        except Exception as error:
            bill = get_failure_bill(error) if reply is None else self._bill(reply)
            self._gate.fail(call_id, bill, self._describe(error))
            raise
        self._gate.settle(call_id, self._bill(reply), None)
        return vectors

    def _request(self, batch: _Batch) -> Any:
        litellm, packing = load_litellm(), self._packing
        try:
            # Only with_retries retries: retries of litellm and of the SDK below it would multiply the attempts.
            reply = litellm.embedding(**self._options, **packing, input=batch.texts, num_retries=0, max_retries=0)
        except litellm.BadRequestError as error:
            if not packing or "encoding_format" not in str(error):
                raise
            self._packing = {}
            return self._request(batch)
        record_reply(reply)
        return reply

    @cached_property
    def _packing(self) -> dict[str, str]:
        """Options by which vectors come in base64, until a server refuses them.

        The SDK of OpenAI asks so by itself: numbers in JSON are read several times as slowly.
        """
        is_openai = load_litellm().get_llm_provider(self.name)[1] == "openai"
        return {"encoding_format": "base64"} if is_openai else {}

    def _describe(self, error: Exception) -> str:
        return describe_error(error, [self._api_key] if self._api_key else [])

    def _bill(self, reply: Any) -> Bill | None:
        sent = getattr(getattr(reply, "usage", None), "prompt_tokens", 0) or 0
        return self._pricing.bill(sent, 0) if sent else None

    def _parse_reply(self, reply: Any, batch: _Batch) -> Vectors:
        rows = self._order_by_index(reply.data or [], batch)
        with self._lock:
            vectors = check_vectors(rows, batch.texts, dimension=self._dimension, first=batch.first)
            self._dimension = vectors.shape[1]
        return vectors

    def _order_by_index(self, rows: Sequence[Any], batch: _Batch) -> list[Sequence[float] | Vectors]:
        by_index = {row["index"]: self._unpack(row["embedding"], batch) for row in rows}
        expected = range(len(batch.texts))
        if len(rows) != len(expected) or by_index.keys() != set(expected):
            given = f"{len(rows)} vectors for {len(expected)} texts"
            raise EmbeddingError(f"{self.name} gave {given}, {batch}: each text needs one vector with its own index")
        return [by_index[index] for index in expected]

    def _unpack(self, vector: Any, batch: _Batch) -> Sequence[float] | Vectors:
        """Return a vector as it is, or the float32 numbers of one in base64."""
        if not isinstance(vector, str):
            return vector or []
        try:
            return np.frombuffer(b64decode(vector, validate=True), dtype="<f4")
        except ValueError as error:
            raise EmbeddingError(f"{self.name} gave a vector that is no base64 of float32, {batch}: {error}") from error


_Requests = Sequence[tuple[int, Future[Vectors]]]


def _collect_results(requests: _Requests) -> Iterator[tuple[int, Vectors]]:
    """Yield the results in order. After the first failure no request is started; its error is raised at the end."""
    failure: Exception | None = None
    for first, future in requests:
        try:
            vectors = future.result()
        except CancelledError:
            continue
        except Exception as error:
            failure = failure or error
            _cancel(requests)
            continue
        yield first, vectors
    if failure is not None:
        raise failure


def _cancel(requests: _Requests) -> None:
    for _, future in requests:
        future.cancel()


def _split_batches(texts: Sequence[str]) -> Iterator[_Batch]:
    first, size = 0, 0
    for index, text in enumerate(texts):
        full = index - first == BATCH_TEXTS or size + len(text) > BATCH_CHARACTERS
        if full and index > first:
            yield _Batch(first, list(texts[first:index]))
            first, size = index, 0
        size += len(text)
    if first < len(texts):
        yield _Batch(first, list(texts[first:]))
