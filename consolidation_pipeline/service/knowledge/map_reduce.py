"""Condense many texts into few by map-reduce, with a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.knowledge.summary_batches import CHUNK_SIZE
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.embed.local import is_near
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts.summary import SummaryReply, find_problems, reduce_prompt, summary_prompt
from consolidation_pipeline.service.knowledge.llm_gateway import STOP_ERRORS, open_gateway, truncate_text
from consolidation_pipeline.service.runs.project_run import ProjectRun


@dataclass(frozen=True)
class Passage:
    """A text, and the text search configuration of its language."""

    text: str
    language: str


Failure = LLMError | BudgetExhaustedError
# The passage made of one batch of passages, or the failure. A failure does not affect other batches.
Condensed = Passage | LLMError | BudgetExhaustedError


@dataclass(frozen=True)
class Condenser:
    """Condenses texts with a language model. ``boilerplate``: sentences to leave out of memories."""

    gateway: Gateway
    boilerplate: frozenset[str]

    def condense_memories(self, batches: Sequence[Sequence[Passage]]) -> list[Condensed]:
        """Ask for a summary of each batch of memories, shortened and without boilerplate."""
        shortened = [
            [Passage(truncate_text(strip_boilerplate(one.text, self.boilerplate)), one.language) for one in batch]
            for batch in batches
        ]
        return self._ask(shortened, summary_prompt)

    def condense_summaries(self, batches: Sequence[Sequence[Passage]]) -> list[Condensed]:
        """Ask for a summary of each batch of summaries."""
        return self._ask(batches, reduce_prompt)

    def _ask(
        self, batches: Sequence[Sequence[Passage]], prompt: Callable[[Sequence[str], Sequence[str]], Prompt]
    ) -> list[Condensed]:
        prompts = [prompt([one.text for one in batch], [one.language for one in batch]) for batch in batches]
        answers = self.gateway.ask_many(prompts, SummaryReply, check=partial(find_problems, is_near=is_near))
        return [
            Passage(answer.value.summary.strip(), find_language(batch)) if isinstance(answer, Answer) else answer
            for batch, answer in zip(batches, answers, strict=True)
        ]


def open_condenser(run: ProjectRun) -> Condenser | None:
    """Return the condenser of a project; None without a language model."""
    return None if run.options.llm_model is None else Condenser(open_gateway(run), run.boilerplate)


def reduce_passages(
    condense: Callable[[Sequence[Sequence[Passage]]], Sequence[Condensed]],
    parts: Sequence[Sequence[Passage]],
    *,
    max_passages: int = 1,
) -> list[Sequence[Passage] | Failure]:
    """Reduce each part to at most ``max_passages`` passages.

    Each level condenses chunks of ``CHUNK_SIZE`` passages to one passage each. A chunk of one passage stays as it is.
    The chunks of all parts are condensed together, in one call of ``condense`` per level.

    Returns:
        The passages of each part, or the failure that ended its reduction.
    """
    done: list[Sequence[Passage] | Failure] = list(parts)
    while True:
        long = {at: one for at, one in enumerate(done) if not isinstance(one, Failure) and len(one) > max_passages}
        if not long:
            return done
        chunks = [(at, chunk) for at, part in long.items() for chunk in split_chunks(part, size=CHUNK_SIZE)]
        condensed = iter(condense([chunk for _, chunk in chunks if len(chunk) > 1]))
        levels: dict[int, list[Condensed]] = {at: [] for at in long}
        for at, chunk in chunks:
            levels[at].append(next(condensed) if len(chunk) > 1 else chunk[0])
        for at, level in levels.items():
            failures = [one for one in level if isinstance(one, Failure)]
            passages = [one for one in level if isinstance(one, Passage)]
            done[at] = (find_stop(failures) or failures[0]) if failures else passages


def find_stop(results: Iterable[object]) -> Failure | None:
    """Return the first of ``results`` that is one of ``STOP_ERRORS``, else None."""
    return next((result for result in results if isinstance(result, STOP_ERRORS)), None)


def find_language(passages: Sequence[Passage]) -> str:
    """Return the language of most of the passages."""
    return most_frequent(passage.language for passage in passages)
