"""Many texts become few: batch by batch, in a model's words or in their own sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from consolidation_pipeline.core.knowledge.extractive_summaries import extract_summary
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.knowledge.summary_batches import CHUNK_SIZE, split_chunks
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.prompts.summary import SummaryReply, find_problems, reduce_prompt, summary_prompt
from consolidation_pipeline.service.knowledge.llm_gateway import open_gateway, truncate_text
from consolidation_pipeline.service.runs.project_run import ProjectRun


@dataclass(frozen=True)
class Passage:
    """A text, and the text search configuration of its language."""

    text: str
    language: str


Failure = LLMError | BudgetExhaustedError
Told = Passage | LLMError | BudgetExhaustedError
Tell = Callable[[Sequence[Sequence[Passage]]], Sequence[Told]]
"""Makes one passage of each batch of passages, or says why it could not; none harms another."""


@dataclass(frozen=True)
class Condenser:
    """How a project's texts are condensed: ``batch`` memories, ``reduce`` what came of that. ``method`` as stored."""

    batch: Tell
    reduce: Tell
    method: str
    gateway: Gateway | None


def open_condenser(run: ProjectRun) -> Condenser:
    """The project's model, or without one the texts' own sentences."""
    boilerplate = run.boilerplate
    if run.options.llm_model is None:
        batch, reduce = (partial(_extract, boilerplate=boilerplate, memories=each) for each in (1, CHUNK_SIZE))
        return Condenser(batch, reduce, "heuristic", None)
    gateway = open_gateway(run)

    def shorten(text: str) -> str:
        return truncate_text(strip_boilerplate(text, boilerplate))

    return Condenser(
        partial(_ask, gateway, summary_prompt, shorten), partial(_ask, gateway, reduce_prompt, str), "llm", gateway
    )


def _extract(batches: Sequence[Sequence[Passage]], *, boilerplate: frozenset[str], memories: int) -> list[Told]:
    """``memories``: how many stand behind each passage, about."""
    told: list[Told] = []
    for batch in batches:
        texts = [one.text for one in batch]
        found = extract_summary(texts, memories=memories * len(texts), boilerplate=boilerplate)
        told.append(Passage(found, most_frequent(_languages(batch))))
    return told


def _ask(
    gateway: Gateway,
    ask: Callable[[Sequence[str], Sequence[str]], Prompt],
    shorten: Callable[[str], str],
    batches: Sequence[Sequence[Passage]],
) -> list[Told]:
    prompts = [ask([shorten(one.text) for one in batch], _languages(batch)) for batch in batches]
    answers = gateway.ask_many(prompts, SummaryReply, check=find_problems)
    return [
        Passage(answer.value.summary.strip(), most_frequent(_languages(batch)))
        if isinstance(answer, Answer)
        else answer
        for batch, answer in zip(batches, answers, strict=True)
    ]


def condense(tell: Tell, parts: Sequence[Sequence[Passage]], *, most: int = 1) -> list[Sequence[Passage] | Failure]:
    """Each part as at most ``most`` passages, or why it could not be: in chunks, the results in chunks again, ...

    All parts go through ``tell`` together, level by level. A chunk of one passage stays as it is.
    """
    done: list[Sequence[Passage] | Failure] = list(parts)
    while long := [at for at, part in enumerate(done) if not isinstance(part, Failure) and len(part) > most]:
        chunks = [(at, found) for at in long for found in split_chunks(_passages(done[at]), size=CHUNK_SIZE)]
        told = iter(tell([found for _, found in chunks if len(found) > 1]))
        made: dict[int, list[Told]] = {at: [] for at in long}
        for at, found in chunks:
            made[at].append(next(told) if len(found) > 1 else found[0])
        for at, level in made.items():
            done[at] = find_failure(level) or _passages(level)
    return done


def find_failure(outcomes: Iterable[object]) -> Failure | None:
    """What ended the work, if anything did, else the first failure, else None."""
    failures = [one for one in outcomes if isinstance(one, Failure)]
    return next((one for one in failures if is_stop(one)), failures[0] if failures else None)


def is_stop(failure: object) -> bool:
    """Whether nothing more can be asked: the budget is used up, or the model does not answer."""
    return isinstance(failure, BudgetExhaustedError | ModelUnavailableError)


def _languages(batch: Sequence[Passage]) -> list[str]:
    return [one.language for one in batch]


def _passages(level: Sequence[object] | Failure) -> list[Passage]:
    return [one for one in level if isinstance(one, Passage)] if not isinstance(level, Failure) else []
