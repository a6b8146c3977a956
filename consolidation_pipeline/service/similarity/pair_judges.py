"""Pair judges: a language model or a local cross-encoder, asked if two texts say the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from consolidation_pipeline.core.chunks import split_by_scope
from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.embed.cross_encoder import CrossEncoder, hash_model
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompts import pair as pair_prompts
from consolidation_pipeline.options import ConsolidationOptions, check_judge
from consolidation_pipeline.service.similarity.graph_nodes import ProjectContext

# Pairs and characters of one prompt.
PROMPT_PAIRS, _PROMPT_CHARS = 20, 32_000
# Longest text that a model judges: a cut text would hide differences. Longer ones get the answer "unsure".
_MAX_TEXT_CHARS = 4_000
# Probability from which a cross-encoder's answer is "same", and below which it is "different".
SAME_FROM, DIFFERENT_BELOW = 0.9, 0.5

# Two texts in the order asked.
Pair = tuple[str, str]


@dataclass(frozen=True)
class Replies:
    """Answers to pairs, None where no usable one came; ``stopped``: why the judge must not be asked again.

    ``failed``: messages of the requests without a usable reply.
    """

    answers: Sequence[str | None]
    failed: Sequence[str] = ()
    stopped: Exception | None = None


class PairJudge(Protocol):
    """Judge of pairs. ``name`` changes when its answers may."""

    @property
    def name(self) -> str:
        """Its model and version."""
        ...

    def ask(self, pairs: Sequence[Pair], scopes: Sequence[str]) -> Replies:
        """Return an answer to each pair. ``scopes``: the scope of each; no request has pairs of two scopes."""
        ...

    def price(self, pairs: Sequence[Pair], scopes: Sequence[str]) -> list[Bill]:
        """Return the largest bill of each request that these pairs take. Sends nothing."""
        ...


@dataclass(frozen=True)
class LanguageModelJudge:
    """The project's language model, asked within the project's budgets."""

    context: ProjectContext
    name: str

    def ask(self, pairs: Sequence[Pair], scopes: Sequence[str]) -> Replies:
        """Return an answer to each pair: "unsure" for pairs with a text that is too long."""
        answers: list[str | None] = ["unsure"] * len(pairs)
        batches = list(_split_batches(pairs, scopes))
        prompts = [pair_prompts.pair_prompt([pairs[at] for at in batch]) for batch in batches]
        outcomes = self._gateway.ask_many(prompts, pair_prompts.PairReply, check=pair_prompts.find_problems)
        for batch, outcome in zip(batches, outcomes, strict=True):
            given = pair_prompts.read_answers(outcome.value) if isinstance(outcome, Answer) else [None] * len(batch)
            for at, answer in zip(batch, given, strict=True):
                answers[at] = answer
        stops = (one for one in outcomes if isinstance(one, BudgetExhaustedError | ModelUnavailableError))
        return Replies(answers, [str(one) for one in outcomes if isinstance(one, LLMError)], next(stops, None))

    def price(self, pairs: Sequence[Pair], scopes: Sequence[str]) -> list[Bill]:
        """Return the largest bill of each request that these pairs take. Sends nothing."""
        prompts = [pair_prompts.pair_prompt([pairs[at] for at in batch]) for batch in _split_batches(pairs, scopes)]
        return list(self._gateway.price(prompts, pair_prompts.PairReply).values())

    @cached_property
    def _gateway(self) -> Gateway:
        return Gateway(self.context.options.llm_model or "", self.context.spend_ledger)


def _split_batches(pairs: Sequence[Pair], scopes: Sequence[str]) -> Iterator[list[int]]:
    """Yield the positions of the pairs of each prompt, which are of one scope; pairs with a too long text are left out.

    Else a memory of one user that gives orders could change the answer about those of another.
    """
    judged = [at for at, texts in enumerate(pairs) if max(map(len, texts)) <= _MAX_TEXT_CHARS]
    sizes = [sum(map(len, pairs[at])) for at in judged]
    parts = split_by_scope([scopes[at] for at in judged], sizes, most=PROMPT_PAIRS, max_size=_PROMPT_CHARS)
    for part in parts:
        yield [judged[at] for at in part]


@dataclass(frozen=True)
class CrossEncoderJudge:
    """A cross-encoder in a local file, loaded when it is asked first."""

    path: Path
    name: str

    def ask(self, pairs: Sequence[Pair], scopes: Sequence[str]) -> Replies:  # noqa: ARG002  asked pair by pair
        """Return an answer to each pair: "unsure" between the two limits, and for pairs that are too long."""
        scores = self._encoder.score(pairs)
        sure = np.where(scores >= SAME_FROM, "same", np.where(scores < DIFFERENT_BELOW, "different", "unsure"))
        return Replies(sure.tolist())

    def price(self, pairs: Sequence[Pair], scopes: Sequence[str]) -> list[Bill]:  # noqa: ARG002  always free
        """Return nothing: a local model costs nothing."""
        return []

    @cached_property
    def _encoder(self) -> CrossEncoder:
        return CrossEncoder(self.path)


def name_judge(options: ConsolidationOptions) -> str | None:
    """Return the name of the project's pair judge; None if it has none.

    Raises:
        InvalidOptionError: the judge is the language model, and the project has none.
        UsageError: a file of a cross-encoder is missing or cannot be read.
    """
    if options.pair_judge == "none":
        return None
    if options.pair_judge == "llm":
        check_judge("pair_judge", options)
        return f"llm {options.llm_model}, prompt {pair_prompts.VERSION}"
    path = _find_model_path(options)
    changed = path.stat().st_mtime_ns if os.path.isfile(path) else 0
    return f"onnx {path.name} {_hash_model_once(path, changed)[:16]}"


def open_judge(context: ProjectContext) -> PairJudge | None:
    """Return the project's pair judge; None if it has none. Errors are those of ``name_judge``."""
    name = name_judge(context.options)
    if name is None:
        return None
    if context.options.pair_judge == "llm":
        return LanguageModelJudge(context, name)
    return CrossEncoderJudge(_find_model_path(context.options), name)


def _find_model_path(options: ConsolidationOptions) -> Path:
    return Path(options.pair_judge.removeprefix("onnx:"))


@lru_cache(maxsize=8)
def _hash_model_once(path: Path, changed: int) -> str:  # noqa: ARG001  part of the key
    return hash_model(path)
