"""Models of a replay: replies and vectors that are stored, and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NoReturn
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.jobs.spending import Bill, Call
from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.embed.embedder import Usage, Vectors, check_texts, describe_text
from consolidation_pipeline.errors import EmbeddingError, MissingReplyError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.llm_calls import EarlierReplies, load_replies
from consolidation_pipeline.store.shadow.rewind import load_kept_vectors


@dataclass(frozen=True)
class StoredReplies:
    """Replies that a job had, in place of the ledger of calls.

    Attributes:
        missing: Prompts without a stored reply that were asked, by hash: purpose and model.
    """

    engine: Engine
    project_id: UUID
    job_id: UUID
    missing: dict[str, tuple[str, str]] = field(default_factory=dict)

    def find(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """Return stored replies by prompt hash."""
        with self.engine.connect() as connection:
            return load_replies(connection, self.project_id, self.job_id, prompt_hashes)

    def load(self, prompt_hashes: Sequence[str]) -> Mapping[str, EarlierReplies]:
        """Return stored replies by prompt hash. Their use is not recorded."""
        return self.find(prompt_hashes)

    def claim(self, prompt_hash: str) -> AbstractContextManager[bool]:  # noqa: ARG002  nobody else asks here
        """Return at once: nothing is sent."""
        return nullcontext(True)

    def has_bill(self, model: str) -> bool:  # noqa: ARG002  nothing is billed
        """Return True, so that no prompt waits for the bill of another."""
        return True

    def reserve(self, call: Call, *, max_attempts: int, again: bool = False) -> NoReturn:  # noqa: ARG002
        """Note the prompt as missing. Raise MissingReplyError."""
        self.missing[call.prompt_hash] = call.purpose, call.model
        raise MissingReplyError(
            f"the reply of {call.model} to a prompt of {call.purpose} is not stored ({call.prompt_hash[:12]})"
        )

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        """Do nothing: no call is made."""

    def fail(self, call_id: UUID, bill: Bill | None, error: str, response: str | None = None) -> None:
        """Do nothing: no call is made."""


@dataclass(frozen=True)
class StoredVectors:
    """Embedder that knows the texts whose vectors of a paid model are stored."""

    engine: Engine
    name: str

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, d), row i for text i. Raise EmbeddingError for a text without a stored vector."""
        check_texts(texts)
        hashes = [content_hash(text) for text in texts]
        with self.engine.connect() as connection:
            known = load_kept_vectors(connection, hashes)
        for at, hash_ in enumerate(hashes):
            if hash_ not in known:
                raise EmbeddingError(f"no vector of {self.name} is stored for {describe_text(at, texts[at])}")
        return np.stack([known[hash_] for hash_ in hashes]) if hashes else np.empty((0, 0), np.float32)

    def estimate(self, texts: Sequence[str]) -> Usage:
        """Return a token for each text: the run must take the model for one that is paid for, as the job did."""
        return Usage(tokens=len(texts), cost_usd=None)
