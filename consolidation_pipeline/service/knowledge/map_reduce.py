"""Condense many texts into few by map-reduce: batch by batch, by a language model or by their own sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.knowledge.extractive_summaries import extract_summary
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.knowledge.summary_batches import CHUNK_SIZE, split_chunks
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
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
Condensed = Passage | LLMError | BudgetExhaustedError
CondenseBatches = Callable[[Sequence[Sequence[Passage]]], Sequence[Condensed]]
"""Makes one passage of each batch of passages, or returns its failure; a failure does not affect other batches."""


@dataclass(frozen=True)
class ExtractiveCondenser:
    """Condenses texts by choosing sentences of theirs. ``boilerplate``: sentences to leave out."""

    boilerplate: frozenset[str]
    method: str = "heuristic"

    def condense_memories(self, batches: Sequence[Sequence[Passage]]) -> list[Condensed]:
        """Summarize each batch of memories."""
        return [self._extract(batch, memories=len(batch)) for batch in batches]

    def condense_summaries(self, batches: Sequence[Sequence[Passage]]) -> list[Condensed]:
        """Summarize each batch of summaries, each of about ``CHUNK_SIZE`` memories."""
        return [self._extract(batch, memories=CHUNK_SIZE * len(batch)) for batch in batches]

    def _extract(self, batch: Sequence[Passage], *, memories: int) -> Passage:
        text = extract_summary([one.text for one in batch], memories=memories, boilerplate=self.boilerplate)
        return Passage(text, find_language(batch))


@dataclass(frozen=True)
class LLMCondenser:
    """Condenses texts by a language model. ``boilerplate``: sentences to leave out of memories."""

    gateway: Gateway
    boilerplate: frozenset[str]
    method: str = "llm"

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
        answers = self.gateway.ask_many(prompts, SummaryReply, check=find_problems)
        return [
            Passage(answer.value.summary.strip(), find_language(batch)) if isinstance(answer, Answer) else answer
            for batch, answer in zip(batches, answers, strict=True)
        ]


Condenser = ExtractiveCondenser | LLMCondenser


def open_condenser(run: ProjectRun) -> Condenser:
    """Return a condenser that asks the project's model or, without one, extracts sentences."""
    if run.options.llm_model is None:
        return ExtractiveCondenser(run.boilerplate)
    return LLMCondenser(open_gateway(run), run.boilerplate)


def reduce_passages(
    condense: CondenseBatches, parts: Sequence[Sequence[Passage]], *, max_passages: int = 1
) -> list[Sequence[Passage] | Failure]:
    """Reduce each part to at most ``max_passages`` passages: in chunks, then the results in chunks again, and so on.

    All parts pass each level together in one call of ``condense``. A chunk of one passage stays as it is.

    Returns:
        The passages of each part, or the failure that ended its reduction.
    """
    done: list[Sequence[Passage] | Failure] = list(parts)
    while long := [at for at, part in enumerate(done) if not isinstance(part, Failure) and len(part) > max_passages]:
        chunks = [(at, chunk) for at in long for chunk in split_chunks(_list_passages(done[at]), size=CHUNK_SIZE)]
        condensed = iter(condense([chunk for _, chunk in chunks if len(chunk) > 1]))
        levels: dict[int, list[Condensed]] = {at: [] for at in long}
        for at, chunk in chunks:
            levels[at].append(next(condensed) if len(chunk) > 1 else chunk[0])
        for at, level in levels.items():
            done[at] = find_failure(level) or _list_passages(level)
    return done


def find_failure(results: Iterable[object]) -> Failure | None:
    """Return the first failure that stops the phase, else the first failure, else None."""
    failures = [result for result in results if isinstance(result, Failure)]
    return next((failure for failure in failures if is_stop(failure)), failures[0] if failures else None)


def is_stop(result: object) -> bool:
    """Return True if no more can be asked: the budget is used up, or the model does not answer."""
    return isinstance(result, STOP_ERRORS)


def find_language(passages: Sequence[Passage]) -> str:
    """Return the language of most of the passages."""
    return most_frequent(passage.language for passage in passages)


def _list_passages(level: Sequence[object] | Failure) -> list[Passage]:
    return [one for one in level if isinstance(one, Passage)] if not isinstance(level, Failure) else []
